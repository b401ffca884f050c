"""The on-device reference: what the client could do alone, and whether the server is worth what it learns.

RUN/on_device.json   in the run that was chosen: all candidates by validation accuracy, and its accuracy on test images
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from attncem.base.record import Record
from attncem.base.texts import Sentence, written
from attncem.base.types import AttncemError
from attncem.config.options.run import RunConfig
from attncem.records.files import explain_os_error, read_record, write_record
from attncem.records.findings import Finding, finding
from attncem.records.run_files import LEFT_BEHIND
from attncem.records.runs import RunDirectory
from attncem.records.score import Score
from attncem.records.statistics import Estimate, difference_apart, welch_interval

FILE = "on_device.json"
_LEAST = 0.9
"""A reference was chosen for at least this part of the run's budget: a much smaller network is no reference."""
_AUGMENTATION = ("crop_padding", "horizontal_flip", "rotation_degrees")
_TRAINING = ("epochs", "batch_size", "batches", "optimizer", "schedule", "label_smoothing", "selection_window")


class Candidate(Record):
    """A network that the client could run alone: its run, its cost, and the accuracy that the choice is made by."""

    run: str
    client_macs: int
    validation_accuracy: float


class Choice(Record):
    """The choice among the candidates of one budget, stored in the chosen run.

    ``budget`` is the multiply-accumulates of the client whose place it takes (of two such clients the larger one),
    ``weights`` the checkpoint and ``encoder_sha256`` the hash of its trunk. ``accuracy`` is on all ``num_images`` test
    images, measured once, after the choice (None: not measured); ``validation`` is on the images that the choice was
    made by.
    """

    budget: int
    candidates: list[Candidate]
    chosen: str
    weights: str
    encoder_sha256: str
    validation: Score
    accuracy: Score | None = None
    num_images: int = 0

    @property
    def scores(self) -> dict[str, Score]:
        """The known accuracies by the images, `test` and `validation`."""
        return ({} if self.accuracy is None else {"test": self.accuracy}) | {"validation": self.validation}


@dataclass(frozen=True)
class Reference:
    """The client alone: the run, its accuracies by images (`test`, `validation`), its cost and seed.

    ``budget`` is what it might have cost. ``recipe`` are the options that it was trained with; ``same_recipe`` is false
    where those of the defended run are others.
    """

    name: str
    scores: Mapping[str, Score]
    macs: int
    seed: int
    budget: int = 0
    recipe: Mapping[str, Any] = field(default_factory=dict)
    same_recipe: bool = True

    @property
    def order(self) -> tuple[float, int, str]:
        """The best on validation first; of equals the cheapest."""
        return -self.scores["validation"].mean, self.macs, self.name


def write_choice(run: RunDirectory, choice: Choice) -> None:
    """Store the choice in the chosen run."""
    with explain_os_error(run.path, "the candidates are trained: fix this and run the same command again"):
        write_record(run.path / FILE, choice)


def read_choice(run: RunDirectory) -> Choice | None:
    """The choice stored in a run; None where there is none, or where it is about other weights."""
    if not (run.path / FILE).is_file() or not run.manifest.get("on_device") or not run.is_finished:
        return None
    choice = read_record(Choice, run.path / FILE)
    best = run.manifest["best"]["checkpoint"]
    trunk = run.encoder_sha256("best") if run.checkpoints() else run.manifest.get(LEFT_BEHIND)
    return choice if (choice.weights, choice.encoder_sha256) == (best, trunk) else None


def candidate_of(run: RunDirectory) -> Candidate:
    """A finished run as a candidate."""
    facts = run.manifest
    return Candidate(run.path.name, int(facts["client_macs"]), float(facts["best"]["validation_accuracy"]))


def best_of(candidates: Iterable[Candidate]) -> Candidate:
    """The candidate with the highest validation accuracy; of equals the cheapest, then the first."""
    return min(candidates, key=lambda one: (-one.validation_accuracy, one.client_macs))


def left_behind(runs: Iterable[RunDirectory]) -> set[Path]:
    """The paths of those runs that were candidates of a choice beside them and are not chosen."""
    choices = {run.path: choice for run in runs if (choice := _choice_at(run.path)) is not None}
    return {path.parent / it.run for path, choice in choices.items() for it in choice.candidates} - set(choices)


def is_choice_of(path: Path, budget: int) -> bool:
    """Whether a folder holds a choice for this budget, or one that cannot be read."""
    choice = _choice_at(path)
    return choice is None or choice.budget == budget


def _choice_at(path: Path) -> Choice | None:
    """The choice stored in a folder, or None where it cannot be read."""
    try:
        return read_choice(RunDirectory(path))
    except (AttncemError, LookupError, TypeError, ValueError, OSError):
        return None


# the reference of a defended run


class References:
    """The on-device runs in these places: run folders, and folders of runs. An unreadable file counts as missing."""

    def __init__(self, places: Iterable[Path]) -> None:
        runs = ((run, _readable(run)) for run in _chosen(places))
        self._chosen = [(run.manifest, reference) for run, reference in runs if reference is not None]

    def __bool__(self) -> bool:
        return bool(self._chosen)

    def of(self, manifest: Mapping[str, Any], seed: int, config: RunConfig | None = None) -> Reference | None:
        """The client alone for a run of this manifest: of the runs that fit, the best by validation.

        They have the same data and split, cost at most as much as the run's client, and were chosen for a budget that
        is not much smaller. Runs with the recipe of the run's configuration go first, then those with its seed.
        """
        limit = _limit(manifest)
        if limit is None:
            return None
        fitting = [
            replace(it, same_recipe=config is None or it.recipe == recipe_of(config))
            for facts, it in self._chosen
            if it.macs <= limit and it.budget >= _LEAST * limit and is_same_data(facts, manifest)
        ]
        alike = [it for it in fitting if it.same_recipe] or fitting
        same = [it for it in alike if it.seed == seed]
        return min(same or alike, key=lambda it: it.order, default=None)


