"""For tests that change a run's configuration behind its back: the manifest's hash is made to fit again."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path


def edit_config(run: Path, edit: Callable[[str], str]) -> None:
    """Edit config.yaml and put its new hash into the manifest."""
    file = run / "config.yaml"
    before = file.read_text()
    text = edit(before)
    file.write_text(text)
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["config_sha256"] = hashlib.sha256(text.encode()).hexdigest()
    (run / "manifest.json").write_text(json.dumps(manifest))


def copy_run(run: Path, to: Path, edit: Callable[[str], str] = str) -> Path:
    """The run in another folder, its configuration edited."""
    shutil.copytree(run, to)
    edit_config(to, edit)
    return to
