"""ONNX files of users: read, checked and cut, but not executed here. Needs the extra `onnx`; no torch.

Exactly the checked bytes run later: weights in external files are read here, by our own rules, and embedded, so that
onnxruntime never opens a file.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attncem.base.types import ConfigError, RunError

LARGEST = 2**31 - 1
"""Largest number of bytes of a file with its weights: the limit of protobuf."""
STANDARD = ("", "ai.onnx", "ai.onnx.ml")
"""Accepted operator domains, without onnxruntime's own: one of its operators reads files."""
RUNTIMES = ("ai.onnx", "com.microsoft", "com.ms", "org.pytorch.aten")
"""Domains, with those below them, whose operators onnxruntime knows: a function of the same name would not be run."""
_NAMED = 40
"""Number of tensors that an error lists, evenly spread."""


@dataclass(frozen=True)
class OnnxFile:
    """A checked graph with one input and one output, and its weights.

    ``sha256`` covers the file, external weights and the output's name, ``file_sha256`` the file alone. ``shape`` holds
    the input's sizes, None for a free size; it is None itself if the file gives no shape.
    """

    path: Path
    graph: bytes
    file_sha256: str
    sha256: str
    input: str
    kind: str
    shape: tuple[int | None, ...] | None
    output: str


def need(library: str) -> Any:
    """A library of the extra; ConfigError names the install command."""
    try:
        return importlib.import_module(library)
    except ImportError as error:
        raise ConfigError(
            f"ONNX needs {library}, which cannot be imported ({error}): "
            'install the extra with pip install "attncem[onnx]"'
        ) from error


def require(library: str) -> None:
    """ConfigError names the install command if a library of the extra is missing; it is not imported."""
    if importlib.util.find_spec(library) is None:
        need(library)


def read_onnx(path: Path, output: str | None = None) -> OnnxFile:
    """Read a file and cut it at a tensor, by default its only output; RunError names the problem."""
    model, digest = _parsed(path)
    alone = digest.hexdigest()
    _refuse_custom(model, path)
    _take_weights_in(model, path, digest)
    chosen = _cut(model, path, output)
    _free_sizes(model.graph.input[0])
    del model.metadata_props[:]  # may hold settings of the runtime
    mark = hashlib.sha256(f"{digest.hexdigest()} {chosen}".encode()).hexdigest()
    source = model.graph.input[0]
    kind, shape = _type_of(source)
    try:
        graph = model.SerializeToString()
    except ValueError as error:  # protobuf's message for a file that is too large
        raise RunError(f"{path} is larger than 2 GiB with its weights, which cannot be run in one piece") from error
    return OnnxFile(path, graph, alone, mark, source.name, kind, shape, chosen)


# contents


def _parsed(path: Path) -> tuple[Any, Any]:
    """The parsed file, and a hash that already covers its bytes."""
    onnx = need("onnx")
    if not path.is_file():
        what = "a folder" if path.is_dir() else "not a regular file" if path.exists() else "not there"
        raise RunError(f"{path} is {what}; give an ONNX file")
    if path.stat().st_size > LARGEST:
        raise RunError(f"{path} is larger than 2 GiB; weights of that size belong in files next to the ONNX file")
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from error
    try:
        model = onnx.load_model_from_string(raw)
    except MemoryError:
        raise
    except Exception as error:  # protobuf's errors have no common base class
        reason = str(error).strip().partition("\n")[0]
        raise RunError(f"{path} is not an ONNX file: {reason}") from error
    if not model.graph.node:
        raise RunError(f"{path} is not an ONNX file: it holds no graph")
    _require_text(model, path)
    return model, hashlib.sha256(raw)


def _require_text(message: Any, path: Path) -> None:
    """RunError for a name that is not UTF-8: protobuf gives it as bytes, which no name can be compared with."""
    for field, value in message.ListFields():
        if field.type == field.TYPE_STRING:
            if any(isinstance(part, bytes) for part in ((value,) if isinstance(value, str | bytes) else value)):
                raise RunError(f"{path} is damaged: the text of a {field.name} in it is not UTF-8")
        elif field.message_type is not None:
            for part in (value,) if hasattr(value, "ListFields") else value:
                _require_text(part, path)


def _all_of(message: Any, kind: type) -> Iterator[Any]:
    """Every message of a kind at any depth, also in unexpected places."""
    single = need("google.protobuf.message").Message
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for part in (value,) if isinstance(value, single) else value:
            if isinstance(part, kind):
                yield part
            yield from _all_of(part, kind)


def _refuse_custom(model: Any, path: Path) -> None:
    """RunError for operators that are neither ONNX's own nor functions that the file defines in domains of its own."""
    onnx = need("onnx")
    for function in model.functions:
        if not function.domain or any(f"{function.domain}.".startswith(f"{domain}.") for domain in RUNTIMES):
            raise RunError(
                f"{path} defines the function {function.name} in {function.domain or 'the domain of ONNX'}, where "
                "onnxruntime has operators of its own and could run these instead. Export it again with its functions "
                "in another domain"
            )
    own = {(function.domain, function.name) for function in model.functions}
    for node in _all_of(model, onnx.NodeProto):
        if node.domain not in STANDARD and (node.domain, node.op_type) not in own:
            raise RunError(
                f"{path} uses the operator {node.op_type} of {node.domain}, not part of ONNX: it would have to be "
                "loaded as a program. Export it again with ONNX's own operators"
            )


# external weights


