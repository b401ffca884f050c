"""A step compared with the limits of the device: summed kernel time, counted operations and bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.common import Case, Ready, Row, Setting, Table, bytes_kept, milliseconds, ready, synchronise
from benchmarks.epochs import measure_step

PROFILED_STEPS = 20
ON_THE_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
"""Categories of trace events that are work; annotations, which cover several kernels, have other categories."""
PASSES_OVER_WEIGHTS = 8
"""Weights are read forward, backward and by the update, and written; gradients and momentum each written and read."""


def floor(setting: Setting) -> list[Table]:
    """The undefended model's step."""
    case = Case(fast="off") if setting.on_gpu else setting.plain
    with ready(setting, case) as now:
        counts = _count(now)
        kernels = _kernel_milliseconds(now, setting.folder / "trace.json") if setting.on_gpu else None
    limits = [
        _in_words("operations", counts["operations"] / 1e9, "10⁹"),
        _in_words("bytes, at least", counts["bytes"] / 1e6, "MB"),
    ]
    counted = Table(
        "Counted",
        limits,
        "Of one step: multiplications and additions; weights, gradients and momentum "
        "moved once for each use, what the backward needs written and read once.",
    )
    if kernels is None:
        return [counted]
    limits += _times(setting, counts)
    return [_against_kernels(setting, case, kernels), counted]


def _against_kernels(setting: Setting, case: Case, kernels: float) -> Table:
    rows: list[Row] = [{"step": "kernels of the plain step, summed", "step_ms": kernels, "over_kernels": 1.0}]
    for fast in setting.in_time(("off", "capture", "compile")):
        step = setting.once("step", replace(case, fast=fast), measure_step)
        rows.append({"step": step["steps"], "step_ms": step["step_ms"], "over_kernels": step["step_ms"] / kernels})
    note = f"{case.surrogate}, batch {case.batch_size}, {case.precision}."
    return Table("Steps and their kernels", rows, note)


def _in_words(what: str, value: float, unit: str) -> Row:
    return {"what": what, "value": value, "unit": unit}


def _count(now: Ready) -> dict[str, float]:
    """Operations of a step, and the bytes that it must move."""
    with FlopCounterMode(display=False) as counter:
        now.step()
    weights = sum(tensor.numel() * tensor.element_size() for tensor in now.parameters)
    kept = bytes_kept(now.step, now.parameters)
    return {"operations": float(counter.get_total_flops()), "bytes": float(PASSES_OVER_WEIGHTS * weights + 2 * kept)}


def _kernel_milliseconds(now: Ready, trace: Path) -> float:
    """Busy time of the device in one step, from a trace."""
    synchronise(now.images.device)
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(PROFILED_STEPS):
            now.step()
        synchronise(now.images.device)
    profiler.export_chrome_trace(str(trace))
    return work_milliseconds(json.loads(trace.read_text())["traceEvents"]) / PROFILED_STEPS


def work_milliseconds(events: Sequence[Mapping[str, Any]]) -> float:
    """Summed time of the kernels and copies in a trace."""
    total = float(sum(event["dur"] for event in events if event.get("cat") in ON_THE_DEVICE))
    if not total:
        raise RuntimeError("the profiler saw no kernels")
    return total / 1000


def _times(setting: Setting, counts: dict[str, float]) -> list[Row]:
    """The time of the counts at the device's measured rates."""
    source = torch.empty(2**28, device=setting.device)
    target = torch.empty_like(source)
    copied = 2 * source.numel() * source.element_size()
    bandwidth = copied / milliseconds(lambda: target.copy_(source), setting)
    size = 8192
    a, b = (torch.randn(size, size, device=setting.device, dtype=torch.bfloat16) for _ in range(2))
    rate = 2 * size**3 / milliseconds(lambda: a @ b, setting)
    return [
        _in_words("bandwidth of a copy", bandwidth / 1e9, "TB/s"),
        _in_words("rate of a bf16 matrix product", rate / 1e9, "TFLOP/s"),
        _in_words("time for the bytes", counts["bytes"] / bandwidth, "ms"),
        _in_words("time for the operations", counts["operations"] / rate, "ms"),
    ]
