"""The first screen of the report, seeds as one method, blind guesses, and the commands that made the page."""

from __future__ import annotations

import csv
import html
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attncem.base.texts import text as catalogue
from attncem.cli.main import _parser
from attncem.config.threats import THREATS
from attncem.records.audit import AuditResult, Verdict
from attncem.records.bounds import Bound
from attncem.records.study import AuditKind
from attncem.records.study.runs import JudgedRun, load_run, load_runs
from attncem.reporting import report, summary_table
from attncem.reporting.runs import commands, first_screen, gallery, health, trade_off
from attncem.reporting.runs.methods import methods
from attncem.reporting.runs.report_tables import headline_table, seeds_table
from attncem.reporting.runs.tables import guesses, headline
from attncem.reporting.table_formats import as_csv
from made_runs import NOW, make_audit, make_run, row, rows, score

SEEDS = {0: (0.86, 0.03), 1: (0.88, 0.024), 2: (0.84, 0.027)}
"""Accuracy and error of each seed of a method."""


def seeded(folder: Path, name: str = "gated", seeds: Any = SEEDS, **plan: Any) -> list[Path]:
    """Runs that differ in the seed alone."""
    made = []
    for seed, (accuracy, mse) in seeds.items():
        subject = {"run": name, "surrogate": name, "penalty_weight": 16.0, "seed": seed}
        audit = make_audit(name, rows(mse), accuracy=score(accuracy, 0.01), subject=subject, seed=seed, **plan)
        made.append(make_run(folder, name, audits=[audit], seed=seed))
    return made


def first(runs: list[JudgedRun], warned: dict[str, int] | None = None) -> list[first_screen.FirstRow]:
    found = methods(runs)
    best = health.best_accuracy(entry.audit for method in found for entry in method.entries)
    albums = gallery.albums([entry for method in found for entry in method.entries[:1]])
    return first_screen.first_rows(found, albums, best, warned or {})


def only(folder: Path, audit: AuditResult | None, name: str = "none") -> first_screen.FirstRow:
    (found,) = first([load_run(make_run(folder, name, audits=[] if audit is None else [audit]))])
    return found


# one model


