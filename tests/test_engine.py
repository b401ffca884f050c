"""The engine: monitors, rates, checkpoints of a step, seeds and threads."""

from __future__ import annotations

import copy
import math
import platform
import resource
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from attncem.base.types import ConfigError
from attncem.config.options.training import SGDOptions
from attncem.training.engine import (
    Average,
    Engine,
    Monitor,
    Trainable,
    adam,
    adamw,
    describe_device,
    first_not_finite,
    limited_threads,
    memory_given_back,
    memory_kept,
    peak_memory,
    resolve_device,
    seeded,
    set_rate,
    sgd,
)

CPU = torch.device("cpu")
OPTIMIZERS: dict[str, Callable[[nn.Module], Optimizer]] = {
    "sgd": lambda net: sgd(net.parameters(), SGDOptions(lr=0.1, nesterov=True), CPU),
    "adam": lambda net: adam(net.parameters(), 0.01, CPU),
    "adamw": lambda net: adamw(net.parameters(), 0.01, 0.1, CPU),
}


def network() -> nn.Module:
    with seeded(CPU, 0, "network"):
        return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))


def batch(number: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(number)
    return torch.randn(8, 3, generator=generator), torch.randint(2, (8,), generator=generator)


def train_steps(net: nn.Module, optimizer: Optimizer, numbers: range) -> None:
    engine = Engine(CPU)
    for number in numbers:
        x, y = batch(number)
        engine.descend(nn.functional.cross_entropy(net(x), y), [optimizer])


def weights_of(net: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in net.state_dict().values()])


def test_monitor_gives_means_in_the_order_of_the_names() -> None:
    monitor = Monitor(CPU)
    assert monitor.read() == {}
    monitor.add({"loss": torch.tensor(1.0, requires_grad=True), "accuracy": torch.tensor(0.5, dtype=torch.float64)})
    monitor.add({"loss": torch.tensor(4.0), "accuracy": torch.tensor(0.0)})
    assert list(monitor.read().items()) == [("loss", 2.5), ("accuracy", 0.25)]
    monitor.add({"other": torch.tensor(7.0)})
    assert monitor.read() == {"other": 7.0}, "a read starts a new mean"


def test_monitor_keeps_what_is_not_finite() -> None:
    monitor = Monitor(CPU)
    for value in (1.0, math.nan, 2.0):
        monitor.add({"loss": torch.tensor(value)})
    assert math.isnan(monitor.read()["loss"])


def test_first_not_finite() -> None:
    assert first_not_finite({"a": 1.0, "b": -2.0}) is None
    assert first_not_finite({"a": 1.0, "b": -math.inf, "c": math.nan}) == "b"
    assert first_not_finite({"a": math.nan, "b": math.inf}) == "a"


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_set_rate_acts_in_place(name: str) -> None:
    net = network()
    optimizer = OPTIMIZERS[name](net)
    rate = optimizer.param_groups[0]["lr"]
    set_rate(optimizer, 0.0)
    assert optimizer.param_groups[0]["lr"] is rate, "a captured step reads this tensor"
    before = [p.detach().clone() for p in net.parameters()]
    train_steps(net, optimizer, range(1))
    for old, new in zip(before, net.parameters(), strict=True):
        torch.testing.assert_close(new.detach(), old, rtol=0, atol=0)
    set_rate(optimizer, 0.1)
    train_steps(net, optimizer, range(1, 2))
    assert not torch.equal(before[0], next(net.parameters()).detach())


def test_set_rate_scales_an_sgd_step() -> None:
    moved = []
    for rate in (0.1, 0.2):
        net = network()
        optimizer = sgd(net.parameters(), SGDOptions(lr=1.0, momentum=0, weight_decay=0), CPU)
        set_rate(optimizer, rate)
        before = net[0].weight.detach().clone()
        train_steps(net, optimizer, range(1))
        moved.append(net[0].weight.detach() - before)
    torch.testing.assert_close(moved[1], 2 * moved[0])


def test_descend_clears_gradients_and_steps_every_optimizer() -> None:
    first, second = nn.Linear(2, 1), nn.Linear(2, 1)
    optimizers = [OPTIMIZERS["sgd"](first), OPTIMIZERS["adam"](second)]
    before = [weights_of(first), weights_of(second)]
    x = torch.ones(4, 2)
    Engine(CPU).descend((first(x) + second(x)).sum(), optimizers)
    assert all(p.grad is None for net in (first, second) for p in net.parameters())
    for net, old in zip((first, second), before, strict=True):
        assert not torch.equal(weights_of(net), old)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_restored_state_gives_identical_further_steps(name: str) -> None:
    net = network()
    optimizer = OPTIMIZERS[name](net)
    trainable = Trainable({"net": net}, {"main": optimizer})
    train_steps(net, optimizer, range(3))
    set_rate(optimizer, 0.05)
    saved = copy.deepcopy((trainable.weights(), trainable.optimizer_state()))
    train_steps(net, optimizer, range(3, 6))

    other = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    other_optimizer = OPTIMIZERS[name](other)
    rate = other_optimizer.param_groups[0]["lr"]
    Trainable({"net": other}, {"main": other_optimizer}).restore(*saved)
    assert other_optimizer.param_groups[0]["lr"] is rate
    assert float(rate) == pytest.approx(0.05)
    train_steps(other, other_optimizer, range(3, 6))
    assert torch.equal(weights_of(other), weights_of(net))


