"""What may come after the claim: every setting tried, compared with the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attncem.campaigns.choosing import error_of
from attncem.records.statistics import error_at
from attncem.records.study import ACCURACY
from evidence.others import BEYOND, SELECTION, SETTING, choices, chosen, named, points, told_match
from evidence.source import Setting, Source, link, not_measured
from evidence.words import front_end, number, seeds_of, table, title

MEASURES = {"mse": "MSE", "structure": "structure error"}


@dataclass(frozen=True)
class Beside:
    """A setting, and the ratio of its error to the baseline's at the same accuracy."""

    arm: Setting
    times: dict[str, float]
    part: str = ""
    """The part of the claim that this setting was chosen for."""

    @property
    def gain(self) -> float:
        """The ratio over both measures, as in the rule of choosing."""
        return error_of(self.times)


def section(source: Source) -> str:
    """All points, the choice by the rule, and each point compared with the baseline at the point's accuracy."""
    found = source.table(BEYOND)
    if found is None:
        return not_measured(BEYOND)
    parts = [points(found)]
    if matched := choices(source, campaign=BEYOND):
        told = "At the validation accuracy of arm a, as above:"
        parts += [told, table(["setting", "λ", "error", "within"], [told_match(one) for one in matched])]
    if beside := beside_baseline(source):
        parts += [_told(baseline(source), beside), _table(beside)]
    return "\n\n".join(parts)


def baseline(source: Source) -> list[Setting]:
    """The baseline's kmeans at all its λ, with the same images and attacks."""
    return [arm for arm in _arms(source) if arm.name == SELECTION.reference]


def _arms(source: Source) -> list[Setting]:
    return [arm for campaign in (SELECTION.campaign, BEYOND) for arm in source.arms(campaign)]


def beside_baseline(source: Source) -> list[Beside]:
    """Every setting tried, and those chosen as b and c, at an accuracy the baseline has; largest gain first.

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


def _told(curve: Sequence[Setting], beside: Sequence[Beside]) -> str:
    weights = ", ".join(f"{arm.weight:g}" for arm in curve)
    ends = [number(ACCURACY, end(arm.accuracy for arm in curve)) for end in (min, max)]
    best = beside[0]
    gains = " and ".join(f"{best.times[name]:.2f} times the {word}" for name, word in MEASURES.items())
    return (
        f"**Compared with the baseline's kmeans at the same accuracy**, interpolated between its λ of {weights} "
        f"({ends[0]} to {ends[1]} %; {link(SELECTION.campaign)} and {link(BEYOND)}), largest gain first: "
        f"{gains} for {_setting(best)}. Means of {seeds_of([one.arm for one in beside])} on validation images, "
        "with the ridge and the global decoder only: no test and no claim. A client trained against a decoder may "
        "have learned to fool decoders of that kind; the claim's arms face `standard` without three rows. "
        "The table includes the settings of b, c and d: their six seeds above show how reliable two seeds are. "
        "Settings more accurate than the baseline at its smallest λ are left out."
    )


def _table(beside: Sequence[Beside]) -> str:
    lines = [
        [
            *(write(one.arm) for write in SETTING.values()),
            number(ACCURACY, one.arm.accuracy),
            *(f"{one.times[name]:.2f}" for name in MEASURES),
            f"**{one.part}**" if one.part else "",
        ]
        for one in beside
    ]
    head = [*SETTING, title(ACCURACY), *(f"{word}, times" for word in MEASURES.values()), "setting of"]
    return table(head, lines, left=len(SETTING))


def _setting(one: Beside) -> str:
    config = one.arm.config
    front = "without a front end" if config.model.front_end.name == "none" else f"behind {front_end(config)}"
    return f"`{config.model.name}` {front} with {named(config)}"
