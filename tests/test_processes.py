"""Several processes and one give the same statistics, gradients and runs; and they end together."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import attncem.training.processes
from attncem.base.progress import silent
from attncem.base.types import ConfigError, TrainingError
from attncem.config.loading.load import load_config
from attncem.config.options.run import RunConfig
from attncem.config.options.training import SGDOptions
from attncem.records.runs import RunDirectory, UnwrittenRun
from attncem.training.engine import Engine, sgd
from attncem.training.processes import World, joined, launched_processes
from attncem.training.surrogates import SURROGATES
from attncem.training.train import _for_launch, _help_to_train, _new_run, _train_locked, train
from attncem.training.trainer import Trainer
from contracts.test_surrogates import FEW, batch, label, make

CPU = torch.device("cpu")
STEPS = 15
"""Steps of an epoch under the tiny settings."""


class Encoder(nn.Module):
    """No batch norm, so that a part of a batch is encoded as in the whole; fails in one process if told to."""

    def __init__(self, *, fails_at: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.layers = nn.Sequential(nn.Flatten(), nn.Linear(784, 12), nn.Sigmoid())
        self.fails_at, self.calls = fails_at, 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += self.training
        if self.training and self.calls == self.fails_at and multiprocessing.parent_process() is not None:
            raise ZeroDivisionError("told to fail")
        z: Tensor = self.layers(x)
        return z


def modules(**options: int) -> tuple[nn.Module, nn.Module]:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return Encoder(**options), nn.Linear(12, 10)


# one pair of processes for all that is compared


def one_step(world: World, name: str, options: dict[str, Any]) -> dict[str, Tensor]:
    """Loss and mean gradients of one step on this process's part of a batch, in float64: no rounding hides a factor."""
    surrogate = make(name, options, dtype=torch.float64).train()
    surrogate.generator = torch.Generator().manual_seed(3)
    encoder = nn.Conv2d(4, 4, 1).double()
    features, labels = batch(dtype=torch.float64)
    part = world.part(len(labels))
    z, y = encoder(features[part]), labels[part]
    output = surrogate(*world.gather(z, y))
    local = nn.functional.cross_entropy(z.flatten(1), y)
    (local + output.loss + (0 if output.fit_loss is None else output.fit_loss)).backward()
    trained = {"encoder": encoder, "surrogate": surrogate}
    world.average_gradients([sgd(m.parameters(), SGDOptions(), CPU) for m in trained.values() if [*m.parameters()]])
    gradients = {
        f"{part}.{key}": p.grad
        for part, module in trained.items()
        for key, p in module.named_parameters()
        if p.grad is not None
    }
    return {"loss": output.loss.detach(), **gradients}


def aligned_weights(world: World) -> Tensor:
    """Weights and buffers of every process, after they began apart and were aligned."""
    module = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)).to(memory_format=torch.channels_last)
    with torch.no_grad():
        for tensor in module.state_dict().values():
            tensor.add_(10 * world.rank)
    world.align(module)
    flat = torch.cat([tensor.reshape(-1).double() for tensor in module.state_dict().values()])
    return world.gather(flat.unsqueeze(0), torch.zeros(1))[0].detach()


def everything(world: World) -> dict[str, Any]:
    """What every process of the pair does; the first keeps the results."""
    return {
        "steps": {label((name, options)): one_step(world, name, options) for name, options in FEW},
        "aligned": aligned_weights(world),
        "average": world.average({"a": float(world.rank), "b": 5.0}, CPU),
        "first": world.from_first({"rank": world.rank}),
        "bf16": world.gather(torch.ones(2, 3, dtype=torch.bfloat16), torch.zeros(2))[0].dtype,
    }


def help_with_everything(world: World, config: RunConfig) -> None:
    everything(world)
    _help_to_train(world, config, modules())


