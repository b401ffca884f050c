from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from attncem.base.types import SCHEMA_VERSION, RunError
from attncem.config.loading.load import dump_config
from attncem.config.options.run import RunConfig
from attncem.records.checkpoints import Broken, broken_tensor, check_optimizers, endless_buffers, fitting
from attncem.records.files import hash_file, read_json, write_atomic, write_json
from attncem.records.runs import RunDirectory, free_path

Damage = Callable[[Path], None]


def new_run(path: Path) -> RunDirectory:
    return RunDirectory.create(path, config_yaml=dump_config(RunConfig()), manifest={"name": "run"})


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return new_run(tmp_path / "run")


def test_a_run_takes_its_folder_as_text(run: RunDirectory) -> None:
    named = RunDirectory(str(run.path))
    assert (named.path, named.audits(), named.manifest["name"]) == (run.path, [], "run")


def trained_parts(seed: int = 0) -> tuple[dict[str, dict[str, torch.Tensor]], dict[str, Any]]:
    """Weights and optimiser state after two real steps."""
    torch.manual_seed(seed)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(4, 3)).square().sum().backward()
        optimizer.step()
    return {"client": dict(model.state_dict()), "surrogate": {}}, {"model": optimizer.state_dict()}


def save_epoch(run: RunDirectory, epoch: int, *, best: int | None = None) -> str:
    weights, optimizer = trained_parts(epoch)
    name = f"epoch-{epoch if best is None else best:05d}"
    facts = {"epoch": epoch, "step": 10 * epoch, "best": {"checkpoint": name}, "offsets": run.offsets()}
    return run.save(weights, optimizer, facts)


def partials(run: RunDirectory) -> list[Path]:
    return [path for path in run.path.rglob("*") if path.name.startswith(".partial")]


