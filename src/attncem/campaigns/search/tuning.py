"""Tuner: what to try next for one method or several, by optuna (extra `sweep`), with all that was tried in one journal.

What is suggested depends on the seed and on what was tried before alone, so a search that was killed goes on as if it
had not been; with several trials at work at once, on the order in which they end too.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from attncem.base.seeding import derive_seed
from attncem.base.types import ConfigError, RunError
from attncem.config.options.search import Range, Space, choice_text, choice_value
from attncem.records.files import cut_to_lines

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial

JOURNAL = "search.journal"
_RANDOM_FIRST = 5
"""Trials of a study that are drawn at random before what was found steers the others."""
_METHOD = "method"


@dataclass(frozen=True)
class Asked:
    """A trial: its number in the study, the method, and the value of every key that is searched."""

    number: int
    method: str
    values: Mapping[str, Any]
    state: Literal["open", "done", "failed"]
    objectives: tuple[float, float] | None


@dataclass(frozen=True)
class Tried:
    """A trial, the study that asked for it, and the cell it is."""

    tuner: Tuner
    asked: Asked

    @property
    def cell_id(self) -> str:
        """The name of its cell."""
        return f"{self.asked.method}-{self.asked.number:03d}"


def needs_optuna() -> None:
    """ConfigError where optuna is not installed."""
    try:
        import optuna  # noqa: F401
    except ImportError as error:
        raise ConfigError(f'a search needs optuna ({error}): install it with pip install "attncem[sweep]"') from error


def open_journal(folder: Path) -> BaseStorage:
    """The journal of a search. Whoever calls this holds the folder, so what a killed process left is cleared away."""
    import optuna
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    file = folder / JOURNAL
    for leftover in folder.glob(f"{JOURNAL}.lock*"):
        leftover.unlink()
    if file.exists():
        cut_to_lines(file, file.stat().st_size)  # a line that was cut off would spoil the next one
    try:
        return optuna.storages.JournalStorage(
            JournalFileBackend(os.fspath(file), lock_obj=JournalFileOpenLock(os.fspath(file)))
        )
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{file} is damaged: {error}") from error


class Tuner:
    """Trials of one study, for one method or for several among which it chooses."""

    def __init__(self, journal: BaseStorage, name: str, spaces: Mapping[str, Space], seed: int) -> None:
        import optuna

        self.name, self._spaces, self._seed = name, spaces, seed
        self._study = optuna.create_study(
            storage=journal, study_name=name, directions=["maximize", "maximize"], load_if_exists=True
        )

    def ask(self) -> Tried:
        """What to try next."""
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
        asked = self._asked(self._study.trials[trial.number])
        assert asked is not None
        return Tried(self, asked)

    def tell(self, number: int, accuracy: float, error: float) -> None:
        """What a trial found."""
        self._study.tell(number, [accuracy, error])

    def fail(self, number: int) -> None:
        """A trial has no result."""
        from optuna.trial import TrialState

        self._study.tell(number, state=TrialState.FAIL)

    def tried(self) -> list[Tried]:
        """All that was tried, in order; without trials that were cut off before it was known what to try."""
        return [Tried(self, asked) for trial in self._study.trials if (asked := self._asked(trial)) is not None]

    @property
    def _only(self) -> str | None:
        return next(iter(self._spaces)) if len(self._spaces) == 1 else None

    def _parameter(self, method: str, key: str) -> str:
        return key if self._only else f"{method}:{key}"

    def _sampler(self) -> BaseSampler:
        """Drawn anew for every trial, from its number: a process that goes on draws what the first would have."""
        from optuna.exceptions import ExperimentalWarning
        from optuna.samplers import TPESampler

        seed = derive_seed(self._seed, "search", self.name, len(self._study.trials)) % 2**32
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            return TPESampler(
                seed=seed, n_startup_trials=_RANDOM_FIRST, multivariate=self._only is not None, constant_liar=True
            )

    def _asked(self, trial: FrozenTrial) -> Asked | None:
        method = str(self._only or trial.params.get(_METHOD))
        if method not in self._spaces:
            return None
        names = {key: self._parameter(method, key) for key in self._spaces[method]}
        if any(name not in trial.params for name in names.values()):
            return None
        values = {key: self._value(method, key, trial.params[name]) for key, name in names.items()}
        state: Literal["open", "done", "failed"] = "open"
        if trial.state.is_finished():
            state = "done" if trial.values else "failed"
        found = (trial.values[0], trial.values[1]) if trial.values else None
        return Asked(trial.number, method, values, state, found)

    def _value(self, method: str, key: str, given: Any) -> Any:
        return given if isinstance(self._spaces[method][key], Range) else choice_value(given)
