"""Lists of runs: where they are found, and what is said of each."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from attncem.base.progress import silent
from attncem.cli.main import main
from attncem.judging.auditing import audit
from attncem.records.files import write_json
from attncem.records.listing import RunLine, describe_runs, list_runs
from attncem.reporting import report
from made_runs import reseal, rewrite
from test_runs import finish, new_run, save_epoch


def test_runs_are_listed_by_name(tmp_path: Path) -> None:
    new_run(tmp_path / "b")
    new_run(tmp_path / "a")
    (tmp_path / "other").mkdir()
    (tmp_path / "file").write_text("")
    assert [run.path.name for run in list_runs(tmp_path)] == ["a", "b"]
    assert list_runs(tmp_path / "nowhere") == []


def test_runs_are_described(tmp_path: Path) -> None:
    first, _, third = (new_run(tmp_path / name) for name in "abc")
    first.log({"kind": "validation", "epoch": 3, "accuracy": 0.8125})
    first.log({"kind": "train", "epoch": 3.5})
    first.update_manifest(status="finished")
    (first.path / "audits" / "quick").mkdir()
    write_json(first.path / "audits" / "quick" / "audit.json", {})
    with third.locked():
        rows = describe_runs(tmp_path)
    assert rows == [
        RunLine("a", "finished", "none", "0", "3/20", "81.2", mse="?", audits="1"),  # the audit is no audit's JSON
        RunLine("b", "interrupted", "none", "0", "0/20", audits="0"),
        RunLine("c", "running", "none", "0", "0/20", audits="0"),
    ]


def everything(folder: Path) -> dict[Path, tuple[int, int, bytes]]:
    """What a folder holds, with times and modes."""
    found = {path: path.lstat() for path in (folder, *folder.rglob("*"))}
    return {
        path: (facts.st_mtime_ns, facts.st_mode, path.read_bytes() if path.is_file() else b"")
        for path, facts in found.items()
    }


def test_a_listing_writes_and_makes_nothing(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    for name in "abc":
        save_epoch(new_run(tmp_path / "runs" / name), 1)
    (tmp_path / "runs" / "b" / ".lock").symlink_to(outside)
    (tmp_path / "runs" / "c" / ".lock").write_text("text")
    before = everything(tmp_path)
    assert [row[1] for row in describe_runs(tmp_path / "runs")] == ["interrupted", "unknown", "interrupted"]
    assert everything(tmp_path) == before


@contextmanager
def as_nobody() -> Iterator[Path]:
    """A folder that anybody can enter, as a user who is not root."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    is_root = os.geteuid() == 0
    try:
        yield folder
    finally:
        if is_root:
            os.seteuid(0)
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755)
        shutil.rmtree(folder)


def test_a_killed_run_in_a_read_only_folder_is_not_called_running() -> None:
    with as_nobody() as folder:
        run = new_run(folder / "run")
        with run.locked():
            pass
        run.path.chmod(0o555)
        folder.chmod(0o555)
        os.seteuid(os.geteuid() or 65534)
        assert describe_runs(folder)[0][1] == "interrupted"


def test_what_may_not_be_read_is_not_called_empty() -> None:
    with as_nobody() as folder:
        run, hidden, locked_run = (new_run(folder / name) for name in ("a", "b", "c"))
        with locked_run.locked():
            pass
        (locked_run.path / ".lock").chmod(0)
        (run.path / "audits").chmod(0)
        hidden.path.chmod(0)
        os.seteuid(os.geteuid() or 65534)
        rows = describe_runs(folder)
    assert [row[1] for row in rows] == ["interrupted", "unreadable", "unknown"]
    assert rows[0].audits == "?"
    assert rows[2].audits == "0"


