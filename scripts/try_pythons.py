"""Run the quick tests under every supported Python of this machine, each in an environment of its own.

python3 scripts/try_pythons.py [pytest arguments]        # build/pythons/VERSION holds the environments

Needs the standard library alone. An interpreter is `pythonX.Y` on the path, or lies in the folder of pyenv. The last
line says for each version whether its tests passed, failed, or no interpreter was there. Exit code 1: some failed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "pythons"
VERSIONS = ("3.11", "3.12", "3.13")
"""Versions that are looked for; pyproject.toml lists those whose tests passed."""
PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))


def main(words: list[str]) -> int:
    """Test them one after the other; the exit code."""
    outcomes = {version: outcome(version, words) for version in VERSIONS}
    print(", ".join(f"Python {version}: {said}" for version, said in outcomes.items()))
    return int("failed" in outcomes.values())


def outcome(version: str, words: list[str]) -> str:
    """What the quick tests say under one version."""
    interpreter = find(version)
    if interpreter is None:
        return "not on this machine"
    python = environment(version, interpreter)
    if python is None:
        return "failed"
    tests = ("-m", "pytest", "-m", "not slow", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", *words)
    return "failed" if call(python, *tests) else "passed"


def find(version: str) -> Path | None:
    """An interpreter of this version that starts."""
    named = shutil.which(f"python{version}")
    places = [*([Path(named)] if named else []), *sorted(PYENV.glob(f"versions/{version}.*/bin/python"), reverse=True)]
    return next((place for place in places if version_of(place) == version), None)


def version_of(python: Path) -> str | None:
    """The version that an interpreter prints; None if it does not start."""
    words = [str(python), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def environment(version: str, interpreter: Path) -> Path | None:
    """The Python of this version's environment, made where it is missing or out of date; None if it cannot be made."""
    folder = FOLDER / version
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    stamp, needed = folder / "requirements.json", json.dumps(requirements(), indent=1)
    if stamp.is_file() and stamp.read_text() == needed:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", "constraints.txt")
    steps = ((interpreter, "-m", "venv", folder), (*pip, pinned_torch()), (*pip, "-e", ".", *requirements()["dev"]))
    if any(call(*step) for step in steps):  # torch first and alone: its pin then holds for everything
        return None
    stamp.write_text(needed)
    return python


def requirements() -> dict[str, Any]:
    """What an environment is made of."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return {
        "dependencies": project["project"]["dependencies"],
        "dev": project["dependency-groups"]["dev"],
        "pins": pins,
    }


def pinned_torch() -> str:
    """The line of constraints.txt that pins torch."""
    pins: list[str] = requirements()["pins"]
    return next(line for line in pins if line.startswith("torch=="))


def call(*words: str | Path) -> int:
    """The exit code of a command in the project's folder, with one thread for each process."""
    one = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return subprocess.call([str(word) for word in words], cwd=ROOT, env={**os.environ, **one})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
