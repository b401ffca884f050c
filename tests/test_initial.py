"""Runs that start from given weights: a run's, or a file's; what does not fit is refused before a folder is made."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from attncem.base.progress import silent
from attncem.base.types import AttncemError, ConfigError, RunError
from attncem.cli.main import main
from attncem.config.loading.load import load_config
from attncem.data.specs import DATASETS
from attncem.models.split import SplitModel
from attncem.records.files import hash_file
from attncem.records.runs import RunDirectory
from attncem.training.build import build_model
from attncem.training.engine import seeded
from attncem.training.initial import start_from_given
from attncem.training.train import train
from attncem.training.trainer import Trainer

MINI = DATASETS["fashion_mnist_mini"]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory, tiny: dict[str, Any]) -> RunDirectory:
    """A finished run whose weights others start from."""
    return train("demo-none", {**tiny, "seed": 5}, out=tmp_path_factory.mktemp("given") / "run", progress=silent)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory, given: RunDirectory) -> Path:
    """The same weights in one file."""
    weights = given.load("best").weights
    path = tmp_path_factory.mktemp("file") / "weights.safetensors"
    save_file({f"{part}.{k}": v for part in ("client", "server") for k, v in weights[part].items()}, path)
    return path


def fresh(*overrides: str) -> tuple[SplitModel, Any]:
    options = load_config("demo", ["model.width=4", *overrides]).config
    with seeded(torch.device("cpu"), 0, "init"):
        return build_model(options, MINI), options.model


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.mark.parametrize("parts", ["both", "client", "server"])
@pytest.mark.parametrize("kind", ["run", "file"])
def test_the_named_halves_are_loaded(given: RunDirectory, file: Path, kind: str, parts: str) -> None:
    source = given.path if kind == "run" else file
    model, options = fresh(f"model.init_from={source}", f"model.init_parts={parts}")
    before = {"client": dict(fresh()[0].encoder.state_dict()), "server": dict(fresh()[0].server.state_dict())}
    facts = start_from_given(model, options)
    weights = given.load("best").weights
    chosen = ["client", "server"] if parts == "both" else [parts]
    for part, module in (("client", model.encoder), ("server", model.server)):
        assert equal(dict(module.state_dict()), weights[part] if part in chosen else before[part]), part
    folder = given.path / "checkpoints" / given.checkpoint_name("best")
    files = [folder / f"{part}.safetensors" for part in chosen] if kind == "run" else [file]
    hashes = {path.name: hash_file(path) for path in files}
    assert facts == {"source": str(source), "parts": chosen, "sha256": hashes}


def test_without_a_source_nothing_is_loaded() -> None:
    model, options = fresh()
    assert start_from_given(model, options) is None
    assert equal(dict(model.state_dict()), dict(fresh()[0].state_dict()))


def test_a_file_with_the_names_of_one_half_needs_that_half_named(given: RunDirectory) -> None:
    client = given.path / "checkpoints" / given.checkpoint_name("best") / "client.safetensors"
    model, options = fresh(f"model.init_from={client}", "model.init_parts=client")
    start_from_given(model, options)
    assert equal(dict(model.encoder.state_dict()), load_file(client))
    with pytest.raises(RunError, match=r"model\.init_from=.*client\.… and server\.….*model\.init_parts=client"):
        start_from_given(*fresh(f"model.init_from={client}"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("model.width=8",), ["client 1.0.weight is [4, 1, 3, 3], here [8, 1, 3, 3]", "more"]),
        (("model.cut=3",), ["client 3.0.weight is missing", "and 22 more"]),
        (("model.bottleneck=null",), ["client 3.weight is not in the network", "server"]),
    ],
)
def test_what_does_not_fit_is_named(given: RunDirectory, change: tuple[str, ...], words: list[str]) -> None:
    model, options = fresh(f"model.init_from={given.path}", *change)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(ConfigError, match=r"^model\.init_from=.* does not fit the network") as caught:
        start_from_given(model, options)
    for word in words:
        assert word in str(caught.value)
    assert equal(dict(model.state_dict()), before), "half a network was loaded"


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_weights_that_are_lost_are_refused(given: RunDirectory, tmp_path: Path, value: float) -> None:
    weights = given.load("best").weights["client"]
    name = next(name for name in weights if name.endswith("running_var"))
    weights[name].fill_(value)
    save_file(weights, tmp_path / "lost.safetensors")
    source = f"model.init_from={tmp_path / 'lost.safetensors'}"
    with pytest.raises(ConfigError, match=rf"client {name} is not finite"):
        start_from_given(*fresh(source, "model.init_parts=client"))


def test_another_number_of_classes_leaves_the_client(given: RunDirectory, tmp_path: Path) -> None:
    weights = given.load("best").weights
    last = [name for name in weights["server"] if name.endswith("weight")][-1].removesuffix("weight")
    server = {**weights["server"], f"{last}weight": torch.zeros(7, 32), f"{last}bias": torch.zeros(7)}
    halves = {"client": weights["client"], "server": server}
    source = tmp_path / "seven.safetensors"
    save_file({f"{part}.{k}": v for part, values in halves.items() for k, v in values.items()}, source)
    with pytest.raises(ConfigError) as caught:
        start_from_given(*fresh(f"model.init_from={source}"))
    for word in (f"server {last}weight is [7, 32], here [10, 32]", "number of classes", "model.init_parts=client"):
        assert word in str(caught.value)
    model, options = fresh(f"model.init_from={source}", "model.init_parts=client")
    start_from_given(model, options)
    assert equal(dict(model.encoder.state_dict()), weights["client"])


class Bomb:
    """Unpickling it writes a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.target,)


