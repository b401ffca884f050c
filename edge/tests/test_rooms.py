"""The package stands alone: it imports the standard library, itself, and three libraries; files stay small."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import attncem_edge

FILES = sorted(Path(attncem_edge.__file__).parent.glob("*.py"))
LIBRARIES = {"numpy", "PIL", "onnxruntime", "attncem_edge"}


def imports(file: Path) -> set[str]:
    """The packages that a file imports anywhere."""
    nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in names}


def test_it_needs_three_libraries_and_nothing_of_attncem() -> None:
    needed = {name for file in FILES for name in imports(file)} - sys.stdlib_module_names
    assert needed <= LIBRARIES and {"numpy", "PIL"} <= needed


def test_every_module_says_what_it_is_and_stays_small() -> None:
    for file in FILES:
        text = file.read_text(encoding="utf-8")
        first = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
        assert len(first) > 5 and first.endswith((".", ":")) and len(text.splitlines()) <= 400, file
