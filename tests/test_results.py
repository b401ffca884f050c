"""Every committed result is what its command would write: the same columns, keys and row names."""

from __future__ import annotations

import csv
import importlib.util
import json
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import fmean
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

import benchmarks.__main__ as benchmark
from attncem.base.texts.titles import FROM_SENT
from attncem.campaigns.choosing import LEVELS
from attncem.campaigns.demonstration import SUITES
from attncem.campaigns.expansion import digest, expand
from attncem.campaigns.results import asked_rows, read_results, results_text
from attncem.config.loading.load import load, load_config
from attncem.config.options.attacks import DecoderOptions
from attncem.config.options.campaigns import load_campaign
from attncem.config.options.run import RunConfig
from attncem.config.options.suites import Suite, packaged_suites
from attncem.config.threats import THREATS
from attncem.judging.auditing.judges import CERTIFICATES
from attncem.records.audit import AuditResult
from attncem.records.campaign_table import AskedAudit, CampaignTable, CellAudit, CellResult
from attncem.records.joining import FAR_BELOW, UNDEFENDED, join
from attncem.records.leaks import LEAKS, LIMIT
from attncem.records.metrics import METRICS
from attncem.records.score import Score
from attncem.reporting.runs import health
from attncem.reporting.runs.tables import CSV_COLUMNS, LATER_COLUMNS, SAMPLED
from attncem.training.on_device import budget_of, candidates
from attncem.training.surrogates import SURROGATES
from scripts import serve_load

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"


def script(name: str) -> ModuleType:
    """A script as a module: its constants and functions, nothing run."""
    spec = importlib.util.spec_from_file_location(f"script_{name}", ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "scripts"))
        spec.loader.exec_module(module)
    return module


def table(name: str) -> tuple[list[str], list[dict[str, str]]]:
    with (RESULTS / name).open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        return list(reader.fieldnames or ()), list(reader)


