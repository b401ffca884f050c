"""English, in parts."""

from __future__ import annotations

from attncem.base.texts.en.arms import ARMS
from attncem.base.texts.en.campaign import CAMPAIGN
from attncem.base.texts.en.certificates import CERTIFICATES
from attncem.base.texts.en.command import COMMAND
from attncem.base.texts.en.comparison import COMPARISON
from attncem.base.texts.en.explain import EXPLAIN
from attncem.base.texts.en.findings import FINDINGS
from attncem.base.texts.en.health import HEALTH
from attncem.base.texts.en.importing import IMPORTING
from attncem.base.texts.en.names import NAMES
from attncem.base.texts.en.report import REPORT
from attncem.base.texts.en.results import RESULTS
from attncem.base.texts.en.search import SEARCH
from attncem.base.texts.en.shared import SHARED

PARTS: tuple[dict[str, str], ...] = (
    *(FINDINGS, HEALTH, REPORT, EXPLAIN, SHARED, COMMAND),
    *(ARMS, CAMPAIGN, CERTIFICATES, COMPARISON, IMPORTING, NAMES, RESULTS, SEARCH),
)
"""The catalogue as it is written down; no key stands in two parts."""
TEXTS: dict[str, str] = {key: sentence for part in PARTS for key, sentence in part.items()}
"""Texts by key."""
