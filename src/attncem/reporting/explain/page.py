"""The explanation of one image: as sentences, as a page, and in short form for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from attncem import __version__
from attncem.base.texts import joined, text
from attncem.base.texts.titles import noise_title, row_title
from attncem.records.explanation import ClassView, Explanation, Recovery
from attncem.records.findings import Finding
from attncem.records.metrics import METRICS
from attncem.records.prediction import Prediction, PredictionResult, Release
from attncem.reporting import answers, html, wording
from attncem.reporting.runs import units
from attncem.reporting.runs.protection import level
from attncem.reporting.runs.tables import HEADLINE

GENERATOR = "attncem-explain"
Standing = Literal["alike", "better", "worse"]

ALIKE = 0.05
"""Errors that differ by less than this share of the larger one count as about the same."""


def refuse_foreign_page(out: Path) -> None:
    """RunError unless the file is absent or an older explanation."""
    html.refuse_foreign(out, f'content="{GENERATOR} ')


def write_explanation(explanation: Explanation, out: Path, *, now: datetime) -> Path:
    """Render the page and write it."""
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
    """One picture of the first screen; ``values`` are its measures, one per line."""

    image: str
    title: str
    note: str
    values: str


def pictures(explanation: Explanation) -> list[Picture]:
    """The image, the network's input, the attack's reconstruction, and the best blind guess."""
    prediction, attack = explanation.prediction, shown_attack(explanation)
    shown = [Picture(explanation.image, text("explain.picture.image"), prediction.source, "")]
    if prediction.seen is not None:
        name, lead = front_end_name(prediction), text("explain.seen.lead")
        shown.append(Picture(prediction.seen.picture, text("explain.picture.seen"), name, lead))
    attacked = text("explain.picture.attack") if attack and attack.from_audit else text("explain.picture.quick")
    for row, title in ((attack, attacked), (blind_guess(explanation), text("explain.picture.blind"))):
        if row is not None:
            error = text("explain.picture.error", name=row_title(row.name), mse=row.mse)
            shown.append(Picture(row.image, title, error, values_of(row)))
    return shown


def values_of(row: Recovery) -> str:
    """Every measure of a reconstruction, one per line."""
    values = (
        text("explain.told", name=text(f"measure.{name}"), value=wording.decimal(value, METRICS[name].decimals))
        for name, value in row.scores.items()
    )
    mean = [] if row.audit_mse is None else [text("explain.told.audit", mse=row.audit_mse)]
    return "\n".join([row_title(row.name), *values, *mean])


@dataclass(frozen=True)
class Bar:
    """One image of the class in a bar chart of height 100: its position, its height and its value as text."""

    place: int
    height: float
    own: bool
    words: str


@dataclass(frozen=True)
class Ranks:
    """The images of a class, sorted by value. ``level`` is the height of a reference line, ``label`` its name."""

    title: str
    description: str
    highest: str
    bars: list[Bar]
    level: float | None = None
    label: str = ""


def ranks(explanation: Explanation) -> list[Ranks]:
    """The image's rank among those of its class: by distance, and by attention where there is one."""
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
    """One row per image: label, confidence, the next labels, and the data that left the device."""
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
    """The data that left the device for an image, the changes to its file, and the path of the saved release."""
    way = [*describe_decision(row), *([] if row.release is None else [describe_release(row.release)])]
    sentences = [text("said.about", about=row.source, said=joined(way)), *describe_seen(row)]
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
    """The findings, the reconstructions' errors, and a note that they are an illustration."""
    parts = (first_words, describe_way, describe_class)
    _print_lines([line for part in parts for line in part(explanation)], explanation.findings, console)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column(text("terminal.recovered_by"), overflow="fold")
    for heading in (*(text(f"measure.{name}") for name in HEADLINE), text("terminal.audit_mean")):
        table.add_column(heading, justify="right")
    for row in ordered(explanation.recoveries):
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


# sentences


def ordered(recoveries: Sequence[Recovery]) -> list[Recovery]:
    """The audit's strongest attack first."""
    return sorted(recoveries, key=lambda row: not row.from_audit)


