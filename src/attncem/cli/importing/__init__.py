"""Import from CEM and ResSFL: their commands become configurations, their checkpoints become runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from attncem.base.types import ConfigError
from attncem.cli.importing.flags import flags_of, translate
from attncem.cli.importing.shell import commands
from attncem.config.loading.load import dump_config, load_config
from attncem.config.options.run import RunConfig

__all__ = ["Imported", "import_commands", "yaml_of"]

TRAINS, ATTACKS = "main_MIA.py", "main_test_MIA.py"
_LONGEST = 2**20


@dataclass(frozen=True)
class Imported:
    """A training of the baseline as a configuration: the command, and notes on the differences."""

    config: RunConfig
    command: str
    notes: list[str]


def import_commands(source: str | Sequence[str], overrides: Sequence[str] = ()) -> tuple[list[Imported], int]:
    """The trainings in a script's text, or in the words of one command, and the number of skipped attack commands.

    Nothing is run. `overrides` are applied to every configuration, e.g. ``["data.root=/data"]``.
    """
    if isinstance(source, str) and len(source) > _LONGEST:
        raise ConfigError(f"longer than {_LONGEST:,} characters: no script of the baseline is")
    found = commands(source) if isinstance(source, str) else [list(source)]
    trainings = [words for words in found if _program(words) == TRAINS]
    attacks = sum(_program(words) == ATTACKS for words in found)
    if not trainings:
        raise ConfigError(f"no command with {TRAINS} in it: give the baseline's script, or one of its commands")
    return _named_apart([_imported(words, overrides) for words in trainings]), attacks


def _program(words: Sequence[str]) -> str:
    names = (PurePath(word).name for word in words)
    return next((name for name in names if name in (TRAINS, ATTACKS)), "")


def _imported(words: Sequence[str], overrides: Sequence[str]) -> Imported:
    at = next(place for place, word in enumerate(words) if PurePath(word).name == TRAINS)
    command = " ".join(" ".join(words[at:]).split())  # one line, for a comment
    try:
        made = translate(flags_of(words[at + 1 :]))
        return Imported(load_config(made.config, overrides).config, command, made.notes)
    except ConfigError as error:
        raise ConfigError(f"{command[:100]} …: {error}") from None


def _named_apart(found: Iterable[Imported]) -> list[Imported]:
    """Equal trainings once; different ones of the same name get a number as a suffix."""
    kept: dict[str, Imported] = {}
    for item in found:
        if item.config in [other.config for other in kept.values()]:
            continue
        name, number = item.config.name, 1
        while name in kept:
            number += 1
            name = f"{item.config.name[:96]}-{number}"
        config = item.config if name == item.config.name else load_config(item.config, {"name": name}).config
        kept[name] = Imported(config, item.command, item.notes)
    return list(kept.values())


def yaml_of(item: Imported, file: str) -> str:
    """The YAML of a training; comments give the command to run it, its origin and the differences."""
    head = [f"attncem train --config {file}", f"From: python {item.command}", *(f"- {note}" for note in item.notes)]
    return "".join(f"# {line}\n" for line in head) + dump_config(item.config)
