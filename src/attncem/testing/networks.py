"""The contract of networks: check_network(), and its laws one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

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
from attncem.testing.laws import check_laws, holds

GREY = DatasetSpec("grey", (1, 28, 28), 10, mean=(0.3,), std=(0.4,))
COLOUR = DatasetSpec("colour", (3, 32, 32), 7, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))
CUTTINGS = {
    "grey": (GREY, True, BottleneckOptions()),
    "colour-none": (COLOUR, False, None),
    "colour-other": (COLOUR, True, BottleneckOptions(channels=5, stride=2, kernel=1, relu=True)),
}
"""Data, sigmoid and bottleneck: the ways in which a network is cut."""


class NetworkCase:
    """A network by name at one cut, with options such as its width."""

    def __init__(self, name: str, cut: str | None = None, **options: Any) -> None:
        self.name, self.cut, self.options = name, cut, options

    def whole(self, spec: DatasetSpec = GREY, options: ModelOptions | None = None) -> Architecture:
        """The network before it is cut."""
        return ARCHITECTURES[self.name](spec, options or ModelOptions(name=self.name, **self.options))

    @property
    def cuts(self) -> list[str]:
        """The cut, or all of them."""
        with torch.device("meta"):
            return [self.cut] if self.cut is not None else self.whole().cut_names()

    def at(self, cut: str, **options: Any) -> ModelOptions:
        """The options of the network at a cut."""
        return ModelOptions.model_validate({"name": self.name, "cut": cut, **self.options, **options})

    def model(self, spec: DatasetSpec, options: ModelOptions, seed: int = 0) -> SplitModel:
        """A split model with the weights of a seed."""
        torch.manual_seed(seed)
        client, server = build_halves(spec, options)
        return SplitModel(client, IdentityChannel(IdentityOptions()), server)


def images(spec: DatasetSpec, count: int = 3) -> Tensor:
    """Random images of a data set's shape."""
    return torch.rand(count, *spec.shape, generator=torch.Generator().manual_seed(1))


def unsplit(case: NetworkCase, spec: DatasetSpec, options: ModelOptions, split: SplitModel) -> nn.Sequential:
    """The network built anew in one piece, the layers of the cut between its stages, with the split's weights."""
    network = case.whole(spec, options)
    position = next(number for number, name in network.cuts().items() if name == options.cut)
    stages = [module for _, module, _ in network.stages]
    width, between = network.stages[position - 1][2], list[nn.Module]()
    b = options.bottleneck if network.only_cut is None else None
    tokens = network.features == "tokens"
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
    for part, other in zip(whole, [*split.encoder, *split.server], strict=True):
        part.load_state_dict(other.state_dict())
    return whole


# laws


def stage_names_are_unique_and_no_numbers(case: NetworkCase) -> None:
    """The stages have different names, which are no numbers, and there are two or more."""
    with torch.device("meta"):
        names = [stage for stage, _, _ in case.whole().stages]
    holds(len(names) > 1, "there are fewer: it cannot be cut")
    holds(len(set(names)) == len(names), f"they are {', '.join(names)}")
    holds(not [stage for stage in names if stage.isdecimal()], f"they are {', '.join(names)}")


def the_halves_are_the_unsplit_network(case: NetworkCase) -> None:
    """At every cut, client and server together compute what the whole network does."""
    for cut in case.cuts:
        for cutting in CUTTINGS:
            equals_the_unsplit_network(case, cut, cutting)


def equals_the_unsplit_network(case: NetworkCase, cut: str, cutting: str) -> None:
    """The same at one cut, in one of CUTTINGS."""
    spec, sigmoid, bottleneck = CUTTINGS[cutting]
    with torch.device("meta"):
        whole = case.whole(spec)
    tokens = whole.features == "tokens"
    if whole.only_cut is not None:
        bottleneck = BottleneckOptions()  # the client narrows z itself
    if bottleneck is not None and tokens:
        bottleneck = bottleneck.model_copy(update={"stride": 1})
    options = case.at(cut, bottleneck=bottleneck, sigmoid=sigmoid)
    split = case.model(spec, options).eval()
    network = unsplit(case, spec, options, split).eval()
    x = images(spec)
    with torch.no_grad():
        z, logits = split.encode(x), split(x)
        holds(torch.equal(split.predict(z), logits), f"cut {cut}: the server's answer on z is not the model's")
        torch.testing.assert_close(logits, network(x), rtol=1e-5, atol=1e-6)
    holds(logits.shape == (3, spec.num_classes), f"cut {cut}: logits have the shape {list(logits.shape)}")
    holds(not sigmoid or (z.min() >= 0 and z.max() <= 1), f"cut {cut}: z leaves [0, 1]")
    width = z.shape[2 if tokens else 1]
    holds(bottleneck is None or width == bottleneck.channels, f"cut {cut}: z has {width} channels")


