"""Training: the run folder, reproducibility, the one backward, and what happens when something goes wrong."""

from __future__ import annotations

import copy
import errno
import html
import json
import math
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import attncem.records.runs
from attncem.base.progress import silent
from attncem.base.seeding import derive_seed, make_generator
from attncem.base.types import SCHEMA_VERSION, ConfigError, RunError, TrainingError
from attncem.config.loading.load import load_config
from attncem.config.options.attacks import GreyOptions, RidgeOptions
from attncem.config.options.run import RunConfig
from attncem.config.options.suites import Suite
from attncem.judging.auditing import audit
from attncem.judging.opening import open_run
from attncem.models.networks import ARCHITECTURES
from attncem.records.checkpoints import broken_tensor
from attncem.records.runs import RunDirectory
from attncem.records.study.runs import load_run
from attncem.reporting import report
from attncem.reporting.runs.health import run_warnings
from attncem.training.engine import limited_threads
from attncem.training.health import spans
from attncem.training.initial import time_left
from attncem.training.surrogates import SURROGATES
from attncem.training.train import train
from attncem.training.trainer import Trainer

CPU = torch.device("cpu")
STEPS = 15
"""Steps of an epoch under the tiny settings: 500 images in batches of 32."""


def train_tiny(out: Path, config: str, tiny: Mapping[str, Any], /, **overrides: Any) -> RunDirectory:
    changed = {key.replace("__", "."): value for key, value in overrides.items()}
    return train(config, {**tiny, **changed}, out=out, progress=silent)


def fingerprint(run: RunDirectory) -> dict[str, bytes]:
    """What two equal runs have in common to the byte: metrics and every weight of the last checkpoint."""
    last = run.path / "checkpoints" / run.checkpoint_name("last")
    files = {file.name: file.read_bytes() for file in last.glob("*.safetensors")}
    assert len(files) == 3
    return {"metrics": (run.path / "metrics.jsonl").read_bytes(), "name": last.name.encode(), **files}


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def interrupt_at(step: int) -> Any:
    """A reporter that interrupts the run like Ctrl-C."""

    def report(stage: str, done: float, total: float, numbers: Mapping[str, float]) -> None:
        if done >= step:
            raise KeyboardInterrupt

    return report


def set_status(run: RunDirectory, status: str) -> None:
    run.update_manifest(status=status)


# the run folder


@pytest.fixture(scope="module")
def kmeans_run(tmp_path_factory: pytest.TempPathFactory, tiny: dict[str, Any]) -> RunDirectory:
    """Three epochs with the surrogate that has the most state; tests read it and copy what they change."""
    return train_tiny(tmp_path_factory.mktemp("kmeans") / "run", "demo-kmeans", tiny, training__epochs=3)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, tiny: dict[str, Any]) -> Callable[[str], RunDirectory]:
    """The tiny run of a configuration, trained once; nothing may change it."""
    made: dict[str, RunDirectory] = {}

    def run_of(config: str) -> RunDirectory:
        if config not in made:
            made[config] = train_tiny(tmp_path_factory.mktemp("finished") / config, config, tiny)
        return made[config]

    return run_of


def test_contents_of_a_run_folder(kmeans_run: RunDirectory) -> None:
    names = {p.name for p in kmeans_run.path.iterdir()} - {".lock"}
    expected = {"config.yaml", "manifest.json", "metrics.jsonl", "timing.jsonl", "best.json", "checkpoints", "audits"}
    assert names == expected
    last = {p.name for p in (kmeans_run.path / "checkpoints" / "epoch-00003").iterdir()}
    weights = {"client.safetensors", "server.safetensors", "surrogate.safetensors"}
    assert last == {*weights, "optimizer.pt", "checkpoint.json"}
    assert not list(kmeans_run.path.rglob(".partial-*"))
    assert kmeans_run.config.surrogate.name == "kmeans"
    assert kmeans_run.config.training.epochs == 3


def test_manifest(kmeans_run: RunDirectory) -> None:
    manifest = kmeans_run.manifest
    assert manifest["schema_version"] == SCHEMA_VERSION
    assert manifest["status"] == "finished"
    assert manifest["split"]["train"] == 500
    assert manifest["feature_shape"] == [8, 4, 4]
    assert manifest["bytes_per_query"] == 4 * 8 * 4 * 4
    assert manifest["training_seconds"] > 0
    assert 2**20 < manifest["peak_memory_bytes"] < 2**40
    assert manifest["cautions"] == []
    opened = open_run(kmeans_run)
    model, checkpoint = opened.model, opened.checkpoint
    assert manifest["client_parameters"] == sum(p.numel() for p in model.encoder.parameters())
    assert manifest["best"]["checkpoint"] == checkpoint.name


