"""The decoders that a row tried, by width and number of own images, as tables."""

from __future__ import annotations

from collections.abc import Sequence

from attncem.base.texts import text
from attncem.base.texts.titles import row_title
from attncem.reporting import wording
from attncem.reporting.runs.methods import Entry
from attncem.reporting.runs.tables import family_tables
from attncem.reporting.table_formats import Column, Table, number, word


def family_table_list(entries: Sequence[Entry]) -> list[tuple[str, Table]]:
    """The decoders that a row tried, by width and number of own images, each table with its caption."""
    made = []
    for place, part in enumerate(family_tables(entries)):
        columns = [Column("width", text("report.family.width"))]
        columns += [_family_column(count) for count in part["images"]]
        rows = [
            [word(row["width"]), *(number(it, tone="best" if it == part["least"] else "") for it in row["errors"])]
            for row in part["rows"]
        ]
        whose = {"attack": row_title(part["attack"]), "run": part["label"]}
        title, caption = text("report.family.region", **whose), text("report.family.caption", **whose)
        made.append((caption, Table(f"family-{place}", title, columns, rows)))
    return made


def _family_column(images: int) -> Column:
    count = wording.count(images)
    card = text("report.family.card", count=count)
    return Column(f"images_{images}", count, text("report.family.images"), card=card)
