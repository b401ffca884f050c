"""Tests an audit by conditions under which it fails, as ``mse<0.02``; their grammar is in grammar.py.

Without a row, a measure is that of the strongest attack. A mean is tested at the end of its 95 % interval that makes
the condition more likely to hold, so that an audit passes only with confidence; quantiles, class means and the
balanced mean are tested as they are. A bound is tested at its claim: proven, not vacuous, and the tightest of its name.
An audit also fails if the number is missing. Conditions on attacks fail where the audit's judgement is not `reliable`,
and conditions on a probe where it judged few images.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from attncem.base.texts import Sentence, written
from attncem.judging.grammar import Condition, parse_conditions, spellings
from attncem.records.audit import AuditResult, Row
from attncem.records.bounds import Bound
from attncem.records.findings import Finding, finding
from attncem.records.judge import LEAST_JUDGED, judge
from attncem.records.judgement import State
from attncem.records.score import Score

__all__ = ["Checked", "Condition", "check", "parse_conditions"]


@dataclass(frozen=True)
class Checked:
    """The result of one test: whether the audit fails, and the sentence that says what was compared.

    ``state`` is that of the audit or probe where the sentence is a reason to distrust it.
    """

    failed: bool
    said: Finding
    state: State | None = None

    @property
    def condition(self) -> str:
        """The condition that was tested; empty for a reason to distrust the audit, and for --min-images."""
        return str(self.said.values.get("condition", ""))


def check(
    result: AuditResult, conditions: Sequence[Condition], rows: Sequence[str] | None = None, *, min_images: int = 0
) -> list[Checked]:
    """Test an audit: one line for each condition, and one for each reason to distrust the result.

    ``rows`` are those that must have a result or not be applicable, by default all of the suite. Where a condition
    tests the strongest attack, every reason of the audit's judgement fails (records/judge.py): nothing passes where
    the audit is not reliable, or not enough to tell. ``min_images`` is the least number of images that the strongest
    attack and every other tested row must have judged.
    """
    tested = [_tested(result, condition) for condition in conditions]
    checked = [line for _, lines in tested for line in lines]
    if min_images:
        judged = {row.name: row for read, _ in tested for row in read}
        checked.append(_enough_images(result, list(judged.values()), min_images))
    lacking = [name for name in result.missing if rows is None or name in rows]
    if lacking:
        checked.append(Checked(True, finding("fails_missing", rows=", ".join(lacking))))
    if any(condition.on_attacks or condition.on_accuracy for condition in conditions):
        judgement = judge(result)
        doubts = [reason for reason in judgement.reasons if reason.code != "doubt_failed"]  # named as missing
        checked += [Checked(True, doubt, judgement.state) for doubt in doubts]
    return checked


def _tested(result: AuditResult, condition: Condition) -> tuple[list[Row], list[Checked]]:
    """The rows that a condition reads, and its lines."""
    if condition.on_accuracy:
        return [], [_compared(condition, "", result.accuracy)]
    if condition.on_attacks:
        row = result.strongest_attack if result.strongest else None
        score = None if row is None else row.scores.get(condition.measure)
        return [row] if row else [], [_compared(condition, result.strongest, score)]
    rows = _rows(result, condition)
    if any(row.kind == "probe" for row in rows):
        return _probed(rows, condition)
    return _bounded(rows, condition)


def _rows(result: AuditResult, condition: Condition) -> list[Row]:
    """The probes or certificates that a condition may read, with the releases that the threat model grants."""
    sight = result.plan.threat.releases_per_input, result.plan.threat.jitter
    rows = [row for row in result.rows if row.kind in ("probe", "certificate") and row.sight == sight]
    if not condition.row:
        return [row for row in rows if row.kind == "certificate"]
    by_name = [row for row in rows if condition.row in spellings(row.name)]
    return by_name or [row for row in rows if row.method == condition.row]


def _absent(condition: Condition, rows: Sequence[Row]) -> Checked:
    """A number that the audit lacks; of a single row that has no result, with its reason."""
    if condition.row and len(rows) == 1 and rows[0].reason:
        return Checked(True, finding("fails_no_row", rows[0].name, condition=str(condition), reason=rows[0].why))
    return Checked(True, finding("fails_not_known", condition=str(condition)))


# numbers of attacks and probes


def _compared(condition: Condition, row: str, score: Score | None) -> Checked:
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


def _probed(rows: Sequence[Row], condition: Condition) -> tuple[list[Row], list[Checked]]:
    """The row whose number is the most unsafe; one that passes on few images fails for these."""
    scores = {row.name: row.scores[condition.measure] for row in rows if row.ok and condition.measure in row.scores}
    values = {name: value for name, score in scores.items() if (value := condition.value_of(score)) is not None}
    if not values:
        return [], [_absent(condition, rows)]
    worst = condition.unsafe(values.values())
    row = next(row for row in rows if values.get(row.name) == worst)
    line = _compared(condition, row.name, scores[row.name])
    few = finding("doubt_few_judged", row.name, count=row.num_images, wanted=LEAST_JUDGED)
    blocked = not line.failed and row.num_images < LEAST_JUDGED
    return [row], [line, Checked(True, few, "not_enough")] if blocked else [line]


# bounds


def _bounded(rows: Sequence[Row], condition: Condition) -> tuple[list[Row], list[Checked]]:
    """The tightest proven bound of this name; one that proves nothing cannot be passed."""
    having = [(row, row.bounds[condition.measure]) for row in rows if row.ok and condition.measure in row.bounds]
    if not having:
        return [], [_absent(condition, rows)]
    row, bound = min(having, key=lambda pair: _looseness(pair[1]))
    values = {"condition": str(condition), "claim": _claim(bound)}
    if bound.vacuous:
        line = Checked(True, finding("fails_vacuous", row.name, **values))
    elif bound.kind != "bound":
        line = Checked(True, finding("fails_estimate", row.name, **values))
    elif condition.holds(bound.claim):
        line = Checked(True, finding("fails_bound", row.name, **values))
    else:
        line = Checked(False, finding("passes_bound", row.name, **values))
    return [row], [line]


def _looseness(bound: Bound) -> tuple[bool, bool, float]:
    """Proven bounds first, then those that are not vacuous, then the tightest."""
    tight = bound.claim if bound.direction == "at_most" and bound.about != "releases" else -bound.claim
    return bound.kind != "bound", bound.vacuous, tight


def _claim(bound: Bound) -> Sentence:
    """The claim of a bound, as pages write it."""
    claim = written(f"bound.claim.{bound.direction}", claim=bound.claim, unit=bound.unit)
    return written("bound.confidence", said=claim) if bound.limit not in (None, bound.value) else claim


# images


def _enough_images(result: AuditResult, rows: Sequence[Row], wanted: int) -> Checked:
    """Whether the strongest attack and the tested rows judged enough images; names the row with the fewest."""
    judged = list(_judged(result, rows))
    row, count = min(judged, key=lambda pair: pair[1], default=("", result.plan.num_evaluation))
    code = "fails" if count < wanted else "passes"
    return Checked(count < wanted, finding(f"{code}_images", row, count=count, wanted=wanted))


def _judged(result: AuditResult, rows: Sequence[Row]) -> Iterator[tuple[str, int]]:
    strongest = [result.strongest_attack] if result.strongest else []
    return ((row.name, row.num_images) for row in (*strongest, *rows) if row.kind != "certificate")
