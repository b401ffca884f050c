"""Runs the code cells of a notebook in order, in one process, and shows what each gives as a notebook would.

    python run_notebook.py NOTEBOOK

For where there is no Jupyter: a cell that fails ends it with the cell's name.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any


def run(cells: list[dict[str, Any]]) -> None:
    """Run them in one namespace."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in cells:
        if cell["cell_type"] == "code":
            _run_cell("".join(cell["source"]), cell["id"], names)


def _run_cell(source: str, name: str, names: dict[str, Any]) -> None:
    tree = ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    try:
        exec(compile(tree, name, "exec"), names)
        if isinstance(last, ast.Expr):
            _show(eval(compile(ast.Expression(last.value), name, "eval"), names))
    except BaseException as error:
        error.add_note(f"in the cell {name}")
        raise


def _show(value: Any) -> None:
    """Through the first of the ways by which a notebook would show it."""
    if value is None:
        return
    for way in ("_repr_svg_", "_repr_html_"):
        if hasattr(value, way):
            sys.stdout.write(f"{type(value).__name__} {way} {len(getattr(value, way)())}\n")
            return
    sys.stdout.write(f"{value!r}\n")


if __name__ == "__main__":
    run(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["cells"])
