"""Where many runs are computed: the options that campaigns and searches share."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from attncem.base.types import ConfigError

if TYPE_CHECKING:
    from attncem.campaigns.engines import EngineOptions

_ON_A_CLUSTER = 16
"""Default number of parallel jobs on a cluster."""
_MEANT_FOR = {"gpus": ("slurm", "ray"), "partition": ("slurm",), "minutes": ("slurm",), "address": ("ray",)}
"""Engines that each option applies to."""


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Add --engine, --workers and the options of a cluster."""
    many = f"runs in parallel (default: one per core, 2 on a GPU; on a cluster {_ON_A_CLUSTER})"
    parser.add_argument("--workers", type=int, metavar="N", help=many)
    parser.add_argument("--engine", default="local", help="where to run: local, slurm or ray (default: local)")
    parser.add_argument("--gpus", type=int, metavar="N", help="slurm, ray: GPUs per run (default: 0)")
    parser.add_argument("--partition", metavar="NAME", help="slurm: partition of the jobs")
    parser.add_argument("--minutes", type=int, metavar="M", help="slurm: time limit of a job; a new job resumes it")
    parser.add_argument("--address", help="ray: address of the cluster, e.g. auto (default: this machine only)")


def engine_options(known: argparse.Namespace) -> EngineOptions | None:
    """The engine's options from the command line; None: on this machine, as many runs as fit."""
    from attncem.campaigns.engines import EngineOptions

    _check(known)
    if known.engine == "local" and known.workers is None:
        return None
    return EngineOptions(
        workers=_ON_A_CLUSTER if known.workers is None else known.workers,
        partition=known.partition,
        gpus=known.gpus or 0,
        minutes=known.minutes,
        address=known.address,
    )


def _check(known: argparse.Namespace) -> None:
    """Refuse options that the engine does not use, and invalid numbers."""
    for name, engines in _MEANT_FOR.items():
        if getattr(known, name) is not None and known.engine not in engines:
            raise ConfigError(f"--{name} is for --engine {' or '.join(engines)}, not for {known.engine}")
    for name, least in (("gpus", 0), ("minutes", 1), ("workers", 1)):
        value = getattr(known, name)
        if value is not None and value < least:
            raise ConfigError(f"{name}={value}: at least {least}")
