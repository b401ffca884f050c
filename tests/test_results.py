"""Every committed result is what its command would write: the same columns, keys and row names."""

from __future__ import annotations

import csv
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

import attncem
import benchmarks.__main__ as benchmark
from attncem.auditing.judges import CERTIFICATES
from attncem.config.attacks import DecoderOptions
from attncem.config.load import load, load_config
from attncem.config.suites import Suite
from attncem.demonstration import DEMO_CONFIGS
from attncem.metrics import METRICS
from attncem.reporting import health
from attncem.reporting.tables import CSV_COLUMNS
from attncem.results.audit import AuditResult, Score
from attncem.results.joining import FAR_BELOW, UNDEFENDED, join
from attncem.results.threats import THREATS
from attncem.surrogates import SURROGATES

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"


def script(name: str) -> ModuleType:
    """A script as a module: its constants and functions, nothing run."""
    spec = importlib.util.spec_from_file_location(f"script_{name}", ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def table(name: str) -> tuple[list[str], list[dict[str, str]]]:
    with (RESULTS / name).open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        return list(reader.fieldnames or ()), list(reader)


def read(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((RESULTS / name).read_text(encoding="utf-8"))
    return data


def shape(value: Any) -> Any:
    """The keys of nested objects, without their values."""
    return {key: shape(item) for key, item in value.items()} if isinstance(value, dict) else None


# stand-ins for a run and its audit, for scripts that train


def made_score(mean: float = 0.5) -> Score:
    return Score(mean, mean, mean, mean, mean)


def made_row(name: str) -> SimpleNamespace:
    verdict = SimpleNamespace(gain_of_doubling=0.01)
    return SimpleNamespace(
        name=name,
        mse=made_score(),
        scores={"ssim": made_score(), "mse": made_score(), "structure": made_score()},
        verdict=verdict,
    )


def stand_in(monkeypatch: pytest.MonkeyPatch, rows: list[str]) -> None:
    attacks = [made_row(name) for name in rows]
    manifest = {"steps": "plain", "split": {"train": 9}, "best": {"validation_accuracy": 0.5}}
    run = SimpleNamespace(manifest=manifest, records=lambda *_: [{"kind": "train", "seconds": 1.0}] * 2)
    audited = SimpleNamespace(
        attacks=attacks,
        strongest_attack=attacks[-1],
        known_accuracy=made_score(),
        subject=SimpleNamespace(penalty_weight=1.0),
        plan=SimpleNamespace(device="cpu"),
    )
    monkeypatch.setattr(attncem, "train", lambda *_, **__: run)
    monkeypatch.setattr(attncem, "audit", lambda *_, **__: audited)


# file by file


def check_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    header, rows = table("demo.csv")
    assert header == list(CSV_COLUMNS)
    configs = [load_config(name).config for name in DEMO_CONFIGS]
    runs, floors = rows[: len(configs)], rows[len(configs) :]
    told = [(row["kind"], row["run"], row["surrogate"], float(row["penalty_weight"])) for row in runs]
    assert told == [("run", config.name, config.defence, config.training.penalty_weight) for config in configs]
    suite = load(Suite, "quick").config
    assert {row["suite"] for row in runs} == {f"{suite.name} v{suite.version}"}
    blind = [name for name, row in suite.rows.items() if row.name in ("grey", "mean_image", "class_mean")]
    assert [(row["kind"], row["run"]) for row in floors] == [("floor", name) for name in blind]
    assert {row["attack"] for row in runs} <= set(suite.rows)
    assert any(isinstance(row, DecoderOptions) for row in suite.rows.values())


def check_selection(monkeypatch: pytest.MonkeyPatch) -> None:
    chooser, found = script("choose_demo"), read("demo_selection.json")
    stand_in(monkeypatch, list(chooser.SUITE.rows))
    row = chooser.measure(chooser.UNDEFENDED, Path())
    keys = ("front_end", "surrogate", "weight", "noise_std")
    assert [tuple(row[key] for key in keys) for row in found["rows"]] == chooser.SETTINGS
    assert all(list(item) == list(row) for item in found["rows"])
    assert found["allowed_drop"] == chooser.ALLOWED_DROP
    assert found["chosen"] == chooser.choose(found["rows"])


def check_front_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    measured, found = script("front_ends_cifar10"), read("front_ends_cifar10.json")
    rows = [measured.key(row) for row in found["evidence"]]
    assert rows == measured.PARTS["evidence"][1]
    assert [measured.key(row) for row in found["selection"]] in ([], measured.PARTS["selection"][1])
    assert found["train"] == "attncem train " + " ".join(measured.SETTING)
    assert found["attacks"] == {
        name: row.model_dump(mode="json", exclude_defaults=True) for name, row in measured.SUITE.rows.items()
    }
    assert all(list(row["attacks"]) == list(measured.ROWS) for row in found["evidence"])
    assert found["chosen"] == measured.choose(found["selection"])
    assert list(found["chosen"]) == list(measured.LEVELS)
    for level, chosen in found["chosen"].items():
        check_recommended(measured, found["selection"], level, chosen)
    scored = {name for row in found["evidence"] for scores in row["attacks"].values() for name in scores}
    assert scored == {*METRICS, "reliable"}
    page = (ROOT / "docs/front-ends.md").read_text(encoding="utf-8")
    assert measured.renewed(page, found) == page, "run scripts/front_ends_cifar10.py --page"


def check_recommended(measured: ModuleType, rows: list[dict[str, Any]], level: str, chosen: dict[str, Any]) -> None:
    """The configuration is what was chosen, and its second line says what was measured."""
    file = ROOT / f"src/attncem/configs/recommended-{level}.yaml"
    setting = tuple(chosen.values())
    asked = load_config(None, [*measured.SETTING, *measured.overrides(setting), f"name=recommended-{level}"]).config
    assert load_config(f"recommended-{level}").config == asked
    undefended, row = (
        next(row for row in rows if measured.key(row)[0] == of) for of in (measured.SELECTION[0], setting)
    )
    line = file.read_text(encoding="utf-8").splitlines()[1]
    for one in (undefended, row):
        scores = one["attacks"][one["strongest"]]
        assert f"{100 * one['accuracy'][0]:.1f} %" in line
        assert f"{scores['mse'][0]:.4f}" in line and f"{scores['structure'][0]:.4f})" in line


def check_undefended(monkeypatch: pytest.MonkeyPatch) -> None:
    measured, found = script("undefended_accuracy"), read("undefended_cifar10.json")
    stand_in(monkeypatch, list(measured.SUITE.rows))
    assert list(found) == ["schema_version", *measured.measure("data", [], Path())]
    assert found["train"] == "attncem train " + " ".join(measured.SETTING)


def check_noise_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    measured, found = script("noise_speed"), read("noise_speed.json")
    assert (found["numbers"], found["rounds"]) == (measured.COUNT, measured.ROUNDS)
    monkeypatch.setattr(measured, "COUNT", 100)
    monkeypatch.setattr(measured, "ROUNDS", 1)
    again = measured.measure()
    assert shape(found) == shape(again)
    assert list(found["times_as_long_as_torch"]) == list(measured.LAWS)
    assert found["command"] == again["command"]


def check_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    found = read("benchmark.json")
    head = benchmark._head(torch.device("cpu"), tiny=False)
    assert list(found) == ["schema_version", *head, "parts"]
    assert list(found["versions"]) == list(head["versions"])
    assert list(found["parts"]) == list(benchmark.PARTS)
    keys = {"command", "part_seconds", "left_out", "tables"}
    assert all(part.keys() == keys and part["left_out"] == 0 for part in found["parts"].values())
    (memory,) = found["parts"]["memory"]["tables"]
    assert [row["surrogate"] for row in memory["rows"]] == list(SURROGATES)
    steps = found["parts"]["epochs"]["tables"][1]["rows"]
    assert list(dict.fromkeys(row["surrogate"] for row in steps)) == list(SURROGATES)


def check_surrogates(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = script("surrogate_table")
    header, rows = table("surrogates_cifar10.csv")
    stand_in(monkeypatch, list(measured.SUITE.rows))
    assert header == list(measured.measure("none", 0, "data", Path()))
    expected = [(name, float(weight)) for name, weights in measured.WEIGHTS.items() for weight in weights]
    assert [(row["surrogate"], float(row["penalty weight"])) for row in rows] == expected


def check_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    measured, found = script("certificates_demo"), read("certificates_demo.json")
    assert tuple(run["config"] for run in found["runs"]) == measured.CONFIGS
    certificates = [name for name, row in load(Suite, "certificates").config.rows.items() if row.name in CERTIFICATES]
    for run in found["runs"]:
        assert {item["row"] for item in run["bounds"]} | set(run["absent"]) == set(certificates)
        assert all(list(item) == ["row", "bound", *measured.KEYS] for item in run["bounds"])
        assert run["strongest"] == "ridge"


CHECKS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "certificates_demo.json": check_certificates,
    "demo.csv": check_demo,
    "demo_selection.json": check_selection,
    "front_ends_cifar10.json": check_front_ends,
    "undefended_cifar10.json": check_undefended,
    "noise_speed.json": check_noise_speed,
    "benchmark.json": check_benchmark,
    "surrogates_cifar10.csv": check_surrogates,
}
"""What compares each result with its command."""
FILES = sorted(file.name for file in RESULTS.iterdir() if file.is_file())


@pytest.mark.parametrize("name", FILES)
def test_a_result_is_what_its_command_writes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    CHECKS[name](monkeypatch)


def test_the_check_of_the_surrogates_table_works_without_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table of surrogates is not committed now; one with another header, as the last one had, would not pass."""
    measured = script("surrogate_table")
    monkeypatch.setattr(f"{__name__}.RESULTS", tmp_path)
    stand_in(monkeypatch, list(measured.SUITE.rows))
    measured.main("data", str(tmp_path / "surrogates_cifar10.csv"))
    header, _ = table("surrogates_cifar10.csv")
    assert set(measured.HEALTH) <= set(header)
    text = (tmp_path / "surrogates_cifar10.csv").read_text()
    (tmp_path / "surrogates_cifar10.csv").write_text(text.replace("slot_entropy", "entropy"))
    with pytest.raises(AssertionError):
        check_surrogates(monkeypatch)


# references that a result gives to the package


def test_undefended_references_are_those_of_their_files() -> None:
    sources = {name: reference.source for name, reference in UNDEFENDED.items()}
    assert sources == {
        "cifar10": "results/undefended_cifar10.json",
        "fashion_mnist_mini": "results/demo.csv",
    }
    assert UNDEFENDED["cifar10"].accuracy == read("undefended_cifar10.json")["test_accuracy"]
    plain = next(row for row in table("demo.csv")[1] if row["surrogate"] == "none")
    assert UNDEFENDED["fashion_mnist_mini"].accuracy == float(plain["accuracy"])


def audited(dataset: str, accuracy: float) -> AuditResult:
    """An audit of a ten-class model that has no rows."""
    plan: Any = SimpleNamespace(
        subject=SimpleNamespace(dataset=dataset, num_classes=10, client_macs=1, server_macs=1),
        threat=THREATS["train"],
        accuracy=made_score(accuracy),
        rows=[],
        changed=[],
        findings=[],
        num_evaluation=10_000,
        num_auxiliary=0,
        num_train=0,
    )
    return join(plan, [], {})


@pytest.mark.parametrize("accuracy", [0.2445, 0.248, 0.26, 0.2], ids=["002 gmm", "002", "002 tuned", "003"])
def test_the_documents_own_accuracies_are_flagged(accuracy: float) -> None:
    (found,) = audited("cifar10", accuracy).findings
    assert found.code == "far_below_undefended"
    assert f"accuracy {100 * accuracy:.1f} % is far below the 90.0 %" in found.text
    assert "results/undefended_cifar10.json" in found.text


def test_accuracy_is_judged_once_and_only_where_a_reference_is_known() -> None:
    assert [item.code for item in audited("cifar10", 0.1).findings] == ["near_chance"]
    assert audited("cifar10", FAR_BELOW * 0.9001 + 0.001).findings == []
    assert audited("image_folder", 0.24).findings == [], "none was measured"


def test_the_report_takes_the_reference_into_its_verdict_and_says_it_once() -> None:
    poor, fair, unknown = audited("cifar10", 0.24), audited("cifar10", 0.8), audited("image_folder", 0.24)
    assert [health.is_collapsed(audit, None) for audit in (poor, fair, unknown)] == [True, False, False]
    assert health.accuracy_findings(poor, 0.9) == [], "the audit says it itself"
    assert [item.code for item in health.accuracy_findings(unknown, 0.9)] == ["accuracy_collapsed"]
