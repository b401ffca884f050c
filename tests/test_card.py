"""Certificates of runs from audit to page: the surrogate as a bound, findings, the report's section, privacy cards."""

from __future__ import annotations

import html
import json
import math
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
from attncem.config.threats import THREATS
from attncem.judging.auditing import audit
from attncem.judging.opening import open_encoder
from attncem.records.audit import AuditResult, Row
from attncem.records.bounds import Bound
from attncem.records.card import PrivacyCard
from attncem.records.certificates import certificate_findings
from attncem.records.files import read_record
from attncem.records.findings import finding
from attncem.reporting import privacy_card, report
from attncem.reporting.answers import lines
from attncem.reporting.card import NAMES, audits_of, make_card
from attncem.reporting.runs.certificates import describe, leakage, nats_of_any_number
from made_runs import NOW, make_audit, make_run, row, rows, score
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
    assert {name for name, outcome in outcomes.items() if outcome != "ok"} == {
        "quantisation",
        "entropy of the code",
        "local privacy",
    }
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
            ("leakage beyond the label", "beyond_label"),
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


# codes


@pytest.fixture(scope="module")
def coded(small_run: Callable[..., Path]) -> tuple[Path, AuditResult]:
    """A run that sends 128 bits, with the certificates of its codes; nothing may change it."""
    run = small_run("demo-none", channel=[{"name": "quantise", "bits": 1}])
    return run, audit(run, "certificates", only=["leakage", "quantisation", "entropy of the code"], progress=silent)


def test_the_codes_of_a_run_are_bounded_for_any_number_of_queries(coded: tuple[Path, AuditResult]) -> None:
    _, result = coded
    bits, code = (result.row(name).bounds for name in ("quantisation", "entropy of the code"))
    assert bits["leakage"].claim == pytest.approx(128 * math.log(2)) and bits["leakage"].any_number
    assert 0 < code["entropy_plugin"].claim < code["entropy"].claim < 128 * math.log(2)
    assert result.row("leakage").reason == text("reason.only_bits")
    known = leakage(result)
    assert (known.high, known.estimates) == (code["entropy"].claim, [])


@pytest.mark.parametrize(
    ("lang", "card", "page"),
    [
        ("en", "16 bytes, at most 88.7 nats, any number of queries", "16 bytes and reveals at most 88.7 nats"),
        ("zh", "16 字节，至多 88.7 nats，查询次数不限", "16 字节，无论查询多少次，至多透露图像的 88.7 nats"),
    ],
)
def test_card_and_report_name_bytes_nats_and_any_number(
    coded: tuple[Path, AuditResult], tmp_path: Path, lang: str, card: str, page: str
) -> None:
    run, _ = coded
    privacy_card(run, tmp_path, pictures=False, lang=lang)
    assert card in (tmp_path / "card.md").read_text(encoding="utf-8")
    written = report(run, tmp_path / "report.html", lang=lang).read_text(encoding="utf-8")
    rests_on = {"en": "a cropped or re-encoded picture is another query", "zh": "裁剪过或重新编码的图像算另一次查询"}
    assert page in written and rests_on[lang] in written


def test_no_words_on_bits_where_none_hold_for_any_number(certified: tuple[Path, AuditResult]) -> None:
    _, result = certified
    noisy = Bound(9.0, "nats", 9, 9, "bound", [], "leakage", any_number=False)
    for bound in (noisy, replace(noisy, any_number=True, vacuous=True), replace(noisy, any_number=True, limit=9.0)):
        assert nats_of_any_number([bound]) is None
    assert "any number of queries" not in describe(with_bound(result, "leakage", leakage=noisy))
    assert nats_of_any_number([replace(noisy, any_number=True, value=8.0), replace(noisy, any_number=True)]) == 8.0


# cards


def test_a_card_says_the_same_in_three_files(certified: tuple[Path, AuditResult], tmp_path: Path) -> None:
    run, result = certified
    card, files = privacy_card(run, tmp_path / "card")
    assert [file.name for file in files] == list(NAMES)
    assert read_record(PrivacyCard, files[0]) == card
    assert len(card.bounds) == sum(len(row.bounds) for row in result.rows)
    assert card.attacks[0].attack == result.strongest and card.accuracy == result.accuracy
    assert set(card.absent) == {"quantisation", "entropy of the code", "local privacy"}
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

    from attncem.reporting.card import card_context, make_card
    from attncem.reporting.html import render

    _, result = certified
    named = replace(result.plan.subject, run="<script>x</script>")
    card = make_card([replace(result, plan=replace(result.plan, subject=named))], now=datetime.now().astimezone())
    context = card_context(card, result, pictures=True)
    for template in ("card.html.j2", "card.md.j2"):
        assert "<script>x" not in render(context, template)


# half a page for a person who decides


def probe(name: str, measure: str, mean: float, chance: float, **other: Any) -> Row:
    """A row of a probe."""
    method = name.replace("re-identification", "reidentification").replace(" ", "_")
    found = {measure: score(mean)}
    return row(name, 0.02, kind="probe", method=method, scores=found, chance={measure: chance}, **other)


