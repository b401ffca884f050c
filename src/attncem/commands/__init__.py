"""The verbs of the command, a file each or a group of them."""

from __future__ import annotations

from attncem.commands import audit, campaign, compare, demo, explain, lists, predict, report, train

VERBS = (train.add, audit.add, report.add, compare.add, predict.add, explain.add, campaign.add, demo.add, lists.add)
"""What adds each verb to the command, in the order of its help."""
