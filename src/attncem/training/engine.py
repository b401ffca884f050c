"""One training step on a device and the utilities of its loop; used by training and by learned attacks.

A step never waits for the host: batches, rates and weights are on the device, numbers are summed there and read every N
steps. So the same step can be captured in a graph or compiled.
"""

from __future__ import annotations

import copy
import ctypes
import gc
import math
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.swa_utils import get_ema_multi_avg_fn

from attncem.base.seeding import derive_seed
from attncem.base.types import ConfigError
from attncem.config.options.training import SGDOptions
from attncem.training.processes import World

Precision = Literal["32-true", "bf16-mixed"]
_RESET = Path("/proc/self/clear_refs")
"""Linux: writing 5 here resets the peak of the process's memory."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
"""Options of glibc's mallopt."""
_KEEPING = {_TRIM_THRESHOLD: 2**31 - 1, _MMAP_MAX: 0}
_GIVING_BACK = {_TRIM_THRESHOLD: 64 * 2**20, _MMAP_THRESHOLD: 32 * 2**20, _MMAP_MAX: 65536}


def resolve_device(name: str) -> torch.device:
    """`auto` becomes the GPU when there is one."""
    if name not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"device={name} is unknown (allowed: auto, cpu, cuda)")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device=cuda, but torch sees no GPU; use device=cpu or device=auto")
    return torch.device(name)


def describe_device(device: torch.device) -> str:
    """The device in words, for results."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


class Engine:
    """Fabric on one device: places modules, runs them in the chosen precision, takes gradient steps.

    `world` holds the processes that take the same steps, each with its part of the batch; one process by default.
    """

    def __init__(self, device: torch.device, precision: Precision = "32-true", world: World | None = None) -> None:
        self.device = device
        from lightning_fabric import Fabric  # imports torch's compiler, half a second that only training needs

        self.world = world or World()
        own = [torch.cuda.current_device()] if device.type == "cuda" else 1
        self.fabric = Fabric(accelerator=device.type, devices=own, precision=precision)
        self.precision = precision
        self._exact = False

    def autocast(self) -> Any:
        """Context in which the networks run in the chosen precision."""
        return nullcontext() if self._exact else self.fabric.autocast()

    @property
    def lower_precision(self) -> Callable[[], AbstractContextManager[None]] | None:
        """The context in which steps are taken in 32 bits; None if they are anyway."""
        return None if self.precision == "32-true" else self.in_32_bits

    @contextmanager
    def in_32_bits(self) -> Iterator[None]:
        """The networks run in 32 bits, whatever precision was chosen."""
        self._exact = True
        try:
            yield
        finally:
            self._exact = False

    def place(self, module: nn.Module) -> nn.Module:
        """Move a module to the device, convolutions in the memory layout that is fastest there."""
        module = module.to(self.device)
        if self.device.type == "cpu" and any(map(_crashes_with_channels_last, module.modules())):
            return module
        return module.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]

    def descend(self, loss: Tensor, optimizers: Sequence[Optimizer]) -> None:
        """One backward over the whole loss and one step of every optimiser."""
        self.fabric.backward(loss)
        self.update(optimizers)

    def update(self, optimizers: Sequence[Optimizer]) -> None:
        """One step of every optimiser with the gradient averaged over the processes; gradients cleared."""
        self.world.average_gradients(optimizers)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)


def _crashes_with_channels_last(module: nn.Module) -> bool:
    """Torch 2.13's backward of a strided 1x1 convolution overwrites memory on a CPU (8 channels in, 64 px)."""
    return isinstance(module, nn.Conv2d) and module.kernel_size == (1, 1) and module.stride != (1, 1)


def sgd(parameters: Iterator[nn.Parameter], options: SGDOptions, device: torch.device) -> Optimizer:
    """SGD whose rate is a tensor on the device: a captured step reads it there."""
    return SGD(
        parameters,
        lr=torch.tensor(options.lr, device=device),
        momentum=options.momentum,
        weight_decay=options.weight_decay,
        nesterov=options.nesterov,
        fused=True,
    )


