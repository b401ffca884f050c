"""Tables and the figure of docs/less-to-release.md: lean clients, bits, and the client alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from statistics import fmean
from typing import Any

from attncem.config.options.surrogates import KMeansOptions
from attncem.records.campaign_table import CellResult
from attncem.records.leaks import BEYOND, LIMIT, say_leak
from attncem.records.metrics import METRICS
from attncem.records.statistics import Interval, difference_apart
from attncem.records.study import ACCURACY
from attncem.records.study.leaking import nats_disagree
from attncem.reporting import wording
from attncem.reporting.campaign.plots import Ink
from attncem.reporting.figures import marker_of
from evidence.drawing import legend, svg
from evidence.source import Setting, Source, planned_cells
from evidence.words import table, table_of

CAMPAIGN = "lean-cifar10"
FIGURE = "less-to-release.svg"
NOT_MEASURED = "–"
LOST = 0.01
"""How much validation accuracy a recommended client may lose against the most accurate one."""
GUESS = "class mean"
"""The blind guess of whoever knows the label."""


@dataclass(frozen=True)
class Measured:
    """An arm of the campaign at one point, with the record of its first seed."""

    arm: Setting
    cell: CellResult

    @property
    def budget(self) -> int:
        """What its client may cost: the declared budget of a lean client, else what the client does cost."""
        return int(self.arm.config.model.macs or self.cell.client_macs or 0)

    @property
    def is_code(self) -> bool:
        """Whether its releases are codes without noise."""
        return self.arm.config.channel[-1].name == "quantise"

    @property
    def accuracy(self) -> Interval:
        """On test images, with its interval over them."""
        score = self.arm.cells[0].score(ACCURACY)
        assert score is not None
        return Interval(score.mean, score.low, score.high)

    def leak(self, name: str) -> float | None:
        """A number of the leak on test images."""
        leak = self.arm.cells[0].leak(name)
        return None if leak is None else leak.mean

    def error(self, measure: str, row: str = "") -> float:
        """A measure of the strongest attack on one release, or of a row."""
        return fmean(self.arm.values(measure, row=row))

    @property
    def validated(self) -> tuple[float, float] | None:
        """Accuracy and limit on validation images."""
        for kind, audit in self.arm.cells[0].audits.items():
            accuracy, leak = audit.score(ACCURACY), audit.leak(LIMIT)
            if kind.evaluation == "validation" and accuracy is not None and leak is not None:
                return accuracy.mean, leak.mean
        return None


def measured(source: Source) -> list[Measured]:
    """All arms of the campaign that release something, in its order; empty if it is not measured."""
    made = source.table(CAMPAIGN)
    if made is None:
        return []
    cells = {(cell.arm, repr(cell.point)): cell for cell in reversed(made.cells)}
    return [Measured(arm, cells[arm.name, repr(dict(arm.point))]) for arm in source.arms(CAMPAIGN)]


def alone(source: Source) -> dict[int, list[CellResult]]:
    """The candidates of the client alone by what they may cost, the chosen one first."""
    made = source.table(CAMPAIGN)
    budgets = {planned.cell.arm: planned.cell.budget for planned in planned_cells(CAMPAIGN)}
    candidates: dict[int, list[CellResult]] = {}
    for cell in made.cells if made else ():
        if (budget := budgets[cell.arm]) is not None:
            candidates.setdefault(budget, []).append(cell)
    for cells in candidates.values():
        cells.sort(key=lambda cell: (not cell.alone, -(cell.validation_accuracy or 0)))
    return dict(sorted(candidates.items()))


def chosen(source: Source) -> dict[int, Interval]:
    """The accuracy of the client alone on test images, by budget."""
    firsts = {budget: cells[0].alone or {} for budget, cells in alone(source).items()}
    return {budget: Interval(*scores["test"]) for budget, scores in firsts.items() if "test" in scores}


def recommended(source: Source, budget: int) -> Measured | None:
    """On validation images, the least leak among the lean clients with noise that lose at most a point."""
    rows = [(one, one.validated) for one in measured(source) if not one.is_code and one.budget == budget]
    lean = [(one, *numbers) for one, numbers in rows if numbers and one.arm.config.model.name == "lean"]
    enough = max((accuracy for _, accuracy, _ in lean), default=0.0) - LOST
    return min(
        ((limit, one) for one, accuracy, limit in lean if accuracy >= enough), default=(0.0, None), key=itemgetter(0)
    )[1]


# tables


def client(one: Measured) -> str:
    """The client and its budget."""
    model = one.arm.config.model
    name = "lean" if model.name == "lean" else f"{model.name}, cut {model.cut}"
    return f"{name}, {wording.count(one.budget)}"


def method(one: Measured) -> str:
    """The penalty with its weight."""
    surrogate, weight = one.arm.config.surrogate, one.arm.weight
    kind = " per dimension" if isinstance(surrogate, KMeansOptions) and surrogate.per_dimension else ""
    return f"{surrogate.name}{kind} {weight:g}" if weight else "none"


def percent(interval: Interval) -> str:
    """An accuracy in percent."""
    return f"{100 * interval.mean:.1f}"


def added(one: Measured, references: dict[int, Interval]) -> str:
    """The points that the server adds to the client alone, with their interval over images."""
    if one.budget not in references:
        return NOT_MEASURED
    apart = difference_apart(one.accuracy, references[one.budget])
    return f"{points(apart.mean)} ({points(apart.low)} to {points(apart.high)})"


def points(difference: float) -> str:
    """A difference of accuracies in percentage points, never a negative zero."""
    return f"{round(100 * difference, 1) + 0.0:+.1f}"


def error(measure: str, one: Measured, row: str = "") -> str:
    """A measure with its digits."""
    return f"{one.error(measure, row):.{METRICS[measure].decimals}f}"


def leak(name: str, one: Measured) -> str:
    """A number of the leak; a dash where the audit has none."""
    value = one.leak(name)
    if value is None:
        return NOT_MEASURED
    entry = one.arm.cells[0].leak(name)
    at = " (at the ceiling)" if entry is not None and entry.at_ceiling else ""
    return say_leak(name, value) + at


def noisy_table(source: Source) -> str:
    """Clients whose release has noise: accuracy, what the server adds, attacks, and nats."""
    references, rows = chosen(source), [one for one in measured(source) if not one.is_code]
    columns: dict[str, Callable[[Measured], str]] = {
        "client": client,
        "penalty, λ": method,
        "accuracy %": lambda one: percent(one.accuracy),
        "the server adds, points": partial(added, references=references),
        "MSE": partial(error, "mse"),
        "structure": partial(error, "structure"),
        "SSIM": partial(error, "ssim"),
        "MSE ×256": partial(leak, "mse_most"),
        "nats ≤": partial(leak, LIMIT),
        "beyond the label ≤": partial(leak, BEYOND),
        "InfoNCE ≥": partial(leak, "infonce"),
        "re-identified %": partial(leak, "reidentified"),
    }
    blind = [error(measure, rows[0], GUESS) for measure in ("mse", "structure", "ssim")]
    lines = [[write(row) for write in columns.values()] for row in rows]
    empty = [""] * (len(columns) - 4 - len(blind))
    return table(list(columns), [["a guess that knows the label", "", "", "", *blind, *empty], *lines], left=2)


def disagreements(source: Source) -> str:
    """What contradicts a ranking by the limit, for each pair of lean clients of one penalty weight and budget."""
    rows = [one for one in measured(source) if not one.is_code and one.arm.config.model.name == "lean"]
    levels = sorted({(one.arm.weight, one.budget) for one in rows})
    findings = [
        item.text
        for level in levels
        for item in nats_disagree([one.arm for one in rows if (one.arm.weight, one.budget) == level])
    ]
    return "\n".join(f"- {text}." for text in findings) or "None."


def identity(source: Source) -> str:
    """Whether re-identification follows the limit on the leak: the order of rows by both, and codes beside noise."""
    from scipy.stats import kendalltau

    rows = [one for one in measured(source) if one.arm.config.model.name == "lean" and one.leak("reidentified")]
    noisy = [(_number(one, LIMIT), _number(one, "reidentified")) for one in rows if not one.is_code]
    codes = [(one, _number(one, LIMIT), _number(one, "reidentified")) for one in rows if one.is_code]
    if len(noisy) < 3 or not codes:
        return "Not measured yet."
    below = [(limit, share) for limit, share in noisy if share < _ALL]
    tau = float(kendalltau(*zip(*below, strict=True)).statistic)
    lines = [
        f"- {len(below)} noisy lean rows below 100 %: the orders by re-identification and by the limit agree with "
        f"Kendall's tau {tau:.2f}, from {_ends(min(below))} to {_ends(max(below))}."
    ]
    for one, limit, share in sorted(codes, key=itemgetter(1)):
        near = min(noisy, key=lambda pair: abs(pair[0] - limit))
        lines.append(
            f"- {one.arm.name.replace('-', ' ')}: {_ends((limit, share))}; noise with the nearest limit: {_ends(near)}."
        )
    return "\n".join(lines)


_ALL = 0.9995
"""Shares from here on are shown as 100 %."""


def _number(one: Measured, name: str) -> float:
    value = one.leak(name)
    assert value is not None
    return value


def _ends(pair: tuple[float, float]) -> str:
    return f"{100 * pair[1]:.1f} % at {say_leak(LIMIT, pair[0])} nats"


def bits_table(source: Source) -> str:
    """Codes without noise: their bits and bytes, and what they leak for any number of queries."""
    references = chosen(source)
    rows = sorted((one for one in measured(source) if one.is_code), key=lambda one: int(one.arm.name.split("-")[0]))
    columns: dict[str, Callable[[Measured], str]] = {
        "code": lambda one: one.arm.name.replace("-", " "),
        "accuracy %": lambda one: percent(one.accuracy),
        "the server adds, points": partial(added, references=references),
        "MSE": partial(error, "mse"),
        "structure": partial(error, "structure"),
        "nats ≤, any number of queries": partial(leak, LIMIT),
        "InfoNCE ≥": partial(leak, "infonce"),
        "re-identified %": partial(leak, "reidentified"),
    }
    return table_of(rows, columns)


def alone_table(source: Source) -> str:
    """The candidates of the client alone: chosen by validation accuracy, the chosen one measured on test images."""
    lines = [
        [
            wording.count(budget),
            str(cell.point["network"]),
            wording.count(cell.client_macs or 0),
            f"{100 * (cell.validation_accuracy or 0):.1f}",
            percent(Interval(*cell.alone["test"])) if cell.alone else "",
        ]
        for budget, cells in alone(source).items()
        for cell in cells
    ]
    return table(["budget", "network", "multiply-accumulates", "validation %", "test %"], lines, left=2)


def recommended_table(source: Source) -> str:
    """For each budget, the client alone beside the recommended client with a server."""
    references = chosen(source)
    rows = [(budget, recommended(source, budget)) for budget in references]
    columns: dict[str, Callable[[tuple[int, Measured | None]], str]] = {
        "budget": lambda row: wording.count(row[0]),
        "the client alone %": lambda row: percent(references[row[0]]),
        "recommended with a server": lambda row: method(row[1]) if row[1] else NOT_MEASURED,
        "accuracy %": lambda row: percent(row[1].accuracy) if row[1] else "",
        "the server adds, points": lambda row: added(row[1], references) if row[1] else "",
        "nats ≤": lambda row: leak(LIMIT, row[1]) if row[1] else "",
    }
    return table_of(rows, columns)


# the figure


def figure(source: Source) -> bytes | None:
    """Accuracy over the limit on the leak, a colour for each budget; None if not measured yet."""
    rows, references = measured(source), chosen(source)
    shown = [one for one in rows if one.leak(LIMIT)]
    if not shown:
        return None

    def draw(axes: Any, ink: Ink) -> None:
        budgets = sorted({one.budget for one in shown})
        for place, budget in enumerate(budgets):
            _points(axes, [one for one in shown if one.budget == budget], ink.of(place), budget)
            if budget in references:
                level = 100 * references[budget].mean
                label = f"{wording.count(budget)}, the client alone"
                axes.axhline(level, color=ink.of(place), linewidth=0.9, linestyle="dashed", label=label)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlabel("nats that one release leaks at most (95 % limit)")
        axes.set_ylabel("accuracy %")
        _label(axes, [(one, ink.of(budgets.index(one.budget))) for one in shown])
        legend(axes)

    return svg("less-to-release", "Accuracy and the limit on the leak", draw)


def _points(axes: Any, rows: Sequence[Measured], color: str, budget: int) -> None:
    kinds = {"codes": [one for one in rows if one.is_code], "noise": [one for one in rows if not one.is_code]}
    for place, (kind, some) in enumerate(kinds.items()):
        places = [(one.leak(LIMIT), 100 * one.accuracy.mean) for one in some]
        if not places:
            continue
        style = {"color": color, "markersize": 5, "linestyle": "", "label": f"{wording.count(budget)}, {kind}"}
        axes.plot(*zip(*places, strict=True), marker_of(place), **style)


_PLACES = ((5, 3, "left"), (5, -9, "left"), (-5, 3, "right"), (-5, -9, "right"), (5, 12, "left"), (5, -18, "left"))
"""Where the words of a point may stand, in points from it, the preferred place first."""
_SIZE = 6.5


def _label(axes: Any, rows: Sequence[tuple[Measured, str]]) -> None:
    """The words of every point, each in the first place where it covers neither a point nor other words."""
    scale = 72 / axes.figure.dpi
    spots = [axes.transData.transform((one.leak(LIMIT), 100 * one.accuracy.mean)) * scale for one, _ in rows]
    taken, end = [(x - 3, y - 3, x + 3, y + 3) for x, y in spots], axes.bbox.x1 * scale
    for (one, color), (x, y) in zip(rows, spots, strict=True):
        words = one.arm.name.replace("-", " ") if one.is_code else _short(one)
        wide = 0.6 * _SIZE * len(words)
        boxes = [
            (left := x + right if side == "left" else x + right - wide, y + up, left + wide, y + up + _SIZE)
            for right, up, side in _PLACES
        ]
        free = (place for place, box in enumerate(boxes) if box[2] < end and not any(map(partial(_cover, box), taken)))
        chosen = next(free, 0)
        taken.append(boxes[chosen])
        right, up, side = _PLACES[chosen]
        where = one.leak(LIMIT), 100 * one.accuracy.mean
        axes.annotate(words, where, (right, up), textcoords="offset points", ha=side, fontsize=_SIZE, color=color)


Box = tuple[float, float, float, float]


def _cover(one: Box, other: Box) -> bool:
    """Whether two boxes (left, low, right, high) overlap."""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _short(one: Measured) -> str:
    words = method(one).replace(" per dimension", "/dim")
    return words if one.arm.config.model.name == "lean" else f"{one.arm.config.model.name}, {words}"
