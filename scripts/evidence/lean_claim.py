"""Does attention leak less on a lean client? The choice of every penalty's weight, on validation images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from statistics import fmean

from attncem.records.leaks import LIMIT, say_leak
from attncem.records.study import ACCURACY
from evidence.source import Setting, Source
from evidence.words import not_measured, table_of

SELECTION = "claim-lean-selection-cifar10"
UNDEFENDED = "none"
ATTENTION = ("gated", "slot")
"""Arms of which the one with the lower limit is named before the six seeds."""
LOST = (0.0, 0.005)
"""How much validation accuracy an arm may lose against the undefended one: fixed before anything was measured."""
FALLEN, RANGE = 0.01, 64.0
"""The weights tried are enough where accuracy has fallen by this, over at least this factor of weights."""


@dataclass(frozen=True)
class Point:
    """A penalty at one weight: means over seeds on validation images."""

    arm: str
    weight: float
    accuracy: float
    limit: float
    seeds: int


def points(source: Source) -> dict[str, list[Point]]:
    """Every arm of the selection over its weights, in rising order; empty if it is not measured."""
    lines: dict[str, list[Point]] = {}
    for arm in source.arms(SELECTION):
        lines.setdefault(arm.name, []).append(_point(arm))
    return {arm: sorted(line, key=attrgetter("weight")) for arm, line in lines.items()}


def _point(arm: Setting) -> Point:
    return Point(
        arm.name, arm.weight, arm.mean(ACCURACY), fmean(leak.mean for leak in arm.leaks(LIMIT)), len(arm.cells)
    )


def floors(lines: Mapping[str, Sequence[Point]]) -> list[float]:
    """The least accuracy that counts as equal: the undefended one, and somewhat below it."""
    return [lines[UNDEFENDED][0].accuracy - lost for lost in LOST]


def choice(line: Sequence[Point], floor: float) -> Point | None:
    """The weight with the least limit among those that reach the floor; None where no weight does."""
    return min((one for one in line if one.accuracy >= floor), key=attrgetter("limit"), default=None)


def too_narrow(line: Sequence[Point], undefended: float) -> str:
    """Why the weights tried do not show an arm's whole front; empty where they do."""
    if line[-1].weight / line[0].weight < RANGE:
        return f"its weights span less than {RANGE:g} times"
    if line[-1].accuracy > undefended - FALLEN:
        return f"its accuracy has not fallen by {100 * FALLEN:g} point at λ = {line[-1].weight:g}: try larger weights"
    return ""


def attention(lines: Mapping[str, Sequence[Point]]) -> Point | None:
    """The attention arm that is named: the least limit at the highest floor that any of them reaches."""
    for floor in floors(lines):
        reached = [one for arm in ATTENTION if (one := choice(lines[arm], floor)) is not None]
        if reached:
            return min(reached, key=attrgetter("limit"))
    return None


def told(source: Source) -> list[str]:
    """The choices as lines: for every floor the weight of each arm, and the attention arm that is named."""
    lines = points(source)
    if not lines:
        return ["nothing to choose from yet"]
    defended = {arm: line for arm, line in lines.items() if arm != UNDEFENDED}
    made = [
        f"accuracy ≥ {100 * floor:.2f} %: "
        + "; ".join(_chosen(arm, choice(line, floor)) for arm, line in defended.items())
        for floor in floors(lines)
    ]
    undefended = lines[UNDEFENDED][0].accuracy
    narrow = [f"{arm}: {why}" for arm, line in defended.items() if (why := too_narrow(line, undefended))]
    named = attention(lines)
    return [*made, f"attention arm: {named.arm if named else 'none reaches a floor'}", *narrow]


def _chosen(arm: str, one: Point | None) -> str:
    return f"{arm} –" if one is None else f"{arm} λ = {one.weight:g} ({say_leak(LIMIT, one.limit)} nats)"


def selection_table(source: Source) -> str:
    """Every arm at every weight: accuracy and limit on validation images, and for which floors it is chosen."""
    lines = points(source)
    if not lines:
        return f"The weights are {not_measured(SELECTION)}."
    levels = floors(lines)
    defended = [line for arm, line in lines.items() if arm != UNDEFENDED]
    chosen = [{id(choice(line, floor)) for line in defended} for floor in levels]
    columns: dict[str, Callable[[Point], str]] = {
        "penalty": attrgetter("arm"),
        "λ": lambda one: f"{one.weight:g}",
        "seeds": lambda one: str(one.seeds),
        "accuracy %": lambda one: f"{100 * one.accuracy:.2f}",
        "nats ≤": lambda one: say_leak(LIMIT, one.limit),
    }
    for floor, picked in zip(levels, chosen, strict=True):
        columns[f"chosen at ≥ {100 * floor:.2f} %"] = partial(_mark, picked)
    return table_of([one for line in lines.values() for one in line], columns, left=1)


def _mark(picked: Set[int], one: Point) -> str:
    return "yes" if id(one) in picked else ""
