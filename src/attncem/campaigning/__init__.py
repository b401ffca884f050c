"""Campaigns: many runs and their audits as one declaration, that goes on wherever it was."""

from __future__ import annotations

from attncem.campaigning.planning import Outlook, plan_campaign
from attncem.campaigning.running import CampaignResult, run_campaign, stop_campaign

__all__ = ["CampaignResult", "Outlook", "plan_campaign", "run_campaign", "stop_campaign"]
