import ast
import re
from pathlib import Path
from statistics import fmean

import pytest

from attncem.campaigns.choosing import LEVELS, Candidate, choose, error_of
from attncem.campaigns.expansion import expand
from attncem.campaigns.results import read_results
from attncem.config.loading.load import load_config
from attncem.config.options.campaigns import load_campaign
from attncem.records.campaign_table import CellResult
from attncem.records.leaks import LIMIT

ROOT = Path(__file__).parent.parent
READMES = ("README.md", "README.zh-CN.md")


FOLDERS = ("src", "scripts", "benchmarks")
MOST_WORDS = 700
ROWS = 6
HEADLINE = re.compile(r"<!-- results: headline -->\n(.*?)\n<!-- end -->", re.DOTALL)


def test_every_module_says_what_it_is_in_its_first_line() -> None:
    """The tree has no other map: the first line of a docstring is one sentence on one line."""
    for file in (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
        assert docstring and len(docstring.splitlines()[0].strip()) > 5, file
        assert docstring.splitlines()[0].rstrip().endswith((".", ":")), file


def test_paths_in_the_house_plan_exist() -> None:
    plan = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    paths = re.findall(r"`((?:\w+/)+[\w-]+\.(?:py|md|yaml)|(?:\w+/)+)`", plan)
    assert len(paths) > 30
    for path in (path for path in paths if "NAME" not in path and "/built/" not in path):  # npm makes built/
        assert any((ROOT / place / path).exists() for place in ("", "src/attncem")), path


def heading_anchors(page: Path) -> set[str]:
    """The link targets of a page's headings, as GitHub builds them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.stem)
def test_links_of_a_page_lead_to_files_and_headings(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for file, anchor in re.findall(r"\]\((?!http)([^)#\s]*)#?([^)\s]*)\)", text):
        target = page.parent / file if file else page
        assert target.exists(), file
        assert not anchor or anchor in heading_anchors(target), f"{file}#{anchor}"


@pytest.mark.parametrize("readme", READMES)
def test_a_readme_is_short(readme: str) -> None:
    text = (ROOT / readme).read_text(encoding="utf-8")
    assert len(text.split()) <= MOST_WORDS
    headline = HEADLINE.search(text)
    assert headline is not None
    rows = re.findall(r"^\|.*\d.*\|$", headline[1], flags=re.MULTILINE)
    assert 1 <= len(rows) <= ROWS


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


def test_the_demos_lean_model_is_the_one_that_won_on_validation() -> None:
    """Of all candidates it alone is at least as accurate as gated attention, no better rebuilt, and leaks less."""
    table = read_results(ROOT / "results/demo_lean_selection.json")
    rows: dict[str, list[list[float]]] = {}
    for row in table.cells:
        rows.setdefault(row.arm, []).append(_numbers(row))
    assert len(rows) == 5 and all(len(of_seeds) == 3 for of_seeds in rows.values())
    means = {arm: [fmean(values) for values in zip(*of_seeds, strict=True)] for arm, of_seeds in rows.items()}
    gated = means.pop("demo-gated")
    (winner,) = (arm for arm, it in means.items() if all(a >= b for a, b in zip(it, gated, strict=True)))
    configs = {planned.cell.arm: planned.config for planned in expand(load_campaign("demo-lean-selection"))}
    assert load_config("demo-lean").config == load_config(configs[winner], {"name": "demo-lean", "seed": 0}).config


def _numbers(row: CellResult) -> list[float]:
    """What is compared, more is better: accuracy, the strongest attack's errors, the leak's limit below zero."""
    attacked, bounded = row.audits
    scores = [attacked.score(name) for name in ("accuracy", "mse", "structure")]
    limit = bounded.leak(LIMIT)
    assert limit is not None
    return [*(score.mean for score in scores if score is not None), -limit.mean]


def _candidate(row: CellResult) -> Candidate:
    (audit,) = row.audits
    assert audit.attacks is not None and audit.accuracy is not None
    scores = {name: values[0] for name, values in audit.attacks[str(audit.strongest)].items()}
    return Candidate(row.arm, audit.accuracy[0], error_of(scores))
