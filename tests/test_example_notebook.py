"""The notebooks in examples/ are clean, and run from the first cell to the last."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from scripts.run_notebook_example import sources_hash, tidy

NOTEBOOKS = sorted((Path(__file__).parent.parent / "examples").glob("*.ipynb"))
RUNNER = Path(__file__).with_name("run_notebook.py")
JUPYTER = all(find_spec(name) for name in ("nbclient", "nbformat", "ipykernel"))


def code_cells(file: Path) -> list[dict[str, Any]]:
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.name)
def test_notebooks_are_stored_with_the_outputs_of_their_code(file: Path) -> None:
    """A reader on a web page sees tables and pictures; scripts/run_notebook_example.py stores them again."""
    notebook, cells = json.loads(file.read_text(encoding="utf-8")), code_cells(file)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1)) and len(cells) >= 5
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} == {"execute_result"}, "no errors and no progress"
    assert [len(cell["outputs"]) for cell in cells] == [1] * len(cells), "every cell shows something"
    kinds = {kind for output in outputs for kind in output["data"]}
    assert kinds == {"text/plain", "text/html", "image/svg+xml"}
    assert notebook["metadata"]["attncem"]["sources_sha256"] == sources_hash(notebook["cells"]), (
        "the code changed: run scripts/run_notebook_example.py"
    )
    for cell in cells:
        ast.parse("".join(cell["source"]))
    names = [cell["id"] for cell in notebook["cells"]]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.name)
def test_stored_outputs_are_small_and_name_nobodys_folder(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert len(text) < 200_000
    folders = re.findall(r"/(?:home|root|work|Users|tmp)/[\w.-]+", text)
    assert set(folders) == {"/tmp/first-hour"}


def test_what_changes_from_run_to_run_is_not_stored() -> None:
    shown = {"output_type": "execute_result", "data": {"text/plain": ["Path('/scratch/a/first-hour-x_1/report.html')"]}}
    bar = {"output_type": "display_data", "data": {"text/html": "<progress value=1>"}}
    large = {"output_type": "execute_result", "data": {"text/html": "x" * 70_000, "text/plain": "Figures"}}
    cell = {"cell_type": "code", "source": "1", "metadata": {"execution": 1}, "outputs": [bar, shown, large]}
    made = tidy({"cells": [cell], "metadata": {"widgets": {}}})
    (tidied,) = made["cells"]
    assert [output["data"] for output in tidied["outputs"]] == [
        {"text/plain": ["Path('/tmp/first-hour/report.html')"]},
        {"text/plain": "Figures"},
    ]
    assert tidied["metadata"] == {} and set(made["metadata"]) == {"attncem", "kernelspec", "language_info"}


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


def words_shown(notebook: dict[str, Any]) -> list[list[str]]:
    """The words of every stored text, without numbers and hashes: another machine rounds otherwise."""
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", ())]
    texts = ["".join(output["data"]["text/plain"]) for output in outputs]
    return [[word for word in text.split() if not re.search(r"\d", word)] for text in texts]


def run_in_jupyter(file: Path, folder: Path) -> None:
    import nbclient
    import nbformat

    notebook = nbformat.read(file, as_version=4)
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(folder)}}).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [output for cell in cells for output in cell.outputs if output.output_type in ("stream", "error")] == []
    shown = [output.data for cell in cells for output in cell.outputs]
    assert sum("image/svg+xml" in data for data in shown) == 2
    assert words_shown(tidy(json.loads(nbformat.writes(notebook)))) == words_shown(
        json.loads(file.read_text(encoding="utf-8"))
    ), "the package shows something else now: run scripts/run_notebook_example.py"
    asked = sum(cell.source.count(f"attncem.{verb}(") for cell in cells for verb in ("train", "audit", "explain"))
    assert sum("<progress" in data.get("text/html", "") for data in shown) == asked, "one bar for each call"