def settings_of(tiny: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A run that depends on the number of processes only by rounding: no batch norm, no noise, every surrogate draw."""
    return {
        **tiny,
        "device": "cpu",
        "channel": [{"name": "identity"}],
        "data.horizontal_flip": True,
        "data.crop_padding": 2,
        "surrogate.name": "kmeans",
        "surrogate.log_entropy": False,
        "training.penalty_weight": 2.0,
        **more,
    }


def test_two_processes_equal_one(tmp_path: Path, tiny: dict[str, Any]) -> None:
    """Loss and gradients of every surrogate, what is exchanged, and a whole run: one start for all."""
    config = load_config("demo-none", settings_of(tiny, processes=2)).config
    with joined(2, CPU, help_with_everything, (config,)) as world:
        found = everything(world)
        trainer = Trainer(config, modules(), world)
        run = _new_run(trainer, tmp_path / "run", modules(), None)
        with run.locked():
            _train_locked(trainer, run, silent)
    assert multiprocessing.active_children() == []
    assert not torch.distributed.is_initialized()
    for name, options in FEW:
        assert_same_step(found["steps"][label((name, options))], name, options)
    assert torch.equal(found["aligned"][0], found["aligned"][1])
    assert found["average"] == {"a": 0.5, "b": 5.0}
    assert found["first"] == {"rank": 0}
    assert found["bf16"] == torch.bfloat16
    alone = train("demo-none", settings_of(tiny), out=tmp_path / "alone", modules=modules(), progress=silent)
    assert_same_run(run, alone)
    assert (run.manifest["processes"], alone.manifest["processes"]) == (2, 1)


def test_every_surrogate_is_compared() -> None:
    assert {name for name, _ in FEW} == set(SURROGATES)


def assert_same_step(theirs: dict[str, Tensor], name: str, options: dict[str, Any]) -> None:
    mine = one_step(World(), name, options)
    assert (name == "none") == (float(mine["loss"]) == 0)
    assert list(mine) == list(theirs)
    for key, value in mine.items():
        torch.testing.assert_close(
            theirs[key], value, rtol=1e-8, atol=1e-12, msg=lambda text, key=key: f"{name} {options} {key}: {text}"
        )


def assert_same_run(run: RunDirectory, other: RunDirectory, tolerance: float = 1e-4) -> None:
    """Finished, with the same files, measurements and weights up to rounding."""
    assert run.manifest["status"] == other.manifest["status"] == "finished"
    names = [sorted(str(p.relative_to(r.path)) for p in r.path.rglob("*")) for r in (run, other)]
    kept = [[name for name in own if not name.startswith("onnx")] for own in names]  # train() makes it, not the trainer
    assert kept[0] == kept[1]
    for mine, theirs in zip(run.records(), other.records(), strict=True):
        assert mine.pop("kind") == theirs.pop("kind")
        assert mine == pytest.approx(theirs, rel=tolerance, abs=tolerance)
    pairs = [(run.load("last").weights[part], other.load("last").weights[part]) for part in ("client", "surrogate")]
    for mine, theirs in pairs:
        for key, value in theirs.items():
            torch.testing.assert_close(mine[key], value, rtol=tolerance, atol=tolerance)


# one process, and what is refused


def test_one_process_changes_nothing() -> None:
    world, z, y = World(), torch.ones(4, 2, requires_grad=True), torch.zeros(4)
    gathered = world.gather(z, y)
    assert gathered[0] is z and gathered[1] is y
    assert world.first and world.part(4) == slice(0, 4)
    assert world.from_first(z) is z
    assert world.average({"a": 1.0}, CPU) == {"a": 1.0}
    assert Engine(CPU).world.size == 1


def test_parts_of_a_batch_are_the_batch() -> None:
    whole = torch.arange(12)
    parts = [whole[World(rank, 3).part(12)] for rank in range(3)]
    assert torch.equal(torch.cat(parts), whole)


@pytest.mark.parametrize(("batch_size", "processes"), [(33, 2), (32, 3), (32, 32)])
def test_a_batch_that_cannot_be_shared_is_refused(tiny: dict[str, Any], batch_size: int, processes: int) -> None:
    with pytest.raises(
        ConfigError, match=rf"training.batch_size={batch_size} cannot be shared by processes={processes}"
    ):
        load_config("demo-none", {**tiny, "training.batch_size": batch_size, "processes": processes})


def refused(tmp_path: Path, tiny: dict[str, Any], words: str, **options: Any) -> None:
    with pytest.raises(ConfigError, match=words):
        train("demo-none", {**tiny, "processes": 2}, out=tmp_path / "run", progress=silent, **options)
    assert not (tmp_path / "run").exists()
    assert multiprocessing.active_children() == []


def test_too_few_gpus_are_refused(tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    refused(tmp_path, tiny, "processes=2 needs a GPU for each, and torch sees 1")


def test_modules_that_cannot_travel_are_refused(tmp_path: Path, tiny: dict[str, Any]) -> None:
    class Local(Encoder):
        pass

    tiny = {**tiny, "device": "cpu"}
    refused(
        tmp_path,
        tiny,
        "cannot be sent to them.*top of a file, or start under torchrun",
        modules=(Local(), nn.Linear(12, 10)),
    )


def test_another_number_than_torchruns_is_refused(
    tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert launched_processes() == 1
    for name, value in {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "4", "RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    refused(tmp_path, tiny, "processes=2 in this run, but torchrun started 4")
    config = load_config("demo-none", tiny).config
    assert _for_launch(config, begun=False).processes == 4
    with pytest.raises(ConfigError, match="processes=1 in this run, but torchrun started 4"):
        _for_launch(config, begun=True)
    with pytest.raises(ConfigError, match="cannot be shared by processes=4"):
        _for_launch(load_config(config, {"training.batch_size": 34}).config, begun=False)


def test_an_unwritten_run_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = UnwrittenRun()
    run.update_manifest(status="running")
    run.write("best.json", {})
    run.log({"a": 1})
    run.cut_back({"metrics.jsonl": 0})
    run.save({}, {}, {"epoch": 1, "best": {"checkpoint": ""}})
    assert (run.manifest, run.records(), run.offsets(), run.load_newest_intact()) == ({}, [], {}, (None, []))
    assert list(tmp_path.iterdir()) == []


# as a person starts them; each start takes seconds


def interrupt_at(step: int, kind: type[BaseException] = KeyboardInterrupt) -> Any:
    def report(stage: str, done: float, total: float, numbers: Mapping[str, float]) -> None:
        if done >= step:
            raise kind

    return report


def fingerprint(run: RunDirectory) -> dict[str, bytes]:
    last = run.path / "checkpoints" / run.checkpoint_name("last")
    files = {file.name: file.read_bytes() for file in last.glob("*.safetensors")}
    return {"metrics": (run.path / "metrics.jsonl").read_bytes(), **files}


@pytest.mark.slow
def test_an_interrupted_run_resumes_to_the_same_bytes(tmp_path: Path, tiny: dict[str, Any]) -> None:
    """Batch norm, noise, slots and dropout-free augmentation: all that is local or drawn; and an inner decoder."""
    settings = {**tiny, "processes": 2, "device": "cpu", "surrogate.name": "slot", "training.epochs": 3}
    settings["penalties"] = [{"name": "adversarial", "blocks": 0, "width": 4}]
    whole = train("demo", settings, out=tmp_path / "whole", progress=silent)
    with pytest.raises(KeyboardInterrupt):
        train("demo", settings, out=tmp_path / "run", progress=interrupt_at(STEPS + 1))
    assert multiprocessing.active_children() == []
    run = RunDirectory.open(tmp_path / "run")
    assert run.manifest["status"] == "stopped"
    assert fingerprint(train(resume=run, progress=silent)) == fingerprint(whole)


class KillTheSecondProcess:
    """A report that kills the first helper once; of several that died at a time, any may be told."""

    done = False

    def __call__(self, stage: str, done: float, total: float, numbers: Mapping[str, float]) -> None:
        if done < STEPS + 5 or self.done:
            return
        self.done = True
        (second,) = (child for child in multiprocessing.active_children() if child.name == "process 2 of 3")
        assert second.pid is not None
        os.kill(second.pid, signal.SIGKILL)


@pytest.mark.slow
def test_a_killed_process_ends_the_run(tmp_path: Path, tiny: dict[str, Any]) -> None:
    settings = settings_of(tiny, processes=3, **{"training.batch_size": 30})
    started = time.monotonic()
    with pytest.raises(TrainingError, match=r"process 2 of 3 ended unexpectedly \(SIGKILL\).*--resume"):
        train("demo-none", settings, out=tmp_path / "run", modules=modules(), progress=KillTheSecondProcess())
    assert time.monotonic() - started < 120
    assert multiprocessing.active_children() == []
    run = RunDirectory.open(tmp_path / "run")
    assert run.manifest["status"] == "failed"
    assert run.checkpoints() == ["epoch-00001"]
    train(resume=run, modules=modules(), progress=silent)
    alone = train("demo-none", {**settings, "processes": 1}, out=tmp_path / "alone", modules=modules(), progress=silent)
    assert_same_run(run, alone)


@pytest.mark.slow
def test_an_error_in_another_process_is_told(tmp_path: Path, tiny: dict[str, Any]) -> None:
    with pytest.raises(TrainingError, match="process 2 of 2 failed: ZeroDivisionError: told to fail"):
        train(
            "demo-none",
            settings_of(tiny, processes=2),
            out=tmp_path / "run",
            modules=modules(fails_at=STEPS + 2),
            progress=silent,
        )
    assert RunDirectory.open(tmp_path / "run").manifest["status"] == "failed"
    assert multiprocessing.active_children() == []


def stay_away(world: World) -> None:
    time.sleep(600)


@pytest.mark.slow
def test_a_process_that_hangs_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attncem.training.processes, "PATIENCE", timedelta(seconds=2))
    monkeypatch.setattr(attncem.training.processes, "END_SECONDS", 1.0)
    lost = pytest.raises(TrainingError, match="process 1 of 2 lost contact with the others")
    with joined(2, CPU, stay_away, ()) as world, lost:
        world.from_first(0)
    assert multiprocessing.active_children() == []


COMMAND = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); " + (
    "from attncem.cli.main import main; sys.exit(main(sys.argv[1:]))"
)


def begin(out: Path, settings: dict[str, Any]) -> subprocess.Popen[str]:
    """`attncem train` in a process group of its own, its temporary files beside `out`, with ten lines of metrics."""
    words = ["train", "--config", "demo-none", "--out", str(out), *(f"{k}={v}" for k, v in settings.items())]
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *words],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(out.parent)},
    )
    metrics, deadline = out / "metrics.jsonl", time.monotonic() + 120
    while not (metrics.exists() and metrics.read_bytes().count(b"\n") >= 10):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return process


def assert_group_ends(group: int) -> None:
    """Until no process of the group is left."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    os.killpg(group, signal.SIGKILL)
    pytest.fail("a process was left over")


@pytest.mark.slow
def test_ctrl_c_and_kill_leave_no_process(tmp_path: Path, tiny: dict[str, Any]) -> None:
    settings = {**tiny, "processes": 2, "device": "cpu", "training.epochs": 200, "training.log_every": 1}
    process = begin(tmp_path / "interrupted", settings)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "attncem: interrupted" in errors and "Traceback" not in errors
    assert RunDirectory.open(tmp_path / "interrupted").manifest["status"] == "stopped"
    assert_group_ends(process.pid)
    assert list(tmp_path.glob("attncem-*")) == []
    process = begin(tmp_path / "killed", settings)
    assert len(list(tmp_path.glob("attncem-*"))) == 1
    process.kill()
    process.communicate(timeout=60)
    assert_group_ends(process.pid)
    assert list(tmp_path.glob("attncem-*")) == []


@pytest.mark.slow
def test_torchrun_starts_them_too(tmp_path: Path, tiny: dict[str, Any]) -> None:
    words = [f"{key}={value}" for key, value in {**tiny, "device": "cpu"}.items()]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "attncem"]
    out = tmp_path / "run"
    done = subprocess.run(
        [*command, "train", "--config", "demo", "--out", str(out), *words],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    run = RunDirectory.open(out)
    assert run.manifest["status"] == "finished"
    assert run.manifest["processes"] == 2
    assert done.stderr.count("validation accuracy") == 1, "the first process alone reports"
    ours = train("demo", {**tiny, "device": "cpu", "processes": 2}, out=tmp_path / "ours", progress=silent)
    assert fingerprint(run) == fingerprint(ours)
