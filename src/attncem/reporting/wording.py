"""Numbers and findings as text: number formats, the verdict at the top of the page, facts about runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

from attncem.base.courses import format_duration
from attncem.base.texts import has_text, joined, text
from attncem.base.texts.titles import images_title, row_title, threat_title
from attncem.config.threats import ThreatModel
from attncem.records.audit import NO_LABEL, AuditResult, Row
from attncem.records.bounds import Bound
from attncem.records.findings import Finding
from attncem.records.study.runs import SHORT, JudgedRun
from attncem.reporting.runs import units
from attncem.reporting.runs.health import is_collapsed, is_near_chance, is_useless
from attncem.reporting.runs.methods import Entry

MISSING = "–"


def decimal(value: float | None, digits: int = 4) -> str:
    """A number with a fixed number of decimals; a dash for None."""
    if value is None or math.isnan(value):
        return MISSING
    return f"{value:z.{digits}f}" if math.isfinite(value) else "∞"


def percent(value: float | None, digits: int = 1, unit: str = " %") -> str:
    """A share as a percentage."""
    return MISSING if value is None or math.isnan(value) else f"{100 * value:z.{digits}f}{unit}"


def general(value: float | None) -> str:
    """A setting in its shortest form."""
    return MISSING if value is None else f"{value:g}"


def count(value: int | None) -> str:
    """A count with at most three digits and a unit."""
    if value is None:
        return MISSING
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return str(value)


def seconds(value: float | None) -> str:
    """A duration in a suitable unit."""
    return MISSING if value is None or math.isnan(value) else format_duration(value, digits=3, least=0.0)


def class_name(names: Sequence[str], label: int) -> str:
    """The class's name, or its number where the data set has no names; empty without labels."""
    if label == NO_LABEL:
        return text("page.no_label")
    return names[label] if 0 <= label < len(names) else text("page.class", number=label)


def describe_threat(threat: ThreatModel) -> str:
    """One sentence about the adversary's knowledge, images and observations."""
    many, answers = threat.releases_per_input, {True: "yes", False: "no"}
    sight = text("threat.releases.one") if many == 1 else text("threat.releases.many", count=many)
    sentence = text(
        "threat.sentence",
        encoder=text(f"threat.encoder.{answers[threat.knows_encoder]}"),
        channel=text(f"threat.channel.{answers[threat.knows_channel]}"),
        query=_describe_queries(threat),
        owned=describe_owned(threat),
        sight=text("threat.jitter", sight=sight, jitter=threat.jitter) if threat.jitter else sight,
    )
    return joined([sentence, text("threat.answers")]) if threat.sees_answers else sentence


def describe_owned(threat: ThreatModel) -> str:
    """The images that an adversary owns."""
    if threat.pictures is not None:
        return text("threat.auxiliary.pictures", count=threat.pictures.count, name=threat.pictures.name)
    owned = text(f"threat.auxiliary.{threat.auxiliary}")
    return owned if threat.images is None else text("threat.auxiliary.some", count=threat.images, owned=owned)


def _describe_queries(threat: ThreatModel) -> str:
    """How often the client answers an adversary."""
    if threat.queries:
        return text("threat.query.some", count=threat.queries)
    return text("threat.query.yes") if threat.may_query else text("threat.query.no")


def describe_sight(row: Row) -> str:
    """The number of releases of each image that a row saw, and their jitter in grey levels."""
    if row.jitter:
        return text("report.sight", releases=row.releases, jitter=row.jitter)
    return str(row.releases)


def describe_run(run: JudgedRun) -> list[str]:
    """Status, device, versions and split of a run from its manifest; without a run, a line that says so."""
    if run.config is None:
        return [text("report.settings.alone")]
    manifest, unknown = run.manifest, text("report.settings.unknown")
    versions = "".join(f"; {name} {version}" for name, version in _pairs(manifest.get("versions")))
    status, device = str(manifest.get("status") or ""), manifest.get("device") or unknown
    status = text(f"command.state.{status}") if has_text(f"command.state.{status}") else status or unknown
    sentence = text("report.settings.run", status=status, device=device, versions=versions)
    parts = [(str(name), number) for name, number in _pairs(manifest.get("split")) if name != "sha256"]
    counts = ", ".join(f"{images_title(name)} {number}" for name, number in parts)
    return [sentence, text("report.settings.images", counts=counts)] if counts else [sentence]


def _pairs(value: object) -> list[tuple[object, object]]:
    return list(value.items()) if isinstance(value, Mapping) else []


def describe_audit(audit: AuditResult) -> str:
    """The settings of an audit, and the weights that it belongs to."""
    plan, subject = audit.plan, audit.subject
    sentence = text(
        "report.settings.audit",
        suite=plan.suite,
        version=plan.suite_version,
        threat=threat_title(plan.threat.name),
        seed=plan.seed,
        weights=subject.weights or MISSING,
        fingerprint=subject.fingerprint[:SHORT],
        images=plan.num_evaluation,
        owned=plan.num_auxiliary,
        seconds=seconds(audit.seconds),
        device=plan.device,
    )
    reference = text("report.settings.reference", reference=plan.reference) if plan.reference else ""
    return joined([sentence, reference, _signal(plan.signal_to_noise)])


