"""The figures of a campaign: each is declared once, and drawn as SVG in page colours and as SVG and PDF files."""

from __future__ import annotations

import io
import math
import re
import statistics as plain
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from attncem.base.texts import text
from attncem.records.metrics import METRICS
from attncem.records.portrait import Cloud
from attncem.records.study import ACCURACY, AuditKind, Spread
from attncem.records.study.campaign import short_value
from attncem.reporting import figures
from attncem.reporting.campaign.columns import measure_title
from attncem.reporting.campaign.load import (
    ERRORS,
    CampaignView,
    Judged,
    JudgedArm,
    compared,
    drawn_interval,
    point_words,
    training_seconds,
)
from attncem.reporting.campaign.tables import Heat, heats
from attncem.reporting.figures import marker_of
from attncem.reporting.fonts import pdf_type
from attncem.reporting.table_formats import said
from attncem.training.health import finite

_PRINTED = ("#2159d4", "#c2410c", "#0c7a54", "#8427d6", "#8a6100", "#b81d5b", "#0a6a80", "#565c68")
_LOGARITHMIC = 20.0
"""Smallest ratio of a key's largest to its smallest value for a logarithmic axis."""
_ALPHA = {"surely": 1.0, "possibly": 0.75, "not": 0.35}
WATCHED = (
    "effective_samples", "slot_entropy", "effective_number", "gate_dimension", "gate_snr", "gate_class",
    "gate_saturation", "gradient_ratio",
)  # fmt: skip
"""Drawn quantities of the surrogates over training: a subset of a run's HEALTH, with the same titles."""


@dataclass(frozen=True)
class Ink:
    """The colours of a figure: markers that the page replaces, or print colours."""

    ink: str
    muted: str
    line: str
    colors: Sequence[str]

    def of(self, index: int) -> str:
        """The colour of an arm."""
        return self.colors[index % len(self.colors)]


PAGE = Ink(figures.INK, figures.MUTED, figures.GRID, [figures.color_of(it) for it in range(figures.NUM_COLORS)])
PAPER = Ink("#1b1f27", "#5a6372", "#dfe3ea", _PRINTED)
_ON_PAPER = {PAGE.ink: PAPER.ink, PAGE.muted: PAPER.muted, PAGE.line: PAPER.line}


@dataclass(frozen=True)
class Plot:
    """One figure. ``draw`` draws it on axes and returns a text description for readers who cannot see it."""

    name: str
    title: str
    draw: Callable[[Any, Ink], str]
    size: tuple[float, float] = (4.4, 2.6)


def inline(plot: Plot) -> figures.Drawing:
    """The figure for the page, as inline SVG."""
    with figures.drawing(plot.name, plot.title, plot.size) as (axes, finish):
        description = plot.draw(axes, PAGE)
    return figures.Drawing(plot.title, finish(description))


def files(plot: Plot) -> Iterator[tuple[str, bytes]]:
    """The figure as the files NAME.svg and NAME.pdf, byte-identical every time."""
    figure = printed(plot)
    for kind, facts in (("svg", {"Date": None}), ("pdf", {"CreationDate": None})):
        yield f"{plot.name}.{kind}", saved(figure, kind, facts)


def printed(plot: Plot) -> Figure:
    """The figure in print colours, with its title."""
    with figures.styled(_ON_PAPER):
        figure = Figure(figsize=plot.size, layout="constrained")
        axes = figure.add_subplot()
        plot.draw(axes, PAPER)
        axes.set_title(plot.title, fontsize=9)
    return figure


def saved(figure: Figure, kind: str, facts: Mapping[str, Any]) -> bytes:
    """A figure as a file of one kind; ``facts`` are its metadata."""
    buffer = io.BytesIO()
    with figures.styled(_ON_PAPER), mpl.rc_context({"pdf.fonttype": pdf_type(figure)}):
        figure.savefig(buffer, format=kind, metadata=dict(facts))
    return buffer.getvalue()


def plots(view: CampaignView, kind: AuditKind | None) -> list[Plot]:
    """Every figure of a campaign, for files; without an audit, only those of training and of features."""
    of_kind = (trade_offs, cost_plots, sensitivity_plots, heat_plots)
    judged = [plot for make in of_kind for plot in make(view.study, kind)] if kind else []
    return [*judged, *training_plots(view.study), *cloud_plots(view)]


# accuracy and error


def trade_offs(study: Judged, kind: AuditKind) -> list[Plot]:
    """Accuracy against each error, with intervals over seeds, or over images for a single seed."""
    return [_trade_off(study, kind, measure) for measure in ERRORS if study.front(measure, kind)]