def read(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((RESULTS / name).read_text(encoding="utf-8"))
    return data


def shape(value: Any) -> Any:
    """The keys of nested objects, without their values."""
    return {key: shape(item) for key, item in value.items()} if isinstance(value, dict) else None


def made_score(mean: float = 0.5) -> Score:
    return Score(mean, mean, mean, mean, mean)


# file by file


def check_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    header, rows = table("demo.csv")
    columns = (*CSV_COLUMNS, *LATER_COLUMNS)
    assert header == [name for name in columns if name in header] and set(header) >= ALWAYS
    assert set(columns) - set(header) <= {*METRICS, *LEAKS, "state", *LATER_COLUMNS}, "only these may have come later"
    configs = [load_config(arm.config).config for arm in load_campaign("demo").arms.values()]
    runs, alone, floors = rows[: len(configs)], rows[len(configs)], rows[len(configs) + 1 :]
    budget, most = budget_of(configs[0]), float(runs[0]["client_macs"])
    assert (alone["kind"], alone["attack"], alone["suite"]) == ("alone", "", "") and float(alone["client_macs"]) <= most
    assert alone["run"] in {config.name for config in candidates(budget).values()} and float(alone["accuracy"]) > 0.5
    told = [(row["kind"], row["run"], row["surrogate"], float(row["penalty_weight"])) for row in runs]
    assert told == [("run", config.name, config.defence, config.training.penalty_weight) for config in configs]
    suite, bounds = (load(Suite, name).config for name in SUITES)
    assert {row["suite"] for row in runs} == {f"{suite.name} v{suite.version} + {bounds.name} v{bounds.version}"}
    assert all(float(row[limit]) > 0 for row in runs for limit in ("leak_limit", "beyond_label"))
    kinds = {row.name: name for name, row in suite.rows.items()}
    blind = [kinds["grey"], kinds["mean_image"], *(f"{kinds['class_mean']} ({config.name})" for config in configs)]
    assert [(row["kind"], row["run"]) for row in floors] == [("floor", name) for name in blind]
    assert {row["attack"] for row in runs} <= set(suite.rows)
    assert any(isinstance(row, DecoderOptions) for row in suite.rows.values())


ALWAYS = {"mse", "ssim", "psnr"}
"""Measures that every result has; others came with later versions."""
WHOLE = {"arm", "point", "seed", "audits", "warnings", "client_macs", "training_seconds"}
"""What every cell of a measured campaign has; files made before campaigns lack some."""


def check_campaign(file: str, name: str) -> tuple[CampaignTable, dict[str, RunConfig]]:
    """The rows are the campaign's cells in their order, under its attacks; the configurations of its arms."""
    table, campaign = read_results(RESULTS / file), load_campaign(name)
    cells = expand(campaign)
    assert [(row.arm, row.point, row.seed) for row in table.cells] == [
        (planned.cell.arm, planned.cell.point, planned.cell.seed) for planned in cells
    ]
    assert (table.campaign, table.meaning, table.unfinished) == (name, campaign.meaning, {})
    assert table.command == f"attncem campaign run {name} --out FOLDER; attncem campaign results FOLDER {file}"
    assert [(audit.rows, audit.evaluation, audit.weights) for audit in table.audits] == [
        (asked_rows(audit), audit.on, audit.weights) for audit in campaign.audits
    ]
    assert all(len(row.audits) == len(campaign.audits) for row in table.cells)
    assert (RESULTS / file).read_text(encoding="utf-8") == results_text(table)
    return table, {planned.cell.arm: planned.config for planned in cells}


def check_selection(monkeypatch: pytest.MonkeyPatch) -> None:
    table, _ = check_campaign("demo_selection.json", "demo-selection")
    assert table.audits[0].evaluation == "validation"
    for row in table.cells:
        (audit,) = row.audits
        assert audit.attacks is not None
        assert audit.strongest in table.audits[0].rows and set(audit.attacks) == {audit.strongest}


def check_front_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    table, _ = check_campaign("front_ends_cifar10.json", "front-ends-cifar10")
    check_attacked(table)


def test_the_tables_of_pages_are_what_the_script_writes() -> None:
    tables = script("write_result_tables")
    pages = [file.read_text(encoding="utf-8") for file in tables.PAGES]
    assert sorted(found[1] for page in pages for found in tables.TABLE.findall(page)) == sorted(tables.TABLES)
    for page in pages:
        assert tables.renewed(page) == page, "run scripts/write_result_tables.py"


def check_measures(table: CampaignTable) -> None:
    """A result holds the measures of its own version: the same for every row of every cell, each with its interval.

    A row that draws samples has further ones, all of them.
    """
    rows = [row for cell in table.cells for audit in cell.audits for row in (audit.attacks or {}).values()]
    measures = rows[0].keys() - {"reliable"}
    assert ALWAYS <= measures <= METRICS.keys()
    for scores in rows:
        further = {"spread", *(f"sample_{name}" for name in SAMPLED)} if "spread" in scores else set()
        assert scores.keys() == {*measures, *further, "reliable"} and isinstance(scores["reliable"], bool)
        assert all(len(scores[name]) == 3 for name in {*measures, *further})


def check_attacked(table: CampaignTable) -> None:
    """Every cell under every row, in every measure of the file."""
    (asked,) = table.audits
    check_measures(table)
    for row in table.cells:
        assert row.to_dict().keys() >= WHOLE
        (audit,) = row.audits
        assert audit.attacks is not None and list(audit.attacks) == list(asked.rows)


def check_front_ends_selection(monkeypatch: pytest.MonkeyPatch) -> None:
    table, runs = check_campaign("front_ends_selection.json", "front-ends-selection")
    check_attacked(table)
    assert table.audits[0].evaluation == "validation"
    tables = script("write_result_tables")
    chosen = tables.chosen(tables.SOURCE.arms(table.campaign))
    assert list(chosen) == list(LEVELS)
    rows = {row.arm: row for row in table.cells}
    for level in tables.RECOMMENDED:
        arm = chosen[level]
        check_recommended(level, runs[arm], table.cells[:1], [rows[arm]])


CLAIMED = {
    "strong": ("claim-cifar10", "c-front-end-attention"),
    "thin-client": ("claim-thin-cifar10", "d-thin-front-end-attention"),
}
"""Recommended configurations that are arms of the claim."""


@pytest.mark.parametrize("level", CLAIMED)
def test_what_the_claim_found_best_is_recommended(level: str) -> None:
    name, arm = CLAIMED[level]
    table = read_results(RESULTS / f"{name.replace('-', '_')}.json")
    config = next(one.config for one in expand(load_campaign(name)) if one.cell.arm == arm)
    undefended = read_results(RESULTS / "ladder_cifar10.json").cells[:1]
    check_recommended(
        level, load_config(config, {"seed": 0}).config, undefended, [row for row in table.cells if row.arm == arm]
    )


def check_recommended(level: str, config: RunConfig, undefended: list[CellResult], rows: list[CellResult]) -> None:
    """The configuration is what was chosen, and its second line says what was measured: the means over the seeds."""
    asked = load_config(config, {"name": f"recommended-{level}"}).config
    assert load_config(f"recommended-{level}").config == asked
    file = ROOT / f"src/attncem/config/packaged/runs/recommended-{level}.yaml"
    line = file.read_text(encoding="utf-8").splitlines()[1]
    for cells in (undefended, rows):
        audits = [cell.audits[0] for cell in cells]
        scores = [(audit.attacks or {})[str(audit.strongest)] for audit in audits]
        assert f"{100 * fmean((audit.accuracy or [0])[0] for audit in audits):.1f} %" in line
        assert f"{fmean(one['mse'][0] for one in scores):.4f}" in line
        assert f"{fmean(one['structure'][0] for one in scores):.4f})" in line


@pytest.mark.parametrize("name", ["recommended-lean", "recommended-lean-4m", "recommended-lean-1m"])
def test_the_recommended_lean_clients_were_chosen_on_validation_images(name: str) -> None:
    """Its second line says the accuracy, error and limit of that arm; its third the accuracy of the client alone."""
    tables, config = script("write_result_tables"), load_config(name).config
    budget = config.model.macs
    assert budget is not None
    arm = tables.lean.recommended(tables.SOURCE, int(budget))
    assert load_config(arm.arm.config, {"name": name}).config == config
    file = ROOT / f"src/attncem/config/packaged/runs/{name}.yaml"
    second, third = file.read_text(encoding="utf-8").splitlines()[1:3]
    percent, limit = tables.lean.percent, tables.lean.leak(LIMIT, arm)
    assert f"{percent(arm.accuracy)} %" in second and f"{arm.error('mse'):.4f};" in second
    assert f"{arm.error('mse', 'class mean'):.4f}." in second and f"at most {limit} nats" in second
    assert f"has {percent(tables.lean.chosen(tables.SOURCE)[int(budget)])} %" in third


def check_undefended(monkeypatch: pytest.MonkeyPatch) -> None:
    table, _ = check_campaign("undefended_cifar10.json", "undefended-cifar10")
    (row,) = table.cells
    best, last = (audit.accuracy for audit in row.audits)
    assert best is not None and last is not None
    assert best[1] <= best[0] <= best[2] and abs(best[0] - last[0]) < 0.01


def check_lean_selection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attacks and bounds on validation images; cells that are missing are named."""
    table, campaign = read_results(RESULTS / "demo_lean_selection.json"), load_campaign("demo-lean-selection")
    planned = [one.cell for one in expand(campaign) if one.cell.id not in table.unfinished]
    assert [(row.arm, row.point, row.seed) for row in table.cells] == [(it.arm, it.point, it.seed) for it in planned]
    assert [(audit.rows, audit.evaluation) for audit in table.audits] == [
        (asked_rows(audit), "validation") for audit in campaign.audits
    ]


EVIDENCE = (
    "claim-cifar10", "claim-selection-cifar10", "claim-thin-cifar10", "claim-tiny-imagenet", "claim-lfw",
    "claim-selection-tiny-imagenet", "claim-selection-lfw",
    "front-cifar10", "beyond-cifar10", "baseline-240-cifar10", "ladder-cifar10",
    "shaped-demo", "learned-demo", "claim-demo", "lean-cifar10", "outside-demo", "doubts-demo",
    "lean-doubts-cifar10", "outside-cifar10", "selective-demo", "selective-cifar10",
    "documents-gates", "documents-sweep",
)  # fmt: skip
"""Campaigns of docs/results.md and docs/audit.md; their files may come one by one, and while runs are missing."""


BOUNDS = {name for name, row in packaged_suites()["certificates"].rows.items() if row.name in CERTIFICATES}
"""Rows that prove bounds: an audit of these alone has no attack."""


def test_the_words_about_outside_attackers_are_the_numbers() -> None:
    """Ranges that docs/audit.md names in sentences, from the files that its tables are made of."""
    words = " ".join((ROOT / "docs/audit.md").read_text(encoding="utf-8").split())
    asked, doubted = (read_results(RESULTS / f"{name}.json") for name in ("outside_demo", "doubts_demo"))
    errors = {cell.arm: [audit.score("mse") for audit in cell.audits] for cell in asked.cells}
    shown = {arm: [round(score.mean, 4) for score in scores if score is not None] for arm, scores in errors.items()}
    every, quarter, answers = 0, 2, 6  # places of the audits in the campaign
    fewer = sorted(100 * (of[quarter] / of[every] - 1) for of in shown.values())
    assert f"its error is {fewer[0]:.0f} to {fewer[-1]:.0f} % larger" in words
    limited = sorted(100 * (of[answers] / of[every] - 1) for of in shown.values())
    assert f"leave a decoder {limited[0]:.0f} to {limited[-1]:.0f} % more error" in words
    none, lean = ({row: of["mse"][0] for row, of in (cell.audits[0].attacks or {}).items()} for cell in doubted.cells)
    less = sorted(100 * (1 - none[row] / none["decoder small"]) for row in ("decoder global", "flow"))
    assert f"leave {less[0]:.0f} to {less[-1]:.0f} % less error than its small decoder" in words
    assert min(lean.values()) > 0.99 * lean["decoder small"] and "no row leaves more than 1 % less" in words


def test_the_words_about_doubts_on_cifar10_are_the_numbers() -> None:
    """As above, for the baseline's client and a lean one."""
    words = " ".join((ROOT / "docs/audit.md").read_text(encoding="utf-8").split())
    doubted, outside = (read_results(RESULTS / f"{name}.json") for name in ("lean_doubts_cifar10", "outside_cifar10"))
    baseline, lean = (
        {row: of["mse"][0] for audit in cell.audits for row, of in (audit.attacks or {}).items()}
        for cell in doubted.cells
    )
    less = {row: 100 * (1 - error / baseline["decoder global"]) for row, error in baseline.items()}
    assert f"`decoder strong` leaves {less['decoder strong']:.1f} % less error" in words
    assert f"a flow {less['flow']:.1f} % less" in words
    gains = {row: 100 * (1 - lean[row] / lean["decoder global"]) for row in lean if row != "white box"}
    assert max(gains, key=gains.__getitem__) == "decoder strong"
    assert f"stronger**: `decoder strong` leaves {gains['decoder strong']:.1f} % less error" in words
    assert doubted.cells[1].audits[0].strongest == "decoder global", "on the images that white box attacked too"
    clusters = ((doubted.cells[1].audits[1].probes or {})["clustering"])["kmeans_accuracy"][0]
    assert f"sorts {100 * clusters:.0f} % of the images" in words
    gain = 100 * (1 - baseline["substitute"] / baseline["class mean"])
    assert f"gains {gain:.0f} % on a blind guess" in words and lean["substitute"] > lean["class mean"]
    errors = [[audit.attacks or {} for audit in cell.audits] for cell in outside.cells]
    more = [
        [100 * (of[1][row]["mse"][0] / of[0][row]["mse"][0] - 1) for row in ("decoder global", "decoder global x256")]
        for of in errors
    ]
    assert f"leave {more[0][0]:.0f} to {more[0][1]:.0f} % more error" in words
    assert f"the lean one {more[1][0]:.0f} and {more[1][1]:.0f} % more" in words
    limited = [
        100 * (errors[0][place]["decoder global"]["mse"][0] / errors[0][0]["decoder global"]["mse"][0] - 1)
        for place in (3, 4)
    ]
    assert f"cost the attacker {limited[0]:.0f} % of error" in words and f"1,000 answers {limited[1]:.0f} %" in words
    for place in (3, 4, 5):
        guess = errors[1][place]["class mean"]["mse"][0]
        assert all(of["mse"][0] > guess for row, of in errors[1][place].items() if row != "class mean")


def test_the_words_about_selective_clients_are_the_numbers() -> None:
    """Nats and ratios that docs/less-to-release.md names in sentences."""
    words = " ".join((ROOT / "docs/less-to-release.md").read_text(encoding="utf-8").split())
    tables = script("write_result_tables")
    selective = tables.selective
    arms = {(arm.name, arm.weight): arm for arm in tables.SOURCE.arms("selective-demo")}

    def mean(read: Callable[[Any], float | None], arm: str, weight: float = 1) -> float:
        return fmean(selective.over_seeds(arms[arm, weight], read))

    nats = {arm: mean(lambda cell: selective.leak(LIMIT, cell), arm) for arm, weight in arms if weight == 1}
    over = mean(lambda cell: selective.leak("over_all", cell), "uniform")
    assert (
        f"({nats['uniform']:.1f} against {nats['full']:.1f} nats at λ 1)" in words
        and f"({over:.1f} nats) would" in words
    )
    assert f"from {nats['uniform']:.1f} to {nats['doubt']:.1f} nats" in words
    assert f"`gated-doubt` is at {nats['gated-doubt']:.1f} nats, `worst` at {nats['worst']:.1f}" in words
    accuracy = {arm: mean(selective.score, arm) for arm in nats}
    assert f"an accuracy {100 * (accuracy['uniform'] - accuracy['doubt']):.1f} points lower" in words
    ratios = selective.ratios(tables.SOURCE, "selective-demo")
    assert "- doubt, λ 1: 1.08" in ratios and "the ratio falls to 1.08" in words
    shares = [
        value
        for one in arms.values()
        for value in selective.over_seeds(one, lambda cell: selective.sending("share", cell))
    ]
    assert f"up to {100 * (max(shares) - 0.2):.1f} points above" in words
    heads = [
        mean(lambda cell: selective.sending("alone", cell), *key) - mean(selective.score, *key)
        for key in arms
        if key[0] != "full"
    ]
    assert min(heads) > -0.01, "each head alone is at least as accurate, up to the spread"


def test_the_words_about_selective_clients_on_cifar10_are_the_numbers() -> None:
    """Accuracies, nats, ratios and shares that docs/less-to-release.md names in sentences."""
    words = " ".join((ROOT / "docs/less-to-release.md").read_text(encoding="utf-8").split())
    tables = script("write_result_tables")
    selective = tables.selective
    arms = {(arm.name, arm.weight): arm for arm in tables.SOURCE.arms("selective-cifar10")}

    def mean(read: Callable[[Any], float | None], arm: str, weight: float) -> float:
        return fmean(selective.over_seeds(arms[arm, weight], read))

    score = {key: 100 * mean(selective.score, *key) for key in arms}
    nats = {key: mean(lambda cell: selective.leak(LIMIT, cell), *key) for key in arms}
    made = tables.SOURCE.table("selective-cifar10")
    budgets = selective.alone(made, "selective-cifar10").items()
    alone = {f"{budget / 1e6:.0f}": 100 * fmean(of) for budget, of in budgets}
    small, large = (f"{alone[size]:.1f}" for size in ("1", "4"))
    at = {size: [score[f"{how}-{size}M", 0.1] for how in ("uniform", "full")] for size in (1, 4)}
    assert f"alone has {small} %, with 30 % sent {at[1][0]:.1f} %, with all sent {at[1][1]:.1f} %" in words
    assert f"it is {large}, {at[4][0]:.1f} and {at[4][1]:.1f} %" in words
    gained, most = at[1][0] - alone["1"], at[1][1] - alone["1"]
    assert 0.45 < gained / most < 0.6 and f"30 % sent add {gained:.1f} of {most:.1f} points" in words
    assert at[4][1] - alone["4"] < 0.95 and "adds at most 0.9 points, for more than 200 nats" in words
    over = mean(lambda cell: selective.leak("over_all", cell), "uniform-1M", 0.1)
    assert f"{nats['uniform-1M', 0.1]:.1f} against {nats['full-1M', 0.1]:.1f} nats" in words
    assert f"to {over:.1f} nats" in words and over / nats["full-1M", 0.1] < 1 / 3
    assert f"has {score['full-1M', 0.3]:.1f} % at {nats['full-1M', 0.3]:.1f} nats" in words
    assert score["full-1M", 0.3] > score["uniform-1M", 0.1] and score["full-1M", 0.3] > alone["1"]
    few, every = [f"{score[key]:.1f} % at {nats[key]:.1f} nats" for key in (("uniform-4M", 0.3), ("full-4M", 0.3))]
    assert f"{few} with 20 % sent and {every} with all, but the client alone has more" in words
    others = [key for key in arms if key[1] == 0.3 and key != ("full-1M", 0.3)]
    assert all(score[arm, weight] < alone[arm.split("-")[-1][0]] for arm, weight in others)
    check_ratios_on_cifar10(words, selective.ratios(tables.SOURCE, "selective-cifar10"))
    for size in ("1M", "4M"):
        differ = [nats[f"uniform-{size}", 0.3] - nats[f"{arm}-{size}", 0.3] for arm in ("doubt", "gated-doubt")]
        assert all(abs(of) < 4 for of in differ)
    head = 100 * mean(lambda cell: selective.sending("alone", cell), "uniform-1M", 0.1)
    assert f"by {alone['1'] - head:.1f} points at 1 M" in words
    shares = [
        100 * value - (20 if name.endswith("4M") else 30)
        for (name, _), arm in arms.items()
        for value in selective.over_seeds(arm, lambda cell: selective.sending("share", cell))
    ]
    assert (
        f"up to {max(map(abs, shares)):.1f} points from what was asked, on average {fmean(shares):.1f} above" in words
    )
    assert len(selective.over_seeds(arms["uniform-4M", 0.3], selective.score)) == 2 and "there are two seeds" in words


def check_ratios_on_cifar10(words: str, listed: str) -> None:
    """The sentences about how much more an image that is sent leaks, against the generated list."""
    lines = [re.fullmatch(r"- (\S+), λ (\S+): (\S+) ± \S+ times", line) for line in listed.splitlines()]
    ratios = {(line[1], line[2]): float(line[3]) for line in lines if line}
    equal = [of for (arm, _), of in ratios.items() if arm.startswith("uniform")]
    assert f"{min(equal):.2f} to {max(equal):.2f} times as much as the others would" in words
    at = {size: [ratios[f"{arm}-{size}", "0.3"] for arm in ("doubt", "gated-doubt")] for size in ("4M", "1M")}
    assert f"at 4 M to {at['4M'][0]:.2f} (plain) and {at['4M'][1]:.2f} (gated)" in words
    assert f"at 1 M to {at['1M'][0]:.2f} and {at['1M'][1]:.2f}" in words
    assert all(ratios[f"{arm}-{size}", "0.1"] >= 1.07 for arm in ("doubt", "gated-doubt") for size in ("1M", "4M"))


def check_evidence(name: str) -> None:
    """The cells are the campaign's in their order; those that are missing are named, as the page then does."""
    file = f"{name.replace('-', '_')}.json"
    table, campaign = read_results(RESULTS / file), load_campaign(name)
    planned = [one.cell for one in expand(campaign)]
    there = [(row.arm, row.point, row.seed) for row in table.cells]
    assert there == [(cell.arm, cell.point, cell.seed) for cell in planned if cell.id not in table.unfinished]
    assert (table.campaign, table.meaning) == (name, campaign.meaning)
    assert table.command == f"attncem campaign run {name} --out FOLDER; attncem campaign results FOLDER {file}"
    assert [(audit.rows, audit.threat, audit.evaluation) for audit in table.audits] == [
        (asked_rows(audit), audit.threat, audit.on) for audit in campaign.audits
    ]
    check_measures(table)
    configs = {(one.cell.arm, repr(one.cell.point), one.cell.seed): one.config for one in expand(campaign)}
    for row in table.cells:
        own = configs[row.arm, repr(row.point), row.seed]
        assert row.config is None or digest(own).startswith(row.config), "of the options that the campaign has now"
        assert row.to_dict().keys() >= WHOLE and len(row.audits) == (0 if own.on_device else len(table.audits))
        assert (row.alone is not None) == own.on_device
        for asked, audit in zip(table.audits, row.audits, strict=False):
            if not asked.rows.keys() <= BOUNDS:
                assert audit.attacks is not None and audit.strongest in audit.attacks
                twins = {f"{name}{FROM_SENT}" for name in asked.rows if own.release.selective}
                assert audit.attacks.keys() <= asked.rows.keys() | twins
    assert (RESULTS / file).read_text(encoding="utf-8") == results_text(table)


def check_noise_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    measured, found = script("noise_speed"), read("noise_speed.json")
    assert (found["numbers"], found["rounds"]) == (measured.COUNT, measured.ROUNDS)
    monkeypatch.setattr(measured, "COUNT", 100)
    monkeypatch.setattr(measured, "ROUNDS", 1)
    again = measured.measure()
    assert shape(found) == shape(again)
    assert list(found["times_as_long_as_torch"]) == list(measured.LAWS)
    assert found["command"] == again["command"]


def check_coverage(monkeypatch: pytest.MonkeyPatch) -> None:
    measured, found = script("statistics_coverage"), read("statistics_coverage.json")
    assert (found["command"], found["trials"]) == (measured.COMMAND, measured.TRIALS)
    page = (ROOT / "docs/statistics.md").read_text(encoding="utf-8")
    assert measured.renewed(page, found) == page, "run scripts/statistics_coverage.py --page"
    assert page.count("<!-- table: ") == 4
    truths = {(row["interval"], row["data"], row["seeds"]): row["coverage"] for row in found["coverage"]}
    assert truths["student", "normal", 3] == pytest.approx(0.95, abs=0.01)
    assert truths["bootstrap", "normal", 3] < 0.8, "the page warns of it"
    false = [row["found"] for row in found["findings"] if row["difference"] == 0]
    assert len(false) == 4 and max(false) <= 0.07
    monkeypatch.setattr(measured, "TRIALS", 20)
    monkeypatch.setattr(measured, "FAMILIES", 2)
    again = measured.measure()
    assert list(found) == ["schema_version", *again]
    for part in ("coverage", "findings"):
        keys = [key for key in again[part][0] if key not in ("coverage", "median_width", "found")]
        told = [[[row[key] for key in keys] for row in rows[part]] for rows in (found, again)]
        assert told[0] == told[1]
    assert shape(found["families"]) == shape(again["families"])
    assert [list(row) for row in found["fronts"]] == [list(row) for row in again["fronts"]]
    assert all(row["wrong_by_intervals"] <= 0.01 for row in found["fronts"])


def check_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    found = read("benchmark.json")
    head = benchmark._head(torch.device("cpu"), tiny=False)
    assert list(found) == ["schema_version", *head, "parts"]
    assert list(found["versions"]) == list(head["versions"])
    assert list(found["parts"]) == list(benchmark.PARTS)
    keys = {"command", "part_seconds", "left_out", "tables"}
    assert all(part.keys() == keys and part["left_out"] == 0 for part in found["parts"].values())
    (memory,) = found["parts"]["memory"]["tables"]
    assert [row["surrogate"] for row in memory["rows"]] == list(SURROGATES)
    steps = found["parts"]["epochs"]["tables"][1]["rows"]
    assert list(dict.fromkeys(row["surrogate"] for row in steps)) == list(SURROGATES)


def check_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    measured, found = script("certificates_demo"), read("certificates_demo.json")
    assert tuple(run["config"] for run in found["runs"]) == measured.CONFIGS
    added = {"entropy of the code"}
    """Certificates of later versions of the suite than the result's."""
    rows = load(Suite, "certificates").config.rows.items()
    certificates = [name for name, row in rows if row.name in CERTIFICATES and name not in added]
    for run in found["runs"]:
        assert {item["row"] for item in run["bounds"]} | set(run["absent"]) == set(certificates)
        assert all(list(item) == ["row", "bound", *measured.KEYS] for item in run["bounds"])
        assert run["strongest"] == "ridge"


def check_client_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counts are those of the networks now; the times are of the first client, and shaped as the script's."""
    measured, found = script("client_costs"), read("client_costs.json")
    assert list(found["clients"]) == list(measured.CLIENTS)
    for name, costs in found["clients"].items():
        assert {key: costs[key] for key in measured.COUNTED} == measured.counts(name)[0]
    first = next(iter(found["clients"].values()))
    assert first["times_as_long_torch"] == first["times_as_long_onnx"] == 1.0
    monkeypatch.setattr(measured, "ROUNDS", 1)
    monkeypatch.setattr(measured, "passes", lambda client: (lambda: None, lambda: None))
    assert shape(measured.measure()) == {key: value for key, value in shape(found).items() if key != "schema_version"}


def check_flips(_: pytest.MonkeyPatch) -> None:
    measured, found = script("count_flips"), read("code_flips.json")
    conditions = [(row["bits"], row["of"], row["runtime"], row["threads"], row["batch"]) for row in found["flips"]]
    ways = (measured.BITS, ("one image", "test images"), measured.RUNTIMES, (1, 2), (1, 7, 256))
    assert conditions == list(product(*ways))
    assert all(row["flips"] == 0 for row in found["flips"] if (row["runtime"], row["batch"]) == ("torch", 1))
    assert {name: client["overrides"] for name, client in found["clients"].items()} == measured.CLIENTS
    assert measured.flips_table(found) in (ROOT / "docs/channels.md").read_text(encoding="utf-8")
    assert measured.codes_table(found) in (ROOT / "docs/certificates.md").read_text(encoding="utf-8")


def check_serve_load(_: pytest.MonkeyPatch) -> None:
    result = read("serve_load.json")
    assert result["command"] == "python scripts/serve_load.py results/serve_load.json"
    assert list(result["models"]) == list(serve_load.WIDTHS) and result["connections"] == 32
    rows = [row for model in result["models"].values() for way in serve_load.WAYS for row in (model[way],)]
    assert [row["requests"] for row in rows] == [50_000, 50_000, 10_000, 10_000, 2_000, 2_000]
    assert not any(row["wrong answers"] for row in [*rows, result["idle"]])
    grown = [row["memory at the end over that after 5,000"] for row in rows[:4]]
    assert max(grown) < 1.05
    page = (ROOT / "docs/serve.md").read_text(encoding="utf-8")
    assert serve_load.table_of(result) in page
    small, medium, large = (model["batching"]["throughput"] for model in result["models"].values())
    assert f"{small:.2f} of the answers of onnxruntime alone for the small half, {medium:.2f} for the medium" in page
    assert f"one and {large:.2f} for VGG11's" in page and min(medium, large) > 0.5 > small
    first = result["models"]["small"]
    shortest = first["floors"]["onnxruntime behind bare HTTP"]["throughput"]
    assert f"the shortest HTTP in front of it reaches {shortest:.2f}" in page
    assert f"takes {first['floors']['empty app']['processor time']:.2f} of the time of the half itself" in page
    assert f"{first['batching']['throughput over onnxruntime behind bare HTTP']:.2f} of that shortest HTTP" in page
    idle = result["idle"]
    assert (
        f"{idle['kB of memory for each']:g} kB of memory each" in page and f"{idle['median time']:g} times its" in page
    )


def check_edge_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """tests/test_docs_deploy.py compares the numbers with the page; measuring them again needs a registry."""
    measured, found = script("edge_costs"), read("edge_costs.json")
    assert (found["command"], found["rounds"]) == (measured.COMMAND, measured.ROUNDS)
    assert list(found["import_seconds"]) == list(measured.IMPORTS)
    assert found["megabytes_by_package"].keys() >= {"numpy", "onnxruntime", "pillow", "attncem_edge"}


def check_serve_mlserver(_: pytest.MonkeyPatch) -> None:
    measured, result = script("serve_beside_mlserver"), read("serve_mlserver.json")
    assert (result["rounds"], result["requests"]) == (measured.ROUNDS, measured.REQUESTS)
    assert list(result["models"]) == list(serve_load.WIDTHS)
    servers = [row for rows in result["models"].values() for row in rows.values()]
    assert len(servers) == 12 and not any(row["wrong answers"] for row in servers)
    page = (ROOT / "docs/serve.md").read_text(encoding="utf-8")
    assert measured.table_of(result) in page
    small = result["models"]["small"]
    times = small["ours, binary"]["throughput"] / small["ours, JSON"]["throughput"]
    assert f"our server gives {times:.0f} times as many answers as in JSON" in page


def check_edge_triton(_: pytest.MonkeyPatch) -> None:
    """Measuring it again needs a registry."""
    measured, result = script("edge_against_triton"), read("edge_triton.json")
    assert result["command"] == measured.COMMAND and result["pictures"] == f"{measured.PICTURES} test images"
    assert result["labels_equal"] == result["triton_counted"] == measured.PICTURES
    assert result["different_labels"] > 5
    restart = result["after_a_kill"]
    assert restart["attempts"] > 1 and restart["different_requests"] == restart["labels_equal"] == 1
    assert max(result["logits_differ_by"], restart["logits_differ_by"]) <= measured.CLOSE
    assert list(result["answers"]) == list(measured.CASES)
    page = (ROOT / "docs/serve.md").read_text(encoding="utf-8")
    assert measured.table_of(result) in page and measured.words_of(result) in " ".join(page.split())


def check_foreign_export(_: pytest.MonkeyPatch) -> None:
    """Measuring it again needs torchvision, which cannot be imported beside this torch."""
    measured, result = script("export_foreign"), read("foreign_export.json")
    rows = result["networks"]
    assert result["command"] == measured.COMMAND and list(result["versions"]) == list(measured.LIBRARIES)
    assert {row["network"]: row["cut"] for row in rows} == {name: of["cut"] for name, of in measured.NETWORKS.items()}
    exported = [row for row in rows if row["exported"]]
    assert all(row["z_differs_by"] < 3e-6 and row["logits_differ_by"] < 3e-6 for row in exported)
    differ = [row for row in rows if not row["exported"] and "the exported z differ" in row["reason"]]
    page = (ROOT / "docs/deploy.md").read_text(encoding="utf-8")
    words = " ".join(page.split())
    assert f"{len(exported)} of {len(rows)} were exported, with differences below 3e-6" in words and len(differ) == 2
    assert all(f"{name} {result['versions'][name]}" in words for name in ("torch", "torchvision", "timm"))
    assert measured.table_of(result) in page


@pytest.mark.slow
def test_an_export_is_tried_network_by_network() -> None:
    """One of ours, and one whose error is a row too."""
    networks = {"small_cnn": {"cut": 2, "width": 4}, "none/such": {"cut": "layer1"}}
    result = script("export_foreign").measured(networks)
    there, missing = result["networks"]
    assert there["exported"] and there["z_differs_by"] <= 1e-5 and there["feature"] == [8, 4, 4]
    assert not missing["exported"] and "none/such" in missing["reason"]


CHECKS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "client_costs.json": check_client_costs,
    "certificates_demo.json": check_certificates,
    "demo.csv": check_demo,
    "demo_selection.json": check_selection,
    "demo_lean_selection.json": check_lean_selection,
    "front_ends_cifar10.json": check_front_ends,
    "front_ends_selection.json": check_front_ends_selection,
    "undefended_cifar10.json": check_undefended,
    "noise_speed.json": check_noise_speed,
    "edge_costs.json": check_edge_costs,
    "code_flips.json": check_flips,
    "serve_load.json": check_serve_load,
    "serve_mlserver.json": check_serve_mlserver,
    "edge_triton.json": check_edge_triton,
    "foreign_export.json": check_foreign_export,
    "statistics_coverage.json": check_coverage,
    "benchmark.json": check_benchmark,
    **{f"{name.replace('-', '_')}.json": lambda _, name=name: check_evidence(name) for name in EVIDENCE},
}
"""What compares each result with its command."""
FILES = sorted(file.name for file in RESULTS.iterdir() if file.is_file())


