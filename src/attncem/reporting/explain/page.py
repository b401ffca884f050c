"""One image explained: the page, and the short form for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from attncem import __version__
from attncem.base.texts import text
from attncem.base.texts.titles import row_title
from attncem.records.explanation import Explanation, Recovery
from attncem.records.findings import Finding
from attncem.records.metrics import METRICS
from attncem.records.prediction import Prediction, PredictionResult
from attncem.reporting import html, wording
from attncem.reporting.explain.words import (
    answer,
    blind_guess,
    describe_class,
    describe_gates,
    describe_release,
    describe_seen,
    describe_way,
    first_words,
    front_end_name,
    ordered,
    shown_attack,
    verdict,
)
from attncem.reporting.runs.tables import HEADLINE

GENERATOR = "attncem-explain"


def refuse_foreign_page(out: Path) -> None:
    """RunError unless the file is absent or an older explanation."""
    html.refuse_foreign(out, f'content="{GENERATOR} ')


def write_explanation(explanation: Explanation, out: Path, *, now: datetime) -> Path:
    """Draw the page and put it in place."""
    refuse_foreign_page(out)
    context = {
        "version": __version__,
        "generator": f"{GENERATOR} {__version__}",
        "generated": now.isoformat(sep=" ", timespec="seconds"),
        "it": explanation,
        "answer": answer(explanation),
        "verdict": first_words(explanation)[1:],
        "pictures": pictures(explanation),
        "way_words": describe_way(explanation),
        "class_words": describe_class(explanation),
        "gates_word": describe_gates(explanation),
        "recoveries": ordered(explanation.recoveries),
        "told": told,
        "measures": METRICS,
        "ranks": ranks(explanation),
        "audit_command": "attncem audit",
        "worst_case": "worst_case",
    }
    html.write_page(out, html.render(context, "explanation.html.j2"))
    return out


# figures


@dataclass(frozen=True)
class Picture:
    """One picture of the first screen; ``told`` are its values, line by line."""

    image: str
    title: str
    note: str
    told: str


def pictures(explanation: Explanation) -> list[Picture]:
    """The image, what the network gets of it, what the attack makes of the release, and the best blind guess."""
    seen, attack, blind = explanation.prediction.seen, shown_attack(explanation), blind_guess(explanation)
    found = [Picture(explanation.image, text("explain.picture.image"), explanation.prediction.source, "")]
    if seen is not None:
        name = front_end_name(explanation.prediction)
        found.append(Picture(seen.picture, text("explain.picture.seen"), name, text("explain.seen.lead")))
    if attack is not None:
        title = text("explain.picture.attack") if attack.from_audit else text("explain.picture.quick")
        found.append(_recovered(attack, title))
    return found if blind is None else [*found, _recovered(blind, text("explain.picture.blind"))]


def _recovered(row: Recovery, title: str) -> Picture:
    return Picture(row.image, title, text("explain.picture.error", name=row_title(row.name), mse=row.mse), told(row))


def told(row: Recovery) -> str:
    """Every measure of a reconstruction, a line each."""
    values = (
        text("explain.told", name=text(f"measure.{name}"), value=wording.decimal(value, METRICS[name].decimals))
        for name, value in row.scores.items()
    )
    mean = [] if row.audit_mse is None else [text("explain.told.audit", mse=row.audit_mse)]
    return "\n".join([row_title(row.name), *values, *mean])


@dataclass(frozen=True)
class Bar:
    """One image of the class in a figure 100 high: its place, its height and its value in words."""

    place: int
    height: float
    own: bool
    told: str


@dataclass(frozen=True)
class Ranks:
    """The images of a class in order of size. ``level`` is the height of a line to compare with, ``label`` its name."""

    title: str
    description: str
    highest: str
    bars: list[Bar]
    level: float | None = None
    label: str = ""


def ranks(explanation: Explanation) -> list[Ranks]:
    """The image among those of its class: distance, and attention where there is one."""
    reference, drawn = explanation.reference, []
    if reference.distance is not None and reference.distances:
        unit = text("figure.distance.y_sigma") if reference.unit == "σ" else text("figure.distance.y")
        drawn.append(_ranked(text("figure.distance"), unit, reference.distances, reference.distance))
    if reference.attention is not None and reference.attentions:
        title, unit = text("figure.attention"), text("figure.attention.y")
        uniform = 1 / (1 + len(reference.attentions))
        drawn.append(_ranked(title, unit, reference.attentions, reference.attention, uniform))
    return drawn


def _ranked(title: str, unit: str, others: Sequence[float], own: float, line: float | None = None) -> Ranks:
    values = sorted([*((value, False) for value in others), (own, True)])
    most = max(values[-1][0], line or 0.0) or 1.0
    bars = [
        Bar(place, 100 * value / most, is_own, _value(place, len(values), value, unit, own=is_own))
        for place, (value, is_own) in enumerate(values)
    ]
    said = text("figure.ranked.values", own=own, low=values[0][0], high=values[-1][0])
    described = text("figure.description", title=title, values=said)
    if line is None:
        return Ranks(title, described, f"{most:.3g}", bars)
    return Ranks(title, described, f"{most:.3g}", bars, 100 * line / most, text("explain.rank.line", value=line))


def _value(place: int, count: int, value: float, unit: str, *, own: bool) -> str:
    who = text("explain.rank.own") if own else text("explain.rank.other")
    return "\n".join([who, f"{unit} {value:.4g}", text("explain.rank.place", place=place + 1, count=count)])


# terminal


def print_predictions(result: PredictionResult, console: Console) -> None:
    """One row per image: label, confidence, the next labels, what left."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in (text("terminal.image"), text("terminal.label")):
        table.add_column(heading, overflow="fold")
    table.add_column(text("terminal.confidence"), overflow="fold", justify="right")
    for heading in (text("terminal.then"), text("terminal.true_label")):
        table.add_column(heading, overflow="fold")
    for row in result.predictions:
        table.add_row(*(Text(cell) for cell in _prediction_cells(row)))
    console.print(table)
    _print_lines([*map(_prediction_line, result.predictions), *_notes(result.findings)], console)


