"""Chinese, in the same parts as English."""

from __future__ import annotations

from attncem.base.texts.zh.arms import ARMS
from attncem.base.texts.zh.campaign import CAMPAIGN
from attncem.base.texts.zh.certificates import CERTIFICATES
from attncem.base.texts.zh.command import COMMAND
from attncem.base.texts.zh.comparison import COMPARISON
from attncem.base.texts.zh.explain import EXPLAIN
from attncem.base.texts.zh.findings import FINDINGS
from attncem.base.texts.zh.health import HEALTH
from attncem.base.texts.zh.importing import IMPORTING
from attncem.base.texts.zh.names import NAMES
from attncem.base.texts.zh.report import REPORT
from attncem.base.texts.zh.results import RESULTS
from attncem.base.texts.zh.search import SEARCH
from attncem.base.texts.zh.shared import SHARED

PARTS: tuple[dict[str, str], ...] = (
    *(FINDINGS, HEALTH, REPORT, EXPLAIN, SHARED, COMMAND),
    *(ARMS, CAMPAIGN, CERTIFICATES, COMPARISON, IMPORTING, NAMES, RESULTS, SEARCH),
)
"""The catalogue as it is written down; no key stands in two parts."""
TEXTS: dict[str, str] = {key: sentence for part in PARTS for key, sentence in part.items()}
"""Texts by key."""
