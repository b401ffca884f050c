import csv
import json
import re
import runpy
from pathlib import Path

import pytest

from attncem.config.load import load_config

ROOT = Path(__file__).parent.parent
READMES = ("README.md", "README.zh-CN.md")


def source_files() -> list[str]:
    folder = ROOT / "src/attncem"
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.py"))
    return [name for name in files if "/" not in name or not name.endswith("__init__.py")]


@pytest.mark.parametrize("readme", READMES)
def test_every_source_file_has_a_line(readme: str) -> None:
    listed = re.findall(r"^  (\S+\.py) +\S", (ROOT / readme).read_text(), flags=re.MULTILINE)
    assert sorted(listed) == sorted(source_files())


def test_both_languages_have_the_same_sections_and_commands() -> None:
    texts = [(ROOT / readme).read_text() for readme in READMES]
    assert len({text.count("\n## ") for text in texts}) == 1
    commands = [re.findall(r"^(?:python3|attncem|pip) [^#\n]*", text, flags=re.MULTILINE) for text in texts]
    assert [c.strip() for c in commands[0]] == [c.strip() for c in commands[1]]
    tables = [re.findall(r"^\|.*\d.*\|$", text, flags=re.MULTILINE) for text in texts]
    assert len(tables[0]) == len(tables[1])


@pytest.mark.parametrize("readme", READMES)
def test_linked_files_exist(readme: str) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", (ROOT / readme).read_text())
    assert links
    for link in links:
        assert (ROOT / link).exists(), link


@pytest.mark.parametrize("readme", READMES)
def test_demo_table_is_that_of_the_result_file(readme: str) -> None:
    text = (ROOT / readme).read_text()
    with (ROOT / "results/demo.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) >= 6
    for row in rows:
        name = f"floor: {row['run']}" if row["kind"] == "floor" else row["run"]
        cells = next(line for line in text.splitlines() if line.startswith(f"| {name} |")).split(" | ")
        assert cells[3] == f"{float(row['mse']):.4f}"
        assert cells[4] == f"{float(row['ssim']):.3f}"


def test_demo_uses_what_the_selection_chose() -> None:
    chosen = json.loads((ROOT / "results/demo_selection.json").read_text())["chosen"]
    assert load_config("demo-kmeans").config.training.penalty_weight == chosen["kmeans"]["weight"]
    setting = tuple(chosen["attention"][key] for key in ("front_end", "surrogate", "weight", "noise_std"))
    overrides = runpy.run_path(str(ROOT / "scripts/choose_demo.py"))["overrides"](setting)
    assert load_config("demo").config == load_config("demo-none", [*overrides, "name=demo-gated"]).config
    front_end = load_config("demo-front-end").config
    assert front_end.model.front_end == load_config("demo").config.model.front_end
