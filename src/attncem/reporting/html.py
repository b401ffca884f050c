"""One self-contained HTML page from run folders, written atomically."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from attncem import __version__
from attncem.base.shown_paths import without_paths, without_paths_in
from attncem.base.texts import has_text, joined, pattern, text, translated
from attncem.base.texts.titles import row_title, threat_title
from attncem.base.types import RunError
from attncem.records.audit import AuditResult
from attncem.records.files import write_atomic
from attncem.records.study import ACCURACY
from attncem.records.study.runs import JudgedRun, load_runs
from attncem.reporting import client_costs, figures, on_device, wording
from attncem.reporting.runs import (
    certificates,
    commands,
    families,
    first_screen,
    gallery,
    health,
    leak_costs,
    protection,
    report_tables,
    sending,
    strips,
    tables,
    trade_off,
)
from attncem.reporting.runs import repeated_releases as asking
from attncem.reporting.runs.methods import Entry, Method
from attncem.reporting.runs.methods import methods as group
from attncem.reporting.table_formats import as_csv

_GENERATOR = '<meta name="generator" content="attncem '
PAGES = {
    "report": "attncem",
    "campaign report": "attncem-campaign",
    "compare": "attncem-compare",
    "explain": "attncem-explain",
    "card": "attncem-card",
    "live": "attncem-live",
}
"""Generators of pages, by the verb that writes them."""


def write_report(paths: Sequence[Path], out: Path, *, csv: bool, now: datetime) -> Path:
    """Read the runs, render the page and write it."""
    refuse_foreign(out, _GENERATOR)
    table = out.with_suffix(".csv")
    if csv:
        refuse_foreign(table, tables.CSV_MARK)
    runs = load_runs(paths)
    context = page_context(runs, now)
    context["report_command"] = commands.report_command(paths, out, csv=csv)
    write_page(out, render(context))
    if csv:
        write_page(table, tables.csv_text(context["cells"]))
    return out


def page_context(runs: Sequence[JudgedRun], now: datetime) -> dict[str, Any]:
    """The template's variables."""
    methods = group(runs)
    audited = [entry for method in methods for entry in method.entries]
    audits = [entry.audit for entry in audited]
    best = health.best_accuracy(audits)
    alone = _alone(methods)
    warnings = _warnings(runs, best, methods, alone)
    context = {
        "version": __version__,
        "generator": f"attncem {__version__}",
        "generated": now.isoformat(sep=" ", timespec="seconds"),
        "runs": runs,
        "methods": methods,
        "entries": audited,
        "verdict": wording.verdict(audited, best),
        "facts": first_screen.shared_facts(methods),
        "one_seed": len(methods) > 1 and not any(method.several for method in methods),
        "warnings": warnings,
        "comparison": [item.text for item in health.comparison_findings(audits)],
        "references": [item.text for item in health.reference_findings(audited)],
        "protection": protection.blocks(audited, best),
        "limits": {"open": protection.OPEN, "kept": protection.KEPT},
        "measures": tables.measures(),
        "assumed": certificates.assumed(audits),
        "threats": _threats(audited),
        "probes": _probes(audits),
        "settings": [_settings(run) for run in runs],
        "commands": [(run.label, lines) for run in runs if (lines := commands.run_commands(run))],
        "own_names": commands.own_names(runs),
        "num_colors": figures.NUM_COLORS,
        "strips": strips.strips(methods),
        "formats": ("csv",),
    }
    sentences = {label: item.sentence for label, item in alone.items() if item.known}
    shown = _pictures(methods, best, {label: len(texts) for label, texts in warnings}, sentences)
    context["gaps"] = _gaps(shown["first"], alone)
    return context | shown | _figures(runs, methods, audited) | _tables(runs, methods, audited)


def _alone(methods: Sequence[Method]) -> dict[str, on_device.Alone]:
    """What is known about the client alone, by the method's label."""
    references = on_device.references_for(run.path for method in methods for run in method.runs)
    found = {}
    for method in methods:
        audited = [on_device.Audited(entry.run, entry.audit) for entry in method.entries]
        if item := on_device.of_arm(method.runs, audited, references):
            found[method.label] = item
        elif method.on_device:
            found[method.label] = on_device.itself(measured=bool(method.scores(ACCURACY)))
    return found


