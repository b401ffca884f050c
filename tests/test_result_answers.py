"""The answers of docs/results.md follow from the numbers: other numbers give other sentences."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from attncem.records.campaign_table import AskedAudit, CampaignTable, CellResult
from attncem.records.sending import KeptSending
from made_results import ROOT, by_weight, cells_of, folder, made, made_audit, page_scripts, planted

RESULTS = ROOT / "results"


@pytest.fixture(scope="module")
def script() -> Iterator[Any]:
    """The script and its parts, importable as when it is run."""
    with page_scripts() as parts:
        yield parts


@pytest.fixture(scope="module")
def committed(script: Any) -> Any:
    """The committed results."""
    return script.source.Source(RESULTS)


def changed(script: Any, place: Path, name: str, change: Callable[[Any], None]) -> Any:
    """A folder with one committed file, changed."""
    data = json.loads((RESULTS / name).read_text(encoding="utf-8"))
    change(data)
    (place / name).write_text(json.dumps(data), encoding="utf-8")
    return script.source.Source(place)


def claims(script: Any) -> Any:
    return script.write_results.HEADLINES.all


# attention, the front end, other data


@pytest.mark.parametrize(
    ("times", "attention", "front_end"),
    [
        (2.1, "Yes: behind the same front end", "It makes the client more private: with kmeans"),
        (1.0, "No gain is shown: behind", "No gain is shown: with kmeans"),
        (0.6, "No, it leaks more: behind", "It makes the client less private: with kmeans"),
    ],
)
def test_attention_and_the_front_end_are_judged_by_the_tests(
    script: Any, tmp_path: Path, times: float, attention: str, front_end: str
) -> None:
    """Arm b has half of the effect of c, so c over b is the rest."""
    tables = [made("claim-cifar10", planted(times)), made("claim-selection-cifar10", by_weight, noise=0.0)]
    source = script.source.Source(folder(tmp_path, *tables))
    answer = script.pairs.attention(source, claims(script))
    assert answer.startswith(attention) and "(CIFAR-10, 6 seeds, at equal accuracy)." in answer
    ratio = float(re.findall(r"leaves the attacker (\d\.\d\d) ", answer)[0])
    assert ratio == pytest.approx(times / (1 + (times - 1) / 2), rel=0.03)
    answer = script.pairs.front_end(source, claims(script))
    assert answer.startswith(front_end) and "Other data" not in answer


def test_three_seeds_are_too_few_for_an_answer(script: Any, tmp_path: Path) -> None:
    table = made("claim-cifar10", planted(2.1))
    few = [cell for cell in table.cells if cell.seed < 3]
    source = script.source.Source(folder(tmp_path, replace(table, cells=few)))
    answer = script.pairs.attention(source, claims(script))
    assert answer.startswith("Too few seeds to tell: ") and "3 seeds, at the accuracies measured" in answer


def test_other_data_are_grouped_by_their_verdicts(script: Any, tmp_path: Path) -> None:
    tables = [made("claim-cifar10", planted(1.8)), made("claim-lfw", planted(1.0)), made("claim-demo", planted(0.7))]
    first = tables[1].cells[0].audits[0]
    attacks = {name: {**scores, "reliable": False} for name, scores in (first.attacks or {}).items()}
    tables[1].cells[0] = replace(tables[1].cells[0], audits=[replace(first, attacks=attacks)])
    source = script.source.Source(folder(tmp_path, *tables))
    answer = script.pairs.elsewhere(source, claims(script))
    assert "more private on CIFAR-10, less private on embedded images, not shown to differ on faces (LFW)" in answer
    assert "too few seeds for a test on faces (LFW)" in answer and "unreliable in 1 of 9 runs on faces (LFW)" in answer
    (line,) = (row for row in script.pairs.everywhere(source, claims(script)) if row.data == "embedded images")
    assert line.mixed and "| embedded images, other σ |" in script.pairs.pairs_table([line]), "c has half of a's σ"


def test_the_nats_of_the_first_answer_are_the_least_of_each_kind(script: Any, committed: Any) -> None:
    limits: dict[str, list[float]] = {"attention": [], "capacity": [], "kmeans": []}
    for cell in json.loads((RESULTS / "lean_cifar10.json").read_text(encoding="utf-8"))["cells"]:
        kind = "attention" if cell["arm"] in ("gated", "slot") else cell["arm"].partition("-")[0]
        if kind in limits and cell["audits"]:
            limits[kind].append(cell["audits"][1]["leaks"]["leak_limit"]["interval"][2])
    least = {kind: f"{min(values):.3g}" for kind, values in limits.items()}
    answer = script.pairs.attention(committed, claims(script))
    assert "with attention" in answer and all(float(value) > 1 for value in least.values())
    nats = re.findall(r"([\d.]+) nats with (?:plain )?(\w+)", answer)
    assert [kind for _, kind in nats] == list(limits) and [float(value) for value, _ in nats] == pytest.approx(
        [min(values) for values in limits.values()], rel=0.01
    )


# servers


def alone(score: float) -> Callable[[Any], None]:
    """Every chosen client alone has this accuracy."""

    def change(data: Any) -> None:
        for cell in data["cells"]:
            if cell.get("alone"):
                cell["alone"]["test"] = [score, score - 0.005, score + 0.005]

    return change


def test_whether_a_server_is_worth_it_follows_from_the_client_alone(
    script: Any, committed: Any, tmp_path: Path
) -> None:
    answer = script.server.answer(committed)
    assert re.match(r"With 1 M .* adds up to \d\.\d points .*; with 4 M and 21\.2 M none of \d+ models", answer), answer
    weak = changed(script, tmp_path, "lean_cifar10.json", alone(0.5))
    assert script.server.answer(weak).count("a server adds up to") == 3
    assert "none of" not in script.server.answer(weak)
    head = script.headlines.headline(weak, script.write_results.HEADLINES, "en", to_results="", to_page=None)
    assert re.search(r"(\d+) of \1 models with a server are shown to be more accurate", head)
    assert head.count("the server adds") == 2
    strong = changed(script, tmp_path, "lean_cifar10.json", alone(0.99))
    assert script.server.answer(strong).startswith("With 1 M, 4 M and 21.2 M none of ")
    head = script.headlines.headline(strong, script.write_results.HEADLINES, "zh", to_results="", to_page=None)
    assert "均未显示比客户端单独运行更准确" in head and head.count("仅客户端更准确") == 2


def test_what_is_released_is_compared_at_the_cost_of_the_baseline(script: Any, committed: Any) -> None:
    rows = {one.arm.name: one for one in script.server.compared(committed)}
    cells = {cell.arm: cell for cell in committed.table("lean-cifar10").cells if cell.audits and not cell.point}
    attacks = cells["vgg-kmeans"].audits[0].attacks
    share = 100 * attacks["decoder global"]["mse"][0] / attacks["class mean"]["mse"][0]
    assert script.server.share(rows["vgg-kmeans"]) == pytest.approx(share)
    answer = script.server.released(committed)
    limits = {name: script.lean.leak("leak_limit", one) for name, one in rows.items()}
    assert f"the baseline's client leaves {share:.0f} % at a limit of {limits['vgg-kmeans']} nats" in answer
    assert f"leak at most {limits['8-bits']} to {limits['32-bits']} nats for any number of queries" in answer


# clients that send some images

LIMITS = {"full": 10.0, "uniform": 13.0, "doubt": 11.0, "gated-doubt": 12.0, "worst": 14.0}


def selective(limits: dict[str, float], alone: float = 0.8) -> CampaignTable:
    """The selective campaign on CIFAR-10 with these limits of a sent image; everything has 85 % accuracy."""
    campaign, cells = "selective-cifar10", []
    for one in cells_of(campaign):
        arm, seed = one.cell.arm, one.cell.seed
        facts = CellResult(arm, dict(one.cell.point), seed, [], [], 1_000_000, 20.0)
        if one.cell.budget is not None:
            score = [alone, alone, alone]
            cells.append(replace(facts, alone={"test": score, "validation": score}))
            continue
        limit = limits[re.sub(r"-\dM", "", arm)] + 0.01 * seed
        leaks = {
            name: {"interval": [part * limit] * 3, "by": "leakage"}
            for name, part in (("leak_limit", 1.0), ("not_sent", 0.8), ("over_all", 0.3))
        }
        head = 0.83 + 0.001 * seed
        kept = KeptSending(0.7, 0.3, 3000, 10_000, [head, head, head], [0.85, 0.85, 0.85])
        audits = [replace(made_audit(0.85, 1.5), leaks=leaks) for _ in range(3)]
        sent = audits if arm.startswith("full") else [replace(audit, sending=kept) for audit in audits]
        cells.append(replace(facts, audits=sent))
    asked = [AskedAudit({}, "standard v6", "train", on, "best") for on in ("test", "test", "validation")]
    asked[1] = replace(asked[1], suite="certificates v2")
    return CampaignTable(campaign, "", "", asked, cells)


@pytest.mark.parametrize(
    ("uniform", "nats", "level", "limit", "accuracy"),
    [
        (13.0, "13.0", 0.8, "is higher than", "16 are shown to be more accurate"),
        (10.1, "10.1", 0.8, "is close to", "16 are shown to be more accurate"),
        (7.0, "7.01", 0.85, "is lower than", "none are shown to be more accurate"),
    ],
)
def test_what_sending_only_unsure_pictures_brings_is_read_as_soon_as_it_is_measured(
    script: Any, tmp_path: Path, uniform: float, nats: str, level: float, limit: str, accuracy: str
) -> None:
    """All are at 85 %; only `uniform` can have a lower limit than the full release."""
    source = script.source.Source(folder(tmp_path, selective({**LIMITS, "uniform": uniform}, level)))
    answer = script.unsure.answer(source)
    assert f"the limit on an image that is sent {limit} that of a client that sends everything" in answer
    assert "(CIFAR-10, 1 M multiply-accumulates, λ 0.1: " in answer
    assert f"; λ 0.3: {nats} against 10.0 nats at 85.0 against 85.0 % accuracy)" in answer
    assert f"weigh images change it by at most {max(14 - uniform, uniform - 11):.2f} nats" in answer
    assert accuracy in answer and f"({100 * level:.1f} % with 1 M and {100 * level:.1f} % with 4 M)" in answer
    assert f"and {12 if uniform < 10 else 16} are beaten in both accuracy and limit by sending everything" in answer
    rows = script.unsure.short_table(source, "selective-cifar10").splitlines()[2:]
    assert len(rows) == 12 and rows[2].startswith("| uniform, λ 0.1 | 1 M | 3 | 85.0 | 83.1 | 30.0 |")
    page = script.write_results.page(source, drawn=["results-unsure.svg"])
    assert "(results-unsure.svg)" in page and rows[0] in page
    head = script.headlines.headline(source, script.write_results.HEADLINES, "en", to_results="", to_page=None)
    assert "| CIFAR-10, client of 1 M that sends 30 %:" in head
    assert ("the server adds 5.0 points |" in head) == (level < 0.85)
    if level < 0.85:
        assert script.unsure.figure(source) == script.unsure.figure(source)


def test_the_headline_takes_a_selective_client_that_a_server_helps(script: Any, tmp_path: Path) -> None:
    """Of those that are shown to be more accurate than the client alone the one with the least limit, else of all."""

    def named(better: str) -> str:
        table = selective({**LIMITS, better: 20.0}, 0.85)
        cells = [
            replace(cell, audits=[replace(audit, accuracy=[0.9]) for audit in cell.audits])
            if cell.arm == f"{better}-1M"
            else cell
            for cell in table.cells
        ]
        source = script.source.Source(folder(tmp_path, replace(table, cells=cells)))
        return str(script.headlines.headline(source, script.write_results.HEADLINES, "en", to_results="", to_page=None))

    assert "that sends 30 %: worst 0.1 | 3 | 90.0 | 85.0 |" in named("worst"), "though its limit is the largest"
    assert "that sends 30 %: doubt 0.1 | 3 | 85.0 | 85.0 |" in named("nothing")


def test_the_embedded_images_are_folded_once_cifar10_is_measured(script: Any, tmp_path: Path) -> None:
    (tmp_path / "selective_demo.json").write_bytes((RESULTS / "selective_demo.json").read_bytes())
    place = folder(tmp_path, selective(LIMITS))
    section = script.write_results.page(script.source.Source(place)).partition("## What does sending only")[2]
    shown, _, folded = section.partition("<details><summary>The same on embedded images")
    assert "| doubt, λ 0.1 |" in shown and "| doubt, λ 1 |" not in shown and "| doubt, λ 1 |" in folded


# attacks


def test_rows_beyond_the_suites_are_named_where_they_are_stronger(script: Any, committed: Any, tmp_path: Path) -> None:
    answer = script.doubts.answer(committed)
    assert "On 2 of 4 models" in answer and "`flow` leaves 14 % less error (embedded images, no defence)" in answer

    def weaker(data: Any) -> None:
        for cell in data["cells"]:
            for row in ("flow", "decoder global"):
                cell["audits"][0]["attacks"][row]["mse"] = [0.05, 0.05, 0.05]

    source = changed(script, tmp_path, "doubts_demo.json", weaker)
    answer = script.doubts.answer(source)
    assert answer.startswith("No row beyond the suites is stronger than the suite's on any of 2 models")


def test_attackers_from_outside_are_compared_with_one_who_owns_the_training_images(script: Any, committed: Any) -> None:
    data = json.loads((RESULTS / "outside_cifar10.json").read_text(encoding="utf-8"))
    errors = [[audit["attacks"].get("decoder global") for audit in cell["audits"]] for cell in data["cells"]]
    more = sorted(100 * (of[1]["mse"][0] / of[0]["mse"][0] - 1) for of in errors)
    asked = sorted(100 * (of[4]["mse"][0] / of[0]["mse"][0] - 1) for of in errors)
    answer = script.doubts.answer(committed)
    assert f"{more[0]:.0f} to {more[-1]:.0f} % more error with pictures from elsewhere" in answer
    assert f"{asked[0]:.0f} to {asked[-1]:.0f} % more with 1,000 answers of the client (CIFAR-10)" in answer


# the documents and the baseline


def gates(effect: float) -> CampaignTable:
    """The documents' switches; early shut-off changes the accuracy by so much, and the MSE by five times as much."""
    table = made("documents-gates", lambda arm, weight: {"accuracy": 0.85 - weight / 400})
    cells = []
    for cell in table.cells:
        on = bool(cell.point.get("surrogate.early_shut_off"))
        accuracy = (cell.audits[0].accuracy or [0.0])[0] + effect * on
        cells.append(replace(cell, audits=[made_audit(accuracy, 1.3 + 5 * effect * on)]))
    return replace(table, cells=cells)