def full_disk(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


# folders


def test_a_new_run_can_be_opened(run: RunDirectory) -> None:
    again = RunDirectory.open(run.path)
    text = dump_config(RunConfig()).encode()
    assert again.manifest == {
        "schema_version": SCHEMA_VERSION,
        "status": "running",
        "config_sha256": hashlib.sha256(text).hexdigest(),
        "name": "run",
    }
    assert again.config_yaml == dump_config(RunConfig())
    assert RunDirectory.open(again) is again
    assert os.fspath(again) == str(run.path)
    assert str(run.path) in repr(again)


def test_an_empty_folder_may_become_a_run(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert new_run(tmp_path / "empty").checkpoints() == []


def test_an_existing_run_is_not_overwritten(run: RunDirectory) -> None:
    before = (run.path / "manifest.json").read_bytes()
    with pytest.raises(RunError, match="already exists") as caught:
        new_run(run.path)
    assert str(run.path) in str(caught.value)
    assert (run.path / "manifest.json").read_bytes() == before


def test_a_file_is_no_place_for_a_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RunError, match="already exists"):
        new_run(tmp_path / "file")
    with pytest.raises(RunError, match="cannot write"):
        new_run(tmp_path / "file" / "below")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("missing", ["config.yaml", "manifest.json"])
def test_a_folder_that_is_no_run_is_refused(run: RunDirectory, missing: str) -> None:
    (run.path / missing).unlink()
    with pytest.raises(RunError, match=f"{missing} is missing"):
        RunDirectory.open(run.path)


def test_the_manifest_is_updated_entry_by_entry(run: RunDirectory) -> None:
    best = {"checkpoint": "epoch-00003", "epoch": 3, "validation_accuracy": 0.5}
    run.update_manifest(status="finished", best=best)
    assert run.manifest["status"] == "finished"
    assert run.manifest["name"] == "run"
    assert run.manifest["best"] == best


# writing


def test_files_are_written_whole(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_atomic(file, b"old")
    write_atomic(file, b"new and longer")
    assert file.read_bytes() == b"new and longer"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert hash_file(file) == hashlib.sha256(b"new and longer").hexdigest()


@pytest.mark.parametrize("step", ["os.fsync", "pathlib.Path.open", "pathlib.Path.replace"])
def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    file = tmp_path / "file"
    write_atomic(file, b"old")
    with monkeypatch.context() as patch:
        patch.setattr(step, full_disk)
        with pytest.raises(OSError, match="No space"):
            write_atomic(file, b"new")
    assert file.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("step", ["os.fsync", "pathlib.Path.replace", "pathlib.Path.rename", "pathlib.Path.mkdir"])
def test_a_full_disk_costs_no_saved_checkpoint(run: RunDirectory, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    save_epoch(run, 1)
    with monkeypatch.context() as patch:
        patch.setattr(step, full_disk)
        with pytest.raises(RunError, match="No space left on device") as caught:
            save_epoch(run, 2)
    assert str(run.path) in str(caught.value)
    assert "--resume" in str(caught.value)
    assert partials(run) == []
    assert run.checkpoints() == ["epoch-00001"]
    assert run.load("best").facts["epoch"] == 1


def test_a_full_disk_is_told_by_every_writer(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full_disk)
        with pytest.raises(RunError, match="No space"):
            run.update_manifest(status="finished")
        patch.setattr("os.open", full_disk)
        with pytest.raises(RunError, match="No space"):
            run.log({"kind": "train"})
    assert run.manifest["status"] == "running"
    assert list((run.path / "audits").iterdir()) == []


def test_a_run_that_could_not_be_made_can_be_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full_disk)
        with pytest.raises(RunError, match="No space left on device; no run was made"):
            new_run(tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert new_run(tmp_path / "run").manifest["status"] == "running"


def test_a_run_made_by_another_in_the_meantime_is_spared(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    lists = iter([[]])  # the folder was empty when it was first looked at

    def listed(folder: Path) -> Any:
        return iter(next(lists, None) or [Path(entry) for entry in os.scandir(folder)])

    before = sorted(run.path.iterdir())
    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.iterdir", listed)
        with pytest.raises(RunError, match="already exists"):
            new_run(run.path)
    assert RunDirectory.open(run.path).manifest["name"] == "run"
    assert sorted(run.path.iterdir()) == before


def test_json_carries_its_schema(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"name": "Größe"})
    assert read_json(tmp_path / "a.json") == {"schema_version": SCHEMA_VERSION, "name": "Größe"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"schema_version": 99}', "newer attncem"),
        ('{"schema_version": "one"}', "damaged"),
        ('{"a": ', "damaged"),
        ("[1, 2]", "not a JSON object"),
        ("", "damaged"),
        ("\udcff", "damaged"),
    ],
)
def test_json_that_cannot_be_read_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(RunError, match=message) as caught:
        read_json(file)
    assert str(file) in str(caught.value)


def test_json_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"nothing\.json is missing"):
        read_json(tmp_path / "nothing.json")
    with pytest.raises(RunError, match="cannot be read") as caught:
        read_json(tmp_path)
    assert str(tmp_path) in str(caught.value)


# metrics


def test_records_come_back_as_logged(run: RunDirectory) -> None:
    assert run.records() == []
    run.log({"kind": "train", "step": 1, "ce": 0.5})
    run.log({"kind": "train", "step": 2, "ce": 0.25})
    run.log({"seconds": 3.0}, "timing.jsonl")
    assert [record["step"] for record in run.records()] == [1, 2]
    assert run.records()[0]["schema_version"] == SCHEMA_VERSION
    assert run.records("timing.jsonl")[0]["seconds"] == 3.0


def test_a_torn_last_line_is_left_out(run: RunDirectory) -> None:
    run.log({"step": 1})
    with (run.path / "metrics.jsonl").open("a") as handle:
        handle.write('{"step": 2, "ce"')
    assert [record["step"] for record in run.records()] == [1]


