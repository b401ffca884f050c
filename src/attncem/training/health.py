"""When a training's own numbers say that something went wrong: every limit in one place, no torch.

Training asks a Watch about each line it logs; the report and the audit ask the log (``spans``).
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
"""A class's penalty below this counts as switched off (a softplus never reaches 0)."""
REACHED = 0.05
"""Penalty of the plain class variance, a mean over dimensions, from which on the target is not reached."""
REACHED_TOTAL = 1.0
"""The same summed over the dimensions, in nats a sample: 0.05 a dimension would still be 26 nats in 512 of them, and
less than one nat is less than half of what tells ten classes apart. Both must be below for nothing to be left."""
MOSTLY = 0.9
"""A class whose penalty was off in more than this share of its batches was hardly ever penalised."""
KEPT_SPREAD = 0.9
"""Where a surrogate logs no plain_loss: the part of its first intra_mse above which the spread counts as unchanged."""
PATIENCE = 3
"""Lines in a row that must agree before a warning begins or ends."""
TARGETED = ("latched", "reported", "gradient_effect")
"""Readings that mean nothing, and are not a number, once the target is reached."""
SHOWN = {"active": "active", "effective_samples": "eff", "slot_entropy": "slots", "gradient_ratio": "grad"}
"""The health figures of the progress line, and their short names there."""


@dataclass(frozen=True)
class Check:
    """One number with its limit. It is too high where ``clear`` lies below ``limit``, else too low.

    Between the two a warning stays as it is, so that it does not flicker.
    """

    key: str
    limit: float
    clear: float

    def is_bad(self, value: float) -> bool | None:
        """Whether the value is beyond the limit; None between the limit and where it clears."""
        if math.isnan(value):
            return False
        sign = 1 if self.clear < self.limit else -1
        if sign * (value - self.limit) > 0:
            return True
        return False if sign * (value - self.clear) <= 0 else None


@dataclass(frozen=True)
class Cause:
    """Why a warning is raised: any of its checks is bad in ``patience`` lines in a row that hold its number.

    What it means and what to do stand in the catalogue under `health.NAME`.
    """

    name: str
    checks: tuple[Check, ...]
    patience: int = PATIENCE

    @property
    def meaning(self) -> Sentence:
        """What happened, in one line, as it is written down."""
        return written(f"health.{self.name}.meaning")

    @property
    def advice(self) -> Sentence:
        """What to do about it, as it is written down."""
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
    """The numbers of a train line that can be judged: none while nothing is penalised.

    ``reported`` is rob_loss over plain_loss; without plain_loss it is 0 where rob_loss is 0 and intra_mse has not
    fallen from ``first_spread``. ``gradient_effect`` is gradient_ratio. A line in which the surrogate has shut itself
    off in every step says nothing of what it reports (``latched`` tells where that lasts), one with some such steps
    does; but the step whose gradient was measured may be one of them. Slots that no class was given to, as those of
    `hybrid` in its first epoch, say nothing.
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
    """Judges the train and validation lines of a run one after the other.

    Its state follows from the lines alone: fed the lines of a log again, it goes on as if never interrupted.
    """

    num_classes: int = 0
    """0: not known, so that accuracies are not judged."""
    begun: set[str] = field(default_factory=set)
    streaks: dict[str, int] = field(default_factory=dict)
    first_spread: float | None = None

    def update(self, record: Record) -> list[dict[str, Any]]:
        """The warnings that begin or end with this line, as records for the log."""
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
        """The number that makes this warning begin or end now; None where it stays as it is."""
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
    """A record of kind "warning"; ``begins`` is false where it ends. No value: not finite, or the target is reached.

    Its text is in English, as all that is written down.
    """
    limit = next((check.limit for check in CAUSES[name].checks if check.key == key), None)
    place = {"kind": "warning", "step": step, "epoch": epoch, "cause": name, "begins": begins}
    record = {**place, "key": key, "value": value, "limit": limit}
    return {**record, "text": _sentence(record)}


def _sentence(record: Record) -> Sentence:
    """What a record of kind "warning" says: the meaning of its cause, and the number that made it begin or end."""
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
    """One warning from its beginning to its end, in epochs; ``ends`` is None where it still stood at the last line."""

    cause: str
    text: Sentence
    begins: float
    ends: float | None

    def holds_at(self, epoch: float) -> bool:
        """Whether the warning stood at this epoch."""
        return self.begins <= epoch and (self.ends is None or self.ends > epoch)

    @property
    def sentence(self) -> Sentence:
        """The warning with its time and what to do, in one line, as it is written down."""
        until = written("health.until.on") if self.ends is None else written("health.until.end", epoch=self.ends)
        advice = CAUSES[self.cause].advice
        return written("health.span", begins=self.begins, until=until, said=self.text, advice=advice)

    @property
    def finding(self) -> Finding:
        """The warning as a finding about the training."""
        return finding("training", written("about.training", cause=self.cause), said=self.sentence)


def spans(records: Iterable[Record]) -> list[Span]:
    """The warnings of a log in the order of their beginnings; a log that holds none is judged anew."""
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
    """When a number raises a warning, in a few words; empty where it has no limit."""
    check = next((check for cause in CAUSES.values() for check in cause.checks if check.key == key), None)
    if check is None:
        return ""
    return text(f"health.warning.{'above' if check.clear < check.limit else 'below'}", limit=check.limit)


def finite(value: Any) -> float | None:
    """A finite float, or None for anything else."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
