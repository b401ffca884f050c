"""The benchmark works in its tiny form and counts what it says; the page shows the committed file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import benchmarks.__main__ as command
from attncem.base.types import SCHEMA_VERSION
from attncem.data.readers import read_dataset
from attncem.data.splits import split_data
from attncem.training.surrogates import SURROGATES, build_surrogate
from attncem.training.surrogates.kmeans import KMeansCEM
from benchmarks.baseline import BaselineLoop
from benchmarks.common import EPOCH_IMAGES, NOISE_STD, Setting, Table, add_ratios, bytes_kept, write_cifar10
from benchmarks.floor import work_milliseconds
from benchmarks.tables import fill_page, places, render

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results/benchmark.json"
PAGE = ROOT / "docs/performance.md"
FEW = 500


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(torch.device("cpu"), tmp_path, tiny=True)


@pytest.mark.slow
def test_the_tiny_form_measures_every_part(tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    words = [sys.executable, "-m", "benchmarks", "--tiny", "--device", "cpu", "--out", str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results = json.loads(out.read_text())
    assert results["schema_version"] == SCHEMA_VERSION
    assert list(results["parts"]) == [name for name in command.PARTS if name not in command.ON_REQUEST]
    for name, part in results["parts"].items():
        assert f"## {name}" in done.stdout
        assert part["tables"], name
        rows = [row for table in part["tables"] for row in table["rows"]]
        assert name == "processes" or rows
        assert not [key for row in rows for key in row if key.endswith(command.ABSOLUTE)], "no times from a CPU"
        assert not [row for row in rows if "problem" in row]
        ratios = [value for row in rows for key, value in row.items() if "over_" in key and value is not None]
        assert all(ratio > 0 for ratio in ratios)
    steps = results["parts"]["epochs"]["tables"][1]["rows"]
    assert [row["surrogate"] for row in steps] == list(SURROGATES)
    assert steps[0]["over_none"] == 1
    assert str(tmp_path) not in out.read_text()


# the page


def test_the_page_has_a_place_for_every_part() -> None:
    assert sorted(places(PAGE.read_text())) == sorted(["machine", "goals", *command.PARTS])


def test_the_page_shows_the_committed_results() -> None:
    page = PAGE.read_text()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else None
    assert page == fill_page(page, results)
    assert ("\n| " in page) == (results is not None), "nothing measured, no table; measured, tables"
    if results is not None:
        assert "tiny" not in results["machine"]
        assert not [name for name, part in results["parts"].items() if "error" in part]


def test_a_page_is_filled_and_emptied() -> None:
    rows = [{"surrogate": "none", "step_ms": 1.857, "count": 12345}, {"surrogate": "slot", "step_ms": None}]
    part = {"command": "x", "left_out": 2, "tables": [{"title": "Step", "note": "Of one batch.", "rows": rows}]}
    results = {"machine": "A GPU", "versions": {"torch": "2"}, "parts": {"epochs": part}}
    page = "a\n<!-- benchmark:epochs -->\n<!-- /benchmark:epochs -->\nb\n"
    filled = fill_page(page, results)
    assert "| surrogate | step ms | count |\n|---|--:|--:|\n| none | 1.857 | 12,345 |\n| slot |  |  |\n" in filled
    assert "2 rows were left out" in filled
    assert fill_page(filled, results) == filled
    assert fill_page(filled, None) == page
    assert "**Step.** Of one batch." in render(results)


def test_goals_take_the_worst_row_that_fits() -> None:
    def step(surrogate: str, steps: str, ratio: float) -> dict[str, Any]:
        way = {"batch_size": 128, "precision": "bf16-mixed", "steps": steps}
        return {"surrogate": surrogate, **way, "over_none": ratio}

    own = "surrogate compiled"
    rows = [step("capacity", own, 1.02), step("gated", own, 1.3), step("gated", "captured", 9.0)]
    parts = {
        "epochs": {"command": "", "left_out": 0, "tables": [{"title": "Step", "note": "", "rows": rows}]},
        "memory": {"error": "Traceback\nRuntimeError: no"},
    }
    text = render({"machine": "", "versions": {}, "parts": parts})
    assert "| captured step with capacity, itself compiled, over one without | 1.03 | 1.02 | yes |" in text
    assert "| captured step with gated, itself compiled, over one without | 1.06 | 1.3 | no |" in text
    assert "| peak memory with any surrogate over none | 1.1 |  | not measured |" in text
    assert "failed: RuntimeError: no" in text


# the command


def fake(rows: list[dict[str, Any]]) -> Any:
    return lambda setting: [Table("T", rows)]


def broken(setting: Setting) -> list[Table]:
    raise RuntimeError("no such luck")


def test_a_part_that_fails_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "new" / "results.json"
    monkeypatch.setitem(command.PARTS, "floor", broken)
    monkeypatch.setitem(command.PARTS, "memory", fake([{"ratio": 2.0, "step_ms": 3.0}]))
    words = ["--device", "cpu", "--out", str(out), "--cifar10", "/somewhere"]
    assert command.main([*words, "--parts", "memory,floor"]) == 1
    parts = json.loads(out.read_text())["parts"]
    assert list(parts) == ["floor", "memory"]
    assert "no such luck" in parts["floor"]["error"]
    assert parts["memory"]["tables"][0]["rows"] == [{"ratio": 2.0}]
    assert "/somewhere" not in parts["memory"]["command"]
    monkeypatch.setitem(command.PARTS, "floor", fake([{"ratio": 1.0}]))
    assert command.main([*words, "--parts", "floor"]) == 0, "measured again; the other part stays"
    parts = json.loads(out.read_text())["parts"]
    assert parts["floor"]["tables"][0]["rows"] == [{"ratio": 1.0}]
    assert parts["memory"]["tables"][0]["rows"] == [{"ratio": 2.0}]


def test_results_of_different_machines_are_not_mixed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "results.json"
    out.write_text(json.dumps({"schema_version": 1, "machine": "another", "versions": {}, "parts": {}}))
    assert command.main(["--device", "cpu", "--out", str(out), "--parts", "processes"]) == 2
    assert "another" in capsys.readouterr().err
    assert json.loads(out.read_text())["machine"] == "another"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--parts", "epoch"], "epoch is unknown (allowed: floor"),
        (["--device", "tpu"], "allowed: auto, cpu, cuda"),
    ],
)
def test_what_cannot_work_is_said(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(words) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("part", command.ON_REQUEST)
def test_long_parts_need_a_gpu(part: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--device", "cpu", "--parts", part]) == 1
    assert "needs a GPU" in capsys.readouterr().out


# what is measured


def test_no_row_begins_after_the_time(setting: Setting) -> None:
    assert list(setting.in_time("abc")) == ["a", "b", "c"]
    late = replace(setting, deadline=0.0)
    assert list(late.in_time("abc")) == []
    assert (setting.left_out, late.left_out) == (0, 3)


def test_made_up_images_are_an_epoch_of_cifar10(setting: Setting) -> None:
    write_cifar10(setting.folder / "made-up", 200, 50)
    raw = read_dataset("cifar10", setting.folder / "made-up")
    assert raw.train_images.shape == (200, 3, 32, 32)
    assert np.bincount(raw.test_labels).tolist() == [5] * 10
    options = replace(setting, tiny=False).config(setting.plain, FEW, epochs=2).data
    labels = np.arange(EPOCH_IMAGES) % 10
    assert len(split_data(replace(raw, train_labels=labels), options).train) == 50_000


def test_annotations_of_a_trace_are_not_counted() -> None:
    events = [
        {"cat": "kernel", "name": "conv", "dur": 1500},
        {"cat": "gpu_memset", "name": "Memset", "dur": 500},
        {"cat": "gpu_user_annotation", "name": "Optimizer.step#SGD.step", "dur": 1500},
        {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "dur": 9000},
        {"ph": "M", "name": "process_name"},
    ]
    assert work_milliseconds(events) == 2.0
    with pytest.raises(RuntimeError, match="no kernels"):
        work_milliseconds(events[2:])


def test_bytes_kept_for_the_backward() -> None:
    weight = torch.ones(10, 10, requires_grad=True)
    x = torch.ones(5, 10)
    assert bytes_kept(lambda: (x @ weight).exp().sum(), [weight]) == 4 * (5 * 10 + 5 * 10), "x and the result of exp"


def test_ratios_are_within_one_way_of_training() -> None:
    def row(surrogate: str, fast: str, time: float) -> dict[str, Any]:
        return {"surrogate": surrogate, "batch_size": 1, "precision": "p", "fast": fast, "step_ms": time}

    rows = [row("none", "off", 8.0), row("none", "capture", 2.0), row("slot", "capture", 3.0), row("slot", "x", 4.0)]
    assert [found["over_none"] for found in add_ratios(rows, "step_ms")] == [1.0, 1.0, 1.5, None]
    assert [found["over_first"] for found in add_ratios(rows, "step_ms")] == [1.0, 0.25, 0.375, 0.5]


def test_the_baselines_loop_computes_our_kmeans(setting: Setting) -> None:
    torch.manual_seed(0)
    config = setting.config(replace(setting.plain, surrogate="kmeans"), FEW, epochs=2)
    loop = BaselineLoop(config, setting.device, workers=0)
    features, labels = loop._all_features()
    loop.cluster(features, labels)
    surrogate = build_surrogate(
        "kmeans", feature_shape=features.shape[1:], num_classes=10, noise_std=NOISE_STD, num_clusters=5
    )
    assert isinstance(surrogate, KMeansCEM)
    surrogate.centres.copy_(torch.stack([known.centres for known in loop.clusters]))
    surrogate.variances.copy_(torch.stack([known.variances for known in loop.clusters]))
    surrogate.weights.copy_(torch.stack([known.shares for known in loop.clusters]))
    surrogate.class_counts.fill_(len(labels) / 10)
    surrogate.fitted.fill_(True)
    # spread out, or the penalty is near its hinge
    z, y = (features[::7] + 0.3 * torch.randn_like(features[::7])).requires_grad_(), labels[::7]
    expected = surrogate(z, y).loss
    own = loop.penalty(z, y)
    torch.testing.assert_close(own, expected, rtol=1e-4, atol=1e-6)
    assert own > 0.1
    torch.testing.assert_close(*(torch.autograd.grad(loss, z)[0] for loss in (own, expected)), rtol=1e-3, atol=1e-7)
    before = [parameter.clone() for parameter in loop.model.parameters()]
    loop.step(torch.rand(32, *loop.images[0][0].shape), labels[:32])
    assert all(not torch.equal(a, b) for a, b in zip(before, loop.model.parameters(), strict=True))
