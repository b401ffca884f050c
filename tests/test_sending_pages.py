"""What pages, tables, findings and the gate say of a client that sends only some images."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from attncem.base.texts import speaking, text
from attncem.base.texts.titles import FROM_SENT
from attncem.campaigns.archive import _result
from attncem.campaigns.choosing import candidate
from attncem.campaigns.results import campaign_table, read_results, results_text
from attncem.cli.main import main
from attncem.config.options.release import ReleaseOptions
from attncem.config.options.suites import load_suite
from attncem.config.threats import THREATS, extended
from attncem.judging.auditing import _share
from attncem.judging.conditions import check, parse_conditions
from attncem.records.campaign_table import Ends
from attncem.records.joining import losing
from attncem.records.judge import LEAST_JUDGED
from attncem.records.leaks import LEAKS, LIMIT, OVER_ALL, SHARE, leak_of
from attncem.records.listing import client_mark
from attncem.records.on_device import Reference, worth_of
from attncem.records.prediction import Candidate, Decision, Prediction
from attncem.records.runs import RunDirectory
from attncem.records.sending import kept_sending, share_findings, twin_of
from attncem.records.statistics import share_interval
from attncem.records.study.results import study_of_results
from attncem.records.study.runs import load_runs
from attncem.reporting import (
    compare,
    draw,
    on_device,
    print_comparison,
    print_summary,
    privacy_card,
    report,
    sending,
    wording,
)
from attncem.reporting.campaign.load import load_campaign
from attncem.reporting.campaign.nats import smallest
from attncem.reporting.campaign.page import all_tables, campaign_figures, write_campaign_report, write_tables
from attncem.reporting.explain.page import first_words
from attncem.reporting.html import page_context
from attncem.reporting.runs.methods import methods
from attncem.reporting.runs.tables import attack_rows
from made_campaigns import ARMS, Made, make_campaign
from made_runs import NOW, make_audit, make_run, score
from made_sending import FINGERPRINT, HEAD, THRESHOLD, facts, sent_audit, sent_rows, sent_run

WORDS = {
    "en": {
        "sends": "ends 30.0 % of the images (threshold 0.825); judged are the 300 of 1,000 images that it sends",
        "accuracy": "86.0 % together, 81.0 % with the client’s head alone, 87.0 % if every image is sent",
        "sent": "about an image that is sent, at most",
        "at most": "at most 6.13 nats about an image that is sent",
        "over all": "on average over all images: at most 2.50 nats",
        "title": "Which images are sent",
        "ends": "nothing sent: 81.0 %|everything sent: 87.0 %|30.0 % sent: 86.0 %",
    },
    "zh": {
        "sends": "发送 30.0 % 的图像（阈值 0.825）；受评估的是它在 1,000 张图像中发送的 300 张",
        "accuracy": "客户端与服务器一起 86.0 %，仅用客户端的分类头 81.0 %，全部发送 87.0 %",
        "sent": "对一张被发送的图像至多泄露",
        "at most": "对一张被发送的图像至多 6.13 nats",
        "over all": "对所有图像平均：至多 2.50 nats",
        "title": "发送哪些图像",
        "ends": "什么都不发送：81.0 %|全部发送：87.0 %|发送 30.0 %：86.0 %",
    },
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sent_run(tmp_path_factory.mktemp("sending"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that sends every image."""
    return make_run(tmp_path_factory.mktemp("whole"), "none")


def plain(page: str) -> str:
    return page.replace("\u00a0", " ")


def explained(*, sent: bool) -> Any:
    """What an explanation has that its first words need; there is no attack."""
    decision = Decision(sent, 0.5 if sent else 0.99, THRESHOLD)
    prediction = Prediction("test:0", [Candidate(0, "circle", 0.9)], 0, "circle", [], None, decision=decision)
    return SimpleNamespace(prediction=prediction, recoveries=[], units=None)


# findings and judgement


def test_a_list_of_runs_knows_the_audits_of_a_client_with_a_head(run: Path) -> None:
    assert client_mark(RunDirectory.open(run)) == FINGERPRINT
    (line,) = sending.of_folder(run.parent)
    assert line.startswith("gated: sends 30.0 % of the images")


