"""A run's folder as a command names it, for whoever reads the command."""

from __future__ import annotations

from pathlib import Path

from attncem.base.shown_paths import shown_path
from attncem.records.audit import AuditResult


def run_place(run: Path, *, local: bool = False) -> str:
    """The run from the current folder; of one elsewhere the whole path (``local``), or for others its last name."""
    path, here = run.resolve(), Path.cwd().resolve()
    if path != here != Path(here.anchor) and path.is_relative_to(here):
        path = path.relative_to(here)
    return str(path) if local else shown_path(path)


def place_of(audit: AuditResult, *, local: bool = False) -> str:
    """The folder of an audit's run; the run's name where the audit is elsewhere."""
    folder = Path(audit.folder)
    is_inside = bool(audit.folder) and folder.parent.name == "audits"
    if not is_inside or not (folder.parents[1] / "manifest.json").is_file():
        return audit.subject.run
    return run_place(folder.parents[1], local=local)
