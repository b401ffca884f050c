"""Single questions on the embedded images: arms compared with a reference arm."""

from __future__ import annotations

from attncem.campaigns.claims import Arm, arms_of, effects
from evidence.others import SHOWN
from evidence.source import Source, not_measured
from evidence.words import ANSWERS, p_value, ratio, spread, table, title, whence


def section(source: Source, campaign: str, against: str) -> str:
    """The arms, and the ratio of each to the reference arm."""
    found = source.table(campaign)
    if found is None:
        return not_measured(campaign)
    arms = arms_of(found)
    base = next(arm for arm in arms if arm.name == against)
    lines = [[arm.name, *(spread(name, arm.values[name]) for name in SHOWN)] for arm in arms]
    whole = table(["arm", *(title(name) for name in SHOWN)], lines)
    others = [arm for arm in arms if arm is not base]
    return "\n\n".join([whence(found, arms), whole, _over(base, others)])


def _over(base: Arm, others: list[Arm]) -> str:
    lines = []
    for arm, own in zip(others, effects([(arm, base) for arm in others]), strict=True):
        for effect in own:
            if effect.measure in SHOWN:
                found = [ratio(effect), p_value(effect), ANSWERS[effect.answer]]
                lines.append([f"{arm.name} over {base.name}", title(effect.measure), *found])
    most = max(abs(arm.accuracy - base.accuracy) for arm in others)
    told = (
        "Ratios (95 % interval); p comes from the exact permutation test over seeds, adjusted for all comparisons of "
        f"these arms in all measures. Accuracies differ by up to {100 * most:.2f} points; this is not corrected."
    )
    return f"{told}\n\n{table(['', 'measure', 'times', 'p', 'answer'], lines, left=2)}"