def _trade_off(study: Judged, kind: AuditKind, measure: str) -> Plot:
    def draw(axes: Any, ink: Ink) -> str:
        front, sentences, points = study.front(measure, kind), [], point_words(study)
        for arm in study.arms:
            x, y = arm.summary(ACCURACY, kind), arm.summary(measure, kind)
            if arm.label not in front or x is None or y is None:
                continue
            standing, color = front[arm.label].standing, ink.of(arm.color)
            across, up = _sides(x), _sides(y)
            axes.errorbar(
                100 * x.seeds.mean,
                y.seeds.mean,
                xerr=[[100 * side] for side in across],
                yerr=[[side] for side in up],
                color=color,
                marker=marker_of(arm.color),
                markerfacecolor=color if standing == "surely" else "none",
                alpha=_ALPHA[standing],
                markersize=5,
                linewidth=1,
            )
            name_point(axes, 100 * x.seeds.mean, y.seeds.mean, points[arm.label], color)
            values = {"accuracy": said(ACCURACY, x.seeds.mean), "value": said(measure, y.seeds.mean)}
            sentences.append(text("arms.plot.point", arm=arm.label, **values))
        axes.set_xlabel(text("arms.plot.accuracy"))
        axes.set_ylabel(text(f"measure.{measure}"))
        arms, alone = [arm for arm in study.arms if arm.label in front], _alone(study, kind)
        for arm, accuracy in alone:
            axes.axvline(100 * accuracy, color=ink.of(arm.color), linestyle="--", linewidth=1)
            sentences.append(text("arms.plot.alone", arm=arm.label, accuracy=said(ACCURACY, accuracy)))
        reached = [*(value for arm in arms for value in _reached(arm, ACCURACY, kind)), *(value for _, value in alone)]
        axes.set_xlim(_limits([100 * value for value in reached]))
        axes.set_ylim(_limits([value for arm in arms for value in _reached(arm, measure, kind)]))
        if METRICS[measure].private == "lower":
            axes.invert_yaxis()
        lines = {arm.name for arm, _ in alone}
        for number, name in enumerate(study.names):
            marks = ("", "--") if name in lines else (marker_of(number), "")
            style = {"color": ink.of(number), "marker": marks[0], "linestyle": marks[1], "markersize": 5}
            axes.plot([], [], label=name, **style)
        axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
        return "; ".join(sentences)

    title = text("arms.plot.trade_off", measure=text(f"measure.{measure}"))
    return Plot(f"trade-off-{measure}", title, draw, (8.4, 4.4))


def _alone(study: Judged, kind: AuditKind) -> list[tuple[JudgedArm, float]]:
    """The arms of the client alone with their accuracies: they leak nothing, so they are lines."""
    arms = [arm for arm in study.arms if arm.on_device]
    return [(arm, spread.seeds.mean) for arm in arms if (spread := arm.summary(ACCURACY, kind))]


def name_point(axes: Any, x: float, y: float, words: str, color: str) -> None:
    """Write the grid's values next to a point: all points of a method have its colour and marker."""
    if words:
        axes.annotate(words, (x, y), (5, 4), textcoords="offset points", fontsize=7, color=color, annotation_clip=True)


def _reached(arm: JudgedArm, measure: str, kind: AuditKind) -> list[float]:
    """Values that the axes must show: every seed, and the interval over images; not the interval over few seeds."""
    spread = arm.summary(measure, kind)
    return [*arm.values(measure, kind), *((spread.image_low, spread.image_high) if spread else ())]


def _limits(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    room = 0.07 * (high - low) or max(abs(high) * 0.1, 1e-6)
    return low - room, high + room


def _sides(spread: Spread) -> tuple[float, float]:
    """Distances from the mean to both ends of the drawn interval."""
    low, high = spread.ends(drawn_interval(spread.seeds))
    return max(spread.seeds.mean - low, 0.0), max(high - spread.seeds.mean, 0.0)


def cost_plots(study: Judged, kind: AuditKind) -> list[Plot]:
    """Training time against the strongest attack's error."""
    numbers = [(arm, training_seconds(arm), arm.values("mse", kind)) for arm in study.arms]
    points = [(arm, plain.fmean(spent), plain.fmean(errors)) for arm, spent, errors in numbers if spent and errors]
    words = point_words(study)

    def draw(axes: Any, ink: Ink) -> str:
        for arm, spent, error in points:
            axes.plot(spent, error, marker_of(arm.color), color=ink.of(arm.color), markersize=5)
            name_point(axes, spent, error, words[arm.label], ink.of(arm.color))
        axes.set_xlabel(text("arms.plot.seconds"))
        axes.set_ylabel(text("measure.mse"))
        axes.set_xlim(left=0)
        return "; ".join(text("arms.plot.cost", arm=arm.label, seconds=x, mse=y) for arm, x, y in points)

    return [Plot("training-cost", text("arms.plot.costs"), draw, (5.6, 3.2))] if points else []


# sensitivity


def sensitivity_plots(study: Judged, kind: AuditKind, keys: Sequence[str] | None = None) -> list[Plot]:
    """Accuracy, errors and the leak against the keys of the grids, one line per arm."""
    measures = compared(study, kind)
    pairs = [(key, measure) for key in (study.options if keys is None else keys) for measure in measures]
    return [plot for key, measure in pairs if (plot := _sensitivity(study, kind, key, measure))]


def _sensitivity(study: Judged, kind: AuditKind, key: str, measure: str) -> Plot | None:
    lines = {name: effects for name in study.names if (effects := study.effects(key, name, measure, kind))}
    values: dict[str, Any] = {repr(effect.value): effect.value for effects in lines.values() for effect in effects}
    if len(values) < 2:
        return None
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values.values())
    places = {name: float(values[name]) if numeric else float(number) for number, name in enumerate(values)}
    scale = 100.0 if measure == ACCURACY else 1.0

    def draw(axes: Any, ink: Ink) -> str:
        sentences = []
        for arm, unordered in lines.items():
            color, effects = study.names.index(arm), sorted(unordered, key=lambda effect: places[repr(effect.value)])
            ends = [drawn_interval(effect.summary) or (effect.summary.mean,) * 2 for effect in effects]
            sides = [
                (effect.summary.mean - low, high - effect.summary.mean)
                for effect, (low, high) in zip(effects, ends, strict=True)
            ]
            axes.errorbar(
                [places[repr(effect.value)] for effect in effects],
                [scale * effect.summary.mean for effect in effects],
                yerr=[[scale * low for low, _ in sides], [scale * high for _, high in sides]],
                color=ink.of(color),
                marker=marker_of(color),
                markersize=3.5,
                linewidth=1.3,
                elinewidth=0.8,
            )
            pairs = [(short_value(effect.value), said(measure, effect.summary.mean)) for effect in effects]
            numbers = (text("arms.plot.value", key=value, value=mean) for value, mean in pairs)
            sentences.append(text("arms.plot.line", arm=arm, values=", ".join(numbers)))
        for color, mean in _levels(study, kind, key, measure):
            axes.axhline(scale * mean, color=ink.of(color), linewidth=1, linestyle="--")
        if numeric and min(places.values()) > 0 and max(places.values()) / min(places.values()) >= _LOGARITHMIC:
            axes.set_xscale("log")
        axes.set_xticks(list(places.values()), [short_value(value) for value in values.values()])
        axes.minorticks_off()
        axes.set_xlabel(key)
        return "; ".join(sentences)

    title = text("arms.plot.accuracy") if measure == ACCURACY else text(f"measure.{measure}")
    return Plot(f"sensitivity-{key.replace('.', '-')}-{measure}", title, draw)


