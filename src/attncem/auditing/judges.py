"""The tables an audit asks: attacks, certificates, probes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attncem.attacks import ATTACKS
from attncem.attacks.base import Attack
from attncem.certificates import CERTIFICATES
from attncem.config.base import Options
from attncem.judges import Certificate, Probe
from attncem.probes import PROBES
from attncem.progress import Progress, silent

__all__ = ["ATTACKS", "CERTIFICATES", "PROBES", "build_judge"]


def build_judge(options: Options, *, progress: Progress = silent) -> Attack | Certificate | Probe:
    """What the options of a row describe."""
    name: str = options.name  # type: ignore[attr-defined]
    tables: Mapping[str, Any] = {**ATTACKS, **CERTIFICATES, **PROBES}
    built: Attack | Certificate | Probe = tables[name](options, progress=progress)
    return built
