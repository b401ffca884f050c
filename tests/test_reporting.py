"""The report: contents, honesty checks, self-containedness, and errors that name the file."""

from __future__ import annotations

import base64
import io
import json
import re
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image
from rich.console import Console

from attncem.health import PATIENCE, spans, warning
from attncem.reporting import figures, health, print_summary, report, summary_table, wording
from attncem.reporting.load import Entry, Run, entries, load_run, load_runs
from attncem.types import (
    THREAT_MODELS,
    AttackResult,
    AuditResult,
    BudgetPoint,
    GalleryImage,
    Interval,
    RunError,
)

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
CLASSES = ["circle", "square", "cross", "star"]
NUMBERS = {  # accuracy, MSE of the decoder, training seconds
    "none": (0.91, 0.0104, 41.0),
    "kmeans": (0.88, 0.0243, 55.0),
    "gated": (0.86, 0.0291, 49.0),
}
FLOORS = {"grey": 0.0712, "mean image": 0.0655, "class mean": 0.0521, "nearest neighbour": 0.0602}


def interval(mean: float, width: float = 0.04) -> Interval:
    return Interval(mean, mean * (1 - width), mean * (1 + width))


def png(rng: np.random.Generator, level: float = 0.5) -> str:
    ramp = np.add.outer(np.linspace(0, 90, 28), np.linspace(0, 90, 28)) * level
    pixels = (ramp + rng.uniform(0, 60, size=(28, 28))).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format="PNG")
    return base64.b64encode(file.getvalue()).decode()


def attack(name: str, mse: float, *, kind: Any = "attack", method: str = "", **other: Any) -> AttackResult:
    values: dict[str, Any] = {
        "name": name,
        "method": method or name.replace(" ", "_"),
        "kind": kind,
        "options": {},
        "mse": interval(mse),
        "psnr": interval(-10 * float(np.log10(mse)) + 0.6, 0.01),
        "ssim": interval(0.9 - 10 * mse),
        "ssim_zero_pad": interval(0.95 - 9 * mse),
        "per_class_mse": [mse * factor for factor in (1.1, 0.8, 1.0, 1.05)],
        "mse_5th_percentile": 0.4 * mse,
        "reliable": True,
        "seconds": 3.2,
    }
    return AttackResult(**values | other)


def attacks(mse: float) -> list[AttackResult]:
    floors = [attack(name, value, kind="floor") for name, value in FLOORS.items()]
    curve = [BudgetPoint(epochs, mse * (1 + 0.8 / epochs)) for epochs in (1.0, 2.0, 5.0, 10.0, 20.0, 40.0)]
    decoder = attack(
        "decoder small", mse, method="decoder", curve=curve, gain_of_doubling=0.011, num_parameters=214_337
    )
    return [*floors, attack("ridge", 1.5 * mse, num_parameters=402_000), decoder]


def picture(rng: np.random.Generator, index: int, role: Any, mse: float) -> GalleryImage:
    names = ["ridge", "decoder small"]
    return GalleryImage(
        index,
        index % len(CLASSES),
        role,
        png(rng),
        {name: png(rng, 0.3) for name in names},
        dict.fromkeys(names, mse * (1 + 0.1 * index)),
    )


