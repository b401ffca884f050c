"""Audited attacks as ONNX files: restored from their state, checked against the audit, exported and compared."""

from __future__ import annotations

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
from attncem_edge.client import open_session
from attncem_edge.manifest import FEATURE

COMPARED = 64
"""Releases on which the exported and the audited attack are compared."""
_CLOSE = 1e-4
_CHECKED = 500
"""Images that are rebuilt again, to compare with what the audit kept of them."""
_ROUNDING = 1e-3
_ERRORS = 4.0
"""Standard errors by which the mean may differ, where another device drew other noise."""


Errors = NDArray[np.float64]


class Exported(NamedTuple):
    """A decoder as a file, the images on which it was checked, and their mean error."""

    graph: bytes
    checked: int
    error: float


@torch.no_grad()
def exported(case: Case, candidate: Candidate) -> Exported | None:
    """The audited attack as an ONNX file; None where no page can run it, RunError where it is not the audited one."""
    attack = kept_attack(candidate.ledger, replace(candidate.row, name=candidate.name), case.released[:1])
    if attack is None or type(attack).combine is not Attack.combine:
        return None
    network = attack.network()
    if network is None:
        return None
    seeing = case.seeing(candidate.row.releases)
    checked, error = _checked(seeing, attack, candidate)
    seen = next(iter(seeing.seen_by(attack, COMPARED))).cpu()
    graph = _graph(network, seen)
    if graph is None:
        return None
    _compare(graph, attack.reconstruct(seen.to(case.released.device)).cpu(), seen, candidate.row.name)
    return Exported(graph, checked, error)


def _checked(case: Case, attack: Attack, candidate: Candidate) -> tuple[int, float]:
    """Rebuild some evaluation images again; RunError where their errors are not those that the audit kept."""
    count = min(_CHECKED, len(case.image_index(attack)))
    images = torch.cat([attack.reconstruct(seen).float() for seen in case.seen_by(attack, count)])
    again = image_values(images, case.x[:count])[0]["mse"]
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


def _graph(network: nn.Module, seen: Tensor) -> bytes | None:
    """The network as an ONNX file; None where torch cannot express it."""
    try:
        return onnx_of(network.cpu().eval(), seen[:2], FEATURE, IMAGE)
    except RunError:
        return None


def _compare(graph: bytes, expected: Tensor, seen: Tensor, row: str) -> None:
    """RunError where the exported attack rebuilds other images, together or alone."""
    run = open_session(graph, FEATURE, [IMAGE], row)
    alone = [run(one.numpy())[0] for one in seen[:2].split(1)]
    for made, wanted in ((run(seen.numpy())[0], expected), (np.concatenate(alone), expected[:2])):
        apart = float(np.abs(made - wanted.numpy()).max()) if made.shape == tuple(wanted.shape) else float("inf")
        if not apart <= _CLOSE:
            raise RunError(
                f"{row}: the exported attack rebuilds other images than the audited one: they are off by {apart:.2g} "
                f"of 1, and at most {_CLOSE:g} is allowed"
            )
