"""The report: contents, honesty checks, self-containedness, and errors that name the file."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from attncem.base.texts import text as catalogue
from attncem.base.types import RunError
from attncem.config.loading.load import load_config
from attncem.config.threats import THREATS, with_releases
from attncem.records.audit import (
    AuditResult,
    Bound,
    FamilyPoint,
    Row,
    Verdict,
)
from attncem.records.explanation import ClassView, Explanation, FeatureView, PartShare, Recovery
from attncem.records.findings import Finding, finding
from attncem.records.fingerprints import fingerprint
from attncem.records.metrics import METRICS
from attncem.records.prediction import Candidate, Prediction, PredictionResult, Release
from attncem.records.runs import RunDirectory
from attncem.records.study import AuditKind
from attncem.records.study.runs import JudgedRun, load_run, load_runs
from attncem.records.units import Rung, Units
from attncem.reporting import (
    figures,
    print_explanation,
    print_predictions,
    print_summary,
    report,
    summary_table,
    wording,
)
from attncem.reporting.explain.page import write_explanation
from attncem.reporting.runs import health, protection, trade_off
from attncem.reporting.runs import repeated_releases as asking
from attncem.reporting.runs.methods import Entry, entries_of, methods
from attncem.reporting.runs.tables import CSV_COLUMNS, HEADLINE, attack_rows
from attncem.training.health import spans, warning
from made_runs import (
    CHANNEL,
    ENCODER,
    FINGERPRINT,
    NOW,
    NUMBERS,
    failed,
    make_audit,
    make_run,
    rewrite,
    row,
    rows,
    score,
    train_records,
    write_audit,
    write_checkpoint,
)
from remembering import computed_anew


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three runs that no test may change."""
    folder = tmp_path_factory.mktemp("runs")
    return [make_run(folder, name) for name in NUMBERS]