def _levels(study: Judged, kind: AuditKind, key: str, measure: str) -> Iterator[tuple[int, float]]:
    """Methods that lack the key and have one point: horizontal lines for comparison."""
    for color, name in enumerate(study.names):
        arms = [arm for arm in study.arms if arm.name == name]
        if len(arms) == 1 and key not in arms[0].point and (values := arms[0].values(measure, kind)):
            yield color, plain.fmean(values)


def heat_plots(study: Judged, kind: AuditKind) -> list[Plot]:
    """A heat map for each pair of keys and each arm."""
    return list(map(_heat, heats(study, kind)))


def _heat(heat: Heat) -> Plot:
    down, across = heat.names(0), heat.names(1)

    def draw(axes: Any, ink: Ink) -> str:
        axes.imshow([[heat.values.get((one, other), math.nan) for other in across] for one in down], cmap="viridis")
        for (one, other), value in heat.values.items():
            place = across.index(other), down.index(one)
            box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 1}
            number = said(heat.measure, value)
            axes.text(*place, number, ha="center", va="center", fontsize=7, color="black", bbox=box)
        axes.set_xticks(range(len(across)), across)
        axes.set_yticks(range(len(down)), down)
        axes.set_xlabel(heat.pair[1])
        axes.set_ylabel(heat.pair[0])
        axes.grid(visible=False)
        return ""

    name = "-".join(["heat", heat.name, *(key.replace(".", "-") for key in heat.pair), heat.measure])
    title = text("arms.plot.heat", arm=heat.name, measure=measure_title(heat.measure))
    return Plot(name, title, draw, (4.4, 3.4))


# over training


def training_plots(study: Judged) -> list[Plot]:
    """The surrogates' health over training: the first point of every arm, with the range over its seeds."""
    firsts = {arm.name: arm for arm in reversed(study.arms)}
    logs = {name: [cell.records() for cell in firsts[name].cells if cell.manifest] for name in study.names}
    return [plot for key in WATCHED if (plot := _watched(study, key, logs))]


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
        if figures.HEALTH[key] == "share":
            axes.set_ylim(-0.03, 1.03)
        last = (text("figure.value", run=arm, value=plain.fmean(it[max(it)])) for arm, it in lines.items())
        return text("figure.last_values", values="; ".join(last))

    return Plot(f"training-{key}", text(f"figure.health.{key}"), draw)


def _by_epoch(runs: Sequence[Sequence[dict[str, Any]]], key: str) -> dict[int, list[float]]:
    """One mean per run and epoch."""
    means: dict[int, list[float]] = {}
    for lines in runs:
        numbers: dict[int, list[float]] = {}
        for line in lines:
            epoch, value = finite(line.get("epoch")), finite(line.get(key))
            if line.get("kind") == "train" and epoch is not None and value is not None:
                numbers.setdefault(int(epoch), []).append(value)
        for number, values in numbers.items():
            means.setdefault(number, []).append(plain.fmean(values))
    return means


# features


def cloud_plots(view: CampaignView) -> list[Plot]:
    """The feature clouds of every portrait, coloured by class."""
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
