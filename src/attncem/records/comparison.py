"""Results of comparisons: two arms, the seeds of an arm, points on a front, an error at an accuracy."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from attncem.base.record import Record
from attncem.base.texts import text

LEVEL = 0.05
"""Significance level of the tests."""
Over = Literal["seeds", "images", "images_apart"]
"""What a comparison generalises over: seeds; the images of one run each, paired; or the same images unpaired."""
VerdictCode = Literal["a_higher", "b_higher", "no_difference_shown", "too_few_seeds"]
Standing = Literal["surely", "possibly", "not"]


class SeedSummary(Record):
    """One number over seeds: mean, standard deviation, and Student's 95 % interval of the mean (None: one seed)."""

    count: int
    mean: float
    sd: float | None
    low: float | None
    high: float | None


class Comparison(Record):
    """Two arms a and b in one measure. Every answer counts, including that no difference is shown.

    ``difference`` is a − b with its 95 % interval (None: one seed on either side), ``ratio`` a / b (None: b is 0).
    ``p`` is of the exact test over seeds, ``adjusted_p`` after false discovery control over several comparisons,
    ``smallest_p`` the smallest p that this number of seeds can reach. Over images all three are None, and the interval
    decides; with one seed on a side there is no test, and ``p`` is None.
    ``exact`` says whether the test used all splits of the seeds.
    """

    a: str
    b: str
    measure: str
    over: Over
    count_a: int
    count_b: int
    mean_a: float
    mean_b: float
    difference: float
    low: float | None
    high: float | None
    verdict: VerdictCode
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    p: float | None = None
    adjusted_p: float | None = None
    smallest_p: float | None = None
    level: float = LEVEL
    exact: bool = True

    @property
    def sentence(self) -> str:
        """The answer in words, with its numbers."""
        said = text(f"comparison.verdict.{self.verdict}", measure=self.measure, a=self.a, b=self.b).removeprefix(": ")
        return text(f"comparison.{self.over}", said=said, numbers=self._numbers(), test=self._test(), **self._counts())

    def _numbers(self) -> str:
        means = text("comparison.means", mean_a=self.mean_a, mean_b=self.mean_b, difference=self.difference)
        if self.low is None or self.high is None:
            return means
        return text("comparison.interval", means=means, low=self.low, high=self.high)

    def _test(self) -> str:
        if self.verdict == "too_few_seeds":
            return text("comparison.too_few", smallest=self.smallest_p, level=self.level)
        if self.p is None:
            return ""
        if self.adjusted_p is None:
            return text("comparison.p", p=self.p)
        return text("comparison.adjusted_p", p=self.p, adjusted=self.adjusted_p)

    def _counts(self) -> dict[str, int]:
        return {"count_a": self.count_a, "count_b": self.count_b}


class FrontPoint(Record):
    """One arm among others where more is better on both axes.

    ``standing`` follows from the 95 % intervals of both axes: `surely` on the front where no other point can be better
    on both, `not` where another surely is, else `possibly`. ``share`` is the fraction of seed resamples in which it is
    on the front.
    """

    name: str
    x: SeedSummary
    y: SeedSummary
    standing: Standing
    share: float


class ErrorAt(Record):
    """The error of an arm at one accuracy, interpolated along its curve, separately for each seed.

    ``reached_low`` and ``reached_high`` bound the accuracies that the curves of all seeds reach. Outside this range
    ``values`` is empty and ``error`` is None.
    """

    at: float
    seeds: int
    reached_low: float
    reached_high: float
    values: list[float] = field(default_factory=list)
    error: SeedSummary | None = None

    @property
    def sentence(self) -> str:
        """The error with its interval, or why it is missing."""
        if self.error is None:
            return text("comparison.at.outside", at=self.at, low=self.reached_low, high=self.reached_high)
        if self.error.low is None or self.error.high is None:
            return text("comparison.at.one_seed", at=self.at, error=self.error.mean)
        low, high = self.error.low, self.error.high
        return text("comparison.at", at=self.at, error=self.error.mean, low=low, high=high, seeds=self.seeds)
