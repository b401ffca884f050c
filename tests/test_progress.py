from __future__ import annotations

import io
import math
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

from attncem.base import progress
from attncem.base.bars import Bars
from attncem.base.courses import LEFT, SPENT, format_numbers
from attncem.base.progress import Stream, clean, forget, show_line, show_progress, silent, tell


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


class Screen:
    """A terminal of 80 columns that shows what was reported last."""

    def __init__(self) -> None:
        console = Console(file=io.StringIO(), force_terminal=True, width=80)
        self.report = Bars(console, lambda words: None)

    @property
    def lines(self) -> list[str]:
        lines = self.report.lines(80, 23)
        assert all(cell_len(line) <= 80 for line in lines)
        return lines


def test_bars_that_were_taken_away_begin_anew() -> None:
    screen = Screen()
    screen.report("train cell", 9, 10, {})
    forget(screen.report, "cell")
    assert screen.lines == []
    screen.report("train cell", 2, 10, {})
    assert [line.split() for line in screen.lines] == [
        ["━╸──────", "2", "of", "10", "1", "s", "so", "far", "train", "cell"]
    ]


def test_a_bar_fits_80_columns() -> None:
    screen = Screen()
    numbers = {"epoch": 7, "ce": 0.51, "rob_loss": 12.3456, "health": 0.98}
    screen.report("train recommended-balanced", 1234, 7400, numbers)
    assert screen.lines == ["━╸──────     17 %     1 s so far  train recommended-balanced  epoch 7  ce 0.51"]


ATTACKED = ("audit demo-gated", "audit demo-kmeans")
PARTS = ("trunk", "annealed from 14", "trunk", "annealed from 28")