def test_a_log_that_lost_its_end_is_not_listed_as_a_fresh_run(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    run.log({"kind": "validation", "epoch": 1, "accuracy": 0.5})
    save_epoch(run, 1)
    finish(run, 1)
    assert describe_runs(tmp_path)[0][4:6] == ("1/20", "50.0")
    (run.path / "metrics.jsonl").write_text("")
    assert describe_runs(tmp_path)[0][4:6] == ("?/20", "?")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("manifest.json", "{"),
        ("manifest.json", "{}"),
        ("config.yaml", "{"),
        ("config.yaml", "a: 1"),
        ("metrics.jsonl", "{\n"),
    ],
)
def test_one_damaged_run_does_not_hide_the_others(tmp_path: Path, name: str, text: str) -> None:
    new_run(tmp_path / "a")
    (tmp_path / "a" / name).write_text(text)
    new_run(tmp_path / "b")
    rows = describe_runs(tmp_path)
    assert rows[0] == RunLine("a", "damaged")
    assert rows[1][1] == "interrupted"


def test_runs_are_found_in_sub_folders(tmp_path: Path) -> None:
    places = ("one", "demo-001/demo-gated", "campaigns/grid/runs/a-s0", ".hidden/run", "1/2/3/4/5/too-deep")
    for place in places:
        new_run(tmp_path / place)
    new_run(tmp_path / "one" / "audits" / "no-run-of-its-own")
    found = [str(run.path.relative_to(tmp_path)) for run in list_runs(tmp_path)]
    assert found == ["campaigns/grid/runs/a-s0", "demo-001/demo-gated", "one"]
    assert [line.run for line in describe_runs(tmp_path)] == found
    assert [line.run for line in describe_runs(tmp_path / "one")] == ["one"], "a run's own folder"


def test_links_lead_nowhere_twice(tmp_path: Path) -> None:
    new_run(tmp_path / "runs" / "a")
    (tmp_path / "runs" / "again").symlink_to(tmp_path / "runs" / "a")
    (tmp_path / "runs" / "loop").symlink_to(tmp_path / "runs")
    (tmp_path / "runs" / "nowhere").symlink_to(tmp_path / "gone")
    assert [run.path.name for run in list_runs(tmp_path / "runs")] == ["a"]


def test_a_manifest_of_another_program_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "manifest.json").write_text("{}")
    assert list_runs(tmp_path) == []


@pytest.fixture
def audited(small_run: Callable[..., Path], tmp_path: Path) -> Path:
    run = tmp_path / "runs" / "mine" / "gated"
    shutil.copytree(small_run("demo"), run)
    audit(run, "quick", only=["mean-image", "ridge"], progress=silent)
    return run


def test_the_accuracy_is_the_audited_one(audited: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the test images, where there is an audit of these weights; else it is marked."""
    (line,) = describe_runs(audited.parents[1])
    result = audit(audited, "quick", only=["ridge"], progress=silent)
    assert line.audited
    assert line.accuracy == f"{100 * result.known_accuracy.mean:.1f}"
    assert line.mse == f"{result.row('ridge').mse.mean:.4f}"
    assert main(["runs", str(audited.parents[1])]) == 0
    assert "*" not in capsys.readouterr().out
    shutil.rmtree(audited / "audits")
    (unaudited,) = describe_runs(audited.parents[1])
    assert not unaudited.audited and unaudited.mse == "" and unaudited.audits == "0"
    assert main(["runs", str(audited.parents[1])]) == 0
    shown = capsys.readouterr().out
    assert f"{unaudited.accuracy}*" in shown and "*: on validation images" in shown


def test_an_audit_of_other_weights_or_of_validation_images_is_not_the_runs(audited: Path) -> None:
    plan = next(audited.glob("audits/*/audit.json"))
    said = plan.read_text()
    rewrite(plan, {"evaluation": "validation"})
    assert not describe_runs(audited)[0].audited and describe_runs(audited)[0].mse == ""
    plan.write_text(said.replace('"fingerprint": "', '"fingerprint": "0'))
    reseal(plan.parent)
    assert not describe_runs(audited)[0].audited and describe_runs(audited)[0].mse == ""


def test_a_report_finds_what_the_list_shows(audited: Path, tmp_path: Path) -> None:
    page = report([audited.parents[1]], tmp_path / "report.html")
    assert "demo-gated" in page.read_text(encoding="utf-8")
