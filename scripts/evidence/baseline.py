"""The baseline's own recipe, beside an undefended run and what others published."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from attncem.records.campaign_table import CampaignTable, CellAudit, Ends
from attncem.records.joining import FAR_BELOW
from attncem.records.metrics import ACCURACY
from evidence.source import Source, planned_cells
from evidence.words import not_measured, number, over_images, table_of

CAMPAIGN, UNDEFENDED = "baseline-240-cifar10", "undefended-cifar10"
PUBLISHED = (
    ("ResSFL, abstract", "CIFAR-100, VGG-11", "67.5 %", "0.050"),
    ("KDRSFL (FGCS 2025)", "CIFAR-100, VGG-11", "67.4 %", "0.058"),
    ("CEM, `image-exp/run_exp.sh`", "Tiny-ImageNet, ResNet-20, Noise_NoPeek + CEM", "53.39 %", "0.0098"),
    ("CEM, Table 3 as transcribed in slides", "FaceScrub, VGG11, Noise_ARL + CEM, decoder, infer", "80.33 %", "0.0211"),
    (
        "CEM, Table 3 as transcribed in slides",
        "FaceScrub, VGG11, bottleneck + CEM, decoder, infer",
        "85.00 %",
        "0.0035",
    ),
    ("source document 002", "CIFAR-10, CEM-main, λ = 16, 240 epochs (collapsed)", "24.45 %", "0.0436"),
)
"""Published figures of other work: source, setting, accuracy, MSE."""
COLLAPSED = PUBLISHED[-1]
"""The collapse that source document 002 reports."""
THEIRS, GUESS = "baseline's decoder", "mean image"
"""The baseline's own attack, and a guess that sees nothing."""
Row = tuple[str, CellAudit, str]
"""The adversary, the audit, and the row of an attack."""


def rows(table: CampaignTable) -> list[Row]:
    """Every attack of every adversary."""
    (cell,) = table.cells
    audits = zip(table.audits, cell.audits, strict=True)
    return [(asked.threat or "train", audit, row) for asked, audit in audits for row in audit.attacks or ()]


def recipe_table(table: CampaignTable) -> str:
    """Accuracy and error of the recipe under every attack, with intervals over images."""
    columns: dict[str, Callable[[Row], str]] = {
        "adversary": lambda row: f"`{row[0]}`",
        "attack": lambda row: row[2],
        "accuracy %": lambda row: over_images(ACCURACY, row[1].score(ACCURACY)),
        "MSE": partial(_score, measure="mse"),
        "SSIM, zero-padded as published": partial(_score, measure="ssim_zero_pad"),
        "PSNR dB": partial(_score, measure="psnr"),
    }
    return table_of(rows(table), columns, left=2)


def _score(row: Row, measure: str) -> str:
    """A measure of an attack with its interval."""
    return over_images(measure, row[1].score(measure, row[2]))


def undefended(source: Source) -> Ends | None:
    """The accuracy of the same network without a defence."""
    made = source.table(UNDEFENDED)
    return made.cells[0].audits[0].score(ACCURACY) if made else None


def answer(source: Source) -> str:
    """Whether the recipe keeps its accuracy, and what the attacks leave."""
    made, plain = source.table(CAMPAIGN), undefended(source)
    if made is None or plain is None:
        return f"The recipe is {not_measured(CAMPAIGN)}."
    first = made.cells[0].audits[0]
    accuracy = first.score(ACCURACY)
    assert accuracy is not None
    collapsed = accuracy.mean < FAR_BELOW * plain.mean
    training = planned_cells(CAMPAIGN)[0].config.training
    return (
        f"Our run of the recipe (λ = {training.penalty_weight:g}) {'collapses' if collapsed else 'does not collapse'}: "
        f"{number(ACCURACY, accuracy.mean)} % after {training.epochs} epochs, where the undefended network has "
        f"{number(ACCURACY, plain.mean)} % and source document 002 reports {COLLAPSED[2]}. {_attacks(first)}"
    )


def _attacks(audit: CellAudit) -> str:
    """The strongest attack beside the baseline's own, and a blind guess."""
    row = str(audit.strongest)
    errors = (audit.score("mse", name) for name in (row, THEIRS, GUESS))
    best, theirs, guess = (number("mse", one.mean) if one else "–" for one in errors)
    if row == THEIRS:
        return f"Its own decoder is the strongest attack and leaves MSE {best}; a blind guess leaves {guess}."
    return f"The strongest attack, `{row}`, leaves MSE {best}, its own decoder {theirs}, a blind guess {guess}."