ASKED = [probe("re-identification", "rank_1", 0.8, 0.001), probe("label leakage", "accuracy@16", 0.7, 0.25)]


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose audit is reliable and leaks; nothing may change it."""
    audits = [make_audit("gated", [*rows(0.0291), *ASKED])]
    return make_run(tmp_path_factory.mktemp("card"), "gated", audits=audits)


def page_of(files: list[Path]) -> str:
    return html.unescape(files[2].read_text(encoding="utf-8")).replace("\u00a0", " ")


def test_the_card_answers_what_a_person_asks(judged: Path, tmp_path: Path) -> None:
    card, files = privacy_card(judged, tmp_path / "card", now=NOW)
    (audit,) = audits_of(judged)
    assert (card.judgement.state, [item.status for item in card.answers]) == ("reliable", ["leaks"] * 3)
    assert [item.said for item in card.answers] == lines(audit), "the words of page and terminal"
    assert "4 classes of pictures apart: circle, square, cross, star." in card.purpose[0]
    assert card.data == "shapes; trained on 4,000 images", "a data set that has no words is named"
    assert "owns held-out images" in card.tested[0] and "owns 4,000 images; 1,000 images were judged" in card.tested[0]
    for file in files[1:]:
        words = html.unescape(file.read_text(encoding="utf-8")).replace("\u00a0", " ")
        head = words[: words.index("<details")]
        parts = (*card.purpose, card.data, *card.tested, *(item.said for item in card.answers), *card.not_tested)
        for said in (*parts, *card.not_said, card.not_for):
            assert said in head, said
        assert "fingerprint" not in head and "sha256" not in head and "nats" not in head, "codes are folded"
    assert page_of(files).count("data:image/png;base64,") == 2
    assert len(files[1].read_text(encoding="utf-8").splitlines()) < 70


def test_private_pictures_are_left_out(judged: Path, tmp_path: Path) -> None:
    _, files = privacy_card(judged, tmp_path / "card", pictures=False)
    assert "data:image" not in page_of(files) and "<img" not in page_of(files)
    assert main(["card", str(judged), "--out", str(tmp_path / "other"), "--no-pictures"]) == 0
    assert "data:image" not in (tmp_path / "other/card.html").read_text(encoding="utf-8")


def test_pictures_that_are_not_there_are_left_out(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    for file in run.rglob("*.png"):
        file.unlink()
    _, files = privacy_card(run)
    assert "<img" not in page_of(files)


def test_what_was_not_tested_is_named(judged: Path) -> None:
    (audit,) = audits_of(judged)
    missing = replace(audit, plan=replace(audit.plan, rows=[*audit.plan.rows, "white box"]))
    said = make_card([missing], now=NOW).not_tested
    for key in ("card.untested.attribute", "card.untested.membership", "card.untested.releases", "card.unproven.none"):
        assert text(key) in said
    assert "rows of the suite quick without a result: white box" in said
    (others,) = [line for line in said if line.startswith("other attackers")]
    assert "only listen" in others and "own other pictures of the same kind" not in others, "that one was tested"
    asked = [*ASKED, probe("membership", "auc", 0.5, 0.5), probe("attribute leakage", "attribute_balanced", 0.5, 0.5)]
    often = row("ridge x16", 0.02, method="ridge", releases=16)
    said = make_card([make_audit("gated", [*rows(0.0291), *asked, often])], now=NOW).not_tested
    assert not [key for key in ("attribute", "membership", "releases") if text(f"card.untested.{key}") in said]


def test_few_images_are_not_enough_to_tell_but_a_leak_stays_a_leak() -> None:
    few = [replace(one, num_images=40) for one in (*rows(0.0600), *ASKED)]
    card = make_card([make_audit("gated", few, num_auxiliary=160, num_evaluation=40)], now=NOW)
    assert card.judgement.state == "not_enough"
    assert [item.status for item in card.answers] == ["not_enough", "leaks", "leaks"]


def test_the_adversary_that_learns_most_decides() -> None:
    weak = make_audit("gated", rows(0.05), threat=THREATS["query_only"], id="weak")
    strong = make_audit("gated", rows(0.02), id="strong")
    only = make_audit("gated", [row("mean image", 0.06, kind="floor"), *ASKED], threat=THREATS["train"], id="only")
    card = make_card([weak, only, strong], now=NOW)
    assert [item.audit for item in card.answers] == ["strong", "only", "only"]
    assert card.answers[1].said.endswith("(adversary “train”)") and len(card.tested) == 3
    assert card.judgement == strong.judgement


def test_cautions_stand_beside_the_answers(judged: Path) -> None:
    (audit,) = audits_of(judged)
    useless = replace(audit, findings=[finding("near_chance", accuracy=25.0), finding("suite_changed", changed="x")])
    card = make_card([useless], now=NOW)
    assert card.cautions == [useless.findings[0].text] and set(card.cautions) < set(card.caveats)


def test_only_proven_limits_for_every_attack_are_called_proven(certified: tuple[Path, AuditResult]) -> None:
    _, result = certified
    proof = Bound(0.1, "share", 0.1, 0.12, "bound", [], "rank_1", "at_most", 0.12)
    vacuous, unbiased = replace(proof, vacuous=True), Bound(9, "MSE", 9, 9, "bound", ["unbiased"], "mse", "at_least", 9)
    bounds = {"rank_1@1000": vacuous, "rank_1@2000": proof, "rank_1@3000": proof, "mse_unbiased": unbiased}
    (said,) = make_card([with_bound(result, "Fano's bound", **bounds)], now=NOW).proven
    assert "of 2,000 candidates" in said and "12.0 %" in said
    assert make_card([with_bound(result, "Fano's bound", **{"rank_1@1000": vacuous})], now=NOW).proven == []


def test_a_card_of_version_0_2_is_read(judged: Path, tmp_path: Path) -> None:
    _, files = privacy_card(judged, tmp_path / "card")
    data = json.loads(files[0].read_text(encoding="utf-8"))
    for key in ("purpose", "data", "tested", "answers", "judgement", "proven", "cautions", "not_tested", "not_for"):
        del data[key]
    files[0].write_text(json.dumps(data))
    assert read_record(PrivacyCard, files[0]).answers == []


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
