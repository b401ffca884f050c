"""Writes the results of a campaign's folder to one small file, which is committed with the documents that quote it."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from attncem.base.shown_paths import without_paths_in
from attncem.base.types import SCHEMA_VERSION, RunError
from attncem.campaigns.expansion import digest
from attncem.config.options.campaigns import CampaignAudit
from attncem.config.options.suites import load_suite
from attncem.config.threats import ThreatModel
from attncem.records.audit import AuditResult, Row
from attncem.records.campaign import Cell
from attncem.records.campaign_folder import CampaignFolder, CellView
from attncem.records.campaign_table import AskedAudit, CampaignTable, CellAudit, CellResult, Interval
from attncem.records.files import explain_os_error, read_record, write_atomic
from attncem.records.leaks import kept, leaks_of
from attncem.records.ledger import joined
from attncem.records.metrics import ACCURACY
from attncem.records.on_device import References, read_choice, worth_of
from attncem.records.runs import RunDirectory
from attncem.records.score import KEPT_DIGITS
from attncem.records.sending import kept_sending

_NUMBERS = re.compile(r"\[\s+([-0-9.e+,\s]+?)\s+\]")
SEARCH = "search.yaml"
"""File name of a search's request in its folder."""
_HASH = 16
"""Letters of the hash of a cell's options."""


@dataclass(frozen=True)
class Read:
    """The result of a finished cell, and the device and the adversary of each of its audits."""

    result: CellResult
    devices: list[str]
    adversaries: list[ThreatModel]


Known = dict[str, Read]
"""Finished cells by name: they do not change, so repeated calls read each of them once."""


def write_results(folder: str | Path, out: str | Path, known: Known | None = None) -> CampaignTable:
    """Write a campaign's results to a new file, or over an older file of results of the same campaign.

    Cells of the older file that are not finished in the folder stay in it: they may have been made elsewhere, or before
    the campaign grew. Where their options or audits differ, nothing is written.
    """
    file = Path(out)
    CampaignFolder.open(folder).require_plugins()
    table = campaign_table(folder, command_to=file.name, known=known)
    if os.path.lexists(file):
        table = _with_older(table, _older(file, table.campaign), CampaignFolder.open(folder), file)
    with explain_os_error(file, "the campaign is unchanged; choose another file"):
        write_atomic(file, results_text(table).encode())
    return table


def check_results_file(campaign: str, file: Path) -> None:
    """RunError where results of this campaign could not be written; called before hours of work, not after them."""
    if os.path.lexists(file):
        _older(file, campaign)
    elif not file.parent.is_dir():
        raise RunError(f"{file.parent} is not a folder: {file} cannot be written; choose another file")


def results_text(table: CampaignTable) -> str:
    """The file's text: JSON with a line for every interval, so a changed interval changes one line."""
    data = {"schema_version": SCHEMA_VERSION, **without_paths_in(table.to_dict())}
    text = json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False)
    return _NUMBERS.sub(lambda found: f"[{' '.join(found[1].split())}]", text) + "\n"


def _with_older(table: CampaignTable, older: CampaignTable, folder: CampaignFolder, file: Path) -> CampaignTable:
    """The table with the additional cells of an older file, in the plan's order.

    A cell that differs from the older file's only by numbers of the leak, which that version did not keep, stays as it
    was: an older file is written again byte for byte.
    """
    own, there = _by_cell(table), _by_cell(older)
    own = {key: _as_before(cell, there.get(key)) for key, cell in own.items()}
    table = replace(table, cells=list(own.values()))
    further = there.keys() - own.keys()
    if not further:
        return table
    asked = {_key(cell): cell for cell in folder.plan.cells}
    now, before = ([replace(audit, devices=None) for audit in each.audits] for each in (table, older))
    fits = now == before and all(
        key in asked and (older.sha256 == table.sha256 or there[key].config in _configs_of(folder, asked[key].id))
        for key in further
    )
    if not fits:
        raise RunError(
            f"{file} has {len(further)} cells that the folder has not finished, of another form of this campaign; "
            "choose another name"
        )
    both = {key: own.get(key) or there[key] for key in asked if key in own or key in there}
    unfinished = {cell.id: table.unfinished[cell.id] for key, cell in asked.items() if key not in both}
    audits = [
        replace(one, devices=sorted({*(one.devices or ()), *(other.devices or ())}))
        for one, other in zip(table.audits, older.audits, strict=True)
    ]
    return replace(table, cells=list(both.values()), audits=audits, unfinished=unfinished)


