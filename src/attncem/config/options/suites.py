"""Audit suites: attacks, probes and certificates with their order and options."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, field_validator

from attncem.base.types import ConfigError
from attncem.config.loading.flat import plain
from attncem.config.loading.load import load, packaged_folder, packaged_names, resolve
from attncem.config.loading.overrides import Override, parse_overrides
from attncem.config.loading.suggest import did_you_mean, nearest
from attncem.config.loading.tree import Node, option_tree
from attncem.config.loading.yaml_text import parse_yaml
from attncem.config.options.attacks import AttackOptions
from attncem.config.options.base import Options
from attncem.config.options.certificates import CertificateOptions
from attncem.config.options.opened import Opened
from attncem.config.options.probes import ProbeOptions

_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")

RowOptions = Annotated[AttackOptions | ProbeOptions | CertificateOptions, Field(discriminator="name"), Opened("attack")]
"""Options of one row of a suite: of an attack, of a probe or of a certificate."""


class Suite(Options):
    """A fixed, versioned list of attacks: results are comparable only within one version."""

    model_config = ConfigDict(title="suite")
    packaged = "suites"

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Name of the suite, used for the files of its audits."""
    version: int
    """Increased whenever the rows change."""
    meaning: str
    """Content and purpose, in one line."""
    rows: dict[str, RowOptions]
    """Options of every row by its displayed name, in execution order."""

    @field_validator("rows")
    @classmethod
    def _check_names(cls, rows: dict[str, RowOptions]) -> dict[str, RowOptions]:
        if not rows:
            raise ValueError("there must be at least one")
        taken = {name: f"{name}.json of every audit" for name in ("audit", "joined")}
        for row in rows:
            file = row_file(row)
            if not file:
                raise ValueError(f"the name {row!r} has no letter or digit (a-z, 0-9)")
            if file in taken:
                raise ValueError(f"{taken[file]!r} and {row!r} would have the same file, {file}")
            taken[file] = row
        return rows


@dataclass(frozen=True)
class LoadedSuite:
    """A suite with its overrides laid over it; ``changed`` are those that made a difference, as overrides."""

    suite: Suite
    changed: list[str]


def row_file(name: str) -> str:
    """The name of a row's file: lower case, everything but letters and digits as single hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def packaged_suites() -> dict[str, Suite]:
    """The packaged suites by name, from the smallest to the largest."""
    suites = [load(Suite, name).config for name in packaged_names(packaged_folder(Suite))]
    return {suite.name: suite for suite in sorted(suites, key=lambda suite: len(suite.rows))}


def load_suite(
    source: str | Path | Mapping[str, Any] | Suite, overrides: Sequence[str] | Mapping[str, Any] = ()
) -> LoadedSuite:
    """Read a suite and lay ``overrides`` over its rows.

    ``source``: a packaged name, the path of a YAML file, a mapping or a suite. ``overrides``: ``ROW.OPTION=VALUE``
    strings or {"ROW.OPTION": value}. ROW is a row's name, that of its file (with - or _), or a method for all its
    rows; what is said to a row by its own name wins over what is said to its method.
    """
    base = source if isinstance(source, Suite) else load(Suite, source).config
    if not overrides:
        return LoadedSuite(base, [])
    suite = resolve(Suite, source, _row_overrides(base, overrides)).config
    return LoadedSuite(suite, _differences(base, suite))


def select_rows(suite: Suite, only: Sequence[str] = (), skip: Sequence[str] = ()) -> list[str]:
    """Names of the rows to run, in the suite's order. Entries: rows, their files, or methods for all their rows."""
    wanted = _chosen(suite, "only", only) if only else set(suite.rows)
    rows = [row for row in suite.rows if row in wanted - _chosen(suite, "skip", skip)]
    if not rows:
        chosen = [f"{word}={', '.join(names)}" for word, names in (("only", only), ("skip", skip)) if names]
        raise ConfigError(
            f"{' with '.join(chosen)} leaves no row of the suite {suite.name}; {_rows_and_methods(suite)}"
        )
    return rows


