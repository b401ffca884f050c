"""Simulated coverage of intervals over few seeds, and error rates of the tests.

    python scripts/statistics_coverage.py results/statistics_coverage.json
    python scripts/statistics_coverage.py --page docs/statistics.md results/statistics_coverage.json

About a minute on one CPU core. With --page it simulates nothing and writes the tables of the page from the file.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attncem.records.comparison import LEVEL
from attncem.records.files import write_json
from attncem.records.statistics import (
    adjust,
    bootstrap_mean,
    compare_arms,
    pareto,
    seed_summary,
    smallest_p,
    welch_interval,
)

COMMAND = "python scripts/statistics_coverage.py results/statistics_coverage.json"
TRIALS = 10_000
SEEDS = (3, 6)
FAMILY, PLANTED = 20, 2
"""Number of comparisons in a family, and of those with a true difference."""
FAMILIES = 1000
ARMS = {"private": (0.0, 4.0), "between": (2.0, 2.0), "accurate": (4.0, 0.0), "beaten": (1.9, 1.9)}
"""True points of the fronts, in standard deviations of the seeds; only the last, just beaten, is not on the front."""
DIFFERENCES = (0.0, 1.0, 2.0, 3.0)
"""True differences, in standard deviations of the seeds."""
TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(\n<!-- end -->)", re.DOTALL)
Values = NDArray[np.float64]
Interval = tuple[float, float]


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Values:
    """Mean 0, standard deviation 1."""
    return rng.normal(size=shape)


def skewed(rng: np.random.Generator, shape: tuple[int, ...]) -> Values:
    """Exponential, shifted to mean 0; standard deviation 1, skewness 2."""
    return rng.exponential(size=shape) - 1.0


DATA = {"normal": normal, "skewed": skewed}


def student(values: Values) -> Interval:
    """Student's interval over the seeds of one arm."""
    found = seed_summary(values)
    assert found.low is not None and found.high is not None
    return found.low, found.high


def bootstrap(values: Values) -> Interval:
    """The interval for images, applied to seeds for contrast."""
    found = bootstrap_mean(values)
    return found.low, found.high


def welch(values: Values) -> Interval:
    """Welch's interval of the difference of two arms with equal numbers of seeds."""
    found = welch_interval(*np.split(values, 2))
    assert found is not None
    return found


INTERVALS: dict[str, tuple[Callable[[Values], Interval], int]] = {
    "student": (student, 1),
    "bootstrap": (bootstrap, 1),
    "welch": (welch, 2),
}
"""Intervals, each with the number of its arms."""


def coverage(rng: np.random.Generator, data: str, seeds: int, name: str) -> dict[str, Any]:
    """How often a 95 % interval contains the true mean, 0, or the true difference, 0."""
    interval, arms = INTERVALS[name]
    found = [interval(values) for values in DATA[data](rng, (TRIALS, arms * seeds))]
    held = sum(low <= 0 <= high for low, high in found) / TRIALS
    width = float(np.median([high - low for low, high in found]))
    return {"data": data, "seeds": seeds, "interval": name, "coverage": round(held, 4), "median_width": round(width, 3)}


def findings(rng: np.random.Generator, data: str, seeds: int, difference: float) -> dict[str, Any]:
    """How often the test decides which arm is higher; with difference 0 every decision is false."""
    pairs = DATA[data](rng, (TRIALS, 2, seeds))
    told = [compare_arms(a + difference, b).verdict in ("a_higher", "b_higher") for a, b in pairs]
    return {"data": data, "seeds": seeds, "difference": difference, "found": round(sum(told) / TRIALS, 4)}


def discoveries(rng: np.random.Generator) -> dict[str, Any]:
    """Share of false decisions, with and without `adjust`, in families of comparisons with few true differences."""
    false = {"plain": 0.0, "adjusted": 0.0}
    for values in normal(rng, (FAMILIES, FAMILY, 2, 6)):
        values[:PLANTED, 0] += DIFFERENCES[-1]
        plain = [compare_arms(a, b) for a, b in values]
        for key, family in (("plain", plain), ("adjusted", adjust(plain))):
            told = [item.verdict in ("a_higher", "b_higher") for item in family]
            false[key] += sum(told[PLANTED:]) / max(1, sum(told)) / FAMILIES
    return {key: round(value, 4) for key, value in false.items()}


