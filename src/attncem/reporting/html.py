"""One self-contained HTML page from run folders, written in one piece or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from attncem import __version__
from attncem.reporting import figures, gallery, health, tables, wording
from attncem.reporting.load import Entry, Run, entries, load_runs
from attncem.types import RunError

_GENERATOR = '<meta name="generator" content="attncem '


def write_report(paths: Sequence[Path], out: Path, *, csv: bool, now: datetime) -> Path:
    """Read the runs, draw the page and put it in place."""
    table = out.with_suffix(".csv")
    refuse_foreign(out, _GENERATOR)
    if csv:
        refuse_foreign(table, ",".join(tables.CSV_COLUMNS))
    runs = load_runs(paths)
    context = page_context(runs, now)
    write_page(out, render(context))
    if csv:
        write_page(table, tables.csv_text(context["headline"]))
    return out


def page_context(runs: Sequence[Run], now: datetime) -> dict[str, Any]:
    """Everything the template shows."""
    audited = entries(runs)
    audits = [entry.audit for entry in audited]
    best = health.best_accuracy(audits)
    return {
        "version": __version__,
        "generated": now.isoformat(sep=" ", timespec="seconds"),
        "runs": runs,
        "entries": audited,
        "verdict": wording.verdict(audited, best),
        "warnings": _warnings(runs, best),
        "comparison": health.comparison_warnings(audits),
        "headline": tables.headline(runs, audited),
        "mixed": len({(audit.suite, audit.suite_version, audit.threat) for audit in audits}) > 1,
        "trade_off": figures.trade_off(audited) if audited else None,
        "attacks": tables.attack_rows(audited),
        "galleries": gallery.galleries(audited),
        "extremes": gallery.extremes(audited),
        "curves": figures.training_curves(runs),
        "health_curves": figures.health_curves(runs),
        "attack_curves": figures.attack_curves(audited),
        "classes": tables.class_tables(audited),
        "threats": _threats(audited),
        "num_colors": figures.NUM_COLORS,
    }


def render(context: Mapping[str, Any], template: str = "report.html.j2") -> str:
    """The page as text; everything from the runs is escaped."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "decimal": wording.decimal,
        "percent": wording.percent,
        "general": wording.general,
        "count": wording.count,
        "seconds": wording.seconds,
        "svg": Markup,
    }
    return environment.get_template(template).render(context) + "\n"


def _warnings(runs: Sequence[Run], best: Mapping[str, float]) -> list[tuple[int, str, list[str]]]:
    found = []
    for color, run in enumerate(runs):
        dataset = run.audits[0].dataset if run.audits else ""
        texts = health.run_warnings(run, best.get(dataset))
        if texts:
            found.append((color, run.label, texts))
    return found


def _threats(audited: Sequence[Entry]) -> dict[str, str]:
    return {entry.audit.threat.name: wording.describe_threat(entry.audit.threat) for entry in audited}


def refuse_foreign(file: Path, mark: str) -> None:
    """RunError unless the file is absent or one of ours."""
    if not file.exists():
        return
    if file.is_dir():
        raise RunError(f"{file}: is a folder, not a file name for a report")
    with file.open(encoding="utf-8", errors="replace") as stream:
        if mark not in stream.read(4096):
            raise RunError(f"{file}: exists and was not written by attncem; choose another name")


def write_page(file: Path, text: str) -> None:
    """Write a file so that a reader sees the old or the new one, never a part."""
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8")
        part.replace(file)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise RunError(f"{file}: cannot be written: {error}") from error
