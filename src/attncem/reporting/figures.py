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
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from attncem.health import describe_limit, finite
from attncem.reporting.load import Entry, Record, Run
from attncem.reporting.tables import blind_floors
from attncem.types import AttackResult

NUM_COLORS = 8
_INK, _MUTED, _GRID = "#010203", "#040506", "#070809"
_VARIABLES = {_INK: "var(--ink)", _MUTED: "var(--muted)", _GRID: "var(--line)"} | {
    f"#a0b0c{index}": f"var(--run-{index})" for index in range(NUM_COLORS)
}
_MARKERS = "osD^vPX*"
_MAX_POINTS = 300

_STYLE: Any = {
    "axes.edgecolor": _MUTED,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.labelcolor": _INK,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": _INK,
    "figure.facecolor": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.0,
    "grid.color": _GRID,
    "grid.linewidth": 0.6,
    "svg.fonttype": "none",
    "svg.hashsalt": "attncem",
    "text.color": _INK,
    "text.parse_math": False,
    "xtick.color": _MUTED,
    "xtick.labelcolor": _INK,
    "ytick.color": _MUTED,
    "ytick.labelcolor": _INK,
}


@dataclass(frozen=True)
class Drawing:
    """One finished figure: SVG text, a title, and what a reader who cannot see it is told."""

    title: str
    svg: str
    note: str = ""


@dataclass(frozen=True)
class Line:
    """One curve in the colour of its run."""

    label: str
    color: int
    x: list[float]
    y: list[float]


_PANELS: tuple[tuple[str, str, str, str], ...] = (
    ("validation", "accuracy", "Validation accuracy (Prec@1)", "higher = more useful"),
    ("validation", "ce", "Validation cross entropy", ""),
    ("train", "rob_loss", "rob_loss (penalty, unscaled)", ""),
    ("train", "intra_mse", "intra_mse (spread of z inside a class)", ""),
)
_HEALTH = {
    "active": "active (share above the floor)",
    "plain_loss": "plain_loss (penalty of the plain variance)",
    "effective_samples": "effective_samples (share)",
    "effective_number": "effective_number (samples)",
    "slot_entropy": "slot_entropy (0 to 1)",
    "gate_dimension": "gate_dimension (mean)",
    "gate_snr": "gate_snr (mean)",
    "gate_class": "gate_class (mean)",
    "gate_saturation": "gate_saturation (share)",
    "gradient_ratio": "gradient_ratio (penalty / CE)",
    "latched": "latched (share of classes)",
    "shut_off": "shut_off (share of steps)",
    "skipped": "skipped (share of samples)",
}
_RARE = frozenset({"latched", "shut_off", "skipped"})
"""Not drawn where they are 0 throughout."""
Kind = Literal["number", "share", "ratio"]
_KINDS: dict[str, Kind] = {"plain_loss": "number", "effective_number": "number", "gradient_ratio": "ratio"}
"""What a health figure is where it is not a share."""
_SMALL_RATIO = 1e-3
"""The axis of a ratio is logarithmic above this and linear below, so that 0 has a place."""


def training_curves(runs: Sequence[Run]) -> list[Drawing]:
    """Small multiples of training: one panel per quantity that any run has logged."""
    drawings = []
    for kind, key, title, note in _PANELS:
        lines = _lines(runs, kind, key)
        if lines:
            drawings.append(Drawing(title, _curves(f"curve-{key}", title, "epoch", lines), note))
    return drawings


def health_curves(runs: Sequence[Run]) -> list[Drawing]:
    """Small multiples of the surrogates' health, each with the limit that raises a warning."""
    drawings = []
    for key, title in _HEALTH.items():
        lines = _lines(runs, "train", key)
        if lines and not (key in _RARE and not any(any(line.y) for line in lines)):
            svg = _curves(f"health-{key}", title, "epoch", lines, kind=_KINDS.get(key, "share"))
            drawings.append(Drawing(title, svg, describe_limit(key)))
    return drawings


