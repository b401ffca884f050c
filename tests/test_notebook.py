"""Results in a notebook: a line instead of a wall, a table, a frame where pandas is installed, figures, one bar."""

from __future__ import annotations

import io
import re
import shutil
import sys
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

import attncem
from attncem.base import progress as attncem_progress
from attncem.base.progress import forget, show_progress, silent, tell
from attncem.base.types import RunError
from attncem.records.audit import AuditResult
from attncem.reporting import draw
from attncem.reporting.campaign.page import campaign_figures
from attncem.reporting.campaign.plots import PAPER
from attncem.reporting.notebook import Figures
from made_campaigns import ARMS, Made, make_campaign


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


# figures


@pytest.fixture(scope="module")
def audited(small_run: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("figures") / "run"
    shutil.copytree(small_run(), run)
    rows = {"decoder small.epochs": 1, "decoder small.max_epochs": 2, "decoder small.least_steps": 1}
    attncem.audit(run, "quick", rows, device="cpu", progress=silent)
    return run


@pytest.fixture(scope="module")
def figures(audited: Path) -> Figures:
    return draw(audited)


def test_figures_have_names_and_show_themselves(figures: Figures) -> None:
    assert {"trade-off", "accuracy", "rob_loss", "effective_samples", "attack-decoder-small", "pictures"} <= set(
        figures
    )
    assert repr(figures).startswith("Figures(trade-off, trade-off-narrow, accuracy, ")
    assert len(repr(figures["accuracy"])) < 100
    assert figures._repr_html_().count("<img ") == len(figures)
    for figure in figures.values():
        tree = ElementTree.fromstring(figure._repr_svg_())
        assert tree.tag == "{http://www.w3.org/2000/svg}svg"
    with pytest.raises(KeyError, match="no figure tradeoff; there are trade-off, "):
        figures["tradeoff"]


def test_figures_are_in_the_colours_of_paper(figures: Figures) -> None:
    """Nothing is left of the colours that the report's page replaces, and nothing asks for a page's style."""
    for figure in figures.values():
        assert not re.search(r"#(010203|040506|070809|a0b0c\d)|var\(--", figure.svg), figure.name
    assert PAPER.of(0) in figures["accuracy"].svg and PAPER.ink in figures["accuracy"].svg


def test_figures_are_saved_as_their_ending_says(figures: Figures, tmp_path: Path) -> None:
    starts = {"svg": b"<?xml", "pdf": b"%PDF", "png": b"\x89PNG"}
    for ending, start in starts.items():
        for _ in range(2):  # an older figure is replaced
            assert figures["trade-off"].save(tmp_path / f"x.{ending}").read_bytes().startswith(start)
    saved = figures.save(tmp_path / "all", "svg")
    assert [file.name for file in saved] == [f"{name}.svg" for name in figures]
    with pytest.raises(RunError, match=r"x\.jpg: a figure is saved as \.svg, \.pdf or \.png"):
        figures["trade-off"].save(tmp_path / "x.jpg")
    (tmp_path / "mine.svg").write_text("<svg/>")
    with pytest.raises(RunError, match="was not written by attncem"):
        figures["trade-off"].save(tmp_path / "mine.svg")
    assert (tmp_path / "mine.svg").read_text() == "<svg/>"
    with pytest.raises(RunError, match=r"mine\.svg/x\.svg cannot be read: Not a directory"):
        figures["trade-off"].save(tmp_path / "mine.svg" / "x.svg")


def test_several_runs_are_told_apart(audited: Path, small_run: Callable[..., Path]) -> None:
    figures = draw([audited, small_run("demo-none")])
    assert "demo-none" in figures["accuracy"].svg and "demo-gated" in figures["accuracy"].svg
    assert PAPER.of(1) in figures["accuracy"].svg


def test_a_campaign_is_drawn_alone(audited: Path, tmp_path: Path) -> None:
    folder = make_campaign(tmp_path / "campaign", Made(dict(list(ARMS.items())[:2]), seeds=1)).path
    figures = draw(folder)
    assert {"trade-off-mse", "training-cost"} <= set(figures)
    assert list(figures) == [plot.name for plot in campaign_figures(folder)]
    with pytest.raises(RunError, match="is a campaign: draw it alone"):
        draw([folder, audited])


def test_an_explanation_is_a_row_of_pictures(audited: Path) -> None:
    found = attncem.explain(audited, "test:3", progress=silent)
    page = found._repr_html_()
    assert len(repr(found)) < 700 and page.count("<img ") == 2 + len(found.recoveries), "the front end's too"
    assert f"ridge, MSE {next(row.mse for row in found.recoveries if row.name == 'ridge'):.4f}" in page


# one bar


class Notebook:
    """In the place of IPython's display: what is shown where, in the end and how often."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shown: list[str] = []
        self.times = 0
        self.now = 0.0
        module = types.ModuleType("IPython.display")
        module.display = self.display  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "IPython.display", module)
        monkeypatch.setattr(attncem_progress.time, "monotonic", lambda: self.now)

    def display(self, what: Any, *, display_id: bool) -> Any:
        assert display_id
        self.shown.append("")
        return self.handle(len(self.shown) - 1, what)

    def handle(self, place: int, what: Any) -> Any:
        def update(other: Any) -> None:
            self.shown[place] = other._repr_html_()
            self.times += 1

        update(what)
        return types.SimpleNamespace(update=update)


def test_a_notebook_has_one_bar_for_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = Notebook(monkeypatch)
    values = []
    with show_progress(Console(file=io.StringIO(), force_jupyter=True)) as report:
        tell(report, "a caution with <b> & \x1b[2J")
        report("audit demo", 0, 4, {})
        for row in range(4):
            for done in range(0, 101, 10):
                notebook.now += 0.1
                report(f"audit demo: row {row}", done, 100, {"mse": 0.5})
                values += [float(value) for value in re.findall(r'value="([\d.]+)"', notebook.shown[0])]
            report("audit demo", row + 1, 4, {})
    assert len(notebook.shown) == 1, "one place"
    assert values == sorted(values) and values[-1] > 0.98, "it never goes back"
    assert notebook.times < 35, "and is not drawn at every step"
    page = notebook.shown[0]
    assert 'value="1.0000"' in page and "audit demo: 4 of 4" in page
    assert "a caution with &lt;b&gt; &amp; \\x1b[2J" in page


def test_a_stage_without_a_whole_and_one_that_was_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = Notebook(monkeypatch)
    with show_progress(Console(file=io.StringIO(), force_jupyter=True)) as report:
        report("train cell", 5, 10, {"ce": 0.25})
        assert 'value="0.5000"' in notebook.shown[0] and "train cell: 5 of 10  ce 0.25" in notebook.shown[0]
        forget(report, "cell")
        notebook.now += 1
        report("train cell", 1, 10, {})
    assert 'value="0.1000"' in notebook.shown[0]


def test_where_nothing_is_told_nothing_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = Notebook(monkeypatch)
    with show_progress(Console(file=io.StringIO(), force_jupyter=True)):
        pass
    assert notebook.shown == []