def test_a_damaged_line_is_named(run: RunDirectory) -> None:
    run.log({"step": 1})
    with (run.path / "metrics.jsonl").open("a") as handle:
        handle.write('{"step": \n')
    run.log({"step": 3})
    with pytest.raises(RunError, match=r"metrics\.jsonl is damaged: line 2"):
        run.records()


def test_logs_are_cut_back_to_a_checkpoint(run: RunDirectory) -> None:
    assert run.offsets() == {"metrics.jsonl": 0, "timing.jsonl": 0}
    run.log({"step": 1})
    run.log({"seconds": 1}, "timing.jsonl")
    before = {name: (run.path / name).read_bytes() for name in run.offsets()}
    offsets = run.offsets()
    run.log({"step": 2})
    run.log({"seconds": 2}, "timing.jsonl")
    with (run.path / "metrics.jsonl").open("a") as handle:
        handle.write('{"torn')
    run.cut_back(offsets)
    assert {name: (run.path / name).read_bytes() for name in offsets} == before
    run.log({"step": 2})
    assert [record["step"] for record in run.records()] == [1, 2]


def test_cutting_back_never_makes_a_log_longer(run: RunDirectory) -> None:
    run.log({"step": 1})
    run.log({"step": 2})
    offsets = run.offsets()
    file = run.path / "metrics.jsonl"
    os.truncate(file, file.stat().st_size - 3)
    run.cut_back(offsets)
    run.log({"step": 3})
    assert [record["step"] for record in run.records()] == [1, 3]


# checkpoints


def test_a_checkpoint_comes_back_whole(run: RunDirectory) -> None:
    weights, optimizer = trained_parts()
    facts = {"epoch": 7, "step": 70, "best": {"checkpoint": "epoch-00007", "epoch": 7}, "offsets": {"m": 3}}
    assert run.save(weights, optimizer, facts) == "epoch-00007"
    loaded = run.load("best")
    assert loaded.name == "epoch-00007"
    assert facts.items() <= loaded.facts.items()
    assert loaded.weights.keys() == weights.keys()
    for key, value in weights["client"].items():
        assert torch.equal(loaded.weights["client"][key], value)
    momentum = loaded.optimizer["model"]["state"][0]["momentum_buffer"]
    assert torch.equal(momentum, optimizer["model"]["state"][0]["momentum_buffer"])
    assert loaded.optimizer["model"]["param_groups"] == optimizer["model"]["param_groups"]


def test_tied_and_strided_weights_can_be_saved(run: RunDirectory) -> None:
    shared = torch.arange(6.0).view(2, 3)
    image_layout = torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)
    weights = {"client": {"a": shared, "b": shared, "c": shared.T, "d": image_layout}}
    run.save(weights, {}, {"epoch": 1, "best": {"checkpoint": "epoch-00001"}})
    loaded = run.load("last").weights["client"]
    assert all(torch.equal(loaded[key], value) for key, value in weights["client"].items())


def test_best_and_last_and_names(run: RunDirectory) -> None:
    save_epoch(run, 1)
    save_epoch(run, 2, best=1)
    assert run.load().name == "epoch-00001"
    assert run.load("last").name == "epoch-00002"
    assert run.load("epoch-00002").facts["epoch"] == 2
    with pytest.raises(RunError, match="no checkpoint epoch-00009; it has epoch-00001, epoch-00002"):
        run.load("epoch-00009")


def test_no_checkpoint_yet(run: RunDirectory) -> None:
    with pytest.raises(RunError, match="no checkpoint yet"):
        run.load("last")
    assert run.load_newest_intact() == (None, [])


def test_pruning_keeps_the_best_and_the_last_two(run: RunDirectory) -> None:
    for epoch in range(1, 6):
        save_epoch(run, epoch, best=min(epoch, 2))
    assert run.checkpoints() == ["epoch-00002", "epoch-00004", "epoch-00005"]
    save_epoch(run, 6)
    assert run.checkpoints() == ["epoch-00005", "epoch-00006"]


