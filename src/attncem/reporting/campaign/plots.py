"""The figures of a campaign: each is drawn once, for the page as SVG in its colours, for files as SVG and PDF."""

from __future__ import annotations

import io
import math
import re
import statistics as plain
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from attncem.base.texts import text
from attncem.records.comparison import SeedSummary
from attncem.records.metrics import METRICS
from attncem.records.portrait import Cloud
from attncem.records.study import ACCURACY, AuditKind
from attncem.records.study.campaign import short_value
from attncem.reporting.campaign.items import said
from attncem.reporting.campaign.load import ERRORS, MEASURES, CampaignView, Judged, JudgedArm
from attncem.reporting.campaign.numbers import arm_rows
from attncem.reporting.figures import (
    GRID,
    INK,
    MUTED,
    NUM_COLORS,
    STYLE,
    Drawing,
    color_of,
    drawing,
    marker_of,
)
from attncem.reporting.figures import KINDS as HEALTH_KINDS
from attncem.reporting.fonts import families, pdf_type
from attncem.training.health import finite

_PRINTED = ("#2159d4", "#c2410c", "#0c7a54", "#8427d6", "#8a6100", "#b81d5b", "#0a6a80", "#565c68")
_LOGARITHMIC = 20.0
"""Values of a key whose largest is so many times the smallest stand on a logarithmic axis."""
_ALPHA = {"surely": 1.0, "possibly": 0.75, "not": 0.35}
WATCHED = (
    "effective_samples", "slot_entropy", "effective_number", "gate_dimension", "gate_snr", "gate_class",
    "gate_saturation", "gradient_ratio",
)  # fmt: skip
"""What is drawn of the surrogates over training; some of a run's HEALTH, with its titles."""


@dataclass(frozen=True)
class Ink:
    """The colours a figure is drawn with: markers that the page replaces, or those of paper."""

    ink: str
    muted: str
    line: str
    colors: Sequence[str]

    def of(self, index: int) -> str:
        """The colour of an arm."""
        return self.colors[index % len(self.colors)]


PAGE = Ink(INK, MUTED, GRID, [color_of(index) for index in range(NUM_COLORS)])
PAPER = Ink("#1b1f27", "#5a6372", "#dfe3ea", _PRINTED)


@dataclass(frozen=True)
class Plot:
    """One figure. ``draw`` puts it on axes and says what a reader who cannot see it is told."""

    name: str
    title: str
    draw: Callable[[Any, Ink], str]
    size: tuple[float, float] = (4.4, 2.6)
    note: str = ""


def inline(plot: Plot) -> Drawing:
    """The figure for the page."""
    with drawing(plot.name, plot.title, plot.size) as (axes, finish):
        told = plot.draw(axes, PAGE)
    return Drawing(plot.title, finish(told), plot.note)


def files(plot: Plot) -> Iterator[tuple[str, bytes]]:
    """The figure as the files NAME.svg and NAME.pdf, the same bytes every time."""
    figure = printed(plot)
    for kind, facts in (("svg", {"Date": None}), ("pdf", {"CreationDate": None})):
        yield f"{plot.name}.{kind}", saved(figure, kind, facts)


def printed(plot: Plot) -> Figure:
    """The figure in the colours of paper, under its title."""
    with on_paper():
        figure = Figure(figsize=plot.size, layout="constrained")
        axes = figure.add_subplot()
        plot.draw(axes, PAPER)
        axes.set_title(plot.title, fontsize=9)
    return figure


def saved(figure: Figure, kind: str, facts: Mapping[str, Any]) -> bytes:
    """A figure as a file of one kind; ``facts`` stand in its head."""
    buffer = io.BytesIO()
    with on_paper(), mpl.rc_context({"pdf.fonttype": pdf_type(figure)}):
        figure.savefig(buffer, format=kind, metadata=dict(facts))
    return buffer.getvalue()


