"""One training step as a CUDA graph: recorded once, checked against the plain step, then replayed.

A step is a function of tensors whose shapes never change. It reads rates and weights from the device and writes into
the same tensors every time. Replaying its kernels is therefore the same step, without the thousand launches that cost
more than the arithmetic.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from attncem.base.types import ConfigError

Function = Callable[..., Any]
Context = Callable[[], AbstractContextManager[None]]
COMPILE_FROM = 50_000
"""Number of steps from which compiling pays off: about half a millisecond per step for about half a minute."""
VARIABLE = "ATTNCEM_COMPILE_FROM"
"""Environment variable with another number: if many runs share a GPU, compiling pays off sooner."""
WARM_STEPS = 3
"""Plain steps before the recording: they create optimiser state and library handles."""
TOLERANCE = 0.04
"""Largest relative difference between the updates of the recorded and the plain step, both in 32 bits.

Convolutions in 32 bits round to 10 bits of mantissa on a GPU: 0.028 was measured for batches of 16. There, a step
without its penalty differs by 0.06, one with other noise by 0.4.
"""
ROOM = 1.25
"""In bf16, rounding alone may be half of an update (deep, thin clients): both steps are compared with one in 32 bits.

The recorded step may be this much farther from it than the plain one, plus TOLERANCE. A lean client's step without its
penalty stays within this limit; `missing_share` tells it apart.
"""
MOST_MISSING = 0.5
"""In bf16, the largest share of the surrogate's penalty that the update of a recorded step may lack.

Steps with their penalty seemed to lack 0.25 of it at most, steps without it at least 0.68: lean clients of 1.2 to 21 M,
batches of 16 and 64, on a CPU, with weights off by up to 2^-12 in the steps in 32 bits. Not measured on a GPU.
"""
BURIED = 4
"""A step that is off by more than this many times the effect of its penalty is not judged: rounding hides the penalty.

