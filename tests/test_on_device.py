"""The on-device reference: trained for itself, chosen on validation images, refused by what judges releases."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import attncem.training.on_device as on_device
from attncem.base.progress import silent
from attncem.base.types import ConfigError, DatasetSpec, RunError
from attncem.config.loading.load import dump_config, load_config
from attncem.config.options.model import ModelOptions
from attncem.config.options.run import RunConfig
from attncem.data.specs import DATASETS
from attncem.judging.auditing import audit
from attncem.judging.opening import open_run
from attncem.models.architecture import Architecture
from attncem.models.cost import count_cost
from attncem.models.networks import ARCHITECTURES
from attncem.records.listing import list_runs
from attncem.records.on_device import Candidate, Reference, References, best_of, read_choice, write_choice
from attncem.records.runs import RunDirectory
from attncem.records.study.runs import load_runs
from attncem.training.build import build_model
from attncem.training.train import train

MINI = DATASETS["fashion_mnist_mini"]


TINY: dict[str, Any] = {
    **{"model.width": 4, "device": "cpu", "data.images_per_class": 12},
    **{"training.batch_size": 32, "training.epochs": 1, "training.log_every": 5},
}
"""Overrides for runs of five steps."""
OTHER_RECIPES = {"training.epochs": 2, "data.rotation_degrees": 5.0, "training.label_smoothing": 0.1}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """The chosen run of the demo's client."""
    return train("demo", TINY, out=tmp_path_factory.mktemp("alone"), on_device=True, progress=silent)


def test_the_client_alone_is_trained_without_defence_and_measured_once(made: RunDirectory) -> None:
    config, facts, choice = made.config, made.manifest, read_choice(made)
    assert config.on_device and facts["on_device"] and facts["cut"] == "on device"
    assert (config.surrogate.name, config.penalties, config.training.penalty_weight) == ("none", [], 0.0)
    assert [stage.name for stage in config.channel] == ["identity"] and config.model.front_end.name == "none"
    assert (facts["server_macs"], facts["server_parameters"], facts["bytes_per_query"]) == (0, 0, 0)
    assert choice is not None and choice.chosen == made.path.name and choice.num_images == facts["split"]["test"]
    assert facts["client_macs"] <= choice.budget
    again = train("demo", TINY, out=made.path.parent, on_device=True, progress=silent)
    assert again.path == made.path and read_choice(again) == choice, "a finished candidate is not trained again"
    assert {run.name for run in made.path.parent.iterdir()} == {it.run for it in choice.candidates}


def test_the_accuracy_is_that_of_trunk_and_head_on_all_test_images(made: RunDirectory) -> None:
    config, choice = made.config, read_choice(made)
    assert choice is not None
    model, checkpoint = build_model(config, MINI), made.load("best", optimizer=False)
    checkpoint.restore("client", model.encoder)
    checkpoint.restore("server", model.server)
    from attncem.training.build import read_data

    test = read_data(config, torch.device("cpu")).test
    images, labels = test.get(slice(0, len(test)))
    with torch.no_grad():
        right = (model.eval()(images).argmax(1) == labels).double().mean()
    assert choice.accuracy.mean == pytest.approx(float(right))


def test_a_page_of_a_folder_shows_only_the_chosen_candidate(made: RunDirectory) -> None:
    assert len(list_runs(made.path.parent)) == 3
    assert [cell.path for cell in load_runs([made.path.parent])] == [made.path.resolve()]


