"""The other parts of the page: how arms were chosen, the baseline's own recipe, and the demo."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from attncem.campaigns.choosing import Matched, Tried, error_of, match
from attncem.campaigns.claims import ACCURACY, Arm, arms_of
from attncem.config.options.channels import ShapedOptions
from attncem.config.options.run import RunConfig
from attncem.records.campaign_table import CampaignTable, CellAudit
from evidence.source import Source, config_of, link, not_measured, weight_of
from evidence.words import conditions, front_end, method, number, spread, table, title, unfinished, whence

BEYOND, BASELINE = "beyond-cifar10", "baseline-240-cifar10"
WEIGHT = 2.0
"""λ of arm a of every claim."""
ATTENTION = ("gated", "slot", "hybrid")
"""Surrogates that attend; the best of them is arm c."""
SHOWN = (ACCURACY, "mse", "structure", "ssim")
SETTING = ("network", "front end", "surrogate")
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
"""Figures that others published: where, in which setting, accuracy, MSE."""


# how the arms were chosen


@dataclass(frozen=True)
class Selection:
    """A campaign that λ are chosen from; ``reference`` is its arm that with `WEIGHT` is arm a of the claim."""

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
    """Mean accuracy of arm a on validation images; None where that is not measured yet."""
    found = source.table(selection.campaign)
    own = arms_of(found, balanced=selection.balanced) if found else []
    there = (arm for arm in own if arm.name == selection.reference)
    return next((arm.accuracy for arm in there if weight_of(selection.campaign, arm) == WEIGHT), None)


def choices(source: Source, selection: Selection = SELECTION, campaign: str = "") -> list[Choice]:
    """Every setting of a selection, or of another campaign, at the accuracy of its arm a.

    Empty where that is not measured yet; settings whose every run collapsed have no such point, and are left out.
    """
    campaign = campaign or selection.campaign
    found, at = source.table(campaign), reference_accuracy(source, selection)
    if found is None or at is None:
        return []
    settings: dict[str, list[Arm]] = {}
    for arm in arms_of(found, balanced=selection.balanced):
        if arm.name != selection.reference:
            settings.setdefault(arm.name, []).append(arm)
    runs = {name: [one for arm in arms for one in tried(campaign, arm)] for name, arms in settings.items()}
    return [Choice(match(name, own, at), config_of(campaign, settings[name][0])) for name, own in runs.items() if own]


def tried(campaign: str, arm: Arm) -> list[Tried]:
    """Every run of an arm at a point that did not collapse, as the rule of choosing takes it."""
    weight = weight_of(campaign, arm)
    found = zip(arm.seeds, *(arm.values[name] for name in (ACCURACY, "mse", "structure")), strict=True)
    return [
        Tried(weight, accuracy, error_of({"mse": mse, "structure": structure}))
        for seed, accuracy, mse, structure in found
        if seed not in arm.collapsed
    ]


def chosen(source: Source) -> dict[str, Choice]:
    """Parts b, c and d of the claim as the rule has them, as far as they are measured.

    c is the attention surrogate, with its front end, that leaves the largest error at the accuracy of a, among those
    that have this accuracy at a weight within what was tried: the others' errors are at another one. b is kmeans
    behind the same front end; d is c's front end and surrogate behind the thin client.
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
    """The same for other data, where front end and surrogates are those of CIFAR-10 and only λ is chosen."""
    return {one.matched.name[0]: one for one in choices(source, selection)}


def told_choices(parts: Mapping[str, Choice]) -> list[str]:
    """What to put into the files of a claim, a line a part."""
    return [
        f"{part}: front end {front_end(one.config)}; surrogate {one.config.surrogate.name}; λ = {one.matched.weight:g}"
        + ("" if one.matched.within else " (at the edge of what was tried)")
        for part, one in sorted(parts.items())
    ]


def selection_section(source: Source, selection: Selection, taken: Mapping[str, Choice]) -> str:
    """Every setting that was tried for a claim, λ at the accuracy of arm a, and which are taken as its parts."""
    found, at = source.table(selection.campaign), reference_accuracy(source, selection)
    if found is None or at is None:
        return not_measured(selection.campaign)
    parts = {one.matched.name: f"**{part}**" for part, one in taken.items() if part in ("b", "c")}
    lines = [[*told_match(one), parts.get(one.matched.name, "")] for one in choices(source, selection)]
    told = (
        f"At the accuracy of arm a there, {100 * at:.2f} %: λ, the geometric mean of MSE and structure error there, "
        "and whether λ lies within what was tried."
    )
    shown = points(selection.campaign, found, balanced=selection.balanced)
    return "\n\n".join([shown, told, table(["setting", "λ", "error", "within", "taken as"], lines)])


