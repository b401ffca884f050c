"""Comparisons: the answers of the tests, and `attncem compare` in the terminal and as a page."""

from __future__ import annotations

COMPARISON: dict[str, str] = {
    "comparison.verdict.a_higher": "{measure}: {a} is higher than {b}",
    "comparison.verdict.b_higher": "{measure}: {b} is higher than {a}",
    "comparison.verdict.no_difference_shown": "{measure}: no difference between {a} and {b} is shown",
    "comparison.verdict.too_few_seeds": "{measure}: too few seeds of {a} and {b} to tell",
    "comparison.seeds": "{said}. {numbers}; seeds: {count_a} and {count_b}{test}.",
    "comparison.images": "{said}. {numbers}; the same {count_a} images, one run each{test}.",
    "comparison.images_apart": "{said}. {numbers}; {count_a} and {count_b} images, not paired, one run each{test}.",
    "comparison.means": "{mean_a:.4g} and {mean_b:.4g}, difference {difference:+.3g}",
    "comparison.interval": "{means} (95 % interval {low:+.3g} to {high:+.3g})",
    "comparison.p": "; p = {p:.3g}",
    "comparison.adjusted_p": "; p = {p:.3g}, among all comparisons {adjusted:.3g}",
    "comparison.too_few": "; so many seeds cannot give a p below {smallest:.2g}, and {level:g} is asked for",
    "comparison.at": (
        "at accuracy {at:.4g} the error is {error:.4g} (95 % interval {low:.4g} to {high:.4g}, {seeds} seeds)"
    ),
    "comparison.at.one_seed": "at accuracy {at:.4g} the error is {error:.4g} (one seed, so no interval)",
    "comparison.at.outside": (
        "no error is given at accuracy {at:.4g}: all seeds reach accuracies from {low:.4g} to {high:.4g} only, and "
        "nothing is extrapolated"
    ),
    # runs side by side: what is compared
    "compare.accuracy": "accuracy",
    "compare.validation_accuracy": "validation accuracy of the best checkpoint",
    "compare.strongest": "{measure} of the strongest attack",
    "compare.strongest_is": "{measure} of the strongest attack, {row}",
    "compare.row": "{measure} of {row}",
    # what a reader must know first
    "finding.compare_other_data": (
        "the runs have other data, or another split of them ({data}): no number of one can stand beside another’s, and "
        "none is compared"
    ),
    "finding.compare_unaudited": (
        "no audit of its best weights on test images, so no attack is compared; attncem audit {run} makes one"
    ),
    "finding.compare_no_common_audit": (
        "no audit of the same suite, version, options, threat model and images is there for all runs ({audits}), so no "
        "attack is compared; one attncem audit for all of them makes it"
    ),
    "finding.compare_other_audits": (
        "all runs share {count} other kinds of audits; the one with the most attacks is compared ({chosen})"
    ),
    "finding.compare_leaders_differ": (
        "the strongest attack is not the same for all ({leaders}); each run is judged by its own"
    ),
    "finding.compare_useless": (
        "accuracy is near chance, or far below the undefended model’s or the best run’s, so that what they hide is no "
        "privacy: {runs}"
    ),
    "finding.compare_unreliable": (
        "the strongest attack is not reliable, and may recover more with a larger budget: {runs}"
    ),
    "finding.compare_rows_lacking": "not compared, because some of the runs have no result for it: {rows}",
    "finding.compare_not_paired": (
        "the scores of single images are not at hand, so intervals are compared, which are wider than those of pairs: "
        "{rows}"
    ),
    "finding.compare_one_seed": (
        "one run each: this says which of these trained models is higher, and nothing about the methods, because "
        "another seed gives another model; six seeds of each would (docs/statistics.md)"
    ),
    "finding.compare_one_group": "all runs are seeds of one arm: their spread is shown, and there is nothing to test",
    "finding.compare_mixed": "its runs differ in more than the seed ({keys}), and are tested as seeds of one arm",
    "finding.compare_same_result": "has the configuration and seed of {other}: it is the same result, and not counted",
    # terminal and page
    "compare.columns.runs": "run|seed|1/4|1/2|3/4|end|best|train",
    "compare.columns.options": "option|value|runs",
    "compare.columns.groups": "runs|seeds",
    "compare.columns.tests": "measure|compared|difference|95 % interval|p|answer",
    "compare.title.training": "Validation accuracy along the training, %",
    "compare.title.options": "Options that differ",
    "compare.title.numbers": "Numbers of the audits ({audit})",
    "compare.title.numbers.validation": "Numbers",
    "compare.title.tests": "Differences",
    "compare.same_options": "No option differs but for the seed.",
    "compare.some_options": "{count} more options exist in some of the runs only; the page and --json have them.",
    "compare.value": "{mean} ± {sd}",
    "compare.against": "{a} − {b}",
    "compare.points": "{value} points",
    "compare.bounds": "{low} to {high}",
    "compare.answer.a_higher": "{a} is higher",
    "compare.answer.b_higher": "{b} is higher",
    "compare.answer.no_difference_shown": "no difference shown",
    "compare.answer.too_few_seeds": "too few seeds to tell",
    "compare.adjusted": "p is adjusted for the number of comparisons; {level:g} and below counts as a difference.",
    "compare.by_interval": "A difference is told where its interval does not hold 0.",
    "compare.audit": "{suite} v{version}, {threat}",
    "compare.hint": "as a page with curves: add --out compare.html",
    "compare.title": "{runs} – comparison",
    "compare.heading": "Runs side by side",
    "compare.made": "Made {time} by attncem {version} from {count} runs.",
    "compare.notes": "Before you read on",
    "compare.options": "Options",
    "compare.options.lead": "Options that differ between the groups; a dash: the group has no such option.",
    "compare.numbers": "Numbers",
    "compare.numbers.lead": "Mean over the runs of each group ± their standard deviation; below it each run.",
    "compare.numbers.region": "Numbers by group and run",
    "compare.tests": "Differences",
    "compare.tests.lead": "Every group beside the first.",
    "compare.curves": "Training",
    "compare.curves.lead": "A colour for each group, a line for each run.",
    "compare.curves.none": "No run has logged anything yet.",
    "compare.seeds": "{count} runs",
    "compare.column.option": "option",
    "compare.column.runs": "runs",
    "compare.column.seed": "seed",
    "compare.column.best": "best validation accuracy",
    "compare.column.training": "training",
    "compare.column.strongest": "strongest attack",
    "compare.column.measure": "measure",
    "compare.column.compared": "compared",
    "compare.column.difference": "difference",
    "compare.column.interval": "95 % interval",
    "compare.column.ratio": "ratio",
    "compare.column.p": "p",
    "compare.column.answer": "answer",
}
"""Texts of comparisons by key."""
