"""Classifiers of other libraries, and any other module, cut at a named module into client and server."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, fx, nn

from attncem.base.types import ConfigError, DatasetSpec
from attncem.config.loading.suggest import did_you_mean, nearest
from attncem.config.options.model import ModelOptions
from attncem.models.architecture import Architecture
from attncem.models.split import evaluation

LIBRARIES = ("timm", "torchvision")
"""Prefixes before the / of a network's name."""
_OURS = ("num_classes", "in_chans")
_LOADING = ("pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "weights", "weights_backbone", "checkpoint_path")
_SHOWN = 40
"""Largest number of module names in an error."""


class RepeatChannel(nn.Module):
    """A grey image as three equal channels."""

    def forward(self, x: Tensor) -> Tensor:
        """[B, 1, H, W] to [B, 3, H, W]."""
        return x.expand(-1, 3, -1, -1)


class _Whole(nn.Module):
    """Calls the network with the images alone: its other arguments keep their defaults."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.training = network.training

    def forward(self, x: Tensor) -> Any:
        """The network's output."""
        return self.network(x)


class _PathTracer(fx.Tracer):
    """Traces only the modules that contain the cut; every other module stays a single call."""

    def __init__(self, cut: str) -> None:
        super().__init__()
        self.cut = cut

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether the module stays a single call."""
        return not self.cut.startswith(f"{module_qualified_name}.")


def foreign_architecture(spec: DatasetSpec, options: ModelOptions) -> Architecture:
    """The network LIBRARY/NAME as two stages, before and after the module that model.cut names; random weights."""
    if options.width is not None:
        raise ConfigError(f"model.width={options.width}: {options.name} has its own widths; leave it null")
    client, server, z = _halves(spec, options)
    stages = ((str(options.cut), client, _width(z, options)), ("rest", server, 0))
    return Architecture(stages, nn.Identity(), features="tokens" if z.ndim == 3 else "map")


def foreign_server(spec: DatasetSpec, options: ModelOptions) -> tuple[nn.Module, Tensor]:
    """The part of LIBRARY/NAME behind the module model.cut, and what that module gives for two blank images."""
    _, server, z = _halves(spec, options)
    return server, z


def _halves(spec: DatasetSpec, options: ModelOptions) -> tuple[nn.Module, nn.Module, Tensor]:
    """Both sides of the cut, and the feature of two blank images."""
    network = _build(spec, options)
    client, server = split_at(network, str(options.cut), name=options.name)
    if spec.shape[0] == 1 and options.name.startswith("torchvision/"):
        client = nn.Sequential(RepeatChannel(), client)
    z, logits = _try(client, server, spec, options)
    if logits.shape != (2, spec.num_classes):
        raise ConfigError(
            f"model.name={options.name}: gives {list(logits.shape[1:])} for an image, not {spec.num_classes} logits"
        )
    return client, server, z


def split_at(network: nn.Module, cut: str, *, name: str = "the network") -> tuple[nn.Module, nn.Module]:
    """Client and server of any classifier: everything up to and including the module `cut`, and the rest.

    server(client(x)) equals network(x), with the same weights. torch.fx traces the forward functions of the modules
    that contain `cut`. ConfigError for an impossible cut: a module that is unknown, not called exactly once, bypassed
    by other features, or whose parents behave differently in training.
    """
    modules = [path for path, _ in network.named_modules() if path]
    if cut not in modules:
        outer = ", ".join([path for path in modules if path.count(".") < 2][:_SHOWN])
        guess = did_you_mean(nearest(cut, modules))
        raise ConfigError(f"model.cut={cut}: {name} has no such module{guess} (some of them: {outer})")
    whole = _Whole(network)
    graph = _trace(whole, f"network.{cut}", name)
    called = [node for node in graph.nodes if node.op == "call_module" and node.target == f"network.{cut}"]
    if len(called) != 1:
        raise ConfigError(f"model.cut={cut}: {name} calls this module {len(called)} times, not once")
    before = _needed(called[0], None)
    after = _needed(graph.output_node(), called[0])
    if any(node.op == "placeholder" for node in after):
        crossing = [node for node in after & before if any(user in after - before for user in node.users)]
        sources = ", ".join(sorted(str(node.target).removeprefix("network.") for node in crossing))
        raise ConfigError(
            f"model.cut={cut}: in {name} features of {sources} go around this module; "
            "cut at one through which everything passes"
        )
    client = fx.GraphModule(whole, _client_graph(graph, before, called[0]))
    server = fx.GraphModule(whole, _server_graph(graph, after, called[0]))
    _refuse_shared(client, server, cut, name)
    return client, server


def _build(spec: DatasetSpec, options: ModelOptions) -> nn.Module:
    """The unsplit network, by its library's documented call."""
    library, _, name = options.name.partition("/")
    if library not in LIBRARIES:
        allowed = " or ".join(f"{known}/NAME" for known in LIBRARIES)
        raise ConfigError(f"model.name={options.name} is unknown (a network of another library is {allowed})")
    _check_arguments(options.arguments)
    package = _import(library, options.name)
    arguments: dict[str, Any] = {"num_classes": spec.num_classes, **options.arguments}
    if library == "timm":
        _check_name(options.name, package.is_model(name), package.list_models())
        build, arguments = package.create_model, {"pretrained": False, "in_chans": spec.shape[0], **arguments}
    else:
        names = package.models.list_models(module=package.models)
        _check_name(options.name, name in names, names)
        build, arguments = package.models.get_model, {"weights": None, **arguments}
    try:
        network: nn.Module = build(name, **arguments)
    except (TypeError, ValueError, AssertionError) as error:
        raise ConfigError(f"model.name={options.name} cannot be built with {arguments}: {error}") from error
    return network


def _import(library: str, name: str) -> ModuleType:
    """The library; ConfigError with a command that keeps torch, which torchvision's exact pin replaces."""
    pinned = f'"torch=={torch.__version__}" torchvision'
    try:
        return importlib.import_module(library)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"model.name={name} needs {library}, and {error.name} is not installed. Name your torch in the command, or "
            f"pip replaces it by another version: pip install {pinned}{' timm' if library == 'timm' else ''}"
        ) from error
    except (ImportError, RuntimeError) as error:  # torchvision raises the latter with an incompatible torch
        raise ConfigError(
            f"model.name={name}: {library} is installed but does not load with torch {torch.__version__} ({error}). "
            "Remove torchvision and install the one of this torch, from the index that torch came from: "
            f"pip uninstall torchvision, then pip install {pinned} --index-url INDEX"
        ) from error