@contextmanager
def on_paper() -> Iterator[None]:
    """The style of figures in files."""
    swap = {INK: PAPER.ink, MUTED: PAPER.muted, GRID: PAPER.line}
    style = {key: swap.get(value, value) if isinstance(value, str) else value for key, value in STYLE.items()}
    with mpl.rc_context({**style, **families()}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield


def plots(view: CampaignView, kind: AuditKind) -> list[Plot]:
    """Every figure of a campaign, for files."""
    return [
        *trade_offs(view.study, kind),
        *cost_plots(view.study, kind),
        *sensitivity_plots(view.study, kind),
        *heat_plots(view.study, kind),
        *training_plots(view.study),
        *cloud_plots(view),
    ]


# accuracy and error


def trade_offs(study: Judged, kind: AuditKind) -> list[Plot]:
    """Accuracy against each error, with intervals over seeds, or over images where there is one seed."""
    return [_trade_off(study, kind, measure) for measure in ERRORS if _has_points(study, kind, measure)]


def _has_points(study: Judged, kind: AuditKind, measure: str) -> bool:
    return any(arm.values(ACCURACY, kind) and arm.values(measure, kind) for arm in study.arms)


def _trade_off(study: Judged, kind: AuditKind, measure: str) -> Plot:
    def draw(axes: Any, ink: Ink) -> str:
        standing, told = study.front(measure, kind), []
        for row in arm_rows(study, kind):
            if row.arm.label not in standing:
                continue
            x, y, place = row.spreads[ACCURACY], row.spreads[measure], standing[row.arm.label].standing
            ends = [_ends(item.seeds, item.image_low, item.image_high) for item in (x, y)]
            axes.errorbar(
                100 * x.seeds.mean,
                y.seeds.mean,
                xerr=[[100 * side] for side in ends[0]],
                yerr=[[side] for side in ends[1]],
                color=ink.of(row.arm.color),
                marker=marker_of(row.arm.color),
                markerfacecolor=ink.of(row.arm.color) if place == "surely" else "none",
                alpha=_ALPHA[place],
                markersize=5,
                linewidth=1,
            )
            values = {"accuracy": said(ACCURACY, x.seeds.mean), "value": said(measure, y.seeds.mean)}
            told.append(text("arms.plot.point", arm=row.arm.label, **values))
        axes.set_xlabel(text("arms.plot.accuracy"))
        axes.set_ylabel(text(f"measure.{measure}"))
        if METRICS[measure].private == "lower":
            axes.invert_yaxis()
        _legend(axes, study, ink)
        return "; ".join(told)

    title = text("arms.plot.trade_off", measure=text(f"measure.{measure}"))
    return Plot(f"trade-off-{measure}", title, draw, (8.4, 4.4))


def _ends(own: SeedSummary, low: float, high: float) -> tuple[float, float]:
    """How far an interval reaches to both sides."""
    first, last = (own.low, own.high) if own.low is not None and own.high is not None else (low, high)
    return max(own.mean - first, 0.0), max(last - own.mean, 0.0)


def _legend(axes: Any, study: Judged, ink: Ink) -> None:
    for number, arm in enumerate(study.names):
        axes.plot([], [], color=ink.of(number), marker=marker_of(number), linestyle="", markersize=5, label=arm)
    legend = axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    legend.set_in_layout(True)


def cost_plots(study: Judged, kind: AuditKind) -> list[Plot]:
    """Training time against the strongest attack's error."""
    points = [(arm, _seconds(arm), arm.values("mse", kind)) for arm in study.arms]
    known = [(arm, plain.fmean(spent), plain.fmean(errors)) for arm, spent, errors in points if spent and errors]
    if not known:
        return []

    def draw(axes: Any, ink: Ink) -> str:
        for arm, spent, error in known:
            axes.plot(spent, error, marker_of(arm.color), color=ink.of(arm.color), markersize=5)
        axes.set_xlabel(text("arms.plot.seconds"))
        axes.set_ylabel(text("measure.mse"))
        axes.set_xlim(left=0)
        said_points = (text("arms.plot.cost", arm=arm.label, seconds=x, mse=y) for arm, x, y in known)
        return "; ".join(said_points)

    return [Plot("training-cost", text("arms.plot.costs"), draw, (5.6, 3.2))]


def _seconds(arm: JudgedArm) -> list[float]:
    return [cell.training_seconds for cell in arm.cells if cell.training_seconds is not None]


# sensitivity


def sensitivity_plots(study: Judged, kind: AuditKind, keys: Sequence[str] | None = None) -> list[Plot]:
    """Accuracy and errors against the keys of the grids, a line an arm."""
    asked = study.options if keys is None else keys
    made = [_sensitivity(study, kind, key, measure) for key in asked for measure in MEASURES]
    return [plot for plot in made if plot is not None]


def _sensitivity(study: Judged, kind: AuditKind, key: str, measure: str) -> Plot | None:
    lines = [(number, arm, study.effects(key, arm, measure, kind)) for number, arm in enumerate(study.names)]
    lines = [line for line in lines if line[2]]
    values = list({repr(effect.value): effect.value for _, _, own in lines for effect in own}.values())
    if len(values) < 2:
        return None
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    places: dict[str, float] = {repr(v): float(v) if numeric else float(n) for n, v in enumerate(values)}  # type: ignore[arg-type]
    scale = 100.0 if measure == ACCURACY else 1.0

    def draw(axes: Any, ink: Ink) -> str:
        told = []
        for color, arm, unordered in lines:
            own = sorted(unordered, key=lambda effect: places[repr(effect.value)])
            sides = [_ends(effect.summary, effect.summary.mean, effect.summary.mean) for effect in own]
            axes.errorbar(
                [places[repr(effect.value)] for effect in own],
                [scale * effect.summary.mean for effect in own],
                yerr=[[scale * low for low, _ in sides], [scale * high for _, high in sides]],
                color=ink.of(color),
                marker=marker_of(color),
                markersize=3.5,
                linewidth=1.3,
                elinewidth=0.8,
            )
            pairs = [(short_value(effect.value), said(measure, effect.summary.mean)) for effect in own]
            numbers = (text("arms.plot.value", key=value, value=mean) for value, mean in pairs)
            told.append(text("arms.plot.line", arm=arm, values=", ".join(numbers)))
        for color, mean in _beside(study, kind, key, measure):
            axes.axhline(scale * mean, color=ink.of(color), linewidth=1, linestyle="--")
        _key_axis(axes, places, values, numeric=numeric)
        axes.set_xlabel(key)
        return "; ".join(told)

    measured = text("arms.plot.accuracy") if measure == ACCURACY else text(f"measure.{measure}")
    return Plot(f"sensitivity-{key.replace('.', '-')}-{measure}", measured, draw)


def _beside(study: Judged, kind: AuditKind, key: str, measure: str) -> Iterator[tuple[int, float]]:
    """The arms that have no such key and one point: a level to compare with."""
    for color, name in enumerate(study.names):
        own = [arm for arm in study.arms if arm.name == name]
        if len(own) == 1 and key not in own[0].point and (values := own[0].values(measure, kind)):
            yield color, plain.fmean(values)


def _key_axis(axes: Any, places: dict[str, float], values: Sequence[Any], *, numeric: bool) -> None:
    """Numbers where they belong, by their logarithm where they spread far; anything else one after the other."""
    numbers = sorted(places.values())
    if numeric and numbers[0] > 0 and numbers[-1] / numbers[0] >= _LOGARITHMIC:
        axes.set_xscale("log")
    axes.set_xticks(list(places.values()), [short_value(value) for value in values])
    axes.minorticks_off()


def heat_plots(study: Judged, kind: AuditKind) -> list[Plot]:
    """A heat map for each pair of keys and each arm."""
    return [
        _heat(arm, pair, measure, own)
        for pair in combinations(study.options, 2)
        for measure in (ACCURACY, "mse")
        for arm in study.names
        if len(own := study.heat(pair, arm, measure, kind)) > 1
    ]


def _heat(arm: str, pair: tuple[str, str], measure: str, own: dict[tuple[str, str], float]) -> Plot:
    down, across = (list(dict.fromkeys(place[side] for place in own)) for side in (0, 1))

    def draw(axes: Any, ink: Ink) -> str:
        axes.imshow([[own.get((one, other), math.nan) for other in across] for one in down], cmap="viridis")
        for (one, other), value in own.items():
            place = across.index(other), down.index(one)
            box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 1}
            axes.text(*place, said(measure, value), ha="center", va="center", fontsize=7, color="black", bbox=box)
        axes.set_xticks(range(len(across)), across)
        axes.set_yticks(range(len(down)), down)
        axes.set_xlabel(pair[1])
        axes.set_ylabel(pair[0])
        axes.grid(visible=False)
        return ""

    title = text("arms.column.accuracy") if measure == ACCURACY else text("measure.mse")
    name = "-".join(["heat", arm, *(key.replace(".", "-") for key in pair), measure])
    return Plot(name, text("arms.plot.heat", arm=arm, measure=title), draw, (4.4, 3.4))


