"""Attacks of an audit in several processes at once: each process opens the run itself and returns every row.

Only the auditing process writes. A row depends on its own seed alone, so the numbers equal those of one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import as_completed
from dataclasses import dataclass, field
from functools import partial

from attncem.base.progress import Progress
from attncem.base.types import AttncemError, RunError
from attncem.base.working import WorkerEnded, Workers
from attncem.config.options.base import Options
from attncem.judging.auditing.asked import Adversary, Compute
from attncem.judging.auditing.measuring import Measured, measure
from attncem.judging.auditing.twins import owned_by
from attncem.judging.case import Case
from attncem.judging.opening import OpenRun, open_run
from attncem.training.engine import attacking

_ADVICE = "finished rows are kept: run the same command again, with fewer workers if memory ran out"


@dataclass(frozen=True)
class Brief:
    """What a worker needs to judge the same model on the same images under the same threat model."""

    again: Callable[..., OpenRun] = field(compare=False)
    fingerprint: str
    adversary: Adversary
    compute: Compute

    @classmethod
    def of(cls, case: Case, compute: Compute) -> Brief:
        """A description of the case for other processes."""
        opened = case.subject
        adversary = Adversary(case.threat, case.on, case.seed, outside=case.outside)
        again = opened.again
        if again is None:
            assert opened.directory is not None
            again = partial(open_run, opened.directory.path.resolve(), weights=opened.weights)
        return cls(again, opened.fingerprint, adversary, compute)

    def case(self) -> Case:
        """Open the case again; RunError if the model has changed."""
        opened = self.again(device=self.compute.device)
        if opened.fingerprint != self.fingerprint:
            raise RunError(f"{opened.name} has changed since the audit began")
        return self.adversary.against(opened)


def measured_beside(brief: Brief, rows: Mapping[str, Options], progress: Progress) -> Iterator[Measured]:
    """The rows in the order in which they finish; the processes start them in the given order."""
    with Workers(min(brief.compute.workers, len(rows)), progress, "the audit") as pool:
        names = {pool.submit(_measured, brief, name, options, tells=True): name for name, options in rows.items()}
        for future in as_completed(names):
            name = names.pop(future)  # frees the result once it is yielded
            try:
                yield future.result()
            except WorkerEnded as error:
                raise RunError(f"the process that worked on {name} ended ({error.how}); {_ADVICE}") from error


# in a worker process


def _measured(brief: Brief, name: str, options: Options, progress: Progress) -> Measured:
    try:
        case = _case(brief)
    except AttncemError as error:
        raise RunError(f"a process that should have worked on {name} could not start: {error}") from error
    with attacking(case.subject.device, brief.compute.threads):
        return measure(case, name, options, seed=case.seed_of(name), progress=progress, owns=owned_by(name))


_made: list[tuple[Brief, Case]] = []
"""The case that this process has opened, for later rows."""


def _case(brief: Brief) -> Case:
    if not _made or _made[0][0] != brief:
        _made[:] = [(brief, brief.case())]
    return _made[0][1]