def test_lines_of_the_metrics(kmeans_run: RunDirectory) -> None:
    lines = (kmeans_run.path / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert {record["schema_version"] for record in records} == {SCHEMA_VERSION}
    steps = [r for r in records if r["kind"] == "train"]
    validations = [r for r in records if r["kind"] == "validation"]
    assert len(steps) + len(validations) == len(records)
    assert [r["step"] for r in steps] == [5, 10, 15, 20, 25, 30, 35, 40, 45]
    assert [(r["epoch"], r["step"]) for r in validations] == [(1, 15), (2, 30), (3, 45)]
    wanted = {"step", "epoch", "lr", "penalty_weight", "ce", "train_accuracy", "rob_loss", "intra_mse", "skipped"}
    for record in steps:
        assert wanted <= set(record)
    for record in records:
        assert all(math.isfinite(value) for value in record.values() if isinstance(value, float))
    assert all(0 < r["accuracy"] <= 1 for r in validations)
    assert len(kmeans_run.records("timing.jsonl")) == 3


def test_kmeans_acts_only_once_it_is_fitted(kmeans_run: RunDirectory) -> None:
    for record in (r for r in kmeans_run.records() if r["kind"] == "train"):
        first = record["step"] <= STEPS
        assert record["fitted"] == (0 if first else 1)
        assert record["penalty_weight"] == (0 if first else kmeans_run.config.training.penalty_weight)
        assert (record["rob_loss"] == 0) == first


def test_kmeans_without_warmup_cannot_act_before_its_first_fit(tmp_path: Path, tiny: dict[str, Any]) -> None:
    runs = [
        train_tiny(tmp_path / f"{weight}", "demo-kmeans", tiny, training__warmup_epochs=0, training__penalty_weight=w)
        for weight, w in (("with", 3), ("without", 0))
    ]
    states = [[run.load(f"epoch-0000{epoch}").weights["client"] for epoch in (1, 2)] for run in runs]
    assert all(torch.equal(value, states[1][0][name]) for name, value in states[0][0].items())
    assert any(not torch.equal(value, states[1][1][name]) for name, value in states[0][1].items())


@pytest.mark.parametrize("config", ["demo-none", "demo-kmeans", "demo"])
def test_the_same_seed_gives_the_same_bytes(
    tmp_path: Path, tiny: dict[str, Any], finished: Callable[[str], RunDirectory], config: str
) -> None:
    first = fingerprint(finished(config))
    torch.manual_seed(123)  # the caller's own generator must not matter
    assert fingerprint(train_tiny(tmp_path / "b", config, tiny)) == first
    other = fingerprint(train_tiny(tmp_path / "c", config, tiny, seed=1))
    assert other["metrics"] != first["metrics"]
    assert other["client.safetensors"] != first["client.safetensors"]


@pytest.mark.parametrize("network", ARCHITECTURES)
def test_every_network_trains_to_the_same_bytes(tmp_path: Path, tiny: dict[str, Any], network: str) -> None:
    few = {"training.epochs": 1, "data.held_out_fraction": 0.87}
    cut = {"model.name": network, "model.cut": 1, "model.width": 8, "model.bottleneck.stride": 1}
    if network == "lean":
        cut |= {"model.cut": 2, "model.width": None, "model.macs": 3e5}
    small = {**tiny, **few, **cut}
    first, second = (fingerprint(train_tiny(tmp_path / name, "demo-none", small)) for name in "ab")
    assert first == second


def test_streamed_images_give_the_same_bytes(
    tmp_path: Path, tiny: dict[str, Any], finished: Callable[[str], RunDirectory]
) -> None:
    streamed = train_tiny(tmp_path / "run", "demo-kmeans", {**tiny, "data.placement": "host"})
    assert fingerprint(streamed) == fingerprint(finished("demo-kmeans"))


def test_training_leaves_the_callers_generator_and_threads_alone(tmp_path: Path, tiny: dict[str, Any]) -> None:
    state = torch.get_rng_state()
    with limited_threads(2):
        train_tiny(tmp_path / "run", "demo-kmeans", tiny, threads=1)
        assert torch.get_num_threads() == 2
    assert torch.equal(torch.get_rng_state(), state)


# the step


@pytest.mark.parametrize(("lr", "lr_weight"), [(0.05, 0.001 / 0.05), (3e-4, 1.0)])
@pytest.mark.parametrize(
    "options",
    [
        ("surrogate.name=kmeans",),
        ("surrogate.name=gated", "surrogate.attention_loss_scale=0.25", "surrogate.learn=worst_case"),
        ("surrogate.name=gated", "surrogate.variant=000"),
    ],
)
def test_one_backward_equals_the_documents_two(
    tiny: dict[str, Any], options: tuple[str, ...], lr: float, lr_weight: float
) -> None:
    config = two_pass_config(tiny, options, lr)
    trainer = Trainer(config, None)
    trainer.model.double()  # so that the order of sums does not hide a wrong factor
    trainer.surrogate.double()
    images, y = trainer.data.train.get(slice(0, 64))
    x = images.double()
    fit_if_needed(trainer, x, y)
    expected, expected_own = two_pass_gradients(trainer, x, y, lr_weight)
    before = [p.detach().clone() for p in trainer.model.encoder.parameters()]

    taken: dict[str, list[Tensor]] = {"encoder": [], "own": []}
    update = trainer.objective.engine.update

    def watch(optimizers: Any) -> None:
        parts = {"encoder": trainer.model.encoder, "own": trainer.surrogate}
        for name, part in parts.items():  # each update clears the gradients that it used
            taken[name] += [p.grad.clone() for p in part.parameters() if p.grad is not None]
        update(optimizers)

    trainer.objective.engine.update = watch  # type: ignore[method-assign]
    trainer.model.train()
    rate, weight = trainer.objective.set_rates(0.0)
    assert rate == pytest.approx(lr)
    assert weight == pytest.approx(0.7 * lr_weight * config.surrogate.loss_scale)
    trainer.objective.noise.manual_seed(derive_seed(0, "noise"))
    trainer.objective.descend(trainer.objective.functions, x, y)

    assert len(expected) == len(taken["encoder"]) == len(before)
    for mine, theirs in zip(taken["encoder"], expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-9)
    assert bool(expected_own) == any(p.requires_grad for p in trainer.surrogate.parameters())
    for mine, theirs in zip(taken["own"], expected_own, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-9)
    decay = config.training.optimizer.weight_decay
    for old, new, gradient in zip(before, trainer.model.encoder.parameters(), expected, strict=True):
        torch.testing.assert_close(new.detach(), old - lr * (gradient + decay * old), rtol=0, atol=1e-6)


def two_pass_config(tiny: dict[str, Any], options: tuple[str, ...], lr: float) -> RunConfig:
    schedule = ("training.schedule.name=constant", "training.penalty_schedule.name=cem_lr")
    strength = (f"training.optimizer.lr={lr}", "training.penalty_weight=0.7", "training.warmup_epochs=0")
    small = [f"{key}={value}" for key, value in tiny.items()]
    return load_config("demo", [*small, *options, *schedule, *strength]).config


def fit_if_needed(trainer: Trainer, x: Tensor, y: Tensor) -> None:
    if trainer.surrogate.needs_refresh:
        with torch.no_grad():
            trainer.surrogate.refresh([(trainer.model.encode(x), y)])


def two_pass_gradients(trainer: Trainer, x: Tensor, y: Tensor, lr_weight: float) -> tuple[list[Tensor], list[Tensor]]:
    """The documents' order: penalty backward, keep a copy, zero, classification backward, then merge."""
    model, surrogate = copy.deepcopy(trainer.model).train(), copy.deepcopy(trainer.surrogate)
    encoder = list(model.encoder.parameters())
    penalty = surrogate(model.encode(x), y)
    penalty.loss.backward()
    kept = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in encoder]
    assert sum(float(gradient.abs().sum()) for gradient in kept) > 0
    model.zero_grad()
    surrogate.zero_grad()
    if penalty.fit_loss is not None:
        penalty.fit_loss.backward()
    own = [p.grad.clone() for p in surrogate.parameters() if p.grad is not None]
    z = model.encode(x)
    logits = model.predict(model.transmit(z, x, make_generator(CPU, 0, "noise")))
    F.cross_entropy(logits.float(), y).backward()
    scale = trainer.config.training.penalty_weight * lr_weight * trainer.config.surrogate.loss_scale
    merged = [p.grad + scale * gradient for p, gradient in zip(encoder, kept, strict=True) if p.grad is not None]
    return merged, own