def test_the_switches_of_the_documents_are_compared_at_the_same_seed_and_options(script: Any, tmp_path: Path) -> None:
    source = script.source.Source(folder(tmp_path, gates(-0.04)))
    answer = script.documents.gates(source)
    assert answer.startswith(
        "1 of 3 switches has an effect that the interval over seeds shows: early shut-off, `slot-001`"
    )
    assert "0.85 times the MSE" in answer and "none of 54 runs ended near chance" in answer
    (shut, *others) = script.documents.switches(source)
    assert shut.accuracy.mean == pytest.approx(-0.04, abs=0.003) and shut.times.mean == pytest.approx(1.1 / 1.3)
    assert shut.accuracy.count == 3 and [one.shown for one in others] == [False, False]
    page = script.write_results.page(source, drawn=[script.documents.FIGURE])
    assert "Early shut-off and class gate are not measured" not in page and "The sweep is not measured yet" in page
    assert (
        "| `slot-001` | 4 | on | off |" in page
        and "| `gated-002` | 4 |  | on |" in page
        and "(results-gates.svg)" in page
    )
    assert script.documents.figure(source).startswith(b"<?xml")
    nothing = script.source.Source(folder(tmp_path, gates(0.0)))
    assert script.documents.gates(nothing).startswith("None of 3 switches has an effect")


