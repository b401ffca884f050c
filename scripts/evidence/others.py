"""Other parts of the page: the choice of the arms, the baseline's own recipe, and the demo."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from attncem.campaigns.choosing import Matched, Tried, error_of, match
from attncem.config.options.channels import ShapedOptions
from attncem.config.options.run import RunConfig
from attncem.records.campaign_table import CampaignTable, CellAudit, Ends
from attncem.records.study import ACCURACY
from evidence.source import Setting, Source, link, not_measured, settings
from evidence.words import (
    conditions,
    front_end,
    method,
    number,
    over_images,
    spreads,
    table,
    table_of,
    title,
    unfinished,
    whence,
)

BEYOND, BASELINE = "beyond-cifar10", "baseline-240-cifar10"
WEIGHT = 2.0
"""λ of arm a of every claim."""
ATTENTION = ("gated", "slot", "hybrid")
"""Attention surrogates; the best of them is arm c."""
SHOWN = (ACCURACY, "mse", "structure", "ssim")
BASELINE_SHOWN = (ACCURACY, "mse", "ssim_zero_pad", "psnr")
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
"""Published figures of others: source, setting, accuracy, MSE."""


# how the arms were chosen


@dataclass(frozen=True)
class Selection:
    """A campaign from which λ is chosen; its arm ``reference`` at `WEIGHT` is arm a of the claim."""

    campaign: str
    reference: str
    balanced: bool = False


SELECTION = Selection("claim-selection-cifar10", "kmeans")


@dataclass(frozen=True)
class Choice:
    """A setting of a selection at the accuracy of the reference, with the configuration of one of its points."""

    matched: Matched
    config: RunConfig


def reference_accuracy(source: Source, selection: Selection = SELECTION) -> float | None:
    """Mean accuracy of arm a on validation images; None if not measured yet."""
    arms = source.arms(selection.campaign, balanced=selection.balanced)
    there = (arm for arm in arms if arm.name == selection.reference and arm.weight == WEIGHT)
    return next((arm.accuracy for arm in there), None)


def choices(source: Source, selection: Selection = SELECTION, campaign: str = "") -> list[Choice]:
    """Every setting of a selection, or of another campaign, at the accuracy of its arm a.

    Empty if that is not measured yet; settings of which every run collapsed are left out.
    """
    at = reference_accuracy(source, selection)
    if at is None:
        return []
    points: dict[str, list[Setting]] = {}
    for arm in source.arms(campaign or selection.campaign, balanced=selection.balanced):
        if arm.name != selection.reference:
            points.setdefault(arm.name, []).append(arm)
    runs = {name: [one for arm in arms for one in tried(arm)] for name, arms in points.items()}
    return [Choice(match(name, own, at), points[name][0].config) for name, own in runs.items() if own]


def tried(arm: Setting) -> list[Tried]:
    """Every run of an arm that did not collapse, in the form that the rule of choosing takes."""
    seeds = zip(arm.cells, *(arm.values(name) for name in (ACCURACY, "mse", "structure")), strict=True)
    return [
        Tried(arm.weight, accuracy, error_of({"mse": mse, "structure": structure}))
        for cell, accuracy, mse, structure in seeds
        if not cell.collapsed
    ]


def chosen(source: Source) -> dict[str, Choice]:
    """Parts b, c and d of the claim by the rule, as far as they are measured.

    c is the attention surrogate and front end with the largest error at the accuracy of a, among those that reach
    this accuracy at a weight within the range tried. b is kmeans behind the same front end; d is c's front end and
    surrogate with the thin client.
    """
    found = choices(source)
    attention = [one for one in found if one.config.surrogate.name in ATTENTION]
    if not attention:
        return {}
    at_it = [one for one in attention if one.matched.within] or attention
    parts = {"c": max(at_it, key=lambda one: one.matched.error)}
    front = parts["c"].config.model.front_end
    same = [one for one in found if one.config.model.front_end == front and one.config.surrogate.name == "kmeans"]
    thin = [
        one
        for one in choices(source, campaign=BEYOND)
        if one.config.model.name == "thin_vgg11_bn"
        and (one.config.model.front_end, one.config.surrogate) == (front, parts["c"].config.surrogate)
    ]
    return parts | {part: own[0] for part, own in (("b", same), ("d", thin)) if own}


def by_part(source: Source, selection: Selection) -> dict[str, Choice]:
    """The same for other data, with the front end and surrogates of CIFAR-10; only λ is chosen."""
    return {one.matched.name[0]: one for one in choices(source, selection)}


def told_choices(parts: Mapping[str, Choice]) -> list[str]:
    """One line per part for the files of a claim."""
    return [
        f"{part}: front end {front_end(one.config)}; surrogate {one.config.surrogate.name}; λ = {one.matched.weight:g}"
        + ("" if one.matched.within else " (at the edge of the range tried)")
        for part, one in sorted(parts.items())
    ]


def selection_section(source: Source, selection: Selection, taken: Mapping[str, Choice]) -> str:
    """Every setting tried for a claim, its λ at the accuracy of arm a, and the parts chosen."""
    found, at = source.table(selection.campaign), reference_accuracy(source, selection)
    if found is None or at is None:
        return not_measured(selection.campaign)
    parts = {one.matched.name: f"**{part}**" for part, one in taken.items() if part in ("b", "c")}
    lines = [[*told_match(one), parts.get(one.matched.name, "")] for one in choices(source, selection)]
    told = (
        f"At the validation accuracy of arm a, {100 * at:.2f} %: λ, the geometric mean of MSE and structure error, "
        "and whether λ lies within the range tried."
    )
    shown = points(found, balanced=selection.balanced)
    return "\n\n".join([shown, told, table(["setting", "λ", "error", "within", "chosen as"], lines)])


def told_match(one: Choice) -> list[str]:
    """A setting at the accuracy of arm a."""
    own = one.matched
    return [own.name, f"{own.weight:g}", f"{own.error:.4f}", "yes" if own.within else "no"]


# single tables


def points(found: CampaignTable, *, balanced: bool = False) -> str:
    """Every arm at every point, with the file of the numbers."""
    arms = settings(found, balanced=balanced)
    collapsed = sum(len(arm.collapsed) for arm in arms)
    told = (
        f"\n\nRuns that ended near chance: {collapsed}; they are in the table, but no rule uses them."
        if collapsed
        else ""
    )
    columns = {**SETTING, **spreads(SHOWN, balanced=balanced)}
    return f"{whence(found, arms)}\n\n{table_of(arms, columns, left=len(SETTING))}{told}"


def named(config: RunConfig) -> str:
    """The surrogate with λ, further penalties, and the tilt of shaped noise."""
    penalties = [f"{one.name} {one.weight:g}" for one in config.penalties]
    noises = [f"noise of tilt {one.tilt:g}" for one in config.channel if isinstance(one, ShapedOptions)]
    return ", ".join([method(config), *penalties, *noises])


SETTING: dict[str, Callable[[Setting], str]] = {
    "network": lambda arm: arm.config.model.name,
    "front end": lambda arm: front_end(arm.config),
    "surrogate": lambda arm: named(arm.config),
}
"""The columns of a setting."""


def baseline_section(source: Source) -> str:
    """The baseline's own recipe under its own attack, and the published figures of others."""
    published = table(["published by", "setting", "accuracy", "MSE"], PUBLISHED, left=2)
    told = (
        "**As published by others**, in other settings and under other attacks. We measured none of these, and none "
        "is directly comparable with a number on this page:"
    )
    found = source.table(BASELINE)
    own = not_measured(BASELINE) if found is None else _baseline(found)
    return f"{own}\n\n{told}\n\n{published}"


