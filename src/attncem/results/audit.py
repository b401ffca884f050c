"""What an audit finds: its subject, a row for everything that judged it, and the join of the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from attncem.results.findings import Finding
from attncem.results.record import Record
from attncem.results.threats import ThreatModel
from attncem.types import RunError

Outcome = Literal["ok", "not_applicable", "failed"]
Kind = Literal["floor", "attack", "certificate", "probe"]
Role = Literal["fixed", "best", "worst"]


@dataclass(frozen=True)
class Score(Record):
    """One measure over images: its mean with a 95 % bootstrap interval, its 5th and 95th percentile, and each class's
    mean (None: no image of the class).
    """

    mean: float
    low: float
    high: float
    p05: float
    p95: float
    per_class: list[float | None] = field(default_factory=list)


@dataclass(frozen=True)
class Bound(Record):
    """What a certificate gives: a proven bound or an estimate, in a unit, with what it assumes."""

    value: float
    unit: str
    low: float
    high: float
    kind: Literal["bound", "estimate"]
    assumptions: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class BudgetPoint(Record):
    """One point of an attack's learning curve: error on the attacker's own validation images."""

    epochs: float
    validation_error: float


@dataclass(frozen=True)
class Verdict(Record):
    """How an attack's fit went, by its own account. Not reliable: a larger budget would still gain."""

    reliable: bool = True
    gain_of_doubling: float | None = None
    curve: list[BudgetPoint] = field(default_factory=list)
    num_parameters: int = 0


@dataclass(frozen=True)
class Picture(Record):
    """One evaluation image as a row recovered it; both are PNG files in the audit's folder."""

    index: int
    label: int
    role: Role
    original: str
    image: str
    mse: float


@dataclass(frozen=True)
class Row(Record):
    """One line of an audit: what judged, how it ended, and what came out.

    ``outcome`` is `ok`, or `not_applicable` or `failed` with a ``reason``. ``sees`` is what of the evaluation images
    it looked at; ``must_beat`` are the methods that it must do better than. ``scores`` are by measure; per-image
    values lie beside it in an .npz file, and for the strongest attack what it had learned in a .safetensors file.
    """

    name: str
    method: str
    kind: Kind
    outcome: Outcome
    reason: str
    options: Mapping[str, Any]
    seed: int
    releases: int
    sees: str = "release"
    num_images: int = 0
    scores: dict[str, Score] = field(default_factory=dict)
    bounds: dict[str, Bound] = field(default_factory=dict)
    verdict: Verdict = Verdict()
    findings: list[Finding] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    must_beat: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether there is a result."""
        return self.outcome == "ok"

    @property
    def mse(self) -> Score:
        """The measure by which attacks are ranked."""
        return self.scores["mse"]


@dataclass(frozen=True)
class Subject(Record):
    """What was judged: facts of the run, or of a foreign encoder with its channel and data.

    ``fingerprint`` covers the encoder's weights and the channel's options. The numbers of the server are 0, and the
    accuracy is absent, where there is no server half.
    """

    run: str
    fingerprint: str
    weights: str
    surrogate: str
    penalty_weight: float
    noise_std: float
    channel: list[dict[str, Any]]
    noise_scheme: int
    dataset: str
    architecture: str
    cut: str
    seed: int
    num_classes: int
    class_names: list[str]
    data_sha256: str
    client_macs: int
    server_macs: int
    client_parameters: int
    server_parameters: int
    bytes_per_query: int
    training_seconds: float


@dataclass(frozen=True)
class AuditPlan(Record):
    """What was asked for, written before the first row: the head of an audit's folder.

    ``rows`` are all rows of the suite in order; ``changed`` are the options that differ from the packaged suite.
    ``evaluation`` names the images it is judged on: `test`, or `validation` where it serves to choose something.
    """

    id: str
    suite: str
    suite_version: int
    changed: list[str]
    rows: list[str]
    threat: ThreatModel
    evaluation: str
    seed: int
    subject: Subject
    num_evaluation: int
    num_auxiliary: int
    num_train: int
    accuracy: Score | None
    findings: list[Finding]
    device: str
    versions: Mapping[str, str]
    made: str = ""


@dataclass(frozen=True)
class AuditResult(Record):
    """One audit: the join of the rows on disk. ``strongest`` is empty where no attack has a result."""

    plan: AuditPlan
    rows: list[Row]
    strongest: str
    findings: list[Finding]
    folder: str = ""

    @property
    def subject(self) -> Subject:
        """What was judged."""
        return self.plan.subject

    @property
    def accuracy(self) -> Score | None:
        """Accuracy on the very releases that were attacked; None without a server half."""
        return self.plan.accuracy

    @property
    def known_accuracy(self) -> Score:
        """The accuracy; RunError where the subject has no server half."""
        if self.plan.accuracy is None:
            raise RunError(f"{self.subject.run} has no server half, so it has no accuracy")
        return self.plan.accuracy

    @property
    def attacks(self) -> list[Row]:
        """The rows of attacks and floors that have a result."""
        return [row for row in self.rows if row.ok and row.kind in ("floor", "attack")]

    @property
    def missing(self) -> list[str]:
        """Rows of the suite without a result that could have one: not run yet, or failed."""
        done = {row.name for row in self.rows if row.outcome != "failed"}
        return [name for name in self.plan.rows if name not in done]

    @property
    def seconds(self) -> float:
        """How long the rows took together."""
        return sum(row.seconds for row in self.rows)

    def row(self, name: str) -> Row:
        """The row of this name."""
        return next(row for row in self.rows if row.name == name)

    @property
    def strongest_attack(self) -> Row:
        """The row with the lowest mean MSE, on common images."""
        return self.row(self.strongest)

    @property
    def warnings(self) -> list[str]:
        """The findings as sentences."""
        return [item.text for item in self.findings]