def test_gates_that_lack_runs_or_collapsed_say_so(script: Any, tmp_path: Path) -> None:
    table = gates(0.0)
    last = cells_of("documents-gates")[-1].cell
    lost = [replace(table.cells[0], warnings=["near_chance"]), *table.cells[1:-1]]
    source = script.source.Source(folder(tmp_path, replace(table, cells=lost, unfinished={last.id: "planned"})))
    answer = script.documents.gates(source)
    assert (
        "1 of 53 runs ended near chance" in answer
        and "**Not complete**: 1 runs are missing: `gated-002` (1)." in answer
    )


def test_the_sweep_names_the_option_that_moves_the_error_most(script: Any, tmp_path: Path) -> None:
    table = made("documents-sweep", lambda arm, weight: {"accuracy": 0.85 - weight / 400, "times": 1 + weight / 10})
    source = script.source.Source(folder(tmp_path, table))
    answer = script.documents.sweep(source)
    assert answer.startswith("In the sweep λ moves the MSE most") and "λ 6.0 points" in answer
    assert script.documents.sweep_table(source).count("\n| ") == 9


def test_the_recipe_collapses_or_not(script: Any, committed: Any, tmp_path: Path) -> None:
    assert script.baseline.answer(committed).startswith("Our run of the recipe (λ = 16) does not collapse: 85.61 %")

    def lose(data: Any) -> None:
        data["cells"][0]["audits"][0]["accuracy"] = [0.3, 0.29, 0.31]
        data["cells"][0]["audits"][0]["strongest"] = "baseline's decoder"

    (tmp_path / "undefended_cifar10.json").write_bytes((RESULTS / "undefended_cifar10.json").read_bytes())
    answer = script.baseline.answer(changed(script, tmp_path, "baseline_240_cifar10.json", lose))
    assert "(λ = 16) collapses: 30.00 %" in answer and "Its own decoder is the strongest attack" in answer