@pytest.mark.parametrize(
    ("learn", "moves"), [("worst_case", True), ("fit", True), ("penalty", True), ("frozen", False)]
)
def test_the_surrogates_own_weights_learn_after_the_warmup(
    tmp_path: Path, tiny: dict[str, Any], learn: str, moves: bool
) -> None:
    overrides = {**tiny, "surrogate.learn": learn, "training.warmup_epochs": 1}
    config = load_config("demo", overrides).config
    start = {name: value.clone() for name, value in Trainer(config, None).surrogate.state_dict().items()}
    run = train(config, out=tmp_path / "run", progress=silent)
    for epoch, moved in ((1, False), (2, moves)):
        now = run.load(f"epoch-0000{epoch}").weights["surrogate"]
        changed = [name for name, value in start.items() if not torch.equal(value, now[name])]
        assert bool(changed) == moved, f"epoch {epoch}: {changed}"


def test_second_pass_refits_on_every_image(tmp_path: Path, tiny: dict[str, Any], kmeans_run: RunDirectory) -> None:
    run = train_tiny(tmp_path / "run", "demo-kmeans", tiny, training__refresh_features="second_pass")
    counts = run.load("last").weights["surrogate"]["class_counts"]
    assert counts.tolist() == [50] * 10
    assert int(kmeans_run.load("last").weights["surrogate"]["class_counts"].sum()) == STEPS * 32
    assert run.records()[-2]["rob_loss"] > 0


def test_mixed_precision_stays_finite(tmp_path: Path, tiny: dict[str, Any]) -> None:
    for config in ("demo", "demo-kmeans"):
        run = train_tiny(tmp_path / config, config, tiny, training__precision="bf16-mixed")
        assert run.manifest["status"] == "finished"
        numbers = [value for record in run.records() for value in record.values() if isinstance(value, float)]
        assert all(math.isfinite(value) for value in numbers)
        for part in run.load("last").weights.values():
            assert all(value.dtype != torch.bfloat16 and bool(value.isfinite().all()) for value in part.values())


# own networks


