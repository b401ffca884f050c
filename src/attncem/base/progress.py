"""Progress for people: a rich bar on a terminal, a plain line every few seconds elsewhere, or nothing.

All output goes through `open_console` or `clean`: names of files and classes cannot control the terminal.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from attncem.base.courses import Courses

Progress = Callable[[str, float, float, Mapping[str, float]], None]
"""progress(stage, done, total, numbers): called often, must be cheap; its optional method ``line(text)`` gets warnings.
Stages and names of numbers are always English; the display translates them. The numbers may hold `seconds left` and
`seconds spent` (`base/courses.py`): the time of the whole task."""

_PLAIN_SECONDS = 5.0
_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Characters that move the cursor, or colour or reverse text: all control characters but tab and line feed."""


def silent(stage: str, done: float, total: float, numbers: Mapping[str, float]) -> None:
    """Report nothing."""


@contextmanager
def shown(progress: Progress | None) -> Iterator[Progress]:
    """The reporter, or one for the terminal if there is none."""
    if progress is not None:
        yield progress
        return
    with show_progress() as own:
        yield own


@contextmanager
def show_progress(console: Console | None = None) -> Iterator[Progress]:
    """A reporter that draws one bar per task at work, or prints a line every few seconds without a terminal.

    In a notebook it is one bar that updates in place.
    """
    console = console or open_console(stderr=True)
    if console.is_jupyter:
        from attncem.base.notebook_bar import NotebookBar

        with closing(NotebookBar(clean)) as bar:
            yield bar
        return
    if not console.is_terminal:
        yield _PlainLines(console)
        return
    from attncem.base.bars import Bars

    with Bars(console, lambda words: show_line(words, console)) as bars:
        yield bars


def show_line(text: str, console: Console | None = None) -> None:
    """Print one line on stderr; under torchrun only the first process prints."""
    if "TORCHELASTIC_RUN_ID" in os.environ and os.environ["RANK"] != "0":
        return
    console = console or open_console(stderr=True)
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def tell(progress: Progress, text: str) -> None:
    """Show one line with the progress, if the reporter supports it."""
    line = getattr(progress, "line", None)
    if line is not None:
        line(text)


def forget(progress: Progress, name: str) -> None:
    """Remove the bars of a finished task with this name, if the reporter draws bars."""
    take_away = getattr(progress, "forget", None)
    if take_away is not None:
        take_away(name)


class _PlainLines:
    def __init__(self, console: Console) -> None:
        self._console, self._courses = console, Courses()

    def __call__(self, stage: str, done: float, total: float, numbers: Mapping[str, float]) -> None:
        course, now = self._courses.report(stage, done, total, numbers), time.monotonic()
        if course.done < total and now - course.shown < _PLAIN_SECONDS:
            return
        course.shown = now
        line = self._courses.line(stage, numbers)
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def line(self, text: str) -> None:
        show_line(text, self._console)


# terminal output


def clean(text: str) -> str:
    """The text with every character that would control a terminal written as an escape."""
    return _STEERING.sub(lambda found: repr(found[0])[1:-1], text)


def open_console(*, stderr: bool = False) -> Console:
    """A console on stdout or stderr. All its output is clean; progress that cannot be written is dropped."""
    if not stderr:
        return _CleanConsole(file=sys.stdout)
    return _CleanConsole(file=cast(TextIO, Stream(sys.stderr, dropped=OSError)))


class _CleanConsole(Console):
    """A console that passes its own control codes, but none from texts."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render with clean texts."""
        for words, style, control in super().render(renderable, options):
            yield Segment(words if control else clean(words), style, control)


class Stream:
    """A stream of text. After an error of the kind ``dropped`` the rest is dropped; any other error is raised once."""

    def __init__(self, stream: TextIO | Any, *, dropped: type[OSError]) -> None:
        self._stream, self._dropped = stream, dropped

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text; letters that the encoding lacks become escapes."""
        with self._forgiving():
            try:
                self._stream.write(text)
            except UnicodeEncodeError as error:
                self._stream.write(text.encode(error.encoding, "backslashreplace").decode(error.encoding))
        return len(text)

    def flush(self) -> None:
        """Flush the output."""
        with self._forgiving():
            self._stream.flush()

    @contextmanager
    def _forgiving(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # Buffered text must go somewhere, or Python reports an error at exit.
            with suppress(OSError, ValueError, AttributeError), Path(os.devnull).open("w") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())
            if not isinstance(error, self._dropped):
                raise


@contextmanager
def lenient_streams() -> Iterator[None]:
    """For a command: a closed reader of stdout is not an error, and neither is any failure on stderr."""
    before = sys.stdout, sys.stderr
    with Path(os.devnull).open("w") as nowhere:  # Python sets a stream to None if it was closed before the start
        sys.stdout = cast(TextIO, Stream(before[0] or nowhere, dropped=BrokenPipeError))
        sys.stderr = cast(TextIO, Stream(before[1] or nowhere, dropped=OSError))
        try:
            yield
        finally:
            with suppress(OSError):
                sys.stdout.flush()
            sys.stderr.flush()
            sys.stdout, sys.stderr = before
