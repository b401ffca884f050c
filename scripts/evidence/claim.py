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
from evidence.source import Setting, Source
from evidence.words import ANSWERS, p_value, ratio, title

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
"""b over a: effect of the front end; c over b: effect of attention; d over c: effect of the thin client."""
SHARES = {"the front end": ("b", "a"), "attention": ("c", "b"), "the thin client": ("d", "c")}
Effects = dict[tuple[str, str], dict[str, PairEffect]]
"""One part over another, in every measure."""


@dataclass(frozen=True)
class Claim:
    """The arms of a campaign by their part in the claim; ``further``: parts whose arms are in another campaign."""

    campaign: str
    parts: Mapping[str, str]
    further: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    balanced: bool = False


@dataclass(frozen=True)
class Slope:
    """Settings at several weights each: one slope for all of them."""

    curves: list[list[Setting]]

    @cached_property
    def lines(self) -> dict[str, float]:
        """The slope of every measure."""
        return slopes([[(arm.weight, arm) for arm in curve] for curve in self.curves])

    @cached_property
    def reach(self) -> float:
        """The largest accuracy change that λ caused in one setting."""
        along = [[arm.accuracy for arm in curve] for curve in self.curves]
        return max((max(accuracies) - min(accuracies) for accuracies in along), default=0.0)

    def corrects(self, away: float) -> bool:
        """Whether a difference of this size can be corrected."""
        return bool(self.lines) and abs(away) <= FARTHEST * self.reach

    @cached_property
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest accuracy of a setting over its weights."""
        measured = [arm.accuracy for curve in self.curves for arm in curve]
        return min(measured, default=math.inf), max(measured, default=-math.inf)

    def covers(self, accuracy: float) -> bool:
        """Whether the setting was measured on both sides of an accuracy."""
        return self.ends[0] <= accuracy <= self.ends[1]

    @cached_property
    def without_one(self) -> list[dict[str, float]]:
        """The slopes with each setting left out in turn; empty for fewer than three settings."""
        parts = [Slope([*self.curves[:at], *self.curves[at + 1 :]]) for at in range(len(self.curves))]
        return [part.lines for part in parts] if len(parts) > 2 else []


@dataclass(frozen=True)
class ClaimResult:
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
        """The arms corrected to the mean accuracy of a, without those too far away to correct."""
        at, along = self.arms["a"].accuracy, self.slope.lines
        near = {part: arm for part, arm in self.arms.items() if self.slope.corrects(arm.accuracy - at)}
        return {part: moved(arm, at, along) for part, arm in near.items()}

    @property
    def measures(self) -> list[str]:
        """The accuracy and the measures that all arms have."""
        return [ACCURACY, *(name for name in METRICS if all(name in arm.measures() for arm in self.arms.values()))]

    @property
    def rows(self) -> list[str]:
        """The attacks and floors that all arms have."""
        return [row for row in self.arms["a"].rows if all(row in arm.rows for arm in self.arms.values())]

    @property
    def strongest(self) -> Counter[str]:
        """The number of runs in which each attack is the strongest."""
        return Counter(str(audit.strongest) for arm in self.arms.values() for audit in arm.audits())

    @property
    def away(self) -> dict[str, float]:
        """The distance of the other arms' accuracies from that of a."""
        return {part: arm.accuracy - self.arms["a"].accuracy for part, arm in self.arms.items() if part != "a"}

    @cached_property
    def measured(self) -> Effects:
        """Every pair of parts as measured."""
        return over(self.arms)

    @cached_property
    def corrected(self) -> Effects:
        """Every pair of parts at equal accuracy."""
        return over(self.equal)

    def judged(self, one: str, other: str) -> dict[str, PairEffect]:
        """One part over another in every measure, at equal accuracy if that is known."""
        return self.measured[one, other] | self.corrected.get((one, other), {})


def over(arms: Mapping[str, Setting]) -> Effects:
    """The pairs of parts that are measured."""
    pairs = [(one, other) for one, other in PAIRS if one in arms and other in arms]
    return dict(zip(pairs, effects([(arms[one], arms[other]) for one, other in pairs]), strict=True))


def find(source: Source, claim: Claim) -> ClaimResult | None:
    """The claim from its files; None if they are missing or have nothing to compare with arm a."""
    return source.once(claim.campaign, lambda: _find(source, claim))


def _find(source: Source, claim: Claim) -> ClaimResult | None:
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
    return ClaimResult(claim, table, arms, slope_of(source, arms["a"].config, balanced=claim.balanced))


def slope_of(source: Source, like: RunConfig, *, balanced: bool = False) -> Slope:
    """Settings at several weights with the data, network and channel of a configuration."""
    return Slope([curve for campaign in CURVES for curve in source.curves(campaign, like, balanced=balanced)])


def percent(slope: Slope, measure: str) -> str:
    """A slope per point of accuracy, and its range when one setting is left out."""
    each = [slope.lines, *slope.without_one]
    mean, *others = (f"{100 * (math.exp(lines[measure] / 100) - 1):+.1f}" for lines in each if measure in lines)
    ends = sorted(others, key=float)
    return f"{mean} % ({ends[0]} to {ends[-1]} with one setting left out)" if ends else f"{mean} %"


# the goals


def verdicts(result: ClaimResult) -> list[tuple[str, bool]]:
    """Each goal of the claim, c over a, and whether it is reached; never at a different, uncorrected accuracy."""
    ratios = result.judged("c", "a")
    lines = [_times(ratios[name], least, better) for name, (least, better) in GOALS.items()]
    similar = ratios["ssim"]
    lower = similar.answer == "more_private" and _sure(similar)
    lines.append((f"SSIM lower: {ratio(similar)} times, {ANSWERS[similar.answer]}", lower))
    worse = [title(name) for name, one in ratios.items() if one.answer == "less_private"]
    tested = all(one.answer != "too_few_seeds" for one in ratios.values())
    shown = f"shown to be worse: {', '.join(worse) or 'none'}" if tested else "too few seeds for a test"
    lines.append((f"no measure may be worse; {shown}", tested and not worse))
    if "c" in result.equal or abs(result.away["c"]) <= AGREE:
        return lines
    return [(f"{goal} (at a different accuracy than a)", False) for goal, _ in lines]


def _times(effect: PairEffect, least: float, better: float) -> tuple[str, bool]:
    times = effect.comparison.ratio or 0.0
    reached = effect.answer == "more_private" and _sure(effect) and times >= least
    stretch = f"; {better:g} times as well" if reached and times >= better else ""
    goal = f"{title(effect.measure)} at least {least:g} times: {ratio(effect)}, p {p_value(effect)}{stretch}"
    return goal, reached


def _sure(effect: PairEffect) -> bool:
    p = effect.comparison.adjusted_p
    return p is not None and p <= LEVEL