class Encoder(nn.Module):
    """A user's encoder that goes wrong, if told to, in the forward or the backward of one training step."""

    def __init__(self, *, break_forward: int = 0, break_backward: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.layers = nn.Sequential(nn.Flatten(), nn.Linear(784, 12), nn.Sigmoid())
        self.break_forward, self.break_backward, self.calls = break_forward, break_backward, 0

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.layers(x)
        if self.training:
            self.calls += 1
            if self.calls == self.break_backward:
                z.register_hook(lambda gradient: gradient * math.nan)
            if self.calls == self.break_forward:
                return z * math.nan
        return z


def server() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Linear(12, 10)


def test_own_networks_train_and_are_audited(
    tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)  # without the extra they are not kept as ONNX
    modules = (Encoder(), server())
    start = modules[0].layers[1].weight.detach().clone()
    settings = {**tiny, "training.penalty_weight": 0.1}
    run = train("demo", settings, out=tmp_path / "run", modules=modules, progress=silent)
    assert run.manifest["custom_network"] is True
    assert run.manifest["feature_shape"] == [12]
    assert not torch.equal(modules[0].layers[1].weight, start), "the user's modules themselves are trained"
    suite = Suite(
        name="own", version=1, meaning="", rows={"grey": GreyOptions(), "ridge": RidgeOptions(strengths=(0.01,))}
    )
    result = audit(run, suite, modules=(Encoder(), server()), progress=silent)
    assert [row.name for row in result.attacks] == ["grey", "ridge"]
    assert result.strongest == "ridge"
    assert result.accuracy.mean > 0.3
    with pytest.raises(RunError, match="modules="):
        audit(run, suite, progress=silent)


def test_own_networks_are_needed_again_to_resume(tmp_path: Path, tiny: dict[str, Any]) -> None:
    whole = train("demo", tiny, out=tmp_path / "whole", modules=(Encoder(), server()), progress=silent)
    with pytest.raises(KeyboardInterrupt):
        train("demo", tiny, out=tmp_path / "run", modules=(Encoder(), server()), progress=interrupt_at(STEPS + 1))
    run = RunDirectory.open(tmp_path / "run")
    with pytest.raises(RunError, match=r"trains your own networks.*modules="):
        train(resume=run, progress=silent)
    assert fingerprint(train(resume=run, modules=(Encoder(), server()), progress=silent)) == fingerprint(whole)


def test_a_packaged_network_takes_no_modules_on_resume(tmp_path: Path, tiny: dict[str, Any]) -> None:
    with pytest.raises(KeyboardInterrupt):
        train("demo", tiny, out=tmp_path / "run", progress=interrupt_at(STEPS + 1))
    before = snapshot(tmp_path / "run")
    with pytest.raises(RunError, match="trains the network small_cnn: it takes no modules"):
        train(resume=tmp_path / "run", modules=(Encoder(), server()), progress=silent)
    assert snapshot(tmp_path / "run") == before


# failures


def test_nan_in_the_features_stops_the_run(tmp_path: Path, tiny: dict[str, Any]) -> None:
    modules = (Encoder(break_forward=STEPS + 3), server())
    with pytest.raises(TrainingError, match=r"ce became nan by step 20.*failure\.json"):
        train("demo", tiny, out=tmp_path / "run", modules=modules, progress=silent)
    run = RunDirectory.open(tmp_path / "run")
    failure = json.loads((run.path / "failure.json").read_text())
    assert failure["broken"] == "ce"
    assert failure["step"] == 20
    assert failure["rob_loss"] is None  # strict JSON has no NaN
    assert failure["value"] == "nan"
    assert run.manifest["status"] == "failed"
    assert run.checkpoints() == ["epoch-00001"]
    assert all(bool(v.isfinite().all()) for part in run.load("last").weights.values() for v in part.values())
    *measured, told = run.records()
    assert measured[-1]["kind"] == "validation", "nothing of the broken step was logged as a measurement"
    assert (told["kind"], told["cause"], told["key"], told["step"]) == ("warning", "not_finite", "ce", 20)
    assert told["value"] is None
    assert "training stopped (ce)" in " ".join(run_warnings(load_run(run.path)))


@pytest.mark.parametrize("features", ["trained", "second_pass"])
def test_nan_weights_after_the_last_step_are_never_saved(tmp_path: Path, tiny: dict[str, Any], features: str) -> None:
    overrides = {**tiny, "surrogate.name": "kmeans", "training.refresh_features": features}
    modules = (Encoder(break_backward=2 * STEPS), server())
    with pytest.raises(TrainingError, match="ce became nan by step 30"):
        train("demo", overrides, out=tmp_path / "run", modules=modules, progress=silent)
    run = RunDirectory.open(tmp_path / "run")
    assert json.loads((run.path / "failure.json").read_text())["kind"] == "validation"
    assert run.manifest["status"] == "failed"
    assert run.checkpoints() == ["epoch-00001"]


class Counting(nn.Module):
    """A server whose batch norm's variance becomes infinite at one training step, and no loss shows it."""

    def __init__(self, breaks_at: int) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(1)
            self.norm, self.last = nn.BatchNorm1d(12), nn.Linear(12, 10)
        self.breaks_at, self.calls = breaks_at, 0

    def forward(self, z: Tensor) -> Tensor:
        self.calls += self.training
        if self.calls == self.breaks_at:
            self.norm.running_var.fill_(math.inf)
        logits: Tensor = self.last(self.norm(z))
        return logits


@pytest.mark.parametrize(("step", "last"), [(1, None), (STEPS + 1, "epoch-00001"), (3 * STEPS, "epoch-00002")])
def test_an_infinite_variance_ends_the_run_and_is_never_saved(
    tmp_path: Path, tiny: dict[str, Any], step: int, last: str | None
) -> None:
    where = "no checkpoint with finite weights was saved" if last is None else f"with finite weights is {last}$"
    with pytest.raises(TrainingError, match=rf"server\.norm\.running_var became inf by step \d+: .*{where}"):
        train(
            "demo",
            {**tiny, "training.epochs": 4},
            out=tmp_path / "run",
            modules=(Encoder(), Counting(step)),
            progress=silent,
        )
    run = RunDirectory.open(tmp_path / "run")
    assert run.manifest["status"] == "failed"
    failure = json.loads((run.path / "failure.json").read_text())
    assert (failure["kind"], failure["broken"], failure["value"]) == ("checkpoint", "server.norm.running_var", "inf")
    assert run.records()[-1]["cause"] == "not_finite"
    assert run.checkpoints()[-1:] == ([] if last is None else [last])
    for name in run.checkpoints():
        assert all(bool(v.isfinite().all()) for part in run.load(name).weights.values() for v in part.values())


@pytest.mark.parametrize("config", ["demo-none", "demo-kmeans"])
def test_a_rate_that_blows_up_the_batch_norms_ends_as_failed(tmp_path: Path, tiny: dict[str, Any], config: str) -> None:
    with pytest.raises(TrainingError, match=r"running_var became inf by step 15"):
        train_tiny(tmp_path / "run", config, tiny, training__optimizer__lr=1000.0)
    assert RunDirectory.open(tmp_path / "run").checkpoints() == []


@pytest.mark.parametrize("name", SURROGATES)
def test_the_marks_of_a_surrogate_are_no_failure(tiny: dict[str, Any], name: str) -> None:
    settings = {**tiny, "surrogate.name": name, **({"training.penalty_weight": 0} if name == "none" else {})}
    trainer = Trainer(load_config("demo", settings).config, None)
    assert trainer.endless == ({"surrogate.risk"} if name == "hybrid" else set())
    weights, state = trainer.trainable.weights(), trainer.trainable.optimizer_state()
    assert broken_tensor(weights, state, trainer.endless) is None


def test_a_run_goes_on_from_its_last_finite_checkpoint(tmp_path: Path, kmeans_run: RunDirectory) -> None:
    run = copied(kmeans_run, tmp_path / "run")
    found = run.load("last")
    found.weights["server"]["1.1.running_var"].fill_(math.inf)  # as older versions saved it
    run.save(found.weights, found.optimizer, found.facts)
    train(resume=run, progress=silent)
    assert "epoch-00003 holds inf in server.1.1.running_var" in run.records("problems.jsonl")[0]["problem"]
    assert fingerprint(run) == fingerprint(kmeans_run)


def test_a_run_is_never_overwritten(tmp_path: Path, tiny: dict[str, Any]) -> None:
    run = train_tiny(tmp_path / "run", "demo-none", tiny)
    before = snapshot(run.path)
    with pytest.raises(RunError, match="already exists and was not changed"):
        train_tiny(run.path, "demo", tiny)
    assert snapshot(run.path) == before
    occupied = tmp_path / "file"
    occupied.write_text("mine")
    with pytest.raises(RunError, match="already exists"):
        train_tiny(occupied, "demo-none", tiny)
    assert occupied.read_text() == "mine"


def test_an_empty_folder_is_accepted(tmp_path: Path, tiny: dict[str, Any]) -> None:
    (tmp_path / "empty").mkdir()
    run = train_tiny(tmp_path / "empty", "demo-none", tiny, training__epochs=1)
    assert run.manifest["status"] == "finished"


def test_default_folders_are_numbered(tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    paths = [train("demo-none", {**tiny, "training.epochs": 1}, progress=silent).path for _ in range(2)]
    assert paths == [Path("runs/demo-none-001"), Path("runs/demo-none-002")]


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ({"training.batch_size": 501}, "501 is larger than the 500 training images"),
        ({"training.batch_size": 8}, "at least 2"),
        ({"training.batches.name": "balanced", "training.batches.samples_per_class": 2}, "needs 16 classes"),
        ({"model.cut": 9}, "model.cut=9"),
        ({"data.root": "nowhere"}, "nowhere"),
        ({"device": "cuda"}, "torch sees no GPU"),
    ],
)
def test_what_is_refused_leaves_no_folder(
    tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch, override: dict[str, Any], words: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(Exception, match=words):
        train("demo", {**tiny, **override}, out=tmp_path / "run", progress=silent)
    assert not (tmp_path / "run").exists()


def test_overrides_change_a_ready_configuration(tmp_path: Path, tiny: dict[str, Any]) -> None:
    ready = load_config("demo-none", tiny).config
    run = train(ready, {"training.epochs": 1}, out=tmp_path / "run", progress=silent)
    assert run.config.training.epochs == 1


def test_resume_takes_nothing_else(kmeans_run: RunDirectory, tmp_path: Path) -> None:
    for other in ({"config": "demo"}, {"overrides": ["seed=1"]}, {"out": tmp_path / "other"}):
        with pytest.raises(RunError, match="resume takes everything from the run folder"):
            train(resume=kmeans_run, progress=silent, **other)
    with pytest.raises(RunError, match="is not a run folder"):
        train(resume=tmp_path, progress=silent)


def test_an_empty_path_is_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kmeans_run: RunDirectory) -> None:
    monkeypatch.chdir(kmeans_run.path)  # a run: the empty path must not be taken for it
    before = snapshot(kmeans_run.path)
    with pytest.raises(RunError, match="resume is empty"):
        train(resume="", progress=silent)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError, match="is not a run folder"):
        train(resume=Path(), progress=silent)
    for name in ("out", "init_from"):
        with pytest.raises(RunError, match=f"{name} is empty"):
            train("demo", progress=silent, **{name: ""})
    assert list(tmp_path.iterdir()) == []
    assert snapshot(kmeans_run.path) == before


