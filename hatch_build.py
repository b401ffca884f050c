"""Build the client for browsers into the package, for wheels and editable installs, where npm can do it.

Without npm, or without its registry, the package is built all the same: it then has no page, and says so when one is
asked for (src/attncem/deploy/browser.py).
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent
SOURCES = ROOT / "edge" / "web"
BUILT = ROOT / "src" / "attncem" / "live" / "built"
STAMP = "SOURCES.sha256"
"""File of the built client: the hash of what it was built from."""
PARTS = ("package-lock.json", "build.js", "licenses/*.txt", "src/*.js")
LONGEST = 600
"""Seconds that npm may take for one step."""


class WebClient(BuildHookInterface):  # type: ignore[type-arg]
    """Builds the client before the files of a wheel are collected."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build it; where that fails, warn and go on."""
        if self.target_name == "wheel" and (problem := build_client()):
            self.app.display_warning(f"attncem is built without the client for browsers: {problem}")


def digest() -> str:
    """Names the sources of the client."""
    files = sorted(file for part in PARTS for file in SOURCES.glob(part))
    rows = [f"{file.relative_to(SOURCES).as_posix()} {hashlib.sha256(file.read_bytes()).hexdigest()}" for file in files]
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


def is_built() -> bool:
    """Whether the built client is that of the sources."""
    stamp = BUILT / STAMP
    return stamp.is_file() and stamp.read_text() == digest()


def build_client() -> str:
    """Build the client unless it is there; returns why it cannot be built, or an empty text."""
    if is_built():
        return ""
    new = BUILT.with_name("built.new")
    shutil.rmtree(new, ignore_errors=True)
    problem = _npm(new)
    shutil.rmtree(BUILT, ignore_errors=True)  # that of other sources
    if not problem:
        (new / STAMP).write_text(digest())
        new.rename(BUILT)
    return problem


def _npm(folder: Path) -> str:
    """Have npm build the client into a folder; returns why it cannot, or an empty text."""
    npm = shutil.which("npm")
    if npm is None:
        return "npm is not installed"
    return _run(npm, "ci") or _run(npm, "run", "build", "--", str(folder))


def _run(npm: str, *words: str) -> str:
    """Run npm in the folder of the client; returns its complaint, or an empty text."""
    try:
        done = subprocess.run([npm, *words], cwd=SOURCES, capture_output=True, text=True, check=False, timeout=LONGEST)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"npm {words[0]} failed: {error}"
    lines = [line for line in (done.stderr or done.stdout).splitlines() if not line.startswith("npm warn")]
    complaint = " ".join(" ".join(lines).replace("npm error", "").split())[:300]
    return f"npm {words[0]} failed: {complaint}" if done.returncode else ""


if __name__ == "__main__":
    raise SystemExit(build_client() or 0)
