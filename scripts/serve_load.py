"""Load a server of bundles: throughput and times relative to onnxruntime alone in the same run, and memory.

Client and server are separate processes on this machine, which share its cores. In every round onnxruntime alone and
each server are measured in turn; a ratio is the median over the rounds. Every answer is compared with that of
onnxruntime. `serve_client.py` asks; `serve_floor.py` has the servers that show how little an answer over HTTP can take.

python scripts/serve_load.py results/serve_load.json [--requests 50000] [--connections 32] [--idle 10000]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from serve_client import Load, Numbers, Served, load

from attncem.deploy.serving.model import ServedModel
from attncem_edge.manifest import FeatureFacts, ImageFacts, Manifest

SHAPE = (8, 16, 16)
CLASSES = 10
WIDTHS = {"small": (16, 32, 32), "medium": (64, 128, 128), "vgg11": (256, 512, 512)}
"""Channels of the pairs of convolutions of a server half; the last are those of VGG11 for CIFAR."""
WAYS = {"batching": (), "without batching": ("--batch", "1")}
"""Options of the server."""
DIFFERENT = 64
"""Different z that are sent in turn."""
FLOORS = {"empty app": "app", "onnxruntime behind bare HTTP": "bare"}
"""Servers that do less than ours: words of scripts/serve_floor.py."""
WARM = 5000
"""Requests before memory is measured for the first time."""
ROUNDS = 10


def graph_of(widths: Sequence[int]) -> bytes:
    """A server half in ONNX: pairs of 3x3 convolutions, each pair followed by pooling, then one matrix."""
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    nodes, weights, last, channels = [], [], "z", SHAPE[0]

    def weight(name: str, *shape: int) -> str:
        numbers = random.normal(size=shape) * (2 / np.prod(shape[1:])) ** 0.5
        weights.append(numpy_helper.from_array(numbers.astype(np.float32), name))
        return name

    for level, width in enumerate(widths):
        for half in "ab":
            name = f"{level}{half}"
            made = weight(f"w{name}", width, channels, 3, 3)
            nodes.append(helper.make_node("Conv", [last, made], [f"c{name}"], pads=[1, 1, 1, 1]))
            nodes.append(helper.make_node("Relu", [f"c{name}"], [f"r{name}"]))
            last, channels = f"r{name}", width
        nodes.append(helper.make_node("MaxPool", [last], [f"p{level}"], kernel_shape=[2, 2], strides=[2, 2]))
        last = f"p{level}"
    nodes.append(helper.make_node("GlobalAveragePool", [last], ["mean"]))
    nodes.append(helper.make_node("Flatten", ["mean"], ["flat"], axis=1))
    nodes.append(helper.make_node("MatMul", ["flat", weight("out", channels, CLASSES)], ["logits"]))
    taken = helper.make_tensor_value_info("z", TensorProto.FLOAT, ["batch", *SHAPE])
    given = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", CLASSES])
    graph = helper.make_graph(nodes, "server", [taken], [given], weights)
    made_model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(made_model.SerializeToString())


def write_bundle(folder: Path, graph: bytes) -> Path:
    """A bundle without a client, for the server alone."""
    folder.mkdir()
    (folder / "server.onnx").write_bytes(graph)
    manifest = Manifest(
        name=folder.name,
        fingerprint=hashlib.sha256(graph).hexdigest(),
        image=ImageFacts(3, 32, 32),
        feature=FeatureFacts(list(SHAPE), -1.0, 1.0),
        labels=[str(number) for number in range(CLASSES)],
        channel=[{"name": "gaussian", "noise_std": 0.1, "noise": "fresh"}],
        files={"server.onnx": hashlib.sha256(graph).hexdigest()},
    )
    (folder / "manifest.json").write_text(manifest.to_text(), encoding="utf-8")
    return folder


@contextmanager
def served(bundle: Path, *options: str) -> Iterator[Served]:
    """`attncem serve` on a free port of this machine."""
    with started([sys.executable, "-m", "attncem", "serve", str(bundle), "--port", "0", *options]) as server:
        yield server


@contextmanager
def floor(bundle: Path, way: str) -> Iterator[Served]:
    """A server that does less, on a free port of this machine."""
    with started([sys.executable, str(Path(__file__).with_name("serve_floor.py")), way, str(bundle)]) as server:
        yield server


@contextmanager
def started(command: Sequence[str]) -> Iterator[Served]:
    """A server process, whose first line is its address."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        place = re.match(r"http://(\S+):(\d+)/", process.stdout.readline())
        assert place is not None, "the server did not start"
        yield Served(process, place[1], int(place[2]))
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