def _lines(runs: Sequence[Run], kind: str, key: str) -> list[Line]:
    lines = [_line(run, color, kind, key) for color, run in enumerate(runs)]
    return [line for line in lines if line.y]


def attack_curves(entries: Sequence[Entry]) -> list[Drawing]:
    """Small multiples of attacks: error on the attacker's own validation images against budget."""
    lines: dict[str, list[Line]] = {}
    for entry in entries:
        for attack in (row for row in entry.audit.attacks if row.curve):
            x, y = [point.epochs for point in attack.curve], [point.validation_mse for point in attack.curve]
            lines.setdefault(attack.name, []).append(Line(entry.label, entry.color, x, y))
    return [
        Drawing(name, _curves(f"attack-{index}", f"Learning curve of attack {name}", "epochs of the attack", group))
        for index, (name, group) in enumerate(lines.items())
    ]


def trade_off(entries: Sequence[Entry]) -> Drawing:
    """Accuracy against the strongest attack's MSE, with both intervals and the blind floors."""
    title = "Accuracy against the error of the strongest attack"
    with _drawing("trade-off", title, (8.4, 4.4)) as (axes, finish):
        for entry in entries:
            _point(axes, entry)
        axes.margins(x=0.12, y=0.14)
        _floor_lines(axes, entries)
        axes.set_ylim(bottom=max(axes.get_ylim()[0], 0.0))
        axes.set_xlabel("accuracy, %")
        axes.set_ylabel("MSE of the strongest attack")
        _labels(axes, entries)
    points = "; ".join(
        f"{entry.label}: accuracy {100 * entry.audit.accuracy.mean:.1f} %, "
        f"MSE {entry.audit.strongest_attack.mse.mean:.4f}"
        for entry in entries
    )
    return Drawing(title, finish(points))


def ranked(key: str, title: str, ylabel: str, others: Sequence[float], own: float, line: float | None) -> Drawing:
    """One bar for each image of a class, in order of size, the explained one coloured; ``line``: to compare with."""
    values = sorted([*others, own])
    place = values.index(own)
    with _drawing(key, title, (4.8, 2.5)) as (axes, finish):
        axes.bar(range(len(values)), values, color=_GRID, edgecolor=_MUTED, linewidth=0.4, width=0.9)
        axes.bar([place], [own], color=_color(1), width=0.9)
        if line is not None:
            axes.axhline(line, color=_MUTED, linewidth=0.9, linestyle="--")
        axes.set_axisbelow(True)
        axes.set_xticks([])
        axes.set_xlabel(f"the class’s {len(values)} images, in order of size")
        axes.set_ylabel(ylabel)
    return Drawing(title, finish(f"this image {own:.4g}; the others from {min(values):.4g} to {max(values):.4g}"))


