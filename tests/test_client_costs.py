"""What one image costs on the client: measured once after the training, kept apart from hashes, shown where known."""

from __future__ import annotations

import copy
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
from torch import Tensor, nn

import onnx_making
from attncem.base.types import RunError
from attncem.cli.main import main
from attncem.judging import client_timing
from attncem.judging.client_timing import time_run
from attncem.judging.opening import open_run
from attncem.records.study.runs import load_runs
from attncem.reporting import compare, privacy_card, report, summary_table
from attncem.reporting.campaign import tables as campaign_tables
from attncem.reporting.campaign.load import load_campaign
from attncem.reporting.client_costs import LATER, milliseconds
from attncem.reporting.comparison.page import cost_table
from attncem.reporting.runs import tables
from attncem.reporting.runs.methods import methods
from attncem.reporting.runs.report_tables import headline_table
from attncem.reporting.table_formats import as_csv
from attncem.training import client_time
from attncem.training.client_time import ClientTime, time_client
from made_campaigns import Made, make_campaign
from made_runs import NOW, make_audit, make_run, rewrite

SHAPE = (1, 28, 28)
COSTS = {
    "client_activation_bytes": 65_536,
    "client_milliseconds": 1.25,
    "client_milliseconds_onnx": 0.5,
    "client_timed_on": "A Processor",
}


