"""The headline table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from attncem.reporting import wording
from attncem.reporting.tables import summary_table
from attncem.types import AuditResult

_TITLE = "Strongest attack on each run (higher MSE, lower SSIM: more private)"
_NAME_WIDTH = 24
"""Room for the longest floor's name; longer names fold."""


def print_summary(audits: Sequence[AuditResult], console: Console) -> None:
    """Print one row per audit, then the floors beneath."""
    rows = summary_table(audits)
    show_threat = len({(row["suite"], row["threat"]) for row in rows if row["kind"] == "run"}) > 1
    table = Table(title=_TITLE, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("run", overflow="fold", min_width=_NAME_WIDTH)
    for heading in ("acc.\n%", "strongest\nattack", "MSE", "SSIM", "PSNR\ndB", "train\ns"):
        table.add_column(heading, justify="left" if "attack" in heading else "right")
    for number, row in enumerate(rows):
        if number == len(audits):
            table.add_section()
        name = f"{row['run']} ({row['suite']}, {row['threat']})" if row["kind"] == "run" and show_threat else row["run"]
        table.add_row(*_cells(row, name), style="dim" if row["kind"] == "floor" else "")
    console.print(table)


def _cells(row: dict[str, Any], name: str) -> list[Text]:
    floor = row["kind"] == "floor"
    unsure = "" if row["reliable"] else " (not reliable)"
    cells = [
        f"floor: {name}" if floor else name,
        "" if floor else wording.percent(row["accuracy"], unit=""),
        "" if floor else f"{row['attack']}{unsure}",
        wording.decimal(row["mse"], 4),
        wording.decimal(row["ssim"], 3),
        wording.decimal(row["psnr"], 1),
        "" if floor else wording.decimal(row["training_seconds"], 1),
    ]
    return [Text(cell) for cell in cells]