def shown_attack(explanation: Explanation) -> Recovery | None:
    """The audit's strongest attack, else the quick attack with the smallest error; None where there is no attack."""
    attacks = [row for row in explanation.recoveries if row.kind == "attack"]
    return min(attacks, key=lambda row: (not row.from_audit, row.mse), default=None)


def blind_guess(explanation: Explanation) -> Recovery | None:
    """The best guess at this image without its release."""
    return min((row for row in explanation.recoveries if row.kind == "floor"), key=lambda row: row.mse, default=None)


def standing(mse: float, beside: float) -> Standing:
    """Whether an error is about the same as another, or better or worse for an attacker."""
    if abs(mse - beside) <= ALIKE * max(mse, beside):
        return "alike"
    return "better" if mse < beside else "worse"


def first_words(explanation: Explanation) -> list[str]:
    """The key facts: amount of recovery, the label, the attack compared with its average and with a blind guess."""
    row, way = explanation.prediction, list[str]()
    if row.decision is not None:
        way = [text("explain.device.sent") if row.is_sent else text("explain.device.anyway")]
    return [answer(explanation), describe_label(row), *way, *describe_recovery(explanation)]


def describe_way(explanation: Explanation) -> list[str]:
    """The processing of the image before it leaves the device."""
    row = explanation.prediction
    release = [] if row.release is None else [describe_release(row.release)]
    if row.release is not None and not row.is_sent:
        release.insert(0, text("explain.decision.anyway"))
    return [*describe_seen(row), *describe_decision(row), *release]


def describe_class(explanation: Explanation) -> list[str]:
    """The image's position in its class, and the penalty's effect on it."""
    return [describe_place(explanation.reference), *describe_penalty(explanation)]


def answer(explanation: Explanation) -> str:
    """The amount of recovery, in one sentence."""
    if not explanation.prediction.is_sent:
        return text("explain.device.answer")
    attack, blind = shown_attack(explanation), blind_guess(explanation)
    if attack is None or blind is None:
        return text("explain.answer.unknown")
    if not attack.from_audit:
        return text("explain.answer.quick")
    state = "not_enough" if attack.judgement is None else attack.judgement.state
    if standing(attack.mse, blind.mse) != "better" and state == "reliable":
        return text("explain.answer.blind")
    return text(f"explain.answer.{level(attack.mse / blind.mse, state)}")


def describe_label(prediction: Prediction) -> str:
    """The label of the server, or of the client that answered itself, and whether it is right."""
    best = prediction.top[0]
    who = text("explain.by_server") if prediction.is_sent else text("explain.by_client")
    values = {"source": prediction.source, "name": best.name, "probability": wording.percent(best.probability)}
    values["who"] = who
    if prediction.true_label is None:
        return text("explain.label", **values)
    if best.label == prediction.true_label:
        return text("explain.label.right", **values)
    return text("explain.label.wrong", **values, truth=prediction.true_name)


def front_end_name(prediction: Prediction) -> str:
    """The front end with its options; empty where there is none."""
    if prediction.seen is None:
        return ""
    front_end = prediction.seen.front_end
    options = ", ".join(f"{key} = {value:g}" for key, value in front_end.items() if key != "name")
    return f"{front_end['name']} ({options})" if options else str(front_end["name"])


def describe_seen(prediction: Prediction) -> list[str]:
    """The front end's effect on the image; empty without a front end."""
    name = front_end_name(prediction)
    return [text("explain.seen", name=name)] if name else []


def describe_decision(prediction: Prediction) -> list[str]:
    """Whether a client with a head sends the image, and why; empty where every image is sent."""
    if prediction.decision is None:
        return []
    values = {"confidence": prediction.decision.confidence, "threshold": prediction.decision.threshold}
    return [
        text("explain.decision.sent", **values) if prediction.is_sent else text("explain.decision.device", **values)
    ]


