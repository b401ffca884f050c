"""An audit's folder: rows written at once, and one that is killed, full, shared or damaged."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import made_runs
from attncem.base.progress import silent
from attncem.base.types import RunError
from attncem.config.options.attacks import DecoderOptions, GreyOptions, MeanImageOptions, RidgeOptions
from attncem.config.options.suites import Suite
from attncem.judging.auditing import audit
from attncem.records import ledger as ledger_module
from attncem.records.audit import AuditResult, Row
from attncem.records.audit_seals import sealed
from attncem.records.image_scores import ImageScores
from attncem.records.ledger import Ledger, RowFiles, joined, ledgers
from attncem.records.score import Score
from forking import Forking

ROWS = {
    "grey": GreyOptions(),
    "mean image": MeanImageOptions(),
    "ridge": RidgeOptions(num_releases=1),
    "decoder small": DecoderOptions(epochs=6, max_epochs=6),
}
SUITE = Suite(name="tiny", version=1, meaning="", rows=ROWS)


@pytest.fixture(scope="module")
def run(small_run: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    copied = tmp_path_factory.mktemp("ledger") / "run"
    shutil.copytree(small_run("demo-none"), copied)
    return copied


@pytest.fixture(scope="module")
def whole(run: Path, tmp_path_factory: pytest.TempPathFactory) -> AuditResult:
    """An undisturbed audit."""
    return audit(run, SUITE, out=tmp_path_factory.mktemp("whole"), progress=silent)


def edit(file: Path, **changed: Any) -> None:
    """Change entries of a JSON file; None removes one."""
    data = {**json.loads(file.read_text()), **changed}
    file.write_text(json.dumps({key: value for key, value in data.items() if value is not None}))


def numbers(result: AuditResult) -> list[Row]:
    return [replace(row, seconds=0) for row in result.rows]


AUDIT = """
from attncem.base.progress import silent
from attncem.config.options.suites import Suite
from attncem.judging.auditing import audit

def work(run, out, suite):
    audit(run, Suite.model_validate_json(suite), out=out, progress=silent)
