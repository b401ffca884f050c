"""Judgement: what an audit can tell. Its state, the reasons for doubt, and the answers to questions about a release."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from attncem.base.record import Record
from attncem.records.findings import Finding

State = Literal["reliable", "not_reliable", "not_enough"]
"""reliable: the numbers hold. not_reliable: a stronger attack is likely. not_enough: the audit cannot tell."""
Question = Literal["picture", "identity", "label", "attribute", "membership"]
"""Rebuild the picture; recognise it among others; tell its class, an attribute, or that it was trained on."""
Status = Literal["leaks", "none_shown", "not_enough", "not_tested"]
"""leaks: the interval excludes the blind guess, at any number of images. none_shown: it does not, and the audit is able
to tell. not_enough: it does not, and the audit is not able to tell."""


class Answer(Record):
    """The answer to one question: the row and measure that gave it, its value and interval, and the blind guess.

    ``candidates`` is the number of pictures among which one is recognised.
    """

    status: Status
    row: str = ""
    measure: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    blind: float | None = None
    images: int = 0
    candidates: int = 0


class Judgement(Record):
    """The state of an audit with its reasons, and an answer to every question that a row of it asks.

    ``reasons`` are empty where the state is `reliable`. ``answers`` always holds `picture`.
    """

    state: State = "not_enough"
    reasons: list[Finding] = field(default_factory=list)
    answers: dict[str, Answer] = field(default_factory=dict)

    @property
    def leaks(self) -> list[str]:
        """The questions that an attacker can answer better than by guessing."""
        return [question for question, answer in self.answers.items() if answer.status == "leaks"]

    def answer(self, question: Question) -> Answer:
        """The answer to a question; `not_tested` where no row asks it."""
        return self.answers.get(question, Answer("not_tested"))
