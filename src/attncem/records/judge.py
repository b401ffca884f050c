"""judge(): the only place that decides the state of an audit (reliable, not reliable, not enough to tell) and leaks.

Report, card, terminal, explain page, campaign tables, `--fail-if` and the exit code all read its result. The rule is
one-sided. Few images, a small attacker or a weak attack forbid "none shown"; they never forbid "leaks": an attack or
probe whose interval excludes the blind guess leaks at any number of images.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attncem.records.audit import AuditPlan, AuditResult, Row
from attncem.records.findings import Finding, finding
from attncem.records.judgement import Answer, Judgement, Question, State, Status
from attncem.records.rivals import are_level
from attncem.records.sending import twin_of

LEAST_OWNED = 1000
"""An attacker with fewer images cannot show that a stronger one would fail."""
LEAST_JUDGED = 200
"""Fewer evaluation images cannot show that nothing leaks."""
WIDEST = 0.10
"""An interval that holds the blind guess and is wider than this share of the guess's error tells nothing."""
_QUESTIONS: dict[str, tuple[Question, tuple[str, ...]]] = {
    "reidentification": ("identity", ("rank_1",)),
    "reidentification_by_picture": ("identity", ("pixel_rank_1", "feature_rank_1")),
    "label_leakage": ("label", ("accuracy@",)),
    "attribute_leakage": ("attribute", ("attribute_balanced",)),
    "membership": ("membership", ("auc",)),
}
"""The question of each probe, and the measures that answer it; one that ends in @ has a number of labels after it."""
_BLOCKING = ("no_attack", "no_learned", "should_lead", "few_owned", "few_answered", "few_judged", "wide")
"""Reasons that make it `not_enough`; the others make it `not_reliable`."""


def judge(audit: AuditResult) -> Judgement:
    """The judgement of an audit, from its plan and rows."""
    reasons = list(_doubts(audit))
    state = state_of(reasons)
    picture = _picture(audit, state)
    return Judgement(state, reasons, {"picture": picture, **_probed(audit)})


def state_of(reasons: Sequence[Finding]) -> State:
    """The state that follows from the reasons for doubt."""
    if not reasons:
        return "reliable"
    blocked = any(reason.code.removeprefix("doubt_") in _BLOCKING for reason in reasons)
    return "not_enough" if blocked else "not_reliable"


def _doubts(audit: AuditResult) -> Iterator[Finding]:
    """Every reason why the strongest attack may not show what an attacker can do."""
    yield from _failed(audit)
    if not audit.strongest:
        yield finding("doubt_no_attack")
        return
    best = audit.strongest_attack
    yield from _of_numbers(audit.plan, best)
    yield from _of_width(audit)
    yield from _of_rivals(audit, best, [row for row in audit.attacks if row.sight == best.sight])


def _failed(audit: AuditResult) -> Iterator[Finding]:
    """An attack that failed or was damaged might have been the strongest."""
    failed = [row.name for row in audit.rows if row.kind == "attack" and row.unfinished]
    if failed:
        yield finding("doubt_failed", rows=", ".join(failed))


def _of_numbers(plan: AuditPlan, best: Row) -> Iterator[Finding]:
    if plan.num_auxiliary < LEAST_OWNED:
        yield finding("doubt_few_owned", count=plan.num_auxiliary, wanted=LEAST_OWNED)
    elif plan.threat.queries is not None and plan.threat.queries < LEAST_OWNED:
        yield finding("doubt_few_answered", count=plan.threat.queries, wanted=LEAST_OWNED)
    if best.num_images < LEAST_JUDGED:
        yield finding("doubt_few_judged", count=best.num_images, wanted=LEAST_JUDGED)


def _of_width(audit: AuditResult) -> Iterator[Finding]:
    if "mse" in audit.remaining:
        _, low, high = removed(audit)
        if low <= 0 <= high and high - low > WIDEST:
            yield finding("doubt_wide", low=100 * low, high=100 * high)


def _of_rivals(audit: AuditResult, best: Row, rows: Sequence[Row]) -> Iterator[Finding]:
    """Doubts from the other attacks: none that must beat a simpler one, one that should lead, one that might lead.

    None should lead where one of them is level with the best: then a learned and a simple attack agree.
    """
    learned = [row for row in rows if row.must_beat and not _is_behind_twin(row, rows)]
    if not learned:
        yield finding("doubt_no_learned")
    agreed = any(are_level(audit.rivals, row.name, best.name) for row in learned)
    for row in learned:
        if best.method in row.must_beat and not agreed:
            yield finding("doubt_should_lead", row.name, other=best.name)
    for row in rows:
        gain = row.verdict.gain_of_doubling
        may_lead = gain is None or row.mse.mean * (1 - max(gain, 0.0)) <= best.mse.mean
        if not row.verdict.reliable and may_lead:
            yield finding("doubt_unreliable", row.name)


def _is_behind_twin(row: Row, rows: Sequence[Row]) -> bool:
    """Whether the same attack is stronger with the other images, all or those that would be sent: then that counts."""
    twin = twin_of(row, rows)
    return twin is not None and twin.mse.mean < row.mse.mean


def removed(audit: AuditResult) -> tuple[float, float, float]:
    """The part of the best blind guess's error that the strongest attack removes, and the ends of its interval.

    The interval is that of the attack's error; the guess's error counts as exact.
    """
    left, mse = audit.remaining["mse"], audit.strongest_attack.mse
    return 1 - left.share, 1 - mse.high / left.blind, 1 - mse.low / left.blind


def _picture(audit: AuditResult, state: State) -> Answer:
    """Whether the strongest attack is closer to the picture than the best blind guess."""
    if not audit.strongest:
        return Answer("not_tested")
    best, left = audit.strongest_attack, audit.remaining.get("mse")
    mse, blind = best.mse, None if left is None else left.blind
    leaks = blind is not None and best.kind == "attack" and mse.high < blind
    status: Status = "leaks" if leaks else "none_shown" if state == "reliable" and blind is not None else "not_enough"
    return Answer(status, best.name, "mse", mse.mean, mse.low, mse.high, blind, best.num_images)


def _probed(audit: AuditResult) -> dict[str, Answer]:
    """The answers of the probes; of several answers to one question, the one that leaks most."""
    answers: dict[str, Answer] = {}
    for row in (row for row in audit.rows if row.ok and row.kind == "probe" and row.method in _QUESTIONS):
        question, measures = _QUESTIONS[row.method]
        for measure in row.scores.keys() & row.chance.keys():
            if measure.startswith(measures):
                both = (answers.get(question), _of_probe(row, measure, question))
                answers[question] = max((one for one in both if one is not None), key=_gain)
    return answers


def _of_probe(row: Row, measure: str, question: Question) -> Answer:
    score, chance = row.scores[measure], row.chance[measure]
    enough = row.num_images >= LEAST_JUDGED
    status: Status = "leaks" if score.low > chance else "none_shown" if enough else "not_enough"
    among = round(1 / chance) if question == "identity" else 0
    return Answer(status, row.name, measure, score.mean, score.low, score.high, chance, row.num_images, among)


def _gain(answer: Answer) -> float:
    """The part of what guessing leaves that the attacker gains."""
    assert answer.value is not None and answer.blind is not None
    return (answer.value - answer.blind) / max(1 - answer.blind, 1e-12)
