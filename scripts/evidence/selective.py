"""Tables of docs/less-to-release.md: clients that send what they are unsure of, and penalties that follow the doubt."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import fmean, stdev
from typing import TypeAlias

from attncem.records.campaign_table import CampaignTable, CellAudit
from attncem.records.leaks import LIMIT, NOT_SENT, OVER_ALL
from attncem.records.study import ACCURACY
from attncem.records.study import Cell as StudyCell
from attncem.reporting import wording
from evidence.source import Setting, Source, planned_cells
from evidence.words import table_of

GUESSES = ("class mean", "mean image")
"""Blind guesses, each from all of the attacker's images or from those that would be sent."""
Cell: TypeAlias = StudyCell[CellAudit]
Read: TypeAlias = Callable[[Cell], float | None]


def over_seeds(arm: Setting, read: Read) -> list[float]:
    """A number of every seed that has it."""
    return [value for cell in arm.cells if (value := read(cell)) is not None]


def selective_table(source: Source, campaign: str) -> str:
    """Accuracy, the share that is sent, and what the sent images leak beside the others, a line for each arm and λ."""
    made = source.table(campaign)
    if made is None:
        return "Not measured yet."
    columns: dict[str, Callable[[Setting], str]] = {
        "penalty": lambda arm: arm.name,
        "λ": lambda arm: f"{arm.weight:g}",
        "seeds": lambda arm: str(len(arm.cells)),
        "accuracy %": partial(_percent, score),
        "head alone %": partial(_percent, partial(sending, "alone")),
        "all sent %": partial(_percent, lambda cell: sending("all_sent", cell) or score(cell)),
        "sent %": partial(_percent, partial(sending, "share")),
        "MSE": partial(_number, partial(score, measure="mse"), digits=4),
        "blind guess": partial(_number, guess, digits=4),
        "structure": partial(_number, partial(score, measure="structure"), digits=4),
        "re-identified %": partial(_percent, _again),
        "nats ≤, a sent image": partial(_number, partial(leak, LIMIT), digits=1),
        "the others, if sent": partial(_number, partial(leak, NOT_SENT), digits=1),
        "mean over all": partial(_number, partial(leak, OVER_ALL), digits=1),
    }
    return "\n".join([table_of(source.arms(campaign), columns), "", *_alone(made, campaign)])


def _alone(made: CampaignTable, campaign: str) -> Iterator[str]:
    """The client alone of every budget: the mean over the seeds of the chosen candidate's accuracy."""
    for budget, values in alone(made, campaign).items():
        mean = _spread([100 * value for value in values], 1)
        yield f"- The client alone, {wording.count(budget)}: {mean} % ({len(values)} seeds), and nothing is sent."


def alone(made: CampaignTable, campaign: str) -> dict[int, list[float]]:
    """The accuracy of the client alone by budget, a number for each seed."""
    budgets = {planned.cell.arm: planned.cell.budget for planned in planned_cells(campaign)}
    chosen: dict[int, list[float]] = defaultdict(list)
    for cell in made.cells:
        if (budget := budgets[cell.arm]) is not None and (scores := cell.alone or {}) and "test" in scores:
            chosen[budget].append(scores["test"][0])
    return dict(sorted(chosen.items()))


# cells of the table


def score(cell: Cell, measure: str = ACCURACY) -> float | None:
    """The accuracy of client and server together on all test images, or a measure of the strongest attack."""
    ends = cell.score(measure)
    return None if ends is None else ends.mean


def leak(name: str, cell: Cell) -> float | None:
    """A number of the leak on test images."""
    number = cell.leak(name)
    return None if number is None else number.mean


def sending(name: str, cell: Cell) -> float | None:
    """A fact of a client that sends some images, None of others."""
    facts = cell.results[0].sending
    if facts is None:
        return None
    value = getattr(facts, name)
    return float(value[0] if isinstance(value, list) else value)


def guess(cell: Cell) -> float | None:
    """The error of the best blind guess of the judged images."""
    attacks = cell.results[0].attacks or {}
    return min((scores["mse"][0] for row, scores in attacks.items() if row.startswith(GUESSES)), default=None)


def _again(cell: Cell) -> float | None:
    row = (cell.results[0].probes or {}).get("re-identification", {}).get("rank_1")
    return None if row is None else float(row[0])


def _percent(read: Read, arm: Setting) -> str:
    return _spread([100 * value for value in over_seeds(arm, read)], 1)


def _number(read: Read, arm: Setting, *, digits: int) -> str:
    return _spread(over_seeds(arm, read), digits)


def _spread(values: Sequence[float], digits: int) -> str:
    """The mean, with the standard deviation over seeds if there are several; empty without values."""
    if not values:
        return ""
    apart = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{fmean(values):.{digits}f}{apart}"


# comparisons


def ratios(source: Source, campaign: str) -> str:
    """How much more an image that is sent leaks than the others, for each selective arm and λ."""
    lines = []
    for arm in source.arms(campaign):
        pairs = [(leak(LIMIT, cell), leak(NOT_SENT, cell)) for cell in arm.cells]
        values = [sent / rest for sent, rest in pairs if sent and rest]
        if values:
            lines.append(f"- {arm.name}, λ {arm.weight:g}: {_spread(values, 2)} times")
    return "\n".join(lines) or "Not measured yet."
