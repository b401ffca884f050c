"""English, in parts."""

from __future__ import annotations

from attncem.texts.en.arms import ARMS
from attncem.texts.en.campaign import CAMPAIGN
from attncem.texts.en.certificates import CERTIFICATES
from attncem.texts.en.command import COMMAND
from attncem.texts.en.comparison import COMPARISON
from attncem.texts.en.explain import EXPLAIN
from attncem.texts.en.findings import FINDINGS
from attncem.texts.en.health import HEALTH
from attncem.texts.en.importing import IMPORTING
from attncem.texts.en.names import NAMES
from attncem.texts.en.report import REPORT
from attncem.texts.en.results import RESULTS
from attncem.texts.en.search import SEARCH
from attncem.texts.en.shared import SHARED

PARTS: tuple[dict[str, str], ...] = (
    *(FINDINGS, HEALTH, REPORT, EXPLAIN, SHARED, COMMAND),
    *(ARMS, CAMPAIGN, CERTIFICATES, COMPARISON, IMPORTING, NAMES, RESULTS, SEARCH),
)
"""The catalogue as it is written down; no key stands in two parts."""
TEXTS: dict[str, str] = {key: sentence for part in PARTS for key, sentence in part.items()}
"""Texts by key."""
