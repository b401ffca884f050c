"""Groups runs that are seeds of one arm, and lists the options in which the arms differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from attncem.base.types import ConfigError
from attncem.config.loading.flat import flat_options
from attncem.config.loading.suggest import did_you_mean, nearest_key
from attncem.config.loading.tree import option_tree
from attncem.config.options.run import RunConfig
from attncem.records.audit import AuditResult
from attncem.records.findings import Finding, finding
from attncem.records.run_comparison import Difference
from attncem.records.study.arms import Arm
from attncem.records.study.runs import JudgedRun

JudgedArm = Arm[AuditResult]
ASIDE = ("name", "training.track", "device", "threads")
"""Options that do not make a run a different method."""
SEED = "seed"


def arms(runs: Sequence[JudgedRun], by: Sequence[str] = ()) -> tuple[list[JudgedArm], list[Finding]]:
    """The runs in groups, in their order: by these options, or by all but the seed.

    Of runs with one configuration and one seed only the first counts: the others repeat its result. Two runs are always
    two arms.
    """
    _check_keys(runs, by)
    options = {run.label: flat_options(run.settings) for run in runs}
    groups: dict[str, list[JudgedRun]] = {}
    for run in runs:
        own = options[run.label]
        marks = {key: own.get(key) for key in by} if by else _method(own)
        groups.setdefault(repr(marks), []).append(run)
    if not by and len(runs) == 2:
        return _arms([run.label for run in runs], [[run] for run in runs]), []
    kept, findings = [], list[Finding]()
    for members in groups.values():
        unique, found = _unique(members, options)
        kept.append(unique)
        findings += found
    named = _arms(_names(kept, by, options), kept)
    return named, [*findings, *(_mixed(named, options) if by else [])]


def methods_of(runs: Sequence[JudgedRun]) -> list[JudgedArm]:
    """Each run with those that differ from it only in the seed, in their order.

    A second run of the same seed stays separate, as do audits without a run.
    """
    options = {run.label: flat_options(run.settings) for run in runs if run.config is not None}
    groups: dict[tuple[str, str], list[JudgedRun]] = {}
    for run in runs:
        key = ("alone", run.label)
        if run.config is not None:
            alike = ("method", repr(_method(options[run.label])))
            again = any(other.settings.seed == run.settings.seed for other in groups.get(alike, []))
            key = key if again else alike
        groups.setdefault(key, []).append(run)
    configured = [members for members in groups.values() if members[0].config is not None]
    names = dict(zip((members[0].label for members in configured), _names(configured, (), options), strict=True))
    labels = [names.get(members[0].label, members[0].label) for members in groups.values()]
    return _arms(labels, list(groups.values()))


def _arms(names: Sequence[str], groups: Sequence[Sequence[JudgedRun]]) -> list[JudgedArm]:
    return [Arm(name, name, color, cells) for color, (name, cells) in enumerate(zip(names, groups, strict=True))]


def _method(own: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in own.items() if key not in (*ASIDE, SEED)}


def _check_keys(runs: Sequence[JudgedRun], by: Sequence[str]) -> None:
    """ConfigError for a key that no run has."""
    known = {key for run in runs for key in flat_options(run.settings)}
    for key in by:
        if key not in known:
            guess = nearest_key(key, option_tree(RunConfig))
            raise ConfigError(f"--by {key}: none of the runs has this option{did_you_mean(guess)}")


def _unique(members: Sequence[JudgedRun], options: dict[str, dict[str, Any]]) -> tuple[list[JudgedRun], list[Finding]]:
    """The runs with distinct seeds or options, and findings on the others."""
    kept: dict[str, JudgedRun] = {}
    findings = []
    for run in members:
        own = {**_method(options[run.label]), SEED: run.settings.seed}
        first = kept.setdefault(repr(own), run)
        if first is not run:
            findings.append(finding("compare_same_result", run.label, other=first.label))
    return list(kept.values()), findings


def _names(groups: Sequence[Sequence[JudgedRun]], by: Sequence[str], options: dict[str, dict[str, Any]]) -> list[str]:
    """Names of the groups: their options, a run's label, or the name that their runs share."""
    if by:
        firsts = [options[members[0].label] for members in groups]
        return [", ".join(f"{key}={first.get(key)}" for key in by) for first in firsts]
    shared = [{run.settings.name for run in members} for members in groups]
    counts = Counter(name for names in shared for name in names)
    return [
        members[0].label
        if len(members) == 1
        else next(iter(names))
        if len(names) == 1 and counts[next(iter(names))] == 1
        else _by_difference(members[0], groups, options)
        for members, names in zip(groups, shared, strict=True)
    ]


def _by_difference(run: JudgedRun, groups: Sequence[Sequence[JudgedRun]], options: dict[str, dict[str, Any]]) -> str:
    """The options that distinguish a group, among those that all groups have; otherwise its first run's label."""
    firsts = [_method(options[members[0].label]) for members in groups]
    shared = [key for key in firsts[0] if all(key in first for first in firsts)]
    told = [key for key in shared if len({repr(first[key]) for first in firsts}) > 1]
    own = options[run.label]
    return ", ".join(f"{key}={own[key]}" for key in told) or run.label


def _mixed(named: Sequence[JudgedArm], options: dict[str, dict[str, Any]]) -> list[Finding]:
    """Findings on groups whose runs differ in more than the seed."""
    findings = []
    for arm in named:
        keys = _differing([_method(options[run.label]) for run in arm.cells])
        if keys:
            findings.append(finding("compare_mixed", arm.name, keys=", ".join(keys)))
    return findings


def _differing(many: Sequence[dict[str, Any]]) -> list[str]:
    keys = dict.fromkeys(key for own in many for key in own)
    return [key for key in keys if len({repr(own.get(key)) for own in many}) > 1]


def differences(arms: Sequence[JudgedArm]) -> list[Difference]:
    """The options that differ between the groups, with the values in each, section by section."""
    found = {arm.name: [flat_options(run.settings) for run in arm.cells] for arm in arms}
    keys = [key for key in _differing([own for many in found.values() for own in many]) if key != "name"]
    sections = list(dict.fromkeys(map(_section, keys)))
    every = [
        Difference(key, {name: _values(key, many) for name, many in found.items()})
        for key in sorted(keys, key=lambda key: sections.index(_section(key)))
    ]
    return [item for item in every if len({repr(sorted(map(repr, values))) for values in item.values.values()}) > 1]


def _section(key: str) -> str:
    return key.partition(".")[0]


def _values(key: str, many: Sequence[dict[str, Any]]) -> list[Any]:
    """The distinct values of an option, in order."""
    return list({repr(own[key]): own[key] for own in many if key in own}.values())
