"""The grammar of conditions such as ``mse<0.02``, ``leakage>20`` and ``reidentification.rank_1>0.05``. No torch."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from attncem.base.types import ConfigError
from attncem.config.loading.suggest import did_you_mean, nearest
from attncem.config.options.certificates import CertificateOptions
from attncem.config.options.probes import ProbeOptions
from attncem.config.options.suites import Suite, packaged_suites, row_file
from attncem.records.metrics import ACCURACY, METRICS
from attncem.records.score import Score

_SIGNS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_PARTS: dict[str, Callable[[Score], float | None]] = {
    "p05": lambda score: score.p05,
    "p95": lambda score: score.p95,
    "median": lambda score: score.median,
    "class_min": lambda score: min(_class_means(score), default=None),
    "class_max": lambda score: max(_class_means(score), default=None),
    "balanced": lambda score: score.balanced,
}
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_FORM = re.compile(rf"\s*([A-Za-z][\w@'-]*(?:\.[\w@'-]+)*)\s*(<=|>=|<|>)\s*({_NUMBER})\s*")
_MEASURES = (*METRICS, ACCURACY)
_RANKS = ("rank", "pixel_rank", "feature_rank")
"""Measures of probes that are no share."""
_PROBES: tuple[type[Any], ...] = get_args(ProbeOptions)
_CERTIFICATES: tuple[type[Any], ...] = get_args(CertificateOptions)


@dataclass(frozen=True)
class Condition:
    """[ROW.]MEASURE[.PART] SIGN LIMIT; without a part it tests the mean.

    ``row`` is a row's name or its method: of a probe, or of a certificate, whose ``measure`` is then a bound. Without
    a row the measure is one of the strongest attack, the accuracy, or a bound of any certificate.
    """

    measure: str
    part: str
    sign: str
    limit: float
    row: str = ""

    def __str__(self) -> str:
        """The condition as a user would type it."""
        name = ".".join(filter(None, (self.row, self.measure, self.part)))
        return f"{name}{self.sign}{self.limit:g}"

    @property
    def on_attacks(self) -> bool:
        """Whether it tests the strongest attack."""
        return not self.row and self.measure in METRICS

    @property
    def on_accuracy(self) -> bool:
        """Whether it tests the accuracy."""
        return not self.row and self.measure == ACCURACY

    @property
    def unsafe(self) -> Callable[[Iterable[float]], float]:
        """Of several numbers, the one that makes the condition most likely to hold."""
        return min if self.sign.startswith("<") else max

    def holds(self, value: float) -> bool:
        """Whether a value meets the condition."""
        return _SIGNS[self.sign](value, self.limit)

    def value_of(self, score: Score) -> float | None:
        """The number to compare: the part, or the unsafe end of the mean's interval; None if unknown."""
        return _PARTS[self.part](score) if self.part else self.unsafe((score.low, score.high))


def _class_means(score: Score) -> list[float]:
    return [mean for mean in score.per_class if mean is not None]


def spellings(row: str) -> tuple[str, ...]:
    """The ways to write a row's name in a condition: as it is, or as its file."""
    return row, row_file(row), row_file(row).replace("-", "_")


def parse_conditions(texts: Iterable[str], suite: Suite | None = None) -> list[Condition]:
    """Conditions from text; a ConfigError names the mistake and the likely intention.

    A condition on a probe or certificate that ``suite`` does not run is a mistake as well.
    """
    return [_parse(text, suite) for text in texts]


def _parse(text: str, suite: Suite | None) -> Condition:
    match = _FORM.fullmatch(text)
    if match is None:
        raise ConfigError(
            f"fail-if {text!r}: must be MEASURE, MEASURE.PART, BOUND or PROBE.MEASURE, one of < <= > >=, and a number, "
            f"e.g. mse<0.02, mse.p05<0.005, leakage>20 or reidentification.rank_1>0.05 ({_allowed()})"
        )
    name, sign, limit = match[1], match[2], float(match[3])
    try:
        row, measure, part = _resolved(name, sign, suite)
        _check_share(row, measure, limit)
    except _Mistake as mistake:
        raise ConfigError(f"fail-if {text!r}: {mistake}") from None
    return Condition(measure, part, sign, limit, row)


class _Mistake(Exception):
    """What is wrong with a condition, in words."""


def _resolved(name: str, sign: str, suite: Suite | None) -> tuple[str, str, str]:
    """Row, measure and part that a name means."""
    first, *others = name.split(".")
    if first in _MEASURES:
        return ("", *_measure_and_part(first, others))
    rows = _rows(suite)
    if others and first in rows:
        return (first, *_of_row(first, rows[first], others, sign))
    bounds = {bound: allowed for kind in _CERTIFICATES for bound, allowed in kind.bounds.items()}
    if not others and _declared(first, bounds):
        _check_sign(first, bounds[_stem(first)], sign)
        _check_runs([kind for kind in _CERTIFICATES if _stem(first) in kind.bounds], suite)
        return "", first, ""
    methods = _methods()
    if others and first in methods:
        _check_runs([methods[first]], suite)
    raise _Mistake(_unknown(name, methods, bounds))