def test_pruning_spares_what_was_just_saved_below_damaged_ones(run: RunDirectory) -> None:
    for epoch in (1, 8, 9):
        save_epoch(run, epoch, best=1)
    for name in ("epoch-00008", "epoch-00009"):
        (run.path / "checkpoints" / name / "client.safetensors").unlink()
    save_epoch(run, 2, best=1)
    assert "epoch-00002" in run.checkpoints()
    newest, problems = run.load_newest_intact()
    assert newest is not None
    assert newest.name == "epoch-00002"
    assert len(problems) == 2


def test_an_epoch_trained_again_replaces_its_checkpoint(run: RunDirectory) -> None:
    save_epoch(run, 1)
    weights, optimizer = trained_parts(99)
    run.save(weights, optimizer, {"epoch": 1, "step": 5, "best": {"checkpoint": "epoch-00001"}})
    assert run.checkpoints() == ["epoch-00001"]
    assert torch.equal(run.load("last").weights["client"]["weight"], weights["client"]["weight"])


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-5])


def remove(file: Path) -> None:
    file.unlink()


@pytest.mark.parametrize("damage", [flip, truncate, remove])
@pytest.mark.parametrize("name", ["client.safetensors", "surrogate.safetensors", "optimizer.pt"])
def test_a_damaged_checkpoint_is_named(run: RunDirectory, damage: Damage, name: str) -> None:
    save_epoch(run, 1)
    file = run.path / "checkpoints" / "epoch-00001" / name
    damage(file)
    with pytest.raises(RunError, match=r"damaged|missing") as caught:
        run.load("last")
    assert str(file) in str(caught.value)


@pytest.mark.parametrize("damage", [truncate, lambda file: file.write_text("{}")])
def test_a_damaged_checkpoint_list_is_named(run: RunDirectory, damage: Damage) -> None:
    save_epoch(run, 1)
    file = run.path / "checkpoints" / "epoch-00001" / "checkpoint.json"
    damage(file)
    with pytest.raises(RunError, match=r"damaged|missing") as caught:
        run.load("last")
    assert str(file) in str(caught.value)


def test_a_checkpoint_of_a_newer_version_is_refused(run: RunDirectory) -> None:
    save_epoch(run, 1)
    file = run.path / "checkpoints" / "epoch-00001" / "checkpoint.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "schema_version": SCHEMA_VERSION + 1}))
    with pytest.raises(RunError, match="newer attncem"):
        run.load("last")


def test_the_newest_intact_checkpoint_is_found_and_the_others_are_told(run: RunDirectory) -> None:
    save_epoch(run, 1)
    save_epoch(run, 2)
    save_epoch(run, 3)
    flip(run.path / "checkpoints" / "epoch-00003" / "client.safetensors")
    found, problems = run.load_newest_intact()
    assert found is not None
    assert found.name == "epoch-00002"
    assert len(problems) == 1
    assert "epoch-00003" in problems[0]


def test_nothing_intact(run: RunDirectory) -> None:
    save_epoch(run, 1)
    flip(run.path / "checkpoints" / "epoch-00001" / "optimizer.pt")
    found, problems = run.load_newest_intact()
    assert found is None
    assert len(problems) == 1


class Malicious:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.target),))


def plant(run: RunDirectory, name: str, data: bytes) -> Path:
    """Put a file into a checkpoint and make its recorded hash match."""
    folder = run.path / "checkpoints" / "epoch-00001"
    (folder / name).write_bytes(data)
    facts = json.loads((folder / "checkpoint.json").read_text())
    facts["sha256"][name] = hash_file(folder / name)
    (folder / "checkpoint.json").write_text(json.dumps(facts))
    return folder / name


def test_a_pickle_with_a_matching_hash_is_not_executed(run: RunDirectory, tmp_path: Path) -> None:
    save_epoch(run, 1)
    torch.save({"model": Malicious(tmp_path / "executed")}, tmp_path / "evil.pt")
    file = plant(run, "optimizer.pt", (tmp_path / "evil.pt").read_bytes())
    with pytest.raises(RunError, match="cannot be read") as caught:
        run.load("last")
    assert str(file) in str(caught.value)
    assert not (tmp_path / "executed").exists()
    assert run.load_newest_intact()[0] is None