def adam(
    parameters: Iterator[nn.Parameter],
    lr: float,
    device: torch.device,
    *,
    weight_decay: float = 0,
    betas: tuple[float, float] = (0.9, 0.999),
) -> Optimizer:
    """Adam for the surrogate's weights and for published attacks; its weight decay is part of the gradient."""
    rate, captured = torch.tensor(lr, device=device), device.type == "cuda"
    return Adam(parameters, lr=rate, betas=betas, weight_decay=weight_decay, fused=True, capturable=captured)


def adamw(parameters: Iterator[nn.Parameter], lr: float, weight_decay: float, device: torch.device) -> Optimizer:
    """AdamW for decoders."""
    rate = torch.tensor(lr, device=device)
    return AdamW(parameters, lr=rate, weight_decay=weight_decay, fused=True, capturable=device.type == "cuda")


def set_rate(optimizer: Optimizer, lr: float) -> None:
    """Change the learning rate in place."""
    for group in optimizer.param_groups:
        group["lr"].fill_(lr)


class Average:
    """A running exponential average of a module's weights and buffers, without waiting for the device."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.module = copy.deepcopy(module)
        self._mix = get_ema_multi_avg_fn(decay)
        self._empty = True

    @torch.no_grad()
    def update(self, module: nn.Module) -> None:
        """Add the module's current state to the average; the first state is copied."""
        pairs = list(zip(_state_of(self.module), _state_of(module), strict=True))
        mixed = [] if self._empty else [pair for pair in pairs if pair[0].is_floating_point()]
        for own, given in pairs:
            if self._empty or not own.is_floating_point():
                own.copy_(given)
        if mixed:
            self._mix([own for own, _ in mixed], [given for _, given in mixed], None)
        self._empty = False


def _state_of(module: nn.Module) -> list[Tensor]:
    return [*module.parameters(), *module.buffers()]


class Monitor:
    """Sums named scalars in one tensor on the device and reads them together, once in a while."""

    def __init__(self, device: torch.device) -> None:
        self._names: list[str] = []
        self._device = device
        self.total = torch.zeros(1, device=device)
        """The sums, and last the number of steps."""

    def add(self, values: Mapping[str, Tensor]) -> None:
        """Add one step's scalars; the names must be the same in every step."""
        if list(values) != self._names:
            self._names = list(values)
            self.total = torch.zeros(len(values) + 1, device=self._device)
        one = torch.ones((), device=self._device)
        self.total += torch.stack([*(value.detach().float() for value in values.values()), one])

    def read(self) -> dict[str, float]:
        """Means since the last read: the only place that waits for the device."""
        *sums, count = self.total.tolist()
        self.total.zero_()
        return {name: value / count for name, value in zip(self._names, sums, strict=True)} if count else {}


def first_not_finite(values: Mapping[str, float]) -> str | None:
    """Name of the first value that is NaN or infinite."""
    return next((name for name, value in values.items() if not math.isfinite(value)), None)


@contextmanager
def limited_threads(count: int) -> Iterator[None]:
    """Torch on `count` CPU threads, and on as many as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def fastest_convolutions(device: torch.device) -> Iterator[None]:
    """On a GPU, let cuDNN time its algorithms for the shapes it sees and keep the fastest."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = before or device.type == "cuda"
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def peak_memory(device: torch.device) -> dict[str, int | str]:
    """Peak memory in bytes (0: unknown), for the manifest, and whether it is that of this training or of the process.

    On a GPU it is that of the tensors. Without one it is the process's memory since `memory_given_back` reset the
    count, which only Linux can; elsewhere it grows from run to run of one process.
    """
    if device.type == "cuda":
        return {"peak_memory_bytes": torch.cuda.max_memory_allocated(device), "peak_memory_of": "training"}
    if os.access(_RESET, os.W_OK):
        lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines())
        return {"peak_memory_bytes": 1024 * int(lines["VmHWM"].split()[0]), "peak_memory_of": "training"}
    try:
        import resource
    except ImportError:  # not available on this platform
        return {"peak_memory_bytes": 0, "peak_memory_of": "process"}
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"peak_memory_bytes": most if sys.platform == "darwin" else 1024 * most, "peak_memory_of": "process"}


