"""Results in a notebook: a line instead of a wall, a table, and a frame where pandas is installed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import attncem
from attncem.progress import silent
from attncem.results.audit import AuditResult
from attncem.types import RunError


@pytest.fixture(scope="module")
def result(small_run: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> AuditResult:
    rows = ["grey", "mean image", "ridge"]
    out = tmp_path_factory.mktemp("audits")
    return attncem.audit(small_run(), "quick", only=rows, out=out, device="cpu", progress=silent)


def test_a_result_is_a_line(result: AuditResult) -> None:
    shown = repr(result)
    assert len(shown) < 300 and "\n" not in shown
    assert result.subject.run in shown and "ridge mse 0." in shown and "accuracy 0." in shown
    assert len(repr(result.rows[0])) < 800 and "name='grey'" in repr(result.rows[0])
    assert len(repr(result.plan)) < 1500
    assert "strongest" not in repr(replace(result, strongest=""))


def test_a_result_is_a_table_in_which_nothing_is_markup(result: AuditResult) -> None:
    page = result._repr_html_()
    assert page.count("<tr>") == 1 + len(result.rows)
    assert "<td>mean image</td>" in page
    row = replace(result.rows[0], name="<script>alert(1)</script>")
    assert "<script>" not in replace(result, rows=[row, *result.rows[1:]])._repr_html_()


def test_a_frame_has_every_measure_with_its_ends(result: AuditResult) -> None:
    frame = result.to_frame()
    assert list(frame["row"]) == [row.name for row in result.rows]
    for name, score in result.rows[2].scores.items():
        assert frame[name][2] == score.mean
        assert (frame[f"{name}_low"][2], frame[f"{name}_high"][2]) == (score.low, score.high)
    assert list(frame["strongest"]) == [row.name == result.strongest for row in result.rows]


def test_without_pandas_it_is_said(result: AuditResult, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(RunError, match="pip install pandas"):
        result.to_frame()


def test_a_run_knows_its_audits(tmp_path: Path, tiny: dict[str, object]) -> None:
    run = attncem.train(
        "demo-none", {**tiny, "training.epochs": 1, "device": "cpu"}, out=tmp_path / "run", progress=silent
    )
    assert run.audits() == []
    made = attncem.audit(run, "quick", only=["grey"], progress=silent)
    assert [audit.plan.id for audit in run.audits()] == [made.plan.id]


def test_other_results_are_lines_too(small_run: Callable[..., Path]) -> None:
    shown = repr(attncem.predict(small_run(), ["test:0"]))
    assert len(shown) < 500 and shown.startswith("PredictionResult(run=")