def _as_before(cell: CellResult, before: CellResult | None) -> CellResult:
    """The older form of a cell if it lacks only the leak, otherwise the cell."""
    if before is None or any(audit.leaks for audit in before.audits):
        return cell
    without = replace(cell, audits=[replace(audit, leaks=None) for audit in cell.audits])
    return before if without == before else cell


def _configs_of(folder: CampaignFolder, cell_id: str) -> tuple[str, str]:
    """The hash of a cell's options, which is the same on every machine, and the one with its paths of version 0.2."""
    config = folder.config(cell_id)
    return digest(config, anywhere=True)[:_HASH], digest(config)[:_HASH]


def _by_cell(table: CampaignTable) -> dict[str, CellResult]:
    return {_key(cell): cell for cell in table.cells}


def _key(cell: Cell | CellResult) -> str:
    """The identity of a cell in its campaign."""
    return json.dumps([cell.arm, cell.point, cell.seed], sort_keys=True)


def _older(file: Path, campaign: str) -> CampaignTable:
    """The results of this campaign in a file; RunError where it holds anything else."""
    with contextlib.suppress(RunError):
        if (older := read_results(file)).campaign == campaign:
            return older
    raise RunError(f"{file} already exists and holds other content; choose another name")


def read_results(file: str | Path) -> CampaignTable:
    """The results of a campaign from their file."""
    return read_record(CampaignTable, Path(file))


def campaign_table(path: str | Path, *, command_to: str = "OUT.json", known: Known | None = None) -> CampaignTable:
    """The results of a campaign so far, cell by cell; RunError where there are none.

    Cells in `known` are not read; other finished cells are added to it.
    """
    folder = CampaignFolder.open(path)
    views = folder.views()
    done = [view for view in views if view.state == "done"]
    if not done:
        raise RunError(
            f"{folder.path} has no finished run yet; attncem campaign status {folder.path} shows its progress"
        )
    known = {} if known is None else known
    for view in done:
        if view.cell.id not in known or view.cell.budget is not None:  # it may be chosen later than it is done
            there = folder.finished(view.cell.id).audits
            asked_of = () if view.cell.budget is not None else folder.campaign.audits
            audits = [joined(view.path / "audits" / there[audit.key]) for audit in asked_of]
            plans = [audit.plan for audit in audits]
            known[view.cell.id] = Read(
                _cell(folder, view, audits), [plan.device for plan in plans], [plan.threat for plan in plans]
            )
    images = next((audit.on for audit in folder.campaign.audits), "test")
    found = _with_worth([known[view.cell.id] for view in done], done, images)
    name = folder.campaign.name
    verb = "search" if (folder.path / SEARCH).is_file() else "campaign run"
    judged = [one for one in found if one.result.alone is None]
    asked = [_asked(audit, judged, place) for place, audit in enumerate(folder.campaign.audits)]
    return CampaignTable(
        campaign=name,
        meaning=folder.campaign.meaning,
        command=f"attncem {verb} {name} --out FOLDER; attncem campaign results FOLDER {command_to}",
        audits=asked,
        cells=[one.result for one in found],
        sha256=folder.plan.sha256,
        versions=dict(folder.plan.versions),
        unfinished={view.cell.id: view.reason or view.state for view in views if view.state != "done"},
    )


def _with_worth(found: list[Read], views: list[CellView], images: str) -> list[Read]:
    """The results with a warning where a cell is not more accurate than its client alone on these images."""
    references = References([view.path for view in views])
    if not references:
        return found
    both = zip(found, views, strict=True)
    return [replace(read, result=_warned(read.result, view, references, images)) for read, view in both]


def _warned(result: CellResult, view: CellView, references: References, images: str) -> CellResult:
    reference = references.of(RunDirectory(view.path).manifest, view.cell.seed) if result.audits else None
    score = result.audits[0].score(ACCURACY) if result.audits else None
    if reference is None or score is None or images not in reference.scores:
        return result
    codes = {item.code for item in worth_of([(score, reference.scores[images], reference)]).findings}
    return replace(result, warnings=sorted({*(result.warnings or ()), *codes}))


