"""The verbs of the command, one file per verb or group of verbs."""

from __future__ import annotations

from attncem.cli.verbs import (
    audit,
    campaign,
    completion,
    demo,
    export,
    images,
    importing,
    lists,
    live,
    pages,
    sealing,
    search,
    serve,
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
    sealing.add,
    export.add,
    live.add,
    campaign.add,
    search.add,
    serve.add,
    demo.add,
    lists.add,
    importing.add,
    completion.add,
)
"""Functions that add the verbs to the command, in the order of its help."""
