"""The leak in nats as an axis: one declaration, the same words everywhere, and no ranking that attacks contradict."""

from __future__ import annotations

import io
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from attncem.base.plugins import PluginUse
from attncem.base.texts import speaking
from attncem.base.types import ConfigError
from attncem.campaigns.choosing import Candidate, candidate, choose, undominated
from attncem.campaigns.results import campaign_table, read_results, results_text, write_results
from attncem.cli.verbs import audit as audit_verb
from attncem.config.options.search import load_search
from attncem.config.threats import THREATS
from attncem.records.audit import AuditResult, Row
from attncem.records.leak import Leak
from attncem.records.leaks import CONTRARY, LEAKS, LIMIT, from_kept, kept, leaks_of, private_of, say_leak
from attncem.records.ledger import ledgers
from attncem.records.statistics import seed_summary
from attncem.records.study import Arm, AuditKind, Cell, Study
from attncem.records.study.equal import is_better
from attncem.records.study.leaking import contradictions, nats_disagree, ranked
from attncem.records.study.results import study_of_results
from attncem.reporting import card_words, compare, print_comparison, print_summary, report
from attncem.reporting.campaign import nats
from attncem.reporting.campaign.load import load_campaign
from attncem.reporting.campaign.page import all_tables, write_campaign_report
from attncem.reporting.runs import certificates, leaks
from attncem.reporting.table_formats import Column, Item, as_csv, as_latex, leak_item, mean_sd, table, with_best
from made_campaigns import ARMS, Made, make_campaign
from made_runs import NOW, leak_rows, make_audit, make_run, rows

RESULTS = Path(__file__).parent.parent / "results"
OF_ALL = [name for name, measure in LEAKS.items() if not measure.selective]
"""Numbers that audits of every client have; test_sending_pages.py tests the others."""
LEAKY: dict[str, dict[str, Any]] = {
    "none": {"limit": 172.0, "beyond": 160.0, "infonce": 6.5, "share": 0.97, "many": 0.004},
    "kmeans": {"limit": 20.4, "beyond": 17.2, "infonce": 5.1, "share": 0.30, "many": 0.020},
    "gated": {"limit": 6.13, "beyond": 3.84, "infonce": 5.6, "share": 0.42, "many": 0.018},
}
"""The limit falls from arm to arm; at gated, everything else says that kmeans leaks less."""


def leaky(name: str = "gated", **options: Any) -> AuditResult:
    return make_audit(name, [*rows(0.03), *leak_rows(**options)])


# what an audit says


def test_every_number_of_the_leak_is_read_from_its_row() -> None:
    found = leaks_of(leaky())
    assert list(found) == list(OF_ALL)
    assert (found["leak_limit"].mean, found["leak_limit"].by) == (pytest.approx(6.13), "leakage")
    assert found["leak_limit"].low < found["leak_limit"].mean < found["leak_limit"].high
    assert found["beyond_label"].mean == pytest.approx(3.84) and found["infonce"].mean == pytest.approx(4.5)
    assert (found["reidentified"].mean, found["reidentified"].count) == (0.24, 1000)
    assert (found["mse_most"].mean, found["mse_most"].by, found["mse_most"].count) == (0.0265, "ridge x256", 256)
    assert found["structure_most"].mean == pytest.approx(0.8 * 0.0265)
    assert leaks_of(make_audit("gated")) == {}


def changed(made: list[Row], name: str, **other: Any) -> list[Row]:
    """The rows with one bound of the leak changed."""
    bounds = {key: {name: replace(row.bounds[key], **other)} for row in made for key in row.bounds if key == name}
    return [replace(row, bounds=bounds[name]) if name in row.bounds else row for row in made]


