"""The privacy card, which ships with a model: the attacks it was defended against, with numbers, bounds and caveats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from attncem.base.record import Record
from attncem.config.threats import ThreatModel
from attncem.records.audit import Score, Subject
from attncem.records.bounds import Bound
from attncem.records.judgement import Judgement


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


class PrivacyCard(Record):
    """The contents of a card. ``defence`` is in words, ``leakage`` is one sentence on the leakage of a release.

    ``absent`` are the certificates that do not apply, by row; ``caveats`` are findings of the audits that a reader must
    know, ``not_said`` are the limits of any such card.
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
