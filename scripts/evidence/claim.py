"""The claim: three arms over their seeds, their ratios as measured and at equal accuracy, and its goals."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from attncem.config.options.run import RunConfig
from attncem.records.campaign_table import CampaignTable
from attncem.records.metrics import METRICS
from attncem.records.study import ACCURACY
from attncem.records.study.equal import PairEffect, effects, moved, slopes
from evidence.source import Setting, Source, link, not_measured
from evidence.words import (
    ANSWERS,
    conditions,
    counted,
    doubtful,
    front_end,
    method,
    p_value,
    ratio,
    seeds_of,
    spread,
    table,
    title,
    unfinished,
)

GOALS = {"mse": (1.6, 2.0), "structure": (1.3, 1.5)}
"""Required and desired ratio of arm c's error to the baseline's."""
LEVEL = 0.01
"""The p value that the claim requires."""
AGREE = 0.002
"""Largest difference of mean accuracies that counts as equal."""
CURVES = (
    *("claim-selection-cifar10", "beyond-cifar10", "front-ends-cifar10", "front-ends-selection"),
    *("front-cifar10", "claim-selection-tiny-imagenet", "claim-selection-lfw"),
)
"""Campaigns with settings at several weights, from which the slope is measured."""
FARTHEST = 2.0
"""Largest correction, as a multiple of the largest accuracy change that λ caused in one setting."""
PAIRS = (("c", "a"), ("b", "a"), ("c", "b"), ("d", "a"), ("d", "c"))
"""b over a: effect of the front end; c over b: of attention; d over c: of the thin client."""
SHARES = {"the front end": ("b", "a"), "attention": ("c", "b"), "the thin client": ("d", "c")}
Effects = dict[tuple[str, str], dict[str, PairEffect]]
"""One part over another, in every measure."""


@dataclass(frozen=True)
class Claim:
    """Which arms of a campaign play which part; ``further``: parts that another campaign's arms play."""

    campaign: str
    parts: Mapping[str, str]
    further: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    balanced: bool = False


@dataclass(frozen=True)
class Slope:
    """Settings at several weights each: one slope for all of them."""

    curves: list[list[Setting]]

    @property
    def campaigns(self) -> list[str]:
        """The campaigns that measured these settings."""
        return list(dict.fromkeys(curve[0].campaign for curve in self.curves))

    @cached_property
    def lines(self) -> dict[str, float]:
        """The slope of every measure."""
        return slopes([[(arm.weight, arm) for arm in curve] for curve in self.curves])

    @cached_property
    def reach(self) -> float:
        """The largest accuracy change that λ caused in one setting."""
        along = [[arm.accuracy for arm in curve] for curve in self.curves]
        return max((max(own) - min(own) for own in along), default=0.0)

    def corrects(self, away: float) -> bool:
        """Whether a difference of this size can be corrected."""
        return bool(self.lines) and abs(away) <= FARTHEST * self.reach

    @cached_property
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest accuracy of a setting at one of its weights."""
        measured = [arm.accuracy for curve in self.curves for arm in curve]
        return min(measured, default=math.inf), max(measured, default=-math.inf)

    def covers(self, accuracy: float) -> bool:
        """Whether it was measured on both sides of an accuracy."""
        return self.ends[0] <= accuracy <= self.ends[1]

    @cached_property
    def without_one(self) -> list[dict[str, float]]:
        """The slopes with each setting left out in turn; empty for fewer than three settings."""
        parts = [Slope([*self.curves[:at], *self.curves[at + 1 :]]) for at in range(len(self.curves))]
        return [part.lines for part in parts] if len(parts) > 2 else []


@dataclass(frozen=True)
class Found:
    """A measured claim: its arms by part, and the slope that corrects them."""

    claim: Claim
    table: CampaignTable
    arms: dict[str, Setting]
    slope: Slope

    @property
    def whole(self) -> bool:
        """Whether every part of the claim has a run."""
        return self.arms.keys() >= self.claim.parts.keys()

    @cached_property
    def equal(self) -> dict[str, Setting]:
        """The arms corrected to the mean accuracy of a, without those that are too far away to correct."""
        at, along = self.arms["a"].accuracy, self.slope.lines
        near = {part: arm for part, arm in self.arms.items() if self.slope.corrects(arm.accuracy - at)}
        return {part: moved(arm, at, along) for part, arm in near.items()}

    @cached_property
    def measured(self) -> Effects:
        """Every pair of parts as measured."""
        return over(self.arms)

    @cached_property
    def corrected(self) -> Effects:
        """Every pair of parts at equal accuracy."""
        return over(self.equal)

    def judged(self, one: str, other: str) -> dict[str, PairEffect]:
        """One part over another in every measure, at equal accuracy where that is known."""
        return self.measured[one, other] | self.corrected.get((one, other), {})


def over(arms: Mapping[str, Setting]) -> Effects:
    """The pairs of parts that are measured."""
    pairs = [(one, other) for one, other in PAIRS if one in arms and other in arms]
    return dict(zip(pairs, effects([(arms[one], arms[other]) for one, other in pairs]), strict=True))


def find(source: Source, claim: Claim) -> Found | None:
    """The claim from its files; None where they are missing or have nothing to compare with arm a."""
    wanted = {part: (claim.campaign, name) for part, name in claim.parts.items()} | dict(claim.further)
    arms = {
        part: arm
        for part, (campaign, name) in wanted.items()
        for arm in source.arms(campaign, balanced=claim.balanced)
        if arm.name == name
    }
    table = source.table(claim.campaign)
    if table is None or "a" not in arms or len(arms) == 1:
        return None
    return Found(claim, table, arms, slope(source, arms["a"].config, balanced=claim.balanced))


def slope(source: Source, like: RunConfig, *, balanced: bool = False) -> Slope:
    """Settings at several weights with the data, network and channel of a configuration."""
    return Slope([curve for campaign in CURVES for curve in source.curves(campaign, like, balanced=balanced)])


# the section


def section(source: Source, claim: Claim, *, goals: bool = False) -> str:
    """The claim's tables and sentences, or the command that measures it."""
    found = find(source, claim)
    if found is None:
        return not_measured(claim.campaign)
    parts = [_arms(found), _numbers(found), _rows(found), _accuracies(found), _effects(found)]
    return unfinished(found.table) + "\n\n".join([*parts, *([_goals(found)] if goals and found.whole else [])])