def _check_name(full: str, found: bool, names: list[str]) -> None:
    library, _, name = full.partition("/")
    if not found:
        guess = nearest(name, names)
        raise ConfigError(f"model.name={full}: {library} has no such classifier{did_you_mean(guess)}")


def _check_arguments(arguments: Mapping[str, Any]) -> None:
    """Reject arguments for sizes, which the data sets, and for weights: nothing is downloaded or unpickled."""
    for key in arguments:
        if key in _OURS:
            raise ConfigError(f"model.arguments.{key}: is set from the data")
        if key in _LOADING:
            raise ConfigError(f"model.arguments.{key}: no weights are downloaded or unpickled; see model.init_from")


def _trace(whole: nn.Module, cut: str, name: str) -> fx.Graph:
    """The graph of the modules that contain the cut, the same in training and evaluation."""
    try:
        with evaluation(whole):
            graphs = [_PathTracer(cut).trace(whole.train(training)) for training in (True, False)]
    except Exception as error:  # a forward that cannot be traced may fail in any way
        first_line = str(error).partition("\n")[0]
        shown = cut.removeprefix("network.")
        raise ConfigError(
            f"model.cut={shown}: the forward of {name} around it cannot be traced ({first_line}); try an outer module"
        ) from error
    if str(graphs[0]) != str(graphs[1]):
        raise ConfigError(
            f"model.name={name}: its forward takes another way in training than in evaluation, so it cannot be split"
        )
    return graphs[0]


def _needed(last: fx.Node, stop: fx.Node | None) -> set[fx.Node]:
    """The nodes that `last` is computed from, including itself; stops at `stop`, which is excluded."""
    found: set[fx.Node] = set()
    waiting = [last]
    while waiting:
        node = waiting.pop()
        if node is not stop and node not in found:
            found.add(node)
            waiting.extend(node.all_input_nodes)
    return found


def _client_graph(graph: fx.Graph, needed: set[fx.Node], cut: fx.Node) -> fx.Graph:
    new, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in graph.nodes:
        if node in needed:
            copies[node] = new.node_copy(node, copies.__getitem__)
    new.output(copies[cut])
    return new


def _server_graph(graph: fx.Graph, needed: set[fx.Node], cut: fx.Node) -> fx.Graph:
    new = fx.Graph()
    # A copy: the first layer may work in place, and must not change z.
    copies = {cut: new.call_method("clone", (new.placeholder("z"),))}
    for node in graph.nodes:
        if node in needed:
            copies[node] = new.node_copy(node, copies.__getitem__)
    return new


def _refuse_shared(client: nn.Module, server: nn.Module, cut: str, name: str) -> None:
    """Reject a weight in both halves: it would be trained twice and saved twice."""
    of_client = {id(parameter): path for path, parameter in client.named_parameters()}
    shared = [of_client[id(parameter)] for parameter in server.parameters() if id(parameter) in of_client]
    if shared:
        names = ", ".join(path.removeprefix("network.") for path in shared[:_SHOWN])
        raise ConfigError(f"model.cut={cut}: {name} uses {names} on both sides of it")


def _try(client: nn.Module, server: nn.Module, spec: DatasetSpec, options: ModelOptions) -> tuple[Tensor, Tensor]:
    """Feature and logits of two blank images, in evaluation mode."""
    try:
        with torch.no_grad(), evaluation(client), evaluation(server):
            z = client(torch.zeros(2, *spec.shape))
            logits = server(z)
    except Exception as error:  # a network that cannot take this size may fail in any way
        first_line = str(error).partition("\n")[0]
        raise ConfigError(
            f"model.name={options.name} does not take images of shape {list(spec.shape)} ({first_line}); "
            "model.arguments or data.image_size may help"
        ) from error
    for what, value in ((f"model.cut={options.cut}", z), (f"model.name={options.name}", logits)):
        if not isinstance(value, Tensor) or len(value) != 2:
            raise ConfigError(f"{what}: gives {type(value).__name__}, not one tensor with a row for each image")
    return z, logits


def _width(z: Tensor, options: ModelOptions) -> int:
    """Channels of a map [B, C, H, W], dimensions of tokens [B, N, D]."""
    bottleneck = options.bottleneck
    if z.ndim == 3 and bottleneck is not None and bottleneck.stride != 1:
        raise ConfigError(f"model.bottleneck.stride={bottleneck.stride}: {options.name} gives tokens there, use 1")
    if z.ndim == 2 and bottleneck is not None:
        raise ConfigError(
            f"model.cut={options.cut}: z is a vector there, which the bottleneck cannot narrow: model.bottleneck=null"
        )
    return int(z.shape[-1] if z.ndim == 3 else z.shape[1])
