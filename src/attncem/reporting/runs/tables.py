"""Rows of the report's tables: plain dictionaries of numbers, no formatting."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from attncem.base.texts import has_text, text, written
from attncem.base.texts.titles import row_title
from attncem.records.audit import AuditResult, FamilyPoint, Row, Subject
from attncem.records.judgement import State
from attncem.records.leaks import LEAKS, leaks_of
from attncem.records.metrics import METRICS, shown_in
from attncem.records.score import Score
from attncem.records.study.runs import JudgedRun
from attncem.reporting import sending, table_formats, wording
from attncem.reporting.client_costs import LATER, TIMED_ON
from attncem.reporting.places import run_place
from attncem.reporting.runs import units
from attncem.reporting.runs.methods import Entry, Method
from attncem.reporting.runs.twins import beside_twins, stronger_said

Cells = dict[str, Any]

HEADLINE = shown_in("terminal")
"""Measures of the headline table; the first one ranks attacks and has an interval."""
SAMPLED = ("mse", "ssim", "edges")
"""Measures of one sample, for attacks that draw several per release."""
_FIRST_COLUMNS = (
    "kind", "run", "surrogate", "penalty_weight", "noise_std", "suite", "threat", "accuracy", "accuracy_low",
    "accuracy_high", "attack", "mse", "mse_low", "mse_high", "ssim", "psnr", "mse_5th_percentile", "structure", "edges",
    "band_mean", "band_low", "band_high", "training_seconds", "training_ratio", "client_macs", "server_macs",
    "client_parameters", "server_parameters", "bytes_per_query", "reliable",
)  # fmt: skip
_FLAGS = {f"{name}_{measure.flag}": (name, measure.flag) for name, measure in LEAKS.items() if measure.flag}
"""Columns that say whether a bound is vacuous, or evidence at its ceiling, with the number and its field."""
_ALWAYS = tuple(name for name, measure in LEAKS.items() if not measure.selective)
_OTHERS = tuple(name for name in METRICS if name not in _FIRST_COLUMNS)
CSV_COLUMNS = (*_FIRST_COLUMNS, "state", *_OTHERS, *_ALWAYS, *(it for it in _FLAGS if _FLAGS[it][0] in _ALWAYS))
"""The columns of version 0.2 in their order, then the state of the audit, all further measures, and the leak."""
CSV_MARK = ",".join(CSV_COLUMNS[:5])
"""First characters of every headline CSV that any version wrote."""
_COSTS = ("client_macs", "server_macs", "client_parameters", "server_parameters", "bytes_per_query")
LATER_COLUMNS = (*LATER, TIMED_ON)
"""Columns at the end of the CSV file, each only where a row has a value: older runs and committed tables lack them."""


@dataclass(frozen=True)
class Measure:
    """A measure as a table column; ``private`` is the direction in which less was recovered."""

    name: str
    title: str
    unit: str
    private: str
    decimals: int
    meaning: str


def measures(names: Iterable[str] = METRICS) -> list[Measure]:
    """The columns of these measures, in this order."""
    return [_measure(name) for name in names]


def _measure(name: str) -> Measure:
    metric, meaning = METRICS[name], text(f"measure.{name}.meaning")
    private = text(f"report.private.{metric.private}")
    return Measure(name, text(f"measure.{name}"), metric.unit, private, metric.decimals, meaning)


# the headline table


def summary_table(audits: Sequence[AuditResult], labels: Sequence[str] | None = None) -> list[Cells]:
    """Rows of the headline table: one per audit (kind "run"), then the blind guesses ("floor").

    A guess that is equally good in all audits has one row; otherwise it has one row per audit, named after both.
    """
    names = labels or [audit.subject.run for audit in audits]
    first = audits[0].subject.training_seconds if audits else 0.0
    rows = [_run_row(audit, name, first) for audit, name in zip(audits, names, strict=True)]
    found = guesses(list(zip(names, audits, strict=True)))
    return rows + [_floor_row(guess, label, row) for guess in found for label, row in guess.told()]


def _run_row(audit: AuditResult, label: str, first_seconds: float) -> Cells:
    plan, subject, accuracy = audit.plan, audit.subject, audit.accuracy
    row: Cells = {
        "kind": "run",
        "run": label,
        "surrogate": subject.surrogate,
        "penalty_weight": subject.penalty_weight,
        "noise_std": subject.noise_std,
        "suite": f"{plan.suite} v{plan.suite_version}",
        "threat": plan.threat.name,
        "accuracy": accuracy and accuracy.mean,
        "accuracy_low": accuracy and accuracy.low,
        "accuracy_high": accuracy and accuracy.high,
        "training_seconds": subject.training_seconds,
        "training_ratio": subject.training_seconds / first_seconds if first_seconds else None,
        "failed": sum(row.outcome == "failed" for row in audit.rows),
        "units": units.short(plan.units, audit.strongest_attack.mse.mean) if audit.strongest else "",
    }
    costs = {name: getattr(subject, name) or None for name in LATER_COLUMNS}
    costs |= {name: getattr(subject, name) for name in _COSTS}
    unknown = dict.fromkeys(_of_training(subject)) if subject.foreign else {}
    attacked = _attack_cells(audit.strongest_attack if audit.strongest else None, audit.state)
    return row | costs | unknown | _leak_cells(audit) | sending.cells(audit) | attacked


def _leak_cells(audit: AuditResult) -> Cells:
    leaks = leaks_of(audit)
    flags = {key: getattr(leaks[name], flag) for key, (name, flag) in _FLAGS.items() if name in leaks}
    return dict.fromkeys((*LEAKS, *_FLAGS)) | {name: leak.mean for name, leak in leaks.items()} | flags


def _of_training(subject: Subject) -> list[str]:
    """Columns that are unknown for a foreign encoder: its training, and its server half where there is none."""
    server = [] if subject.server_parameters or subject.server_macs else ["server_macs", "server_parameters"]
    return ["penalty_weight", "training_seconds", "training_ratio", *server]


def _floor_row(guess: Guess, label: str, row: Row) -> Cells:
    """A guess with its name (``run``) and title (``shown``); both include the audit's name in a row of one audit."""
    name, shown = guess.name, row_title(guess.name)
    if label:
        name, shown = written("report.guess.of", guess=name, run=label), text("report.guess.of", guess=shown, run=label)
    return dict.fromkeys(CSV_COLUMNS) | {"kind": "floor", "run": name, "shown": shown} | _attack_cells(row)


