"""Figures as inline SVG: deterministic, free of outside references, coloured by the page's style sheet.

Matplotlib draws with marker colours, which CSS variables then replace, so that one drawing serves the light and the
dark page. Points and curves carry their values: the page's script shows them on hover and focus; without the script
a point has an SVG title.
"""

from __future__ import annotations

import io
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from html import escape
from typing import Any, Literal, Protocol

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from attncem.base.texts import has_text, text
from attncem.base.texts.titles import row_title
from attncem.records.study.runs import JudgedRun
from attncem.reporting.fonts import OWN, families
from attncem.reporting.runs import repeated_releases as asking
from attncem.reporting.runs.methods import Entry
from attncem.reporting.wording import describe_sight
from attncem.training.health import describe_limit, finite

NUM_COLORS = 8
INK, MUTED, GRID = "#010203", "#040506", "#070809"
_VARIABLES = {INK: "var(--ink)", MUTED: "var(--muted)", GRID: "var(--line)"} | {
    f"#a0b0c{index}": f"var(--run-{index})" for index in range(NUM_COLORS)
}
_MARKERS = "osD^vPX*"
_MAX_POINTS = 300
_POINTS = 72.0
"""Units per inch in matplotlib's SVG."""
_REACH = 8
"""Hover radius of a point, in these units."""

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
    "font.sans-serif": [OWN],
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
    """One finished figure: SVG text, title, note, and the drawn quantity (a key of metrics.jsonl, or a row)."""

    title: str
    svg: str
    note: str = ""
    key: str = ""
    row: str = ""


@dataclass(frozen=True)
class Line:
    """One curve in the colour of its run."""

    label: str
    color: int
    x: list[float]
    y: list[float]


@dataclass(frozen=True)
class Spot:
    """A point of a figure that shows its values on hover."""

    x: float
    y: float
    said: str


PANELS = (("validation", "accuracy"), ("validation", "ce"), ("train", "rob_loss"), ("train", "intra_mse"))
"""Panels of every training; their titles are in the catalogue, under `figure.panel.NAME`."""
Kind = Literal["number", "share", "ratio"]
HEALTH: dict[str, Kind] = {
    "active": "share",
    "plain_loss": "number",
    "effective_samples": "share",
    "effective_number": "number",
    "slot_entropy": "share",
    "gate_dimension": "share",
    "gate_snr": "share",
    "gate_class": "share",
    "gate_saturation": "share",
    "gradient_ratio": "ratio",
    "latched": "share",
    "shut_off": "share",
    "skipped": "share",
}
"""Panels of the surrogates' health; their titles are under `figure.health.NAME`."""
_RARE = frozenset({"latched", "shut_off", "skipped"})
"""Panels that are omitted where all values are 0."""
_SMALL_RATIO = 1e-3
"""The axis of a ratio is logarithmic above this value and linear below, so that 0 can be drawn."""


def training_curves(runs: Sequence[JudgedRun], colors: Sequence[int] | None = None) -> list[Drawing]:
    """Small multiples of training: one panel per quantity that any run logged; by default one colour per run."""
    drawings = []
    for kind, key in PANELS:
        lines, title = _lines(runs, kind, key, colors), text(f"figure.panel.{key}")
        note = text(f"figure.panel.{key}.note") if has_text(f"figure.panel.{key}.note") else ""
        if lines:
            drawings.append(Drawing(title, _curves(f"curve-{key}", title, text("figure.epoch"), lines), note, key))
    return drawings


def health_curves(runs: Sequence[JudgedRun], colors: Sequence[int] | None = None) -> list[Drawing]:
    """Small multiples of the surrogates' health, each with its warning limit."""
    drawings = []
    for key, kind in HEALTH.items():
        lines, title = _lines(runs, "train", key, colors), text(f"figure.health.{key}")
        if lines and not (key in _RARE and not any(any(line.y) for line in lines)):
            svg = _curves(f"health-{key}", title, text("figure.epoch"), lines, kind=kind)
            drawings.append(Drawing(title, svg, describe_limit(key), key))
    return drawings


