"""What a client gains that sends only the images it is unsure of: the answer, a short table and the figure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from attncem.records.leaks import LIMIT, NOT_SENT, OVER_ALL, say_leak
from attncem.records.statistics import seed_summary
from attncem.records.study import ACCURACY
from attncem.reporting import wording
from attncem.reporting.campaign.plots import Ink
from attncem.reporting.figures import marker_of
from evidence import selective
from evidence.drawing import legend, svg
from evidence.selective import leak, over_seeds, score, sending
from evidence.server import gain, interval_of
from evidence.source import Setting, Source
from evidence.words import listed, not_measured, table_of

CAMPAIGNS = {"selective-cifar10": "CIFAR-10", "selective-demo": "embedded images"}
"""The campaigns of selective clients with their data; the first one that is measured leads."""
FIGURE = "results-unsure.svg"
WEIGHED = ("doubt", "gated-doubt", "worst")
"""Penalties that weigh images."""
_BUDGET = re.compile(r"-\d+M$")
"""The end of an arm's name where a campaign has several budgets."""


@dataclass(frozen=True)
class Group:
    """The arms of a campaign at one budget, all at the same, largest λ; and the client alone of that budget."""

    data: str
    budget: int
    arms: Sequence[Setting]
    alone: Sequence[float]

    @property
    def weight(self) -> float:
        """Their λ."""
        return self.arms[0].weight

    @cached_property
    def selective(self) -> list[Setting]:
        """The arms that send only some images."""
        return [arm for arm in self.arms if over_seeds(arm, partial(sending, "share"))]

    def arm(self, name: str) -> Setting | None:
        """The arm of a penalty."""
        return next((arm for arm in self.arms if kind(arm) == name), None)


def kind(arm: Setting) -> str:
    """The name of an arm without its budget."""
    return _BUDGET.sub("", arm.name)


def campaigns(source: Source) -> list[str]:
    """The campaigns that are measured."""
    return [campaign for campaign in CAMPAIGNS if source.table(campaign) is not None]


def groups(source: Source, campaign: str) -> list[Group]:
    """The arms of a campaign by budget, the smallest first."""
    made, arms = source.table(campaign), source.arms(campaign)
    alone = selective.alone(made, campaign) if made else {}
    budgets = sorted({int(arm.config.model.macs or 0) for arm in arms})
    there = {one: [arm for arm in arms if int(arm.config.model.macs or 0) == one] for one in budgets}
    return [
        Group(
            CAMPAIGNS[campaign],
            one,
            [arm for arm in of if arm.weight == max(it.weight for it in of)],
            alone.get(one, []),
        )
        for one, of in there.items()
    ]


def nats(arm: Setting, name: str = LIMIT) -> float | None:
    """A number of the leak, the mean over the seeds that have it."""
    values = over_seeds(arm, partial(leak, name))
    return seed_summary(values).mean if values else None


# the table


def short_table(source: Source, campaign: str) -> str:
    """Accuracy, the share that is sent and nats, a line for each penalty at the largest λ of each budget."""
    columns: dict[str, Callable[[Setting], str]] = {
        "penalty": lambda arm: f"{kind(arm)}, λ {arm.weight:g}",
        "client": lambda arm: wording.count(int(arm.config.model.macs or 0)),
        "seeds": lambda arm: str(len(arm.cells)),
        "accuracy %": partial(_percent, read=score),
        "head alone %": partial(_percent, read=partial(sending, "alone")),
        "sent %": partial(_percent, read=partial(sending, "share")),
        "nats ≤, a sent image": partial(_nats, name=LIMIT),
        "the others, if sent": partial(_nats, name=NOT_SENT),
        "mean over all": partial(_nats, name=OVER_ALL),
    }
    return table_of([arm for group in groups(source, campaign) for arm in group.arms], columns, left=2)


def _percent(arm: Setting, read: selective.Read) -> str:
    values = over_seeds(arm, read)
    return f"{100 * seed_summary(values).mean:.1f}" if values else ""


def _nats(arm: Setting, name: str) -> str:
    value = nats(arm, name)
    return "" if value is None else say_leak(name, value)


# the answer


