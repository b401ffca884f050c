"""Common parts of the verbs: their parser and their output."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from textwrap import fill
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from rich import box
from rich.table import Column, Table
from rich.text import Text

from attncem.base.progress import clean
from attncem.base.record import plain as to_plain
from attncem.base.shown_paths import without_paths_in
from attncem.base.texts import LANGUAGES, VARIABLE
from attncem.base.types import SCHEMA_VERSION

if TYPE_CHECKING:
    from attncem.base.record import Record
    from attncem.config.options.base import Options


class Parser(argparse.ArgumentParser):
    """A parser whose error messages contain no terminal control characters; `--a_b` is another spelling of `--a-b`."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse what this parser knows; the rest is returned."""
        words = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args([self._spelled(word) for word in words], namespace)

    def _spelled(self, word: str) -> str:
        """The word, or the option of this parser that it spells with underscores."""
        name, equals, value = word.partition("=")
        dashed = name.replace("_", "-")
        return dashed + equals + value if name.startswith("--") and dashed in self._option_string_actions else word

    def options(self) -> list[str]:
        """The long options of this parser and of the verbs below it."""
        below = [action for action in self._actions if isinstance(action, argparse._SubParsersAction)]
        nested = [name for action in below for parser in action.choices.values() for name in parser.options()]
        return [*(name for name in self._option_string_actions if name.startswith("--")), *nested]

    def error(self, message: str) -> NoReturn:
        """Report a mistake on the command line, and exit."""
        super().error(clean(message))


class VerbParser(Parser):
    """A verb; `further` makes the last part of its help on demand."""

    further: Callable[[], str] | None = None
    section: str | None = None

    def format_help(self) -> str:
        """The help text; with a section of the options, only that section."""
        further = self.further() if self.further else ""
        return further if self.section else super().format_help() + (f"\n{further}" if further else "")


class _Help(argparse.Action):
    """`--help`, and `--help SECTION` for one section of the options of a run."""

    def __call__(self, parser: argparse.ArgumentParser, *given: Any) -> None:
        """Print the help, and exit."""
        assert isinstance(parser, VerbParser)
        parser.section = given[1]
        parser.print_help()
        parser.exit()


Verbs: TypeAlias = "argparse._SubParsersAction[VerbParser]"
"""The collection that verbs are added to."""


def _options_help(section: str | None) -> str:
    from attncem.config.loading.describe import format_help

    return format_help(shutil.get_terminal_size((110, 24)).columns, section=section)


def verb(verbs: Verbs, name: str, meaning: str, *, overrides: bool = False) -> VerbParser:
    """Add a verb; with `overrides` it takes KEY=VALUE, and its help lists the options of a run."""
    usage = f"attncem {name} [options] [KEY=VALUE ...]" if overrides else None
    parser = verbs.add_parser(
        name, help=meaning, description=meaning, usage=usage, allow_abbrev=False, add_help=not overrides
    )
    if overrides:
        said = "show this help and exit; with a section, its options: training, surrogate.gated, all"
        parser.add_argument("-h", "--help", action=_Help, nargs="?", metavar="SECTION", help=said)
        parser.further = lambda: _options_help(parser.section)
    parser.set_defaults(takes_overrides=overrides)
    add_language(parser)
    add_plugin(parser)
    return parser


def add_plugin(parser: argparse.ArgumentParser) -> None:
    """Add --plugin, which every verb takes; `load_named` reads it."""
    said = "Python file with an own surrogate, attack, ... (docs/plugins.md); repeatable"
    parser.add_argument("--plugin", action="append", default=argparse.SUPPRESS, metavar="FILE.py", help=said)


def load_named(words: Sequence[str]) -> None:
    """Load every --plugin among the words of a command, before they are parsed: help lists what plugins add."""
    if not any(word.partition("=")[0] == "--plugin" for word in words):
        return
    from attncem.base.plugins import load_plugin

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    add_plugin(parser)
    try:
        named, _ = parser.parse_known_args(words)
    except argparse.ArgumentError:  # without a file; the verb's parser says so
        return
    for file in named.plugin:
        load_plugin(file)


def add_language(parser: argparse.ArgumentParser) -> None:
    """Add --lang, which every verb takes. It has no default, so that it does not replace the value of an outer verb."""
    said = f"language of pages and tables: {', '.join(LANGUAGES)} (default: {VARIABLE}, or {LANGUAGES[0]})"
    parser.add_argument("--lang", default=argparse.SUPPRESS, metavar="LANGUAGE", help=said)


def many_overrides(rest: Sequence[str], root: type[Options]) -> list[str]:
    """Arguments of a command about many runs as overrides: options of the root, or of a run."""
    from attncem.config.loading.overrides import parse_cli_overrides
    from attncem.config.loading.tree import option_tree
    from attncem.config.options.run import RunConfig

    own, runs = option_tree(root), option_tree(RunConfig)
    return parse_cli_overrides(rest, replace(own, keys={**runs.keys, **own.keys}))


def complain(line: str) -> int:
    """Print one line about a mistake; returns its exit code."""
    print(f"attncem: error: {clean(line)}", file=sys.stderr)  # noqa: T201
    return 2


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add --json, which every verb that prints a table takes; its shape is in docs/terminal.md."""
    parser.add_argument("--json", action="store_true", help="print JSON instead")


def print_json(result: Record | Mapping[str, Any], *, local: bool = False) -> None:
    """Print a result to stdout as JSON, without absolute paths unless it is for the same machine (``local``)."""
    plain = to_plain(result)
    data = {"schema_version": SCHEMA_VERSION, **(plain if local else without_paths_in(plain))}
    print(json.dumps(data, indent=1, ensure_ascii=is_ascii(), allow_nan=False))  # noqa: T201


def is_ascii() -> bool:
    """Whether stdout may lack letters; data is then written with its format's escapes, which read back unchanged."""
    return not (sys.stdout.encoding or "").lower().startswith("utf")


def listed(meanings: Mapping[str, str]) -> str:
    """One line per name with its meaning; on a terminal, wrapped to its width."""
    room = max(map(len, meanings), default=0) + 1
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    return "".join(
        fill(f"{name:{room}}{meaning}", max(width, 2 * room), subsequent_indent=" " * room) + "\n"
        for name, meaning in meanings.items()
    )


def table(columns: str, rows: Iterable[Sequence[str]], *, numbers: Collection[int] = ()) -> Table:
    """A narrow table that wraps long words, widest first, instead of cutting them: names and paths stay complete."""
    made = Table(
        *(
            Column(name, justify="right" if place in numbers else "left", overflow="fold")
            for place, name in enumerate(columns.split("|"))
        ),
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for row in rows:
        made.add_row(*(Text(clean(cell)) for cell in row))
    return made
