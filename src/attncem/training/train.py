"""train(): from a configuration to a run folder: what is asked for, checked, locked and reported."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from attncem.base.progress import Progress, show_line, shown, silent, tell
from attncem.base.stages import at_stage
from attncem.base.texts import text
from attncem.base.types import ConfigError, RunError, TrainingError
from attncem.config.loading.load import load_config
from attncem.config.loading.overrides import and_override
from attncem.config.options.run import RunConfig
from attncem.models.halves import keep_halves
from attncem.models.releasing import check_checkpoints, key_cautions
from attncem.records.runs import RunDirectory, UnwrittenRun
from attncem.training.build import Modules, check, data_facts, data_notes
from attncem.training.engine import fastest_convolutions, limited_threads, memory_given_back, resolve_device
from attncem.training.initial import check_modules, check_same_start, new_run, refuse_empty, start_from_given
from attncem.training.on_device import budget_of, train_on_device
from attncem.training.processes import World, joined, launched_processes
from attncem.training.tracking import check_tracker, tracked
from attncem.training.trainer import Trainer

_COMPARED = 4
"""Number of images on which exported ONNX halves are compared with the original modules."""


def train(
    config: str | Path | RunConfig | Mapping[str, Any] | None = None,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    *,
    out: str | Path | None = None,
    resume: str | Path | RunDirectory | None = None,
    init_from: str | Path | RunDirectory | None = None,
    modules: Modules | None = None,
    on_device: bool = False,
    progress: Progress | None = None,
) -> RunDirectory:
    """Train a split model and return its run folder.

    `config` is a packaged name (`attncem config --list`), a YAML file, a mapping or a RunConfig; `overrides` are
    dotted, e.g. ``["training.epochs=3"]``. `out` must be a new folder; the default is runs/NAME-001, -002 … `resume`
    continues an interrupted run instead. `init_from` (a run or a .safetensors file) sets model.init_from. `modules`
    replaces the network by your own (encoder, server). `on_device` trains what the client of this configuration, or of
    a run folder, could do alone: networks of its cost, of which the best on validation is returned; `out` is then the
    folder of their runs.
    """
    refuse_empty(out=out, resume=resume, init_from=init_from)
    if on_device:
        if resume is not None or init_from is not None or modules is not None:
            raise ConfigError("on_device takes a configuration or a run folder: no resume, init_from or modules")
        return train_on_device(budget_of(config, overrides, out), partial(_candidate, progress=progress), progress)
    if resume is not None:
        if config is not None or overrides or out is not None or init_from is not None:
            raise RunError(
                "resume takes everything from the run folder: give no configuration, override, out or init_from"
            )
        run = _begun(resume, modules)
        if run.is_finished:
            return run
        resolved, notes = run.config, list[str]()
    else:
        run, (resolved, notes) = None, _asked(config, overrides, init_from)
    resolved = _for_launch(resolved, begun=run is not None)
    check(resolved, custom_network=modules is not None)
    check_tracker(resolved)
    device = resolve_device(resolved.device)
    others = joined(resolved.processes, device, _help_to_train, (resolved, modules))
    counted = memory_given_back(device, counted=True)
    with counted, limited_threads(resolved.threads), fastest_convolutions(device), others as world:
        if run is None and world.first:
            _say([text("command.note", said=note) for note in (*notes, *data_notes(resolved))], progress)
        # All checks run here, before a folder is made.
        trainer = Trainer(resolved, modules, world)
        if not world.first:
            return _follow(trainer)
        # A run with a checkpoint continues from it.
        if run is None or not run.checkpoints():
            initial = start_from_given(trainer.model, resolved.model)
            run = run or _new_run(trainer, out, modules, initial)
            check_same_start(run, initial)
        with run.locked():
            _train_locked(trainer, run, progress)
            if modules is not None:
                _keep_modules(trainer, run, progress)
        del trainer
    return run


def _candidate(
    config: RunConfig, out: Path | None, there: RunDirectory | None, progress: Progress | None
) -> RunDirectory:
    """Train a network for the client alone, or resume the run that is there."""
    return train(config if there is None else None, out=out, resume=there, progress=progress)


def _asked(
    config: str | Path | RunConfig | Mapping[str, Any] | None,
    overrides: Sequence[str] | Mapping[str, Any],
    init_from: str | Path | RunDirectory | None,
) -> tuple[RunConfig, list[str]]:
    """The configuration of a new run, and notes on how it was made."""
    if init_from is not None:
        overrides = and_override(overrides, "model.init_from", os.fspath(init_from))
    loaded = load_config(config, overrides)
    return loaded.config, loaded.notes


def _begun(resume: str | Path | RunDirectory, modules: Modules | None) -> RunDirectory:
    """The run to resume; RunError unless its plugins, modules and checkpoints allow it."""
    run = RunDirectory.open(resume)
    if not run.is_finished:
        run.require_plugins(same=True)
        check_modules(run, given=modules is not None)
        check_checkpoints(run)
    return run


def _for_launch(config: RunConfig, *, begun: bool) -> RunConfig:
    """The configuration with the number of processes that torchrun started, if any."""
    launched = launched_processes()
    if launched in (1, config.processes):
        return config
    if begun or config.processes > 1:
        raise ConfigError(f"processes={config.processes} in this run, but torchrun started {launched}")
    return load_config(config, {"processes": launched}).config


def _help_to_train(world: World, config: RunConfig, modules: Modules | None) -> None:
    """The work of the processes that the first one started."""
    with limited_threads(config.threads), fastest_convolutions(resolve_device(config.device)):
        _follow(Trainer(config, modules, world))


def _follow(trainer: Trainer) -> RunDirectory:
    """Take part in a run that the first process writes."""
    run = UnwrittenRun()
    trainer.run_all(run, silent)
    return RunDirectory(run.path)


def _new_run(
    trainer: Trainer, out: str | Path | None, modules: Modules | None, initial: Mapping[str, Any] | None
) -> RunDirectory:
    return new_run(trainer.config, data_facts(trainer.data.spec), out, modules, initial)


def _train_locked(trainer: Trainer, run: RunDirectory, progress: Progress | None) -> None:
    """Train to the end and report to `progress`, or else to the terminal; the manifest records how it ended."""
    try:
        _say([f"caution: {caution}" for caution in (*trainer.cautions, *key_cautions(run))], progress)
        with shown(progress) as told, tracked(run, trainer.config) as followed, at_stage("training"):
            trainer.run_all(followed, told, alone=progress is None)
    except KeyboardInterrupt as error:
        run.update_manifest(status="stopped")
        error.add_note(str(run.path))
        raise
    except (TrainingError, MemoryError, RuntimeError):  # torch reports lack of memory as a RuntimeError
        run.update_manifest(status="failed")
        raise


def _keep_modules(trainer: Trainer, run: RunDirectory, progress: Progress | None) -> None:
    """Store the user's halves as ONNX, or report why not: the run is finished either way."""
    problem = keep_halves(run, trainer.model, trainer.data.train.get(slice(0, _COMPARED))[0])
    if problem:
        _say([text("command.note", said=text("command.no_onnx", path=run.path, said=problem))], progress)


def _say(lines: Iterable[str], progress: Progress | None) -> None:
    """Send notes for the user to `progress`, or else to the terminal."""
    for line in lines:
        if progress is None:
            show_line(line)
        else:
            tell(progress, line)
