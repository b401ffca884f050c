"""Campaigns: many runs as one declaration. Arms × the points of a grid × seeds are its cells, each with its audits."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from attncem.base.shown_paths import shown_path
from attncem.base.types import ConfigError
from attncem.config.loading.flat import dotted, plain
from attncem.config.loading.load import is_path, load, packaged_folder, packaged_names
from attncem.config.loading.suggest import known
from attncem.config.loading.yaml_text import parse_yaml
from attncem.config.options.base import Options
from attncem.config.options.suites import load_suite, select_rows
from attncem.config.threats import FEWEST_IMAGES, MOST_QUERIES, THREATS, extended

_OWN = ("name", "seed")
"""Keys of a run that the campaign sets for each cell."""
START = "start-cifar10"
"""The packaged campaign for a first comparison; `campaign list` begins with it."""
_ARM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")


def _flattened(settings: Any) -> Any:
    return dict(dotted(settings)) if isinstance(settings, Mapping) else settings


def _without_own(keys: dict[str, Any]) -> dict[str, Any]:
    if own := next((key for key in keys if key in _OWN), None):
        instead = "give seeds instead" if own == "seed" else "arms have names"
        raise ValueError(f"{own} cannot be set here, every cell has its own: {instead}")
    return keys


Settings = Annotated[dict[str, Any], BeforeValidator(_flattened), AfterValidator(_without_own)]
"""Options of a run by dotted key; nested ones are taken apart."""
Grid = Annotated[dict[str, Annotated[list[Any], Field(min_length=1)]], AfterValidator(_without_own)]
"""Values to try by dotted key."""


class ArmOptions(Options):
    """One of the compared settings: a configuration and its overrides."""

    config: str | None = None
    """Packaged configuration or YAML file, relative to the campaign's file; null: the campaign's."""
    set: Settings = Field({})
    """Options of its runs by dotted key, over the campaign's."""
    grid: Grid = Field({})
    """Lists of values by dotted key, in addition to the campaign's; the same key replaces them."""


def _is_unset(value: Any) -> bool:
    """Whether an option has the default of `_LATER`; 0 queries are a choice."""
    return value is None or value is False


_LATER = ("attacker_data", "attacker_images", "queries", "sees_answers")
"""Options of an audit that are left out of files where they are not set."""


class CampaignAudit(Options):
    """An audit of every run of a campaign."""

    suite: str | dict[str, Any] = "quick"
    """Packaged suite, YAML file relative to the campaign's file, or the suite itself."""
    set: dict[str, Any] = Field({})
    """Options of the suite's rows, e.g. `decoder.epochs: 5`."""
    threat: str = "train"
    """What the adversary knows, owns and sees."""
    releases: int | None = Field(None, ge=1)
    """Number of releases of each image; null: as in the threat model."""
    attacker_data: str | None = None
    """A folder, relative to the campaign's file, or a data set: pictures from elsewhere that the adversary owns."""
    attacker_images: int | None = Field(None, ge=FEWEST_IMAGES)
    """Number of images that the adversary owns; null: all."""
    queries: int | None = Field(None, ge=0, le=MOST_QUERIES)
    """Number of queries that the client answers; null: any number."""
    sees_answers: bool = False
    """Whether the adversary sees what a client with a head answers itself."""
    on: Literal["test", "validation"] = "test"
    """Evaluation images."""
    weights: str = "best"
    """Checkpoint: best, last or its name."""
    only: list[str] = Field([])
    """Only these rows or methods."""
    skip: list[str] = Field([])
    """Omit these rows or methods."""
    reference: str | None = None
    """An arm whose run of the same seed is the undefended reference of probes."""

    @model_serializer(mode="wrap")
    def _without_new_defaults(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """The audit as data; one of the campaign's own images and any query is the same as before these options."""
        data: dict[str, Any] = write(self)
        return {key: value for key, value in data.items() if key not in _LATER or not _is_unset(value)}

    @property
    def key(self) -> str:
        """A name of the audit by which a finished one is found again, also in an archive, which holds no path."""
        asked = self.model_dump(mode="json", exclude_defaults=True)  # an option that is new one day changes no key
        if self.attacker_data is not None:
            asked["attacker_data"] = re.split(r"[\\/]", shown_path(self.attacker_data).rstrip("\\/"))[-1]
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:12]

    def rows(self) -> list[str]:
        """The rows that are wanted; ConfigError names a suite, option, row or threat model that there is none of."""
        named = THREATS[known("threat", self.threat, THREATS)]
        numbers = {"releases": self.releases, "images": self.attacker_images, "queries": self.queries}
        extended(named, **numbers, sees_answers=self.sees_answers)
        return select_rows(load_suite(self.suite, self.set).suite, self.only, self.skip)


