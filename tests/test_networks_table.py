"""What every network must keep at every cut."""

from __future__ import annotations

import hashlib

import pytest
import torch
from torch import Tensor, nn

from attncem.base.types import ConfigError, DatasetSpec
from attncem.config.options.channels import IdentityOptions
from attncem.config.options.model import BottleneckOptions, ModelOptions
from attncem.models.architecture import Architecture
from attncem.models.channels import IdentityChannel
from attncem.models.front_ends import build_front_end
from attncem.models.networks import ARCHITECTURES, build_halves
from attncem.models.split import SplitModel, feature_shape

GREY = DatasetSpec("grey", (1, 28, 28), 10, mean=(0.3,), std=(0.4,))
COLOUR = DatasetSpec("colour", (3, 32, 32), 7, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))
SMALL_CNN_WEIGHTS = {1: "6eaf5dcc671107ab", 2: "0a92b92eb96e1682", 3: "8fc58db5895807ab", 4: "9c0c296fd66dcb11"}
"""SHA-256 of the halves that version 0.1.0 built from seed 0, by cut."""


def on_meta(name: str, spec: DatasetSpec = GREY) -> Architecture:
    with torch.device("meta"):
        return ARCHITECTURES[name](spec, ModelOptions(name=name))


CUTS = [(name, cut) for name in ARCHITECTURES for cut in on_meta(name).cut_names()]


def images(spec: DatasetSpec, count: int = 3) -> Tensor:
    return torch.rand(count, *spec.shape, generator=torch.Generator().manual_seed(1))


def narrow(name: str, cut: str, **options: object) -> ModelOptions:
    """The network at a fraction of its width, so that a CPU runs it in milliseconds."""
    return ModelOptions.model_validate({"name": name, "cut": cut, "width": 4, **options})


def halves(spec: DatasetSpec, options: ModelOptions, seed: int = 0) -> tuple[nn.Sequential, nn.Sequential]:
    torch.manual_seed(seed)
    return build_halves(spec, options)


def model(spec: DatasetSpec, options: ModelOptions, seed: int = 0) -> SplitModel:
    client, server = halves(spec, options, seed)
    return SplitModel(client, IdentityChannel(IdentityOptions()), server)