def answer(source: Source) -> str:
    """What an image that is sent leaks beside one of the full release, and whether the server adds accuracy."""
    measured = campaigns(source)
    if not measured:
        return f"Selective clients are {not_measured(next(iter(CAMPAIGNS)))}."
    there = groups(source, measured[0])
    return f"{_leaks(there[0])} {_adds(there)}"


_APART = 0.02
"""Relative difference of two limits from which one is called higher."""


def _leaks(group: Group) -> str:
    """The limits of a sent image under each penalty, against that of the full release at the same λ."""
    limits = {kind(arm): value for arm in group.arms if (value := nats(arm)) is not None}
    if not {"full", "uniform"} <= limits.keys():
        return "The limit on an image that is sent is not measured yet."
    times = limits["uniform"] / limits["full"]
    word = "higher than" if times > 1 + _APART else "lower than" if times < 1 - _APART else "close to"
    rest = [f"{say_leak(LIMIT, limits[name])} (`{name}`)" for name in WEIGHED if name in limits]
    scores = {kind(arm): 100 * arm.accuracy for arm in group.arms}
    return (
        f"The limit on an image that is sent is {word} that of a client that sends everything: "
        f"{say_leak(LIMIT, limits['uniform'])} against {say_leak(LIMIT, limits['full'])} nats, at an accuracy of "
        f"{scores['uniform']:.1f} against {scores['full']:.1f} %{'; other weights: ' if rest else ''}{listed(rest)} "
        f"({group.data}, {wording.count(group.budget)} multiply-accumulates, λ {group.weight:g})."
    )


def _adds(there: Sequence[Group]) -> str:
    """How often client and server are shown to be more accurate than the client's head, and than the client alone."""
    gains = [_gain(arm) for group in there for arm in group.selective]
    worth = [one.mean for one in gains if one.low is not None and one.low > 0]
    beaten = [
        gain(interval_of(arm.values(ACCURACY)), interval_of(group.alone)) == "more"
        for group in there
        for arm in group.selective
        if group.alone
    ]
    points = f", by up to {100 * max(worth):.1f} points" if worth else ""
    alone = [
        f"{100 * seed_summary(group.alone).mean:.1f} % with {wording.count(group.budget)}"
        for group in there
        if group.alone
    ]
    second = (
        f"; in {sum(beaten) or 'none'} they are shown to be more accurate than a client trained to answer alone "
        f"({listed(alone)})"
    )
    return (
        f"In {len(worth) or 'none'} of {len(gains)} settings client and server are shown to be more accurate than the "
        f"client's own head{points}{second if alone else ''}; 95 % intervals over seeds."
    )


def _gain(arm: Setting) -> Any:
    """What the server adds to the head of the same client, over seeds."""
    pairs = [(score(cell), sending("alone", cell)) for cell in arm.cells]
    return seed_summary([whole - head for whole, head in pairs if whole is not None and head is not None])


# the figure


def figure(source: Source) -> bytes | None:
    """Accuracy over the limit of an image that is sent, with the client alone as a line; None if not measured yet."""
    measured = campaigns(source)
    if not measured:
        return None
    there, data = groups(source, measured[0]), CAMPAIGNS[measured[0]]

    def draw(axes: Any, ink: Ink) -> None:
        kinds = list(dict.fromkeys(kind(arm) for group in there for arm in group.arms))
        for place, group in enumerate(there):
            for arm in group.arms:
                number, x = kinds.index(kind(arm)), nats(arm)
                if x is None:
                    continue
                marker, size = marker_of(number), 7 if place else 5
                label = f"{kind(arm)}, {wording.count(group.budget)}"
                axes.plot([x], [100 * arm.mean(ACCURACY)], marker, color=ink.of(number), markersize=size, label=label)
            if group.alone:
                level = 100 * seed_summary(group.alone).mean
                label = f"{wording.count(group.budget)}, the client alone"
                axes.axhline(
                    level, color=ink.muted, linewidth=0.9, linestyle="dashed" if place else "dotted", label=label
                )
        axes.set_xlabel("nats that an image that is sent leaks at most (95 % limit)")
        axes.set_ylabel("accuracy %")
        legend(axes)

    return svg("unsure", f"Accuracy and the limit of an image that is sent, {data}", draw)