@pytest.mark.parametrize("name", ["weights.pt", "weights.pth", "weights.bin", "weights.safetensors"])
def test_pickles_are_refused_and_never_run(tmp_path: Path, tiny: dict[str, Any], name: str) -> None:
    (tmp_path / name).write_bytes(pickle.dumps(Bomb(tmp_path / "exploded")))
    with pytest.raises(AttncemError, match=r"model\.init_from=.*weights") as caught:
        train("demo", tiny, out=tmp_path / "run", init_from=tmp_path / name, progress=silent)
    if name != "weights.safetensors":
        assert "pickles, which can run programs" in str(caught.value)
        assert "safetensors.torch.save_file" in str(caught.value)
    assert not (tmp_path / "exploded").exists()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("source", "words"),
    [("nowhere", "no such run folder or file"), ("weights.safetensors", "no such"), (".", "is not a run folder")],
)
def test_a_source_that_is_none_is_named(
    tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch, source: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError, match=rf"model\.init_from={source}: .*{words}"):
        train("demo", tiny, out=tmp_path / "run", init_from=source, progress=silent)
    assert list(tmp_path.iterdir()) == []


def test_what_does_not_fit_leaves_no_folder(tmp_path: Path, tiny: dict[str, Any], given: RunDirectory) -> None:
    with pytest.raises(ConfigError, match="does not fit"):
        train("demo", {**tiny, "model.width": 8}, out=tmp_path / "run", init_from=given, progress=silent)
    assert not (tmp_path / "run").exists()


def test_a_damaged_checkpoint_is_refused(tmp_path: Path, given: RunDirectory) -> None:
    shutil.copytree(given.path, tmp_path / "copy")
    copy = RunDirectory.open(tmp_path / "copy")
    target = copy.path / "checkpoints" / copy.checkpoint_name("best") / "server.safetensors"
    target.write_bytes(target.read_bytes()[:-1] + b"\xff")
    with pytest.raises(RunError, match=r"server\.safetensors is damaged"):
        start_from_given(*fresh(f"model.init_from={copy.path}"))


# whole runs