def fronts(rng: np.random.Generator, seeds: int) -> dict[str, Any]:
    """Shares of decided and of wrong standings, by intervals and by resamples."""
    told, wrong = dict.fromkeys(("intervals", "resamples"), 0), dict.fromkeys(("intervals", "resamples"), 0)
    for _ in range(FAMILIES):
        values = {name: np.add(point, normal(rng, (seeds, 2))) for name, point in ARMS.items()}
        for point in pareto({name: [(x, y) for x, y in own] for name, own in values.items()}):
            by_share = "surely" if point.share >= 0.95 else "not" if point.share <= 0.05 else "possibly"
            for key, standing in (("intervals", point.standing), ("resamples", by_share)):
                told[key] += standing != "possibly"
                wrong[key] += point.name == "beaten" and standing == "surely"
    shares = {f"told_by_{key}": round(told[key] / FAMILIES / len(ARMS), 4) for key in told}
    return {"seeds": seeds, **shares, **{f"wrong_by_{key}": round(wrong[key] / FAMILIES, 4) for key in wrong}}


def measure() -> dict[str, Any]:
    """All simulations, from one stream of random numbers."""
    rng = np.random.default_rng(0)
    return {
        "command": COMMAND,
        "trials": TRIALS,
        "level": LEVEL,
        "coverage": [coverage(rng, data, seeds, name) for name in INTERVALS for data in DATA for seeds in SEEDS],
        "findings": [
            findings(rng, data, seeds, difference) for data in DATA for seeds in SEEDS for difference in DIFFERENCES
        ],
        "families": {
            "count": FAMILIES,
            "size": FAMILY,
            "planted": PLANTED,
            "seeds": 6,
            "false_share": discoveries(rng),
        },
        "fronts": [fronts(rng, seeds) for seeds in SEEDS],
    }


# the page

TITLES = {
    "student": "Student, mean of one arm",
    "bootstrap": "bootstrap (BCa) over seeds, for contrast",
    "welch": "Welch, difference of two arms",
}


def coverage_table(found: dict[str, Any]) -> str:
    """Intervals as rows, data and seeds as columns."""
    cells = {(row["interval"], row["data"], row["seeds"]): row["coverage"] for row in found["coverage"]}
    columns = [(data, seeds) for data in DATA for seeds in SEEDS]
    lines = [_line(["95 % interval", *(f"{data}, {seeds} seeds" for data, seeds in columns)]), _rule(len(columns))]
    for name, title in TITLES.items():
        lines.append(_line([title, *(f"{100 * cells[name, data, seeds]:.1f} %" for data, seeds in columns)]))
    return "\n".join(lines)


def findings_table(found: dict[str, Any]) -> str:
    """Seeds and data as rows, true differences as columns."""
    cells = {(row["data"], row["seeds"], row["difference"]): row["found"] for row in found["findings"]}
    lines = [_line(["seeds", *(f"{size:g} sd apart" for size in DIFFERENCES)]), _rule(len(DIFFERENCES))]
    for data in DATA:
        for seeds in SEEDS:
            title = f"{seeds} + {seeds}, {data} (p ≥ {smallest_p(seeds, seeds):.2g})"
            lines.append(_line([title, *(f"{100 * cells[data, seeds, size]:.1f} %" for size in DIFFERENCES)]))
    return "\n".join(lines)


def families_table(found: dict[str, Any]) -> str:
    """The share of false decisions."""
    shares = found["families"]["false_share"]
    lines = [_line(["reported differences", "of these false"]), _rule(1)]
    titles = {"plain": "by p", "adjusted": "by p among all comparisons"}
    return "\n".join([*lines, *(_line([titles[key], f"{100 * shares[key]:.1f} %"]) for key in titles)])


def fronts_table(found: dict[str, Any]) -> str:
    """Seeds as rows, methods as columns."""
    columns = [(word, way) for way in ("intervals", "resamples") for word in ("told", "wrong")]
    titles = {"told": "decided", "wrong": "wrong"}
    lines = [_line(["seeds", *(f"{titles[word]}, by {way}" for word, way in columns)]), _rule(len(columns))]
    for row in found["fronts"]:
        cells = [f"{100 * row[f'{word}_by_{way}']:.1f} %" for word, way in columns]
        lines.append(_line([str(row["seeds"]), *cells]))
    return "\n".join(lines)


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _rule(numbers: int) -> str:
    return "|---|" + "--:|" * numbers


TABLES = {
    "coverage": coverage_table,
    "findings": findings_table,
    "families": families_table,
    "fronts": fronts_table,
}


def renewed(page: str, found: dict[str, Any]) -> str:
    """The page with its tables from the file."""
    return TABLE.sub(lambda place: f"{place[1]}{TABLES[place[2]](found)}{place[3]}", page)


def main() -> None:
    """Simulate, or update the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="results file")
    parser.add_argument("--page", type=Path, help="page whose tables are written from the file")
    options = parser.parse_args()
    if options.page is None:
        write_json(options.out, measure())
        return
    page = options.page.read_text(encoding="utf-8")
    options.page.write_text(renewed(page, json.loads(options.out.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