def test_a_finished_run_without_its_result_is_refused(tmp_path: Path, kmeans_run: RunDirectory) -> None:
    run = copied(kmeans_run, tmp_path / "run")
    run.update_manifest(status="finished", best=None)
    with pytest.raises(RunError, match=r"manifest\.json is damaged: best is missing"):
        train(resume=run, progress=silent)


def test_resuming_a_finished_run_changes_nothing(kmeans_run: RunDirectory) -> None:
    before = snapshot(kmeans_run.path)
    assert train(resume=kmeans_run, progress=silent).path == kmeans_run.path
    assert snapshot(kmeans_run.path) == before


@pytest.mark.parametrize("step", [5, STEPS + 5, 3 * STEPS])
def test_an_interrupted_run_stops_and_goes_on(
    tmp_path: Path, tiny: dict[str, Any], kmeans_run: RunDirectory, step: int
) -> None:
    settings = {**tiny, "training.epochs": 3}
    with pytest.raises(KeyboardInterrupt):
        train("demo-kmeans", settings, out=tmp_path / "run", progress=interrupt_at(step))
    run = RunDirectory.open(tmp_path / "run")
    assert run.manifest["status"] == "stopped"
    assert fingerprint(train(resume=run, progress=silent)) == fingerprint(kmeans_run)
    assert run.manifest["status"] == "finished"


