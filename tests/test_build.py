"""From a configuration to objects: what is refused, what is built, and what a run folder gives back."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attncem.base.progress import silent
from attncem.base.types import ConfigError, RunError
from attncem.config.loading.load import load_config
from attncem.config.options.run import RunConfig
from attncem.data.specs import DATASETS
from attncem.judging.opening import open_run
from attncem.models.front_ends import build_front_end
from attncem.models.split import SplitModel
from attncem.training import trainer
from attncem.training.build import build_model, build_surrogate_for, check, load_data
from attncem.training.surrogates import SURROGATES
from attncem.training.train import train

CPU = torch.device("cpu")
MINI = DATASETS["fashion_mnist_mini"]


def config(*overrides: str) -> RunConfig:
    return load_config("demo", overrides).config


def own_networks() -> tuple[nn.Module, nn.Module]:
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(784, 12), nn.Sigmoid())
    return encoder, nn.Linear(12, 10)


def images(count: int = 6) -> torch.Tensor:
    return torch.rand(count, 1, 28, 28, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("data.name=fashion_mnist_mni", ["data.name=fashion_mnist_mni", "did you mean fashion_mnist_mini?"]),
        ("data.name=zzz", ["data.name=zzz is unknown", "allowed:", "fashion_mnist_mini"]),
        ("model.name=smal_cnn", ["model.name=smal_cnn", "did you mean small_cnn?"]),
        ("model.cut=5", ["model.cut=5", "small_cnn can be cut after", "4 (conv4)"]),
        ("model.cut=0", ["model.cut=0", "1 (conv1)"]),
        ("model.cut=conv5", ["model.cut=conv5", "2 (conv2)"]),
    ],
)
def test_check_refuses_unknown_names(override: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        check(config(override))
    for word in words:
        assert word in str(caught.value)


def test_no_nearest_name_where_none_is_near() -> None:
    with pytest.raises(ConfigError) as caught:
        check(config("model.name=zzz"))
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize("cut", ["1", "4", "conv3"])
def test_check_accepts_every_cut(cut: str) -> None:
    check(config(f"model.cut={cut}"))


def test_check_refuses_a_batch_too_small_for_class_statistics() -> None:
    with pytest.raises(ConfigError) as caught:
        check(config("training.batch_size=19"))
    for word in ("training.batch_size=19", "1.9 samples", "10 classes", "at least 2", "20 or more"):
        assert word in str(caught.value)
    check(config("training.batch_size=20"))
    check(load_config("demo-none", ["training.batch_size=2"]).config)


BALANCED = ("training.batches.name=balanced", "training.batches.samples_per_class=2")


def test_balanced_batches_may_be_smaller_than_twice_the_classes() -> None:
    with pytest.raises(ConfigError, match=r"training\.batches\.name=balanced"):
        check(config("training.batch_size=12"))
    small = config("training.batch_size=12", *BALANCED)
    check(small)
    train = load_data(small, CPU).train
    order = train.epoch_order(12, torch.Generator().manual_seed(0), small.training.batches)
    assert order.shape == (4000 // 12, 12)
    assert all(train.labels[row].bincount(minlength=10).max() == 2 for row in order)


def test_balanced_batches_that_cannot_be_filled_are_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        config("training.batch_size=13", *BALANCED)
    assert "batch_size=13 must be a multiple of batches.samples_per_class=2" in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        load_data(config("training.batch_size=22", *BALANCED), CPU)
    for words in ("samples_per_class=2 needs 11 classes", "have 10", "samples_per_class=3 or more", "20 or less"):
        assert words in str(caught.value)


def encoder_of(channels: int = 1) -> nn.Module:
    return nn.Sequential(nn.AvgPool2d(7), nn.Conv2d(channels, 2, 1))


PAIR = r"must be a pair \(encoder, server\) of torch modules"
FLAT = nn.Sequential(nn.Flatten(), nn.Linear(32, 10))


class Pair(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        (encoder_of(), f"modules=Sequential: {PAIR}"),
        ((encoder_of(),), f"modules=tuple of Sequential: {PAIR}"),
        ((encoder_of(), "server"), f"modules=tuple of Sequential, str: {PAIR}"),
        ((encoder_of(), FLAT, FLAT), f"modules=tuple of Sequential, Sequential, Sequential: {PAIR}"),
        ((encoder_of(3), FLAT), r"the encoder does not take images \[2, 1, 28, 28\] \(.*expected input"),
        ((Pair(), FLAT), r"the encoder gives tuple; it must give a tensor \[B, …\]"),
        ((encoder_of(), nn.Linear(5, 10)), r"the server does not take the encoder's features \[2, 2, 4, 4\] \("),
        ((encoder_of(), nn.Identity()), r"the server gives a tensor \[2, 2, 4, 4\]; it must give logits \[B, 10\]"),
        (
            (encoder_of(), nn.Sequential(nn.Flatten(), nn.Linear(32, 9))),
            "gives 9 logits, but fashion_mnist_mini has 10",
        ),
    ],
)
def test_modules_that_do_not_fit_are_refused_in_words(modules: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_model(config(), MINI, modules)


def test_modules_that_fit_are_tried_without_a_trace() -> None:
    encoder = nn.Sequential(encoder_of(), nn.BatchNorm2d(2), nn.Dropout())
    state, before = torch.get_rng_state(), {name: value.clone() for name, value in encoder.state_dict().items()}
    model = build_model(config("model.front_end.name=none"), MINI, (encoder, FLAT))
    assert torch.equal(torch.get_rng_state(), state) and model.encoder is encoder and encoder.training
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())


def test_a_subset_is_all_that_a_run_and_its_attacker_own() -> None:
    data = load_data(config("data.images_per_class=50"), CPU)
    sizes = [len(part) for part in (data.train, data.validation, data.held_out, data.test)]
    assert sizes == [400, 50, 50, 1000]
    with pytest.raises(ConfigError, match="images_per_class=501: no class"):
        load_data(config("data.images_per_class=501"), CPU)


def test_own_networks_need_no_known_architecture() -> None:
    odd = config("model.name=mine", "model.cut=77")
    check(odd, custom_network=True)
    with pytest.raises(ConfigError, match=r"data\.name"):
        check(config("data.name=mine"), custom_network=True)


def test_a_batch_larger_than_the_training_set_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"training\.batch_size=5000 is larger than the 4000 training images"):
        load_data(config("training.batch_size=5000"), CPU)
    assert len(load_data(config("training.batch_size=4000"), CPU).train) == 4000


def test_data_parts_follow_the_split() -> None:
    data = load_data(config("data.validation_fraction=0.2", "data.held_out_fraction=0.3"), CPU)
    sizes = {name: len(getattr(data, name)) for name in ("train", "validation", "held_out", "test")}
    assert sizes == {"train": 2500, "validation": 1000, "held_out": 1500, "test": 1000}
    assert (len(data.infer_auxiliary), len(data.infer_evaluation)) == (900, 100)
    x, y = data.train.get(slice(0, 3))
    assert x.shape == (3, *MINI.shape)
    assert 0 <= float(x.min()) <= float(x.max()) <= 1
    raw = torch.as_tensor(data.split.train[:3])
    assert y.shape == raw.shape


def test_build_model_takes_a_users_own_modules() -> None:
    encoder, server = own_networks()
    model = build_model(config("model.front_end.name=none", "channel.noise_std=0.1"), MINI, (encoder, server))
    assert model.encoder is encoder
    assert model.server is server
    x = images()
    torch.testing.assert_close(model.encode(x), encoder(x))
    noise = (model.release(x) - encoder(x)).detach()
    assert float(noise.std()) == pytest.approx(0.1, rel=0.5)


def test_the_surrogate_fits_the_features() -> None:
    resolved = config("surrogate.name=kmeans", "channel.noise_std=0.1")
    surrogate = build_surrogate_for(resolved, build_model(resolved, MINI, own_networks()), MINI)
    assert type(surrogate) is SURROGATES["kmeans"]
    assert surrogate.feature_shape == (12,)
    assert surrogate.num_classes == 10
    assert surrogate.noise_std == pytest.approx(0.1)


def test_a_model_is_built_without_a_key() -> None:
    """Keyed noise begins when a run is opened: nothing that a configuration holds decides it."""
    model = build_model(config("channel.noise=keyed"), MINI, own_networks()).eval()
    x = images()
    assert not torch.equal(model.release(x), model.release(x))
    model.channel.bind(bytes(32), "f")
    assert torch.equal(model.release(x), model.release(x))


@pytest.fixture
def trained(tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> tuple[Any, SplitModel]:
    """A finished run, and the very model that was trained."""
    built: list[SplitModel] = []

    def remember(*given: Any) -> SplitModel:
        built.append(build_model(*given))
        return built[-1]

    monkeypatch.setattr(trainer, "build_model", remember)
    run = train("demo", tiny, out=tmp_path / "run", progress=silent)
    return run, built[0].eval()


def test_restore_gives_the_model_at_the_end_of_training(trained: tuple[Any, SplitModel]) -> None:
    run, model = trained
    opened = open_run(run, weights="last")
    resolved, restored, checkpoint = opened.config, opened.model, opened.checkpoint
    assert not restored.training
    assert checkpoint.name == "epoch-00002"
    assert resolved == run.config
    for name, value in model.state_dict().items():
        assert torch.equal(restored.state_dict()[name], value), name
    x = images(20)
    with torch.no_grad():
        z = model.encode(x)
        torch.testing.assert_close(restored.encode(x), z, rtol=0, atol=1e-6)  # another memory layout rounds otherwise
        torch.testing.assert_close(restored.predict(z), model.predict(z), rtol=1e-5, atol=1e-5)
        first = open_run(run, weights="epoch-00001").model
        assert not torch.equal(first.encode(x), z)


def test_restore_names_a_checkpoint_that_is_not_there(trained: tuple[Any, SplitModel]) -> None:
    with pytest.raises(RunError, match="no checkpoint epoch-00009; it has epoch-00001, epoch-00002"):
        open_run(trained[0], weights="epoch-00009")


def test_restoring_own_networks_needs_them(
    tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)  # without the extra they are not kept as ONNX
    modules = own_networks()
    run = train("demo-none", {**tiny, "training.epochs": 1}, out=tmp_path / "run", modules=modules, progress=silent)
    with pytest.raises(RunError, match=r"trained with your own networks.*modules="):
        open_run(run)
    again = own_networks()
    assert not torch.equal(again[1].weight, modules[1].weight)
    opened = open_run(run, modules=again)
    restored = opened.model
    x = images()
    with torch.no_grad():
        torch.testing.assert_close(restored.predict(restored.encode(x)), modules[1](modules[0](x)), rtol=0, atol=0)


# front ends before own networks


def test_own_modules_are_given_what_the_front_end_leaves() -> None:
    config = load_config("demo-none", ["model.front_end.name=standardise"]).config
    encoder, server = nn.Conv2d(1, 2, 1), nn.Sequential(nn.Flatten(), nn.Linear(2 * 28 * 28, 10))
    spec = DATASETS[config.data.name]
    model = build_model(config, spec, (encoder, server))
    x = torch.rand(3, *spec.shape)
    torch.testing.assert_close(model.encode(x), encoder(build_front_end(config.model.front_end, spec)(x)))
    torch.testing.assert_close(model.encode(x), model.encode(0.5 * x + 0.2), atol=0.05, rtol=0)
    plain = build_model(load_config("demo-none").config, spec, (encoder, server))
    assert plain.encoder is encoder, "without a front end it is the user's own object"
