"""attncem import-cem."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attncem.base.progress import open_console, show_line
from attncem.base.texts import text
from attncem.base.types import ConfigError
from attncem.cli.verbs.base import Verbs, verb

if TYPE_CHECKING:
    from attncem.cli.importing import Imported


_MOST = 4 * 2**20
"""Bytes of a script that are read; a longer one is refused."""


def add(verbs: Verbs) -> None:
    """The verb `import-cem`."""
    parser = verb(verbs, "import-cem", "Turn commands and checkpoints of CEM or ResSFL into configurations and runs.")
    parser.usage = "attncem import-cem [options] SCRIPT | -- python main_MIA.py --arch=… …"
    parser.epilog = (
        "The script's assignments, loops and conditions are parsed, not executed. One YAML is written for each "
        "training that it would start. With --weights the checkpoints of one training become a run for attncem audit."
    )
    parser.add_argument("source", nargs="+", metavar="SCRIPT", help="script like run_exp.sh, or one command after --")
    parser.add_argument(
        "--out", metavar="FOLDER", help="folder for the YAMLs (default: cem), or with --weights the run"
    )
    parser.add_argument("--weights", metavar="FOLDER", help="folder with checkpoint_f_best.tar and the other two")
    parser.add_argument("--which", default="best", help="checkpoint to read: best or an epoch (default: best)")
    parser.add_argument("--only", metavar="NAME", help="only the training with this name")
    parser.add_argument("--data", metavar="FOLDER", help="folder of the data set: data.root")
    parser.set_defaults(run=_import)


def _import(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.cli.importing import import_commands

    overrides = [f"data.root={known.data}"] if known.data else []
    found, attacks = import_commands(_read(known.source), overrides)
    chosen = [item for item in found if known.only in (None, item.config.name)]
    if not chosen:
        raise ConfigError(f"--only {known.only}: no such training; there are {', '.join(_names(found))}")
    console = open_console()
    for note in dict.fromkeys(note for item in chosen for note in item.notes):
        show_line(text("command.note", said=note), console)
    if attacks:
        show_line(text("command.note", said=text("import.attacks")), console)
    if known.weights:
        _one_run(chosen, known)
    else:
        _write(chosen, Path(known.out or "cem"))


def _read(words: Sequence[str]) -> str | Sequence[str]:
    """A script's text, or the words of a command."""
    if len(words) > 1:
        return words
    try:
        with Path(words[0]).open("rb") as script:
            return script.read(_MOST).decode()  # a device may never end
    except UnicodeDecodeError:
        raise ConfigError(f"{words[0]}: is not text in UTF-8") from None


def _names(found: Sequence[Imported]) -> list[str]:
    return [item.config.name for item in found]


def _one_run(chosen: Sequence[Imported], known: argparse.Namespace) -> None:
    from attncem.cli.importing.weights import import_weights

    if len(chosen) > 1:
        raise ConfigError(f"--weights needs one training: choose it with --only, one of {', '.join(_names(chosen))}")
    run = import_weights(Path(known.weights), chosen[0].config, known.out, which=known.which)
    show_line(text("import.run", path=run.path, accuracy=100 * run.manifest["best"]["validation_accuracy"]))


def _write(chosen: Sequence[Imported], folder: Path) -> None:
    """Write one file per training; an existing file with other content is kept."""
    from attncem.cli.importing import yaml_of
    from attncem.records.files import write_atomic

    files = {folder / f"{item.config.name}.yaml": item for item in chosen}
    contents = {file: yaml_of(item, str(file)).encode() for file, item in files.items()}
    for file, content in contents.items():
        if file.exists() and file.read_bytes() != content:
            raise ConfigError(f"{file} already exists with other content and was not changed: choose another --out")
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in contents.items():
        write_atomic(file, content)
        show_line(text("import.written", file=file))
    show_line(text("import.next", file=next(iter(files))))