def unsplit(spec: DatasetSpec, options: ModelOptions, split: SplitModel) -> nn.Sequential:
    """The network built anew in one piece, the layers of the cut between its stages, with the split's weights."""
    network = ARCHITECTURES[options.name](spec, options)
    position = network.cut_names().index(str(options.cut)) + 1
    stages = [module for _, module, _ in network.stages]
    width, between = network.stages[position - 1][2], list[nn.Module]()
    b = options.bottleneck
    tokens = options.name == "vit_tiny"
    if b is not None and tokens:
        between = [nn.Linear(width, b.channels)]
    elif b is not None:
        between = [nn.Conv2d(width, b.channels, b.kernel, stride=b.stride, padding=b.kernel // 2)]
    between += [nn.ReLU()] if b is not None and b.relu else []
    between += [nn.Sigmoid()] if options.sigmoid else []
    if b is not None:
        between += [nn.Linear(b.channels, width) if tokens else nn.Conv2d(b.channels, width, 3, padding=1)]
    whole = nn.Sequential(
        build_front_end(options.front_end, spec), *stages[:position], *between, *stages[position:], network.head
    )
    assert isinstance(split.encoder, nn.Sequential) and isinstance(split.server, nn.Sequential)
    for own, other in zip(whole, [*split.encoder, *split.server], strict=True):
        own.load_state_dict(other.state_dict())
    return whole


def fingerprint(*modules: nn.Module) -> str:
    digest = hashlib.sha256()
    for module in modules:
        for key, value in module.state_dict().items():
            digest.update(key.encode())
            digest.update(value.numpy().tobytes())
    return digest.hexdigest()[:16]


def test_small_cnn_has_the_weights_it_always_had() -> None:
    found = {cut: fingerprint(*halves(GREY, ModelOptions(cut=cut))) for cut in SMALL_CNN_WEIGHTS}
    assert found == SMALL_CNN_WEIGHTS
    assert fingerprint(*halves(GREY, ModelOptions(cut=2, width=16))) == found[2]


@pytest.mark.parametrize(("name", "cut"), CUTS)
@pytest.mark.parametrize(
    ("spec", "sigmoid", "bottleneck"),
    [
        (GREY, True, BottleneckOptions()),
        (COLOUR, False, None),
        (COLOUR, True, BottleneckOptions(channels=5, stride=2, kernel=1, relu=True)),
    ],
    ids=["grey", "colour-none", "colour-other"],
)
def test_the_halves_are_the_unsplit_network(
    name: str, cut: str, spec: DatasetSpec, sigmoid: bool, bottleneck: BottleneckOptions | None
) -> None:
    if bottleneck is not None and name == "vit_tiny":
        bottleneck = bottleneck.model_copy(update={"stride": 1})
    options = narrow(name, cut, bottleneck=bottleneck, sigmoid=sigmoid)
    split = model(spec, options).eval()
    whole = unsplit(spec, options, split).eval()
    x = images(spec)
    with torch.no_grad():
        z, logits = split.encode(x), split(x)
        assert torch.equal(split.predict(z), logits)
        torch.testing.assert_close(logits, whole(x), rtol=1e-5, atol=1e-6)
    assert logits.shape == (3, spec.num_classes)
    assert not sigmoid or (z.min() >= 0 and z.max() <= 1)
    if bottleneck is not None:
        assert z.shape[2 if name == "vit_tiny" else 1] == bottleneck.channels


@pytest.mark.parametrize(("name", "cut"), CUTS)
def test_the_feature_has_one_shape_whatever_the_batch(name: str, cut: str) -> None:
    client, _ = halves(GREY, narrow(name, cut))
    shape = feature_shape(client, GREY.shape)
    assert len(shape) == (2 if name == "vit_tiny" else 3)
    for count in (2, 3):
        assert client(images(GREY, count)).shape == (count, *shape)
    client.eval()
    assert client(images(GREY, 1)).shape == (1, *shape)


@pytest.mark.parametrize(("name", "cut"), CUTS)
def test_networks_stay_finite_in_bf16(name: str, cut: str) -> None:
    split = model(GREY, narrow(name, cut))
    with torch.autocast("cpu", torch.bfloat16):
        logits = split(images(GREY, 4))
        loss = nn.functional.cross_entropy(logits.float(), torch.arange(4))
    loss.backward()
    assert logits.isfinite().all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in split.parameters())


@pytest.mark.parametrize(("name", "cut"), CUTS)
def test_a_seed_gives_the_weights_and_a_state_gives_the_model(name: str, cut: str) -> None:
    options = narrow(name, cut)
    one, other = model(GREY, options), model(GREY, options, seed=1)
    assert fingerprint(one) == fingerprint(model(GREY, options)) != fingerprint(other)
    other.load_state_dict(one.state_dict())
    x = images(GREY)
    with torch.no_grad():
        assert torch.equal(one.eval()(x), other.eval()(x))


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("side", [28, 32, 48, 64])
def test_every_network_takes_small_images_of_every_size(name: str, side: int) -> None:
    spec = DatasetSpec("any", (3, side, side), 5, mean=(0.5,) * 3, std=(0.2,) * 3)
    split = model(spec, narrow(name, "2")).eval()
    with torch.no_grad():
        assert split(images(spec, 2)).shape == (2, 5)


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("cut", ["head", "0", "99"])
def test_an_unknown_cut_lists_the_cuts(name: str, cut: str) -> None:
    names = on_meta(name).cut_names()
    with pytest.raises(ConfigError) as caught:
        build_halves(GREY, narrow(name, cut))
    assert f"model.cut={cut}: {name} can be cut after" in str(caught.value)
    assert ", ".join(f"{number} ({known})" for number, known in enumerate(names, 1)) in str(caught.value)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_stage_names_are_unique_and_no_numbers(name: str) -> None:
    names = [stage for stage, _, _ in on_meta(name).stages]
    assert len(set(names)) == len(names)
    assert not [stage for stage in names if stage.isdecimal()]


def test_the_help_names_every_network() -> None:
    text = ModelOptions.model_fields["name"].description or ""
    assert [name for name in ARCHITECTURES if name not in text] == []
