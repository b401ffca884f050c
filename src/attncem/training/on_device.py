"""The on-device reference: trains networks that the client could run alone, and chooses one by validation accuracy."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from attncem.base.progress import Progress, show_line, tell
from attncem.base.texts import text
from attncem.base.types import ConfigError, RunError
from attncem.config.loading.flat import plain
from attncem.config.loading.load import load_config, packaged_configs
from attncem.config.options.model import BottleneckOptions, ModelOptions
from attncem.config.options.run import RunConfig
from attncem.data.batches import DeviceData
from attncem.data.readers import dataset_spec
from attncem.models.cost import count_cost
from attncem.models.lean_plan import default_side, maps_of, plan
from attncem.records.image_scores import summarise
from attncem.records.metrics import accuracy
from attncem.records.on_device import (
    FILE,
    Candidate,
    Choice,
    best_of,
    candidate_of,
    is_choice_of,
    read_choice,
    write_choice,
)
from attncem.records.runs import RunDirectory
from attncem.records.score import Score
from attncem.training.build import build_model, data_of, spec_of
from attncem.training.engine import limited_threads, resolve_device

TRUNK = "trunk"
"""Name of the candidate that is the client's own trunk with a head."""
_LEAN: dict[str, Any] = {
    **{"name": "lean", "cut": 2, "bottleneck": BottleneckOptions().model_dump(), "channels": None, "server": None},
    **{"width": None, "blocks": None, "extra_layer": False, "arguments": {}},
}
"""Options of every lean network for the client alone."""
_LEAST_SIDE = 4
_BATCH = 500
_LONGEST = 100
"""Largest length of a run's name."""
Trainer = Callable[[RunConfig, Path | None, RunDirectory | None], RunDirectory]
"""Trains a configuration into a folder, or resumes a run."""


@dataclass(frozen=True)
class Budget:
    """What the client may spend: the configuration of its run, and its multiply-accumulates."""

    config: RunConfig
    macs: int
    place: Path = Path("runs")
    """Folder of the candidates' runs."""
    custom: bool = False
    """Whether the run has a user's own modules, which have no trunk of ours."""


def budget_of(
    source: str | Path | RunConfig | Mapping[str, Any] | None,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    out: str | Path | None = None,
) -> Budget:
    """The budget of a run folder, or of a configuration with overrides; the runs go beside the run, or to `runs`."""
    if isinstance(source, str | os.PathLike) and _is_folder(source):
        run = RunDirectory.open(Path(source))
        run.require_plugins()
        config, macs = load_config(run.config, overrides).config, run.manifest.get("client_macs")
        custom, beside = bool(run.manifest.get("custom_network")), _beside(run.path)
        if custom and macs is None:
            raise RunError(f"{run.path}: the multiply-accumulates of its client are not known: nothing can be compared")
        if not custom and (config.model, config.data) != (run.config.model, run.config.data):
            macs = None  # overrides describe another client
    else:
        config, macs, custom, beside = load_config(source, overrides).config, None, False, Path("runs")
    if config.on_device:
        raise ConfigError(f"{config.name} runs on the client alone already: give a run or configuration that releases")
    return Budget(config, allowed_macs(config, macs), beside if out is None else Path(out), custom)


def _is_folder(source: str | os.PathLike[str]) -> bool:
    """Whether this is a folder, which must hold a run, and not the name of a packaged configuration."""
    named = os.fspath(source) in packaged_configs()
    return (Path(source) / "manifest.json").is_file() or (Path(source).is_dir() and not named)


def allowed_macs(config: RunConfig, counted: int | None = None) -> int:
    """What the client may spend: its multiply-accumulates, as counted or before any pruning.

    A lean client may spend its declared budget, which it may not use up.
    """
    declared = int(config.model.macs or 0) if config.model.name == "lean" else 0
    return max(declared, counted or client_macs(config))


def _beside(run: Path) -> Path:
    """The folder of a run's siblings, relative where the run's path is."""
    return run.parent if run.name not in ("", "..") else run.resolve().parent


def client_macs(config: RunConfig) -> int:
    """Multiply-accumulates of the client of a configuration, before any pruning."""
    spec = dataset_spec(config.data)
    with torch.random.fork_rng(devices=[]):
        macs = count_cost(build_model(config, spec), spec.shape).client_macs
    assert macs is not None
    return macs


def candidates(budget: Budget) -> dict[str, RunConfig]:
    """The networks of at most this cost, as configurations by their short names.

    They are the client's own trunk with a head, and lean networks that spend the whole budget.
    """
    config, spec = budget.config, dataset_spec(budget.config.data)
    trunk = _trunk(budget)
    fitting = {} if trunk is None else {TRUNK: trunk}
    for side in _sides(config.model, spec.shape, budget.macs):
        with contextlib.suppress(ConfigError):  # the budget is too small for this side
            plan(spec.shape, budget.macs, side, classes=spec.num_classes)
            fitting[f"lean-{side}"] = alone(config, f"lean-{side}", {**_LEAN, "macs": budget.macs, "side": side})
    if not fitting:
        raise ConfigError(
            f"no network of at most {budget.macs:,} multiply-accumulates for images of {spec.shape[1]}x{spec.shape[2]} "
            f"px: lean needs more, and the trunk of {config.model.name} with a head costs more or cannot be built"
        )
    return fitting


def _trunk(budget: Budget) -> RunConfig | None:
    """The client's trunk with a head; None where it costs more than the client, or is no network of its own."""
    if budget.custom or budget.config.model.name == "lean":
        return None
    try:
        config = alone(budget.config, TRUNK)
        return config if client_macs(config) <= budget.macs else None
    except Exception:  # a network of a plugin or of another library may fail in any way
        return None