"""


@pytest.mark.slow
def test_an_audit_killed_at_five_random_moments_ends_with_the_rows_of_an_undisturbed_one(
    run: Path, whole: AuditResult, tmp_path: Path
) -> None:
    moments = random.Random(7)
    killed, out = 0, tmp_path / "out"
    with Forking(AUDIT) as audits:
        audits.begin(str(run), str(tmp_path / "calm"), SUITE.model_dump_json())
        started = time.monotonic()  # not before: the first fork waits for all imports
        assert audits.wait() == 0
        seconds = time.monotonic() - started
        for _ in range(5):
            child = audits.begin(str(run), str(out), SUITE.model_dump_json())
            time.sleep(moments.uniform(0.1 * seconds, 0.8 * seconds))
            killed += audits.kill(child) == -signal.SIGKILL
    assert killed >= 3, "most were killed before their end"
    result = audit(run, SUITE, out=out, progress=silent)
    assert numbers(result) == numbers(whole)
    one, other = (Ledger.open(Path(found.folder)) for found in (result, whole))
    for row in whole.rows:
        assert np.array_equal(one.scores(row.name).values["mse"], other.scores(row.name).values["mse"])
    assert not list(out.rglob(".partial-*")), "what the kills left was cleared away"
    assert one.state_file(whole.strongest) is not None


def test_the_join_is_kept_and_read_without_scores_of_images(whole: AuditResult, tmp_path: Path) -> None:
    folder = tmp_path / "moved"
    shutil.copytree(whole.folder, folder)
    for file in folder.glob("*.npz"):
        file.unlink()
    assert joined(folder) == replace(whole, folder=str(folder))
    edit(folder / "grey.json", seal=None, seconds=7.0)
    assert next(row for row in joined(folder).rows if row.name == "grey").seconds == 7.0, "joined anew"
    (folder / "grey.json").unlink()
    assert [row.name for row in joined(folder).rows] == list(ROWS)[1:]


def test_a_join_of_an_older_version_gets_the_rivals_that_it_lacks(tmp_path: Path) -> None:
    learned = made_runs.row("decoder small", 0.03, method="decoder", must_beat=["ridge"])
    rows = [made_runs.row("ridge", 0.03), learned]
    ledger = Ledger.begin(tmp_path, made_runs.make_plan("gated", rows=[item.name for item in rows]))
    errors = np.random.default_rng(1).gamma(2.0, 0.015, 200)
    for item, values in zip(rows, (errors, errors[::-1] + 3e-5), strict=True):
        mean = replace(item.mse, mean=float(values.mean()))
        scores = ImageScores(np.arange(200), {"mse": values})
        ledger.write(replace(item, num_images=200, scores={"mse": mean}), RowFiles(scores))
    now = ledger.conclude()
    assert [(rival.row, rival.other) for rival in now.rivals] == [("decoder small", "ridge")]
    file = ledger.path / "joined.json"
    data = json.loads(file.read_text())
    files = data.pop("seal")["files"]
    kept = {key: value for key, value in data.items() if key not in ("rivals", "schema_version")}
    file.write_text(json.dumps({"schema_version": data["schema_version"], **sealed(kept, now.plan.id, files)}))
    again = Ledger.open(ledger.path).result()
    assert (again.rivals, again.findings) == (now.rivals, now.findings)


def test_an_audit_stopped_between_rows_goes_on_at_the_row_it_was_in(
    run: Path, whole: AuditResult, tmp_path: Path
) -> None:
    for stop in range(len(ROWS)):

        def interrupt(stage: str, done: float, total: float, numbers: object, at: int = stop) -> None:
            if done == at and total == len(ROWS):
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            audit(run, SUITE, out=tmp_path, progress=interrupt)
        assert len(ledgers(tmp_path)[0].rows()) == stop
    assert numbers(audit(run, SUITE, out=tmp_path, progress=silent)) == numbers(whole)


def test_the_same_command_repeats_a_row_that_was_changed(run: Path, tmp_path: Path) -> None:
    first = audit(run, SUITE, only=["grey"], out=tmp_path, progress=silent)
    edit(Path(first.folder) / "grey.json", seconds=0.0)
    assert joined(Path(first.folder)).row("grey").outcome == "damaged"
    again = audit(run, SUITE, only=["grey"], out=tmp_path, progress=silent)
    assert numbers(again) == numbers(first) and again.folder == first.folder


def watch_syncs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is synced and what gets its name, in order: "sync PATH", "name PATH"."""
    events: list[str] = []
    fsync, replace_file = os.fsync, Path.replace

    def watched_fsync(descriptor: int) -> None:
        events.append(f"sync {Path(f'/proc/self/fd/{descriptor}').readlink()}")
        fsync(descriptor)

    def watched_replace(file: Path, target: Path) -> Path:
        events.append(f"name {target}")
        return replace_file(file, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(Path, "replace", watched_replace)
    return events


def row_with_files(whole: AuditResult) -> tuple[Ledger, Row, RowFiles]:
    """The strongest row of an audit with its scores, pictures and state."""
    ledger = Ledger.open(Path(whole.folder))
    row = next(it for it in whole.rows if it.name == whole.strongest)
    pictures = {picture.image: ledger.picture(picture.image) for picture in row.pictures}
    return ledger, row, RowFiles(ledger.scores(row.name), pictures, b"state")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_files_of_a_row_are_synced_once_each_before_the_row_gets_its_name(
    whole: AuditResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, row, files = row_with_files(whole)
    copied = Ledger(Path(shutil.copytree(ledger.path, tmp_path / "audit")), ledger.plan)
    events = watch_syncs(monkeypatch)
    copied.write(row, files)
    last = events.index(f"name {copied.path / 'decoder-small.json'}")
    before, after = events[:last], events[last + 1 :]
    named = [event.removeprefix("name ") for event in before if event.startswith("name ")]
    synced = [event.removeprefix("sync ") for event in before if event.startswith("sync ")]
    assert len(files.pictures or ()) > 3 and len(named) == len(files.pictures or ()) + 2
    assert sorted(synced[:-1]) == sorted([*named, str(copied.path), str(copied.path / "pictures")]), "each once"
    assert synced[-1].startswith(f"{copied.path}/.partial-"), "the row's own bytes"
    assert after == [f"sync {copied.path}"]


@pytest.mark.parametrize("fails_at", ["npz", "json", "png", "safetensors"])
def test_a_disk_that_fills_up_costs_the_row_being_written_alone(
    run: Path, whole: AuditResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: str
) -> None:
    write_atomic, write_json = ledger_module.write_atomic, ledger_module.write_json

    def check_room(path: Path) -> None:
        if path.name.startswith("ridge") and path.suffix == f".{fails_at}":
            raise OSError(28, "No space left on device")

    def bytes_until_full(path: Path, data: bytes, *, sync: bool = True) -> None:
        check_room(path)
        write_atomic(path, data, sync=sync)

    def json_until_full(path: Path, data: Mapping[str, Any]) -> None:
        check_room(path)
        write_json(path, data)

    monkeypatch.setattr(ledger_module, "write_atomic", bytes_until_full)
    monkeypatch.setattr(ledger_module, "write_json", json_until_full)
    with pytest.raises(RunError, match=r"No space left on device; finished rows are kept"):
        audit(run, SUITE, out=tmp_path, progress=silent)
    monkeypatch.undo()
    assert [row.name for row in ledgers(tmp_path)[0].rows()] == ["grey", "mean image"]
    assert numbers(audit(run, SUITE, out=tmp_path, progress=silent)) == numbers(whole)


# before any work


def test_a_full_disk_is_told_before_the_first_attack(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=5 << 20))
    monkeypatch.setattr("attncem.judging.auditing.measure", lambda *_, **__: pytest.fail("an attack ran"))
    with pytest.raises(RunError, match="5 MiB are free and 32 are needed"):
        audit(run, SUITE, out=tmp_path, progress=silent)


def test_a_place_that_cannot_be_written_is_told_before_the_first_attack(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attncem.judging.auditing.measure", lambda *_, **__: pytest.fail("an attack ran"))
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"cannot write to .*file.*; choose another folder with --out"):
        audit(run, SUITE, out=tmp_path / "file" / "below", progress=silent)


def test_a_folder_that_became_read_only_is_told_before_the_first_attack(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit(run, SUITE, only=["grey"], out=tmp_path, progress=silent)
    opened = os.open

    def read_only(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if str(path).endswith(".lock"):
            raise OSError(30, "Read-only file system")
        return opened(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", read_only)
    monkeypatch.setattr("attncem.judging.auditing.measure", lambda *_, **__: pytest.fail("an attack ran"))
    with pytest.raises(RunError, match=r"cannot write to .*Read-only file system"):
        audit(run, SUITE, out=tmp_path, progress=silent)


def test_two_processes_do_not_write_one_audit(run: Path, tmp_path: Path) -> None:
    result = audit(run, SUITE, only=["grey"], out=tmp_path, progress=silent)
    ledger = Ledger.open(Path(result.folder))
    with ledger.held(), pytest.raises(RunError, match="is being written by another process"):
        audit(run, SUITE, out=tmp_path, progress=silent)
    assert audit(run, SUITE, only=["grey"], out=tmp_path, progress=silent) == result


# what is kept


def test_of_attacks_with_as_many_releases_only_the_strongest_keeps_its_state(whole: AuditResult) -> None:
    folder = Path(whole.folder)
    assert whole.strongest in ("decoder small", "ridge")
    (state,) = folder.glob("*.safetensors")
    assert state == Ledger.open(folder).state_file(whole.strongest)


def test_a_state_that_is_too_large_is_not_kept(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "LARGEST_STATE", 100)
    result = audit(run, SUITE, only=["grey", "ridge"], out=tmp_path, progress=silent)
    assert result.strongest == "ridge"
    assert Ledger.open(Path(result.folder)).state_file("ridge") is None


def test_damaged_files_are_named(whole: AuditResult, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(whole.folder, folder)
    ledger = Ledger.open(folder)
    (folder / "grey.npz").write_bytes(b"PK\x03\x04 no")
    with pytest.raises(RunError, match=r"grey\.npz is damaged"):
        ledger.scores("grey")
    (folder / "grey.json").write_text("{}")
    with pytest.raises(RunError, match=r"grey\.json is damaged: \w+ is missing"):
        ledger.result()
    with pytest.raises(RunError, match=r"audit\.json is missing"):
        ledger.picture("../audit.json")
    (folder / "audit.json").write_text("[]")
    with pytest.raises(RunError, match=r"audit\.json is damaged"):
        Ledger.open(folder)


def test_a_scores_file_with_code_in_it_is_refused(whole: AuditResult, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(whole.folder, folder)
    np.savez(folder / "grey.npz", index=np.array([object()], dtype=object))
    with pytest.raises(RunError, match=r"grey\.npz is damaged"):
        Ledger.open(folder).scores("grey")


@pytest.mark.parametrize(
    "arrays",
    [
        {"mse": np.zeros(3)},
        {"index": np.zeros(3), "mse": np.zeros(3)},
        {"index": np.arange(3), "mse": np.zeros(4)},
        {"index": np.arange(3), "mse": np.array(["a", "b", "c"])},
        {"index": np.arange(3), "mse": np.zeros(3, complex)},
        {"index": np.array(3), "mse": np.array(0.0)},
        {"index": np.arange(2) + 2**40, "mse": np.zeros(2)},
        {"index": np.arange(3), "ssim": np.zeros(3)},
    ],
)
def test_scores_of_the_wrong_kind_are_named(whole: AuditResult, tmp_path: Path, arrays: dict[str, Any]) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(whole.folder, folder)
    np.savez(folder / "grey.npz", **arrays)
    scores = {"mse": Score(0, 0, 0, 0, 0).to_dict()}
    edit(folder / "grey.json", seal=None, num_images=3, scores=scores)  # as in version 0.2, without a hash
    with pytest.raises(RunError, match=r"\.npz is damaged: it (does not hold|has no mse)"):
        Ledger.open(folder).result()


def test_a_picture_that_is_a_pipe_is_not_waited_for(whole: AuditResult, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(whole.folder, folder)
    os.mkfifo(folder / "pictures" / "pipe.png")
    for name, said in (("pipe.png", "not a regular file"), ("a\0.png", "null byte")):
        with pytest.raises(RunError, match=said):
            Ledger.open(folder).picture(name)


def made_up(name: str, mean: float, kind: Any = "attack", **changed: Any) -> Row:
    score = Score(mean, mean, mean, mean, mean)
    row = Row(name, name, kind, "ok", "", {}, 0, 1, num_images=4, scores={"mse": score})
    return replace(row, **changed)


def test_the_strongest_is_among_rows_with_the_same_number_of_releases(whole: AuditResult, tmp_path: Path) -> None:
    plan = replace(whole.plan, rows=["one", "two", "bound"], id="made-up")
    ledger = Ledger.begin(tmp_path, plan)
    scores = ImageScores(np.arange(4), {"mse": np.full(4, 0.1)})
    ledger.write(made_up("one", 0.2), RowFiles(scores, state=b"one"))
    ledger.write(made_up("two", 0.1, releases=16), RowFiles(scores, state=b"two"))
    ledger.write(made_up("bound", 0.0, "certificate", scores={}), RowFiles())
    assert ledger.result().strongest == "one"
    assert json.loads((ledger.path / "two.json").read_text())["releases"] == 16


def test_the_strongest_attack_of_every_stop_of_the_live_page_keeps_its_state(
    whole: AuditResult, tmp_path: Path
) -> None:
    facts = {
        "one": (0.2, 1, b"one"),
        "x16": (0.1, 16, b"x16"),
        "weaker x16": (0.15, 16, b"no"),
        "white box": (0.1, 1, None),
        "x64": (0.01, 64, b"no stop"),
        "better": (0.15, 1, b"better"),
    }
    ledger = Ledger.begin(tmp_path, replace(whole.plan, rows=list(facts), id="made-up"))
    for name, (mean, releases, state) in facts.items():
        scores = ImageScores(np.arange(4), {"mse": np.full(4, mean)})
        ledger.write(made_up(name, mean, releases=releases), RowFiles(scores, state=state))
    assert ledger.result().strongest == "white box"
    kept = {name for name in facts if ledger.state_file(name) is not None}
    assert kept == {"x16", "better"}, "the one behind a stronger attack without a state, and nothing between the stops"
