#!/usr/bin/env python3
"""Write the list of files of docs/architecture.md anew: each with the first line of its docstring.

    python scripts/write_file_map.py

A test compares the page with what this would write.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/architecture.md"
PLACE = re.compile(r"(?<=<!-- files -->\n).*?(?=\n<!-- end files -->)", re.DOTALL)
FOLDERS = {
    "src/attncem/config/packaged/runs/": "packaged configurations; the first line of each is its command",
    "src/attncem/config/packaged/suites/": "packaged audit suites",
    "src/attncem/config/packaged/campaigns/": "packaged campaigns",
    "scripts/evidence/": "the parts of docs/results.md, which `scripts/write_results.py` writes from results/ alone",
    "benchmarks/": "how fast it is: `python -m benchmarks` writes JSON and tables; one file a part",
    "tests/": "one file a source file; contracts/ runs every entry of every table",
}


def renewed(text: str) -> str:
    """The page with its list as the files say."""
    return PLACE.sub(lambda _: file_map(), text)


def file_map() -> str:
    """One line a file."""
    files = [ROOT / "dev.py", *sorted((ROOT / "src/attncem").rglob("*.py")), *sorted((ROOT / "scripts").glob("*.py"))]
    lines = {str(file.relative_to(ROOT)): _said(file) for file in files}
    return "\n".join(["```", *(f"{name:52} {said}" for name, said in {**lines, **FOLDERS}.items()), "```"])


def _said(file: Path) -> str:
    said = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return said.partition("\n")[0]


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"{PAGE} is up to date")
