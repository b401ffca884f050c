"""Memory by surrogate: the peak of a step on a GPU, the tensors kept for the backward pass on a CPU."""

from __future__ import annotations

from dataclasses import replace

import torch

from attncem.training.surrogates import SURROGATES
from benchmarks.common import Case, Row, Setting, Table, bytes_kept, free_memory, ready, synchronise

MEGABYTE = 1e6


def memory(setting: Setting) -> list[Table]:
    """Ratios to the undefended model."""
    measure, note = (
        (_on_gpu, "Peak of the tensors of one step, and what the process holds once the step is captured.")
        if setting.on_gpu
        else (_on_cpu, "Tensors that one step keeps for its backward.")
    )
    rows = [{"surrogate": name, **measure(setting, name)} for name in setting.in_time(SURROGATES)]
    figures = [key for key in rows[0] if key.endswith("_mb")]
    ratios = [{f"{key.removesuffix('_mb')}_over_none": row[key] / rows[0][key] for key in figures} for row in rows]
    return [Table("Memory", [{**row, **ratio} for row, ratio in zip(rows, ratios, strict=True)], note)]


def _on_gpu(setting: Setting, name: str) -> Row:
    return {"peak_mb": _peak(setting, Case(name, fast="off")), "held_mb": _held(setting, Case(name, fast="capture"))}


def _peak(setting: Setting, case: Case) -> float:
    """Peak of one plain step: the captured one works on tensors of the same sizes, but its own pool hides them."""
    with ready(setting, case) as now:
        synchronise(setting.device)
        torch.cuda.reset_peak_memory_stats()
        now.step()
        synchronise(setting.device)
        return torch.cuda.max_memory_allocated() / MEGABYTE


def _held(setting: Setting, case: Case) -> float:
    """Memory of weights, optimiser state, images and the captured step's pool."""
    with ready(setting, case):
        free_memory()
        return torch.cuda.memory_reserved() / MEGABYTE


def _on_cpu(setting: Setting, name: str) -> Row:
    with ready(setting, replace(setting.plain, surrogate=name)) as now:
        return {"kept_mb": bytes_kept(now.step, now.parameters) / MEGABYTE}
