"""Audited attacks as ONNX files: restored from their state, checked against the audit, exported and compared."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attncem.base.types import RunError
from attncem.judging.attacks.base import Attack
from attncem.judging.auditing.kept import kept_attack
from attncem.judging.auditing.measuring import image_values
from attncem.judging.case import Case
from attncem.live.auditing import Candidate
from attncem.live.facts import IMAGE
from attncem.models.onnx_export import onnx_of
from attncem.models.onnx_file import need
from attncem_edge.client import open_session
from attncem_edge.manifest import FEATURE

COMPARED = 64
"""Releases on which the exported and the audited attack are compared."""
_CLOSE, _CLOSE_IN_HALF = 1e-4, 2e-3
"""Largest difference of a pixel; with weights of 16 bits, half a grey level."""
_CHECKED = 500
"""Images that are rebuilt again, to compare with what the audit kept of them."""
_ROUNDING = 1e-3
_ERRORS = 4.0
"""Standard errors by which the mean may differ, where another device drew other noise."""
_SMALL = 1024
"""Weights of fewer numbers stay in 32 bits."""
Errors = NDArray[np.float64]
Decoder = Callable[[Tensor], Tensor]


class Exported(NamedTuple):
    """A decoder as a file, the images on which it was checked, and their mean error."""

    graph: bytes
    checked: int
    error: float


@torch.no_grad()
def exported(case: Case, candidate: Candidate, *, half: bool = False) -> Exported | None:
    """The audited attack as an ONNX file; None where no page can run it, RunError where it is not the audited one.

    ``half``: keep its weights in 16 bits.
    """
    attack = kept_attack(candidate.ledger, replace(candidate.row, name=candidate.name), case.released[:1])
    if attack is None or type(attack).combine is not Attack.combine or (network := attack.network()) is None:
        return None
    seeing = case.seeing(candidate.row.releases)
    seen = next(iter(seeing.seen_by(attack, COMPARED)))
    expected = attack.reconstruct(seen).cpu()
    graph = _graph(network, seen.cpu())
    if graph is None:
        return None
    graph = in_half(graph) if half else graph
    decode = _opened(graph, candidate.row.name)
    _compare(decode, expected, seen.cpu(), candidate.row.name, _CLOSE_IN_HALF if half else _CLOSE)
    return Exported(graph, *_checked(seeing, attack, decode, candidate))


def _graph(network: nn.Module, seen: Tensor) -> bytes | None:
    """The network as an ONNX file; None where torch cannot express it."""
    try:
        return onnx_of(network.cpu().eval(), seen[:2], FEATURE, IMAGE)
    except RunError:
        return None


def in_half(graph: bytes) -> bytes:
    """The graph with large weights in 16 bits, which it converts to 32 bits when it is opened."""
    onnx = need("onnx")
    model = onnx.load_model_from_string(graph)
    large = [
        it for it in model.graph.initializer if it.data_type == onnx.TensorProto.FLOAT and math.prod(it.dims) >= _SMALL
    ]
    casts = []
    for weight in large:
        numbers, name = onnx.numpy_helper.to_array(weight).astype(np.float16), weight.name
        weight.CopyFrom(onnx.numpy_helper.from_array(numbers, f"{name}/half"))
        casts.append(onnx.helper.make_node("Cast", [f"{name}/half"], [name], to=onnx.TensorProto.FLOAT))
    nodes = [*casts, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.checker.check_model(model)
    data: bytes = model.SerializeToString(deterministic=True)
    return data


def _opened(graph: bytes, row: str) -> Decoder:
    run = open_session(graph, FEATURE, [IMAGE], row)
    return lambda seen: torch.from_numpy(run(seen.cpu().numpy())[0])


def _compare(decode: Decoder, expected: Tensor, seen: Tensor, row: str, close: float) -> None:
    """RunError where the exported attack rebuilds other images, together or alone."""
    alone = torch.cat([decode(one) for one in seen[:2].split(1)])
    for made, wanted in ((decode(seen), expected), (alone, expected[:2])):
        apart = float((made - wanted).abs().max()) if made.shape == wanted.shape else float("inf")
        if not apart <= close:
            raise RunError(
                f"{row}: the exported attack rebuilds other images than the audited one: they are off by {apart:.2g} "
                f"of 1, and at most {close:g} is allowed"
            )


def _checked(case: Case, attack: Attack, decode: Decoder, candidate: Candidate) -> tuple[int, float]:
    """Rebuild evaluation images by the file; RunError where their errors are not those that the audit kept."""
    count = min(_CHECKED, len(case.image_index(attack)))
    images = torch.cat([decode(seen) for seen in case.seen_by(attack, count)])
    again = image_values(images, case.x[:count].cpu())[0]["mse"]
    kept = candidate.ledger.errors(candidate.name)
    if kept is None:
        raise RunError(f"{candidate.ledger.path}: the per-image scores of {candidate.name} are missing: audit it again")
    audited = kept.values["mse"][np.isin(kept.index, case.places[:count])]
    if audited.shape != again.shape or not _agree(again, audited):
        raise RunError(
            f"{candidate.row.name}: its state rebuilds the test images with an error of {again.mean():.5f}, and the "
            f"audit kept {audited.mean():.5f}: this is not the audited attack; repeat the row in an audit with --fresh"
        )
    return count, float(again.mean())


def _agree(again: Errors, audited: Errors) -> bool:
    """Whether errors of the same images agree: to rounding, or within the noise where the device drew other noise."""
    apart = again - audited
    spread = float(apart.std() / np.sqrt(len(apart)))
    return abs(float(apart.mean())) <= _ROUNDING * float(audited.mean()) + _ERRORS * spread