@pytest.mark.parametrize("name", ["optimizer.pt", "client.safetensors"])
@pytest.mark.parametrize("data", [b"", b"garbage", b"\x80\x02}q\x00.", b"\xff" * 64])
def test_garbage_with_a_matching_hash_is_named(run: RunDirectory, name: str, data: bytes) -> None:
    save_epoch(run, 1)
    file = plant(run, name, data)
    with pytest.raises(RunError, match="cannot be read") as caught:
        run.load("last")
    assert str(file) in str(caught.value)


def test_weights_without_a_recorded_hash_are_not_loaded(run: RunDirectory) -> None:
    save_epoch(run, 1)
    folder = run.path / "checkpoints" / "epoch-00001"
    (folder / "extra.safetensors").write_bytes((folder / "client.safetensors").read_bytes())
    assert set(run.load("last").weights) == {"client", "surrogate"}


@pytest.mark.parametrize("name", ["checkpoint.json", "client.safetensors"])
def test_a_checkpoint_half_deleted_is_none_and_is_cleared(run: RunDirectory, name: str) -> None:
    save_epoch(run, 1)
    save_epoch(run, 2)
    folder = run.path / "checkpoints" / "epoch-00002"
    for file in folder.iterdir():
        if file.name != name:
            file.unlink()
    whole = name == "checkpoint.json"
    assert run.checkpoints() == ["epoch-00001", "epoch-00002"][: 1 + whole]
    (run.path / "checkpoints" / ".partial-abc").mkdir()
    (run.path / ".partial-def").touch()
    told = run.clear_leftovers()
    assert folder.exists() == whole
    assert [str(folder) in said for said in told] == [True] * (not whole)
    assert partials(run) == []


def test_a_kill_while_a_checkpoint_is_dropped_leaves_no_half_under_its_name(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for epoch in (1, 2):
        save_epoch(run, epoch)
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)
    save_epoch(run, 3)
    save_epoch(run, 3)
    assert sorted(path.name for path in (run.path / "checkpoints").glob("epoch-*")) == ["epoch-00002", "epoch-00003"]
    assert len(partials(run)) == 2


def test_checkpoints_with_their_names_swapped_are_refused(run: RunDirectory) -> None:
    for epoch in (1, 2):
        save_epoch(run, epoch)
    folder = run.path / "checkpoints"
    (folder / "epoch-00001").rename(folder / "x")
    (folder / "epoch-00002").rename(folder / "epoch-00001")
    (folder / "x").rename(folder / "epoch-00002")
    with pytest.raises(RunError, match=r"epoch-00002/checkpoint\.json is of epoch 1.*moved or renamed"):
        run.load("last")
    with pytest.raises(RunError, match="moved or renamed"):
        run.encoder_sha256()
    found, problems = run.load_newest_intact()
    assert found is None
    assert len(problems) == 2


def finish(run: RunDirectory, best: int) -> None:
    facts = {"checkpoint": f"epoch-{best:05d}", "epoch": best, "validation_accuracy": 0.5}
    run.update_manifest(status="finished", best=facts)


def test_another_best_than_the_manifests_is_refused(run: RunDirectory) -> None:
    for epoch in (1, 2):
        save_epoch(run, epoch, best=1)
    finish(run, 1)
    assert run.checkpoint_name("best") == "epoch-00001"
    write_json(run.path / "best.json", {"checkpoint": "epoch-00002"})
    with pytest.raises(RunError, match=r"best\.json names epoch-00002, but .* epoch-00001"):
        run.checkpoint_name("best")
    assert run.checkpoint_name("last") == "epoch-00002"


