"""plan_campaign(): the work of a campaign, and its current state. Writes nothing."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from attncem.base.texts import text
from attncem.base.types import ConfigError, RunError
from attncem.campaigns.costs import Cost, Forecast, checkpoint_bytes
from attncem.campaigns.expansion import expand, fit
from attncem.config.options.campaigns import Campaign, load_campaign
from attncem.records.campaign_folder import PLANNED, CampaignFolder, CellView, PlannedCell, is_free

Source = str | Path | Mapping[str, Any] | Campaign
"""A campaign's folder, a packaged name, a YAML file, a mapping or a campaign."""


@dataclass(frozen=True)
class Asked:
    """The arguments of a call: a folder, and the campaign for it; None: the folder's current campaign."""

    path: Path
    campaign: Campaign | None
    cells: list[PlannedCell]
    existing: CampaignFolder | None

    @property
    def about(self) -> Campaign:
        """The requested campaign, or the folder's."""
        about = self.campaign or (self.existing.campaign if self.existing is not None else None)
        assert about is not None
        return about

    @property
    def names(self) -> list[str]:
        """Names of all cells; those in the folder where no campaign is given."""
        if self.campaign is None and self.existing is not None:
            return [cell.id for cell in self.existing.plan.cells]
        return [planned.cell.id for planned in self.cells]


@dataclass(frozen=True)
class Outlook:
    """The work that a campaign would do.

    ``cells`` are the current states; ``begun`` says whether the folder already holds a campaign. ``left_alone`` are
    cells in the folder that the campaign no longer asks for, ``anew`` cells that get another name because an older run
    with other settings has theirs. ``to_come`` is the remaining cost, predicted from ``basis`` finished cells; None: no
    cell is finished. ``checkpoints`` is then the total size of all runs' checkpoints in bytes, where that is known.
    """

    name: str
    meaning: str
    folder: Path
    begun: bool
    cells: list[CellView]
    added: list[str]
    left_alone: list[str]
    anew: list[str]
    to_come: Cost | None
    basis: int
    free_bytes: int
    checkpoints: int | None = None

    @property
    def states(self) -> Counter[str]:
        """Number of cells in each state."""
        return Counter(view.state for view in self.cells)

    @property
    def changes(self) -> list[str]:
        """Differences from the campaign in the folder, as sentences."""
        named = {"added": self.added, "left_alone": self.left_alone, "anew": self.anew}
        return [
            text(f"campaign.changed.{key}", count=len(names), names=", ".join(names))
            for key, names in named.items()
            if names
        ]


def plan_campaign(source: Source, overrides: Sequence[str] = (), *, out: str | Path | None = None) -> Outlook:
    """The work that `run_campaign` would do with the same arguments. Every setting is checked, nothing is written."""
    asked = find(source, overrides, out)
    outlook = look(asked)
    if outlook.to_come is not None:
        return outlook
    there = asked.existing
    configs = [planned.config for planned in asked.cells]
    if asked.campaign is None and there is not None:
        configs = [there.config(cell.id) for cell in there.plan.cells]
    return replace(outlook, checkpoints=checkpoint_bytes(configs))


def find(source: Source, overrides: Sequence[str], out: str | Path | None) -> Asked:
    """The requested folder and cells; ConfigError or RunError where they are invalid."""
    if isinstance(source, str | Path) and (Path(source) / PLANNED).is_file():
        if overrides or out is not None:
            raise ConfigError(f"{source} is a campaign's folder: change its YAML and plan it with --out {source}")
        return Asked(Path(source), None, [], CampaignFolder.open(source))
    if isinstance(source, Path) and source.is_dir():
        raise RunError(f"{source} is not a campaign's folder: {PLANNED} is missing")
    campaign = load_campaign(source, overrides)
    path = Path(out) if out is not None else Path("campaigns") / campaign.name
    existing = CampaignFolder.open(path) if (path / PLANNED).is_file() else None
    if existing is None and not is_free(path):
        raise RunError(f"{path} already exists and was not changed; choose another --out")
    cells = expand(campaign)
    return Asked(path, campaign, cells if existing is None else fit(existing, cells), existing)


def look(asked: Asked) -> Outlook:
    """The current state and the remaining work."""
    folder, campaign = asked.existing, asked.campaign
    views = _views(asked)
    if folder is not None and campaign is None:
        added, left = [], folder.left()
    else:
        names = {planned.cell.id for planned in asked.cells}
        before = {cell.id for cell in folder.plan.cells} if folder is not None else set()
        added = [view.cell.id for view in views if view.cell.id not in before]
        left = [] if folder is None else sorted((before | set(folder.left())) - names)
    forecast = Forecast.of(views, [] if folder is None else folder.events())
    return Outlook(
        name=asked.about.name,
        meaning=asked.about.meaning,
        folder=asked.path,
        begun=folder is not None,
        cells=views,
        added=added,
        left_alone=left,
        anew=[name for name in added if any(name.startswith(f"{old}-") for old in left)],
        to_come=forecast.left(views),
        basis=forecast.basis,
        free_bytes=shutil.disk_usage(standing(asked.path)).free,
    )


def _views(asked: Asked) -> list[CellView]:
    """The states of the cells if the folder had this campaign."""
    if asked.existing is None:
        return [CellView(planned.cell, "planned", "", asked.path / "runs" / planned.cell.id) for planned in asked.cells]
    if asked.campaign is None:
        return asked.existing.views()
    there = asked.existing
    plan = CampaignFolder(there.path, there.plan, asked.campaign)
    return [plan.view(planned.cell) for planned in asked.cells]


def standing(path: Path) -> Path:
    """The nearest existing folder above."""
    whole = path.absolute()
    return next(folder for folder in (whole, *whole.parents) if folder.is_dir())
