"""The verbs of the command, a file each or a group of them."""

from __future__ import annotations

from attncem.commands import audit, card, demo, explain, lists, predict, report, train

VERBS = (train.add, audit.add, report.add, card.add, predict.add, explain.add, demo.add, lists.add)
"""What adds each verb to the command, in the order of its help."""
