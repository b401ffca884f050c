"""Numbers of audits that were changed after they were written: named as damaged, used nowhere."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncem.base.types import RunError
from attncem.campaigns.archive import thinned_audit
from attncem.records.audit import AuditResult
from attncem.records.image_scores import ImageScores
from attncem.records.ledger import Ledger, RowFiles, joined
from attncem.records.listing import describe_runs
from attncem.records.study.runs import load_run
from attncem.reporting import compare
from attncem.reporting.card import audits_of, make_card
from attncem.reporting.runs.health import run_warnings
from attncem.reporting.runs.methods import methods
from made_runs import NOW, make_audit, make_plan, make_run, row, rows, write_audit

DECODER = "decoder small"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with an audit that has ended."""
    made = [*rows(0.02), row("ridge x4", 0.025, method="ridge", releases=4, options={"num_releases": 4})]
    path = make_run(tmp_path, audits=[make_audit(made=made)])
    Ledger.open(folder_of(path)).conclude()
    return path


def folder_of(run: Path) -> Path:
    (folder,) = (run / "audits").iterdir()
    return folder


def edit(file: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Edit a JSON file by hand."""
    data = json.loads(file.read_text())
    change(data)
    file.write_text(json.dumps(data))


def set_mse(value: float) -> Callable[[dict[str, Any]], Any]:
    return lambda data: data["scores"]["mse"].update(mean=value, low=value, high=value)


def without_seals(folder: Path) -> None:
    """The audit as version 0.2 wrote it."""
    for file in folder.glob("*.json"):
        edit(file, lambda data: data.pop("seal"))
    edit(folder / "joined.json", lambda data: data.pop("errors"))


def damage_of(result: AuditResult) -> list[str]:
    return [item.text for item in result.findings if item.code == "row_damaged"]


# joined.json is derived


@pytest.mark.parametrize("sealed", [True, False], ids=["now", "0.2"])
@pytest.mark.parametrize("images", [True, False], ids=["with scores", "without"])
def test_no_word_in_the_join_changes_what_a_reader_gets(run: Path, *, sealed: bool, images: bool) -> None:
    folder = folder_of(run)
    if not sealed:
        without_seals(folder)
    for file in [] if images else folder.glob("*.npz"):
        file.unlink()
    before = joined(folder)
    assert (before.strongest, [item.row for item in before.averaging]) == (DECODER, ["ridge x4"])
    changes: list[dict[str, Any]] = [{"strongest": "mean image"}, {"leaders": ["grey"]}, {"strongest": "nobody"}]
    changes += [{"findings": [{"code": "few_images"}]}, {"averaging": []}, {"averaging": "x"}, {"errors": {DECODER: 9}}]
    for change in changes:
        whole = (folder / "joined.json").read_bytes()
        edit(folder / "joined.json", lambda data, change=change: data.update(change))  # type: ignore[misc]
        after = joined(folder)
        assert (after.strongest, after.leaders, after.rows) == (before.strongest, before.leaders, before.rows), change
        lost = ("averaging" in change and not images) or (sealed and not images)
        assert lost or after == before, change
        (folder / "joined.json").write_bytes(whole)
    (folder / "joined.json").write_bytes(b"{")
    assert joined(folder).strongest == DECODER


def test_the_reproduction_of_the_trial_names_no_blind_guess_as_the_strongest_attack(run: Path, tmp_path: Path) -> None:
    other = make_run(tmp_path, "kmeans")
    edit(folder_of(run) / "joined.json", lambda data: data.update(strongest="mean image"))
    assert describe_runs(run)[0].mse == "0.0200"
    assert make_card(audits_of(run), now=NOW).attacks[0].attack == DECODER
    assert {item.strongest for item in compare([run, other]).runs} == {DECODER}
    (method,) = methods([load_run(run)])
    assert method.entries[0].audit.strongest == DECODER


# rows and their scores


@pytest.mark.parametrize("sealed", [True, False], ids=["now", "0.2"])
def test_an_edited_row_is_damaged_named_with_its_command_and_not_the_strongest(run: Path, *, sealed: bool) -> None:
    folder = folder_of(run)
    if not sealed:
        without_seals(folder)
    edit(folder / "mean-image.json", set_mse(0.0001))
    result = joined(folder)
    damaged = result.row("mean image")
    assert (damaged.outcome, damaged.scores, result.strongest) == ("damaged", {}, DECODER)
    assert result.missing == ["mean image"], "the same command repeats it"
    file = "mean-image.json" if sealed else "mean-image.json or mean-image.npz"
    command = "attncem audit none --weights epoch-00009 --suite quick --threat held_out"
    reason = f"{file} was changed after it was written; repeat the row: {command}"
    assert damage_of(result) == [f"mean image: damaged, its numbers are not used: {reason}"]
    assert any(reason in words for words in run_warnings(load_run(run)))
    assert result.remaining["mse"].floor == "class mean", "another guess is there to compare with"


def test_without_scores_and_without_a_hash_an_edit_cannot_be_known(run: Path) -> None:
    folder = folder_of(run)
    without_seals(folder)
    for file in folder.glob("*.npz"):
        file.unlink()
    edit(folder / "ridge.json", set_mse(0.001))
    assert joined(folder).strongest == "ridge"


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data["scores"]["ssim"].update(mean=0.1),
        lambda data: data["scores"]["mse"]["per_class"].reverse(),
        lambda data: data["verdict"].update(reliable=False),
        lambda data: data.update(seconds=0.5),
        lambda data: data.update(name="grey"),
        lambda data: data["pictures"].pop(),
        lambda data: data["seal"]["files"].clear(),
        lambda data: data.update(further_numbers=1),
    ],
)
def test_every_entry_of_a_row_is_covered(run: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    edit(folder_of(run) / "ridge.json", change)
    assert joined(folder_of(run)).row("ridge").outcome == "damaged"


def test_spaces_and_the_order_of_keys_do_not_matter(run: Path) -> None:
    before = joined(folder_of(run))
    for file in folder_of(run).glob("*.json"):
        file.write_text(json.dumps(json.loads(file.read_text()), indent=7, sort_keys=True).replace("\n", "\r\n"))
    assert joined(folder_of(run)) == before


def test_scores_of_other_images_are_damage_and_missing_ones_are_not(run: Path) -> None:
    folder = folder_of(run)
    shutil.copy(folder / "grey.npz", folder / "ridge.npz")
    assert joined(folder).row("ridge").outcome == "damaged"
    with pytest.raises(
        RunError, match=r"ridge\.npz is damaged: it was changed after it was written; repeat the row: at"
    ):
        Ledger.open(folder).scores("ridge")
    (folder / "ridge.npz").unlink()
    assert joined(folder).row("ridge").ok


def test_a_row_of_another_audit_does_not_belong(run: Path) -> None:
    other = write_audit(run, make_audit(id="other-audit", suite="standard"))
    for kind in ("json", "npz"):
        shutil.copy(other / f"ridge.{kind}", folder_of_id(run, "quick-audit") / f"ridge.{kind}")
    assert joined(folder_of_id(run, "quick-audit")).row("ridge").outcome == "damaged"


def folder_of_id(run: Path, name: str) -> Path:
    return run / "audits" / name


def test_an_edited_plan_is_named(run: Path) -> None:
    edit(folder_of(run) / "audit.json", lambda data: data["accuracy"].update(mean=0.999))
    with pytest.raises(
        RunError, match=r"audit\.json is damaged: it was changed after it was written; move .* elsewhere"
    ):
        load_run(run)
    assert describe_runs(run)[0].mse == "?"


def test_a_state_that_was_changed_is_not_used(tmp_path: Path) -> None:
    ledger = Ledger.begin(tmp_path, make_plan(rows=["ridge"]))
    ledger.write(row("ridge", 0.03), RowFiles(state=b"weights"))
    assert ledger.state_file("ridge") is not None
    (ledger.path / "ridge.safetensors").write_bytes(b"other weights")
    with pytest.raises(
        RunError, match=r"ridge\.safetensors is damaged: it was changed .*; repeat the row: the command t"
    ):
        ledger.state_file("ridge")


def test_a_damaged_row_is_named_in_a_comparison_and_not_compared(run: Path, tmp_path: Path) -> None:
    edit(folder_of(run) / "decoder-small.json", set_mse(0.9))
    compared = compare([run, make_run(tmp_path, "kmeans")])
    (damaged,) = (item for item in compared.findings if item.code == "row_damaged")
    assert damaged.text.startswith("none: decoder small: damaged")


def test_a_row_that_is_not_there_is_named() -> None:
    audit = replace(make_audit(), strongest="nobody")
    with pytest.raises(
        RunError, match=r"the audit quick-audit has no row 'nobody'; its rows are grey, mean image, class"
    ):
        audit.strongest_attack  # noqa: B018 - the property is what is tested


# archives


def test_results_without_scores_keep_the_ranking_on_shared_images(tmp_path: Path) -> None:
    """On all of its images the decoder is stronger, on the images that both saw it is not."""
    plan = make_plan(rows=["ridge", DECODER])
    ledger = Ledger.begin(tmp_path, plan)
    few, many = row("ridge", 0.03, num_images=4), row(DECODER, 0.02, num_images=100)
    values = np.where(np.arange(100) < 4, 0.05, 0.02 - 0.03 * 4 / 96)
    ledger.write(few, RowFiles(ImageScores(np.arange(4), {"mse": np.full(4, 0.03)})))
    ledger.write(many, RowFiles(ImageScores(np.arange(100), {"mse": values})))
    assert ledger.conclude().strongest == "ridge"
    copied = tmp_path / "archive"
    for name, data in thinned_audit(ledger.path).items():
        (copied / name).parent.mkdir(parents=True, exist_ok=True)
        (copied / name).write_bytes(data)
    assert not list(copied.glob("*.npz"))
    assert joined(copied).strongest == "ridge" and not damage_of(joined(copied))
    edit(copied / "joined.json", lambda data: data["errors"].update({"ridge": 1.0}))
    fallen_back = joined(copied)
    assert fallen_back.strongest == DECODER, "by the means in the rows"
    assert "images_missing" in {item.code for item in fallen_back.findings}
    edit(copied / "ridge.json", set_mse(0.001))
    assert joined(copied).row("ridge").outcome == "damaged"


# kills

KILLS = """
import os, signal, sys
from pathlib import Path

CALLS = ("open", "os.rename", "os.remove", "os.link")

def kill_at(number):
    done = 0
    def hook(event, arguments):
        nonlocal done
        if event in CALLS and not (event == "open" and not str(arguments[0]).startswith(ROOT)):
            done += 1
            if done > number:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)

