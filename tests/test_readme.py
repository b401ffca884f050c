import csv
import importlib.util
import re
from itertools import groupby
from pathlib import Path

import pytest

from attncem.campaigns.choosing import LEVELS, Candidate, choose, error_of
from attncem.campaigns.expansion import expand
from attncem.campaigns.results import read_results
from attncem.config.loading.load import load_config
from attncem.config.options.campaigns import load_campaign
from attncem.records.campaign_table import CellResult

ROOT = Path(__file__).parent.parent
READMES = ("README.md", "README.zh-CN.md")


def test_every_source_file_has_a_line() -> None:
    """The house plan's list of files is what their docstrings say."""
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    spec = importlib.util.spec_from_file_location("write_file_map", ROOT / "scripts/write_file_map.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.renewed(page) == page, "run scripts/write_file_map.py"
    listed = re.findall(r"^src/attncem/(\S+\.py) +\S", page, flags=re.MULTILINE)
    assert sorted(listed) == sorted(str(f.relative_to(ROOT / "src/attncem")) for f in (ROOT / "src").rglob("*.py"))


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
    for name, group in groupby(rows, lambda row: f"floor: {row['attack']}" if row["kind"] == "floor" else row["run"]):
        same = list(group)
        cells = next(line for line in text.splitlines() if line.startswith(f"| {name} |")).split(" | ")
        assert cells[3] == between([f"{float(row['mse']):.4f}" for row in same])
        assert cells[4] == between([f"{float(row['ssim']):.3f}" for row in same])
        assert ("(" in cells[2] or "（" in cells[2]) == any(row["reliable"] == "False" for row in same)


def between(values: list[str]) -> str:
    """One value, or from which to which: a guess by the predicted label is not as good for every model."""
    return values[0] if min(values) == max(values) else f"{min(values)}–{max(values)}"


def test_demo_uses_what_the_selection_chose() -> None:
    """The rule on the validation images' numbers: kmeans without a front end, attention with or without one."""
    table = read_results(ROOT / "results/demo_selection.json")
    runs = {planned.cell.arm: planned.config for planned in expand(load_campaign("demo-selection"))}
    found = {row.arm: _candidate(row) for row in table.cells}
    undefended = found["none-none-0-0.1"].accuracy
    kmeans = [found[arm] for arm in found if arm.startswith("none-kmeans-")]
    attention = [found[arm] for arm, config in runs.items() if config.surrogate.name in ("gated", "slot")]
    allowed = {"demo": LEVELS["strong"]}
    chosen, defended = (choose(some, undefended, allowed)["demo"].name for some in (kmeans, attention))
    assert load_config("demo-kmeans").config.training.penalty_weight == runs[chosen].training.penalty_weight
    assert load_config("demo").config == load_config(runs[defended], {"name": "demo-gated"}).config
    front_end = load_config("demo-front-end").config
    assert front_end.model.front_end == load_config("demo").config.model.front_end


def _candidate(row: CellResult) -> Candidate:
    (audit,) = row.audits
    assert audit.attacks is not None and audit.accuracy is not None
    scores = {name: values[0] for name, values in audit.attacks[str(audit.strongest)].items()}
    return Candidate(row.arm, audit.accuracy[0], error_of(scores))