def _attack_cells(row: Row | None, state: State | None = None) -> Cells:
    if row is None:
        keys = ("attack", "attack_kind", "mse_low", "mse_high", "mse_5th_percentile", "reliable", "state")
        return {**dict.fromkeys((*keys, *METRICS)), "state": state}
    means = {name: row.scores[name].mean if name in row.scores else None for name in METRICS}
    return means | {
        "attack": row.name,
        "attack_kind": row.kind,
        "mse_low": row.mse.low,
        "mse_high": row.mse.high,
        "mse_5th_percentile": row.mse.p05,
        "reliable": row.verdict.reliable if state is None else state == "reliable",
        "state": state,
    }


def unaudited_row(run: JudgedRun) -> Cells:
    """Headline row of a run without an audit, from its config and manifest; the client alone has an accuracy."""
    assert run.config is not None
    known = {
        "kind": "alone" if run.on_device else "unaudited",
        "run": run.label,
        "command": shlex.join(["attncem", "audit", run_place(run.path)]),
        "surrogate": run.config.defence,
        "penalty_weight": run.config.training.penalty_weight,
        "noise_std": run.config.noise_std,
        "training_seconds": run.manifest.get("training_seconds"),
    }
    costs = {key: run.manifest.get(key) for key in (*_COSTS, *LATER_COLUMNS)}
    score = run.alone.get("test")
    ends = {"accuracy": score.mean, "accuracy_low": score.low, "accuracy_high": score.high} if score else {}
    return dict.fromkeys(CSV_COLUMNS) | costs | known | ends


def headline(runs: Sequence[JudgedRun], entries: Sequence[Entry]) -> list[Cells]:
    """The headline table: runs in their order, audited or not, each with its ``label``, then the blind guesses."""
    audited = summary_table([entry.audit for entry in entries], [entry.name for entry in entries])
    by_run: dict[str, list[Cells]] = {}
    for row, entry in zip(audited, entries, strict=False):
        later = {key: value for key in LATER_COLUMNS if (value := entry.run.manifest.get(key))}  # also after the audit
        row |= {"surrogate": entry.defence, "label": entry.label, **later}
        by_run.setdefault(entry.run.label, []).append(row)
    rows: list[Cells] = []
    for run in runs:
        rows += by_run.get(run.label) or [unaudited_row(run) | {"label": run.label}]
    first = rows[0]["training_seconds"]
    for row in rows:
        seconds = row["training_seconds"]
        row["training_ratio"] = seconds / first if seconds and first else None
    return rows + audited[len(entries) :]


