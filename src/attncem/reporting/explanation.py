"""One image explained: the page, and the short form for a terminal. Sentences are made once for both."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from attncem import __version__
from attncem.reporting import figures, html, wording
from attncem.types import ClassView, Explanation, Prediction, PredictionResult, Release

GENERATOR = "attncem-explain"
ILLUSTRATION = (
    "One image and quick attacks: an illustration. How much the model leaks is measured by attncem audit, on all test "
    "images and with attacks that are trained until they converge."
)
_GATES = {
    "gate_dimension": "dimension gate: how much each feature’s spread counts",
    "gate_snr": "SNR gate: open where the spread is large beside the mean",
    "gate_class": "class gate: open for classes with a large share of the batch",
}


def refuse_foreign_page(out: Path) -> None:
    """RunError unless the file is absent or an older explanation."""
    html.refuse_foreign(out, f'content="{GENERATOR} ')


def write_explanation(explanation: Explanation, out: Path, *, now: datetime) -> Path:
    """Draw the page and put it in place."""
    refuse_foreign_page(out)
    reference = explanation.reference
    context = {
        "version": __version__,
        "generator": f"{GENERATOR} {__version__}",
        "generated": now.isoformat(sep=" ", timespec="seconds"),
        "it": explanation,
        "verdict": findings(explanation),
        "penalty_words": describe_penalty(explanation),
        "drawings": _drawings(reference),
        "gate_meanings": _GATES,
        "illustration": ILLUSTRATION,
    }
    html.write_page(out, html.render(context, "explanation.html.j2"))
    return out


def findings(explanation: Explanation) -> list[str]:
    """What the page shows, in a few sentences."""
    place = describe_place(explanation.reference)
    return [
        f"{describe_label(explanation.prediction)}.",
        f"{describe_release(explanation.prediction.release)}.",
        *([place] if place else []),
        describe_penalty(explanation),
        describe_recovery(explanation),
    ]


def describe_label(prediction: Prediction) -> str:
    """The label the server gives, and whether it is right."""
    best = prediction.top[0]
    said = f"{prediction.source}: the server says {best.name} ({wording.percent(best.probability)})"
    if prediction.true_label is None:
        return said
    return f"{said}, which is right" if best.label == prediction.true_label else f"{said}; it is {prediction.true_name}"


def describe_release(release: Release) -> str:
    """What leaves the device, in one clause."""
    size = "×".join(str(side) for side in release.shape)
    noise = {"none": "no noise"}.get(release.noise, f"{release.noise} noise of σ = {release.noise_std:g}")
    share = release.bytes / release.image_bytes
    file = "" if release.file_bytes is None else f", {release.file_bytes:,} in the file"
    return (
        f"What leaves the device: {size} {release.dtype} = {release.bytes:,} bytes, {share:.2f} times the image’s "
        f"{release.image_bytes:,} bytes of pixels{file}; values from {release.minimum:.3g} to {release.maximum:.3g}, "
        f"{noise}"
    )


def describe_place(reference: ClassView) -> str:
    """How far the clean feature lies from its class."""
    if reference.distance is None:
        return f"There is no validation image of the class {reference.name} to compare it with."
    unit = " σ" if reference.unit == "σ" else ""
    said = (
        f"Its clean feature lies {reference.distance:.2f}{unit} from the mean of {reference.name} "
        "(root mean square over the features)"
    )
    others = reference.distances
    if not others:
        return f"{said}."
    nearer = sum(other < reference.distance for other in others) / len(others)
    return f"{said}, farther than {wording.percent(nearer, 0)} of the class’s {len(others)} others."


def describe_penalty(explanation: Explanation) -> str:
    """What the surrogate makes of the image."""
    reference, name = explanation.reference, explanation.surrogate
    if reference.attention is not None:
        uniform = 1 / (1 + len(reference.attentions))
        return (
            f"The attention of {name} gives it the weight {reference.attention:.4f} inside its class, "
            f"{reference.attention / uniform:.2f} times the uniform {uniform:.4f}."
        )
    if name == "none":
        return "The model was trained without a penalty, so there is no attention to show."
    if not reference.shares:
        return f"The surrogate {name} has no attention over the images of a class."
    shares = [share.image for share in reference.shares]
    best = max(range(len(shares)), key=shares.__getitem__)
    return (
        f"The surrogate {name} divides a class into {len(shares)} {reference.part}s; "
        f"{reference.part} {best} takes {wording.percent(shares[best])} of this image."
    )


def describe_recovery(explanation: Explanation) -> str:
    """The best reconstruction beside the best floor."""
    attacks = [row for row in explanation.recoveries if row.kind == "attack"]
    floors = [row for row in explanation.recoveries if row.kind == "floor"]
    best, floor = min(attacks, key=lambda row: row.mse), min(floors, key=lambda row: row.mse)
    verdict = "better" if best.mse < floor.mse else "no better"
    return (
        f"From the release {best.name} rebuilds the image with MSE {best.mse:.4f}, {verdict} than the floor "
        f"“{floor.name}” ({floor.mse:.4f})."
    )


def _drawings(reference: ClassView) -> list[figures.Drawing]:
    """The image among those of its class: distance, and attention where there is one."""
    drawn = []
    if reference.distance is not None and reference.distances:
        unit = "distance / σ" if reference.unit == "σ" else "distance"
        title = "Distance of z to the class’s mean"
        drawn.append(figures.ranked("distance", title, unit, reference.distances, reference.distance, None))
    if reference.attention is not None and reference.attentions:
        uniform = 1 / (1 + len(reference.attentions))
        title = "Attention weight inside the class (dashed: uniform)"
        drawn.append(figures.ranked("attention", title, "weight", reference.attentions, reference.attention, uniform))
    return drawn


# terminal


def print_predictions(result: PredictionResult, console: Console) -> None:
    """One row per image: label, confidence, the next labels, what left."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in ("image", "label", "confidence", "then", "true label"):
        table.add_column(heading, overflow="fold", justify="right" if heading == "confidence" else "left")
    for row in result.predictions:
        best, *others = row.top
        then = ", ".join(f"{other.name} {wording.percent(other.probability)}" for other in others)
        right = row.true_label == best.label
        truth = "" if row.true_name is None else f"{row.true_name}{'' if right else ' (wrong)'}"
        cells = (row.source, best.name, wording.percent(best.probability), then, truth)
        table.add_row(*(Text(cell) for cell in cells))
    console.print(table)
    for line in _prediction_lines(result):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _prediction_lines(result: PredictionResult) -> list[str]:
    """What left for each image, what was done to its file, and where the release was saved."""
    lines = []
    for row in result.predictions:
        prepared = f" Prepared: {'; '.join(row.preparation)}." if row.preparation else ""
        saved = f" Saved: {row.saved}" if row.saved else ""
        lines.append(f"{row.source}: {describe_release(row.release)}.{prepared}{saved}")
    return [*lines, *(f"note: {note}" for note in result.notes)]


def print_explanation(explanation: Explanation, console: Console) -> None:
    """The findings, the reconstructions' errors, and that they are an illustration."""
    for line in (*findings(explanation), *(f"note: {note}" for note in explanation.notes)):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in ("recovered by", "MSE", "SSIM", "mean MSE in the audit"):
        table.add_column(heading, justify="left" if heading == "recovered by" else "right")
    for row in explanation.recoveries:
        name = f"floor: {row.name}" if row.kind == "floor" else row.name
        table.add_row(name, *(wording.decimal(value) for value in (row.mse, row.ssim, row.audit_mse)))
    console.print(table)
    console.print(ILLUSTRATION, markup=False, highlight=False, soft_wrap=True)