@pytest.mark.parametrize(
    ("together", "alone", "sentence"),
    [
        (0.86, 0.81, ""),
        (0.81, 0.81, "no difference is shown"),
        (0.80, 0.81, "no difference is shown"),
        (0.70, 0.81, "what is released buys no accuracy"),
    ],
)
def test_a_head_that_is_as_good_as_both_together_is_reported(together: float, alone: float, sentence: str) -> None:
    audit = sent_audit(selective=facts(together=together, alone=alone))
    codes = [it.code for it in audit.findings]
    assert ("sending_not_worth_it" in codes) == bool(sentence)
    assert not sentence or any(
        sentence in it.text and "with 30 % of the images sent" in it.text for it in audit.findings
    )


def test_few_sent_images_cannot_show_that_nothing_leaks() -> None:
    few = LEAST_JUDGED - 1
    assert sent_audit(LEAST_JUDGED).state == "reliable"
    audit = sent_audit(few)
    assert audit.state == "not_enough" and [it.code for it in audit.judgement.reasons] == ["doubt_few_judged"]


@pytest.mark.parametrize(("sent", "asked", "codes"), [
    (330, 0.3, ["share_differs"]), (270, 0.3, ["share_differs"]), (319, 0.3, []), (300, None, []),
])  # fmt: skip
def test_another_share_than_was_asked_for_is_reported(sent: int, asked: float | None, codes: list[str]) -> None:
    result = share_findings(facts(sent), asked, 500)
    assert [it.code for it in result] == codes
    assert all("30 % were asked for" in it.text and "500 validation images" in it.text for it in result)
    assert share_findings(None, asked, 500) == []


def test_the_interval_of_the_share_covers_it_in_95_of_100_samples() -> None:
    import numpy as np

    drawn = np.random.default_rng(0).binomial(1000, 0.2, size=2000)
    ends = {int(sent): share_interval(facts(int(sent)).share, 1000) for sent in set(drawn)}
    covered = np.mean([ends[int(sent)][0] <= 0.2 <= ends[int(sent)][1] for sent in drawn])
    assert 0.935 < covered < 0.965
    assert share_interval(facts(0).share, 1000)[0] == 0.0 and share_interval(facts(1000).share, 1000)[
        1
    ] == pytest.approx(1.0)


# twins


def test_twins_stand_together_and_the_stronger_is_named(run: Path) -> None:
    entries = [entry for method in methods(load_runs([run])) for entry in method.entries]
    shown = [(cells["attack"].name, cells["notes"]) for cells in attack_rows(entries) if cells["judged"]]
    names = [name for name, _ in shown if "x256" not in name]
    assert names[:4] == ["decoder small", f"decoder small{FROM_SENT}", f"ridge{FROM_SENT}", "ridge"]
    notes = dict(shown)
    assert notes["decoder small"] == [
        "Stronger than the same method learned from sent images only (MSE 0.0300): this one counts."
    ]
    assert "learned from all images of the attacker (MSE 0.0437)" in notes[f"ridge{FROM_SENT}"][0]
    assert not notes["ridge"] and not notes[f"decoder small{FROM_SENT}"]


def test_a_starved_twin_is_no_doubt_where_the_other_one_leads() -> None:
    """It learned from fewer images: only the stronger of both must beat the simpler attacks."""
    made = sent_rows(0.02)
    weak = [
        replace(it, scores={**it.scores, "mse": replace(it.scores["mse"], mean=0.05)})
        if it.name == f"decoder small{FROM_SENT}"
        else it
        for it in made
    ]
    audit = sent_audit(made=weak)
    assert audit.state == "reliable" and audit.strongest == "decoder small"
    assert ("decoder small" + FROM_SENT, "ridge") in [(a.name, b.name) for a, b in losing(audit.attacks)]
    (lost,) = [it for it in audit.findings if it.code == "loses_to"]
    assert lost.values["other"] == f"ridge{FROM_SENT}"
    row = audit.row("ridge")
    other = twin_of(row, audit.rows)
    assert other is not None and other.name == f"ridge{FROM_SENT}" and twin_of(audit.row("grey"), audit.rows) is None


# numbers of the leak


def test_the_share_and_the_mean_over_all_are_numbers_of_the_leak() -> None:
    audit, other = sent_audit(), make_audit("none")
    limit, mean, share = (leak_of(audit, name) for name in (LIMIT, OVER_ALL, SHARE))
    assert limit is not None and mean is not None and share is not None
    assert (round(limit.mean, 2), mean.mean, share.mean) == (6.13, 2.5, 0.3)
    assert share.low < 0.3 < share.high
    assert leak_of(other, SHARE) is None and leak_of(other, OVER_ALL) is None
    assert LEAKS[OVER_ALL].selective and LEAKS[SHARE].private == ""


