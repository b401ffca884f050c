"""An audit's folder: its plan, and for each row a JSON file, per-image scores and pictures. Never imports torch.

audit.json          the plan, written before the first row
ROW.json            the row, written after its other files: a row that has it is complete
ROW.npz             per-image scores by measure, and `index`, their positions among the evaluation images
pictures/           originals and reconstructions of some images
joined.json         the join of the rows, written when an audit ends: keeps what needs per-image scores
ROW.safetensors     the learned state of the strongest attack, and of the strongest one with a state at each of STOPS

JSON files are sealed (`records/audit_seals.py`); the seal of a row also covers its .npz and .safetensors file. Both may
be absent: archives of results do not contain them. A row that does not fit its seal has the outcome `damaged`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from attncem.base.record import read
from attncem.base.shown_paths import without_paths_in
from attncem.base.texts import Sentence
from attncem.base.types import RunError
from attncem.config.options.suites import row_file
from attncem.records.audit import AuditPlan, AuditResult, Row, Verdict
from attncem.records.audit_seals import Sealed, digest, sealed, sha256
from attncem.records.averaging import Averaging
from attncem.records.files import (
    PARTIAL,
    explain_os_error,
    locked,
    read_bytes,
    read_if_there,
    sync_folder,
    write_atomic,
    write_json,
)
from attncem.records.findings import finding
from attncem.records.image_scores import ImageScores, agrees, packed_scores, read_scores
from attncem.records.joining import bases, join, losing, strongest
from attncem.records.repeating import damaged, repeat_command
from attncem.records.shared_scores import Scores, Shared, shared_errors, with_averaging, with_rivals
from attncem.records.sizes import LARGEST, check_unpacked

PLAN = "audit.json"
JOINED = "joined.json"
PICTURES = "pictures"
STOPS = (1, 16, 256)
"""Numbers of releases at which the live page shows what the strongest attack rebuilds (`live/`)."""
LARGEST_STATE = 64 * 2**20
"""Larger attack states, in bytes, are not kept."""
_ROOM = 32 * 2**20
"""Free bytes that an audit needs at its start, in addition to a state."""
_ADVICE = "finished rows are kept: fix this and run the same command again"


@dataclass(frozen=True)
class RowFiles:
    """The files of a row: scores, pictures by file name, and the attack's learned state as bytes."""

    scores: ImageScores | None = None
    pictures: Mapping[str, bytes] | None = None
    state: bytes | None = None