@pytest.mark.parametrize(
    ("name", "cut"), [("small_cnn", 2), ("vgg11_bn", 4), ("thin_vgg11_bn", 4), ("resnet20", 3), ("vit_tiny", 2)]
)
def test_all_of_the_network_is_the_clients_cost(name: str, cut: int) -> None:
    options: dict[str, Any] = {"model.name": name, "model.cut": cut, "model.width": 64 if name == "vit_tiny" else 8}
    options["model.bottleneck"] = {"channels": 8, "stride": 1}
    config = load_config("demo-none", options).config
    split = count_cost(build_model(config, MINI), MINI.shape)
    model = build_model(on_device.alone(config, "trunk"), MINI)
    cost = count_cost(model, MINI.shape)
    assert cost.server_macs == cost.server_parameters == cost.bytes_per_query == 0
    assert cost.client_parameters == sum(it.numel() for it in model.parameters())
    head = next(layer for layer in model.modules() if isinstance(layer, nn.Linear) and layer.out_features == 10)
    without = load_config(config, {"model.bottleneck": None, "model.sigmoid": False}).config
    trunk = count_cost(build_model(without, MINI), MINI.shape).client_macs
    assert cost.client_macs == trunk + head.in_features * 10, "the trunk up to the cut, and a pooled linear head"
    assert split.client_macs is not None and cost.client_macs <= split.client_macs
    assert model(torch.rand(2, *MINI.shape)).shape == (2, 10)


def test_candidates_are_the_trunk_and_lean_networks_within_the_budget() -> None:
    config = load_config("demo-none", {"model.name": "vgg11_bn", "model.cut": 4, "model.width": 16}).config
    budget = on_device.budget_of(config)
    made = on_device.candidates(budget)
    assert list(made) == ["trunk", "lean-7", "lean-4"]
    for name, alone in made.items():
        macs = count_cost(build_model(alone, MINI), MINI.shape).client_macs
        assert macs is not None and macs <= budget.macs and alone.on_device
        assert name == "trunk" or macs >= 0.97 * budget.macs
        assert alone.name == f"demo-none-on-device-{name}" and alone.training.epochs == config.training.epochs


def test_a_trunk_that_costs_more_with_its_head_is_no_candidate() -> None:
    config = load_config("demo-none", {"model.bottleneck": None}).config
    made = on_device.candidates(on_device.budget_of(config))
    assert made and all(name.startswith("lean") for name in made)
    small = on_device.Budget(config, 1000, Path("runs"))
    with pytest.raises(ConfigError, match="no network of at most 1,000 multiply-accumulates"):
        on_device.candidates(small)


class _ChannelsLast(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.permute(0, 2, 3, 1)


class _ChannelsFirst(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.permute(0, 3, 1, 2)


def _odd(spec: DatasetSpec, options: ModelOptions) -> Architecture:
    """A split network whose first stage has no head: it gives [H, W, C]."""
    first = nn.Sequential(nn.Conv2d(spec.shape[0], 48, 3, stride=2, padding=1), nn.ReLU(), _ChannelsLast())
    second = nn.Sequential(_ChannelsFirst(), nn.Conv2d(48, 16, 3, padding=1), nn.ReLU())
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, spec.num_classes))
    return Architecture((("first", first, 48), ("second", second, 16)), head)


def test_a_trunk_that_is_no_network_of_its_own_leaves_the_lean_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ARCHITECTURES, "odd", _odd)
    config = load_config("demo-none", {"model.name": "odd", "model.cut": 1, "model.bottleneck": None}).config
    with pytest.raises(RuntimeError):
        on_device.client_macs(on_device.alone(config, "trunk"))
    assert list(on_device.candidates(on_device.budget_of(config))) == ["lean-7", "lean-4"]


def test_a_lean_client_is_compared_at_its_own_side_and_others() -> None:
    config = load_config(
        "demo-none",
        {"model.name": "lean", "model.macs": 4e5, "model.side": 2, "model.bottleneck": {"channels": 8, "stride": 1}},
    ).config
    made = on_device.candidates(on_device.budget_of(config))
    assert list(made) == ["lean-2", "lean-7", "lean-4"]
    assert [alone.model.side for alone in made.values()] == [2, 7, 4]


def test_what_judges_or_opens_a_release_refuses(made: RunDirectory) -> None:
    for use in (open_run, audit):
        with pytest.raises(RunError, match="nothing is released"):
            use(made.path)
    with pytest.raises(ConfigError, match=r"surrogate=\{name: none\}, channel=\{name: identity\}"):
        load_config("demo", {"on_device": True})
    with pytest.raises(ConfigError, match="runs on the client alone already"):
        train(made.path, on_device=True)
    with pytest.raises(ConfigError, match="no resume, init_from or modules"):
        train("demo", on_device=True, resume=made.path)


