"""Audit results: the subject, one row for each attack, floor, probe and certificate, and the join of the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from attncem.base.plugins import PluginUse
from attncem.base.record import Record
from attncem.base.texts import Sentence
from attncem.base.types import RunError
from attncem.config.threats import ThreatModel
from attncem.records.averaging import Averaging
from attncem.records.bounds import Bound
from attncem.records.client_costs import ClientCosts
from attncem.records.findings import Finding
from attncem.records.frames import frame, html_table, table_of
from attncem.records.judgement import Judgement, State
from attncem.records.metrics import ACCURACY
from attncem.records.remaining import Remaining, remaining
from attncem.records.rivals import Rival
from attncem.records.score import Score
from attncem.records.selective import Selective
from attncem.records.units import Units

Outcome = Literal["ok", "not_applicable", "failed", "damaged"]
Kind = Literal["floor", "attack", "certificate", "probe"]
Role = Literal["fixed", "best", "worst"]
NO_LABEL = -1
"""Label of a picture where the images have none."""


class BudgetPoint(Record):
    """One point of an attack's learning curve: the error on the attacker's validation images."""

    epochs: float
    validation_error: float


class FamilyPoint(Record):
    """One decoder of a family: its width, the fraction and number of attacker images it learned from, its error."""

    width: int
    fraction: float
    images: int
    validation_error: float


class Verdict(Record):
    """The attack's report on its fit. Not reliable: a larger budget would still lower the error.

    ``chosen`` are the options that the attack chose on its own images. With a ``fixed_budget`` the attack used its
    published budget, and a larger one was not tested. ``family`` are all decoders that were tried, where there are
    several.
    """

    reliable: bool = True
    gain_of_doubling: float | None = None
    curve: list[BudgetPoint] = field(default_factory=list)
    num_parameters: int = 0
    chosen: dict[str, float] = field(default_factory=dict)
    fixed_budget: bool = False
    family: list[FamilyPoint] = field(default_factory=list)


class Picture(Record):
    """One evaluation image and its reconstruction by a row; both are PNG files in the audit's folder.

    ``label`` is -1 where the images have none.
    """

    index: int
    label: int
    role: Role
    original: str
    image: str
    mse: float


_EFFORT = ("releases", "jitter", "num_releases", "epochs", "max_epochs")
"""Options that do not make it a different attack; the verdict says whether a budget was enough."""


class Row(Record):
    """One line of an audit: the method, its outcome and its scores.

    ``outcome`` is `ok`, or `not_applicable`, `failed` or `damaged` (its file was changed) with a ``reason`` in English;
    ``reason_source`` is its key and values, empty where the catalogue does not have it. ``owns``: the attacker's images
    from which it learned, all or those that the client would send. ``sees`` is the data of the
    evaluation images that it used, with ``releases`` of each image and pixels changed by up to ``jitter`` grey levels;
    ``must_beat`` are the methods that it must beat. ``scores`` are by measure; so is ``chance``, the score of a probe
    that sees nothing. ``by`` is the attack whose pictures a probe used. An .npz file in the same folder holds per-image
    values; of the strongest attacks a .safetensors file holds the learned state (`records/ledger.py`).
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
    chance: dict[str, float] = field(default_factory=dict)
    by: str = ""
    jitter: int = 0
    reason_source: Mapping[str, Any] = field(default_factory=dict)
    owns: Literal["all", "sent"] = "all"

    __repr__ = Record.brief

    @property
    def why(self) -> Sentence:
        """The reason as a sentence that can be translated."""
        return Sentence(self.reason, self.reason_source)

    @property
    def ok(self) -> bool:
        """Whether there is a result."""
        return self.outcome == "ok"

    @property
    def unfinished(self) -> bool:
        """Whether the same command repeats it."""
        return self.outcome in ("failed", "damaged")

    @property
    def mse(self) -> Score:
        """The measure that ranks attacks."""
        return self.scores["mse"]

    @property
    def sight(self) -> tuple[int, int]:
        """Releases and jitter; only rows with equal values are compared."""
        return self.releases, self.jitter

    @property
    def question(self) -> tuple[str, str]:
        """Method and options without releases, jitter and budgets: equal for rows that differ only in those."""
        asked = {key: value for key, value in self.options.items() if key not in _EFFORT}
        return self.method, repr(sorted(asked.items())) + self.owns.removeprefix("all")


