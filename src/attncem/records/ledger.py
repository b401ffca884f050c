"""An audit's folder: its plan, and for each row a JSON file, per-image scores and pictures. Never imports torch.

audit.json          the plan, written before the first row
ROW.json            the row, written after its other files: a row that has it is complete
ROW.npz             per-image scores by measure, and `index`, their positions among the evaluation images
pictures/           originals and reconstructions of some images
joined.json         the join of the rows, written when an audit ends: readable without per-image scores
ROW.safetensors     the learned state of the strongest attack
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attncem.base.shown_paths import without_paths_in
from attncem.base.types import RunError
from attncem.config.options.suites import row_file
from attncem.records.audit import AuditPlan, AuditResult, Row
from attncem.records.averaging import Averaging
from attncem.records.files import (
    PARTIAL,
    explain_os_error,
    locked,
    read_bytes,
    read_record,
    sync_folder,
    write_atomic,
    write_json,
    write_record,
)
from attncem.records.joining import bases, join
from attncem.records.sizes import LARGEST, check_unpacked
from attncem.records.statistics import bootstrap_mean

PLAN = "audit.json"
JOINED = "joined.json"
PICTURES = "pictures"
LARGEST_STATE = 64 * 2**20
"""Larger attack states, in bytes, are not kept."""
_ROOM = 32 * 2**20
"""Free bytes that an audit needs at its start, in addition to a state."""
_ADVICE = "finished rows are kept: fix this and run the same command again"


@dataclass(frozen=True)
class ImageScores:
    """Scores of each image by measure, and the indices of the evaluation images."""

    index: NDArray[np.int64]
    values: Mapping[str, NDArray[np.float64]]


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
                write_json(path / PLAN, without_paths_in(dated.to_dict()))
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
        """An existing audit."""
        return cls(path, read_record(AuditPlan, path / PLAN))

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
        """The complete rows, in the order of the suite."""
        files = [self._file(name, "json") for name in self.plan.rows]
        return [read_record(Row, file) for file in files if file.exists()]

    def write(self, row: Row, files: RowFiles) -> None:
        """Write a row: its files first, the row itself last. Only the strongest attack's state is kept.

        Files without a row do not count, so all of them are synced together before the row is written.
        """
        state_file = self._file(row.name, "safetensors")
        written: list[Path] = []

        def put(file: Path, data: bytes) -> None:
            write_atomic(file, data, sync=False)
            written.append(file)

        with explain_os_error(self.path, _ADVICE):
            for name, data in (files.pictures or {}).items():
                put(self.path / PICTURES / name, data)
            if files.scores is not None:
                put(self._file(row.name, "npz"), _npz(files.scores))
            leads = self._joined([*(old for old in self.rows() if old.name != row.name), row]).strongest == row.name
            if leads and files.state is not None and len(files.state) <= LARGEST_STATE:
                put(state_file, files.state)
            _sync_files(written)
            write_json(self._file(row.name, "json"), without_paths_in(row.to_dict()))
            for file in self.path.glob("*.safetensors") if leads else ():
                if file != state_file:
                    file.unlink()

    def result(self) -> AuditResult:
        """The join of the rows on disk."""
        rows = self.rows()
        averaging = [self._averaging(row, base) for row, base in bases(self.plan, rows)]
        return join(self.plan, rows, self._common_errors(rows), str(self.path), averaging)

    def conclude(self) -> AuditResult:
        """The join of the rows on disk, also written to joined.json."""
        result = self.result()
        with explain_os_error(self.path, _ADVICE):
            write_record(self.path / JOINED, replace(result, folder=""))
        return result

    def _joined(self, rows: Sequence[Row]) -> AuditResult:
        return join(self.plan, rows, self._common_errors(rows), str(self.path))

    def _averaging(self, row: Row, base: Row) -> Averaging:
        """How much lower the error of a row is than that of its base, on the images of both."""
        own, other = self._errors(row.name), self._errors(base.name)
        common = sorted(own.keys() & other.keys())
        if not common:
            raise RunError(f"{self._file(row.name, 'npz')} is damaged: it has no image of {base.name}'s")
        before = np.array([other[index] for index in common])
        found, whole = bootstrap_mean(before - [own[index] for index in common]), max(float(before.mean()), 1e-12)
        gain, low, high = (part / whole for part in (found.mean, found.low, found.high))
        return Averaging(row.name, base.name, row.releases, row.jitter, gain, low, high)

    def _errors(self, name: str) -> dict[int, float]:
        """MSE of a row by image."""
        found = self.scores(name)
        if "mse" not in found.values:
            raise RunError(f"{self._file(name, 'npz')} is damaged: it has no mse")
        return dict(zip(found.index.tolist(), found.values["mse"].tolist(), strict=True))

    def scores(self, name: str) -> ImageScores:
        """The per-image scores of a row."""
        file = self._file(name, "npz")
        raw = read_bytes(file)
        try:
            check_unpacked(file, raw, LARGEST[".npz"])
            with np.load(io.BytesIO(raw), allow_pickle=False) as data:
                return _image_scores({key: np.asarray(data[key]) for key in data.files})
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
        """The file with the attack's learned state; None where it was not kept."""
        file = self._file(name, "safetensors")
        return file if file.is_file() else None

    def _file(self, name: str, kind: str) -> Path:
        return self.path / f"{row_file(name)}.{kind}"

    def _common_errors(self, rows: Sequence[Row]) -> dict[str, float]:
        """Mean MSE of each row on the images that all of them share."""
        judged = [row for row in rows if row.ok and row.kind in ("floor", "attack")]
        if bare := next((row for row in judged if "mse" not in row.scores), None):
            raise RunError(f"{self._file(bare.name, 'json')} is damaged: scores.mse is missing")
        if len({row.num_images for row in judged}) < 2:
            return {row.name: row.mse.mean for row in judged}
        scores = {row.name: self.scores(row.name) for row in judged}
        common = set.intersection(*(set(found.index.tolist()) for found in scores.values()))
        chosen = np.array(sorted(common), dtype=np.int64)
        for name, found in scores.items():
            if "mse" not in found.values or not common:
                raise RunError(f"{self._file(name, 'npz')} is damaged: it has no mse of the images that all rows share")
        return {name: float(found.values["mse"][np.isin(found.index, chosen)].mean()) for name, found in scores.items()}