class Ledger:
    """One audit's folder. `begin` makes or continues one, `open` opens one to read."""

    def __init__(self, path: Path, plan: AuditPlan) -> None:
        self.path, self.plan = path, plan

    @classmethod
    def begin(cls, root: Path, plan: AuditPlan, *, fresh: bool = False) -> Ledger:
        """The folder of this plan: an existing one, or a new one.

        Write permission and free space are checked here, before any work.
        """
        with explain_os_error(root, "choose another folder with --out"):
            root.mkdir(parents=True, exist_ok=True)
            path = _folder(root, plan.id, fresh)
            (path / PICTURES).mkdir(parents=True, exist_ok=True)
            if not (path / PLAN).exists():
                dated = replace(plan, made=datetime.now().astimezone().isoformat())
                write_json(path / PLAN, sealed(without_paths_in(dated.to_dict()), plan.id))
        free = shutil.disk_usage(path).free
        if free < _ROOM:
            raise RunError(
                f"{path}: {free >> 20} MiB are free and {_ROOM >> 20} are needed; free space, or choose --out"
            )
        ledger = cls.open(path)
        with ledger.held():  # an old folder may have become read-only
            return ledger

    @classmethod
    def open(cls, path: Path) -> Ledger:
        """An existing audit; RunError where its plan cannot be read or was changed."""
        stored = Sealed(path / PLAN)
        plan = read(AuditPlan, stored.data, path / PLAN)
        if not stored.fits(stored.mark(plan.id)):
            advice = f"move {path} elsewhere, then repeat the audit: {repeat_command(plan, path)}"
            raise RunError(f"{path / PLAN} is damaged: it was changed after it was written; {advice}")
        return cls(path, plan)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the audit for one process; partial files of a killed process are removed."""
        with locked(self.path / ".lock", f"{self.path} is being written by another process"):
            for leftover in self.path.rglob(f"{PARTIAL}*"):
                leftover.unlink(missing_ok=True)
            try:
                yield
            except KeyboardInterrupt as error:
                error.add_note(str(self.path))  # the folder with the finished rows
                raise

    def rows(self) -> list[Row]:
        """The complete rows, in the order of the suite; a row that was changed has no numbers and is `damaged`."""
        return [row for row, _ in self._stored().values()]

    def _stored(self) -> dict[str, tuple[Row, str]]:
        """The complete rows and the hashes of their contents (empty: damaged), by file name."""
        files = {name: self._file(name, "json") for name in self.plan.rows}
        return {file.name: self._read_row(name, file) for name, file in files.items() if file.exists()}

    def _read_row(self, name: str, file: Path) -> tuple[Row, str]:
        stored = Sealed(file)
        row, mark = read(Row, stored.data, file), stored.mark(self.plan.id)
        changed = "" if row.name == name and stored.fits(mark) else file.name
        changed = changed or self._changed_scores(row, stored)
        if not changed:
            return row, mark
        return _without_numbers(replace(row, name=name), damaged(changed, self.plan, self.path)), ""

    def _changed_scores(self, row: Row, stored: Sealed) -> str:
        """The name of the row's .npz file where it exists and does not belong to the row; otherwise empty.

        Without a hash for it, either file may be the changed one.
        """
        file = self._file(row.name, "npz")
        data = read_if_there(file)
        if data is None or not row.ok:
            return ""
        mark = stored.files.get(file.name)
        if mark is not None:
            return "" if mark == sha256(data) else file.name
        return "" if agrees(data, row) else f"{file.with_suffix('.json').name} or {file.name}"

    def write(self, row: Row, files: RowFiles) -> None:
        """Write a row: its files first, the row itself last. States of attacks that no page shows are removed.

        Files without a row do not count, so all of them are synced together before the row is written.
        """
        written: dict[Path, str] = {}

        def put(file: Path, data: bytes) -> None:
            write_atomic(file, data, sync=False)
            written[file] = sha256(data)

        state = files.state if files.state is not None and len(files.state) <= LARGEST_STATE else None
        with explain_os_error(self.path, _ADVICE):
            for name, data in (files.pictures or {}).items():
                put(self.path / PICTURES / name, data)
            if files.scores is not None:
                put(self._file(row.name, "npz"), packed_scores(files.scores))
            kept = self._keeping(row, files.scores, has_state=state is not None)
            if state is not None and row.name in kept:
                put(self._file(row.name, "safetensors"), state)
            _sync_files(written)
            hashes = {file.name: mark for file, mark in written.items() if file.parent == self.path}
            write_json(self._file(row.name, "json"), sealed(without_paths_in(row.to_dict()), self.plan.id, hashes))
            stay = {self._file(name, "safetensors") for name in kept}
            for file in self.path.glob("*.safetensors"):
                if file not in stay:
                    file.unlink()

    def _keeping(self, row: Row, scores: ImageScores | None, *, has_state: bool) -> set[str]:
        """The rows whose states stay once this row is written: the strongest attack, and the strongest of each stop."""
        rows = [*(old for old in self.rows() if old.name != row.name), row]
        shared = self._derived(rows, lambda name: scores if name == row.name else self.errors(name))
        stateful = [old for old in rows if (has_state if old is row else self._file(old.name, "safetensors").is_file())]
        leads = join(self.plan, rows, shared.errors).strongest
        return {leads, *(strongest(stateful, shared.errors, (stop, 0)) for stop in STOPS)} & {
            it.name for it in stateful
        }

    def result(self) -> AuditResult:
        """The join of the rows on disk."""
        return self._result()[0]

    def _result(self) -> tuple[AuditResult, Shared, dict[str, str]]:
        """The join, its numbers that need per-image scores, and the hashes of the rows by file name."""
        stored = self._stored()
        rows, marks = [row for row, _ in stored.values()], {name: mark for name, (_, mark) in stored.items()}
        shared = self._kept(rows, marks) or self._derived(rows, self.errors, pairs=True)
        result = join(self.plan, rows, shared.errors, str(self.path), shared.averaging, shared.rivals)
        if shared.missing:
            lacking = finding("images_missing", rows=", ".join(shared.missing))
            result = replace(result, findings=[*result.findings, lacking])
        return result, shared, marks

    def conclude(self) -> AuditResult:
        """The join of the rows on disk, also written to joined.json."""
        result, shared, marks = self._result()
        with explain_os_error(self.path, _ADVICE):
            write_json(self.path / JOINED, self._sealed_join(result, shared, marks))
        return result

    def _sealed_join(self, result: AuditResult, shared: Shared, rows: Mapping[str, str]) -> dict[str, Any]:
        """The contents of joined.json; its seal names the hashes of the plan and the rows that were joined."""
        data = without_paths_in({**replace(result, folder="").to_dict(), "errors": dict(shared.errors)})
        return sealed(data, self.plan.id, {PLAN: self._plan_mark(), **rows})

    def _plan_mark(self) -> str:
        return Sealed(self.path / PLAN).mark(self.plan.id)

    def thinned(self, pictures: Collection[str]) -> dict[str, dict[str, Any]]:
        """Contents of the JSON files by name, for an archive with these pictures and without per-image scores."""
        result, shared, _ = self._result()
        rows = [replace(row, pictures=[it for it in row.pictures if it.image in pictures]) for row in result.rows]
        contents = {f"{row_file(row.name)}.json": without_paths_in(row.to_dict()) for row in rows}
        marks = {name: digest(data, self.plan.id, {}) for name, data in contents.items()}
        records = {name: sealed(data, self.plan.id) for name, data in contents.items()}
        return {JOINED: self._sealed_join(replace(result, rows=rows), shared, marks), **records}

    # numbers that need per-image scores

    def _kept(self, rows: Sequence[Row], marks: Mapping[str, str]) -> Shared | None:
        """The numbers in joined.json, if it fits its seal and joined exactly these rows; otherwise None.

        Files of older versions lack the rivals, which are derived.
        """
        kept = self._cache()
        if kept is None or kept.seal is None or not kept.fits(kept.mark(self.plan.id)):
            return None
        if kept.files != {PLAN: self._plan_mark(), **marks} or not all(marks.values()):
            return None
        shared = _numbers(kept)
        return shared if "rivals" in kept.data else with_rivals(shared, losing(rows), self.errors)

    def _cache(self) -> Sealed | None:
        """The contents of joined.json; None where it is missing or cannot be read: it can be derived again."""
        try:
            return Sealed(self.path / JOINED)
        except RunError:
            return None

    def _derived(self, rows: Sequence[Row], scores: Scores, *, pairs: bool = False) -> Shared:
        """The same numbers from the rows and their per-image scores; gains and rivals only with ``pairs``."""
        judged = [row for row in rows if row.ok and row.kind in ("floor", "attack")]
        if bare := next((row for row in judged if "mse" not in row.scores), None):
            raise RunError(f"{self._file(bare.name, 'json')} is damaged: scores.mse is missing")
        shared = shared_errors(rows, scores)
        if judged and not shared.errors:
            file = self._file(judged[0].name, "npz")
            raise RunError(f"{file} is damaged: it has no mse of the images that all rows share")
        if not pairs:
            return shared
        shared = with_rivals(shared, losing(rows), scores)
        return with_averaging(shared, bases(self.plan, rows), scores, self._gains_without_seal)

    def _gains_without_seal(self) -> list[Averaging]:
        """The gains in a joined.json of version 0.2."""
        kept = self._cache()
        return _numbers(kept).averaging if kept is not None and kept.seal is None else []

    def errors(self, name: str) -> ImageScores | None:
        """The per-image scores of a row with an MSE; None where they were not kept."""
        if not self.has_scores(name):
            return None
        scores = self.scores(name)
        if "mse" not in scores.values:
            raise RunError(f"{self._file(name, 'npz')} is damaged: it has no mse")
        return scores

    def scores(self, name: str) -> ImageScores:
        """The per-image scores of a row."""
        file = self._file(name, "npz")
        raw = self._checked(name, file)
        try:
            check_unpacked(file, raw, LARGEST[".npz"])
            return read_scores(raw)
        except RunError:
            raise
        except Exception as error:  # a damaged archive can fail in any way
            raise RunError(f"{file} is damaged: {error}") from error

    def has_scores(self, name: str) -> bool:
        """Whether the per-image scores of a row exist; archives of results do not contain them."""
        return self._file(name, "npz").is_file()

    def picture(self, name: str) -> bytes:
        """The contents of a picture's file."""
        return read_bytes(self.path / PICTURES / Path(name).name)

    def state_file(self, name: str) -> Path | None:
        """The file with the attack's learned state; None where it was not kept, RunError where it was changed."""
        file = self._file(name, "safetensors")
        if not file.is_file():
            return None
        self._checked(name, file)
        return file

    def _checked(self, name: str, file: Path) -> bytes:
        """The contents of a row's file; RunError where the seal of the row has another hash for it."""
        data, row = read_bytes(file), self._file(name, "json")
        mark = Sealed(row).files.get(file.name) if row.is_file() else None
        if mark is not None and mark != sha256(data):
            command = repeat_command(self.plan, self.path)
            raise RunError(f"{file} is damaged: it was changed after it was written; repeat the row: {command}")
        return data

    def _file(self, name: str, kind: str) -> Path:
        return self.path / f"{row_file(name)}.{kind}"


