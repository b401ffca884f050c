"""The entropy of the codes: what a release that the pixels determine tells about the image, from above and below."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from attncem.base.texts import written
from attncem.base.types import NotApplicable, RunError
from attncem.config.options.certificates import CodeEntropyOptions
from attncem.judging.certificates.bits import Rounding, code_of, no_code, roundings
from attncem.judging.certificates.code_laws import MOST_BITS, Codes, Law, choose_law
from attncem.judging.certificates.making import Numbers, largest_entropy, measured
from attncem.judging.certificates.over_all import over_all
from attncem.judging.certificates.passage import BATCH, clean_features, clean_parts, learned_places
from attncem.judging.judges import Certificate
from attncem.records.bounds import About, Bound

if TYPE_CHECKING:
    from attncem.judging.case import Case


class CodeEntropy(Certificate):
    """I(x; release) ≤ H(code) ≤ −E log q(code), for a law q of codes that was learned on other images.

    Where the rounding is the last stage, the release is the code, and I(x; release) = H(code). The entropy of the
    counts of codes is below it on average, and is an estimate.
    """

    options_type = CodeEntropyOptions
    options: CodeEntropyOptions

    def bound(self, case: Case, *, seed: int) -> Mapping[str, Bound]:
        """`entropy` of the code, for any number of releases, and `entropy_plugin`, where the release is the code."""
        made, nats = {"entropy": entropy_of(case)}, nats_of_code(case)
        self.images = {"entropy": nats}
        if code_stage(case).last:
            made["entropy_plugin"] = plugin(evaluation_codes(case))
        return made | over_all(case, nats, made["entropy"].assumptions)


def entropy_of(case: Case, *, inside: bool = False) -> Bound:
    """The entropy of the code at 95 % confidence, at most m · b · ln 2; NotApplicable: there is no such code.

    ``inside``: its entropy inside the classes, H(code | label).
    """
    codes = evaluation_codes(case)
    about: About = "beyond_label" if inside else "leakage"
    made = measured(nats_of_code(case, inside=inside), "nats", about, ["same_law", "one_runtime"])
    value, low, high, limit = (min(number, codes.nats) for number in (made.value, made.low, made.high, made.claim))
    return replace(
        made,
        value=value,
        low=low,
        high=high,
        limit=limit,
        vacuous=limit >= largest_entropy(case.x.shape[1:]),
        ceiling=codes.nats,
        by=_law_of(case, inside).name,
        any_number=True,
    )


def plugin(codes: Codes) -> Bound:
    """−Σ p log p of the shares of the codes: below the entropy on average, and never above ln n."""
    _, place, counts = codes.values.unique(dim=0, return_inverse=True, return_counts=True)
    nats = -(counts.double() / len(place)).log()[place]
    made = measured(np.asarray(nats.cpu().numpy()), "nats", "leakage", ["same_law"], at_least=True)
    return replace(made, kind="estimate", vacuous=made.claim <= 0, ceiling=math.log(len(place)))


def code_stage(case: Case) -> Rounding:
    """The last stage whose code the pixels alone determine; NotApplicable gives the reason if there is none."""
    if case.threat.jitter:
        raise NotApplicable(written("reason.pixels_move"))
    stages = roundings(case.model.channel)
    fixed = [one for one in stages if one.fixed]
    if not stages:
        raise no_code(case.model.channel)
    if not fixed:
        raise NotApplicable(written("reason.random_code"))
    if (count := case.released[0].numel() * fixed[-1].bits) > MOST_BITS:
        raise NotApplicable(written("reason.code_long", count=count, most=MOST_BITS))
    return fixed[-1]


def evaluation_codes(case: Case) -> Codes:
    """The codes of the evaluation images, computed once."""
    stage = code_stage(case)
    if "codes" not in case.remembered:
        parts = clean_features(case, case.x, "evaluation").split(BATCH)
        case.remembered["codes"] = _codes(case, stage, parts, case.y)
    codes: Codes = case.remembered["codes"]
    return codes


def nats_of_code(case: Case, *, inside: bool = False) -> Numbers:
    """−log q of each evaluation image's code, or of its code given its label."""
    return np.asarray(-_law_of(case, inside).log_share(evaluation_codes(case)).cpu().numpy())


def _law_of(case: Case, inside: bool) -> Law:
    """The law of codes, learned once from all training images, or from evenly spaced ones if there are too many."""
    key = "law of codes", inside
    if key not in case.remembered:
        places, labels = learned_places(case), case.subject.data.train.labels
        codes = _codes(case, code_stage(case), clean_parts(case, places), labels[places])
        case.remembered[key] = choose_law(codes, max(1, case.subject.spec.num_classes), inside=inside)
    law: Law = case.remembered[key]
    return law


@torch.no_grad()
def _codes(case: Case, stage: Rounding, parts: Iterable[Tensor], labels: Tensor) -> Codes:
    """The codes of clean features; RunError where these are not finite."""
    values, broken = [], 0
    for z in parts:
        broken += int((~z.flatten(1).isfinite()).any(1).sum())
        values.append(code_of(case.model.channel, stage, z.nan_to_num()).flatten(1))
    if broken:
        raise RunError(f"the features of {broken} of {len(labels)} images are not finite: they have no code")
    return Codes(torch.cat(values), labels, stage.bits)