def test_the_gate_tests_the_leak_of_a_sent_image_and_the_mean_if_asked() -> None:
    suite = load_suite("certificates").suite

    def fails(condition: str) -> bool:
        (line,) = check(sent_audit(), parse_conditions([condition], suite), rows=[])
        return line.failed

    assert fails("leakage>5") and not fails("leakage>7")
    assert fails("over_all>2") and not fails("over_all>3")
    assert fails("leakage>3"), "the mean over all images excludes nothing"


def test_a_candidate_is_chosen_by_the_leak_of_a_sent_image() -> None:
    made = [replace(it, scores={**it.scores, "structure": score(0.02)}) if it.scores else it for it in sent_rows(0.02)]
    assert candidate("one", sent_audit(made=made), "nats").nats == pytest.approx(6.13)


def test_a_result_says_that_it_is_of_sent_images() -> None:
    assert "judged on the 30.0 % sent" in repr(sent_audit()) and "sent" not in repr(make_audit("none"))


# pages


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_report_says_for_which_images_its_numbers_hold(run: Path, whole: Path, tmp_path: Path, lang: str) -> None:
    page = plain(report([run, whole], tmp_path / "r.html", now=NOW, lang=lang, csv=True).read_text(encoding="utf-8"))
    words = WORDS[lang]
    for name in ("sends", "accuracy", "sent", "over all", "title"):
        assert words[name] in page, name
    assert all(end in page for end in words["ends"].split("|")) and 'id="sending"' in page
    rows = list(csv.DictReader(io.StringIO((tmp_path / "r.csv").read_text(encoding="utf-8"))))
    first, second = rows[:2]
    assert [float(first[name]) for name in ("share_sent", "over_all", "threshold")] == [0.3, 2.5, 0.8253]
    assert float(first["not_sent"]) == 5.0 and "5.00" in page[page.index('id="table-sending"') :]
    assert [float(first[name]) for name in ("accuracy", "accuracy_alone", "accuracy_all_sent")] == [0.86, 0.81, 0.87]
    assert second["share_sent"] == second["accuracy_alone"] == ""


def test_the_first_screen_has_the_leak_of_a_sent_image_before_the_mean(run: Path) -> None:
    with speaking("en"):
        (row,) = page_context(load_runs([run]), NOW)["first"]
    assert row.leak.limit == "6.13 nats" and row.leak.about == WORDS["en"]["sent"]
    assert row.leak.over_all == WORDS["en"]["over all"] and row.sends.startswith("Sends 30.0 %")


@pytest.mark.parametrize(
    ("lang", "sentence"), [("en", "Sends 31.0 ± 1.4 % of the images"), ("zh", "发送 31.0 ± 1.4 % 的图像")]
)
def test_seeds_of_one_model_have_a_mean_and_a_curve_each(tmp_path: Path, lang: str, sentence: str) -> None:
    shares = {0: 300, 1: 320}
    audits = {
        seed: sent_audit(sent, subject={"fingerprint": FINGERPRINT, "seed": seed}) for seed, sent in shares.items()
    }
    runs = [sent_run(tmp_path, [audit], seed) for seed, audit in audits.items()]
    page = plain(report(runs, tmp_path / "r.html", now=NOW, lang=lang).read_text(encoding="utf-8"))
    assert sentence in page and ("mean over 2 seeds" in page or "2 个种子的均值" in page)
    assert "300 / 1,000, 320 / 1,000" in page
    figure = re.search(r'<section id="sending".*?<svg.*?</svg>', page, re.DOTALL)
    assert figure is not None and figure[0].count('<circle class="spot"') == 2 * 3


def test_an_audit_looks_for_another_share_than_was_asked_for() -> None:
    asked = SimpleNamespace(config=SimpleNamespace(release=ReleaseOptions(when="unsure", share=0.1)))
    asked.selection = {"images": 500}
    (result,) = _share(SimpleNamespace(subject=asked, selective=facts()))  # type: ignore[arg-type]
    assert result.code == "share_differs" and result.values["chosen_on"] == 500
    assert _share(SimpleNamespace(subject=asked, selective=None)) == []  # type: ignore[arg-type]


