"""docs/adding.md: a measure, executed step by step in a copy of the project."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pages import STEP, copy_project, follow, read_part, run_python, run_testers

PAGE = read_part("adding.md", "Adding a measure")
OLDER = "tests/test_results.py::test_a_result_is_what_its_command_writes"
TESTERS = ["tests/test_metrics.py", "tests/test_texts.py", "tests/test_languages.py", OLDER]
SHOW = """
import io, sys
from dataclasses import replace
from pathlib import Path
from rich.console import Console
from attncem.records.study.runs import load_run
from attncem.reporting import compare, print_summary, report
from attncem.reporting.campaign.page import write_campaign_report, write_tables
sys.path.insert(0, "tests")
from made_campaigns import ARMS, Made, make_campaign
from made_runs import NUMBERS, make_audit, make_run, rows, score

out = Path(sys.argv[1])
def audited(name):
    mse = NUMBERS[name][1]
    made = [replace(row, scores=row.scores | {"absolute": score(mse ** 0.5)}) for row in rows(mse)]
    return make_audit(name, made)
new = make_run(out, "gated", audits=[audited("gated")])
old = make_run(out, "none")
report([old, new], out / "report.html", csv=True)
console = Console(file=io.StringIO(), width=100)
print_summary(load_run(new).results, console)
(out / "terminal.txt").write_text(console.file.getvalue())
folder = make_campaign(out / "campaign", Made(ARMS, seeds=2, portraits=False)).path
write_campaign_report(folder, out / "campaign.html")
write_tables(folder, out / "tables")
compare([new, make_run(out, "kmeans", audits=[audited("kmeans")])], out=out / "compare.html")
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = copy_project(tmp_path_factory.mktemp("project"))
    for folder in ("results", "benchmarks"):
        (made / folder).symlink_to(Path(__file__).parent.parent / folder)
    follow(PAGE, made)
    return made


def test_every_block_of_the_page_is_a_step() -> None:
    assert len(STEP.findall(PAGE)) == PAGE.count("\n```\n") == 5


def test_the_measure_passes_the_testers_and_older_results_stay_valid(project: Path) -> None:
    chosen = "measure or metric or absolute or language or text or a_result_is"
    done = run_testers(project, *TESTERS, "-k", chosen, "-m", "not slow")
    assert done.returncode == 0, done.stdout
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None and int(passed[1]) > 40, done.stdout


def test_the_one_line_puts_it_on_every_page_and_into_every_file(project: Path, tmp_path: Path) -> None:
    (project / "show.py").write_text(SHOW, encoding="utf-8")
    done = run_python(project, "show.py", str(tmp_path))
    assert done.returncode == 0, done.stderr
    for name in ("report.html", "terminal.txt", "campaign.html", "compare.html", "tables/headline.tex"):
        assert "MAE" in (tmp_path / name).read_text(encoding="utf-8"), name
    assert "MAE" in (tmp_path / "tables/headline.md").read_text(encoding="utf-8")
    columns = (tmp_path / "report.csv").read_text(encoding="utf-8").splitlines()[0].split(",")
    measures = columns[: columns.index("leak_limit")]  # the numbers of the leak follow
    assert measures[-2:] == ["ssim_zero_pad", "absolute"], "the columns of version 0.2 keep their order"
    assert "absolute" in (tmp_path / "tables/headline.csv").read_text(encoding="utf-8").splitlines()[0].split(",")
