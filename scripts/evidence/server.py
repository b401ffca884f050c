"""Whether a server is worth it, and what clients of one cost leave to an attacker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from attncem.records.leaks import LIMIT
from attncem.records.statistics import Interval, difference_apart, seed_summary
from attncem.reporting import wording
from evidence import lean
from evidence.drawing import Lines, exact, of_lines
from evidence.lean import GUESS, Measured, points
from evidence.source import Source
from evidence.words import listed, not_measured, table_of

FIGURE = "results-release.svg"


def gain(accuracy: Interval, alone: Interval) -> str:
    """What a server adds to the client alone: `more`, `less`, or `nothing` that can be shown."""
    apart = difference_apart(accuracy, alone)
    return "more" if apart.low > 0 else "less" if apart.high < 0 else "nothing"


def interval_of(values: Sequence[float]) -> Interval:
    """The mean of several seeds with Student's interval; of one seed the number alone."""
    one = seed_summary(values)
    return Interval(one.mean, one.mean if one.low is None else one.low, one.mean if one.high is None else one.high)


# is a server worth it?


def answer(source: Source) -> str:
    """For every budget, whether any model with a server is more accurate than the client alone, and what that costs."""
    rows, references = lean.measured(source), lean.chosen(source)
    if not rows or not references:
        return f"The clients are {not_measured(lean.CAMPAIGN)}."
    worth, none, counted = [], [], 0
    for budget, alone in references.items():
        there = [one for one in rows if one.budget == budget]
        more = [one for one in there if gain(one.accuracy, alone) == "more"]
        if more:
            worth.append(_worth(budget, max(more, key=lambda one: one.accuracy.mean), alone))
        else:
            none.append(wording.count(budget))
            counted += len(there)
    if none:
        worth.append(f"with {listed(none)} none of {counted} models with a server is shown to be more accurate")
    sentence = "; ".join(worth)
    return f"{sentence[:1].upper()}{sentence[1:]}. {_price(source, references)}"


def _worth(budget: int, best: Measured, alone: Interval) -> str:
    apart = difference_apart(best.accuracy, alone)
    return (
        f"with {wording.count(budget)} multiply-accumulates on the client a server adds up to {100 * apart.mean:.1f} "
        f"points ({points(apart.low)} to {points(apart.high)}) to what the client does alone"
    )


def _price(source: Source, references: dict[int, Interval]) -> str:
    """What the recommended client of every budget leaks."""
    rows = [(budget, lean.recommended(source, budget)) for budget in references]
    parts = [f"{lean.leak(LIMIT, one)} nats with {wording.count(budget)}" for budget, one in rows if one is not None]
    return f"The recommended client, one seed each, then leaks at most {listed(parts)}."


def share(one: Measured, most: str = "") -> float:
    """The attacker's error in percent of that of a guess that knows the label; ``most``: of another number."""
    error = one.leak(most) if most else one.error("mse")
    return 100 * (error or 0.0) / one.error("mse", GUESS)


# what does a client release?


def compared(source: Source) -> list[Measured]:
    """Clients of the largest budget: the baseline's, the lean one without a penalty and as recommended, and codes."""
    rows, references = lean.measured(source), lean.chosen(source)
    if not rows or not references:
        return []
    largest = max(references)
    best = lean.recommended(source, largest)
    there = [one for one in rows if one.budget == largest]
    plain = [one for one in there if not one.is_code and not one.arm.weight]
    others = [one for one in there if one.arm.config.model.name != "lean"]
    codes = sorted((one for one in there if one.is_code), key=lambda one: one.leak(LIMIT) or 0.0)
    return [*others, *plain, *([best] if best else []), *codes]


def _name(one: Measured) -> str:
    if one.is_code:
        return f"lean, {one.arm.name.replace('-', ' ')}, no noise"
    name = one.arm.config.model.name
    kind = "the baseline's client" if name != "lean" else "lean"
    return f"{kind}, {lean.method(one)}" if one.arm.weight else f"{kind}, no penalty"


def released_table(source: Source) -> str:
    """Clients of one cost: accuracy, what the server adds, the share of a guess's error that is left, and nats."""
    references = lean.chosen(source)
    columns: dict[str, Callable[[Measured], str]] = {
        "client": _name,
        "accuracy %": lambda one: lean.percent(one.accuracy),
        "the server adds, points": partial(lean.added, references=references),
        "attacker's error, % of a guess": lambda one: f"{share(one):.0f}",
        "nats ≤": partial(lean.leak, LIMIT),
        "re-identified %": partial(lean.leak, "reidentified"),
    }
    return table_of(compared(source), columns)


def released(source: Source) -> str:
    """What the recommended client leaves beside the baseline's, and what codes without noise leak."""
    rows = compared(source)
    noisy = [one for one in rows if not one.is_code]
    codes = [one for one in rows if one.is_code]
    best = noisy[-1] if noisy else None
    theirs = next((one for one in noisy if one.arm.config.model.name != "lean"), None)
    if best is None or theirs is None or not codes:
        return f"The clients are {not_measured(lean.CAMPAIGN)}."
    limits = [lean.leak(LIMIT, one) for one in codes]
    accuracies = [lean.percent(one.accuracy) for one in sorted(codes, key=lambda one: one.accuracy.mean)]
    return (
        f"At the baseline's cost a lean client ({lean.method(best)}) leaves the attacker {share(best):.0f} % of the "
        f"error of a guess that knows the label and leaks at most {lean.leak(LIMIT, best)} nats; the baseline's client "
        f"leaves {share(theirs):.0f} % at a limit of {lean.leak(LIMIT, theirs)} nats. Codes of few bits without noise "
        f"leak at most {limits[0]} to {limits[-1]} nats for any number of queries, at {accuracies[0]} to "
        f"{accuracies[-1]} % accuracy."
    )


def figure(source: Source) -> bytes | None:
    """The share of a guess's error that one release leaves, and the most releases; None if not measured yet."""
    rows = compared(source)
    if not rows:
        return None
    lines = [
        (_name(one), [exact(share(one)), exact(share(one, "mse_most")) if one.leak("mse_most") else None])
        for one in rows
    ]
    across = "attacker's error, % of a guess that knows the label; more is more private"
    title = "What clients of the baseline's cost leave to an attacker"
    return of_lines(FIGURE, Lines(title, across, ("one release", "256 releases"), lines, at=100))
