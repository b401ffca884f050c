"""attncem: train, attack, audit, compare and explain private split models.

    run = attncem.train("demo")
    result = attncem.audit(run, suite="standard")
    attncem.report([run], out="report.html")

Names are loaded when first used, so importing the package costs nothing.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attncem.base.types import (
        AttncemError,
        ConfigError,
        DataError,
        DatasetSpec,
        RunError,
        SurrogateOutput,
        TrainingError,
    )
    from attncem.campaigns import run_campaign
    from attncem.config.loading.load import load_config
    from attncem.config.options.run import RunConfig
    from attncem.config.threats import THREATS, ThreatModel
    from attncem.judging.attacks import ATTACKS
    from attncem.judging.auditing import audit
    from attncem.judging.inference import predict
    from attncem.judging.opening import OpenRun, open_encoder, open_run
    from attncem.live.loading import load
    from attncem.models.channels import CHANNELS
    from attncem.models.split import SplitModel
    from attncem.records.audit import AuditResult, Row
    from attncem.records.metrics import METRICS
    from attncem.records.runs import RunDirectory
    from attncem.reporting import compare, privacy_card, report
    from attncem.reporting.explain.explaining import explain
    from attncem.training.surrogates import SURROGATES, Surrogate, build_surrogate
    from attncem.training.train import train

__version__ = "0.2.0"

_HOME = {
    "ATTACKS": "judging.attacks",
    "AttncemError": "base.types",
    "AuditResult": "records.audit",
    "CHANNELS": "models.channels",
    "ConfigError": "base.types",
    "DataError": "base.types",
    "DatasetSpec": "base.types",
    "METRICS": "records.metrics",
    "OpenRun": "judging.opening",
    "Row": "records.audit",
    "RunConfig": "config.options.run",
    "RunDirectory": "records.runs",
    "RunError": "base.types",
    "SURROGATES": "training.surrogates",
    "SplitModel": "models.split",
    "Surrogate": "training.surrogates",
    "SurrogateOutput": "base.types",
    "THREATS": "config.threats",
    "ThreatModel": "config.threats",
    "TrainingError": "base.types",
    "audit": "judging.auditing",
    "build_surrogate": "training.surrogates",
    "compare": "reporting",
    "explain": "reporting.explain.explaining",
    "load": "live.loading",
    "load_config": "config.loading.load",
    "open_encoder": "judging.opening",
    "open_run": "judging.opening",
    "predict": "judging.inference",
    "privacy_card": "reporting",
    "report": "reporting",
    "run_campaign": "campaigns",
    "train": "training.train",
}
"""Public name → module that defines it."""

__all__ = [  # noqa: RUF022 - plain order, kept by a test
    "ATTACKS",
    "AttncemError",
    "AuditResult",
    "CHANNELS",
    "ConfigError",
    "DataError",
    "DatasetSpec",
    "METRICS",
    "OpenRun",
    "Row",
    "RunConfig",
    "RunDirectory",
    "RunError",
    "SURROGATES",
    "SplitModel",
    "Surrogate",
    "SurrogateOutput",
    "THREATS",
    "ThreatModel",
    "TrainingError",
    "__version__",
    "audit",
    "build_surrogate",
    "compare",
    "explain",
    "load",
    "load_config",
    "open_encoder",
    "open_run",
    "predict",
    "privacy_card",
    "report",
    "run_campaign",
    "train",
]


def _avoid_matrix_units_of_virtual_machines() -> None:
    """Keep torch on a CPU off AMX inside a virtual machine, unless the person has chosen otherwise.

    Some hypervisors name AMX and hide the table of its tiles (CPUID leaf 0x1D); bfloat16 products then end the process
    by an illegal instruction. The library that torch calls reads this when it is first used.
    """
    try:
        with Path("/proc/cpuinfo").open("rb") as file:
            flags = file.read(8192).partition(b"\n\n")[0].split()  # of the first processor; there may be hundreds
    except OSError:  # not Linux
        return
    if b"amx_tile" in flags and b"hypervisor" in flags:
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")


_avoid_matrix_units_of_virtual_machines()


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'attncem' has no attribute {name!r}")
    return getattr(import_module(f"attncem.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