@pytest.fixture(scope="module")
def page_of_runs(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of the three runs."""
    return read(runs, tmp_path_factory.mktemp("page"))


def plain_words(page: str) -> str:
    """The text of a page with single spaces."""
    return " ".join(" ".join(Page(page).text).split())


def entries(runs: list[JudgedRun]) -> list[Entry]:
    return [entry for color, run in enumerate(runs) for entry in entries_of(run, color)]


def read(runs: list[Path], folder: Path) -> str:
    return report(runs, folder / "report.html", now=NOW).read_text(encoding="utf-8")


def words_of(runs: list[Path], folder: Path) -> str:
    return plain_words(read(runs, folder))


class Page(HTMLParser):
    """Collects what the tests ask about: addresses, ids, headings, balanced tags."""

    VOID = frozenset({"meta", "img", "br", "link", "input", "hr"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.unlabelled_images = 0
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append(tag)
        self.addresses += [values[key] or "" for key in ("src", "href", "xlink:href", "action") if key in values]
        self.ids += [values["id"] or ""] if "id" in values else []
        self.unlabelled_images += tag == "img" and not values.get("alt")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_needs_no_torch(tmp_path: Path) -> None:
    make_run(tmp_path)
    code = (
        "import sys; from attncem.reporting import report; assert 'matplotlib' not in sys.modules;"
        f"report([{str(tmp_path / 'none')!r}], {str(tmp_path / 'r.html')!r}); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_page_tells_the_story(page_of_runs: str) -> None:
    text = page_of_runs
    page = Page(text)
    words = " ".join(" ".join(page.text).split())
    assert not page.open
    assert "The strongest attack on none, “decoder small”, recovers images with MSE 0.0104 (blind floor 0.0521" in words
    assert "at accuracy 91.0 %" in words
    for expected in ("91.0", "[90.1, 91.9]", "0.0243", "gated", "1.34 ×", "10.2 k", "1.25 M", "class mean"):
        assert expected in words, expected
    assert "Read these warnings first" not in words
    order = ["plot", "headline", "gallery", "attacks", "curves", "classes", "reading", "settings", "commands"]
    assert [name for name in page.ids if name in order] == order
    assert page.tags.count("svg") == 2 + 4 + 4 + 1, "trade-off for wide and narrow, training, health of gated, attacks"
    assert "Health of the surrogates" in words
    assert "Effective share of a class under attention warning below 0.1" in words
    assert catalogue("figure.health.skipped") not in words, "0 throughout"
    assert not any(key in words for key in ("rob_loss", "intra_mse", "effective_samples")), "plain names"
    assert words.count("▼ 0.0") == 3
    assert "sha256" not in words
    assert f"weights epoch-00009 (fingerprint {FINGERPRINT[:12]}): 1000 evaluation images" in words


def test_every_measure_has_its_column_and_its_meaning(page_of_runs: str) -> None:
    words = plain_words(page_of_runs)
    for name, metric in METRICS.items():
        direction = f"{metric.unit}, {metric.private}" if metric.unit else metric.private
        assert f"{catalogue(f'measure.{name}')} {direction} = more private" in words
        assert catalogue(f"measure.{name}.meaning") in words
    assert set(HEADLINE) <= METRICS.keys()


def test_page_is_self_contained(page_of_runs: str) -> None:
    text = page_of_runs
    page = Page(text)
    assert page.addresses
    assert all(address.startswith(("#", "data:image/png;base64,")) for address in page.addresses)
    assert "http://" not in text
    assert "https://" not in text
    assert not re.search(r"@import|url\((?!#)", text)
    assert "link" not in page.tags
    assert page.unlabelled_images == 0
    assert len(page.ids) == len(set(page.ids))
    assert all(address[1:] in page.ids for address in page.addresses if address.startswith("#"))


def test_page_shows_only_the_strongest_attack_without_script(page_of_runs: str) -> None:
    text = page_of_runs
    strips = re.findall(r'<div class="strip" data-attack="([^"]+)"( data-strongest)?( hidden)?>', text)
    assert {name for name, _, hidden in strips if not hidden} == {"decoder small"}
    assert {name for name, strongest, hidden in strips if hidden and not strongest} == {"ridge"}
    assert text.count('<option value="decoder small">') == 1


def test_extremes_are_each_attacks_own_with_their_originals(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    folder = next((run / "audits").iterdir())
    (folder / "pictures" / "original-110.png").write_bytes(b"of the decoder")
    (folder / "pictures" / "original-10.png").write_bytes(b"of ridge")
    strips = re.split(r'(?=<div class="strip")', read([run], tmp_path))
    (decoder,) = (strip for strip in strips if "b2YgdGhlIGRlY29kZXI=" in strip)
    (ridge,) = (strip for strip in strips if "b2YgcmlkZ2U=" in strip)
    assert 'data-attack="decoder small" data-strongest' in decoder
    assert 'data-attack="ridge" hidden' in ridge
    (folder / "pictures" / "original-10.png").unlink()
    with pytest.raises(RunError, match=r"pictures/original-10.png is missing"):
        read([run], tmp_path)


def test_same_input_gives_the_same_bytes(runs: list[Path], page_of_runs: str, tmp_path: Path) -> None:
    with computed_anew():
        assert read(runs, tmp_path) == page_of_runs


def test_names_from_runs_are_harmless(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>$x_{$"
    subject = {"run": evil, "class_names": [f"{evil}{index}" for index in range(4)], "dataset": evil, "weights": evil}
    odd = [row(evil, 0.009), failed(f"{evil} 2", reason=evil)]
    said = [Finding("of a later version", evil, {}, evil)]
    audit = make_audit(made=[*rows(0.01), *odd], subject=subject, findings=said, changed=[evil], device=evil)
    run = make_run(tmp_path, audits=[audit, make_audit(subject=subject | {"fingerprint": evil})])
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps(manifest | {"name": evil, "status": evil, "versions": {evil: evil}}))
    (run / "audits" / "<b>.json").write_text("{}")
    text = read([run], tmp_path)
    assert text.count("<script>") == 1
    assert "<b>" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert Page(text).tags.count("script") == 2, "the page's data and its script"


def test_pictures_cannot_leave_their_folder_or_attribute(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (tmp_path / "secret.png").write_bytes(b"secret")
    file = next((run / "audits").iterdir()) / "ridge.json"
    pictures = json.loads(file.read_text())["pictures"]
    pictures[0]["image"] = "../../../../secret.png"
    rewrite(file, {"pictures": pictures})
    with pytest.raises(RunError, match=r"pictures/secret.png is missing"):
        read([run], tmp_path)
    (file.parent / "pictures" / "secret.png").write_bytes(b'"><script>x</script>')
    assert Page(read([run], tmp_path)).tags.count("script") == 2


def test_unaudited_run_is_shown_with_its_curves(tmp_path: Path) -> None:
    alone = read([make_run(tmp_path, "kmeans", audits=[])], tmp_path)
    assert "not audited yet: <code>attncem audit kmeans</code>" in alone
    assert "No run has been audited yet" in alone
    assert "rob_loss" in alone
    both = read([tmp_path / "kmeans", make_run(tmp_path, "gated")], tmp_path)
    assert "not audited yet" in both
    assert "0.0291" in both


def test_run_directory_objects_and_single_paths_are_accepted(tmp_path: Path) -> None:
    run = RunDirectory(make_run(tmp_path))
    assert report([run], tmp_path / "a.html", now=NOW).exists()
    assert report(str(run.path), str(tmp_path / "sub" / "b.html"), now=NOW).exists()
    assert report(run, tmp_path / "c.html").exists()


def test_same_names_are_told_apart(tmp_path: Path) -> None:
    first, second = make_run(tmp_path / "a", "none"), make_run(tmp_path / "b", "none")
    renamed = second.rename(tmp_path / "b" / "again")
    assert [run.label for run in load_runs([first, renamed])] == ["none (none)", "none (again)"]
    assert [run.label for run in load_runs([first, first])] == ["none (none)", "none (none) #2"]


# What a run's files may hold.


def test_torn_last_line_is_tolerated(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    whole = load_run(run)
    with (run / "metrics.jsonl").open("a") as stream:
        stream.write('{"kind": "train", "ce": 0.')
    assert load_run(run).run.metrics == whole.run.metrics
    (run / "metrics.jsonl").unlink()
    assert "No training has been logged" in read([run], tmp_path)


def test_metrics_may_lack_keys_or_hold_nan(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    lines = [
        '{"kind": "train"}',
        '{"kind": "train", "epoch": 1, "rob_loss": NaN}',
        '{"kind": "validation", "accuracy": 1}',
    ]
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    assert "No training has been logged" in read([run], tmp_path)


@pytest.mark.parametrize("name", ["config.yaml", "manifest.json"])
def test_missing_file_is_named(tmp_path: Path, name: str) -> None:
    run = make_run(tmp_path)
    (run / name).unlink()
    with pytest.raises(RunError, match=f"{re.escape(name)} is missing"):
        report([run], tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()


@pytest.mark.parametrize(
    "name", ["config.yaml", "manifest.json", "audits/quick-audit/audit.json", "audits/quick-audit/ridge.json"]
)
@pytest.mark.parametrize("content", ["{\n{{", "[1]\n[", "\n\n"])
def test_damaged_file_is_named(tmp_path: Path, name: str, content: str) -> None:
    run = make_run(tmp_path)
    (run / name).write_text(content)
    with pytest.raises(RunError, match=re.escape(name)):
        report([run], tmp_path / "r.html")


def test_damaged_metrics_are_named(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run / "metrics.jsonl").write_text("{\n{}\n")
    with pytest.raises(RunError, match=r"metrics.jsonl is damaged: line 1"):
        load_run(run)


@pytest.mark.parametrize(
    "content", ["", "quick", "[1]", "extends: quick", "name: [", "training: {epochs: none}", "a: 1"]
)
def test_config_that_is_none_is_named(tmp_path: Path, content: str) -> None:
    run = make_run(tmp_path)
    (run / "config.yaml").write_text(content)
    with pytest.raises(RunError, match=r"config.yaml is not the configuration that the run was made with"):
        load_run(run)
    manifest = json.loads((run / "manifest.json").read_text())
    del manifest["config_sha256"]  # as attncem 0.1 wrote it
    (run / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(RunError, match=r"config.yaml"):
        load_run(run)


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("audit.json", {"accuracy": {"mean": "0.9", "low": 0, "high": 1}}, "accuracy"),
        ("audit.json", {"subject": None}, "subject must be a mapping"),
        ("ridge.json", {"scores": None}, "scores must be a mapping"),
        ("ridge.json", {"scores": {"mse": {}}}, "scores.mse.high is missing"),
        ("ridge.json", {"outcome": "fine"}, "outcome must be one of"),
        ("ridge.json", {"scores": {}}, "scores.mse is missing"),
    ],
)
def test_audit_that_is_none_is_named(tmp_path: Path, name: str, change: dict[str, Any], reason: str) -> None:
    run = make_run(tmp_path)
    file = run / "audits" / "quick-audit" / (name or "ridge.json")
    rewrite(file, change)
    with pytest.raises(RunError, match=rf"quick-audit/?{re.escape(name)} is damaged: .*{re.escape(reason)}"):
        report([run], tmp_path / "r.html")


@pytest.mark.parametrize("name", ["manifest.json", "audits/quick-audit/audit.json", "audits/quick-audit/ridge.json"])
def test_newer_schema_asks_to_upgrade_and_further_keys_do_not(tmp_path: Path, name: str) -> None:
    run = make_run(tmp_path)
    rewrite(run / name, {"unheard": 1})
    assert not any("damaged" in said for said in health.run_warnings(load_run(run)))
    report([run], tmp_path / "r.html")
    rewrite(run / name, {"schema_version": 99})
    with pytest.raises(RunError, match=rf"{re.escape(name)} was written by a newer attncem.*upgrade"):
        report([run], tmp_path / "r.html")


def test_missing_folder_and_no_runs_are_errors(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="nowhere is not a run folder"):
        report([tmp_path / "nowhere"], tmp_path / "r.html")
    with pytest.raises(RunError, match="at least one"):
        report([], tmp_path / "r.html")


def test_foreign_file_is_not_overwritten(tmp_path: Path) -> None:
    run, out = make_run(tmp_path), tmp_path / "r.html"
    out.write_text("<html>thesis</html>")
    with pytest.raises(RunError, match=r"r.html: exists and was not written by attncem"):
        report([run], out)
    assert out.read_text() == "<html>thesis</html>"
    with pytest.raises(RunError, match="is a folder"):
        report([run], tmp_path)
    out.unlink()
    report([run], out, now=NOW)
    before = out.read_bytes()
    report([run], out, now=datetime(2031, 1, 1, tzinfo=UTC))
    assert out.read_bytes() != before
    assert not list(tmp_path.glob(".*"))


def test_csv_is_written_only_when_asked(runs: list[Path], tmp_path: Path) -> None:
    report(runs, tmp_path / "r.html")
    assert not (tmp_path / "r.csv").exists()
    report(runs, tmp_path / "r.html", csv=True)
    lines = (tmp_path / "r.csv").read_text().splitlines()
    assert len(lines) == 1 + 3 + 3
    assert lines[0] == ",".join(CSV_COLUMNS)
    assert lines[1].startswith("run,none,none,0.0,0.1,quick v1,held_out,0.91,")
    cells = dict(zip(CSV_COLUMNS, lines[1].split(","), strict=True))
    assert float(cells["mse_5th_percentile"]) == pytest.approx(0.4 * 0.0104)
    assert cells["reliable"] == "True"
    (tmp_path / "r.csv").write_text("mine\n")
    with pytest.raises(RunError, match=r"r.csv: exists"):
        report(runs, tmp_path / "r.html", csv=True)


def test_a_table_of_an_older_version_is_replaced(runs: list[Path], tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("kind,run,surrogate,penalty_weight,noise_std,suite,threat,accuracy,mse,reliable\n")
    report(runs, tmp_path / "r.html", csv=True)
    assert (tmp_path / "r.csv").read_text().startswith(",".join(CSV_COLUMNS))


# What is protected.


def measured(item: Row, **values: float) -> Row:
    """The row as a newer audit has it, with further measures."""
    return replace(item, scores=item.scores | {name: score(value) for name, value in values.items()})


def shielded(**shares: float) -> list[Row]:
    """Rows of an audit whose strongest attack leaves these shares of the blind guess's error (of edges: of 1 − 0.6)."""
    blind = {"structure": 0.04, "edges": 0.6, "band_mean": 0.02, "band_low": 0.03, "band_high": 0.01}
    given = {"structure": 0.5, "edges": 0.5, "band_mean": 0.5, "band_low": 0.5, "band_high": 0.5} | shares
    own = {name: share * blind[name] for name, share in given.items()} | {"edges": 1 - 0.4 * given["edges"]}
    return [
        measured(item, **blind) if item.kind == "floor" else measured(item, **own) if item.name[0] == "d" else item
        for item in rows(0.0104)
    ]


LEVELS = {"open": (0.0, 0.2499), "part": (0.2501, 0.7499), "kept": (0.7501, 1.4)}


@pytest.mark.parametrize("colour", LEVELS)
@pytest.mark.parametrize("shape", LEVELS)
def test_one_sentence_says_what_is_protected(shape: str, colour: str) -> None:
    said = {
        protection.describe(make_audit(made=shielded(structure=own, edges=own, band_mean=mean)), {})
        for own in LEVELS[shape]
        for mean in LEVELS[colour]
    }
    assert said == {catalogue(f"report.protects.{shape}_{colour}")}


def test_shape_is_recovered_as_far_as_either_measure_says() -> None:
    assert protection.level(protection.OPEN, "reliable") == "part"
    assert protection.level(protection.KEPT, "reliable") == "kept"
    for state in ("not_reliable", "not_enough"):
        assert protection.level(protection.OPEN - 0.01, state) == "open", "a leak is one in every state"
        assert protection.level(protection.KEPT, state) == "unknown"
    for shares in ({"structure": 0.9, "edges": 0.1}, {"structure": 0.1, "edges": 0.9}):
        said = protection.describe(make_audit(made=shielded(band_mean=0.9, **shares)), {})
        assert said == "An attacker recovers most of the shape; colour and brightness are largely protected."


def test_no_sentence_praises_what_is_not_known_to_be_private() -> None:
    kept = shielded(structure=0.9, edges=0.9, band_mean=0.9)
    unsure = [replace(item, verdict=Verdict(reliable=False)) for item in kept]
    lost = make_audit(made=kept, accuracy=score(0.3))
    beaten = make_audit(made=[item for item in kept if item.kind == "floor"])
    assert protection.describe(make_audit(made=unsure), {}) == catalogue("report.protects.unknown_unknown")
    assert protection.describe(lost, {}) == catalogue("report.protects.useless")
    assert protection.describe(make_audit(made=kept, accuracy=score(0.5)), {"shapes": 0.91}) == catalogue(
        "report.protects.useless"
    )
    assert protection.describe(beaten, {}) == catalogue("report.protects.floor")


def test_each_measure_is_compared_with_its_own_best_floor() -> None:
    made = shielded()
    made[0] = measured(made[0], structure=0.01, edges=0.1, band_mean=0.05)
    left = make_audit(made=made).remaining
    assert (left["structure"].floor, left["structure"].blind) == ("grey", 0.01)
    assert left["structure"].share == pytest.approx(2.0)
    assert (left["edges"].floor, left["edges"].blind, left["band_mean"].floor) == ("mean image", 0.6, "mean image")
    assert (left["mse"].floor, left["mse"].blind) == ("class mean", 0.0521)
    assert left["mse"].share == pytest.approx(0.0104 / 0.0521)
    assert "psnr" not in left, "decibels have no ratio"
    (bar,) = (bar for bar in protection.bars(make_audit(made=made)) if bar.name == "structure")
    assert (bar.width, bar.level, bar.beside) == (100.0, "kept", "0.0200; blind guess 0.0100 (grey)")


def test_what_cannot_be_compared_is_left_out() -> None:
    bare = [replace(item, scores={"mse": item.mse}) if item.kind == "floor" else item for item in shielded()]
    assert list(make_audit(made=bare).remaining) == ["mse"]
    assert make_audit(made=[failed("ridge")]).remaining == {}
    assert make_audit(made=[row("ridge", 0.02)]).remaining == {}, "no floors"
    tiny = [measured(item, band_high=0.0) for item in shielded()]
    assert "band_high" not in make_audit(made=tiny).remaining, "images without detail"
    assert [bar.name for bar in protection.bars(make_audit(made=tiny))] == [
        "band_mean",
        "band_low",
        "structure",
        "edges",
    ]


def test_the_page_shows_what_is_protected(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    made = shielded(structure=0.1, edges=0.2, band_mean=1.3, band_high=0.4)
    made[1] = replace(made[1], name=evil)
    made = [measured(item, structure=0.3) if item.kind == "floor" and item.name != evil else item for item in made]
    run = make_run(tmp_path, audits=[make_audit(made=made)])
    text = read([run, make_run(tmp_path, "kmeans")], tmp_path)
    page = Page(text)
    words = " ".join(" ".join(page.text).split())
    assert not page.open
    assert page.ids.index("plot") < page.ids.index("headline") < page.ids.index("protected")
    assert "An attacker recovers most of the shape; colour and brightness are largely protected." in words
    assert "Mean colour and brightness 130 % left 0.0260; blind guess 0.0200 (grey)" in words
    assert re.findall(r'<li class="(\w+)">.*?width: ([0-9.]+)%', text) == [
        ("kept", "100.0"),
        ("part", "50.0"),
        ("part", "40.0"),
        ("open", "10.0"),
        ("open", "20.0"),
    ], "of the newer audit alone"
    assert f"0.0040; blind guess 0.0400 ({evil})" in words
    assert page.tags.count("script") == 2
    assert "Below 25 % left, most was recovered; from 75 % on, it is largely protected" in words


def test_older_audits_are_shown_without_what_they_lack(page_of_runs: str) -> None:
    page = Page(page_of_runs)
    assert "protected" not in page.ids
    assert "#protected" not in page.addresses
    assert protection.summary(make_audit(), "none", {}) == ""


def test_csv_has_the_further_measures(tmp_path: Path) -> None:
    report([make_run(tmp_path, audits=[make_audit(made=shielded())])], tmp_path / "r.html", csv=True)
    lines = list(csv.DictReader((tmp_path / "r.csv").read_text().splitlines()))
    names = ("structure", "edges", "band_mean", "band_low", "band_high")
    assert [float(lines[0][name]) for name in names] == pytest.approx([0.02, 0.8, 0.01, 0.015, 0.005])
    assert [float(lines[1][name]) for name in names] == pytest.approx([0.04, 0.6, 0.02, 0.03, 0.01]), "a floor"


def test_a_report_says_where_no_undefended_accuracy_is_known(tmp_path: Path) -> None:
    kmeans = make_run(tmp_path, "kmeans")
    said = catalogue("finding.no_reference", dataset="shapes", network="small")
    assert words_of([kmeans], tmp_path).count(said) == 1
    assert "Read these warnings first" not in words_of([kmeans], tmp_path), "it is no fault of the run"
    both = words_of([kmeans, make_run(tmp_path)], tmp_path)
    assert said not in both, "the undefended run stands beside it"
    view = load_run(kmeans)
    for subject, codes_ in (
        ({"dataset": "cifar10", "architecture": "vgg11_bn"}, []),
        ({"dataset": "cifar10", "architecture": "resnet18"}, ["other_reference"]),
        ({"dataset": "image_folder"}, ["no_reference"]),
    ):
        entry = Entry(view, make_audit("kmeans", subject=subject), "kmeans", 0)
        assert codes(health.reference_findings([entry, entry])) == codes_
    silent = Entry(view, make_audit("kmeans", accuracy=None), "kmeans", 0)
    assert health.reference_findings([silent]) == [], "there is no accuracy to compare"


# Which audits are shown.


def test_newest_audit_of_each_suite_and_threat_is_kept(tmp_path: Path) -> None:
    audits = [make_audit(suite_version=2), make_audit(suite_version=1), make_audit(threat=THREATS["train"])]
    run = make_run(tmp_path, audits=audits)
    plans = [audit.plan for audit in load_run(run).results]
    assert [(plan.suite_version, plan.threat.name) for plan in plans] == [(2, "held_out"), (1, "train")]
    assert load_run(run).run.left_out == [], "older attempts are nobody's concern"
    text = read([run], tmp_path)
    assert "none · quick · train" in text
    assert "Threat model</th>" in text
    assert "compare only rows that agree in them" in text


def test_last_made_audit_wins_and_validation_is_no_result(tmp_path: Path) -> None:
    first, second = make_audit(device="first"), make_audit(device="second")
    run = make_run(tmp_path, audits=[first, second, make_audit(device="third", evaluation="validation")])
    view = load_run(run)
    assert [audit.plan.device for audit in view.results] == ["second"]
    assert view.run.left_out == []
    assert Path(view.results[0].folder).name == "quick-audit-2"


def test_audits_with_other_seeds_and_options_are_all_shown(tmp_path: Path) -> None:
    audits = [make_audit(seed=seed, accuracy=score(0.9 - 0.01 * seed)) for seed in (0, 1, 2)]
    run = make_run(tmp_path, audits=audits)
    assert [entry.label for entry in entries(load_runs([run]))] == [
        f"none · quick · held_out · seed {seed}" for seed in (0, 1, 2)
    ]
    words = words_of([run], tmp_path)
    assert "none · seed 2 88.0 [84.5, 91.5] decoder small" in words, "in the headline"
    assert "Threat model held_out" in words
    write_audit(run, make_audit(changed=["decoder small.epochs=5"]))
    labels = [entry.label for entry in entries(load_runs([run]))]
    assert labels[0] == "none · quick · held_out · seed 0 · decoder small.epochs=5", "joined with its other options"
    assert len(labels) == 3
    assert "the rows differ in their changed options" in words_of([run], tmp_path)
    report([run], tmp_path / "r.html", csv=True)
    assert "run,none · seed 1,none" in (tmp_path / "r.csv").read_text()


def test_audits_of_other_weights_or_runs_are_left_out_by_name(tmp_path: Path) -> None:
    other = {"fingerprint": "a" * 64, "weights": "epoch-00003"}
    audits = [make_audit(subject=other), make_audit(subject=other | {"run": "elsewhere"}), make_audit()]
    foreign = make_audit(subject=other | {"run": "encoder", "weights": ""}, id="own-encoder")
    run = make_run(tmp_path, audits=[*audits, foreign])
    view = load_run(run)
    assert [Path(audit.folder).name for audit in view.results] == ["quick-audit-3"]
    first, second, third = view.run.left_out
    assert "the audit quick-audit is for other weights of this run (epoch-00003, fingerprint aaaaaaaaaaaa)" in first
    assert "the audit quick-audit-2 is for another run (elsewhere, weights epoch-00003" in second
    assert "the audit own-encoder is for another run (encoder, weights a foreign encoder" in third
    words = words_of([run], tmp_path)
    assert all(said in words for said in view.run.left_out)


def test_an_audit_of_a_channel_that_was_changed_is_of_another_client(tmp_path: Path) -> None:
    other = fingerprint(ENCODER, [CHANNEL[0] | {"noise_std": 0.2}])
    view = load_run(make_run(tmp_path, audits=[make_audit(subject={"fingerprint": other})]))
    assert view.results == []
    assert len(view.run.left_out) == 1


def test_without_checkpoints_or_with_others_no_audit_is_the_runs(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    write_checkpoint(run, encoder="f" * 64)
    assert (len(load_run(run).results), len(load_run(run).run.left_out)) == (0, 1)
    (run / "checkpoints" / "epoch-00009" / "checkpoint.json").unlink()
    (run / "checkpoints" / "epoch-00009").rmdir()
    assert (len(load_run(run).results), len(load_run(run).run.left_out)) == (0, 1)
    assert "not audited yet" in read([run], tmp_path)


def test_audits_of_an_older_version_say_how_to_make_them_anew(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    for name in ("quick-train.json", "full-held_out-2.json", "mine.json", "quick-held_out.json", ".partial-x.json"):
        (run / "audits" / name).write_text("{}")
    (run / "audits" / "quick-train-validation.json").write_text("{}")
    assert load_run(run).run.left_out == [
        "omitted: full-held_out-2.json was written by attncem 0.1 and can no longer be read: run "
        "attncem audit none --suite full --threat held_out again",
        "omitted: mine.json was written by attncem 0.1 and can no longer be read: run attncem audit none again",
        "omitted: quick-train.json was written by attncem 0.1 and can no longer be read: run "
        "attncem audit none --suite quick --threat train again",
    ], "quick under held_out was made anew, and validation is no result"
    assert "quick-train.json was written by attncem 0.1" in words_of([run], tmp_path)


# Audits with holes.


def test_rows_without_a_result_are_shown_with_the_reason(tmp_path: Path) -> None:
    odd = [failed("oracle"), failed("gradient", "not_applicable", "the threat model held_out does not grant: gradient")]
    bound = row("certificate", 0.1, kind="certificate", scores={})
    bound = replace(bound, bounds={"mse": Bound(0.004, "MSE", 0.003, 0.005, "bound", [])})
    probe = row("who is it", 0.1, kind="probe", scores={"top1": score(0.25)})
    run = make_run(tmp_path, audits=[make_audit(made=[*odd, *rows(0.01), bound, probe])])
    words = words_of([run], tmp_path)
    assert "oracle failed: RuntimeError: out of memory attack 1" in words
    assert "gradient not applicable: the threat model held_out does not grant: gradient attack 1" in words
    assert "mse: 0.004 MSE [0.003, 0.005], a proven bound" in words
    assert "top1: 0.25 [0.24, 0.26]" in words
    assert "oracle: failed: RuntimeError: out of memory" in words, "among the warnings"
    names = [cells["attack"].name for cells in attack_rows(entries([load_run(run)]))]
    assert names[0] == "decoder small"
    assert names[-4:] == ["oracle", "gradient", "certificate", "who is it"]


def test_the_page_says_how_to_read_the_probes_it_shows(tmp_path: Path) -> None:
    probe = row("who", 0.1, kind="probe", scores={"pixel_rank_1": replace(score(0.25), median=0.0)})
    shown = replace(probe, method="reidentification_by_picture", by="ridge", chance={"pixel_rank_1": 0.01})
    absent = replace(failed("members", "not_applicable", "no images"), kind="probe", method="membership")
    odd = replace(probe, name="odd", method="of another version")
    audit = make_audit(made=[*rows(0.01), shown, absent, odd])
    audit = replace(audit, plan=replace(audit.plan, reference="plain 0123"))
    words = words_of([make_run(tmp_path, audits=[audit])], tmp_path)
    assert "from the reconstructions of “ridge”" in words
    assert "by pixels, true image ranked first among 100 candidates: 25.0 [24.0, 26.0] % (chance 1.0 %)" in words
    assert catalogue("report.reading.probes.text") in words
    assert catalogue("report.reading.probe.reidentification_by_picture.text") in words
    assert catalogue("report.reading.probe.membership.text") not in words, "it has no result"
    assert "Ranks by features use the reference plain 0123." in words
    bare = words_of([make_run(tmp_path / "bare", audits=[make_audit(made=rows(0.01))])], tmp_path)
    assert catalogue("report.reading.probes.text") not in bare


def test_a_measure_that_is_missing_is_a_dash(tmp_path: Path) -> None:
    small = [
        replace(item, scores={name: it for name, it in item.scores.items() if name != "ssim"}) for item in rows(0.01)
    ]
    said = finding("measure_left_out", about="SSIM", pixels=11)
    small[-1] = replace(small[-1], findings=[said])
    audit = make_audit(made=small)
    run = make_run(tmp_path, audits=[audit])
    words = words_of([run], tmp_path)
    assert "decoder small 0.0100 [0.0096, 0.0104] – – 20.6" in words, "headline"
    assert "attack 1 0.0100 [0.0096, 0.0104] – – 20.6 yes 0.860" in words, "all attacks"
    assert words.count(said.text) == 1
    console = Console(file=io.StringIO(), width=100, record=True)
    print_summary([audit], console)
    assert re.search(r"decoder small +0\.0100 +– +20\.6", console.export_text())
    assert summary_table([audit])[0]["ssim"] is None


def test_an_audit_without_accuracy_is_shown(tmp_path: Path) -> None:
    audit = make_audit(accuracy=None)
    run = make_run(tmp_path, audits=[audit])
    words = words_of([run, make_run(tmp_path, "kmeans")], tmp_path)
    assert "recovers images with MSE 0.0104 (blind floor 0.0521; 80 % of a blind guess’s error removed). The" in words
    alone = words_of([run], tmp_path)
    assert "No audit has both an accuracy and an attack with a result." in alone
    assert "circle – 0.0114" in alone, "classes"
    assert health.run_warnings(load_run(run), 0.9) == []
    console = Console(file=io.StringIO(), width=100, record=True)
    print_summary([audit], console)
    assert re.search(r"none +– +decoder small", console.export_text())


@pytest.mark.parametrize("made", [[], [failed("ridge"), failed("grey")]])
def test_an_audit_without_a_result_is_shown(tmp_path: Path, made: list[Row]) -> None:
    audit = make_audit(made=made)
    run = make_run(tmp_path, audits=[audit])
    words = words_of([run], tmp_path)
    assert "No attack on none has a result, so nothing is known about what it leaks." in words
    assert "none 91.0 [90.1, 91.9] no result" in words
    assert catalogue("report.gallery.empty") in words
    assert catalogue("report.guesses.lead") not in words
    both = words_of([run, make_run(tmp_path, "kmeans")], tmp_path)
    assert catalogue("report.guesses.lead") in both
    assert "class mean kmeans 0.0521" in both, "whose it is"
    console = Console(file=io.StringIO(), width=100, record=True)
    print_summary([audit], console)
    assert ("no result (2 failed)" if made else "no result") in console.export_text()


def test_a_missing_row_is_told(tmp_path: Path) -> None:
    names = [*(item.name for item in rows(0.01)), "decoder strong"]
    run = make_run(tmp_path, audits=[make_audit(rows=names)])
    assert "rows of the suite are missing: decoder strong" in words_of([run], tmp_path)


def test_each_class_has_its_most_exposed_images(tmp_path: Path) -> None:
    made = rows(0.02)
    ends: list[float | None] = [0.0071, 0.0062, 0.0053, None]
    strongest = replace(made[-1], scores={**made[-1].scores, "mse": replace(made[-1].mse, per_class_p05=ends)})
    audit = make_audit(made=[*made[:-1], strongest])
    risk = audit.risk
    assert risk is not None
    assert (risk.per_class, risk.per_class_p05) == (strongest.mse.per_class, ends)
    assert (risk.exposed_class, risk.p05) == (1, strongest.mse.p05)
    words = words_of([make_run(tmp_path, audits=[audit])], tmp_path)
    assert "circle 91.0 0.0220 0.0071 square 88.0 ▼ 0.0160 0.0062 cross 93.0 0.0200 0.0053 star – 0.0210 –" in words
    older = make_audit().risk
    assert older is not None and older.per_class_p05 == [None] * 4
    assert make_audit(made=[failed("ridge")]).risk is None


# Repeated releases, and what an error is equivalent to.


def asking_rows(*errors: tuple[int, int, float]) -> list[Row]:
    """The usual rows, and ridge by releases, jitter and error."""
    more = [
        row(f"ridge x{releases}{' jitter' * bool(jitter)}", mse, method="ridge", releases=releases, jitter=jitter)
        for releases, jitter, mse in errors
    ]
    return [*rows(0.02), *more]


FRESH = ((4, 0, 0.022), (256, 0, 0.012), (16, 1, 0.018))
KEYED = ((4, 0, 0.0301), (256, 0, 0.03), (16, 1, 0.018))
UNITS = Units(
    [Rung(1, 0.06), Rung(2, 0.04), Rung(4, 0.02), Rung(8, 0.01)],
    [Rung(0, 0.07), Rung(1, 0.05), Rung(16, 0.02), Rung(32, 0.015)],
)


def test_the_page_shows_what_asking_again_gives(tmp_path: Path) -> None:
    path = make_run(tmp_path, audits=[make_audit(made=asking_rows(*FRESH))])
    words = words_of([path], tmp_path)
    assert (
        "Repeated releases help: 256 releases of an image lower the error of “ridge” by 60.0 [60.0, 60.0] %." in words
    )
    assert (
        "16 releases of an image whose pixels change by up to 1/255 lower the error of “ridge” by 40.0 [40.0, 40.0] %"
        in words
    )
    assert "ridge 1 0.0300 [0.0288, 0.0312] –" in words
    assert "ridge x4 4 0.0220 [0.0211, 0.0229] 26.7 [26.7, 26.7]" in words
    assert "ridge x16 jitter 16, ±1 0.0180 [0.0173, 0.0187] 40.0 [40.0, 40.0]" in words
    assert "an attacker with 256 releases of an image lowers the error of ridge by 60 %" in words
    page = read([path], tmp_path)
    assert 'href="#asking"' in page and 'id="asking"' in page
    assert "none, 256: 0.0120" in page and "none, 16, ±1: 0.0180" in page, "told to who cannot see the figure"


def test_rows_that_saw_more_are_not_the_strongest(tmp_path: Path) -> None:
    path = make_run(tmp_path, audits=[make_audit(made=asking_rows(*FRESH))])
    (entry,) = entries([load_run(path)])
    assert entry.audit.strongest == "decoder small"
    table = attack_rows([entry])
    assert [cells["attack"].name for cells in table if cells["strongest"]] == ["decoder small"]
    assert [cells["attack"].name for cells in table][:2] == ["decoder small", "ridge"]
    assert [cells["attack"].releases for cells in table][-3:] == [256, 16, 4], "by error, below the others"
    console = Console(file=io.StringIO(), width=300, record=True)
    print_summary([entry.audit], console)
    head, _, told = console.export_text().partition("floor: class mean")
    assert "decoder small" in head and "ridge" not in head
    assert "none: Repeated releases help: 256 releases" in told


def test_a_flat_row_is_told_as_flat(tmp_path: Path) -> None:
    path = make_run(tmp_path, audits=[make_audit(made=asking_rows(*KEYED))])
    (entry,) = entries([load_run(path)])
    said = asking.describe(entry.audit)
    assert said.startswith(
        "Repeated releases do not help: 256 releases of the same image lower the error of “ridge” by 0.0 [0.0, 0.0] %"
    )
    assert "16 releases of an image whose pixels change by up to 1/255 lower the error of “ridge” by 40.0" in said
    assert codes(entry.audit.findings) == ["jitter_helps"]
    still = make_run(tmp_path, "kmeans", audits=[make_audit("kmeans", asking_rows((4, 0, 0.03), (16, 1, 0.0299)))])
    (entry,) = entries([load_run(still)])
    assert (
        "pixels change by up to 1/255 do not help: they lower the error of “ridge” by 0.3 [0.3, 0.3] %"
        in asking.describe(entry.audit)
    )
    assert codes(entry.audit.findings) == []


def test_points_of_the_figure(tmp_path: Path) -> None:
    path = make_run(tmp_path, audits=[make_audit(made=asking_rows(*FRESH))])
    (entry,) = entries([load_run(path)])
    (line,) = asking.series(entry.audit)
    assert [(item.releases, item.mse.mean) for item in line.still] == [(1, 0.03), (4, 0.022), (256, 0.012)]
    assert [item.name for item in line.moved] == ["ridge x16 jitter"]
    (drawing,) = figures.asking_curves([entry])
    assert drawing.title == "ridge" and drawing.note == "×: with jitter"


def test_nothing_is_said_where_nothing_asks_again(runs: list[Path], page_of_runs: str) -> None:
    assert "Repeated releases" not in plain_words(page_of_runs)
    assert figures.asking_curves(entries(load_runs(runs))) == []


def test_a_damaged_row_that_asks_again_is_named(tmp_path: Path) -> None:
    path = make_run(tmp_path, audits=[make_audit(made=asking_rows(*FRESH))])
    file = next(path.glob("audits/*/ridge-x4.npz"))
    file.write_bytes(b"no archive")
    run = load_run(path)
    assert run.results[0].row("ridge x4").outcome == "damaged"
    assert "ridge x4" not in {item.row for item in run.results[0].averaging}
    assert any("ridge x4: damaged" in said and "ridge-x4.npz was changed" in said for said in health.run_warnings(run))


def test_errors_are_shown_in_human_units(tmp_path: Path) -> None:
    path = make_run(tmp_path, audits=[make_audit(made=asking_rows(*FRESH), units=UNITS)])
    words = words_of([path], tmp_path)
    assert "decoder small 4×4, 16 PC" in words, "beside the strongest attack"
    assert "That is as much as a thumbnail of 4×4 pixels, or 16 principal components of this data set." in words
    assert "ridge x4 attack 4 4×4, 12 PC" in words
    assert "ridge 1 0.0300 [0.0288, 0.0312] 2×2–4×4, 5 PC –" in words
    assert "grey floor 1 mean image" in words
    assert catalogue("report.reading.units.text") in words
    console = Console(file=io.StringIO(), width=300, record=True)
    print_summary([make_audit(units=UNITS)], console)
    said = (
        "none: MSE 0.0104 gives an attacker as much as a thumbnail of 8×8 pixels, or more than 32 principal components"
    )
    assert said in console.export_text()


def test_audits_without_units_say_nothing_of_them(page_of_runs: str) -> None:
    words = plain_words(page_of_runs)
    assert "thumbnail, principal components" not in words
    assert catalogue("report.reading.units.text") not in words


# The terminal.


def test_summary_table_has_runs_then_floors() -> None:
    found = summary_table([make_audit(name) for name in NUMBERS])
    assert [cells["kind"] for cells in found] == ["run"] * 3 + ["floor"] * 3
    assert [cells["mse"] for cells in found[:3]] == [0.0104, 0.0243, 0.0291]
    assert found[1]["training_ratio"] == pytest.approx(55 / 41)
    assert [cells["run"] for cells in found[3:]] == ["grey", "mean image", "class mean"]
    assert summary_table([]) == []


def test_print_summary_fits_a_terminal() -> None:
    console = Console(file=io.StringIO(), width=100, record=True)
    unsure = rows(0.02, decoder={"verdict": Verdict(reliable=False)})
    audits = [make_audit(subject={"run": "a[red]b"}), make_audit("kmeans"), make_audit("gated", unsure)]
    print_summary(audits, console)
    text = console.export_text()
    assert "a[red]b" in text
    assert "0.0243" in text
    assert "decoder small (not reliable)" in text
    assert "(more private: MSE ↑, SSIM ↓, PSNR ↓)" in text
    assert text.index("kmeans") < text.index("floor: grey")
    commands = text.count("--threat held_out")
    assert text.count("held_out") == commands == len(audits), "only in the command that measures the leak"


@pytest.mark.parametrize("name", ["decoder small", "decoder strong ssim", "an attack with a long name of its own"])
def test_print_summary_fits_80_columns(name: str) -> None:
    console = Console(file=io.StringIO(), width=80, record=True)
    unsure = [replace(item, name=name, verdict=Verdict(reliable=False)) for item in shielded()[-1:]]
    audits = [
        make_audit(made=[*shielded()[:-1], *unsure], subject={"run": "a-name-as-long-as-campaigns-make-them-17"}),
        make_audit("kmeans", subject={"training_seconds": 123_456.7}),
        make_audit("gated", [failed("ridge"), failed("grey")]),
    ]
    print_summary(audits, console)
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= 80
    text = " ".join(" ".join(lines).split())
    for whole in ("123456.7", "train", "reliable)", "floor: class mean", "no result", "0.0104", "20.4"):
        assert whole in text
    assert "structure error 0.0200, 50 % of a blind guess’s. An attacker recovers shape in part" in text
    assert "kmeans: structure" not in text, "an older audit"


def test_print_summary_tells_suites_threats_and_seeds_apart() -> None:
    console = Console(file=io.StringIO(), width=140, record=True)
    print_summary([make_audit(seed=1), make_audit(seed=2), make_audit(threat=THREATS["train"])], console)
    assert "none (quick · held_out · seed 2)" in console.export_text()
    print_summary([make_audit(seed=1), make_audit(seed=2)], console)
    assert "none (seed 1)" in console.export_text()
    print_summary([], console)


# The checks: each must be able to fire and to stay quiet.


def test_healthy_run_has_no_warnings(runs: list[Path]) -> None:
    assert [health.run_warnings(run, 0.91) for run in load_runs(runs)] == [[], [], []]


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ({"effective_samples": 0.05}, "attention collapsed"),
        ({"rob_loss": 0.0, "intra_mse": 0.19}, "surrogate blind"),
        ({"gate_saturation": 0.8}, "gates saturated"),
        ({"gate_dimension": 0.001}, "a gate has closed: the penalty hardly reaches the encoder (gate_dimension 0.001"),
        ({"gate_snr": 0.001}, "(gate_snr 0.001"),
        ({"gate_class": 0.001}, "(gate_class 0.001"),
        ({"skipped": 0.2}, "(skipped 0.2"),
        ({"shut_off": 1.0, "latched": 1.0}, "penalty latched"),
        ({"shut_off": True, "latched": 1}, "penalty latched"),
        ({"gradient_ratio": 50.0}, "penalty dominates"),
    ],
)
def test_sick_surrogate_is_reported(tmp_path: Path, last: dict[str, Any], expected: str) -> None:
    run = make_run(tmp_path, "gated", **last)
    (said,) = health.run_warnings(load_run(run))
    assert expected in said
    assert re.match(r"training, \w+: from epoch 9\.\d+ on: .*\. What to do: \S", said)
    words = words_of([run], tmp_path)
    assert "Read these warnings first" in words
    assert said in words


@pytest.mark.parametrize(
    "last",
    [
        {"effective_samples": 0.2},
        {"rob_loss": 0.0, "intra_mse": 0.01},
        {"rob_loss": 0.0, "intra_mse": 0.19, "penalty_weight": 0.0},
        {"gate_saturation": 0.4},
        {"gate_snr": 0.05},
        {"skipped": 0.05},
        {"shut_off": 0.0},
    ],
)
def test_sound_surrogate_is_not_reported(last: dict[str, Any]) -> None:
    assert spans(train_records("gated", **last)) == []


def codes(found: list[Finding]) -> list[str]:
    return [item.code for item in found]


def test_accuracy_findings() -> None:
    audit = make_audit()
    assert health.accuracy_findings(audit, 0.91) == []
    chance = make_audit(accuracy=score(0.3))
    assert health.is_near_chance(chance)
    assert health.accuracy_findings(chance, 0.91) == [], "the audit says it itself"
    assert codes(chance.findings) == ["near_chance"]
    (found,) = health.accuracy_findings(make_audit(accuracy=score(0.5)), 0.91)
    assert found.text.startswith("accuracy collapsed to 50.0 % (best run: 91.0 %)")
    assert health.accuracy_findings(make_audit(accuracy=score(0.5)), 0.6) == []
    assert health.accuracy_findings(make_audit(accuracy=None), 0.9) == []


def test_findings_of_a_row_stand_beside_it_and_at_the_top(tmp_path: Path) -> None:
    said = finding("not_converged", "decoder small", epochs=40, gain=8.0)
    weak = {"verdict": Verdict(False, 0.08), "findings": [said], "must_beat": ["ridge"], "scores": {"mse": score(0.09)}}
    run = make_run(tmp_path, audits=[make_audit(made=rows(0.01, decoder=weak))])
    found = health.run_findings(load_run(run))
    assert [(item.code, item.about) for item in found] == [
        ("not_converged", "decoder small"),
        ("loses_to", "decoder small"),
    ]
    words = words_of([run], tmp_path)
    assert words.count(said.text) == 1
    assert words.count("loses to ridge: it is under-trained") == 2
    assert 'class="note">not converged after 40 epochs' in read([run], tmp_path)


def test_a_family_of_decoders_has_a_table(tmp_path: Path) -> None:
    tried = [(32, 450, 0.0312), (32, 4500, 0.0287), (96, 450, 0.0316), (96, 4500, 0.0263)]
    family = [FamilyPoint(width, images / 4500, images, error) for width, images, error in tried]
    made = rows(0.01, decoder={"verdict": Verdict(family=family[:-1])})
    run = make_run(tmp_path, audits=[make_audit(made=made)])
    page = read([run], tmp_path)
    assert (
        page.count("MSE on the attacker’s validation images, by width and by number of images that the attacker owns")
        == 1
    )
    table = page[page.index('id="table-family-0"') :].partition("</table>")[0]
    cells = re.findall(r"<td[^>]*><span>(.*?)</span></td>", table)
    assert cells == ["0.0312", '<span class="best">0.0287</span>', "0.0316", "–"], "by width, then by own images"
    (tmp_path / "other").mkdir()
    without = make_run(tmp_path / "other", audits=[make_audit(made=rows(0.01))])
    assert "by width and by number of images that the attacker owns" not in read([without], tmp_path / "other")


def test_what_samples_say_stands_beside_their_row_alone(tmp_path: Path) -> None:
    made = rows(0.01)
    further = {"spread": score(0.0093), "sample_mse": score(0.021), "sample_edges": score(0.45)}
    made.append(replace(made[-1], name="flow", method="flow", scores=made[-1].scores | further))
    page = words_of([make_run(tmp_path, audits=[make_audit(made=made)])], tmp_path)
    said = "samples: spread 0.0093, MSE 0.0100 (equal if the samples are calibrated); "
    assert page.count(f"{said}MSE of a sample 0.0210; edge similarity of a sample 0.450") == 1
    assert page.count("samples: spread") == 1


def test_a_budget_that_is_given_is_told_beside_the_row_alone(tmp_path: Path) -> None:
    given = {"verdict": Verdict(num_parameters=711_539, fixed_budget=True)}
    run = make_run(tmp_path, audits=[make_audit(made=rows(0.01, decoder=given))])
    assert health.run_findings(load_run(run)) == []
    assert words_of([run], tmp_path).count("a larger budget was not tried") == 1


def test_status_and_findings_of_audits_are_passed_on(tmp_path: Path) -> None:
    look = Finding("of_a_later_version", "", {}, "look here")
    run = load_run(make_run(tmp_path, audits=[make_audit(findings=[look, look])]))
    assert health.run_warnings(run) == ["look here"]
    stopped = replace(run, run=replace(run.run, manifest={"status": "stopped"}), audits={})
    assert health.run_warnings(stopped) == ["training is not finished (status: stopped)"]
    known = make_audit(findings=[finding("not_finished", status="stopped", done=3, planned=9)])
    assert codes(health.run_findings(replace(stopped, audits={AuditKind.of(known.plan): known}))) == ["not_finished"], (
        "once"
    )


def test_findings_of_several_audits_say_of_which_they_are(tmp_path: Path) -> None:
    own, shared = Finding("own", "ridge", {}, "odd"), finding("scheme_0")
    audits = [make_audit(findings=[shared, own]), make_audit(findings=[shared], threat=THREATS["train"])]
    run = load_run(make_run(tmp_path, audits=audits))
    assert health.run_warnings(run) == [shared.text, "quick · held_out: ridge: odd"]


def test_warnings_of_the_log_stand_in_the_report_once(tmp_path: Path) -> None:
    told = warning("attention", "effective_samples", 0.04, begins=True, step=9, epoch=1.5)
    over = warning("attention", "effective_samples", 0.9, begins=False, step=12, epoch=2.0)
    again = warning("attention", "effective_samples", 0.03, begins=True, step=13, epoch=2.5)
    stopped = warning("not_finite", "ce", None, begins=True, step=14, epoch=3.0)
    path = make_run(tmp_path, "gated")
    with (path / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(record) + "\n" for record in (told, over, again, stopped))
    found = health.run_warnings(load_run(path))
    assert [re.findall("epoch [0-9.]+ [a-z]+", text)[0] for text in found] == [
        "epoch 1.5 to",
        "epoch 2.5 on",
        "epoch 3 on",
    ]
    same = [item for item in health.run_findings(load_run(path)) if item.about == "training, attention"][1:]
    write_audit(path, make_audit("gated", findings=same))
    assert health.run_warnings(load_run(path)) == found, "the audit repeats one of them"
    (path / "metrics.jsonl").unlink()
    assert health.run_warnings(load_run(path)) == found[1:2], "the audit still knows it"


def test_rare_figures_are_drawn_where_they_are_not_zero(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, "gated", latched=0.5, gradient_ratio=3.0))
    titles = {drawing.key: drawing.note for drawing in figures.health_curves([run])}
    assert titles["latched"] == "warning above 0.8"
    assert titles["gradient_ratio"] == "warning above 10"
    assert "skipped" not in titles


def test_surrogate_without_weight_is_not_reported() -> None:
    assert spans(train_records("none", skipped=0.9)) == []


def test_comparison_findings() -> None:
    audit = make_audit()
    assert health.comparison_findings([audit, audit]) == []
    for change, aspect in (
        ({"subject": {"dataset": "other"}}, "data sets, evaluation data"),
        ({"subject": {"data_sha256": "0"}}, "evaluation data"),
        ({"suite_version": 2}, "suites"),
        ({"changed": ["ridge.num_releases=4"]}, "changed options"),
        ({"threat": with_releases(THREATS["held_out"], 16)}, "threat models"),
    ):
        (found,) = health.comparison_findings([audit, make_audit(**change)])
        assert found.text == f"the rows differ in their {aspect}: compare only rows that agree in them"
    assert codes(health.comparison_findings([audit, make_audit(device="gpu")])) == ["devices_differ"]


# The verdict.


def sentences(tmp_path: Path, *audits: AuditResult) -> list[str]:
    run = load_run(make_run(tmp_path, audits=[]))
    found = [Entry(run, audit, audit.subject.run, 0) for audit in audits]
    return wording.verdict(found, health.best_accuracy(audits))


def test_verdict_never_praises_a_useless_model(tmp_path: Path) -> None:
    text = sentences(tmp_path, make_audit(), make_audit("dead", rows(0.05), accuracy=score(0.26)))[1]
    assert "near chance" in text
    assert "recovers" not in text
    text = sentences(tmp_path / "b", make_audit(), make_audit("dead", rows(0.05), accuracy=score(0.5)))[1]
    assert "lost its accuracy" in text


def test_verdict_says_when_nothing_beats_the_floor(tmp_path: Path) -> None:
    said, silent = sentences(tmp_path, make_audit(made=rows(0.06)), make_audit(made=rows(0.06), accuracy=None))[:2]
    assert "On none (accuracy 91.0 %) no attack of this suite beats the blind floor (“class mean”" in said
    assert "On none no attack of this suite beats the blind floor" in silent


def test_verdict_without_floors(tmp_path: Path) -> None:
    (said,) = sentences(tmp_path, make_audit(made=[row("ridge", 0.02)]))
    first, doubt = said.split(". ", 1)
    assert first == "The strongest attack on none, “ridge”, recovers images with MSE 0.0200 at accuracy 91.0 %"
    assert doubt.startswith("No learned attack with a tested budget has a result")


def test_verdict_doubts_an_attack_that_had_not_converged(tmp_path: Path) -> None:
    audit = make_audit(made=rows(0.01, decoder={"verdict": Verdict(reliable=False)}))
    assert "had not converged" in sentences(tmp_path, audit)[0]


def test_verdict_on_many_audits_names_the_two_ends(tmp_path: Path) -> None:
    audits = [make_audit(f"r{index}", rows(0.01 + 0.002 * index)) for index in range(7)]
    text = sentences(tmp_path, *audits, make_audit("empty", []))
    assert ["r0," in text[0], "r6," in text[1], "6 more" in text[2]] == [True] * 3


def test_formats() -> None:
    assert wording.decimal(None) == wording.decimal(float("nan")) == "–"
    assert wording.decimal(float("inf")) == "∞"
    assert [wording.count(value) for value in (None, 12, 1234, 20_100_000)] == ["–", "12", "1.23 k", "20.1 M"]
    assert [wording.seconds(value) for value in (None, 5.0, 300.0, 9000.0)] == ["–", "5 s", "5 min", "2.5 h"]


def test_every_threat_model_is_described() -> None:
    said = [wording.describe_threat(threat) for threat in THREATS.values()]
    assert len(set(said)) == len(said)
    many = wording.describe_threat(with_releases(THREATS["train"], 16))
    assert many == (
        "The adversary knows the encoder, knows the channel, can query the client with any image, owns the "
        "training images, and sees 16 releases of each image."
    )
    assert "cannot query the client" in wording.describe_threat(THREATS["no_access"])
    moved = wording.describe_threat(replace(THREATS["train"], releases_per_input=4, jitter=2))
    assert moved.endswith("and sees 4 releases, each with pixels changed by up to 2/255, of each image.")


def test_a_far_floor_does_not_flatten_the_trade_off(tmp_path: Path) -> None:
    far = [replace(item, scores={"mse": score(5.0)}) if item.name == "grey" else item for item in rows(0.0104)]
    drawings = trade_off.trade_offs(methods([load_run(make_run(tmp_path, audits=[make_audit(made=far)]))]))
    assert ["class mean" in drawing.svg for drawing in drawings] == [True, True]
    assert not any("grey" in drawing.svg for drawing in drawings)


def test_unaudited_runs_have_the_noise_and_the_label_of_their_configuration(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, "gated", audits=[]))
    given = {
        "penalties": [{"name": "adversarial"}],
        "channel": [{"name": "gaussian", "noise_std": s} for s in (0.3, 0.4)],
    }
    config = load_config(run.config.model_dump(mode="json") | given).config
    cells = report_row(replace(run, run=replace(run.run, config=config)))
    assert (cells["surrogate"], cells["noise_std"]) == ("gated + adversarial", pytest.approx(0.5))


