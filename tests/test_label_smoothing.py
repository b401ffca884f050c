"""Label smoothing changes the cross-entropy that a run trains on, and nothing that measures the model."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import attncem.training.capture as capture
import attncem.training.trainer as training
from attncem.base.progress import silent
from attncem.base.seeding import make_generator
from attncem.base.types import ConfigError
from attncem.campaigns.expansion import digest
from attncem.config.loading.load import load_config
from attncem.records.on_device import recipe_of
from attncem.records.runs import RunDirectory
from attncem.training.on_device import alone
from attncem.training.train import train
from attncem.training.trainer import Trainer

CPU = torch.device("cpu")
S = "training.label_smoothing"


def trainer(tiny: dict[str, Any], share: float, config: str = "demo", **overrides: Any) -> Trainer:
    return Trainer(load_config(config, {**tiny, S: share, **overrides}).config, None)


def smoothed(logits: Tensor, y: Tensor, share: float) -> Tensor:
    """By the definition: each label gives the share to all classes alike."""
    classes = logits.shape[1]
    target = (1 - share) * F.one_hot(y, classes) + share / classes
    return -(target * logits.log_softmax(1)).sum(1).mean()


def step_of(made: Trainer, *, compiled: bool = False) -> tuple[dict[str, float], list[Tensor], Tensor, Tensor]:
    """One step: its numbers, the new weights, and the logits and labels before it."""
    objective, model = made.objective, made.model
    x, y = made.data.train.get(slice(0, 64))
    objective.begin_epoch(0)
    objective.set_rates(0.0)
    with torch.no_grad():
        z = model.encode(x)
        logits = model.predict(model.transmit(z, x, make_generator(CPU, made.config.seed, "noise", 0)))
    functions = objective.functions.compiled() if compiled else objective.functions
    objective.descend(functions, x, y)
    return objective.read(epoch_ends=False), [p.detach().clone() for p in model.parameters()], logits, y


@pytest.mark.parametrize("share", [0.0, 0.1, 0.9])
def test_the_training_loss_is_that_of_the_definition(tiny: dict[str, Any], share: float) -> None:
    numbers, weights, logits, y = step_of(trainer(tiny, share))
    assert numbers["ce"] == pytest.approx(float(smoothed(logits, y, share)), rel=1e-6)
    plain, theirs, _, _ = step_of(trainer(tiny, 0.0))
    for name in ("rob_loss", "intra_mse", "train_accuracy"):
        assert numbers[name] == plain[name], "the surrogate and the accuracy see the labels"
    same = all(torch.equal(one, other) for one, other in zip(weights, theirs, strict=True))
    assert same == (share == 0)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # the compiler itself does it
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # so does this
def test_a_compiled_step_trains_as_a_plain_one(tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, **_: whole(function, backend="eager", dynamic=False))
    capture.forget_compiled()
    numbers, weights, _, _ = step_of(trainer(tiny, 0.3), compiled=True)
    plain, theirs, _, _ = step_of(trainer(tiny, 0.3))
    assert numbers == pytest.approx(plain, rel=1e-5)
    for one, other in zip(weights, theirs, strict=True):
        torch.testing.assert_close(one, other)


def test_validation_uses_the_labels(tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same weights have the same numbers, whatever they were trained with."""
    logged: list[dict[str, float]] = []
    monkeypatch.setattr(Trainer, "_log", lambda self, record: logged.append(record))
    monkeypatch.setattr(Trainer, "_stop_unless_finite", lambda *_: None)
    for share in (0.0, 0.5):
        trainer(tiny, share)._validate(SimpleNamespace(epoch=1, step=1))  # type: ignore[arg-type]
    assert logged[0] == logged[1] and logged[0]["ce"] > 1