def test_a_row_says_what_an_attacker_removes_and_how_sure_that_is(tmp_path: Path) -> None:
    found = only(tmp_path, make_audit())
    assert found.accuracy == first_screen.Number("91.0", "[90.1, 91.9]")
    assert found.removed == first_screen.Number("80", "[79, 81]", 80.0), "1 − 0.0104 / 0.0521, ends 4 % off the error"
    assert found.attack == "by “decoder small”: MSE 0.0104 · blind guess “class mean”: 0.0521"
    assert (found.state, found.leaks, found.cautions, found.command) == ("reliable", True, [], "")
    assert found.picture is not None and found.picture.original and found.picture.image


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"made": [row("ridge", 0.02, outcome="failed", reason="x", scores={})]}, "No attack on none has a result"),
        ({"made": rows(0.05), "accuracy": score(0.26)}, "near chance: nothing can be said"),
        ({"made": rows(0.06)}, "no attack of this suite beats the blind floor"),
        ({"made": [row("ridge", 0.02)]}, "The audit has no blind guess to compare"),
    ],
)
def test_what_cannot_be_said_is_not_said(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    found = only(tmp_path, make_audit(**changed))
    assert found.removed is None, "no number that could be taken for privacy"
    assert said in " ".join(found.cautions)
    assert catalogue("report.first.removed", share="").split()[1] not in " ".join(found.cautions)


def test_a_model_that_lost_its_accuracy_beside_others_is_not_praised(tmp_path: Path) -> None:
    good = load_run(make_run(tmp_path, "none"))
    lost = load_run(make_run(tmp_path, "kmeans", audits=[make_audit("kmeans", accuracy=score(0.5))]))
    fine, dead = first([good, lost])
    assert fine.removed is not None and fine.cautions == []
    assert dead.removed is None and "lost its accuracy" in dead.cautions[0]


def test_an_attack_that_had_not_converged_is_doubted(tmp_path: Path) -> None:
    found = only(tmp_path, make_audit(made=rows(0.01, decoder={"verdict": Verdict(reliable=False)})))
    assert found.state == "not_reliable" and found.leaks, "a leak stays a leak"
    assert len(found.cautions) == 1 and "had not converged" in found.cautions[0]
    assert found.removed is not None


def test_a_run_without_an_audit_or_accuracy_or_pictures_has_a_row(tmp_path: Path) -> None:
    bare = only(tmp_path / "a", None, "kmeans")
    assert (bare.command, bare.accuracy, bare.removed, bare.picture) == ("attncem audit kmeans", None, None, None)
    assert only(tmp_path / "b", make_audit(accuracy=None)).accuracy is None
    floor_best = only(tmp_path / "c", make_audit(made=rows(0.06)))
    assert floor_best.picture is None, "another attack's picture is not the strongest one's"
    page = report(tmp_path / "a" / "kmeans", tmp_path / "page.html", now=NOW).read_text()
    assert 'class="none" role="img"' in page and "not audited yet: <code>attncem audit kmeans</code>" in page


def test_the_same_image_is_shown_of_every_model(tmp_path: Path) -> None:
    runs = [make_run(tmp_path, name) for name in ("none", "kmeans")]
    file = next((runs[1] / "audits").iterdir()) / "decoder-small.json"
    data = json.loads(file.read_text())
    data["pictures"] = data["pictures"][1:2] + data["pictures"][:1] + data["pictures"][2:]
    file.write_text(json.dumps(data))
    names = {found.picture.name for found in first(load_runs(runs)) if found.picture}
    assert names == {"circle"}


def test_what_all_models_share_is_said_once(tmp_path: Path) -> None:
    both = [load_run(make_run(tmp_path, name)) for name in ("none", "kmeans")]
    line = first_screen.shared_facts(methods(both))
    assert line == (
        "data set shapes · network small, cut 2 · channel gaussian σ\u00a00.1 · attacker held_out, suite quick v1: "
        "owns held-out images of the same kind that the model never saw, sees one release"
    )
    assert [found.about for found in first(both)] == ["none", "kmeans, λ\u00a016"]
    audit = make_audit("gated", subject={"channel": [{"name": "rounding", "step": 0.5}]})
    other = replace(both[0], run=replace(both[0].run, label="other"), audits={AuditKind.of(audit.plan): audit})
    assert "· channel per model, see above ·" in first_screen.shared_facts(methods([both[1], other]))
    assert [found.about for found in first([both[1], other])] == [
        "kmeans, λ\u00a016 · channel gaussian σ\u00a00.1",
        "none · channel rounding step=0.5",
    ]


def test_a_run_without_an_audit_does_not_part_the_others(tmp_path: Path) -> None:
    given = {"dataset": "fashion_mnist_mini", "architecture": "small_cnn"}
    audited = load_run(make_run(tmp_path, audits=[make_audit(subject=given)]))
    both = [audited, load_run(make_run(tmp_path, "kmeans", audits=[]))]
    assert "attacker held_out, suite quick v1" in first_screen.shared_facts(methods(both))
    other = make_audit("gated", subject=given, threat=THREATS["train"])
    rows_ = first([*both, load_run(make_run(tmp_path, "gated", audits=[other]))])
    assert [found.about.partition(" · ")[2] for found in rows_] == [
        "attacker held_out, suite quick v1",
        "",
        "attacker train, suite quick v1",
    ]


def test_warnings_are_counted_beside_the_model(tmp_path: Path) -> None:
    view = load_run(make_run(tmp_path))
    assert first([view], {"none": 3})[0].warnings == 3
    sick = make_run(tmp_path, "kmeans", rob_loss=0.0, plain_loss=1.0)
    page = report([tmp_path / "none", sick], tmp_path / "page.html", now=NOW).read_text()
    assert ('<a href="#warnings">' in page) == ('id="warnings"' in page)


# seeds


def test_runs_that_differ_in_the_seed_alone_are_one_method(tmp_path: Path) -> None:
    found = methods(load_runs([make_run(tmp_path, "none"), *seeded(tmp_path)]))
    assert [(method.label, method.color, len(method.entries)) for method in found] == [("none", 0, 1), ("gated", 1, 3)]
    assert {entry.color for entry in found[1].entries} == {1}, "one colour a method"
    again = methods(load_runs([tmp_path / "gated", tmp_path / "gated"]))
    assert [len(method.runs) for method in again] == [1, 1], "one seed twice is no second seed"


def test_a_method_has_mean_and_deviation_over_its_seeds(tmp_path: Path) -> None:
    runs = load_runs([make_run(tmp_path, "none"), *seeded(tmp_path)])
    found = first(runs)[1]
    assert found.accuracy == first_screen.Number("86.0", "± 2.0")
    assert found.removed is not None and (found.removed.shown, found.removed.spread) == ("48", "± 5.8")
    assert found.about == "gated, λ\u00a016 · 3 seeds: mean ± sd"
    assert found.attack == "by “decoder small”: MSE 0.0270 ± 0.0030"
    grouped = methods(runs)
    cells = headline(runs, [entry for method in grouped for entry in method.entries])
    table = headline_table(grouped, cells, mixed=False)
    mse = next(place for place, column in enumerate(table.columns) if column.key == "mse")
    assert [items[mse].shown for items in table.rows] == ["0.0104", "0.0270 ± 0.0030"]
    (line,) = [line for line in csv.DictReader(as_csv(table).splitlines()) if line["run"] == "gated"]
    assert float(line["mse"]) == pytest.approx(0.027) and float(line["mse_sd"]) == pytest.approx(0.003)
    assert line["mse_count"] == "3"
    single = seeds_table(grouped, cells, mixed=False)
    assert single is not None and [items[mse].shown for items in single.rows] == ["0.0300", "0.0240", "0.0270"]
    assert seeds_table(grouped[:1], cells, mixed=False) is None


def test_a_seed_that_is_lost_or_missing_is_told_and_not_averaged(tmp_path: Path) -> None:
    paths = seeded(tmp_path, seeds={0: (0.9, 0.026), 1: (0.3, 0.05)})
    (found,) = first(load_runs([*paths, make_run(tmp_path, "gated", audits=[], seed=2)]))
    assert found.removed is not None and found.removed.shown == "50" and "±" not in found.removed.spread
    assert ["near chance" in said for said in found.cautions] == [True, False]
    assert found.cautions[1] == "1 of 3 seeds are not audited yet."


def test_seeds_whose_attack_had_not_converged_are_counted(tmp_path: Path) -> None:
    subject = {"run": "gated", "surrogate": "gated"}
    weak = [rows(0.03, decoder={"verdict": Verdict(reliable=bool(seed))}) for seed in range(3)]
    audits = [make_audit("gated", made, subject=subject | {"seed": seed}) for seed, made in enumerate(weak)]
    paths = [make_run(tmp_path, "gated", audits=[audit], seed=seed) for seed, audit in enumerate(audits)]
    (found,) = first(load_runs(paths))
    assert found.state == "not_reliable"
    assert found.cautions == ["1 of 3 seeds: not reliable."]


def test_the_plot_has_a_point_a_method_and_light_ones_for_seeds(tmp_path: Path) -> None:
    wide, narrow = trade_off.trade_offs(methods(load_runs([make_run(tmp_path, "none"), *seeded(tmp_path)])))
    said = re.findall(r"<title>(.*?)</title>", wide.svg)
    assert said[-2:] == ["none: accuracy 91.0 %, MSE 0.0104", "gated: accuracy 86.0 ± 2.0 %, MSE 0.0270 ± 0.0030"]
    assert said[0] == "gated (gated): accuracy 86.0 %, MSE 0.0300" and len(said) == 3 + 2
    assert wide.svg.count("var(--run-2)") == 0, "two colours"
    assert re.findall(r"<title>(.*?)</title>", narrow.svg) == said


def test_points_are_told_where_they_are_drawn(tmp_path: Path) -> None:
    wide, _ = trade_off.trade_offs(methods([load_run(make_run(tmp_path))]))
    place = re.search(r'class="spot" cx="([\d.]+)" cy="([\d.]+)"', wide.svg)
    drawn = re.findall(r'<use href="[^"]+" x="([\d.]+)" y="([\d.]+)" style="fill: var\(--run-0\)', wide.svg)
    assert place is not None
    x, y = map(float, place.groups())
    assert any(abs(x - float(across)) < 0.06 and abs(y - float(down)) < 0.06 for across, down in drawn)


def test_curves_carry_their_numbers(tmp_path: Path) -> None:
    page = report(make_run(tmp_path), tmp_path / "page.html", now=NOW).read_text()
    given = [json.loads(html.unescape(found)) for found in re.findall(r'data-lines="([^"]+)"', page)]
    assert {part["title"] for part in given} == {"epoch", "epochs of the attack"}
    label, color, x, y = given[0]["lines"][0]
    assert (label, color, x) == ("none", 0, [float(epoch) for epoch in range(1, 11)])
    assert y == pytest.approx([0.9 - 0.5 / epoch for epoch in range(1, 11)], abs=1e-4)


def test_what_is_proven_is_told_where_it_is_drawn(tmp_path: Path) -> None:
    bounds = {
        "leakage": Bound(5.0, "nats", 4.0, 6.0, "bound", about="leakage"),
        "infonce": Bound(2.0, "nats", 1.5, 2.5, "bound", about="leakage", direction="at_least"),
    }
    proven = replace(row("leakage", 0.1, kind="certificate", scores={}), bounds=bounds)
    run = make_run(tmp_path, audits=[make_audit(made=[*rows(0.01), proven])])
    page = report(run, tmp_path / "page.html", now=NOW).read_text()
    axis = page[page.index('id="certificates"') :].partition("</figure>")[0]
    assert re.findall(r'class="spot".*?aria-label="(.*?)"', axis) == ["none: 2 to 5"] * 2
    assert page.count('data-save="certificates-0"') == 1


# blind guesses


def other_class_mean(name: str, mse: float) -> AuditResult:
    """An audit whose class mean, which goes by the model's own predictions, is this good."""
    made = [row("class mean", mse, kind="floor") if item.name == "class mean" else item for item in rows(0.02)]
    return make_audit(name, made, subject={"run": name})


def test_a_guess_that_differs_is_each_models_own_whatever_the_order() -> None:
    audits = [other_class_mean("a", 0.05), other_class_mean("b", 0.06)]
    there = [(cells["run"], cells["mse"]) for cells in summary_table(audits) if cells["kind"] == "floor"]
    back = [(cells["run"], cells["mse"]) for cells in summary_table(audits[::-1]) if cells["kind"] == "floor"]
    assert there == [("grey", 0.0712), ("mean image", 0.0655), ("class mean (a)", 0.05), ("class mean (b)", 0.06)]
    assert sorted(there) == sorted(back)
    assert [guess.alike for guess in guesses([("a", audits[0]), ("b", audits[1])])] == [True, True, False]


def test_nearest_neighbour_is_no_blind_guess(tmp_path: Path) -> None:
    audits = [make_audit(), make_audit("kmeans")]
    assert "nearest neighbour" not in {cells["run"] for cells in summary_table(audits)}
    page = report([make_run(tmp_path), make_run(tmp_path, "kmeans")], tmp_path / "page.html", now=NOW).read_text()
    guessed = page[page.index('id="table-guesses"') :].partition("</table>")[0]
    attacks = page[page.index('id="table-attacks"') :].partition("</table>")[0]
    assert "class mean" in guessed and "nearest neighbour" not in guessed
    assert re.findall(r'nearest neighbour</span>.*?data-title="MSE" data-value="([\d.]+)"', attacks, re.DOTALL) == [
        "0.0208",
        "0.0486",
    ], "each run's own"


# commands


def test_the_commands_that_made_it_are_shown_and_understood(tmp_path: Path) -> None:
    audit = make_audit(changed=["decoder small.epochs=5"], seed=7, reference="plain 0123")
    run = make_run(tmp_path, audits=[audit])
    lines = commands.run_commands(load_run(run))
    assert lines == [
        "attncem train --config none/config.yaml --out none-again",
        "attncem audit none-again --suite quick --threat held_out --reference plain --seed 7 'decoder small.epochs=5'",
    ]
    page = report([run], tmp_path / "a page.html", csv=True, now=NOW).read_text()
    made = "attncem report none --out 'a page.html' --csv"
    for line in [*lines, made]:
        assert html.escape(line, quote=True).replace("&#x27;", "&#39;") in page
        _parser()[0].parse_known_args(shlex.split(line)[1:])
    assert catalogue("report.commands.own", names="") not in page
    own = make_run(tmp_path, "kmeans", audits=[make_audit("kmeans", suite="mine")])
    assert "The audits store only the names of mine" in commands.own_names([load_run(own)])