def report_row(run: Any) -> dict[str, Any]:
    from attncem.reporting.runs.tables import headline

    return headline([run], [])[0]


# One image.


@pytest.mark.parametrize(
    ("ratios", "said"),
    [
        ([2.0, 40.0, 3.14159], "(its variance over the noise that the channel adds): 2 to 40, median 3.1."),
        ([0.5, None], "0.5 to 0.5, median 0.5; 1 of 2 channels are released unchanged."),
        ([None, None], "Every channel of z is released unchanged"),
        ([], "on cpu."),
    ],
)
def test_settings_tell_how_z_stands_against_the_noise(ratios: list[float | None], said: str) -> None:
    told = wording.describe_audit(make_audit(signal_to_noise=ratios))
    assert said in told
    assert ("Signal-to-noise" in told) == any(ratios)


def make_explanation(recoveries: list[Recovery], **other: Any) -> Explanation:
    release = Release([8, 4, 4], "float32", 512, -1.0, 1.0, "fresh", 0.1, 784, None)
    top = [Candidate(0, "circle", 0.8), Candidate(1, "square", 0.1)]
    prediction = Prediction("test:3", top, 0, "circle", [], release)
    reference = ClassView(
        0, "circle", True, 0.8, [0.5, 0.9], "σ", None, [], "cluster", [PartShare(0.7, 0.4)], [], [], {}
    )
    values: dict[str, Any] = {
        "run": "none",
        "surrogate": "kmeans",
        "weights": "epoch-00009",
        "dataset": "shapes",
        "penalty_weight": 1.0,
        "prediction": prediction,
        "image": "",
        "feature": FeatureView([8, 4, 4], 0.0, 1.0, [], 0, None),
        "reference": reference,
        "recoveries": recoveries,
        "attacker_images": 4000,
        "audit": None,
        "findings": [finding("few_of_class", name="circle", count=2)],
    }
    return Explanation(**values | other)


