"""Networks of other libraries, cut at a named module: here hand-written ones, and fakes of the libraries' calls."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attncem.base.progress import silent
from attncem.base.types import ConfigError, DatasetSpec
from attncem.config.loading.load import load_config
from attncem.config.options.model import ModelOptions
from attncem.judging.opening import open_run
from attncem.models import foreign
from attncem.models.architecture import channels_last
from attncem.models.foreign import LIBRARIES, split_at
from attncem.models.lean_servers import Enlarge
from attncem.models.networks import build_halves, build_on_device, check_network
from attncem.models.split import feature_shape
from attncem.training.build import check
from attncem.training.train import train

GREY = DatasetSpec("grey", (1, 28, 28), 10, mean=(0.3,), std=(0.4,))
COLOUR = DatasetSpec("colour", (3, 16, 16), 7, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))


class Block(nn.Module):
    """A residual block with a shortcut and an activation in place."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = nn.Conv2d(inputs, outputs, 3, stride, 1) if stride > 1 or inputs != outputs else None

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


class Residual(nn.Module):
    """A residual classifier as the libraries write them."""

    def __init__(self, num_classes: int = 7, in_chans: int = 3, dropout: float = 0.0) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_chans, 4, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = nn.Sequential(Block(4, 4), Block(4, 4))
        self.layer2 = nn.Sequential(Block(4, 6, 2), Block(6, 6))
        self.layer3 = nn.Sequential(Block(6, 8, 2))
        self.drop = nn.Dropout(dropout)
        self.fc = nn.Linear(8, num_classes)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        if mask is not None:
            x = x * mask
        return self.fc(self.drop(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1)))


class Attention(nn.Module):
    """A transformer block whose own forward no tracer could follow."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.inner = nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        if x.mean() > 100:  # depends on the data
            return x
        return x + self.inner(self.norm(x))


class Transformer(nn.Module):
    """Patches, a class token and positions as weights of the network itself."""

    def __init__(self, num_classes: int = 7, in_chans: int = 3, img_size: int = 16) -> None:
        super().__init__()
        self.patch_embed = nn.Conv2d(in_chans, 8, 4, stride=4)
        self.cls_token = nn.Parameter(torch.randn(1, 1, 8))
        self.pos_embed = nn.Parameter(torch.randn(1, 1 + (img_size // 4) ** 2, 8))
        self.register_buffer("scale", torch.tensor(0.5))
        self.blocks = nn.Sequential(*[Attention(8) for _ in range(4)])
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1) + self.pos_embed
        x = self.blocks(x * self.scale)
        return self.head(self.norm(x)[:, 0])


class ChannelsLast(nn.Module):
    """Maps [B, H, W, C] inside, as Swin's."""

    def __init__(self, num_classes: int = 7, in_chans: int = 3) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(in_chans, 6, 4, stride=4), Permute(), Attention(6))
        self.fc = nn.Linear(6, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.features(x).mean((1, 2)))


class Permute(nn.Module):
    """Puts the channels last."""

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(0, 2, 3, 1)


class Branching(nn.Module):
    """Two branches that meet again, and a late use of the stem."""

    def __init__(self, *, late: bool = False) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.left = nn.Sequential(nn.Conv2d(4, 4, 1), nn.ReLU())
        self.right = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU())
        self.meet = nn.Conv2d(8, 4, 1)
        self.fc = nn.Linear(4, 7)
        self.late = late

    def forward(self, x: Tensor) -> Tensor:
        stem = self.stem(x)
        x = self.meet(torch.cat([self.left(stem), self.right(stem)], 1))
        x = x + stem if self.late else x
        return self.fc(x.mean((2, 3)))


class Odd(nn.Module):
    """What cannot be split: one wrong thing at a time."""

    def __init__(self, wrong: str) -> None:
        super().__init__()
        self.first, self.second, self.unused = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.wrong = wrong

    def forward(self, x: Tensor) -> Any:
        x = self.inner(self.first(x.flatten(1)[:, :4]))
        if self.wrong == "data" and x.sum() > 0:
            return x
        if self.wrong == "training" and self.training:
            x = x * 2
        if self.wrong == "shared":
            return self.first(self.second(x))
        if self.wrong == "twice":
            return self.second(self.second(x))
        return (self.second(x), x) if self.wrong == "tuple" else self.second(x)


