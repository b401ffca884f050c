"""Budgets: how much may leave a device about one image, and about all. Counted on disk before anything is sent.

The file holds a hash of the pixels of each image that was sent, under a key in the same file, and never a picture:
whoever has the file can test whether a picture that they have was sent, and learns nothing of others.

A count is written and synced before its release is sent, so a kill at any moment may count a release that was never
sent, and never the reverse.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import math
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from attncem_edge.device import make_private, require_private
from attncem_edge.errors import AttncemError, BudgetSpent, ConfigError

UNITS = ("releases", "nats")
_WAIT = 30.0
"""Seconds to wait for another process that counts."""
_ROUNDING = 1e-9
_TABLES = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value ANY NOT NULL);
CREATE TABLE IF NOT EXISTS releases (
  image BLOB NOT NULL, source BLOB NOT NULL, count INTEGER NOT NULL, spent REAL NOT NULL,
  PRIMARY KEY (image, source)
);
"""
Cost = Callable[[int], float]
"""What so many releases of one image cost together."""


@dataclass(frozen=True)
class Budget:
    """Limits for one image and for the whole device, in releases or in nats; None: no limit.

    ``file``: where releases are counted; None: in the folder of the device. All models that share a file share the
    budget.
    """

    per_image: float | None = None
    total: float | None = None
    unit: str = "releases"
    file: str | Path | None = None

    def __post_init__(self) -> None:
        """ConfigError for limits that are none."""
        if self.unit not in UNITS:
            raise ConfigError(f"unit={self.unit} is unknown; allowed: {', '.join(UNITS)}")
        limits = [it for it in (self.per_image, self.total) if it is not None]
        if not limits or not all(math.isfinite(it) and it > 0 for it in limits):
            raise ConfigError("a budget needs per_image or total, each a number above 0")


@dataclass(frozen=True)
class Spending:
    """One release to be counted: the pixels, what made it, what it costs, and whether it repeats an earlier one."""

    pixels: bytes
    source: str
    cost: Cost
    repeats: bool


class Counter:
    """Counts releases in a file that processes share; ConfigError where it cannot."""

    def __init__(self, budget: Budget, file: Path) -> None:
        self.budget, self.file = budget, file
        if not file.exists():
            make_private(file, b"")
        require_private(file)
        with self._changing() as base:
            self._key = self._facts(base)

    def count(self, spending: Spending) -> None:
        """Count a release before it is sent; BudgetSpent where a limit does not allow it: then nothing may be sent."""
        image, source = self._mark(spending.pixels), self._mark(spending.source.encode())
        with self._changing() as base:
            row = base.execute(
                "SELECT count, spent FROM releases WHERE image = ? AND source = ?", (image, source)
            ).fetchone()
            if row is not None and spending.repeats:
                return
            before, spent = row or (0, 0.0)
            price = max(0.0, spending.cost(before + 1) - spent)
            self._check(base, image, price)
            base.execute(
                "INSERT OR REPLACE INTO releases VALUES (?, ?, ?, ?)", (image, source, before + 1, spent + price)
            )
            base.execute("UPDATE facts SET value = value + ? WHERE name = 'total'", (price,))

    def spent(self) -> float:
        """What the whole device has spent."""
        with self._changing() as base:
            return float(base.execute("SELECT value FROM facts WHERE name = 'total'").fetchone()[0])

    def _check(self, base: sqlite3.Connection, image: bytes, price: float) -> None:
        """BudgetSpent where this price is more than what is left for the image or for the device."""
        of_image = base.execute("SELECT total(spent) FROM releases WHERE image = ?", (image,)).fetchone()[0]
        total = base.execute("SELECT value FROM facts WHERE name = 'total'").fetchone()[0]
        for what, used, limit in (
            ("this image", of_image, self.budget.per_image),
            ("this device", total, self.budget.total),
        ):
            if limit is not None and used + price > limit * (1 + _ROUNDING):
                raise BudgetSpent(
                    f"the budget of {what} is spent: {used:.6g} of {limit:g} {self.budget.unit}, and this release "
                    f"costs {price:.6g}; nothing was sent"
                )

    def _facts(self, base: sqlite3.Connection) -> bytes:
        """Make the tables of a new file; the key of its marks. ConfigError where it counts in another unit."""
        for statement in filter(str.strip, _TABLES.split(";")):
            base.execute(statement)
        new = {"key": secrets.token_hex(32), "unit": self.budget.unit, "total": 0.0}
        base.executemany("INSERT OR IGNORE INTO facts VALUES (?, ?)", new.items())
        facts = dict(base.execute("SELECT name, value FROM facts").fetchall())
        if facts["unit"] != self.budget.unit:
            raise ConfigError(
                f"{self.file} counts {facts['unit']}, not {self.budget.unit}: count in that unit, or choose "
                "another folder for the device"
            )
        return bytes.fromhex(facts["key"])

    def _mark(self, data: bytes) -> bytes:
        """A hash under the key of this file, so marks of two devices cannot be compared."""
        return hmac.digest(self._key, data, hashlib.sha256)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        """One change of the file: all of it, synced to the disk, or nothing. Other processes wait."""
        try:
            base = sqlite3.connect(
                f"{self.file.absolute().as_uri()}?mode=rw", uri=True, timeout=_WAIT, isolation_level=None
            )
        except sqlite3.Error as error:
            raise ConfigError(f"{self.file} cannot be opened: {error}; nothing was sent") from error
        try:
            base.execute("PRAGMA synchronous = EXTRA")
            base.execute("BEGIN IMMEDIATE")
            yield base
            base.execute("COMMIT")
        except AttncemError:
            raise
        except (sqlite3.Error, ValueError, TypeError, KeyError) as error:
            raise ConfigError(
                f"{self.file} cannot count: {error}; nothing was sent. Free the disk, or restore the file"
            ) from error
        finally:
            base.close()  # what was not committed is undone


def costs(unit: str, nats: Mapping[str, float]) -> Cost:
    """What n releases of one image cost: their number, or the smallest audited limit of their leakage.

    Releases are independent given the image, so n of them leak at most as much as groups of audited sizes together.
    """
    if unit == "releases":
        return float
    limits = {int(count): limit for count, limit in nats.items() if int(count) > 0}
    if not limits:
        raise ConfigError(
            "unit=nats: the bundle has no audited limit in nats; audit the run with the suite certificates and export "
            "it again, or count releases"
        )
    least = [0.0]

    def cost(count: int) -> float:
        while len(least) <= count:
            least.append(min(least[max(0, len(least) - many)] + limit for many, limit in limits.items()))
        return least[count]

    return cost
