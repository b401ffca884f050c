"""A module as one ONNX file, compared with the module before it is returned. Needs the extra `onnx`."""

from __future__ import annotations

import copy
import io
import logging
import re
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attncem.base.types import RunError
from attncem.models.onnx_file import need, read_onnx
from attncem.models.onnx_network import OnnxNetwork

_GRAPHS = (5, 10)
"""Kinds of attributes that hold graphs: onnx.AttributeProto.GRAPH and GRAPHS."""
_ROUNDING = 1e-4
"""Largest difference between the outputs of file and module, relative to their size."""


@torch.no_grad()
def export_onnx(module: nn.Module, example: Tensor) -> bytes:
    """The module in evaluation mode as the bytes of an ONNX file that takes any number of examples.

    ``example`` [B, …] holds at least two. RunError gives the reason if torch cannot export it, or if the outputs of the
    file and the module differ.
    """
    for library in ("onnx", "onnxruntime", "onnxscript"):
        need(library)
    own, x = copy.deepcopy(module).cpu().eval(), example.detach().cpu()
    expected = own(x)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "exported.onnx"
        file.write_bytes(onnx_of(own, x))
        _compare(OnnxNetwork(read_onnx(file)), x, expected)
        return file.read_bytes()


@torch.no_grad()
def onnx_of(module: nn.Module, x: Tensor, *names: str) -> bytes:
    """The bytes of a module on the CPU in evaluation mode, not compared; ``names`` are those of input and outputs."""
    for library in ("onnx", "onnxscript"):
        need(library)
    anyhow = ({0: torch.export.Dim("batch")},)
    called: dict[str, Any] = {"input_names": names[:1], "output_names": names[1:]} if names else {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "exported.onnx"
        try:
            with _quiet():
                program = torch.onnx.export(module, (x,), dynamo=True, dynamic_shapes=anyhow, verbose=False, **called)
                assert program is not None
                program.save(file, external_data=False)
                _forget_source(file)
        except Exception as error:  # torch's exporter fails in many ways
            raise RunError(f"torch cannot export it as ONNX: {_why(error)}") from error
        return file.read_bytes()


def with_warning(graph: bytes, warning: str) -> bytes:
    """The file with a warning in its doc_string, which programs show that open it."""
    model = need("onnx").load_model_from_string(graph)
    model.doc_string = warning
    data: bytes = model.SerializeToString(deterministic=True)
    return data


def _why(error: BaseException) -> str:
    """What torch's exporter could not express, with a way out; else its first line."""
    causes = [error]
    while (cause := causes[-1].__cause__) is not None:
        causes.append(cause)
    for each in reversed(causes):
        if operator := re.search(r"op='([\w.]+)'", str(each)):
            return f"the operator {operator[1]} has no ONNX form; replace it in your module by operators that have one"
        if "DataDependent" in type(each).__name__:
            return (
                "its forward function chooses by the values of a tensor, as `if x.mean() > 0` does; write it with "
                "torch.where, so that every image takes the same path"
            )
    first = re.sub(r"\x1b\[\d*m", "", str(error).strip().partition("\n")[0])
    return f"{type(error).__name__}: {first}"


def _forget_source(file: Path) -> None:
    """Remove torch's notes on every layer: they name the source files of this machine."""
    import onnx

    model = onnx.load(file)
    for part in (model.graph, *model.functions):
        _forget(part)
    onnx.save(model, file)


def _forget(part: Any) -> None:
    """Remove the notes of a graph or function, and of the graphs inside it."""
    values = [*part.input, *part.output, *part.value_info, *part.initializer] if hasattr(part, "initializer") else []
    for item in (part, *part.node, *values):
        del item.metadata_props[:]
        item.doc_string = ""
    for attribute in (it for node in part.node for it in node.attribute):
        for graph in (attribute.g, *attribute.graphs) if attribute.type in _GRAPHS else ():
            _forget(graph)


def _compare(network: OnnxNetwork, x: Tensor, expected: Tensor) -> None:
    """RunError unless the file gives the module's output, for the batch and for a single example."""
    found, wanted = torch.cat([network(x), network(x[:1])]), torch.cat([expected, expected[:1]])
    apart = float((found - wanted).abs().max()) if found.shape == wanted.shape else float("inf")
    if not apart <= _ROUNDING * max(1.0, float(wanted.abs().max())):
        raise RunError(f"the exported ONNX file gives other results: they are off by {apart:.2g}")


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's warnings about its internals and missing libraries, and the graphs that it prints."""
    loggers = {name: logging.getLogger(name) for name in ("torch.onnx", "torch._dynamo", "torch.fx", "torch.export")}
    levels = {name: logger.level for name, logger in loggers.items()}
    for logger in loggers.values():
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, logger in loggers.items():
            logger.setLevel(levels[name])
