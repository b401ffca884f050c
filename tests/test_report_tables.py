"""The report's tables: what is left of an attack's row where it is folded, and classes below the name of each model."""

from __future__ import annotations

import re
from pathlib import Path

from attncem.base.texts import speaking
from attncem.records.study.runs import load_runs
from attncem.reporting import report
from attncem.reporting.runs.methods import methods
from attncem.reporting.runs.report_tables import attacks_table, classes_tables
from attncem.reporting.table_formats import Table, as_csv, as_latex, as_markdown
from made_runs import NOW, failed, make_audit, make_run, row, rows


def made_classes(folder: Path) -> Table:
    (table,) = classes_tables(methods(load_runs([make_run(folder), make_run(folder, "kmeans")])))
    return table


def test_a_row_is_left_in_a_few_words(tmp_path: Path) -> None:
    others = [
        row("leakage", 0.01, kind="certificate", scores={}),
        failed("decoder large"),
        failed("generative", "not_applicable", "no images"),
    ]
    runs = load_runs([make_run(tmp_path, audits=[make_audit("none", [*rows(0.02), *others])])])
    entries = [entry for method in methods(runs) for entry in method.entries]
    table = attacks_table(entries, worth=False)
    lines = {line[0]: list(line[1:]) for line in table.lines}
    assert lines["ridge"] == ["MSE 0.0300", "SSIM 0.600"]
    assert (lines["leakage"], lines["decoder large"]) == (["certificate"], ["failed"])
    assert [line[0] for line in table.lines] == [items[1].shown for items in table.rows], "in the order of the rows"
    with speaking("zh"):
        assert ["generative", "不适用"] in attacks_table(entries, worth=False).lines


def test_the_strongest_attack_of_each_run_is_open(tmp_path: Path) -> None:
    page = report([make_run(tmp_path), make_run(tmp_path, "kmeans")], tmp_path / "page.html", now=NOW).read_text()
    attacks = page[page.index('id="table-attacks"') :].partition("</table>")[0]
    opened = re.findall(r'<details class="line" open><summary><span>(.*?)</span>', attacks)
    assert opened == ["decoder small"] * 2 and attacks.count('<details class="line"') == 2 * 6
    assert page.count('<details class="line"') == 2 * 6, "no other table is folded"


def test_classes_stand_below_the_name_of_each_model(tmp_path: Path) -> None:
    report([make_run(tmp_path), make_run(tmp_path, "kmeans")], tmp_path / "page.html", now=NOW)
    page = (tmp_path / "page.html").read_text()
    head = page[page.index('id="table-classes-0"') :].partition("</thead>")[0]
    above, below = head.partition("</tr>")[::2]
    assert re.findall(r'<th scope="colgroup" colspan="2" data-group>.*?</span>(.*?)</th>', above) == ["none", "kmeans"]
    assert re.findall(r'<th scope="col" rowspan="2".*?>(.*?)</th>', above) == ["Class"]
    assert re.findall(r"<th .*?>(.*?)</th>", below) == ["accuracy, %", "MSE"] * 2
    assert [int(place) for place in re.findall(r'data-column="(\d+)"', head)] == [0, 1, 2, 3, 4], "sorted by these"
    headline = page[page.index('id="table-headline"') :].partition("</thead>")[0]
    assert headline.count("<tr>") == 1 and "rowspan" not in headline, "one row where nothing is shared"


def test_files_name_the_model_of_every_column(tmp_path: Path) -> None:
    table = made_classes(tmp_path)
    first = as_csv(table).splitlines()[0]
    assert first == "class,none accuracy,none mse,kmeans accuracy,kmeans mse"
    assert as_markdown(table).startswith(
        "| Class | none: accuracy, % | none: MSE | kmeans: accuracy, % | kmeans: MSE |"
    )
    assert "none: accuracy, \\% & none: MSE & kmeans" in as_latex(table)