Neither is one whose penalty changes the update by less than TOLERANCE, as in the warm-up. So a small penalty can be
missing unseen, and so can the further penalties of `penalties`, which are not looked for.
"""


class Step:
    """A training step: run as written, or recorded after WARM_STEPS and then replayed.

    ``state`` returns every tensor that a step changes, ``watched`` the tensors whose change is compared. ``faster``
    holds other forms of the function by name, such as compiled; they are tried first. A recording that fails, or
    differs from the plain step, is dropped, and ``problems`` says why. ``in_32_bits``: context in which the function
    computes in 32 bits, if it does not do so anyway.
    """

    penalty_weight: Tensor | None = None
    """Weight of the surrogate's penalty, which the function reads: at 0 it takes the step without the penalty."""

    def __init__(
        self,
        function: Function,
        *,
        state: Callable[[], Sequence[Tensor]],
        watched: Sequence[Tensor],
        generators: Sequence[torch.Generator] = (),
        record: bool = True,
        faster: Mapping[str, Function] = MappingProxyType({}),
        in_32_bits: Context | None = None,
    ) -> None:
        self._function = function
        self._candidates = {**faster, "captured": function}
        self._state = state
        self._watched = watched
        self._generators = generators
        self._in_32_bits = in_32_bits
        self._record_after = WARM_STEPS if record else -1
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: list[Tensor] = []
        self._outputs: Any = None
        self.mode = "plain"
        """Current kind of step: plain, captured, or a name of ``faster``, which is captured too."""
        self.problems: list[str] = []
        """Why a faster form was rejected."""
        self.differences: dict[str, float] = {}
        """Relative difference of each tried form's update from the plain step's, or from that in 32 bits."""

    def __call__(self, *inputs: Tensor) -> Any:
        """Take one step. The next replayed step overwrites the returned tensors."""
        if self._graph is not None:
            for own, given in zip(self._inputs, inputs, strict=True):
                own.copy_(given)
            self._graph.replay()
            return self._outputs
        self._record_after -= 1
        return self._both_ways(inputs) if self._record_after == -1 else self._function(*inputs)

    def _both_ways(self, inputs: Sequence[Tensor]) -> Any:
        """Take the step plain and recorded, from the same state; keep the recording if both agree."""
        before, start = _Snapshot(self._state(), self._generators), _copies(self._watched)
        outputs = self._function(*inputs)
        after, expected = _Snapshot(self._state(), self._generators), _copies(self._watched)
        most = TOLERANCE
        if self._in_32_bits is not None:
            plain, expected = expected, self._taken_in_32_bits(self._in_32_bits, inputs, before)
            self.differences["plain"] = relative_difference(plain, expected, start)
            most += ROOM * self.differences["plain"]
        bare = self._taken_without_penalty(inputs, before)
        for mode, function in self._candidates.items():
            problem = self._try(mode, function, inputs, before, expected, start, most)
            if not problem and bare is not None:
                missing = missing_share(self._watched, expected, bare, start)
                problem = "its update lacks most of its penalty" if missing > MOST_MISSING else ""
            if not problem:
                self.mode = mode
                return self._outputs
            self.problems.append(f"steps are not {mode}: {problem}")
        after.restore()
        self._graph, self._inputs, self._outputs = None, [], None
        return outputs

    def _taken_in_32_bits(self, in_32_bits: Context, inputs: Sequence[Tensor], before: _Snapshot) -> list[Tensor]:
        """The watched tensors after the plain step in 32 bits, from the same state."""
        before.restore()
        with in_32_bits():
            self._function(*inputs)
        return _copies(self._watched)

    def _taken_without_penalty(self, inputs: Sequence[Tensor], before: _Snapshot) -> list[Tensor] | None:
        """As in 32 bits, without the penalty; None if steps are in 32 bits anyway, or have no penalty now."""
        if self._in_32_bits is None or self.penalty_weight is None or not float(self.penalty_weight):
            return None
        weight = self.penalty_weight.clone()
        self.penalty_weight.zero_()
        try:
            return self._taken_in_32_bits(self._in_32_bits, inputs, before)
        finally:
            self.penalty_weight.copy_(weight)

    def _try(
        self,
        mode: str,
        function: Function,
        inputs: Sequence[Tensor],
        before: _Snapshot,
        expected: Sequence[Tensor],
        start: Sequence[Tensor],
        most: float,
    ) -> str:
        """Record and take the step; returns the problem, or an empty text."""
        try:
            self._record(function, inputs, before)
            assert self._graph is not None
            self._graph.replay()
            difference = self.differences[mode] = relative_difference(self._watched, expected, start)
        except Exception as error:  # a network may do anything that cannot be compiled or recorded
            torch.cuda.synchronize()
            _end_recording(self._generators)
            return f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
        if difference <= most:
            return ""
        other = "the plain step's" if self._in_32_bits is None else "that in 32 bits"
        return f"its update differs by {difference:.2g} of its size from {other} (at most {most:.2g})"

    def _record(self, function: Function, inputs: Sequence[Tensor], before: _Snapshot) -> None:
        """The graph of one step with separate input tensors; restores everything else to `before`."""
        self._graph, self._inputs = None, [given.clone() for given in inputs]
        before.restore()
        self._warm_up(function)
        before.restore()
        graph = torch.cuda.CUDAGraph()
        for generator in self._generators:
            graph.register_generator_state(generator)
        with torch.cuda.graph(graph, stream=_stream("recording")):
            self._outputs = function(*self._inputs)
        self._graph = graph

    def _warm_up(self, function: Function) -> None:
        """A few steps on a stream other than the main one, as for the recording."""
        main, side = torch.cuda.current_stream(), _stream("recording")
        side.wait_stream(main)
        with torch.cuda.stream(side), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings of the compiler; those of the networks were shown before
            for _ in range(WARM_STEPS):
                function(*self._inputs)
            with no_host_reads():
                function(*self._inputs)
        main.wait_stream(side)


@contextmanager
def no_host_reads() -> Iterator[None]:
    """Raise an error if the host waits for the device, before a recording starts."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a warning that it may miss some
            torch.cuda.set_sync_debug_mode("error")
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def _end_recording(generators: Sequence[torch.Generator]) -> None:
    """Release the generators after a recording that broke off: they wait for its end."""
    graph = torch.cuda.CUDAGraph()
    for generator in generators:
        graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        torch.zeros(1, device="cuda")


def worth_compiling(steps: int) -> bool:
    """Whether a training with this number of steps gains from compiling."""
    given = os.environ.get(VARIABLE, str(COMPILE_FROM))
    if not given.isdecimal():
        raise ConfigError(f"{VARIABLE}={given}: a whole number of steps is needed")
    return steps >= int(given)


def compile_function(function: Function) -> Function:
    """The function compiled on its first call, with the random numbers that it would draw uncompiled."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled: Function = torch.compile(function, dynamic=False, options=_compiler_options())
    return compiled


