"""The first screen of the report: one row per model with its utility and its leakage at a glance."""

from __future__ import annotations

import shlex
import statistics as plain
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from attncem.base.texts import text
from attncem.base.texts.titles import channel_title, row_title, row_titles, threat_title
from attncem.config.threats import ThreatModel
from attncem.records.audit import AuditResult, Picture
from attncem.records.judge import removed
from attncem.records.judgement import State
from attncem.records.statistics import seed_summary
from attncem.records.study import ACCURACY, spread_of
from attncem.records.study.runs import JudgedRun
from attncem.reporting import answers, sending, wording
from attncem.reporting.places import run_place
from attncem.reporting.runs import leaks as nats
from attncem.reporting.runs.gallery import Album, Cell
from attncem.reporting.runs.methods import Entry, Method, defence_of
from attncem.reporting.table_formats import interval, mean_sd

FACTS = ("dataset", "network", "channel", "attacker")
"""Facts stated once where all models share them, otherwise in each row; under `report.first.NAME`."""


@dataclass(frozen=True)
class Number:
    """A number as shown, and its uncertainty: an interval over images, or ± over seeds."""

    shown: str
    spread: str = ""
    width: float = 0.0
    """Width of its bar, in percent."""


@dataclass(frozen=True)
class FirstRow:
    """One model. Unknown values are None; ``cautions`` are sentences to read with the numbers.

    ``removed`` is the part of the best blind guess's error that the strongest attack removes. ``state`` is the worst of
    its audits', ``leaks`` whether any of them shows a leak, and ``answers`` say what else an attacker can tell.
    ``leak`` is what can be proven in nats. ``sends``: what a client sends that sends only some images.
    """

    method: Method
    about: str
    picture: Cell | None
    accuracy: Number | None
    removed: Number | None
    attack: str
    cautions: Sequence[str]
    answers: Sequence[str]
    state: State | None
    leaks: bool
    command: str
    warnings: int
    leak: nats.LeakWords | None = None
    sends: str = ""


def first_rows(
    methods: Sequence[Method],
    albums: Sequence[Album],
    best: Mapping[str, float],
    warned: Mapping[str, int],
    alone: Mapping[str, str] | None = None,
) -> list[FirstRow]:
    """The rows in the order of the methods; ``warned`` is the number of warnings of each run, by label.

    ``alone`` are sentences about the client alone, by the method's label.
    """
    shown = _pictures(methods, albums)
    differing = [name for name, values in _facts(methods).items() if len(values) > 1]
    rows = [
        _row(method, differing, shown.get(method.label), best, sum(warned.get(run.label, 0) for run in method.runs))
        for method in methods
    ]
    said = alone or {}
    return [replace(row, answers=[*row.answers, *filter(None, [said.get(row.method.label)])]) for row in rows]


def _row(
    method: Method, differing: Sequence[str], picture: Cell | None, best: Mapping[str, float], warnings: int
) -> FirstRow:
    told = {entry.label: wording.caveat(entry, best) for entry in method.entries}
    sound = [entry for entry in method.entries if not told[entry.label]]
    known = [entry for entry in sound if "mse" in entry.audit.remaining]
    cautions = [said for said in told.values() if said]
    cautions += [
        text("report.first.no_guess", attack=row_title(entry.audit.strongest)) for entry in sound if entry not in known
    ]
    missing = len(method.runs) - len(method.entries)
    if method.entries and missing:
        cautions.append(text("report.first.unaudited", count=missing, total=len(method.runs)))
    audits = [entry.audit for entry in method.entries]
    return FirstRow(
        method,
        _about(method, differing),
        picture,
        _accuracy(method),
        _removed([entry.audit for entry in known]),
        _attack(sound),
        [*cautions, *_doubts(audits)],
        [answers.line(question, audits) for question in answers.QUESTIONS[1:]] if audits else [],
        answers.worst([audit.state for audit in audits]),
        any(audit.judgement.leaks for audit in audits),
        "" if method.entries or method.on_device else shlex.join(["attncem", "audit", run_place(method.runs[0].path)]),
        warnings,
        nats.words(audits, run_place(method.runs[0].path)) if audits else None,
        sending.sentence(audits),
    )


def _doubts(audits: Sequence[AuditResult]) -> list[str]:
    """The reasons for doubt of one audit; for several, the number of seeds in each state that is not reliable."""
    if len(audits) == 1:
        return answers.doubts(audits[0].judgement)
    counts = Counter(audit.state for audit in audits if audit.state != "reliable")
    return [
        text("report.first.seeds_in", count=count, total=len(audits), state=answers.state_word(state))
        for state, count in counts.items()
    ]


# numbers


def _accuracy(method: Method) -> Number | None:
    found = spread_of(method.scores(ACCURACY))
    if found is None:
        return None
    if found.seeds.sd is not None:
        return Number(*_halves(mean_sd(ACCURACY, found.seeds)))
    return Number(mean_sd(ACCURACY, found.seeds), interval(ACCURACY, found.image_low, found.image_high))


def _halves(said: str) -> tuple[str, str]:
    """Split a mean from its ± part."""
    mean, _, sd = said.partition(" ")
    return mean, sd