def the_feature_has_one_shape_whatever_the_batch(case: NetworkCase) -> None:
    """The shape of z does not depend on the batch, and a single image works in evaluation mode."""
    for cut in case.cuts:
        torch.manual_seed(0)
        client, _ = build_halves(GREY, case.at(cut))
        shape = feature_shape(client, GREY.shape)
        with torch.device("meta"):
            dimensions = 2 if case.whole().features == "tokens" else 3
        holds(len(shape) == dimensions, f"cut {cut}: z has the shape {list(shape)}; see `features` of Architecture")
        shapes = [client(images(GREY, count)).shape for count in (2, 3)] + [client.eval()(images(GREY, 1)).shape]
        holds(shapes == [(count, *shape) for count in (2, 3, 1)], f"cut {cut}: z has the shapes {shapes}")


def it_stays_finite_in_bf16(case: NetworkCase) -> None:
    """Under autocast to bfloat16, answers and the gradients of all weights are finite."""
    for cut in case.cuts:
        split = case.model(GREY, case.at(cut))
        with torch.autocast("cpu", torch.bfloat16):
            logits = split(images(GREY, 4))
            loss = nn.functional.cross_entropy(logits.float(), torch.arange(4))
        loss.backward()
        holds(logits.isfinite().all(), f"cut {cut}: logits are not finite")
        bad = [name for name, p in split.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
        holds(not bad, f"cut {cut}: weights without a finite gradient: {', '.join(bad)}")


def a_seed_gives_the_weights_and_a_state_gives_the_model(case: NetworkCase) -> None:
    """A seed determines the weights, and the state_dict the answers."""
    for cut in case.cuts:
        options = case.at(cut)
        one, same, other = (case.model(GREY, options, seed) for seed in (0, 0, 1))
        holds(_equal(one, same), f"cut {cut}: the same seed gives other weights")
        holds(not _equal(one, other), f"cut {cut}: another seed gives the same weights")
        other.load_state_dict(one.state_dict())
        x = images(GREY)
        with torch.no_grad():
            holds(torch.equal(one.eval()(x), other.eval()(x)), f"cut {cut}: the same state answers otherwise")


def _equal(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(*pair) for pair in pairs)


def an_unknown_cut_lists_the_cuts(case: NetworkCase) -> None:
    """A cut that does not exist is refused with the names of those that do."""
    with torch.device("meta"):
        cuts = case.whole().cuts()
    for cut in ("head", "0", "99"):
        try:
            build_halves(GREY, case.at(cut))
        except ConfigError as error:
            words = f"model.cut={cut}: {case.name} can be cut after"
            listed = ", ".join(f"{number} ({name})" for number, name in cuts.items())
            holds(words in str(error) and listed in str(error), f"the error is: {error}")
        else:
            raise AssertionError(f"the cut {cut} is accepted")


LAWS = (
    stage_names_are_unique_and_no_numbers,
    the_halves_are_the_unsplit_network,
    the_feature_has_one_shape_whatever_the_batch,
    it_stays_finite_in_bf16,
    a_seed_gives_the_weights_and_a_state_gives_the_model,
    an_unknown_cut_lists_the_cuts,
)
"""The laws of every network."""


def check_network(
    function: Callable[[DatasetSpec, ModelOptions], Architecture], options: Mapping[str, Any] | None = None
) -> None:
    """Check a registered network at every cut; ContractError names every broken law.

    ``options`` are options of ``model``; a small ``width`` makes the check quick.
    """
    check_laws(function.__name__, LAWS, NetworkCase(function.__name__, **(options or {})))
