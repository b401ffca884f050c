#!/usr/bin/env python3
"""Write the tables of docs/front-ends.md, docs/audit.md and docs/networks.md from result files.

Each table is between `<!-- results: NAME -->` and `<!-- end -->`. A test compares the pages with the output of this
script.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

from evidence import lean, outside, selective
from evidence.source import Setting, Source
from evidence.words import front_end, table, table_of

from attncem.base.texts import text
from attncem.campaigns.choosing import Candidate, choose
from attncem.records.metrics import METRICS
from attncem.records.statistics import seed_summary
from attncem.records.study import ACCURACY

ROOT = Path(__file__).parent.parent
SOURCE = Source(ROOT / "results")
PAGES = tuple(ROOT / f"docs/{name}.md" for name in ("front-ends", "audit", "networks", "less-to-release"))
SELECTION_SHOWN = ("mse", "structure", "ssim", "edges")
SHOWN = ("mse", "structure", "ssim", "edges", "band_mean", "band_low", "band_high")
RECOMMENDED = ("light", "balanced")
"""Levels whose configuration comes from this selection; later measurements replaced the others."""
TABLE = re.compile(r"(<!-- results: (\w+) -->\n).*?(\n<!-- end -->)", re.DOTALL)
Columns = dict[str, Callable[[Setting], str]]


def renewed(page: str) -> str:
    """The page with its tables from the result files."""
    return TABLE.sub(lambda place: f"{place[1]}{TABLES[place[2]]()}{place[3]}", page)


# docs/front-ends.md


def chosen(arms: Iterable[Setting]) -> dict[str, str]:
    """The chosen arm of every level; the first arm is the undefended one."""
    undefended, *others = (Candidate(arm.name, arm.accuracy, arm.error) for arm in arms)
    return {level: one.name for level, one in choose(others, undefended.accuracy).items()}


def selection_table() -> str:
    """Every setting tried, the undefended first, then the others by falling accuracy; the chosen ones are named."""
    arms = SOURCE.arms("front-ends-selection")
    names = {arm: f"`recommended-{level}`" for level, arm in chosen(arms).items() if level in RECOMMENDED}
    columns: Columns = {
        **SETTING,
        "σ": lambda arm: f"{arm.config.noise_std:g}",
        **means(SELECTION_SHOWN),
        "chosen": lambda arm: names.get(arm.name, ""),
    }
    arms.sort(key=lambda arm: (arm.config.noise_std > 0, -arm.accuracy))
    return table_of(arms, columns, left=2, last=1)


def evidence_table() -> str:
    """The arms, each a mean over its seeds ± their standard deviation; the score of a blind guess comes first."""
    arms = SOURCE.arms("front-ends-cifar10")
    columns: Columns = {**SETTING, **means(SHOWN), "MSE of ridge": partial(mean, "mse", row="ridge")}
    first = replace(arms[0], cells=arms[0].cells[:1])
    blind = ["mean image, blind", "", "", *(mean(name, first, row="mean image") for name in SHOWN), ""]
    return table(list(columns), [blind, *([write(arm) for write in columns.values()] for arm in arms)], left=2)


def mean(measure: str, arm: Setting, row: str = "") -> str:
    """Mean of an arm over its seeds ± their standard deviation."""
    scale, digits = (100, 1) if measure == ACCURACY else (1, METRICS[measure].decimals)
    summary = seed_summary([scale * value for value in arm.values(measure, row=row)])
    return f"{summary.mean:.{digits}f}" + ("" if summary.sd is None else f" ± {summary.sd:.{digits}f}")


def means(measures: Iterable[str]) -> Columns:
    """The columns for the accuracy and these measures."""
    titles = {ACCURACY: "accuracy %", **{name: text(f"measure.{name}") for name in measures}}
    return {title: partial(mean, name) for name, title in titles.items()}


def _method(arm: Setting) -> str:
    return f"{arm.config.surrogate.name} {arm.weight:g}" if arm.weight else arm.config.surrogate.name


SETTING: Columns = {"front end": lambda arm: front_end(arm.config), "surrogate, λ": _method}


# docs/audit.md: models of one seed each, and the rows of all their audits


def ladder_table() -> str:
    """The MSE of every row on each model, the strongest with one release in bold, and the time of the rows."""
    arms = SOURCE.arms("ladder-cifar10")
    lines = [["accuracy %", *(mean(ACCURACY, arm) for arm in arms), ""]]
    strongest = _strongest(arms)
    for row in _errors(arms[0]):
        cells = {arm.name: f"{_errors(arm)[row]:.{METRICS['mse'].decimals}f}" for arm in arms}
        bold = [f"**{cell}**" if strongest[name] == row else cell for name, cell in cells.items()]
        seconds = [_seconds(arm)[row] for arm in arms]
        lines.append([row, *bold, f"{min(seconds):.1f} to {max(seconds):.1f}"])
    return table(["row", *map(_model, arms), "seconds"], lines)


def ladder_summary() -> str:
    """Distance of the baseline's row from the strongest, gain of repeated releases, time of the suite."""
    arms = SOURCE.arms("ladder-cifar10")
    strongest = _strongest(arms)
    lines: Columns = {
        "strongest of `standard`": lambda arm: str(arm.audits()[0].strongest),
        "error of the baseline's decoder above it": lambda arm: _missed(arm, str(arm.audits()[0].strongest)),
        "… and above the strongest of all": lambda arm: _missed(arm, strongest[arm.name]),
        "16 releases lower a small decoder's error by": _taken_off,
        "`standard` without white box, seconds": _suite_seconds,
    }
    return table(["", *map(_model, arms)], [[name, *map(of, arms)] for name, of in lines.items()])


