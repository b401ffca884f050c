"""The request of an audit in three records: where it computes, which rows, which adversary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from attncem.base.types import ConfigError
from attncem.config.loading.suggest import known
from attncem.config.options.suites import LoadedSuite
from attncem.config.threats import THREATS, ThreatModel
from attncem.data.outside import Outside
from attncem.judging.case import Case
from attncem.judging.opening import OpenRun, open_run
from attncem.records.runs import RunDirectory

RunLike = str | Path | RunDirectory | OpenRun
"""Types that name a run."""


@dataclass(frozen=True)
class Compute:
    """Where an audit computes: its device, the number of parallel processes, and the threads of torch in each."""

    device: str
    threads: int
    workers: int = 1


@dataclass(frozen=True)
class Rows:
    """Which rows: the suite with all rows, and the names of the wanted ones."""

    suite: LoadedSuite
    wanted: Sequence[str]


@dataclass(frozen=True)
class Adversary:
    """Which adversary, on which images, with which seed (None: the run's); ``reference`` is an undefended run.

    ``outside`` gives it pictures from elsewhere.
    """

    threat: ThreatModel
    on: str = "test"
    seed: int | None = None
    reference: RunLike | None = None
    outside: Outside | None = None

    def __post_init__(self) -> None:
        known("on", self.on, ("test", "validation"))

    def against(self, opened: OpenRun) -> Case:
        """The case of this adversary against a run."""
        seed = opened.config.seed if self.seed is None else self.seed
        return Case(opened, self.threat, on=self.on, seed=seed, reference=self._reference(opened), outside=self.outside)

    def _reference(self, opened: OpenRun) -> OpenRun | None:
        """The reference on the same device; ConfigError if its data differ."""
        if self.reference is None or isinstance(self.reference, OpenRun):
            other = self.reference
        else:
            other = open_run(self.reference, device=opened.device.type)
        if other is not None and (other.data_sha256, other.spec.shape) != (opened.data_sha256, opened.spec.shape):
            raise ConfigError(
                f"reference={other.name}: it was trained on other data, or on another split of them, than {opened.name}"
                f" ({other.spec.name}, {opened.spec.name}): train it with the same data options and surrogate.name=none"
            )
        return other


def threat_model(threat: str | ThreatModel) -> ThreatModel:
    """A threat model, by its name or as an object."""
    return threat if isinstance(threat, ThreatModel) else THREATS[known("threat", threat, THREATS)]


def require_some(**numbers: int | None) -> None:
    """Raise a ConfigError that names a number below 1."""
    for name, number in numbers.items():
        if number is not None and number < 1:
            raise ConfigError(f"{name}={number}: at least 1 is needed")
