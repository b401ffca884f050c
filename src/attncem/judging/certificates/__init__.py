"""Certificates: provable limits on any attack, from the channel and the spread of the features."""

from __future__ import annotations

from attncem.judging.certificates.accountant import Accountant
from attncem.judging.certificates.code_entropy import CodeEntropy
from attncem.judging.certificates.evidence import LeakageEvidence
from attncem.judging.certificates.fano import Fano
from attncem.judging.certificates.fisher import Fisher
from attncem.judging.certificates.leakage import BeyondLabel, Leakage
from attncem.judging.certificates.local_privacy import LocalPrivacy
from attncem.judging.certificates.quantisation import Quantisation
from attncem.judging.certificates.shannon import Shannon
from attncem.judging.certificates.surrogate import SurrogateLeakage
from attncem.judging.judges import Certificate

CERTIFICATES: dict[str, type[Certificate]] = {
    "leakage": Leakage,
    "beyond_label": BeyondLabel,
    "surrogate_leakage": SurrogateLeakage,
    "leakage_evidence": LeakageEvidence,
    "shannon": Shannon,
    "fisher": Fisher,
    "fano": Fano,
    "quantisation": Quantisation,
    "code_entropy": CodeEntropy,
    "local_privacy": LocalPrivacy,
    "accountant": Accountant,
}
"""Certificates by name."""
