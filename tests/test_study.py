"""The Study: which audits are the same, arms with and without audits, several suites of one run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attncem.config.threats import THREATS
from attncem.records.audit import AuditPlan
from attncem.records.campaign_folder import CampaignFolder
from attncem.records.study import ACCURACY, AuditKey, AuditKind, newest
from attncem.records.study.campaign import study_of_campaign
from attncem.records.study.grouping import arms, methods_of
from attncem.records.study.runs import load_run, load_runs
from made_campaigns import ARMS, Made, make_campaign
from made_runs import make_audit, make_plan, make_run

MANY_RELEASES = replace(THREATS["held_out"], releases_per_input=16)


def kept(*plans: AuditPlan) -> list[AuditPlan]:
    return list(newest(plans, lambda plan: plan).values())


# the same audit


@pytest.mark.parametrize(
    "other",
    [
        {"subject": {"fingerprint": "f" * 64}},
        {"subject": {"weights": "epoch-00003"}},
        {"subject": {"data_sha256": "c" * 64}},
        {"evaluation": "validation"},
        {"threat": THREATS["train"]},
        {"threat": MANY_RELEASES},
        {"seed": 1},
    ],
    ids=["client", "weights", "data", "images", "adversary", "releases", "seed"],
)
def test_an_audit_of_something_else_is_another_audit(other: dict[str, Any]) -> None:
    first, second = make_plan(), make_plan(**other)
    assert AuditKey.of(first) != AuditKey.of(second)
    assert kept(first, second) == [first, second]


@pytest.mark.parametrize("other", [{"suite": "standard"}, {"changed": ["ridge.alpha=2"]}])
def test_suite_and_changed_options_belong_to_rows(other: dict[str, Any]) -> None:
    first, second = make_plan(), make_plan(**other)
    assert AuditKey.of(first) == AuditKey.of(second), "these can be joined"
    assert kept(first, second) == [first, second], "their rows are not the same"


def test_of_the_same_audit_the_newest_counts_and_an_older_version_does_not_come_back() -> None:
    first, again = make_plan(made="1"), make_plan(made="2")
    newer = make_plan(suite_version=2)
    assert kept(first, again) == [again]
    assert kept(first, newer) == kept(newer, first) == [newer]


def test_seeds_of_the_attacks_are_numbered_within_a_run_and_matched_over_runs() -> None:
    kinds = list(newest([make_plan(seed=seed) for seed in (3, 7)], lambda plan: plan))
    assert [kind.number for kind in kinds] == [1, 2]
    assert kinds[0] == AuditKind.of(make_plan(seed=5)), "the first audit of another run, whatever its seed"
    assert {replace(kind, number=1) for kind in kinds} == {kinds[0]}


def test_a_kind_says_what_was_asked() -> None:
    assert str(AuditKind.of(make_plan())) == "quick · held_out · test"
    changed = make_plan(threat=MANY_RELEASES, changed=["ridge.alpha=2"])
    assert str(AuditKind.of(changed)) == "quick · held_out · test · 16 releases · ridge.alpha=2"


# arms


def test_an_arm_without_any_audit_has_no_numbers_and_stays_an_arm(tmp_path: Path) -> None:
    paths = [make_run(tmp_path, "none"), *(make_run(tmp_path, "kmeans", seed=seed, audits=[]) for seed in (0, 1))]
    audited, bare = methods_of(load_runs(paths))
    assert (bare.label, bare.seeds, bare.audits(), bare.attacked()) == ("kmeans", [0, 1], [], [])
    assert bare.values(ACCURACY) == bare.values("mse") == bare.measures() == []
    assert bare.summary("mse") is None and bare.first() is None and bare.unreliable() == 0
    assert audited.values(ACCURACY) == [0.91] and audited.measures()[:2] == ["mse", "psnr"]


def test_audits_of_several_suites_of_one_run_share_their_key(tmp_path: Path) -> None:
    audits = [make_audit(), make_audit(id="standard-audit", suite="standard", suite_version=4)]
    cell = load_run(make_run(tmp_path, audits=audits))
    assert [kind.suite for kind in cell.audits] == ["quick", "standard"]
    assert len({AuditKey.of(audit.plan) for audit in cell.results}) == 1
    assert cell.score("mse", next(iter(cell.audits))) == cell.score("mse") == audits[0].strongest_attack.mse
    assert cell.score("mse", row="ridge") == audits[0].row("ridge").mse and cell.score("mse", row="no such row") is None


def test_runs_group_by_an_option_or_by_all_but_the_seed(tmp_path: Path) -> None:
    runs = load_runs([make_run(tmp_path, name, seed=seed) for name in ("none", "kmeans") for seed in (0, 1)])
    grouped, _ = arms(runs)
    assert [(arm.name, arm.seeds, arm.color) for arm in grouped] == [("none", [0, 1], 0), ("kmeans", [0, 1], 1)]
    by_seed, findings = arms(runs, ["seed"])
    assert [arm.name for arm in by_seed] == ["seed=0", "seed=1"]
    assert {item.code for item in findings} == {"compare_mixed"}


# a campaign


def test_a_campaign_is_a_study_of_its_arms_at_their_points(tmp_path: Path) -> None:
    grid = {"training.penalty_weight": [0.5, 2.0]}
    folder = make_campaign(tmp_path / "made", Made(ARMS, seeds=4, grid=grid, portraits=False))
    study = study_of_campaign(CampaignFolder.open(folder.path))
    (kind,) = study.kinds
    assert study.names == ["none", "kmeans", "gated"] and study.options == ["training.penalty_weight"]
    assert [len(arm.cells) for arm in study.arms] == [4] * 5 and len(study.cells) == 20
    tests = study.against("none", kind, ["mse"])
    assert {a for a, _ in tests} == {arm.label for arm in study.arms if arm.name != "none"}
    assert all(test.b == "none" and test.adjusted_p is not None for test in tests.values())
    assert study.front("mse", kind).keys() == {arm.label for arm in study.arms}
    low, high = study.effects("training.penalty_weight", "kmeans", "mse", kind)
    assert (low.value, high.value) == (0.5, 2.0) and low.summary.count == 4


def test_a_cell_that_cannot_be_read_is_a_problem_and_the_rest_is_there(tmp_path: Path) -> None:
    folder = make_campaign(tmp_path / "made", Made(ARMS, seeds=2, portraits=False))
    broken = folder.plan.cells[0].id
    (folder.run_path(broken) / "manifest.json").write_text("{")
    study = study_of_campaign(CampaignFolder.open(folder.path))
    assert [broken in problem for problem in study.problems] == [True]
    assert [len(arm.audits()) for arm in study.arms] == [1, 2, 2]
