"""Several processes that train one model: how they connect, exchange tensors and end together.

The process that calls `train` is the first; it starts the others, or `torchrun` starts all of them. With one process
nothing here has an effect.
"""

from __future__ import annotations

import io
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from attncem.base.progress import Progress
from attncem.base.types import AttncemError, ConfigError, TrainingError
from attncem.base.working import WorkerEnded, Workers

PATIENCE = timedelta(minutes=30)
"""How long a process waits for the others; meanwhile the first may validate, refit and save."""
START_SECONDS = 120.0
"""How long the first process waits for the others to start."""
END_SECONDS = 5.0
"""How long the other processes may take to end after the first, or to report a failure."""

LOST = "lost contact with the others"
Value = TypeVar("Value")
Work = Callable[..., object]
"""work(world, *arguments): the function that the other processes run."""


class World:
    """The processes of one run, seen from the process with this `rank`. With one process, every method does nothing."""

    def __init__(self, rank: int = 0, size: int = 1, helpers: Sequence[Helper] = ()) -> None:
        self.rank, self.size = rank, size
        self._helpers = helpers

    @property
    def first(self) -> bool:
        """Whether this process writes, validates and reports."""
        return self.rank == 0

    def part(self, batch_size: int) -> slice:
        """The part of a global batch for this process: consecutive rows, the same number for every process."""
        share = batch_size // self.size
        return slice(self.rank * share, (self.rank + 1) * share)

    def gather(self, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The global batch from all processes' parts, in order; the gradient returns to this process's part of z."""
        if self.size == 1:
            return z, y
        with self._explained():
            gathered: Tensor = _Gather.apply(z, self)  # type: ignore[no-untyped-call]
            return gathered, _concatenated(y, self.size)

    def average_gradients(self, optimizers: Sequence[Optimizer]) -> None:
        """Replace the gradients of all optimised weights by their mean over the processes."""
        if self.size == 1:
            return
        parameters = (p for optimizer in optimizers for group in optimizer.param_groups for p in group["params"])
        with self._explained(), _as_one([p.grad for p in parameters if p.grad is not None]) as gradients:
            dist.all_reduce(gradients)
            gradients.div_(self.size)

    def average(self, numbers: Mapping[str, float], device: torch.device) -> dict[str, float]:
        """Means of numbers over the processes."""
        if self.size == 1:
            return dict(numbers)
        total = torch.tensor(list(numbers.values()), dtype=torch.float64, device=device)
        with self._explained():
            dist.all_reduce(total)
        return dict(zip(numbers, (total / self.size).tolist(), strict=True))

    def from_first(self, value: Value) -> Value:
        """The first process's value, in every process."""
        if self.size == 1:
            return value
        box = [value]
        with self._explained():
            dist.broadcast_object_list(box, 0)
        return box[0]

    @torch.no_grad()
    def align(self, *modules: nn.Module) -> None:
        """Copy the weights and buffers of the first process to every process."""
        if self.size == 1:
            return
        tensors = [tensor for module in modules for tensor in module.state_dict().values()]
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            with self._explained(), _as_one([tensor for tensor in tensors if tensor.dtype == dtype]) as state:
                dist.broadcast(state, 0)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn a broken connection into an error that names the lost process."""
        try:
            yield
        except RuntimeError as error:
            lost = _failure(self._helpers) or f"process {self.rank + 1} of {self.size} {LOST}: {_first_line(error)}"
            raise TrainingError(f"{lost}. Earlier checkpoints are intact: continue with --resume") from error


class _Gather(torch.autograd.Function):
    """All parts of z; backward: the gradient of this process's part times the number of processes.

    Every process computes the same loss of all parts, so its gradient for its own part is already complete; the mean
    over processes after the backward pass divides it by their number once too often.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, world: World) -> Tensor:
        ctx.part, ctx.size = world.part(len(z) * world.size), world.size
        return _concatenated(z, world.size)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0][ctx.part] * ctx.size, None


def _concatenated(own: Tensor, size: int) -> Tensor:
    """The parts of all processes, one after the other."""
    whole = own.new_empty((size * len(own), *own.shape[1:]))
    dist.all_gather(list(whole.chunk(size)), own.detach().contiguous())
    return whole


@contextmanager
def _as_one(tensors: Sequence[Tensor]) -> Iterator[Tensor]:
    """Tensors as one flat tensor; changes to it are copied back to them."""
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    yield flat
    for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(part.view_as(tensor))


# starting and ending


def launched_processes() -> int:
    """Number of processes that torchrun started for this run; 1 without it."""
    return int(os.environ["WORLD_SIZE"]) if dist.is_available() and dist.is_torchelastic_launched() else 1


