"""One image explained: the page, and the short form for a terminal. Sentences are made once for both."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from attncem import __version__
from attncem.metrics import METRICS
from attncem.reporting import figures, html, units, wording
from attncem.reporting.tables import HEADLINE
from attncem.results.explanation import ClassView, Explanation, Recovery
from attncem.results.findings import Finding
from attncem.results.prediction import Prediction, PredictionResult, Release
from attncem.texts import joined, text

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
        "verdict": verdict(explanation),
        "penalty_words": describe_penalty(explanation),
        "recoveries": ordered(explanation.recoveries),
        "measures": METRICS,
        "drawings": _drawings(explanation.reference),
        "audit_command": "attncem audit",
        "worst_case": "worst_case",
    }
    html.write_page(out, html.render(context, "explanation.html.j2"))
    return out


def ordered(recoveries: Sequence[Recovery]) -> list[Recovery]:
    """The audit's strongest attack first."""
    return sorted(recoveries, key=lambda row: not row.from_audit)


def verdict(explanation: Explanation) -> list[str]:
    """What the page shows, in a few sentences."""
    return [
        describe_label(explanation.prediction),
        *describe_seen(explanation.prediction),
        describe_release(explanation.prediction.release),
        describe_place(explanation.reference),
        describe_penalty(explanation),
        describe_recovery(explanation),
    ]


def describe_label(prediction: Prediction) -> str:
    """The label the server gives, and whether it is right."""
    best, source = prediction.top[0], prediction.source
    name, probability = best.name, wording.percent(best.probability)
    if prediction.true_label is None:
        return text("explain.label", source=source, name=name, probability=probability)
    if best.label == prediction.true_label:
        return text("explain.label.right", source=source, name=name, probability=probability)
    truth = prediction.true_name
    return text("explain.label.wrong", source=source, name=name, probability=probability, truth=truth)


def describe_seen(prediction: Prediction) -> list[str]:
    """What the front end leaves of the image; nothing where there is none."""
    if prediction.seen is None:
        return []
    own = prediction.seen.front_end
    options = ", ".join(f"{key} = {value:g}" for key, value in own.items() if key != "name")
    return [text("explain.seen", name=f"{own['name']} ({options})" if options else own["name"])]


def describe_release(release: Release) -> str:
    """What leaves the device, in one sentence."""
    file, noise = "", text("explain.noise.none")
    if release.file_bytes is not None:
        file = text("explain.release.file", bytes=release.file_bytes)
    if release.noise != "none":
        noise = text("explain.noise", kind=release.noise, std=release.noise_std)
    return text(
        "explain.release",
        size="×".join(str(side) for side in release.shape),
        dtype=release.dtype,
        bytes=release.bytes,
        share=release.bytes / release.image_bytes,
        image_bytes=release.image_bytes,
        file=file,
        minimum=release.minimum,
        maximum=release.maximum,
        noise=noise,
    )


def describe_place(reference: ClassView) -> str:
    """How far the clean feature lies from its class."""
    name, distance, others = reference.name, reference.distance, reference.distances
    if distance is None:
        return text("explain.place.none", name=name)
    unit = " σ" if reference.unit == "σ" else ""
    if not others:
        return text("explain.place", distance=distance, unit=unit, name=name)
    nearer = wording.percent(sum(other < distance for other in others) / len(others), 0)
    return text("explain.place.among", distance=distance, unit=unit, name=name, nearer=nearer, count=len(others))


def describe_penalty(explanation: Explanation) -> str:
    """What the surrogate makes of the image."""
    reference, surrogate, weight = explanation.reference, explanation.surrogate, explanation.reference.attention
    if weight is not None:
        uniform = 1 / (1 + len(reference.attentions))
        times = weight / uniform
        return text("explain.penalty.attention", surrogate=surrogate, weight=weight, times=times, uniform=uniform)
    if surrogate == "none":
        return text("explain.penalty.none")
    if not reference.shares:
        return text("explain.penalty.plain", surrogate=surrogate)
    shares = [share.image for share in reference.shares]
    best = max(range(len(shares)), key=shares.__getitem__)
    share = wording.percent(shares[best])
    return text(f"explain.penalty.{reference.part}", surrogate=surrogate, count=len(shares), best=best, share=share)


def describe_recovery(explanation: Explanation) -> str:
    """The best reconstruction beside the best floor, and what it is worth."""
    attacks = [row for row in explanation.recoveries if row.kind == "attack"]
    floors = [row for row in explanation.recoveries if row.kind == "floor"]
    if not attacks:
        return text("explain.recovered.no_attack")
    best = min(attacks, key=lambda row: row.mse)
    if not floors:
        said = text("explain.recovered.no_floor", attack=best.name, mse=best.mse)
    else:
        floor = min(floors, key=lambda row: row.mse)
        verdict = "better" if best.mse < floor.mse else "no_better"
        said = text(f"explain.recovered.{verdict}", attack=best.name, mse=best.mse, floor=floor.name, error=floor.mse)
    worth = units.describe(explanation.units, best.mse)
    return joined([said, text("explain.recovered.units", worth=worth) if worth else ""])


def _drawings(reference: ClassView) -> list[figures.Drawing]:
    """The image among those of its class: distance, and attention where there is one."""
    drawn = []
    distance, attention = reference.distance, reference.attention
    if distance is not None and reference.distances:
        title = text("figure.distance")
        unit = text("figure.distance.y_sigma") if reference.unit == "σ" else text("figure.distance.y")
        drawn.append(figures.ranked("distance", title, unit, reference.distances, distance, None))
    if attention is not None and reference.attentions:
        title, unit = text("figure.attention"), text("figure.attention.y")
        uniform = 1 / (1 + len(reference.attentions))
        drawn.append(figures.ranked("attention", title, unit, reference.attentions, attention, uniform))
    return drawn


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
    if row.from_audit:
        return text("terminal.from_audit", name=row.name)
    return text("terminal.floor", name=row.name) if row.kind == "floor" else row.name