def _signal(ratios: Sequence[float | None]) -> str:
    """Ratio of the signal in z to the channel's change; empty where it was not measured."""
    changed = [ratio for ratio in ratios if ratio is not None]
    if not changed:
        return text("report.settings.signal.none") if ratios else ""
    least, middle, most = (f"{value:.2g}" for value in (min(changed), median(changed), max(changed)))
    left = len(ratios) - len(changed)
    untouched = text("report.settings.signal.untouched", count=left, total=len(ratios)) if left else ""
    return text("report.settings.signal", least=least, most=most, median=middle, untouched=untouched)


# bounds


def bound_title(name: str) -> str:
    """Title of a bound; its name may end in @ and a number of releases or candidates."""
    kind, _, number = name.partition("@")
    if number.isdecimal() and has_text(f"bound.{kind}.at"):
        return text(f"bound.{kind}.at", number=int(number))
    return text(f"bound.{kind}") if not number and has_text(f"bound.{kind}") else name


def describe_claim(bound: Bound) -> str:
    """The claimed number of a bound, whether it is a lower or an upper bound, and whether it is at its ceiling."""
    claim = text(f"bound.claim.{bound.direction}", claim=bound.claim, unit=bound.unit)
    said = text("bound.confidence", said=claim) if bound.limit not in (None, bound.value) else claim
    return text("bound.at_ceiling", said=said, ceiling=bound.ceiling) if bound.at_ceiling else said


def describe_bound(name: str, bound: Bound) -> str:
    """A bound in one line."""
    title = bound_title(name)
    title = text("bound.by", title=title, by=row_title(bound.by)) if bound.by else title
    if bound.limit is None:
        values = {"unit": bound.unit, "value": bound.value, "low": bound.low, "high": bound.high}
        words = text(f"report.bound.{bound.kind}", name=title, **values)
    else:
        words = text(f"bound.line.{bound.kind}", name=title, claim=describe_claim(bound))
    return text("bound.vacuous", said=words) if bound.vacuous else words


def describe_options(options: Mapping[str, object]) -> str:
    """A name and its options in their shortest form."""
    others = [f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}" for key, value in options.items()]
    return " ".join([str(options["name"]), *(word for word in others if not word.startswith("name="))])


# the verdict


def verdict(entries: Sequence[Entry], best: Mapping[str, float]) -> list[str]:
    """Sentences on the audits' findings; for many audits, only the two extremes."""
    if not entries:
        return [text("report.verdict.unaudited")]
    judged = [entry for entry in entries if entry.audit.strongest]
    usable = [it for it in judged if not is_useless(it.audit, best.get(it.audit.subject.dataset))]
    shown = list(entries)
    if len(entries) > 5 and usable:
        ordered = sorted(usable, key=lambda entry: entry.audit.strongest_attack.mse.mean)
        shown = [ordered[0], ordered[-1]] if len(ordered) > 1 else ordered
    sentences = [_sentence(entry, best) for entry in shown]
    left_out = len(entries) - len(shown)
    return [*sentences, text("report.verdict.ends", count=left_out)] if left_out else sentences


def _sentence(entry: Entry, best: Mapping[str, float]) -> str:
    audit = entry.audit
    if warning := caveat(entry, best):
        return warning
    attack = audit.strongest_attack
    at = "" if audit.accuracy is None else text("report.verdict.at_accuracy", accuracy=percent(audit.accuracy.mean))
    values = {"mse": attack.mse.mean, "floor": _beside_floor(audit), "accuracy": at}
    sentences = [text("report.verdict.strongest", run=entry.label, attack=row_title(attack.name), **values)]
    if worth := units.describe(audit.plan.units, attack.mse.mean):
        sentences.append(text("report.verdict.units", worth=worth))
    if (facts := audit.plan.selective) is not None:
        sentences.append(text("report.verdict.sent", sent=facts.num_sent, images=facts.num_images))
    return joined([*sentences, *map(reason_sentence, audit.judgement.reasons)])


def reason_sentence(reason: Finding) -> str:
    """A reason for doubt as a sentence of its own."""
    return text("state.reason", reason=reason.text[:1].upper() + reason.text[1:])


def caveat(entry: Entry, best: Mapping[str, float]) -> str:
    """Why the strongest attack's error is no evidence of privacy, or no evidence at all; empty where it is valid."""
    audit, run = entry.audit, entry.label
    if not audit.strongest:
        return text("report.verdict.no_result", run=run)
    accuracy = "" if audit.accuracy is None else percent(audit.accuracy.mean)
    if is_near_chance(audit):
        return text("report.verdict.near_chance", run=run, accuracy=accuracy)
    attack = audit.strongest_attack
    if is_collapsed(audit, best.get(audit.subject.dataset)):
        return text("report.verdict.collapsed", run=run, accuracy=accuracy, mse=attack.mse.mean)
    if attack.kind != "floor":
        return ""
    beside = text("report.verdict.accuracy", accuracy=accuracy) if accuracy else ""
    return text("report.verdict.floor", run=run, accuracy=beside, attack=row_title(attack.name), mse=attack.mse.mean)


def _beside_floor(audit: AuditResult) -> str:
    """The best blind guess's error, and the part of it that the attack removes."""
    left = audit.remaining.get("mse")
    if left is None:
        return ""
    if not 0 < left.share < 1:
        return text("report.verdict.above_floor", floor=left.blind)
    return text("report.verdict.below_floor", floor=left.blind, removed=100 * (1 - left.share))
