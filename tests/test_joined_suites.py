"""One run, one row: audits of several suites of one run, joined."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from attncem.config.threats import THREATS
from attncem.records.audit import AuditResult, Row
from attncem.records.bounds import Bound
from attncem.records.findings import finding
from attncem.records.image_scores import ImageScores
from attncem.records.ledger import Ledger, RowFiles, joined
from attncem.records.listing import describe_runs
from attncem.records.study.runs import load_run, load_runs
from attncem.records.study.suites import join_suites, joined_suites, with_other_suites
from attncem.reporting import compare, print_summary
from attncem.reporting.card import audits_of, make_card
from attncem.reporting.html import page_context, render
from attncem.reporting.runs.health import comparison_findings
from attncem.reporting.runs.methods import methods
from attncem.reporting.runs.terminal import others_said
from made_runs import NOW, failed, make_audit, make_run, row, rows, score, write_audit

LEAKS = Bound(9.0, "nats", 8.0, 9.5, "bound", about="leakage", limit=9.5)


def certificates(made: str = "2", **plan: Any) -> AuditResult:
    """The suite of certificates, with a ridge that the quick suite has too."""
    bound = row("leakage", 0.5, kind="certificate", scores={}, num_images=0, bounds={"leakage": LEAKS})
    made_rows = [row("mean image", 0.0655, kind="floor"), row("ridge", 0.03), bound]
    return _audit(made_rows, "certificates", 2, made, **plan)


def probes(made: str = "3", **plan: Any) -> AuditResult:
    """A suite of one probe, which used the pictures of an attack."""
    scores = {"rank_1": score(0.4, median=0.4)}
    probe = row("reidentification", 0.5, kind="probe", scores=scores, chance={"rank_1": 0.001}, by="ridge")
    return _audit([row("ridge", 0.03), probe], "probes", 1, made, **plan)


def quick(made: str = "1", mse: float = 0.02, **plan: Any) -> AuditResult:
    return _audit(rows(mse), "quick", 3, made, **plan)


def _audit(made_rows: list[Row], suite: str, version: int, made: str, **plan: Any) -> AuditResult:
    facts = {"id": f"{suite}-audit", "suite": suite, "suite_version": version}
    audit = make_audit("none", made_rows, **facts | plan)
    return replace(audit, plan=replace(audit.plan, made=made))


def names(audit: AuditResult) -> list[str]:
    return [item.name for item in audit.rows]


# the join


def test_suites_of_one_run_are_one_result_with_each_row_once() -> None:
    (whole,) = joined_suites([certificates(), quick(), probes()])
    assert names(whole) == [*names(quick()), "leakage", "reidentification"]
    assert whole.strongest == "decoder small" and whole.leaders == ["decoder small"]
    assert whole.row("ridge").mse.mean == 0.03, "the newest of equals"
    assert (whole.plan.suite, whole.plan.suite_version) == ("quick v3 + certificates v2 + probes", 1)
    assert [plan.suite for plan in whole.plans] == ["quick", "certificates", "probes"]


def test_the_strongest_attack_is_that_of_all_suites() -> None:
    more = _audit([row("white box", 0.004)], "standard", 1, "2")
    for order in ([quick(), more], [more, quick()]):
        assert join_suites(order).strongest == "white box"
    assert join_suites([quick(), certificates()]).strongest == "decoder small"


@pytest.mark.parametrize("other", [{"seed": 1}, {"threat": THREATS["train"]}, {"subject": {"weights": "epoch-00003"}}])
def test_audits_of_another_question_stay_apart(other: dict[str, Any]) -> None:
    assert len(joined_suites([quick(), certificates(**other)])) == 2


def test_audits_of_two_runs_stay_apart() -> None:
    assert len(joined_suites([quick(), quick(subject={"run": "other"})])) == 2


def test_a_result_replaces_a_failure_and_a_damaged_row_whichever_is_newer() -> None:
    decoder = replace(failed("decoder small", "damaged"), method="decoder")
    broken = _audit([failed("ridge"), decoder], "standard", 1, "9")
    for order in ([quick(), broken], [broken, quick()]):
        whole = join_suites(order)
        assert whole.row("ridge").ok and whole.row("decoder small").ok
        assert not any(item.code == "row_failed" for item in whole.findings)
        (remark,) = (item.text for item in whole.findings if item.code == "row_damaged")
        assert remark.startswith("standard: decoder small: damaged"), "still named"


def test_rows_of_one_name_with_other_options_both_stay_and_say_what_differs() -> None:
    remark = finding("few_labels", "ridge", least=2, wanted=3)
    other = row("ridge", 0.012, options={"alpha": 2}, findings=[remark])
    probe = row("reidentification", 0.5, kind="probe", scores={}, by="ridge")
    whole = join_suites([quick(), _audit([other, probe], "mine", 1, "2")])
    assert whole.row("ridge").mse.mean == pytest.approx(0.03)
    assert whole.row("ridge (alpha=2)").mse.mean == 0.012 and whole.strongest == "ridge (alpha=2)"
    assert whole.row("reidentification").by == "ridge (alpha=2)", "the attack of its own suite"
    assert [item.about for item in whole.findings if item.code == "few_labels"] == ["ridge (alpha=2)"]


def test_a_bound_of_one_suite_is_checked_against_attacks_of_another() -> None:
    claim = Bound(0.025, "MSE", 0.024, 0.026, "bound", about="mse", direction="at_least", limit=0.025)
    bound = row("mse", 0.5, kind="certificate", scores={}, num_images=0, bounds={"mse_normal": claim})
    alone = _audit([bound], "certificates", 1, "2")
    assert not any(item.code == "bound_violated" for item in alone.findings)
    assert any(item.code == "bound_violated" for item in join_suites([quick(), alone]).findings)


def test_rows_that_are_still_missing_are_named_unless_another_suite_has_them() -> None:
    begun = replace(quick(), rows=rows(0.02)[:4])
    whole = join_suites([begun, certificates()])
    assert whole.missing == ["decoder small"], "ridge is there"


def test_rows_with_other_images_are_ranked_on_those_they_share(tmp_path: Path) -> None:
    """On all of its images the decoder is stronger, on the two that both saw it is not."""
    values = {"ridge": np.array([0.03, 0.03]), "decoder": np.array([0.05, 0.05, *[0.001] * 98])}
    audits = []
    for suite, (name, mse) in zip(("one", "two"), values.items(), strict=True):
        item = row(name, float(mse.mean()), num_images=len(mse))
        ledger = Ledger.begin(tmp_path, _audit([item], suite, 1, "1").plan)
        ledger.write(item, RowFiles(ImageScores(np.arange(len(mse)), {"mse": mse})))
        audits.append(ledger.result())
    assert join_suites(audits).strongest == "ridge"
    next(tmp_path.glob("*/decoder.npz")).unlink()
    without = join_suites(audits)
    assert without.strongest == "decoder" and "images_missing" in {item.code for item in without.findings}


# pages


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with three suites."""
    return make_run(tmp_path_factory.mktemp("suites"), audits=[quick(), certificates(), probes()])