def test_another_best_than_the_checkpoints_is_refused(run: RunDirectory) -> None:
    for epoch in (1, 2, 3):
        save_epoch(run, epoch, best=max(2, epoch))
    write_json(run.path / "best.json", {"checkpoint": "epoch-00002"})
    assert run.checkpoint_name("best") == "epoch-00002", "a kill leaves the best as the checkpoint before knew it"
    run.save(*trained_parts(4), {"epoch": 4, "step": 40, "best": {"checkpoint": "epoch-00003"}, "offsets": {}})
    write_json(run.path / "best.json", {"checkpoint": "epoch-00004"})
    with pytest.raises(RunError, match=r"best\.json names epoch-00004"):
        run.checkpoint_name("best")


FACTS = "checkpoints/epoch-00001/checkpoint.json"


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("best.json", {}, "checkpoint is missing"),
        ("best.json", {"checkpoint": 1}, "checkpoint must be text, not 1"),
        ("manifest.json", {"status": 3}, "status must be text"),
        ("manifest.json", {"status": "running", "best": []}, "best must be a mapping"),
        ("manifest.json", {"status": "running", "split": "x"}, "split must be a mapping"),
        ("manifest.json", {"status": "running", "noise_scheme": "x"}, "noise_scheme must be a whole number"),
        ("manifest.json", {"status": "running", "config_sha256": 3}, "config_sha256 must be text"),
        ("manifest.json", {"status": "running", "training_seconds": 10**400}, "1000.* is not a JSON number"),
        (FACTS, {"epoch": "1"}, "epoch must be a whole number"),
        (FACTS, {"epoch": 2**63}, "9223372036854775808… is not a JSON number"),
        (FACTS, {"offsets": [1]}, "offsets must be a mapping"),
        (FACTS, {"offsets": {"metrics.jsonl": "1"}}, r"offsets.metrics.jsonl must be a whole number"),
        (FACTS, {"sha256": {"client.safetensors": 1}}, "sha256.client.safetensors must be text"),
        (FACTS, {"sha256": {"client.safetensors": ""}}, "sha256 does not list"),
        (FACTS, {"sha256": {"client.safetensors": "", "optimizer.pt": "", "../x": ""}}, "sha256 lists '../x'"),
        (FACTS, {"best": "epoch-00001"}, "best must be a mapping"),
    ],
)
def test_valid_json_of_the_wrong_kind_is_named(run: RunDirectory, name: str, change: dict[str, Any], said: str) -> None:
    save_epoch(run, 1)
    file = run.path / name
    file.write_text(json.dumps({**json.loads(file.read_text()), **change} if name == FACTS else change))
    with pytest.raises(RunError, match=rf"{re.escape(name)} is damaged: {said}"):
        run.load("best")


def wrong_states() -> dict[str, Callable[[dict[str, Any]], Any]]:
    """States with a fitting hash that are not the optimiser's own."""
    buffer = {"momentum_buffer": torch.zeros(3)}
    return {
        "a number": lambda state: 3,
        "no groups": lambda state: {"state": state["state"]},
        "text": lambda state: {**state, "param_groups": [{**state["param_groups"][0], "momentum": "x"}]},
        "a list as lr": lambda state: {**state, "param_groups": [{**state["param_groups"][0], "lr": [0.1]}]},
        "a lost parameter": lambda state: {**state, "param_groups": [{**state["param_groups"][0], "params": [0]}]},
        "a shape": lambda state: {**state, "state": {0: buffer}},
        "a place": lambda state: {**state, "state": {7: buffer}},
        "a count": lambda state: {**state, "state": {0: {"step": "x"}}},
        "a list": lambda state: {**state, "state": [1]},
    }


@pytest.mark.parametrize("kind", wrong_states())
def test_a_state_of_another_optimiser_is_refused(kind: str) -> None:
    model = torch.nn.Linear(3, 2)
    optimizers = {"model": torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)}
    state = trained_parts()[1]["model"]
    check_optimizers(optimizers, {"model": state})
    with pytest.raises(RunError, match="it does not fit: "), fitting("it does not fit"):
        check_optimizers(optimizers, {"model": wrong_states()[kind](state)})