def _image_scores(arrays: dict[str, NDArray[Any]]) -> ImageScores:
    """The arrays of a scores file; ValueError unless they hold one number for each image."""
    index = arrays.pop("index", np.empty(0))
    numbers = index.ndim == 1 and index.dtype.kind in "iu" and all(it.dtype.kind == "f" for it in arrays.values())
    if not numbers or any(it.shape != index.shape for it in arrays.values()):
        raise ValueError("it does not hold one number of each measure for each image")
    return ImageScores(index.astype(np.int64), arrays)


def _sync_files(files: Collection[Path]) -> None:
    """Wait until files and their names are on the disk; every file and every folder is synced once."""
    for file in files:
        with file.open("rb+") as handle:
            os.fsync(handle.fileno())
    for folder in {file.parent for file in files}:
        sync_folder(folder)


def plan_id(suite: str, threat: str, evaluation: str, facts: Mapping[str, Any]) -> str:
    """A readable name with a hash of everything that determines the numbers."""
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return f"{suite}-{threat}-{evaluation}-{digest[:12]}"


def _folder(root: Path, name: str, fresh: bool) -> Path:
    """root/NAME, or the newest of NAME, NAME-2 …; with `fresh` the next one."""
    number = 1
    while (root / _numbered(name, number)).exists():
        number += 1
    return root / _numbered(name, number if fresh else max(1, number - 1))


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}-{number}"


def _npz(scores: ImageScores) -> bytes:
    buffer = io.BytesIO()
    arrays: dict[str, Any] = {"index": scores.index, **scores.values}
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


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
    """The audit in a folder: joined.json if its rows have not changed, otherwise a new join."""
    ledger = Ledger.open(folder)
    if (folder / JOINED).exists():
        kept = read_record(AuditResult, folder / JOINED)
        if (kept.plan, kept.rows) == (ledger.plan, ledger.rows()):
            return replace(kept, folder=str(folder))
    return ledger.result()
