"""Every packaged campaign loads and can be planned without images on disk, and says how it is run."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import attncem
from attncem.campaigns.expansion import expand
from attncem.config.loading.load import load_config
from attncem.config.options.campaigns import START, load_campaign, packaged_campaigns
from attncem.records.campaign_folder import PlannedCell
from attncem.training.build import check

FOLDER = Path(attncem.__file__).parent / "config/packaged/campaigns"
FILES = sorted(FOLDER.glob("*.yaml"))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sets whose classes are read from disk, in their layouts and numbers of classes, of empty files."""
    root = tmp_path_factory.mktemp("data")
    ids = [f"n{number:08}" for number in range(200)]
    for part, name in product(("train", "val"), range(158)):
        _touch(root / "lfw_people" / part / f"person_{name}" / "1.jpg")
    tiny = root / "tiny-imagenet-200"
    for name in ids:
        _touch(tiny / "train" / name / "images" / f"{name}_0.JPEG")
    _touch(tiny / "val" / "images" / "val_0.JPEG")
    (tiny / "val" / "val_annotations.txt").write_text(f"val_0.JPEG\t{ids[0]}\t0\t0\t63\t63\n", encoding="utf-8")
    (tiny / "wnids.txt").write_text("\n".join(ids) + "\n", encoding="utf-8")
    return root


def _touch(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()


@cache
def cells_of(name: str) -> list[PlannedCell]:
    return expand(load_campaign(name))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_campaign_can_be_planned(file: Path, folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNCEM_DATA", str(folders))
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


def test_the_list_begins_with_the_campaign_to_start_with() -> None:
    """A small comparison for a first hour: a part of CIFAR-10 on two cores, with and without attention."""
    name, meaning = next(iter(packaged_campaigns().items()))
    assert (name, meaning.partition(":")[0]) == (START, "Start here")
    assert sum("tart here" in line for line in packaged_campaigns().values()) == 1
    campaign, configs = load_campaign(START), {planned.cell.arm: planned.config for planned in cells_of(START)}
    assert list(configs) == ["none", "kmeans", "gated", "slot"] and campaign.seeds == 3
    assert [audit.suite for audit in campaign.audits] == ["quick"]
    assert {(config.data.name, config.data.images_per_class) for config in configs.values()} == {("cifar10", 500)}
    assert len({config.model_dump_json(include={"data", "model", "channel"}) for config in configs.values()}) == 1


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


def test_in_40_epochs_nothing_but_the_length_differs() -> None:
    """Beside our own attention, which is there to show whether the collapse is that of attention."""
    long, short = (
        {planned.cell.arm: planned.config for planned in cells_of(name) if planned.cell.seed == 0}
        for name in ("documents-cifar10", "documents-cifar10-40")
    )
    for arm, config in long.items():
        assert load_config(config, {"training.epochs": 40, "name": short[arm].name}).config == short[arm]
    assert short.keys() - long.keys() == {"gated", "slot"}
    assert {short[arm].noise_std for arm in ("gated", "slot")} == {0.025}


def test_the_servers_worth_has_the_options_of_selective_clients() -> None:
    there, here = (
        {planned.cell.arm: planned.config for planned in cells_of(name) if planned.cell.seed == 0}
        for name in ("selective-cifar10", "server-worth-cifar10")
    )
    for arm in ("full", "uniform", "doubt"):
        model = there[f"{arm}-1M"].model.model_copy(update={"macs": 21233664})
        one, other = here[f"{arm}-21M"], there[f"{arm}-1M"]
        assert one.model == model and one.surrogate == other.surrogate and one.channel == other.channel
        assert one.release.when == other.release.when
    assert {here[f"16-bits-{budget}"].model.macs for budget in ("1M", "4M", "21M")} == {1e6, 4e6, 21233664}


def test_the_claims_arms_are_the_same_on_all_data() -> None:
    """Other data shall tell whether the claim carries over: of the arms only λ of b and c is chosen anew there."""
    arms = load_campaign("claim-cifar10").arms
    assert list(arms) == ["a-kmeans", "b-front-end-kmeans", "c-front-end-attention"]
    for name in ("claim-tiny-imagenet", "claim-lfw"):
        there = load_campaign(name).arms
        weights = {arm: {"training.penalty_weight": own.set["training.penalty_weight"]} for arm, own in there.items()}
        assert weights.pop("a-kmeans") == {"training.penalty_weight": 2}
        again = {arm: own.model_copy(update={"set": own.set | weights.get(arm, {})}) for arm, own in arms.items()}
        assert there == again
        first, tried = (cells_of(one)[0].config for one in (name, name.replace("claim-", "claim-selection-")))
        assert first == tried, "arm a"
    configs = {planned.cell.arm: planned.config for planned in cells_of("claim-cifar10")}
    a, b, c = (configs[arm] for arm in arms)
    assert a.surrogate == b.surrogate == load_config("kmeans-cem").config.surrogate, "the baseline's formula"
    assert (a.training.penalty_weight, a.model.front_end.name) == (2, "none")
    assert b.model == c.model and b.model.front_end.name != "none"
    assert {config.noise_std for config in (a, b, c)} == {0.1}


def test_arm_d_differs_from_arm_c_in_the_client_and_the_weight_alone() -> None:
    (d,) = (planned.config for planned in cells_of("claim-thin-cifar10") if planned.cell.seed == 0)
    c = next(one.config for one in cells_of("claim-cifar10") if one.cell.id.startswith("c-") and one.cell.seed == 0)
    changes = {"model.name": "thin_vgg11_bn", "training.penalty_weight": d.training.penalty_weight, "name": d.name}
    assert load_config(c, changes).config == d


def test_the_front_has_every_surrogate_with_and_without_a_front_end() -> None:
    arms = load_campaign("front-cifar10").arms
    plain = [name for name in arms if not name.startswith("front-end-")]
    assert {"none", "kmeans", "gmm", "capacity", "gated", "gated-002", "slot", "slot-001", "hybrid"} == set(plain)
    for name in plain:
        behind = arms[f"front-end-{name}"]
        assert behind.grid == arms[name].grid
        assert {key: value for key, value in behind.set.items() if not key.startswith("model.")} == arms[name].set
    assert len(arms) == 2 * len(plain)
    front_end = {key: value for key, value in _settings("claim-cifar10", "b-front-end-kmeans") if "front_end" in key}
    assert front_end and all(front_end.items() <= arms[f"front-end-{name}"].set.items() for name in plain), (
        "that of the claim"
    )


def _settings(campaign: str, arm: str) -> Iterable[tuple[str, Any]]:
    return load_campaign(campaign).arms[arm].set.items()
