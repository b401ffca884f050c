"""Core types that every floor shares: results, protocols and the errors meant for people.

Nothing here imports torch at run time, so the command line and the reports can use it cheaply.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from torch import Tensor, nn

SCHEMA_VERSION = 1
"""Version of every JSON file this package writes."""

Auxiliary = Literal["train", "held_out", "published_infer", "shifted", "none"]


class AttncemError(Exception):
    """Root of the errors that are a person's to mend: shown without a traceback, exit code 2."""


class ConfigError(AttncemError, ValueError):
    """A configuration that cannot be used: names the key, the value and what is allowed."""


class DataError(AttncemError):
    """A data file that is missing, damaged or of the wrong shape: names the file."""


class RunError(AttncemError):
    """A run folder that cannot be created, read or resumed: names the file."""


class TrainingError(AttncemError):
    """Training that had to stop (NaN or infinity); the diagnostics are saved in the run folder."""


class Forbidden(AttncemError):
    """An attack asked for something that its threat model does not grant."""


@dataclass(frozen=True)
class DatasetSpec:
    """Facts of one data set; the only place for its normalisation constants.

    ``shape`` is (channels, height, width); ``mean`` and ``std`` are per channel on [0, 1] pixels.
    """

    name: str
    shape: tuple[int, int, int]
    num_classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    class_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class SurrogateOutput:
    """What a surrogate says about one batch.

    ``loss`` is the scalar ``rob_loss``; its gradient reaches z only, never the surrogate's own weights.
    ``fit_loss`` is a scalar on detached z that trains the own weights; None: nothing to fit.
    ``per_class`` is [num_classes], detached, nan where a class was skipped.
    ``diagnostics`` are detached scalars (intra_mse, effective_samples, gate means, shut_off, skipped ...).
    """

    loss: Tensor
    fit_loss: Tensor | None
    per_class: Tensor
    diagnostics: Mapping[str, Tensor]


@dataclass(frozen=True)
class Step:
    """One training batch on its way through the model: what a penalty may look at."""

    x: Tensor
    y: Tensor
    z: Tensor
    released: Tensor
    logits: Tensor


@dataclass(frozen=True)
class ThreatModel:
    """What an adversary knows and owns."""

    name: str
    knows_encoder: bool
    knows_channel: bool
    auxiliary: Auxiliary
    releases_per_input: int = 1


THREAT_MODELS: dict[str, ThreatModel] = {
    "train": ThreatModel("train", knows_encoder=True, knows_channel=True, auxiliary="train"),
    "held_out": ThreatModel("held_out", knows_encoder=True, knows_channel=True, auxiliary="held_out"),
    "published_infer": ThreatModel(
        "published_infer", knows_encoder=True, knows_channel=True, auxiliary="published_infer"
    ),
}
"""Threat models by name; each says which auxiliary images the adversary owns."""


class ReleaseOracle(Protocol):
    """All that an attack may touch; refuses what the threat model forbids.

    An oracle may also offer ``predict(released)``, the server's logits, ``num_classes``, and
    ``release_auxiliary(index, generator=…)``, a cheaper ``release`` of its auxiliary images.
    """

    threat: ThreatModel

    def auxiliary(self) -> Batches:
        """The images x in [0, 1] and labels y that the attacker owns, in batches."""
        ...

    def release(self, x: Tensor, *, copies: int = 1) -> Tensor:
        """A fresh release of x through the victim's encoder and true channel."""
        ...

    def encoder(self) -> nn.Module:
        """The victim's encoder; Forbidden unless the threat model knows it."""
        ...


class Attack(Protocol):
    """Recovers images from releases."""

    def fit(self, oracle: ReleaseOracle, *, seed: int) -> None:
        """Learn from what the oracle grants."""
        ...

    def reconstruct(self, released: Tensor) -> Tensor:
        """Images in [0, 1]."""
        ...


class Probe(Protocol):
    """An attack whose answer is no image: attribute, membership, re-identification."""

    def fit(self, oracle: ReleaseOracle, *, seed: int) -> None:
        """Learn from what the oracle grants."""
        ...

    def score(self, released: Tensor, truth: Tensor) -> Mapping[str, float]:
        """How well the truth is told from the release."""
        ...


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class BudgetPoint:
    """One point of an attack's learning curve: error on the attacker's own validation images."""

    epochs: float
    validation_mse: float


@dataclass(frozen=True)
class AttackResult:
    """One row of an audit. MSE and SSIM on [0, 1] images, PSNR in dB, each a mean over images."""

    name: str
    method: str
    kind: Literal["floor", "attack"]
    options: Mapping[str, Any]
    mse: Interval
    psnr: Interval
    ssim: Interval
    ssim_zero_pad: Interval
    per_class_mse: list[float | None]
    mse_5th_percentile: float
    reliable: bool
    warnings: list[str] = field(default_factory=list)
    gain_of_doubling: float | None = None
    curve: list[BudgetPoint] = field(default_factory=list)
    num_parameters: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class GalleryImage:
    """One evaluation image with its reconstructions: PNG files in base64, keyed by attack name."""

    index: int
    label: int
    role: Literal["fixed", "best", "worst"]
    original: str
    reconstructions: Mapping[str, str]
    mse: Mapping[str, float]


