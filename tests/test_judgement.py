"""The judgement of an audit: its three states, one-sided leaks, and the same words in page, card, terminal and gate."""

from __future__ import annotations

import html
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from attncem.config.threats import THREATS, with_queries
from attncem.judging.conditions import check, parse_conditions
from attncem.records import judge as rules
from attncem.records.audit import AuditResult, Row, Verdict
from attncem.records.joining import join
from attncem.records.judge import LEAST_JUDGED, LEAST_OWNED, WIDEST, judge
from attncem.records.rivals import Rival
from attncem.records.score import Score
from attncem.reporting import answers, print_summary, privacy_card, report
from made_runs import FLOORS, NOW, failed, make_audit, make_run, row, rows, score

BLIND = min(FLOORS.values())


def probe(method: str, measure: str, mean: float, low: float, high: float, chance: float, images: int = 1000) -> Row:
    """A probe with one measure."""
    scores = {measure: Score(mean, low, high, mean, mean)}
    made = row(method.replace("_", " "), 0.01, kind="probe", method=method, scores=scores, num_images=images)
    return replace(made, chance={measure: chance})


def audit(made: list[Row] | None = None, **plan: Any) -> AuditResult:
    return make_audit(made=rows(0.02) if made is None else made, **plan)


def codes(result: AuditResult) -> list[str]:
    return [reason.code.removeprefix("doubt_") for reason in result.judgement.reasons]


def with_width(mse: float, width: float) -> list[Row]:
    """Rows whose strongest attack has this mean, and an interval of this share of the blind guess's error."""
    half = 0.5 * width * BLIND / mse
    return rows(mse, decoder={"scores": {"mse": score(mse, half)}})


# states


def test_an_audit_with_enough_images_and_a_converged_attack_is_reliable() -> None:
    result = audit()
    assert (result.state, codes(result)) == ("reliable", [])
    assert result.judgement.answers["picture"].status == "leaks"


@pytest.mark.parametrize(
    ("made", "plan", "state", "reasons"),
    [
        (None, {"num_auxiliary": LEAST_OWNED}, "reliable", []),
        (None, {"num_auxiliary": LEAST_OWNED - 1}, "not_enough", ["few_owned"]),
        (None, {"threat": with_queries(THREATS["query_only"], LEAST_OWNED)}, "reliable", []),
        (None, {"threat": with_queries(THREATS["query_only"], LEAST_OWNED - 1)}, "not_enough", ["few_answered"]),
        (rows(0.02, decoder={"num_images": LEAST_JUDGED}), {}, "reliable", []),
        (rows(0.02, decoder={"num_images": LEAST_JUDGED - 1}), {}, "not_enough", ["few_judged"]),
        (rows(0.02, decoder={"verdict": Verdict(False, 0.05)}), {}, "not_reliable", ["unreliable"]),
        ([*rows(0.02), failed("white box")], {}, "not_reliable", ["failed"]),
        ([*rows(0.02), replace(failed("membership"), kind="probe")], {}, "reliable", []),
        (rows(0.02, decoder={"scores": {"mse": score(0.031)}}), {}, "not_enough", ["should_lead"]),
        ([item for item in rows(0.02) if item.method != "decoder"], {}, "not_enough", ["no_learned"]),
        ([failed("ridge")], {}, "not_enough", ["failed", "no_attack"]),
        (with_width(BLIND * 0.99, 0.9 * WIDEST), {}, "reliable", []),
        (with_width(BLIND * 0.99, 1.1 * WIDEST), {}, "not_enough", ["wide"]),
        (with_width(BLIND * 0.80, 1.1 * WIDEST), {}, "reliable", []),
    ],
)
def test_states(made: list[Row] | None, plan: dict[str, Any], state: str, reasons: list[str]) -> None:
    result = audit(made, **plan)
    assert (result.state, codes(result)) == (state, reasons)


@pytest.mark.parametrize(
    ("excess", "low", "state"),
    [(0.004, -0.001, "reliable"), (0.01, 0.0, "reliable"), (0.004, 0.001, "not_enough"), (0.02, -0.01, "not_enough")],
)
def test_a_decoder_that_is_level_with_ridge_is_not_weak(excess: float, low: float, state: str) -> None:
    """It loses where the paired interval excludes 0, or by more than a hundredth."""
    made = rows(0.03)
    decoder, ridge = (next(item for item in made if item.method == method) for method in ("decoder", "ridge"))
    made = [replace(it, scores={"mse": score(ridge.mse.mean * (1 + excess))}) if it is decoder else it for it in made]
    rival = Rival(decoder.name, ridge.name, excess, low, 2 * excess - low)
    result = join(audit(made).plan, made, {item.name: item.mse.mean for item in made}, rivals=[rival])
    assert (result.strongest, result.state) == (ridge.name, state)
    lost = state == "not_enough"
    assert ("should_lead" in codes(result)) is lost
    assert any(item.code == "loses_to" for item in result.findings) is lost
    strict = join(result.plan, made, {item.name: item.mse.mean for item in made})
    assert strict.state == "not_enough", "without the errors of single images"


def test_doubts_of_both_kinds_are_not_enough_and_all_are_named() -> None:
    result = audit(rows(0.02, decoder={"verdict": Verdict(False)}), num_auxiliary=100)
    assert (result.state, codes(result)) == ("not_enough", ["few_owned", "unreliable"])


