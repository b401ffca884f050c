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


class Backward(torch.autograd.Function):
    """A loss whose backward notes on which stream it was begun, and works on another: that of its forward."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor, made: Machine, name: str) -> torch.Tensor:
        ctx.made, ctx.own, ctx.name = made, made.current, name  # type: ignore[attr-defined]
        made.current.work(name)
        return x.clone()

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:  # type: ignore[override]
        own: Clock = ctx.own  # type: ignore[attr-defined]
        own.wait_stream(ctx.made.current)  # type: ignore[attr-defined]
        own.work(f"{ctx.name} backward")  # type: ignore[attr-defined]
        return gradient, None, None


def loss(made: Machine, name: str) -> torch.Tensor:
    result: torch.Tensor = Backward.apply(torch.ones((), requires_grad=True), made, name)  # type: ignore[no-untyped-call]
    return result


def test_each_part_of_a_recorded_step_waits_for_what_it_reads_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    made = machine(monkeypatch, "recording")
    main = made.current
    main.work("encoder")
    with Beside() as beside:
        made.current.work("prepared")
        apart = beside.fork("fit")
        penalty = loss(made, "penalty")
        with apart:
            assert made.current.seen == {"encoder", "prepared"}, "not for the penalty"
            loss(made, "own loss").backward()
    assert made.current is main
    assert main.seen == {"encoder"}, "the server's half waits for none of it"
    ce = loss(made, "server")
    beside.backward([ce, penalty])
    assert made.get("beside").seen == {"encoder", "prepared", "penalty", "penalty backward"}, "not for the server"
    assert {"penalty backward", "server backward"} <= main.seen
    assert "own loss backward" not in main.seen, "the networks are updated meanwhile"
    beside.join()
    assert "own loss backward" in main.seen, "the own weights are updated after their gradient, and after the penalty"


def test_outside_a_recording_everything_is_done_where_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    made = machine(monkeypatch, "default")
    with Beside() as beside:
        penalty = loss(made, "penalty")
        with beside.fork("fit"):
            loss(made, "own loss").backward()
    beside.backward([loss(made, "server"), penalty])
    beside.join()
    names = ("penalty", "own loss", "server")
    assert made.current.seen == {*names, *(f"{name} backward" for name in names)}
    assert not any(stream.seen for name, stream in made.streams.items() if name != "default")