def killed(number, work):
    child = os.fork()
    if child == 0:
        kill_at(number)
        work()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL

ROOT = sys.argv[1]
from made_runs import make_audit, pictures, row
from attncem.records.ledger import Ledger, RowFiles, joined
from attncem.records.image_scores import ImageScores
import numpy as np

MADE = [row("grey", 0.07, kind="floor", num_images=3), row("ridge", 0.03, num_images=4)]
PLAN = make_audit(made=MADE).plan

def write(root, wanted):
    ledger = Ledger.begin(root, PLAN)
    with ledger.held():
        done = {it.name for it in ledger.rows() if not it.unfinished}
        for item in MADE:
            if item.name in wanted and item.name not in done:
                scores = ImageScores(np.arange(item.num_images), {"mse": np.full(item.num_images, item.mse.mean)})
                ledger.write(item, RowFiles(scores, {}, b"state of " + item.name.encode()))
        ledger.conclude()

number = 0
while True:
    root = Path(ROOT) / str(number)
    write(root, ["grey"])
    (folder,) = root.iterdir()
    if number % 3 == 0:  # a row that is repeated because it was changed
        file = folder / "grey.json"
        file.write_text(file.read_text().replace("0.07", "0.01"))
    ended = not killed(number, lambda: write(root, ["grey", "ridge"]))
    result = joined(folder)
    damaged = [it.name for it in result.rows if it.outcome == "damaged"]
    assert damaged in ([], ["grey"] if number % 3 == 0 else []), (number, damaged)
    write(root, ["grey", "ridge"])
    whole = joined(folder)
    assert [(it.name, it.outcome) for it in whole.rows] == [(it.name, "ok") for it in MADE], number
    assert whole.strongest == "ridge" and Ledger.open(folder).state_file("ridge").read_bytes() == b"state of ridge"
    assert not list(folder.rglob(".partial-*"))
    if ended:
        break
    number += 1
print(number)
"""


def test_an_audit_killed_at_any_moment_has_no_damaged_row(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLS, str(tmp_path)]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20
