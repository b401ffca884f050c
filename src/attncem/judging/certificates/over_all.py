"""Nats that an image reveals on average if the client sends only some: by silence, releases, and answers if seen."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from attncem.judging.certificates.making import Numbers, largest_entropy, measured
from attncem.judging.selecting import look_at
from attncem.records.bounds import Bound

if TYPE_CHECKING:
    from attncem.judging.case import Case


def over_all(case: Case, nats: Numbers | float, assumptions: list[str]) -> dict[str, Bound]:
    """`over_all`: h₂(p) + p I(x; z | sent) + (1 − p) H(answer | not sent) from above; empty if every image is sent.

    ``nats`` are those of the images that are sent. Each term is a cross entropy, of a share chosen on validation images
    and of a law of answers learned on training images, so it is never below the entropy. Answers count only for an
    adversary that sees them. Releases of one image are of the same pixels, which are decided alike: with jitter each
    decision could differ, so nothing is claimed.
    """
    if case.looked is None or case.threat.jitter:
        return {}
    sent = case.looked.sent.cpu().numpy()
    values = np.where(sent, *(-np.log(_share_sent(case, asked)) for asked in (True, False)))
    values[sent] += nats
    if case.threat.sees_answers:
        values[~sent] += _nats_of_answers(case)[~sent]
    made = measured(values, "nats", "over_all", assumptions)
    return {"over_all": replace(made, vacuous=made.claim >= largest_entropy(case.x.shape[1:]))}


def _share_sent(case: Case, asked: bool) -> float:
    """The probability that an image is sent, or is not, by the validation images; never 0 or 1."""
    facts = case.subject.selection
    share, count = float(facts.get("share", 0.5)), int(facts.get("images", 0))
    smooth = (share * count + 1) / (count + 2)
    return smooth if asked else 1 - smooth


def _nats_of_answers(case: Case) -> Numbers:
    """−log q of the head's label of each evaluation image, with the shares of the labels in training images kept."""
    assert case.looked is not None
    looked = look_at(case.model, case.subject.data.train.in_parts)
    classes = case.subject.spec.num_classes
    counts = torch.bincount(looked.labels[~looked.sent], minlength=classes).double() + 1
    law = (counts / counts.sum()).log().cpu().numpy()
    return np.asarray(-law[case.looked.labels.cpu().numpy()])