class Campaign(Options):
    """Arms × the points of their grids × seeds, each trained and audited."""

    model_config = ConfigDict(title="campaign")
    packaged = "campaigns"

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)
    """Name of the campaign, used for its folder and in its report."""
    meaning: str = ""
    """Purpose of the campaign, in one line."""
    config: str = "demo-none"
    """Packaged configuration or YAML file; default of every arm."""
    set: Settings = Field({})
    """Options of every run by dotted key, e.g. `training.epochs: 20`."""
    arms: dict[str, ArmOptions] = Field(min_length=1)
    """Compared settings by name, each with its `config`, `set` and `grid`, or `{}`."""
    grid: Grid = Field({})
    """Lists of values by dotted key; every arm runs at every combination."""
    seeds: Annotated[int, Field(ge=1, le=1000)] | Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)] = 1
    """Number of seeds (from 0), or a list of them."""
    audits: list[CampaignAudit] = Field([CampaignAudit()])
    """Audits of every run; an empty list: only training."""
    on_device: bool = False
    """Whether to add, for every cost of the arms' clients, what the client could do alone: trained, not audited."""
    equal_time_to: str | None = None
    """An arm whose training time all others get: their epochs are scaled once, by measured seconds per epoch."""
    portraits: bool = True
    """Whether to store the data of the report's explain pages, for the first seed of every arm and point."""

    @field_validator("arms")
    @classmethod
    def _arms_name_folders(cls, arms: dict[str, ArmOptions]) -> dict[str, ArmOptions]:
        if odd := next((name for name in arms if not _ARM.fullmatch(name)), None):
            raise ValueError(f"{odd!r} cannot be an arm's name: at most 40 letters, digits and . _ -")
        return arms

    @field_validator("seeds")
    @classmethod
    def _seeds_differ(cls, seeds: int | list[int]) -> int | list[int]:
        if isinstance(seeds, list) and len(set(seeds)) < len(seeds):
            raise ValueError("a seed is listed twice")
        return seeds

    @model_validator(mode="after")
    def _check_names(self) -> Campaign:
        named = {"equal_time_to": self.equal_time_to}
        named |= {f"audits.{place}.reference": audit.reference for place, audit in enumerate(self.audits)}
        for key, arm in named.items():
            if arm is not None and arm not in self.arms:
                raise ValueError(f"{key}={arm}: no arm of this name; arms: {', '.join(self.arms)}")
        keys = [audit.key for audit in self.audits]
        if len(set(keys)) < len(keys):
            with_folder = any(audit.attacker_data for audit in self.audits)
            hint = "; folders of attacker_data need different names" if with_folder else ""
            raise ValueError(f"audits: the same audit is listed twice{hint}")
        return self

    @model_serializer(mode="wrap")
    def _without_new_defaults(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """The campaign as data; one without `on_device` is the same file as before the option was there."""
        data: dict[str, Any] = write(self)
        return data if self.on_device else {key: value for key, value in data.items() if key != "on_device"}

    @property
    def seed_list(self) -> list[int]:
        """The seeds, in order."""
        return list(range(self.seeds)) if isinstance(self.seeds, int) else list(self.seeds)


def packaged_campaigns() -> dict[str, str]:
    """Names of the packaged campaigns, each with its first comment line; the one to start with comes first."""
    names = packaged_names(packaged_folder(Campaign))
    return {name: names[name] for name in sorted(names, key=lambda name: (name != START, name))}


def load_campaign(source: str | Path | Mapping[str, Any] | Campaign, overrides: Sequence[str] = ()) -> Campaign:
    """A packaged name, YAML file, mapping or campaign, with ``KEY=VALUE`` laid over it.

    Keys are those of a campaign (``seeds=3``), or else of a run (``training.epochs=2``), which are then set for every
    arm and win over its own. Files are found relative to the campaign's file; a suite that is a file is taken in.
    """
    own, settings = split_overrides(overrides, Campaign)
    return located(load(Campaign, source, own).config, source, settings)


def located(campaign: Campaign, source: object, settings: Mapping[str, Any] | None = None) -> Campaign:
    """The campaign with its files found beside the one it is from, if it is from one, and settings for every arm."""
    beside = Path(source).expanduser().parent if isinstance(source, str | Path) and is_path(source) else Path()
    arms = {n: _with(arm, settings or {}, config=_beside(arm.config, beside)) for n, arm in campaign.arms.items()}
    audits = [_taken_in(audit, beside) for audit in campaign.audits]
    changes = {"config": _beside(campaign.config, beside), "arms": arms, "audits": audits}
    return load(Campaign, {**plain(campaign), **plain(changes)}).config


def split_overrides(overrides: Sequence[str], root: type[Options]) -> tuple[list[str], dict[str, Any]]:
    """Overrides of the campaign's keys, and those of the runs."""
    own = [text for text in overrides if text.partition("=")[0].partition(".")[0].strip() in root.model_fields]
    own = [text for text in own if not text.startswith("set.")]
    others = [text.removeprefix("set.") for text in overrides if text not in own]
    if bare := next((text for text in others if "=" not in text), None):
        raise ConfigError(f"{bare}: not an override; expected key=value, e.g. seeds=3 or training.epochs=3")
    pairs = (text.partition("=") for text in others)
    return own, {key.strip(): parse_yaml(value, f"the value of {key}") for key, _, value in pairs}


def _with(arm: ArmOptions, settings: Mapping[str, Any], **changes: Any) -> ArmOptions:
    return arm.model_copy(update={"set": dict(dotted({**arm.set, **settings})), **changes})


def _beside(config: str | None, folder: Path) -> str | None:
    """The absolute path of a file that stands beside the campaign's; packaged names stay."""
    return config if config is None or not is_path(config) else str((folder / Path(config).expanduser()).resolve())


def _taken_in(audit: CampaignAudit, beside: Path) -> CampaignAudit:
    """The audit with its suite as data where that was a file: the campaign needs the file no more."""
    suite = audit.suite
    if isinstance(suite, str) and is_path(suite):
        suite = plain(load_suite(_beside(suite, beside) or suite).suite)
    pictures = audit.attacker_data
    if pictures is not None and (beside / Path(pictures).expanduser()).is_dir():
        pictures = str((beside / Path(pictures).expanduser()).resolve())
    made = audit.model_copy(update={"suite": suite, "attacker_data": pictures})
    made.rows()
    return made
