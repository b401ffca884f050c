"""Reads the training commands in a shell script or a command line of the baseline. Nothing is run.

Supported: assignments, `for NAME in WORDS`, `if [ A = B ]` with `else`, variables, quotes, comments, continued lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from attncem.base.types import ConfigError

_QUOTED = r""""(?:[^"\\]|\\.)*"|'[^']*'|\\."""
_TOKEN = re.compile(rf"#[^\n]*|[;\n]|(?:[^\s;\"'#\\]|{_QUOTED})(?:[^\s;\"'\\]|{_QUOTED})*", re.DOTALL)
_PART = re.compile(r""""((?:[^"\\]|\\.)*)"|'([^']*)'|\\(.)|([^"'\\]+)""", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_LONE_VARIABLE = re.compile(r"\$(?:\{\w+\}|\w+)")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_TESTED = {"=": True, "==": True, "!=": False}
_INNER = ("do", "done", "then", "else", "elif", "fi")
_WOULD_RUN = ("$(", "`")
_MOST_STATEMENTS = 20_000
"""Maximum number of statements, with loops unrolled: a script with many nested loops is not a list of trainings."""
_DEEPEST = 30
_LONGEST_WORD = 2**16
"""Maximum length of a word with its variables replaced: each may hold the one before twice."""


@dataclass(frozen=True)
class _Block:
    """A loop or an `if`: its head, its body, and for an `if` the `else` branch."""

    head: list[str]
    inside: list[_Block | list[str]]
    otherwise: list[_Block | list[str]] = field(default_factory=list)


def commands(text: str) -> list[list[str]]:
    """The commands of a script, split into words, in the order of execution."""
    statements = _statements(text.replace("\\\r\n", " ").replace("\\\n", " "))
    tree, rest = _parse(statements, 0, _INNER)
    if rest < len(statements):
        raise ConfigError(f"{' '.join(statements[rest])!r}: it has no start")
    return list(_Walk().through(tree, {}))


def _statements(text: str) -> list[list[str]]:
    found: list[list[str]] = [[]]
    for token in _TOKEN.findall(text):
        if token in (";", "\n"):
            found.append([])
        elif not token.startswith("#"):
            if found[-1] in (["do"], ["then"], ["else"]):  # the rest of the line is a separate statement
                found.append([])
            found[-1].append(token)
    return [words for words in found if words]


def _parse(
    statements: Sequence[list[str]], at: int, ends: tuple[str, ...], depth: int = 0
) -> tuple[list[_Block | list[str]], int]:
    """The statements before one of `ends`, and the position of that end."""
    if depth > _DEEPEST:
        raise ConfigError(f"loops are nested more than {_DEEPEST} deep")
    tree: list[_Block | list[str]] = []
    while at < len(statements) and statements[at][0] not in ends:
        words = statements[at]
        if words[0] not in ("for", "if"):
            tree.append(words)
            at += 1
            continue
        opened, closed = ("do", ("done",)) if words[0] == "for" else ("then", ("else", "fi"))
        at = _expect(statements, at + 1, (opened,), words)
        inside, at = _parse(statements, at, closed, depth + 1)
        otherwise: list[_Block | list[str]] = []
        if at < len(statements) and statements[at][0] == "else":
            otherwise, at = _parse(statements, at + 1, ("fi",), depth + 1)
        at = _expect(statements, at, closed[-1:], words)
        tree.append(_Block(words, inside, otherwise))
    return tree, at


def _expect(statements: Sequence[list[str]], at: int, wanted: tuple[str, ...], head: list[str]) -> int:
    if at >= len(statements) or statements[at][0] not in wanted:
        raise ConfigError(f"{' '.join(head)!r}: {wanted[0]} is missing")
    return at + 1


class _Walk:
    """Walks through a tree with the values of its variables."""

    def __init__(self) -> None:
        self.steps = 0

    def through(self, tree: Sequence[_Block | list[str]], known: dict[str, str]) -> Iterator[list[str]]:
        """The commands of a tree; assignments change `known`."""
        for node in tree:
            self.steps += 1
            if self.steps > _MOST_STATEMENTS:
                raise ConfigError(
                    f"more than {_MOST_STATEMENTS:,} statements with loops unrolled: give a part of the script"
                )
            if isinstance(node, _Block):
                yield from self._block(node, known)
            elif (given := _ASSIGNMENT.fullmatch(node[0])) and len(node) == 1:
                known[given[1]] = " ".join(_expand(given[2], known, split=False))
            else:
                yield [word for part in node for word in _expand(part, known)]

    def _block(self, block: _Block, known: dict[str, str]) -> Iterator[list[str]]:
        if block.head[0] == "if":
            yield from self.through(block.inside if _holds(block.head, known) else block.otherwise, known)
            return
        if len(block.head) < 3 or block.head[2] != "in":
            raise ConfigError(f"{' '.join(block.head)!r}: only loops of the form for NAME in WORDS are understood")
        for value in [word for part in block.head[3:] for word in _expand(part, known)]:
            known[block.head[1]] = value
            yield from self.through(block.inside, known)


def _holds(head: list[str], known: dict[str, str]) -> bool:
    """Whether `if [ A = B ]` is true."""
    words = [" ".join(_expand(part, known, split=False)) for part in head[1:] if part not in ("[", "]", "[[", "]]")]
    if len(words) != 3 or words[1] not in _TESTED:
        raise ConfigError(f"{' '.join(head)!r}: only [ A = B ] and [ A != B ] are understood")
    return (words[0] == words[2]) == _TESTED[words[1]]


def _expand(word: str, known: dict[str, str], *, split: bool = True) -> list[str]:
    """A word with its variables replaced and its quotes removed; an unquoted variable may become several words."""
    if any(mark in word for mark in _WOULD_RUN) and not word.startswith("'"):
        return [word]  # kept: a training that needs it is refused by the flag that holds it
    if split and _LONE_VARIABLE.fullmatch(word):
        return _value(word, known).split()
    return ["".join(_plain(part, known) for part in _PART.finditer(word))]


def _plain(part: re.Match[str], known: dict[str, str]) -> str:
    double, single, escaped, bare = part.groups()
    if double is not None:
        return re.sub(r"\\(.)", r"\1", _value(double, known))
    return single if single is not None else escaped if escaped is not None else _value(bare, known)


def _value(text: str, known: dict[str, str]) -> str:
    """Variables replaced; an unset variable is empty, as in a shell."""
    names = [name[1] or name[2] for name in _VARIABLE.finditer(text)]
    if len(text) + sum(len(known.get(name, "")) for name in names) > _LONGEST_WORD:
        raise ConfigError(
            f"{text[:60]!r} …: with its variables replaced, it has more than {_LONGEST_WORD:,} characters"
        )
    return _VARIABLE.sub(lambda name: known.get(name[1] or name[2], ""), text)
