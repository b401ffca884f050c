"""attncem train."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from attncem.base.progress import show_line
from attncem.base.texts import text
from attncem.cli.verbs.base import Verbs, verb


def add(verbs: Verbs) -> None:
    """The verb `train`."""
    parser = verb(verbs, "train", "Train a split model.", overrides=True)
    parser.add_argument("--config", metavar="NAME_OR_FILE", help="packaged configuration or YAML file (default: demo)")
    parser.add_argument("--out", metavar="FOLDER", help="new folder for the run (default: runs/NAME-001, -002 ...)")
    parser.add_argument("--init-from", metavar="RUN_OR_FILE", help="start from a run or a .safetensors file")
    parser.add_argument("--fast", metavar="WAY", help="short for training.fast: how a GPU runs the steps")
    parser.add_argument("--track", action="store_true", help="short for training.track=tensorboard (extra `track`)")
    parser.add_argument("--resume", metavar="RUN", help="resume an interrupted run; takes no other option")
    parser.set_defaults(run=_train)


def _train(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.config.loading.load import load_config
    from attncem.config.loading.overrides import parse_cli_overrides

    short = [f"training.fast={known.fast}"] if known.fast else []
    short += ["training.track=tensorboard"] if known.track else []
    overrides = parse_cli_overrides([*rest, *short])
    config = known.config
    if known.resume is None:
        config = config or "demo"
        load_config(config, overrides)  # report a mistake before importing torch
    from attncem.training.train import train

    run = train(config, overrides, out=known.out, resume=known.resume, init_from=known.init_from)
    accuracy = run.manifest["best"]["validation_accuracy"]
    show_line(text("command.trained", path=run.path, accuracy=100 * accuracy))