def override_tree(suite: Suite) -> Node:
    """The tree of all keys that overrides of a suite may have, e.g. for ``parse_cli_overrides``."""
    rows = option_tree(Suite).keys["rows"].below("")
    keys = {word: rows.chosen({"name": suite.rows[named[0]].name}) for word, named in _addresses(suite).items()}
    return Node(keys=keys, word="suite", allowed=_rows_and_methods(suite))


def _addresses(suite: Suite) -> dict[str, list[str]]:
    """The rows that a word stands for: a row's name or that of its file, else a method."""
    methods: dict[str, list[str]] = {}
    for row, options in suite.rows.items():
        methods.setdefault(options.name, []).append(row)
    spellings = {word: [row] for row in suite.rows for word in _spellings(row)}
    return spellings | {method: rows for method, rows in methods.items() if method not in spellings}


def _spellings(row: str) -> tuple[str, ...]:
    return row, row_file(row), row_file(row).replace("-", "_")


def _rows_and_methods(suite: Suite) -> str:
    methods = dict.fromkeys(options.name for options in suite.rows.values())
    return f"Rows: {', '.join(suite.rows)}; methods: {', '.join(methods)}"


def _chosen(suite: Suite, word: str, names: Sequence[str]) -> set[str]:
    rows_of = _addresses(suite)
    for name in names:
        if name not in rows_of:
            guess = did_you_mean(nearest(name, rows_of)) or "."
            raise ConfigError(f"{word}={name}: no row or method of this name{guess} {_rows_and_methods(suite)}")
    return {row for name in names for row in rows_of[name]}


def _row_overrides(suite: Suite, overrides: Sequence[str] | Mapping[str, Any]) -> list[Override]:
    """One override for every row that is meant: first those by method, then those by a row's own name."""
    tree, rows_of = override_tree(suite), _addresses(suite)
    if isinstance(overrides, Mapping):
        parsed = parse_overrides({_by_file(str(key), suite): value for key, value in overrides.items()}, tree)
    else:
        parsed = parse_overrides([_by_file(text, suite) for text in overrides], tree)
    files = {row_file(row) for row in suite.rows}
    return [
        Override(("rows", row, *override.path[1:]), plain(override.value))
        for override in sorted(parsed, key=lambda override: override.path[0] in files)
        for row in rows_of[str(override.path[0])]
    ]


def _by_file(text: str, suite: Suite) -> str:
    """The override with a row called by its file, whose name has no dot; ``rows.`` before it, as in a YAML, goes."""
    text = text.strip()
    text = text if "rows" in _addresses(suite) else text.removeprefix("rows.")
    words = {word: row_file(row) for row in suite.rows for word in _spellings(row)}
    for word in sorted(words, key=len, reverse=True):
        if text.startswith(word) and text[len(word) :][:1] in ("", ".", "="):
            return words[word] + text[len(word) :]
    return text


def _differences(base: Suite, suite: Suite) -> list[str]:
    """What the second suite has otherwise than the first, as overrides that lead from one to the other."""
    differences = []
    for row, options in suite.rows.items():
        before = plain(base.rows[row]) if options.name == base.rows[row].name else {}
        after = sorted(plain(options).items(), key=lambda item: item[0] != "name")  # the method before its options
        changed = {key: value for key, value in after if key not in before or before[key] != value}
        differences += [f"{row}.{key}={_typed(value)}" for key, value in changed.items()]
    return differences


def _typed(value: Any) -> str:
    """A value as an override gives it: read as YAML it is the same again."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_typed(key)}: {_typed(item)}' for key, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(_typed(item) for item in value)}]"
    if isinstance(value, float):
        return repr(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    plain_word = isinstance(value, str) and _WORD.fullmatch(value) and parse_yaml(value, value) == value
    return value if plain_word else json.dumps(value, ensure_ascii=False)
