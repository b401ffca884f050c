"""Numbers, settings and adversaries in the words of the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from attncem.base.texts import text
from attncem.config.options.run import RunConfig
from attncem.records.campaign_table import CampaignTable, Ends
from attncem.records.metrics import METRICS
from attncem.records.statistics import seed_summary
from attncem.records.study import ACCURACY
from attncem.records.study.equal import PairEffect
from evidence.source import Setting, arms_by_cell, stem

T = TypeVar("T")

ANSWERS = {
    "more_private": "more private",
    "less_private": "**less private**",
    "no_difference_shown": "no difference shown",
    "too_few_seeds": "too few seeds for a test",
}
OWNED = {
    "train": "owns the training images",
    "held_out": "owns held-out images",
    "published_infer": "owns nine tenths of the test images and is evaluated on the rest",
    "none": "owns no images",
}


def table(head: Sequence[str], lines: Sequence[Sequence[str]], *, left: int = 1, last: int = 0) -> str:
    """A table with its first and last columns aligned left, the others right."""
    rule = "|" + "---|" * left + "--:|" * (len(head) - left - last) + "---|" * last
    return "\n".join([f"| {' | '.join(head)} |", rule, *(f"| {' | '.join(line)} |" for line in lines)])


def table_of(rows: Iterable[T], columns: Mapping[str, Callable[[T], str]], *, left: int = 1, last: int = 0) -> str:
    """A table of columns: each has a title, and formats the cell of a row."""
    lines = [[write(row) for write in columns.values()] for row in rows]
    return table(list(columns), lines, left=left, last=last)


def number(measure: str, value: float) -> str:
    """A measure with its digits; an accuracy in percent."""
    return f"{100 * value:.2f}" if measure == ACCURACY else f"{value:.{METRICS[measure].decimals}f}"


def over_images(measure: str, score: Ends | None) -> str:
    """A measure of one run with its interval over images, if there is one."""
    if score is None:
        return ""
    interval = f" ({number(measure, score.low)} to {number(measure, score.high)})" if score.low < score.high else ""
    return number(measure, score.mean) + interval


def spread(arm: Setting, measure: str, row: str = "") -> str:
    """Mean ± standard deviation over seeds with Student's interval; for one seed the number alone."""
    summary = seed_summary(arm.values(measure, row=row))
    if summary.sd is None or summary.low is None or summary.high is None:
        return number(measure, summary.mean)
    low, high = number(measure, summary.low), number(measure, summary.high)
    return f"{number(measure, summary.mean)} ± {number(measure, summary.sd)} ({low} to {high})"


def spreads(measures: Iterable[str], *, balanced: bool = False) -> dict[str, Callable[[Setting], str]]:
    """The columns of these measures in a table of arms."""
    return {title(name, balanced=balanced): partial(spread, measure=name) for name in measures}


def title(measure: str, *, balanced: bool = False) -> str:
    """The title of a measure, with an arrow towards more private."""
    if measure == ACCURACY:
        return "Balanced accuracy %" if balanced else "Accuracy %"
    arrow = "↑" if METRICS[measure].private == "higher" else "↓"
    return f"{text(f'measure.{measure}')} {arrow}"


def ratio(effect: PairEffect | None) -> str:
    """A ratio with its interval; a dash if it is unknown."""
    if effect is None or effect.comparison.ratio is None:
        return "–"
    comparison = effect.comparison
    if comparison.ratio_low is None or comparison.ratio_high is None:
        return f"{comparison.ratio:.2f}"
    return f"{comparison.ratio:.2f} ({comparison.ratio_low:.2f} to {comparison.ratio_high:.2f})"


def p_value(effect: PairEffect) -> str:
    """The adjusted p; with too few seeds, the smallest possible p."""
    comparison = effect.comparison
    if effect.answer == "too_few_seeds":
        return "–" if comparison.p is None else f"≥ {comparison.smallest_p:.2g}"
    return "–" if comparison.adjusted_p is None else f"{comparison.adjusted_p:.3f}"


def front_end(config: RunConfig) -> str:
    """A front end and its non-default options."""
    options = config.model.front_end.model_dump(exclude_defaults=True, exclude={"name"})
    return " ".join([config.model.front_end.name, *(f"{key} {value:g}" for key, value in options.items())])


def method(config: RunConfig) -> str:
    """The surrogate, its variant if a source document defines it, and λ."""
    variant = getattr(config.surrogate, "variant", "ours")
    name = config.surrogate.name if variant == "ours" else f"{config.surrogate.name} {variant}"
    weight = config.training.penalty_weight
    return f"{name}, λ = {weight:g}" if weight else name


def seeds_of(arms: Iterable[Setting]) -> str:
    """Number of seeds of the arms."""
    counts = sorted({len(arm.seeds) for arm in arms})
    if counts == [1]:
        return "one seed"
    return f"{' or '.join(map(str, counts))} seeds per arm"


def link(campaign: str) -> str:
    """A link from docs/ to a campaign's result file."""
    return f"[`results/{stem(campaign)}.json`](../results/{stem(campaign)}.json)"


def not_measured(campaign: str) -> str:
    """The line shown while a campaign has no results."""
    return f"not measured yet: `attncem campaign run {campaign}`"


def files(arms: Iterable[Setting]) -> str:
    """Links to the result files of these arms, each once."""
    return ", ".join(map(link, dict.fromkeys(arm.campaign for arm in arms)))


def missing_arms(results: CampaignTable) -> Counter[str]:
    """Number of runs of each arm without a result."""
    arms = arms_by_cell(results.campaign)
    return Counter(arms.get(cell, cell) for cell in results.unfinished)


def listed(names: Sequence[str]) -> str:
    """Names in a sentence: `a, b and c`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def counted(names: Mapping[str, int]) -> str:
    """Names with the number of their occurrences."""
    return ", ".join(f"`{name}` ({count})" for name, count in names.items())