def alone(model: ServedModel, z: Numbers, seconds: float) -> Load:
    """Onnxruntime in this process, one z at a time."""
    result, start, busy = Load(), time.perf_counter(), time.process_time()
    while time.perf_counter() - start < seconds:
        one = z[len(result.times) % len(z)][None]
        began = time.perf_counter()
        model.run(one)
        result.times.append(time.perf_counter() - began)
    result.seconds, result.processor = time.perf_counter() - start, time.process_time() - busy
    return result


@dataclass
class Measured:
    """One server over all rounds: its loads, and onnxruntime alone right before each."""

    server: Served
    loads: list[Load] = field(default_factory=list)
    alone: list[Load] = field(default_factory=list)
    single: list[Load] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Requests of all rounds."""
        return sum(len(one.times) for one in self.loads)

    def median(self, ratio: Callable[[Load, Load], float], loads: Sequence[Load] | None = None) -> float:
        """The median over the rounds of a load against onnxruntime alone."""
        return statistics.median(map(ratio, self.loads if loads is None else loads, self.alone))

    def throughput(self) -> float:
        """Answers in the time of one of onnxruntime alone."""
        return self.median(lambda one, bare: one.per_second / bare.per_second)

    def work(self) -> float:
        """Processor time of an answer as a multiple of that of onnxruntime alone."""
        return self.median(lambda one, bare: one.work / bare.work)

    def grown(self) -> dict[str, float]:
        """The growth of its memory, if it was asked often enough."""
        if len(self.memory) < 2:
            return {}
        return {"memory at the end over that after 5,000": round(self.memory[-1] / self.memory[0], 3)}

    def row(self, behind_http: float) -> dict[str, Any]:
        """What is reported; ``behind_http`` is the throughput of onnxruntime behind bare HTTP."""
        return {
            "requests": self.count,
            "wrong answers": sum(one.wrong for one in (*self.loads, *self.single)),
            "throughput": round(self.throughput(), 3),
            "throughput over onnxruntime behind bare HTTP": round(self.throughput() / behind_http, 3),
            "processor time": round(self.work(), 2),
            "generator's share of processor time": round(statistics.median(one.share for one in self.loads), 2),
            "p99": round(self.median(lambda one, bare: one.p99 / bare.p99), 1),
            "p99 of one connection": round(self.median(lambda one, bare: one.p99 / bare.p99, self.single), 2),
            **self.grown(),
        }


def measure(bundle: Path, count: int, connections: int, rounds: int = ROUNDS, seconds: float = 1.0) -> dict[str, Any]:
    """Ratios for one model; in each round onnxruntime alone and one server take turns."""
    model = ServedModel(bundle)
    z = np.random.default_rng(1).uniform(-1, 1, (DIFFERENT, *SHAPE)).astype(np.float32)
    expected = model.run(z)
    with ExitStack() as opened:
        servers = {way: Measured(opened.enter_context(served(bundle, *it))) for way, it in WAYS.items()}
        floors = {name: Measured(opened.enter_context(floor(bundle, way))) for name, way in FLOORS.items()}
        for _ in range(rounds):
            for title, one in {**servers, **floors}.items():
                right = None if FLOORS.get(title) == "app" else expected
                one.alone.append(alone(model, z, seconds))
                one.loads.append(load(one.server, model.name, z, right, count // rounds, connections))
                one.single.append(load(one.server, model.name, z, right, max(count // 50 // rounds, 10), 1))
                if one.count >= WARM:
                    one.memory.append(one.server.memory())
    return rows_of(servers, floors)


def rows_of(servers: dict[str, Measured], floors: dict[str, Measured]) -> dict[str, Any]:
    """What is reported of one model."""
    behind_http = floors["onnxruntime behind bare HTTP"].throughput()
    rows: dict[str, Any] = {title: one.row(behind_http) for title, one in servers.items()}
    rows["floors"] = {
        title: {"throughput": round(one.throughput(), 3), "processor time": round(one.work(), 2)}
        for title, one in floors.items()
    }
    times = [time for one in (*servers.values(), *floors.values()) for bare in one.alone for time in bare.times]
    rows["milliseconds of onnxruntime alone"] = round(1000 * statistics.median(times), 3)
    print(rows, flush=True)
    return rows


def measure_idle(bundle: Path, count: int) -> dict[str, Any]:
    """One busy connection beside `count` that send nothing, relative to one alone."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + 200), hard))
    model = ServedModel(bundle)
    z = np.random.default_rng(1).uniform(-1, 1, (DIFFERENT, *SHAPE)).astype(np.float32)
    expected = model.run(z)
    with served(bundle, "--connections", str(count + 100), "--seconds", "600") as server, ExitStack() as opened:
        before = load(server, model.name, z, expected, 1000, 1)
        memory = server.memory()
        for _ in range(count):
            opened.enter_context(socket.create_connection((server.host, server.port)))
        beside = load(server, model.name, z, expected, 1000, 1)
        grown = server.memory() - memory
    return {
        "idle connections": count,
        "wrong answers": before.wrong + beside.wrong,
        "median time": round(statistics.median(beside.times) / statistics.median(before.times), 2),
        "kB of memory for each": round(grown / count, 1),
    }


