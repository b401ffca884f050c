"""The client's costs as entries of tables: counted ones beside measured milliseconds and the CPU they belong to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from attncem.base.texts import text
from attncem.reporting import wording
from attncem.reporting.table_formats import Item

TIMES = ("client_milliseconds", "client_milliseconds_onnx")
LATER = ("client_activation_bytes", *TIMES)
"""Costs that older runs lack: a table without any of them has no column for them."""
CLIENT = ("client_parameters", "client_macs", *LATER)
TIMED_ON = "client_timed_on"


def client_cost(name: str, runs: Sequence[Mapping[str, Any]]) -> Item:
    """One cost of a client from the manifests or subjects of its runs: that of the first, or their median time."""
    counted = [run for run in runs if run.get(name) is not None]
    if not counted:
        return Item(None, wording.MISSING)
    if name not in TIMES:
        return Item(counted[0][name], wording.count(counted[0][name]))
    value, cpus = median(run[name] for run in counted), timed_on(counted)
    return Item(value, milliseconds(value), cpus, {"cpu": cpus})


def timed_on(runs: Sequence[Mapping[str, Any]]) -> str:
    """The CPUs on which the clients of these runs were measured."""
    return ", ".join(dict.fromkeys(str(run[TIMED_ON]) for run in runs if run.get(TIMED_ON)))


def milliseconds(value: float) -> str:
    """A time in milliseconds with three digits."""
    return f"{value:.{max(0, 3 - len(str(int(value))))}f}" if value >= 1 else f"{value:.3f}"


def describe_time(manifest: Mapping[str, Any]) -> list[str]:
    """A sentence on the measured times of a run; none where they are not known."""
    said = described(manifest)
    return [text("report.settings.time", said=said)] if said else []


def described(costs: Mapping[str, Any]) -> str:
    """The measured times in words; empty where there are none."""
    times = {name: costs[name] for name in TIMES if costs.get(name) is not None}
    if TIMES[0] not in times:
        return ""
    by_onnx = text("cost.onnx", time=milliseconds(times[TIMES[1]])) if TIMES[1] in times else ""
    return text("cost.time", time=milliseconds(times[TIMES[0]]), onnx=by_onnx, cpu=timed_on([costs]))
