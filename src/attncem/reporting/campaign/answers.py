"""The first screen of a campaign's report: which arm is better, and one image as every arm's attack recovers it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from attncem.base.texts import text
from attncem.records.comparison import LEVEL, Comparison
from attncem.records.leaks import LIMIT
from attncem.records.statistics import smallest_p
from attncem.records.study import ACCURACY, AuditKind
from attncem.records.study.equal import is_better
from attncem.records.study.leaking import vacuous
from attncem.reporting.campaign.data import Wall, WallRow
from attncem.reporting.campaign.load import ERRORS, Judged, JudgedArm, compared, lost
from attncem.reporting.runs.gallery import Cell
from attncem.reporting.table_formats import said

NAMED = 6
"""Maximum number of answers; the table of tests has all of them."""
_SHOWN = 8
"""Maximum number of arms in the row of pictures."""
_TONES = {True: "yes", False: "no", None: ""}
SEEDS_NEEDED = next(number for number in count(2) if smallest_p(number, number) <= LEVEL)
"""Smallest number of seeds of both arms with which a test can show a difference."""


@dataclass(frozen=True)
class Clause:
    """What a test says about one quantity: the answer in a word, its colour, and the numbers behind it."""

    about: str
    word: str
    tone: str
    numbers: str


@dataclass(frozen=True)
class Answer:
    """An arm against the reference: privacy by the strongest attack's first measure, accuracy, the leak limit."""

    arm: str
    other: str
    clauses: Sequence[Clause]


def answers(study: Judged, kind: AuditKind, reference: str) -> list[Answer]:
    """One answer for every arm that has a counterpart in the reference arm, in the order of the arms."""
    tests, useless = study.against(reference, kind, compared(study, kind)), lost(study, kind)
    arms = {arm.label: arm for arm in study.arms}
    result = []
    for label, arm in arms.items():
        privacy, accuracy = tests.get((label, ERRORS[0])), tests.get((label, ACCURACY))
        if privacy is None:
            continue
        clauses = [_privacy(privacy, arm, arms[privacy.b], kind, useless)]
        clauses += [_clause("accuracy", accuracy, _code(accuracy))] if accuracy else []
        clauses += _leak(tests.get((label, LIMIT)), arm, arms[privacy.b], kind, useless)
        result.append(Answer(label, privacy.b, clauses))
    return result


def _privacy(test: Comparison, arm: JudgedArm, other: JudgedArm, kind: AuditKind, useless: set[str]) -> Clause:
    """Privacy; no answer for an arm that lost its accuracy, or where an audit of the better arm is in doubt."""
    if gone := [label for label in (test.a, test.b) if label in useless]:
        return Clause(_about("privacy"), text("arms.answer.none"), "", text("arms.answer.lost", arm=", ".join(gone)))
    better = is_better(test)
    hidden = None if better is None else arm if better else other
    if hidden is not None and hidden.unreliable(kind):
        return _clause("privacy", test, "unreliable", arm=hidden.label)
    return _clause("privacy", test, _code(test))


def _leak(
    test: Comparison | None, arm: JudgedArm, other: JudgedArm, kind: AuditKind, useless: set[str]
) -> list[Clause]:
    """The limit on the leak, where both have it; no answer for an arm that lost its accuracy, or by a vacuous bound."""
    if not (arm.leaks(LIMIT, kind) and other.leaks(LIMIT, kind)):
        return []
    if gone := [it.label for it in (arm, other) if it.label in useless]:
        return [Clause(_about("leak"), text("arms.answer.none"), "", text("arms.answer.lost", arm=", ".join(gone)))]
    if empty := [it.label for it in (arm, other) if vacuous(it, kind)]:
        return [Clause(_about("leak"), text("arms.answer.none"), "", text("arms.nats.vacuous", arm=", ".join(empty)))]
    return [_clause("leak", test, _code(test))] if test else []


def _code(test: Comparison) -> str:
    if test.verdict in ("no_difference_shown", "too_few_seeds"):
        return test.verdict
    return "better" if is_better(test) else "worse"


def _clause(about: str, test: Comparison, code: str, **values: str) -> Clause:
    unit = {ACCURACY: " %", LIMIT: " nats"}.get(test.measure, "")
    numbers = {"value": said(test.measure, test.mean_a) + unit, "other": said(test.measure, test.mean_b) + unit}
    p = f"{test.adjusted_p:.3f}" if test.adjusted_p is not None else ""
    if about != "privacy" and code == "too_few_seeds":  # the sentence about privacy has the number of seeds
        behind = text("arms.answer.means", **numbers)
    else:
        behind = text(f"arms.answer.{code}.numbers", p=p, seeds=SEEDS_NEEDED, **numbers, **values)
    if about != "accuracy":
        behind = text("arms.answer.measured", measure=text(f"measure.{test.measure}"), numbers=behind)
    tone = _TONES[{"better": True, "worse": False}.get(code)]
    return Clause(_about(about), text(f"arms.answer.{code}"), tone, behind)


def _about(quantity: str) -> str:
    return text(f"arms.answer.{quantity}")


@dataclass(frozen=True)
class PictureRow:
    """One image: the original, and its reconstruction on each arm; ``hidden`` arms are on the wall only."""

    original: Cell
    shots: Sequence[tuple[WallRow, Cell]]
    hidden: int = 0


def picture_row(walls: Sequence[Wall]) -> PictureRow | None:
    """The image that most arms have pictures of, from the largest wall; the first point of every arm comes first."""
    wall = max(walls, key=lambda wall: len(wall.rows), default=None)
    if wall is None or not wall.originals:
        return None
    index = max(wall.originals, key=lambda index: sum(index in row.pictures for row in wall.rows))
    rows = [row for row in wall.rows if index in row.pictures]
    firsts = {row.arm.name: row.arm.label for row in reversed(rows)}.values()
    chosen = sorted(rows, key=lambda row: row.arm.label not in firsts)[:_SHOWN]
    shots = [(row, row.album.cell(row.pictures[index])) for row in rows if row in chosen]
    return PictureRow(wall.originals[index], shots, len(wall.rows) + wall.hidden_rows - len(shots))
