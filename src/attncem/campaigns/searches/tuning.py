"""Tuner: suggests the next trial for one method or several, by optuna (extra `sweep`), with all trials in one journal.

Suggestions depend only on the seed and on earlier trials, so a killed search resumes as if it had not been killed; with
several trials running at once they also depend on the order in which trials end.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attncem.base.seeding import derive_seed
from attncem.base.types import ConfigError, RunError
from attncem.config.options.search import Space, choice_text, choice_value
from attncem.records.files import cut_to_lines
from attncem.records.search import TrialState

if TYPE_CHECKING:
    from optuna import Study
    from optuna.samplers import BaseSampler
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial

JOURNAL = "search.journal"
_RANDOM_FIRST = 5
"""Trials of a study that are drawn at random before results steer the others."""
_METHOD = "method"


@dataclass(frozen=True)
class Tried:
    """A trial in its study: the method, and the value of every searched key."""

    study: Study
    trial: FrozenTrial
    method: str
    values: Mapping[str, Any]

    @property
    def cell_id(self) -> str:
        """The name of its cell."""
        return f"{self.method}-{self.trial.number:03d}"

    @property
    def state(self) -> TrialState:
        """Its outcome, as read from its study."""
        if not self.trial.state.is_finished():
            return "unfinished"
        return "done" if self.trial.values else "failed"

    def tell(self, objectives: Sequence[float] | None) -> None:
        """Write its accuracy and error into the study; None: it failed."""
        import optuna

        states = optuna.trial.TrialState
        self.study.tell(self.trial.number, objectives, states.FAIL if objectives is None else states.COMPLETE)


def needs_optuna() -> None:
    """ConfigError where optuna is not installed."""
    try:
        import optuna  # noqa: F401
    except ImportError as error:
        raise ConfigError(f'a search needs optuna ({error}): install it with pip install "attncem[sweep]"') from error


def open_journal(folder: Path) -> BaseStorage:
    """The journal of a search. The caller holds the folder's lock, so remains of a killed process are removed."""
    import optuna
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    file = folder / JOURNAL
    for leftover in folder.glob(f"{JOURNAL}.lock*"):
        leftover.unlink()
    if file.exists():
        cut_to_lines(file, file.stat().st_size)  # an incomplete line would corrupt the next one
    try:
        return optuna.storages.JournalStorage(
            JournalFileBackend(os.fspath(file), lock_obj=JournalFileOpenLock(os.fspath(file)))
        )
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{file} is damaged: {error}") from error


class Tuner:
    """Trials of one study, for one method or for several to choose from."""

    def __init__(self, journal: BaseStorage, name: str, spaces: Mapping[str, Space], seed: int) -> None:
        import optuna

        self.name, self._spaces, self._seed = name, spaces, seed
        self._only = next(iter(spaces)) if len(spaces) == 1 else None
        self._study = optuna.create_study(
            storage=journal, study_name=name, directions=["maximize", "maximize"], load_if_exists=True
        )

    def ask(self) -> Tried:
        """The next trial."""
        self._study.sampler = self._sampler()
        trial = self._study.ask()
        method = self._only or trial.suggest_categorical(_METHOD, list(self._spaces))
        for key, values in self._spaces[method].items():
            name = self._parameter(method, key)
            if isinstance(values, list):
                trial.suggest_categorical(name, [choice_text(value) for value in values])
            elif values.integer:
                trial.suggest_int(name, *values.ends, log=values.log)
            else:
                trial.suggest_float(name, *values.ends, log=values.log)
        return self.tried()[-1]

    def tried(self) -> list[Tried]:
        """All trials, in order; without trials that were interrupted before their values were set."""
        return [tried for trial in self._study.trials if (tried := self._tried(trial)) is not None]

    def _tried(self, trial: FrozenTrial) -> Tried | None:
        method = str(self._only or trial.params.get(_METHOD))
        space = self._spaces.get(method)
        if space is None or any(self._parameter(method, key) not in trial.params for key in space):
            return None
        drawn = {key: trial.params[self._parameter(method, key)] for key in space}
        values = {key: choice_value(drawn[key]) if isinstance(space[key], list) else drawn[key] for key in space}
        return Tried(self._study, trial, method, values)

    def _parameter(self, method: str, key: str) -> str:
        return key if self._only else f"{method}:{key}"

    def _sampler(self) -> BaseSampler:
        """A new sampler for every trial, seeded by its number: a resumed process draws the same values."""
        from optuna.exceptions import ExperimentalWarning
        from optuna.samplers import TPESampler

        seed = derive_seed(self._seed, "search", self.name, len(self._study.trials)) % 2**32
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            return TPESampler(
                seed=seed, n_startup_trials=_RANDOM_FIRST, multivariate=self._only is not None, constant_liar=True
            )
