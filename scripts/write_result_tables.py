#!/usr/bin/env python3
"""Write the tables of docs/front-ends.md and docs/audit.md from the results of their campaigns.

Each is between `<!-- results: NAME -->` and `<!-- end -->`. A test compares the pages with the output of this script.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attncem.base.texts import text
from attncem.campaigns.choosing import Candidate, choose, error_of
from attncem.campaigns.expansion import expand
from attncem.campaigns.results import read_results
from attncem.config.options.campaigns import load_campaign
from attncem.config.options.run import RunConfig
from attncem.records.campaign_table import CampaignTable, CellResult
from attncem.records.metrics import METRICS

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "docs/front-ends.md", ROOT / "docs/audit.md")
SELECTION_SHOWN = ("mse", "structure", "ssim", "edges")
SHOWN = ("mse", "structure", "ssim", "edges", "band_mean", "band_low", "band_high")
RECOMMENDED = ("light", "balanced")
"""Levels whose configuration comes from this selection; later measurements replaced the others."""
TABLE = re.compile(r"(<!-- results: (\w+) -->\n).*?(\n<!-- end -->)", re.DOTALL)


def renewed(page: str) -> str:
    """The page with its tables as the files have them."""
    return TABLE.sub(lambda place: f"{place[1]}{TABLES[place[2]]()}{place[3]}", page)


def results(name: str) -> CampaignTable:
    """A committed file of results."""
    return read_results(ROOT / f"results/{name}.json")


def configs(campaign: str) -> dict[str, RunConfig]:
    """The configuration of every arm of a packaged campaign that has no grid."""
    return {planned.cell.arm: planned.config for planned in expand(load_campaign(campaign))}


def chosen(table: CampaignTable) -> dict[str, str]:
    """The arm that is chosen at every level, the first arm being the undefended one."""
    undefended, *others = (_candidate(cell) for cell in table.cells)
    return {level: found.name for level, found in choose(others, undefended.accuracy).items()}


def _candidate(cell: CellResult) -> Candidate:
    scores = {name: values[0] for name, values in _strongest(cell).items() if name != "reliable"}
    return Candidate(cell.arm, _accuracy(cell), error_of(scores))


def _strongest(cell: CellResult) -> dict[str, Any]:
    (audit,) = cell.audits
    assert audit.attacks is not None and audit.strongest is not None
    return audit.attacks[audit.strongest]


def _accuracy(cell: CellResult) -> float:
    (audit,) = cell.audits
    assert audit.accuracy is not None
    return audit.accuracy[0]


def selection_table() -> str:
    """Every setting that was tried, the undefended first, then from the most accurate; what was chosen is named."""
    table, runs = results("front_ends_selection"), configs("front-ends-selection")
    head = ["front end", "surrogate, λ", "σ", "accuracy %", *(text(f"measure.{name}") for name in SELECTION_SHOWN)]
    names = {arm: f"`recommended-{level}`" for level, arm in chosen(table).items() if level in RECOMMENDED}
    lines = []
    for cell in sorted(table.cells, key=lambda cell: (runs[cell.arm].noise_std > 0, -_accuracy(cell))):
        config, scores = runs[cell.arm], _strongest(cell)
        numbers = [_decimal(name, [scores[name][0]]) for name in SELECTION_SHOWN]
        own = [_front_end(config), _method(config), f"{config.noise_std:g}", f"{100 * _accuracy(cell):.1f}"]
        lines.append([*own, *numbers, names.get(cell.arm, "")])
    return _table([*head, "chosen"], "|---|---|" + "--:|" * (len(head) - 2) + "---|", lines)


def evidence_table() -> str:
    """The arms, each a mean over its seeds ± their standard deviation; first what a blind guess scores."""
    table, runs = results("front_ends_cifar10"), configs("front-ends-cifar10")
    head = ["front end", "surrogate, λ", "accuracy %", *(text(f"measure.{name}") for name in SHOWN), "MSE of ridge"]
    floor = _attack(table.cells[0], "mean image")
    blind = ["mean image, blind", "", "", *(_decimal(name, [floor[name][0]]) for name in SHOWN), ""]
    arms = [[cell for cell in table.cells if cell.arm == arm] for arm in runs]
    lines = [blind, *(_arm(runs[cells[0].arm], cells) for cells in arms)]
    return _table(head, "|---|---|" + "--:|" * (len(head) - 2), lines)


def ladder_table() -> str:
    """The MSE of every row on each model, the strongest with one release in bold, and the time of the rows."""
    found = results("ladder_cifar10")
    strongest = [_strongest_once(found, cell) for cell in found.cells]
    head = ["row", *_models(found), "seconds"]
    lines = [["accuracy %", *(f"{100 * (cell.audits[0].accuracy or [0.0])[0]:.1f}" for cell in found.cells), ""]]
    for row in _errors(found.cells[0]):
        told = [_decimal("mse", [_errors(cell)[row]]) for cell in found.cells]
        bold = [f"**{one}**" if best == row else one for one, best in zip(told, strongest, strict=True)]
        seconds = [_seconds(cell)[row] for cell in found.cells]
        lines.append([row, *bold, f"{min(seconds):.1f} to {max(seconds):.1f}"])
    return _table(head, "|---|" + "--:|" * (len(head) - 1), lines)


def ladder_summary() -> str:
    """Distance of the baseline's row to the strongest, gain of repeated releases, time of the suite."""
    found = results("ladder_cifar10")
    told: dict[str, Callable[[CellResult], str]] = {
        "strongest of `standard`": lambda cell: str(cell.audits[0].strongest),
        "error of the baseline's decoder above it": lambda cell: _missed(cell, str(cell.audits[0].strongest)),
        "… and above the strongest of all": lambda cell: _missed(cell, _strongest_once(found, cell)),
        "16 releases lower a small decoder's error by": _taken_off,
        "`standard` without white box, seconds": lambda cell: f"{_suite_seconds(cell):.0f}",
    }
    lines = [[name, *map(of, found.cells)] for name, of in told.items()]
    return _table(["", *_models(found)], "|---|" + "--:|" * len(found.cells), lines)


