"""Who waits for whom while a step is recorded: streams stood in for by clocks, so that no GPU is needed."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter

import attncem.training.capture as capture
from attncem.base.types import ConfigError
from attncem.config.loading.load import load_config
from attncem.data.specs import DATASETS
from attncem.models.decoders import GlobalDecoder
from attncem.models.front_ends import FRONT_ENDS
from attncem.training.build import build_model
from attncem.training.capture import SideStream


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
    with SideStream() as side:
        made.current.work("prepared")
        apart = side.fork("fit")
        made.current.work("penalty")
        side.mark("penalty")
        with apart:
            assert made.current.seen == {"encoder", "prepared"}, "the own loss does not wait for the penalty"
            made.current.work("own loss")
            made.get("side").wait_stream(made.current)
            made.get("side").work("shared backward")
            made.current.wait_stream(made.get("side"))
            side.wait_for("penalty")
            assert "penalty" in made.current.seen, "the weights that it reads are updated after it"
            made.current.work("own update")
    assert made.current is main
    assert main.seen == {"encoder"}, "the server's half waits for none of it"
    side.wait_for("penalty")
    assert main.seen == {"encoder", "prepared", "penalty"}, "the encoder's backward waits for the penalty alone"
    side.join()
    assert main.seen == {"encoder", "prepared", "penalty", "own loss", "shared backward", "own update"}


def test_outside_a_recording_everything_is_done_where_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    made = machine(monkeypatch, "default")
    with SideStream() as side:
        apart = side.fork("fit")
        made.current.work("penalty")
        side.mark("penalty")
        with apart:
            made.current.work("own loss")
            side.wait_for("penalty")
    side.join()
    assert made.current.seen == {"penalty", "own loss"}
    assert not any(stream.seen for name, stream in made.streams.items() if name != "default")


# compiling


class Scaled(nn.Module):
    """Compiled anew for every factor."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.factor * x


@pytest.mark.parametrize("forgotten", [True, False])
def test_torch_compiles_a_function_eight_times_unless_they_are_forgotten(
    forgotten: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled, whole = CompileCounter(), torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, **_: whole(function, backend=compiled, dynamic=False))
    capture.forget_compiled()
    for number in range(10):
        if forgotten:
            capture.forget_compiled()
        assert float(capture.compile_function(Scaled(0.5 + number).forward)(torch.ones(()))) == 0.5 + number
    assert compiled.frame_count == (10 if forgotten else 8)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # the compiler itself does it
@pytest.mark.parametrize("name", FRONT_ENDS)
def test_a_client_is_compiled_as_one_graph(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(kind: str) -> bool:
        raise AssertionError("torch 2.11 breaks the graph where this is asked, and compiles what follows at every call")

    monkeypatch.setattr(torch.amp, "is_autocast_available", asked)
    compiled = CompileCounter()
    config = load_config("cifar10-none", {"model.front_end.name": name, "model.width": 4}).config
    model = build_model(config, DATASETS["cifar10"])
    capture.forget_compiled()
    encode = torch.compile(model.encode, backend=compiled, dynamic=False)
    for _ in range(3):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            encode(torch.rand(2, 3, 32, 32)).sum().backward()
    assert compiled.frame_count == 1


def test_when_compiling_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [capture.worth_compiling(steps) for steps in (capture.COMPILE_FROM - 1, capture.COMPILE_FROM)] == [
        False,
        True,
    ]
    monkeypatch.setenv(capture.VARIABLE, "0")
    assert capture.worth_compiling(0)
    monkeypatch.setenv(capture.VARIABLE, "7000")
    assert [capture.worth_compiling(steps) for steps in (6999, 7000)] == [False, True]
    for wrong in ("many", "-1", "1.5", ""):
        monkeypatch.setenv(capture.VARIABLE, wrong)
        with pytest.raises(ConfigError, match=f"{capture.VARIABLE}={wrong}: a whole number"):
            capture.worth_compiling(1)


def test_copies_of_a_decoder_are_not_compiled_again() -> None:
    counter, x = CompileCounter(), torch.rand(4, 8, 4, 4)
    one = GlobalDecoder((8, 4, 4), (3, 8, 8), width=8, blocks=1)
    for decoder in (one, copy.deepcopy(one), copy.deepcopy(one)):
        torch.compile(decoder, dynamic=False, backend=counter)(x)
    assert counter.frame_count == 1