def test_only_a_proven_bound_on_all_that_is_seen_is_the_limit() -> None:
    made = leak_rows(None, None)
    bits = changed(leak_rows(21.0, None), "leakage", value=21.0, limit=None)[0]
    bits = replace(bits, name="quantisation", method="quantisation")
    smaller = replace(leak_rows(5.0, None)[0], name="leakage")

    def limit(*given: Row) -> float | None:
        leak = leaks_of(make_audit("gated", [*rows(0.03), *made, *given])).get(LIMIT)
        return None if leak is None else leak.mean

    assert limit(bits, smaller) == pytest.approx(5.0)
    estimate, vacuous = changed([smaller], "leakage", kind="estimate"), changed([smaller], "leakage", vacuous=True)
    assert limit(bits, *estimate) == limit(bits, *vacuous) == limit(bits, replace(smaller, releases=16)) == 21.0
    beyond = changed(leak_rows(None, 3.0, many=None), "beyond_label", about="leakage")
    assert limit(bits, *beyond) == 21.0, "what leaks beyond the label does not limit the whole leak"
    assert limit(*vacuous) == pytest.approx(5.0) and limit() is None


def test_of_several_measured_bounds_a_fixed_order_chooses_the_limit() -> None:
    """The smallest of several 95 % limits is no 95 % limit."""

    def certificate(method: str, value: float, name: str = "leakage", **other: Any) -> Row:
        (made,) = leak_rows(value, None, many=None)[:1]
        return replace(made, name=method, method=method, bounds={name: replace(made.bounds["leakage"], **other)})

    def limit(*given: Row) -> tuple[float, str]:
        leak = leaks_of(make_audit("gated", [*rows(0.03), *given]))[LIMIT]
        return round(leak.mean, 6), leak.by

    noise, code = certificate("leakage", 9.0), certificate("code_entropy", 7.0, "entropy", ceiling=7.1)
    cells, bits = certificate("surrogate_leakage", 5.0), certificate("quantisation", 6.12, limit=None)
    assert limit(cells, code, noise) == (9.0, "leakage") and limit(cells, code) == (7.0, "code_entropy")
    assert limit(cells) == (5.0, "surrogate_leakage"), "a measured bound where it is the only one"
    assert limit(noise, code, cells, bits) == (6.0, "quantisation"), "a certain bound always counts"
    assert limit(noise, replace(bits, bounds={"leakage": replace(bits.bounds["leakage"], value=12.0)}))[0] == 9.0
    assert not leaks_of(make_audit("gated", [*rows(0.03), code]))[LIMIT].at_ceiling, "only evidence has a ceiling"
    twice = [replace(leak_rows(None, value, many=None)[0], name=name) for name, value in (("a", 4.0), ("b", 3.0))]
    assert leaks_of(make_audit("gated", [*rows(0.03), *twice]))["beyond_label"].by == "a"


def test_another_audit_of_the_cell_has_the_number_if_its_adversary_is_the_same() -> None:
    plain, certified = make_audit("gated"), leaky()
    kinds = {AuditKind.of(plain.plan): plain, replace(AuditKind.of(plain.plan), suite="certificates"): certified}
    cell = Cell("gated", 0, kinds)
    assert cell.score(LIMIT) == cell.leak(LIMIT, next(iter(kinds))) == leaks_of(certified)[LIMIT]
    other = replace(AuditKind.of(plain.plan), suite="certificates", threat=THREATS["train"])
    assert Cell("gated", 0, {AuditKind.of(plain.plan): plain, other: certified}).score(LIMIT) is None


@pytest.mark.parametrize("model", [{"weights": "epoch-00004"}, {"fingerprint": "f" * 16}], ids=["weights", "client"])
def test_an_audit_of_other_weights_has_no_number_of_this_model(model: dict[str, str]) -> None:
    plain, kind = make_audit("gated"), AuditKind.of(make_audit("gated").plan)
    certified = make_audit("gated", [*rows(0.03), *leak_rows()], subject=model)
    cell = Cell("gated", 0, {kind: plain, replace(kind, suite="certificates"): certified})
    assert cell.leak(LIMIT) is None and cell.leak(LIMIT, replace(kind, suite="certificates")) is not None


def test_a_file_of_results_keeps_audits_of_other_weights_apart(folder: Path) -> None:
    table = campaign_table(folder)
    (asked,) = table.audits
    cell = table.cells[0]
    audits = [replace(cell.audits[0], leaks=None), cell.audits[0]]
    one = replace(table, cells=[replace(cell, audits=audits)], audits=[asked, replace(asked, suite="certificates v2")])
    last = replace(one, audits=[asked, replace(asked, suite="certificates v2", weights="last")])
    assert study_of_results(one).cells[0].leak(LIMIT) is not None
    assert study_of_results(last).cells[0].leak(LIMIT) is None


