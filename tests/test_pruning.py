"""Pruning of the client's channels: masks, importance, the smaller client, and runs that are stopped."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attncem.base.progress import silent
from attncem.base.types import ConfigError
from attncem.config.loading.load import load_config
from attncem.config.options.attacks import GreyOptions
from attncem.config.options.channels import IdentityOptions
from attncem.config.options.model import ModelOptions
from attncem.config.options.suites import Suite
from attncem.config.options.training import SGDOptions
from attncem.data.specs import DATASETS
from attncem.judging.auditing import audit
from attncem.judging.opening import open_run
from attncem.models.channels import IdentityChannel
from attncem.models.cost import count_cost
from attncem.models.networks import build_halves
from attncem.models.pruning import ChannelMask, channel_importance, compact, masks_of, prune
from attncem.models.split import SplitModel, count_parameters
from attncem.records.runs import RunDirectory
from attncem.training.build import check
from attncem.training.engine import sgd
from attncem.training.train import train

CIFAR, GREY = DATASETS["cifar10"], DATASETS["fashion_mnist_mini"]
NARROW = {"name": "vgg11_bn", "cut": 4, "width": 8, "pruning": {"keep_up_to": 4, "ratio": 0.25}}


def halves(**options: Any) -> tuple[nn.Sequential, nn.Sequential]:
    torch.manual_seed(0)
    return build_halves(CIFAR, ModelOptions.model_validate({**NARROW, **options}))


def images(count: int = 6) -> Tensor:
    return torch.rand(count, *CIFAR.shape, generator=torch.Generator().manual_seed(1))


def pruned(*, ratio: float = 0.25, **options: Any) -> tuple[nn.Sequential, torch.optim.Optimizer]:
    """A client after three steps of training, pruned by random importance."""
    encoder, _ = halves(**options)
    optimizer = sgd(encoder.parameters(), SGDOptions(), torch.device("cpu"))
    for _ in range(3):
        step(encoder, optimizer)
    generator = torch.Generator().manual_seed(2)
    prune(
        encoder,
        [torch.rand(len(m.get_buffer("mask")), generator=generator) for m in masks_of(encoder)],
        ratio,
        optimizer,
    )
    return encoder, optimizer


def step(encoder: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    encoder.train()
    (encoder(images()) - 0.2).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def cost(encoder: nn.Module) -> tuple[int, int]:
    found = count_cost(SplitModel(encoder, IdentityChannel(IdentityOptions()), None), CIFAR.shape)
    return found.client_parameters, found.client_macs


# masks


def test_masks_lie_where_the_baseline_prunes() -> None:
    wide = {"name": "vgg11_bn", "cut": 4, "extra_layer": True, "pruning": {}}
    encoder, _ = build_halves(CIFAR, ModelOptions.model_validate(wide))
    convolutions = [(m.in_channels, m.out_channels) for m in encoder.modules() if isinstance(m, nn.Conv2d)]
    assert convolutions == [(3, 16), (16, 64), (64, 128), (128, 8)], "the baseline's client with pruning"
    assert [len(mask.get_buffer("mask")) for mask in masks_of(encoder)] == [64, 128]


def test_open_masks_change_nothing() -> None:
    masked, _ = halves()
    plain, _ = halves(pruning=None)
    assert len(masks_of(masked)) == 2 and not masks_of(plain)
    assert torch.equal(masked(images()), plain(images()))
    assert cost(masked) == cost(plain)
    assert list(plain.state_dict()) == [key for key in masked.state_dict() if not key.endswith("mask")]


def test_z_is_never_pruned() -> None:
    encoder, _ = halves(bottleneck=None)
    assert [len(mask.get_buffer("mask")) for mask in masks_of(encoder)] == [8], "the last convolution makes z"


@pytest.mark.parametrize("ratio", [0.05, 0.25, 0.9])
def test_the_share_that_is_closed(ratio: float) -> None:
    encoder, _ = pruned(ratio=ratio)
    for mask in masks_of(encoder):
        gate = mask.get_buffer("mask")
        assert int(gate.sum()) == int(len(gate) * (1 - ratio)) > 0 or ratio == 0.9
    assert [int(m.get_buffer("mask").sum()) for m in masks_of(pruned(width=64, ratio=0.05, cut=4)[0])] == [60, 121]


def test_the_least_important_channels_are_closed() -> None:
    encoder, _ = halves()
    optimizer = sgd(encoder.parameters(), SGDOptions(), torch.device("cpu"))
    prune(encoder, [torch.arange(8.0).flip(0), torch.arange(16.0)], 0.25, optimizer)
    first, second = (mask.get_buffer("mask") for mask in masks_of(encoder))
    assert first.tolist() == [1.0] * 6 + [0.0] * 2
    assert second.tolist() == [0.0] * 4 + [1.0] * 12


def closed_parts(encoder: nn.Sequential) -> list[Tensor]:
    """All weights of closed channels: rows of their own layer, columns of the next."""
    first, second = (mask.get_buffer("mask") == 0 for mask in masks_of(encoder))
    own, _, bottleneck = (m for m in encoder.modules() if isinstance(m, nn.Conv2d))
    one, two = (m for m in encoder.modules() if isinstance(m, nn.BatchNorm2d))
    middle = [m for m in encoder.modules() if isinstance(m, nn.Conv2d)][1]
    assert own.bias is not None and middle.bias is not None
    rows = [own.weight[first], own.bias[first], one.weight[first], one.bias[first]]
    rows += [middle.weight[second], middle.bias[second], two.weight[second], two.bias[second]]
    return [*rows, middle.weight[:, first], bottleneck.weight[:, second]]


def test_closed_channels_stay_zero_and_the_others_keep_their_momentum() -> None:
    encoder, _ = halves()
    optimizer = sgd(encoder.parameters(), SGDOptions(), torch.device("cpu"))
    for _ in range(3):
        step(encoder, optimizer)
    memory = {p: optimizer.state[p]["momentum_buffer"].clone() for p in encoder.parameters()}
    prune(encoder, [torch.arange(8.0), torch.arange(16.0)], 0.25, optimizer)
    for parameter, before in memory.items():
        now = optimizer.state[parameter]["momentum_buffer"]
        assert ((now == before) | (now == 0)).all() and (now == before).any()
    survivor = next(m for m in encoder.modules() if isinstance(m, nn.Conv2d)).weight[5]
    before = survivor.detach().clone()
    for _ in range(5):
        step(encoder, optimizer)
        assert not any(part.any() for part in closed_parts(encoder))
    assert not torch.equal(survivor, before), "the others go on learning"


def test_no_gradient_reaches_a_closed_channel_whatever_its_weights() -> None:
    encoder, _ = halves()
    first = masks_of(encoder)[0].get_buffer("mask")
    first[2] = 0
    encoder(images()).square().mean().backward()
    own = next(m for m in encoder.modules() if isinstance(m, nn.Conv2d))
    assert own.weight.grad is not None and own.weight.any(0).all()
    assert not own.weight.grad[2].any() and own.weight.grad[3].any()


# the smaller client


@pytest.mark.parametrize("options", [{}, {"extra_layer": True, "width": 32}, {"name": "small_cnn", "cut": 3}])
@pytest.mark.parametrize("training", [False, True])
def test_compact_is_the_same_function(options: dict[str, Any], training: bool) -> None:
    encoder, _ = pruned(**options)
    small = compact(encoder)
    assert small is not encoder and count_parameters(small) < count_parameters(encoder)
    encoder.train(training)
    small.train(training)
    torch.testing.assert_close(small(images()), encoder(images()))


def test_cost_is_that_of_the_smaller_client() -> None:
    encoder, _ = pruned()
    channels = 3, 6, 12, 8
    sides, pairs = (32, 16, 8), list(pairwise(channels))
    macs = sum(side * side * 9 * i * o for side, (i, o) in zip(sides, pairs, strict=True))
    weights = sum(9 * i * o + o for i, o in pairs) + 2 * (6 + 12)
    assert cost(encoder) == (weights, macs)


def test_compact_leaves_what_has_no_masks() -> None:
    plain = nn.Linear(2, 2)
    assert compact(plain) is plain


# importance


def test_importance_is_the_first_order_change_of_the_loss() -> None:
    encoder = halves()[0].double().eval()
    x = images().double()

    def loss() -> Tensor:
        return (encoder(x) - 0.2).square().sum()

    found = channel_importance(encoder, (loss() for _ in range(2)))
    gate = masks_of(encoder)[0].get_buffer("mask")
    for channel in range(len(gate)):
        sides = []
        for change in (1e-5, -1e-5):
            gate[channel] = 1 + change
            sides.append(float(loss().detach()))
        gate[channel] = 1
        slope = (sides[0] - sides[1]) / 2e-5
        assert float(found[0][channel]) == pytest.approx(2 * slope**2, rel=1e-4, abs=1e-10)
    assert found[0].max() > 1e-4
    assert not any(mask.get_buffer("mask").requires_grad for mask in masks_of(encoder))


def test_a_channel_that_does_nothing_is_the_least_important() -> None:
    encoder, server = (half.eval() for half in halves())
    with torch.no_grad():
        next(m for m in encoder.modules() if isinstance(m, nn.BatchNorm2d)).bias[5] = -100
    found = channel_importance(encoder, (server(encoder(images()))[:, 0].mean() for _ in range(1)))
    assert int(found[0].argmin()) == 5 and float(found[0][5]) == 0


# what cannot be pruned


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": "resnet20", "cut": 2}, r"model.pruning: the client must be a chain .* BasicBlock"),
        ({"name": "mobilenet_v2", "cut": 2}, "InvertedResidual"),
        ({"name": "thin_vgg11_bn", "cut": 2}, "Separable"),
        ({"name": "vit_tiny", "cut": 1, "width": 64}, "model.pruning: the client must be a chain"),
        ({"name": "small_cnn", "cut": 1, "bottleneck": None}, r"model.pruning.keep_up_to=4: no convolution"),
        ({"pruning": {}}, "model.pruning.keep_up_to=32"),
        ({"name": "small_cnn", "cut": 2, "extra_layer": True}, "model.extra_layer=true: small_cnn has none"),
    ],
)
def test_what_cannot_be_pruned_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        halves(**options)


def test_pruning_must_come_before_the_best_checkpoint_can() -> None:
    base = {"training": {"epochs": 12}, "model": {"pruning": {"after": 0.9}}}
    with pytest.raises(
        ConfigError, match=r"model.pruning.after=0.9 of training.epochs=12 is after epoch 11; .* 1 to 10"
    ):
        load_config(base)
    assert load_config(base, ["model.pruning.after=0.8"]).config.pruning_epoch == 10
    assert load_config("paper-patrol").config.pruning_epoch == 180
    assert load_config("paper-arl").config.pruning_epoch is None
    with pytest.raises(ConfigError, match="is after epoch 0"):
        load_config(base, ["model.pruning.after=0.01"])
    with pytest.raises(ConfigError, match="your own modules"):
        check(load_config(base, ["model.pruning.after=0.5"]).config, custom_network=True)


# in a run


def settings(tiny: dict[str, Any]) -> dict[str, Any]:
    pruning = {"after": 0.5, "ratio": 0.25, "keep_up_to": 4, "batches": 2}
    return {**tiny, "model.cut": 3, "model.pruning": pruning, "training.epochs": 4, "training.selection_window": 0.5}


def fingerprint(run: RunDirectory) -> dict[str, bytes]:
    last = run.path / "checkpoints" / run.checkpoint_name("last")
    files = {file.name: file.read_bytes() for file in last.glob("*.safetensors")}
    return {"metrics": (run.path / "metrics.jsonl").read_bytes(), "name": last.name.encode(), **files}


def stop_at(limit: int) -> Any:
    def report(stage: str, done: float, total: float, numbers: Any) -> None:
        if done >= limit:
            raise KeyboardInterrupt

    return report


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, tiny: dict[str, Any]) -> RunDirectory:
    return train("demo-kmeans", settings(tiny), out=tmp_path_factory.mktemp("pruned") / "run", progress=silent)


@pytest.mark.parametrize("stopped", [20, 35, 50], ids=["before", "just after", "an epoch after"])
def test_a_stopped_run_ends_in_the_same_bits(
    tmp_path: Path, tiny: dict[str, Any], whole: RunDirectory, stopped: int
) -> None:
    with pytest.raises(KeyboardInterrupt):
        train("demo-kmeans", settings(tiny), out=tmp_path / "stopped", progress=stop_at(stopped))
    assert fingerprint(train(resume=tmp_path / "stopped", progress=silent)) == fingerprint(whole)


def test_a_pruned_run_is_restored_and_audited(whole: RunDirectory) -> None:
    records = [line["kind"] for line in whole.records()]
    assert records.count("pruning") == 1
    (line,) = [line for line in whole.records() if line["kind"] == "pruning"]
    assert (line["epoch"], line["step"]) == (2, 30)
    opened = open_run(whole)
    model = opened.model
    gates = [mask.get_buffer("mask") for mask in model.encoder.modules() if isinstance(mask, ChannelMask)]
    assert [int(gate.sum()) for gate in gates] == [6, 12]
    result = audit(
        whole, suite=Suite(name="small", version=1, meaning="", rows={"grey": GreyOptions()}), progress=silent
    )
    found = count_cost(model, GREY.shape)
    assert result.subject.client_parameters == found.client_parameters == line["client_parameters"]
    assert whole.manifest["client_macs"] == result.subject.client_macs == line["client_macs"]
    assert found.client_parameters < count_parameters(model.encoder)
