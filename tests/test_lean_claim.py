"""The weights of the claim on a lean client are those of the rule, on validation images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attncem.records.campaign_table import AskedAudit, CampaignTable, CellResult
from made_results import cells_of, folder, made, made_audit, page_scripts

SELECTION = "claim-lean-selection-cifar10"
Front = Callable[[str, float], tuple[float, float]]
"""From an arm and its λ to accuracy and limit, both on validation images."""
ARMS = ("kmeans", "kmeans-per-dimension", "capacity", "gated", "slot")
WEIGHTS = (0.01, 0.03, 0.09, 0.27, 0.8)


@pytest.fixture(scope="module")
def script() -> Iterator[Any]:
    with page_scripts() as scripts:
        yield scripts


def table(front: Front) -> CampaignTable:
    """The selection with planted accuracies and limits; the two seeds lie on both sides of them."""
    cells = []
    for one in cells_of(SELECTION):
        facts = CellResult(one.cell.arm, dict(one.cell.point), one.cell.seed, [], [], 1_000_000, 20.0)
        if one.cell.budget is not None:
            cells.append(replace(facts, alone={"test": [0.8] * 3, "validation": [0.8] * 3}))
            continue
        accuracy, limit = front(one.cell.arm, one.config.training.penalty_weight)
        apart = 0.001 if one.cell.seed else -0.001
        leaks = {"leak_limit": {"interval": [limit * (1 + apart)] * 3, "by": "leakage"}}
        cells.append(replace(facts, audits=[replace(made_audit(accuracy + apart, 1.0), leaks=leaks)]))
    return CampaignTable(SELECTION, "", "", [AskedAudit({}, "certificates v2", "train", "validation", "best")], cells)


def falling(times: dict[str, float]) -> Front:
    """Accuracy rises by 0.2 points, then falls as λ grows; the limit falls, times a factor of each arm."""

    def front(arm: str, weight: float) -> tuple[float, float]:
        if arm == "none":
            return 0.87, 300.0
        step = WEIGHTS.index(min(WEIGHTS, key=lambda it: abs(it - weight * (0.1 if arm == "kmeans" else 1))))
        return (0.872, 0.871, 0.8702, 0.866, 0.85)[step], times.get(arm, 1.0) * (200, 100, 50, 25, 12)[step]

    return front


def test_each_arm_takes_the_least_limit_at_the_floor(script: Any, tmp_path: Path) -> None:
    claim = script.lean_claim
    source = script.source.Source(folder(tmp_path, table(falling({"gated": 0.9, "slot": 1.1}))))
    lines = claim.points(source)
    assert list(lines) == ["none", *ARMS] and all(len(lines[arm]) == 5 for arm in ARMS)
    assert {one.seeds for line in lines.values() for one in line} == {2}
    high, low = claim.floors(lines)
    assert (high, low) == pytest.approx((0.87, 0.865))
    assert [claim.choice(lines[arm], high).weight for arm in ARMS] == [0.9, 0.09, 0.09, 0.09, 0.09]
    assert [claim.choice(lines[arm], low).weight for arm in ARMS] == [2.7, 0.27, 0.27, 0.27, 0.27]
    assert claim.choice(lines["gated"], 0.9) is None
    assert claim.attention(lines).arm == "gated"
    first, second, named = claim.told(source)
    assert (
        first.startswith("accuracy ≥ 87.00 %: kmeans λ = 0.9 (50.0 nats); ") and "gated λ = 0.09 (45.0 nats)" in first
    )
    assert "slot λ = 0.27 (27.5 nats)" in second and named == "attention arm: gated"
    rows = claim.selection_table(source).splitlines()[2:]
    assert len(rows) == 26 and sum(row.endswith("| yes |") for row in rows) == 5
    assert "| gated | 0.09 | 2 | 87.02 | 45.0 | yes |  |" in rows


def test_weights_that_do_not_show_the_whole_front_are_named(script: Any, tmp_path: Path) -> None:
    """Slots never lose accuracy, and gated attention reaches no floor."""

    def front(arm: str, weight: float) -> tuple[float, float]:
        accuracy, limit = falling({})(arm, weight)
        return {"slot": 0.871, "gated": 0.85}.get(arm, accuracy), limit

    claim = script.lean_claim
    source = script.source.Source(folder(tmp_path, table(front)))
    first, second, named, *narrow = claim.told(source)
    assert "gated –" in first and "gated –" in second and named == "attention arm: slot"
    assert narrow == ["slot: its accuracy has not fallen by 1 point at λ = 0.8: try larger weights"]
    assert "less than 64 times" in claim.too_narrow(claim.points(source)["capacity"][1:], 0.87)


def test_nothing_is_chosen_before_it_is_measured(script: Any, tmp_path: Path) -> None:
    source = script.source.Source(folder(tmp_path))
    assert script.lean_claim.told(source) == ["nothing to choose from yet"]
    assert f"attncem campaign run {SELECTION}" in script.lean_claim.selection_table(source)


def test_the_weights_tried_span_enough() -> None:
    """Each penalty has as many weights as any other, over a factor of at least 64."""
    weights: dict[str, set[float]] = {}
    for one in cells_of(SELECTION):
        if one.cell.budget is None:
            weights.setdefault(one.cell.arm, set()).add(one.config.training.penalty_weight)
    weights.pop("none")
    assert set(weights) == set(ARMS) and {len(of) for of in weights.values()} == {5}
    assert all(max(of) / min(of) >= 64 for of in weights.values())


def test_the_page_compares_the_families_at_the_highest_floor_that_all_reach(script: Any, tmp_path: Path) -> None:
    """Its second sentence about attention and a folded table; without the selection single runs stand there."""
    claims = script.write_results.HEADLINES.all
    front = falling({"gated": 0.9, "slot": 1.1})
    for low in (False, True):

        def planted(arm: str, weight: float, low: bool = low) -> tuple[float, float]:
            accuracy, limit = front(arm, weight)
            return accuracy - 0.003 * (low and arm == "capacity"), limit

        claim = made("claim-cifar10", lambda arm, weight: {"accuracy": 0.877, "times": 1.0})
        source = script.source.Source(folder(tmp_path, table(planted), claim))
        answer = script.pairs.attention(source, claims)
        assert f"at a validation accuracy of at least {86.5 if low else 87:.2f} %" in answer
        limits = (
            "22.5 nats with attention, 50.0 nats with plain"
            if low
            else "45.0 nats with attention, 50.0 nats with plain"
        )
        assert limits in answer and "(2 seeds, validation images, no test)" in answer
        page = script.write_results.page(source, drawn=[])
        assert "<summary>The weights of every penalty on a lean client</summary>" in page
        assert script.lean_claim.selection_table(source) in page
