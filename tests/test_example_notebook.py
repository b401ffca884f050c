"""The notebooks in examples/ are clean, and run from the first cell to the last."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parent.parent / "examples").glob("*.ipynb"))
RUNNER = Path(__file__).with_name("run_notebook.py")
JUPYTER = all(find_spec(name) for name in ("nbclient", "nbformat", "ipykernel"))


def code_cells(file: Path) -> list[dict[str, Any]]:
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.name)
def test_notebooks_hold_no_outputs_and_parse(file: Path) -> None:
    cells = code_cells(file)
    assert len(cells) >= 5
    for cell in cells:
        assert cell["outputs"] == [] and cell["execution_count"] is None and cell["metadata"] == {}
        ast.parse("".join(cell["source"]))
    names = [cell["id"] for cell in json.loads(file.read_text(encoding="utf-8"))["cells"]]
    assert len(set(names)) == len(names)


def executed(file: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """The notebook's cells in a fresh process; its files go into the folder."""
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONWARNINGS": "error::UserWarning"}
    command = [sys.executable, str(RUNNER), str(file)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("source", "ends"),
    [("x = 1\nx + 1", 0), ("1 / 0", 1), ("class A:\n    def _repr_html_(self):\n        raise ValueError\nA()", 1)],
)
def test_a_cell_that_fails_is_a_failure(tmp_path: Path, source: str, ends: int) -> None:
    cells = [{"cell_type": "markdown", "source": ["1 / 0"]}, {"cell_type": "code", "id": "third", "source": [source]}]
    (tmp_path / "some.ipynb").write_text(json.dumps({"cells": cells}))
    done = executed(tmp_path / "some.ipynb", tmp_path)
    assert done.returncode == ends
    assert ("in the cell third" in done.stderr) == bool(ends)


@pytest.mark.slow
@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.name)
def test_notebooks_run(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By Jupyter where it is installed, and else without."""
    if JUPYTER:
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        run_in_jupyter(file, tmp_path)
    else:
        done = executed(file, tmp_path)
        assert done.returncode == 0, done.stderr
        assert "Figure _repr_svg_" in done.stdout and "Explanation _repr_html_" in done.stdout
    assert list(tmp_path.glob("first-hour-*/report.html")) and list(tmp_path.glob("first-hour-*/trade-off.pdf"))


def run_in_jupyter(file: Path, folder: Path) -> None:
    import nbclient
    import nbformat

    notebook = nbformat.read(file, as_version=4)
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(folder)}}).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [output for cell in cells for output in cell.outputs if output.output_type in ("stream", "error")] == []
    shown = [output.data for cell in cells for output in cell.outputs]
    assert sum("image/svg+xml" in data for data in shown) == 2
    asked = sum(cell.source.count(f"attncem.{verb}(") for cell in cells for verb in ("train", "audit", "explain"))
    assert sum("<progress" in data.get("text/html", "") for data in shown) == asked, "one bar for each call"