def test_seeded_restores_the_global_generator() -> None:
    torch.manual_seed(1)
    torch.rand(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    torch.rand(1)
    with seeded(CPU, 5, "init"):
        first = torch.rand(3)
    assert torch.equal(torch.rand(3), expected)
    with seeded(CPU, 5, "init"):
        assert torch.equal(torch.rand(3), first)
    with seeded(CPU, 5, "other"):
        assert not torch.equal(torch.rand(3), first)
    with seeded(CPU, 6, "init"):
        assert not torch.equal(torch.rand(3), first)


def test_seeded_restores_after_an_error() -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    with pytest.raises(KeyError), seeded(CPU, 5):
        torch.rand(1)
        raise KeyError
    assert torch.equal(torch.get_rng_state(), state)


def test_limited_threads_restores() -> None:
    before = torch.get_num_threads()
    with limited_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
    with pytest.raises(KeyError), limited_threads(before + 1):
        raise KeyError
    assert torch.get_num_threads() == before


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it acts with glibc alone")
def test_kept_memory_is_not_asked_for_again() -> None:
    """Pages that the system must hand over for tensors that come and go: none while memory is kept, and all after."""

    def pages() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(3):
            torch.empty(10 * 2**20).fill_(1.0)  # 40 MiB: above what glibc keeps by itself
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    one = 40 * 2**20 // resource.getpagesize()
    if pages() < one:
        pytest.skip("this system has larger pages, or keeps memory by itself")
    with memory_kept(CPU):
        assert min(pages() for _ in range(5)) < one / 10, "the first ones are taken from the system"
    assert pages() > one
    with pytest.raises(KeyError), memory_kept(CPU):
        raise KeyError


def test_memory_is_kept_on_a_cpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", None)  # calling it would fail
    with memory_kept(torch.device("cuda")):
        pass
    monkeypatch.setattr("platform.libc_ver", lambda: ("", ""))
    with memory_kept(CPU):
        pass


def test_average_is_exponential_over_weights_and_buffers() -> None:
    net = network()
    average = Average(net, 0.9)
    expected: dict[str, Tensor] = {}
    for step in range(3):
        with torch.no_grad():
            for p in net.parameters():
                p.fill_(float(step))
            net[1].running_mean.fill_(float(10 * step))
        average.update(net)
        for name, value in net.state_dict().items():
            if value.is_floating_point():
                expected[name] = value.clone() if step == 0 else 0.9 * expected[name] + 0.1 * value
    averaged = average.module.state_dict()
    assert expected["0.weight"].flatten()[0] == pytest.approx(0.1 * 0.9 + 0.2)
    for name, value in expected.items():
        torch.testing.assert_close(averaged[name], value)


def test_place_keeps_values() -> None:
    net = nn.Conv2d(2, 3, 3)
    before = net.weight.detach().clone()
    placed = Engine(CPU).place(net)
    assert torch.equal(placed.weight, before)
    assert placed.weight.is_contiguous(memory_format=torch.channels_last)


def test_autocast_follows_the_precision() -> None:
    net, x = nn.Linear(2, 2), torch.ones(1, 2)
    for precision, dtype in (("32-true", torch.float32), ("bf16-mixed", torch.bfloat16)):
        with Engine(CPU, precision).autocast():
            assert net(x).dtype == dtype


def test_device_names(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_device("cpu") == CPU
    assert describe_device(CPU) == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == CPU
    with pytest.raises(ConfigError, match="device=cuda, but torch sees no GPU"):
        resolve_device("cuda")
    with pytest.raises(ConfigError, match=r"device=gpu is unknown.*auto, cpu, cuda"):
        resolve_device("gpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert resolve_device("auto") == torch.device("cuda")


@pytest.mark.parametrize(("kernel", "stride", "last"), [(3, 2, True), (1, 1, True), (1, 2, False)])
def test_strided_pointwise_convolutions_keep_the_plain_layout_on_a_cpu(kernel: int, stride: int, *, last: bool) -> None:
    """Their backward in channels_last crashed with torch 2.13: an abort, not an exception."""
    net = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 16, kernel, stride=stride))
    placed = Engine(CPU).place(net)
    assert placed[0].weight.is_contiguous(memory_format=torch.channels_last) == last
    placed(torch.randn(16, 8, 64, 64)).square().mean().backward()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can reset the peak of a process")
def test_the_peak_memory_of_a_training_leaves_out_what_came_before() -> None:
    with memory_given_back(CPU, counted=True):
        torch.ones(50_000_000)
        large = peak_memory(CPU)
    with memory_given_back(CPU, counted=True):
        small = peak_memory(CPU)
    assert {large["peak_memory_of"], small["peak_memory_of"]} == {"training"}
    assert int(large["peak_memory_bytes"]) - int(small["peak_memory_bytes"]) > 150_000_000
