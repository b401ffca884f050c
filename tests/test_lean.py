"""The network family lean: plans by arithmetic, the networks that they become, and their servers."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from attncem.base.types import ConfigError, DatasetSpec
from attncem.config.options.channels import IdentityOptions
from attncem.config.options.model import ModelOptions
from attncem.models.channels import IdentityChannel
from attncem.models.cost import count_cost
from attncem.models.lean import LeanBlock, lean_classifier, plan, plan_of, trunk
from attncem.models.lean_plan import LeanPlan, allowed_sides, default_side
from attncem.models.lean_servers import BLOCKS, WIDTH, server_of
from attncem.models.networks import ARCHITECTURES, build_halves
from attncem.models.onnx_export import export_onnx
from attncem.models.onnx_file import read_onnx
from attncem.models.onnx_network import OnnxNetwork
from attncem.models.resnet import BasicBlock
from attncem.models.split import SplitModel, count_parameters
from attncem.models.vgg import Halve
from attncem.records.runs import RunDirectory
from attncem.training.initial import start_line

Shape = tuple[int, int, int]
SHAPES = [(channels, side, side) for channels in (1, 3) for side in (28, 32, 48, 64, 79, 80, 87, 95, 96)]
BUDGETS = [3e5 * 400 ** (step / 24) for step in range(25)]
SERVERS = [name for name in ARCHITECTURES if name != "lean"]


def spec(shape: Shape, classes: int = 10) -> DatasetSpec:
    return DatasetSpec("any", shape, classes, mean=(0.5,) * shape[0], std=(0.25,) * shape[0])


def options(macs: float = 4e6, **more: Any) -> ModelOptions:
    return ModelOptions.model_validate({"name": "lean", "macs": macs, **more})


def split(shape: Shape, chosen: ModelOptions) -> SplitModel:
    client, server = build_halves(spec(shape), chosen)
    return SplitModel(client, IdentityChannel(IdentityOptions()), server)


def widths(made: LeanPlan) -> list[int]:
    return [made.stem, *(stage[-1].outputs for stage in made.stages)]


# plans


@pytest.mark.parametrize("shape", SHAPES)
def test_a_plan_uses_the_budget_at_every_side_and_never_more(shape: Shape) -> None:
    for side, channels, macs in itertools.product(allowed_sides(shape), (1, 8), BUDGETS):
        made = plan(shape, macs, side, channels)
        assert 0.97 * int(macs) <= made.macs <= int(macs), (side, channels, macs)
        assert (max(made.size), made.channels) == (side, channels)
        assert all(one.outputs == other.inputs for one, other in itertools.pairwise(made.blocks))


@given(
    st.tuples(st.integers(1, 4), st.integers(5, 130), st.integers(5, 130)),
    st.floats(2, 9),
    st.integers(0, 9),
    st.integers(1, 64),
)
@settings(max_examples=60, deadline=None)
def test_any_budget_is_used_or_refused_with_one_that_is(shape: Shape, power: float, which: int, channels: int) -> None:
    sides = allowed_sides(shape)
    side, macs = sides[which % len(sides)], 10**power
    try:
        made = plan(shape, macs, side, channels)
    except ConfigError as error:
        named = re.search(r"(?:use model\.macs=|st possible is )(\d+)", str(error))
        assert named, error
        macs = int(named[1])
        made = plan(shape, macs, side, channels)
    assert 0.97 * int(macs) <= made.macs <= macs
    assert made == plan(shape, macs, side, channels)


def test_the_smallest_possible_budget_is_the_smallest() -> None:
    with pytest.raises(ConfigError, match=r"model\.macs=100: too small for images of 3×32×32 and z of 8×4×4; .*3872$"):
        plan((3, 32, 32), 100, 4)
    assert plan((3, 32, 32), 3872, 4).macs == 3872
    with pytest.raises(ConfigError, match="too small"):
        plan((3, 32, 32), 3871, 4)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (3, 64, 64), (3, 96, 96)])
def test_with_the_budget_grow_cost_and_depth(shape: Shape) -> None:
    made = [plan(shape, 3e5 * 1.04**step, allowed_sides(shape)[0]) for step in range(150)]
    assert all(one.macs < other.macs for one, other in itertools.pairwise(made))
    for _, same in itertools.groupby(made, key=lambda it: (it.pooled, it.stem_stride)):
        apart = list(same)[::12]
        assert all(len(one.blocks) <= len(other.blocks) for one, other in itertools.pairwise(apart))
        assert all(one.width <= other.width for one, other in itertools.pairwise(apart))


def test_plans_are_near_those_that_were_measured() -> None:
    """At 32 px the prototypes were 24-32-64-96, 16-24-48-64, and 12-16-32-48 behind a stem of stride 2.

    The last stages of the first two are wider here.
    """
    large, half, quarter = (plan((3, 32, 32), macs) for macs in (21.23e6, 10.4e6, 3.8e6))
    assert (widths(large), large.stem_stride) == ([24, 32, 64, 104], 1)
    assert [len(stage) for stage in large.stages] == [3, 4, 4]
    assert (widths(half), half.stem_stride) == ([16, 24, 48, 72], 1)
    assert (widths(quarter), quarter.stem_stride) == ([12, 16, 32, 48], 2)
    assert [len(stage) for stage in quarter.stages] == [2, 3, 3]


@pytest.mark.parametrize(
    ("shape", "macs", "path"),
    [
        ((3, 32, 32), 1e6, "3×32×32 → 10×16×16 → 1 × 12×16×16 → 2 × 20×8×8 → z 8×8×8"),
        ((3, 32, 32), 4e6, "3×32×32 → 12×16×16 → 2 × 16×16×16 → 3 × 32×8×8 → 3 × 56×4×4 → z 8×4×4"),
        ((3, 32, 32), 21.23e6, "3×32×32 → 24×32×32 → 3 × 32×16×16 → 4 × 64×8×8 → 4 × 104×4×4 → z 8×4×4"),
        ((1, 28, 28), 1.2e6, "1×28×28 → 8×14×14 → 1 × 12×14×14 → 2 × 24×7×7 → 2 × 32×4×4 → z 8×4×4"),
        ((3, 64, 64), 1e6, "3×64×64 → 3×32×32 → 10×16×16 → 1 × 12×16×16 → 2 × 20×8×8 → z 8×8×8"),
        (
            (3, 64, 64),
            21e6,
            "3×64×64 → 16×32×32 → 1 × 20×32×32 → 2 × 32×16×16 → 4 × 64×8×8 → 4 × 88×4×4 → z 8×4×4",
        ),
        ((3, 96, 96), 21e6, "3×96×96 → 10×48×48 → 1 × 12×48×48 → 2 × 20×24×24 → 4 × 40×12×12 → 4 × 64×6×6 → z 8×6×6"),
    ],
)
def test_plans_stay_as_they_are(shape: Shape, macs: float, path: str) -> None:
    """A run folder holds the budget and not the widths: with other plans its weights would not load."""
    assert plan(shape, macs).path == path


def test_the_hidden_channels_are_as_many_as_the_page_says() -> None:
    plans = [plan(shape, macs) for shape, macs in itertools.product(SHAPES, BUDGETS)]
    first = [made.blocks[0].hidden / made.blocks[0].inputs for made in plans]
    others = [block.hidden / block.inputs for made in plans for block in made.blocks[1:]]
    assert [round(it, 1) for it in (min(first), max(first), min(others), max(others))] == [2.7, 5.3, 3.7, 7.5]


def test_hidden_channels_stay_as_they_are() -> None:
    hidden = [[block.hidden for block in stage] for stage in plan((3, 32, 32), 4e6).stages]
    assert hidden == [[40, 64], [64, 128, 120], [128, 216, 216]]


@pytest.mark.parametrize(
    ("shape", "macs", "side"),
    [
        ((1, 28, 28), 1.2e6, 4),
        ((1, 28, 28), 1.1e6, 7),
        ((3, 32, 32), 2e6, 4),
        ((3, 32, 32), 1e6, 8),
        ((3, 64, 64), 4e6, 4),
        ((3, 64, 64), 1e6, 8),
        ((3, 96, 96), 21e6, 6),
        ((3, 40, 64), 21e6, 4),
        ((3, 9, 9), 1e6, 3),
    ],
)
def test_the_side_is_about_4_and_larger_for_a_poor_client(shape: Shape, macs: float, side: int) -> None:
    assert default_side(shape, macs) == side == plan(shape, macs).side


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"macs": None}, r"model\.macs=null: lean needs the client's budget .* e\.g\. model\.macs=4e6"),
        (
            {"macs": 100},
            r"model\.macs=100: too small for images of 3×32×32 and z of 8×8×8; the smallest possible is 15440",
        ),
        ({"macs": 1e11}, r"model\.macs=100000000000: larger than any lean client; the largest possible is \d+"),
        ({"side": 5}, r"model\.side=5: two strides of 2 or more do not reach it .* allowed: 8, 4, 2"),
        ({"side": 16}, r"model\.side=16: .* allowed: 8, 4, 2"),
        ({"side": 64}, r"model\.side=64: .* allowed: 8, 4, 2"),
        ({"width": 16}, r"model\.width=16: lean chooses its widths by model\.macs; leave it null"),
        ({"blocks": 3}, r"model\.blocks=3: lean has a fixed number"),
        ({"extra_layer": True}, r"model\.extra_layer=true: lean has none"),
        ({"cut": 1}, r"model\.cut=1: lean can be cut after 2 \(trunk\)"),
        ({"cut": "stem"}, r"model\.cut=stem: lean can be cut after 2 \(trunk\)"),
        ({"bottleneck": None}, r"model\.bottleneck=null: lean narrows z itself"),
        (
            {"bottleneck": {"kernel": 1}},
            r"bottleneck\.kernel=1: .* model\.channels; use model\.bottleneck\.kernel=3",
        ),
        ({"server": "vgg"}, r"model\.server=vgg is unknown; did you mean vgg11_bn\?"),
        ({"server": "lean"}, r"model\.server=lean is unknown .*small, small_cnn"),
        ({"server": ""}, r"model\.server is empty: name a server, or leave it null"),
        ({"arguments": {"depth": 3}}, r"model\.arguments: small takes none"),
        ({"arguments": {"depth": 3}, "server": "vgg11_bn"}, r"model\.arguments: vgg11_bn takes none"),
        ({"pruning": {}}, r"model\.pruning: .* LeanBlock"),
        ({"name": "vgg11_bn"}, r"model\.macs=4000000\.0: only lean has it, vgg11_bn does not: leave it null"),
        ({"name": "small_cnn", "macs": None, "side": 4}, r"model\.side=4: only lean has it, small_cnn does not"),
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_halves(spec((3, 32, 32)), ModelOptions.model_validate({"name": "lean", "macs": 4e6, **wrong}))


def test_impossible_arguments_of_a_plan_are_refused() -> None:
    for wrong, message in (
        ({"channels": 0}, r"model\.channels=0: z needs 1 channel or more"),
        ({"macs": 0}, r"model\.macs=0: the budget must be a positive number"),
        ({"macs": float("nan")}, r"model\.macs=nan"),
        ({"shape": (3, 4, 4)}, r"images of 3×4×4 are too small to be halved twice"),
    ):
        with pytest.raises(ConfigError, match=message):
            plan(**{"shape": (3, 32, 32), "macs": 4e6, **wrong})


# networks


NETWORKS: list[tuple[Shape, dict[str, Any]]] = [
    ((3, 32, 32), {"macs": 21.23e6}),
    ((3, 32, 32), {"macs": 1e6, "channels": 3, "side": 2}),
    ((1, 28, 28), {"macs": 1.2e6, "server": "small_cnn"}),
    ((1, 28, 28), {"macs": 3e5, "front_end": {"name": "local_contrast"}}),
    ((3, 64, 64), {"macs": 1e6, "sparse_coding": {}}),
    ((3, 96, 96), {"macs": 120e6, "side": 24}),
    ((3, 96, 96), {"macs": 3e5}),
    ((3, 95, 95), {"macs": 3e5}),
    ((3, 81, 93), {"macs": 3e5}),
    ((1, 5, 130), {"macs": 3e4}),
    ((3, 45, 70), {"macs": 7e6}),
]


@pytest.mark.parametrize(("shape", "more"), NETWORKS)
def test_the_network_costs_exactly_what_its_plan_says(shape: Shape, more: dict[str, Any]) -> None:
    chosen = options(**more)
    made = plan_of(spec(shape), chosen)
    with torch.device("meta" if chosen.front_end.name == "none" else "cpu"):
        model = split(shape, chosen)
        cost = count_cost(model, shape)
        z = model.eval().encode(torch.zeros(1, *shape))
    assert cost.client_macs == made.macs <= made.budget
    assert tuple(z.shape[1:]) == (made.channels, *made.size)


def test_a_step_reads_nothing_on_the_host() -> None:
    """On the meta device, which has no values to read; so a step can be captured."""
    with torch.device("meta"):
        model = split((3, 32, 32), options()).train()
        model(torch.zeros(4, 3, 32, 32)).sum().backward()
    assert all(weight.grad is not None for weight in model.parameters())


def test_the_client_alone_costs_exactly_what_its_plan_says() -> None:
    data = spec((3, 32, 32), 7)
    made = plan(data.shape, 4e6, classes=7)
    with torch.device("meta"):
        encoder, head = lean_classifier(data, made)
        cost = count_cost(SplitModel(encoder, IdentityChannel(IdentityOptions()), head), data.shape)
        assert head(encoder(torch.zeros(2, 3, 32, 32))).shape == (2, 7)
    assert (cost.client_macs or 0) + cost.server_macs == made.macs <= 4e6
    assert made.use >= 0.97
    assert made.path.endswith("× 56×4×4 → 7")
    with pytest.raises(ValueError, match="for 0 classes, not 7"):
        lean_classifier(data, plan(data.shape, 4e6))
    with pytest.raises(ValueError, match="images of"):
        trunk((1, 32, 32), made)


def test_a_block_adds_its_input_where_it_can() -> None:
    torch.manual_seed(0)
    first, second = (LeanBlock(block).eval() for block in plan((3, 32, 32), 4e6).blocks[2:4])
    x, y = torch.randn(2, 16, 8, 8), torch.randn(2, 32, 4, 4)
    with torch.no_grad():
        assert torch.equal(first(x), first.body(x)) and first(x).shape == (2, 32, 4, 4)
        assert torch.equal(second(y), y + second.body(y))


def exported_alike(shape: Shape, more: dict[str, Any]) -> None:
    torch.manual_seed(0)
    client = split(shape, options(**more)).encoder
    x = torch.rand(8, *shape)
    for _ in range(3):
        client.train()(x)  # else the statistics would be those of no data
    with torch.no_grad():
        z, exported = client.eval()(x), OnnxNetwork(read_onnx_bytes(export_onnx(client, x)))(x)
    assert float((exported - z).abs().max()) <= 1e-5 * float(z.abs().max())


def read_onnx_bytes(data: bytes) -> Any:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "client.onnx"
        file.write_bytes(data)
        return read_onnx(file)


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "more"), NETWORKS)
def test_every_client_as_onnx_gives_the_same_z(shape: Shape, more: dict[str, Any]) -> None:
    exported_alike(shape, more)


# servers


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (3, 64, 64)])
@pytest.mark.parametrize("server", ["small", *SERVERS])
def test_every_server_answers_from_every_z(shape: Shape, server: str) -> None:
    for side, channels in zip(allowed_sides(shape), itertools.cycle((1, 8))):
        z = (channels, side, side)
        with torch.device("meta"):
            whole = server_of(spec(shape), options(server=server), z, ARCHITECTURES)
            answers = nn.Sequential(*(module for _, module, _ in whole.stages), whole.head).eval()
            assert answers(torch.zeros(2, *z)).shape == (2, 10)


def test_the_default_server_is_small() -> None:
    client, server = build_halves(spec((3, 32, 32)), options())
    weights = 9 * 8 * WIDTH + BLOCKS * 2 * 9 * WIDTH * WIDTH + 2 * WIDTH * (1 + 2 * BLOCKS)
    assert count_parameters(server) == weights + WIDTH * 10 + 10
    assert sum(isinstance(module, BasicBlock) for module in server.modules()) == BLOCKS
    named = build_halves(spec((3, 32, 32)), options(server="small"))[1]
    assert [value.shape for value in named.parameters()] == [value.shape for value in server.parameters()]
    assert count_parameters(client) < 140_000


@pytest.mark.parametrize(("side", "inside"), [(8, 8), (16, 8), (24, 6), (4, 4)])
def test_the_small_server_works_on_8_by_8_at_most(side: int, inside: int) -> None:
    image = 4 * side
    with torch.device("meta"):
        client, server = build_halves(spec((3, image, image)), options(side=side))
        assert server[0](client(torch.zeros(2, 3, image, image))).shape[2:] == (inside, inside)


@pytest.mark.parametrize(("side", "poolings"), [(8, 3), (4, 2), (2, 1)])
def test_vggs_server_begins_at_its_third_convolution_without_needless_pooling(side: int, poolings: int) -> None:
    _, server = build_halves(spec((3, 32, 32)), options(server="vgg11_bn", side=side))
    convolutions = [(it.in_channels, it.out_channels) for it in server.modules() if isinstance(it, nn.Conv2d)]
    assert convolutions == [(8, 128), (128, 256), (256, 256), *[(256, 512)], *[(512, 512)] * 3]
    assert sum(isinstance(module, Halve) for module in server.modules()) == poolings


@pytest.mark.parametrize(("side", "sizes"), [(8, [8, 8, 4, 4]), (4, [4, 4, 4, 4])])
def test_a_residual_server_loses_the_strides_that_z_does_not_need(side: int, sizes: list[int]) -> None:
    with torch.device("meta"):
        client, server = build_halves(spec((3, 32, 32)), options(server="resnet18", side=side))
        x, seen = client(torch.zeros(2, 3, 32, 32)), []
        for stage in server[:-1]:
            x = stage(x)
            seen.append(x.shape[-1])
    assert seen == sizes


@pytest.mark.parametrize("side", [36, 45])
def test_a_server_that_does_not_take_the_images_is_named(side: int) -> None:
    with pytest.raises(ConfigError, match=rf"model\.server=vit_tiny: {side}x{side} images do not divide"):
        build_halves(spec((3, side, side)), options(server="vit_tiny"))


def test_a_plugins_server_takes_no_arguments_either() -> None:
    table = {"somebodys": ARCHITECTURES["small_cnn"]}
    with pytest.raises(ConfigError, match=r"model\.arguments: somebodys takes none"):
        server_of(spec((3, 32, 32)), options(server="somebodys", arguments={"depth": 3}), (8, 4, 4), table)


def test_a_server_of_tokens_takes_each_pixel_of_z_as_one() -> None:
    client, server = build_halves(spec((3, 32, 32)), options(server="vit_tiny"))
    assert server[0](client(torch.rand(2, 3, 32, 32))).shape == (2, 16, 192)


# runs


def test_a_run_says_its_plan(small_run: Callable[..., Path]) -> None:
    lean = {"model.name": "lean", "model.macs": 3e5, "model.width": None, "model.bottleneck.stride": 1}
    lean |= {"model.server": "resnet20", "training.epochs": 1}
    run = RunDirectory.open(small_run("demo-none", **lean))
    made = plan((1, 28, 28), 3e5)
    assert run.manifest["plan"] == {"macs": made.macs, "budget": 300_000, "path": made.path}
    assert (run.manifest["client_macs"], run.manifest["feature_shape"]) == (made.macs, [8, 7, 7])
    assert made.describe() in start_line(run, run.config, 0)