def test_bar_count_and_time_stay_while_attacks_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two audits of a demo in the middle of their attacks, at 80 columns, in fixed columns."""
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    screen, numbers = Screen(), {LEFT: 1500.0, SPENT: 500.0}
    screen.report("demo", 0, 4, {LEFT: math.nan})
    screen.report("train demo-gated", 30, 30, {"ce": 0.5})
    for audit in ATTACKED:
        screen.report(audit, 5, 6, numbers)
    now = 120.0
    for part in PARTS:
        for audit in ATTACKED:
            screen.report(f"{audit}: decoder small: {part}", 14, 28, {"mse": 0.02959, **numbers})
        assert screen.lines == [
            "────────   0 of 4   2 min so far  demo",
            "━━──────   5 of 6    25 min left  audit demo-gated",
            f"━━━━──── 14 of 28                   decoder small: {part}  mse 0.02959",
            "━━──────   5 of 6    25 min left  audit demo-kmeans",
            f"━━━━──── 14 of 28                   decoder small: {part}  mse 0.02959",
        ]
    now = 720.0  # nothing is reported for ten minutes: the forecast runs down
    assert screen.lines[1] == "━━━━╸───   5 of 6    15 min left  audit demo-gated"


def test_what_has_ended_is_removed() -> None:
    screen = Screen()
    screen.report("campaign mine", 0, 2, {"running": 2, LEFT: math.nan})
    screen.report("train a-s0", 30, 30, {})
    screen.report("train b-s0", 3, 30, {})
    assert [line.rpartition("  ")[2] for line in screen.lines] == ["running 2", "train b-s0"]
    screen.report("audit a-s0", 1, 3, {LEFT: 60})
    screen.report("audit a-s0: ridge", 1, 2, {LEFT: 60})
    screen.report("audit a-s0: decoder", 3, 9, {LEFT: 60})
    assert [line[34:] for line in screen.lines[-3:]] == ["audit a-s0", "  ridge", "  decoder"]
    screen.report("audit a-s0: ridge", 2, 2, {LEFT: 60})
    assert [line[34:] for line in screen.lines[-2:]] == ["audit a-s0", "  decoder"]
    screen.report("audit a-s0", 2, 3, {LEFT: 40})
    assert [line[34:] for line in screen.lines[-1:]] == ["audit a-s0"], "its row has ended, though not at its limit"
    screen.report("audit a-s0", 3, 3, {LEFT: 0})
    assert [line[34:44] for line in screen.lines] == ["campaign m", "train b-s0"]


def test_the_last_task_stays_until_the_display_ends() -> None:
    screen = Screen()
    screen.report("train demo", 30, 30, {"ce": 0.25})
    assert screen.lines == ["━━━━━━━━ 30 of 30     1 s so far  train demo  ce 0.25"]


def test_rows_give_way_where_lines_are_few() -> None:
    screen = Screen()
    for number in range(4):
        screen.report(f"audit cell-{number}", 1, 3, {})
        screen.report(f"audit cell-{number}: ridge", 1, 2, {})
    assert len(screen.report.lines(80, 8)) == 8
    assert [line[-6:] for line in screen.report.lines(80, 7)] == [f"cell-{number}" for number in range(4)]


def test_a_terminal_without_such_letters_has_a_bar_too() -> None:
    bars = Bars(Console(file=io.TextIOWrapper(io.BytesIO(), encoding="ascii"), width=80), lambda words: None)
    bars("train demo", 7, 20, {})
    assert bars.lines(80, 9)[0].startswith("###-----  7 of 20")


def test_of_the_parts_of_an_attack_one_has_a_bar() -> None:
    screen = Screen()
    screen.report("audit demo-gated", 1, 6, {})
    for number, part in enumerate(PARTS):
        screen.report(f"audit demo-gated: decoder small: {part}", 3 * number, 28.0, {"mse": 0.02959})
    assert [line[34:] for line in screen.lines] == [
        "audit demo-gated",
        "  decoder small: annealed from 28  mse 0.02959",
    ]
    assert "9 of 28" in screen.lines[-1]


def test_a_long_name_gives_way_to_what_is_at_work() -> None:
    screen = Screen()
    screen.report("audit recommended-balanced-of-mine-s0: decoder small: annealed from 28", 3, 28, {"mse": 0.02959})
    (line,) = screen.lines
    assert "audit recom" in line and line.endswith("…: decoder small: annealed from 28") and "3 of 28" in line


def test_rows_are_not_equally_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five floors in a second, then a decoder for half an hour: the time left is that of the forecast, everywhere."""
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    console, text = plain_console()
    with show_progress(console) as report:
        report("audit demo", 0, 6, {LEFT: 1801.0, SPENT: 0.0})
        now = 10.0
        report("audit demo", 5, 6, {LEFT: 1800.0, SPENT: 1.0})
        now = 20.0
        report("audit demo: decoder: trunk", 1, 28, {LEFT: 1790.0, SPENT: 11.0, "mse": 0.03})
        now = 30.0
        report("audit demo: decoder: trunk", 2, 28, {LEFT: 1780.0, SPENT: 21.0})
    assert text.getvalue().splitlines() == [
        "audit demo: 0 of 6  about 30 min left",
        "audit demo: 5 of 6  about 30 min left",
        "audit demo: decoder: trunk: 1 of 28  about 30 min left  mse 0.03",
        "audit demo: decoder: trunk: 2 of 28  about 30 min left",
    ]


def test_where_nobody_can_tell_only_the_row_has_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    screen = Screen()
    screen.report("audit demo", 0, 6, {LEFT: math.nan, SPENT: 0.0})
    for done in (1, 2):
        now += 10.0
        screen.report("audit demo: decoder", done, 6, {LEFT: math.nan, SPENT: 0.0})
    assert [line[:34] for line in screen.lines] == [
        "────────   0 of 6    20 s so far  ",
        "━━╸─────   2 of 6      40 s left  ",
    ]


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
        report("train demo", 4, 4, {"ce": 0.25})
    shown = text.getvalue()
    assert "train demo  ce 0.25" in shown
    assert "4 of 4" in shown
    assert shown.endswith("\x1b[1A\x1b[2K"), "the bar is removed at the end"
    forget(silent, "demo")


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
