"""Start of a run: its folder, its initial weights, and the checks of a resume.

Initial weights come from another run or a .safetensors file. Nothing in a file is executed.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

import attncem
from attncem.base.courses import format_duration
from attncem.base.texts import text
from attncem.base.types import ConfigError, DatasetSpec, RunError
from attncem.config.loading.load import dump_config
from attncem.config.options.model import ModelOptions
from attncem.config.options.run import RunConfig
from attncem.config.plugins import uses_of
from attncem.models.lean import described, plan_of
from attncem.models.split import SplitModel
from attncem.records.checkpoints import fitting, read_tensors
from attncem.records.files import hash_file
from attncem.records.runs import RunDirectory, free_path
from attncem.training.build import options_of
from attncem_edge.noise import SCHEME, new_key

HALVES = ("client", "server")
_SHOWN = 6
"""Largest number of mismatching names in an error; the others are counted."""


def refuse_empty(**paths: str | Path | RunDirectory | None) -> None:
    """Reject an empty path: it is a mistake, such as an unset variable, and does not mean the current folder."""
    for name, path in paths.items():
        if path is not None and not os.fspath(path):
            raise RunError(f"{name} is empty: give the path of a folder")


def new_run(
    config: RunConfig,
    data: Mapping[str, Any],
    out: str | Path | None,
    modules: tuple[nn.Module, nn.Module] | None,
    initial: Mapping[str, Any] | None,
) -> RunDirectory:
    """A folder that rebuilds its model by itself: configuration, facts of the data, the networks' names, the key."""
    path = Path(out) if out is not None else free_path("runs", config.name)
    manifest = {
        "name": config.name,
        "custom_network": modules is not None,
        "architecture": config.model.name if modules is None else " + ".join(map(_name_of, modules)),
        "cut": _cut(config) if modules is None else "own modules",
        **_plan_facts(config, data, modules),
        **({"on_device": True} if config.on_device else {}),
        "data": data,
        "noise_scheme": SCHEME,
        **({"init_from": initial} if initial is not None else {}),
        **({"plugins": [use.to_dict() for use in used]} if (used := uses_of(config)) else {}),
        "versions": {"attncem": attncem.__version__, "torch": torch.__version__, "python": platform.python_version()},
    }
    key = new_key() if config.keyed else None
    return RunDirectory.create(path, config_yaml=dump_config(config), manifest=manifest, key=key)


def _cut(config: RunConfig) -> str:
    return "on device" if config.on_device else str(config.model.cut)


def _plan_facts(config: RunConfig, data: Mapping[str, Any], modules: object | None) -> dict[str, Any]:
    """The plan of a lean client, or of a lean network for the client alone."""
    if config.model.name != "lean" or modules is not None:
        return {}
    spec = DatasetSpec(**data)
    if config.on_device:
        return {"plan": plan_of(spec, config.model, classes=spec.num_classes).facts()}
    planned = plan_of(spec, options_of(config, spec))
    head = planned.width * spec.num_classes if config.release.selective else 0
    return {"plan": {**planned.facts(), "macs": planned.macs + head, "budget": int(config.model.macs or 0)}}


def _name_of(module: nn.Module) -> str:
    return type(module).__qualname__


def start_line(run: RunDirectory, config: RunConfig, done: int) -> str:
    """Summary of the training from the manifest: data, network, device; ``done`` epochs are finished."""
    facts, split, unknown = run.manifest, run.manifest["split"], text("command.start.unknown")
    plan = f"\n  {described(facts['plan'])}" if "plan" in facts else ""
    return text(
        "command.start.train",
        plan=plan,
        run=config.name,
        data=config.data.name if config.data.root is None else f"{config.data.name} {config.data.root}",
        train=split["train"],
        validation=split["validation"],
        test=split["test"],
        network=facts["architecture"],
        cut=facts["cut"],
        shape="×".join(map(str, facts["feature_shape"])),
        bytes=facts["bytes_per_query"],
        device=facts["device"],
        threads=config.threads,
        first=done + 1,
        last=config.training.epochs,
        time=text("command.start.time", time=left) if (left := time_left(run, config, done)) else unknown,
    )


def time_left(run: RunDirectory, config: RunConfig, done: int) -> str:
    """Estimated time of the remaining epochs, from the timed ones; empty before the first."""
    timed = [float(record["seconds"]) for record in run.records("timing.jsonl")]
    left = config.training.epochs - done
    return format_duration(left * median(timed)) if timed and left else ""


# resuming


def check_modules(run: RunDirectory, *, given: bool) -> None:
    """A resumed run must get the same kind of network as at its start."""
    custom = run.manifest.get("custom_network", False)
    if custom and not given:
        raise RunError(f"{run.path} trains your own networks: pass them again as modules=(encoder, server)")
    if given and not custom:
        raise RunError(f"{run.path} trains the network {run.config.model.name}: it takes no modules")