def _numbers(kept: Sealed) -> Shared:
    """The numbers in joined.json that need per-image scores; none where they are of the wrong kind."""
    try:
        empty: dict[str, Any] = {"errors": {}, "averaging": [], "rivals": []}
        return read(Shared, {key: kept.data.get(key, none) for key, none in empty.items()}, JOINED)
    except RunError:
        return Shared()


def _without_numbers(row: Row, reason: Sentence) -> Row:
    """A damaged row: what it was asked to do, and nothing that it measured."""
    empty: dict[str, Any] = {"scores": {}, "bounds": {}, "chance": {}, "findings": [], "pictures": []}
    empty |= {"num_images": 0, "verdict": Verdict(), "by": "", "further": {}}
    return replace(row, outcome="damaged", reason=str(reason), reason_source=reason.source, **empty)


def _sync_files(files: Collection[Path]) -> None:
    """Wait until files and their names are on the disk; every file and every folder is synced once."""
    for file in files:
        with file.open("rb+") as handle:
            os.fsync(handle.fileno())
    for folder in {file.parent for file in files}:
        sync_folder(folder)


def plan_id(suite: str, threat: str, evaluation: str, facts: Mapping[str, Any]) -> str:
    """A readable name of a folder, with a hash of everything that determines the numbers."""
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return re.sub(r'[\\/:*?"<>|\x00-\x1f]', "_", f"{suite}-{threat}-{evaluation}-{digest[:12]}")


