"""Who waits for whom while a step is recorded: streams stood in for by clocks, so that no GPU is needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
import torch

import attncem.capture as capture
from attncem.capture import Beside


@dataclass
class Clock:
    """A stream: the work done on it, and all that this work has waited for."""

    name: str
    seen: set[str] = field(default_factory=set)

    def work(self, what: str) -> None:
        self.seen.add(what)

    def wait_stream(self, other: Clock) -> None:
        self.seen |= other.seen

    def record_event(self) -> set[str]:
        return set(self.seen)

    def wait_event(self, event: set[str]) -> None:
        self.seen |= event


class Machine:
    """Streams by name and the current one."""

    def __init__(self, current: str) -> None:
        self.streams: dict[str, Clock] = {}
        self.current = self.get(current)

    def get(self, name: str) -> Clock:
        return self.streams.setdefault(name, Clock(name))

    @contextmanager
    def within(self, stream: Clock) -> Iterator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before


def machine(monkeypatch: pytest.MonkeyPatch, current: str) -> Machine:
    made = Machine(current)
    monkeypatch.setattr(capture, "_stream", made.get)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: made.current)
    monkeypatch.setattr(torch.cuda, "stream", made.within)
    return made


def test_each_part_of_a_recorded_step_waits_for_what_it_reads_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    made = machine(monkeypatch, "recording")
    main = made.current
    main.work("encoder")
    with Beside() as beside:
        made.current.work("prepared")
        apart = beside.fork("fit")
        made.current.work("penalty")
        beside.mark("penalty")
        with apart:
            assert made.current.seen == {"encoder", "prepared"}, "the own loss does not wait for the penalty"
            made.current.work("own loss")
            made.get("beside").wait_stream(made.current)
            made.get("beside").work("shared backward")
            made.current.wait_stream(made.get("beside"))
            beside.wait_for("penalty")
            assert "penalty" in made.current.seen, "the weights that it reads are updated after it"
            made.current.work("own update")
    assert made.current is main
    assert main.seen == {"encoder"}, "the server's half waits for none of it"
    beside.wait_for("penalty")
    assert main.seen == {"encoder", "prepared", "penalty"}, "the encoder's backward waits for the penalty alone"
    beside.join()
    assert main.seen == {"encoder", "prepared", "penalty", "own loss", "shared backward", "own update"}


def test_outside_a_recording_everything_is_done_where_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    made = machine(monkeypatch, "default")
    with Beside() as beside:
        apart = beside.fork("fit")
        made.current.work("penalty")
        beside.mark("penalty")
        with apart:
            made.current.work("own loss")
            beside.wait_for("penalty")
    beside.join()
    assert made.current.seen == {"penalty", "own loss"}
    assert not any(stream.seen for name, stream in made.streams.items() if name != "default")