def _arms(found: Found) -> str:
    files = ", ".join(dict.fromkeys(link(arm.campaign) for arm in found.arms.values()))
    configs = {part: arm.config for part, arm in found.arms.items()}
    lines = [
        [f"**{part}**", config.model.name, front_end(config), method(config), f"{config.noise_std:g}"]
        for part, config in configs.items()
    ]
    told = f"{files}; {seeds_of(list(found.arms.values()))}. {conditions(found.table)}"
    return f"{told}\n\n{table(['arm', 'network', 'front end', 'surrogate', 'σ'], lines, left=4)}"


def _numbers(found: Found) -> str:
    arms = found.arms.values()
    shown = [ACCURACY, *(name for name in METRICS if all(name in arm.measures() for arm in arms))]
    lines = [[title(name, balanced=found.claim.balanced), *(spread(name, arm) for arm in arms)] for name in shown]
    strongest = Counter(str(audit.strongest) for arm in arms for audit in arm.audits())
    told = f"Strongest attack (runs): {counted(strongest)}. Mean ± standard deviation over seeds (95 % interval)."
    return f"{told}{doubtful(arms)}\n\n{table(['', *(f'**{part}**' for part in found.arms)], lines)}"


def _rows(found: Found) -> str:
    """The MSE of every row; rows with several releases (x4, x16 …) see more than the adversary of the claim."""
    arms = found.arms.values()
    names = [name for name in found.arms["a"].rows if all(name in arm.rows for arm in arms)]
    lines = [[name, *(spread("mse", arm, name) for arm in arms)] for name in names]
    head = ["MSE ↑ of the row", *(f"**{part}**" for part in found.arms)]
    return f"Every attack and floor; a row with xN sees N releases of each image:\n\n{table(head, lines)}"


def _accuracies(found: Found) -> str:
    """The differences in accuracy, and how they are corrected."""
    at, lines = found.arms["a"].accuracy, []
    for part, arm in found.arms.items():
        if part == "a":
            continue
        away = arm.accuracy - at
        within = "within" if abs(away) <= AGREE else "**not within**"
        told = f"{part} differs from a by {100 * away:+.2f} points of accuracy: {within} {100 * AGREE:g}."
        lines.append(f"- {told}{_beyond(found.slope, arm.accuracy, away)}")
    nothing_corrected = found.equal.keys() == {"a"}
    return "\n".join([*lines, *([] if nothing_corrected else ["", _how(found.slope)])])


