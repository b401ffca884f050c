"""Every table of the terminal on 80 columns, with usual names and with long ones: nothing is wider, nothing is cut."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from attncem.cli.main import main
from attncem.cli.verbs.base import table
from attncem.cli.verbs.search import _show as show_search
from attncem.config.loading.load import packaged_configs
from attncem.records.prediction import Candidate, Prediction, PredictionResult, Release
from attncem.records.search import MethodFound, SearchResult, SearchTrial
from attncem.reporting import compare, print_comparison, print_predictions, print_summary
from test_compare import Make, make  # noqa: F401 - a fixture
from test_reporting import make_audit, row, rows
from test_runs import new_run

WIDTH = 80
NAMES = {"usual": "demo-gated", "long": "recommended-balanced-of-my-own-pictures-with-another-channel-and-cut-s0"}
names = pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)


def shown(show: Callable[[Console], object]) -> str:
    text = io.StringIO()
    show(Console(file=text, width=WIDTH))
    return text.getvalue()


def check(text: str, *whole: str) -> None:
    """Rows fit, and names are whole."""
    assert max(map(len, text.splitlines())) <= WIDTH
    assert "…" not in text
    for name in whole:
        assert is_in(name, text), name


def is_in(name: str, text: str) -> bool:
    """Whether all letters of a name stand in one column, one below the other where it was broken."""
    found = [match for line in text.splitlines() for match in re.finditer(r"\S+(?: \S+)*", line)]
    for first in found:
        left, start = name, first.start()
        for part in (match for match in found if match.start() == start):
            words = part[0]
            if left.startswith(words):
                left = left[len(words) :].lstrip()
            elif left and words.startswith(left):
                return True
            if not left:
                return True
    return False


@names
def test_audit(name: str) -> None:
    attacks = [*rows(0.02), row(f"{name} attack", 0.01)]
    check(shown(lambda console: print_summary([make_audit(name, attacks), make_audit("none")], console)), name)


@names
def test_compare(name: str, make: Make) -> None:  # noqa: F811
    runs = [make("a", "none"), make("b", "gated", level=1.5, name=name)]
    check(shown(lambda console: print_comparison(compare(runs), console)), name)


@names
def test_predict(name: str) -> None:
    release = Release([8, 4, 4], "float32", 512, -1.0, 1.0, "fresh", 0.1, 3072, 999)
    top = [Candidate(label, f"{name}-{label}", 0.3) for label in range(3)]
    prediction = Prediction(f"pictures/{name}.jpg", top, 1, f"{name}-1", [], release)
    result = PredictionResult("run", "epoch-00001", "photos", [], [prediction], [])
    text = shown(lambda console: print_predictions(result, console))
    check(text.partition(f"\npictures/{name}.jpg: ")[0], f"{name}-0")


@names
def test_search(name: str) -> None:
    trial = SearchTrial("cell", name, {}, "done", 0.9, 0.0123)
    method = MethodFound(name, 12, 0, 4000.0, ["cell"], {"light": "cell"})
    files = {f"{name}-light": f"campaigns/{name}/best/{name}-light.yaml"}
    result = SearchResult(name, "24", True, 0.9, {"light": 0.01}, [method], [trial], files)
    text = shown(lambda console: show_search(result, console))
    check("\n".join(line for line in text.splitlines() if line.startswith(" ")), name, *files.values())


@pytest.fixture
def on_80_columns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    monkeypatch.setenv("COLUMNS", str(WIDTH))

    def said(*words: str) -> str:
        assert main(words) == 0
        return capsys.readouterr().out

    return said


@names
def test_runs(name: str, tmp_path: Path, on_80_columns: Callable[..., str]) -> None:
    new_run(tmp_path / "campaigns" / "mine" / "runs" / name)
    text = on_80_columns("runs", str(tmp_path))
    check(text.partition("\n")[2], f"campaigns/mine/runs/{name}", "interrupted")
    assert text.startswith(f"Runs in {str(tmp_path)[:20]}")


@names
def test_campaign(name: str, tmp_path: Path, on_80_columns: Callable[..., str]) -> None:
    file = tmp_path / "mine.yaml"
    arm = name[:40]  # the longest name of an arm
    file.write_text(f"name: mine\nconfig: demo-none\narms:\n  {arm}: {{}}\n  other: {{}}\n")
    text = on_80_columns("campaign", "plan", str(file), "--out", str(tmp_path / "out"))
    check(text.partition("\nmine: ")[0], f"{arm}-s0")
    check(on_80_columns("campaign", "list"), "architectures-cifar10")


def test_data(on_80_columns: Callable[..., str]) -> None:
    check(on_80_columns("data").partition("fashion_mnist_mini: ")[0], "fashion_mnist_mini", "tiny_imagenet_200")


def test_lists_of_names(on_80_columns: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal they are folded; a program that reads them gets a line for each."""
    assert len(on_80_columns("config", "--list").splitlines()) == len(packaged_configs())
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda self: True, raising=False)
    folded = on_80_columns("config", "--list")
    check(folded)
    assert re.findall(r"^\S+", folded, re.MULTILINE) == list(packaged_configs())


@pytest.mark.parametrize("width", [30, 40])
def test_a_narrow_terminal_loses_nothing(width: int) -> None:
    text = io.StringIO()
    cells = [("demo-001/demo-gated", "interrupted", "0.0123"), ("[red]b[/red]", "\x1b[2Jx", "7")]
    Console(file=text, width=width).print(table("run|status|attack\nMSE", cells, numbers=(2,)))
    said = text.getvalue()
    assert max(map(len, said.splitlines())) <= width and "…" not in said and "\x1b" not in said
    assert sorted("".join("".join(row) for row in cells).replace("\x1b", r"\x1b")) == sorted(
        re.sub(r"\s", "", said.partition("─ ")[2])
    )
