"""Conditions that an audit must not meet: their grammar, what is compared, what else fails, and the exit codes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from attncem.base.types import ConfigError
from attncem.cli.main import main
from attncem.config.loading.yaml_text import parse_yaml
from attncem.config.options.suites import load_suite
from attncem.judging.attacks import ATTACKS
from attncem.judging.conditions import Checked, Condition, check, parse_conditions
from attncem.records.audit import AuditResult, Row, Verdict
from attncem.records.bounds import Bound
from attncem.records.metrics import METRICS
from attncem.records.score import Score
from attncem.reporting.junit import write_junit
from made_runs import make_plan

SCORES = {
    "mse": Score(0.020, 0.018, 0.022, 0.005, 0.060, [0.010, None, 0.030], 0.019),
    "ssim": Score(0.50, 0.48, 0.52, 0.30, 0.70, [0.4, 0.5, 0.6], None),
}
ACCURACY = Score(0.80, 0.78, 0.82, 0.0, 1.0, [0.9, 0.9, 0.3], 1.0)


@pytest.fixture(scope="module")
def plan() -> Any:
    """The plan of an audit of 1,000 images whose attacker owns 4,000."""
    return make_plan()


def row(name: str, **changes: Any) -> Row:
    made = Row(name, name, "attack", "ok", "", {}, 0, 1, num_images=1000, scores=SCORES, must_beat=["grey"])
    return replace(made, **changes)


def result(plan: Any, *rows: Row, **changes: Any) -> AuditResult:
    """An audit of these rows, the first one the strongest."""
    names = [item.name for item in rows]
    plan = replace(plan, **{"rows": names, "accuracy": ACCURACY} | changes)
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
        ("leakage>20", Condition("leakage", "", ">", 20.0)),
        ("rank_1@1000 >= 0.05", Condition("rank_1@1000", "", ">=", 0.05)),
        ("releases<100", Condition("releases", "", "<", 100.0)),
        ("accountant.leakage@16>30", Condition("leakage@16", "", ">", 30.0, "accountant")),
        ("reidentification.rank_1>0.05", Condition("rank_1", "", ">", 0.05, "reidentification")),
        ("label_leakage.accuracy@16.class_max>.9", Condition("accuracy@16", "class_max", ">", 0.9, "label_leakage")),
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
        ("leakge>20", "did you mean leakage?"),
        ("leakage<20", "leakage is an upper bound: it can only be tested with > or >="),
        ("mse_normal>0.1", "mse_normal is a lower bound: it can only be tested with < or <="),
        ("infonce>5", "infonce proves a leak and can exclude none"),
        ("rank_1>0.05", "did you mean reidentification.rank_1 or rank_1@1000?"),
        ("rank_1@1000>5", "did you mean 0.05?"),
        ("reidentification>0.05", "did you mean reidentification.rank_1"),
        ("reidentification.rank1>0.05", "did you mean reidentification.rank_1?"),
        ("reidentification.rank_1>5", "did you mean 0.05?"),
        ("reid.rank_1>0.05", "did you mean reidentification.rank_1?"),
        ("label_leakage.accuracy>0.5", "did you mean label_leakage.accuracy@16?"),
        ("leakage.leakage.p05>3", "leakage is a bound, which has no part p05"),
        ("ridge.mse<0.02", "the strongest attack is tested, whichever it is; did you mean mse?"),
    ],
)
def test_a_mistake_says_what_is_allowed(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_conditions(["mse<0.02", text])
    assert message in str(error.value)
    assert repr(text) in str(error.value)


def test_a_number_that_the_suite_cannot_give_is_a_mistake() -> None:
    quick = load_suite("quick").suite
    with pytest.raises(ConfigError, match="quick has no row of fano; suites that have one: certificates"):
        parse_conditions(["rank_1@1000>0.05"], quick)
    with pytest.raises(ConfigError, match="quick has no row of membership; suites that have one: full"):
        parse_conditions(["membership.auc>0.6"], quick)


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


def test_an_audit_without_attacks_passes_no_condition_on_attacks(plan: Any) -> None:
    assert codes(checked(result(plan), "mse<0.001")) == ["fails_not_known", "doubt_no_attack"]
    assert codes(checked(result(plan), "accuracy<0.5")) == ["doubt_no_attack"]


def unreliable(gain: float | None, mse: float = 0.020) -> Row:
    scores = {"mse": replace(SCORES["mse"], mean=mse)}
    return row("decoder", verdict=Verdict(False, gain), scores=scores)


def test_an_unreliable_row_fails_where_it_leads_or_may_lead(plan: Any) -> None:
    best = row("ridge", must_beat=["grey"])
    assert codes(checked(result(plan, unreliable(0.03), best), "mse<0.001")) == ["doubt_unreliable"]
    assert codes(checked(result(plan, best, unreliable(0.10, mse=0.021)), "mse<0.001")) == ["doubt_unreliable"]
    assert codes(checked(result(plan, best, unreliable(None, mse=0.050)), "mse<0.001")) == ["doubt_unreliable"]
    assert codes(checked(result(plan, best, unreliable(0.10, mse=0.050)), "mse<0.001")) == []


def test_a_learned_attack_that_leaves_the_lead_to_what_it_must_beat_fails(plan: Any) -> None:
    beaten = row("decoder", must_beat=["ridge"])
    (_, found) = checked(result(plan, row("ridge"), beaten), "mse<0.001")
    assert (found.failed, found.said.code, found.state) == (True, "doubt_should_lead", "not_enough")
    assert codes(checked(result(plan, row("other"), row("ridge"), beaten), "mse<0.001")) == []


def test_few_images_block_a_pass_and_never_a_failure(plan: Any) -> None:
    few = result(plan, row("ridge", must_beat=["grey"], num_images=40), num_auxiliary=160)
    assert codes(checked(few, "mse<0.001")) == ["doubt_few_owned", "doubt_few_judged"]
    assert codes(checked(few, "mse<0.05"))[0] == "fails_mean"
    assert codes(checked(few, "accuracy<0.5")) == ["doubt_few_owned", "doubt_few_judged"]


def test_missing_and_failed_rows_fail_and_others_do_not(plan: Any) -> None:
    none = row("none", outcome="not_applicable", must_beat=[])
    audit = result(plan, row("ridge", must_beat=["grey"]), row("failed", outcome="failed"), none)
    audit = replace(audit, plan=replace(audit.plan, rows=[*audit.plan.rows, "waiting"]))
    (_, found) = checked(audit, "mse<0.001")
    assert (found.said.code, found.said.values["rows"]) == ("fails_missing", "failed, waiting")
    assert codes(checked(audit, "mse<0.001", rows=["ridge", "none"])) == []
    assert codes(checked(audit, "mse<0.001", rows=["ridge", "waiting"])) == ["fails_missing"]


# certificates


def certificate(name: str = "leakage", **bounds: Bound) -> Row:
    return row(name, kind="certificate", scores={}, bounds=bounds)


def upper(claim: float, **changes: Any) -> Bound:
    return replace(Bound(claim - 1, "nats", claim - 2, claim, "bound", [], "leakage", "at_most", claim), **changes)


@pytest.mark.parametrize(
    ("bounds", "code"),
    [
        ([upper(25)], "fails_bound"),
        ([upper(15)], "passes_bound"),
        ([upper(20)], "passes_bound"),
        ([upper(25), upper(15)], "passes_bound"),  # the tightest
        ([upper(25), upper(15, kind="estimate")], "fails_bound"),  # the proven one
        ([upper(15, kind="estimate")], "fails_estimate"),
        ([upper(15, vacuous=True)], "fails_vacuous"),
        ([], "fails_not_known"),
    ],
)
def test_a_bound_is_tested_at_its_claim(plan: Any, bounds: list[Bound], code: str) -> None:
    rows = [certificate(f"leakage {number}", leakage=bound) for number, bound in enumerate(bounds)]
    audit = replace(result(plan, row("ridge", num_images=3), *rows), strongest="")
    (found,) = checked(audit, "leakage>20")
    assert found.said.code == code and found.failed == code.startswith("fails")
    assert "leakage>20" in found.said.text


def test_the_line_of_a_bound_says_its_claim(plan: Any) -> None:
    (found,) = checked(result(plan, certificate(leakage=upper(15))), "leakage>20")
    assert found.said.text == "leakage: leakage>20 is excluded: at most 15 nats (95 % confidence)"


def test_a_lower_bound_is_tested_from_below(plan: Any) -> None:
    bound = Bound(0.02, "MSE", 0.01, 0.03, "bound", [], "mse", "at_least", 0.015)
    audit = result(plan, certificate("Shannon's bound", mse_normal=bound))
    assert codes(checked(audit, "mse_normal<0.016")) == ["fails_bound"]
    assert codes(checked(audit, "mse_normal<0.014")) == []


def test_a_certificate_that_does_not_apply_gives_its_reason(plan: Any) -> None:
    absent = row("leakage", kind="certificate", outcome="not_applicable", reason="the channel adds no noise", scores={})
    (found,) = checked(result(plan, absent), "leakage.leakage>20")
    assert found.failed and found.said.text == "leakage: leakage.leakage>20 cannot be tested: the channel adds no noise"


def test_bounds_for_other_releases_are_not_read(plan: Any) -> None:
    often = replace(certificate(leakage=upper(15)), releases=16)
    assert codes(checked(result(plan, often), "leakage>20")) == ["fails_not_known"]


# probes


def probe(name: str = "re-identification", method: str = "reidentification", **changes: Any) -> Row:
    values = {"scores": {"rank_1": Score(0.04, 0.03, 0.05, 0.0, 1.0)}, "chance": {"rank_1": 0.001}}
    return row(name, method=method, kind="probe", **values | changes)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("reidentification.rank_1>0.04", ["fails_mean"]),  # the high end is 0.05
        ("reidentification.rank_1>0.05", []),
        ("re-identification.rank_1>=0.05", ["fails_mean"]),
        ("reidentification.rank_1<0.04", ["fails_mean"]),
        ("reidentification.rank_1.p95>0.5", ["fails_part"]),
        ("reidentification.reciprocal_rank>0.5", ["fails_not_known"]),
        ("label_leakage.accuracy@16>0.5", ["fails_not_known"]),
    ],
)
def test_a_probe_is_tested_at_its_unsafe_end(plan: Any, text: str, expected: list[str]) -> None:
    conditions = parse_conditions([text], load_suite("quick").suite)
    assert codes(check(result(plan, probe()), conditions)) == expected


def test_of_several_rows_of_a_probe_the_worst_is_tested(plan: Any) -> None:
    other = probe("among 10", scores={"rank_1": Score(0.5, 0.4, 0.6, 0.0, 1.0)})
    (found,) = checked(result(plan, probe(), other), "reidentification.rank_1>0.05")
    assert found.said.about == "among 10" and found.failed


def test_a_probe_on_few_images_passes_nothing(plan: Any) -> None:
    few = result(plan, probe(num_images=40))
    passed, blocked = checked(few, "reidentification.rank_1>0.5")
    assert not passed.failed and (blocked.failed, blocked.state) == (True, "not_enough")
    assert "fewer than 200 cannot show that nothing leaks" in blocked.said.text
    assert codes(checked(few, "reidentification.rank_1>0.01")) == ["fails_mean"], "it fails anyway"


@pytest.mark.parametrize(("least", "row_named"), [(40, "re-identification"), (41, "re-identification")])
def test_min_images(plan: Any, least: int, row_named: str) -> None:
    audit = result(plan, row("ridge", must_beat=["grey"]), probe(num_images=40))
    conditions = parse_conditions(["reidentification.rank_1>0.01"])
    (_, found) = check(audit, conditions, min_images=least)
    assert found.failed == (least > 40) and found.said.about == row_named and "40" in found.said.text
    (alone,) = check(audit, [], min_images=1001)
    assert alone.said.text == "ridge: judged 1,000 images, fewer than the 1,001 of --min-images"


# the page


def test_the_documents_suite_and_workflow_are_valid() -> None:
    page = (Path(__file__).parent.parent / "docs/gate.md").read_text(encoding="utf-8")
    suite, workflow = (parse_yaml(block, "docs/gate.md") for block in re.findall(r"```yaml\n(.+?)```", page, re.DOTALL))
    rows = load_suite(suite).suite
    commands = [step["run"] for step in workflow["jobs"]["audit"]["steps"] if "run" in step]
    words = [word for command in (*commands, page) for word in re.findall(r'--fail-if "(.+?)"', command)]
    assert len(words) >= 6 and len(parse_conditions(words, rows)) == len(words)
    examples = re.findall(r"`([\w.@]+[<>]=?[\d.]+)`", page)
    assert [str(condition) for condition in parse_conditions(examples)] == examples and len(examples) > 10


# the command


def audited(run: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    capsys.readouterr()
    code = main(["audit", str(run), "--suite", "quick", "--device", "cpu", *words])
    return code, capsys.readouterr().err


ROWS = ("--skip", "decoder", "--skip", "nearest_neighbour", "--skip", "label_leakage")


def test_an_audit_that_passes(small_run: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    run = small_run("demo-none")
    conditions = ("--fail-if", "reidentification.rank>1000", "--min-images", "1000")
    code, said = audited(run, capsys, *ROWS, *conditions)
    assert code == 0 and said.count(f"pass: {run}: ") == 2, "weak attacks do not matter to these"
    assert "judged 1,000 images, at least the 1,000 of --min-images" in said


def test_an_audit_that_fails_says_the_same_in_json_and_junit(
    small_run: Callable[..., Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run, file = small_run("demo-none"), tmp_path / "audit.xml"
    words = ["audit", str(run), "--suite", "quick", "--device", "cpu", *ROWS, "--fail-if", "mse<1e-6"]
    capsys.readouterr()
    assert main([*words, "--fail-if", "ssim>-1", "--json", "--junit", str(file)]) == 3
    output = capsys.readouterr()
    assert f"pass: {run}: ridge: mse<1e-06 does not hold" in output.err
    assert f"fail: {run}: ridge: ssim>-1 holds" in output.err
    assert f"fail: {run}: not enough to tell: the attacker owns 500 images" in output.err
    data = json.loads(output.out)
    (audit,) = data["audits"]
    assert data["exit_code"] == 3 and audit["passed"] is False and data["errors"] == []
    assert audit["result"]["judgement"]["state"] == "not_enough"
    assert [check["condition"] for check in audit["checks"] if not check["failed"]] == ["mse<1e-06"]
    failures = {str(case.get("name")): case.find("failure") for case in ElementTree.parse(file).iter("testcase")}
    assert failures["mse<1e-06"] is None and failures["ridge"] is None and failures["ssim>-1"] is not None
    judgement = failures["judgement"]
    assert judgement is not None and "This audit is not enough to tell." in (judgement.text or "")
    assert str(tmp_path.parent) not in file.read_text(encoding="utf-8"), "no path of this machine"
    assert "decoder small" not in failures, "left out on purpose"


def test_junit_leaves_other_files_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.xml").write_text("mine")
    for place, message in ((tmp_path / "notes.xml", "was not written by attncem"), (tmp_path, "is a folder")):
        code, said = audited(tmp_path / "nowhere", capsys, "--junit", str(place))
        assert code == 2 and message in said
    assert (tmp_path / "notes.xml").read_text() == "mine"
    assert audited(tmp_path / "nowhere", capsys, "--min-images", "0") == (
        2,
        "attncem: error: --min-images 0: must be at least 1\n",
    )


def test_junit_of_odd_names(plan: Any, tmp_path: Path) -> None:
    """Failed rows are failures, rows that are not applicable are skipped, and control characters are escaped."""
    bad = row("a\x00b <&> \ud800", outcome="failed", reason=f"OSError: {tmp_path}/x.bin\x1b[31m: gone")
    none = row("none", outcome="not_applicable", reason="no labels")
    audit, file = result(plan, row("ridge"), bad, none), tmp_path / "j.xml"
    write_junit(file, [(str(tmp_path), audit, [])], {"x": "x: cannot be read"}, [*audit.plan.rows, "waiting"])
    root = ElementTree.parse(file).getroot()
    assert [root.get(key) for key in ("tests", "failures", "skipped", "errors")] == ["5", "2", "1", "1"]
    (case,) = [case for case in root.iter("testcase") if "<&>" in str(case.get("name"))]
    assert case.get("name") == "a\\u0000b <&> \\ud800"
    assert str(tmp_path.parent) not in file.read_text(encoding="utf-8")
    write_junit(file, [], {}, [])
    assert ElementTree.parse(file).getroot().get("tests") == "0", "an older one is replaced"


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
    assert "decoder small: had not converged" in said
