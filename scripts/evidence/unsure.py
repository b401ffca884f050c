"""What a client gains that sends only the images it is unsure of: the answer, a short table and the figure."""

from __future__ import annotations

import math
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
FULL, EQUAL = "full", "uniform"
"""The arm that sends every image, and that of equal weights."""
WEIGHED = ("doubt", "gated-doubt", "worst")
"""Penalties that weigh images."""
SHOWN = (FULL, EQUAL, "doubt")
"""Arms of the short table."""
_BUDGET = re.compile(r"-\d+M$")
"""The end of an arm's name where a campaign has several budgets."""


@dataclass(frozen=True)
class Group:
    """The arms of a campaign at one budget, and the client alone of that budget over its seeds."""

    data: str
    budget: int
    arms: Sequence[Setting]
    alone: Sequence[float]

    @cached_property
    def selective(self) -> list[Setting]:
        """The arms that send only some images."""
        return [arm for arm in self.arms if over_seeds(arm, partial(sending, "share"))]

    @property
    def weights(self) -> list[float]:
        """Their λ."""
        return sorted({arm.weight for arm in self.arms})

    def at(self, weight: float) -> dict[str, Setting]:
        """The arms at one λ by their penalty, as far as their limit is measured."""
        return {kind(arm): arm for arm in self.arms if arm.weight == weight and nats(arm) is not None}

    def worth(self, arm: Setting) -> bool:
        """Whether client and server are shown to be more accurate than the client alone."""
        return bool(self.alone) and gain(interval_of(arm.values(ACCURACY)), interval_of(self.alone)) == "more"

    def beaten(self, arm: Setting) -> bool:
        """Whether sending everything is at least as accurate with at most the limit, at any λ."""
        whole = [one for one in self.arms if kind(one) == FULL]
        return any(one.accuracy >= arm.accuracy and limit_of(one) <= limit_of(arm) for one in whole)


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
    there: dict[int, list[Setting]] = {}
    for arm in arms:
        there.setdefault(int(arm.config.model.macs or 0), []).append(arm)
    return [Group(CAMPAIGNS[campaign], budget, there[budget], alone.get(budget, [])) for budget in sorted(there)]


def nats(arm: Setting, name: str = LIMIT) -> float | None:
    """A number of the leak, the mean over the seeds that have it."""
    values = over_seeds(arm, partial(leak, name))
    return seed_summary(values).mean if values else None


def limit_of(arm: Setting) -> float:
    """The limit of an image that is sent; infinite where it is not measured."""
    value = nats(arm)
    return math.inf if value is None else value


# the table


def short_table(source: Source, campaign: str) -> str:
    """Accuracy, the share that is sent and nats, a line for each λ of the plain penalties at each budget."""
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
    rows = [arm for group in groups(source, campaign) for arm in group.arms if kind(arm) in SHOWN]
    return table_of(rows, columns, left=2)


def _percent(arm: Setting, read: selective.Read) -> str:
    values = over_seeds(arm, read)
    return f"{100 * seed_summary(values).mean:.1f}" if values else ""


def _nats(arm: Setting, name: str) -> str:
    value = nats(arm, name)
    return "" if value is None else say_leak(name, value)


# the answer


def answer(source: Source) -> str:
    """What an image that is sent leaks beside one of the full release, and whether the accuracy is worth it."""
    measured = campaigns(source)
    if not measured:
        return f"Selective clients are {not_measured(next(iter(CAMPAIGNS)))}."
    there = groups(source, measured[0])
    return f"{_leaks(there[0])} {_worth(there)}"


_APART = 0.02
"""Relative difference of two limits from which one is called higher."""


def _leaks(group: Group) -> str:
    """The limits of a sent image against those of the full release at the same λ, and what other weights change."""
    pairs = [
        (weight, of[FULL], of[EQUAL]) for weight in group.weights if {FULL, EQUAL} <= (of := group.at(weight)).keys()
    ]
    if not pairs:
        return "The limit on an image that is sent is not measured yet."
    words = dict.fromkeys(_word(limit_of(some) / limit_of(whole)) for _, whole, some in pairs)
    parts = [
        f"λ {weight:g}: {say_leak(LIMIT, limit_of(some))} against {say_leak(LIMIT, limit_of(whole))} nats at "
        f"{100 * some.accuracy:.1f} against {100 * whole.accuracy:.1f} % accuracy"
        for weight, whole, some in pairs
    ]
    return (
        f"At the same λ the limit on an image that is sent is {' or '.join(words)} that of a client that sends "
        f"everything ({group.data}, {wording.count(group.budget)} multiply-accumulates, {'; '.join(parts)})"
        f"{_other_weights(group)}."
    )


def _word(times: float) -> str:
    return "higher than" if times > 1 + _APART else "lower than" if times < 1 - _APART else "close to"


def _other_weights(group: Group) -> str:
    """By how much penalties that weigh images change the limit."""
    apart = [
        abs(limit_of(of[name]) - limit_of(of[EQUAL]))
        for of in map(group.at, group.weights)
        for name in WEIGHED
        if {name, EQUAL} <= of.keys()
    ]
    return f"; penalties that weigh images change it by at most {say_leak(LIMIT, max(apart))} nats" if apart else ""


def _worth(there: Sequence[Group]) -> str:
    """How many settings are more accurate than the client alone, and how many are beaten by sending everything."""
    arms = [(group, arm) for group in there for arm in group.selective]
    worth, beaten = sum(group.worth(arm) for group, arm in arms), sum(group.beaten(arm) for group, arm in arms)
    alone = [
        f"{100 * seed_summary(group.alone).mean:.1f} % with {wording.count(group.budget)}"
        for group in there
        if group.alone
    ]
    return (
        f"Of {len(arms)} settings {_are(worth)} shown to be more accurate than a client trained to answer alone "
        f"({listed(alone)}), and {_are(beaten)} beaten in both accuracy and limit by sending everything, at one "
        "of the λ."
    )


def _are(count: int) -> str:
    return f"{count or 'none'} {'is' if count == 1 else 'are'}"


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
            for number, name in enumerate(kinds):
                arms = [arm for arm in group.arms if kind(arm) == name and nats(arm) is not None]
                at = [limit_of(arm) for arm in arms], [100 * arm.mean(ACCURACY) for arm in arms]
                style = {"color": ink.of(number), "marker": marker_of(number), "markersize": 7 if place else 5}
                axes.plot(*at, linewidth=0.8, label=f"{name}, {wording.count(group.budget)}", **style)
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