def test_a_report_without_a_head_has_none_of_it(whole: Path, tmp_path: Path) -> None:
    page = report([whole], tmp_path / "r.html", now=NOW, csv=True).read_text(encoding="utf-8")
    assert 'id="sending"' not in page and "that is sent" not in page
    assert "share_sent" not in (tmp_path / "r.csv").read_text(encoding="utf-8")


def test_a_run_that_is_not_audited_yet_has_a_page(tmp_path: Path) -> None:
    run = sent_run(tmp_path, [])
    assert "attncem audit" in report([run], tmp_path / "r.html", now=NOW).read_text(encoding="utf-8")
    assert sending.of_folder(tmp_path) == []


def test_models_judged_on_other_images_are_reported(run: Path, whole: Path) -> None:
    with speaking("en"):
        (sentence,) = page_context(load_runs([run, whole]), NOW)["comparison"]
        assert "gated (30.0 %) only on those that the client sends" in sentence
        assert page_context(load_runs([run]), NOW)["comparison"] == []


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_card_speaks_of_images_that_are_sent(run: Path, tmp_path: Path, lang: str) -> None:
    card, files = privacy_card(run, tmp_path, now=NOW, lang=lang)
    words = WORDS[lang]
    assert card.selective == facts() and card.accuracy == facts().together
    for file in files[1:]:
        page = plain(file.read_text(encoding="utf-8"))
        assert words["sends"] in page and words["at most"] in page and words["over all"] in page
    purpose = " ".join(card.purpose)
    wanted = {
        "en": ("Client and server together are right on 86.0 % of all images", "sends 30.0 % of the pictures"),
        "zh": ("在全部图像上的正确率为 86.0 %", "它发送 30.0 % 的图像"),
    }
    assert all(words in purpose for words in wanted[lang])
    answers = {
        "en": "attackers who see the answers that the device gives itself",
        "zh": "能看到设备自己给出的回答的攻击者",
    }
    assert answers[lang] in card.not_tested
    assert json.loads(files[0].read_text())["selective"]["num_sent"] == 300


def test_a_mean_over_all_images_proves_nothing_about_a_sent_one(tmp_path: Path) -> None:
    nothing = sent_audit(made=sent_rows(0.03, beyond=None, vacuous=True))
    card, _ = privacy_card(sent_run(tmp_path, [nothing]), tmp_path / "card", now=NOW, lang="en")
    with speaking("en"):
        assert text("card.unproven") in card.not_tested and "over_all" in {item.name for item in card.bounds}


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_terminal_names_the_share_and_the_three_accuracies(lang: str) -> None:
    console = Console(file=io.StringIO(), width=400)
    print_summary([sent_audit()], console, lang=lang)
    sentence = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(WORDS[lang][name] in sentence for name in ("sends", "accuracy", "at most", "over all"))


def test_the_list_of_runs_names_what_is_sent(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(run.parent)]) == 0
    assert "sends 30.0 % of the images" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_comparison_says_which_runs_are_judged_on_sent_images(
    run: Path, whole: Path, tmp_path: Path, lang: str
) -> None:
    result = compare([run, whole], out=tmp_path / "c.html", now=NOW, lang=lang)
    (line,) = result.sending
    assert WORDS[lang]["sends"].removeprefix("e") in line and WORDS[lang]["over all"] in line
    assert line in plain((tmp_path / "c.html").read_text(encoding="utf-8"))
    console = Console(file=io.StringIO(), width=400)
    print_comparison(result, console, lang=lang)
    assert line in console.file.getvalue()  # type: ignore[attr-defined]
    (noted,) = [it for it in result.findings if it.code == "compare_sent"]
    assert noted.values["runs"] == "gated (30.0 %)"
    first, second = (it["sending"] for it in result.to_dict()["runs"])
    assert first["share"] == 0.3 and first["alone"][0] == 0.81 and second is None


def test_a_notebook_draws_the_accuracy_over_the_share(run: Path, whole: Path) -> None:
    assert "sending" in draw([run]) and "sending" not in draw([whole])


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_an_explanation_says_whether_the_image_would_be_sent(lang: str) -> None:
    words = {
        "en": ("Nothing of this image leaves the device.", "the client itself says circle", "if it sent the image"),
        "zh": ("这张图像什么都不会离开设备。", "客户端自己判为 circle", "假如它发送这张图像"),
    }
    with speaking(lang):
        answered, sent = (first_words(explained(sent=sent))[:3] for sent in (False, True))
    assert [sentence in line for sentence, line in zip(words[lang], answered, strict=True)] == [True] * 3
    assert words[lang][0] not in sent[0] and words[lang][2] not in sent[2]
    assert {"en": "The client sends this image", "zh": "客户端会发送这张图像"}[lang] in sent[2]