def make_audit(name: str = "none", **other: Any) -> AuditResult:
    accuracy, mse, seconds = NUMBERS.get(name, NUMBERS["none"])
    rng = np.random.default_rng(3)
    roles = [("fixed", range(8)), ("best", range(10, 16)), ("worst", range(20, 26))]
    values: dict[str, Any] = {
        "run": name,
        "surrogate": name,
        "penalty_weight": 0.0 if name == "none" else 16.0,
        "noise_std": 0.1,
        "dataset": "shapes",
        "architecture": "small",
        "cut": "2",
        "seed": 0,
        "suite": "quick",
        "suite_version": 1,
        "threat": THREAT_MODELS["held_out"],
        "evaluation": "test",
        "accuracy": interval(accuracy, 0.01),
        "num_classes": len(CLASSES),
        "class_names": CLASSES,
        "per_class_accuracy": [accuracy, accuracy - 0.03, accuracy + 0.02, None],
        "num_evaluation": 1000,
        "num_auxiliary": 4000,
        "attacks": attacks(mse),
        "strongest": "decoder small",
        "gallery": [picture(rng, index, role, mse) for role, indices in roles for index in indices],
        "warnings": [],
        "encoder_sha256": "e" * 64,
        "data_sha256": "d" * 64,
        "weights": "best",
        "client_macs": 1_234_567,
        "server_macs": 9_876_543,
        "client_parameters": 10_234,
        "server_parameters": 1_250_000,
        "bytes_per_query": 2048,
        "training_seconds": seconds,
        "audit_seconds": 20.0,
        "device": "cpu",
        "versions": {"attncem": "0.1.0"},
    }
    return AuditResult(**values | other)


def train_records(name: str, **last: Any) -> list[dict[str, Any]]:
    records = []
    for step in range(60):
        record = {"kind": "train", "step": step, "epoch": step / 6, "lr": 0.05, "ce": 2 / (1 + step)}
        record |= {
            "penalty_weight": 0.0 if name == "none" else 16.0,
            "rob_loss": 0.0 if name == "none" else 1 / (1 + step),
        }
        record |= {"intra_mse": 0.2 / (1 + 0.1 * step), "skipped": 0.0}
        if name == "gated":
            record |= {"effective_samples": 0.7, "gate_dimension": 0.6, "gate_snr": 0.4, "gate_saturation": 0.1}
        records.append(record)
    for record in records[-PATIENCE:]:
        record.update(last)
    return records