def check_same_start(run: RunDirectory, initial: Mapping[str, Any] | None) -> None:
    """A run that was stopped before its first checkpoint must start again from the same weights."""
    begun_from = run.manifest.get("init_from") or {}
    if initial is not None and begun_from.get("sha256") != initial["sha256"]:
        raise RunError(f"{initial['source']} has changed since {run.path} was started: it cannot be resumed from it")


def check_same_split(run: RunDirectory, sha256: str) -> None:
    """A resumed run must use the same images as before."""
    known = run.manifest.get("split") or {}
    if known.get("sha256", sha256) != sha256:
        raise RunError(
            f"the data or its split has changed since {run.path} was started: it cannot be resumed with them"
        )


# weights


@dataclass(frozen=True)
class InitialWeights:
    """Weights by half, and the SHA-256 of every file that they come from."""

    halves: dict[str, dict[str, Tensor]]
    sha256: dict[str, str]


def start_from_given(model: SplitModel, options: ModelOptions) -> dict[str, Any] | None:
    """Load the weights of model.init_from: facts for the manifest, or None without init_from.

    Names and shapes must be exactly those of the network; ConfigError lists the others.
    """
    if options.init_from is None:
        return None
    parts = HALVES if options.init_parts == "both" else (options.init_parts,)
    given = read_weights(options.init_from, parts)
    modules: dict[str, nn.Module | None] = {"client": model.encoder, "server": model.server}
    wanted = {part: module for part in parts if (module := modules[part]) is not None}
    problems = {part: _differences(given.halves[part], module) for part, module in wanted.items()}
    if any(problems.values()):
        raise ConfigError(_explain(options, problems))
    for part, module in wanted.items():
        module.load_state_dict(given.halves[part])
    return {"source": options.init_from, "parts": list(wanted), "sha256": given.sha256}


def read_weights(source: str, parts: tuple[str, ...]) -> InitialWeights:
    """The halves named in `parts`: from a run's best checkpoint, or from one .safetensors file.

    Tensors in a file are named client.… and server.…, or, for a single half, as in that half.
    """
    path = Path(source).expanduser()
    try:
        return _of_run(RunDirectory.open(path), parts) if path.is_dir() else _of_file(path, parts)
    except RunError as error:
        raise RunError(f"model.init_from={source}: {error}") from error


def _of_run(run: RunDirectory, parts: tuple[str, ...]) -> InitialWeights:
    checkpoint = run.load("best", optimizer=False)
    with fitting(str(checkpoint.folder)):
        hashes = {f"{part}.safetensors": checkpoint.facts["sha256"][f"{part}.safetensors"] for part in parts}
        return InitialWeights({part: checkpoint.weights[part] for part in parts}, hashes)


def _of_file(path: Path, parts: tuple[str, ...]) -> InitialWeights:
    if not path.is_file():
        raise RunError("there is no such run folder or file")
    if path.suffix != ".safetensors":
        raise RunError(
            "only .safetensors files are read: other weight files are pickles, which can run programs. Where you "
            "trust it, convert it once: safetensors.torch.save_file(torch.load(FILE, weights_only=True), NEW_FILE)"
        )
    tensors = read_tensors(path)
    named = all(name.startswith(tuple(f"{half}." for half in HALVES)) for name in tensors)
    if not named and len(parts) > 1:
        raise RunError(
            "its tensors must be called client.… and server.… to fill both halves; "
            "with the names of one half alone, set model.init_parts=client or server"
        )
    halves = {part: _half(tensors, part) if named else tensors for part in parts}
    return InitialWeights(halves, {path.name: hash_file(path)})


def _half(tensors: Mapping[str, Tensor], part: str) -> dict[str, Tensor]:
    return {name.removeprefix(f"{part}."): value for name, value in tensors.items() if name.startswith(f"{part}.")}


def _differences(given: Mapping[str, Tensor], module: nn.Module) -> list[str]:
    """Why the weights do not fit the module, one phrase per name."""
    own = module.state_dict()
    missing = [f"{name} is missing" for name in own if name not in given]
    unknown = [f"{name} is not in the network" for name in given if name not in own]
    shapes = [
        f"{name} is {list(given[name].shape)}, here {list(value.shape)}"
        for name, value in own.items()
        if name in given and given[name].shape != value.shape
    ]
    broken = [f"{name} is not finite" for name in own if name in given and _is_broken(given[name], own[name])]
    return missing + unknown + shapes + broken


def _is_broken(given: Tensor, own: Tensor) -> bool:
    """Whether weights are lost: not finite where the weights of a new network are finite."""
    return bool(own.isfinite().all()) and not bool(given.isfinite().all())


def _explain(options: ModelOptions, problems: Mapping[str, list[str]]) -> str:
    lines = [f"{part} {problem}" for part, found in problems.items() for problem in found]
    more = f"; and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    said = f"model.init_from={options.init_from} does not fit the network: {'; '.join(lines[:_SHOWN])}{more}"
    if "client" in problems and not problems["client"]:
        said += ". The client fits (another number of classes?): model.init_parts=client starts from it alone"
    return said