def _limit(manifest: Mapping[str, Any]) -> int | None:
    """The most that a reference may cost: the client's multiply-accumulates, or the budget it was built for."""
    counted, plan = manifest.get("client_macs"), manifest.get("plan")
    budget = plan.get("budget") if isinstance(plan, Mapping) else None
    return max((it for it in (counted, budget) if isinstance(it, int)), default=None)


def _chosen(places: Iterable[Path]) -> Iterator[RunDirectory]:
    """The runs in these places that hold a choice, each once."""
    files = (file for place in places for file in (place / FILE, *_below(place)))
    for file in dict.fromkeys(file.resolve() for file in files if file.is_file()):
        yield RunDirectory(file.parent)


def _below(place: Path) -> list[Path]:
    """The files of choices directly below a folder; none where it cannot be read."""
    try:
        with os.scandir(place) as entries:
            return [Path(entry.path) / FILE for entry in sorted(entries, key=lambda one: one.name) if entry.is_dir()]
    except OSError:
        return []


def _readable(run: RunDirectory) -> Reference | None:
    """A finished run as a reference; None where its files cannot be read or do not fit each other."""
    try:
        choice, macs = read_choice(run), run.manifest.get("client_macs")
        if choice is None or not isinstance(macs, int):
            return None
        config = run.config
        return Reference(run.path.name, choice.scores, macs, config.seed, choice.budget, recipe_of(config))
    except (AttncemError, LookupError, TypeError, ValueError, OSError):
        return None


def recipe_of(config: RunConfig) -> dict[str, Any]:
    """The options on which the accuracy of a training without a defence depends, beside network, data and seed."""
    augmented = config.data.model_dump(mode="json", include=set(_AUGMENTATION))
    return augmented | config.training.model_dump(mode="json", include=set(_TRAINING))


def is_same_data(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two runs learned from the same images in the same split."""
    marks = [(facts.get("split") or {}).get("sha256") for facts in (one, other)]
    return marks[0] is not None and marks[0] == marks[1] and one.get("data") == other.get("data")


# whether the server is worth it


@dataclass(frozen=True)
class Worth:
    """A defended model against the client alone: both accuracies, and the difference with its 95 % interval.

    ``low`` and ``high`` are None where several seeds have one reference together: nothing tells how far that one is
    from the others. Without ``same_recipe`` a difference may come from the training.
    """

    alone: float
    alone_low: float
    alone_high: float
    macs: int
    defended: float
    difference: float
    low: float | None
    high: float | None
    names: Sequence[str]
    same_recipe: bool = True

    @property
    def verdict(self) -> Literal["better", "not_shown", "not_better"]:
        """Whether the server adds accuracy: shown, not shown, or no."""
        if self.difference <= 0:
            return "not_better"
        return "better" if self.same_recipe and self.low is not None and self.low > 0 else "not_shown"

    @property
    def points(self) -> Sentence:
        """What the server adds, in percentage points, with its interval where there is one, and how sure that is."""
        difference = 100 * self.difference
        if self.low is None or self.high is None:
            words = written("on_device.points", difference=difference)
        else:
            ends = {"low": 100 * self.low, "high": 100 * self.high}
            words = written("on_device.points.interval", difference=difference, **ends)
        if not self.same_recipe:
            return written("on_device.points.other_recipe", points=words)
        return written("on_device.points.not_shown", points=words) if self.verdict == "not_shown" else words

    @property
    def findings(self) -> list[Finding]:
        """A finding where the defended model is not more accurate than the client alone; it says if that is shown."""
        if self.verdict != "not_better":
            return []
        is_shown = self.same_recipe and self.high is not None and self.high < 0
        values: dict[str, Any] = {"accuracy": 100 * self.defended, "alone": 100 * self.alone, "points": self.points}
        values["shown"] = written("on_device.less") if is_shown else written("on_device.no_gain")
        return [finding("server_not_worth_it", name=", ".join(self.names), **values)]


def worth_of(pairs: Sequence[tuple[Estimate, Estimate, Reference]]) -> Worth:
    """The worth of the server from one (accuracy with it, accuracy alone, reference) for each seed."""
    defended, alone = [one for one, _, _ in pairs], [other for _, other, _ in pairs]
    names = list(dict.fromkeys(reference.name for _, _, reference in pairs))
    ends: tuple[float, float] | None = None
    if len(pairs) == 1:
        apart = difference_apart(defended[0], alone[0])
        ends = apart.low, apart.high
    elif len(names) == len(pairs):
        ends = welch_interval([it.mean for it in defended], [it.mean for it in alone])
    low, high = (None, None) if ends is None else ends
    means = fmean(it.mean for it in defended), fmean(it.mean for it in alone)
    return Worth(
        means[1],
        fmean(it.low for it in alone),
        fmean(it.high for it in alone),
        max(reference.macs for _, _, reference in pairs),
        means[0],
        means[0] - means[1],
        low,
        high,
        names,
        all(reference.same_recipe for _, _, reference in pairs),
    )
