"""The warnings of a training: every cause with made-up numbers, no flicker, and a state that follows from the log."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from attncem.training.health import CAUSES, PATIENCE, Check, Watch, describe_limit, finite, readings, spans, warning
from attncem.training.health import REACHED as PLAIN_LIMIT
from attncem.training.health import REACHED_TOTAL as TOTAL_LIMIT

SOUND = {
    "penalty_weight": 0.8,
    "rob_loss": 1.0,
    "plain_loss": 1.1,
    "intra_mse": 0.05,
    "skipped": 0.0,
    "active": 1.0,
    "effective_samples": 0.9,
    "effective_number": 11.0,
    "slot_entropy": 0.9,
    "gate_dimension": 0.5,
    "gate_snr": 0.4,
    "gate_class": 0.6,
    "gate_saturation": 0.1,
    "gradient_ratio": 0.7,
    "snr_passed": 0.9,
    "class_samples": 12.0,
    "cluster_samples": 40.0,
    "singular": 0.0,
    "removed": 0.1,
    "kept_variance": 0.9,
    "latched": 0.0,
    "shut_off": 0.0,
    "fitted": 1.0,
}


def lines(*changes: dict[str, Any]) -> list[dict[str, Any]]:
    """Train lines, ten steps apart, each sound but for its change."""
    return [
        {"kind": "train", "step": 10 * place, "epoch": 0.5 * place, **SOUND, **change}
        for place, change in enumerate(changes, 1)
    ]


def without(key: str, **change: Any) -> dict[str, Any]:
    return {key: None, **change}


def judge(records: list[dict[str, Any]], num_classes: int = 0) -> list[dict[str, Any]]:
    watch = Watch(num_classes)
    return [change for record in records for change in watch.update(record)]


def causes(*changes: dict[str, Any]) -> list[str]:
    return [change["cause"] for change in judge(lines(*changes)) if change["begins"]]


def test_sound_numbers_raise_nothing() -> None:
    assert causes(*[{}] * 10) == []


SICK = [
    ({"effective_samples": 0.05}, "attention"),
    ({"effective_samples": 0.3, "effective_number": 1.05}, "attention"),
    ({"slot_entropy": 0.01}, "slots"),
    ({"gate_saturation": 0.6}, "gates_saturated"),
    ({"gate_dimension": 0.001}, "gates_closed"),
    ({"gate_snr": 0.001}, "gates_closed"),
    ({"gate_class": 0.001}, "gates_closed"),
    ({"snr_passed": 0.54}, "gates_hide"),
    ({"latched": 0.9}, "latched"),
    ({"rob_loss": 0.01}, "blind"),
    ({"rob_loss": 0.0, "plain_loss": 0.3}, "blind"),
    ({"rob_loss": 0.033, "shut_off": 0.96}, "blind"),
    ({"rob_loss": 0.0, "plain_loss": 0.04, "plain_total": 20.0}, "blind"),
    ({"latched": 0.9, "shut_off": 0.96}, "latched"),
    ({"latched": 1.0, "plain_loss": 0.04, "plain_total": 20.0, "rob_loss": 0.04}, "latched"),
    ({"gradient_ratio": 5e-4, "plain_loss": 0.04, "plain_total": 20.0, "rob_loss": 0.04}, "idle"),
    ({"skipped": 0.06}, "skipped"),
    ({"class_samples": 2.0}, "few_samples"),
    ({"cluster_samples": 1.2}, "few_samples"),
    ({"singular": 0.6}, "singular"),
    ({"removed": 0.7}, "normalised_away"),
    ({"removed": 0.7, "plain_loss": 0.0, "rob_loss": 0.0}, "normalised_away"),
    ({"kept_variance": 0.2}, "projected_away"),
    ({"gradient_ratio": 11.0}, "dominates"),
    ({"gradient_ratio": 5e-4}, "idle"),
]


@pytest.mark.parametrize(("change", "cause"), SICK)
def test_each_cause_is_raised_once_and_alone(change: dict[str, Any], cause: str) -> None:
    (begun,) = judge(lines({}, *[change] * 8))
    assert (begun["cause"], begun["begins"]) == (cause, True)
    place = 1 + CAUSES[cause].patience
    assert (begun["step"], begun["epoch"]) == (10 * place, 0.5 * place)
    assert begun["text"].startswith(CAUSES[cause].meaning)
    assert f"{begun['key']} {begun['value']:.3g}, limit {begun['limit']:g}" in begun["text"]
    assert json.loads(json.dumps(begun, allow_nan=False)) == begun


@pytest.mark.parametrize(("change", "cause"), SICK)
def test_each_cause_ends_and_can_come_back(change: dict[str, Any], cause: str) -> None:
    found = judge(lines(*[change] * 3, *[{}] * 3, *[change] * 3))
    assert [(change["cause"], change["begins"]) for change in found] == [(cause, True), (cause, False), (cause, True)]
    assert ": warning cleared (" in found[1]["text"]


def test_every_cause_but_the_ones_of_the_loop_is_among_them() -> None:
    assert {cause for _, cause in SICK} == set(CAUSES) - {"not_finite", "useless"}


@pytest.mark.parametrize(
    "change",
    [
        {"penalty_weight": 0.0, "skipped": 0.9, "effective_samples": 0.0, "rob_loss": 0.0, "latched": 1.0},
        {"fitted": 0.0, "rob_loss": 0.0, "skipped": 1.0},
        {"plain_loss": 0.01, "rob_loss": 0.0, "latched": 1.0, "gradient_ratio": 0.0},
        {"plain_loss": 0.001, "plain_total": 0.5, "rob_loss": 0.0, "latched": 1.0, "gradient_ratio": 0.0},
        {"shut_off": 1.0, "rob_loss": 0.0, "gradient_ratio": 0.0},
        {"shut_off": 0.5, "rob_loss": 0.5, "gradient_ratio": 0.0},
        {"risk_share": 0.0, "slot_entropy": 0.0},
    ],
    ids=[
        "no penalty",
        "not fitted",
        "target reached",
        "target reached, in all",
        "shut off, for less than an epoch",
        "shut off in half of the steps, one of which was measured",
        "no class is marked, so that slots see none",
    ],
)
def test_what_is_as_it_should_be_raises_nothing(change: dict[str, Any]) -> None:
    assert causes(*[change] * 8) == []


def test_a_shut_off_that_lasts_an_epoch_is_latched() -> None:
    shut = {"shut_off": 1.0, "rob_loss": 0.0, "gradient_ratio": 0.0}
    assert causes(*[without("latched", **shut)] * 5, {**shut, "latched": 1.0}) == ["latched"]


def test_one_bad_line_is_not_enough_and_no_value_is_no_verdict() -> None:
    bad = {"effective_samples": 0.01}
    assert causes(*[bad, bad, {}] * 4) == []
    assert causes(bad, without("effective_samples", effective_number=None), bad, bad) == ["attention"]


def test_a_value_at_its_limit_does_not_flicker() -> None:
    found = judge(
        lines(*[{"effective_samples": 0.09}] * PATIENCE, *[{"effective_samples": v} for v in (0.11, 0.09)] * 9)
    )
    assert [change["begins"] for change in found] == [True]
    found = judge(lines(*[{"effective_samples": v} for v in (0.11, 0.14)] * 9))
    assert found == []


def test_it_ends_only_when_all_its_numbers_are_sound() -> None:
    collapsed = {"effective_samples": 0.05, "effective_number": 1.01}
    assert len(judge(lines(*[collapsed] * 3, *[{"effective_samples": 0.05}] * 5))) == 1
    assert len(judge(lines(*[collapsed] * 3, *[{}] * 3))) == 2


def test_a_warning_ends_when_the_target_is_reached() -> None:
    reached = {"plain_loss": 0.0, "rob_loss": 0.0, "latched": 1.0}
    (begun, ended) = judge(lines({"latched": 1.0}, reached))
    assert (begun["begins"], ended["begins"], ended["value"]) == (True, False, None)
    assert "target reached" in ended["text"]


def test_a_target_a_dimension_is_none_in_many_dimensions() -> None:
    """0.05 nats a dimension are 25.6 a sample in 512: what is left is judged by both."""
    assert PLAIN_LIMIT * 512 > 25 * TOTAL_LIMIT
    few, many = ({"plain_loss": 0.049, "plain_total": 0.049 * size, "rob_loss": 0.0} for size in (16, 512))
    assert causes(*[few] * 5) == [] and causes(*[many] * 5) == ["blind"]


def test_without_plain_loss_the_spread_itself_is_compared() -> None:
    silent = without("plain_loss", rob_loss=0.0)
    assert causes(without("plain_loss"), *[silent] * 3) == ["blind"]
    assert causes(without("plain_loss"), *[{**silent, "intra_mse": 0.04}] * 3) == []


def test_a_model_near_chance() -> None:
    def validation(*accuracies: float) -> list[dict[str, Any]]:
        return [{"kind": "validation", "step": 9 * e, "epoch": e, "accuracy": a} for e, a in enumerate(accuracies, 1)]

    (found,) = judge(validation(*[0.1] * 8), num_classes=10)
    assert (found["cause"], found["epoch"]) == ("useless", 5)
    assert judge(validation(*[0.1] * 4, 0.3, *[0.1] * 4), num_classes=10) == []
    assert judge(validation(*[0.1] * 8), num_classes=0) == [], "the number of classes is not known"


def test_fed_the_log_again_a_watch_goes_on_as_before() -> None:
    records = lines(*[{"effective_samples": 0.05, "latched": 1.0}] * 4, *[{}] * 2, *[{"skipped": 0.2}] * 4)
    whole = judge(records)
    assert len(whole) == 5
    for cut in range(len(records)):
        first, second = Watch(), Watch()
        told = [change for record in records[:cut] for change in first.update(record)]
        for record in [*records[:cut], *told]:
            second.update(json.loads(json.dumps(record)))
        assert told + [change for record in records[cut:] for change in second.update(record)] == whole


def test_spans_of_a_log() -> None:
    records = lines({}, *[{"skipped": 0.2}] * 3, *[{}] * 3, *[{"skipped": 0.3}] * 3)
    first, second = spans(records)
    assert (first.begins, first.ends, second.begins, second.ends) == (2.0, 3.5, 5.0, None)
    assert [first.holds_at(epoch) for epoch in (1.9, 2.0, 3.4, 3.5)] == [False, True, True, False]
    assert second.holds_at(99)
    assert first.sentence.startswith("from epoch 2 to 3.5: samples skipped")
    assert second.sentence.startswith("from epoch 5 on: samples skipped")
    assert second.sentence.endswith(f"What to do: {CAUSES['skipped'].advice}")


def test_a_log_that_holds_its_warnings_is_believed() -> None:
    records = lines(*[{"skipped": 0.2}] * 3)
    assert spans([*records, *judge(records)]) == spans(records)
    stopped = warning("not_finite", "ce", None, begins=True, step=4, epoch=0.5)
    (span,) = spans([stopped, {"kind": "warning", "cause": "of a later version", "begins": True}])
    assert (span.cause, span.begins, span.ends) == ("not_finite", 0.5, None)
    assert "training stopped (ce)" in span.sentence


def test_readings_of_odd_values() -> None:
    assert readings({"penalty_weight": 1.0, "skipped": math.nan, "text": "x"}) == {"penalty_weight": 1.0}
    assert [finite(value) for value in (1, True, math.inf, None, "1")] == [1.0, 1.0, None, None, None]


@pytest.mark.parametrize("name", CAUSES)
def test_limits_leave_room_before_they_clear(name: str) -> None:
    for check in CAUSES[name].checks:
        assert check.limit != check.clear
        assert check.is_bad(check.limit) is not True
        assert check.is_bad(check.clear) is False
        assert check.is_bad((check.limit + check.clear) / 2) is None


def test_limits_in_words() -> None:
    assert describe_limit("effective_samples") == "warning below 0.1"
    assert describe_limit("gradient_ratio") == "warning above 10"
    assert describe_limit("rob_loss") == ""
    assert Check("x", 1.0, 0.5).is_bad(math.nan) is False


def test_the_page_gives_every_limit_as_it_is() -> None:
    page = (Path(__file__).parent.parent / "docs" / "health.md").read_text()
    for name, cause in CAUSES.items():
        assert f"| `{name}` |" in page
        for check in cause.checks:
            side = ">" if check.clear < check.limit else "<"
            row = f"| `{check.key}` | {side} {check.limit:g} | {check.clear:g} | {cause.patience} |"
            assert row in page, row
