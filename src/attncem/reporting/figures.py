"""Figures as inline SVG: deterministic, free of outside references, coloured by the page's style sheet.

Matplotlib draws with marker colours that are then replaced by CSS variables, so that one drawing serves the
light and the dark page.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from attncem.health import describe_limit, finite
from attncem.reporting import asking
from attncem.reporting.load import Entry, Record, RunView
from attncem.reporting.tables import floors
from attncem.reporting.wording import describe_sight
from attncem.results.audit import Row, Score
from attncem.texts import has_text, text

NUM_COLORS = 8
INK, MUTED, GRID = "#010203", "#040506", "#070809"
_VARIABLES = {INK: "var(--ink)", MUTED: "var(--muted)", GRID: "var(--line)"} | {
    f"#a0b0c{index}": f"var(--run-{index})" for index in range(NUM_COLORS)
}
_MARKERS = "osD^vPX*"
_MAX_POINTS = 300

STYLE: Any = {
    "axes.edgecolor": MUTED,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "figure.facecolor": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.0,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "svg.fonttype": "none",
    "svg.hashsalt": "attncem",
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
}


@dataclass(frozen=True)
class Drawing:
    """One finished figure: SVG text, a title, a note beside it, and the key of metrics.jsonl that is drawn, if any."""

    title: str
    svg: str
    note: str = ""
    key: str = ""


@dataclass(frozen=True)
class Line:
    """One curve in the colour of its run."""

    label: str
    color: int
    x: list[float]
    y: list[float]


PANELS = (("validation", "accuracy"), ("validation", "ce"), ("train", "rob_loss"), ("train", "intra_mse"))
"""What is drawn of every training; titles are in the catalogue, under `figure.panel.NAME`."""
HEALTH = (
    "active",
    "plain_loss",
    "effective_samples",
    "effective_number",
    "slot_entropy",
    "gate_dimension",
    "gate_snr",
    "gate_class",
    "gate_saturation",
    "gradient_ratio",
    "latched",
    "shut_off",
    "skipped",
)
"""What is drawn of the surrogates' health; titles are under `figure.health.NAME`."""
_RARE = frozenset({"latched", "shut_off", "skipped"})
"""Not drawn where they are 0 throughout."""
Kind = Literal["number", "share", "ratio"]
KINDS: dict[str, Kind] = {"plain_loss": "number", "effective_number": "number", "gradient_ratio": "ratio"}
"""What a health figure is where it is not a share."""
_SMALL_RATIO = 1e-3
"""The axis of a ratio is logarithmic above this and linear below, so that 0 has a place."""


def training_curves(runs: Sequence[RunView], colors: Sequence[int] | None = None) -> list[Drawing]:
    """Small multiples of training: one panel per quantity that any run has logged; by default a colour for each run."""
    drawings = []
    for kind, key in PANELS:
        lines, title = _lines(runs, kind, key, colors), text(f"figure.panel.{key}")
        note = text(f"figure.panel.{key}.note") if has_text(f"figure.panel.{key}.note") else ""
        if lines:
            drawings.append(Drawing(title, _curves(f"curve-{key}", title, text("figure.epoch"), lines), note, key))
    return drawings


def health_curves(runs: Sequence[RunView]) -> list[Drawing]:
    """Small multiples of the surrogates' health, each with the limit that raises a warning."""
    drawings = []
    for key in HEALTH:
        lines, title = _lines(runs, "train", key), text(f"figure.health.{key}")
        if lines and not (key in _RARE and not any(any(line.y) for line in lines)):
            svg = _curves(f"health-{key}", title, text("figure.epoch"), lines, kind=KINDS.get(key, "share"))
            drawings.append(Drawing(title, svg, describe_limit(key), key))
    return drawings


def _lines(runs: Sequence[RunView], kind: str, key: str, colors: Sequence[int] | None = None) -> list[Line]:
    places = range(len(runs)) if colors is None else colors
    lines = [_line(run, color, kind, key) for color, run in zip(places, runs, strict=True)]
    return [line for line in lines if line.y]


def attack_curves(entries: Sequence[Entry]) -> list[Drawing]:
    """Small multiples of attacks: error on the attacker's own validation images against budget."""
    lines: dict[str, list[Line]] = {}
    for entry in entries:
        for row in (row for row in entry.audit.attacks if row.verdict.curve):
            curve = row.verdict.curve
            x, y = [point.epochs for point in curve], [point.validation_error for point in curve]
            lines.setdefault(row.name, []).append(Line(entry.label, entry.color, x, y))
    return [
        Drawing(name, _curves(f"attack-{index}", text("figure.attack", name=name), text("figure.attack.x"), group))
        for index, (name, group) in enumerate(lines.items())
    ]


