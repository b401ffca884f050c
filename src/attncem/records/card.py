"""The privacy card, which ships with a model: its use, what an attacker can learn, what was not tested, the numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from attncem.base.record import Record
from attncem.config.threats import ThreatModel
from attncem.records.audit import Subject
from attncem.records.bounds import Bound
from attncem.records.judgement import Judgement, Status
from attncem.records.score import Score
from attncem.records.selective import Selective


class CardAttack(Record):
    """The strongest attack of one audit, compared with the best blind guess.

    ``attack`` is empty where no attack has a result; ``share`` is the fraction of the guess's error that it leaves
    (None: no guess), ``worth`` describes its error in words, ``judgement`` says what the audit can tell,
    ``reliable`` whether its state is `reliable`.
    """

    suite: str
    suite_version: int
    threat: ThreatModel
    against: str
    num_images: int
    attack: str
    mse: Score | None
    floor: str = ""
    share: float | None = None
    worth: str = ""
    reliable: bool = True
    judgement: Judgement = Judgement()
    num_attacks: int = 0
    audit: str = ""


class CardBound(Record):
    """One bound with its row; ``releases`` of each image, with pixels changed by up to ``jitter`` grey levels."""

    row: str
    name: str
    said: str
    bound: Bound
    threat: str
    releases: int
    jitter: int = 0


class CardAnswer(Record):
    """The answer to one question about a release, in words; ``audit`` is the audit that gave it."""

    question: str
    status: Status
    said: str
    audit: str = ""


class PrivacyCard(Record):
    """The contents of a card. ``defence`` is in words, ``leakage`` is one sentence on the leakage of a release.

    ``absent`` are the certificates that do not apply, by row; ``caveats`` are findings of the audits that a reader must
    know, ``not_said`` are the limits of any such card. For a person who decides: ``purpose`` and ``data`` in words, the
    adversaries that it was ``tested`` against, ``answers``, the ``judgement`` of the audit that decides, proven limits
    in words, the ``leak`` in nats, ``cautions``, the caveats without which the answers mislead, what was
    ``not_tested``, and what the card is ``not_for``. ``selective``: the client sends only some images; ``accuracy`` is
    that of client and server together on all of them, and all leaks are for an image that is sent.
    """

    generator: str
    made: str
    subject: Subject
    defence: list[str]
    accuracy: Score | None
    attacks: list[CardAttack]
    bounds: list[CardBound]
    leakage: str
    absent: Mapping[str, str] = field(default_factory=dict)
    caveats: list[str] = field(default_factory=list)
    not_said: list[str] = field(default_factory=list)
    versions: Mapping[str, Any] = field(default_factory=dict)
    purpose: list[str] = field(default_factory=list)
    data: str = ""
    tested: list[str] = field(default_factory=list)
    answers: list[CardAnswer] = field(default_factory=list)
    judgement: Judgement = Judgement()
    proven: list[str] = field(default_factory=list)
    cautions: list[str] = field(default_factory=list)
    not_tested: list[str] = field(default_factory=list)
    not_for: str = ""
    leak: str = ""
    selective: Selective | None = None