# over training


def training_plots(study: Judged) -> list[Plot]:
    """What the surrogates say of themselves over training: the first point of every arm, the range over its seeds."""
    firsts = {arm.name: arm for arm in reversed(study.arms)}
    logs = {name: [cell.records() for cell in firsts[name].cells if cell.manifest] for name in study.names}
    made = [_watched(study, key, logs) for key in WATCHED]
    return [plot for plot in made if plot is not None]


def _watched(study: Judged, key: str, logs: dict[str, list[list[dict[str, Any]]]]) -> Plot | None:
    lines = {arm: by_epoch for arm, runs in logs.items() if (by_epoch := _by_epoch(runs, key))}
    if not lines:
        return None

    def draw(axes: Any, ink: Ink) -> str:
        for arm, by_epoch in lines.items():
            color, x = ink.of(study.names.index(arm)), sorted(by_epoch)
            axes.plot(x, [plain.fmean(by_epoch[epoch]) for epoch in x], color=color, linewidth=1.4)
            ends = [(min(by_epoch[epoch]), max(by_epoch[epoch])) for epoch in x]
            axes.fill_between(x, *zip(*ends, strict=True), color=color, alpha=0.18, linewidth=0)
        axes.set_xlabel(text("figure.epoch"))
        if HEALTH_KINDS.get(key, "share") == "share":
            axes.set_ylim(-0.03, 1.03)
        last = (text("figure.value", run=arm, value=plain.fmean(own[max(own)])) for arm, own in lines.items())
        return text("figure.last_values", values="; ".join(last))

    return Plot(f"training-{key}", text(f"figure.health.{key}"), draw)


