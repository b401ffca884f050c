"""export(): a run as a bundle, which a device and a server need and which leaks no more than was audited.

What a bundle holds: attncem_edge/manifest.py. The key of keyed noise is never in it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from attncem.base.types import ConfigError, RunError
from attncem.deploy.comparing import Comparison, compare, images_of
from attncem.deploy.describing import audits_of, cards, manifest_of, readme
from attncem.deploy.graphs import halves_of
from attncem.judging.opening import OpenRun, open_run
from attncem.models.onnx_file import need
from attncem.records.audit import AuditResult
from attncem.records.files import explain_os_error, partial_path, sync_folder, write_atomic
from attncem.records.runs import RunDirectory
from attncem.training.build import Modules
from attncem_edge.channel import SUPPORTED
from attncem_edge.client import Client
from attncem_edge.manifest import CLIENT, NAME, SERVER, Manifest, check_files


@dataclass(frozen=True)
class Exported:
    """A written bundle: its folder and manifest, how it was compared with the run, and the audits that it names."""

    folder: Path
    manifest: Manifest
    comparison: Comparison
    audits: list[AuditResult]


def export(
    run: str | Path | RunDirectory, out: str | Path, *, weights: str = "best", modules: Modules | None = None
) -> Exported:
    """Write the bundle of a run into a new folder; RunError where it could leak more than the run that was audited.

    `modules` are your own (encoder, server), if the run was trained with them; without these, the halves that were
    saved as ONNX are used.
    """
    folder = Path(out)
    _require_free(folder)
    for library in ("onnx", "onnxruntime", "onnxscript"):
        need(library)
    opened = open_run(run, weights=weights, device="cpu", modules=modules)
    _require_ready(opened)
    x, pictures = images_of(opened)
    halves = halves_of(opened.model, x)
    comparison = compare(opened.model, halves, x, pictures)
    audits = audits_of(opened)
    files = {CLIENT: halves.client, SERVER: halves.server, **cards(audits)}
    files["README.md"] = readme(opened, audits, comparison).encode()
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    manifest = manifest_of(opened, audits, comparison, hashes, (halves.low, halves.high))
    _write(folder, {**files, NAME: manifest.to_text().encode()})
    return Exported(folder, manifest, comparison, audits)


def _require_free(folder: Path) -> None:
    if os.path.lexists(folder):
        raise RunError(f"{folder} already exists and was not changed; choose another --out")


def _require_ready(opened: OpenRun) -> None:
    """RunError where nothing of this run may leave a device; ConfigError where a device cannot apply its channel."""
    if opened.no_release:
        raise RunError(opened.no_release)
    for stage in opened.config.channel:
        if stage.name not in SUPPORTED:
            raise ConfigError(
                f"channel.name={stage.name} cannot be exported: attncem-edge cannot apply the channel of a plugin; "
                f"it can apply {', '.join(SUPPORTED)}"
            )


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write all files, try them as a device and a server do, then give the folder its name."""
    with explain_os_error(folder, "choose another --out"), new_folder(folder) as temporary:
        for name, data in files.items():
            write_atomic(temporary / name, data)
        with Client(temporary) as client:
            check_files(temporary, client.manifest, client.manifest.files)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder that gets its name when it is complete; an error leaves nothing."""
    folder.absolute().parent.mkdir(parents=True, exist_ok=True)
    temporary = partial_path(folder.absolute().parent)
    temporary.mkdir()
    try:
        yield temporary
        _require_free(folder)
        temporary.rename(folder)
        sync_folder(folder.absolute().parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
