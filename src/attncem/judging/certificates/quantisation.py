"""The quantisation bound: a release of m features of b bits holds at most m · b · ln 2 nats, with or without noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from attncem.config.options.certificates import QuantisationOptions
from attncem.judging.certificates.bits import nats_of_codes, no_code
from attncem.judging.certificates.making import certain, largest_entropy
from attncem.judging.certificates.over_all import over_all
from attncem.judging.judges import Certificate
from attncem.records.bounds import Bound

if TYPE_CHECKING:
    from attncem.judging.case import Case


class Quantisation(Certificate):
    """I(x; releases) ≤ H(codes) ≤ m · b · ln 2, and k times that where k releases may have different codes.

    Each of several runtimes may compute another code of the same pixels: R runtimes count R times.
    """

    options_type = QuantisationOptions
    options: QuantisationOptions

    def bound(self, case: Case, *, seed: int) -> Mapping[str, Bound]:
        """`leakage` of all releases that the adversary sees of one image."""
        bits = nats_of_codes(case, self.options.runtimes)
        if bits is None:
            raise no_code(case.model.channel)
        made = certain(bits.nats, "nats", "leakage", bits.assumptions)
        vacuous = bits.nats >= largest_entropy(case.x.shape[1:])
        whole = {"leakage": replace(made, vacuous=vacuous, any_number=bits.any_number)}
        return whole | over_all(case, bits.nats, bits.assumptions)
