"""Twins: rows in which an attack on a client with a head learns only from images that the client would send.

Such a client sends hard images. An attacker who learns from all of its images has more of them, one who learns from the
sent ones has the right kind; both are tried, and the stronger counts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from attncem.base.texts.titles import FROM_SENT
from attncem.judging.attacks.base import Attack
from attncem.judging.auditing.asked import Rows
from attncem.judging.auditing.judges import build_judge
from attncem.judging.case import Case


def with_twins(rows: Rows, case: Case) -> Rows:
    """The rows, each attack or floor that owns images followed by its twin; unchanged if the client sends everything.

    A twin is wanted if its row is.
    """
    if not case.learns_from_sent:
        return rows
    suite, every, wanted = rows.suite.suite, dict[str, Any](), list[str]()
    for name, options in suite.rows.items():
        judge = build_judge(options)
        names = [name, name + FROM_SENT] if isinstance(judge, Attack) and "images" in judge.needs else [name]
        every |= dict.fromkeys(names, options)
        wanted += names if name in rows.wanted else []
    return Rows(replace(rows.suite, suite=suite.model_copy(update={"rows": every})), wanted)


def owned_by(row: str) -> Literal["all", "sent"]:
    """The images from which a row of this name learns."""
    return "sent" if row.endswith(FROM_SENT) else "all"