COLUMNS = {
    "throughput": "throughput",
    "throughput over onnxruntime behind bare HTTP": "over bare HTTP",
    "processor time": "processor time",
    "p99": "p99",
    "p99 of one connection": "p99 of one connection",
    "generator's share of processor time": "generator",
}
"""What the table of docs/serve.md has of a server, and how it calls it."""


def table_of(result: dict[str, Any]) -> str:
    """The table of docs/serve.md."""
    lines = [
        "| server half | one answer alone | | " + " | ".join(COLUMNS.values()) + " |",
        "|---|--:|---|" + "--:|" * len(COLUMNS),
    ]
    for name, rows in result["models"].items():
        start = f"| {name} | {rows['milliseconds of onnxruntime alone']:g} ms |"
        for title in (*WAYS, *FLOORS):
            row = rows["floors"].get(title) or rows[title]
            numbers = " | ".join(f"{row[key]:g}" if key in row else "" for key in COLUMNS)
            lines.append(f"{start} {title} | {numbers} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure both models and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--requests", type=int, default=50_000, help="of the smallest model; a fifth of the next")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--idle", type=int, default=10_000, help="connections that send nothing")
    known = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        bundles = {name: write_bundle(Path(folder) / name, graph_of(widths)) for name, widths in WIDTHS.items()}
        idle = measure_idle(bundles["small"], known.idle)
        counts = (known.requests // 5**level for level in range(len(WIDTHS)))
        models = {
            name: measure(bundle, count, known.connections)
            for (name, bundle), count in zip(bundles.items(), counts, strict=True)
        }
    command = " ".join(["python scripts/serve_load.py", *(arguments or sys.argv[1:])])
    result = {"command": command, "connections": known.connections, "z": list(SHAPE), "models": models, "idle": idle}
    known.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(table_of(result))


if __name__ == "__main__":
    main()
