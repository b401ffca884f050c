"""Single questions on the embedded images: arms compared with a reference arm."""

from __future__ import annotations

from attncem.records.study.equal import effects
from evidence.others import SHOWN
from evidence.source import Setting, Source, not_measured, settings
from evidence.words import ANSWERS, p_value, ratio, spreads, table, table_of, title, whence


def section(source: Source, campaign: str, against: str) -> str:
    """The arms, and the ratio of each to the reference arm."""
    found = source.table(campaign)
    if found is None:
        return not_measured(campaign)
    arms = settings(found)
    base = next(arm for arm in arms if arm.name == against)
    whole = table_of(arms, {"arm": lambda arm: arm.name, **spreads(SHOWN)})
    return "\n\n".join([whence(found, arms), whole, _over(base, [arm for arm in arms if arm is not base])])


def _over(base: Setting, others: list[Setting]) -> str:
    lines = [
        [f"{arm.name} over {base.name}", title(name), ratio(effect), p_value(effect), ANSWERS[effect.answer]]
        for arm, own in zip(others, effects([(arm, base) for arm in others]), strict=True)
        for name, effect in own.items()
        if name in SHOWN
    ]
    most = max(abs(arm.accuracy - base.accuracy) for arm in others)
    told = (
        "Ratios (95 % interval); p comes from the exact permutation test over seeds, adjusted for all comparisons of "
        f"these arms in all measures. Accuracies differ by up to {100 * most:.2f} points; this is not corrected."
    )
    return f"{told}\n\n{table(['', 'measure', 'times', 'p', 'answer'], lines, left=2)}"
