"""Run examples/first-hour.ipynb and store it with its outputs.

Temporary paths and everything that changes from run to run without need (times, progress, widget states) are left out.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent.parent / "examples" / "first-hour.ipynb"
SHOWN_FOLDER = "/tmp/first-hour"
"""Stands for the temporary folder in the outputs."""
LARGEST = 60_000
"""Most characters of one stored output; larger ones, such as all figures at once, keep their plain text alone."""


def sources_hash(cells: list[dict[str, Any]]) -> str:
    """SHA-256 of all code: outputs belong to the code that made them."""
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return hashlib.sha256("\0".join(sources).encode()).hexdigest()


def run(file: Path) -> dict[str, Any]:
    """The notebook with the outputs of a new kernel, as JSON."""
    import nbclient
    import nbformat

    formats: Any = nbformat  # it has no types
    notebook = formats.read(file, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        nbclient.NotebookClient(notebook, timeout=1800, resources={"metadata": {"path": folder}}).execute()
    data: dict[str, Any] = json.loads(formats.writes(notebook))
    return data


def tidy(notebook: dict[str, Any]) -> dict[str, Any]:
    """The same without temporary paths, progress bars and data of the kernel."""
    for cell in notebook["cells"]:
        cell["metadata"] = {}
        if cell["cell_type"] == "code":
            shown = [output for output in cell["outputs"] if "<progress" not in json.dumps(output)]
            cell["outputs"] = [_small(_without_folder(output)) for output in shown]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    made = {"sources_sha256": sources_hash(notebook["cells"])}
    notebook["metadata"] = {"attncem": made, "kernelspec": kernel, "language_info": {"name": "python"}}
    return notebook


def _without_folder(output: dict[str, Any]) -> dict[str, Any]:
    text = re.sub(r"/[^\s\"'<>\\]*/first-hour-\w+", SHOWN_FOLDER, json.dumps(output))
    cleaned: dict[str, Any] = json.loads(text)
    return cleaned


def _small(output: dict[str, Any]) -> dict[str, Any]:
    shown = {kind: text for kind, text in output.get("data", {}).items() if len(json.dumps(text)) <= LARGEST}
    return {**output, "data": shown} if "data" in output else output


def main() -> None:
    """Run, tidy and write the notebook."""
    made = tidy(run(FILE))
    FILE.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{FILE}: {FILE.stat().st_size // 1024} KiB", file=sys.stderr)


if __name__ == "__main__":
    main()