def _gaps(rows: Sequence[first_screen.FirstRow], alone: Mapping[str, on_device.Alone]) -> list[str]:
    """What is not known of the models: each gap once, with their names and the command for the first of them."""
    gaps: dict[str, list[tuple[str, str]]] = {}
    for row in rows:
        label, leak, client = row.method.label, row.leak, alone.get(row.method.label)
        if leak is not None and leak.missing and not leak.none:
            said = text("said.about", about=text(f"measure.{leak.lacks}"), said=leak.missing)
            gaps.setdefault(leak.lacks, []).append((label, said))
        if client is not None and not client.known:
            gaps.setdefault("alone", []).append((label, client.sentence))
    return [
        text("said.about", about=", ".join(label for label, _ in all_of), said=all_of[0][1]) for all_of in gaps.values()
    ]


def _pictures(
    methods: Sequence[Method], best: Mapping[str, float], warned: Mapping[str, int], alone: Mapping[str, str]
) -> dict[str, Any]:
    """The first screen and the gallery; for several seeds, the pictures of the first one."""
    albums = gallery.albums([entry for method in methods for entry in method.entries[:1]])
    return {
        "first": first_screen.first_rows(methods, albums, best, warned, alone),
        "galleries": gallery.galleries(albums),
        "extremes": gallery.extremes(albums),
    }


def _figures(runs: Sequence[JudgedRun], methods: Sequence[Method], audited: Sequence[Entry]) -> dict[str, Any]:
    colors = {run.label: method.color for method in methods for run in method.runs}
    order = [colors[run.label] for run in runs]
    return {
        "trade_offs": trade_off.trade_offs(methods),
        "legend": {method.color: run_name(method) for method in reversed(methods)},
        "leakage_axis": certificates.axis(audited),
        "sending_curves": sending.drawings(sending.blocks(methods)),
        "asking_curves": figures.asking_curves(audited),
        "cost_curves": leak_costs.figures(leak_costs.curves(audited)),
        "curves": figures.training_curves(runs, order),
        "health_curves": figures.health_curves(runs, order),
        "attack_curves": figures.attack_curves(audited),
    }


def run_name(method: Method) -> str:
    """Name of a method, independent of the audit."""
    return method.name if method.several else method.runs[0].label


def _tables(runs: Sequence[JudgedRun], methods: Sequence[Method], audited: Sequence[Entry]) -> dict[str, Any]:
    """Every table, and all tables as files for the page's script; ``cells`` are the rows of ``--csv``."""
    plans = [entry.audit.plan for entry in audited]
    mixed = len({(plan.suite, plan.suite_version, repr(plan.threat)) for plan in plans}) > 1
    worth = any(plan.units for plan in plans)
    cells = tables.headline(runs, audited)
    asked = [(it, report_tables.asking_table(it, n, worth=worth)) for n, it in enumerate(asking.blocks(audited))]
    sent = sending.blocks(methods)
    costs = [(it, leak_costs.cost_table(it, n)) for n, it in enumerate(leak_costs.curves(audited))]
    certified = [(it, certificates.certificate_table(it, n)) for n, it in enumerate(certificates.blocks(audited))]
    found: dict[str, Any] = {
        "cells": cells,
        "headline": report_tables.headline_table(methods, cells, mixed=mixed),
        "seeds": report_tables.seeds_table(methods, cells, mixed=mixed),
        "guesses": report_tables.guess_table(methods),
        "attacks": report_tables.attacks_table(audited, worth=worth),
        "families": families.family_table_list(audited),
        "asking": asked,
        "sending": sending.share_table(sent) if sent else None,
        "sending_classes": sending.class_tables(sent),
        "sending_blocks": sent,
        "costs": costs,
        "certificates": certified,
        "classes": report_tables.classes_tables(methods),
        "has_units": worth,
    }
    alone = ("headline", "seeds", "guesses", "attacks", "sending")
    single = [table for table in (found[name] for name in alone) if table]
    pairs = [table for _, table in (*found["families"], *asked, *costs, *certified)]
    every = [*single, *pairs, *found["classes"], *found["sending_classes"]]
    return found | {"data": {"tables": {table.name: {"csv": as_csv(table)} for table in every}}}