def _by_epoch(runs: Sequence[Sequence[dict[str, Any]]], key: str) -> dict[int, list[float]]:
    """One mean for each run and epoch."""
    found: dict[int, list[float]] = {}
    for lines in runs:
        own: dict[int, list[float]] = {}
        for line in lines:
            epoch, value = finite(line.get("epoch")), finite(line.get(key))
            if line.get("kind") == "train" and epoch is not None and value is not None:
                own.setdefault(int(epoch), []).append(value)
        for number, values in own.items():
            found.setdefault(number, []).append(plain.fmean(values))
    return found


# features


def cloud_plots(view: CampaignView) -> list[Plot]:
    """Where the features of every portrait lie, coloured by class."""
    return [
        _cloud(f"features-{number}-{_file_name(label)}-{cloud.of}-{cloud.method}", label, portrait.labels, cloud)
        for number, (label, portrait) in enumerate(view.portraits.items())
        for cloud in portrait.clouds
    ]


def _file_name(label: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", label).strip("-")


def _cloud(name: str, label: str, labels: Sequence[int], cloud: Cloud) -> Plot:
    def draw(axes: Any, ink: Ink) -> str:
        axes.scatter(cloud.x, cloud.y, c=[ink.of(one) for one in labels], s=7, linewidths=0)
        axes.set_xticks([])
        axes.set_yticks([])
        return ""

    method, of = text(f"arms.method.{cloud.method}"), text(f"arms.cloud.{cloud.of}")
    return Plot(name, text("arms.plot.cloud", arm=label, of=of, method=method), draw, (3.6, 3.4))