def describe_release(release: Release) -> str:
    """The data that leaves the device, in one sentence."""
    file, noise = "", text("explain.noise.none")
    if release.file_bytes is not None:
        file = text("explain.release.file", bytes=release.file_bytes)
    if release.noise != "none":
        noise = text("explain.noise", kind=noise_title(release.noise), std=release.noise_std)
    values = {"bytes": release.bytes, "share": release.bytes / release.image_bytes, "image_bytes": release.image_bytes}
    span = {"file": file, "minimum": release.minimum, "maximum": release.maximum, "noise": noise}
    size = "×".join(str(side) for side in release.shape)
    if release.bits is None:
        return text("explain.release", size=size, dtype=release.dtype, **values, **span)
    said = text("explain.release.packed", size=size, bits=release.bits, **values, **span)
    return joined([said, text("explain.release.code")]) if release.repeats else said


def describe_place(reference: ClassView) -> str:
    """The distance of the clean feature from its class."""
    name, distance, others = reference.name, reference.distance, reference.distances
    if distance is None:
        return text("explain.place.none", name=name)
    unit = " σ" if reference.unit == "σ" else ""
    if not others:
        return text("explain.place", distance=distance, unit=unit, name=name)
    nearer = wording.percent(sum(other < distance for other in others) / len(others), 0)
    return text("explain.place.among", distance=distance, unit=unit, name=name, nearer=nearer, count=len(others))


def describe_penalty(explanation: Explanation) -> list[str]:
    """The surrogate's view of the image: attention, and the part of its class that it belongs to.

    For a class that is not divided, a sentence says so and names the divided ones.
    """
    reference, surrogate = explanation.reference, explanation.surrogate
    sentences = []
    if reference.attention is not None:
        weight, uniform = reference.attention, 1 / (1 + len(reference.attentions))
        values = {"weight": weight, "times": weight / uniform, "uniform": uniform}
        sentences.append(text("explain.penalty.attention", surrogate=surrogate, **values))
    shares = [share.image for share in reference.shares]
    divided = ", ".join(row.name for row in reference.classes if row.divided)
    if shares:
        part = {"count": len(shares), "best": shares.index(max(shares)), "share": wording.percent(max(shares))}
        sentences.append(text(f"explain.penalty.{reference.part}", surrogate=surrogate, **part))
    elif reference.part and divided:
        names = {"name": reference.name, "divided": divided}
        sentences.append(text("explain.penalty.gates_alone", surrogate=surrogate, **names))
    elif reference.part:
        sentences.append(text("explain.penalty.gates_alone.all", surrogate=surrogate))
    if not sentences and surrogate == "none":
        return [text("explain.penalty.none")]
    return sentences or [text("explain.penalty.plain", surrogate=surrogate)]


def describe_gates(explanation: Explanation) -> str:
    """Why there are no gates, or only those of attention and none of slots; empty where none is missing."""
    reference = explanation.reference
    if reference.attention is not None and reference.part and not reference.shares:
        shown = "attention" if reference.gates else "nothing"
        return text(f"explain.gates.alone.{shown}", name=reference.name)
    return "" if reference.gates else text("explain.gates.none", surrogate=explanation.surrogate)


def describe_recovery(explanation: Explanation) -> list[str]:
    """The shown attack against its average and the best blind guess, its error in familiar units, its reliability."""
    attack, blind = shown_attack(explanation), blind_guess(explanation)
    if attack is None:
        return [text("explain.recovered.no_attack")]
    values = {"attack": row_title(attack.name), "mse": attack.mse}
    if attack.from_audit and attack.audit_mse is not None:
        beside = standing(attack.mse, attack.audit_mse)
        sentences = [text(f"explain.average.{beside}", **values, mean=attack.audit_mse)]
    else:
        sentences = [text("explain.quick", **values)]
    if blind is not None:
        share = wording.percent(attack.mse / blind.mse, 0) if blind.mse > 0 else wording.MISSING
        beside = standing(attack.mse, blind.mse)
        sentences.append(text(f"explain.blind.{beside}", floor=row_title(blind.name), error=blind.mse, share=share))
    if worth := units.describe(explanation.units, attack.mse):
        sentences.append(text("explain.recovered.units", worth=worth))
    if attack.from_audit:  # quick attacks are not a measurement
        untested = text("explain.reliable.unknown")
        sentences.append(untested if attack.judgement is None else answers.describe(attack.judgement))
    return sentences