@pytest.fixture(scope="module")
def page(three: Path) -> dict[str, Any]:
    return page_context([load_run(three)], NOW)


def test_a_run_with_three_suites_has_one_head_row_one_gallery_and_strips(page: dict[str, Any]) -> None:
    (first,) = page["first"]
    assert first.method.label == "none" and "decoder small" in first.attack
    assert len(page["headline"].rows) == 1 and len(page["galleries"]) == 1
    assert [(part.entry.label, part.role) for part in page["extremes"]] == [("none", "best"), ("none", "worst")]
    assert [strip.title for strip in page["strips"]["none"]] == ["Certificates"], (
        "the row itself says what re-identification found"
    )
    assert len(page["certificates"]) == 1
    (cells,) = (row for row in page["cells"] if row["kind"] == "run")
    assert (cells["run"], cells["suite"]) == ("none", "quick v3 + certificates v2 + probes v1")
    assert len(page["settings"][0]) == 5, "every audit has its line"
    assert page["comparison"] == [], "one run differs from nothing"


def test_pictures_are_those_of_the_suite_that_made_the_row(three: Path, page: dict[str, Any]) -> None:
    (gallery,) = page["galleries"]
    assert gallery.attacks == ["decoder small", "ridge"]
    words = render(page | {"report_command": ""})
    assert words.count('<ol class="models"') == 1 and words.count('<dl class="strips">') == 1


