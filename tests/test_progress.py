from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from attncem.base import progress
from attncem.base.progress import Stream, clean, forget, format_numbers, show_line, show_progress, silent, tell


def plain_console() -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, force_terminal=False, width=200), text


def test_numbers_in_one_line() -> None:
    assert format_numbers({"ce": 0.123456, "mse": float("nan")}) == "ce 0.1235  mse nan"
    assert format_numbers({}) == ""


def test_plain_lines_come_now_and_then_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    console, text = plain_console()
    with show_progress(console) as report:
        for done in range(1, 21):
            now += 1.0
            report("train", done, 20, {"ce": 1 / done})
    lines = text.getvalue().splitlines()
    assert [line.split("  ")[0] for line in lines] == [f"train: {n} of 20" for n in (1, 6, 11, 16, 20)]
    assert [line.split("  ")[1] for line in lines[1:-1]] == [f"about {n} s left" for n in (14, 9, 4)]
    assert lines[-1] == "train: 20 of 20  ce 0.05"


def test_plain_lines_show_whole_epochs_and_never_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that an attack trains on the side begins behind where the attack is."""
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    console, text = plain_console()
    with show_progress(console) as report:
        for done in (2.5, 7.9, 5.1, 6.2, 8.3, 10):
            now += 10.0
            report("decoder", done, 10, {})
    assert [line.split("  ")[0] for line in text.getvalue().splitlines()] == [
        f"decoder: {n} of 10" for n in (2, 7, 7, 7, 8, 10)
    ]


def test_a_stage_that_had_come_to_its_end_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second audit of a run has rows of the same names; it must not be told at every step."""
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    console, text = plain_console()
    with show_progress(console) as report:
        for done in (5, 10, 1, 2, 6, 10):
            now += 3.0
            report("audit demo: ridge", done, 10, {})
    assert [line.split("  ")[0] for line in text.getvalue().splitlines()] == [
        f"audit demo: ridge: {n} of 10" for n in (5, 10, 2, 10)
    ]


