"""Expands a campaign into its cells: arms × points × seeds, each with the full configuration of its run."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from attncem.base.shown_paths import without_paths_in
from attncem.base.types import ConfigError
from attncem.campaigns.alone import alone_cells
from attncem.campaigns.naming import cell_id
from attncem.config.loading.load import load_config
from attncem.config.options.campaigns import ArmOptions, Campaign
from attncem.config.options.run import RunConfig
from attncem.data.outside import Outside
from attncem.records.campaign import CampaignPlan, Cell
from attncem.records.campaign_folder import CampaignFolder, PlannedCell

MOST_CELLS = 10_000
"""A campaign with more cells is refused as a mistake."""


def expand(campaign: Campaign) -> list[PlannedCell]:
    """The cells in the order of their start: the first seed of every point before the second.

    Every configuration and audit is validated: a ConfigError names the arm and the point.
    """
    points = [(name, point) for name, arm in campaign.arms.items() for point in _points(campaign, arm)]
    count = len(points) * len(campaign.seed_list)
    if count > MOST_CELLS:
        raise ConfigError(f"{count} cells: a campaign may have at most {MOST_CELLS}")
    cells = [plan_cell(campaign, *place, seed) for seed in campaign.seed_list for place in points]
    for audit in campaign.audits:
        audit.rows()
        if audit.attacker_data is not None:
            Outside(audit.attacker_data, audit.attacker_images)
    _check_partners(campaign, [planned.cell for planned in cells])
    if campaign.on_device:
        place = campaign.seed_list.index
        cells = sorted([*cells, *alone_cells(campaign, cells)], key=lambda planned: place(planned.cell.seed))
    twice = [name for name, times in Counter(planned.cell.id.lower() for planned in cells).items() if times > 1]
    if twice:
        raise ConfigError(f"two cells would have the same name, {twice[0]}: a grid lists a value twice")
    return cells


def _points(campaign: Campaign, arm: ArmOptions) -> Iterator[dict[str, Any]]:
    """Every combination of the grid's values; an arm's values of a key replace the campaign's."""
    grid = {**campaign.grid, **arm.grid}
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def plan_cell(campaign: Campaign, name: str, point: dict[str, Any], seed: int, known_as: str = "") -> PlannedCell:
    """One cell: the arm of this name at a point, with the full configuration of its run; ConfigError names both."""
    arm = campaign.arms[name]
    cell = Cell(known_as or cell_id(name, point, seed), name, seed, point)
    settings = {**campaign.set, **arm.set, **point, "seed": seed, "name": cell.id}
    try:
        config = load_config(arm.config or campaign.config, settings).config
        if config.on_device:
            raise ConfigError("on_device=true releases nothing to audit; at the top of the campaign it adds such arms")
        return PlannedCell(cell, config)
    except ConfigError as error:
        at = "".join(f", {key}={json.dumps(value)}" for key, value in point.items())
        raise ConfigError(f"arms.{name}{at}: {error}") from None


def _check_partners(campaign: Campaign, cells: list[Cell]) -> None:
    """Check that every cell that is compared with another arm's run has exactly one partner."""
    plan = CampaignPlan(campaign.name, campaign.meaning, "", cells)
    named = {f"audits.{place}.reference": audit.reference for place, audit in enumerate(campaign.audits)}
    for key, arm in {"equal_time_to": campaign.equal_time_to, **named}.items():
        lonely = (cell for cell in cells if arm is not None and cell.arm != arm and plan.partner(cell, arm) is None)
        if arm is not None and (cell := next(lonely, None)):
            raise ConfigError(f"{key}={arm}: not exactly one of its runs matches {cell.id}: their grids differ")


def needs(campaign: Campaign, plan: CampaignPlan, cell: Cell) -> list[str]:
    """The cells that must be done before this one starts: references of its audits, and the cell that sets its time.

    The client alone has no audit, and its own training time.
    """
    if cell.budget is not None:
        return []
    arms = {audit.reference for audit in campaign.audits} | {campaign.equal_time_to}
    partners = [plan.partner(cell, arm) for arm in arms if arm is not None and arm != cell.arm]
    if campaign.equal_time_to not in (None, cell.arm) and (first := plan.first_of(cell)).id != cell.id:
        partners.append(first)  # it measures for all seeds
    return [partner.id for partner in partners if partner is not None]


def digest(config: RunConfig, *, anywhere: bool = False) -> str:
    """The identity of a run's configuration, independent of its name: a hash of all options that are not defaults.

    With ``anywhere`` it is the same on every machine: of a path it covers only the last name.
    """
    plain = config.model_dump(mode="json", exclude={"name"}, exclude_defaults=True)
    plain = without_paths_in(plain) if anywhere else plain
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


# an existing campaign


def fit(folder: CampaignFolder, cells: list[PlannedCell]) -> list[PlannedCell]:
    """The cells with names under which the folder can hold them.

    A cell whose run started with another configuration keeps its name and its run; the new cell gets a hash.
    """
    fitted = list(cells)
    for place, planned in enumerate(cells):
        cell = planned.cell
        if folder.run_path(cell.id).exists() and not _is_run_of(folder.config(cell.id), planned.config):
            name = f"{cell.id}-{digest(planned.config)[:6]}"
            fitted[place] = PlannedCell(replace(cell, id=name), load_config(planned.config, {"name": name}).config)
    return fitted


def _is_run_of(there: RunConfig, planned: RunConfig) -> bool:
    """Whether a run has the planned configuration, or came with it in an archive, which reduces paths to names."""
    return there == planned or there.model_dump() == without_paths_in(planned.model_dump())