def test_the_choice_is_by_validation_then_cost() -> None:
    one, two, three = Candidate("a", 5, 0.7), Candidate("b", 4, 0.8), Candidate("c", 3, 0.8)
    assert best_of([one, two, three]) is three
    assert best_of([one]) is one


def test_another_configuration_of_the_same_name_is_left_alone(made: RunDirectory, tmp_path: Path) -> None:
    shutil.copytree(made.path, tmp_path / made.path.name)
    before = (tmp_path / made.path.name / "manifest.json").read_bytes()
    other = on_device.alone(made.config, "trunk").model_copy(update={"name": made.config.name, "seed": 1})
    calls: list[Any] = []
    with pytest.raises(StopIteration):
        on_device._trained(other, tmp_path, lambda *given: next(iter(calls.append(given) or [])))
    assert [path.name for _, path, _ in calls] == [f"{made.path.name}-2"]
    assert (tmp_path / made.path.name / "manifest.json").read_bytes() == before


def test_test_images_are_measured_only_when_wanted_and_once(
    made: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = [RunDirectory.open(shutil.copytree(made.path, tmp_path / name)) for name in ("a", "b")]
    copies[1].update_manifest(best={**copies[1].manifest["best"], "validation_accuracy": 0.0})
    earlier = read_choice(made)
    assert earlier is not None
    (copies[0].path / "on_device.json").unlink()
    asked: list[str] = []
    real = on_device.measured_accuracy
    monkeypatch.setattr(on_device, "measured_accuracy", lambda run, images: asked.append(images) or real(run, images))
    assert on_device.choose(copies, earlier.budget, on_test=False) is copies[0]
    assert asked == ["validation"] and not (copies[1].path / "on_device.json").exists(), "an earlier choice is dropped"
    first = read_choice(copies[0])
    assert first is not None and list(first.scores) == ["validation"] and first.accuracy is None
    assert [one.run for one in first.candidates] == ["a", "b"]
    for _ in range(2):
        on_device.choose(copies, earlier.budget)
    assert asked == ["validation", "test"]
    both, choice = read_choice(copies[0]), read_choice(made)
    assert both is not None and choice is not None and both.scores == choice.scores


def test_a_choice_that_cannot_be_written_names_the_run_and_the_way_on(
    made: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    choice = read_choice(made)
    assert choice is not None

    def refused(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("attncem.records.on_device.write_record", refused)
    with pytest.raises(RunError, match=rf"{made.path.name}: Permission denied; .*run the same command again"):
        write_choice(made, choice)


def test_a_network_that_is_best_of_two_budgets_keeps_both(made: RunDirectory, tmp_path: Path) -> None:
    """Runs of one name whose bottlenecks differ share the trunk."""
    shared, small, large = (RunDirectory.open(shutil.copytree(made.path, tmp_path / name)) for name in "abc")
    for run, validation in ((shared, 0.8), (small, 0.1), (large, 0.9)):
        run.update_manifest(best={**run.manifest["best"], "validation_accuracy": validation})
        (run.path / "on_device.json").unlink()
    assert on_device.choose([shared, small], 100) is shared
    assert on_device.choose([shared, large], 200) is large
    choice = read_choice(shared)
    assert choice is not None and choice.budget == 100, "still the best of the smaller budget"
    large.update_manifest(best={**large.manifest["best"], "validation_accuracy": 0.2})
    for budget, other in ((200, large), (100, small)):
        assert on_device.choose([shared, other], budget) is shared
        both = read_choice(shared)
        assert both is not None and (both.budget, {it.run for it in both.candidates}) == (200, {"a", "b", "c"})


def test_overrides_of_a_run_describe_another_client(made: RunDirectory, tmp_path: Path) -> None:
    config = load_config("demo-none", {**TINY, "model.bottleneck": {"channels": 4, "stride": 1}}).config
    copy = RunDirectory.open(shutil.copytree(made.path, tmp_path / "split"))
    _configure(copy, config)
    copy.update_manifest(on_device=False, client_macs=77)
    assert on_device.budget_of(copy.path).macs == on_device.budget_of(copy.path, ["training.epochs=3"]).macs == 77
    wide = on_device.budget_of(copy.path, ["model.width=8"])
    assert wide.macs == on_device.client_macs(wide.config) > 77
    with pytest.raises(RunError, match="split"):
        on_device.budget_of(tmp_path)


def test_a_lean_client_may_spend_what_its_front_end_costs() -> None:
    lean = {"model.name": "lean", "model.macs": 4e5, "model.front_end.name": "high_pass"}
    config = load_config("demo-none", lean).config
    assert on_device.allowed_macs(config) == max(400_000, on_device.client_macs(config))


def _configure(run: RunDirectory, config: RunConfig) -> None:
    """Change the configuration of a copy, as if it was made with it."""
    written = dump_config(config).encode()
    (run.path / "config.yaml").write_bytes(written)
    run.update_manifest(config_sha256=hashlib.sha256(written).hexdigest())


# the reference of a defended run


def reference_of(manifest: Mapping[str, Any], seed: int, places: Sequence[Path]) -> Reference | None:
    return References(places).of(manifest, seed)


def _defended(made: RunDirectory, **changes: Any) -> dict[str, Any]:
    """The manifest of a run on the same data whose client costs as much as the budget."""
    choice = read_choice(made)
    assert choice is not None
    facts = made.manifest
    return {"split": facts["split"], "data": facts["data"], "client_macs": choice.budget, **changes}


def test_the_reference_is_found_beside_the_run_and_in_given_folders(made: RunDirectory, tmp_path: Path) -> None:
    choice = read_choice(made)
    assert choice is not None
    for place in (made.path.parent, made.path):
        reference = reference_of(_defended(made), 0, [place])
        assert reference is not None and reference.scores == choice.scores
        assert (reference.name, reference.macs) == (made.path.name, made.manifest["client_macs"])
    assert reference_of(_defended(made), 0, [tmp_path, tmp_path / "none"]) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"client_macs": 1},
        {"client_macs": None},
        {"client_macs": 10**9},
        {"split": {"sha256": "0" * 64}},
        {"split": None},
        {"data": {"name": "other"}},
    ],
    ids=[
        "more multiply-accumulates",
        "unknown cost",
        "a much larger client",
        "another split",
        "no split",
        "other data",
    ],
)
def test_what_does_not_fit_is_no_reference(made: RunDirectory, changes: dict[str, Any]) -> None:
    assert reference_of(_defended(made, **changes), 0, [made.path]) is None


