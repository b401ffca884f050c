"""Certificates of runs from audit to page: the surrogate as a bound, findings, the report's section, privacy cards."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attncem.base.progress import silent
from attncem.base.texts import text
from attncem.base.types import RunError
from attncem.cli.main import main
from attncem.config.options.suites import load_suite
from attncem.judging.auditing import audit
from attncem.judging.opening import open_encoder
from attncem.records.audit import AuditResult
from attncem.records.bounds import Bound
from attncem.records.card import PrivacyCard
from attncem.records.certificates import certificate_findings
from attncem.records.files import read_record
from attncem.reporting import privacy_card, report
from attncem.reporting.card import NAMES
from attncem.reporting.runs.certificates import describe, leakage
from probing import LEAKY

CERTIFICATES = [
    name
    for name, row in load_suite("certificates").suite.rows.items()
    if row.name not in ("mean_image", "ridge", "reidentification")
]
SURROGATES: dict[str, dict[str, Any]] = {
    "kmeans": {"surrogate.name": "kmeans", "surrogate.num_clusters": 3},
    "slot": {"surrogate.name": "slot", "surrogate.num_slots": 3},
    "gmm": {"surrogate.name": "gmm", "surrogate.num_clusters": 2},
    "capacity": {"surrogate.name": "capacity"},
}


@pytest.fixture(scope="module")
def certified(small_run: Callable[..., Path]) -> tuple[Path, AuditResult]:
    """A run with its certificates; nothing may change it."""
    run = small_run("demo-kmeans")
    return run, audit(run, "certificates", progress=silent)


# runs


def test_every_row_of_the_suite_has_an_answer(certified: tuple[Path, AuditResult]) -> None:
    _, result = certified
    outcomes = {row.name: row.outcome for row in result.rows}
    assert {name for name, outcome in outcomes.items() if outcome != "ok"} == {"quantisation", "local privacy"}
    assert "failed" not in outcomes.values()
    assert not [item for item in result.findings if item.code in ("bound_violated", "no_certificate")]
    assert not [item for item in result.findings if item.code == "row_not_applicable"], "their section tells it"


@pytest.mark.parametrize(
    "name", ["kmeans", "slot", *(pytest.param(it, marks=pytest.mark.slow) for it in ("gmm", "capacity"))]
)
def test_surrogate_bound(name: str, small_run: Callable[..., Path]) -> None:
    """Its own cells on evaluation images beside training images, and where the penalty stood."""
    run = small_run("demo-none", **SURROGATES[name])
    result = audit(run, "certificates", only=["surrogate_leakage", "leakage"], fresh=True, progress=silent)
    own, other = result.row("leakage by the surrogate"), result.row("leakage")
    assert own.ok, own.reason
    held_out, training = own.bounds["leakage"], own.bounds["leakage_training"]
    assert (held_out.kind, training.kind, training.assumptions) == ("bound", "estimate", ["fitted_to"])
    assert training.by.startswith("rob_loss ")
    assert training.value <= held_out.value, "what was fitted to looks better"
    assert 0.3 < other.bounds["leakage"].value / held_out.value <= 1.3


def test_a_surrogate_that_flatters_is_named(
    small_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("attncem.judging.certificates.surrogate.FLATTERS", 0.5)
    result = audit(small_run("demo-kmeans"), "certificates", only=["surrogate_leakage"], out=tmp_path, progress=silent)
    (found,) = [item for item in result.findings if item.code == "surrogate_flatters"]
    assert found.about == "leakage by the surrogate" and "the penalty underestimated the leakage" in found.text


def test_a_channel_without_noise_has_no_certificate(small_run: Callable[..., Path], tmp_path: Path) -> None:
    opened = open_encoder(LEAKY, data={"name": "fashion_mnist_mini"}, channel=[{"name": "identity"}], name="bare")
    result = audit(opened, "certificates", out=tmp_path, progress=silent)
    outcomes = {row.name: row.outcome for row in result.rows if row.kind == "certificate"}
    assert {name for name, outcome in outcomes.items() if outcome == "ok"} == {"leakage evidence"}
    assert set(outcomes.values()) == {"ok", "not_applicable"}
    told = result.row("leakage evidence").bounds["infonce"]
    assert told.value == pytest.approx(told.ceiling), "every image is told from all others"
    (found,) = [item for item in result.findings if item.code == "no_certificate"]
    assert "the channel adds no noise" in found.text
    assert describe(result).startswith(text("certificates.none"))
    card, _ = privacy_card(tmp_path, tmp_path / "card")
    assert card.leakage.startswith(text("certificates.none")) and found.text in card.caveats
    assert card.accuracy is None and {item.row for item in card.bounds} == {"leakage evidence"}


@pytest.mark.slow
def test_the_demos_certificates_take_seconds(tmp_path: Path) -> None:
    """All three models in 20 s of a processor; training them for two epochs changes no size."""
    from attncem.training.train import train

    spent = 0.0
    for name in ("demo-none", "demo-kmeans", "demo"):
        run = train(name, {"training.epochs": 2, "device": "cpu"}, out=tmp_path / name, progress=silent)
        started = time.process_time()
        result = audit(run, "certificates", only=CERTIFICATES, progress=silent)
        spent += time.process_time() - started
        assert all(row.outcome != "failed" for row in result.rows)
    assert spent < 20


def test_the_documents_table_is_that_of_the_result_file() -> None:
    root = Path(__file__).parent.parent
    page = (root / "docs/certificates.md").read_text(encoding="utf-8")
    for run in json.loads((root / "results/certificates_demo.json").read_text(encoding="utf-8"))["runs"]:
        line = next(line for line in page.splitlines() if line.startswith(f"| `{run['config']}` |"))
        cells = [cell.strip() for cell in line.split("|")][2:-1]
        limits = {(item["row"], item["bound"]): item["limit"] for item in run["bounds"]}
        rows = [
            *(("leakage evidence", "infonce"), ("leakage evidence", "decoder"), ("leakage", "leakage")),
            *(("leakage by the surrogate", name) for name in ("leakage", "leakage_training")),
            ("accountant", "leakage@16"),
        ]
        nats = [f"{limits[row]:.1f}" if row in limits else "–" for row in rows]
        errors = [("Shannon's bound", "mse_normal"), ("Fisher information", "mse_van_trees")]
        shown = [f"{run['mse']:.4f}", *(f"{limits[row]:.4f}" for row in errors)]
        assert cells == [f"{100 * run['accuracy']:.1f} %", *nats, *shown]


# bounds that are contradicted


def with_bound(result: AuditResult, row: str, **bounds: Bound) -> AuditResult:
    changed = [replace(item, bounds=dict(bounds)) if item.name == row else item for item in result.rows]
    return replace(result, rows=changed)


def violated(result: AuditResult) -> list[str]:
    return [item.about for item in certificate_findings(result) if item.code == "bound_violated"]


def test_an_attack_below_the_least_error_is_a_finding(certified: tuple[Path, AuditResult]) -> None:
    _, result = certified
    mse = result.strongest_attack.mse
    wrong = Bound(2 * mse.high, "MSE", 0, 1, "bound", [], "mse", "at_least", 1.01 * mse.high)
    assert violated(with_bound(result, "Shannon's bound", mse_normal=wrong)) == ["Shannon's bound"]
    inside = replace(wrong, limit=0.99 * mse.high)
    assert violated(with_bound(result, "Shannon's bound", mse_normal=inside)) == [], "within the interval"
    unbiased = replace(wrong, assumptions=["unbiased"])
    assert violated(with_bound(result, "Shannon's bound", mse_normal=unbiased)) == [], "the attack is none"
    (found,) = certificate_findings(with_bound(result, "Shannon's bound", mse=wrong))
    assert "ridge" in found.text and "do not rely on it" in found.text


def test_evidence_above_the_most_leakage_is_a_finding(certified: tuple[Path, AuditResult]) -> None:
    _, result = certified
    wrong = Bound(0.1, "nats", 0, 1, "bound", [], "leakage", "at_most", 0.2)
    assert violated(with_bound(result, "leakage", leakage=wrong)) == ["leakage"]
    assert violated(with_bound(result, "leakage", leakage=replace(wrong, kind="estimate"))) == []


def test_a_probe_above_fano_is_a_finding(certified: tuple[Path, AuditResult]) -> None:
    _, result = certified
    wrong = Bound(0.001, "share", 0, 1, "bound", [], "rank_1", "at_most", 0.001)
    assert violated(with_bound(result, "Fano's bound", **{"rank_1@1000": wrong})) == ["Fano's bound"]
    assert violated(with_bound(result, "Fano's bound", **{"rank_1@999": wrong})) == [], "other candidates"


def test_rows_that_saw_more_are_not_compared(certified: tuple[Path, AuditResult]) -> None:
    _, result = certified
    wrong = Bound(9.0, "MSE", 0, 1, "bound", [], "mse", "at_least", 9.0)
    changed = with_bound(result, "Shannon's bound", mse_normal=wrong)
    often = [replace(row, releases=16) if row.name == "Shannon's bound" else row for row in changed.rows]
    assert violated(replace(changed, rows=often)) == []


# the report


def test_the_report_shows_the_span_and_every_bound(certified: tuple[Path, AuditResult], tmp_path: Path) -> None:
    run, result = certified
    page = report(run, tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count('<section id="certificates"') == 1 and 'href="#certificates"' in page
    assert describe(result) in page
    assert text("bound.mse_van_trees") in page.replace("&#39;", "'")
    assert "not_smooth" in page and text("assumption.not_smooth") in page
    assert "lower and upper bounds on the leakage" in page, "the figure is described"
    known = leakage(result)
    assert known.high is not None and known.low <= known.high


def test_a_report_without_certificates_has_no_section(small_run: Callable[..., Path], tmp_path: Path) -> None:
    run = small_run("demo-none")
    audit(run, "quick", only=["grey", "ridge"], progress=silent)
    assert "certificates-title" not in report(run, tmp_path / "report.html").read_text(encoding="utf-8")


# cards


def test_a_card_says_the_same_in_three_files(certified: tuple[Path, AuditResult], tmp_path: Path) -> None:
    run, result = certified
    card, files = privacy_card(run, tmp_path / "card")
    assert [file.name for file in files] == list(NAMES)
    assert read_record(PrivacyCard, files[0]) == card
    assert len(card.bounds) == sum(len(row.bounds) for row in result.rows)
    assert card.attacks[0].attack == result.strongest and card.accuracy == result.accuracy
    assert set(card.absent) == {"quantisation", "local privacy"}
    for file in files[1:]:
        words = file.read_text(encoding="utf-8").replace("&#39;", "'").replace("&#34;", '"')
        for said in (card.leakage, *card.not_said, *(item.said for item in card.bounds), card.attacks[0].against):
            assert said in words
    assert "://" not in files[2].read_text(encoding="utf-8"), "nothing from outside"


def test_a_card_goes_beside_the_audits_and_replaces_an_older_one(small_run: Callable[..., Path]) -> None:
    run = small_run("demo-none", **SURROGATES["kmeans"])
    audit(run, "certificates", only=["leakage"], progress=silent)
    _, files = privacy_card(run)
    _, again = privacy_card(str(run))
    assert files == again and files[0].parent == run / "card"


def test_a_card_without_certificates_says_so(small_run: Callable[..., Path], tmp_path: Path) -> None:
    run = small_run("demo-none", **{"training.epochs": 1})
    with pytest.raises(RunError, match="no audit to make a card from"):
        privacy_card(run, tmp_path / "card")
    audit(run, "quick", only=["grey", "ridge"], progress=silent)
    card, _ = privacy_card(run, tmp_path / "card")
    assert text("card.uncertified") in card.caveats and card.leakage == ""


def test_somebody_elses_file_is_left_as_it_is(certified: tuple[Path, AuditResult], tmp_path: Path) -> None:
    run, _ = certified
    (tmp_path / "card.md").write_text("my own notes")
    with pytest.raises(RunError, match="was not written by attncem"):
        privacy_card(run, tmp_path)
    assert (tmp_path / "card.md").read_text() == "my own notes"
    assert not (tmp_path / "card.json").exists(), "nothing is written before all is known to be ours"
    with pytest.raises(RunError, match="is a file"):
        privacy_card(run, tmp_path / "card.md")


def test_names_cannot_write_markup(certified: tuple[Path, AuditResult], tmp_path: Path) -> None:
    from datetime import datetime

    from attncem.reporting.card import make_card
    from attncem.reporting.html import render

    _, result = certified
    named = replace(result.plan.subject, run="<script>x</script>")
    card = make_card([replace(result, plan=replace(result.plan, subject=named))], now=datetime.now().astimezone())
    context = {"card": card, "title": card.subject.run, "facts": [], "lines": [], "assumed": {}}
    for template in ("card.html.j2", "card.md.j2"):
        assert "<script>x" not in render(context, template)


def test_the_command(certified: tuple[Path, AuditResult], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, _ = certified
    assert main(["card", str(run), "--out", str(tmp_path / "card")]) == 0
    assert "card.json" in capsys.readouterr().out.replace("\n", "")
    assert main(["card", str(run), "--out", str(tmp_path / "card"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["subject"]["run"] == "demo-kmeans"
    assert main(["card", str(tmp_path / "nothing")]) == 2
    assert "there is no such folder" in capsys.readouterr().err
    assert main(["audit", str(run), "--suite", "certificates", "fisher.probs=3"]) == 2
    assert "probes" in capsys.readouterr().err
