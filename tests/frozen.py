"""Every page, table and figure of three fixtures, in both languages: to compare two versions of the code byte for byte.

    python tests/frozen.py FIXTURES OUT

FIXTURES is made when it is missing; give both versions the same one.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console

from attncem.config.threats import THREATS
from attncem.records.audit import AuditResult
from attncem.reporting import compare, draw, print_comparison, print_summary, privacy_card, report
from attncem.reporting.campaign.page import write_campaign_report, write_figures, write_tables
from made_campaigns import ARMS, Made, make_campaign
from made_runs import NOW, NUMBERS, failed, make_audit, make_run, row, rows

GRID = {"training.penalty_weight": [0.5, 2.0], "channel.0.noise_std": [0.05, 0.1]}


def audit(name: str, seed: int, **plan: object) -> AuditResult:
    """An audit whose numbers depend on the seed."""
    factor = 1 + 0.1 * float(np.random.default_rng([seed, len(name)]).normal())
    return make_audit(name, rows(NUMBERS[name][1] * factor), subject={"seed": seed}, **plan)


def make_runs(folder: Path) -> None:
    """Arms of one and three seeds, one without any audit, one run with audits of several suites and adversaries."""
    for name in NUMBERS:
        for seed in range(3):
            make_run(folder / "seeds", name, seed=seed, audits=[audit(name, seed)])
    make_run(folder / "mixed", "none")
    make_run(folder / "mixed", "kmeans", audits=[])
    more = [row("ridge", 0.02), failed("decoder small"), row("white box", 0.004)]
    asked = replace(THREATS["held_out"], releases_per_input=16)
    audits = [
        make_audit("gated"),
        make_audit("gated", id="standard-audit", suite="standard", suite_version=2),
        make_audit("gated", more, id="asked-audit", threat=asked, changed=["ridge.alpha=2"]),
        make_audit("gated", id="validation-audit", evaluation="validation"),
        make_audit("gated", id="other-seed", seed=1, suite="standard", suite_version=2),
    ]
    make_run(folder / "mixed", "gated", audits=audits)


def make_fixtures(folder: Path) -> None:
    """Runs, a whole campaign with two audits and a grid, and one that is not finished."""
    make_runs(folder)
    audits = ({"suite": "quick"}, {"suite": "quick", "on": "validation"})
    make_campaign(folder / "whole", Made(ARMS, seeds=4, grid=GRID, audits=audits))
    part = make_campaign(folder / "part", Made(ARMS, seeds=2, name="part", portraits=False))
    for cell in part.plan.cells[-2:]:
        shutil.rmtree(part.run_path(cell.id))
        (part.path / "cells" / f"{cell.id}.json").unlink()
    shutil.rmtree(part.run_path(part.plan.cells[0].id) / "audits")


def pages(fixtures: Path, out: Path, lang: str) -> Iterator[tuple[str, str]]:
    """Write every page; yield what goes to a terminal."""
    seeds, mixed = sorted((fixtures / "seeds").iterdir()), sorted((fixtures / "mixed").iterdir())
    for name, runs in {"seeds": seeds, "mixed": mixed, "one": mixed[:1]}.items():
        report(runs, out / f"{name}.html", csv=True, now=NOW, lang=lang)
        draw(runs, lang=lang).save(out / f"{name}-figures")
    for run in (mixed[0], seeds[0]):
        privacy_card(run, out / f"card-{run.name}", now=NOW, lang=lang)
    chosen = {
        "seeds": (seeds, ()),
        "by": (seeds, ("surrogate.name",)),
        "two": ([seeds[0], seeds[3]], ()),
        "bare": (mixed, ()),
    }
    for name, (runs, by) in chosen.items():
        compared = compare(runs, by=by, out=out / f"compare-{name}.html", now=NOW, lang=lang)
        (out / f"compare-{name}.json").write_text(json.dumps(compared.to_dict(), indent=1, ensure_ascii=False))
        console = Console(file=io.StringIO(), width=80)
        print_comparison(compared, console, lang=lang)
        yield f"compare-{name}", console.file.getvalue()  # type: ignore[attr-defined]
    for name in ("whole", "part"):
        write_campaign_report(fixtures / name, out / f"{name}.html", now=NOW, lang=lang)
        write_tables(fixtures / name, out / f"{name}-tables", lang=lang)
        write_figures(fixtures / name, out / f"{name}-figures", lang=lang)
    console = Console(file=io.StringIO(), width=80)
    print_summary([make_audit(name) for name in NUMBERS], console, lang=lang)
    yield "summary", console.file.getvalue()  # type: ignore[attr-defined]


def main(fixtures: Path, out: Path) -> None:
    """Make what is missing, and render it."""
    if not fixtures.exists():
        make_fixtures(fixtures)
    for lang in ("en", "zh"):
        folder = out / lang
        folder.mkdir(parents=True)
        for name, words in pages(fixtures, folder, lang):
            (folder / f"{name}.txt").write_text(words, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
