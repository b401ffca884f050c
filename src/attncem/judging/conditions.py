"""Conditions under which an audit fails, as ``mse<0.02``: read from text, and tested on the strongest row.

A mean is tested at the end of its 95 % interval that makes the condition more likely to hold, so that an audit passes
only with confidence; quantiles, class means and the balanced mean are tested as they are. An audit also fails if the
number is missing, or if its judgement is not `reliable`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from attncem.base.types import ConfigError
from attncem.config.loading.suggest import did_you_mean, nearest
from attncem.records.audit import AuditResult, Score
from attncem.records.findings import Finding, finding
from attncem.records.judge import judge
from attncem.records.metrics import ACCURACY, METRICS

_SIGNS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_PARTS: dict[str, Callable[[Score], float | None]] = {
    "p05": lambda score: score.p05,
    "p95": lambda score: score.p95,
    "median": lambda score: score.median,
    "class_min": lambda score: min(_known(score), default=None),
    "class_max": lambda score: max(_known(score), default=None),
    "balanced": lambda score: score.balanced,
}
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_FORM = re.compile(rf"\s*([A-Za-z]\w*)(?:\.(\w+))?\s*(<=|>=|<|>)\s*({_NUMBER})\s*")


@dataclass(frozen=True)
class Condition:
    """MEASURE[.PART] SIGN LIMIT; without a part it tests the mean."""

    measure: str
    part: str
    sign: str
    limit: float

    def __str__(self) -> str:
        """The condition as a user would type it."""
        return f"{self.measure}{self.part and f'.{self.part}'}{self.sign}{self.limit:g}"

    def holds(self, value: float) -> bool:
        """Whether a value meets the condition."""
        return _SIGNS[self.sign](value, self.limit)

    def value_of(self, score: Score) -> float | None:
        """The number to compare: the part, or the unsafe end of the mean's interval; None if unknown."""
        if self.part:
            return _PARTS[self.part](score)
        return score.low if self.sign.startswith("<") else score.high


@dataclass(frozen=True)
class Checked:
    """The result of one test: whether the audit fails, and the sentence that says what was compared."""

    failed: bool
    said: Finding


def _known(score: Score) -> list[float]:
    return [mean for mean in score.per_class if mean is not None]


def parse_conditions(texts: Iterable[str]) -> list[Condition]:
    """Conditions from text; a ConfigError names the mistake and the likely intention."""
    return [_parse(text) for text in texts]


def _parse(text: str) -> Condition:
    found = _FORM.fullmatch(text)
    if found is None:
        raise ConfigError(
            f"fail-if {text!r}: must be MEASURE or MEASURE.PART, one of < <= > >=, and a number, e.g. mse<0.02 or "
            f"mse.p05<0.005 ({_allowed()})"
        )
    measure, part, sign, number = found[1], found[2] or "", found[3], float(found[4])
    for word, kind, names in ((measure, "measure", _measures()), (part, "part", ("", *_PARTS))):
        if word not in names:
            hint = did_you_mean(nearest(word, names, 0.4))
            raise ConfigError(f"fail-if {text!r}: {word} is not a {kind}{hint} ({_allowed()})")
    if measure == ACCURACY and not 0 <= number <= 1:
        raise ConfigError(f"fail-if {text!r}: accuracy is a share, from 0 to 1; did you mean {number / 100:g}?")
    return Condition(measure, part, sign, number)


def _measures() -> tuple[str, ...]:
    return (*METRICS, ACCURACY)


def _allowed() -> str:
    return f"measures: {', '.join(_measures())}; parts: {', '.join(_PARTS)}"


def check(result: AuditResult, conditions: Sequence[Condition], rows: Sequence[str] | None = None) -> list[Checked]:
    """Test an audit: one line for each condition, and one for each reason to distrust the result.

    ``rows`` are those that must have a result or not be applicable, by default all of the suite. Every reason of the
    audit's judgement fails (records/judge.py): nothing passes where the audit is not reliable, or not enough to tell.
    """
    lacking = [name for name in result.missing if rows is None or name in rows]
    doubts = [finding("fails_missing", rows=", ".join(lacking))] if lacking else []
    if not result.strongest:
        return [*_failed(doubts), Checked(True, finding("fails_no_attack"))]
    doubts += [reason for reason in judge(result).reasons if reason.code != "doubt_failed"]
    return [*(_tested(result, condition) for condition in conditions), *_failed(doubts)]


def _failed(doubts: Iterable[Finding]) -> Iterator[Checked]:
    return (Checked(True, doubt) for doubt in doubts)


def _tested(result: AuditResult, condition: Condition) -> Checked:
    row = "" if condition.measure == ACCURACY else result.strongest
    score = result.strongest_attack.scores.get(condition.measure) if row else result.accuracy
    value = None if score is None else condition.value_of(score)
    if score is None or value is None:
        return Checked(True, finding("fails_not_known", row, condition=str(condition)))
    word = "fails" if condition.holds(value) else "passes"
    if condition.part:
        said = finding(f"{word}_part", row, condition=str(condition), value=value)
    else:
        ends = {"mean": score.mean, "low": score.low, "high": score.high}
        said = finding(f"{word}_mean", row, condition=str(condition), value=value, **ends)
    return Checked(word == "fails", said)
