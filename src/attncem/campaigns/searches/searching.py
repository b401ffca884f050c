"""search(): each method's best trade-offs of accuracy and attack error, on validation images, within a budget.

The folder is a campaign's, whose cells are the trials; it also holds
search.yaml         the request
search.journal      trials and their results, by optuna
search.json         the result
chosen/             the best configuration of every method and accuracy level, ready for training
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attncem.base.progress import Progress, shown, tell
from attncem.base.texts import text
from attncem.base.types import ConfigError, RunError
from attncem.campaigns.choosing import Candidate, candidate
from attncem.campaigns.costs import spent
from attncem.campaigns.engines import ENGINES, Ended, Engine, EngineOptions
from attncem.campaigns.expansion import plan_cell
from attncem.campaigns.results import SEARCH
from attncem.campaigns.running import processes_here
from attncem.campaigns.searches.concluding import conclude, judged
from attncem.campaigns.searches.tuning import Tried, Tuner, needs_optuna, open_journal
from attncem.config.loading.load import dump_config, load
from attncem.config.loading.suggest import known
from attncem.config.options.search import UNDEFENDED, Budget, Range, Search, load_search, parse_budget
from attncem.records.campaign_folder import PLANNED, CampaignFolder, PlannedCell, held, is_free
from attncem.records.files import explain_os_error, write_atomic
from attncem.records.leaks import kept
from attncem.records.search import SearchResult, SearchTrial

_PAUSE = 1.0
"""Seconds between two checks for a stop request."""
NO_LIMIT = -1e6
"""What the tuner is told of a trial without a limit on its leak: worse than every limit."""
_GIVEN_UP = 5
"""A study ends after this many failed trials in a row."""


def search(
    source: str | Path | Mapping[str, Any] | Search,
    overrides: Sequence[str] = (),
    *,
    budget: str | None = None,
    out: str | Path | None = None,
    engine: str = "local",
    options: EngineOptions | None = None,
    progress: Progress | None = None,
) -> SearchResult:
    """Start or resume a search until the budget is spent; test images are never used.

    ``source``: a packaged name, a YAML file, a mapping, a search, or the folder of an earlier search. A larger
    ``budget`` resumes a complete search.
    """
    needs_optuna()
    known("engine", engine, ENGINES)
    asked, folder = _begin(source, overrides, out)
    if (folder / PLANNED).is_file():
        CampaignFolder.open(folder).require_plugins()
    allowed = parse_budget(budget or asked.budget)
    if asked.equal_budget and allowed.trials is not None and allowed.trials < len(asked.methods):
        raise ConfigError(f"budget={allowed.trials}: {len(asked.methods)} methods need at least one trial each")
    check_space(asked)
    with explain_os_error(folder, "choose another folder with --out"):
        folder.mkdir(parents=True, exist_ok=True)
    with held(folder), shown(progress) as told:
        write_atomic(folder / SEARCH, dump_config(asked).encode())
        settings = options or EngineOptions(workers=processes_here({str(asked.set.get("device", "auto"))}))
        work = _Searching(asked, allowed, folder, settings.workers)
        with ENGINES[engine](work.folder, settings, told) as workers:
            stopped = work.run(workers, told)
        trials = [work.recorded(tried) for tried in work.tried()]
        return conclude(asked, allowed, work.folder, trials, complete=not stopped)


def _begin(
    source: str | Path | Mapping[str, Any] | Search, overrides: Sequence[str], out: str | Path | None
) -> tuple[Search, Path]:
    """The request and its folder: a new one, or that of the same search started earlier."""
    if isinstance(source, str | Path) and (Path(source) / SEARCH).is_file():
        if out is not None or overrides:
            raise ConfigError(f"{source} has already started: only its budget can be changed")
        return _asked_in(Path(source)), Path(source)
    if isinstance(source, Path) and source.is_dir():
        raise RunError(f"{source} is not a search's folder: {SEARCH} is missing")
    asked = load_search(source, overrides)
    folder = Path("campaigns") / asked.name if out is None else Path(out)
    if (folder / SEARCH).is_file():
        before = _asked_in(folder)
        if before.model_copy(update={"budget": asked.budget}) != asked:
            raise RunError(
                f"{folder} holds another search; choose another --out, or resume it with attncem search {folder}"
            )
    elif folder.exists() and not is_free(folder):
        raise RunError(f"{folder} already exists and was not changed; choose another --out")
    return asked, folder


def _asked_in(folder: Path) -> Search:
    try:
        return load(Search, folder / SEARCH).config
    except ConfigError as error:
        raise RunError(f"{folder / SEARCH} cannot be used: {error}") from error


def check_space(asked: Search) -> None:
    """Refuse a space with invalid runs: every method is checked with each key at its ends or choices."""
    campaign = asked.campaign()
    plan_cell(campaign, UNDEFENDED, {}, asked.seed)
    for method in asked.methods:
        space = asked.space_of(method).items()
        values = {key: choices.ends if isinstance(choices, Range) else choices for key, choices in space}
        first = {key: some[0] for key, some in values.items()}
        for key, some in values.items():
            for value in some:
                plan_cell(campaign, method, {**first, key: value}, asked.seed)


class _Searching:
    """A running search."""

    def __init__(self, asked: Search, budget: Budget, folder: Path, workers: int) -> None:
        self.asked, self.budget, self.workers = asked, budget, workers
        self.campaign = asked.campaign()
        journal = open_journal(folder)
        spaces = {name: asked.space_of(name) for name in asked.methods}
        each = [{name: space} for name, space in spaces.items()] if asked.equal_budget else [spaces]
        self.tuners = [Tuner(journal, "+".join(some), some, asked.seed) for some in each]
        self.cells = self._cells()
        self.undefended = next(iter(self.cells))
        self.folder = CampaignFolder.adopt(folder, self.campaign, list(self.cells.values()))
        events = self.folder.events()
        self.facts = {str(event["cell"]): event for event in events if event.get("event") == "tried"}
        self.began: dict[str, float] = {}

    def _cells(self) -> dict[str, PlannedCell]:
        """The undefended model, and every trial so far with a valid configuration."""
        cells = [plan_cell(self.campaign, UNDEFENDED, {}, self.asked.seed)]
        for tried in self.tried():
            with contextlib.suppress(ConfigError):
                cells.append(self._planned(tried))
        return {planned.cell.id: planned for planned in cells}

    def _planned(self, tried: Tried) -> PlannedCell:
        return plan_cell(self.campaign, tried.method, dict(tried.values), self.asked.seed, tried.cell_id)

    def tried(self) -> list[Tried]:
        """All trials, study by study."""
        return [tried for tuner in self.tuners for tried in tuner.tried()]

    def run(self, engine: Engine, progress: Progress) -> bool:
        """Work until the budget is spent; True: a stop was requested."""
        self.folder.clear_stop()
        self._go_on(engine)
        while True:
            while len(self.began) < self.workers and (tuner := self._next()) is not None:
                self._try(engine, tuner, progress)
            if not self.began or self.folder.asked_to_stop:
                break
            for ended in engine.wait(_PAUSE):
                self._ended(ended, progress)
        stopped = self.folder.asked_to_stop
        self.folder.clear_stop()
        return stopped

    def _go_on(self, engine: Engine) -> None:
        """Resume unfinished trials of an earlier process; the undefended model first."""
        if self._state(self.undefended) != "done":
            self.folder.forgive(self.undefended)
            self._submit(engine, self.undefended)
        for tried in self.tried():
            if tried.state != "unfinished":
                continue
            if tried.cell_id not in self.cells:
                tried.tell(None)
            elif self._state(tried.cell_id) in ("done", "failed"):
                self._tell(tried)
            else:
                self._submit(engine, tried.cell_id)

    def _submit(self, engine: Engine, cell_id: str) -> None:
        self.began[cell_id] = time.monotonic()
        engine.submit(cell_id)

    def _next(self) -> Tuner | None:
        """The study with the least spent, among those with budget left; None: there is none."""
        if self.folder.asked_to_stop:
            return None
        left = [tuner for tuner in self.tuners if self._spent(tuner) < self._share() and not _hopeless(tuner)]
        return min(left, key=self._spent, default=None)

    def _share(self) -> float:
        """The budget of each study: trials, or seconds of a worker."""
        studies = len(self.tuners)
        if self.budget.trials is not None:
            return self.budget.trials // studies
        return 60 * (self.budget.minutes or 0.0) * self.workers / studies

    def _spent(self, tuner: Tuner) -> float:
        cells = [tried.cell_id for tried in tuner.tried()]
        if self.budget.trials is not None:
            return len(cells)
        now = time.monotonic()
        at_work = sum(now - self.began[cell_id] for cell_id in cells if cell_id in self.began)
        return at_work + sum(float(self.facts[cell_id]["seconds"]) for cell_id in cells if cell_id in self.facts)

    def _try(self, engine: Engine, tuner: Tuner, progress: Progress) -> None:
        tried = tuner.ask()
        try:
            self.cells[tried.cell_id] = self._planned(tried)
        except ConfigError as error:
            self._log(tried.cell_id, 0.0, str(error))
            tried.tell(None)
            tell(progress, text("search.refused", cell=tried.cell_id, reason=error))
            return
        cells = list(self.cells.values())
        self.folder = engine.folder = CampaignFolder.adopt(self.folder.path, self.campaign, cells)
        self._submit(engine, tried.cell_id)

    def _ended(self, ended: Ended, progress: Progress) -> None:
        elapsed = time.monotonic() - self.began.pop(ended.cell_id)
        state = self._state(ended.cell_id)
        if ended.cell_id == self.undefended:
            if state != "done":
                raise RunError(f"the undefended model has no result, so no accuracy can be judged: {ended.error}")
            candidate(self.undefended, judged(self.folder, self.undefended))  # RunError if no attack has a result
            return
        if state != "done" and self.folder.failure(ended.cell_id) is None:
            self.folder.fail(ended.cell_id, "process", ended.error or state)
        # the time of its epochs and rows, before and after a kill and without queueing
        self._log(ended.cell_id, spent(self.folder.run_path(ended.cell_id)).seconds or elapsed, ended.error or "")
        result = self._tell(next(tried for tried in self.tried() if tried.cell_id == ended.cell_id))
        done = sum(tried.state != "unfinished" for tried in self.tried())
        if result is None:
            tell(progress, text("search.ended.failed", cell=ended.cell_id, reason=ended.error, done=done))
        else:
            numbers = {"accuracy": 100 * result.accuracy, "error": result.error}
            tell(progress, text("search.ended.done", cell=ended.cell_id, done=done, **numbers))

    def _log(self, cell_id: str, seconds: float, reason: str) -> None:
        self.facts[cell_id] = {"seconds": round(seconds, 3), "reason": reason}
        self.folder.log("tried", cell=cell_id, **self.facts[cell_id])

    def _tell(self, tried: Tried) -> Candidate | None:
        """Write a trial's result into its study; None: it failed."""
        if self._state(tried.cell_id) != "done":
            tried.tell(None)
            return None
        result = candidate(tried.cell_id, judged(self.folder, tried.cell_id), self.asked.choose)
        objective = result.privacy(self.asked.choose)
        tried.tell([result.accuracy, max(objective, NO_LIMIT)])
        return result

    def recorded(self, tried: Tried) -> SearchTrial:
        """A trial with its numbers as the search keeps them."""
        facts = self.facts.get(tried.cell_id, {})
        accuracy, error = tried.trial.values or (None, None)
        result: Candidate | None = None
        if self.asked.choose == "nats" and accuracy is not None:
            result = candidate(tried.cell_id, judged(self.folder, tried.cell_id), "nats")
            error = result.error
        return SearchTrial(
            cell=tried.cell_id,
            method=tried.method,
            values=dict(tried.values),
            state=tried.state,
            accuracy=accuracy,
            error=error,
            seconds=float(facts.get("seconds", 0.0)),
            reason=str(facts.get("reason", "")),
            nats=result.nats if result else None,
            beside={name: kept(leak) for name, leak in result.beside.items()} if result else {},
        )

    def _state(self, cell_id: str) -> str:
        return self.folder.view(self.folder.cell(cell_id)).state


def _hopeless(tuner: Tuner) -> bool:
    """Whether its last trials all failed."""
    states = [tried.state for tried in tuner.tried() if tried.state != "unfinished"]
    return len(states) >= _GIVEN_UP and set(states[-_GIVEN_UP:]) == {"failed"}
