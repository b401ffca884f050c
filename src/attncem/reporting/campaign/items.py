"""Columns and entries that the tables of a campaign are made of: numbers as words, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attncem.base.texts import text
from attncem.base.texts.titles import row_title
from attncem.records.comparison import SeedSummary
from attncem.records.metrics import METRICS
from attncem.records.study import ACCURACY, Spread
from attncem.reporting import wording
from attncem.reporting.campaign.load import JudgedArm
from attncem.reporting.table_formats import Column, Item

SPREAD = ("sd", "low", "high", "image_low", "image_high", "count")
"""Further numbers of a measure in a CSV file: over seeds, the interval over images, and how many seeds."""
COLUMNS = (
    "arm", "seeds", "accuracy", "attack", "cell", "seed", "state", "training", "reason", "audit", "reliable",
    "attack_seconds", "reference", "measure", "difference", "p", "adjusted_p", "verdict", "epochs", "memory",
    "client_parameters", "client_macs", "server_parameters", "server_macs", "bytes_per_query", "ratio", "key", "value",
    "class", "class_mse", "class_p05", "standing", "share",
)  # fmt: skip
"""Columns whose titles stand in the catalogue, under `arms.column.NAME`."""


def column(key: str, *, words: bool = False, more: Sequence[str] = ()) -> Column:
    """A column with its title of the catalogue."""
    if key in METRICS:
        note = text(f"report.private.{METRICS[key].private}")
        return Column(key, text(f"measure.{key}"), note, words, more)
    return Column(key, text(f"arms.column.{key}"), "", words, more)


# items


def word(value: Any, **other: Any) -> Item:
    """A word as it is."""
    return Item(value, str(value) if value not in (None, "") else wording.MISSING, **other)


def row_item(name: str, **other: Any) -> Item:
    """A row of an audit: by its name for programs, by its title for people."""
    return Item(name, row_title(name) or wording.MISSING, **other)


def number(value: float | None, digits: int = 4, **other: Any) -> Item:
    """A number with so many decimals."""
    return Item(value, wording.decimal(value, digits), **other)


def arm_item(arm: JudgedArm) -> Item:
    """An arm's name in its colour; a click leads to its first cell."""
    return Item(arm.label, arm.label, color=arm.color, cell=arm.cells[0].id)


def digits(measure: str) -> int:
    """Decimals that a measure is shown with; an accuracy is shown in percent."""
    return 1 if measure == ACCURACY else METRICS[measure].decimals


def said(measure: str, value: float | None, *, sd: bool = False) -> str:
    """A value of a measure, or a spread of it."""
    scale, places = (100.0, 1 + sd) if measure == ACCURACY else (1.0, digits(measure))
    return wording.decimal(None if value is None else scale * value, places)


def mean_sd(measure: str, summary: SeedSummary) -> str:
    """A mean, ± its standard deviation where there are two seeds."""
    mean = said(measure, summary.mean)
    return mean if summary.sd is None else f"{mean} ± {said(measure, summary.sd)}"


def interval(measure: str, low: float | None, high: float | None) -> str:
    """Both ends; nothing where there are none."""
    return "" if low is None or high is None else f"[{said(measure, low)}, {said(measure, high)}]"


def spread_item(measure: str, found: Spread | None) -> Item:
    """A measure over seeds with its interval; of one seed that over images."""
    if found is None:
        return Item(None, wording.MISSING)
    own = found.seeds
    more = {"image_low": found.image_low, "image_high": found.image_high} | summary_more(own)
    ends = (own.low, own.high) if own.low is not None else (found.image_low, found.image_high)
    return Item(own.mean, mean_sd(measure, own), interval(measure, *ends), more)


def summary_more(own: SeedSummary) -> dict[str, Any]:
    """The further numbers of a summary."""
    return {"sd": own.sd, "low": own.low, "high": own.high, "count": own.count}
