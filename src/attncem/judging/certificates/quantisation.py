"""The quantisation bound: a release of m features of b bits holds at most m · b · ln 2 nats, with or without noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from attncem.base.texts import written
from attncem.base.types import NotApplicable
from attncem.config.options.certificates import QuantisationOptions
from attncem.judging.certificates.leakage import bits_of_releases
from attncem.judging.certificates.making import certain, largest_entropy
from attncem.judging.judges import Certificate
from attncem.records.bounds import Bound

if TYPE_CHECKING:
    from attncem.judging.case import Case


class Quantisation(Certificate):
    """I(x; released) ≤ H(released) ≤ m · b · ln 2, and k times that for k different releases."""

    options_type = QuantisationOptions
    options: QuantisationOptions

    def bound(self, case: Case, *, seed: int) -> Mapping[str, Bound]:
        """`leakage` of all releases that the adversary sees of one image."""
        nats = bits_of_releases(case)
        if nats is None:
            raise NotApplicable(written("reason.not_quantised"))
        found = certain(nats, "nats", "leakage")
        return {"leakage": replace(found, vacuous=nats >= largest_entropy(case.x.shape[1:]))}