def asking_curves(entries: Sequence[Entry]) -> list[Drawing]:
    """Small multiples of attacks that ask again: error against the number of releases; crosses: pixels that move."""
    panels: dict[str, list[tuple[Entry, asking.Series]]] = {}
    for entry in entries:
        for line in asking.series(entry.audit):
            panels.setdefault(line.base, []).append((entry, line))
    note = text("figure.asking.note")
    return [
        Drawing(name, _asking(f"asking-{index}", name, group), note if any(line.moved for _, line in group) else "")
        for index, (name, group) in enumerate(panels.items())
    ]


def _asking(key: str, name: str, group: Sequence[tuple[Entry, asking.Series]]) -> str:
    told = []
    with drawing(key, text("figure.asking", name=name), (4.4, 2.5)) as (axes, finish):
        for entry, line in group:
            color, marker = color_of(entry.color), marker_of(entry.color)
            x, y = [row.releases for row in line.still], [row.mse.mean for row in line.still]
            axes.plot(x, y, color=color, linewidth=1.4, marker=marker, markersize=3.5)
            axes.plot([row.releases for row in line.moved], [row.mse.mean for row in line.moved], "x", color=color)
            told += [(entry.label, row) for row in (*line.still, *line.moved)]
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlabel(text("figure.asking.x"))
        axes.set_ylim(bottom=0.0)
    sentence = (text("figure.asking.point", run=run, sight=describe_sight(row), mse=row.mse.mean) for run, row in told)
    return finish("; ".join(sentence))


@dataclass(frozen=True)
class Point:
    """One audit that has both an accuracy and an attack with a result."""

    entry: Entry
    accuracy: Score
    mse: Score


def trade_off(entries: Sequence[Entry]) -> Drawing | None:
    """Accuracy against the strongest attack's MSE, with both intervals and blind floors; the note names their audit."""
    points = [point for entry in entries if (point := _point(entry))]
    if not points:
        return None
    title, floored = text("figure.trade_off"), next((point for point in points if floors(point.entry.audit)), points[0])
    shown = _shown_floors(points, floored)
    with drawing("trade-off", title, (8.4, 4.4)) as (axes, finish):
        for point in points:
            _draw(axes, point)
        axes.margins(x=0.12, y=0.14)
        _floor_lines(axes, shown)
        axes.set_ylim(bottom=max(axes.get_ylim()[0], 0.0))
        axes.set_xlabel(text("figure.trade_off.x"))
        axes.set_ylabel(text("figure.trade_off.y"))
        _labels(axes, points, shown)
    return Drawing(title, finish("; ".join(_told(point) for point in points)), floored.entry.label)


def _point(entry: Entry) -> Point | None:
    audit = entry.audit
    if audit.accuracy is None or not audit.strongest:
        return None
    return Point(entry, audit.accuracy, audit.strongest_attack.mse)


def _told(point: Point) -> str:
    accuracy, mse = 100 * point.accuracy.mean, point.mse.mean
    return text("figure.trade_off.point", run=point.entry.label, accuracy=accuracy, mse=mse)