@pytest.mark.parametrize("name", FILES)
def test_a_result_is_what_its_command_writes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    CHECKS[name](monkeypatch)


CAMPAIGNS = [name for name in FILES if name.endswith(".json") and "cells" in read(name)]


@pytest.mark.parametrize("name", [*CAMPAIGNS, "demo.csv"])
def test_a_new_measure_leaves_results_of_older_versions_valid(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METRICS, "new", METRICS["mse"])
    monkeypatch.setattr(f"{__name__}.CSV_COLUMNS", (*CSV_COLUMNS, "new"))
    CHECKS[name](monkeypatch)


def test_measures_that_differ_within_a_file_are_found() -> None:
    table = read_results(RESULTS / "claim_demo.json")
    check_measures(table)
    first, *others = table.cells
    attacks = first.audits[0].attacks or {}
    for name in attacks:
        for wrong in (
            {key: value for key, value in attacks[name].items() if key != "structure"},
            {**attacks[name], "mse": attacks[name]["mse"][:1]},
            {**attacks[name], "unheard": [0.1, 0.1, 0.1]},
        ):
            changed = replace(first, audits=[replace(first.audits[0], attacks={**attacks, name: wrong})])
            with pytest.raises(AssertionError):
                check_measures(replace(table, cells=[changed, *others]))


