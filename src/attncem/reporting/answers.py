"""A judgement in words: its state, the reasons for doubt, and one line for each question about a release.

Page, card, terminal and explain page use these sentences, so that all of them say the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from attncem.base.texts import joined, text
from attncem.records.audit import AuditResult
from attncem.records.judgement import Answer, Judgement, Question, State
from attncem.records.study import Arm, AuditKind
from attncem.reporting import wording

QUESTIONS: tuple[Question, ...] = ("picture", "identity", "label")
"""The questions that every first screen and card answers, also with `not tested`."""
_WORST: tuple[State, ...] = ("not_enough", "not_reliable", "reliable")


def state_word(state: State) -> str:
    """The state as people read it."""
    return text(f"state.{state}")


def worst(states: Sequence[State]) -> State | None:
    """The state of several audits together; None without any."""
    return min(states, key=_WORST.index, default=None)


def doubts(judgement: Judgement) -> list[str]:
    """The reasons for doubt, one sentence each."""
    return [wording.reason_sentence(reason) for reason in judgement.reasons]


def describe(judgement: Judgement) -> str:
    """The state and its reasons as one text."""
    return joined([text("state.sentence", state=state_word(judgement.state)), *doubts(judgement)])


def by_state(arm: Arm[Any], kind: AuditKind | None = None) -> str:
    """How many seeds of an arm are not reliable, and not enough to tell; empty where all are reliable."""
    counts = Counter(audit.state for audit in arm.attacked(kind))
    named = [(state, counts[state]) for state in _WORST[:2] if counts[state]]
    return ", ".join(text("arms.in_state", state=state_word(state), count=count) for state, count in named)


def lines(audit: AuditResult, questions: Sequence[Question] = QUESTIONS) -> list[str]:
    """A line for each of these questions, and for every other one that a row of the audit asks."""
    asked = [name for name in audit.judgement.answers if name not in questions]
    return [line(name, [audit]) for name in (*questions, *asked)]


def line(question: str, audits: Sequence[AuditResult]) -> str:
    """The answer to a question; for several seeds, from the mean of their numbers."""
    answers = [audit.judgement.answers[question] for audit in audits if question in audit.judgement.answers]
    if not answers:
        return text(f"question.{question}", answer=text("answer.not_tested"))
    return text(f"question.{question}", answer=_answer(question, answers))


def _answer(question: str, answers: Sequence[Answer]) -> str:
    order = ("leaks", "not_enough", "none_shown", "not_tested")
    status = min((answer.status for answer in answers), key=order.index)
    known = [(one.value, one.blind) for one in answers if one.value is not None and one.blind is not None]
    if not known or (question == "picture" and status == "not_enough"):
        return text(f"answer.{status}")
    value, blind = (fmean(pair) for pair in zip(*known, strict=True))
    if question == "picture" and status == "leaks":
        return text("answer.picture.leaks", removed=wording.percent(1 - value / blind, 0))
    if question == "picture":
        return text("answer.picture.none_shown")
    numbers = text(f"answer.{question}.numbers", **_numbers(question, value, blind, answers[0]))
    return numbers if status == "leaks" else text("answer.beside", numbers=numbers, status=text(f"answer.{status}"))


def _numbers(question: str, value: float, blind: float, first: Answer) -> dict[str, object]:
    if question == "membership":
        return {"value": wording.decimal(value, 2), "chance": wording.decimal(blind, 2)}
    shown = {"value": wording.percent(value), "chance": wording.percent(blind, 1)}
    if question == "identity":
        return {**shown, "candidates": first.candidates}
    return {**shown, "labels": int(first.measure.partition("@")[2] or 0)} if question == "label" else {**shown}
