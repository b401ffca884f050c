"""The process of a foreign ONNX file: same numbers, limits that name themselves, and an end with its parent."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from onnx import ModelProto, TensorProto, helper, numpy_helper
from torch import nn

from attncem.base.types import RunError
from attncem.config.options.encoder import EncoderLimits
from attncem.models import onnx_process, trial
from attncem.models.onnx_child import fill, receive, send
from attncem.models.onnx_export import export_onnx
from attncem.models.onnx_file import read_onnx
from attncem.models.onnx_network import OnnxNetwork
from attncem.models.onnx_process import LimitMet, OnnxProcess
from onnx_making import WEIGHT, conv, deep, endless, huge, model, swelling, write

X = torch.rand(6, 1, 28, 28, generator=torch.Generator().manual_seed(0))
EXPECTED = F.conv2d(X, torch.from_numpy(WEIGHT), stride=7)


def limits(seconds: float = 60.0, memory: float = 4.0) -> EncoderLimits:
    """Limits of any size: tests wait for less than a second."""
    return EncoderLimits.model_construct(seconds=seconds, memory=memory)


def opened(file: Path, given: EncoderLimits | None = None) -> OnnxNetwork:
    process = OnnxProcess(given or limits())
    return OnnxNetwork(process.read(file), process)


def pid_of(network: OnnxNetwork) -> int:
    session: Any = network._session
    return int(session._child._process.pid)


def runs(pid: int) -> bool:
    """Whether a process runs: one that has ended and is not reaped counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ends(pid: int, seconds: float = 10) -> bool:
    until = time.monotonic() + seconds
    while runs(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not runs(pid)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("apart") / "a.onnx", model([conv()]))


@pytest.fixture(scope="module")
def network(file: Path) -> OnnxNetwork:
    return opened(file)


def test_a_process_gives_the_numbers_of_this_one(file: Path, network: OnnxNetwork) -> None:
    torch.testing.assert_close(network(X), EXPECTED)
    assert network(X).flatten()[0].item() == network(X[:1]).flatten()[0].item()
    network(X).add_(1)  # the answer may be written to


