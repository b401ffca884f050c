"""Comparisons: the answers of the tests."""

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
}
"""Texts of comparisons by key."""