def _line(run: RunView, color: int, kind: str, key: str) -> Line:
    records: Sequence[Record] = run.train if kind == "train" else run.validation
    pairs = [(finite(record.get("epoch")), finite(record.get(key))) for record in records]
    points = [(x, y) for x, y in pairs if x is not None and y is not None]
    step = -(-len(points) // _MAX_POINTS) or 1
    points = sorted({*points[::step], *points[-1:]})
    return Line(run.label, color, [x for x, _ in points], [y for _, y in points])


def _curves(key: str, title: str, xlabel: str, lines: Sequence[Line], *, kind: Kind = "number") -> str:
    with drawing(key, title, (4.4, 2.5)) as (axes, finish):
        for line in lines:
            marker = marker_of(line.color) if len(line.x) <= 12 else ""
            axes.plot(line.x, line.y, color=color_of(line.color), linewidth=1.4, marker=marker, markersize=3.5)
        axes.set_xlabel(xlabel)
        if kind == "share":
            axes.set_ylim(-0.03, 1.03)
        if kind == "ratio":
            axes.set_yscale("symlog", linthresh=_SMALL_RATIO)
            axes.yaxis.set_major_formatter("{x:g}")
    last = [text("figure.value", run=line.label, value=line.y[-1]) for line in lines]
    return finish(text("figure.last_values", values="; ".join(last)))


def _draw(axes: Any, point: Point) -> None:
    accuracy, mse, color = point.accuracy, point.mse, point.entry.color
    x = 100 * accuracy.mean
    axes.errorbar(
        x,
        mse.mean,
        xerr=[[max(x - 100 * accuracy.low, 0)], [max(100 * accuracy.high - x, 0)]],
        yerr=[[max(mse.mean - mse.low, 0)], [max(mse.high - mse.mean, 0)]],
        color=color_of(color),
        marker=marker_of(color),
        markersize=6,
        linewidth=1.2,
        capsize=2.5,
    )


def _labels(axes: Any, points: Sequence[Point], shown: Sequence[Row]) -> None:
    """Write each run's name beside its point, in the first place that covers no point and no other name."""
    place = (axes.transData - axes.transAxes).transform
    places = [place((100 * point.accuracy.mean, point.mse.mean)) for point in points]
    taken = [(x - 0.012, x + 0.012, y) for x, y in places]
    for point, (_, y) in zip(points, places, strict=True):
        ends = [place((100 * end, 0.0))[0] for end in (point.accuracy.low, point.accuracy.high)]
        taken.append((ends[0], ends[1], y))
    taken += [(0.0, 1.0, place((0.0, row.mse.mean))[1]) for row in shown]
    for point, (x, y) in zip(points, places, strict=True):
        width = 0.012 * len(point.entry.label)
        spots = [(x + side, y + rise, side > 0) for rise in (0, 0.055, -0.055, 0.11, -0.11) for side in (0.022, -0.022)]
        free = [spot for spot in spots if _is_free(spot, width, taken)]
        left, height, rightwards = (free or spots)[0]
        taken.append((left, left + width, height) if rightwards else (left - width, left, height))
        axes.annotate(
            point.entry.label,
            (left, height),
            xycoords="axes fraction",
            color=color_of(point.entry.color),
            ha="left" if rightwards else "right",
            va="center",
            fontweight="bold",
        )


def _is_free(spot: tuple[float, float, bool], width: float, taken: Sequence[tuple[float, float, float]]) -> bool:
    x, height, rightwards = spot
    left, right = (x, x + width) if rightwards else (x - width, x)
    inside = left >= 0 and right <= 1 and 0 < height < 1
    return inside and not any(left < end and start < right and abs(height - y) < 0.05 for start, end, y in taken)


def _shown_floors(points: Sequence[Point], floored: Point) -> list[Row]:
    """The lowest blind floor, and those within twice the highest point: farther ones would flatten the figure."""
    found = floors(floored.entry.audit)
    ceiling = max(2 * max(point.mse.high for point in points), min((row.mse.mean for row in found), default=0.0))
    return [row for row in found if row.mse.mean <= ceiling]


def _floor_lines(axes: Any, shown: Sequence[Row]) -> None:
    for index, row in enumerate(shown):
        axes.axhline(row.mse.mean, color=MUTED, linewidth=0.9, linestyle="--")
        axes.annotate(
            text("figure.floor", name=row.name, mse=row.mse.mean),
            (0.005 + 0.2 * index, row.mse.mean),
            xycoords=("axes fraction", "data"),
            xytext=(0, 2),
            textcoords="offset points",
            color=MUTED,
            fontsize=8,
        )


def color_of(index: int) -> str:
    """The marker colour of a run's place in the palette."""
    return f"#a0b0c{index % NUM_COLORS}"


def marker_of(index: int) -> str:
    """The point's shape that goes with it."""
    return _MARKERS[(index + index // NUM_COLORS) % len(_MARKERS)]


_KEPT: ContextVar[list[Figure] | None] = ContextVar("figures that are kept", default=None)


@contextmanager
def kept() -> Iterator[list[Figure]]:
    """What is drawn inside, one after the other, as figures of matplotlib in the marker colours."""
    made: list[Figure] = []
    before = _KEPT.set(made)
    try:
        yield made
    finally:
        _KEPT.reset(before)


@contextmanager
def drawing(key: str, title: str, size: tuple[float, float]) -> Iterator[tuple[Any, Callable[[str], str]]]:
    """Axes to draw on, and a function that, afterwards, turns them into SVG with a description.

    The figure never enters pyplot, so nothing global is kept and nothing has to be closed.
    """
    done: list[str] = []
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(figure)
        yield (
            figure.add_subplot(),
            lambda values: _clean(done[0], key, text("figure.description", title=title, values=values)),
        )
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
        done.append(buffer.getvalue())
        if (made := _KEPT.get()) is not None:
            made.append(figure)


def _clean(svg: str, key: str, description: str) -> str:
    """Make matplotlib's SVG fit to stand inside a page among others."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    head, body = svg.split(">", 1)
    box = re.search(r'viewBox="[^"]+"', head)
    assert box is not None
    body = re.sub(r'\bid="([^"]+)"', rf'id="{key}-\1"', body)
    body = re.sub(r'(?:xlink:)?href="#([^"]+)"', rf'href="#{key}-\1"', body)
    body = re.sub(r"url\(#([^)]+)\)", rf"url(#{key}-\1)", body)
    body = re.sub(r"font: ([^;\"]*?)([\d.]+px) [^;\"]+", r"font: \1\2 var(--font)", body)
    body = re.sub("|".join(_VARIABLES), lambda match: _VARIABLES[match[0]], body)
    return f'<svg {box[0]} role="img" aria-label="{escape(description)}">{body}'
