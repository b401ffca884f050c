"""What is known of a client that sends only some images: its findings, and its numbers as a file of results keeps them.

The audit of such a client judges only the images that it sends, so every number of a leak is for an image that is sent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from attncem.base.record import Record
from attncem.base.texts import written
from attncem.records.audit import AuditPlan, Row
from attncem.records.findings import Finding, finding
from attncem.records.score import KEPT_DIGITS
from attncem.records.selective import Selective
from attncem.records.statistics import NORMAL, difference_apart

MOST_APART = 0.02
"""A share of sent images further than this from the share that was asked for is reported."""


class KeptSending(Record):
    """The same facts of one audit in a file of results; accuracies with their intervals over all images.

    ``share`` of the images is sent, ``num_sent`` of ``num_images``. ``alone`` is the accuracy of the client's own
    answers, ``all_sent`` that of the server if every image were sent; the audit's accuracy is that of both together.
    """

    threshold: float
    share: float
    num_sent: int
    num_images: int
    alone: list[float]
    all_sent: list[float]
    alone_on_sent: float | None = None


def kept_sending(facts: Selective) -> KeptSending:
    """The facts of an audit for a file of results."""
    on_sent = None if facts.alone_on_sent is None else round(facts.alone_on_sent, KEPT_DIGITS)
    return KeptSending(
        round(facts.threshold, KEPT_DIGITS),
        round(facts.share, KEPT_DIGITS),
        facts.num_sent,
        facts.num_images,
        facts.alone.kept,
        facts.all_sent.kept,
        on_sent,
    )


def sending_findings(plan: AuditPlan) -> list[Finding]:
    """A finding where the server adds nothing to the client's own answers, on the same images."""
    facts = plan.selective
    if facts is None or facts.together.mean > facts.alone.mean:
        return []
    apart = difference_apart(facts.together, facts.alone)
    shown = written("on_device.less") if apart.high < 0 else written("on_device.no_gain")
    together, alone, share = (100 * value for value in (facts.together.mean, facts.alone.mean, facts.share))
    return [finding("sending_not_worth_it", together=together, alone=alone, share=share, shown=shown)]


def share_findings(facts: Selective | None, asked: float | None, chosen_on: int) -> list[Finding]:
    """A finding where the share of the judged images that are sent is not the one that was asked for.

    ``chosen_on``: the validation images on which the threshold was chosen; with few of them, chance moves the share.
    """
    if facts is None or asked is None or abs(facts.share - asked) <= MOST_APART:
        return []
    chance = NORMAL * math.sqrt(asked * (1 - asked) * (1 / max(1, chosen_on) + 1 / facts.num_images))
    values: dict[str, Any] = {"share": 100 * facts.share, "asked": 100 * asked, "chance": 100 * chance}
    return [finding("share_differs", **values, images=facts.num_images, chosen_on=chosen_on)]


def twin_of(row: Row, rows: Sequence[Row]) -> Row | None:
    """The same attack as learned from the attacker's other set of images: all of them, or those that would be sent."""
    asked = row.question[0], dict(row.options), row.sight
    alike = (it for it in rows if it.ok and it.owns != row.owns and it.kind == row.kind)
    return next((it for it in alike if (it.question[0], dict(it.options), it.sight) == asked), None)
