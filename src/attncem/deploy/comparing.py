"""Exported equals audited: the files of a bundle, run as on a device, compared with the model that was judged."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attncem.base.types import AttncemError, RunError
from attncem.deploy.graphs import Halves
from attncem.judging.certificates.bits import roundings
from attncem.judging.opening import OpenRun
from attncem.models.channels import Channel
from attncem.models.packing import codes_of_release
from attncem.models.split import SplitModel
from attncem.training.engine import limited_threads
from attncem_edge.client import open_session
from attncem_edge.manifest import ANSWERS, CLIENT, FEATURE, IMAGE, LOGITS, SERVER

IMAGES = 256
CLOSE, CLOSE_LOGITS = 1e-5, 1e-4
"""Largest difference of z, and of logits, relative to the largest number."""
Numbers = NDArray[np.float32]


@dataclass(frozen=True)
class Comparison:
    """How far the exported files are from the judged model on ``images`` images, each computed alone on one thread.

    ``change`` and ``logits_change`` are relative to the largest number of z and of the logits. ``codes`` and
    ``decisions`` are compared, and ``code_flips`` and ``decision_flips`` of them differ.
    """

    images: int
    pictures: str
    change: float
    logits_change: float
    codes: int = 0
    code_flips: int = 0
    decisions: int = 0
    decision_flips: int = 0

    @property
    def runtimes(self) -> int:
        """How many programs count in a bound by codes: two, where torch and the device give different ones."""
        return 2 if self.code_flips or self.decision_flips else 1


@torch.no_grad()
def compare(judged: SplitModel, halves: Halves, x: Tensor, pictures: str) -> Comparison:
    """Run both on images x, which are `pictures`; RunError where z or logits differ."""
    model = copy.deepcopy(judged).cpu().eval()
    names = [FEATURE, *([ANSWERS] if model.head is not None else [])]
    run = open_session(halves.client, IMAGE, names, CLIENT)
    answer = open_session(halves.server, FEATURE, [LOGITS], SERVER)
    with limited_threads(1):
        expected = _joined([_looked(model, image) for image in x.split(1)])
        logits = torch.cat([model.predict(z) for z in expected[0].split(1)])
    made = [torch.from_numpy(it) for it in _each(run, x)]
    _require_both_batches(run, x, made[0])
    change = _change(made[0], expected[0])
    logits_change = _change(torch.from_numpy(answer(expected[0].numpy())[0]), logits)
    for what, far, most in (("z", change, CLOSE), ("logits", logits_change, CLOSE_LOGITS)):
        if not far <= most:
            raise RunError(
                f"the exported {what} differ from those of the model by {far:.2g} of their largest number, and at most "
                f"{most:g} is allowed: nothing was written. {_cause(model, x[:8], most)}"
            )
    codes, flips = _code_flips(model, x, made[0], expected[0])
    decided = (len(x), _decision_flips(model, made[1], expected[1])) if model.head is not None else (0, 0)
    return Comparison(len(x), pictures, change, logits_change, codes, flips, *decided)


def _cause(model: SplitModel, x: Tensor, most: float) -> str:
    """Why an exported file may differ, as far as the model itself shows it."""
    with limited_threads(1):
        z = model.encode(x)
        if _change(model.encode(x), z) > 0:
            return "A forward function must compute the same every time"
        try:
            rounding = _change(z.double(), copy.deepcopy(model).double().encode(x.double()))
        except (RuntimeError, TypeError, ValueError):  # a network that cannot compute in float64
            rounding = 0.0
    if rounding > most:
        return (
            f"Rounding grows in this network: its own z in float32 differ by {rounding:.2g} from those in float64. "
            "Train it longer, or cut it at an earlier module"
        )
    return "The file computes something else than the network: try another version of torch or onnxruntime"


def images_of(opened: OpenRun, count: int = IMAGES) -> tuple[Tensor, str]:
    """Images of 8 bits, and what they are: test images, or random pixels where the data cannot be read."""
    try:
        x, pictures = opened.data.test.get(slice(0, count))[0].cpu(), "test images"
    except (AttncemError, OSError):
        generator = torch.Generator().manual_seed(0)
        x, pictures = torch.rand(count, *opened.spec.shape, generator=generator), "random pixels"
    return (x * 255).round() / 255, pictures


def _looked(model: SplitModel, image: Tensor) -> tuple[Tensor, ...]:
    return (model.encode(image),) if model.head is None else tuple(model.look(image))


def _joined(rows: Sequence[tuple[Tensor, ...]]) -> list[Tensor]:
    return [torch.cat(column).float() for column in zip(*rows, strict=True)]


def _each(run: Callable[[Numbers], list[Numbers]], x: Tensor) -> list[Numbers]:
    """The outputs for each image alone."""
    rows = [run(image.numpy()) for image in x.split(1)]
    return [np.concatenate(column) for column in zip(*rows, strict=True)]


def _require_both_batches(run: Callable[[Numbers], list[Numbers]], x: Tensor, alone: Tensor) -> None:
    """RunError where an image's z depends on the images beside it."""
    together = torch.from_numpy(run(x[:7].numpy())[0])
    if not _change(together, alone[: len(together)]) <= CLOSE:
        raise RunError(
            "an image's z depends on the other images of its batch: nothing was written; a client must compute each "
            "image alone"
        )


def _change(made: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest number; infinite for another shape."""
    if made.shape != expected.shape or not bool(made.isfinite().all()):
        return float("inf")
    return float((made - expected).abs().max() / expected.abs().max().clamp_min(1e-30))


def _code_flips(model: SplitModel, x: Tensor, made: Tensor, expected: Tensor) -> tuple[int, int]:
    """How many codes the pixels determine, with the key of keyed noise, and how many of them differ."""
    repeated = [one for one in roundings(model.channel) if one.repeats]
    if not repeated:
        return 0, 0
    assert isinstance(model.channel, Channel)
    stages = list(model.channel.single_stages())[: repeated[-1].place + 1]
    codes = [_codes(stages, z, x) for z in (made, expected)]
    return codes[0].numel(), int((codes[0] != codes[1]).sum())


def _codes(stages: Sequence[Channel], z: Tensor, x: Tensor) -> Tensor:
    """What leaves the last of these stages, as indices of its levels."""
    for stage in stages:
        z = stage(z, x=x)
    return codes_of_release(z, stages[-1].options)


def _decision_flips(model: SplitModel, made: Tensor, expected: Tensor) -> int:
    """How many images are sent by one and not by the other."""
    return int((model.sends(made) != model.sends(expected)).sum())