def test_the_gradient_ratio_is_relative_to_the_training_loss(tiny: dict[str, Any]) -> None:
    settings = {"surrogate.name": "capacity", "training.penalty_weight": 3.0, "channel.noise_std": 1e-6}
    made = trainer(tiny, 0.5, **settings)
    assert made.objective.gradient_ratio is not None
    x, y = made.data.train.get(slice(0, 64))
    made.model.train()
    made.objective.set_rates(0.0)
    ratio = made.objective.gradient_ratio.measure(x, y, made.objective.weight, 7)

    def length(loss: Tensor) -> float:
        gradients = torch.autograd.grad(loss, list(made.model.encoder.parameters()))
        return sum(float(gradient.square().sum()) for gradient in gradients) ** 0.5

    penalty = length(3.0 * made.surrogate(made.model.encode(x), y).loss)
    ce = length(smoothed(made.model.predict(made.model.encode(x)), y, 0.5))
    assert float(ratio) == pytest.approx(penalty / ce, rel=1e-3)


def test_pruning_ranks_by_the_training_loss(
    tiny: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss is linear in the share, and the weights hardly move at this rate."""
    seen: list[float] = []
    rank = training.channel_importance

    def watch(client: torch.nn.Module, losses: Iterable[Tensor]) -> list[Tensor]:
        def read() -> Iterable[Tensor]:
            for loss in losses:
                seen.append(float(loss.detach()))
                yield loss

        return rank(client, read())

    monkeypatch.setattr(training, "channel_importance", watch)
    pruning = {"after": 0.5, "ratio": 0.25, "keep_up_to": 4, "batches": 1}
    settings = {"model.cut": 3, "model.pruning": pruning, "training.selection_window": 0.5}
    for share in (0.0, 0.25, 0.5):
        still = {"training.optimizer.lr": 1e-12, "training.epochs": 2, S: share}
        train("demo-none", {**tiny, **settings, **still}, out=tmp_path / str(share), progress=silent)
    hard, some, more = seen
    assert abs(some - hard) > 1e-4
    assert more - hard == pytest.approx(2 * (some - hard), rel=0.02)


# old runs, and the name of a run


def test_the_default_changes_no_identity() -> None:
    asked = {"training": {"epochs": 3}}
    known = hashlib.sha256(b'{"training": {"epochs": 3}}').hexdigest()
    assert digest(load_config(asked).config) == digest(load_config(asked, {S: 0.0}).config) == known
    assert digest(load_config(asked, {S: 0.1}).config) != known


def test_a_run_from_before_the_option_is_resumed(tmp_path: Path, tiny: dict[str, Any]) -> None:
    def stop(stage: str, done: float, total: float, numbers: Any) -> None:
        if done >= 20:
            raise KeyboardInterrupt

    def result(run: RunDirectory) -> list[bytes]:
        last = run.path / "checkpoints" / run.checkpoint_name("last")
        return [file.read_bytes() for file in (run.path / "metrics.jsonl", *sorted(last.glob("*.safetensors")))]

    whole = train("demo-none", tiny, out=tmp_path / "whole", progress=silent)
    with pytest.raises(KeyboardInterrupt):
        train("demo-none", tiny, out=tmp_path / "old", progress=stop)
    old = RunDirectory.open(tmp_path / "old")
    lines = old.config_yaml.splitlines(keepends=True)
    written = "".join(line for line in lines if "label_smoothing" not in line).encode()
    assert len(written) < len(old.config_yaml.encode())
    (old.path / "config.yaml").write_bytes(written)
    old.update_manifest(config_sha256=hashlib.sha256(written).hexdigest())
    assert old.config == load_config(whole.config, {"name": old.config.name}).config
    assert result(train(resume=old, progress=silent)) == result(whole)


def test_it_is_named_as_a_part_of_the_defence() -> None:
    assert load_config("demo-none").config.defence == "none"
    assert load_config("demo-none", {S: 0.1}).config.defence == "none + label smoothing"


def test_it_belongs_to_the_recipe_of_the_client_alone() -> None:
    """A model trained with it is compared with a client alone that was trained with it too."""
    plain, defended = load_config("demo-none").config, load_config("demo-none", {S: 0.1}).config
    assert alone(defended, "trunk").training.label_smoothing == 0.1
    assert recipe_of(alone(defended, "trunk")) == recipe_of(defended) != recipe_of(plain)


@pytest.mark.parametrize("share", [-0.1, 1.0, 1.5])
def test_other_shares_are_refused(share: float) -> None:
    with pytest.raises(ConfigError, match=r"training\.label_smoothing"):
        load_config("demo-none", {S: share})
