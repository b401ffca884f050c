"""The verbs of the command, a file each or a group of them."""

from __future__ import annotations

from attncem.cli.verbs import (
    audit,
    campaign,
    card,
    compare,
    completion,
    demo,
    explain,
    importing,
    lists,
    predict,
    report,
    search,
    train,
)

VERBS = (
    train.add,
    audit.add,
    report.add,
    compare.add,
    card.add,
    predict.add,
    explain.add,
    campaign.add,
    search.add,
    demo.add,
    lists.add,
    importing.add,
    completion.add,
)
"""What adds each verb to the command, in the order of its help."""
