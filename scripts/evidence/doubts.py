"""How strong the attacks of the tables are: rows beyond the suites, and adversaries from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from attncem.config.options.suites import load_suite
from attncem.config.threats import THREATS, ThreatModel
from attncem.records.campaign_table import AskedAudit, CampaignTable, CellResult
from evidence.drawing import Lines, exact, of_lines
from evidence.source import Source
from evidence.words import not_measured, table_of

SUITES = {"lean-doubts-cifar10": "standard", "doubts-demo": "quick"}
"""Campaigns with rows beyond a suite, and that suite."""
DATA = {"lean-doubts-cifar10": "CIFAR-10", "doubts-demo": "embedded images"}
OUTSIDE = {"outside-cifar10": "decoder global", "outside-demo": "decoder small"}
"""Campaigns with adversaries from outside, and the row that is compared."""
_DATA_OUTSIDE = {"outside-cifar10": "CIFAR-10", "outside-demo": "embedded images"}
FEWER_IMAGES = ("white box", "flow prior", "flow prior search")
"""Rows that attack fewer images than the others: their errors cannot be compared."""
GUESS = "class mean"
FIGURE = "results-attacks.svg"
NOTABLE = 1.0
"""From how many percent less error on a row counts as stronger."""
ANSWERS = 1000
"""Number of answers of the client at which attackers that can only query are compared."""
_NAMES = {"vgg-kmeans": "the baseline's client", "capacity": "lean client", "none": "no defence", "lean": "lean client"}


@dataclass(frozen=True)
class Judged:
    """A model under the suite's row, under the strongest of all rows with one release, and under a guess."""

    campaign: str
    cell: CellResult
    errors: dict[str, float]
    reliable: dict[str, bool]

    @property
    def name(self) -> str:
        """Data and model."""
        return f"{DATA[self.campaign]}, {_NAMES.get(self.cell.arm, self.cell.arm)}"

    @property
    def usual(self) -> str:
        """The strongest row of the suite."""
        rows = load_suite(SUITES[self.campaign]).suite.rows
        return min((row for row in self.errors if row in rows), key=self.errors.__getitem__)

    @property
    def strongest(self) -> str:
        """The row with the least error, of the suite or beyond it."""
        return min(self.errors, key=self.errors.__getitem__)

    @property
    def less(self) -> float:
        """By how many percent its error is below that of the suite's row; 0 if no row is stronger."""
        return 100 * (1 - self.errors[self.strongest] / self.errors[self.usual])


def judged(source: Source) -> list[Judged]:
    """Every model that was attacked with rows beyond the suites."""
    made = [(campaign, source.table(campaign)) for campaign in SUITES]
    return [_judged(campaign, cell, table) for campaign, table in made if table for cell in table.cells]


def _judged(campaign: str, cell: CellResult, table: CampaignTable) -> Judged:
    rows = {
        row: scores
        for asked, audit in zip(table.audits, cell.audits, strict=True)
        if (asked.threat or "train") == "train"
        for row, scores in (audit.attacks or {}).items()
        if row not in FEWER_IMAGES
    }
    errors = {row: scores["mse"][0] for row, scores in rows.items()}
    return Judged(campaign, cell, errors, {row: bool(scores["reliable"]) for row, scores in rows.items()})


def strength_table(source: Source) -> str:
    """The suite's strongest row beside the strongest of all, on each model."""
    columns: dict[str, Callable[[Judged], str]] = {
        "model": lambda one: one.name,
        "the suite's strongest": lambda one: f"`{one.usual}`",
        "strongest of all": lambda one: f"`{one.strongest}`{_doubt(one)}",
        "the suite's MSE": lambda one: f"{one.errors[one.usual]:.4f}",
        "MSE of all": lambda one: f"{one.errors[one.strongest]:.4f}",
        "less error, %": lambda one: f"{one.less:.1f}",
        "a guess that knows the label": lambda one: f"{one.errors[GUESS]:.4f}",
    }
    return table_of(judged(source), columns, left=3)


def _doubt(one: Judged) -> str:
    return "" if one.reliable[one.strongest] else " (not reliable)"


# adversaries from outside