def images(spec: DatasetSpec = COLOUR, count: int = 5) -> Tensor:
    return torch.rand(count, *spec.shape, generator=torch.Generator().manual_seed(1))


def make(kind: type[nn.Module], **options: Any) -> nn.Module:
    torch.manual_seed(0)
    return kind(**options)


CUTS = [
    *[(Residual, cut) for cut in ("conv1", "bn1", "relu", "layer1", "layer1.0", "layer2", "layer2.1", "drop", "fc")],
    *[(Transformer, cut) for cut in ("patch_embed", "blocks", "blocks.0", "blocks.2", "norm")],
    *[(Branching, cut) for cut in ("stem", "meet", "fc")],
]


@pytest.mark.parametrize(("kind", "cut"), CUTS)
@pytest.mark.parametrize("training", [True, False])
def test_the_halves_are_the_network(kind: type[nn.Module], cut: str, training: bool) -> None:
    whole, network = make(kind).train(training), make(kind).train(training)
    client, server = split_at(network, cut)
    x = images()
    logits, expected = server(client(x)), whole(x)
    assert torch.equal(logits, expected)
    logits.square().sum().backward()
    expected.square().sum().backward()
    gradients = {name: parameter.grad for name, parameter in whole.named_parameters()}
    halves = [*client.named_parameters(), *server.named_parameters()]
    assert {name.removeprefix("network.") for name, _ in halves} == set(gradients)
    for name, parameter in halves:
        torch.testing.assert_close(parameter.grad, gradients[name.removeprefix("network.")])
    for name, value in [*client.state_dict().items(), *server.state_dict().items()]:
        torch.testing.assert_close(value, whole.state_dict()[name.removeprefix("network.")])


def test_the_mode_is_that_of_each_call() -> None:
    client, server = split_at(make(Residual, dropout=0.5), "layer2")
    z = client.eval()(images()).detach()
    torch.manual_seed(0)
    assert not torch.equal(server.train()(z), server(z)), "dropout is at work"
    assert torch.equal(server.eval()(z), server(z))


def test_a_layer_that_works_in_place_leaves_z_alone() -> None:
    client, server = split_at(make(Residual).eval(), "bn1")
    z = client(images())
    before = z.clone()
    server(z)
    assert bool((before < 0).any()) and torch.equal(z, before)


@pytest.mark.parametrize(
    ("network", "cut", "words"),
    [
        (Residual(), "layer9", ["model.cut=layer9", "no such module; did you mean layer", "conv1, bn1"]),
        (Residual(), "layer1.0.conv1", ["model.cut=layer1.0.conv1", "features of relu go around"]),
        (Residual(), "layer1.1.relu", ["calls this module 2 times, not once"]),
        (Branching(), "left", ["features of stem go around", "everything passes"]),
        (Branching(late=True), "meet", ["features of stem go around"]),
        (Odd("none"), "unused", ["model.cut=unused", "0 times"]),
        (Odd("twice"), "second", ["2 times"]),
        (Odd("shared"), "inner", ["uses first.weight, first.bias on both sides"]),
        (Odd("data"), "inner", ["cannot be traced", "outer module"]),
        (Odd("training"), "inner", ["another way in training"]),
    ],
)
def test_a_cut_that_cannot_be_is_explained(network: nn.Module, cut: str, words: list[str]) -> None:
    network.train()
    with pytest.raises(ConfigError) as caught:
        split_at(network, cut)
    for word in words:
        assert word in str(caught.value)
    assert network.training


# the libraries