def _compiler_options() -> dict[str, Any]:
    """On a GPU small kernels that do not depend on each other become one."""
    return {"fallback_random": True, "combo_kernels": torch.cuda.is_available()}


def forget_compiled() -> None:
    """Reset the compiler: torch stops compiling after eight versions of one function.

    Every training has separate modules, whose forwards are the same functions. From the ninth in a process on they
    would silently run uncompiled.
    """
    torch.compiler.reset()


@cache
def _stream(purpose: str) -> torch.cuda.Stream:
    """The same stream every time: the libraries keep a workspace of tens of megabytes for each stream."""
    return torch.cuda.Stream()


class SideStream:
    """CUDA streams parallel to the main one: work inside ``with`` and in forks overlaps later work, until ``join``.

    Small kernels then fill the gaps that large ones leave. It works only while a step is recorded and warmed up: a
    compiler keeps the nodes that accumulate the weights' gradients, each with the stream of its creation.
    """

    def __enter__(self) -> SideStream:
        recording = torch.cuda.is_initialized() and torch.cuda.current_stream() == _stream("recording")
        self._streams: dict[str, torch.cuda.Stream] | None = {} if recording else None
        self._marks: dict[str, torch.cuda.Event] = {}
        self._inside: AbstractContextManager[Any] = self.fork("side")
        self._inside.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._inside.__exit__(*exception)

    def fork(self, name: str) -> AbstractContextManager[Any]:
        """A separate stream context: its work waits for the work before this call, and for nothing else."""
        if self._streams is None:
            return nullcontext()
        stream = self._streams[name] = _stream(name)
        stream.wait_stream(torch.cuda.current_stream())
        return torch.cuda.stream(stream)

    def mark(self, name: str) -> None:
        """Mark the work so far, for others to wait for."""
        if self._streams is not None:
            self._marks[name] = torch.cuda.current_stream().record_event()

    def wait_for(self, name: str) -> None:
        """Later work waits for the work before that mark, and for nothing else."""
        if self._streams is not None:
            torch.cuda.current_stream().wait_event(self._marks[name])

    def join(self) -> None:
        """Later work waits for all work before this call."""
        for stream in (self._streams or {}).values():
            torch.cuda.current_stream().wait_stream(stream)


class _Snapshot:
    """Copies of tensors and generator states, for a later restore."""

    def __init__(self, tensors: Sequence[Tensor], generators: Sequence[torch.Generator]) -> None:
        self._tensors, self._values = tensors, _copies(tensors)
        self._generators = [torch.cuda.default_generators[torch.cuda.current_device()], *generators]
        self._random = [generator.get_state() for generator in self._generators]

    @torch.no_grad()
    def restore(self) -> None:
        """Restore everything from the copies, and clear the gradients."""
        for tensor, value in zip(self._tensors, self._values, strict=True):
            tensor.copy_(value)
            tensor.grad = None
        for generator, state in zip(self._generators, self._random, strict=True):
            generator.set_state(state)


def _copies(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in tensors]


@torch.no_grad()
def missing_share(
    now: Sequence[Tensor], expected: Sequence[Tensor], bare: Sequence[Tensor], start: Sequence[Tensor]
) -> float:
    """How far `now` lies from `expected` towards `bare`, the tensors after a step without its penalty; 0: not judged.

    Rounding hardly changes this share, even where it is larger than the penalty's effect: it has no direction.
    """
    effect, off = relative_difference(bare, expected, start), relative_difference(now, expected, start)
    if effect < TOLERANCE or off > BURIED * effect:
        return 0.0
    pairs = [(a - b, c - b) for a, b, c in zip(now, expected, bare, strict=True)]
    along, whole = (torch.stack([(a * b).sum() for a, b in it]).sum() for it in (pairs, [(b, b) for _, b in pairs]))
    return float(along / whole)


@torch.no_grad()
def relative_difference(now: Sequence[Tensor], expected: Sequence[Tensor], start: Sequence[Tensor]) -> float:
    """‖now − expected‖ / ‖expected − start‖ over all tensors together."""
    off = torch.stack([(a - b).square().sum() for a, b in zip(now, expected, strict=True)]).sum()
    size = torch.stack([(a - b).square().sum() for a, b in zip(expected, start, strict=True)]).sum()
    return float((off / size.clamp_min(1e-30)).sqrt())