@dataclass(frozen=True)
class Outsider:
    """An adversary that lacks something, and its error over that of one that lacks nothing, on each model."""

    campaign: str
    asked: AskedAudit
    more: dict[str, float]

    @property
    def threat(self) -> ThreatModel:
        """Its threat model."""
        return self.asked.adversary or THREATS[self.asked.threat or "train"]

    @property
    def has(self) -> str:
        """What it has instead of all training images and any number of releases."""
        threat = self.threat
        if threat.pictures is not None:
            return f"{threat.pictures.count:,} pictures of {threat.pictures.name}"
        if not threat.knows_encoder:
            return (
                "no client, any number of answers"
                if threat.queries is None
                else f"no client, {threat.queries:,} answers"
            )
        return f"{threat.images:,} training images" if threat.images is not None else threat.name


def outsiders(source: Source) -> list[Outsider]:
    """Every such adversary whose row is there for every model."""
    return [one for campaign in OUTSIDE if (table := source.table(campaign)) for one in _outsiders(table)]


def _outsiders(table: CampaignTable) -> Iterator[Outsider]:
    row = OUTSIDE[table.campaign]
    for place, asked in enumerate(table.audits[1:], 1):
        errors = [
            (cell.arm, (cell.audits[place].attacks or {}).get(row), (cell.audits[0].attacks or {})[row])
            for cell in table.cells
        ]
        if all(there for _, there, _ in errors):
            more = {arm: 100 * (there["mse"][0] / whole["mse"][0] - 1) for arm, there, whole in errors if there}
            yield Outsider(table.campaign, asked, more)


def outside_table(source: Source) -> str:
    """How much more error an adversary from outside has on each model, in percent."""
    columns: dict[str, Callable[[Outsider], str]] = {
        "attacker has": lambda one: one.has,
        "more error, %": lambda one: ", ".join(f"{arm} {more:+.0f}" for arm, more in one.more.items()),
    }
    return "\n\n".join(
        f"`{campaign}`, `{row}` against an attacker with all training images:\n\n"
        + table_of([one for one in outsiders(source) if one.campaign == campaign], columns, left=2)
        for campaign, row in OUTSIDE.items()
        if source.table(campaign)
    )


# the answer and the figure


def answer(source: Source) -> str:
    """By how much stronger rows lower the error, and by how much adversaries from outside miss it."""
    rows = judged(source)
    if not rows:
        return f"Attacks beyond the suites are {not_measured(next(iter(SUITES)))}."
    stronger = [one for one in rows if one.less >= NOTABLE]
    named = " and ".join(f"`{one.strongest}` leaves {one.less:.0f} % less error ({one.name})" for one in stronger)
    first = f"On {len(stronger)} of {len(rows)} models a row beyond the suite is stronger than the suite's: {named}"
    if not stronger:
        first = f"No row beyond the suites is stronger than the suite's on any of {len(rows)} models"
    return f"{first}. {_outside(source)}".strip()


def _outside(source: Source) -> str:
    """How much error an attacker adds that has pictures from elsewhere, or can only query the client."""
    parts = []
    for campaign in OUTSIDE:
        there = [one for one in outsiders(source) if one.campaign == campaign]
        elsewhere = [more for one in there if one.threat.pictures is not None for more in one.more.values()]
        asked = [more for one in there if one.threat.queries == ANSWERS for more in one.more.values()]
        if elsewhere and asked:
            pictures, answers = (f"{min(more):.0f} to {max(more):.0f} %" for more in (elsewhere, asked))
            parts.append(
                f"{pictures} more error with pictures from elsewhere and {answers} more with {ANSWERS:,} answers of "
                f"the client ({_DATA_OUTSIDE[campaign]})"
            )
    return f"An attacker without the training images has {', '.join(parts)}." if parts else ""


def figure(source: Source) -> bytes | None:
    """The error of every comparable row on every model, as a share of a guess that knows the label."""
    rows = judged(source)
    if not rows:
        return None
    names = sorted({row for one in rows for row in one.errors if row != GUESS}, key=_rank(rows))
    lines = [
        (name, [exact(100 * one.errors[name] / one.errors[GUESS]) if name in one.errors else None for one in rows])
        for name in names
    ]
    across = "error, % of a guess that knows the label; less is a stronger attack"
    return of_lines(
        FIGURE, Lines("Attacks of the suites and beyond", across, [one.name for one in rows], lines, at=100)
    )


def _rank(rows: list[Judged]) -> Callable[[str], float]:
    """Rows by their least share of the guess's error."""
    return lambda row: min(one.errors[row] / one.errors[GUESS] for one in rows if row in one.errors)