def _model(arm: Setting) -> str:
    return arm.name.replace("local_contrast-", "local contrast, ")


def _errors(arm: Setting) -> dict[str, float]:
    """The MSE of every row of all audits."""
    audits = arm.cells[0].audits.values()
    return {row: scores["mse"][0] for audit in audits for row, scores in (audit.attacks or {}).items()}


def _seconds(arm: Setting) -> dict[str, float]:
    """The time of every row of all audits."""
    return {row: took for audit in arm.cells[0].audits.values() for row, took in (audit.row_seconds or {}).items()}


def _strongest(arms: list[Setting]) -> dict[str, str]:
    """The strongest row of all audits with one release per image, by arm."""
    asked = SOURCE.table("ladder-cifar10")
    often = {
        row for audit in (asked.audits if asked else ()) for row, options in audit.rows.items() if "releases" in options
    }
    errors = {arm.name: _errors(arm) for arm in arms}
    return {name: min(rows.keys() - often, key=rows.__getitem__) for name, rows in errors.items()}


def _missed(arm: Setting, row: str) -> str:
    errors = _errors(arm)
    more = errors["baseline's decoder"] / errors[row] - 1
    return f"{100 * more:.1f} %"


def _taken_off(arm: Setting) -> str:
    errors = _errors(arm)
    return f"{round(100 * (1 - errors['decoder small x16'] / errors['decoder small']))} %"


def _suite_seconds(arm: Setting) -> str:
    return f"{sum(took for row, took in (arm.audits()[0].row_seconds or {}).items() if row != 'white box'):.0f}"


# docs/networks.md


def client_costs_table() -> str:
    """The counted costs of clients, and their times as multiples of the first client's."""
    clients = json.loads((SOURCE.folder / "client_costs.json").read_text(encoding="utf-8"))["clients"]
    lines = [
        [
            f"`{name}`",
            f"{costs['client_macs'] / 1e6:.1f} M",
            f"{costs['client_parameters'] / 1e6:.3f} M",
            f"{costs['client_activation_bytes'] / 1024:.0f} KiB",
            *(f"{costs[f'times_as_long_{library}']:.1f} ×" for library in ("torch", "onnx")),
        ]
        for name, costs in clients.items()
    ]
    titles = ["client, 3×32×32", "MACs", "weights", "peak activations", "time, torch", "time, onnxruntime"]
    return table(titles, lines)


TABLES: dict[str, Callable[[], str]] = {
    "evidence": evidence_table,
    "selection": selection_table,
    "ladder": ladder_table,
    "ladder_summary": ladder_summary,
    "client_costs": client_costs_table,
    "outside": partial(outside.outside_table, SOURCE),
    "outside_labels": partial(outside.labels, SOURCE),
    "doubts": partial(outside.doubts_table, SOURCE),
    "doubts_cifar10": partial(outside.doubts_table, SOURCE, "lean-doubts-cifar10"),
    "outside_cifar10": partial(outside.every_row, SOURCE, "outside-cifar10"),
    "lean_alone": partial(lean.alone_table, SOURCE),
    "lean_noise": partial(lean.noisy_table, SOURCE),
    "lean_bits": partial(lean.bits_table, SOURCE),
    "lean_identity": partial(lean.identity, SOURCE),
    "lean_recommended": partial(lean.recommended_table, SOURCE),
    "lean_disagreements": partial(lean.disagreements, SOURCE),
    "selective_demo": partial(selective.selective_table, SOURCE, "selective-demo"),
    "selective_demo_ratios": partial(selective.ratios, SOURCE, "selective-demo"),
    "selective_cifar10": partial(selective.selective_table, SOURCE, "selective-cifar10"),
    "selective_cifar10_ratios": partial(selective.ratios, SOURCE, "selective-cifar10"),
}
"""Tables by their name on a page."""

if __name__ == "__main__":
    for page in PAGES:
        page.write_text(renewed(page.read_text(encoding="utf-8")), encoding="utf-8")
        print(f"{page} is up to date")