def floors(audit: AuditResult) -> list[Row]:
    """The guesses that use nothing of a release except the predicted label, weakest first."""
    return sorted((row for row in audit.attacks if row.kind == "floor"), key=lambda row: -row.mse.mean)


@dataclass(frozen=True)
class Guess:
    """One blind guess with its rows: the audit's name and the row, for every audit that has it, in order."""

    name: str
    rows: Sequence[tuple[str, Row]]

    @property
    def errors(self) -> list[float]:
        """Its error in each audit; a guess from the predicted label differs between models."""
        return [row.mse.mean for _, row in self.rows]

    @property
    def alike(self) -> bool:
        """Whether it is equally good in all audits."""
        return len(set(self.errors)) == 1

    def told(self) -> list[tuple[str, Row]]:
        """One row without an audit name if it is equally good in all audits; otherwise one row per audit, by name."""
        return [("", self.rows[0][1])] if self.alike else list(self.rows)


def guesses(audits: Sequence[tuple[str, AuditResult]]) -> list[Guess]:
    """The blind guesses of named audits, weakest first."""
    found: dict[str, list[tuple[str, Row]]] = {}
    for label, audit in audits:
        for row in floors(audit):
            found.setdefault(row.name, []).append((label, row))
    made = [Guess(name, rows) for name, rows in found.items()]
    return sorted(made, key=lambda guess: -sum(guess.errors) / len(guess.errors))


# all attacks


def attack_rows(entries: Sequence[Entry]) -> list[Cells]:
    """Every row of every audit: in each audit the strongest attack first, then rows that saw other releases than the
    threat model grants, then rows without a measure.
    """
    return [cells for entry in entries for cells in _audit_rows(entry)]


def _audit_rows(entry: Entry) -> list[Cells]:
    threat = entry.audit.plan.threat
    granted = threat.releases_per_input, threat.jitter
    judged = beside_twins(sorted(entry.audit.attacks, key=lambda row: (row.sight != granted, row.mse.mean)))
    others = [row for row in entry.audit.rows if row not in judged]
    return [
        {
            "label": entry.label,
            "color": entry.color,
            "attack": row,
            "judged": row in judged,
            "strongest": row.name == entry.audit.strongest,
            "first": number == 0,
            "notes": _notes(row, entry.audit),
            "said": other_numbers(row),
            "units": units.short(entry.audit.plan.units, row.mse.mean) if row in judged else "",
        }
        for number, row in enumerate([*judged, *others])
    ]


def _notes(row: Row, audit: AuditResult) -> list[str]:
    """Notes on a row: the audit's findings about it, without its name, and remarks on its budget and samples."""
    found = [replace(item, about="").text for item in audit.findings if row.ok and item.about == row.name]
    given = [text("report.fixed_budget")] if row.verdict.fixed_budget else []
    return [*stronger_said(row, audit), *found, *given, *_samples_said(row)]


def _samples_said(row: Row) -> list[str]:
    """A sentence about the samples of each release, for an attack that draws them."""
    spread = row.scores.get("spread")
    if spread is None:
        return []
    said = [text("report.samples", spread=spread.mean, mse=row.mse.mean)]
    for name in SAMPLED:
        if f"sample_{name}" in row.scores:
            said.append(text(f"report.sample.{name}", mean=row.scores[f"sample_{name}"].mean))
    return ["; ".join(said)]


def other_numbers(row: Row) -> list[str]:
    """The numbers of certificates and probes, in words."""
    if not row.ok or row.kind in ("floor", "attack"):
        return []
    bounds = [wording.describe_bound(name, item) for name, item in row.bounds.items()]
    shown = [text("report.probe.by", attack=row_title(row.by))] if row.by else []
    return shown + bounds + [_score_said(name, score, row.chance.get(name)) for name, score in row.scores.items()]