def test_weights_go_only_into_their_own_module(run: RunDirectory) -> None:
    save_epoch(run, 1)
    checkpoint = run.load("last")
    checkpoint.restore("client", torch.nn.Linear(3, 2))
    for part, module, said in (
        ("client", torch.nn.Linear(3, 4), "size mismatch for weight"),
        ("server", torch.nn.Linear(3, 2), "'server' is missing"),
    ):
        with pytest.raises(RunError, match=f"epoch-00001 does not fit the run: .*{said}"):
            checkpoint.restore(part, module)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"kind": "validation", "epoch": 1}', "accuracy is missing"),
        ('{"kind": "validation", "epoch": 1, "accuracy": "high"}', "accuracy must be a number"),
        ('{"kind": ["train"]}', "kind must be text"),
        ('{"kind": "train", "step": 0.5}', "step must be a whole number"),
        ('{"kind": "warning", "epoch": 1, "text": "", "cause": "idle"}', "begins is missing"),
    ],
)
def test_a_log_line_of_the_wrong_kind_is_named(run: RunDirectory, line: str, said: str) -> None:
    (run.path / "metrics.jsonl").write_text(f'{{"kind": "train"}}\n{line}\n')
    with pytest.raises(RunError, match=rf"metrics\.jsonl: line 2 is damaged: {said}"):
        run.records()
    (run.path / "timing.jsonl").write_text("{}\n")
    with pytest.raises(RunError, match=r"timing\.jsonl: line 1 is damaged: seconds is missing"):
        run.records("timing.jsonl")


@pytest.mark.parametrize("name", ["metrics.jsonl", "timing.jsonl"])
def test_logs_are_not_written_through_links(run: RunDirectory, tmp_path: Path, name: str) -> None:
    target = tmp_path / "target"
    target.write_text("mine\n")
    (run.path / name).symlink_to(target)
    with pytest.raises(RunError, match=rf"{name} is a link"):
        run.log({"seconds": 1}, name)
    with pytest.raises(RunError, match=rf"{name} is a link"):
        run.cut_back({name: 0})
    assert target.read_text() == "mine\n"


