"""Conditions that an audit must not meet: their grammar, what is compared, what else fails, and the exit codes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import attncem
from attncem.base.progress import silent
from attncem.base.types import ConfigError
from attncem.cli.main import main
from attncem.judging.attacks import ATTACKS
from attncem.judging.conditions import Checked, Condition, check, parse_conditions
from attncem.records.audit import AuditResult, Row, Score, Verdict
from attncem.records.metrics import METRICS

SCORES = {
    "mse": Score(0.020, 0.018, 0.022, 0.005, 0.060, [0.010, None, 0.030], 0.019),
    "ssim": Score(0.50, 0.48, 0.52, 0.30, 0.70, [0.4, 0.5, 0.6], None),
}
ACCURACY = Score(0.80, 0.78, 0.82, 0.0, 1.0, [0.9, 0.9, 0.3], 1.0)


@pytest.fixture(scope="module")
def plan(small_run: Callable[..., Path]) -> Any:
    """The plan of a real audit."""
    return attncem.audit(small_run("demo-none"), "quick", only=["grey"], progress=silent).plan


def row(name: str, **changes: Any) -> Row:
    made = Row(name, name, "attack", "ok", "", {}, 0, 1, num_images=10, scores=SCORES)
    return replace(made, **changes)


def result(plan: Any, *rows: Row, **changes: Any) -> AuditResult:
    """An audit of these rows, the first one the strongest."""
    names = [item.name for item in rows]
    plan = replace(plan, rows=names, accuracy=ACCURACY, **changes)
    return AuditResult(plan, list(rows), names[0] if names else "", [])


def checked(audit: AuditResult, *conditions: str, rows: list[str] | None = None) -> list[Checked]:
    return check(audit, parse_conditions(conditions), rows)


def codes(found: list[Checked]) -> list[str]:
    return [item.said.code for item in found if item.failed]


# grammar


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mse<0.02", Condition("mse", "", "<", 0.02)),
        (" ssim >= 5e-1 ", Condition("ssim", "", ">=", 0.5)),
        ("mse.p05<=.005", Condition("mse", "p05", "<=", 0.005)),
        ("structure.class_min<1.", Condition("structure", "class_min", "<", 1.0)),
        ("accuracy.balanced<0.8", Condition("accuracy", "balanced", "<", 0.8)),
        ("psnr>-3", Condition("psnr", "", ">", -3.0)),
    ],
)
def test_conditions_are_read(text: str, expected: Condition) -> None:
    assert parse_conditions([text]) == [expected]
    assert parse_conditions([str(expected)]) == [expected]


def test_every_measure_can_be_asked_for() -> None:
    parts = ("", ".p05", ".p95", ".median", ".class_min", ".class_max", ".balanced")
    texts = [f"{name}{part}<0.5" for name in (*METRICS, "accuracy") for part in parts]
    assert [str(condition) for condition in parse_conditions(texts)] == texts


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mes<0.02", "did you mean mse?"),
        ("mse.class_mim<0.02", "did you mean class_min?"),
        ("lpips<1", "lpips is not a measure"),
        ("mse", "must be MEASURE"),
        ("mse=0.02", "must be MEASURE"),
        ("mse<", "must be MEASURE"),
        ("mse<nan", "must be MEASURE"),
        ("mse<0.02 or ssim>0.5", "must be MEASURE"),
        ("0.02>mse", "must be MEASURE"),
        ("accuracy<80", "did you mean 0.8?"),
    ],
)
def test_a_mistake_says_what_is_allowed(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_conditions(["mse<0.02", text])
    assert message in str(error.value)
    assert repr(text) in str(error.value)


# what is compared


@pytest.mark.parametrize(
    ("text", "fails"),
    [
        ("mse<0.0185", True),  # the low end is 0.018
        ("mse<0.0175", False),
        ("mse<0.018", False),
        ("mse<=0.018", True),
        ("ssim>0.51", True),  # the high end is 0.52
        ("ssim>0.53", False),
        ("accuracy<0.79", True),
        ("accuracy<0.77", False),
        ("mse.p05<0.006", True),
        ("mse.p05<0.004", False),
        ("mse.p95>0.05", True),
        ("mse.median<0.0185", False),  # as it is, whatever the interval
        ("mse.class_min<0.011", True),
        ("mse.class_min<0.009", False),
        ("mse.class_max>0.029", True),
        ("accuracy.balanced<0.71", True),
        ("accuracy.balanced<0.69", False),
    ],
)
def test_the_unsafe_end_is_compared(plan: Any, text: str, fails: bool) -> None:
    found = checked(result(plan, row("ridge")), text)
    assert [item.failed for item in found] == [fails]
    assert text in found[0].said.text


def test_the_line_says_what_was_compared(plan: Any) -> None:
    (found,) = checked(result(plan, row("ridge")), "mse<0.0185")
    assert found.said.text == "ridge: mse<0.0185 holds: 0.018 (mean 0.02, 95 % interval 0.018 to 0.022)"


def test_the_strongest_row_is_tested_and_no_other(plan: Any) -> None:
    weak = row("other", scores={"mse": replace(SCORES["mse"], low=0.001)})
    assert codes(checked(result(plan, row("ridge"), weak), "mse<0.01")) == []
    assert codes(checked(result(plan, weak, row("ridge")), "mse<0.01")) == ["fails_mean"]


@pytest.mark.parametrize("text", ["structure<0.1", "ssim.median<0.1"])
def test_a_number_that_is_not_there_cannot_be_passed(plan: Any, text: str) -> None:
    assert codes(checked(result(plan, row("ridge")), text)) == ["fails_not_known"]


def test_a_model_without_a_server_half_passes_no_accuracy(plan: Any) -> None:
    audit = result(plan, row("ridge"))
    assert codes(checked(replace(audit, plan=replace(audit.plan, accuracy=None)), "accuracy<0.1")) == [
        "fails_not_known"
    ]


# what else fails


def test_an_audit_without_attacks_passes_nothing(plan: Any) -> None:
    assert codes(checked(result(plan), "mse<0.001")) == ["fails_no_attack"]


def unreliable(gain: float | None, mse: float = 0.020) -> Row:
    scores = {"mse": replace(SCORES["mse"], mean=mse)}
    return row("decoder", verdict=Verdict(False, gain), scores=scores)


def test_an_unreliable_row_fails_where_it_leads_or_may_lead(plan: Any) -> None:
    best = row("ridge")
    assert codes(checked(result(plan, unreliable(0.03), best), "mse<0.001")) == ["fails_unreliable"]
    assert codes(checked(result(plan, best, unreliable(0.10, mse=0.021)), "mse<0.001")) == ["fails_unreliable"]
    assert codes(checked(result(plan, best, unreliable(None, mse=0.050)), "mse<0.001")) == ["fails_unreliable"]
    assert codes(checked(result(plan, best, unreliable(0.10, mse=0.050)), "mse<0.001")) == []


def test_a_learned_attack_that_leaves_the_lead_to_what_it_must_beat_fails(plan: Any) -> None:
    beaten = row("decoder", must_beat=["ridge"])
    assert codes(checked(result(plan, row("ridge"), beaten), "mse<0.001")) == ["fails_should_lead"]
    assert codes(checked(result(plan, row("other"), row("ridge"), beaten), "mse<0.001")) == []


def test_missing_and_failed_rows_fail_and_others_do_not(plan: Any) -> None:
    audit = result(plan, row("ridge"), row("failed", outcome="failed"), row("none", outcome="not_applicable"))
    audit = replace(audit, plan=replace(audit.plan, rows=[*audit.plan.rows, "waiting"]))
    (_, found) = checked(audit, "mse<0.001")
    assert (found.said.code, found.said.values["rows"]) == ("fails_missing", "failed, waiting")
    assert codes(checked(audit, "mse<0.001", rows=["ridge", "none"])) == []
    assert codes(checked(audit, "mse<0.001", rows=["ridge", "waiting"])) == ["fails_missing"]


# the command


def audited(run: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    capsys.readouterr()
    code = main(["audit", str(run), "--suite", "quick", "--device", "cpu", *words])
    return code, capsys.readouterr().err


ROWS = ("--skip", "decoder", "--skip", "nearest_neighbour")


def test_exit_codes(small_run: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    run = small_run("demo-none")
    code, said = audited(run, capsys, *ROWS, "--fail-if", "mse<1e-6", "--fail-if", "mse.class_min<1e-6")
    assert code == 0
    assert said.count(f"pass: {run}: ridge: mse") == 2
    code, said = audited(run, capsys, *ROWS, "--fail-if", "mse<1e-6", "--fail-if", "ssim>-1")
    assert code == 3
    assert f"pass: {run}: ridge: mse<1e-06 does not hold" in said
    assert f"fail: {run}: ridge: ssim>-1 holds" in said
    assert audited(run, capsys, *ROWS)[0] == 0, "without conditions nothing is tested"


@pytest.mark.parametrize("condition", ["mes<0.02", "mse", "mse.p5<1"])
def test_a_mistake_costs_no_work(tmp_path: Path, capsys: pytest.CaptureFixture[str], condition: str) -> None:
    code, said = audited(tmp_path / "nowhere", capsys, "--fail-if", condition)
    assert code == 2
    assert f"fail-if '{condition}'" in said
    assert "run folder" not in said, "the run is not even opened"


def test_a_failed_row_fails(
    small_run: Callable[..., Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*given: Any, **options: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(ATTACKS["ridge"], "fit", broken)
    out = str(tmp_path / "audits")
    code, said = audited(small_run("demo-none"), capsys, *ROWS, "--out", out, "--fail-if", "mse<1e-6")
    assert code == 3
    assert "rows of the suite have no result: ridge" in said


def test_an_unreliable_strongest_row_fails(small_run: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--only", "decoder", "decoder.epochs=1", "decoder.max_epochs=1", "--fail-if", "mse<1e-6")
    code, said = audited(small_run("demo-none"), capsys, *words)
    assert code == 3
    assert "decoder small: not reliable" in said
