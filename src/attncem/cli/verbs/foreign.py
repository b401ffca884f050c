"""Options of `attncem audit --encoder FILE.onnx`: a foreign encoder, its data and its channel."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attncem.base.types import ConfigError

if TYPE_CHECKING:
    from attncem.judging.opening import OpenRun

_NEEDED = ("data", "channel", "out")
_LIMITS = {"seconds": "encoder_seconds", "memory": "encoder_memory"}
_ONLY = ("data", "channel", "size", "mean", "std", "layout", "output", *_LIMITS.values())
"""Options that apply only to a foreign encoder."""


def add_encoder(parser: argparse.ArgumentParser) -> None:
    """Add the options of an encoder without a run."""
    group = parser.add_argument_group(
        "an encoder without a run", "attncem audit --encoder FILE.onnx --data DATA --channel YAML --out FOLDER"
    )
    group.add_argument("--encoder", metavar="FILE.onnx", help="audit this ONNX file; nothing in it is executed as code")
    group.add_argument("--data", metavar="NAME_OR_FOLDER", help="data set, or folder of pictures, labelled or not")
    group.add_argument("--channel", metavar="YAML", help='e.g. "{name: gaussian, noise_std: 0.1}", or a list of stages')
    group.add_argument("--size", type=int, metavar="PIXELS", help="scale pictures to this (default: the file's size)")
    group.add_argument("--mean", metavar="A,B,C", help="subtracted from each channel of images in [0, 1] (default: 0)")
    group.add_argument("--std", metavar="A,B,C", help="divisor of each channel after that (default: 1)")
    group.add_argument("--layout", help="order of the input's axes: nchw or nhwc (default: nchw)")
    group.add_argument("--output", metavar="TENSOR", help="cut the graph at this tensor (default: its only output)")
    group.add_argument(
        "--encoder-seconds", type=float, metavar="S", help="time limit for reading it and for each batch (default: 60)"
    )
    group.add_argument(
        "--encoder-memory", type=float, metavar="GIB", help="memory limit of its process, on Linux (default: 4)"
    )


def open_given(known: argparse.Namespace) -> OpenRun:
    """Open the encoder that the options describe; ConfigError names the missing or wrong option."""
    from attncem.config.loading.load import load_config

    for name in _NEEDED:
        if getattr(known, name) is None:
            raise ConfigError(f"--encoder needs --{name}: see attncem audit --help")
    if known.weights != "best":
        raise ConfigError(f"--weights {known.weights}: an encoder's file holds one set of weights")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(known.encoder).stem).strip("-._")[:100] or "encoder"
    given = {
        "name": name,
        "data": _data(known.data),
        "channel": _yaml(known.channel, "--channel"),
        **({"threads": known.threads} if known.threads else {}),
    }
    config = load_config(given).config  # report a mistake before importing torch
    options = {name: _numbers(known, name) for name in ("mean", "std") if getattr(known, name) is not None}
    options |= {name: getattr(known, name) for name in ("size", "layout", "output") if getattr(known, name) is not None}
    from attncem.judging.opening import open_encoder

    return open_encoder(
        known.encoder,
        data=config.data.model_dump(),
        channel=config.channel_options,
        name=config.name,
        device=known.device,
        options=options,
        limits={name: value for name, option in _LIMITS.items() if (value := getattr(known, option)) is not None},
        threads=config.threads,
    )


def refuse_without_encoder(known: argparse.Namespace) -> None:
    """ConfigError if an option is set that applies only to a foreign encoder."""
    for name in _ONLY:
        if getattr(known, name) is not None:
            option = name.replace("_", "-")
            raise ConfigError(f"--{option} is for an encoder without a run: give --encoder FILE.onnx, or leave it out")


def _data(given: str) -> dict[str, Any]:
    """Options of a data set by its name, or of a folder of pictures."""
    from attncem.config.loading.suggest import did_you_mean, nearest
    from attncem.data.specs import DATASETS
    from attncem.records.runs import nearest_folder

    if given in DATASETS:
        return {"name": given}
    if not Path(given).is_dir():
        guess = did_you_mean(nearest(given, DATASETS) or nearest_folder(Path(given)))
        names = ", ".join(DATASETS)
        raise ConfigError(f"--data {given}: is not a folder, and no data set has this name: {names}{guess}")
    return {"name": "image_folder", "root": given}


def _yaml(given: str, option: str) -> Any:
    from attncem.config.loading.yaml_text import parse_yaml

    found = parse_yaml(given, option)
    if isinstance(found, str):
        found = {"name": found}
    if not isinstance(found, dict | list):
        raise ConfigError(
            f'{option} {given}: must be a stage, as "{{name: gaussian, noise_std: 0.1}}", or a list of them'
        )
    return found


def _numbers(known: argparse.Namespace, name: str) -> list[float]:
    given = getattr(known, name)
    try:
        return [float(part) for part in given.split(",")]
    except ValueError as error:
        raise ConfigError(f"--{name} {given}: must be numbers with commas, e.g. 0.5,0.5,0.5") from error
