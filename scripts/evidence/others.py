"""The choice of the arms, and tables of single campaigns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from attncem.campaigns.choosing import Matched, Tried, error_of, match
from attncem.config.options.channels import ShapedOptions
from attncem.config.options.run import RunConfig
from attncem.records.study import ACCURACY
from attncem.records.study.equal import PairEffect, effects
from evidence.source import Setting, Source
from evidence.words import front_end, method, spreads, table_of

BEYOND = "beyond-cifar10"
WEIGHT = 2.0
"""λ of arm a of every claim."""
ATTENTION = ("gated", "slot", "hybrid")
"""Attention surrogates; the best of them is arm c."""
SHOWN = (ACCURACY, "mse", "structure", "ssim")


# selection of the arms


@dataclass(frozen=True)
class Selection:
    """A campaign for the choice of λ; its arm ``reference`` at `WEIGHT` is arm a of the claim."""

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

    Empty if that is not measured yet; settings whose runs all collapsed are left out.
    """
    at = reference_accuracy(source, selection)
    if at is None:
        return []
    points: dict[str, list[Setting]] = {}
    for arm in source.arms(campaign or selection.campaign, balanced=selection.balanced):
        if arm.name != selection.reference:
            points.setdefault(arm.name, []).append(arm)
    runs = {name: [one for arm in arms for one in tried(arm)] for name, arms in points.items()}
    return [Choice(match(name, tries, at), points[name][0].config) for name, tries in runs.items() if tries]


def tried(arm: Setting) -> list[Tried]:
    """Every run of an arm that did not collapse, as input of the selection rule."""
    seeds = zip(arm.cells, *(arm.values(name) for name in (ACCURACY, "mse", "structure")), strict=True)
    return [
        Tried(arm.weight, accuracy, error_of({"mse": mse, "structure": structure}))
        for cell, accuracy, mse, structure in seeds
        if not cell.collapsed
    ]


def chosen(source: Source) -> dict[str, Choice]:
    """Parts b, c and d of the claim by the selection rule, as far as they are measured.

    c is the attention surrogate and front end with the largest error at the accuracy of a, among those that reach this
    accuracy at a weight within the range tried. b is kmeans with the same front end; d is c's front end and surrogate
    with the thin client.
    """
    matched = choices(source)
    attention = [one for one in matched if one.config.surrogate.name in ATTENTION]
    if not attention:
        return {}
    at_it = [one for one in attention if one.matched.within] or attention
    parts = {"c": max(at_it, key=lambda one: one.matched.error)}
    front = parts["c"].config.model.front_end
    same = [one for one in matched if one.config.model.front_end == front and one.config.surrogate.name == "kmeans"]
    thin = [
        one
        for one in choices(source, campaign=BEYOND)
        if one.config.model.name == "thin_vgg11_bn"
        and (one.config.model.front_end, one.config.surrogate) == (front, parts["c"].config.surrogate)
    ]
    return parts | {part: fitting[0] for part, fitting in (("b", same), ("d", thin)) if fitting}


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


# single tables


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
ARM: dict[str, Callable[[Setting], str]] = {"arm": lambda arm: arm.name}


def arm_table(
    arms: Sequence[Setting], columns: Mapping[str, Callable[[Setting], str]], *, balanced: bool = False
) -> str:
    """Every arm at every point: these columns, and the usual measures."""
    return table_of(arms, {**columns, **spreads(SHOWN, balanced=balanced)}, left=len(columns))


def over_base(base: Setting, others: Sequence[Setting]) -> list[tuple[Setting, dict[str, PairEffect]]]:
    """Every other arm with its ratios to a reference arm."""
    return list(zip(others, effects([(arm, base) for arm in others]), strict=True))


def farthest(base: Setting, others: Sequence[Setting]) -> float:
    """The largest difference between an accuracy and that of the reference arm."""
    return max(abs(arm.accuracy - base.accuracy) for arm in others)