def test_list_card_and_terminal_join_too(three: Path) -> None:
    assert describe_runs(three)[0].mse == "0.0200", "not the newest suite's"
    card = make_card(audits_of(three), now=NOW)
    assert [item.attack for item in card.attacks] == ["decoder small"] and len(card.bounds) == 1
    console = Console(file=io.StringIO(), width=80)
    print_summary(load_run(three).results, console)
    assert console.file.getvalue().count("decoder small") == 1  # type: ignore[attr-defined]


def test_the_terminal_names_a_stronger_attack_of_another_suite(three: Path) -> None:
    line = others_said(joined(three / "audits" / "certificates-audit"))
    suites = "quick v3, certificates v2, probes v1"
    assert line == (
        f"none: of all its audits under these conditions ({suites}), decoder small is the strongest attack, MSE 0.0200"
    )
    assert others_said(joined(three / "audits" / "quick-audit")) == ""
    assert with_other_suites(quick()).rows == quick().rows, "an audit that lies nowhere"


def several(folder: Path, audits: Sequence[Sequence[AuditResult]]) -> list[Path]:
    return [
        make_run(folder, seed=seed, audits=[replace(it, plan=replace(it.plan, seed=seed)) for it in suites])
        for seed, suites in enumerate(audits)
    ]


def test_seeds_with_the_same_suites_are_one_row(tmp_path: Path) -> None:
    runs = several(tmp_path, [[quick(), certificates()], [certificates(made="1"), quick(made="2", mse=0.022)]])
    (method,) = methods(load_runs(runs))
    assert [entry.audit.strongest_attack.mse.mean for entry in method.entries] == [0.02, 0.022]


def test_a_suite_that_not_all_seeds_have_is_a_row_of_its_own(tmp_path: Path) -> None:
    white = _audit([row("white box", 0.004)], "standard", 1, "2")
    shared, alone = methods(load_runs(several(tmp_path, [[quick(), white], [quick()]])))
    assert [entry.audit.strongest for entry in shared.entries] == ["decoder small"] * 2
    assert [entry.audit.strongest for entry in alone.entries] == ["white box"]


def test_runs_are_compared_on_a_suite_that_both_have(tmp_path: Path) -> None:
    white = _audit([row("white box", 0.004)], "standard", 1, "2")
    runs = [make_run(tmp_path, "none", audits=[quick(), white]), make_run(tmp_path, "kmeans", audits=[quick()])]
    compared = compare(runs)
    assert compared.audit is not None and compared.audit.suite == "quick"
    assert {item.strongest for item in compared.runs} == {"decoder small"}
    shown = [entry.audit for method in methods(load_runs(runs)) for entry in method.entries]
    (warned,) = comparison_findings(shown)
    assert "suite" in warned.text, "the page says that the rows differ"


def test_audits_without_a_run_are_joined_too(tmp_path: Path) -> None:
    for audit in (quick(), certificates()):
        write_audit(tmp_path, audit)
    (cell,) = load_runs([tmp_path / "audits"])
    assert len(methods([cell])) == 1
    assert len(audits_of(tmp_path / "audits")) == 1