# cost and the demo


def test_the_cost_names_what_costs_hardly_any_time_and_what_costs_more(
    script: Any, committed: Any, tmp_path: Path
) -> None:
    rows = {one.surrogate: one for one in script.cost.costs(committed)}
    answer = script.cost.answer(committed)
    assert f"{rows['slot'].epoch:.2f} times with `slot`" in answer and "An epoch with `kmeans`, " in answer

    def slower(data: Any) -> None:
        for row in data["parts"]["epochs"]["tables"][0]["rows"]:
            row["over_none"] = 2.0

    answer = script.cost.answer(changed(script, tmp_path, "benchmark.json", slower))
    assert answer.startswith("An epoch takes 2.00 times with ") and "at most" in answer.partition(". ")[2]


def test_the_demo_counts_the_models_that_the_client_alone_beats(script: Any, committed: Any, tmp_path: Path) -> None:
    with (RESULTS / "demo.csv").open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        lines, names = list(reader), list(reader.fieldnames or ())
    runs = [float(row["accuracy"]) for row in lines if row["kind"] == "run"][1:]
    (there,) = (row for row in lines if row["kind"] == "alone")
    beaten = sum(score <= float(there["accuracy"]) for score in runs)
    assert f"at least as much as {beaten} of the {len(runs)} models" in script.demo.answer(committed)
    there["accuracy"] = "0.2"
    with (tmp_path / "demo.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(lines)
    assert "20.00 %, at least as much as 0 of the 4 models" in script.demo.answer(script.source.Source(tmp_path))


def test_which_defence_gives_most_is_the_largest_mean(script: Any, committed: Any) -> None:
    both = script.front.sides(committed)
    best = max(both.behind, key=lambda name: fmean(both.behind[name].values("mse")))
    answer = script.front.answer(committed)
    assert f"and `{best}` (MSE" in answer and both.short().splitlines()[2].startswith(f"| `{best}` |")
    first = script.beyond.beside_baseline(committed)[0]
    assert (
        f"`{first.arm.config.model.name}`" in answer and f"{first.times['mse']:.2f} times the baseline's MSE" in answer
    )
