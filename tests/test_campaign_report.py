"""The campaign's report: what it says, what it says of what is missing, its tables and figures, what it costs."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from attncem.base.types import RunError
from attncem.cli.main import main
from attncem.records.campaign_folder import CampaignFolder
from attncem.records.files import read_json
from attncem.records.study import AuditKind
from attncem.records.study.campaign import labels
from attncem.records.study.equal import is_better
from attncem.reporting.campaign import plots as campaign_plots
from attncem.reporting.campaign import tables as campaign_tables
from attncem.reporting.campaign.data import Wall, WallRow, walls
from attncem.reporting.campaign.load import MEASURES, CampaignView, Judged, load_campaign
from attncem.reporting.campaign.page import (
    all_tables,
    verdict,
    write_campaign_report,
    write_figures,
    write_tables,
)
from attncem.reporting.figures import HEALTH, Drawing
from attncem.reporting.table_formats import Column, Item, Table, as_csv, as_latex, as_markdown
from made_campaigns import ARMS, ATTACKS, CLASSES, Made, make_campaign
from made_runs import reseal, rewrite
from test_reporting import Page

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
GRID = {"training.penalty_weight": [1.0, 4.0]}
KIND = "quick · train · test"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three arms, two of them at two points, four seeds each."""
    return make_campaign(tmp_path_factory.mktemp("made") / "campaign", Made(ARMS, seeds=4, grid=GRID)).path


@pytest.fixture(scope="module")
def view(finished: Path) -> CampaignView:
    return load_campaign(finished)


@pytest.fixture(scope="module")
def study(view: CampaignView) -> Judged:
    return view.study


@pytest.fixture(scope="module")
def kind(study: Judged) -> AuditKind:
    """The one kind of audit that it has."""
    (only,) = study.kinds
    assert str(only) == KIND
    return only