@given(st.floats(0.01, 9999), st.floats(0.01, 9999))
def test_nats_have_three_digits_and_keep_their_order(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert float(say_leak(LIMIT, low)) <= float(say_leak(LIMIT, high))
    assert "e" not in say_leak(LIMIT, high) and float(say_leak(LIMIT, low)) == pytest.approx(low, rel=6e-3)


@pytest.mark.parametrize("name", OF_ALL)
def test_a_file_keeps_a_number_as_it_is(name: str) -> None:
    leak = leaks_of(leaky(vacuous=True))[name]
    again = from_kept(name, json.loads(json.dumps(kept(leak))))
    assert again == replace(
        leak, **{end: round(getattr(leak, end), 6) for end in ("mean", "low", "high")}, ceiling=again.ceiling
    )
    assert (again.ceiling is None) == (leak.ceiling is None)


def test_the_mark_at_the_ceiling_is_that_of_the_bound() -> None:
    for least, expected in ((6.0, False), (6.1, True)):  # the value is 2 % above the claim; the ceiling is 6.91
        audit = leaky(infonce=least)
        bound = audit.row("leakage evidence").bounds["infonce"]
        leak = leaks_of(audit)["infonce"]
        assert leak.at_ceiling is bound.at_ceiling is expected
        assert from_kept("infonce", kept(leak)) == from_kept("infonce", {**kept(leak), "at_ceiling": expected})
    older = {"interval": [6.8, 6.7, 6.9], "ceiling": 6.907755}
    assert from_kept("infonce", older).at_ceiling and not from_kept(LIMIT, older).at_ceiling


# words


def test_a_number_that_misleads_says_so_in_every_format() -> None:
    vacuous, seen = leaks_of(leaky(vacuous=True))[LIMIT], leaks_of(leaky(infonce=6.5))["infonce"]
    assert leak_item(LIMIT, [vacuous]).shown == "6.13; vacuous" and leak_item(LIMIT, [vacuous]).more["vacuous"] == 1
    assert leak_item("infonce", [seen]).shown == "6.50; at the ceiling"
    assert leak_item("infonce", [leaks_of(leaky(infonce=6.0))["infonce"]]).shown == "6.00", "more than 0.7 nats below"
    with speaking("zh"):
        assert leak_item(LIMIT, [vacuous]).shown == "6.13；空洞"
        assert "已达上限" in leak_item("infonce", [seen]).shown
    assert leak_item("mse_most", [leaks_of(leaky())["mse_most"]]).small.endswith(" · ×256")
    assert leak_item(LIMIT, [], "not measured: …").notes == ["not measured: …"]


def test_the_sentence_of_the_certificates_says_vacuous_too() -> None:
    assert "vacuous" in certificates.describe(leaky(vacuous=True))
    plain = certificates.describe(leaky())
    assert "vacuous" not in plain and "at most 6.13 nats" in plain
    beyond = changed(leak_rows(many=None), "beyond_label", about="leakage")
    assert certificates.leakage(make_audit("gated", beyond)).high == pytest.approx(6.13)


def test_the_line_of_the_terminal_has_the_limit_or_the_command() -> None:
    def line(audit: AuditResult) -> str:
        console = Console(file=io.StringIO(), width=200)
        print_summary([audit], console)
        return next(it for it in console.file.getvalue().splitlines() if ": leak: " in it)  # type: ignore[attr-defined]

    assert line(leaky()) == "gated: leak: at most 6.13 nats about an image; beyond the label: at most 3.84 nats"
    assert "at most 6.13 nats; vacuous about an image" in line(leaky(vacuous=True))
    assert line(leaky(beyond=None)).endswith("beyond the label: not measured")
    tried = replace(leak_rows()[0], outcome="not_applicable", bounds={}, reason="no noise")
    assert line(make_audit("gated", [*rows(0.03), tried])).endswith(": no limit on the leak")
    failed = replace(tried, outcome="failed")
    assert "attncem audit" in line(make_audit("gated", [*rows(0.03), failed])), "it may have a result next time"
    beyond = replace(leak_rows(None, many=None)[0], outcome="not_applicable", bounds={}, reason="no labels")
    without = leak_rows(beyond=None)
    assert line(make_audit("gated", [*rows(0.03), *without, beyond])).endswith("; beyond the label: no limit")
    said = line(make_audit("gated"))
    assert said.endswith("leak: not measured: run attncem audit gated --suite certificates --threat held_out")
    foreign = make_audit("gated", subject={"weights": ""})
    assert line(foreign).endswith("not measured: the suite certificates measures it")


def test_the_command_asks_for_the_adversary_of_the_audit() -> None:
    import argparse

    parser = argparse.ArgumentParser()
    audit_verb.add(parser.add_subparsers())
    for threat in (
        THREATS["train"],
        THREATS["held_out"],
        replace(THREATS["held_out"], name="held_out-x16", releases_per_input=16),
    ):
        plan = {"threat": threat, "changed": ["ridge.alpha=2"], "seed": 0}
        words = shlex.split(leaks.command([make_audit("gated", **plan)], "my run", "certificates"))
        asked = parser.parse_args(words[1:])
        assert words[:3] == ["attncem", "audit", "my run"] and asked.suite == "certificates"
        assert asked.threat == threat.name.partition("-")[0]
        assert (asked.releases or 1) == threat.releases_per_input


def test_no_command_is_named_for_a_number_that_it_cannot_give() -> None:
    tried = [replace(it, outcome="not_applicable", bounds={}, scores={}, reason="no noise") for it in leak_rows()]
    audit = make_audit("gated", [*rows(0.03), *tried])
    for measure in OF_ALL:
        assert leaks.missing([audit], "gated", measure) == "not applicable: no noise"
        assert "attncem audit gated --suite" in leaks.missing([make_audit("gated")], "gated", measure)
    many = replace(THREATS["held_out"], name="held_out-x256", releases_per_input=256)
    for measure in ("mse_most", "structure_most"):
        assert leaks.missing([make_audit("gated", threat=many)], "gated", measure) == "", "no suite has more releases"


def test_the_command_names_weights_that_are_not_the_best(tmp_path: Path) -> None:
    path = make_run(tmp_path, "gated", audits=[make_audit("gated"), make_audit("gated", subject={"weights": "old"})])
    for ledger in ledgers(path / "audits"):
        words = shlex.split(leaks.command([ledger.result()], "gated", "certificates"))
        assert ("--weights" in words) == (ledger.plan.subject.weights == "old")
        assert "--weights" not in words or words[words.index("--weights") + 1] == "old"


def test_a_command_names_the_folder_of_the_run_and_its_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "my runs", "gated", audits=[make_audit("gated")])
    audit = ledgers(run.rename(run.parent / "first") / "audits")[0].result()
    monkeypatch.chdir(tmp_path)
    console = Console(file=io.StringIO(), width=200)
    print_summary([audit], console)
    assert "attncem audit 'my runs/first' --suite" in console.file.getvalue()  # type: ignore[attr-defined]
    assert "attncem audit 'my runs/first' --suite" in card_words.leak_words([audit], audit)
    monkeypatch.chdir(run.parent / "first")
    assert "attncem audit first --suite" in card_words.leak_words([audit], audit), "a card has no absolute path"
    uses = [PluginUse(kind, kind, f"{kind}.py", "0" * 64, {}, {}) for kind in ("network", "attack")]
    (words,) = [shlex.split(leaks.command([make_audit("gated", plugins=uses)], "gated", "certificates"))]
    assert words[-2:] == ["--plugin", "network.py"] and "attack.py" not in words, "the attack is not in that suite"