@pytest.mark.parametrize(
    ("over_all", "lang", "sentence"),
    [
        (2.5, "en", "with 30.0 % of the images sent, add +5.0 points"),
        (2.5, "en", "leak up to 6.13 nats about an image that is sent (2.50 on average over all images)"),
        (None, "en", "and leak up to 6.13 nats about an image that is sent"),
        (2.5, "zh", "对一张被发送的图像泄露最多 6.13 nats（对所有图像平均最多 2.50）"),
    ],
)
def test_the_client_alone_is_compared_with_both_together(
    tmp_path: Path, over_all: float | None, lang: str, sentence: str
) -> None:
    audit = sent_audit(made=sent_rows(0.03, over_all=over_all))
    cell = load_runs([sent_run(tmp_path, [audit])])[0]
    audited = [on_device.Audited(cell, cell.results[0])]
    with speaking(lang):
        leak = on_device.leak_of([[cell.results[0]]], audited)
        reference = Reference("alone", {"test": Ends(0.81, 0.80, 0.82)}, 4_000_000, 0)  # type: ignore[dict-item]
        worth = worth_of([(audit.known_accuracy, Ends(0.81, 0.80, 0.82), reference)])
        assert sentence in on_device.said(worth, leak, [audit])


def test_the_mean_over_all_images_is_that_of_the_same_adversary(tmp_path: Path) -> None:
    seeing = extended(THREATS["held_out"], sees_answers=True)
    more = sent_audit(made=sent_rows(0.03, over_all=4.0), id="answers-audit", threat=seeing)
    cell = load_runs([sent_run(tmp_path, [sent_audit(), more])])[0]
    with speaking("en"):
        sentence = [on_device.leak_of([[audit]], [on_device.Audited(cell, audit)]) for audit in cell.results]
    assert ["2.50 on average" in it for it in sentence] == [True, False] and "4.00 on average" in sentence[1]


def test_without_a_limit_the_attack_on_sent_images_is_named(tmp_path: Path) -> None:
    cell = load_runs([sent_run(tmp_path, [sent_audit(made=sent_rows(0.03, limit=None, beyond=None))])])[0]
    with speaking("en"):
        leak = on_device.leak_of([[cell.results[0]]], [on_device.Audited(cell, cell.results[0])])
    assert leak.startswith("leak without a proven limit (on the images that are sent, the strongest attack removes")


def test_an_adversary_who_sees_the_answers_is_described() -> None:
    seeing = extended(THREATS["train"], sees_answers=True)
    with speaking("en"):
        assert "It also sees the answers that the client gives itself." in wording.describe_threat(seeing)
        assert "answers" not in wording.describe_threat(THREATS["train"])


def test_results_without_weights_keep_the_decision(run: Path, tmp_path: Path) -> None:
    manifest = json.loads(_result(run, run / "manifest.json"))  # type: ignore[arg-type]
    assert manifest["release_decision"] == {"threshold": THRESHOLD, "head": HEAD}
    copy = tmp_path / "copy"
    shutil.copytree(run, copy, ignore=shutil.ignore_patterns("checkpoints"))
    (copy / "manifest.json").write_text(json.dumps(manifest))
    assert client_mark(RunDirectory.open(copy)) == FINGERPRINT