def _beyond(known: Slope, accuracy: float, away: float) -> str:
    """A warning where the slope was not measured at this accuracy, or where it is too far away to correct."""
    if known.lines and not known.corrects(away):
        return f" λ changed accuracies by {100 * known.reach:.2f} points at most: **too little to correct this**."
    if not known.curves or known.covers(accuracy):
        return ""
    ends = " to ".join(f"{100 * end:.1f}" for end in known.ends)
    return f" The slope below was measured from {ends} %, so the correction is **extrapolated**; read both."


def _how(known: Slope) -> str:
    if not known.lines:
        return "No setting was measured at several λ on these data, so there is no slope and no correction."
    return f"Each seed is corrected to the mean accuracy of a: {worth(known)}; the intervals do not include its error."


def worth(known: Slope) -> str:
    """The change of the errors per point of accuracy, and the settings it was measured on."""
    told = f"{_percent(known, 'mse')} of the MSE and {_percent(known, 'structure')} of the structure error"
    files = ", ".join(map(link, known.campaigns))
    return (
        f"one point of accuracy changes them by {told}. This is one slope for {len(known.curves)} settings at several "
        f"λ each ({files})"
    )


def _percent(known: Slope, measure: str) -> str:
    """A slope per point of accuracy, and its range when one setting is left out."""
    each = [known.lines, *known.without_one]
    mean, *others = (f"{100 * (math.exp(own[measure] / 100) - 1):+.1f}" for own in each if measure in own)
    ends = sorted(others, key=float)
    return f"{mean} % ({ends[0]} to {ends[-1]} with one setting left out)" if ends else f"{mean} %"


def _effects(found: Found) -> str:
    lines = []
    for pair, own in found.measured.items():
        for name, effect in own.items():
            there = found.corrected.get(pair, {}).get(name)
            judged = there or effect
            told = [ratio(effect), ratio(there), p_value(judged), ANSWERS[judged.answer]]
            lines.append([" over ".join(pair), title(name), *told])
    head = ["", "measure", "times, as measured", "times, at equal accuracy", "p", "answer"]
    return (
        "Ratios (95 % interval). p comes from the exact permutation test over seeds, adjusted for all comparisons of "
        "this table (Benjamini and Hochberg). p and answer are at equal accuracy where that is known.\n\n"
        + table(head, lines, left=2)
    )


# the goals


def verdicts(found: Found) -> list[tuple[str, bool]]:
    """Each goal of the claim, c over a, and whether it is reached. At a different, uncorrected accuracy none is."""
    own = found.judged("c", "a")
    lines = [_times(own[name], least, better) for name, (least, better) in GOALS.items()]
    similar = own["ssim"]
    lower = similar.answer == "more_private" and _sure(similar)
    lines.append((f"SSIM lower: {ratio(similar)} times, {ANSWERS[similar.answer]}", lower))
    worse = [title(name) for name, one in own.items() if one.answer == "less_private"]
    tested = all(one.answer != "too_few_seeds" for one in own.values())
    told = f"worse: {', '.join(worse)}" if worse else "none shown" if tested else "too few seeds to tell"
    lines.append((f"no measure worse; {told}", tested and not worse))
    if "c" in found.equal or abs(found.arms["c"].accuracy - found.arms["a"].accuracy) <= AGREE:
        return lines
    return [(f"{said} (at a different accuracy than a)", False) for said, _ in lines]


def _times(effect: PairEffect, least: float, better: float) -> tuple[str, bool]:
    times = effect.comparison.ratio or 0.0
    reached = effect.answer == "more_private" and _sure(effect) and times >= least
    stretch = f"; {better:g} times as well" if reached and times >= better else ""
    said = f"{title(effect.measure)} at least {least:g} times: {ratio(effect)}, p {p_value(effect)}{stretch}"
    return said, reached


def _sure(effect: PairEffect) -> bool:
    p = effect.comparison.adjusted_p
    return p is not None and p <= LEVEL


def _goals(found: Found) -> str:
    lines = [f"- {'reached' if reached else '**not reached**'}: {said}" for said, reached in verdicts(found)]
    parts = [f"- effect of {what}: {_part(found, *pair)}" for what, pair in SHARES.items() if pair in found.measured]
    return "\n".join([f"**The goals, c over a, at p ≤ {LEVEL:g}:**", "", *lines, *parts])


def _part(found: Found, one: str, other: str) -> str:
    own = found.judged(one, other)
    told = [f"{title(name)} {ratio(own[name])} times, {ANSWERS[own[name].answer]}" for name in ("mse", "structure")]
    return f"{one} over {other}, {'; '.join(told)}"