def _sides(model: ModelOptions, shape: tuple[int, int, int], macs: int) -> list[int]:
    """The last maps that lean networks are tried with: the two smallest of side 4 and more, and that of the client."""
    usual = [side for size in maps_of(shape)[1:] if (side := max(size)) >= _LEAST_SIDE][-2:]
    of_client = [model.side or default_side(shape, model.macs or macs)] if model.name == "lean" else []
    return list(dict.fromkeys([*of_client, *usual]))


def alone(config: RunConfig, name: str, model: Mapping[str, Any] | None = None) -> RunConfig:
    """The configuration of an on-device run: the same data and recipe, without release and defence."""
    data = plain(config)
    undefended = {"front_end": {"name": "none"}, "bottleneck": None, "sigmoid": False}
    without = {"sparse_coding": None, "pruning": None, "init_from": None, "init_parts": "both"}
    data["model"] |= {**undefended, **without, **(model or {})}
    data["training"] |= {"penalty_weight": 0.0, "warmup_epochs": None}
    suffix = f"-on-device-{name}"
    data |= {
        "name": config.name[: _LONGEST - len(suffix)] + suffix,
        "on_device": True,
        "release": {"when": "always"},
        "channel": [{"name": "identity"}],
        "surrogate": {"name": "none"},
        "penalties": [],
    }
    return load_config(data).config


# training and choice


def train_on_device(budget: Budget, trainer: Trainer, progress: Progress | None = None) -> RunDirectory:
    """Train or resume every candidate, choose by validation accuracy, and measure the chosen one on test images.

    Finished candidates are not repeated. Returns the chosen run, which holds the record of the choice.
    """
    configs = candidates(budget)
    _say(text("on_device.start", name=budget.config.name, macs=budget.macs, names=", ".join(configs)), progress)
    runs = [_trained(config, budget.place, trainer) for config in configs.values()]
    return choose(runs, budget.macs)


def _trained(config: RunConfig, place: Path, trainer: Trainer) -> RunDirectory:
    """The finished run of a configuration: the one that is there, resumed where it was interrupted, or a new one."""
    path = next(path for path in _paths(place, config.name) if not path.exists() or _is_of(path, config))
    if (path / "manifest.json").is_file():
        return trainer(config, None, RunDirectory.open(path))
    return trainer(config, path, None)


def _paths(place: Path, name: str) -> Iterator[Path]:
    """PLACE/NAME, then NAME-2, NAME-3, …: another configuration may have the name."""
    yield place / name
    number = 2
    while True:
        yield place / f"{name}-{number}"
        number += 1


def _is_of(path: Path, config: RunConfig) -> bool:
    """Whether a folder holds a run of this configuration, or nothing yet."""
    if not (path / "manifest.json").is_file():
        return path.is_dir() and not any(path.iterdir())
    return RunDirectory.open(path).config == config


def choose(runs: Sequence[RunDirectory], macs: int, *, on_test: bool = True) -> RunDirectory:
    """The finished run with the best validation accuracy; it gets the record of the choice.

    Its accuracy on test images is measured once; without `on_test`, not at all.
    """
    named = {run.path.name: run for run in runs}
    made, budget = [candidate_of(run) for run in runs], macs
    run = named[best_of(made).run]
    there = read_choice(run)
    measured = there is not None and (there.accuracy is not None or not on_test)
    if there is not None and there.budget != macs:  # the best of two budgets
        macs, made = max(macs, there.budget), list({it.run: it for it in (*made, *there.candidates)}.values())
    if there is None or not measured or (there.budget, there.candidates) != (macs, made):
        write_choice(run, _choice(run, macs, made, there, on_test))
    for other in runs:
        if other is not run and is_choice_of(other.path, budget):  # an earlier choice among fewer candidates
            (other.path / FILE).unlink(missing_ok=True)
    return run


def _choice(run: RunDirectory, macs: int, made: list[Candidate], there: Choice | None, on_test: bool) -> Choice:
    """The record of a choice; what is known of the same weights is not measured again."""
    test = (there.accuracy, there.num_images) if there is not None else (None, 0)
    if on_test and test[0] is None:
        test = measured_accuracy(run, "test")
    validation = measured_accuracy(run, "validation")[0] if there is None else there.validation
    mark = run.checkpoint_name("best"), run.encoder_sha256("best")
    return Choice(macs, made, run.path.name, *mark, validation, *test)


@torch.no_grad()
def measured_accuracy(run: RunDirectory, images: Literal["test", "validation"]) -> tuple[Score, int]:
    """The accuracy of an on-device run on these images, with its interval, and their number."""
    config = run.config
    spec, device, checkpoint = spec_of(run, config), resolve_device(config.device), run.load("best", optimizer=False)
    model = build_model(config, spec)
    assert model.server is not None
    checkpoint.restore("client", model.encoder)
    checkpoint.restore("server", model.server)
    model.eval().to(device)
    with limited_threads(config.threads):
        part: DeviceData = getattr(data_of(run, config, spec, device), images)
        right = torch.cat([accuracy(model(x).float(), labels) for x, labels in part.in_order(_BATCH)])
    values = np.asarray(right.double().cpu().numpy())
    return summarise(values, np.asarray(part.labels.cpu().numpy()), spec.num_classes), len(values)


def _say(line: str, progress: Progress | None) -> None:
    if progress is None:
        show_line(line)
    else:
        tell(progress, line)
