"""Tokens: who may ask, and how often.

A file has one line for each client: a name, a token, and if wanted the number of its releases. ``#`` starts a comment.
Without a file the variable ATTNCEM_TOKEN may hold the only token.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import sqlite3
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from attncem.base.types import ConfigError, DataError
from attncem.deploy.serving.refusal import Refusal, busy

VARIABLE = "ATTNCEM_TOKEN"
SHORTEST = 16
"""Letters of a token at least: it must not be guessed."""
_LARGEST = 1 << 20
_LARGEST_BUDGET = 2**53


@dataclass(frozen=True)
class Token:
    """The name of a client, the SHA-256 of its token, and its budget in releases, or None."""

    name: str
    digest: bytes = field(repr=False)
    budget: int | None = None


def read_tokens(file: str | Path | None, budget: int | None, environment: Mapping[str, str]) -> list[Token]:
    """The tokens of a file, or of the environment; ``budget`` is that of clients without one of their own."""
    if file is None:
        secret = environment.get(VARIABLE, "")
        return [_token(VARIABLE, ["client", secret], budget)] if secret else []
    path = Path(file)
    if path.stat().st_size > _LARGEST:
        raise DataError(f"{path} has more than {_LARGEST} bytes: it is no file of tokens")
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8: it is no file of tokens") from error
    words = [(number, line.partition("#")[0].split()) for number, line in enumerate(lines, 1)]
    tokens = [_token(f"{path}, line {number}", line, budget) for number, line in words if line]
    _refuse_repeated(path, tokens)
    return tokens


def _refuse_repeated(path: Path, tokens: Sequence[Token]) -> None:
    if not tokens:
        raise ConfigError(f"{path} holds no token; a line is: NAME TOKEN [BUDGET]")
    for kind in ({it.name for it in tokens}, {it.digest for it in tokens}):
        if len(kind) < len(tokens):
            raise ConfigError(f"{path}: a name or a token stands in two lines")


def _token(place: str, words: Sequence[str], budget: int | None) -> Token:
    """The token of one line; its text is never part of a message."""
    if len(words) not in (2, 3):
        raise ConfigError(f"{place}: a line is NAME TOKEN [BUDGET]")
    name, secret, *rest = words
    if len(secret) < SHORTEST or not secret.isascii():
        raise ConfigError(
            f"{place}: a token has at least {SHORTEST} ASCII letters; make one with: openssl rand -hex 32"
        )
    if rest and not (rest[0].isascii() and rest[0].isdigit() and 0 < int(rest[0]) <= _LARGEST_BUDGET):
        raise ConfigError(f"{place}: the budget must be a whole number of releases, at least 1")
    return Token(name, hashlib.sha256(secret.encode()).digest(), int(rest[0]) if rest else budget)


def readable_by_others(file: str | Path) -> bool:
    """Whether other users of this machine may read a file."""
    return os.name == "posix" and bool(Path(file).stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))


def holder(tokens: Sequence[Token], authorization: str | None) -> Token | None:
    """The token of a request, None where the server has no tokens; Refusal 401 otherwise.

    All hashes are compared, each in constant time: the time of an answer shows nothing of a token.
    """
    if not tokens:
        return None
    scheme, _, secret = (authorization or "").partition(" ")
    digest = hashlib.sha256(secret.strip().encode("utf-8", "surrogateescape")).digest()
    fitting = [token for token in tokens if hmac.compare_digest(token.digest, digest)]
    if scheme.lower() != "bearer" or not fitting:
        raise Refusal(401, "a token is needed: Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"})
    return fitting[0]


def _open(file: str | Path) -> sqlite3.Connection:
    """The file of counts with its table; it is closed where it is none."""
    base = sqlite3.connect(file, isolation_level=None, timeout=5, check_same_thread=False)
    try:
        base.execute("PRAGMA synchronous=FULL")
        base.execute("CREATE TABLE IF NOT EXISTS releases (token TEXT PRIMARY KEY, used INTEGER NOT NULL)")
    except sqlite3.Error:
        base.close()
        raise
    return base


class Counts:
    """The releases of every token, on disk before they are answered.

    Releases are taken from the file ``BLOCK`` at a time. A killed server therefore counts at most BLOCK − 1 releases
    per token too many, never one too few; a stopped one gives the rest back. Several servers may share the file.
    """

    BLOCK = 64

    def __init__(self, file: str | Path) -> None:
        self._file = file
        self._in_hand: dict[str, int] = {}
        try:
            self._base = _open(file)
        except sqlite3.Error as error:
            raise DataError(f"{file} is no file of counts: {error}") from error

    def all_used(self) -> dict[str, int]:
        """The releases of every token in the file, less those that this server may still answer."""
        rows = self._base.execute("SELECT token, used FROM releases").fetchall()
        return {name: used - self._in_hand.get(name, 0) for name, used in rows}

    def take(self, token: Token, releases: int) -> None:
        """Count the releases of one request; Refusal 429 where the budget does not hold them."""
        if token.budget is None:
            return
        if (missing := releases - self._in_hand.get(token.name, 0)) > 0:
            self._fetch(token, token.budget, missing)
        self._in_hand[token.name] -= releases

    def _fetch(self, token: Token, budget: int, missing: int) -> None:
        """Move a block from the file to this server."""
        try:
            self._base.execute("BEGIN IMMEDIATE")
            try:
                room = budget - self._on_disk(token.name)
                block = min(max(missing, self.BLOCK), room)
                if block < missing:
                    left = max(room, 0) + self._in_hand.get(token.name, 0)
                    raise Refusal(429, f"the budget of {token.name}, {budget} releases, has {left} left")
                self._add(token.name, block)
            except BaseException:
                self._base.execute("ROLLBACK")
                raise
            self._base.execute("COMMIT")
        except sqlite3.Error:
            raise busy("the count of releases cannot be written") from None
        self._in_hand[token.name] = self._in_hand.get(token.name, 0) + block

    def _on_disk(self, name: str) -> int:
        row = self._base.execute("SELECT used FROM releases WHERE token = ?", (name,)).fetchone()
        return int(row[0]) if row else 0

    def _add(self, name: str, count: int) -> None:
        self._base.execute(
            "INSERT INTO releases VALUES (?, ?) ON CONFLICT (token) DO UPDATE SET used = used + excluded.used",
            (name, count),
        )

    def close(self) -> None:
        """Give back what was not answered."""
        for name, count in self._in_hand.items():
            if count:
                self._add(name, -count)
        self._in_hand.clear()
        self._base.close()
