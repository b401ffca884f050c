"""Builds the judge of a row from the tables of attacks, certificates and probes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attncem.base.progress import Progress, silent
from attncem.config.options.base import Options
from attncem.judging.attacks import ATTACKS
from attncem.judging.attacks.base import Attack
from attncem.judging.certificates import CERTIFICATES
from attncem.judging.judges import Certificate, Probe
from attncem.judging.probes import PROBES

__all__ = ["ATTACKS", "CERTIFICATES", "PROBES", "build_judge"]


def build_judge(options: Options, *, progress: Progress = silent) -> Attack | Certificate | Probe:
    """The judge that the options of a row describe."""
    name: str = options.name  # type: ignore[attr-defined]
    tables: Mapping[str, Any] = {**ATTACKS, **CERTIFICATES, **PROBES}
    built: Attack | Certificate | Probe = tables[name](options, progress=progress)
    return built
