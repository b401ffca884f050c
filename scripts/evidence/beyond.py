"""Candidates beyond the claim: every setting tried, compared with the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attncem.campaigns.choosing import error_of
from attncem.records.statistics import error_at
from evidence.others import BEYOND, SELECTION, chosen
from evidence.source import Setting, Source

MEASURES = ("mse", "structure")


@dataclass(frozen=True)
class Beside:
    """A setting, and the ratio of its error to the baseline's at the same accuracy."""

    arm: Setting
    times: dict[str, float]
    part: str = ""
    """The part of the claim that this setting was chosen for."""

    @property
    def gain(self) -> float:
        """The ratio over both measures, as in the selection rule."""
        return error_of(self.times)


def baseline(source: Source) -> list[Setting]:
    """The baseline's kmeans at all its λ, with the same images and attacks."""
    return [arm for arm in _arms(source) if arm.name == SELECTION.reference]


def _arms(source: Source) -> list[Setting]:
    return [arm for campaign in (SELECTION.campaign, BEYOND) for arm in source.arms(campaign)]


def beside_baseline(source: Source) -> list[Beside]:
    """Every setting tried, and those chosen as b and c, at an accuracy that the baseline reaches; largest gain first.

    Settings with a collapsed run are left out.
    """
    curve, parts = baseline(source), {one.matched.name: part for part, one in chosen(source).items()}
    made = []
    for arm in _arms(source):
        asked = arm.name in parts if arm.campaign == SELECTION.campaign else arm.name != SELECTION.reference
        if asked and not arm.collapsed and (times := _times(arm, curve)):
            made.append(Beside(arm, times, parts.get(arm.name, "")))
    return sorted(made, key=lambda one: -one.gain)


def _times(arm: Setting, curve: Sequence[Setting]) -> dict[str, float] | None:
    """Ratios of an arm's mean errors to the baseline's, interpolated linearly between the two nearest λ."""
    if not curve:
        return None
    accuracies = [one.accuracy for one in curve]
    there = {name: error_at(accuracies, [one.mean(name) for one in curve], arm.accuracy) for name in MEASURES}
    if not all(one.values for one in there.values()):
        return None
    return {name: arm.mean(name) / one.values[0] for name, one in there.items()}
