"""Every packaged campaign loads and can be planned without data on disk, and says how it is run."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

import attncem
from attncem.build import check
from attncem.campaign_folder import PlannedCell
from attncem.campaigning.expansion import expand
from attncem.config.campaigns import load_campaign, packaged_campaigns

FOLDER = Path(attncem.__file__).parent / "campaigns"
FILES = sorted(FOLDER.glob("*.yaml"))


@cache
def cells_of(name: str) -> list[PlannedCell]:
    return expand(load_campaign(name))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_campaign_can_be_planned(file: Path) -> None:
    campaign = load_campaign(file.stem)
    assert campaign.name == file.stem and campaign.meaning
    cells = cells_of(file.stem)
    first = [planned for planned in cells if planned.cell.seed == campaign.seed_list[0]]
    assert len(cells) == len(first) * len(campaign.seed_list)
    for planned in first:
        check(planned.config)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_campaign_says_what_to_type_what_it_answers_and_what_it_costs(file: Path) -> None:
    first, second, third, *_ = file.read_text(encoding="utf-8").splitlines()
    assert first == f"# attncem campaign run {file.stem}"
    assert second.startswith("# ") and packaged_campaigns()[file.stem] == second.removeprefix("# ")
    assert third.startswith("# ")
    told = re.search(r"\b(\d+) (?:small )?runs", third)
    if told is not None:
        assert int(told[1]) == len(cells_of(file.stem))


def test_the_documents_and_the_baseline_have_their_campaigns() -> None:
    """What the documents ask to be compared (their comparison, also at equal time, their sweep, their gates)."""
    methods = {"kmeans", "gmm", "gated-000", "gated-002", "gated-004", "slot-001", "slot-003", "hybrid-000"}
    assert methods < load_campaign("documents").arms.keys()
    assert load_campaign("documents-equal-time").equal_time_to == "kmeans"
    sweep = load_campaign("documents-sweep").grid
    assert list(sweep) == ["training.penalty_weight", "surrogate.attention_loss_scale", "surrogate.snr_thresh"]
    assert load_campaign("documents-gates").arms["slot-001"].grid.keys() >= {"surrogate.early_shut_off"}
    grid = load_campaign("baseline-grid").grid
    assert grid == {"channel.noise_std": [0.01, 0.025, 0.05, 0.1, 0.15], "training.penalty_weight": [0, 8, 16]}


def test_on_cifar_10_the_documents_methods_keep_their_own_options() -> None:
    configs = {planned.cell.arm: planned.config for planned in cells_of("documents-cifar10")}
    assert {config.data.name for config in configs.values()} == {"cifar10"}
    assert {config.training.epochs for config in configs.values()} == {240}
    assert {config.training.penalty_weight for arm, config in configs.items() if arm != "none"} == {16}
    assert {config.noise_std for config in configs.values()} == {0.025}
    small = {planned.cell.arm: planned.config for planned in cells_of("documents")}
    assert all(configs[arm].surrogate == config.surrogate for arm, config in small.items())
