"""The privacy card of a run, or of the audits of a foreign encoder: JSON, Markdown and a page of half a screen."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from attncem import __version__
from attncem.base.shown_paths import without_paths_in
from attncem.base.texts import LANGUAGES, joined, speaking, text, translated
from attncem.base.texts.titles import row_title, threat_title
from attncem.base.types import RunError
from attncem.records.audit import AuditResult, Subject
from attncem.records.card import CardAttack, CardBound, PrivacyCard
from attncem.records.files import write_json
from attncem.records.ledger import PLAN, Ledger, ledgers
from attncem.records.runs import RunDirectory
from attncem.records.selective import Selective
from attncem.records.study import newest
from attncem.records.study.runs import load_run
from attncem.records.study.suites import joined_suites
from attncem.reporting import answers, card_words, client_costs, html, on_device, sending, wording
from attncem.reporting.runs import certificates, units
from attncem.reporting.runs.gallery import Cell, Pictures

GENERATOR = "attncem-card"
NAMES = ("card.json", "card.md", "card.html")
NOT_SAID = ("attacks", "average", "labels", "assumptions", "others")
"""Limits of every card, by the ends of keys in the catalogue."""


def write_card(
    source: Path, out: Path | None, *, now: datetime, pictures: bool = True
) -> tuple[PrivacyCard, list[Path]]:
    """Make the card of a run or of audits and write it into ``out``; default: the folder `card` next to the audits.

    ``pictures``: the page shows one image with its reconstruction, where the audit has them.
    """
    audits = audits_of(source)
    card = make_card(audits, now=now)
    folder = source / "card" if out is None else out
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder}: is a file; give a folder for the card")
    files = [folder / name for name in NAMES]
    for file in files:
        html.refuse_foreign(file, f"{GENERATOR} ")
    context = card_context(card, card_words.deciding(audits), pictures=pictures)
    folder.mkdir(parents=True, exist_ok=True)
    with speaking(LANGUAGES[0]):
        write_json(files[0], without_paths_in(make_card(audits, now=now).to_dict()))
    html.write_page(files[1], html.render(context, "card.md.j2"))
    html.write_page(files[2], html.render(context, "card.html.j2"))
    return card, files


def card_context(card: PrivacyCard, main: AuditResult, *, pictures: bool) -> dict[str, Any]:
    """The variables of both templates; ``main`` is the audit that decides, whose picture is shown."""
    return {
        "card": card,
        "title": text("card.title", run=card.subject.run),
        "facts": [*facts(card.subject), *_codes(card)],
        "lines": _lines(card),
        "state": answers.state_word(card.judgement.state),
        "doubts": answers.doubts(card.judgement),
        "picture": _picture(main) if pictures else None,
        "picture_by": main.strongest,
        "assumed": {code: certificates.assumption(code) for item in card.bounds for code in item.bound.assumptions},
    }


def audits_of(source: Path) -> list[AuditResult]:
    """The audits of a run folder, or of a folder of audits of one model; RunError where there are none."""
    if (source / PLAN).exists():
        found = [Ledger.open(source).result()]
    elif not (source / "manifest.json").is_file():
        found = list(newest((ledger.result() for ledger in ledgers(source)), lambda audit: audit.plan).values())
    else:
        found = list(load_run(source).results)
    if not found:
        run = RunDirectory.open(source).path  # an error that names the runs below it, or a similar folder
        if RunDirectory(run).manifest.get("on_device"):
            raise RunError(
                f"{source} runs on the client alone: nothing is released, so a privacy card has nothing to say; "
                "attncem report shows its accuracy, and the cards of other models compare with it"
            )
        again = f"attncem audit {shlex.quote(str(run))} --suite certificates"
        raise RunError(f"{source}: no audit to make a card from; run {again}")
    if len({audit.subject.fingerprint for audit in found}) > 1:
        raise RunError(f"{source}: the audits are of different models; give the folder of one audit")
    return joined_suites(found)


def make_card(audits: Sequence[AuditResult], *, now: datetime) -> PrivacyCard:
    """The card of one model, from all its audits."""
    subject = audits[0].subject
    known = [audit.accuracy for audit in audits if audit.accuracy is not None]
    certified = [audit for audit in audits if any(row.kind == "certificate" for row in audit.rows)]
    attacked = [audit for audit in audits if any(row.kind == "attack" for row in audit.rows)]
    absent = {
        row.name: translated(row.why)
        for audit in certified
        for row in audit.rows
        if row.kind == "certificate" and not row.ok
    }
    main, bounds = card_words.deciding(audits), [bound for audit in certified for bound in _bounds(audit)]
    missing = [] if certified else [text("card.uncertified")]
    alone = on_device.of_audits(audits)
    warned = [item.text for item in alone.findings] if alone else []
    return PrivacyCard(
        f"{GENERATOR} {__version__}",
        now.isoformat(timespec="seconds"),
        subject,
        defence(subject),
        known[0] if known else None,
        [_attack(audit) for audit in attacked],
        bounds,
        joined(dict.fromkeys(map(certificates.describe, certified))),
        absent,
        list(dict.fromkeys([*missing, *(item.text for audit in audits for item in audit.findings), *warned])),
        [text(f"card.not_said.{name}") for name in NOT_SAID],
        dict(audits[0].plan.versions),
        purpose=[*card_words.purpose(subject, audits), *([_sentence(alone.sentence)] if alone else [])],
        data=card_words.data_words(audits[0]),
        tested=card_words.tested(audits, main),
        answers=card_words.card_answers(audits, main),
        judgement=main.judgement,
        proven=card_words.proven(subject, bounds),
        leak=card_words.leak_words(audits, main),
        cautions=[*card_words.cautions(audits), *warned],
        not_tested=card_words.not_tested(audits, bounds),
        not_for=text("card.not_for"),
        selective=main.plan.selective,
    )


def _sentence(said: str) -> str:
    return text("said.sentence", said=said[:1].upper() + said[1:])


def _picture(audit: AuditResult) -> Cell | None:
    """An evaluation image and what the strongest attack makes of it; None where the audit has no pictures."""
    album = Pictures(audit, strict=False)
    own = [pictures for row, pictures in album.rows("fixed") if row.name == audit.strongest]
    cell = album.cell(own[0][0]) if own else None
    return cell if cell is not None and cell.original and cell.image else None


def _attack(audit: AuditResult) -> CardAttack:
    plan = audit.plan
    empty = CardAttack(plan.suite, plan.suite_version, plan.threat, wording.describe_threat(plan.threat), 0, "", None)
    if not audit.strongest:
        return replace(empty, audit=plan.id)
    row, left = audit.strongest_attack, audit.remaining.get("mse")
    return replace(
        empty,
        audit=plan.id,
        num_attacks=sum(other.kind == "attack" for other in audit.attacks),
        num_images=row.num_images,
        attack=row.name,
        mse=row.mse,
        floor="" if left is None else left.floor,
        share=None if left is None else left.share,
        worth=units.describe(plan.units, row.mse.mean),
        reliable=audit.state == "reliable",
        judgement=audit.judgement,
    )


def _bounds(audit: AuditResult) -> list[CardBound]:
    return [
        CardBound(
            row.name, name, wording.describe_bound(name, bound), bound, audit.plan.threat.name, row.releases, row.jitter
        )
        for row in audit.rows
        if row.ok and row.kind == "certificate"
        for name, bound in row.bounds.items()
    ]


def defence(subject: Subject) -> list[str]:
    """The defence in words: front end, penalty, channel."""
    said = []
    if subject.front_end.get("name", "none") != "none":
        said.append(text("card.defence.front_end", options=wording.describe_options(subject.front_end)))
    if subject.surrogate not in ("none", "unknown"):  # the training of a foreign encoder is unknown
        said.append(text("card.defence.surrogate", name=subject.surrogate, weight=subject.penalty_weight))
    said += [text("card.defence.stage", options=wording.describe_options(stage)) for stage in subject.channel]
    return said


def facts(subject: Subject) -> list[tuple[str, str]]:
    """Title and value of each fact about the model."""
    return [
        (text("card.fact.network"), text("card.network", name=subject.architecture, cut=subject.cut)),
        (text("card.fact.data"), f"{subject.dataset} {subject.data_sha256[:12]}"),
        (text("card.fact.weights"), f"{subject.weights or wording.MISSING} {subject.fingerprint[:12]}"),
        (text("card.fact.bytes"), wording.count(subject.bytes_per_query)),
        (text("card.fact.client"), wording.count(subject.client_parameters)),
        *_costs(subject),
    ]


def _costs(subject: Subject) -> list[tuple[str, str]]:
    """The work, memory and time of one image on the client, where they are known."""
    counted = [
        (text("card.fact.macs"), subject.client_macs),
        (text("card.fact.activations"), subject.client_activation_bytes),
    ]
    facts = [(title, wording.count(value)) for title, value in counted if value is not None]
    timed = client_costs.described(subject.to_dict())
    return [*facts, *([(text("card.fact.time"), timed)] if timed else [])]


def _codes(card: PrivacyCard) -> list[tuple[str, str]]:
    """The audits and the versions of the packages that made them."""
    audits = ", ".join(dict.fromkeys(item.audit for item in card.attacks))
    versions = ", ".join(f"{name} {version}" for name, version in card.versions.items())
    return [(text("card.fact.audits"), audits), (text("card.fact.versions"), versions)]


def _lines(card: PrivacyCard) -> list[str]:
    """Accuracy, each audit's strongest attack and the leak in nats, in words."""
    said = []
    if card.accuracy is not None:
        low, high = (wording.percent(end, unit="") for end in (card.accuracy.low, card.accuracy.high))
        values = {"accuracy": wording.percent(card.accuracy.mean), "low": low, "high": high}
        said += _together(card.selective, values) if card.selective else [text("card.accuracy", **values)]
    return [*said, *(_attack_said(item) for item in card.attacks), card.leak]


def _together(facts: Selective, values: dict[str, str]) -> list[str]:
    """The accuracy of client and server together with those at both ends, and what is sent."""
    ends = {"alone": wording.percent(facts.alone.mean), "all_sent": wording.percent(facts.all_sent.mean)}
    return [text("card.accuracy.together", images=facts.num_images, **values, **ends), sending.sends([facts])]


def _attack_said(item: CardAttack) -> str:
    head = text("card.against", suite=item.suite, version=item.suite_version, threat=threat_title(item.threat.name))
    if item.mse is None:
        return joined([head, text("card.no_result")])
    mse = {"mse": item.mse.mean, "low": item.mse.low, "high": item.mse.high, "exposed": item.mse.p05}
    counts = {"count": item.num_attacks, "images": item.num_images}
    said = [head, text("card.strongest", attack=row_title(item.attack), **counts, **mse)]
    if item.share is not None:
        said.append(text("card.share", floor=row_title(item.floor), share=wording.percent(item.share, 0)))
    said += [text("report.verdict.units", worth=item.worth)] if item.worth else []
    return joined([*said, *answers.doubts(item.judgement)])
