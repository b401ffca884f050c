"""attncem train."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from attncem.base.progress import show_line
from attncem.base.texts import text
from attncem.base.types import ConfigError
from attncem.cli.verbs.base import Verbs, verb

if TYPE_CHECKING:
    from attncem.records.runs import RunDirectory


def add(verbs: Verbs) -> None:
    """The verb `train`."""
    parser = verb(verbs, "train", "Train a split model.", overrides=True)
    parser.add_argument("--config", metavar="NAME_OR_FILE", help="packaged configuration or YAML file (default: demo)")
    parser.add_argument("--out", metavar="FOLDER", help="new folder for the run (default: runs/NAME-001, -002 ...)")
    parser.add_argument("--init-from", metavar="RUN_OR_FILE", help="start from a run or a .safetensors file")
    parser.add_argument("--fast", metavar="WAY", help="short for training.fast: how a GPU runs the steps")
    parser.add_argument("--track", action="store_true", help="short for training.track=tensorboard (extra `track`)")
    parser.add_argument("--resume", metavar="RUN", help="resume an interrupted run; takes no other option")
    said = "train what the client of a run or configuration could do alone, the reference of a defended run"
    parser.add_argument("--on-device", metavar="RUN_OR_CONFIG", help=said)
    parser.set_defaults(run=_train)


def _train(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.config.loading.load import load_config
    from attncem.config.loading.overrides import and_override, parse_cli_overrides

    short = [f"training.fast={known.fast}"] if known.fast else []
    short += ["training.track=tensorboard"] if known.track else []
    overrides = parse_cli_overrides([*rest, *short])
    if known.on_device is not None:
        _train_on_device(known, overrides)
        return
    config = known.config
    if known.resume is None:
        config = config or "demo"
        asked = and_override(overrides, "model.init_from", known.init_from) if known.init_from else overrides
        load_config(config, asked)  # report a mistake before importing torch
    from attncem.training.train import train

    run = train(config, overrides, out=known.out, resume=known.resume, init_from=known.init_from)
    facts = run.manifest
    accuracy = 100 * facts["best"]["validation_accuracy"]
    if facts.get("on_device"):
        show_line(text("on_device.finished", path=run.path, accuracy=accuracy))
    else:
        show_line(text("command.trained", path=run.path, accuracy=accuracy))
    _show_selection(run)


def _show_selection(run: RunDirectory) -> None:
    """What a client with a head sends, and whether the wanted accuracy is reached; nothing for the others."""
    from attncem.base.record import read
    from attncem.records.checkpoints import read_facts
    from attncem.records.selection import Selection

    kept = read_facts(run.path / "checkpoints" / run.checkpoint_name("best")).get("release")
    if not kept:
        return
    chosen = read(Selection, kept, run.path)
    shares = {name: 100 * getattr(chosen, name) for name in ("share", "accuracy", "alone", "all_sent")}
    facts = {"path": run.path, "images": chosen.images, "threshold": chosen.threshold}
    show_line(text("command.selection", **facts, **shares))
    if not chosen.reached:
        show_line(text("command.selection.missed", path=run.path, wanted=run.config.release.accuracy))


def _train_on_device(known: argparse.Namespace, overrides: Sequence[str]) -> None:
    """Train the candidates of a budget, and print the chosen one with its accuracy."""
    if known.config or known.resume or known.init_from:
        raise ConfigError("--on-device RUN_OR_CONFIG stands alone: leave out --config, --resume and --init-from")
    from attncem.records.on_device import read_choice
    from attncem.training.train import train

    run = train(known.on_device, overrides, out=known.out, on_device=True)
    choice = read_choice(run)
    assert choice is not None and choice.accuracy is not None
    score, counts = choice.accuracy, {"count": len(choice.candidates), "images": choice.num_images}
    numbers = {"accuracy": 100 * score.mean, "low": 100 * score.low, "high": 100 * score.high}
    show_line(text("on_device.trained", path=run.path, **counts, **numbers))