def fingerprint(run: RunDirectory) -> dict[str, bytes]:
    last = run.path / "checkpoints" / run.checkpoint_name("last")
    weights = {path.name: path.read_bytes() for path in last.glob("*.safetensors")}
    return {"metrics": (run.path / "metrics.jsonl").read_bytes(), **weights}


def interrupt_at(step: int) -> Any:
    def report(stage: str, done: float, total: float, numbers: Any) -> None:
        if done >= step:
            raise KeyboardInterrupt

    return report


def test_a_run_continues_from_the_given_weights(tmp_path: Path, tiny: dict[str, Any], given: RunDirectory) -> None:
    settings = {**tiny, "training.epochs": 1}
    run = train("demo-none", settings, out=tmp_path / "run", init_from=given, progress=silent)
    plain = train("demo-none", settings, out=tmp_path / "plain", progress=silent)
    assert run.records()[0]["ce"] < 0.85 * plain.records()[0]["ce"]
    assert run.config.model.init_from == str(given.path)
    assert run.manifest["init_from"]["parts"] == ["client", "server"]
    assert len(run.manifest["init_from"]["sha256"]["client.safetensors"]) == 64
    assert "init_from" not in plain.manifest


@pytest.mark.parametrize("step", [5, 20])
def test_resume_does_not_begin_again(tmp_path: Path, tiny: dict[str, Any], file: Path, step: int) -> None:
    source = tmp_path / "weights.safetensors"
    source.write_bytes(file.read_bytes())
    whole = train("demo-none", tiny, out=tmp_path / "whole", init_from=source, progress=silent)
    with pytest.raises(KeyboardInterrupt):
        train("demo-none", tiny, out=tmp_path / "run", init_from=source, progress=interrupt_at(step))
    if step > 15:
        source.unlink()  # a checkpoint is there: the source is needed no more
    assert fingerprint(train(resume=tmp_path / "run", progress=silent)) == fingerprint(whole)


def test_a_changed_source_cannot_be_resumed_from(tmp_path: Path, tiny: dict[str, Any], file: Path) -> None:
    source = tmp_path / "weights.safetensors"
    source.write_bytes(file.read_bytes())
    with pytest.raises(KeyboardInterrupt):
        train("demo-none", tiny, out=tmp_path / "run", init_from=source, progress=interrupt_at(5))
    save_file({name: value + 1 for name, value in load_file(file).items()}, source)
    with pytest.raises(RunError, match=r"weights\.safetensors has changed since"):
        train(resume=tmp_path / "run", progress=silent)
    with pytest.raises(RunError, match="init_from"):
        train(resume=tmp_path / "run", init_from=file, progress=silent)


def test_the_baselines_weight_is_one_when_fine_tuning(tiny: dict[str, Any], given: RunDirectory) -> None:
    settings = {**tiny, "training.penalty_schedule.name": "cem_lr", "training.penalty_weight": 2.0}
    settings |= {"training.schedule.name": "constant", "training.warmup_epochs": 1, "training.optimizer.lr": 0.05}

    def weights(**more: str) -> list[float]:
        trainer = Trainer(load_config("demo", {**settings, **more}).config, None)
        return [trainer.objective.set_rates(now)[1] for now in (0.5, 1.5)]

    assert weights() == pytest.approx([0, 2 * 0.001 / 0.05])
    assert weights(**{"model.init_from": str(given.path)}) == pytest.approx([0, 2])


def test_the_command_line(tmp_path: Path, tiny: dict[str, Any], given: RunDirectory) -> None:
    words = [f"{key}={value}" for key, value in {**tiny, "training.epochs": 1, "model.init_parts": "client"}.items()]
    out = tmp_path / "run"
    assert main(["train", "--config", "demo-none", "--init_from", str(given.path), "--out", str(out), *words]) == 0
    assert RunDirectory.open(out).manifest["init_from"]["parts"] == ["client"]