def _models(found: CampaignTable) -> list[str]:
    return [cell.arm.replace("local_contrast-", "local contrast, ") for cell in found.cells]


def _errors(cell: CellResult) -> dict[str, float]:
    """The MSE of every row of all audits."""
    return {row: scores["mse"][0] for audit in cell.audits for row, scores in (audit.attacks or {}).items()}


def _seconds(cell: CellResult) -> dict[str, float]:
    """The time of every row of all audits."""
    return {row: took for audit in cell.audits for row, took in (audit.row_seconds or {}).items()}


def _strongest_once(found: CampaignTable, cell: CellResult) -> str:
    """The strongest row of all audits with one release per image."""
    often = {row for audit in found.audits for row, options in audit.rows.items() if "releases" in options}
    errors = _errors(cell)
    return min(errors.keys() - often, key=errors.__getitem__)


def _missed(cell: CellResult, row: str) -> str:
    errors = _errors(cell)
    more = errors["baseline's decoder"] / errors[row] - 1
    return f"{100 * more:.1f} %"


def _taken_off(cell: CellResult) -> str:
    errors = _errors(cell)
    return f"{round(100 * (1 - errors['decoder small x16'] / errors['decoder small']))} %"


def _suite_seconds(cell: CellResult) -> float:
    return sum(took for row, took in (cell.audits[0].row_seconds or {}).items() if row != "white box")


def _arm(config: RunConfig, cells: list[CellResult]) -> list[str]:
    accuracy = [100 * _accuracy(cell) for cell in cells]
    numbers = [_decimal(name, [_strongest(cell)[name][0] for cell in cells]) for name in SHOWN]
    ridge = _decimal("mse", [_attack(cell, "ridge")["mse"][0] for cell in cells])
    spread = f"{statistics.mean(accuracy):.1f} ± {statistics.stdev(accuracy):.1f}"
    return [_front_end(config), _method(config), spread, *numbers, ridge]


def _attack(cell: CellResult, row: str) -> dict[str, Any]:
    (audit,) = cell.audits
    assert audit.attacks is not None
    return audit.attacks[row]


def _front_end(config: RunConfig) -> str:
    """A front end and its non-default options."""
    options = config.model.front_end.model_dump(exclude_defaults=True, exclude={"name"})
    return " ".join([config.model.front_end.name, *(f"{key} {value:g}" for key, value in options.items())])


def _method(config: RunConfig) -> str:
    weight = config.training.penalty_weight
    return f"{config.surrogate.name} {weight:g}" if weight else config.surrogate.name


def _decimal(measure: str, values: list[float]) -> str:
    digits = METRICS[measure].decimals
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{spread}"


def _table(head: list[str], rule: str, lines: list[list[str]]) -> str:
    return "\n".join([f"| {' | '.join(head)} |", rule, *(f"| {' | '.join(line)} |" for line in lines)])


TABLES: dict[str, Callable[[], str]] = {
    "evidence": evidence_table,
    "selection": selection_table,
    "ladder": ladder_table,
    "ladder_summary": ladder_summary,
}
"""Tables by their name on a page."""

if __name__ == "__main__":
    for page in PAGES:
        page.write_text(renewed(page.read_text(encoding="utf-8")), encoding="utf-8")
        print(f"{page} is up to date")