# campaigns


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three arms of two seeds; the last one sends some images."""
    leaks = {arm: {"limit": limit} for arm, limit in (("none", 30.0), ("kmeans", 12.0), ("gated", 6.0))}
    made = Made(ARMS, seeds=2, leaks=leaks, pictures=1, portraits=False, attacks=("ridge",), sending={"gated": facts()})
    return make_campaign(tmp_path_factory.mktemp("campaign") / "made", made).path


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_page_of_a_campaign_has_the_section(campaign: Path, tmp_path: Path, lang: str) -> None:
    page = plain(write_campaign_report(campaign, tmp_path / "c.html", now=NOW, lang=lang).read_text(encoding="utf-8"))
    words = {
        "en": (
            "sends 30.0 ± 0.0 % of the images and is judged on these",
            "nats about an image that is sent, at",
            "gated: 30.0 % sent, accuracy 86.0 %; head alone 81.0 %, every image sent 87.0 %",
        ),
        "zh": (
            "发送 30.0 ± 0.0 % 的图像，只在这些图像上评判",
            "对一张被发送的图像至多",
            "gated：发送 30.0 %，准确率 86.0 %",
        ),
    }
    assert 'id="sending"' in page and WORDS[lang]["title"] in page
    assert json.dumps(WORDS[lang]["sends"])[1:-1] in page, "also for a single cell"
    assert [word for word in words[lang] if word not in page] == []


def test_the_tables_of_a_campaign_have_the_share_and_the_accuracies(campaign: Path, tmp_path: Path) -> None:
    study = load_campaign(campaign).study
    tables = {table.name: table for table in all_tables(study)}
    made = tables["sending"]
    keys = [column.key for column in made.columns]
    assert keys == ["arm", "seeds", SHARE, "accuracy", "head_alone", "all_sent", "sending_adds", LIMIT]
    (row,) = made.rows
    assert [item.value for item in row][:1] == ["gated"] and row[6].shown == "+5.0 ± 0.0"
    assert {SHARE} < {column.key for column in tables["headline"].columns}
    assert [plot.name for plot in campaign_figures(campaign)][-1] == "accuracy-share-sent"
    write_tables(campaign, tmp_path)
    latex, sheet = ((tmp_path / f"sending.{end}").read_text(encoding="utf-8") for end in ("tex", "csv"))
    assert "30.0" in latex and "Head alone" in latex and "share_sent_image_low" in sheet.splitlines()[0]


def test_errors_on_other_images_have_no_best_arm(campaign: Path) -> None:
    tables = {table.name: table for table in all_tables(load_campaign(campaign).study)}
    for table in (tables["headline"], tables["nats"]):
        keys = [column.key for column in table.columns]
        marked = {key for row in table.rows for key, item in zip(keys, row, strict=True) if item.best}
        assert LIMIT in marked and not marked & {"mse", "ssim", "structure"}, table.name


def test_an_arm_without_other_numbers_of_the_leak_has_a_whole_sentence(tmp_path: Path) -> None:
    bare = {"limit": 6.0, "beyond": None, "many": None}
    made = Made(ARMS, seeds=1, pictures=1, portraits=False, attacks=("ridge",), sending={"gated": facts()}, leaks={})
    path = make_campaign(tmp_path / "bare", replace(made, leaks={"none": bare, "gated": {**bare, "limit": 20.0}})).path
    study = load_campaign(path).study
    of_limit = [cell for cell in study.arms[0].cells if cell.audit()]
    for cell in of_limit:
        (audit,) = cell.results
        kept = [row for row in audit.rows if row.method in ("leakage", "ridge") or row.kind == "floor"]
        cell.audits[next(iter(cell.audits))] = replace(audit, rows=kept)  # type: ignore[index]
    with speaking("en"):
        assert smallest(study, study.kinds[0]).endswith("beside it: no other number of the leak.")


def test_a_campaign_without_heads_has_none_of_it(tmp_path: Path) -> None:
    path = make_campaign(tmp_path / "plain", Made(ARMS, seeds=1, pictures=1, portraits=False, attacks=("ridge",))).path
    tables = {table.name: table for table in all_tables(load_campaign(path).study)}
    assert "sending" not in tables
    assert not {SHARE, OVER_ALL} & {column.key for table in tables.values() for column in table.columns}


def test_a_file_of_results_keeps_what_is_sent(campaign: Path, tmp_path: Path) -> None:
    table = campaign_table(campaign, command_to="made.json")
    out = tmp_path / "made.json"
    out.write_text(results_text(table), encoding="utf-8")
    read = read_results(out)
    assert read == table
    kept = [cell.audits[0].sending for cell in read.cells]
    assert kept == [kept_sending(facts()) if cell.arm == "gated" else None for cell in read.cells]
    arms = {arm.name: arm for arm in study_of_results(read).arms}
    assert arms["gated"].values(SHARE) == [0.3, 0.3] and arms["none"].values(SHARE) == []
    assert '"sending"' not in json.dumps(json.loads(results_text(table))["cells"][0])
