"""Warnings from the numbers that a training logs: every limit in one place, no torch.

Training checks each logged line with a Watch; the report and the audit read the log (``spans``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from attncem.base.texts import Sentence, text, written
from attncem.records.findings import Finding, finding

Record = Mapping[str, Any]

SATURATED = 0.05
"""A gate this close to 0 or 1 counts as saturated."""
OFF = 1e-6
"""A class penalty below this counts as off (a softplus never reaches 0)."""
REACHED = 0.05
"""The target is not reached while the penalty of the plain class variance, a mean over dimensions, is above this."""
REACHED_TOTAL = 1.0
"""The same limit for the sum over the dimensions, in nats per sample. With 512 dimensions, 0.05 per dimension would
still be 26 nats; less than one nat is less than half of the information that separates ten classes. The target is
reached when both are below their limits."""
MOSTLY = 0.9
"""A class whose penalty was off in more than this share of its batches counts as hardly ever penalised."""
KEPT_SPREAD = 0.9
"""For a surrogate without plain_loss: the spread counts as unchanged above this part of its first intra_mse."""
PATIENCE = 3
"""Consecutive lines that must agree before a warning starts or ends."""
TARGETED = ("latched", "reported", "gradient_effect")
"""Readings that have no meaning, and are NaN, once the target is reached."""
SHOWN = {"active": "active", "effective_samples": "eff", "slot_entropy": "slots", "gradient_ratio": "grad"}
"""The health figures of the progress line, and their short names there."""


@dataclass(frozen=True)
class Check:
    """One number with its limit: an upper limit where ``clear`` is below ``limit``, else a lower one.

    Between the two a warning keeps its state, so that it does not flicker.
    """

    key: str
    limit: float
    clear: float

    def is_bad(self, value: float) -> bool | None:
        """Whether the value is beyond the limit; None between ``limit`` and ``clear``."""
        if math.isnan(value):
            return False
        sign = 1 if self.clear < self.limit else -1
        if sign * (value - self.limit) > 0:
            return True
        return False if sign * (value - self.clear) <= 0 else None


@dataclass(frozen=True)
class Cause:
    """Cause of a warning: one of its checks fails in ``patience`` consecutive lines that contain its number.

    Its meaning and remedy are in the catalogue under `health.NAME`.
    """

    name: str
    checks: tuple[Check, ...]
    patience: int = PATIENCE

    @property
    def meaning(self) -> Sentence:
        """The meaning in one line, in the language of the files."""
        return written(f"health.{self.name}.meaning")

    @property
    def advice(self) -> Sentence:
        """The remedy, in the language of the files."""
        return written(f"health.{self.name}.advice")


CAUSES: dict[str, Cause] = {
    cause.name: cause
    for cause in (
        Cause("attention", (Check("effective_samples", 0.1, 0.15), Check("effective_number", 1.2, 1.5))),
        Cause("slots", (Check("slot_entropy", 0.05, 0.1),)),
        Cause("gates_saturated", (Check("gate_saturation", 0.5, 0.4),)),
        Cause(
            "gates_closed",
            (Check("gate_dimension", 0.02, 0.04), Check("gate_snr", 0.02, 0.04), Check("gate_class", 0.02, 0.04)),
        ),
        Cause("gates_hide", (Check("snr_passed", 0.8, 0.85),)),
        Cause("latched", (Check("latched", 0.8, 0.5),), patience=1),
        Cause("blind", (Check("reported", 0.05, 0.1),)),
        Cause("skipped", (Check("skipped", 0.05, 0.04),)),
        Cause("few_samples", (Check("class_samples", 3.0, 3.5), Check("cluster_samples", 2.0, 2.5))),
        Cause("singular", (Check("singular", 0.5, 0.4),)),
        Cause("normalised_away", (Check("removed", 0.5, 0.4),)),
        Cause("projected_away", (Check("kept_variance", 0.5, 0.6),)),
        Cause("dominates", (Check("gradient_ratio", 10.0, 7.0),), patience=1),
        Cause("idle", (Check("gradient_effect", 0.001, 0.002),), patience=2),
        Cause("useless", (Check("times_chance", 1.5, 2.0),), patience=5),
        Cause("not_finite", ()),
    )
}
"""Every cause of a warning by name."""


def readings(record: Record, first_spread: float | None = None) -> dict[str, float]:
    """The numbers of a train line that can be checked; empty while nothing is penalised.

    ``reported`` is rob_loss over plain_loss; without plain_loss it is 0 where rob_loss is 0 and intra_mse has not
    fallen from ``first_spread``. ``gradient_effect`` is gradient_ratio. A line whose steps were all shut off by the
    surrogate gives no ``reported`` (``latched`` shows where that lasts); a line with some such steps does, but the step
    with the measured gradient may be one of them. Slots without a class, as in the first epoch of `hybrid`, give no
    number.
    """
    found = {key: number for key, value in record.items() if (number := finite(value)) is not None}
    if not found.get("penalty_weight", 1.0) or found.get("fitted", 1.0) < 1:
        return {}
    if not found.get("risk_share", 1.0):
        found = {key: number for key, number in found.items() if not key.startswith("slot_")}
    plain, shut = found.get("plain_loss"), found.get("shut_off", 0.0)
    if plain is not None and plain < REACHED and found.get("plain_total", 0.0) < REACHED_TOTAL:
        return found | dict.fromkeys(TARGETED, math.nan)
    effect = {"gradient_effect": found["gradient_ratio"]} if "gradient_ratio" in found and not shut else {}
    return found | effect | (_reported(found, plain, first_spread) if shut < 1 else {})


def _reported(found: Mapping[str, float], plain: float | None, first_spread: float | None) -> dict[str, float]:
    if "rob_loss" not in found:
        return {}
    if plain:
        return {"reported": found["rob_loss"] / plain}
    if first_spread is None or abs(found["rob_loss"]) >= OFF:
        return {}
    return {"reported": 0.0} if found.get("intra_mse", 0.0) >= KEPT_SPREAD * first_spread else {}


@dataclass
class Watch:
    """Checks the train and validation lines of a run in order.

    Its state depends on the lines alone: with the lines of a log it continues as if never interrupted.
    """

    num_classes: int = 0
    """0: unknown, accuracies are not checked."""
    begun: set[str] = field(default_factory=set)
    streaks: dict[str, int] = field(default_factory=dict)
    first_spread: float | None = None

    def update(self, record: Record) -> list[dict[str, Any]]:
        """The warnings that start or end with this line, as records for the log."""
        found = self._readings(record)
        changed = []
        for name, cause in CAUSES.items():
            key = self._change(name, cause, found)
            if key is not None:
                place = {"step": record["step"], "epoch": record["epoch"]}
                changed.append(warning(name, key, finite(found[key]), begins=name in self.begun, **place))
        return changed

    def _readings(self, record: Record) -> dict[str, float]:
        if record.get("kind") == "validation":
            return {"times_chance": record["accuracy"] * self.num_classes} if self.num_classes else {}
        if record.get("kind") != "train":
            return {}
        found = readings(record, self.first_spread)
        if self.first_spread is None:
            self.first_spread = found.get("intra_mse")
        return found

    def _change(self, name: str, cause: Cause, found: Mapping[str, float]) -> str | None:
        """The number that starts or ends this warning now; None if nothing changes."""
        verdicts = {check.key: check.is_bad(found[check.key]) for check in cause.checks if check.key in found}
        if not verdicts:
            return None
        wanted = name not in self.begun
        agreeing = [key for key, is_bad in verdicts.items() if is_bad is wanted]
        agrees = bool(agreeing) if wanted else len(agreeing) == len(verdicts)
        self.streaks[name] = self.streaks.get(name, 0) + 1 if agrees else 0
        if self.streaks[name] < cause.patience:
            return None
        self.streaks[name] = 0
        self.begun ^= {name}
        return agreeing[0]


def warning(name: str, key: str, value: float | None, *, begins: bool, step: int, epoch: float) -> dict[str, Any]:
    """A record of kind "warning"; ``begins`` is false at its end. No value: not finite, or the target is reached.

    Its text is in English, as in every file.
    """
    limit = next((check.limit for check in CAUSES[name].checks if check.key == key), None)
    place = {"kind": "warning", "step": step, "epoch": epoch, "cause": name, "begins": begins}
    record = {**place, "key": key, "value": value, "limit": limit}
    return {**record, "text": _sentence(record)}


def _sentence(record: Record) -> Sentence:
    """The text of a record of kind "warning": the meaning of its cause, and the number that started or ended it."""
    cause, begins, key = CAUSES[record["cause"]], record["begins"], str(record.get("key"))
    value, limit = finite(record.get("value")), finite(record.get("limit"))
    if value is None:
        number = key if begins else written("health.target_reached")
    else:
        number = f"{key} {value:.3g}"
        number = written("health.limited", number=number, limit=limit) if limit is not None and begins else number
    what = cause.meaning if begins else written("health.over", cause=cause.meaning.split(":")[0])
    return written("health.told", what=what, known=number)


@dataclass(frozen=True)
class Span:
    """One warning from start to end, in epochs; ``ends`` is None if it was active at the last line."""

    cause: str
    text: Sentence
    begins: float
    ends: float | None

    def holds_at(self, epoch: float) -> bool:
        """Whether the warning was active at this epoch."""
        return self.begins <= epoch and (self.ends is None or self.ends > epoch)

    @property
    def sentence(self) -> Sentence:
        """The warning with its time and remedy in one line, in the language of the files."""
        until = written("health.until.on") if self.ends is None else written("health.until.end", epoch=self.ends)
        advice = CAUSES[self.cause].advice
        return written("health.span", begins=self.begins, until=until, said=self.text, advice=advice)

    @property
    def finding(self) -> Finding:
        """The warning as a finding about the training."""
        return finding("training", written("about.training", cause=self.cause), said=self.sentence)


def spans(records: Iterable[Record]) -> list[Span]:
    """The warnings of a log in order of their start; for a log without warning records, from its lines."""
    lines = list(records)
    told: Sequence[Record] = [line for line in lines if line.get("kind") == "warning" and line.get("cause") in CAUSES]
    found: list[Span] = []
    for line in told or _judge(lines):
        if line["begins"]:
            sentence = Sentence(str(line["text"]), _sentence(line).source)
            found.append(Span(line["cause"], sentence, float(line["epoch"]), None))
            continue
        last = max((i for i, span in enumerate(found) if span.cause == line["cause"]), default=None)
        if last is not None:
            found[last] = Span(found[last].cause, found[last].text, found[last].begins, float(line["epoch"]))
    return found


def _judge(records: Iterable[Record]) -> list[dict[str, Any]]:
    watch = Watch()
    return [change for record in records if record.get("kind") == "train" for change in watch.update(record)]


def describe_limit(key: str) -> str:
    """The limit of a number in a few words; empty without a limit."""
    check = next((check for cause in CAUSES.values() for check in cause.checks if check.key == key), None)
    if check is None:
        return ""
    return text(f"health.warning.{'above' if check.clear < check.limit else 'below'}", limit=check.limit)


def finite(value: Any) -> float | None:
    """A finite float, or None for anything else."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