def _removed(audits: Sequence[AuditResult]) -> Number | None:
    """The removed part of the blind guess's error, in percent, over these seeds."""
    shares = [removed(audit) for audit in audits]
    if not shares:
        return None
    mean = plain.fmean(share for share, _, _ in shares)
    width = round(100 * min(max(mean, 0.0), 1.0), 1)
    if len(shares) == 1:
        (_, low, high) = shares[0]
        return Number(f"{100 * mean:.0f}", f"[{100 * low:.0f}, {100 * high:.0f}]", width)
    sd = seed_summary([share for share, _, _ in shares]).sd
    return Number(f"{100 * mean:.0f}", f"± {100 * (sd or 0.0):.1f}", width)


def _attack(sound: Sequence[Entry]) -> str:
    """The attack, its error and the blind guess's; for several seeds, only the attacks."""
    if not sound:
        return ""
    audits = [entry.audit for entry in sound]
    names = row_titles(dict.fromkeys(audit.strongest for audit in audits))
    errors = spread_of([audit.strongest_attack.mse for audit in audits])
    assert errors is not None
    said = text("report.first.attack", attack=names, mse=mean_sd("mse", errors.seeds))
    if len(audits) > 1:
        return said
    left = audits[0].remaining.get("mse")
    beside = [text("report.first.guess", guess=row_title(left.floor), mse=left.blind)] if left else []
    return " · ".join([said, *beside])


# pictures


def _pictures(methods: Sequence[Method], albums: Sequence[Album]) -> dict[str, Cell]:
    """A reconstruction by the strongest attack: the same image for all models on the same images, where possible."""
    by_label = {album.entry.label: album for album in albums}
    chosen: dict[tuple[str, str], int] = {}
    found = {}
    for method in methods:
        for entry in method.entries[:1]:
            album, subject = by_label[entry.label], entry.audit.subject
            own = _of_strongest(album)
            if own:
                index = chosen.setdefault((subject.dataset, subject.data_sha256), own[0].index)
                found[method.label] = album.cell(next((it for it in own if it.index == index), own[0]))
    return found


def _of_strongest(album: Album) -> list[Picture]:
    rows = [pictures for row, pictures in album.rows("fixed") if row.name == album.entry.audit.strongest]
    return rows[0] if rows else []


# what the models share


def shared_facts(methods: Sequence[Method]) -> str:
    """Data set, network, cut, channel and attacker in one line; for a fact that differs, a pointer to each row."""
    found = {name: values for name, values in _facts(methods).items() if values}
    said = {name: values[0] if len(values) == 1 else text("report.first.each") for name, values in found.items()}
    if len(found.get("attacker", ())) == 1:
        threat = next(entry.audit.plan.threat for method in methods for entry in method.entries)
        said["attacker"] = describe_attacker(threat, said["attacker"])
    return " · ".join(text(f"report.first.{name}", value=value) for name, value in said.items())


def _about(method: Method, differing: Sequence[str]) -> str:
    """The defence, the number of seeds, and the facts that differ between models."""
    run = method.runs[0]
    facts = _fact_values(method)
    own = [text(f"report.first.{name}", value=facts[name]) for name in differing if facts[name]]
    weight = run.results[0].subject.penalty_weight if run.config is None else run.config.training.penalty_weight
    defence = text("report.first.weight", defence=defence_of(run), weight=weight) if weight else defence_of(run)
    seeds = [text("report.first.seeds", count=len(method.runs))] if method.several else []
    return " · ".join([defence, *seeds, *own])


def _facts(methods: Sequence[Method]) -> dict[str, list[str]]:
    """The distinct values of each fact that any model has."""
    values = [_fact_values(method) for method in methods]
    return {name: list(dict.fromkeys(own[name] for own in values if own[name])) for name in FACTS}


def _fact_values(method: Method) -> dict[str, str]:
    values = _of_audit(method.entries[0].audit) if method.entries else _of_config(method.runs[0])
    return dict(zip(FACTS, values, strict=True))


def _of_audit(audit: AuditResult) -> tuple[str, str, str, str]:
    subject, plan = audit.subject, audit.plan
    network = text("report.first.cut", network=subject.architecture, cut=subject.cut)
    attacker = text(
        "report.first.suite", threat=threat_title(plan.threat.name), suite=plan.suite, version=plan.suite_version
    )
    return subject.dataset, network, _channel(subject.channel), attacker


def _of_config(run: JudgedRun) -> tuple[str, str, str, str]:
    config = run.settings
    if config.on_device:
        return config.data.name, text("on_device.network", network=config.model.name), "", ""
    network = text("report.first.cut", network=config.model.name, cut=config.model.cut)
    return config.data.name, network, _channel(config.channel_options), ""


def _channel(stages: Sequence[Mapping[str, object]]) -> str:
    return " → ".join(map(_stage, stages))


def _stage(options: Mapping[str, object]) -> str:
    """A stage of the channel; its noise is shown as σ, and fresh noise, the default, is not mentioned."""
    plain_options = {key: value for key, value in options.items() if key != "noise_std" and value != "fresh"}
    noise = options.get("noise_std")
    said = [text("report.first.noise", noise=noise)] if noise else []
    shown = {**plain_options, "name": channel_title(str(options["name"]))}
    return " ".join([wording.describe_options(shown), *said])


def describe_attacker(threat: ThreatModel, name: str) -> str:
    """The images and releases that the adversary of this name has, in a few words."""
    many = threat.releases_per_input
    sight = text("threat.releases.one") if many == 1 else text("threat.releases.many", count=many)
    owned = wording.describe_owned(threat)
    return text("report.first.adversary", name=name, owned=owned, sight=sight)
