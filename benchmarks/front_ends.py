"""A whole training step with each front end, over the same step without one."""

from __future__ import annotations

from attncem.models.front_ends import FRONT_ENDS
from benchmarks.common import Case, Row, Setting, Table
from benchmarks.epochs import measure_step


def front_ends(setting: Setting) -> list[Table]:
    """Captured steps without surrogate; `none` comes first and again at the end."""
    case = Case() if setting.on_gpu else setting.plain
    rows = [_row(setting, case, name) for name in setting.in_time([*FRONT_ENDS, "none"])]
    first = rows[0]["step_ms"] if rows else 1.0
    return [
        Table(
            "Step with a front end",
            [{**row, "over_none": row["step_ms"] / first} for row in rows],
            f"Batch {case.batch_size}, no surrogate; the last row is the first again.",
        )
    ]


def _row(setting: Setting, case: Case, name: str) -> Row:
    return {"front_end": name, **measure_step(setting, case, {"model.front_end.name": name})}