def _score_said(name: str, score: Score, chance: float | None) -> str:
    """A probe's number compared with chance; the measure's name may end in @ and a number of labels."""
    measure, _, labels = name.partition("@")
    numbers = {"mean": score.mean, "low": score.low, "high": score.high}
    if chance is None or score.median is None or not has_text(f"report.probe.{measure}"):
        return text("report.score", name=name, **numbers)
    shares = {key: wording.percent(value, unit="") for key, value in numbers.items()}
    return text(
        f"report.probe.{measure}",
        **numbers,
        share=text("report.probe.share", **shares),
        median=score.median,
        chance=chance,
        blind=wording.percent(chance),
        among=round(1 / chance) if chance else 0,
        labels=labels,
    )


# families of decoders


def family_tables(entries: Sequence[Entry]) -> list[Cells]:
    """One table for each row that tried several decoders: its error by width and by number of own images."""
    return [
        {"label": entry.label, "color": entry.color, "attack": row.name, **_family_cells(row.verdict.family)}
        for entry in entries
        for row in entry.audit.attacks
        if row.verdict.family
    ]


def _family_cells(family: Sequence[FamilyPoint]) -> Cells:
    errors = {(point.width, point.images): point.validation_error for point in family}
    widths, images = (sorted(set(numbers)) for numbers in zip(*errors, strict=True))
    rows = [{"width": width, "errors": [errors.get((width, count)) for count in images]} for width in widths]
    return {"images": images, "rows": rows, "least": min(errors.values())}


# classes


def class_tables(methods: Sequence[Method]) -> list[Cells]:
    """One table per data set: accuracy and strongest-attack MSE of each class for each method, and its lower end.

    For several seeds, the means.
    """
    groups: dict[tuple[str, tuple[str, ...]], list[Method]] = {}
    for method in methods:
        if method.entries:
            subject = method.entries[0].audit.subject
            groups.setdefault((subject.dataset, tuple(subject.class_names)), []).append(method)
    tables = [_class_table(dataset, group) for (dataset, _), group in groups.items()]
    return [table for table in tables if table["rows"]]  # empty where the images have no labels


def _class_table(dataset: str, group: Sequence[Method]) -> Cells:
    subjects = [method.entries[0].audit.subject for method in group]
    count = max(subject.num_classes for subject in subjects)
    names = subjects[0].class_names or [str(index) for index in range(count)]
    columns = [_class_cells([entry.audit for entry in method.entries], len(names)) for method in group]
    rows = [{"name": name, "cells": [cells[index] for cells in columns]} for index, name in enumerate(names)]
    ends = any(cell["end"] is not None for cells in columns for cell in cells)
    return {"dataset": dataset, "methods": list(group), "rows": rows, "ends": ends}


def _class_cells(audits: Sequence[AuditResult], count: int) -> list[Cells]:
    risks = [risk for audit in audits if (risk := audit.risk)]
    errors = _class_means([risk.per_class for risk in risks], count)
    ends = _class_means([risk.per_class_p05 for risk in risks], count)
    accuracies = _class_means([audit.accuracy.per_class for audit in audits if audit.accuracy], count)
    lowest = min((value for value in errors if value is not None), default=None)
    return [
        {"accuracy": accuracy, "mse": error, "end": end, "exposed": error is not None and error == lowest}
        for accuracy, error, end in zip(accuracies, errors, ends, strict=True)
    ]


def _class_means(seeds: Sequence[Sequence[float | None]], count: int) -> list[float | None]:
    """The mean of each class over the seeds that have one."""
    columns = zip(*(_padded(values, count) for values in seeds), strict=True) if seeds else [()] * count
    known = [[value for value in column if value is not None] for column in columns]
    return [fmean(values) if values else None for values in known]


def _padded(values: Sequence[float | None], count: int) -> list[float | None]:
    return [*values, *[None] * count][:count]


def csv_text(rows: Sequence[Cells]) -> str:
    """The headline table as CSV, unrounded."""
    later = (name for name in LATER_COLUMNS if any(row.get(name) for row in rows))
    of_sending = (name for name in sending.CSV_COLUMNS if any(row.get(name) is not None for row in rows))
    columns = (*CSV_COLUMNS, *later, *of_sending)
    return table_formats.csv_text([columns, *([row.get(name, "") for name in columns] for row in rows)])