def _folder(root: Path, name: str, fresh: bool) -> Path:
    """root/NAME, or the newest of NAME, NAME-2 …; with `fresh` the next one."""
    number = 1
    while (root / _numbered(name, number)).exists():
        number += 1
    return root / _numbered(name, number if fresh else max(1, number - 1))


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}-{number}"


def ledgers(root: Path) -> list[Ledger]:
    """The audits in a folder of audits, oldest first."""
    found = [Ledger.open(file.parent) for file in root.glob("*/" + PLAN)]
    return sorted(found, key=lambda ledger: (ledger.plan.made, ledger.path.name))


def count_audits(root: Path) -> str:
    """How many audits a folder holds, in words for people: "?" where it cannot be read."""
    try:
        return str(sum((entry / PLAN).is_file() for entry in root.iterdir()))
    except FileNotFoundError:
        return "0"
    except OSError:
        return "?"


def old_audits(root: Path) -> list[Path]:
    """Audits of attncem 0.1, one JSON file each, which can no longer be read."""
    return sorted(root.glob("[!.]*.json"))


def read_audit(path: Path) -> AuditResult:
    """The audit in a folder, or the one of an audit.json file."""
    folder = path.parent if path.name == PLAN else path
    if path.suffix == ".json" and path.name != PLAN:
        raise RunError(f"{path} is an audit of attncem 0.1, which can no longer be read: run attncem audit RUN again")
    return joined(folder)


def joined(folder: Path) -> AuditResult:
    """The audit in a folder: the join of its rows."""
    return Ledger.open(folder).result()
