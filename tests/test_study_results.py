"""A committed file of results as a study: the arms of its cells, by every audit, also of old files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from attncem.base.types import RunError
from attncem.campaigns.results import read_results
from attncem.records.campaign_table import AskedAudit, CampaignTable, CellAudit, CellResult, Ends
from attncem.records.judgement import State
from attncem.records.study import ACCURACY
from attncem.records.study.results import study_of_results

RESULTS = Path(__file__).parent.parent / "results"
FILES = sorted(file.name for file in RESULTS.glob("*.json") if '"cells": [' in file.read_text(encoding="utf-8"))


def audit(mse: float, accuracy: float, *, reliable: bool = True) -> CellAudit:
    attacks = {
        "decoder": {"mse": [mse, 0.9 * mse, 1.1 * mse], "reliable": reliable},
        "mean image": {"mse": [2 * mse], "reliable": True},
    }
    return CellAudit([accuracy], "decoder", attacks, balanced_accuracy=accuracy - 0.1)


def table(*asked: AskedAudit) -> CampaignTable:
    """Two arms of two seeds; every further audit sees twice the error."""
    cells = [
        CellResult(arm, {"w": 1.0}, seed, [audit((place + 1) * mse, 0.9) for place in range(len(asked))])
        for arm, mse in (("a", 0.1), ("b", 0.2))
        for seed in (0, 1)
    ]
    return CampaignTable("made", "", "", list(asked), cells)


def test_arms_seeds_and_scores() -> None:
    study = study_of_results(table(AskedAudit(suite="standard v4", threat="train", evaluation="test")))
    assert [(arm.name, arm.seeds, arm.point, arm.color) for arm in study.arms] == [
        ("a", [0, 1], {"w": 1.0}, 0),
        ("b", [0, 1], {"w": 1.0}, 1),
    ]
    a, b = study.arms
    assert a.values("mse") == [0.1, 0.1] and b.values("mse", row="mean image") == [0.4, 0.4]
    assert a.cells[0].score("mse") == Ends(0.1, pytest.approx(0.09), pytest.approx(0.11))
    assert a.cells[0].score(ACCURACY) == Ends(0.9, 0.9, 0.9), "without an interval both ends are the mean"
    assert a.cells[0].score("mse", row="none") is None and a.cells[0].score("ssim") is None
    assert (a.measures(), a.unreliable(), a.collapsed) == (["mse"], 0, [])
    (kind,) = study.kinds
    assert (kind.suite, kind.version, str(kind)) == ("standard", 4, "standard · train · test")


def test_every_audit_of_a_cell_is_there_by_its_kind() -> None:
    study = study_of_results(table(AskedAudit(weights="best"), AskedAudit(weights="last")))
    first, second = study.kinds
    assert (first.number, second.number, str(first)) == (1, 2, "train"), "an old file names neither suite nor adversary"
    assert study.arms[0].values("mse") == [0.1, 0.1]
    assert study.arms[0].values("mse", second) == [0.2, 0.2]


def test_an_adversary_that_is_unknown_is_named() -> None:
    with pytest.raises(RunError, match="made: the adversary oracle is unknown; known are train, held_out"):
        study_of_results(table(AskedAudit(threat="oracle")))


def test_collapsed_and_unreliable_runs_and_balanced_accuracies() -> None:
    made = table(AskedAudit())
    doubted = replace(made.cells[0], audits=[audit(0.1, 0.5, reliable=False)], warnings=["near_chance"])
    arm = study_of_results(replace(made, cells=[doubted, made.cells[1]]), balanced=True).arms[0]
    assert (arm.collapsed, arm.unreliable()) == ([0], 1)
    assert arm.values(ACCURACY) == pytest.approx([0.4, 0.8])
    bare = replace(made.cells[0], audits=[CellAudit([0.9])])
    arm = study_of_results(replace(made, cells=[bare])).arms[0]
    assert (arm.values(ACCURACY), arm.values("mse"), arm.attacked(), arm.unreliable()) == ([0.9], [], [], 0)


@pytest.mark.parametrize("name", FILES)
def test_every_committed_file_is_a_study(name: str) -> None:
    study = study_of_results(read_results(RESULTS / name))
    chosen = [cell for cell in study.cells if not cell.on_device or cell.alone]  # other candidates were not tested
    assert study.arms and chosen and all(cell.score(ACCURACY) for cell in chosen)
    assert all(audit.state in get_args(State) for arm in study.arms for audit in arm.audits())
