"""The client alone in a campaign: candidates for every cost of the arms' clients, and the choice among them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from attncem.campaigns.naming import cell_id
from attncem.config.loading.load import load_config
from attncem.config.options.campaigns import Campaign
from attncem.config.options.run import RunConfig
from attncem.records.campaign import Cell
from attncem.records.campaign_folder import CampaignFolder, PlannedCell

NETWORK = "network"
"""Key of a candidate's point."""


@dataclass
class _Budget:
    """One cost of a client on one set of data, with its candidates by their names."""

    macs: int
    label: str = ""
    networks: dict[str, RunConfig] = field(default_factory=dict)


def alone_cells(campaign: Campaign, cells: Sequence[PlannedCell]) -> list[PlannedCell]:
    """A cell for every candidate of every budget and seed; arms whose clients cost the same share them.

    Every candidate has the recipe of the first arm with its cost and trunk.
    """
    first = campaign.seed_list[0]
    budgets = _labelled(_budgets(planned.config for planned in cells if planned.cell.seed == first))
    return [
        _planned(budget, name, config, seed)
        for seed in campaign.seed_list
        for budget in budgets
        for name, config in budget.networks.items()
    ]


def _budgets(configs: Iterable[RunConfig]) -> list[_Budget]:
    """The budgets of these runs in their order, each with its distinct candidates."""
    from attncem.training.on_device import TRUNK, Budget, allowed_macs, candidates

    budgets: dict[tuple[int, str], _Budget] = {}
    seen: set[tuple[str, str]] = set()
    for config in configs:
        data, model = config.data.model_dump_json(), config.model.model_dump_json()
        if (data, model) in seen:  # its candidates are there; the recipe is that of the first arm
            continue
        seen.add((data, model))
        macs = allowed_macs(config)
        budget = budgets.setdefault((macs, data), _Budget(macs))
        for name, made in candidates(Budget(config, macs)).items():
            alike = [it.model for short, it in budget.networks.items() if short.startswith(TRUNK)]
            if name == TRUNK and made.model not in alike:
                budget.networks[f"{TRUNK}-{len(alike) + 1}" if alike else TRUNK] = made
            elif name != TRUNK:
                budget.networks.setdefault(name, made)
    return list(budgets.values())


def _labelled(budgets: Sequence[_Budget]) -> list[_Budget]:
    """The budgets with names such as 4 M; equal names get numbers."""
    from attncem.reporting import wording

    names: dict[str, int] = {}
    labelled = []
    for budget in budgets:
        shown = wording.count(budget.macs)
        names[shown] = names.get(shown, 0) + 1
        labelled.append(replace(budget, label=shown if names[shown] == 1 else f"{shown} ({names[shown]})"))
    return labelled


def _planned(budget: _Budget, name: str, config: RunConfig, seed: int) -> PlannedCell:
    words = budget.label.replace(" ", "").replace("(", "-").replace(")", "")
    known_as = cell_id(f"client-alone-{words}", {NETWORK: name}, seed)
    cell = Cell(known_as, f"client alone, {budget.label}", seed, {NETWORK: name}, budget=budget.macs)
    return PlannedCell(cell, load_config(config, {"name": known_as, "seed": seed}).config)


def choose_alone(folder: CampaignFolder, cell: Cell) -> None:
    """Choose among the candidates once all are trained; test images only where the campaign's audits use them."""
    from attncem.training.on_device import choose

    runs = folder.candidates(cell)
    if all((run.path / "manifest.json").exists() and run.is_finished for run in runs):
        audits = folder.campaign.audits
        choose(runs, cell.budget or 0, on_test=not audits or any(audit.on == "test" for audit in audits))