def test_only_logs_are_cut(run: RunDirectory, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("mine\n")
    run.cut_back({"../other": 0, "config.yaml": 0})
    assert (tmp_path / "other").read_text() == "mine\n"
    assert run.config_yaml


# finite


def spoiled(name: str, value: float) -> tuple[dict[str, dict[str, torch.Tensor]], dict[str, Any]]:
    """Weights and an optimiser's state with one number that is not finite."""
    weights, optimizer = trained_parts()
    places = {
        "client.bias": weights["client"]["bias"],
        **{
            f"optimizer.model.state.{key}.momentum_buffer": state["momentum_buffer"]
            for key, state in optimizer["model"]["state"].items()
        },
    }
    places[name].view(-1)[0] = value
    return weights, optimizer


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("name", ["client.bias", "optimizer.model.state.1.momentum_buffer"])
def test_what_is_not_finite_is_found(name: str, value: float) -> None:
    assert broken_tensor(*trained_parts()) is None
    broken = broken_tensor(*spoiled(name, value))
    assert broken == Broken(name, "nan" if math.isnan(value) else "inf")
    may_be = broken_tensor(*spoiled(name, value), endless={name})
    assert (may_be is None) == math.isinf(value), "a mark may be infinite, never NaN"


def test_marks_of_a_new_module_may_be_infinite() -> None:
    module = torch.nn.BatchNorm1d(2)
    module.register_buffer("risk", torch.tensor([-math.inf, 0.0]))
    assert endless_buffers({"surrogate": module}) == {"surrogate.risk"}


def test_the_newest_intact_checkpoint_is_finite(run: RunDirectory) -> None:
    save_epoch(run, 1)
    facts = {"epoch": 2, "step": 20, "best": {"checkpoint": "epoch-00001"}, "offsets": {}}
    run.save(*spoiled("client.bias", math.inf), facts)
    found, problems = run.load_newest_intact()
    assert found is not None
    assert found.name == "epoch-00001"
    assert problems == [f"{run.path / 'checkpoints' / 'epoch-00002'} holds inf in client.bias"]
    found, problems = run.load_newest_intact(endless={"client.bias"})
    assert found is not None
    assert (found.name, problems) == ("epoch-00002", [])


# configuration and key


@pytest.mark.parametrize("bit", [0, 3])
def test_one_flipped_bit_of_the_configuration_is_found(run: RunDirectory, bit: int) -> None:
    file = run.path / "config.yaml"
    data = bytearray(file.read_bytes())
    data[data.index(b"noise_std: 0.1") + len("noise_std: 0.")] ^= 1 << bit
    file.write_bytes(bytes(data))
    with pytest.raises(RunError, match=r"config\.yaml is not the configuration that the run was made with"):
        _ = run.config_yaml


def test_a_configuration_of_an_older_version_is_read_without_its_hash(run: RunDirectory) -> None:
    manifest = run.manifest
    del manifest["config_sha256"]
    (run.path / "manifest.json").write_text(json.dumps(manifest))
    (run.path / "config.yaml").write_text("name: other\n")
    assert run.config_yaml == "name: other\n"


@pytest.mark.parametrize("umask", [0o022, 0o000])
def test_the_key_is_readable_by_its_owner_alone(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        run = RunDirectory.create(tmp_path / "run", config_yaml="", manifest={}, key=bytes(range(32)))
    finally:
        os.umask(before)
    assert (run.path / "noise.key").stat().st_mode & 0o777 == 0o600
    assert run.noise_key == bytes(range(32))
    assert new_run(tmp_path / "other").noise_key is None


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_every_file_and_folder_follows_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        config, key = dump_config(RunConfig()), bytes(range(32))
        run = RunDirectory.create(tmp_path / "below" / "run", config_yaml=config, manifest={}, key=key)
        with run.locked():
            run.log({"kind": "train"})
            save_epoch(run, 1)
    finally:
        os.umask(before)
    found = {path: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "below").rglob("*")}
    assert found.pop(run.path / "noise.key") == 0o600
    assert len(found) > 10
    for path, mode in found.items():
        assert mode == (0o777 if path.is_dir() else 0o666) & ~umask, path


# locks


def test_a_second_holder_is_refused(run: RunDirectory) -> None:
    with run.locked(), pytest.raises(RunError, match="another process"), RunDirectory.open(run.path).locked():
        pass
    with run.locked():
        held = True
    assert held


def test_another_process_is_refused_until_the_lock_is_free(run: RunDirectory) -> None:
    script = (
        "import sys\nfrom attncem.records.runs import RunDirectory\nfrom attncem.base.types import RunError\n"
        "try:\n    with RunDirectory.open(sys.argv[1]).locked(): print('held')\n"
        "except RunError as error: print(error)\n"
    )

    def other() -> str:
        command = [sys.executable, "-c", script, str(run.path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    with run.locked():
        assert other() == f"{run.path} is being trained by another process"
    assert other() == "held"


def test_the_lock_is_freed_by_an_error(run: RunDirectory) -> None:
    with pytest.raises(KeyError), run.locked():
        raise KeyError("mine")
    with run.locked():
        assert (run.path / ".lock").exists()


def test_a_folder_that_cannot_be_locked_is_named(run: RunDirectory) -> None:
    (run.path / ".lock").mkdir()
    with pytest.raises(RunError, match="cannot write") as caught, run.locked():
        pass
    assert str(run.path) in str(caught.value)


def test_the_next_free_folder(tmp_path: Path) -> None:
    assert free_path(tmp_path, "demo") == tmp_path / "demo-001"
    (tmp_path / "demo-001").mkdir()
    (tmp_path / "demo-002").write_text("")
    assert free_path(tmp_path, "demo") == tmp_path / "demo-003"
