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
from attncem.reporting.explain import words
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
        "answer": words.answer(explanation),
        "verdict": words.first_words(explanation)[1:],
        "pictures": pictures(explanation),
        "way_words": words.describe_way(explanation),
        "class_words": words.describe_class(explanation),
        "gates_word": words.describe_gates(explanation),
        "recoveries": words.ordered(explanation.recoveries),
        "values_of": values_of,
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
    """One picture of the first screen; ``values`` are its measures, line by line."""

    image: str
    title: str
    note: str
    values: str


def pictures(explanation: Explanation) -> list[Picture]:
    """The image, what the network gets of it, what the attack makes of the release, and the best blind guess."""
    prediction, attack = explanation.prediction, words.shown_attack(explanation)
    shown = [Picture(explanation.image, text("explain.picture.image"), prediction.source, "")]
    if prediction.seen is not None:
        name, lead = words.front_end_name(prediction), text("explain.seen.lead")
        shown.append(Picture(prediction.seen.picture, text("explain.picture.seen"), name, lead))
    attacked = text("explain.picture.attack") if attack and attack.from_audit else text("explain.picture.quick")
    for row, title in ((attack, attacked), (words.blind_guess(explanation), text("explain.picture.blind"))):
        if row is not None:
            error = text("explain.picture.error", name=row_title(row.name), mse=row.mse)
            shown.append(Picture(row.image, title, error, values_of(row)))
    return shown


def values_of(row: Recovery) -> str:
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
    words: str


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
    bars = []
    for place, (value, is_own) in enumerate(values):
        whose = text("explain.rank.own") if is_own else text("explain.rank.other")
        rank = text("explain.rank.place", place=place + 1, count=len(values))
        bars.append(Bar(place, 100 * value / most, is_own, "\n".join([whose, f"{unit} {value:.4g}", rank])))
    numbers = text("figure.ranked.values", own=own, low=values[0][0], high=values[-1][0])
    description = text("figure.description", title=title, values=numbers)
    if line is None:
        return Ranks(title, description, f"{most:.3g}", bars)
    return Ranks(title, description, f"{most:.3g}", bars, 100 * line / most, text("explain.rank.line", value=line))


# terminal


def print_predictions(result: PredictionResult, console: Console) -> None:
    """One row per image: label, confidence, the next labels, what left."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column(text("terminal.image"), overflow="fold")
    table.add_column(text("terminal.label"), overflow="fold")
    table.add_column(text("terminal.confidence"), overflow="fold", justify="right")
    table.add_column(text("terminal.then"), overflow="fold")
    table.add_column(text("terminal.true_label"), overflow="fold")
    for row in result.predictions:
        best, *others = row.top
        then = ", ".join(f"{other.name} {wording.percent(other.probability)}" for other in others)
        truth = row.true_name or ""
        if row.true_name is not None and row.true_label != best.label:
            truth = text("terminal.wrong", name=row.true_name)
        table.add_row(*map(Text, (row.source, best.name, wording.percent(best.probability), then, truth)))
    console.print(table)
    _print_lines(list(map(_prediction_line, result.predictions)), result.findings, console)


def _prediction_line(row: Prediction) -> str:
    """What left for an image, what was done to its file, and where the release was saved."""
    release = words.describe_release(row.release)
    sentences = [text("said.about", about=row.source, said=release), *words.describe_seen(row)]
    if row.preparation:
        sentences.append(text("terminal.prepared", steps="; ".join(row.preparation)))
    if row.saved:
        sentences.append(text("terminal.saved", file=row.saved))
    if row.seen and row.seen.saved:
        sentences.append(text("terminal.seen_saved", file=row.seen.saved))
    return " ".join(sentences)


def _print_lines(lines: Sequence[str], findings: Sequence[Finding], console: Console) -> None:
    for line in (*lines, *(text("terminal.note", text=item.text) for item in findings)):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def print_explanation(explanation: Explanation, console: Console) -> None:
    """The findings, the reconstructions' errors, and that they are an illustration."""
    parts = (words.first_words, words.describe_way, words.describe_class)
    _print_lines([line for part in parts for line in part(explanation)], explanation.findings, console)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column(text("terminal.recovered_by"), overflow="fold")
    for heading in (*(text(f"measure.{name}") for name in HEADLINE), text("terminal.audit_mean")):
        table.add_column(heading, justify="right")
    for row in words.ordered(explanation.recoveries):
        name = row_title(row.name)
        if row.from_audit:
            name = text("terminal.from_audit", name=name)
        elif row.kind == "floor":
            name = text("terminal.floor", name=name)
        numbers = [wording.decimal(row.scores.get(measure), METRICS[measure].decimals) for measure in HEADLINE]
        table.add_row(Text(name), *numbers, wording.decimal(row.audit_mse))
    if explanation.recoveries:
        console.print(table)
    _print_lines([text("explain.illustration")], (), console)
