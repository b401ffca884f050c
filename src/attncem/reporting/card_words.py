"""The card's words for a person who decides: use, data, adversaries, answers, and what was not tested."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attncem.base.texts import has_text, joined, text
from attncem.base.texts.titles import row_titles
from attncem.config.threats import THREATS
from attncem.records.audit import AuditResult, Subject
from attncem.records.card import CardAnswer, CardBound
from attncem.records.judgement import Answer, State, Status
from attncem.reporting import answers, sending, wording
from attncem.reporting.places import place_of
from attncem.reporting.runs import certificates, leaks

_NAMED = 6
"""Largest number of classes that a card names."""
_CAUTIONS = (
    "near_chance",
    "far_below_undefended",
    "scheme_0",
    "no_noise",
    "key_missing",
    "bound_violated",
    "not_finished",
    "sending_not_worth_it",
)
"""Codes of findings that stand next to the answers: the model is useless, its noise is none, or a claim is wrong."""
_SHOWN: tuple[Status, ...] = ("leaks", "not_enough", "none_shown", "not_tested")
_TRUST: tuple[State, ...] = ("reliable", "not_reliable", "not_enough")


def deciding(audits: Sequence[AuditResult]) -> AuditResult:
    """The audit whose judgement stands on the card: one that rebuilds pictures, then one that can tell, then the error.

    Of several adversaries it is the one that learns most; a suite of certificates alone decides nothing.
    """
    judged = [audit for audit in audits if audit.strongest]
    return min(judged, key=_rank, default=audits[0])


def _rank(audit: AuditResult) -> tuple[bool, int, float]:
    leaks = audit.judgement.answer("picture").status == "leaks"
    return not leaks, _TRUST.index(audit.state), audit.strongest_attack.mse.mean


# use and data


def purpose(subject: Subject, audits: Sequence[AuditResult]) -> list[str]:
    """What the model is for, how good it is, and what leaves the device."""
    lines = [_use(subject)]
    accuracy = next((audit.accuracy for audit in audits if audit.accuracy is not None), None)
    facts = sending.facts_in(audits)
    if accuracy is not None:
        share = wording.percent(accuracy.mean)
        lines.append(text("card.right.together", accuracy=share) if facts else text("card.right", accuracy=share))
    if facts:
        share = wording.percent(facts[0].share)
        return [*lines, text("card.sends.some", share=share, count=subject.bytes_per_query)]
    return [*lines, text("card.sends", count=subject.bytes_per_query)]


def _use(subject: Subject) -> str:
    if not subject.num_classes:
        return text("card.use.unlabelled")
    values = {"count": subject.num_classes, "names": _class_names(subject)}
    return text("card.use.encoder", **values) if subject.foreign else text("card.use.classes", **values)


def _class_names(subject: Subject) -> str:
    names = subject.class_names[:_NAMED]
    if not names:
        return ""
    left = subject.num_classes - len(names)
    listed = ", ".join(names)
    return text("card.use.names", names=text("card.use.more", names=listed, count=left) if left else listed)


def data_words(audit: AuditResult) -> str:
    """The data set in words, and the number of training images."""
    name = audit.subject.dataset
    words = text(f"dataset.{name}") if has_text(f"dataset.{name}") else name
    return words if audit.subject.foreign else text("card.data", data=words, count=audit.plan.num_train)


# adversaries


def tested(audits: Sequence[AuditResult], main: AuditResult) -> list[str]:
    """Every adversary that the model was tested against, with the images that it owns and that were judged.

    That of the deciding audit is first; certificates alone test nobody.
    """
    asked = [audit for audit in audits if any(row.kind in ("attack", "probe") for row in audit.rows)]
    return list(dict.fromkeys(_adversary(audit) for audit in (main, *asked)))


def _adversary(audit: AuditResult) -> str:
    judged = audit.strongest_attack.num_images if audit.strongest else audit.plan.num_evaluation
    values = {"owned": audit.plan.num_auxiliary, "judged": judged}
    counts = text("card.counts.sent", **values) if audit.plan.selective else text("card.counts", **values)
    return joined([wording.describe_threat(audit.plan.threat), counts])


# answers


def card_answers(audits: Sequence[AuditResult], main: AuditResult) -> list[CardAnswer]:
    """An answer to each question: a leak that any audit shows, else that of the deciding audit, else of any other."""
    asked = dict.fromkeys(question for audit in audits for question in audit.judgement.answers)
    return [_card_answer(question, audits, main) for question in dict.fromkeys((*answers.QUESTIONS, *asked))]


def _card_answer(question: str, audits: Sequence[AuditResult], main: AuditResult) -> CardAnswer:
    having = [audit for audit in audits if question in audit.judgement.answers]
    if not having:
        return CardAnswer(question, "not_tested", answers.line(question, []))
    audit = min(having, key=lambda one: _shown_first(one.judgement.answers[question], one is main))
    line, status = answers.line(question, [audit]), audit.judgement.answers[question].status
    if audit.plan.threat != main.plan.threat:
        line = text("card.by_adversary", said=line, name=audit.plan.threat.name)
    return CardAnswer(question, status, line, audit.plan.id)


def _shown_first(answer: Answer, is_main: bool) -> tuple[bool, bool, int]:
    return answer.status != "leaks", not is_main, _SHOWN.index(answer.status)


def leak_words(audits: Sequence[AuditResult], main: AuditResult) -> str:
    """The leak in nats under the adversary of the deciding audit: its limit, or the command that measures it."""
    alike = [audit for audit in audits if audit.plan.threat == main.plan.threat]
    return text("card.leak", said=leaks.describe(alike, place_of(main)))


def proven(subject: Subject, bounds: Sequence[CardBound]) -> list[str]:
    """The proven limits on what the bits hold, and on recognising a picture among the fewest candidates."""
    nats = certificates.nats_of_any_number(item.bound for item in bounds)
    held = [] if nats is None else [text("card.bits", bytes=subject.bytes_per_query, nats=nats)]
    limits = {
        int(number): item.bound.claim
        for item in bounds
        if (number := item.name.partition("@")[2]) and item.bound.about == "rank_1" and _says_something(item)
    }
    least = min(limits, default=None)
    if least is None:
        return held
    return [*held, text("card.proven", number=least, share=wording.percent(limits[least]))]


def cautions(audits: Sequence[AuditResult]) -> list[str]:
    """The findings without which the answers mislead."""
    return list(dict.fromkeys(item.text for audit in audits for item in audit.findings if item.code in _CAUTIONS))


# what was not tested


def not_tested(audits: Sequence[AuditResult], bounds: Sequence[CardBound]) -> list[str]:
    """Questions, rows, adversaries and proofs that the audits lack, a line each."""
    return list(dict.fromkeys([*_questions(audits), *_adversaries(audits), *_rows(audits), *_proofs(audits, bounds)]))


def _questions(audits: Sequence[AuditResult]) -> Iterator[str]:
    asked = {question for audit in audits for question in audit.judgement.answers}
    for question in ("attribute", "membership"):
        if question not in asked:
            yield text(f"card.untested.{question}")


def _adversaries(audits: Sequence[AuditResult]) -> Iterator[str]:
    threats = [audit.plan.threat for audit in audits]
    names = {"outside" if threat.pictures else threat.base for threat in threats}
    if not any(row.releases > 1 and row.ok for audit in audits for row in audit.rows):
        yield text("card.untested.releases")
    others = [text(f"card.adversary.{name}") for name in (*THREATS, "outside") if name not in names]
    if any(audit.plan.selective for audit in audits) and not any(threat.sees_answers for threat in threats):
        yield text("card.untested.answers")
    if others:
        yield text("card.untested.adversaries", names=text("card.adversary.between").join(others))


def _rows(audits: Sequence[AuditResult]) -> Iterator[str]:
    for audit in audits:
        if audit.missing:
            yield text("card.untested.rows", suite=audit.plan.suite, rows=row_titles(audit.missing))


def _proofs(audits: Sequence[AuditResult], bounds: Sequence[CardBound]) -> Iterator[str]:
    """That nothing is proven: no certificate was computed, or none says anything."""
    if not any(row.kind == "certificate" for audit in audits for row in audit.rows):
        yield text("card.unproven.none")
    elif not any(map(_says_something, bounds)):
        yield text("card.unproven")


def _says_something(item: CardBound) -> bool:
    """Whether a bound is a proven limit on attackers: neither vacuous nor an estimate, nor evidence of a leak.

    One on images of which some are not sent says nothing about an image that is sent.
    """
    is_evidence = item.bound.about == "leakage" and item.bound.direction == "at_least"
    is_beside = item.bound.about in ("over_all", "not_sent")
    return item.bound.kind == "bound" and not item.bound.vacuous and not is_evidence and not is_beside