@contextmanager
def joined(processes: int, device: torch.device, work: Work, arguments: tuple[Any, ...]) -> Iterator[World]:
    """A world of that many `processes`: those of torchrun, or this one and helpers that run `work`."""
    if processes == 1:
        yield World()
        return
    under_torchrun = launched_processes() > 1
    _check_machine(int(os.environ["LOCAL_WORLD_SIZE"]) if under_torchrun else processes, device)
    if under_torchrun:
        rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
        with _group(device, local, rank, processes, None):
            yield World(rank, processes)
        return
    with _loopback_only(), tempfile.TemporaryDirectory(prefix="attncem-") as folder:
        store, helpers = str(Path(folder) / "store"), list[Helper]()
        task = partial(_help, processes, device, store, work, _packed(arguments))
        try:
            helpers.extend(Helper(rank, processes, Path(folder), task) for rank in range(1, processes))
            for helper in helpers:
                helper.await_ready()
            with _group(device, 0, 0, processes, store):
                yield World(0, processes, helpers)
            wait([helper.work for helper in helpers], END_SECONDS)
        finally:
            for helper in helpers:
                helper.pool.end()


def _check_machine(processes: int, device: torch.device) -> None:
    """Reject more processes than this machine can run."""
    if not dist.is_available():
        raise ConfigError(f"processes={processes}, but this build of torch has no torch.distributed; use processes=1")
    if device.type == "cuda" and torch.cuda.device_count() < processes:
        raise ConfigError(
            f"processes={processes} needs a GPU for each, and torch sees {torch.cuda.device_count()}: "
            "use as many processes as there are GPUs, or device=cpu"
        )


@contextmanager
def _group(device: torch.device, local: int, rank: int, size: int, store: str | None) -> Iterator[None]:
    """Join torch's process group, each process with a separate GPU; the store is a file, or torchrun's."""
    if dist.is_initialized():
        if store is not None:
            raise ConfigError(f"processes={size}, but this process belongs to a process group already")
        yield
        return
    with torch.cuda.device(local) if device.type == "cuda" else nullcontext():
        dist.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            store=None if store is None else dist.FileStore(store, size),  # type: ignore[attr-defined]
            rank=rank,
            world_size=size,
            timeout=PATIENCE,
        )
        try:
            yield
        finally:
            dist.destroy_process_group()


@contextmanager
def _loopback_only() -> Iterator[None]:
    """Let gloo listen on the loopback interface, unless the user has chosen another."""
    name, key = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), None), "GLOO_SOCKET_IFNAME"
    if name is None or key in os.environ:
        yield
        return
    os.environ[key] = name
    try:
        yield
    finally:
        del os.environ[key]


class Helper:
    """A process that the first one started, with its work; it ends with the first."""

    def __init__(self, rank: int, size: int, folder: Path, task: Callable[..., None]) -> None:
        self._name, self._ready = f"process {rank + 1} of {size}", threading.Event()
        self.pool = Workers(1, lambda *_: self._ready.set(), self._name, folder)
        self.work = self.pool.submit(task, rank, tells=True)
        self.work.add_done_callback(lambda _: self._ready.set())

    def await_ready(self) -> None:
        """Wait until its imports are done; a signal can interrupt this wait, but not a collective."""
        if not self._ready.wait(START_SECONDS):
            raise TrainingError(f"{self._name} did not start within {START_SECONDS:g} s")
        if (reason := self.failure()) is not None:
            raise TrainingError(reason)

    def failure(self) -> str | None:
        """Why the helper failed or how it died; None if it did not."""
        error = self.work.exception() if self.work.done() else None
        if isinstance(error, WorkerEnded):
            return f"{self._name} ended unexpectedly ({error.how})"
        reason = f"{error}" if isinstance(error, AttncemError) else f"{type(error).__name__}: {_first_line(error)}"
        return None if error is None else f"{self._name} failed: {reason}"


def _failure(helpers: Sequence[Helper]) -> str | None:
    """Why a helper ended; None if all are running."""
    wait([helper.work for helper in helpers], END_SECONDS)
    reasons = [reason for helper in helpers if (reason := helper.failure())]
    # The lost process says more than those that missed it.
    return min(reasons, key=lambda reason: LOST in reason, default=None)


def _packed(arguments: tuple[Any, ...]) -> bytes:
    """The arguments as bytes: copies, because multiprocessing would share the memory of tensors."""
    buffer = io.BytesIO()
    try:
        torch.save(arguments, buffer)
    except Exception as error:  # pickle fails in many ways
        raise ConfigError(
            f"what the other processes need cannot be sent to them: {_first_line(error)}; define your modules "
            "at the top of a file, or start under torchrun"
        ) from error
    return buffer.getvalue()


def _help(
    size: int, device: torch.device, store: str, work: Work, packed: bytes, rank: int, progress: Progress
) -> None:
    """The main function of a helper: report that it is ready, join, and work."""
    # Packed in memory by the first process, including the user's modules; never a file.
    arguments = torch.load(io.BytesIO(packed), map_location="cpu", weights_only=False)
    progress("ready", rank, size, {})
    with _group(device, rank, rank, size, store):
        work(World(rank, size), *arguments)


def _first_line(error: BaseException | None) -> str:
    return str(error).partition("\n")[0]
