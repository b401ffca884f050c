"""Building the client for browsers: by npm where it is there; without it a package that says what it lacks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import hatch_build
from attncem.base.types import ConfigError
from attncem.deploy.browser import LICENSES, SCRIPT, WASM, web_client
from web import needs_web

NAMES = (SCRIPT, WASM, LICENSES)


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of sources, and an npm that does what its scripts say: no other program is in reach."""
    folder = tmp_path / "web"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "index.js").write_text("1")
    monkeypatch.setattr(hatch_build, "SOURCES", folder)
    monkeypatch.setattr(hatch_build, "BUILT", tmp_path / "live" / "built")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return folder


def npm(folder: Path, script: str) -> None:
    program = folder.parent / "bin" / "npm"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\necho $1 >> {folder / 'calls'}\n{script}\n")
    program.chmod(0o755)


WRITES = '[ "$1" = run ] && /bin/mkdir -p "$4" && echo built > "$4/attncem-web.js"; exit 0'


def test_without_npm_nothing_is_built(sources: Path) -> None:
    assert hatch_build.build_client() == "npm is not installed"
    assert not hatch_build.is_built() and not hatch_build.BUILT.exists()


def test_it_is_built_once_for_its_sources(sources: Path) -> None:
    npm(sources, WRITES)
    assert [hatch_build.build_client(), hatch_build.build_client()] == ["", ""]
    assert (sources / "calls").read_text().split() == ["ci", "run"]
    assert (hatch_build.BUILT / SCRIPT).read_text() == "built\n"
    (sources / "src" / "index.js").write_text("2")
    assert not hatch_build.is_built()
    assert hatch_build.build_client() == "" and hatch_build.is_built()
    assert (sources / "calls").read_text().split() == ["ci", "run"] * 2


@pytest.mark.parametrize(("step", "calls"), [("ci", ["ci"]), ("run", ["ci", "run"])])
def test_a_failure_of_npm_leaves_nothing_and_is_named(sources: Path, step: str, calls: list[str]) -> None:
    npm(sources, WRITES)
    assert hatch_build.build_client() == ""
    (sources / "src" / "index.js").write_text("2")
    npm(sources, f'if [ "$1" = {step} ]; then echo no network >&2; exit 1; fi; {WRITES}')
    assert hatch_build.build_client() == f"npm {step} failed: no network"
    assert (sources / "calls").read_text().split()[2:] == calls
    assert not hatch_build.BUILT.exists(), "the client of other sources is gone"


def test_a_package_without_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="without the client for browsers, because npm did not build it"):
        web_client(tmp_path)
    for name in NAMES:
        (tmp_path / name).write_text("x")
    assert web_client(tmp_path) == tmp_path


@needs_web
def test_licences_of_all_that_is_built_are_there() -> None:
    text = (web_client() / LICENSES).read_text(encoding="utf-8")
    for words in ("onnxruntime-web 1.", "Microsoft Corporation", "Eigen", "@noble/hashes 2.", "Paul Miller", "esbuild"):
        assert words in text


def test_the_lock_names_no_registry_and_pins_every_package() -> None:
    packages = json.loads((hatch_build.SOURCES / "package-lock.json").read_text())["packages"]
    assert not [name for name, facts in packages.items() if "resolved" in facts]
    assert [name for name, facts in packages.items() if not facts.get("integrity", "").startswith("sha512-")] == [""]


def names_of(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as file:
        return set(file.namelist())


def hatchling(folder: Path, kind: str, out: Path, **environment: str) -> tuple[Path, str]:
    """The file that a build in this folder makes, and what it prints."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(out)]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    (made,) = out.iterdir()
    return made, done.stdout + done.stderr


@needs_web
@pytest.mark.slow
def test_the_wheel_holds_the_client_and_without_npm_says_that_it_does_not(tmp_path: Path) -> None:
    built = {f"attncem/live/built/{name}" for name in NAMES}
    wheel, _ = hatchling(hatch_build.ROOT, "wheel", tmp_path / "wheel")
    assert built <= names_of(wheel)
    archive, _ = hatchling(hatch_build.ROOT, "sdist", tmp_path / "sdist")
    with tarfile.open(archive) as file:
        assert not [name for name in file.getnames() if "node_modules" in name or "live/built/" in name]
        file.extractall(tmp_path / "unpacked", filter="data")
    (folder,) = (tmp_path / "unpacked").iterdir()
    bare, printed = hatchling(folder, "wheel", tmp_path / "bare", PATH=str(tmp_path / "nothing"))
    assert "attncem is built without the client for browsers: npm is not installed" in printed
    assert not built & names_of(bare) and "attncem/deploy/browser.py" in names_of(bare)