RIDGE = Recovery("ridge", "attack", "", {"mse": 0.03, "ssim": 0.5}, None)
MEAN = Recovery("class mean", "floor", "", {"mse": 0.05, "ssim": 0.3}, 0.06)
KEPT = Recovery("decoder small", "attack", "", {"mse": 0.02}, 0.01, from_audit=True)


def shown(explanation: Explanation, folder: Path) -> tuple[str, str]:
    """The terminal's text, and the page's words."""
    console = Console(file=io.StringIO(), width=200, record=True)
    print_explanation(explanation, console)
    page = Page(write_explanation(explanation, folder / "e.html", now=NOW).read_text(encoding="utf-8"))
    assert not page.open
    return console.export_text(), " ".join(" ".join(page.text).split())


def test_explanation_shows_the_audits_strongest_attack_first(tmp_path: Path) -> None:
    for said in shown(make_explanation([MEAN, RIDGE, KEPT], audit="quick-train"), tmp_path):
        assert "strongest attack, decoder small, recovers this image worse than the average one: MSE 0.0200" in said
        assert "class mean, has MSE 0.0500: the attack’s error is 40 % of that" in said.replace("\u00a0", " ")
        assert said.rindex("decoder small") < said.rindex("ridge") < said.rindex(catalogue("explain.illustration"))
        assert "the audit’s strongest" in said
        assert "ew validation images of class circle (2)" in said
        assert "divides a class into 1 clusters; cluster 0 takes 70.0 %" in said.replace("\u00a0", " ")