def test_a_file_that_differs_from_its_campaign_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks themselves: an arm, an attack's option or a number that the campaign would not write."""
    monkeypatch.setattr(f"{__name__}.RESULTS", tmp_path)
    text = (ROOT / "results/demo_selection.json").read_text(encoding="utf-8")
    (tmp_path / "demo_selection.json").write_text(text, encoding="utf-8")
    check_selection(monkeypatch)
    for old, new in (
        ("none-kmeans-1-0.1", "none-kmeans-3-0.1"),
        ('"epochs": 6.0', '"epochs": 9.0'),
        ("0.896", "0.8960"),
    ):
        (tmp_path / "demo_selection.json").write_text(text.replace(old, new), encoding="utf-8")
        with pytest.raises(AssertionError):
            check_selection(monkeypatch)


def test_evidence_that_differs_from_its_campaign_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file as `campaign results` writes it of a campaign that is not complete, and changes to it."""
    monkeypatch.setattr(f"{__name__}.RESULTS", tmp_path)
    name, file = "claim-thin-cifar10", "claim_thin_cifar10.json"
    campaign = load_campaign(name)
    (audit,), cells = campaign.audits, [one.cell for one in expand(campaign)]
    scores = {**{measure: [0.1, 0.1, 0.1] for measure in METRICS}, "reliable": True}
    found = CellAudit([0.9, 0.9, 0.9], "ridge", {"ridge": scores}, None, 1.0)
    table = CampaignTable(
        name,
        campaign.meaning,
        f"attncem campaign run {name} --out FOLDER; attncem campaign results FOLDER {file}",
        [AskedAudit(asked_rows(audit), "standard v4", "train", "test", "best")],
        [CellResult(cell.arm, cell.point, cell.seed, [found], [], 21, 20.0) for cell in cells[:-1]],
        unfinished={cells[-1].id: "planned"},
    )
    (tmp_path / file).write_text(results_text(table), encoding="utf-8")
    CHECKS[file](monkeypatch)
    for wrong in (
        replace(table, unfinished={}),
        replace(table, cells=table.cells[:-1]),
        replace(table, audits=[replace(table.audits[0], threat="held_out")]),
        replace(table, cells=[replace(cell, audits=[replace(found, strongest="white")]) for cell in table.cells]),
    ):
        (tmp_path / file).write_text(results_text(wrong), encoding="utf-8")
        with pytest.raises(AssertionError):
            CHECKS[file](monkeypatch)


# references that a result gives to the package


def test_undefended_references_are_those_of_their_files() -> None:
    sources = {name: reference.source for name, reference in UNDEFENDED.items()}
    assert sources == {
        "cifar10": "results/undefended_cifar10.json",
        "fashion_mnist_mini": "results/demo.csv",
    }
    (row,) = read_results(RESULTS / "undefended_cifar10.json").cells
    assert [UNDEFENDED["cifar10"].accuracy] == (row.audits[0].accuracy or [])[:1]
    plain = next(row for row in table("demo.csv")[1] if row["surrogate"] == "none")
    assert UNDEFENDED["fashion_mnist_mini"].accuracy == float(plain["accuracy"])


def audited(dataset: str, accuracy: float, images_per_class: int = 0) -> AuditResult:
    """An audit of a ten-class model that has no rows."""
    facts = {"dataset": dataset, "num_classes": 10, "client_macs": 1, "server_macs": 1}
    plan: Any = SimpleNamespace(
        subject=SimpleNamespace(**facts, images_per_class=images_per_class),
        threat=THREATS["train"],
        accuracy=made_score(accuracy),
        rows=[],
        changed=[],
        findings=[],
        num_evaluation=10_000,
        num_auxiliary=0,
        num_train=0,
        selective=None,
    )
    return join(plan, [], {})


@pytest.mark.parametrize("accuracy", [0.2445, 0.248, 0.26, 0.2], ids=["002 gmm", "002", "002 tuned", "003"])
def test_the_documents_own_accuracies_are_flagged(accuracy: float) -> None:
    (found,) = audited("cifar10", accuracy).findings
    assert found.code == "far_below_undefended"
    assert f"accuracy {100 * accuracy:.1f} % is far below the 90.0 %" in found.text
    assert "results/undefended_cifar10.json" in found.text


def test_accuracy_is_judged_once_and_only_where_a_reference_is_known() -> None:
    assert [item.code for item in audited("cifar10", 0.1).findings] == ["near_chance"]
    assert audited("cifar10", FAR_BELOW * 0.9001 + 0.001).findings == []
    assert audited("image_folder", 0.24).findings == [], "none was measured"


def test_a_model_of_a_part_of_a_set_is_not_measured_by_one_of_the_whole() -> None:
    """Without a defence a small network reaches 52 % on a tenth of CIFAR-10: its utility is not lost."""
    audit = audited("cifar10", 0.52, images_per_class=500)
    assert audit.findings == [] and not health.is_collapsed(audit, None)
    assert health.is_collapsed(audit, 0.9) and health.is_collapsed(audited("cifar10", 0.52), None)


def test_the_report_takes_the_reference_into_its_verdict_and_says_it_once() -> None:
    poor, fair, unknown = audited("cifar10", 0.24), audited("cifar10", 0.8), audited("image_folder", 0.24)
    assert [health.is_collapsed(audit, None) for audit in (poor, fair, unknown)] == [True, False, False]
    assert health.accuracy_findings(poor, 0.9) == [], "the audit says it itself"
    assert [item.code for item in health.accuracy_findings(unknown, 0.9)] == ["accuracy_collapsed"]
