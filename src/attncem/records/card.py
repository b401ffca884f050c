"""The privacy card: what a model was defended against, with which numbers, bounds and caveats; it ships with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from attncem.base.record import Record
from attncem.config.threats import ThreatModel
from attncem.records.audit import Score, Subject
from attncem.records.bounds import Bound


class CardAttack(Record):
    """The strongest attack of one audit, beside the best blind guess.

    ``attack`` is empty where no attack has a result; ``share`` is what it leaves of the guess's error (None: no guess),
    ``worth`` what its error is worth in words, ``reliable`` whether it had converged.
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
    num_attacks: int = 0
    audit: str = ""


class CardBound(Record):
    """One bound with the row that gave it; ``releases`` of each image, whose pixels are off by up to ``jitter``."""

    row: str
    name: str
    said: str
    bound: Bound
    threat: str
    releases: int
    jitter: int = 0


class PrivacyCard(Record):
    """Everything a card says. ``defence`` is in words, ``leakage`` one sentence on what a release tells.

    ``absent`` are the certificates that do not apply, by row; ``caveats`` what the audits found that a reader must
    know, ``not_said`` what no card of this kind says.
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