class Slow(nn.Module):
    """Takes a tenth of a second of the processor, and notes how it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[bool, int, bool]] = []

    def __deepcopy__(self, memo: object) -> Slow:
        return self

    def forward(self, x: Tensor) -> Tensor:
        self.calls.append((self.training, torch.get_num_threads(), torch.is_grad_enabled()))
        start = time.thread_time()
        while time.thread_time() < start + 0.1:
            pass
        return x


class Uncopied(nn.Module):
    """Cannot be copied, as a module that holds a lock."""

    def __deepcopy__(self, memo: object) -> NoReturn:
        raise TypeError("it holds a lock")


def test_a_slow_client_is_measured_in_bounded_time_on_one_thread() -> None:
    client = Slow()
    torch.set_num_threads(2)
    try:
        taken = time_client(client, SHAPE, onnx=False)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert taken.client_milliseconds is not None and 100 <= taken.client_milliseconds < 1000
    assert taken.client_timed_on and taken.client_milliseconds_onnx is None
    assert 2 <= len(client.calls) <= 4 and set(client.calls) == {(False, 1, False)}


def test_a_client_that_cannot_be_measured_has_no_time_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert time_client(Uncopied(), SHAPE, onnx=True) == ClientTime()

    def fails(module: nn.Module, example: Tensor) -> bytes:
        raise RunError("torch cannot export it as ONNX")

    monkeypatch.setattr(client_time, "export_onnx", fails)
    taken = time_client(nn.Conv2d(1, 3, 7, 7), SHAPE, onnx=True)
    assert (taken.client_milliseconds or 0) > 0 and taken.client_milliseconds_onnx is None


def test_onnxruntime_is_measured_on_the_exported_file(monkeypatch: pytest.MonkeyPatch) -> None:
    made = onnx_making.model([onnx_making.conv()]).SerializeToString()
    monkeypatch.setattr(client_time, "export_onnx", lambda module, example: made)
    assert (time_client(nn.Conv2d(1, 3, 7, 7), SHAPE, onnx=True).client_milliseconds_onnx or 0) > 0


@pytest.mark.slow
def test_an_exported_client_is_measured() -> None:
    client = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU())
    before = copy.deepcopy(client.state_dict())
    assert (time_client(client, SHAPE, onnx=True).client_milliseconds_onnx or 0) > 0
    assert client.training and all(torch.equal(before[name], value) for name, value in client.state_dict().items())


def test_a_training_measures_its_client_and_no_hash_depends_on_it(
    small_run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = shutil.copytree(small_run(), tmp_path / "run")
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["client_milliseconds"] > 0 and manifest["client_timed_on"]
    assert manifest["client_milliseconds_onnx"] is None, "a short training does not pay seconds for it"
    opened = open_run(run)
    first = opened.subject()
    assert {name: getattr(first, name) for name in COSTS} == {name: manifest[name] for name in COSTS}

    monkeypatch.setattr(client_time, "export_onnx", lambda module, example: b"not an ONNX file")
    measured = time_run(run)
    again = open_run(run)
    assert again.subject() == replace(first, **measured._asdict())
    assert (again.fingerprint, again.data_sha256) == (opened.fingerprint, opened.data_sha256)
    changed = json.loads((run / "manifest.json").read_text())
    assert {name for name in manifest if manifest[name] != changed[name]} <= set(ClientTime._fields)


def test_the_command_measures_every_finished_run_of_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done, other, running = make_run(tmp_path), make_run(tmp_path, "gated"), make_run(tmp_path, "kmeans")
    rewrite(running / "manifest.json", {"status": "running"})
    for run in (done, other):
        rewrite(run / "manifest.json", {"best": {"checkpoint": "epoch-00009", "epoch": 9, "validation_accuracy": 0.9}})
    times = {done.name: ClientTime(1.25, 0.5, "A Processor"), other.name: ClientTime()}
    monkeypatch.setattr(client_timing, "time_run", lambda run: times[run.path.name])
    assert main(["runs", str(tmp_path), "--time-client", "--json"]) == 0
    shown = capsys.readouterr()
    assert len(json.loads(shown.out)["runs"]) == 3
    assert shown.err.splitlines() == [
        "gated: its client cannot be measured here",
        "none: 1.25 ms with torch and 0.500 ms with onnxruntime, on one thread of A Processor",
    ]


def test_a_run_on_the_client_alone_is_timed_whole_and_a_damaged_one_stops_nothing(
    small_run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = {"on_device": True, "channel": [{"name": "identity"}], "model.bottleneck": None, "model.sigmoid": False}
    timed, measure = list[tuple[int, ...]](), client_time.median_milliseconds
    monkeypatch.setattr(
        client_time, "on_cpu", lambda client: timed.append(tuple(client(torch.zeros(2, *SHAPE)).shape)) or client
    )
    monkeypatch.setattr(client_time, "export_onnx", lambda module, example: b"not an ONNX file")
    made = small_run("demo-none", **alone)
    assert timed == [(2, 10)], "the head is the client's too"
    run = shutil.copytree(made, tmp_path / "b-alone")
    damaged = shutil.copytree(small_run(), tmp_path / "a-damaged")
    shutil.rmtree(damaged / "checkpoints")
    monkeypatch.setattr(client_time, "median_milliseconds", lambda call: (measure(call), 12.5)[1])
    assert main(["runs", str(tmp_path), "--time-client"]) == 0
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("a-damaged: not measured: ") and second.startswith("b-alone: 12.5 ms with torch")
    assert timed[-1] == (2, 10)
    facts = json.loads((run / "manifest.json").read_text())
    assert facts["client_milliseconds"] == 12.5 and facts["client_timed_on"]


# tables


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """A run that knows its costs, and one of an older version."""
    made = [make_run(tmp_path, audits=[make_audit(subject=COSTS)]), make_run(tmp_path, "kmeans")]
    rewrite(made[0] / "manifest.json", COSTS)
    return made


def test_a_report_shows_the_costs_that_are_known(runs: list[Path], tmp_path: Path) -> None:
    page = report(runs, tmp_path / "r.html", csv=True, now=NOW).read_text(encoding="utf-8")
    header, first, *others = [line.split(",") for line in (tmp_path / "r.csv").read_text().splitlines()]
    assert header == [*tables.CSV_COLUMNS, *tables.LATER_COLUMNS]
    assert first[-4:] == ["65536", "1.25", "0.5", "A Processor"]
    assert all(line[-4:] == [""] * 4 for line in others)
    assert "1.25" in page and page.count("A Processor") >= 3, "below both times, and in the settings"


def test_a_table_without_any_of_them_has_no_column_for_them(runs: list[Path]) -> None:
    older = load_runs(runs[1:])
    cells = tables.headline(older, _entries(older[0]))
    assert tables.csv_text(cells).splitlines()[0] == ",".join(tables.CSV_COLUMNS)
    table = headline_table(methods(older), cells, mixed=False)
    assert not set(LATER) & {column.key for column in table.columns}


def test_a_time_that_was_measured_after_the_audit_is_shown(runs: list[Path]) -> None:
    rewrite(runs[1] / "manifest.json", COSTS)
    assert all(summary_table([make_audit("kmeans")])[0][name] is None for name in LATER)
    (run,) = load_runs(runs[1:])
    (row,) = [row for row in tables.headline([run], _entries(run)) if row["kind"] == "run"]
    assert {name: row[name] for name in COSTS} == COSTS


def _entries(run: Any) -> list[Any]:
    return [entry for method in methods([run]) for entry in method.entries]


def test_a_comparison_and_a_card_name_what_is_known(runs: list[Path], tmp_path: Path) -> None:
    lines = as_csv(cost_table(compare(runs))).splitlines()
    assert lines[0] == "runs,client_parameters,client_macs,client_activation_bytes," + ",".join(LATER[1:])
    assert lines[1:] == ["none,10234,1234567,65536,1.25,0.5", "kmeans,10234,1234567,,,"]
    card, _ = privacy_card(runs[0], tmp_path / "card", now=NOW)
    (file,) = tmp_path.rglob("*card*.html")
    page = file.read_text(encoding="utf-8")
    assert card.subject.client_milliseconds == 1.25
    assert "1.25 ms with torch and 0.500 ms with onnxruntime, on one thread of A Processor" in page


def test_a_campaign_takes_the_median_time_of_an_arm(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path / "c", Made({"none": {"config": "demo-none"}}, portraits=False))
    view = load_campaign(folder.path)
    kind = view.study.kinds[0]
    assert not set(LATER) & {column.key for column in campaign_tables.costs(view.study, kind).columns}
    for cell, taken in zip(folder.plan.cells, (1.0, 9.0, 2.0), strict=True):
        rewrite(folder.run_path(cell.id) / "manifest.json", {**COSTS, "client_milliseconds": taken})
    table = campaign_tables.costs(load_campaign(folder.path).study, kind)
    places = {column.key: place for place, column in enumerate(table.columns)}
    (row,) = table.rows
    assert [row[places[name]].value for name in LATER] == [65_536, 2.0, 0.5]
    assert row[places["client_milliseconds"]].small == "A Processor"


@pytest.mark.parametrize(("value", "shown"), [(0.0337, "0.034"), (1.25, "1.25"), (12.345, "12.3"), (1234.5, "1234")])
def test_milliseconds_have_three_digits(value: float, shown: str) -> None:
    assert milliseconds(value) == shown