def test_a_reference_with_the_recipe_of_the_run_goes_first_and_another_is_named(
    made: RunDirectory, tmp_path: Path
) -> None:
    longer, turned, smoothed = (load_config(made.config, {key: value}).config for key, value in OTHER_RECIPES.items())
    for config, same in ((made.config, True), (longer, False), (turned, False), (smoothed, False)):
        reference = References([made.path]).of(_defended(made), 0, config)
        assert reference is not None and reference.same_recipe is same
    copy = RunDirectory.open(shutil.copytree(made.path, tmp_path / "longer"))
    _configure(copy, longer)
    choice = read_choice(copy)
    assert choice is not None
    better = replace(choice, validation=replace(choice.validation, mean=1.0))
    write_choice(copy, better)
    for config, name in ((made.config, made.path.name), (longer, "longer")):
        reference = References([made.path, copy.path]).of(_defended(made), 0, config)
        assert reference is not None and (reference.name, reference.same_recipe) == (name, True)


def test_an_unfinished_or_changed_run_is_no_reference(made: RunDirectory, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(made.path, tmp_path / "copy"))
    run = RunDirectory.open(copy)
    assert reference_of(_defended(made), 0, [tmp_path]) is not None
    run.update_manifest(status="running")
    assert reference_of(_defended(made), 0, [tmp_path]) is None
    run.update_manifest(status="finished")
    (copy / "on_device.json").write_text("{", encoding="utf-8")
    assert reference_of(_defended(made), 0, [tmp_path]) is None
    (copy / "on_device.json").unlink()
    assert reference_of(_defended(made), 0, [tmp_path]) is None
