"""Campaigns: many runs and their audits in one declaration; an interrupted campaign resumes where it stopped."""

from __future__ import annotations

from attncem.campaigns.planning import Outlook, plan_campaign
from attncem.campaigns.results import campaign_table, write_results
from attncem.campaigns.running import CampaignResult, run_campaign, stop_campaign
from attncem.campaigns.searches.searching import search

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