@dataclass(frozen=True)
class Risk:
    """The class and the images that the strongest attack recovers best by MSE, which a mean hides.

    ``per_class`` and ``per_class_p05`` are the mean and 5th percentile of each class (None: no image, or not kept),
    ``exposed_class`` is the class with the lowest mean, and the most exposed 5 % of images have an error below ``p05``.
    """

    per_class: list[float | None]
    per_class_p05: list[float | None]
    exposed_class: int | None
    p05: float


class Subject(ClientCosts):
    """The judged model: facts of the run, or of a foreign encoder with its channel and data.

    ``fingerprint`` covers the front end's options, the encoder's weights and the channel's options. Without a server
    half the server's numbers are 0 and the accuracy is absent; the client's numbers are None where its file cannot be
    counted. ``weights`` is empty for a foreign encoder, whose training is unknown; ``encoder`` says how its file was
    used. ``num_classes`` is 0 where the images have no labels, ``images_per_class`` where training used all images.
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
    client_macs: int | None
    server_macs: int
    client_parameters: int | None
    server_parameters: int
    bytes_per_query: int
    training_seconds: float
    front_end: dict[str, Any] = field(default_factory=lambda: {"name": "none"})
    encoder: dict[str, Any] = field(default_factory=dict)
    images_per_class: int = 0

    @property
    def foreign(self) -> bool:
        """Whether it is a foreign encoder, without a run."""
        return not self.weights


class AuditPlan(Record):
    """The request, written before the first row: the head of an audit's folder.

    ``rows`` are all rows of the suite in order; ``changed`` are the options that differ from the packaged suite.
    ``evaluation`` names the evaluation images: `test`, or `validation` where the audit serves a selection.
    ``signal_to_noise`` is the variance of z over the mean square of the channel's change, by channel of z (None: no
    change).
    ``reference`` is the undefended run that probes use, with its fingerprint; empty: none.
    ``units`` say what an error on these images means (None: made before they were measured).
    ``plugins`` are those of the run and of the rows. ``selective``: the client sends only some images, and only those
    are judged; ``accuracy`` is then that of client and server together on all of them.
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
    signal_to_noise: list[float | None] = field(default_factory=list)
    reference: str = ""
    units: Units | None = None
    plugins: list[PluginUse] = field(default_factory=list)
    selective: Selective | None = None

    __repr__ = Record.brief


class AuditPart(Record):
    """One audit of a join of several suites: its plan, its folder, and its names of the rows by their names there."""

    plan: AuditPlan
    folder: str
    rows: dict[str, str]


