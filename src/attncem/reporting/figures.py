"""Figures as inline SVG: deterministic, free of outside references, coloured by the page's style sheet.

Matplotlib draws with marker colours that are then replaced by CSS variables, so that one drawing serves the
light and the dark page.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Sequence
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
from attncem.reporting import hover as telling
from attncem.reporting.fonts import OWN, families
from attncem.reporting.hover import Line, Spot
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
    """One finished figure: SVG text, a title, a note beside it, and what is drawn: a key of metrics.jsonl, a row."""

    title: str
    svg: str
    note: str = ""
    key: str = ""
    row: str = ""


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


def training_curves(runs: Sequence[JudgedRun], colors: Sequence[int] | None = None) -> list[Drawing]:
    """Small multiples of training: one panel per quantity that any run has logged; by default a colour for each run."""
    drawings = []
    for kind, key in PANELS:
        lines, title = _lines(runs, kind, key, colors), text(f"figure.panel.{key}")
        note = text(f"figure.panel.{key}.note") if has_text(f"figure.panel.{key}.note") else ""
        if lines:
            drawings.append(Drawing(title, _curves(f"curve-{key}", title, text("figure.epoch"), lines), note, key))
    return drawings


def health_curves(runs: Sequence[JudgedRun], colors: Sequence[int] | None = None) -> list[Drawing]:
    """Small multiples of the surrogates' health, each with the limit that raises a warning."""
    drawings = []
    for key in HEALTH:
        lines, title = _lines(runs, "train", key, colors), text(f"figure.health.{key}")
        if lines and not (key in _RARE and not any(any(line.y) for line in lines)):
            svg = _curves(f"health-{key}", title, text("figure.epoch"), lines, kind=KINDS.get(key, "share"))
            drawings.append(Drawing(title, svg, describe_limit(key), key))
    return drawings


def _lines(runs: Sequence[JudgedRun], kind: str, key: str, colors: Sequence[int] | None = None) -> list[Line]:
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
    return [_attack_curve(f"attack-{index}", name, group) for index, (name, group) in enumerate(lines.items())]


def _attack_curve(key: str, row: str, lines: Sequence[Line]) -> Drawing:
    title = row_title(row)
    return Drawing(title, _curves(key, text("figure.attack", name=title), text("figure.attack.x"), lines), row=row)


def asking_curves(entries: Sequence[Entry]) -> list[Drawing]:
    """Small multiples of attacks that ask again: error against the number of releases; crosses: pixels that move."""
    panels: dict[str, list[tuple[Entry, asking.Series]]] = {}
    for entry in entries:
        for line in asking.series(entry.audit):
            panels.setdefault(line.base, []).append((entry, line))
    return [_asking_curve(f"asking-{index}", row, group) for index, (row, group) in enumerate(panels.items())]


def _asking_curve(key: str, row: str, group: Sequence[tuple[Entry, asking.Series]]) -> Drawing:
    title, moved = row_title(row), any(line.moved for _, line in group)
    return Drawing(title, _asking(key, title, group), text("figure.asking.note") if moved else "", row=row)


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
    sentences = [text("figure.asking.point", run=run, sight=describe_sight(row), mse=row.mse.mean) for run, row in told]
    pairs = zip(told, sentences, strict=True)
    return finish("; ".join(sentences), [Spot(row.releases, row.mse.mean, said) for (_, row), said in pairs])


def _line(run: JudgedRun, color: int, kind: str, key: str) -> Line:
    pairs = [(finite(record.get("epoch")), finite(record.get(key))) for record in run.run.records(kind)]
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
    return finish(text("figure.last_values", values="; ".join(last)), lines=lines)


def color_of(index: int) -> str:
    """The marker colour of a run's place in the palette."""
    return f"#a0b0c{index % NUM_COLORS}"


def marker_of(index: int) -> str:
    """The point's shape that goes with it."""
    return _MARKERS[(index + index // NUM_COLORS) % len(_MARKERS)]


_KEPT: ContextVar[list[Figure] | None] = ContextVar("kept", default=None)


@contextmanager
def kept() -> Iterator[list[Figure]]:
    """What is drawn inside, one after the other, as figures of matplotlib in the marker colours."""
    made: list[Figure] = []
    before = _KEPT.set(made)
    try:
        yield made
    finally:
        _KEPT.reset(before)


class Finish(Protocol):
    """Turns what was drawn into SVG: what it shows in words, and the points or curves that tell their values."""

    def __call__(self, values: str, spots: Sequence[Spot] = (), lines: Sequence[Line] = ()) -> str:
        """The finished figure."""
        ...


@contextmanager
def drawing(key: str, title: str, size: tuple[float, float]) -> Iterator[tuple[Any, Finish]]:
    """Axes to draw on, and a function that, afterwards, turns them into SVG with a description.

    The figure never enters pyplot, so nothing global is kept and nothing has to be closed.
    """
    done: list[str] = []
    with mpl.rc_context({**STYLE, **families()}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()

        def finish(values: str, spots: Sequence[Spot] = (), lines: Sequence[Line] = ()) -> str:
            svg = _clean(done[0], key, text("figure.description", title=title, values=values))
            return telling.with_lines(telling.with_spots(svg, axes, spots), axes, lines)

        yield axes, finish
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
    body = re.sub(r"font-family: [^;\"]+", "font-family: var(--font)", body)
    body = re.sub("|".join(_VARIABLES), lambda match: _VARIABLES[match[0]], body)
    return f'<svg {box[0]} role="img" aria-label="{escape(description)}">{body}'