def test_the_best_of_numbers_with_other_counts_is_not_marked() -> None:
    def best(*counts: int) -> list[bool]:
        named = [(str(place), Leak(0.1 + place, 0, 1, "", count)) for place, count in enumerate(counts)]
        fields: Any = [
            (Column("arm", ""), lambda row: Item(row[0], row[0])),
            (Column("reidentified", ""), lambda row: leak_item("reidentified", [row[1]])),
        ]
        return [row[1].best for row in with_best(table("t", "", fields, named)).rows]

    assert best(1000, 1000) == [True, False] and best(1000, 200) == [False, False]


def test_a_difference_of_nats_has_three_digits_on_both_sides() -> None:
    assert [say_leak(LIMIT, value) for value in (14.27, -14.27, -0.0004)] == ["14.3", "-14.3", "0.00"]


# pages of runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three runs with certificates, and one without."""
    folder = tmp_path_factory.mktemp("leaky")
    made = [make_run(folder, name, audits=[leaky(name, **LEAKY[name])]) for name in LEAKY]
    return [*made, make_run(folder / "older", "none")]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_first_screen_has_nats_beside_the_accuracy(runs: list[Path], tmp_path: Path, lang: str) -> None:
    page = report([runs[2], runs[3]], tmp_path / "r.html", csv=True, now=NOW, lang=lang).read_text(encoding="utf-8")
    first = page[page.index('class="models"') : page.index("</ol>")]
    numbers = {
        "en": ("6.13 nats", "beyond the label: at most 3.84 nats"),
        "zh": ("6.13 nats", "标签以外：至多 3.84 nats"),
    }
    assert all(number in first for number in numbers[lang])
    gaps = re.findall(r'class="gap">(.*?)</p>', page)
    assert sum("attncem audit none --suite certificates --threat held_out" in gap for gap in gaps) == 1
    head, one, other, *_ = (tmp_path / "r.csv").read_text(encoding="utf-8").splitlines()
    flags = ("leak_limit_vacuous", "beyond_label_vacuous", "infonce_at_ceiling")
    assert head.endswith(",".join((*OF_ALL, *flags)))
    assert one.split(",")[-9].startswith("6.1") and one.endswith(",False,False,False") and other.endswith("," * 9)