class AuditResult(Record):
    """One audit: the join of the rows on disk. ``strongest`` is empty where no attack has a result.

    ``strongest`` is chosen among the attacks that saw what the threat model grants; ``leaders`` are the strongest for
    each number of releases and jitter, ``averaging`` is the gain from more releases, ``rivals`` are attacks that may
    lose. ``parts`` are the audits that were joined, where there are several (`records/study/suites.py`).
    ``judgement`` says what it can tell and what leaks (`records/judge.py`).
    """

    plan: AuditPlan
    rows: list[Row]
    strongest: str
    findings: list[Finding]
    folder: str = ""
    leaders: list[str] = field(default_factory=list)
    averaging: list[Averaging] = field(default_factory=list)
    parts: list[AuditPart] = field(default_factory=list)
    judgement: Judgement = Judgement()
    rivals: list[Rival] = field(default_factory=list)

    def __repr__(self) -> str:
        accuracy = "" if self.accuracy is None else f", accuracy {self.accuracy.mean:.4f}"
        best = f", {self.strongest} mse {self.strongest_attack.mse.mean:.4f}" if self.strongest else ""
        sent = "" if self.plan.selective is None else f", judged on the {100 * self.plan.selective.share:.1f} % sent"
        return f"AuditResult({self.subject.run}, {self.plan.id}, {len(self.rows)} rows{accuracy}{best}{sent})"

    def _repr_html_(self) -> str:
        return html_table(repr(self), table_of(self.rows, self.strongest))

    def to_frame(self) -> Any:
        """The rows as a pandas DataFrame, with the mean and interval ends of each measure; RunError without pandas."""
        return frame(table_of(self.rows, self.strongest))

    @property
    def subject(self) -> Subject:
        """The judged model."""
        return self.plan.subject

    @property
    def accuracy(self) -> Score | None:
        """Accuracy on the attacked releases; None without a server half."""
        return self.plan.accuracy

    @property
    def known_accuracy(self) -> Score:
        """The accuracy; RunError where the subject has no server half."""
        if self.plan.accuracy is None:
            raise RunError(f"{self.subject.run} has no server half, so it has no accuracy")
        return self.plan.accuracy

    @property
    def num_seen(self) -> int:
        """The number of evaluation images; those that are not sent count, too."""
        facts = self.plan.selective
        return self.plan.num_evaluation if facts is None else facts.num_images

    @property
    def attacks(self) -> list[Row]:
        """The rows of attacks and floors that have a result."""
        return [row for row in self.rows if row.ok and row.kind in ("floor", "attack")]

    @property
    def missing(self) -> list[str]:
        """Rows of the suite that have no result but could have one: not run yet, failed, or damaged."""
        done = {row.name for row in self.rows if not row.unfinished}
        return [name for name in self.plan.rows if name not in done]

    @property
    def seconds(self) -> float:
        """Total time of the rows."""
        return sum(row.seconds for row in self.rows)

    def row(self, name: str) -> Row:
        """The row of this name; RunError where there is none."""
        row = next((row for row in self.rows if row.name == name), None)
        if row is None:
            names = ", ".join(it.name for it in self.rows) or "none"
            raise RunError(f"the audit {self.plan.id} has no row {name!r}; its rows are {names}")
        return row

    @property
    def plans(self) -> list[AuditPlan]:
        """The plans of the audits that were joined, or its only plan."""
        return [part.plan for part in self.parts] or [self.plan]

    def folder_of(self, row: str) -> str:
        """The folder of the audit that made this row."""
        return next((part.folder for part in self.parts if row in part.rows), self.folder)

    def score(self, measure: str, row: str = "") -> Score | None:
        """The accuracy, or a measure of the strongest attack or of the named row; None where it is absent."""
        if measure == ACCURACY:
            return self.accuracy
        return next((it.scores.get(measure) for it in self.attacks if it.name == (row or self.strongest)), None)

    @property
    def state(self) -> State:
        """Whether its numbers are reliable, not reliable, or not enough to tell."""
        return self.judgement.state

    @property
    def strongest_attack(self) -> Row:
        """The row with the lowest mean MSE, on common images."""
        return self.row(self.strongest)

    @property
    def by_releases(self) -> dict[tuple[int, int], Row]:
        """The strongest row by releases of each image and grey levels of jitter."""
        return {row.sight: row for row in map(self.row, self.leaders)}

    @property
    def remaining(self) -> dict[str, Remaining]:
        """What the strongest attack leaves of the best blind guess's error, for the measures that both rows have."""
        if not self.strongest:
            return {}
        floors = [row for row in self.attacks if row.kind == "floor"]
        found = {
            name: remaining(name, score.mean, {row.name: row.scores[name].mean for row in floors if name in row.scores})
            for name, score in self.strongest_attack.scores.items()
        }
        return {name: item for name, item in found.items() if item is not None}

    @property
    def risk(self) -> Risk | None:
        """The classes and images that the strongest attack recovers best; None where no attack has a result."""
        if not self.strongest:
            return None
        mse = self.strongest_attack.mse
        known = {label: mean for label, mean in enumerate(mse.per_class) if mean is not None}
        lacking: list[float | None] = [None] * (len(mse.per_class) - len(mse.per_class_p05))
        exposed = min(known, key=known.__getitem__, default=None)
        return Risk(mse.per_class, [*mse.per_class_p05, *lacking], exposed, mse.p05)

    @property
    def warnings(self) -> list[str]:
        """The findings as sentences."""
        return [item.text for item in self.findings]