def _reset_process_peak() -> None:
    """Return freed memory to the system and count the process's peak from here (Linux)."""
    gc.collect()
    with suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)
    with suppress(OSError):
        _RESET.write_text("5", encoding="ascii")


@contextmanager
def memory_given_back(device: torch.device, *, counted: bool = False) -> Iterator[None]:
    """Reset the count of the peak memory; on a GPU, free reference cycles at the end, such as captured steps.

    On a CPU only where the peak is `counted`: a reset goes over all objects and pages of the process.
    """
    if device.type != "cuda":
        if counted:
            _reset_process_peak()
    elif torch.cuda.is_initialized():  # before initialisation nothing was counted
        torch.cuda.reset_peak_memory_stats(device)
    try:
        yield
    finally:
        if device.type == "cuda":
            gc.collect()


@contextmanager
def memory_kept(device: torch.device) -> Iterator[None]:
    """On a CPU, keep freed memory for the next step; glibc only, no effect elsewhere.

    Otherwise the system maps and clears the pages of every large tensor again: a third of a decoder's training step.
    Afterwards all memory is returned, and the limits are those that glibc reaches by itself with large tensors.
    """
    libc = ctypes.CDLL(None) if device.type == "cpu" and platform.libc_ver()[0] == "glibc" else None
    if libc is None:
        yield
        return
    for option, value in _KEEPING.items():
        libc.mallopt(option, value)
    try:
        yield
    finally:
        for option, value in _GIVING_BACK.items():
            libc.mallopt(option, value)
        libc.malloc_trim(0)


@contextmanager
def seeded(device: torch.device, seed: int, *stream: str | int) -> Iterator[None]:
    """Torch's global generators seeded for a stream (initial weights, dropout), and restored afterwards."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(derive_seed(seed, *stream))
        yield


@dataclass(frozen=True)
class Trainable:
    """Modules and optimisers whose state a checkpoint must hold, by name."""

    modules: Mapping[str, nn.Module]
    optimizers: Mapping[str, Optimizer]

    def tensors(self) -> list[Tensor]:
        """Every tensor that a step may change."""
        own = [tensor for module in self.modules.values() for tensor in _state_of(module)]
        states = [state for optimizer in self.optimizers.values() for state in optimizer.state.values()]
        return own + [value for state in states for value in state.values() if isinstance(value, Tensor)]

    def weights(self) -> dict[str, dict[str, Tensor]]:
        """State of every module."""
        return {name: dict(module.state_dict()) for name, module in self.modules.items()}

    def optimizer_state(self) -> dict[str, Any]:
        """State of every optimiser."""
        return {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()}

    def restore(self, weights: Mapping[str, Mapping[str, Tensor]], optimizer_state: Mapping[str, Any]) -> None:
        """Restore the output of `weights` and `optimizer_state`."""
        for name, module in self.modules.items():
            module.load_state_dict(dict(weights[name]))
        for name, optimizer in self.optimizers.items():
            own = [dict(group) for group in optimizer.param_groups]
            optimizer.load_state_dict(optimizer_state[name])
            for group, before in zip(optimizer.param_groups, own, strict=True):
                group["lr"] = before["lr"].fill_(float(group["lr"]))
                if "capturable" in before:  # the run may have started on another device
                    group["capturable"] = before["capturable"]


@contextmanager
def attacking(device: torch.device, threads: int) -> Iterator[None]:
    """The context in which attacks are trained: threads, memory of their steps, the fastest convolutions."""
    with memory_given_back(device), memory_kept(device), limited_threads(threads), fastest_convolutions(device):
        yield