def test_a_stage_that_is_back_where_it_began_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trunk of an attack that converged early, in a second audit."""
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    console, text = plain_console()
    with show_progress(console) as report:
        for done in (0.5, 14, 0.5, 7.5):
            now += 10.0
            report("decoder: trunk", done, 28, {})
    lines = [line.split("  ") for line in text.getvalue().splitlines()]
    assert [line[0] for line in lines] == [f"decoder: trunk: {n} of 28" for n in (0, 14, 0, 7)]
    assert lines[-1][1] == "about 29 s left", "by its own time"


def test_bars_that_were_taken_away_begin_anew() -> None:
    text = io.StringIO()
    with show_progress(Console(file=text, force_terminal=True, width=120)) as report:
        report("train cell", 9, 10, {})
        progress.forget(report, "cell")
        report("train cell", 2, 10, {})
    assert "2 of 10" in text.getvalue()


def test_a_bar_fits_80_columns() -> None:
    text = io.StringIO()
    with show_progress(Console(file=text, force_terminal=True, width=80)) as report:
        report("train recommended-balanced", 1234, 7400, {"epoch": 7, "ce": 0.51, "rob_loss": 12.3456, "health": 0.98})
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.getvalue()).replace("\r", "\n").split("\n")
    assert all(len(line) <= 80 for line in lines)
    last = [line for line in lines if "recommended" in line][-1]
    assert "17 %" in last and "…" not in last and "epoch 7  ce 0.51" in last and "health" not in last


PARTS = ("trunk", "annealed from 14", "trunk", "annealed from 28")


def on_80_columns(*told: tuple[str, float, float, dict[str, float]]) -> list[str]:
    """What a terminal of 80 columns shows of the last thing that it was told."""
    text = io.StringIO()
    with show_progress(Console(file=text, force_terminal=True, width=80)) as report:
        for words in told:
            report(*words)
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.getvalue()).replace("\r", "\n").split("\n")
    assert all(len(line) <= 80 for line in lines)
    return [line for line in lines if line.strip()]


def test_of_the_parts_of_an_attack_one_has_a_bar() -> None:
    told = [(f"audit demo-gated: decoder small: {part}", 3 * n, 28.0, {"mse": 0.02959}) for n, part in enumerate(PARTS)]
    shown = on_80_columns(("audit demo-gated", 1, 6, {}), ("audit demo-gated: ridge", 1, 2, {}), *told)
    assert [line.split("  ")[0].split(" ━")[0].strip() for line in shown[-3:]] == [
        "audit demo-gated",
        "audit demo-gated: ridge",
        "audit demo-gated: decoder small: annealed from 28",
    ]
    assert "9 of 28" in shown[-1]


def test_a_long_name_gives_way_to_what_is_at_work() -> None:
    stage = "audit recommended-balanced-of-mine-s0: decoder small: annealed from 28"
    line = on_80_columns((stage, 3, 28, {"mse": 0.02959}))[-1]
    assert line.startswith("audit recommended-ba")
    assert "…: decoder small: annealed from 28" in line and "3 of 28" in line


def test_each_stage_has_its_own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress.time, "monotonic", lambda: 0.0)
    console, text = plain_console()
    with show_progress(console) as report:
        for stage in ("one", "two", "one", "two"):
            report(stage, 1, 9, {})
    assert [line.strip() for line in text.getvalue().splitlines()] == ["one: 1 of 9", "two: 1 of 9"]


def test_a_long_line_is_not_broken() -> None:
    text = io.StringIO()
    with show_progress(Console(file=text, force_terminal=False, width=30)) as report:
        report("a stage with quite a long name", 1, 1, {f"number{i}": float(i) for i in range(8)})
    assert len(text.getvalue().splitlines()) == 1


def test_bars_on_a_terminal() -> None:
    text = io.StringIO()
    with show_progress(Console(file=text, force_terminal=True, width=120)) as report:
        report("train demo", 1, 4, {"ce": 0.5})
        report("audit demo", 0, 2, {})
        report("train demo", 4, 4, {"ce": 0.25})
    shown = text.getvalue()
    assert "train demo" in shown
    assert "audit demo" in shown
    assert "4 of 4" in shown
    assert "ce 0.25" in shown


def test_bars_of_what_is_over_are_taken_away() -> None:
    text = io.StringIO()
    with show_progress(Console(file=text, force_terminal=True, width=120)) as report:
        for stage in ("campaign c", "train a-s0", "audit a-s0: decoder", "train b-a-s0"):
            report(stage, 1, 2, {})
        forget(report, "a-s0")
    left = text.getvalue()[text.getvalue().rfind("campaign c") :]
    assert "train b-a-s0" in left
    assert "train a-s0" not in left
    assert "decoder" not in left
    forget(silent, "a-s0")


def test_a_line_is_shown_as_it_is() -> None:
    text = io.StringIO()
    show_line("resumed [bold] from runs/demo-001 " + 60 * "x", Console(file=text, width=30))
    assert text.getvalue() == "resumed [bold] from runs/demo-001 " + 60 * "x" + "\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_a_warning_is_a_line_of_its_own(terminal: bool) -> None:
    text = io.StringIO()
    with show_progress(Console(file=text, force_terminal=terminal, width=60)) as report:
        report("train demo", 1, 4, {"ce": 0.5})
        tell(report, "warning: [demo] " + 80 * "x")
        report("train demo", 4, 4, {"ce": 0.25})
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.getvalue()).replace("\r", "\n")
    assert shown.split("\n").count("warning: [demo] " + 80 * "x") == 1
    assert "4 of 4" in shown


def test_silence(capsys: pytest.CaptureFixture[str]) -> None:
    silent("train", 1, 2, {"ce": 1.0})
    tell(silent, "warning: nothing is shown")
    assert capsys.readouterr() == ("", "")


class Torn(io.StringIO):
    """A stream that nobody reads any more."""

    def write(self, text: str) -> int:
        raise BrokenPipeError

    def flush(self) -> None:
        raise BrokenPipeError


def test_progress_that_cannot_be_written_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", Torn())
    show_line("nobody hears this")
    with show_progress() as report:
        report("train", 1, 1, {"ce": 0.5})
        tell(report, "nor this")


def test_texts_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show_line("a\x1b[2Jb\rc\x9bd\u202ee\tf\n[red]g")
    shown = capsys.readouterr().err
    assert "\x1b" not in shown
    assert shown.startswith(r"a\x1b[2Jb")
    assert shown.endswith("\n[red]g\n")
    assert clean("plain 1×2 → σ\n") == "plain 1×2 → σ\n"
    assert clean("\x00\x7f\u2066") == r"\x00\x7f\u2066"


def test_only_what_is_meant_to_be_dropped_is() -> None:
    full = Stream(Torn(), dropped=BlockingIOError)
    with pytest.raises(BrokenPipeError):
        full.write("x")
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    Stream(narrow, dropped=BrokenPipeError).write("a→b")
    narrow.flush()
    assert narrow.buffer.getvalue() == rb"a\u2192b"  # type: ignore[attr-defined]