def _line(run: Run, color: int, kind: str, key: str) -> Line:
    records: Sequence[Record] = run.train if kind == "train" else run.validation
    pairs = [(finite(record.get("epoch")), finite(record.get(key))) for record in records]
    points = [(x, y) for x, y in pairs if x is not None and y is not None]
    step = -(-len(points) // _MAX_POINTS) or 1
    points = sorted({*points[::step], *points[-1:]})
    return Line(run.label, color, [x for x, _ in points], [y for _, y in points])


def _curves(key: str, title: str, xlabel: str, lines: Sequence[Line], *, kind: Kind = "number") -> str:
    with _drawing(key, title, (4.4, 2.5)) as (axes, finish):
        for line in lines:
            marker = _marker(line.color) if len(line.x) <= 12 else ""
            axes.plot(line.x, line.y, color=_color(line.color), linewidth=1.4, marker=marker, markersize=3.5)
        axes.set_xlabel(xlabel)
        if kind == "share":
            axes.set_ylim(-0.03, 1.03)
        if kind == "ratio":
            axes.set_yscale("symlog", linthresh=_SMALL_RATIO)
            axes.yaxis.set_major_formatter("{x:g}")
    return finish("last values: " + "; ".join(f"{line.label} {line.y[-1]:.4g}" for line in lines))


def _point(axes: Any, entry: Entry) -> None:
    accuracy, mse = entry.audit.accuracy, entry.audit.strongest_attack.mse
    x, color = 100 * accuracy.mean, _color(entry.color)
    axes.errorbar(
        x,
        mse.mean,
        xerr=[[max(x - 100 * accuracy.low, 0)], [max(100 * accuracy.high - x, 0)]],
        yerr=[[max(mse.mean - mse.low, 0)], [max(mse.high - mse.mean, 0)]],
        color=color,
        marker=_marker(entry.color),
        markersize=6,
        linewidth=1.2,
        capsize=2.5,
    )


def _labels(axes: Any, entries: Sequence[Entry]) -> None:
    """Write each run's name beside its point, in the first place that covers no point and no other name."""
    place = (axes.transData - axes.transAxes).transform
    places = [place((100 * entry.audit.accuracy.mean, entry.audit.strongest_attack.mse.mean)) for entry in entries]
    taken = [(x - 0.012, x + 0.012, y) for x, y in places]
    for entry, (_, y) in zip(entries, places, strict=True):
        ends = [place((100 * end, 0.0))[0] for end in (entry.audit.accuracy.low, entry.audit.accuracy.high)]
        taken.append((ends[0], ends[1], y))
    taken += [(0.0, 1.0, place((0.0, row.mse.mean))[1]) for row in _shown_floors(entries)]
    for entry, (x, y) in zip(entries, places, strict=True):
        width = 0.012 * len(entry.label)
        spots = [(x + side, y + rise, side > 0) for rise in (0, 0.055, -0.055, 0.11, -0.11) for side in (0.022, -0.022)]
        free = [spot for spot in spots if _is_free(spot, width, taken)]
        left, height, rightwards = (free or spots)[0]
        taken.append((left, left + width, height) if rightwards else (left - width, left, height))
        axes.annotate(
            entry.label,
            (left, height),
            xycoords="axes fraction",
            color=_color(entry.color),
            ha="left" if rightwards else "right",
            va="center",
            fontweight="bold",
        )


def _is_free(spot: tuple[float, float, bool], width: float, taken: Sequence[tuple[float, float, float]]) -> bool:
    x, height, rightwards = spot
    left, right = (x, x + width) if rightwards else (x - width, x)
    inside = left >= 0 and right <= 1 and 0 < height < 1
    return inside and not any(left < end and start < right and abs(height - y) < 0.05 for start, end, y in taken)


def _shown_floors(entries: Sequence[Entry]) -> list[AttackResult]:
    """The lowest blind floor, and those within twice the highest point: farther ones would flatten the figure."""
    floors = blind_floors(entries[0].audit)
    highest = max(entry.audit.strongest_attack.mse.high for entry in entries)
    ceiling = max(2 * highest, min((row.mse.mean for row in floors), default=0.0))
    return [row for row in floors if row.mse.mean <= ceiling]


def _floor_lines(axes: Any, entries: Sequence[Entry]) -> None:
    for index, row in enumerate(_shown_floors(entries)):
        axes.axhline(row.mse.mean, color=_MUTED, linewidth=0.9, linestyle="--")
        axes.annotate(
            f"{row.name} {row.mse.mean:.4f}",
            (0.005 + 0.2 * index, row.mse.mean),
            xycoords=("axes fraction", "data"),
            xytext=(0, 2),
            textcoords="offset points",
            color=_MUTED,
            fontsize=8,
        )


def _color(index: int) -> str:
    return f"#a0b0c{index % NUM_COLORS}"


def _marker(index: int) -> str:
    return _MARKERS[(index + index // NUM_COLORS) % len(_MARKERS)]


@contextmanager
def _drawing(key: str, title: str, size: tuple[float, float]) -> Iterator[tuple[Any, Callable[[str], str]]]:
    """Axes to draw on, and a function that, afterwards, turns them into SVG with a description.

    The figure never enters pyplot, so nothing global is kept and nothing has to be closed.
    """
    done: list[str] = []
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(figure)
        yield figure.add_subplot(), lambda description: _clean(done[0], key, f"{title}. {description}")
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
        done.append(buffer.getvalue())


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