class Calls:
    """What was asked of the fake libraries."""

    def __init__(self) -> None:
        self.given: list[dict[str, Any]] = []


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Fakes of timm and torchvision with the calls that are documented."""
    calls, kinds = Calls(), {"resnet_tiny": Residual, "vit_tiny": Transformer, "swin_tiny": ChannelsLast}

    def create_model(name: str, pretrained: bool = True, **options: Any) -> nn.Module:
        calls.given.append({"library": "timm", "name": name, "pretrained": pretrained, **options})
        assert not pretrained, "a download"
        return kinds[name](**options)

    def get_model(name: str, *, weights: Any = "DEFAULT", **options: Any) -> nn.Module:
        calls.given.append({"library": "torchvision", "name": name, "weights": weights, **options})
        assert weights is None, "a download"
        return kinds[name](**options)

    timm, torchvision = ModuleType("timm"), ModuleType("torchvision")
    timm.create_model, timm.is_model, timm.list_models = create_model, kinds.__contains__, lambda: list(kinds)
    torchvision.models = ModuleType("torchvision.models")
    torchvision.models.get_model = get_model
    torchvision.models.list_models = lambda module=None: list(kinds)
    monkeypatch.setitem(sys.modules, "timm", timm)
    monkeypatch.setitem(sys.modules, "torchvision", torchvision)
    return calls


def options(name: str, cut: str, **more: Any) -> ModelOptions:
    return ModelOptions.model_validate({"name": name, "cut": cut, **more})


def test_timm_is_asked_for_the_datas_sizes_and_no_weights(libraries: Calls) -> None:
    build_halves(GREY, options("timm/vit_tiny", "blocks.1", arguments={"img_size": 28}))
    expected = {"name": "vit_tiny", "pretrained": False, "num_classes": 10, "in_chans": 1, "img_size": 28}
    assert libraries.given == [{"library": "timm", **expected}]


def test_torchvision_is_asked_for_the_datas_classes_and_no_weights(libraries: Calls) -> None:
    build_halves(COLOUR, options("torchvision/resnet_tiny", "layer2"))
    assert libraries.given == [{"library": "torchvision", "name": "resnet_tiny", "weights": None, "num_classes": 7}]


@pytest.mark.parametrize(("name", "cut"), [("resnet_tiny", "layer2"), ("vit_tiny", "blocks.1")])
@pytest.mark.parametrize("library", LIBRARIES)
def test_without_bottleneck_it_is_the_librarys_network(libraries: Calls, library: str, name: str, cut: str) -> None:
    torch.manual_seed(0)
    plain = options(f"{library}/{name}", cut, bottleneck=None, sigmoid=False)
    client, server = build_halves(COLOUR, plain)
    whole = make({"resnet_tiny": Residual, "vit_tiny": Transformer}[name], num_classes=7)
    x = images()
    normalised = (x - torch.tensor(COLOUR.mean).view(-1, 1, 1)) / torch.tensor(COLOUR.std).view(-1, 1, 1)
    torch.testing.assert_close(server.eval()(client.eval()(x)), whole.eval()(normalised))


def test_bottleneck_and_sigmoid_are_put_at_the_cut(libraries: Calls) -> None:
    client, server = build_halves(COLOUR, options("timm/resnet_tiny", "layer2"))
    assert feature_shape(client, COLOUR.shape) == (8, 8, 8)
    z = client(images())
    assert bool(((z > 0) & (z < 1)).all())
    assert server(z).shape == (5, 7)
    client, server = build_halves(COLOUR, options("timm/vit_tiny", "blocks.1", bottleneck={"channels": 3}))
    assert feature_shape(client, COLOUR.shape) == (17, 3)
    assert server(client(images())).shape == (5, 7)


def test_a_grey_image_has_three_equal_channels_in_torchvision(libraries: Calls) -> None:
    plain = {"bottleneck": None, "sigmoid": False}
    torch.manual_seed(0)
    client, server = build_halves(GREY, options("torchvision/resnet_tiny", "layer1", **plain))
    whole = make(Residual, num_classes=10)
    x = images(GREY)
    expected = whole.eval()(((x - 0.3) / 0.4).repeat(1, 3, 1, 1))
    torch.testing.assert_close(server.eval()(client.eval()(x)), expected)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"name": "timm/resnet_tiy"}, ["model.name=timm/resnet_tiy", "no such classifier; did you mean resnet_tiny?"]),
        ({"name": "torchvision/zzz"}, ["torchvision has no such classifier"]),
        ({"name": "keras/resnet"}, ["model.name=keras/resnet is unknown", "timm/NAME or torchvision/NAME"]),
        ({"cut": 2}, ["model.cut=2", "no such module", "layer1"]),
        ({"width": 8}, ["model.width=8", "leave it null"]),
        ({"arguments": {"pretrained": True}}, ["model.arguments.pretrained", "downloaded", "model.init_from"]),
        ({"arguments": {"checkpoint_path": "x.pth"}}, ["model.arguments.checkpoint_path", "unpickled"]),
        ({"arguments": {"num_classes": 3}}, ["model.arguments.num_classes", "set from the data"]),
        ({"arguments": {"depth": 3}}, ["cannot be built with", "depth"]),
        (
            {"name": "timm/vit_tiny", "cut": "blocks.1", "bottleneck": {"stride": 2}},
            ["model.bottleneck.stride=2", "tokens", "use 1"],
        ),
        ({"cut": "drop"}, ["model.cut=drop", "model.bottleneck=null"]),
        ({"name": "timm/vit_tiny", "cut": "norm", "arguments": {"img_size": 32}}, ["[3, 16, 16]", "data.image_size"]),
    ],
)
def test_what_cannot_be_built_is_explained(libraries: Calls, given: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        build_halves(COLOUR, ModelOptions.model_validate({"name": "timm/resnet_tiny", "cut": "layer1", **given}))
    for word in words:
        assert word in str(caught.value)


# a library's network as the server of a lean client


def lean(server: str, **more: Any) -> ModelOptions:
    return ModelOptions.model_validate({"name": "lean", "macs": 3e5, "side": 4, "server": server, **more})


@pytest.mark.parametrize("spec", [COLOUR, GREY])
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_lean_clients_server_begins_behind_the_named_module(
    libraries: Calls, library: str, spec: DatasetSpec
) -> None:
    client, server = build_halves(spec, lean(f"{library}/resnet_tiny:layer2"))
    z = client(torch.rand(3, *spec.shape))
    assert z.shape == (3, 8, 4, 4)
    half = spec.shape[1] // 2
    assert server[0](z).shape == (3, 6, half, half), "as layer2 gives it"
    assert server(z).shape == (3, spec.num_classes)
    behind = {name.split(".")[2] for name, _ in server[1:].named_parameters()}
    assert behind == {"layer3", "fc"}, "nothing before the cut is trained"
    server(z).sum().backward()
    assert all(weight.grad is not None for weight in server.parameters())


def test_a_larger_z_is_not_reduced_for_a_librarys_server() -> None:
    x = images()
    assert torch.equal(Enlarge((8, 8))(x), x)
    assert torch.equal(Enlarge((32, 32))(x), x.repeat_interleave(2, 2).repeat_interleave(2, 3))
    assert torch.equal(Enlarge((8, 32))(x), x.repeat_interleave(2, 3)), "one side larger, the other smaller"


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ("timm/resnet_tiny", ["model.server=timm/resnet_tiny:", "no such module", "layer1", "resnet_tiny:MODULE"]),
        ("timm/resnet_tiny:layer9", ["model.server=timm/resnet_tiny:layer9", "did you mean layer"]),
        ("timm/resnet_tiy:layer2", ["model.server=timm/resnet_tiy", "did you mean resnet_tiny?"]),
        ("keras/resnet:layer2", ["model.server=keras/resnet is unknown"]),
        ("timm/vit_tiny:blocks.1", ["model.server=timm/vit_tiny:blocks.1", "not a map [C, H, W]"]),
        ("timm/resnet_tiny:fc", ["model.server=timm/resnet_tiny:fc", "not a map [C, H, W]"]),
        ("timm/swin_tiny:features.2", ["timm/swin_tiny:features.2", "gives [4, 4, 6] there, not a map [C, H, W]"]),
    ],
)
def test_a_librarys_server_that_cannot_be_is_explained(libraries: Calls, server: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        build_halves(COLOUR, lean(server))
    for word in words:
        assert word in str(caught.value)
    assert "model.name" not in str(caught.value) and "model.cut" not in str(caught.value)


def test_channels_last_have_no_head_for_the_client_alone(libraries: Calls) -> None:
    swin = options("timm/swin_tiny", "features.2", bottleneck=None)
    client, server = build_halves(COLOUR, swin)
    assert server(client(images())).shape == (5, 7), "a split client may give them"
    with pytest.raises(ConfigError, match=r"model\.cut=features\.2: timm/swin_tiny gives \[4, 4, 6\] there, with the"):
        build_on_device(COLOUR, swin)
    trunk, head = build_on_device(COLOUR, options("timm/swin_tiny", "features.0", bottleneck=None))
    assert head(trunk(images())).shape == (5, 7)


@pytest.mark.parametrize(
    ("feature", "image", "last"),
    [
        ((7, 7, 768), (3, 224, 224), True),
        ((768, 7, 7), (3, 224, 224), False),
        ((7, 7, 7), (3, 224, 224), False),
        ((8, 8, 16), (3, 32, 64), False),
        ((6, 12, 8), (3, 45, 90), True),
        ((7, 13, 96), (3, 50, 100), True),
        ((49, 768), (3, 224, 224), False),
    ],
)
def test_channels_last_are_told_by_the_proportions_of_the_image(
    feature: tuple[int, ...], image: tuple[int, int, int], last: bool
) -> None:
    assert channels_last(feature, image) == last


def test_a_librarys_server_takes_arguments(libraries: Calls) -> None:
    build_halves(COLOUR, lean("timm/resnet_tiny:layer2", arguments={"dropout": 0.5}))
    assert libraries.given[-1]["dropout"] == 0.5
    check_network(COLOUR, lean("timm/resnet_tiny:layer2"))


def test_a_network_without_logits_is_refused(libraries: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong, words in (
        ("tuple", "gives tuple, not one tensor"),
        ("none", "gives \\[4\\] for an image, not 7 logits"),
    ):
        monkeypatch.setattr(sys.modules["timm"], "create_model", lambda *_, wrong=wrong, **__: Odd(wrong))
        with pytest.raises(ConfigError, match=words):
            build_halves(COLOUR, options("timm/resnet_tiny", "inner", bottleneck=None))


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_missing_library_gives_a_command_that_keeps_torch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, library: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ConfigError) as caught:
        train("demo", {"model.name": f"{library}/resnet18", "model.cut": "layer1"}, out=tmp_path / "run")
    command = f'pip install "torch=={torch.__version__}" torchvision' + " timm" * (library == "timm")
    assert f"model.name={library}/resnet18 needs {library}, and {library} is not installed" in str(caught.value)
    assert str(caught.value).endswith(command), (
        "without its pin pip replaces torch by the one of the newest torchvision"
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("error", [RuntimeError("operator torchvision::nms does not exist"), ImportError("undefined")])
def test_a_torchvision_of_another_torch_is_named(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(name: str) -> ModuleType:
        raise error

    monkeypatch.setattr(foreign.importlib, "import_module", fail)
    with pytest.raises(ConfigError) as caught:
        build_halves(COLOUR, options("timm/resnet18", "layer1"))
    for word in (f"timm is installed but does not load with torch {torch.__version__} ({error})", "pip uninstall"):
        assert word in str(caught.value)


def test_no_extra_lets_pip_replace_torch() -> None:
    """torchvision pins torch exactly, and timm needs torchvision."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [line for lines in project["optional-dependencies"].values() for line in lines] + project["dependencies"]
    assert "ray>=2.50" in needed and not [line for line in needed if line.startswith(("timm", "torchvision"))]