def _prediction_cells(row: Prediction) -> tuple[str, ...]:
    best, *others = row.top
    then = ", ".join(f"{other.name} {wording.percent(other.probability)}" for other in others)
    truth = row.true_name or ""
    if row.true_name is not None and row.true_label != best.label:
        truth = text("terminal.wrong", name=row.true_name)
    return row.source, best.name, wording.percent(best.probability), then, truth


def _prediction_line(row: Prediction) -> str:
    """What left for an image, what was done to its file, and where the release was saved."""
    said = [text("said.about", about=row.source, said=describe_release(row.release)), *describe_seen(row)]
    if row.preparation:
        said.append(text("terminal.prepared", steps="; ".join(row.preparation)))
    if row.saved:
        said.append(text("terminal.saved", file=row.saved))
    if row.seen and row.seen.saved:
        said.append(text("terminal.seen_saved", file=row.seen.saved))
    return " ".join(said)


def _notes(findings: Sequence[Finding]) -> list[str]:
    return [text("terminal.note", text=item.text) for item in findings]


def _print_lines(lines: Sequence[str], console: Console) -> None:
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def print_explanation(explanation: Explanation, console: Console) -> None:
    """The findings, the reconstructions' errors, and that they are an illustration."""
    _print_lines([*verdict(explanation), *_notes(explanation.findings)], console)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column(text("terminal.recovered_by"), overflow="fold")
    for heading in (*(text(f"measure.{name}") for name in HEADLINE), text("terminal.audit_mean")):
        table.add_column(heading, justify="right")
    for row in ordered(explanation.recoveries):
        numbers = [wording.decimal(row.scores.get(name), METRICS[name].decimals) for name in HEADLINE]
        table.add_row(Text(_recovered_by(row)), *numbers, wording.decimal(row.audit_mse))
    if explanation.recoveries:
        console.print(table)
    _print_lines([text("explain.illustration")], console)


def _recovered_by(row: Recovery) -> str:
    name = row_title(row.name)
    if row.from_audit:
        return text("terminal.from_audit", name=name)
    return text("terminal.floor", name=name) if row.kind == "floor" else name
