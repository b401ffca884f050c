"""The leak as an axis: numbers of an audit from certificates, probes and repeated releases.

``LEAKS`` is the only list of them, with their directions and formats; their titles are in the catalogue, under
`measure.NAME`. First screen, tables, CSV, terminal, LaTeX, comparisons, campaigns and result files read it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from attncem.records.bounds import NEAR_CEILING
from attncem.records.leak import Leak
from attncem.records.metrics import METRICS
from attncem.records.score import KEPT_DIGITS
from attncem.records.statistics import share_interval

if TYPE_CHECKING:
    from attncem.records.audit import AuditResult, Row
    from attncem.records.bounds import Bound
    from attncem.records.score import Score

LIMIT, BEYOND = "leak_limit", "beyond_label"
INFONCE = "infonce"
SHARE, OVER_ALL, NOT_SENT = "share_sent", "over_all", "not_sent"
_OTHERS = (BEYOND, "leakage_training")
"""Bounds in nats that do not limit the whole leak."""
_LIMITING = ("leakage", "code_entropy", "surrogate_leakage")
"""Certificates whose measured bound may be the limit: the first that has one, whatever the numbers are."""
_SMALL = 0.01
"""Nats below this have two decimals."""


@dataclass(frozen=True)
class LeakMeasure:
    """One number of the leak: its reader, the direction of a smaller leak, unit, decimals, and the suite that has it.

    Nats have three significant digits instead of ``decimals``. Evidence has no direction: little evidence is not
    privacy. ``methods`` are those of the rows that can have it; empty: attacks on more releases than usual. ``flag`` is
    the field of `Leak` that a CSV file has beside it. ``selective``: only audits of a client that sends some images
    have it.
    """

    read: Callable[[AuditResult], Leak | None]
    private: Literal["higher", "lower", ""]
    unit: str
    decimals: int
    suite: str
    methods: tuple[str, ...] = ()
    flag: Literal["vacuous", "at_ceiling", ""] = ""
    selective: bool = False


def limit(audit: AuditResult) -> Leak | None:
    """The proven upper bound on what the adversary sees of an image; one that is not vacuous before others.

    It is the smallest of the certain bounds and of one measured bound. The smallest of several measured bounds would
    hold less often than each of them, so the measured one is chosen by a fixed order.
    """
    bounds = [
        (row, bound)
        for row, name, bound in _bounds(audit)
        if "@" not in name and name not in _OTHERS and (bound.about, bound.direction) == ("leakage", "at_most")
    ]
    usable = [pair for pair in bounds if pair[1].limit is None]
    usable += sorted((pair for pair in bounds if pair[1].limit is not None), key=lambda pair: _order(pair[0]))[:1]
    least = min(usable, key=lambda pair: (pair[1].vacuous, pair[1].claim), default=None)
    return None if least is None else _of_bound(*least)


def _order(row: Row) -> int:
    """The place of a row's certificate in the order of measured bounds; those of plugins come last."""
    return _LIMITING.index(row.method) if row.method in _LIMITING else len(_LIMITING)


def beyond_label(audit: AuditResult) -> Leak | None:
    """The proven upper bound on the leak beyond the label."""
    return _named(audit, BEYOND)


def over_all(audit: AuditResult) -> Leak | None:
    """The proven upper bound on the mean leak over all images, sent or not; of the row that gives the limit first."""
    by = least.by if (least := limit(audit)) is not None else ""
    having = [(row, bound) for row, name, bound in _bounds(audit) if name == OVER_ALL]
    return next((_of_bound(*pair) for pair in sorted(having, key=lambda pair: pair[0].name != by)), None)


def share_sent(audit: AuditResult) -> Leak | None:
    """The share of the images that the client sends; None where it sends every image."""
    facts = audit.plan.selective
    return None if facts is None else Leak(facts.share, *share_interval(facts.share, facts.num_images))


def not_sent(audit: AuditResult) -> Leak | None:
    """What the images that the client answers itself would tell if it sent them; None where it sends every image."""
    return _named(audit, NOT_SENT)


def infonce(audit: AuditResult) -> Leak | None:
    """The leak that telling images apart proves."""
    return _named(audit, INFONCE)


def reidentified(audit: AuditResult) -> Leak | None:
    """The share of images that a release identifies among candidates; of several probes the largest."""
    shares = [
        _of_score(row, row.scores["rank_1"], round(1 / row.chance["rank_1"]))
        for row in _seen(audit)
        if row.method == "reidentification" and "rank_1" in row.scores and row.chance.get("rank_1")
    ]
    return max(shares, key=lambda share: share.mean, default=None)


def _most(measure: str) -> Callable[[AuditResult], Leak | None]:
    """The reader of a measure of the strongest attack on the largest number of releases, if that is more than usual."""

    def read(audit: AuditResult) -> Leak | None:
        threat = audit.plan.threat
        more = {count: row for (count, jitter), row in audit.by_releases.items() if jitter == threat.jitter}
        count = max(more, default=0)
        if count <= threat.releases_per_input or measure not in more[count].scores:
            return None
        return _of_score(more[count], more[count].scores[measure], count)

    return read


def _seen(audit: AuditResult) -> Iterator[Row]:
    """The rows with a result that see what the threat model grants."""
    sight = audit.plan.threat.releases_per_input, audit.plan.threat.jitter
    return (row for row in audit.rows if row.ok and row.sight == sight)


def _bounds(audit: AuditResult) -> Iterator[tuple[Row, str, Bound]]:
    """The proven bounds of these rows."""
    items = ((row, name, bound) for row in _seen(audit) for name, bound in row.bounds.items())
    return (item for item in items if item[2].kind == "bound")