def test_copies_share_the_process_and_threads_take_turns(network: OnnxNetwork) -> None:
    other = copy.deepcopy(network)
    assert pid_of(other) == pid_of(network)
    answers: list[torch.Tensor] = []
    threads = [threading.Thread(target=lambda: answers.append(other(X))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 4
    for answer in answers:
        torch.testing.assert_close(answer, EXPECTED)


def test_a_pickled_copy_has_a_process_of_its_own_that_ends_with_it(network: OnnxNetwork) -> None:
    other = pickle.loads(pickle.dumps(network))
    torch.testing.assert_close(other(X), EXPECTED)
    pid = pid_of(other)
    assert pid != pid_of(network) and runs(pid)
    del other
    gc.collect()
    with pytest.raises(ProcessLookupError):  # reaped, too
        os.kill(pid, 0)


def test_a_forked_copy_neither_uses_nor_ends_the_process(network: OnnxNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    network(X)
    session: Any = network._session
    child = session._child
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: 1)
        assert not child.usable
        onnx_process._end(child._process, child._pid)
    assert child.usable


def test_a_process_that_was_killed_is_started_again(network: OnnxNetwork) -> None:
    network(X)
    session: Any = network._session
    session._child._process.kill()
    session._child._process.wait()
    torch.testing.assert_close(network(X), EXPECTED)


def test_an_interrupt_in_the_middle_of_an_answer_ends_the_process(
    network: OnnxNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    network(X)
    pid = pid_of(network)

    def interrupted(stream: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as once:
        once.setattr(onnx_process, "receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            network(X)
    assert not runs(pid)
    torch.testing.assert_close(network(X[:2]), EXPECTED[:2], msg="not the answer to the question before")


def test_the_process_ends_in_the_middle_of_work_when_its_pipe_closes(tmp_path: Path) -> None:
    process = onnx_process._start()
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    file = write(tmp_path / "a.onnx", endless())
    read = {"what": "read", "path": str(file), "output": None, "seconds": 60}
    with process.stdout, process.stderr:
        send(process.stdin, {"what": "begin", "memory": 0, "seconds": 60})
        send(process.stdin, read)
        receive(process.stdout)
        facts = receive(process.stdout)
        graph = bytearray(facts["bytes"])
        fill(process.stdout, memoryview(graph))
        send(process.stdin, {**facts, "what": "load", "threads": 1, "seconds": 60}, graph)
        assert "error" not in receive(process.stdout)
        shape = {"shape": list(X.shape), "type": "float32", "largest": 1000, "seconds": 60}
        send(process.stdin, {"what": "run", **shape}, X.numpy().reshape(-1))
        time.sleep(0.2)
        assert process.poll() is None, "it works"
        process.stdin.close()
        assert process.wait(10) == 1


_VICTIM = """
import sys, threading, torch
from pathlib import Path
from attncem.config.options.encoder import EncoderLimits
from attncem.models.onnx_network import OnnxNetwork
from attncem.models.onnx_process import OnnxProcess
process = OnnxProcess(EncoderLimits())
network = OnnxNetwork(process.read(Path(sys.argv[1])), process)
print(process._child._process.pid, flush=True)
network(torch.zeros(6, 1, 28, 28))
"""


@pytest.mark.slow
def test_the_process_ends_when_its_parent_is_killed_in_the_middle_of_work(tmp_path: Path) -> None:
    file = write(tmp_path / "a.onnx", endless())
    parent = subprocess.Popen([sys.executable, "-c", _VICTIM, str(file)], stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        time.sleep(0.2)
        assert runs(pid)
        parent.kill()
    assert ends(pid)


# limits


@pytest.mark.parametrize(
    ("made", "met", "doing"),
    [
        (endless(), "0.3 s", "it ran a batch of 6"),
        (deep(26), "0.3 s", "it loaded the file"),
        (huge(), "0.25 GiB of memory", "it ran a batch of 6"),
    ],
    ids=["loop", "functions", "constant"],
)
def test_a_limit_that_is_met_names_itself(tmp_path: Path, made: ModelProto, met: str, doing: str) -> None:
    file, option = write(tmp_path / "a.onnx", made), "seconds" if met.endswith("s") else "memory"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(LimitMet) as caught:
        opened(file, limits(0.3 if option == "seconds" else 30, 0.25))(X)
    said = str(caught.value)
    assert f"a.onnx: its process met the limit of {met} while {doing}" in said
    assert f"Set --encoder-{option}, in Python limits={{'{option}': …}}" in said
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000, "kB, in this process"


def test_a_file_that_swells_when_it_is_read_meets_the_limit(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").write_bytes(swelling(2**22))
    with pytest.raises(LimitMet, match=r"0\.25 GiB of memory while it read the file"):
        OnnxProcess(limits(memory=0.25)).read(tmp_path / "a.onnx")


def test_features_that_are_too_large_are_not_sent(network: OnnxNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "LARGEST", 47)
    with pytest.raises(RunError, match="z has 48 values for each image, more than 47: cut it elsewhere"):
        network(X)


def test_without_limits_of_memory_only_time_is_limited(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_process, "LIMITS_MEMORY", False)
    network = opened(file, limits(memory=0.0001))
    torch.testing.assert_close(network(X), EXPECTED)


def test_a_process_writes_no_file_and_has_its_limits(network: OnnxNetwork) -> None:
    network(X)
    told = Path(f"/proc/{pid_of(network)}/limits").read_text()
    rows = {line[:26].strip(): line[26:].split()[:2] for line in told.splitlines()}
    assert rows["Max file size"] == rows["Max core file size"] == ["0", "0"]
    soft, hard = rows["Max data size"]
    assert soft == hard and 4 * 2**30 < int(soft) < 5 * 2**30


def test_other_answers_are_errors_of_the_file(tmp_path: Path) -> None:
    words = helper.make_node("Cast", ["x"], ["z"], to=TensorProto.STRING)
    with pytest.raises(RunError, match=r"a\.onnx: z is of type (object|str)"):
        opened(write(tmp_path / "a.onnx", model([words], weights=())))(X)
    wrong = [conv(output="y"), helper.make_node("MatMul", ["y", "w2"], ["z"])]
    weights = (numpy_helper.from_array(WEIGHT, "w"), numpy_helper.from_array(np.zeros((5, 2), np.float32), "w2"))
    with pytest.raises(RunError, match=r"b\.onnx cannot be run"):
        opened(write(tmp_path / "b.onnx", model(wrong, weights=weights)))(X)


@pytest.mark.slow
def test_a_batch_costs_little_more_than_in_this_process(tmp_path: Path) -> None:
    """Median of batches that take turns, so that a busy machine slows both."""

    def block(before: int, after: int) -> list[nn.Module]:
        return [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.Conv2d(after, after, 3, padding=1), nn.ReLU()]

    vgg = nn.Sequential(*block(3, 64), nn.MaxPool2d(2), *block(64, 128), nn.MaxPool2d(2))
    (tmp_path / "a.onnx").write_bytes(export_onnx(vgg, torch.rand(2, 3, 32, 32)))
    here, apart = OnnxNetwork(read_onnx(tmp_path / "a.onnx")), opened(tmp_path / "a.onnx")
    x, seconds = torch.rand(250, 3, 32, 32), (list[float](), list[float]())
    for _ in range(9):
        for network, taken in zip((here, apart), seconds, strict=True):
            began = time.perf_counter()
            network(x)
            taken.append(time.perf_counter() - began)
    assert torch.equal(here(x), apart(x))
    ratio = median(seconds[1]) / median(seconds[0])
    sys.stdout.write(f"\na batch in its process: {ratio:.2f} times as long\n")
    assert ratio < 1.3
