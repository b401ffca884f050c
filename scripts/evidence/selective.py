"""Tables of docs/less-to-release.md: clients that send what they are unsure of, and penalties that follow the doubt."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, stdev

from attncem.campaigns.expansion import expand
from attncem.config.options.campaigns import load_campaign
from attncem.records.campaign_table import CampaignTable, CellAudit, CellResult
from attncem.records.leaks import LIMIT, NOT_SENT, OVER_ALL
from attncem.reporting import wording
from evidence.source import Source
from evidence.words import table_of

CAMPAIGNS = ("selective-demo", "selective-cifar10")
GUESSES = ("class mean", "mean image")
"""Blind guesses, each from all of the attacker's images or from those that would be sent."""


@dataclass(frozen=True)
class Measured:
    """One arm at one weight: its cells, one a seed."""

    arm: str
    weight: float
    cells: Sequence[CellResult]

    @property
    def is_selective(self) -> bool:
        """Whether the client answers some images itself."""
        return all(cell.audits[0].sending for cell in self.cells)

    def over_seeds(self, read: Callable[[CellResult], float | None]) -> list[float]:
        """A number of every seed that has it."""
        return [value for cell in self.cells if (value := read(cell)) is not None]


def measured(made: CampaignTable) -> list[Measured]:
    """The arms that release something, at every weight, in the campaign's order."""
    groups: dict[tuple[str, float], list[CellResult]] = defaultdict(list)
    for cell in made.cells:
        if cell.alone is None:
            groups[cell.arm, float(cell.point["training.penalty_weight"])].append(cell)
    return [Measured(arm, weight, cells) for (arm, weight), cells in groups.items()]


def selective_table(source: Source, campaign: str) -> str:
    """Accuracy, the share that is sent, and what the sent images leak beside the others, a line for each arm and λ."""
    made = source.table(campaign)
    if made is None:
        return "Not measured yet."
    columns: dict[str, Callable[[Measured], str]] = {
        "penalty": lambda one: one.arm,
        "λ": lambda one: f"{one.weight:g}",
        "seeds": lambda one: str(len(one.cells)),
        "accuracy %": partial(_percent, accuracy),
        "head alone %": partial(_percent, lambda cell: sending(cell, "alone")),
        "all sent %": partial(_percent, lambda cell: sending(cell, "all_sent") or accuracy(cell)),
        "sent %": partial(_percent, lambda cell: sending(cell, "share")),
        "MSE": partial(_of_attack, "mse"),
        "blind guess": partial(_number, _guess, digits=4),
        "structure": partial(_of_attack, "structure"),
        "re-identified %": partial(_percent, _again),
        "nats ≤, a sent image": partial(_nats, LIMIT),
        "the others, if sent": partial(_nats, NOT_SENT),
        "mean over all": partial(_nats, OVER_ALL),
    }
    lines = table_of(measured(made), columns)
    return "\n".join([lines, "", *_alone(made, campaign)])


def _alone(made: CampaignTable, campaign: str) -> Iterator[str]:
    """The client alone of every budget: the mean over the seeds of the chosen candidate's accuracy."""
    budgets = {planned.cell.arm: planned.cell.budget for planned in expand(load_campaign(campaign))}
    chosen: dict[int, list[float]] = defaultdict(list)
    for cell in made.cells:
        if (budget := budgets[cell.arm]) is not None and (scores := cell.alone or {}) and "test" in scores:
            chosen[budget].append(100 * scores["test"][0])
    for budget, values in sorted(chosen.items()):
        mean = _spread(values, 1)
        yield f"- The client alone, {wording.count(budget)}: {mean} % ({len(values)} seeds), and nothing is sent."


# cells of the table


def accuracy(cell: CellResult) -> float | None:
    """Of client and server together, on all test images."""
    score = cell.audits[0].score("accuracy")
    return None if score is None else score.mean


def sending(cell: CellResult, name: str) -> float | None:
    """A fact of a client that sends some images, None of others."""
    facts = cell.audits[0].sending
    if facts is None:
        return None
    value = getattr(facts, name)
    return float(value[0] if isinstance(value, list) else value)


def _guess(cell: CellResult) -> float | None:
    """The error of the best blind guess of the judged images."""
    attacks = cell.audits[0].attacks or {}
    guesses = [scores["mse"][0] for row, scores in attacks.items() if row.startswith(GUESSES)]
    return min(guesses, default=None)


def _again(cell: CellResult) -> float | None:
    row = (cell.audits[0].probes or {}).get("re-identification", {}).get("rank_1")
    return None if row is None else float(row[0])


def leak(name: str, cell: CellResult) -> float | None:
    """A number of the leak on test images; the audits on validation images only choose."""
    leaks = (audit.leak(name) for audit in _on_test(cell))
    return next((leak.mean for leak in leaks if leak is not None), None)


def _on_test(cell: CellResult) -> list[CellAudit]:
    return list(cell.audits[:2])


def _of_attack(measure: str, one: Measured) -> str:
    def read(cell: CellResult) -> float | None:
        score = cell.audits[0].score(measure)
        return None if score is None else score.mean

    return _number(read, one, digits=4)


def _nats(name: str, one: Measured) -> str:
    return _number(partial(leak, name), one, digits=1)


def _percent(read: Callable[[CellResult], float | None], one: Measured) -> str:
    return _spread([100 * value for value in one.over_seeds(read)], 1)


def _number(read: Callable[[CellResult], float | None], one: Measured, *, digits: int) -> str:
    return _spread(one.over_seeds(read), digits)


def _spread(values: Sequence[float], digits: int) -> str:
    """The mean, with the standard deviation over seeds if there are several; empty without values."""
    if not values:
        return ""
    apart = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{fmean(values):.{digits}f}{apart}"


# comparisons


def ratios(source: Source, campaign: str) -> str:
    """How much more an image that is sent leaks than the others, for each selective arm and λ."""
    made = source.table(campaign)
    if made is None:
        return "Not measured yet."
    lines = []
    for one in measured(made):
        pairs = [(leak(LIMIT, cell), leak(NOT_SENT, cell)) for cell in one.cells]
        values = [sent / rest for sent, rest in pairs if sent and rest]
        if values:
            lines.append(f"- {one.arm}, λ {one.weight:g}: {_spread(values, 2)} times")
    return "\n".join(lines)
