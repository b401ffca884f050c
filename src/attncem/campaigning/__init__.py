"""Campaigns: many runs and their audits as one declaration, that goes on wherever it was."""

from __future__ import annotations

from attncem.campaigning.planning import Outlook, plan_campaign
from attncem.campaigning.results import campaign_table, write_results
from attncem.campaigning.running import CampaignResult, run_campaign, stop_campaign
from attncem.campaigning.searching import search

__all__ = [
    "CampaignResult",
    "Outlook",
    "campaign_table",
    "plan_campaign",
    "run_campaign",
    "search",
    "stop_campaign",
    "write_results",
]