def _lines(runs: Sequence[JudgedRun], kind: str, key: str, colors: Sequence[int] | None = None) -> list[Line]:
    lines = []
    for color, run in zip(range(len(runs)) if colors is None else colors, runs, strict=True):
        pairs = [(finite(record.get("epoch")), finite(record.get(key))) for record in run.run.records(kind)]
        points = [(x, y) for x, y in pairs if x is not None and y is not None]
        step = -(-len(points) // _MAX_POINTS) or 1
        points = sorted({*points[::step], *points[-1:]})
        if points:
            lines.append(Line(run.label, color, [x for x, _ in points], [y for _, y in points]))
    return lines


def attack_curves(entries: Sequence[Entry]) -> list[Drawing]:
    """Small multiples of attacks: error on the attacker's own validation images against budget."""
    lines: dict[str, list[Line]] = {}
    for entry in entries:
        for row in (row for row in entry.audit.attacks if row.verdict.curve):
            curve = row.verdict.curve
            x, y = [point.epochs for point in curve], [point.validation_error for point in curve]
            lines.setdefault(row.name, []).append(Line(entry.label, entry.color, x, y))
    drawings = []
    for number, (row_name, group) in enumerate(lines.items()):
        title = row_title(row_name)
        svg = _curves(f"attack-{number}", text("figure.attack", name=title), text("figure.attack.x"), group)
        drawings.append(Drawing(title, svg, row=row_name))
    return drawings


def asking_curves(entries: Sequence[Entry]) -> list[Drawing]:
    """Small multiples of attacks on repeated releases: error against number of releases; crosses: jittered pixels."""
    panels: dict[str, list[tuple[Entry, asking.Series]]] = {}
    for entry in entries:
        for line in asking.series(entry.audit):
            panels.setdefault(line.base, []).append((entry, line))
    return [_asking(f"asking-{number}", row, group) for number, (row, group) in enumerate(panels.items())]


def _asking(key: str, row_name: str, group: Sequence[tuple[Entry, asking.Series]]) -> Drawing:
    spots, title = [], row_title(row_name)
    with drawing(key, text("figure.asking", name=title), (4.4, 2.5)) as (axes, finish):
        for entry, line in group:
            color, marker = color_of(entry.color), marker_of(entry.color)
            x, y = [row.releases for row in line.still], [row.mse.mean for row in line.still]
            axes.plot(x, y, color=color, linewidth=1.4, marker=marker, markersize=3.5)
            axes.plot([row.releases for row in line.moved], [row.mse.mean for row in line.moved], "x", color=color)
            for row in (*line.still, *line.moved):
                values = {"run": entry.label, "sight": describe_sight(row), "mse": row.mse.mean}
                spots.append(Spot(row.releases, row.mse.mean, text("figure.asking.point", **values)))
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlabel(text("figure.asking.x"))
        axes.set_ylim(bottom=0.0)
    svg = finish("; ".join(spot.said for spot in spots), spots)
    note = text("figure.asking.note") if any(line.moved for _, line in group) else ""
    return Drawing(title, svg, note, row=row_name)


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
    return finish(text("figure.last_values", values="; ".join(last)), lines=lines)


def color_of(index: int) -> str:
    """The marker colour of an index in the palette."""
    return f"#a0b0c{index % NUM_COLORS}"


def marker_of(index: int) -> str:
    """The marker shape of an index in the palette."""
    return _MARKERS[(index + index // NUM_COLORS) % len(_MARKERS)]


_KEPT: ContextVar[list[Figure] | None] = ContextVar("kept", default=None)


@contextmanager
def kept() -> Iterator[list[Figure]]:
    """Collect the matplotlib figures that are drawn inside the context, in order and in the marker colours."""
    made: list[Figure] = []
    before = _KEPT.set(made)
    try:
        yield made
    finally:
        _KEPT.reset(before)


@contextmanager
def styled(colors: Mapping[str, str] | None = None) -> Iterator[None]:
    """Apply the style of figures; ``colors`` replace the marker colours."""
    style = {key: (colors or {}).get(str(value), value) for key, value in STYLE.items()}
    with mpl.rc_context({**style, **families()}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield


class Finish(Protocol):
    """Turns a drawing into SVG; takes its description, and the points or curves that show their values."""

    def __call__(self, values: str, spots: Sequence[Spot] = (), lines: Sequence[Line] = ()) -> str:
        """The finished figure."""
        ...


@contextmanager
def drawing(key: str, title: str, size: tuple[float, float]) -> Iterator[tuple[Any, Finish]]:
    """Axes to draw on, and a function that turns them into SVG with a description once the context ends.

    The figure never enters pyplot, so there is no global state and nothing to close.
    """
    done: list[str] = []
    with styled():
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()

        def finish(values: str, spots: Sequence[Spot] = (), lines: Sequence[Line] = ()) -> str:
            svg = _clean(done[0], key, text("figure.description", title=title, values=values))
            return _with_lines(_with_spots(svg, axes, spots), axes, lines)

        yield axes, finish
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
        done.append(buffer.getvalue())
        if (made := _KEPT.get()) is not None:
            made.append(figure)


def _clean(svg: str, key: str, description: str) -> str:
    """Prepare matplotlib's SVG for embedding in a page with other figures."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    head, body = svg.split(">", 1)
    box = re.search(r'viewBox="[^"]+"', head)
    assert box is not None
    body = re.sub(r'\bid="([^"]+)"', rf'id="{key}-\1"', body)
    body = re.sub(r'(?:xlink:)?href="#([^"]+)"', rf'href="#{key}-\1"', body)
    body = re.sub(r"url\(#([^)]+)\)", rf"url(#{key}-\1)", body)
    body = re.sub(r"font: ([^;\"]*?)([\d.]+px) [^;\"]+", r"font: \1\2 var(--font)", body)
    body = re.sub(r"font-family: [^;\"]+", "font-family: var(--font)", body)
    body = re.sub("|".join(_VARIABLES), lambda match: _VARIABLES[match[0]], body)
    return f'<svg {box[0]} role="img" aria-label="{escape(description)}">{body}'


def _with_spots(svg: str, axes: Any, spots: Sequence[Spot]) -> str:
    """Add an invisible circle over each point that shows its values."""
    if not spots:
        return svg
    circles = ""
    for spot in spots:
        x, y = _place(axes, spot.x, spot.y)
        words, place = escape(spot.said), f'cx="{x:.1f}" cy="{y:.1f}" r="{_REACH}"'
        circles += f'<circle class="spot" {place} tabindex="0" role="img" aria-label="{words}">'
        circles += f"<title>{words}</title></circle>"
    body = svg.removesuffix("\n").removesuffix("</svg>").replace('role="img"', 'role="group"', 1)
    return f'{body}<g class="spots">{circles}</g></svg>\n'


def _with_lines(svg: str, axes: Any, lines: Sequence[Line]) -> str:
    """Add the numbers of the curves, and the range of the x axis in SVG units and in data units."""
    if not lines:
        return svg
    left, right = axes.get_xlim()
    (start, bottom), (end, top) = (_place(axes, x, y) for x, y in zip((left, right), axes.get_ylim(), strict=True))
    numbers = {
        "title": axes.get_xlabel(),
        "from": [round(start, 1), left],
        "to": [round(end, 1), right],
        "top": round(top, 1),
        "bottom": round(bottom, 1),
        "lines": [[line.label, line.color, *(list(map(short, part)) for part in (line.x, line.y))] for line in lines],
    }
    data = escape(json.dumps(numbers, separators=(",", ":")))
    return svg.replace("<svg ", f'<svg tabindex="0" data-lines="{data}" ', 1)


def _place(axes: Any, x: float, y: float) -> tuple[float, float]:
    """SVG coordinates of a data point; the SVG's y axis starts at the top."""
    figure = axes.figure
    across, up = axes.transData.transform((x, y)) * _POINTS / figure.dpi
    return float(across), float(figure.get_figheight() * _POINTS - up)


def short(value: float) -> float:
    """A number rounded to five digits, for drawing only."""
    return float(f"{value:.5g}")