def told_match(one: Choice) -> list[str]:
    """A setting at the accuracy of arm a."""
    own = one.matched
    return [own.name, f"{own.weight:g}", f"{own.error:.4f}", "yes" if own.within else "no"]


# single tables


def points(campaign: str, found: CampaignTable, *, balanced: bool = False) -> str:
    """Every arm at every point, with where the numbers are from."""
    arms = arms_of(found, balanced=balanced)
    lines = []
    for arm in arms:
        config = config_of(campaign, arm)
        own = [spread(name, arm.values[name]) for name in SHOWN]
        lines.append([*setting(config), *own])
    head = [*SETTING, *(title(name, balanced=balanced) for name in SHOWN)]
    collapsed = sum(len(arm.collapsed) for arm in arms)
    told = f"\n\nRuns that ended near chance: {collapsed}; they are in the table, and in no rule." if collapsed else ""
    return f"{whence(found, arms)}\n\n{table(head, lines, left=len(SETTING))}{told}"


def setting(config: RunConfig) -> list[str]:
    """Network, front end, and what the client was trained with, as `SETTING` heads them."""
    return [config.model.name, front_end(config), named(config)]


def named(config: RunConfig) -> str:
    """The surrogate with λ, the penalties beside it, and how noise that is not white is shaped."""
    penalties = [f"{one.name} {one.weight:g}" for one in config.penalties]
    noises = [f"noise of tilt {one.tilt:g}" for one in config.channel if isinstance(one, ShapedOptions)]
    return ", ".join([method(config), *penalties, *noises])


def baseline_section(source: Source) -> str:
    """The baseline's own recipe under its own attack, and what others published beside it."""
    published = table(["published by", "setting", "accuracy", "MSE"], PUBLISHED, left=2)
    told = (
        "**As published by others**, in other settings and under other attacks; none of these was measured by us, and "
        "none compares digit by digit with a number of this page:"
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
        f"{link(BASELINE)}; one seed, the baseline's; trained in bf16, the baseline trains in 32 bits; "
        "95 % intervals over images."
    )
    told = " ".join([told, *(conditions(found, place) for place in range(len(found.audits)))])
    head = ["adversary", "attack", "accuracy %", "MSE", "SSIM, zero-padded as published", "PSNR dB"]
    return f"{unfinished(found)}{told}\n\n{table(head, lines, left=2)}"


def _rows(threat: str, audit: CellAudit) -> list[list[str]]:
    accuracy = "" if audit.accuracy is None else _over_images(ACCURACY, audit.accuracy)
    return [
        [threat, name, accuracy, *(_over_images(key, scores[key]) for key in ("mse", "ssim_zero_pad", "psnr"))]
        for name, scores in (audit.attacks or {}).items()
    ]


def _over_images(measure: str, interval: Sequence[float]) -> str:
    mean, *ends = interval
    return number(measure, mean) + (f" ({number(measure, ends[0])} to {number(measure, ends[1])})" if ends else "")


def undefended_section(source: Source) -> str:
    """Accuracy without any defence."""
    found = source.table("undefended-cifar10")
    if found is None:
        return not_measured("undefended-cifar10")
    best = found.cells[0].audits[0].accuracy or []
    told = f"accuracy {_over_images(ACCURACY, best)} %, 95 % interval over the test images"
    return f"CIFAR-10, VGG11-BN cut 4, nothing added to z, one seed: {told} ({link('undefended-cifar10')})."


def demo_section(source: Source) -> str:
    """The embedded images: what `attncem demo` prints, with its intervals."""
    file = source.folder / "demo.csv"
    if not file.is_file():
        return "not measured yet: `attncem demo`"
    with file.open(encoding="utf-8", newline="") as opened:
        rows = [row for row in csv.DictReader(opened) if row["kind"] == "run"]
    head = ["run", "defence", "strongest attack", title(ACCURACY), title("mse"), title("structure"), title("ssim")]
    told = (
        "[`results/demo.csv`](../results/demo.csv), made by `attncem demo`; one seed, so nothing here says that a "
        "method wins; 95 % intervals over 1,000 test images. "
        f"Adversary `{rows[0]['threat']}`, suite `{rows[0]['suite']}`."
    )
    return f"{told}\n\n{table(head, [_demo_run(row) for row in rows], left=3)}"


def _demo_run(row: Mapping[str, str]) -> list[str]:
    accuracy, mse = ([float(row[f"{key}{end}"]) for end in ("", "_low", "_high")] for key in ("accuracy", "mse"))
    others = [number(name, float(row[name])) for name in ("structure", "ssim")]
    own = [row["run"], row["surrogate"], row["attack"]]
    return [*own, _over_images(ACCURACY, accuracy), _over_images("mse", mse), *others]
