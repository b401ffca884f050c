"""A search: for each method a space of options, a budget, and the audit of its trials."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from attncem.base.types import ConfigError
from attncem.config.loading.flat import plain
from attncem.config.loading.load import load, packaged_folder, packaged_names
from attncem.config.options.base import Options
from attncem.config.options.campaigns import Campaign, CampaignAudit, Settings, located, split_overrides
from attncem.config.options.suites import load_suite

UNDEFENDED = "undefended"
"""The reference arm of every accuracy."""
Rule = Literal["error", "nats"]
"""What a selection wants: the largest error of the strongest attack, or the smallest limit on the leak."""
_LEVEL = re.compile(r"[A-Za-z0-9_-]{1,40}")
_BUDGET = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*(m|min|h)|(\d{1,9})")


class Range(Options):
    """Numbers from low to high."""

    low: float
    """Smallest value."""
    high: float
    """Largest value."""
    log: bool = False
    """Logarithmic scale: for weights and rates."""
    integer: bool = False
    """Whole numbers only."""

    @model_validator(mode="after")
    def _check_ends(self) -> Range:
        if self.low >= self.high:
            raise ValueError(f"low={self.low:g} must be below high={self.high:g}")
        if self.log and self.low <= 0:
            raise ValueError(f"low={self.low:g} must be above 0 with log: true")
        if self.integer and not (self.low.is_integer() and self.high.is_integer()):
            raise ValueError(f"low={self.low:g} and high={self.high:g} must be whole numbers with integer: true")
        return self

    @property
    def ends(self) -> list[Any]:
        """Both ends."""
        return [int(self.low), int(self.high)] if self.integer else [self.low, self.high]


Space = dict[str, Range | Annotated[list[Any], Field(min_length=1)]]
"""Searched options of the run by dotted key: a range, or a list of choices."""


class MethodOptions(Options):
    """One tuned method: a configuration, its overrides, and its space."""

    config: str | None = None
    """Packaged configuration or YAML file, relative to the search's file; null: the search's."""
    set: Settings = Field({})
    """Options of the run, by dotted key."""
    space: Space = Field({})
    """Space of this method, in addition to the common space."""


class SearchAudit(CampaignAudit):
    """The audit of trials: always on validation images, because test images must not affect a choice."""

    on: Literal["validation"] = "validation"
    """Evaluation images of trials: always validation."""


def _has_limit(audit: SearchAudit) -> bool:
    """Whether a row of the audit gives a limit on the leak in nats."""
    rows = load_suite(audit.suite, audit.set).suite.rows
    return any("leakage" in getattr(rows[name], "bounds", ()) for name in audit.rows())


class Search(Options):
    """Maximises accuracy and the error of attacks for each method, on validation images."""

    model_config = ConfigDict(title="search")
    packaged = "searches"

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)
    """Name of the search, used for its folder."""
    meaning: str = ""
    """Purpose of the search, in one line."""
    config: str = "demo-none"
    """Packaged configuration or YAML file; default of every method."""
    set: Settings = Field({})
    """Options of every run, by dotted key."""
    space: Space = Field({})
    """Common space of all methods."""
    methods: dict[str, MethodOptions] = Field(min_length=1)
    """Tuned methods by name."""
    undefended: MethodOptions = MethodOptions()
    """The reference model for accuracies, trained once before the first trial; it has no space."""
    audit: SearchAudit = SearchAudit()
    """The audit of every trial."""
    budget: str = "12"
    """Budget of the whole search: trials, e.g. 24, or minutes, e.g. 30m."""
    equal_budget: bool = True
    """Whether every method gets the same share of the budget; otherwise the search spends it where it gains most."""
    levels: dict[str, float] = Field({"light": 0.005, "balanced": 0.015, "strong": 0.03}, min_length=1)
    """Largest loss of accuracy, compared with the undefended model, of each level."""
    choose: Rule = "error"
    """Rule among settings that are accurate enough: the largest error of the strongest attack, or the least nats."""
    seed: int = Field(0, ge=0)
    """Seed of every run and of the suggestions."""

    @field_validator("budget", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @field_validator("levels")
    @classmethod
    def _levels_name_files(cls, levels: dict[str, float]) -> dict[str, float]:
        for name, drop in levels.items():
            if not _LEVEL.fullmatch(name):
                raise ValueError(f"{name!r} is not a valid name: use 1 to 40 letters, digits, _ and -")
            if not 0 <= drop <= 1:
                raise ValueError(f"{name}={drop:g}: must lie between 0 and 1, a part of all images")
        return levels

    @model_validator(mode="after")
    def _check(self) -> Search:
        if UNDEFENDED in self.methods:
            raise ValueError(f"methods.{UNDEFENDED}: this name is taken, give its options under {UNDEFENDED}")
        if self.undefended.space:
            raise ValueError("undefended.space: it is trained once and has nothing to search")
        for name in self.methods:
            if not self.space_of(name):
                raise ValueError(
                    f"methods.{name}: neither it nor the search has a space, so there is nothing to search"
                )
        parse_budget(self.budget)
        if self.choose == "nats" and not _has_limit(self.audit):
            raise ValueError("choose=nats: no row of the audit limits the leak; its suite needs a row of leakage")
        return self

    def space_of(self, method: str) -> Space:
        """The space of a method; its ranges override the common ones."""
        return {**self.space, **self.methods[method].space}

    def campaign(self) -> Campaign:
        """The campaign whose cells the trials are."""
        arms = {UNDEFENDED: self.undefended, **self.methods}
        asked: dict[str, Any] = {
            **{key: getattr(self, key) for key in ("name", "meaning", "config", "set")},
            "arms": {name: {"config": arm.config, "set": arm.set} for name, arm in arms.items()},
            "seeds": [self.seed],
            "audits": [plain(self.audit)],
            "portraits": False,
        }
        return load(Campaign, asked).config


def packaged_searches() -> dict[str, str]:
    """Names of the packaged searches, each with its first comment line."""
    return packaged_names(packaged_folder(Search))


@dataclass(frozen=True)
class Budget:
    """Budget of a search: trials or minutes."""

    trials: int | None = None
    minutes: float | None = None

    def __str__(self) -> str:
        return f"{self.trials} trials" if self.minutes is None else f"{self.minutes:g} minutes"


def parse_budget(text: str) -> Budget:
    """`20` is 20 trials, `30m` half an hour, `2h` two; ConfigError for anything else."""
    found = _BUDGET.fullmatch(text.strip())
    value = float(found[1] or found[3]) if found else 0.0
    if found is None or value <= 0:
        raise ConfigError(f"budget={text!r}: expected a number of trials, e.g. 20, or a time, e.g. 30m or 2h")
    return Budget(trials=int(found[3])) if found[3] else Budget(minutes=value * (60 if found[2] == "h" else 1))


def load_search(source: str | Path | Mapping[str, Any] | Search, overrides: Sequence[str] = ()) -> Search:
    """A packaged name, YAML file, mapping or search, with ``KEY=VALUE`` laid over it; files are found beside it.

    Keys are those of a search (``seed=3``), or else of a run (``training.epochs=2``), set for every method.
    """
    own, settings = split_overrides(overrides, Search)
    search = load(Search, source, own).config
    for name in search.methods:
        if searched := next((key for key in settings if key in search.space_of(name)), None):
            raise ConfigError(f"{searched}: it is searched for {name}; change its space in the file")
    arms = located(search.campaign(), source, settings)
    methods = {name: {**plain(own), **_given(arms, name)} for name, own in search.methods.items()}
    undefended = {**plain(search.undefended), **_given(arms, UNDEFENDED)}
    changes = {"config": arms.config, "methods": methods, "undefended": undefended, "audit": plain(arms.audits[0])}
    return load(Search, {**plain(search), **changes}).config


def _given(campaign: Campaign, arm: str) -> dict[str, Any]:
    return {"config": campaign.arms[arm].config, "set": plain(campaign.arms[arm].set)}


def choice_text(value: Any) -> str:
    """A choice as the study keeps it: whatever it is, a text that is read back by `choice_value`."""
    return json.dumps(plain(value), sort_keys=True, ensure_ascii=False)


def choice_value(text: str) -> Any:
    """The choice behind its text."""
    return json.loads(text)