def _named(audit: AuditResult, name: str) -> Leak | None:
    """The first of the proven bounds of this name: the tightest of several would hold less often than each."""
    return next((_of_bound(row, bound) for row, key, bound in _bounds(audit) if key == name), None)


def _of_bound(row: Row, bound: Bound) -> Leak:
    low, high = (bound.claim, bound.claim) if bound.limit is None else (bound.low, bound.high)
    ceiling = bound.ceiling if bound.direction == "at_least" else None
    return Leak(bound.claim, low, high, row.name, 0, bound.vacuous, ceiling, bound.at_ceiling)


def _of_score(row: Row, score: Score, count: int) -> Leak:
    return Leak(score.mean, score.low, score.high, row.name, count)


LEAKS: dict[str, LeakMeasure] = {
    LIMIT: LeakMeasure(limit, "lower", "nats", 2, "certificates", (*_LIMITING, "quantisation"), "vacuous"),
    OVER_ALL: LeakMeasure(
        over_all, "lower", "nats", 2, "certificates", ("leakage", "quantisation"), "vacuous", selective=True
    ),
    NOT_SENT: LeakMeasure(not_sent, "", "nats", 2, "certificates", ("leakage",), "vacuous", selective=True),
    SHARE: LeakMeasure(share_sent, "", "%", 1, "quick", selective=True),
    BEYOND: LeakMeasure(beyond_label, "lower", "nats", 2, "certificates", ("beyond_label",), "vacuous"),
    INFONCE: LeakMeasure(infonce, "", "nats", 2, "certificates", ("leakage_evidence",), "at_ceiling"),
    "reidentified": LeakMeasure(reidentified, "lower", "%", 1, "certificates", ("reidentification",)),
    "mse_most": LeakMeasure(_most("mse"), "higher", "", METRICS["mse"].decimals, "standard"),
    "structure_most": LeakMeasure(_most("structure"), "higher", "", METRICS["structure"].decimals, "standard"),
}
"""Numbers of the leak by name, in their usual order; the first one ranks."""
CONTRARY = (INFONCE, "reidentified", "mse_most")
"""Numbers that may contradict a ranking by the first one."""


def private_of(measure: str) -> Literal["higher", "lower", ""]:
    """The direction of a measure in which less leaks; empty for evidence."""
    return LEAKS[measure].private if measure in LEAKS else METRICS[measure].private


def unit_of(measure: str) -> str:
    """The unit of a measure; empty where it has none."""
    return LEAKS[measure].unit if measure in LEAKS else METRICS[measure].unit


def say_leak(measure: str, value: float, *, unit: bool = False, digits: int = 3) -> str:
    """A number of the leak as text: nats with this many significant digits, shares in percent."""
    kind, decimals = LEAKS[measure].unit, LEAKS[measure].decimals
    if kind == "nats":
        decimals = max(0, digits - 1 - math.floor(math.log10(abs(value)))) if abs(value) >= _SMALL else decimals
    shown = f"{100 * value if kind == '%' else value:z.{decimals}f}"
    return f"{shown} {kind}" if unit and kind else shown


def leak_of(audit: Any, measure: str) -> Leak | None:
    """A number of the leak of an audit in a folder, or as a file of results keeps it; None where it is absent."""
    return audit.leak(measure) if hasattr(audit, "leaks") else LEAKS[measure].read(audit)


def leaks_of(audit: AuditResult) -> dict[str, Leak]:
    """All numbers of the leak that an audit has, by name."""
    every = {name: measure.read(audit) for name, measure in LEAKS.items()}
    return {name: leak for name, leak in every.items() if leak is not None}


def have_equal_scale(leaks: Sequence[Leak], measure: str) -> bool:
    """Whether numbers of the leak are of as many releases or candidates; those of InfoNCE are in its ceiling."""
    ceilings = {leak.ceiling and round(leak.ceiling, KEPT_DIGITS) for leak in leaks if measure == INFONCE}
    return len({leak.count for leak in leaks}) <= 1 and len(ceilings) <= 1


def rows_of(audits: Iterable[AuditResult], measure: str) -> list[Row]:
    """The rows that a number of the leak is read from, with or without a result."""
    return [row for audit in audits for row in audit.rows if _can_have(audit, row, measure)]


def _can_have(audit: AuditResult, row: Row, measure: str) -> bool:
    threat, methods = audit.plan.threat, LEAKS[measure].methods
    if methods:
        return row.method in methods and row.sight == (threat.releases_per_input, threat.jitter)
    return row.kind == "attack" and row.releases > threat.releases_per_input and row.jitter == threat.jitter


def kept(leak: Leak) -> dict[str, Any]:
    """A number as a file of results keeps it: its interval, and what differs from the defaults."""
    interval = [round(value, KEPT_DIGITS) for value in (leak.mean, leak.low, leak.high)]
    ceiling = None if leak.ceiling is None else round(leak.ceiling, KEPT_DIGITS)
    others = {"by": leak.by, "count": leak.count, "vacuous": leak.vacuous, "ceiling": ceiling}
    others["at_ceiling"] = leak.at_ceiling
    return {"interval": interval, **{name: value for name, value in others.items() if value}}


def from_kept(measure: str, data: dict[str, Any]) -> Leak:
    """The number that `kept` wrote; older files have no mark at the ceiling of evidence."""
    others = {name: data[name] for name in ("by", "count", "vacuous", "ceiling", "at_ceiling") if name in data}
    leak = Leak(*data["interval"], **others)
    if measure != INFONCE or leak.ceiling is None:
        return leak
    return replace(leak, at_ceiling=leak.at_ceiling or leak.mean >= leak.ceiling - NEAR_CEILING)