def _asked(audit: CampaignAudit, judged: Sequence[Read], place: int) -> AskedAudit:
    """An audit of the campaign, which is the one at this place in every cell."""
    suite = load_suite(audit.suite, audit.set).suite
    numbers = (audit.attacker_data, audit.attacker_images, audit.queries, audit.releases)
    extended = audit.sees_answers or any(it is not None for it in numbers)
    return AskedAudit(
        rows=asked_rows(audit),
        suite=f"{suite.name} v{suite.version}",
        threat=audit.threat,
        evaluation=audit.on,
        weights=audit.weights,
        devices=sorted({one.devices[place] for one in judged}),
        adversary=next((one.adversaries[place] for one in judged if extended), None),
    )


def asked_rows(audit: CampaignAudit) -> dict[str, dict[str, Any]]:
    """The options of every row of an audit that differ from the defaults."""
    suite = load_suite(audit.suite, audit.set).suite
    return {name: suite.rows[name].model_dump(mode="json", exclude_defaults=True) for name in audit.rows()}


def _cell(folder: CampaignFolder, view: CellView, audits: list[AuditResult]) -> CellResult:
    run = RunDirectory.open(view.path)
    manifest = run.manifest
    best = manifest["best"]["validation_accuracy"] if manifest.get("best") else None
    images = (manifest.get("split") or {}).get("train")
    if images is None or "training_seconds" not in manifest:
        raise RunError(f"{view.path / 'manifest.json'} is damaged: split.train or training_seconds is missing")
    subject, alone = audits[0].subject if audits else None, _alone(view, run)
    warned = {str(record["cause"]) for record in run.records() if record.get("kind") == "warning" and record["begins"]}
    return CellResult(
        arm=view.cell.arm,
        point=dict(view.cell.point),
        seed=view.cell.seed,
        audits=[_found(audit) for audit in audits],
        warnings=sorted({item.code for audit in audits for item in audit.findings} | warned),
        client_macs=subject.client_macs if subject else manifest.get("client_macs") if alone is not None else None,
        client_parameters=manifest.get("client_parameters"),
        client_activation_bytes=manifest.get("client_activation_bytes"),
        client_milliseconds=manifest.get("client_milliseconds"),
        client_milliseconds_onnx=manifest.get("client_milliseconds_onnx"),
        client_timed_on=manifest.get("client_timed_on"),
        training_seconds=round(manifest["training_seconds"], 3),
        training_images=images,
        validation_accuracy=None if best is None else round(best, KEPT_DIGITS),
        steps=manifest.get("steps"),
        config=_configs_of(folder, view.cell.id)[0],
        alone=alone,
    )


def _alone(view: CellView, run: RunDirectory) -> dict[str, Interval] | None:
    """The accuracies of a candidate of the client alone; None for any other run."""
    if view.cell.budget is None:
        return None
    choice = read_choice(run)
    return {name: score.kept for name, score in choice.scores.items()} if choice else {}


def _found(audit: AuditResult) -> CellAudit:
    probes = {row.name: _scores(row) for row in audit.rows if row.ok and row.kind == "probe"}
    balanced = None if audit.accuracy is None else audit.accuracy.balanced
    return CellAudit(
        accuracy=None if audit.accuracy is None else audit.accuracy.kept,
        strongest=audit.strongest or None,
        attacks={row.name: {**_scores(row), "reliable": row.verdict.reliable} for row in audit.attacks},
        probes=probes or None,
        seconds=round(audit.seconds, 2),
        row_seconds={row.name: round(row.seconds, 2) for row in audit.rows if row.ok},
        balanced_accuracy=None if balanced is None else round(balanced, KEPT_DIGITS),
        judged=audit.state,
        leaks={name: kept(leak) for name, leak in leaks_of(audit).items()} or None,
        sending=None if audit.plan.selective is None else kept_sending(audit.plan.selective),
    )


def _scores(row: Row) -> dict[str, Any]:
    return {name: score.kept for name, score in row.scores.items()}
