"""Study: arms over their seeds. A cell is a run with its audits; `AuditKey` says which audits are the same.

Reports, campaign pages, comparisons, cards, notebooks and docs/results.md read a Study. Never imports torch.
"""

from __future__ import annotations

from attncem.records.metrics import ACCURACY
from attncem.records.study.arms import Arm, Cell, Effect, RunFacts, Spread, Study, spread_of
from attncem.records.study.keys import AuditKey, AuditKind, newest

__all__ = [
    "ACCURACY",
    "Arm",
    "AuditKey",
    "AuditKind",
    "Cell",
    "Effect",
    "RunFacts",
    "Spread",
    "Study",
    "newest",
    "spread_of",
]