def render(context: Mapping[str, Any], template: str = "report.html.j2") -> str:
    """The page as text. All data from the runs is escaped; in Markdown, only characters that would start a tag."""
    return _environment(template.endswith(".md.j2")).get_template(template).render(context) + "\n"


@cache
def _environment(plain: bool) -> Environment:
    """The Jinja environment of the page or Markdown templates, made once per process."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=not plain,
        finalize=_without_tags if plain else _for_others,
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
        "translated": translated,
        "row_title": row_title,
        "threat_title": threat_title,
        "sentences": joined,
    }
    environment.policies["json.dumps_function"] = _json_for_others
    environment.globals |= {"t": text if plain else marked, "has_text": has_text, "missing": wording.MISSING}
    return environment


def _for_others(value: object) -> object:
    """A value as the page shows it: without absolute paths and user names, whatever file it is from."""
    return without_paths(value) if type(value) is str else value


def _without_tags(value: object) -> str:
    return without_paths(str(value)).replace("<", "&lt;")


def _json_for_others(data: Any, **options: Any) -> str:
    return json.dumps(without_paths_in(data), **options)


def marked(key: str, /, **values: Any) -> Markup:
    """A text of the catalogue for a page: everything is escaped except values that are markup already."""
    return escape(pattern(key)).format(**{name: _for_others(value) for name, value in values.items()})


def _warnings(
    runs: Sequence[JudgedRun],
    best: Mapping[str, float],
    methods: Sequence[Method],
    alone: Mapping[str, on_device.Alone],
) -> list[tuple[str, list[str]]]:
    """The warnings of each run that has any, with its label; those about a method stand with its first run."""
    of_method: dict[str, list[str]] = {}
    for method in methods:
        if method.label in alone:
            texts = of_method.setdefault(method.runs[0].label, [])
            texts += [said for item in alone[method.label].findings if (said := item.text) not in texts]
    found = []
    for run in runs:
        dataset = run.results[0].subject.dataset if run.results else ""
        texts = health.run_warnings(run, best.get(dataset))
        found.append((run.label, [*texts, *of_method.get(run.label, [])]))
    return [(label, texts) for label, texts in found if texts]


def _probes(audits: Sequence[AuditResult]) -> list[str]:
    """The probes that have a result and a text, each once, in the order of the rows."""
    found = dict.fromkeys(row.method for audit in audits for row in audit.rows if row.ok and row.kind == "probe")
    return [method for method in found if has_text(f"report.reading.probe.{method}")]


def _settings(run: JudgedRun) -> list[str]:
    audits = (wording.describe_audit(audit) for audit in run.results)
    return [*wording.describe_run(run), *client_costs.describe_time(run.manifest), *audits]


def _threats(audited: Sequence[Entry]) -> list[tuple[str, str]]:
    """The names of the adversaries and what each means; two may have one name, as with pictures that differ."""
    threats = [entry.audit.plan.threat for entry in audited]
    return list(dict.fromkeys((threat.name, wording.describe_threat(threat)) for threat in threats))


def refuse_foreign(file: Path, mark: str) -> None:
    """RunError unless the file is absent or was written by this program."""
    if not file.exists():
        return
    if file.is_dir():
        raise RunError(f"{file}: is a folder, not a file name for a report")
    with file.open(encoding="utf-8", errors="replace") as stream:
        start = stream.read(4096)
    if mark in start:
        return
    verb = next((verb for verb, other in PAGES.items() if f'<meta name="generator" content="{other} ' in start), None)
    if verb is not None:
        raise RunError(
            f"{file}: is a page of attncem {verb} and was not replaced; choose another name, or delete it first"
        )
    raise RunError(f"{file}: exists and was not written by attncem; choose another name")


def write_page(file: Path, text: str) -> None:
    """Write a file atomically: a reader sees the old or the new file, never a part."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, text.encode(errors="replace"))  # a file's name may be no UTF-8
    except OSError as error:
        raise RunError(f"{file}: cannot be written: {error}") from error