def test_a_comparison_has_the_numbers_and_what_contradicts_a_ranking_by_nats(runs: list[Path], tmp_path: Path) -> None:
    found = compare(runs[:3], out=tmp_path / "c.html", now=NOW)
    assert [it.key for it in found.quantities if it.key.startswith("leak.")] == [f"leak.{name}" for name in OF_ALL]
    assert not [it for it in found.comparisons if "Leak" in it.measure], "one seed gives no test"
    said = [it for it in found.findings if it.code == "nats_disagree"]
    assert [(it.values["a"], it.values["b"]) for it in said] == [("gated", "kmeans")]
    words = said[0].text
    assert "6.13 against 20.4 nats" in words and "one seed, no test" in words
    assert all(name in words for name in ("“InfoNCE” (5.60", "“Re-identified” (42.0", "“MSE, most releases” (0.0180"))
    with speaking("zh"):
        assert "“重新识别率”（42.0 对 30.0 %）" in said[0].text and "没有检验" in said[0].text
    page = (tmp_path / "c.html").read_text(encoding="utf-8")
    assert "Leak limit, nats" in page and "Numbers of the leak: one seed, no test." in page
    assert "MSE, most releases, ×256" in page and "Re-identified, of 1,000" in page


def test_a_terminal_shows_every_number_of_the_leak(runs: list[Path]) -> None:
    console = Console(file=io.StringIO(), width=80)
    print_comparison(compare(runs[:3], now=NOW), console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "0.0180" in shown and "0.0200" in shown and "42.0" in shown, "also the attack on 256 releases"


def test_a_comparison_names_the_run_that_was_not_measured(runs: list[Path]) -> None:
    found = compare(runs[2:], now=NOW)
    assert found.unmeasured == ["none"] and found.measure_leak.startswith("attncem audit none --suite certificates")
    console = Console(file=io.StringIO(), width=200)
    print_comparison(found, console)
    assert found.measure_leak in console.file.getvalue()  # type: ignore[attr-defined]


# arms


def arm(name: str, *seeds: Mapping[str, Any]) -> Arm[AuditResult]:
    audits = [leaky(**{"many": None, **options}) for options in seeds]
    cells = [Cell(f"{name}-{place}", place, {AuditKind.of(it.plan): it}) for place, it in enumerate(audits)]
    return Arm(name, name, 0, cells)


SEEDS = (0.97, 1.0, 1.04)


def test_a_number_over_seeds_has_a_deviation_of_two_digits() -> None:
    assert [mean_sd(LIMIT, seed_summary(values)) for values in ((171.8, 172.2), (6.1, 6.2))] == [
        "172 ± 0.28",
        "6.15 ± 0.071",
    ]


LOW = arm("low", {"limit": 6.0, "infonce": 5.5})
HIGH = arm("high", {"limit": 20.0, "infonce": 4.0})


def test_a_lower_limit_with_more_evidence_is_a_contradiction() -> None:
    (only,) = contradictions([HIGH, LOW])
    assert (only.a.label, only.b.label, only.measures, only.seeds) == ("low", "high", ["infonce"], False)
    spread = [
        arm(it.name, *({"limit": limit * by, "infonce": least} for by in SEEDS))
        for it, limit, least in ((LOW, 6.0, 5.5), (HIGH, 20.0, 4.0))
    ]
    (only,) = contradictions(spread)
    assert only.seeds and "intervals over seeds" in nats_disagree(spread)[0].text
    assert contradictions([LOW, arm("other", {"limit": 20.0, "infonce": 5.6})]) == [], "they agree"


def test_infonce_among_other_numbers_of_images_contradicts_nothing() -> None:
    audit = leaky(limit=20.0, infonce=4.0, many=None)
    fewer = make_audit("gated", changed(audit.rows, "infonce", ceiling=6.2))
    other = Arm("high", "high", 0, [Cell("high", 0, {AuditKind.of(fewer.plan): fewer})])
    assert contradictions([LOW, HIGH]) and contradictions([LOW, other]) == []


def test_words_on_seeds_hold_for_every_number_of_a_contradiction() -> None:
    low, high = (
        arm(it.name, *({"limit": limit * by, "infonce": least} for by in SEEDS))
        for it, limit, least in ((LOW, 6.0, 5.5), (HIGH, 20.0, 4.0))
    )
    kind, audit = next(iter(low.cells[0].audits.items()))
    bare = make_audit("gated", [it for it in audit.rows if it.method != "leakage_evidence"])
    one = replace(low, cells=[low.cells[0], *(replace(cell, audits={kind: bare}) for cell in low.cells[1:])])
    assert [it.seeds for it in contradictions([one, high])] == [False]


@pytest.mark.parametrize(
    "other",
    [
        {"limit": 6.1, "infonce": 4.0},
        {"limit": 20.0, "infonce": 5.4},
        {"limit": None, "infonce": 4.0},
        {"limit": 4.0, "infonce": 4.0},
    ],
    ids=["limits too near", "evidence too near", "no limit", "the other way"],
)
def test_no_contradiction_without_two_differences(other: dict[str, Any]) -> None:
    assert contradictions([LOW, arm("other", other)]) == []


def test_evidence_at_its_ceiling_contradicts_nothing_and_a_vacuous_limit_ranks_last() -> None:
    most, near, below = ({"limit": limit, "infonce": least} for limit, least in ((6.0, 6.8), (20.0, 6.3), (20.0, 5.0)))
    assert contradictions([arm("low", most), arm("high", near)]) == []
    assert contradictions([arm("low", most), arm("high", below, near)]) == [], "one seed is at the ceiling"
    assert contradictions([arm("low", most), arm("high", below)]), "the truth of the first may only be larger"
    nothing = arm("nothing", {"limit": 3.0, "vacuous": True, "infonce": 6.0})
    assert [it.label for it in ranked([nothing, HIGH, LOW])] == ["low", "high", "nothing"]
    assert [(it.a.label, it.b.label) for it in contradictions([nothing, HIGH])] == []


# campaigns


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three arms of two seeds."""
    made = Made(ARMS, seeds=2, leaks=LEAKY, pictures=1, portraits=False, attacks=("ridge",))
    return make_campaign(tmp_path_factory.mktemp("campaign") / "made", made).path


def test_the_tables_of_a_campaign_rank_by_the_limit_with_everything_beside_it(folder: Path) -> None:
    tables = {table.name: table for table in all_tables(load_campaign(folder).study)}
    ranking = tables["nats"]
    assert [row[0].shown for row in ranking.rows] == ["gated", "kmeans", "none"]
    keys = [column.key for column in ranking.columns]
    assert keys[:7] == ["arm", "seeds", "accuracy", "leak_limit", "beyond_label", "infonce", "reidentified"]
    assert keys[7:] == ["mse", "structure", "mse_most", "structure_most"]
    csv, latex = as_csv(ranking), as_latex(ranking)
    assert {"leak_limit_vacuous", "beyond_label_vacuous", "infonce_at_ceiling"} < set(csv.splitlines()[0].split(","))
    assert "mse_most_vacuous" not in csv and "infonce_vacuous" not in csv
    assert r"\textbf{6.19 $\pm$ 0.087}" in latex and "at the ceiling" in latex
    assert {"leak_limit", "beyond_label", *CONTRARY} < {column.key for column in tables["headline"].columns}
    tested = {row[2].value for row in tables["tests"].rows}
    assert {*OF_ALL, "mse", "accuracy"} <= tested


def test_little_evidence_is_never_better_and_what_cannot_be_compared_is_not_tested(folder: Path) -> None:
    study = load_campaign(folder).study
    kind = study.kinds[0]
    (ranking,) = (table for table in all_tables(study) if table.name == "nats")
    column = [it.key for it in ranking.columns].index("infonce")
    assert not any(row[column].best for row in ranking.rows) and ranking.columns[column].note == "nats"
    assert study.against("none", kind, ["infonce"]) == {}, "its arm is at the ceiling"
    (test,) = study.against("kmeans", kind, ["infonce"]).values()
    assert is_better(replace(test, verdict="b_higher")) is None
    vacuous = [arm("a", *[{"limit": 3.0, "vacuous": True}] * 3), arm("b", *[{"limit": limit} for limit in (8, 9, 10)])]
    both = Study(vacuous)
    assert both.against("a", both.kinds[0], [LIMIT, "infonce"]).keys() == {("b", "infonce")}


def test_the_figure_shows_cells_means_and_the_front(folder: Path) -> None:
    study = load_campaign(folder).study
    (plot,) = nats.figures(study, study.kinds[0])
    with_axes = nats.drawings(study, study.kinds[0])
    assert plot.name == "accuracy-leak-limit" and len(with_axes) == 2
    assert "gated: at most 6.19 nats, accuracy" in with_axes[0].svg


@given(st.lists(st.tuples(st.floats(0.1, 100), st.floats(0, 100)), max_size=10))
def test_the_front_holds_exactly_what_nothing_beats(places: list[tuple[float, float]]) -> None:
    def beats(a: tuple[float, float], b: tuple[float, float]) -> bool:
        return a[0] <= b[0] and a[1] >= b[1] and a != b

    front = nats.undominated(places)
    assert set(front) == {one for one in places if not any(beats(other, one) for other in places)}
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(front))


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_page_of_a_campaign_has_the_section_and_the_warning(folder: Path, tmp_path: Path, lang: str) -> None:
    page = write_campaign_report(folder, tmp_path / "c.html", now=NOW, lang=lang).read_text(encoding="utf-8")
    words = {
        "en": ("Leak in nats", "do not rank them by the limit alone", "Smallest limit on the leak: gated"),
        "zh": ("以 nats 计的泄露", "不要只凭上限排名", "泄露上限最小的是 gated"),
    }
    assert all(word in page for word in words[lang]) and 'id="nats"' in page


def test_a_campaign_without_certificates_names_the_command_and_has_no_empty_columns(tmp_path: Path) -> None:
    path = make_campaign(tmp_path / "plain", Made(ARMS, seeds=1, pictures=1, portraits=False, attacks=("ridge",))).path
    study = load_campaign(path).study
    assert study.leaks() == [] and "nats" not in {table.name for table in all_tables(study)}
    keys = {column.key for table in all_tables(study) for column in table.columns}
    assert not keys & LEAKS.keys()
    said = nats.unmeasured(study, study.kinds[0])
    assert said.endswith("attncem audit plain/runs/none-s0 --suite certificates") and "3" in said


# results


def test_a_file_of_results_has_the_numbers_and_a_study_of_it_reads_them(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "made.json"
    table = write_results(folder, out)
    assert read_results(out) == table
    read, made = study_of_results(read_results(out)), load_campaign(folder).study
    for name in OF_ALL:
        for one, other in zip(read.arms, made.arms, strict=True):
            assert one.values(name) == pytest.approx(other.values(name), abs=1e-6)
    assert [it.values["a"] for it in nats_disagree(read.arms)] == [it.values["a"] for it in nats_disagree(made.arms)]


def test_an_older_file_is_written_again_byte_for_byte(folder: Path, tmp_path: Path) -> None:
    out, table = tmp_path / "made.json", campaign_table(folder, command_to="made.json")
    cells = [replace(cell, audits=[replace(audit, leaks=None) for audit in cell.audits]) for cell in table.cells]
    older = results_text(replace(table, cells=cells))
    assert '"leaks"' not in older
    out.write_text(older, encoding="utf-8")
    write_results(folder, out)
    assert out.read_text(encoding="utf-8") == older
    moved = [replace(cells[0], training_seconds=1.0), *cells[1:]]
    out.write_text(results_text(replace(table, cells=moved)), encoding="utf-8")
    assert [bool(cell.audits[0].leaks) for cell in write_results(folder, out).cells][:2] == [True, False]


def test_committed_results_are_read_and_written_as_they_are() -> None:
    files = [file for file in sorted(RESULTS.glob("*.json")) if "cells" in json.loads(file.read_text())]
    tables = {file: read_results(file) for file in files if "campaign" in json.loads(file.read_text())}
    assert len(tables) >= 18
    assert [file.name for file, table in tables.items() if results_text(table) != file.read_text("utf-8")] == []


# choosing

NATS = st.one_of(st.none(), st.floats(0.1, 100))
CANDIDATES = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), NATS), max_size=10)


@given(CANDIDATES)
def test_the_least_nats_are_chosen_among_those_accurate_enough(values: list[tuple[float, float, float | None]]) -> None:
    given_ = [Candidate(str(place), *value) for place, value in enumerate(values)]
    fitting = [one for one in given_ if one.accuracy >= 0.8 - 1e-9 and one.nats is not None]
    chosen = choose(given_, 0.8, {"here": 0.0}, "nats").get("here")
    assert (chosen is None) == (not fitting)
    assert chosen is None or chosen.nats == min(one.nats for one in fitting if one.nats is not None)
    without = [replace(one, nats=None) for one in given_]
    before, now = choose(without, 0.8, {"here": 0.0}), choose(given_, 0.8, {"here": 0.0})
    assert {level: one.name for level, one in before.items()} == {level: one.name for level, one in now.items()}
    assert all(a.nats > b.nats for a, b in pairwise(undominated(given_, "nats")) if a.nats and b.nats)


def test_a_candidate_has_the_limit_unless_it_is_vacuous() -> None:
    scores = {"structure": rows(0.02)[0].scores["mse"]}

    def of(**options: Any) -> Candidate:
        made = [replace(it, scores={**it.scores, **scores}) if it.kind == "attack" else it for it in rows(0.02)]
        return candidate("one", make_audit("gated", [*made, *leak_rows(**options)]), "nats")

    assert of().nats == pytest.approx(6.13) and of(vacuous=True).nats is None and of(limit=None).nats is None


def test_a_search_by_nats_needs_a_certificate() -> None:
    with pytest.raises(ConfigError, match="choose=nats: no row of the audit limits the leak"):
        load_search("search-demo", ["choose=nats"])
    asked = load_search("search-demo", ["choose=nats", "audit.suite=certificates", "audit.only=[ridge, leakage]"])
    assert asked.choose == "nats" and load_search("search-demo").choose == "error"


def test_directions_are_those_of_a_smaller_leak() -> None:
    worse, better = leaks_of(leaky(**LEAKY["none"])), leaks_of(leaky(**LEAKY["gated"]))
    for name in OF_ALL:
        assert (worse[name].mean > better[name].mean) == (private_of(name) != "higher"), name
