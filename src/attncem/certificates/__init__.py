"""Certificates: they bound what any attack could do, from the channel and the spread of the features."""

from __future__ import annotations

from attncem.certificates.accountant import Accountant
from attncem.certificates.evidence import LeakageEvidence
from attncem.certificates.fano import Fano
from attncem.certificates.fisher import Fisher
from attncem.certificates.leakage import Leakage
from attncem.certificates.local_privacy import LocalPrivacy
from attncem.certificates.quantisation import Quantisation
from attncem.certificates.shannon import Shannon
from attncem.certificates.surrogate import SurrogateLeakage
from attncem.judges import Certificate

CERTIFICATES: dict[str, type[Certificate]] = {
    "leakage": Leakage,
    "surrogate_leakage": SurrogateLeakage,
    "leakage_evidence": LeakageEvidence,
    "shannon": Shannon,
    "fisher": Fisher,
    "fano": Fano,
    "quantisation": Quantisation,
    "local_privacy": LocalPrivacy,
    "accountant": Accountant,
}
"""Certificates by name."""
