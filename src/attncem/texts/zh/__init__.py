"""Chinese, in the same parts as English."""

from __future__ import annotations

from attncem.texts.zh.arms import ARMS
from attncem.texts.zh.campaign import CAMPAIGN
from attncem.texts.zh.certificates import CERTIFICATES
from attncem.texts.zh.command import COMMAND
from attncem.texts.zh.comparison import COMPARISON
from attncem.texts.zh.explain import EXPLAIN
from attncem.texts.zh.findings import FINDINGS
from attncem.texts.zh.health import HEALTH
from attncem.texts.zh.importing import IMPORTING
from attncem.texts.zh.names import NAMES
from attncem.texts.zh.report import REPORT
from attncem.texts.zh.results import RESULTS
from attncem.texts.zh.search import SEARCH
from attncem.texts.zh.shared import SHARED

PARTS: tuple[dict[str, str], ...] = (
    *(FINDINGS, HEALTH, REPORT, EXPLAIN, SHARED, COMMAND),
    *(ARMS, CAMPAIGN, CERTIFICATES, COMPARISON, IMPORTING, NAMES, RESULTS, SEARCH),
)
"""The catalogue as it is written down; no key stands in two parts."""
TEXTS: dict[str, str] = {key: sentence for part in PARTS for key, sentence in part.items()}
"""Texts by key."""