def test_own_networks_take_no_arguments() -> None:
    with pytest.raises(ConfigError, match=r"model\.arguments: small_cnn takes none"):
        check(load_config("demo", ["model.arguments.depth=3"]).config)


def test_checking_leaves_the_random_state(libraries: Calls) -> None:
    state = torch.get_rng_state()
    check(load_config("demo", ["model.name=timm/resnet_tiny", "model.cut=layer1"]).config)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_foreign_network_is_trained_and_restored(libraries: Calls, tmp_path: Path, tiny: dict[str, Any]) -> None:
    settings = {**tiny, "model.width": None, "model.name": "torchvision/resnet_tiny", "model.cut": "layer2"}
    settings |= {"training.epochs": 1, "training.batch_size": 100}
    runs = [train("demo", settings, out=tmp_path / name, progress=silent) for name in ("a", "b")]
    first, second = (run.load("last").weights for run in runs)
    for part, values in first.items():
        assert all(torch.equal(value, second[part][key]) for key, value in values.items()), "the same seed"
    assert runs[0].manifest["feature_shape"] == [8, 7, 7]
    assert runs[0].manifest["client_macs"] > 0
    opened = open_run(runs[0])
    model, checkpoint = opened.model, opened.checkpoint
    assert torch.equal(
        model.encoder.state_dict()["1.1.network.conv1.weight"], first["client"]["1.1.network.conv1.weight"]
    )
    assert model.predict(model.encode(images(GREY))).shape == (5, 10)
    assert checkpoint.name == "epoch-00001"
