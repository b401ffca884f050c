#!/usr/bin/env python3
"""Everything a developer or a curious user runs, with the standard library only.

    python3 dev.py demo [options of `attncem demo`]   train, attack and compare five models
    python3 dev.py test [--slow] [pytest arguments]   check and the tests at once (--slow: only the slow ones)
    python3 dev.py check                              ruff format, ruff lint, mypy strict
    python3 dev.py docs                               build the site of docs/ into site/, and check its links

The first call makes .venv from pyproject.toml and constraints.txt; later calls reuse it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")
BY_FILE = ("--dist", "loadfile", "--no-loadscope-reorder")
"""A file is one worker's, in the order of tests/conftest.py: the longest first."""
ENVIRONMENT = {
    **{"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
    "PYTHONDONTWRITEBYTECODE": "",  # hundreds of processes of the tests would compile the same sources
}
CHECKS = (("ruff", "format", "--check", "."), ("ruff", "check", "."), ("mypy",))
MEMORY = Path("/dev/shm")
"""Where a file system in memory is, on Linux: the tests sync thousands of small files."""
MEMORY_NEEDED = 2 * 2**30
"""Bytes that must be free in memory for the files of the tests."""


def run(*command: str | Path, quiet: bool = False) -> int:
    """Run a command in the project folder, one torch thread per process."""
    environment = {**os.environ, **ENVIRONMENT}
    words = [str(word) for word in command]
    if not quiet:
        return subprocess.call(words, cwd=ROOT, env=environment)
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout, done.stderr, sep="\n")
    return done.returncode


def requirements(group: str) -> list[str]:
    """What a group needs beside the package: nothing for `run`, the dev group for `dev`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return list(project["dependency-groups"]["dev"]) if group == "dev" else []


def fingerprint(group: str) -> str:
    """Changes when the environment must be made anew."""
    digest = hashlib.sha256(f"{sys.version} {group}".encode())
    for file in (ROOT / "pyproject.toml", ROOT / "constraints.txt", *sorted(ROOT.glob("edge/web/src/*.js"))):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def environment(group: str) -> None:
    """Make .venv if it is missing or out of date; a repeated call only compares a hash."""
    stamp = VENV / f".{group}-{fingerprint(group)[:16]}"
    if stamp.exists() and PYTHON.exists():
        return
    started = time.monotonic()
    print("making the environment in .venv (about two minutes the first time) ...", flush=True)
    if not PYTHON.exists():
        venv.create(VENV, with_pip=True)
    pip = (PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", "constraints.txt")
    # torch first and alone: its pin then holds for everything that asks for a range of it
    for words in ((_pinned_torch(),), ("-e", ".", *requirements(group))):
        if run(*pip, *words, quiet=True):
            sys.exit("dev.py: the environment could not be made; the lines above say why")
    stamp.touch()
    print(f"environment ready after {time.monotonic() - started:.0f} s", flush=True)


def _pinned_torch() -> str:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return next(line for line in lines if line.startswith("torch=="))


def check() -> int:
    """Format, lint, types."""
    environment("dev")
    return max(run(BIN / name, *rest) for name, *rest in CHECKS)


def check_quietly() -> tuple[int, str]:
    """The exit code of the checks and all that they print."""
    words = [[str(BIN / name), *rest] for name, *rest in CHECKS]
    done = [subprocess.run(it, cwd=ROOT, capture_output=True, text=True, check=False) for it in words]
    return max(it.returncode for it in done), "".join(it.stdout + it.stderr for it in done)


@contextlib.contextmanager
def files_of_tests() -> Iterator[Path]:
    """A new folder for the files of the tests, in memory where there is room, removed at the end."""
    in_memory = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > MEMORY_NEEDED
    folder = Path(tempfile.mkdtemp(prefix="attncem-tests-", dir=MEMORY if in_memory else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test(arguments: list[str]) -> int:
    """The quick tests and, at the same time, the checks; with --slow the slow tests alone."""
    environment("dev")
    slow = "--slow" in arguments
    rest = [word for word in arguments if word != "--slow"]
    chosen = ("-m", "slow", "--timeout=1200") if slow else ("-m", "not slow")
    workers = () if any(word.startswith("-n") for word in rest) else ("-n", "2", *BY_FILE)
    with ThreadPoolExecutor(1) as pool, files_of_tests() as folder:
        checks = None if slow or rest else pool.submit(check_quietly)
        code = run(PYTHON, "-m", "pytest", f"--basetemp={folder / 'pytest'}", *workers, *chosen, *rest)
        checks_code, output = checks.result() if checks else (0, "")
    print(output, end="")
    return code or checks_code


def demo(arguments: list[str]) -> int:
    """The demo."""
    environment("run")
    return run(PYTHON, "-m", "attncem", "demo", *arguments)


def docs() -> int:
    """The site; a dead link, or a page outside the navigation, is an error."""
    environment("dev")
    return run(BIN / "mkdocs", "build", "--strict", "--quiet")


def main() -> int:
    """Dispatch."""
    verb, *rest = sys.argv[1:] or ["help"]
    if verb == "demo":
        return demo(rest)
    if verb == "test":
        return test(rest)
    if verb == "check":
        return check()
    if verb == "docs":
        return docs()
    print(__doc__)
    return 0 if verb in ("help", "-h", "--help") else 2


if __name__ == "__main__":
    sys.exit(main())
