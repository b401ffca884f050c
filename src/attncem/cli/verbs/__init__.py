"""The verbs of the command, a file each or a group of them."""

from __future__ import annotations

from attncem.cli.verbs import (
    audit,
    campaign,
    completion,
    demo,
    images,
    importing,
    lists,
    pages,
    search,
    train,
)

VERBS = (
    train.add,
    audit.add,
    pages.add_report,
    pages.add_compare,
    pages.add_card,
    images.add_predict,
    images.add_explain,
    campaign.add,
    search.add,
    demo.add,
    lists.add,
    importing.add,
    completion.add,
)
"""What adds each verb to the command, in the order of its help."""
