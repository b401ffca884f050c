"""Epoch time of one and of two processes on the CPU."""

from __future__ import annotations

import os
import statistics

import attncem
from attncem.base.progress import silent
from attncem.config.loading.load import load_config
from attncem.config.options.run import RunConfig
from benchmarks.common import Case, Setting, Table


def processes(setting: Setting) -> list[Table]:
    """The same training shared by one and by two processes, one thread each."""
    if "processes" not in RunConfig.model_fields:
        return [Table("Processes on the CPU", [], "Not available: this version trains in one process.")]
    seconds = {count: _epoch_seconds(setting, count) for count in setting.in_time((1, 2))}
    rows = [{"processes": count, "over_one": value / seconds[1]} for count, value in seconds.items()]
    note = f"kmeans, the same global batch, one thread a process, {os.cpu_count()} cores."
    return [Table("Processes on the CPU", rows, note)]


def _epoch_seconds(setting: Setting, count: int) -> float:
    case = Case("kmeans", 32 if setting.tiny else 128, "32-true", "off")
    values = {"device": "cpu", "processes": count, "threads": 1, "model.width": 4 if setting.tiny else 16}
    config = load_config(setting.config(case, 2_000, epochs=3), values).config
    run = attncem.train(config, out=setting.folder / f"processes-{count}", progress=silent)
    seconds: list[float] = [record["seconds"] for record in run.records("timing.jsonl")]
    return statistics.median(seconds[1:])