def test_rows_with_other_releases_raise_no_doubt() -> None:
    """Only rows that see what the threat model grants are compared."""
    many = row("decoder x16", 0.01, method="decoder", releases=16, verdict=Verdict(False), must_beat=["ridge"])
    assert audit([*rows(0.02), many]).state == "reliable"


# leaks are one-sided


@pytest.mark.parametrize("images", [10, 10_000])
@pytest.mark.parametrize("owned", [10, 50_000])
def test_few_images_never_hide_a_leak(images: int, owned: int) -> None:
    made = [replace(item, num_images=images) for item in rows(0.02)]
    identity = probe("reidentification", "rank_1", 1.0, 1.0, 1.0, 0.025, images)
    result = audit([*made, identity], num_auxiliary=owned)
    assert result.judgement.leaks == ["picture", "identity"]
    assert (result.state == "reliable") == (images > 10 and owned > 10)


@pytest.mark.parametrize(
    ("low", "images", "status"),
    [(0.002, 1000, "leaks"), (0.002, 20, "leaks"), (0.001, 1000, "none_shown"), (0.001, 20, "not_enough")],
)
def test_a_probe_leaks_where_its_interval_excludes_chance(low: float, images: int, status: str) -> None:
    result = audit([*rows(0.02), probe("reidentification", "rank_1", 0.003, low, 0.005, 0.001, images)])
    answer = result.judgement.answer("identity")
    assert (answer.status, answer.candidates) == (status, 1000)


def test_an_attack_at_the_floor_shows_no_leak_only_if_the_audit_is_able_to_tell() -> None:
    made = with_width(BLIND * 0.999, 0.5 * WIDEST)
    assert audit(made).judgement.answer("picture").status == "none_shown"
    assert audit(made, num_auxiliary=500).judgement.answer("picture").status == "not_enough"


def test_of_several_budgets_the_one_that_leaks_most_answers() -> None:
    scores = {f"accuracy@{count}": Score(value, value, value, 0, 1) for count, value in ((1, 0.2), (4, 0.5), (40, 0.8))}
    label = replace(probe("label_leakage", "accuracy@1", 0.2, 0.2, 0.2, 0.1), scores=scores)
    result = audit([*rows(0.02), replace(label, chance=dict.fromkeys(scores, 0.1))])
    answer = result.judgement.answer("label")
    assert (answer.measure, answer.value) == ("accuracy@40", 0.8)
    assert result.judgement.answer("membership").status == "not_tested"


def test_the_judgement_of_a_saved_audit_follows_from_its_rows(tmp_path: Path) -> None:
    from attncem.records.study.runs import load_run

    path = make_run(tmp_path, "none", audits=[audit(num_auxiliary=200)])
    (saved,) = load_run(path).results
    assert saved.judgement == judge(saved) and saved.state == "not_enough"


# the same words everywhere


def parts(made: list[Row]) -> list[Row]:
    """The rows with measures of shape and colour, in proportion to their MSE."""
    shares = {"structure": 0.8, "band_mean": 0.2}
    return [
        replace(item, scores={**item.scores, **{name: score(part * item.mse.mean) for name, part in shares.items()}})
        for item in made
    ]


CASES = {
    "reliable": audit(parts(rows(0.02))),
    "few": audit([replace(item, num_images=40) for item in parts(rows(0.9 * BLIND))], num_auxiliary=160),
    "starved": audit(parts(rows(0.9 * BLIND)), num_auxiliary=500),
    "unconverged": audit(parts(rows(0.95 * BLIND, decoder={"verdict": Verdict(False)}))),
    "hidden": audit(parts(with_width(BLIND * 0.999, 0.02))),
}


@pytest.mark.parametrize("name", ["few", "unconverged", "hidden"])
def test_page_card_terminal_and_gate_say_the_same(tmp_path: Path, name: str) -> None:
    result = CASES[name]
    run = make_run(tmp_path, "none", audits=[result])
    page = html.unescape(report(run, tmp_path / "page.html", now=NOW).read_text()).replace("\u00a0", " ")
    privacy_card(run, tmp_path / "card", now=NOW)
    card = (tmp_path / "card/card.md").read_text()
    console = Console(file=io.StringIO(), width=2000)
    print_summary([result], console)
    terminal = console.file.getvalue()  # type: ignore[attr-defined]
    gate = "\n".join(item.said.text for item in check(result, parse_conditions(["mse<0.0001"])))
    for reason in result.judgement.reasons:
        for shown in (page, card, terminal, gate):
            assert reason.text[1:] in shown
    assert answers.state_word(result.state) in page and answers.state_word(result.state) in terminal
    protected = "Shape is largely protected, and so are colour and brightness"
    assert all((protected in shown) == (name == "hidden") for shown in (page, terminal)), "no such claim in doubt"
    assert ('<li class="kept">' in page) == (name == "hidden")
    passed = not any(item.failed for item in check(result, parse_conditions(["mse<0.0001"])))
    assert passed == (result.state == "reliable")


def test_the_thresholds_are_these() -> None:
    assert (rules.LEAST_OWNED, rules.LEAST_JUDGED, rules.WIDEST) == (1000, 200, 0.10)


def test_the_states_of_the_committed_results_are_in_the_documents() -> None:
    from scripts.list_states import table

    assert table() in (Path(__file__).parent.parent / "docs/audit.md").read_text(encoding="utf-8")
