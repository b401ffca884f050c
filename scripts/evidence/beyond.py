"""What may come after the claim: every setting that was tried, and how it stands beside the baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from attncem.campaigning.claims import Arm, arms_of
from attncem.statistics import error_at
from evidence.others import BEYOND, SELECTION, choices, chosen, named, points, told_match
from evidence.source import Source, config_of, link, not_measured
from evidence.words import front_end, number, seeds_of, table, title

MEASURES = {"mse": "MSE", "structure": "structure error"}


@dataclass(frozen=True)
class Beside:
    """A setting, and how many times the baseline's error it leaves where the baseline has the same accuracy."""

    campaign: str
    arm: Arm
    times: dict[str, float]
    part: str = ""
    """Which part of the claim it was chosen as."""

    @property
    def gain(self) -> float:
        """The geometric mean over the measures, as in the rule of choosing."""
        return math.sqrt(math.prod(self.times.values()))


def section(source: Source) -> str:
    """All points, the rule's answer, and each point beside the baseline at its own accuracy."""
    found = source.table(BEYOND)
    if found is None:
        return not_measured(BEYOND)
    parts = [points(BEYOND, found)]
    if matched := choices(source, campaign=BEYOND):
        told = "At the accuracy of arm a on validation images, as above:"
        parts += [told, table(["setting", "λ", "error", "within"], [told_match(one) for one in matched])]
    if beside := beside_baseline(source):
        parts += [_told(baseline(source), beside), _table(beside)]
    return "\n\n".join(parts)


def baseline(source: Source) -> list[Arm]:
    """The baseline's kmeans at all its λ, on the same images and under the same attacks."""
    tables = [source.table(campaign) for campaign in (SELECTION.campaign, BEYOND)]
    arms = [arm for found in tables if found is not None for arm in arms_of(found)]
    return [arm for arm in arms if arm.name == SELECTION.reference]


def beside_baseline(source: Source) -> list[Beside]:
    """What was tried, and what b and c were chosen from, where the baseline has the same accuracy; most gain first.

    Settings of which a run collapsed are left out.
    """
    curve, parts = baseline(source), {one.matched.name: part for part, one in chosen(source).items()}
    made = []
    for campaign in (SELECTION.campaign, BEYOND):
        found = source.table(campaign)
        for arm in [] if found is None else arms_of(found):
            tried = arm.name in parts if campaign == SELECTION.campaign else arm.name != SELECTION.reference
            if tried and not arm.collapsed and (times := _times(arm, curve)):
                made.append(Beside(campaign, arm, times, parts.get(arm.name, "")))
    return sorted(made, key=lambda one: -one.gain)


def _times(arm: Arm, curve: Sequence[Arm]) -> dict[str, float] | None:
    """An arm's mean errors over the baseline's, by a straight line between the two λ around its accuracy."""
    if not curve:
        return None
    accuracies = [one.accuracy for one in curve]
    there = {name: error_at(accuracies, [one.mean(name) for one in curve], arm.accuracy) for name in MEASURES}
    if not all(one.values for one in there.values()):
        return None
    return {name: arm.mean(name) / one.values[0] for name, one in there.items()}


def _told(curve: Sequence[Arm], beside: Sequence[Beside]) -> str:
    weights = ", ".join(f"{arm.point['training.penalty_weight']:g}" for arm in curve)
    ends = [number("accuracy", end(arm.accuracy for arm in curve)) for end in (min, max)]
    best = beside[0]
    gains = " and ".join(f"{best.times[name]:.2f} times the {word}" for name, word in MEASURES.items())
    return (
        f"**Beside the baseline's kmeans at the same accuracy**, between its own λ of {weights} "
        f"({ends[0]} to {ends[1]} %; {link(SELECTION.campaign)} and {link(BEYOND)}), the largest gain first: "
        f"{gains} for {_setting(best)}. Means of {seeds_of([one.arm for one in beside])} on validation images, "
        "under the ridge and the global decoder alone: no test, and no claim. A client that was trained against a "
        "decoder may have learned to fool decoders of its kind; the claim's arms meet every row of `standard`. "
        "The settings of b, c and d stand among them: what six seeds say of those, above, shows how far two carry. "
        "Settings that are more accurate than the baseline with the least of these λ are left out."
    )


def _table(beside: Sequence[Beside]) -> str:
    lines = []
    for one in beside:
        config, times = config_of(one.campaign, one.arm), [f"{one.times[name]:.2f}" for name in MEASURES]
        setting = [config.model.name, front_end(config), named(config)]
        lines.append([*setting, number("accuracy", one.arm.accuracy), *times, f"**{one.part}**" if one.part else ""])
    head = ["network", "front end", "surrogate", title("accuracy"), *(f"{word}, times" for word in MEASURES.values())]
    return table([*head, "setting of"], lines, left=3)


def _setting(one: Beside) -> str:
    config = config_of(one.campaign, one.arm)
    front = "without a front end" if config.model.front_end.name == "none" else f"behind {front_end(config)}"
    return f"`{config.model.name}` {front} with {named(config)}"