def _baseline(found: CampaignTable) -> str:
    lines = []
    for cell in found.cells:
        for asked, audit in zip(found.audits, cell.audits, strict=True):
            lines += _rows(asked.threat or "train", audit)
    told = (
        f"{link(BASELINE)}; one seed, the baseline's; trained in bf16, where the baseline trains in 32 bits; "
        "95 % intervals over images."
    )
    told = " ".join([told, *(conditions(found, place) for place in range(len(found.audits)))])
    head = ["adversary", "attack", "accuracy %", "MSE", "SSIM, zero-padded as published", "PSNR dB"]
    return f"{unfinished(found)}{told}\n\n{table(head, lines, left=2)}"


def _rows(threat: str, audit: CellAudit) -> list[list[str]]:
    return [[threat, row, *(_shown(audit, key, row) for key in BASELINE_SHOWN)] for row in audit.attacks or {}]


def _shown(audit: CellAudit, measure: str, row: str = "") -> str:
    score = audit.score(measure, row)
    return over_images(measure, score) if score else ""


def undefended_section(source: Source) -> str:
    """Accuracy without a defence."""
    found = source.table("undefended-cifar10")
    if found is None:
        return not_measured("undefended-cifar10")
    told = f"accuracy {_shown(found.cells[0].audits[0], ACCURACY)} %, 95 % interval over the test images"
    return f"CIFAR-10, VGG11-BN cut 4, nothing added to z, one seed: {told} ({link('undefended-cifar10')})."


def demo_section(source: Source) -> str:
    """The embedded images: the table that `attncem demo` prints, with its intervals."""
    file = source.folder / "demo.csv"
    if not file.is_file():
        return "not measured yet: `attncem demo`"
    with file.open(encoding="utf-8", newline="") as opened:
        rows = list(csv.DictReader(opened))
    head = ["run", "defence", "strongest attack", title(ACCURACY), title("mse"), title("structure"), title("ssim")]
    head += [f"{title('psnr')} dB", "training time, ratio"]
    text = (
        "[`results/demo.csv`](../results/demo.csv), made by `attncem demo` and `attncem report --csv`; embedded "
        "Fashion-MNIST subset, 2 CPU cores, one seed, so no method can win here; 95 % intervals over 1,000 test "
        f"images. Adversary `{rows[0]['threat']}`, suite `{rows[0]['suite']}`. Front end, surrogate, noise and both "
        "penalty weights were chosen on validation images (`results/demo_selection.json`, made by "
        "`attncem campaign run demo-selection`)."
    )
    return f"{text}\n\n{table(head, [_demo_run(row) for row in rows], left=3)}"


def _demo_run(row: Mapping[str, str]) -> list[str]:
    """A run, or a floor, which has neither defence nor accuracy."""
    scores = [_demo_score(row, "mse"), *(number(name, float(row[name])) for name in ("structure", "ssim", "psnr"))]
    if row["kind"] == "floor":
        return [f"floor: {row['run']}", "", "", "", *scores, ""]
    attack = row["attack"] + ("" if row["reliable"] == "True" else " (not reliable)")
    names = [row["run"], row["surrogate"], attack, _demo_score(row, ACCURACY)]
    return [*names, *scores, f"{float(row['training_ratio']):.2f}"]


def _demo_score(row: Mapping[str, str], measure: str) -> str:
    return over_images(measure, Ends(*(float(row[f"{measure}{end}"]) for end in ("", "_low", "_high"))))
