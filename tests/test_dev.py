"""dev.py: standard library only, and an environment that is made anew exactly when it must be."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).resolve().parent.parent / "dev.py"


@pytest.fixture
def dev() -> ModuleType:
    """dev.py as a module of its own, so that a test may change its paths."""
    spec = importlib.util.spec_from_file_location("dev_under_test", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def project(dev: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the two files the environment depends on, in the place of the checkout."""
    (tmp_path / "pyproject.toml").write_text('[dependency-groups]\ndev = ["pytest", "ruff>=1"]\n')
    (tmp_path / "constraints.txt").write_text("numpy==2.0\ntorch==2.13.0\n")
    monkeypatch.setattr(dev, "ROOT", tmp_path)
    monkeypatch.setattr(dev, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(dev, "PYTHON", tmp_path / ".venv" / "python")
    return tmp_path


def test_only_the_standard_library_is_imported() -> None:
    roots: set[str] = set()
    for node in ast.walk(ast.parse(FILE.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            roots |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            roots.add((node.module or "").split(".")[0])
    assert "subprocess" in roots
    assert roots <= set(sys.stdlib_module_names)


def test_requirements(dev: ModuleType, project: Path) -> None:
    assert dev.requirements("dev") == ["pytest", "ruff>=1"]
    assert dev.requirements("run") == []


def test_the_real_requirements_have_the_tools_that_are_run(dev: ModuleType) -> None:
    assert {"ruff", "mypy", "pytest", "pytest-xdist"} <= set(dev.requirements("dev"))
    assert dev._pinned_torch().startswith("torch==2.")


def test_the_fingerprint_follows_the_files_and_the_group(dev: ModuleType, project: Path) -> None:
    first = dev.fingerprint("run")
    assert dev.fingerprint("run") == first
    seen = {first, dev.fingerprint("dev")}
    for name in ("pyproject.toml", "constraints.txt"):
        (project / name).write_text((project / name).read_text() + "\n# changed\n")
        seen.add(dev.fingerprint("run"))
    assert len(seen) == 4
    (project / "edge/web/src").mkdir(parents=True)
    (project / "edge/web/src/index.js").touch()
    one = dev.fingerprint("run")
    (project / "edge/web/src/index.js").write_text("changed")
    assert dev.fingerprint("run") != one, "the install builds the client for browsers"


def test_an_environment_that_fits_is_left_alone(
    dev: ModuleType, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, ...]] = []
    monkeypatch.setattr(dev, "run", lambda *words, quiet=False: calls.append(tuple(map(str, words))) or 0)

    def create(folder: Path, with_pip: bool) -> None:
        folder.mkdir()
        (folder / "python").touch()

    monkeypatch.setattr(dev.venv, "create", create)
    dev.environment("dev")
    assert len(calls) == 2
    assert calls[0][-1] == "torch==2.13.0"
    assert calls[1][-4:] == ("-e", ".", "pytest", "ruff>=1")
    dev.environment("dev")
    assert len(calls) == 2, "a second call only compares the hash"
    (project / "constraints.txt").write_text("torch==2.14.0\n")
    dev.environment("dev")
    assert calls[2][-1] == "torch==2.14.0"


def test_an_environment_that_cannot_be_made_is_not_stamped(
    dev: ModuleType, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dev, "run", lambda *words, quiet=False: 1)
    monkeypatch.setattr(dev.venv, "create", lambda folder, with_pip: folder.mkdir())
    with pytest.raises(SystemExit, match="could not be made"):
        dev.environment("run")
    assert list((project / ".venv").iterdir()) == []


PARALLEL = ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], [*PARALLEL, "-m", "not slow"]),
        (["--slow"], [*PARALLEL, "-m", "slow", "--timeout=1200"]),
        (["-n0", "tests/test_dev.py"], ["-m", "not slow", "-n0", "tests/test_dev.py"]),
    ],
)
def test_test_chooses_the_tests(
    dev: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    expected: list[str],
) -> None:
    calls: list[list[str]] = []
    monkeypatch.setattr(dev, "environment", lambda group: None)
    monkeypatch.setattr(dev, "check_quietly", lambda: (3, "a line is too long\n"))
    monkeypatch.setattr(dev, "run", lambda *given: calls.append([str(word) for word in given]) or 0)
    code = dev.test(words)
    assert calls[0][1:3] == ["-m", "pytest"]
    assert calls[0][3].startswith("--basetemp=")
    assert calls[0][4:] == expected
    assert code == (0 if words else 3), "without arguments the checks count too"
    assert capsys.readouterr().out == ("" if words else "a line is too long\n")


def test_the_checks_are_run_to_the_end_and_print_all(
    dev: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dev, "ROOT", tmp_path)
    monkeypatch.setattr(dev, "BIN", Path(sys.executable).parent)
    python = Path(sys.executable).name
    scripts = ("import sys; print('one'); sys.exit(2)", "print('two')", "import sys; sys.exit('three')")
    monkeypatch.setattr(dev, "CHECKS", [(python, "-S", "-c", script) for script in scripts])
    assert dev.check_quietly() == (2, "one\ntwo\nthree\n")


def test_processes_of_the_tests_share_bytecode(dev: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert dev.run(sys.executable, "-c", "import sys; sys.exit(sys.dont_write_bytecode)") == 0


def test_files_of_tests_lie_in_memory_where_there_is_room(
    dev: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, disk = tmp_path / "memory", tmp_path / "disk"
    for folder in (memory, disk):
        folder.mkdir()
    monkeypatch.setattr(dev.tempfile, "tempdir", str(disk))
    monkeypatch.setattr(dev, "MEMORY", memory)
    monkeypatch.setattr(dev, "MEMORY_NEEDED", 0)
    with dev.files_of_tests() as first, dev.files_of_tests() as second:
        (first / "file").touch()
        assert first != second and {first.parent, second.parent} == {memory}
    monkeypatch.setattr(dev, "MEMORY_NEEDED", 2**80)
    with dev.files_of_tests() as folder:
        assert folder.parent == disk
    monkeypatch.setattr(dev, "MEMORY", tmp_path / "nowhere")
    with pytest.raises(KeyboardInterrupt), dev.files_of_tests() as folder:
        assert folder.parent == disk
        raise KeyboardInterrupt
    assert [*memory.iterdir(), *disk.iterdir()] == []


@pytest.mark.parametrize(("words", "code"), [([], 0), (["help"], 0), (["--help"], 0), (["frobnicate"], 2)])
def test_help(words: list[str], code: int) -> None:
    done = subprocess.run([sys.executable, FILE, *words], capture_output=True, text=True, check=False)
    assert done.returncode == code
    for verb in ("demo", "test", "check"):
        assert f"python3 dev.py {verb}" in done.stdout
    assert "--slow" in done.stdout