@pytest.fixture(scope="module")
def html(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("page") / "report.html"
    return write_campaign_report(finished, out, now=NOW).read_text(encoding="utf-8")


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """One that may be changed."""
    return Path(shutil.copytree(finished, tmp_path / "copy"))


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without figures, which take most of the time."""
    monkeypatch.setattr(campaign_plots, "inline", lambda plot: Drawing(plot.title, "<svg></svg>"))


def words_of(html: str) -> str:
    return " ".join(" ".join(Page(html).text).split())


def page_of(folder: Path, tmp_path: Path) -> str:
    return write_campaign_report(folder, tmp_path / "page.html", now=NOW).read_text(encoding="utf-8")


def data_of(html: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="page-data">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def read_csv(words: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(words)))


# the page


def test_it_is_one_whole_page_that_asks_for_nothing(html: str) -> None:
    page = Page(html)
    assert page.open == [] and page.unlabelled_images == 0
    assert all(address.startswith(("#", "data:image/png;base64,")) for address in page.addresses)
    assert len(page.ids) == len(set(page.ids))
    assert "default-src 'none'" in html


def test_the_first_screen_says_what_it_is_and_how_far(html: str) -> None:
    words = words_of(html)
    assert "made-up Which defence keeps pictures private at the same accuracy?" in words
    assert "All 20 cells are done." in words
    assert words.index("All 20 cells") < words.index("Arms side by side") < words.index("Cells")


def test_the_same_folder_gives_the_same_bytes(finished: Path, html: str, tmp_path: Path) -> None:
    assert page_of(finished, tmp_path) == html


def test_it_needs_no_torch_and_no_score_files(finished: Path, tmp_path: Path) -> None:
    assert not list(finished.rglob("*.npz"))
    code = (
        "import sys; from attncem.reporting.campaign.page import write_campaign_report;"
        f"write_campaign_report({str(finished)!r}, {str(tmp_path / 'r.html')!r}); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_every_section_is_linked_and_there(html: str) -> None:
    page = Page(html)
    links = {address[1:] for address in page.addresses if address.startswith("#") and not address.startswith("#cell-")}
    assert {"headline", "plot", "wall", "cells", "attacks", "tests", "costs", "sensitivity", "explain"} <= links
    assert links <= set(page.ids)


def test_names_and_meanings_are_harmless(tmp_path: Path, light: None) -> None:
    evil = "<script>alert(1)</script><img src=x onerror=alert(2)> {{ 7*7 }} </script>"
    folder = make_campaign(tmp_path / "c", Made({"none": ARMS["none"]}, seeds=1, meaning=evil)).path
    (cell,) = CampaignFolder.open(folder).plan.cells
    # A name with such letters is refused where it is asked for; a file may be anything.
    plan = read_json(folder / "campaign.json")
    plan["cells"][0]["arm"] = plan["name"] = evil
    (folder / "campaign.json").write_text(json.dumps(plan))
    audit = next((folder / "runs" / cell.id / "audits").iterdir())
    for file in audit.glob("*.json"):
        file.write_text(
            file.read_text().replace('"decoder small"', json.dumps(evil)).replace('"T-shirt"', json.dumps(evil))
        )
    reseal(audit)
    html = page_of(folder, tmp_path)
    assert "<script>alert" not in html and "<img src=x" not in html
    assert html.count("<script") == 2 and html.count("</script>") == 2
    assert "{{ 7*7 }}" in html
    page = Page(html)
    assert page.open == [] and not any("onerror" in address for address in page.addresses)


def test_another_file_is_not_replaced(finished: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.html"
    mine.write_text("my own page")
    with pytest.raises(RunError, match="was not written by attncem"):
        write_campaign_report(finished, mine)
    assert mine.read_text() == "my own page"


def test_a_folder_that_is_no_campaign_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not a campaign's folder"):
        write_campaign_report(tmp_path, tmp_path / "r.html")


def test_an_unknown_reference_is_named(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="has no arm nobody; it has none, kmeans, gated"):
        write_campaign_report(finished, tmp_path / "r.html", reference="nobody")


# numbers


def test_means_are_those_of_the_seeds(study: Judged, kind: AuditKind) -> None:
    rows = {row["arm"]: row for row in read_csv(as_csv(campaign_tables.headline(study, kind)))}
    assert list(rows) == [arm.label for arm in study.arms]
    own = next(arm for arm in study.arms if arm.label == "kmeans (penalty_weight=4)")
    for measure in ("accuracy", "mse", "structure", "ssim"):
        values = [
            audit.known_accuracy.mean if measure == "accuracy" else audit.strongest_attack.scores[measure].mean
            for entry in own.cells
            for audit in entry.audits.values()
        ]
        found = rows[own.label]
        assert float(found[measure]) == pytest.approx(sum(values) / 4)
        assert float(found[f"{measure}_sd"]) == pytest.approx(stats.tstd(values))
        low, high = stats.t.interval(0.95, 3, sum(values) / 4, stats.sem(values))
        assert (float(found[f"{measure}_low"]), float(found[f"{measure}_high"])) == pytest.approx((low, high))
        assert found["seeds"] == "4"


def test_labels_tell_points_apart() -> None:
    widths = [{"model.width": 4, "surrogate.width": value} for value in (1, 2)]
    assert labels("a", widths) == ["a (width=1)", "a (width=2)"]
    both = [{"model.width": value, "surrogate.width": 3 - value} for value in (1, 2)]
    assert labels("a", both)[1] == "a (model.width=2, surrogate.width=1)"
    assert labels("a", [{"x": 1}, {"x": 1.0}]) == ["a (x=1)", "a (x=1.0)"]
    assert labels("a", [{}]) == ["a"]


def test_the_command_writes_page_tables_and_figures(finished: Path, tmp_path: Path, capsys: Any, light: None) -> None:
    page, tables = tmp_path / "r.html", tmp_path / "tables"
    words = ["campaign", "report", str(finished), "--out", str(page), "--tables", str(tables), "--reference"]
    assert main([*words, "gated"]) == 0
    assert page.is_file() and (tables / "headline.tex").is_file()
    assert "24 files in" in capsys.readouterr().out.replace("\n", " ")
    assert main([*words, "nobody"]) != 0
    assert "has no arm nobody" in " ".join(capsys.readouterr().err.split())


def test_arms_are_tested_at_the_same_point(study: Judged, kind: AuditKind) -> None:
    found = study.against("kmeans", kind, MEASURES)
    assert found["gated (penalty_weight=4)", "mse"].b == "kmeans (penalty_weight=4)"
    assert found["gated (penalty_weight=1)", "mse"].b == "kmeans (penalty_weight=1)"
    assert found["none", "mse"].b == "kmeans (penalty_weight=1)", "it has no such key: the first point"
    assert not any(label.startswith("kmeans") for label, _ in found)
    item = found["gated (penalty_weight=4)", "mse"]
    assert item.p == pytest.approx(2 / 70) and item.adjusted_p is not None and item.adjusted_p >= item.p
    assert is_better(item) is True and is_better(found["gated (penalty_weight=4)", "accuracy"]) is False
    assert is_better(found["gated (penalty_weight=4)", "ssim"]) is True, "less similar is more private"
    assert study.counterpart(study.arms[0], "nobody") is None


def test_few_seeds_cannot_tell(tmp_path: Path, light: None) -> None:
    folder = make_campaign(tmp_path / "c", Made(ARMS, seeds=3)).path
    html = page_of(folder, tmp_path)
    words = words_of(html)
    assert "too few seeds to tell" in words and "higher, p" not in words
    assert "Of 8 tests against none, 0 show a difference" in words
    assert "8 of them have too few seeds" in words
    assert "kmeans against none. Privacy: not enough to tell (MSE 0.0" in words
    rows = read_csv(data_of(html)["tables"]["tests"]["csv"])
    assert {row["verdict"] for row in rows} == {"too_few_seeds"} and {row["adjusted_p"] for row in rows} == {""}


def test_of_one_seed_the_images_are_told_and_nothing_is_sure(tmp_path: Path) -> None:
    study = load_campaign(make_campaign(tmp_path / "c", Made(ARMS, seeds=1)).path).study
    (kind,) = study.kinds
    first = campaign_tables.headline(study, kind).rows[0]
    assert "±" not in first[2].shown and first[2].small.startswith("[")
    assert {point.standing for point in study.front("mse", kind).values()} == {"possibly"}
    assert any("Possibly on the Pareto front" in sentence for sentence in verdict(study, kind, "none"))


def test_the_front_is_where_none_is_better(study: Judged, kind: AuditKind) -> None:
    for measure in ("mse", "ssim"):
        assert study.front(measure, kind)["none"].standing == "surely", "the most accurate"


def test_an_arm_that_has_lost_its_use_is_praised_for_nothing(
    copy: Path, tmp_path: Path, kind: AuditKind, light: None
) -> None:
    for run in (copy / "runs").glob("gated_penalty_weight-4.0-*"):
        for file in run.glob("audits/*/audit.json"):
            accuracy = json.loads(file.read_text())["accuracy"]
            rewrite(file, {"accuracy": accuracy | {"mean": 0.11, "low": 0.09, "high": 0.13}})
    html = page_of(copy, tmp_path)
    lines = verdict(load_campaign(copy).study, kind, "none")
    assert "gated (penalty_weight=4). What a useless model hides is not privacy." in lines[-2]
    assert not any("gated (penalty_weight=4)" in line for line in lines if "front" in line or "Possibly" in line)
    start = html.index("gated (penalty_weight=4)</a> <small>utility lost</small>")
    row = html[start : html.index("</tr>", start)]
    assert row.count('class="mark yes"') == 0 and 'class="mark no"' in row, (
        "its accuracy is lower, and nothing is better"
    )
    points = {data_of(html)["groups"][point["group"]]["label"]: point["lost"] for point in data_of(html)["points"][0]}
    assert [label for label, is_lost in points.items() if is_lost] == ["gated (penalty_weight=4)"]


def test_arms_on_other_images_are_no_comparison(copy: Path, tmp_path: Path, light: None) -> None:
    assert "cautions-title" not in page_of(copy, tmp_path)
    for file in copy.glob("runs/none-s0/audits/*/audit.json"):
        file.write_text(file.read_text().replace("d" * 64, "e" * 64))
        reseal(file.parent)
    words = words_of(page_of(copy, tmp_path))
    assert "the rows differ in their" in words


def test_a_key_is_judged_by_points_that_are_whole(copy: Path, kind: AuditKind) -> None:
    before = load_campaign(copy).study.effects("training.penalty_weight", "gated", "mse", kind)
    assert [effect.value for effect in before] == [1.0, 4.0]
    assert [effect.summary.count for effect in before] == [4, 4]
    shutil.rmtree(copy / "runs" / "gated_penalty_weight-4.0-s2" / "audits")
    after = load_campaign(copy).study.effects("training.penalty_weight", "gated", "mse", kind)
    assert [effect.summary.count for effect in after] == [3, 3], "the seed is left out of both"


def test_risk_by_class_marks_the_most_exposed(study: Judged, kind: AuditKind) -> None:
    table = campaign_tables.classes(study, kind)
    own = [row for row in table.rows if row[0].shown == "none"]
    assert [row[1].shown for row in own] == CLASSES
    marked = [row for row in own if row[2].tone]
    assert len(marked) == 1 and marked[0][2].value == min(row[2].value for row in own)


def test_costs_hold_time_memory_and_work(study: Judged, kind: AuditKind) -> None:
    rows = read_csv(as_csv(campaign_tables.costs(study, kind)))
    assert rows[0]["ratio"] == "1.0" and float(rows[-1]["ratio"]) > 1.3
    assert rows[0]["memory"] == "512000000" and rows[0]["client_macs"] == "1234567"
    assert int(rows[0]["epochs"]) > 0


# what is missing


def leave_unfinished(folder: Path, cell: str, row: str = "decoder small") -> None:
    """As a running audit of this cell is before its last row."""
    (audit,) = (folder / "runs" / cell / "audits").iterdir()
    for file in (audit / "joined.json", next(audit.glob(f"{row.replace(' ', '?')}*.json"))):
        file.unlink()
    (folder / "cells" / f"{cell}.json").unlink()


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return make_campaign(tmp_path / "small", Made({"none": ARMS["none"], "gated": ARMS["gated"]}, seeds=3)).path


def test_unfinished_audits_do_not_count(small: Path, tmp_path: Path, light: None) -> None:
    """A running campaign: one audit lacks its strongest attack, and its error looks larger than it is."""
    before = as_latex(campaign_tables.headline(study := load_campaign(small).study, study.kinds[0]))
    arm = next(arm for arm in study.arms if arm.name == "gated")
    leave_unfinished(small, arm.cells[0].id)
    study = load_campaign(small).study
    after = next(other for other in study.arms if other.label == arm.label)
    assert after.values("mse") == arm.values("mse")[1:] and after.cells[0].audits == {}
    assert [cell.unfinished for cell in after.cells] == [1, 0, 0]
    (headline, *_) = all_tables(study)
    spread = after.summary("mse")
    assert spread is not None
    assert before != as_latex(headline) and f"{spread.seeds.mean:.4f}" in as_latex(headline)
    words = words_of(page_of(small, tmp_path))
    assert "1 are missing. Audits that lack rows: 1; they do not count in any number on this page." in words


def test_an_audit_by_hand_counts_once_it_has_all_rows(small: Path) -> None:
    arm = next(arm for arm in load_campaign(small).study.arms if arm.name == "gated")
    (small / "cells" / f"{arm.cells[0].id}.json").unlink()
    assert all(cell.unfinished == 0 and len(cell.audits) == 1 for cell in load_campaign(small).study.cells)


def test_a_campaign_in_the_middle_shows_what_is_there(copy: Path, tmp_path: Path, light: None) -> None:
    folder = CampaignFolder.open(copy)
    shutil.rmtree(folder.run_path("none-s3"))
    folder.fail("gated_penalty_weight-1.0-s1", "train", "the loss is <b>not</b> a number")
    words = words_of(html := page_of(copy, tmp_path))
    assert "18 of 20 cells are done, 1 failed, 1 are missing." in words
    assert "3 of 4" in words
    rows = read_csv(data_of(html)["tables"]["lacking"]["csv"])
    assert [(row["cell"], row["state"]) for row in rows] == [
        ("none-s3", "planned"),
        ("gated_penalty_weight-1.0-s1", "failed"),
    ]
    assert "the loss is <b>not</b> a number" in words and "<b>not</b>" not in html


def test_a_campaign_that_has_not_begun(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path / "c", Made(ARMS, seeds=1)).path
    for run in (folder / "runs").iterdir():
        shutil.rmtree(run)
    words = words_of(page_of(folder, tmp_path))
    assert "0 of 3 cells are done, 0 failed, 3 are missing." in words and "nothing about privacy" in words
    assert write_figures(folder, tmp_path / "figures") == []
    assert {file.stem for file in write_tables(folder, tmp_path / "tables")} == {"cells", "lacking"}


def test_damaged_files_are_named_and_the_rest_is_shown(copy: Path, tmp_path: Path, light: None) -> None:
    audit = next((copy / "runs" / "none-s1" / "audits").iterdir())
    (audit / "ridge.json").write_text("{")
    (copy / "runs" / "gated_penalty_weight-4.0-s0" / "portrait.json").write_text("[]")
    (copy / "runs" / "none-s0" / "audits" / audit.name / "pictures" / "decoder-small-3.png").unlink()
    (copy / "runs" / "none-s0" / "metrics.jsonl").write_text("nonsense\n")
    html = page_of(copy, tmp_path)
    assert "none-s1 could not be read completely" in html and "ridge.json is damaged" in html
    assert "gated_penalty_weight-4.0-s0 could not be read completely" in html
    assert Page(html).open == []


def test_several_audits_have_a_headline_each(tmp_path: Path, light: None) -> None:
    audits = ({"suite": "quick"}, {"suite": "quick", "threat": "held_out"})
    folder = make_campaign(tmp_path / "c", Made({"none": ARMS["none"], "gated": ARMS["gated"]}, seeds=2, audits=audits))
    study = load_campaign(folder.path).study
    assert list(map(str, study.kinds)) == [KIND, "quick · held_out · test"]
    names = [table.name for table in all_tables(study)]
    assert names[:2] == ["headline", "headline-2"]
    assert len(campaign_tables.cells(study).rows) == 8, "a row for each audit"
    assert "choose-kind" in page_of(folder.path, tmp_path)


# pictures and portraits


def test_the_wall_shows_the_same_images_for_every_arm(study: Judged, kind: AuditKind) -> None:
    (wall,) = walls(study, kind)
    assert [row.arm.label for row in wall.rows] == [arm.label for arm in study.arms]
    images = [image for row in wall.rows for image in images_of(wall, row)]
    assert len(wall.originals) == 8 and len(images) == len(set(images)) == 8 * len(wall.rows)
    assert {row.album.audit.strongest for row in wall.rows} == {"decoder small"}


def images_of(wall: Wall, row: WallRow) -> list[str]:
    return [row.album.cell(row.pictures[index]).image or "" for index in wall.originals]


def test_a_wall_too_large_is_cut_and_says_so(study: Judged, kind: AuditKind, monkeypatch: Any) -> None:
    monkeypatch.setattr("attncem.reporting.campaign.data._WALL", 30_000)
    (wall,) = walls(study, kind)
    assert sum(len(image) for row in wall.rows for image in images_of(wall, row)) < 30_000
    assert wall.hidden_images == 8 - len(wall.originals) > 0
    assert wall.hidden_rows == len(study.arms) - len(wall.rows)


def test_before_the_defence_is_the_undefended_arm_or_the_pixels(
    html: str, copy: Path, tmp_path: Path, light: None
) -> None:
    before = {item["label"]: item["before"] for item in data_of(html)["portraits"]}
    assert before["gated (penalty_weight=4)"] == "none" and before["none"] == ""
    (copy / "runs" / "none-s0" / "portrait.json").unlink()
    again = {item["label"]: item["before"] for item in data_of(page_of(copy, tmp_path))["portraits"]}
    assert set(again.values()) == {""}


def test_portraits_without_room_are_counted(finished: Path, tmp_path: Path, monkeypatch: Any, light: None) -> None:
    monkeypatch.setattr("attncem.reporting.campaign.data._PORTRAITS", 80_000)
    data = data_of(html := page_of(finished, tmp_path))
    labels = [item["label"] for item in data["portraits"]]
    assert len(labels) + data["portraits_left_out"] == 5 and data["portraits_left_out"] > 0
    assert labels[0] == "none"
    assert f"{data['portraits_left_out']} more portraits" in words_of(html)


def test_what_is_watched_has_a_title() -> None:
    assert set(campaign_plots.WATCHED) <= set(HEALTH)


# files


def test_tables_are_the_same_on_the_page_and_in_files(finished: Path, html: str, tmp_path: Path) -> None:
    files = write_tables(finished, tmp_path / "tables")
    on_page = data_of(html)["tables"]
    assert {file.stem for file in files} == set(on_page)
    assert {"headline", "cells", "attacks", "tests", "front", "costs", "sensitivity", "classes"} == set(on_page)
    for file in files:
        assert file.read_text(encoding="utf-8") == on_page[file.stem][file.suffix[1:]]
    write_tables(finished, tmp_path / "tables")  # over the older ones


@pytest.mark.parametrize("begin", [*"=+-@\t\n＝＋－＠", " =", "\ufeff=", "\r="])
def test_no_cell_of_a_csv_is_a_formula(begin: str) -> None:
    columns = [Column("a", "A", words=True), Column("b", "B", more=("sd",))]
    value = f"{begin}HYPERLINK(1)"
    words = as_csv(Table("t", "T", columns, [[Item(value, value), Item(-0.5, "", more={"sd": -1e-9})]]))
    (line,) = csv.DictReader(io.StringIO(words, newline=""))
    assert line == {"a": f"'{value}".replace("\r", " "), "b": "-0.5", "b_sd": "-1e-09"}, "numbers stay numbers"


def test_formats_escape_what_would_be_markup() -> None:
    columns = [Column("a", "A & B", words=True), Column("b", "x_y", "50 %", more=("sd",))]
    table = Table("t", "T", columns, [[Item("a|<b>", "a|<b>"), Item(0.5, "0.50 ± 0.10", more={"sd": 0.1})]])
    assert as_csv(table) == "a,b,b_sd\na|<b>,0.5,0.1\n"
    assert as_markdown(table).splitlines() == [
        "| A & B | x\\_y (50 %) |",
        "|---|--:|",
        "| a\\|\\<b\\> | 0.50 ± 0.10 |",
    ]
    assert as_latex(table).splitlines()[2:5] == [
        r"A \& B & x\_y (50 \%) \\",
        r"\midrule",
        r"a$|$$<$b$>$ & 0.50 $\pm$ 0.10 \\",
    ]


def test_figures_are_written_as_svg_and_pdf(view: CampaignView, kind: AuditKind) -> None:
    few = replace(view, portraits={})
    names = {plot.name for plot in campaign_plots.plots(few, kind)}
    assert {"trade-off-mse", "trade-off-ssim", "training-cost", "training-gate_dimension"} <= names
    assert "sensitivity-training-penalty_weight-accuracy" in names
    plot = next(plot for plot in campaign_plots.plots(few, kind) if plot.name == "trade-off-mse")
    made = dict(campaign_plots.files(plot))
    assert made["trade-off-mse.pdf"].startswith(b"%PDF") and b"<svg" in made["trade-off-mse.svg"]
    assert b"#2159d4" in made["trade-off-mse.svg"] and b"#a0b0c0" not in made["trade-off-mse.svg"]
    assert dict(campaign_plots.files(plot)) == made, "the same bytes every time"


def test_pairs_of_keys_are_heat_maps(tmp_path: Path, monkeypatch: Any, light: None) -> None:
    grid = {"training.penalty_weight": [1.0, 4.0], "training.epochs": [5, 10]}
    made = Made({"gated": ARMS["gated"]}, seeds=1, grid=grid, portraits=False)
    folder = make_campaign(tmp_path / "c", made).path
    study = load_campaign(folder).study
    (_, across, rows), (_, _, others) = campaign_tables.heat_tables(study, study.kinds[0])
    assert across == ["5", "10"] and [title for title, _ in rows] == ["1", "4"]
    shades = [shade for _, items in others for shade, _ in items]
    assert min(shades) == 0 and max(shades) == 1
    monkeypatch.setattr(campaign_plots, "plots", lambda view, kind: campaign_plots.heat_plots(view.study, kind)[:1])
    files = {file.name for file in write_figures(folder, tmp_path / "figures")}
    name = "heat-gated-training-penalty_weight-training-epochs-accuracy"
    assert files == {f"{name}.svg", f"{name}.pdf"}
    assert "Pairs of keys" in words_of(page_of(folder, tmp_path))


def test_a_folder_that_cannot_be_written_is_named(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"file.*cannot be written"):
        write_tables(finished, tmp_path / "file")


@pytest.mark.slow
def test_200_runs_of_8_attacks_take_20_seconds_and_15_megabytes_at_most(tmp_path: Path) -> None:
    arms = {
        name: ARMS["none" if name == "none" else "kmeans"] for name in ("none", "kmeans", "gated", "slot", "hybrid")
    }
    arms |= dict.fromkeys(("gmm",), ARMS["kmeans"])
    grid = {"training.penalty_weight": [1.0, 2.0, 4.0, 16.0], "training.epochs": [10, 20]}
    large = Made(arms, seeds=5, grid=grid, attacks=ATTACKS, side=32, channels=3, epochs=60)
    folder = make_campaign(tmp_path / "c", large)
    assert len(folder.plan.cells) == 205
    begun = time.process_time()
    file = write_campaign_report(folder.path, tmp_path / "r.html")
    assert time.process_time() - begun <= 20
    assert file.stat().st_size <= 15_000_000