def _take_weights_in(model: Any, path: Path, digest: Any) -> None:
    """Embed weights from other files into the model; only files in its own folder are read."""
    onnx = need("onnx")
    taken = 0
    for tensor in _all_of(model, onnx.TensorProto):
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        data = _external(path, {entry.key: entry.value for entry in tensor.external_data}, LARGEST - taken)
        taken += len(data)
        digest.update(data)
        tensor.raw_data = data
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]


def _external(path: Path, entries: Mapping[str, str], room: int) -> bytes:
    """The bytes of one tensor; RunError for a place outside the folder, and for a missing part."""
    location, folder = entries.get("location", ""), path.resolve().parent
    try:
        place = (folder / location).resolve()
        is_file = place.is_file()
    except (OSError, ValueError, RuntimeError) as error:  # a name too long, a NUL in it, a circle of links
        name = f"{location!r:.60}"
        raise RunError(f"{path} is damaged: it has weights in {name}, which cannot be the name of a file") from error
    if not location or Path(location).is_absolute() or not place.is_relative_to(folder):
        raise RunError(f"{path} has weights in {location!r}, outside of its folder: these are not read")
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", -1))
    except ValueError as error:
        raise RunError(f"{path} is damaged: {error} in the place of weights") from error
    if not is_file:
        raise RunError(f"{path} has weights in {place.name}, which is missing: put it next to the file")
    size = place.stat().st_size
    length = size - offset if length < 0 else length
    if not (0 <= offset <= size and length <= size - offset):
        raise RunError(f"{place} is too short for the weights that {path.name} has in it; get both again")
    if length > room:
        raise RunError(f"{path} is larger than 2 GiB with its weights, which cannot be run in one piece")
    with place.open("rb") as stream:
        stream.seek(offset)
        return stream.read(length)


# the cut


def _cut(model: Any, path: Path, output: str | None) -> str:
    """Keep only the nodes for the chosen tensor; returns its name. RunError unless it depends on exactly one input."""
    onnx, graph = need("onnx"), model.graph
    chosen = output or _only_output(graph, path)
    stored = {item.name for item in graph.initializer} | {item.values.name for item in graph.sparse_initializer}
    inputs = [item.name for item in graph.input if item.name not in stored]
    candidates = _fed_by(inputs, graph.node)
    if chosen not in candidates:
        raise RunError(f"{path} has no tensor {chosen} that depends on its input{_offer(chosen, list(candidates))}")
    needed, nodes = {chosen}, list[Any]()
    for node in reversed(graph.node):  # nodes follow the nodes that they depend on
        if needed.intersection(node.output):
            nodes.append(node)
            needed.update(_read_by(node))
    sources = [item for item in graph.input if item.name in inputs and item.name in needed]
    if len(sources) != 1:
        named = ", ".join(item.name for item in sources)
        raise RunError(f"{path} needs {len(sources)} inputs for {chosen} ({named}); an encoder takes images alone")
    known = [item for item in graph.output if item.name == chosen] or [onnx.ValueInfoProto(name=chosen)]
    _keep(graph.node, nodes[::-1])
    _keep(graph.input, sources)
    _keep(graph.output, known)
    _keep(graph.initializer, [item for item in graph.initializer if item.name in needed])
    _keep(graph.sparse_initializer, [item for item in graph.sparse_initializer if item.values.name in needed])
    return str(chosen)


def _only_output(graph: Any, path: Path) -> str:
    names = [item.name for item in graph.output]
    if len(names) != 1:
        raise RunError(f"{path} has {len(names)} outputs ({', '.join(names)}): choose a tensor with output=NAME")
    return str(names[0])


def _fed_by(inputs: Iterable[str], nodes: Iterable[Any]) -> dict[str, None]:
    """The tensors that depend on the inputs, in the order of computation."""
    fed, made = set(inputs), dict[str, None]()
    for node in nodes:
        if fed.intersection(_read_by(node)):
            fed.update(node.output)
            made |= dict.fromkeys(name for name in node.output if name)
    return made


def _read_by(node: Any) -> set[str]:
    """The tensors that a node reads, also inside its branches and loops."""
    onnx = need("onnx")
    inner = [name for part in _all_of(node, onnx.NodeProto) for name in part.input]
    given = [item.name for part in _all_of(node, onnx.GraphProto) for item in part.output]
    return {name for name in (*node.input, *inner, *given) if name}


def _keep(field: Any, items: Collection[Any]) -> None:
    """Keep only these items of a repeated field."""
    kept = [type(item).FromString(item.SerializeToString()) for item in items]
    del field[:]
    field.extend(kept)


def _offer(wrong: str, names: list[str]) -> str:
    from attncem.config.loading.suggest import did_you_mean, nearest  # a process that reads files starts without it

    every = max(1, -(-len(names) // _NAMED))
    which = "they are" if every == 1 else f"some of its {len(names)} are"
    return f"{did_you_mean(nearest(wrong, names))}; {which} {', '.join(names[::every])}"


def _free_sizes(source: Any) -> None:
    """Free the sizes of an input that are 0 or below: some exporters write a free size so."""
    for dim in source.type.tensor_type.shape.dim:
        if dim.HasField("dim_value") and dim.dim_value <= 0:
            dim.ClearField("dim_value")


def _type_of(source: Any) -> tuple[str, tuple[int | None, ...] | None]:
    """The element type of an input, by its numpy name, and its sizes."""
    onnx = need("onnx")
    tensor = source.type.tensor_type
    kinds = {number: name.lower() for name, number in onnx.TensorProto.DataType.items()}
    kind = kinds.get(tensor.elem_type, f"the unknown type {tensor.elem_type}")
    if not tensor.HasField("shape"):
        return kind, None
    return kind, tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim)