@dataclass(frozen=True)
class AuditResult:
    """One audit of one run under one threat model: one JSON file, floats never strings.

    ``evaluation`` names the images it was judged on: `test`, or `validation` when it served to choose something.
    """

    run: str
    surrogate: str
    penalty_weight: float
    noise_std: float
    dataset: str
    architecture: str
    cut: str
    seed: int
    suite: str
    suite_version: int
    threat: ThreatModel
    evaluation: str
    accuracy: Interval
    num_classes: int
    class_names: list[str]
    per_class_accuracy: list[float | None]
    num_evaluation: int
    num_auxiliary: int
    attacks: list[AttackResult]
    strongest: str
    gallery: list[GalleryImage]
    warnings: list[str]
    encoder_sha256: str
    data_sha256: str
    weights: str
    client_macs: int
    server_macs: int
    client_parameters: int
    server_parameters: int
    bytes_per_query: int
    training_seconds: float
    audit_seconds: float
    device: str
    versions: Mapping[str, str]
    schema_version: int = SCHEMA_VERSION

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-ready data."""
        return asdict(self)

    @property
    def strongest_attack(self) -> AttackResult:
        """The row with the lowest mean MSE."""
        return next(row for row in self.attacks if row.name == self.strongest)


def audit_from_dict(data: Mapping[str, Any]) -> AuditResult:
    """Rebuild an AuditResult from ``to_dict``'s data."""
    values = dict(data)
    values["threat"] = ThreatModel(**values["threat"])
    values["accuracy"] = Interval(**values["accuracy"])
    values["attacks"] = [_attack_from_dict(row) for row in values["attacks"]]
    values["gallery"] = [GalleryImage(**image) for image in values["gallery"]]
    return AuditResult(**values)


def _attack_from_dict(data: Mapping[str, Any]) -> AttackResult:
    values = dict(data)
    for key in ("mse", "psnr", "ssim", "ssim_zero_pad"):
        values[key] = Interval(**values[key])
    values["curve"] = [BudgetPoint(**point) for point in values["curve"]]
    return AttackResult(**values)


@dataclass(frozen=True)
class Release:
    """What left the client for one image; ``noise`` is fresh, keyed or none. The image's own bytes stand beside it."""

    shape: list[int]
    dtype: str
    bytes: int
    minimum: float
    maximum: float
    noise: str
    noise_std: float
    image_bytes: int
    file_bytes: int | None


@dataclass(frozen=True)
class Candidate:
    """One label with the server's probability for it."""

    label: int
    name: str
    probability: float


@dataclass(frozen=True)
class Prediction:
    """One image: the likeliest labels, best first, what was done to the file, what left the client."""

    source: str
    top: list[Candidate]
    true_label: int | None
    true_name: str | None
    preparation: list[str]
    release: Release
    saved: str | None = None


@dataclass(frozen=True)
class PredictionResult:
    """Predictions of one run for a few images."""

    run: str
    weights: str
    dataset: str
    channel: list[Mapping[str, Any]]
    predictions: list[Prediction]
    notes: list[str]
    schema_version: int = SCHEMA_VERSION

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-ready data."""
        return asdict(self)


@dataclass(frozen=True)
class FeatureTile:
    """One channel of the feature, clean and released, as PNG files in base64.

    ``snr``: how far the image lies from its class's mean in this channel, squared, over what the channel did to it,
    squared; None where the channel did nothing, or the class is unknown.
    """

    name: str
    clean: str
    released: str
    snr: float | None


@dataclass(frozen=True)
class FeatureView:
    """The feature as pictures: black is ``low``, white is ``high`` in all of them; ``hidden`` channels are left out."""

    shape: list[int]
    low: float
    high: float
    tiles: list[FeatureTile]
    hidden: int
    snr: float | None


@dataclass(frozen=True)
class ClassRow:
    """One class of the reference batch: mean variance of z inside it, and its penalty where it has one."""

    label: int
    name: str
    images: int
    variance: float
    penalty: float | None


@dataclass(frozen=True)
class PartShare:
    """A slot, cluster or component of the class: how much it takes of the image, and of the others on average."""

    image: float
    others: float


@dataclass(frozen=True)
class Gate:
    """A gate of the image's class: its values over the features; ``saturated``: share within 0.01 of 0 or 1."""

    name: str
    mean: float
    low: float
    high: float
    saturated: float


@dataclass(frozen=True)
class ClassView:
    """The image among validation images of its class.

    Distances are of z to the mean of the class's other images, root mean square over the features, in units of
    ``unit``. ``attention`` is the image's weight inside the class, the others' follow; they sum to 1.
    """

    label: int
    name: str
    is_true: bool
    distance: float | None
    distances: list[float]
    unit: str
    attention: float | None
    attentions: list[float]
    part: str
    shares: list[PartShare]
    gates: list[Gate]
    classes: list[ClassRow]
    diagnostics: Mapping[str, float]


@dataclass(frozen=True)
class Recovery:
    """What one attack makes of the release; ``audit_mse`` is its mean in the newest audit of the same weights."""

    name: str
    kind: Literal["floor", "attack"]
    image: str
    mse: float
    ssim: float | None
    audit_mse: float | None


@dataclass(frozen=True)
class Explanation:
    """Everything about one image on its way through one run; pictures are PNG files in base64."""

    run: str
    surrogate: str
    weights: str
    dataset: str
    penalty_weight: float
    prediction: Prediction
    image: str
    feature: FeatureView
    reference: ClassView
    recoveries: list[Recovery]
    attacker_images: int
    audit: str | None
    notes: list[str]
    schema_version: int = SCHEMA_VERSION

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-ready data."""
        return asdict(self)


Batches = Iterable[tuple["Tensor", "Tensor"]]
"""(z or x, y) pairs on the device."""