def _methods() -> dict[str, type[Any]]:
    """The class of options of every probe and certificate, by method."""
    return {kind.model_fields["name"].default: kind for kind in (*_PROBES, *_CERTIFICATES)}


def _measure_and_part(measure: str, others: list[str]) -> tuple[str, str]:
    part = ".".join(others)
    if part and part not in _PARTS:
        raise _Mistake(f"{part} is not a part{did_you_mean(nearest(part, _PARTS, 0.4))} ({_allowed()})")
    return measure, part


def _rows(suite: Suite | None) -> dict[str, type[Any]]:
    """The class of options of every row and method that a condition may name; without a suite, of every method."""
    if suite is None:
        return _methods()
    named = {word: type(options) for row, options in suite.rows.items() for word in (*spellings(row), options.name)}
    return {word: kind for word, kind in named.items() if hasattr(kind, "measures") or hasattr(kind, "bounds")}


def _of_row(row: str, kind: type[Any], others: list[str], sign: str) -> tuple[str, str]:
    """Measure and part of a probe, or a bound of a certificate."""
    measure, *rest = others
    names: Iterable[str] = getattr(kind, "measures", None) or kind.bounds
    if not _declared(measure, names):
        guess = nearest(measure, names, 0.4)
        hint = did_you_mean(None if guess is None else f"{row}.{guess.replace('@', '@16')}")
        raise _Mistake(f"{row} has no {measure}{hint} (it has: {', '.join(_written(names))})")
    if hasattr(kind, "measures"):
        return _measure_and_part(measure, rest)
    if rest:
        raise _Mistake(f"{measure} is a bound, which has no part {'.'.join(rest)}")
    _check_sign(measure, kind.bounds[_stem(measure)], sign)
    return measure, ""


def _stem(name: str) -> str:
    """A name as it is declared: what follows an @ is a number."""
    head, at, _ = name.partition("@")
    return head + at


def _declared(name: str, names: Iterable[str]) -> bool:
    number = name.partition("@")[2]
    return _stem(name) in names and ("@" not in name or number.isdecimal())


def _written(names: Iterable[str]) -> Iterator[str]:
    return (name.replace("@", "@NUMBER") for name in names)


def _check_sign(bound: str, allowed: str, sign: str) -> None:
    if not allowed:
        raise _Mistake(f"{bound} proves a leak and can exclude none: test an upper bound, e.g. leakage>20")
    if not sign.startswith(allowed):
        side = "an upper" if allowed == ">" else "a lower"
        raise _Mistake(f"{bound} is {side} bound: it can only be tested with {allowed} or {allowed}=")


def _check_runs(kinds: Iterable[type[Any]], suite: Suite | None) -> None:
    """A mistake where no row of the suite gives the number."""
    if suite is None or _runs(suite, kinds):
        return
    methods = " or ".join(kind.model_fields["name"].default for kind in kinds)
    others = ", ".join(other.name for other in packaged_suites().values() if _runs(other, kinds))
    raise _Mistake(f"the suite {suite.name} has no row of {methods}; suites that have one: {others}")


def _runs(suite: Suite, kinds: Iterable[type[Any]]) -> bool:
    return any(isinstance(options, tuple(kinds)) for options in suite.rows.values())


def _check_share(row: str, measure: str, limit: float) -> None:
    stem = _stem(measure)
    is_share = stem in (ACCURACY, "rank_1@") or (row and stem in _probe_measures() and stem not in _RANKS)
    if is_share and not 0 <= limit <= 1:
        raise _Mistake(f"{measure} is a share, from 0 to 1; did you mean {limit / 100:g}?")


def _probe_measures() -> list[str]:
    return [measure for kind in _PROBES for measure in kind.measures]


def _unknown(name: str, methods: Mapping[str, type[Any]], bounds: Iterable[str]) -> str:
    """The message about a name that is none, with what was probably meant."""
    last = name.rpartition(".")[2]
    if last != name and last in _MEASURES:
        return f"{name}: the strongest attack is tested, whichever it is; did you mean {last}?"
    names = {word: getattr(kind, "measures", None) or kind.bounds for word, kind in methods.items()}
    full = [f"{method}.{measure.replace('@', '@16')}" for method, measures in names.items() for measure in measures]
    meant = [word for word in full if name in (word.partition(".")[0], word.partition(".")[2])]
    meant += [f"{bound}1000" for bound in bounds if bound == f"{name}@"]
    if meant:
        return f"{name} alone is not a measure; did you mean {' or '.join(meant[:3])}? ({_allowed()})"
    guess = nearest(name, [*_MEASURES, *(bound.replace("@", "@1000") for bound in bounds), *full], 0.4)
    return f"{name} is not a measure{did_you_mean(guess)} ({_allowed()})"


def _allowed() -> str:
    bounds = dict.fromkeys(name for kind in _CERTIFICATES for name, sign in kind.bounds.items() if sign)
    probes = ", ".join(kind.model_fields["name"].default for kind in _PROBES)
    return (
        f"measures: {', '.join(_MEASURES)}; parts: {', '.join(_PARTS)}; bounds: {', '.join(_written(bounds))}; "
        f"probes: {probes}"
    )
