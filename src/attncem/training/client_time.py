"""Measured time of the client for one image: milliseconds of one CPU thread, by torch and by onnxruntime.

Times belong to a machine: they are in the manifest beside the training time, never in a fingerprint or a hash.
"""

from __future__ import annotations

import copy
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch
from torch import Tensor, nn

from attncem.models.client_head import HeadedClient
from attncem.models.onnx_export import export_onnx
from attncem.models.onnx_file import read_onnx
from attncem.models.onnx_session import Session
from attncem.models.pruning import compact
from attncem.models.split import passes_gradients
from attncem.training.engine import limited_threads

ONNX_FROM = 30.0
"""Shortest training in seconds after which onnxruntime is measured too: its file takes seconds to make."""
WARM_UP, PASSES = 3, 21
"""Passes of one image before the measured ones, and measured passes."""
LONGEST = 0.25
"""Seconds after which no further pass begins."""
_clock = time.thread_time if time.get_clock_info("thread_time").resolution < 1e-5 else time.perf_counter
"""Processor time of this thread; wall time on systems that count processor time coarsely."""


class ClientTime(NamedTuple):
    """Median milliseconds of one image by torch and by onnxruntime, and the CPU; None: not measured.

    The names are those of `Cost`.
    """

    client_milliseconds: float | None = None
    client_milliseconds_onnx: float | None = None
    client_timed_on: str | None = None


def time_client(encoder: nn.Module, image_shape: tuple[int, int, int], *, onnx: bool) -> ClientTime:
    """Measure a client in evaluation mode, without its pruned channels; ``onnx``: also by onnxruntime, if installed.

    ``encoder`` is all that the client computes: the first of `sides` (`models/cost.py`).

    A client that cannot be copied to the CPU has no times, one that cannot be exported has no time by onnxruntime. A
    client that another library runs has none either.
    """
    if not passes_gradients(encoder):
        return ClientTime()
    image = torch.full((1, *image_shape), 0.5)
    if isinstance(encoder, HeadedClient):  # a pooled linear head takes next to no time
        encoder = encoder.encoder
    # A training that is done must not fail because its client cannot be measured.
    with limited_threads(1), torch.no_grad(), suppress(Exception):
        client = on_cpu(encoder)
        by_torch = ClientTime(median_milliseconds(lambda: client(image)), None, cpu_name())
        with suppress(Exception):
            return _with_onnxruntime(by_torch, client, image) if onnx else by_torch
        return by_torch
    return ClientTime()


def on_cpu(encoder: nn.Module) -> nn.Module:
    """A copy on the CPU in evaluation mode, without pruned channels, in the memory layout that is fastest there."""
    client = copy.deepcopy(compact(encoder)).cpu().eval()
    return client.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def exported(client: nn.Module, image: Tensor) -> Session:
    """The client in onnxruntime, on one thread."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "client.onnx"
        file.write_bytes(export_onnx(client, torch.cat([image, image])))
        return Session(read_onnx(file), threads=1)


def _with_onnxruntime(by_torch: ClientTime, client: nn.Module, image: Tensor) -> ClientTime:
    session, pixels = exported(client, image), image.numpy()
    return by_torch._replace(client_milliseconds_onnx=median_milliseconds(lambda: session(pixels)))


def cpu_name() -> str:
    """The model of the processor as the system names it; elsewhere its architecture."""
    with suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    return platform.processor() or platform.machine()


def median_milliseconds(run: Callable[[], object]) -> float:
    """Median processor time of repeated calls after warm-up; the time of other programs does not count.

    No call begins after `LONGEST` seconds, but there are at least two: one to warm up, and one that counts.
    """
    start, seconds = time.perf_counter(), list[float]()
    for _ in range(WARM_UP + PASSES):
        before = _clock()
        run()
        seconds.append(_clock() - before)
        if time.perf_counter() - start > LONGEST and len(seconds) > 1:
            break
    return round(1000 * median(seconds[min(WARM_UP, len(seconds) - 1) :]), 4)
