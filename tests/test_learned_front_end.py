"""The front end that learns: where it begins, what it can never become, and everything that carries its weights."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from scipy import ndimage
from torch import Tensor, nn

import attncem
from attncem.base.progress import silent
from attncem.base.types import ConfigError, DatasetSpec
from attncem.config.options.attacks import InformedOptions, RidgeOptions
from attncem.config.options.channels import GaussianOptions
from attncem.config.options.model import LearnedContrastOptions, LocalContrastOptions, ModelOptions
from attncem.config.options.suites import Suite
from attncem.config.options.training import SGDOptions
from attncem.config.threats import THREATS
from attncem.judging.attacks.informed import InformedAttack
from attncem.judging.inference import predict
from attncem.judging.opening import open_run
from attncem.judging.oracle import Oracle
from attncem.models.channels import build_channel
from attncem.models.decoders import InformedDecoder
from attncem.models.front_ends import (
    LearnedContrast,
    as_seen,
    build_front_end,
    described,
    from_description,
    front_end_of,
)
from attncem.models.networks import build_halves
from attncem.models.onnx_export import export_onnx
from attncem.models.pruning import compact, masks_of
from attncem.models.split import SplitModel
from attncem.records.checkpoints import pack_tensors
from attncem.records.listing import client_mark
from attncem.records.runs import RunDirectory
from attncem.training.engine import Engine, sgd
from attncem.training.train import train

SPEC = DatasetSpec("made up", (3, 12, 10), 2, (0.4, 0.5, 0.6), (0.2, 0.25, 0.3), ("a", "b"))
SETTING = {"model.front_end": {"name": "learned_contrast", "s": 1.5}, "device": "cpu"}
EVERY = {"training.checkpoint_every": 1}


def learned(seed: int = 0, **options: Any) -> LearnedContrast:
    """One that has learned something."""
    front_end = build_front_end(LearnedContrastOptions(**{"s": 1.5, "a": 0.1, **options}), SPEC)
    assert isinstance(front_end, LearnedContrast)
    with torch.no_grad():
        front_end.changes.normal_(generator=torch.Generator().manual_seed(seed))
    return front_end


def images(count: int = 4, shape: tuple[int, ...] = SPEC.shape) -> Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(1))


def changes_of(run: Path | RunDirectory, weights: str = "last") -> Tensor:
    front_end = front_end_of(open_run(run, weights=weights).model.encoder)
    assert isinstance(front_end, LearnedContrast)
    return front_end.changes.detach().clone()


# what it is


@pytest.mark.parametrize("options", [{"s": 0.1}, {"s": 0.7}, {"s": 1.5, "a": 0.2}, {"s": 3}, {"s": 20, "a": 1}])
def test_it_begins_as_local_contrast(options: dict[str, Any]) -> None:
    fixed, own = (build_front_end(kind(**options), SPEC) for kind in (LocalContrastOptions, LearnedContrastOptions))
    x, y = (images().requires_grad_() for _ in range(2))
    expected, found = fixed(x), own(y)
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=0)
    for picture in (expected, found):
        picture.square().sum().backward()
    torch.testing.assert_close(x.grad, y.grad, atol=1e-4, rtol=1e-5)


def test_it_is_its_definition_with_any_weights() -> None:
    front_end, x = learned(), images()
    blurs = [np.concatenate([line[:0:-1], line]) for line in front_end.taps().double().numpy()]
    for image, found in zip(x.double().numpy(), front_end(x).detach(), strict=True):
        plain = (image - np.reshape(SPEC.mean, (3, 1, 1))) / np.reshape(SPEC.std, (3, 1, 1))
        h = plain - 0.9 * np.stack([_filtered(channel, blurs[0]) for channel in plain])
        np.testing.assert_allclose(found, h / np.sqrt(_filtered((h**2).mean(0), blurs[1]) + 0.02), atol=2e-5)


def _filtered(image: np.ndarray, weights: np.ndarray) -> np.ndarray:
    down = ndimage.correlate1d(image, weights, axis=0, mode="mirror")
    return ndimage.correlate1d(down, weights, axis=1, mode="mirror")


def test_whatever_is_learned_weights_are_positive_and_sum_to_one_and_a_constant_goes() -> None:
    front_end = learned(a=0)
    taps = front_end.taps()
    assert (taps > 0).all() and not torch.equal(taps[0], taps[1])
    torch.testing.assert_close(taps[:, 0] + 2 * taps[:, 1:].sum(1), torch.ones(2))
    lighter = 0.5 * images() + 0.3 * torch.tensor(SPEC.std).view(1, -1, 1, 1)
    torch.testing.assert_close(front_end(lighter), front_end(0.5 * images()), atol=1e-4, rtol=0)


def test_its_gradient_is_that_of_its_definition() -> None:
    front_end = learned().double()
    x = images(2).double().requires_grad_()

    def picture(changes: Tensor, x: Tensor) -> Tensor:
        made: Tensor = torch.func.functional_call(front_end, {"changes": changes}, (x,))
        return made

    given = front_end.changes.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(picture, (given, x), atol=1e-6)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's own, of its compiler
def test_compiled_beside_networks_in_bfloat16_its_gradient_is_in_full_precision() -> None:
    front_end, x = learned(), images()
    # As a compiler has it, but run by torch itself: no code is generated.
    traced = torch.compile(front_end, backend="aot_eager", fullgraph=True, dynamic=False)

    def gradient(function: Any, short: bool) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=short):
            picture: Tensor = function(x)
        (found,) = torch.autograd.grad((picture * images().flip(0)).sum(), front_end.changes)
        return found

    torch.testing.assert_close(gradient(traced, True), gradient(front_end, False), atol=1e-4, rtol=1e-4)


def test_weight_decay_draws_it_back_to_the_gaussian() -> None:
    front_end, start = learned(), learned()
    nn.init.zeros_(start.changes)
    optimizer = sgd(front_end.parameters(), SGDOptions(lr=0.1, weight_decay=0.5), torch.device("cpu"))
    for _ in range(200):
        front_end.changes.grad = torch.zeros_like(front_end.changes)
        optimizer.step()
    torch.testing.assert_close(front_end.taps(), start.taps(), atol=1e-3, rtol=0)


def test_what_the_encoder_sees_is_what_was_learned() -> None:
    x = images()
    one, other = as_seen(nn.Sequential(learned(0)), x), as_seen(nn.Sequential(learned(1)), x)
    assert one is not None and other is not None and not one.requires_grad
    assert (one - other).abs().max() > 0.01


# a client with it


def test_a_client_with_it_can_be_pruned_and_made_smaller() -> None:
    options = {"width": 8, "pruning": {"keep_up_to": 4}, "front_end": {"name": "learned_contrast", "s": 1.5}}
    spec = DatasetSpec("made up", (3, 32, 32), 10, SPEC.mean, SPEC.std, tuple("abcdefghij"))
    client, _ = build_halves(spec, ModelOptions.model_validate(options))
    client.eval()[0].load_state_dict(learned().state_dict())
    masks_of(client)[0].get_buffer("mask")[:2] = 0
    small, x = compact(client), images(shape=spec.shape)
    torch.testing.assert_close(small(x), client(x))
    assert torch.equal(small[0].changes, client[0].changes)  # type: ignore[index]


def test_it_is_exported_with_what_it_has_learned() -> None:
    client = nn.Sequential(learned(), nn.Conv2d(3, 2, 3), nn.Sigmoid())
    export_onnx(client, images())  # compares the file's answers with the module's
    assert client[0].changes.requires_grad, "the module itself is left as it was"


# runs


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, tiny: dict[str, Any]) -> RunDirectory:
    out = tmp_path_factory.mktemp("learned") / "run"
    return train("demo", {**tiny, **SETTING, **EVERY}, out=out, progress=silent)


def test_training_moves_both_blurs_and_every_checkpoint_holds_them(run: RunDirectory) -> None:
    first, last = (changes_of(run, name) for name in ("epoch-00001", "epoch-00002"))
    assert (first.abs().amax(1) > 1e-3).all() and not torch.equal(first, last)
    assert torch.equal(changes_of(run, "best"), changes_of(run, run.checkpoint_name("best")))
    assert run.manifest["client_parameters"] > 10


def test_it_goes_on_bit_for_bit(run: RunDirectory, tmp_path: Path, tiny: dict[str, Any]) -> None:
    def stop(stage: str, done: float, total: float, numbers: Any) -> None:
        if done >= 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train("demo", {**tiny, **SETTING, **EVERY}, out=tmp_path / "run", progress=stop)
    again = train(resume=tmp_path / "run", progress=silent)
    for name in ("client.safetensors", "server.safetensors"):
        files = [each.path / "checkpoints" / "epoch-00002" / name for each in (run, again)]
        assert files[0].read_bytes() == files[1].read_bytes()


def test_the_fingerprint_names_what_was_learned(run: RunDirectory) -> None:
    marks = {open_run(run, weights=name).fingerprint for name in ("epoch-00001", "epoch-00002")}
    client = open_run(run, weights="last").model.encoder
    before = pack_tensors(client.state_dict())
    front_end = front_end_of(client)
    assert isinstance(front_end, LearnedContrast)
    with torch.no_grad():
        front_end.changes[1, 2] += 1e-3
    assert len(marks) == 2 and pack_tensors(client.state_dict()) != before
    assert client_mark(run) == open_run(run).fingerprint, "a list of runs knows its audits"


def test_an_adversary_trains_it_too(run: RunDirectory, tmp_path: Path, tiny: dict[str, Any]) -> None:
    adversary = {"name": "adversarial", "loss": "mse", "weight": 100, "warmup_epochs": 0, "width": 8, "blocks": 0}
    against = train("demo", {**tiny, **SETTING, "penalties": adversary}, out=tmp_path / "run", progress=silent)
    assert (changes_of(against) - changes_of(run)).abs().max() > 1e-3


def test_weights_are_taken_from_a_run_that_has_it_and_not_from_one_without(
    run: RunDirectory, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    slow = {**tiny, **SETTING, "training.epochs": 1, "training.optimizer.lr": 1e-9}
    again = train("demo", {**slow, "model.init_from": str(run.path)}, out=tmp_path / "a", progress=silent)
    torch.testing.assert_close(changes_of(again), changes_of(run, "best"), atol=1e-6, rtol=0)
    plain = train("demo", {**tiny, "device": "cpu", "training.epochs": 1}, out=tmp_path / "b", progress=silent)
    with pytest.raises(ConfigError, match=r"0\.changes"):
        train("demo", {**slow, "model.init_from": str(plain.path)}, out=tmp_path / "c", progress=silent)


# the attacker's copy


def make_oracle(client: nn.Module) -> Oracle:
    x = images(120)
    model = SplitModel(client, build_channel([GaussianOptions(noise_std=0.1)]), None)
    return Oracle(model, THREATS["train"], x, torch.zeros(120, dtype=torch.long), num_classes=1)


def test_it_survives_being_written_down() -> None:
    front_end, x = learned(), images()
    again = from_description(json.loads(json.dumps(described(front_end))))
    assert torch.equal(again(x), front_end(x)) and again.options == front_end.options


def test_the_attacker_has_what_was_learned_and_neither_trains_it_nor_shares_it() -> None:
    client = nn.Sequential(learned(), nn.PixelUnshuffle(2)).train()
    before = copy.deepcopy(client[0].state_dict())
    attack = InformedAttack(epochs=4, max_epochs=4, batch_size=16, least_steps=1, lr=0.1, weight_decay=0.1)
    oracle = make_oracle(client)
    attack.fit(oracle, seed=0)
    inside, own = attack.decoder.front_end, client[0].changes
    assert isinstance(inside, LearnedContrast) and torch.equal(inside.changes, before["changes"])
    assert inside.changes.data_ptr() != own.data_ptr() and not inside.changes.requires_grad
    assert torch.equal(own, before["changes"]) and own.requires_grad and client.training
    again = InformedAttack(epochs=4, max_epochs=4)
    again.load(load(save({name: tensor.contiguous() for name, tensor in attack.state().items()})))
    released = oracle.release_auxiliary(torch.arange(20))
    assert torch.equal(attack.reconstruct(released), again.reconstruct(released))
    kept = again.state()
    assert all(torch.equal(tensor, kept[name]) for name, tensor in attack.state().items())
    assert not any(weight.requires_grad for weight in again.decoder.front_end.parameters())


def test_a_decoder_around_a_clients_own_front_end_leaves_it_as_it_is() -> None:
    own = learned()
    Engine(torch.device("cpu")).place(InformedDecoder((12, 6, 5), SPEC.shape, own)).double()
    assert own.changes.requires_grad and own.changes.dtype == torch.float32


def test_an_audit_by_the_informed_decoder_is_of_this_client(run: RunDirectory, tmp_path: Path) -> None:
    few = InformedOptions(epochs=1, max_epochs=1, batch_size=64, least_steps=1)
    suite = Suite(name="two", version=1, meaning="", rows={"informed": few, "ridge": RidgeOptions()})
    found = attncem.audit(run, suite, out=tmp_path / "audit", progress=silent)
    assert [found.row(name).outcome for name in ("informed", "ridge")] == ["ok", "ok"]
    assert found.subject.front_end == {"name": "learned_contrast", "s": 1.5, "a": 0.0}


# own modules behind it


class Client(nn.Module):
    """A user's own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(1, 3, 7, 7)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x)).flatten(1)


def test_own_modules_kept_as_onnx_have_it_before_them(tmp_path: Path, tiny: dict[str, Any]) -> None:
    own = (Client(), nn.Sequential(nn.Linear(48, 10)))
    run = train("demo", {**tiny, **SETTING, **EVERY}, out=tmp_path / "run", modules=own, progress=silent)
    by_file, by_module = open_run(run), open_run(run, modules=(Client(), nn.Sequential(nn.Linear(48, 10))))
    x = images(shape=by_file.spec.shape)
    assert (changes_of(run).abs().amax(1) > 1e-3).all() and by_file.fingerprint == by_module.fingerprint
    torch.testing.assert_close(by_file.model.encode(x), by_module.model.encode(x).detach(), atol=1e-4, rtol=0)
    assert by_file.subject().client_parameters == by_module.subject().client_parameters
    (answer,) = predict(run, ["test:0"]).predictions
    assert answer.seen is not None and answer.seen.front_end["name"] == "learned_contrast"
