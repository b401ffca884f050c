"""One self-contained HTML page from run folders, written in one piece or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from attncem import __version__
from attncem.reporting import asking, certificates, figures, gallery, health, protection, tables, units, wording
from attncem.reporting.load import Entry, RunView, entries, load_runs
from attncem.results.audit import AuditResult
from attncem.texts import has_text, joined, pattern, retold, text
from attncem.types import RunError

_GENERATOR = '<meta name="generator" content="attncem '


def write_report(paths: Sequence[Path], out: Path, *, csv: bool, now: datetime) -> Path:
    """Read the runs, draw the page and put it in place."""
    refuse_foreign(out, _GENERATOR)
    table = out.with_suffix(".csv")
    if csv:
        refuse_foreign(table, tables.CSV_MARK)
    runs = load_runs(paths)
    context = page_context(runs, now)
    write_page(out, render(context))
    if csv:
        write_page(table, tables.csv_text(context["headline"]))
    return out


def page_context(runs: Sequence[RunView], now: datetime) -> dict[str, Any]:
    """Everything the template shows."""
    audited = entries(runs)
    audits = [entry.audit for entry in audited]
    best, albums = health.best_accuracy(audits), gallery.albums(audited)
    return {
        "version": __version__,
        "generator": f"attncem {__version__}",
        "generated": now.isoformat(sep=" ", timespec="seconds"),
        "runs": runs,
        "entries": audited,
        "verdict": wording.verdict(audited, best),
        "warnings": _warnings(runs, best),
        "comparison": [item.text for item in health.comparison_findings(audits)],
        "headline": tables.headline(runs, audited),
        "references": [item.text for item in health.reference_findings(audited)],
        "protection": protection.blocks(audited, best),
        "limits": {"open": protection.OPEN, "kept": protection.KEPT},
        "headline_measures": tables.measures(tables.HEADLINE),
        "floors_of": next((entry.label for entry in audited if tables.floors(entry.audit)), None),
        "measures": tables.measures(),
        "mixed": len({(it.plan.suite, it.plan.suite_version, repr(it.plan.threat)) for it in audits}) > 1,
        "trade_off": figures.trade_off(audited),
        "attacks": tables.attack_rows(audited),
        "has_units": any(audit.plan.units for audit in audits),
        "asking": asking.blocks(audited),
        "certificates": certificates.blocks(audited),
        "assumed": certificates.assumed(audits),
        "leakage_axis": certificates.axis(audited),
        "asking_curves": figures.asking_curves(audited),
        "families": tables.family_tables(audited),
        "galleries": gallery.galleries(albums),
        "extremes": gallery.extremes(albums),
        "curves": figures.training_curves(runs),
        "health_curves": figures.health_curves(runs),
        "attack_curves": figures.attack_curves(audited),
        "classes": tables.class_tables(audited),
        "threats": _threats(audited),
        "probes": _probes(audits),
        "settings": [_settings(run) for run in runs],
        "num_colors": figures.NUM_COLORS,
    }


def render(context: Mapping[str, Any], template: str = "report.html.j2") -> str:
    """The page as text; everything from the runs is escaped, in Markdown what would begin a tag."""
    plain = template.endswith(".md.j2")
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=not plain,
        finalize=_without_tags if plain else None,
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
        "sight": wording.describe_sight,
        "taken_off": asking.taken_off,
        "worth": units.short,
        "svg": Markup,
        "retold": retold,
        "sentences": joined,
    }
    environment.globals |= {"t": text if plain else marked, "has_text": has_text, "missing": wording.MISSING}
    return environment.get_template(template).render(context) + "\n"


def _without_tags(value: object) -> str:
    return str(value).replace("<", "&lt;")


def marked(key: str, /, **values: Any) -> Markup:
    """A text of the catalogue for a page: all is escaped but for values that are markup already."""
    return escape(pattern(key)).format(**values)


def _warnings(runs: Sequence[RunView], best: Mapping[str, float]) -> list[tuple[str, list[str]]]:
    """The warnings of each run that has any, under its label."""
    found = []
    for run in runs:
        dataset = run.audits[0].subject.dataset if run.audits else ""
        found.append((run.label, health.run_warnings(run, best.get(dataset))))
    return [(label, texts) for label, texts in found if texts]


def _probes(audits: Sequence[AuditResult]) -> list[str]:
    """The probes that have a result and a text, each once, in the order of the rows."""
    found = dict.fromkeys(row.method for audit in audits for row in audit.rows if row.ok and row.kind == "probe")
    return [method for method in found if has_text(f"report.reading.probe.{method}")]


def _settings(run: RunView) -> list[str]:
    return [*wording.describe_run(run), *(wording.describe_audit(audit) for audit in run.audits)]


def _threats(audited: Sequence[Entry]) -> dict[str, str]:
    threats = [entry.audit.plan.threat for entry in audited]
    return {threat.name: wording.describe_threat(threat) for threat in threats}


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