@pytest.mark.parametrize("recoveries", [[], [MEAN]])
def test_explanation_without_an_attack_says_so(tmp_path: Path, recoveries: list[Recovery]) -> None:
    for said in shown(make_explanation(recoveries), tmp_path):
        assert catalogue("explain.recovered.no_attack") in said
    for said in shown(make_explanation([RIDGE]), tmp_path):
        assert "The best quick attack on this image is ridge: MSE 0.0300." in said


def test_explanation_of_an_odd_name_is_harmless(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    item = make_explanation(
        [replace(RIDGE, name=evil)], run=evil, surrogate=evil, findings=[Finding("x", evil, {}, evil)]
    )
    page = write_explanation(item, tmp_path / "e.html", now=NOW).read_text(encoding="utf-8")
    plain = write_explanation(make_explanation([RIDGE]), tmp_path / "p.html", now=NOW).read_text(encoding="utf-8")
    assert evil not in page and "alert(1)" in page
    assert page.count("<script") == plain.count("<script") == 1, "the page's own"


def test_predictions_are_printed_with_their_findings() -> None:
    item = make_explanation([]).prediction
    wrong = replace(item, true_label=1, true_name="square", preparation=["resized to 28×28"], saved="z.npz")
    console = Console(file=io.StringIO(), width=200, record=True)
    print_predictions(PredictionResult("none", "best", "shapes", [], [item, wrong], [finding("key_missing")]), console)
    text = console.export_text()
    assert re.search(r"test:3 +circle +80\.0 % +square 10\.0 % +circle +\n", text)
    assert "square (wrong)" in text
    assert (
        "test:3: What leaves the device: 8×4×4 float32 = 512 bytes, 0.65 times the image’s 784 bytes of pixels" in text
    )
    assert "fresh noise of σ = 0.1. Prepared: resized to 28×28. Saved: z.npz" in text
    assert f"note: {catalogue('finding.key_missing')}" in text


def test_a_folder_of_runs_is_reported_as_its_runs(tmp_path: Path, small_run: Callable[..., Path]) -> None:
    for name in ("one", "two"):
        shutil.copytree(small_run(), tmp_path / "runs" / name)
    (tmp_path / "runs/notes.txt").write_text("mine")
    page = report(tmp_path / "runs", tmp_path / "page.html").read_text(encoding="utf-8")
    label = json.loads((tmp_path / "runs/one/manifest.json").read_text())["name"]
    assert f"{label} (one)" in page and f"{label} (two)" in page
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match="is not a run folder"):
        report(tmp_path / "empty", tmp_path / "other.html")
