"""Results in a notebook: rows of an audit as a table or a pandas DataFrame (if pandas is installed), and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any

from attncem.base.types import RunError

if TYPE_CHECKING:
    from attncem.records.audit import Row

_SHOWN = (
    "row",
    "kind",
    "releases",
    "mse",
    "mse_low",
    "mse_high",
    "structure",
    "ssim",
    "reliable",
    "seconds",
    "strongest",
)
"""Columns of a notebook's table; a DataFrame has all columns."""


def table_of(rows: Sequence[Row], strongest: str) -> list[dict[str, Any]]:
    """One mapping for each row: its name and kind, its outcome, and the mean and interval of every measure."""
    return [
        {
            "row": row.name,
            "method": row.method,
            "kind": row.kind,
            "outcome": row.outcome,
            "releases": row.releases,
            "images": row.num_images,
            **{name: score.mean for name, score in row.scores.items()},
            **{f"{name}_low": score.low for name, score in row.scores.items()},
            **{f"{name}_high": score.high for name, score in row.scores.items()},
            "reliable": row.verdict.reliable,
            "seconds": row.seconds,
            "strongest": row.name == strongest,
        }
        for row in rows
    ]


def frame(table: Sequence[dict[str, Any]]) -> Any:
    """A pandas DataFrame; RunError where pandas is not installed."""
    try:
        pandas = import_module("pandas")  # it has no type hints
    except ImportError as error:
        raise RunError("to_frame() needs pandas: pip install pandas") from error
    return pandas.DataFrame(list(table))


def html_table(caption: str, table: Sequence[dict[str, Any]]) -> str:
    """A small table for a notebook; everything is escaped."""
    names = [name for name in _SHOWN if any(name in row for row in table)]
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(row.get(name))}</td>' for name in names)}</tr>" for row in table)
    return f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_pictures(caption: str, pictures: Sequence[tuple[str, str]]) -> str:
    """PNG files in base64 side by side, each with its name below; everything is escaped."""
    style = "width: 128px; height: 128px; object-fit: contain; image-rendering: pixelated"
    cells = "".join(
        f'<td style="text-align: center"><img src="data:image/png;base64,{escape(picture)}" style="{style}" '
        f'alt="{escape(name)}"><br>{escape(name)}</td>'
        for picture, name in pictures
    )
    return f"<table><caption>{escape(caption)}</caption><tbody><tr>{cells}</tr></tbody></table>"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if isinstance(value, float) else escape(str(value))