def make_run(folder: Path, name: str = "none", *, audits: list[AuditResult] | None = None, **last: Any) -> Path:
    path = folder / name
    (path / "audits").mkdir(parents=True)
    variant = {"variant": "ours"} if name == "gated" else {}
    config = {
        "name": name,
        "seed": 0,
        "data": {"name": "shapes"},
        "model": {"name": "small", "cut": "2"},
        "channel": [{"name": "gaussian", "noise_std": 0.1}],
        "surrogate": {"name": name, **variant},
        "training": {"penalty_weight": 16.0, "epochs": 10},
    }
    (path / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    manifest = {
        "schema_version": 1,
        "name": name,
        "status": "finished",
        "training_seconds": NUMBERS.get(name, NUMBERS["none"])[2],
        "device": "cpu",
        "split": {"train": 4000, "validation": 500, "held_out": 4000, "test": 1000, "sha256": "0" * 64},
        "versions": {"attncem": "0.1.0", "torch": "2.11"},
        "client_macs": 1_234_567,
        "server_macs": 9_876_543,
        "client_parameters": 10_234,
        "server_parameters": 1_250_000,
        "bytes_per_query": 2048,
        "best": {"epoch": 9, "validation_accuracy": 0.9},
    }
    (path / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    validation = [
        {"kind": "validation", "epoch": epoch, "step": 6 * epoch, "accuracy": 0.9 - 0.5 / epoch, "ce": 1 / epoch}
        for epoch in range(1, 11)
    ]
    lines = [json.dumps(record) for record in train_records(name, **last) + validation]
    (path / "metrics.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for number, audit in enumerate([make_audit(name)] if audits is None else audits):
        (path / "audits" / f"{number}.json").write_text(json.dumps(audit.to_dict()), encoding="utf-8")
    return path


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    return [make_run(tmp_path, name) for name in NUMBERS]


def read(runs: list[Path], folder: Path) -> str:
    return report(runs, folder / "report.html", now=NOW).read_text(encoding="utf-8")


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


def test_page_tells_the_story(runs: list[Path], tmp_path: Path) -> None:
    text = read(runs, tmp_path)
    page = Page(text)
    words = " ".join(" ".join(page.text).split())
    assert not page.open
    assert "The strongest attack on none, “decoder small”, recovers images with MSE 0.0104 (blind floor 0.0521" in words
    assert "at accuracy 91.0 %" in words
    for expected in ("91.0", "[90.1, 91.9]", "0.0243", "gated (ours)", "1.34 ×", "10.2 k", "1.25 M", "class mean"):
        assert expected in words, expected
    assert "Read these warnings first" not in words
    order = ["headline", "plot", "attacks", "gallery", "curves", "classes", "reading", "settings"]
    assert [name for name in page.ids if name in order] == order
    assert page.tags.count("svg") == 1 + 4 + 4 + 1, "trade-off, training, health of gated, attacks"
    assert "Health of the surrogates" in words
    assert "effective_samples (share) warning below 0.1" in words
    assert "skipped (share" not in words, "0 throughout"
    assert words.count("▼ 0.0") == 3
    assert "sha256" not in words


def test_page_is_self_contained(runs: list[Path], tmp_path: Path) -> None:
    text = read(runs, tmp_path)
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


def test_page_shows_only_the_strongest_attack_without_script(runs: list[Path], tmp_path: Path) -> None:
    text = read(runs, tmp_path)
    strips = re.findall(r'<div class="strip" data-attack="([^"]+)"( data-strongest)?( hidden)?>', text)
    assert {name for name, _, hidden in strips if not hidden} == {"decoder small"}
    assert {name for name, strongest, hidden in strips if hidden and not strongest} == {"ridge"}


def test_same_input_gives_the_same_bytes(runs: list[Path], tmp_path: Path) -> None:
    assert read(runs, tmp_path) == read(runs, tmp_path)


def test_names_from_runs_are_harmless(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>$x_{$"
    audit = make_audit(run=evil, class_names=[f"{evil}{index}" for index in range(4)], warnings=[evil])
    run = make_run(tmp_path, audits=[audit])
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps(manifest | {"name": evil}))
    text = read([run], tmp_path)
    assert text.count("<script>") == 1
    assert "&lt;script&gt;alert(1)" in text
    assert Page(text).tags.count("script") == 1


def test_image_data_cannot_leave_its_attribute(tmp_path: Path) -> None:
    gallery = [GalleryImage(0, 0, "fixed", '"><script>x</script>', {"ridge": '" onload="x'}, {"ridge": 0.1})]
    text = read([make_run(tmp_path, audits=[make_audit(gallery=gallery)])], tmp_path)
    assert Page(text).tags.count("script") == 1
    assert ' onload="x' not in text


def test_unaudited_run_is_shown_with_its_curves(tmp_path: Path) -> None:
    alone = read([make_run(tmp_path, "kmeans", audits=[])], tmp_path)
    assert "not audited yet: <code>attncem audit kmeans</code>" in alone
    assert "No run has been audited yet" in alone
    assert "rob_loss" in alone
    both = read([tmp_path / "kmeans", make_run(tmp_path, "gated")], tmp_path)
    assert "not audited yet" in both
    assert "0.0291" in both


def test_run_directory_objects_and_single_paths_are_accepted(tmp_path: Path) -> None:
    class Folder:
        path = make_run(tmp_path)

    assert report([Folder()], tmp_path / "a.html", now=NOW).exists()
    assert report(str(Folder.path), str(tmp_path / "sub" / "b.html"), now=NOW).exists()
    assert report(Folder(), tmp_path / "c.html").exists()


def test_same_names_are_told_apart(tmp_path: Path) -> None:
    first, second = make_run(tmp_path / "a", "none"), make_run(tmp_path / "b", "none")
    renamed = second.rename(tmp_path / "b" / "again")
    assert [run.label for run in load_runs([first, renamed])] == ["none (none)", "none (again)"]
    assert [run.label for run in load_runs([first, first])] == ["none (none)", "none (none) #2"]


def test_torn_last_line_is_tolerated(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    whole = load_run(run)
    with (run / "metrics.jsonl").open("a") as stream:
        stream.write('{"kind": "train", "ce": 0.')
    assert load_run(run).metrics == whole.metrics
    (run / "metrics.jsonl").unlink()
    assert "No training has been logged" in read([run], tmp_path)


def test_metrics_may_lack_keys_or_hold_nan(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    lines = [
        '{"kind": "train"}',
        '{"kind": "train", "epoch": 1, "rob_loss": NaN}',
        "3",
        '{"kind": "validation", "accuracy": 1}',
    ]
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    assert "No training has been logged" in read([run], tmp_path)


@pytest.mark.parametrize("name", ["config.yaml", "manifest.json"])
def test_missing_file_is_named(tmp_path: Path, name: str) -> None:
    run = make_run(tmp_path)
    (run / name).unlink()
    with pytest.raises(RunError, match=f"{re.escape(name)}: missing"):
        report([run], tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()


@pytest.mark.parametrize("name", ["config.yaml", "manifest.json", "audits/0.json", "metrics.jsonl"])
@pytest.mark.parametrize("content", ["{\n{{", "[1]\n[", "\n\n"])
def test_damaged_file_is_named(tmp_path: Path, name: str, content: str) -> None:
    run = make_run(tmp_path)
    (run / name).write_text(content)
    if name == "metrics.jsonl" and content != "{\n{{":
        content = "{\n" + content
        (run / name).write_text(content)
    with pytest.raises(RunError, match=re.escape(name)):
        report([run], tmp_path / "r.html")


@pytest.mark.parametrize(
    "change",
    [{"strongest": "nobody"}, {"attacks": None}, {"accuracy": {"mean": "0.9", "low": 0, "high": 1}}, {"new": 1}],
)
def test_audit_that_is_none_is_named(tmp_path: Path, change: dict[str, Any]) -> None:
    run = make_run(tmp_path)
    (run / "audits" / "0.json").write_text(json.dumps(make_audit().to_dict() | change))
    with pytest.raises(RunError, match=r"audits/0.json: damaged"):
        report([run], tmp_path / "r.html")


@pytest.mark.parametrize("name", ["manifest.json", "audits/0.json"])
def test_newer_schema_asks_to_upgrade(tmp_path: Path, name: str) -> None:
    run = make_run(tmp_path)
    data = json.loads((run / name).read_text())
    (run / name).write_text(json.dumps(data | {"schema_version": 2, "unheard": 1}))
    with pytest.raises(RunError, match=rf"{re.escape(name)}.*upgrade attncem"):
        report([run], tmp_path / "r.html")


def test_missing_folder_and_no_runs_are_errors(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="nowhere: no such run folder"):
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
    assert len(lines) == 1 + 3 + 4
    assert lines[1].startswith("run,none,none,0.0,0.1,quick v1,held_out,0.91,")
    (tmp_path / "r.csv").write_text("mine\n")
    with pytest.raises(RunError, match=r"r.csv: exists"):
        report(runs, tmp_path / "r.html", csv=True)


def test_newest_audit_of_each_suite_and_threat_is_kept(tmp_path: Path) -> None:
    audits = [make_audit(suite_version=2), make_audit(suite_version=1), make_audit(threat=THREAT_MODELS["train"])]
    run = make_run(tmp_path, audits=audits)
    assert [(item.suite_version, item.threat.name) for item in load_run(run).audits] == [(2, "held_out"), (1, "train")]
    text = read([run], tmp_path)
    assert "none · quick · train" in text
    assert "Threat model</th>" in text
    assert "compare only like with like" in text


def test_last_written_audit_wins(tmp_path: Path) -> None:
    run = make_run(tmp_path, audits=[])
    for name, seed in (("quick.json", 1), ("quick-2.json", 2), ("quick-10.json", 10), (".partial-x.json", 99)):
        (run / "audits" / name).write_text(json.dumps(make_audit(seed=seed).to_dict()))
    assert [audit.seed for audit in load_run(run).audits] == [10]


def test_summary_table_has_runs_then_floors() -> None:
    rows = summary_table([make_audit(name) for name in NUMBERS])
    assert [row["kind"] for row in rows] == ["run"] * 3 + ["floor"] * 4
    assert [row["mse"] for row in rows[:3]] == [0.0104, 0.0243, 0.0291]
    assert rows[1]["training_ratio"] == pytest.approx(55 / 41)
    assert [row["run"] for row in rows[3:]] == ["grey", "mean image", "nearest neighbour", "class mean"]
    assert summary_table([]) == []


def test_print_summary_fits_a_terminal() -> None:
    console = Console(file=io.StringIO(), width=100, record=True)
    audits = [make_audit("none", run="a[red]b"), make_audit("kmeans", training_seconds=float("nan"))]
    print_summary(audits, console)
    text = console.export_text()
    assert "a[red]b" in text
    assert "0.0243" in text
    assert "floor: class mean" in text
    assert text.index("kmeans") < text.index("floor: grey")


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
    (warning,) = health.run_warnings(load_run(run))
    assert expected in warning
    assert re.match(r"training, epoch 9\.\d+ on: .*\. What to do: \S", warning)
    words = " ".join(" ".join(Page(read([run], tmp_path)).text).split())
    assert "Read these warnings first" in words
    assert warning in words


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


def test_accuracy_warnings() -> None:
    audit = make_audit()
    assert health.accuracy_warnings(audit, 0.91) == []
    assert "near chance (25.0 %)" in health.accuracy_warnings(replace(audit, accuracy=interval(0.3)), 0.91)[0]
    assert "accuracy collapsed" in health.accuracy_warnings(replace(audit, accuracy=interval(0.5)), 0.91)[0]
    assert health.accuracy_warnings(replace(audit, accuracy=interval(0.5)), 0.6) == []


def test_attack_warnings() -> None:
    audit = make_audit()
    assert health.attack_warnings(audit) == []
    weak = attack("decoder small", 0.09, method="decoder", reliable=False, gain_of_doubling=0.08)
    first, second = health.attack_warnings(replace(audit, attacks=[*audit.attacks[:-1], weak]))
    assert "lowered the error by 8.0 %" in first
    assert "no decoder beats ridge" in second


def test_status_and_audit_warnings_are_passed_on(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, audits=[make_audit(warnings=["look here", "look here"])]))
    assert health.run_warnings(run) == ["look here"]
    stopped = replace(run, manifest={"status": "stopped"}, audits=[])
    assert health.run_warnings(stopped) == ["training is not finished (status: stopped)"]


def test_warnings_of_the_log_stand_in_the_report_once(tmp_path: Path) -> None:
    told = warning("attention", "effective_samples", 0.04, begins=True, step=9, epoch=1.5)
    stopped = warning("not_finite", "ce", None, begins=True, step=12, epoch=2.0)
    path = make_run(tmp_path, "gated")
    with (path / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(record) + "\n" for record in (told, stopped))
    found = health.run_warnings(load_run(path))
    assert [text.split(":")[0] for text in found] == ["training, epoch 1.5 on", "training, epoch 2 on"]
    (path / "audits" / "quick-train.json").write_text(json.dumps(make_audit(warnings=found[:1]).to_dict()))
    assert health.run_warnings(load_run(path)) == found, "the audit repeats the first in the same words"


def test_rare_figures_are_drawn_where_they_are_not_zero(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, "gated", latched=0.5, gradient_ratio=3.0))
    titles = {drawing.title.split()[0]: drawing.note for drawing in figures.health_curves([run])}
    assert titles["latched"] == "warning above 0.8"
    assert titles["gradient_ratio"] == "warning above 10"
    assert "skipped" not in titles


def test_surrogate_without_weight_is_not_reported() -> None:
    assert spans(train_records("none", skipped=0.9)) == []


def test_nothing_is_said_twice(tmp_path: Path) -> None:
    rows = attacks(0.01)
    weak = replace(rows[-1], mse=interval(0.09), reliable=False, gain_of_doubling=0.08)
    said = ["decoder small: not converged after 40 epochs", "decoder small loses to ridge: it is under-trained"]
    said += ["accuracy 30.0 % is near chance: privacy of a useless model is worth nothing", "news"]
    audit = make_audit(attacks=[*rows[:-1], weak], strongest="ridge", accuracy=interval(0.3), warnings=said)
    found = health.run_warnings(load_run(make_run(tmp_path, audits=[audit])))
    assert len(found) == 4
    assert found[-1] == "news"


def test_comparison_warnings() -> None:
    audit = make_audit()
    assert health.comparison_warnings([audit, audit]) == []
    assert "data sets" in health.comparison_warnings([audit, replace(audit, dataset="other")])[0]
    assert "different devices" in health.comparison_warnings([audit, replace(audit, device="gpu")])[0]


# The verdict.


def sentences(tmp_path: Path, *audits: AuditResult) -> list[str]:
    run = load_run(make_run(tmp_path, audits=[]))
    found = [Entry(run, audit, audit.run, 0) for audit in audits]
    return wording.verdict(found, health.best_accuracy(audits))


def test_verdict_never_praises_a_useless_model(tmp_path: Path) -> None:
    chance = make_audit(accuracy=interval(0.26), attacks=attacks(0.05))
    text = sentences(tmp_path, make_audit(), replace(chance, run="dead"))[1]
    assert "near chance" in text
    assert "recovers" not in text
    text = sentences(tmp_path / "b", make_audit(), replace(chance, accuracy=interval(0.5)))[1]
    assert "lost its accuracy" in text


def test_verdict_says_when_nothing_beats_the_floor(tmp_path: Path) -> None:
    audit = make_audit(strongest="class mean", attacks=attacks(0.06))
    assert "no attack of this suite does better than the blind floor" in sentences(tmp_path, audit)[0]


def test_verdict_doubts_an_attack_that_had_not_converged(tmp_path: Path) -> None:
    rows = attacks(0.01)
    audit = make_audit(attacks=[*rows[:-1], replace(rows[-1], reliable=False)])
    assert "had not converged" in sentences(tmp_path, audit)[0]


def test_verdict_on_many_audits_names_the_two_ends(tmp_path: Path) -> None:
    audits = [make_audit(run=f"r{index}", attacks=attacks(0.01 + 0.002 * index)) for index in range(7)]
    text = sentences(tmp_path, *audits)
    assert ["r0," in text[0], "r6," in text[1], "5 more" in text[2]] == [True] * 3


def test_formats() -> None:
    assert wording.decimal(None) == wording.decimal(float("nan")) == "–"
    assert wording.decimal(float("inf")) == "∞"
    assert [wording.count(value) for value in (None, 12, 1234, 20_100_000)] == ["–", "12", "1.23 k", "20.1 M"]
    assert [wording.seconds(value) for value in (None, 5.0, 300.0, 9000.0)] == ["–", "5 s", "5 min", "2.5 h"]
    assert "sees 16 releases" in wording.describe_threat(replace(THREAT_MODELS["train"], releases_per_input=16))


def test_a_far_floor_does_not_flatten_the_trade_off(tmp_path: Path) -> None:
    run = make_run(tmp_path, audits=[make_audit()])
    audit = load_run(run).audits[0]
    far = [replace(row, mse=Interval(5.0, 5.0, 5.0)) if row.name == "grey" else row for row in audit.attacks]
    (run / "audits" / "quick-2.json").write_text(json.dumps(replace(audit, attacks=far).to_dict()))
    figure = figures.trade_off(entries([load_run(run)])).svg
    assert "class mean" in figure
    assert "grey" not in figure


def test_the_surrogate_is_named_with_what_defends_beside_it() -> None:
    config = {
        "surrogate": {"name": "gated", "variant": "ours"},
        "penalties": [{"name": "adversarial"}, {"name": "distance_correlation"}],
        "model": {"sparse_coding": {"threshold": 0.01}, "pruning": None},
    }
    run = Run(Path("run"), "run", config, "", {}, [], [])
    assert run.surrogate == "gated (ours) + adversarial + distance correlation + sparse coding"
    assert replace(run, config={"surrogate": {"name": "none"}}).surrogate == "none"
