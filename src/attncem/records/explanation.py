"""Results of explain() for one image: its feature, its class, and reconstructions of the release by attacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from attncem.base.record import Record
from attncem.base.texts import text
from attncem.base.texts.titles import row_title
from attncem.records.findings import Finding
from attncem.records.frames import html_pictures
from attncem.records.judgement import Judgement
from attncem.records.prediction import Prediction
from attncem.records.units import Units

_GATES = ("gate_dimension", "gate_snr", "gate_class")
GATES = (*_GATES, *(f"slot_{name}" for name in _GATES))
"""Gates that have a sentence (`explain.gate.NAME`); slot gates are separate, as attention may have gates too."""


class FeatureTile(Record):
    """One channel of the feature, clean and released, as PNG files in base64.

    ``snr``: the image's squared distance from its class mean in this channel over the squared change by the channel;
    None where the channel changed nothing, or the class is unknown.
    """

    name: str
    clean: str
    released: str
    snr: float | None


class FeatureView(Record):
    """The feature as pictures; black is ``low`` and white is ``high`` everywhere; ``hidden`` channels are left out."""

    shape: list[int]
    low: float
    high: float
    tiles: list[FeatureTile]
    hidden: int
    snr: float | None


class ClassRow(Record):
    """One class of the reference batch: the mean variance of z inside it, and its penalty where it has one.

    ``divided`` says whether the surrogate divides this class into parts; None where it divides no class.
    """

    label: int
    name: str
    images: int
    variance: float
    penalty: float | None
    divided: bool | None = None


class PartShare(Record):
    """A slot, cluster or component of the class: its share of the image, and its mean share of the others."""

    image: float
    others: float


class Gate(Record):
    """A gate of the image's class: its values over the features; slot gates are taken over all slots.

    ``saturated``: fraction within 0.01 of 0 or 1.
    """

    name: str
    mean: float
    low: float
    high: float
    saturated: float


class ClassView(Record):
    """The image among validation images of its class.

    Distances are of z to the mean of the class's other images, root mean square over the features, in units of
    ``unit``. ``attention`` is the image's weight inside the class, followed by the weights of the others; they sum to
    1. ``part`` names the parts into which the surrogate divides classes; without ``shares`` it does not divide this
    class.
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


class Recovery(Record):
    """One attack's reconstruction of the release, by measure; ``audit_mse`` is its mean in the audit of these weights.

    ``from_audit``: it is the audit's strongest attack with its learned state. ``judgement`` is the audit's, None
    where no larger budget was tested.
    """

    name: str
    kind: Literal["floor", "attack"]
    image: str
    scores: dict[str, float]
    audit_mse: float | None
    from_audit: bool = False
    judgement: Judgement | None = None

    @property
    def mse(self) -> float:
        """The measure that ranks attacks."""
        return self.scores["mse"]


class Explanation(Record):
    """The path of one image through one run; pictures are PNG files in base64.

    ``units`` say what an error on this image means.
    """

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
    findings: list[Finding]
    units: Units | None = None

    __repr__ = Record.brief

    def _repr_html_(self) -> str:
        shown = [(self.image, text("explain.picture.image"))]
        if self.prediction.seen is not None:
            shown.append((self.prediction.seen.picture, text("explain.picture.seen")))
        for row in self.recoveries:
            shown.append((row.image, text("explain.picture.error", name=row_title(row.name), mse=row.mse)))
        return html_pictures(repr(self), shown)