SMALL_BATCHES = {
    "training.batch_size": 16,
    "training.batches.name": "balanced",
    "training.batches.samples_per_class": 2,
}


def test_balanced_batches_skip_nothing_and_resume(tmp_path: Path, tiny: dict[str, Any]) -> None:
    settings = {**tiny, **SMALL_BATCHES}
    whole = train("demo", settings, out=tmp_path / "whole", progress=silent)
    steps = [record for record in whole.records() if record["kind"] == "train"]
    assert steps[-1]["step"] == 2 * (500 // 16)
    assert max(record["skipped"] for record in steps) < 1e-6
    with pytest.raises(KeyboardInterrupt):
        train("demo", settings, out=tmp_path / "run", progress=interrupt_at(500 // 16 + 5))
    assert fingerprint(train(resume=tmp_path / "run", progress=silent)) == fingerprint(whole)


def test_a_run_held_by_another_process_is_refused(tmp_path: Path, tiny: dict[str, Any]) -> None:
    with pytest.raises(KeyboardInterrupt):
        train("demo-none", tiny, out=tmp_path / "run", progress=interrupt_at(STEPS + 1))
    run = RunDirectory.open(tmp_path / "run")
    before = snapshot(run.path)
    with run.locked(), pytest.raises(RunError, match="being trained by another process"):
        train(resume=run.path, progress=silent)
    assert snapshot(run.path) == before


def test_a_resumed_run_must_see_the_same_data(tmp_path: Path, tiny: dict[str, Any]) -> None:
    with pytest.raises(KeyboardInterrupt):
        train("demo-none", tiny, out=tmp_path / "run", progress=interrupt_at(STEPS + 1))
    run = RunDirectory.open(tmp_path / "run")
    run.update_manifest(split={**run.manifest["split"], "sha256": "0" * 64})
    with pytest.raises(RunError, match="data or its split has changed"):
        train(resume=run, progress=silent)


def copied(run: RunDirectory, to: Path) -> RunDirectory:
    """A copy that looks as if it had been killed after its last checkpoint."""
    for name, data in snapshot(run.path).items():
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        (to / name).write_bytes(data)
    copy_of_run = RunDirectory.open(to)
    set_status(copy_of_run, "running")
    return copy_of_run


def damage(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))


@pytest.mark.parametrize("name", ["client.safetensors", "surrogate.safetensors", "optimizer.pt", "checkpoint.json"])
def test_a_damaged_newest_checkpoint_falls_back(tmp_path: Path, kmeans_run: RunDirectory, name: str) -> None:
    run = copied(kmeans_run, tmp_path / "run")
    damage(run.path / "checkpoints" / "epoch-00003" / name)
    seen: list[float] = []
    train(resume=run, progress=lambda stage, done, total, numbers: seen.append(done))
    assert seen[0] == 2 * STEPS + 5, "it went on from the second epoch"
    assert fingerprint(run) == fingerprint(kmeans_run)
    assert name in run.records("problems.jsonl")[0]["problem"]


def test_without_an_intact_checkpoint_the_run_is_refused(tmp_path: Path, kmeans_run: RunDirectory) -> None:
    run = copied(kmeans_run, tmp_path / "run")
    for name in run.checkpoints():
        damage(run.path / "checkpoints" / name / "server.safetensors")
    with pytest.raises(RunError, match="no intact checkpoint is left") as caught:
        train(resume=run, progress=silent)
    for name in run.checkpoints():
        assert name in str(caught.value)
    assert (run.path / "metrics.jsonl").read_bytes() == (kmeans_run.path / "metrics.jsonl").read_bytes()


def test_logs_are_cut_back_to_the_checkpoint(tmp_path: Path, kmeans_run: RunDirectory) -> None:
    run = copied(kmeans_run, tmp_path / "run")
    with (run.path / "metrics.jsonl").open("a") as handle:
        handle.write('{"schema_version": 1, "kind": "train", "st')
    assert fingerprint(train(resume=run, progress=silent)) == fingerprint(kmeans_run)


@pytest.mark.parametrize("text", ["", "\r\n"])
def test_a_log_that_lost_its_lines_is_told(tmp_path: Path, kmeans_run: RunDirectory, text: str) -> None:
    run = copied(kmeans_run, tmp_path / "run")
    file = run.path / "metrics.jsonl"
    file.write_bytes(file.read_bytes().replace(b"\n", text.encode()) if text else b"")
    lines: list[str] = []
    if text:
        with pytest.raises(RunError, match=r"metrics\.jsonl is damaged: line 1 ends with CR LF"):
            train(resume=run, progress=silent)
        return
    reporter = Lines(lines)
    train(resume=run, progress=reporter)
    (record,) = run.records("problems.jsonl")
    assert re.search(r"metrics\.jsonl has lost its end: 0 of \d+ bytes are left", record["problem"])
    assert any(record["problem"] in line for line in lines)


class Lines:
    """A reporter that keeps the lines alone."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines

    def __call__(self, stage: str, done: float, total: float, numbers: Mapping[str, float]) -> None:
        pass

    def line(self, text: str) -> None:
        self.lines.append(text)


def test_resume_writes_through_no_link(tmp_path: Path, kmeans_run: RunDirectory) -> None:
    run = copied(kmeans_run, tmp_path / "run")
    outside = tmp_path / "outside"
    (run.path / "metrics.jsonl").rename(outside)
    before = outside.read_bytes()
    (run.path / "metrics.jsonl").symlink_to(outside)
    damage(run.path / "checkpoints" / "epoch-00003" / "client.safetensors")  # it would be cut to epoch 2
    with pytest.raises(RunError, match=r"metrics\.jsonl is a link"):
        train(resume=run, progress=silent)
    assert outside.read_bytes() == before


def test_leftovers_of_kills_are_cleared_by_a_resume(tmp_path: Path, kmeans_run: RunDirectory) -> None:
    run = copied(kmeans_run, tmp_path / "run")
    (run.path / ".partial-abc").write_text("half")
    (run.path / "checkpoints" / ".partial-abc").mkdir()
    (run.path / "checkpoints" / "epoch-00003" / "checkpoint.json").unlink()
    train(resume=run, progress=silent)
    assert not list(run.path.rglob(".partial-*"))
    assert "epoch-00003 was an incomplete checkpoint" in run.records("problems.jsonl")[0]["problem"]
    assert fingerprint(run) == fingerprint(kmeans_run)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"best": {"checkpoint": "epoch-00003"}}, "epoch is missing"),
        ({"step": None}, "step must be a whole number"),
        ({"sha256": {"optimizer.pt": "", "client.safetensors": ""}}, "'server' is missing"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_named(
    tmp_path: Path, kmeans_run: RunDirectory, change: dict[str, Any], said: str
) -> None:
    run = copied(kmeans_run, tmp_path / "run")
    for name in run.checkpoints():
        file = run.path / "checkpoints" / name / "checkpoint.json"
        facts = json.loads(file.read_text())
        fitting = {
            key: {inner: facts[key].get(inner, value) for inner, value in wanted.items()}
            if isinstance(wanted, dict)
            else wanted
            for key, wanted in change.items()
        }
        file.write_text(json.dumps({**facts, **fitting}))
    with pytest.raises(RunError, match=said):
        train(resume=run, progress=silent)


@pytest.mark.parametrize("stale", ['{"checkpoint": "epoch-00002"}', None])
def test_a_run_killed_before_best_json_still_ends_with_the_right_one(
    tmp_path: Path, kmeans_run: RunDirectory, stale: str | None
) -> None:
    run = copied(kmeans_run, tmp_path / "run")
    (run.path / "best.json").unlink()
    if stale is not None:
        (run.path / "best.json").write_text(stale)
    train(resume=run, progress=silent)
    assert open_run(run).weights == run.manifest["best"]["checkpoint"] == "epoch-00003"


@pytest.mark.parametrize("calls", [2, 4, 8, 10, 14, 15, 16])
def test_a_full_disk_stops_the_run_and_it_goes_on_later(
    tmp_path: Path,
    tiny: dict[str, Any],
    finished: Callable[[str], RunDirectory],
    monkeypatch: pytest.MonkeyPatch,
    calls: int,
) -> None:
    write, done = attncem.records.files.write_atomic, 0

    def write_until_full(path: Path, data: bytes) -> None:
        nonlocal done
        if done >= calls:
            raise OSError(errno.ENOSPC, "No space left on device")
        done += 1
        write(path, data)

    for module in (attncem.records.files, attncem.records.runs, attncem.records.checkpoints):
        monkeypatch.setattr(module, "write_atomic", write_until_full)
    with pytest.raises(RunError, match=r"No space left on device.*--resume") as caught:
        train_tiny(tmp_path / "run", "demo", tiny)
    assert str(tmp_path / "run") in str(caught.value)
    monkeypatch.undo()
    assert not list((tmp_path / "run").rglob(".partial-*"))
    run = train(resume=tmp_path / "run", progress=silent)
    assert run.manifest["status"] == "finished"
    assert fingerprint(run) == fingerprint(finished("demo"))


# choosing the best


@pytest.mark.parametrize(
    ("every", "accuracies", "best", "kept"),
    [
        (1, [0.9, 0.8, 0.7, 0.3, 0.5, 0.4], 5, [5, 6]),
        (1, [0.9, 0.8, 0.7, 0.5, 0.3, 0.4], 4, [4, 5, 6]),
        (1, [0.1, 0.2, 0.9, 0.4, 0.5, 0.5], 5, [5, 6]),
        (4, [0.9, 0.8, 0.7, 0.3, 0.5, 0.4], 5, [5, 6]),
        (6, [0.9, 0.8, 0.7, 0.5, 0.3, 0.4], 4, [4, 6]),
    ],
)
def test_the_best_checkpoint_lies_in_the_selection_window(
    tmp_path: Path,
    tiny: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    every: int,
    accuracies: list[float],
    best: int,
    kept: list[int],
) -> None:
    monkeypatch.setattr(Trainer, "_validate", lambda self, progress: accuracies[progress.epoch - 1])
    settings = {"training__epochs": 6, "training__selection_window": 0.5, "training__checkpoint_every": every}
    run = train_tiny(tmp_path / "run", "demo-none", tiny, training__batch_size=250, **settings)
    assert run.manifest["best"]["epoch"] == best
    assert run.manifest["best"]["validation_accuracy"] == accuracies[best - 1]
    assert run.checkpoint_name("best") == f"epoch-{best:05d}"
    assert run.checkpoints() == [f"epoch-{epoch:05d}" for epoch in kept]


# cautions


def test_a_measured_failure_of_the_options_is_told(
    tmp_path: Path, tiny: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    run = train("demo", {**tiny, "surrogate.learn": "penalty"}, out=tmp_path / "run")
    (caution,) = run.manifest["cautions"]
    assert "learn=penalty" in caution
    printed = capsys.readouterr()
    assert f"caution: {caution}\n" in printed.err
    assert printed.out == ""


def test_no_caution_where_none_is_due(tmp_path: Path, tiny: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    train("demo", tiny, out=tmp_path / "run")
    assert "caution" not in capsys.readouterr().err


# health

COLLAPSE = {
    "surrogate.variant": "002",
    "surrogate.learn": "penalty",
    "training.warmup_epochs": 0,
    "training.surrogate_lr": 0.1,
    "training.penalty_weight": 0.05,
    "training.log_every": 2,
    "training.gradient_ratio_every": 4,
}
"""Gates that learn on their own penalty, at a rate at which they close within an epoch."""


def test_a_collapse_is_told_in_all_three_places(
    tmp_path: Path, tiny: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    run = train("demo", {**tiny, **COLLAPSE}, out=tmp_path / "run")
    told = [record for record in run.records() if record["kind"] == "warning"]
    assert {"gates_saturated", "gates_closed", "blind"} <= {record["cause"] for record in told}
    assert len({record["cause"] for record in told}) == len(told), "once each"
    shown = capsys.readouterr().err
    for record in told:
        assert shown.count(record["text"]) == 1
    page = report(run, tmp_path / "page.html").read_text()
    for span in spans(run.records()):
        assert html.escape(span.sentence) in page
    last = [record for record in run.records() if record["kind"] == "train"][-1]
    assert last["rob_loss"] < 0.01 * last["plain_loss"], "it was a real collapse"
    suite = Suite(name="own", version=1, meaning="", rows={"grey": GreyOptions()})
    found = [item for item in audit(run, suite, progress=silent).findings if item.code == "training"]
    assert [item.values["said"] for item in found] == [span.sentence for span in spans(run.records())]
    judged_anew = spans(record for record in run.records() if record["kind"] == "train")
    assert judged_anew == spans(run.records())


def test_the_recommended_surrogate_raises_no_warning(
    tmp_path: Path, tiny: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    same = {key: value for key, value in COLLAPSE.items() if not key.startswith("surrogate.")}
    run = train("demo", {**tiny, **same}, out=tmp_path / "run")
    assert [record for record in run.records() if record["kind"] == "warning"] == []
    assert "warning" not in capsys.readouterr().err
    assert run_warnings(load_run(run.path)) == []


def test_warnings_are_the_same_after_an_interruption(tmp_path: Path, tiny: dict[str, Any]) -> None:
    settings = {**tiny, **COLLAPSE, "training.epochs": 3, "training.log_every": 7}
    whole = train("demo", settings, out=tmp_path / "whole", progress=silent)
    epochs = [record["epoch"] for record in whole.records() if record["kind"] == "warning"]
    assert any(epoch > 1 for epoch in epochs), "one of them needs lines from before the interruption"
    with pytest.raises(KeyboardInterrupt):
        train("demo", settings, out=tmp_path / "run", progress=interrupt_at(STEPS + 2))
    assert fingerprint(train(resume=tmp_path / "run", progress=silent)) == fingerprint(whole)


def test_config_error_is_a_value_error() -> None:
    with pytest.raises(ValueError, match=r"model\.cut=9"):
        train("demo", ["model.cut=9"])
    assert issubclass(ConfigError, ValueError)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("not enough memory: you tried to allocate 1 byte")])
def test_a_run_that_had_no_memory_left_is_not_called_running(
    tmp_path: Path, tiny: dict[str, Any], error: Exception
) -> None:
    def fail(stage: str, done: float, total: float, numbers: object) -> None:
        raise error

    with pytest.raises(type(error)):
        train("demo-none", tiny, out=tmp_path / "run", progress=fail)
    assert RunDirectory.open(tmp_path / "run").manifest["status"] == "failed"
    assert train(resume=tmp_path / "run", progress=silent).manifest["status"] == "finished"


# what a terminal is told


def test_a_run_says_what_it_is_about_and_when_it_knows_how_long(
    tiny: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {**tiny, "device": "cpu", "training.epochs": 3}
    facts = train("demo", options, out=tmp_path / "run").manifest
    first, second, third, *lines = capsys.readouterr().err.splitlines()
    split = facts["split"]
    images = f"{split['train']} train, {split['validation']} validation, {split['test']} test"
    assert first == f"train demo-gated: fashion_mnist_mini ({images})"
    assert second == f"  small_cnn, cut 2; z 8×4×4, {facts['bytes_per_query']} bytes per query; cpu, threads 1"
    assert third == "  epochs 1 to 3: time estimate follows after the first epoch"
    assert sum(bool(re.fullmatch(r"train demo-gated: about [\d.]+ s left", line)) for line in lines) == 1


def test_a_resumed_run_knows_how_long_from_its_epochs(
    tiny: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {**tiny, "device": "cpu", "training.epochs": 3}

    def stop_in_the_last(stage: str, done: float, total: float, numbers: Mapping[str, float]) -> None:
        if numbers["epoch"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train("demo", options, out=tmp_path / "run", progress=stop_in_the_last)
    assert capsys.readouterr().err == "", "only a terminal is told"
    train(resume=tmp_path / "run")
    said = capsys.readouterr().err
    assert re.search(r"^  epochs 3 to 3: about [\d.]+ s$", said, re.MULTILINE)
    assert not re.search(r"^train demo-gated: about .* left$", said, re.MULTILINE), "it was known from the start"


def test_the_time_left_is_that_of_the_usual_epoch(tmp_path: Path) -> None:
    config = load_config("demo", {"training.epochs": 20}).config
    run = RunDirectory.create(tmp_path / "run", config_yaml="", manifest={})
    assert time_left(run, config, 0) == "", "nothing is made up"
    for seconds in (900.0, 60.0, 66.0):  # in the first one everything is loaded
        run.log({"epoch": 1, "seconds": seconds}, "timing.jsonl")
    assert time_left(run, config, 3) == "19 min"
    assert time_left(run, config, 20) == ""
