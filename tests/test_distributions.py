"""Wheels and source archives of both distributions in environments of their own, and the Dockerfile."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from edge_bundles import make_bundle, photo

import attncem
from attncem.cli.main import _parser
from test_web_build import hatchling, names_of

ROOT = Path(__file__).parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
PINS = {line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()}
HERE = Path(sys.executable).parent.parent
"""The environment of the tests."""
LEFT_OUT = {".ci/run"}
"""Files of the project that its source archive does not hold."""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheels of both distributions, built once."""
    folders = {"attncem": ROOT, "attncem-edge": ROOT / "edge"}
    out = tmp_path_factory.mktemp("wheels")
    return {name: hatchling(folder, "wheel", out / name)[0] for name, folder in folders.items()}


class Environment:
    """A new environment, and what is called in it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder / "environment", folder / "home"
        self.home.mkdir(parents=True)
        venv.create(self.folder, with_pip=False)

    def bin(self, name: str) -> str:
        return str(self.folder / "bin" / name)

    def install(self, *words: str | Path) -> None:
        """By the pip of the tests' environment."""
        pip = [sys.executable, "-m", "pip", "--python", self.bin("python"), "--disable-pip-version-check"]
        self._done([*pip, "install", "--quiet", *map(str, words)])

    def see(self, packages: Path) -> None:
        """Let it import what lies in a folder, after its own packages; editable installs there have no effect."""
        (place,) = self.folder.glob("lib/python*/site-packages")
        (place / "seen.pth").write_text(f"{packages}\n")

    def call(self, name: str, *words: str | Path) -> str:
        """What a command of the environment prints; it runs outside the project."""
        return self._done([self.bin(name), *map(str, words)])

    def variables(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
        return {**kept, "OMP_NUM_THREADS": "1", "XDG_STATE_HOME": str(self.home / "state")}

    def _done(self, command: list[str]) -> str:
        done = subprocess.run(command, cwd=self.home, env=self.variables(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@contextmanager
def started(environment: Environment, *words: str, **variables: str) -> Iterator[str]:
    """The address of a server that a command starts, until the end of the block."""
    process = subprocess.Popen(
        words, cwd=environment.home, env={**environment.variables(), **variables}, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        place = re.match(r"(http://\S+?:\d+)/v2/models/", line := process.stdout.readline())
        assert place is not None, line
        yield place[1].replace("0.0.0.0", "127.0.0.1")
    finally:
        process.terminate()
        process.communicate(timeout=60)


# the Dockerfile


def instructions(word: str) -> list[str]:
    """What the Dockerfile's instructions of a kind say, one text for each."""
    joined = DOCKERFILE.replace("\\\n", " ")
    return re.findall(rf"^(?:HEALTHCHECK.* )?{word} (.*)$", joined, flags=re.MULTILINE)


ENTRYPOINT: list[str] = json.loads(instructions("ENTRYPOINT")[0])
COMMAND: list[str] = json.loads(instructions("CMD")[-1])
HEALTH: list[str] = json.loads(instructions("CMD")[0])
LIBRARIES: list[str] = re.findall(r"^RUN pip install .*-c /tmp/constraints\.txt (.*)$", DOCKERFILE, re.MULTILINE)[
    0
].split()


def copies() -> list[tuple[str, str]]:
    """Source and target of everything that the image's build copies from the project."""
    lines = [line.split() for line in instructions("COPY") if "--from" not in line]
    return [(source, target) for *sources, target in lines for source in sources]


def wheel_of_the_image(folder: Path) -> Path:
    """The wheel that its first stage builds, from nothing but what it copies."""
    for source, target in copies():
        if (ROOT / source).is_dir():
            shutil.copytree(
                ROOT / source, folder / "project" / target, ignore=shutil.ignore_patterns("__pycache__", "built")
            )
        elif target == "./":
            (folder / "project").mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / source, folder / "project")
    return hatchling(folder / "project", "wheel", folder / "wheel")[0]


def test_the_image_copies_what_exists_and_what_its_context_holds() -> None:
    allowed = re.findall(r"^!(.*)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(copies()) >= 7
    for source, _ in copies():
        assert (ROOT / source).exists() and source.split("/")[0] in allowed, source


def test_the_image_installs_pinned_libraries_that_the_project_declares_and_not_torch() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = [*project["dependencies"], *project["optional-dependencies"]["serve"]]
    assert len(LIBRARIES) == 8 and "torch" not in LIBRARIES
    assert set(LIBRARIES) <= PINS & {re.split(r"[\[<>=; ]", line)[0] for line in declared}
    serve = {re.split(r"[\[<>=; ]", line)[0] for line in project["optional-dependencies"]["serve"]}
    assert serve <= set(LIBRARIES), "all of the extra"


def test_the_image_serves_as_nobody_in_particular() -> None:
    words = [*ENTRYPOINT, *COMMAND]
    options = _parser()[0].parse_args(words[1:])
    assert words[0] == "attncem" and options.bundles == instructions("VOLUME") == ["/bundle"]
    assert options.host == "0.0.0.0" and instructions("EXPOSE") == ["8000"]
    assert instructions("USER") == ["10001"] and "--uid 10001" in DOCKERFILE


# the wheels


@pytest.mark.slow
def test_a_device_asks_the_image_s_server_and_neither_has_torch(wheels: Mapping[str, Path], tmp_path: Path) -> None:
    """The edge wheel with what it declares, the server by the Dockerfile's lines."""
    device, server = Environment(tmp_path / "device"), Environment(tmp_path / "server")
    device.install("-c", ROOT / "constraints.txt", wheels["attncem-edge"])
    server.install("-c", ROOT / "constraints.txt", *LIBRARIES)
    server.install("--no-deps", wheel_of_the_image(tmp_path / "image"))
    bundle, picture = tmp_path / "bundle", photo(tmp_path)
    manifest = make_bundle(bundle)
    has_torch = (
        "import importlib.util as u; print([bool(u.find_spec(n)) for n in ('torch', 'attncem_edge', 'attncem')])"
    )
    assert device.call("python", "-c", has_torch) == "[False, True, False]\n"
    assert server.call("python", "-c", has_torch) == "[False, True, True]\n"
    assert "predict" in device.call("attncem-edge", "--help")
    token = "a" * 32
    words = [server.bin(ENTRYPOINT[0]), ENTRYPOINT[1], str(bundle), *COMMAND, "--port", "0"]
    with started(server, *words, ATTNCEM_TOKEN=token) as url:
        server.call("python", *HEALTH[1:-1], HEALTH[-1].replace("http://127.0.0.1:8000", url))
        file = tmp_path / "token.txt"
        file.write_text(token)
        answer = json.loads(
            device.call("attncem-edge", "predict", bundle, picture, "--url", url, "--token-file", file, "--json")
        )
    assert answer["label"] in manifest.labels and answer["on_device"] is False and answer["bytes_sent"] > 0


@pytest.mark.slow
def test_the_wheel_trains_audits_and_reports(wheels: Mapping[str, Path], tmp_path: Path) -> None:
    """Its libraries are those of the tests' environment; tests/test_release.py compares them with what it declares."""
    user = Environment(tmp_path)
    (packages,) = HERE.glob("lib/python*/site-packages")
    user.see(packages)
    user.install("--no-deps", wheels["attncem"])
    assert user.call("python", "-c", "import attncem; print(attncem.__file__)").startswith(str(user.folder))
    assert user.call("attncem", "--version").split()[-1] == attncem.__version__
    small = ("training.epochs=1", "model.width=4", "data.held_out_fraction=0.8", "device=cpu")
    user.call("attncem", "train", "--config", "demo-none", *small, "--out", "run")
    user.call("attncem", "audit", "run", "--suite", "quick", "--skip", "decoder", "--device", "cpu")
    user.call("attncem", "report", "run", "--out", "report.html")
    assert "</html>" in (user.home / "report.html").read_text(encoding="utf-8")
    assert "start-cifar10" in user.call("attncem", "campaign", "list")


@pytest.mark.slow
def test_wheels_hold_their_licence_and_the_edge_wheel_nothing_else(wheels: Mapping[str, Path]) -> None:
    edge = names_of(wheels["attncem-edge"])
    assert {name.split("/")[0] for name in edge if ".dist-info/" not in name} == {"attncem_edge"}
    for wheel in wheels.values():
        assert any(name.endswith("licenses/LICENSE") for name in names_of(wheel))
    assert (ROOT / "edge/LICENSE").read_text() == (ROOT / "LICENSE").read_text()


# the source archives


def unpacked(folder: Path, out: Path) -> Path:
    """The folder that the source archive of a project holds."""
    archive, _ = hatchling(folder, "sdist", out / "archive")
    with tarfile.open(archive) as file:
        file.extractall(out, filter="data")
    (made,) = (path for path in out.iterdir() if path.name != "archive")
    return made


def run_tests(folder: Path, *words: str, **variables: str) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", *words]
    environment: dict[str, Any] = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    environment = {name: value for name, value in environment.items() if not name.startswith("PYTEST_XDIST")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_source_archive_holds_all_files_and_passes_tests(tmp_path: Path) -> None:
    folder = unpacked(ROOT, tmp_path)
    if (ROOT / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
        files = {name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()}
        assert len(files) > 500
        assert {name for name in files if not (folder / name).exists()} == LEFT_OUT
    paths = os.pathsep.join([str(folder / "src"), str(folder / "edge/src")])
    run_tests(folder, "tests/test_release.py", "tests/test_readme.py", "tests/test_dev.py", PYTHONPATH=paths)


@pytest.mark.slow
def test_the_source_archive_of_the_client_passes_its_own_tests(tmp_path: Path) -> None:
    folder = unpacked(ROOT / "edge", tmp_path)
    options = ("--import-mode=importlib", "-o", "pythonpath=src tests", "-o", "markers=slow: minutes")
    run_tests(folder, "tests", *options, PYTHONPATH=str(folder / "src"))
