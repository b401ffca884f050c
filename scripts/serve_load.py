"""Load a server of bundles: throughput and times relative to onnxruntime alone in the same run, and memory.

Client and server are separate processes on this machine. Every answer is compared with that of onnxruntime.

python scripts/serve_load.py results/serve_load.json [--requests 50000] [--connections 32] [--idle 10000]
"""

from __future__ import annotations

import argparse
import asyncio
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
from numpy.typing import NDArray

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
WARM = 5000
"""Requests before memory is measured for the first time."""
Numbers = NDArray[np.float32]


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


@dataclass
class Served:
    """A server process and its address."""

    process: subprocess.Popen[str]
    host: str
    port: int

    def memory(self) -> int:
        """Its resident memory in kB."""
        text = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return int(re.findall(r"VmRSS:\s+(\d+)", text)[0])


@contextmanager
def served(bundle: Path, *options: str) -> Iterator[Served]:
    """`attncem serve` on a free port of this machine."""
    command = [sys.executable, "-m", "attncem", "serve", str(bundle), "--port", "0", *options]
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


def binary_request(name: str, z: Numbers) -> bytes:
    """A whole HTTP request for one z in binary."""
    raw = z.astype("<f4").tobytes()
    tensor = {"name": "z", "datatype": "FP32", "shape": list(z.shape), "parameters": {"binary_data_size": len(raw)}}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    lines = f"POST /v2/models/{name}/infer HTTP/1.1\r\nHost: load\r\nContent-Length: {len(head) + len(raw)}\r\n"
    return f"{lines}Inference-Header-Content-Length: {len(head)}\r\n\r\n".encode() + head + raw


async def answer_of(reader: asyncio.StreamReader) -> tuple[int, bytes, int]:
    """Status, body, and length of its JSON part."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(re.findall(rb"\r\ncontent-length: (\d+)", head)[0])
    json_part = re.findall(rb"inference-header-content-length: (\d+)", head)
    return int(head.split(b" ", 2)[1]), await reader.readexactly(length), int(json_part[0]) if json_part else length


def json_request(name: str, z: Numbers) -> bytes:
    """A whole HTTP request for one z in JSON."""
    tensor = {"name": "z", "datatype": "FP32", "shape": list(z.shape), "data": z.ravel().tolist()}
    body = json.dumps({"inputs": [tensor]}).encode()
    lines = f"POST /v2/models/{name}/infer HTTP/1.1\r\nHost: load\r\nContent-Length: {len(body)}\r\n"
    return f"{lines}Content-Type: application/json\r\n\r\n".encode() + body


@dataclass(frozen=True)
class Way:
    """How z and logits travel: the bytes of a request, and the logits of an answer from its body and JSON part."""

    request: Callable[[str, Numbers], bytes]
    logits: Callable[[bytes, int], Numbers]


BINARY = Way(binary_request, lambda body, size: np.frombuffer(body[size:], "<f4"))
JSON = Way(json_request, lambda body, size: np.array(json.loads(body)["outputs"][0]["data"], np.float32).ravel())


@dataclass
class Load:
    """What a number of connections asked, and what came back."""

    seconds: float = 0.0
    times: list[float] = field(default_factory=list)
    wrong: int = 0
    memory: list[int] = field(default_factory=list)

    @property
    def per_second(self) -> float:
        """Answers in a second."""
        return len(self.times) / self.seconds

    @property
    def p99(self) -> float:
        """Seconds within which 99 % of the answers came."""
        return statistics.quantiles(self.times, n=100)[98]


async def load(
    server: Served, name: str, z: Numbers, expected: Numbers, count: int, connections: int, way: Way = BINARY
) -> Load:
    """Ask `count` times over so many connections, each one request at a time."""
    requests = [way.request(name, one[None]) for one in z]
    result, left, start = Load(), iter(range(count)), time.perf_counter()

    async def one_connection() -> None:
        reader, writer = await asyncio.open_connection(server.host, server.port)
        for number in left:
            place = number % len(requests)
            began = time.perf_counter()
            writer.write(requests[place])
            status, body, size = await answer_of(reader)
            result.times.append(time.perf_counter() - began)
            right = status == 200 and np.allclose(way.logits(body, size), expected[place], atol=1e-4)
            result.wrong += not right
            if len(result.times) in (WARM, count):
                result.memory.append(server.memory())
        writer.close()

    await asyncio.gather(*(one_connection() for _ in range(connections)))
    result.seconds = time.perf_counter() - start
    return result


def alone(model: ServedModel, z: Numbers, seconds: float) -> Load:
    """Onnxruntime in this process, one z at a time."""
    result, start = Load(), time.perf_counter()
    while time.perf_counter() - start < seconds:
        one = z[len(result.times) % len(z)][None]
        began = time.perf_counter()
        model.run(one)
        result.times.append(time.perf_counter() - began)
    result.seconds = time.perf_counter() - start
    return result


def measure(bundle: Path, count: int, connections: int, seconds: float = 5.0) -> dict[str, Any]:
    """Ratios for one model, with and without batching; onnxruntime alone is measured before and after each."""
    model = ServedModel(bundle)
    z = np.random.default_rng(1).uniform(-1, 1, (DIFFERENT, *SHAPE)).astype(np.float32)
    expected = model.run(z)
    rows: dict[str, Any] = {}
    for title, options in WAYS.items():
        before = alone(model, z, seconds)
        with served(bundle, *options) as server:
            one = asyncio.run(load(server, model.name, z, expected, max(count // 50, 100), 1))
            many = asyncio.run(load(server, model.name, z, expected, count, connections))
        after = alone(model, z, seconds)
        rows[title] = ratios(before, after, one, many)
        print(bundle.name, title, rows[title], flush=True)
    rows["milliseconds of onnxruntime alone"] = round(1000 * statistics.median(before.times + after.times), 3)
    return rows


def ratios(before: Load, after: Load, one: Load, many: Load) -> dict[str, Any]:
    """Throughput and times of a server relative to onnxruntime alone, and the growth of its memory."""
    alone_rate = (before.per_second + after.per_second) / 2
    alone_p99 = (before.p99 + after.p99) / 2
    grown = {"memory at the end over that after 5,000": round(many.memory[-1] / many.memory[0], 3)}
    return {
        "requests": len(many.times),
        "wrong answers": many.wrong + one.wrong,
        "throughput": round(many.per_second / alone_rate, 3),
        "p99": round(many.p99 / alone_p99, 1),
        "p99 of one connection": round(one.p99 / alone_p99, 2),
        **(grown if len(many.memory) > 1 else {}),
    }


def measure_idle(bundle: Path, count: int) -> dict[str, Any]:
    """One busy connection beside `count` that send nothing, relative to one alone."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + 200), hard))
    model = ServedModel(bundle)
    z = np.random.default_rng(1).uniform(-1, 1, (DIFFERENT, *SHAPE)).astype(np.float32)
    expected = model.run(z)
    with served(bundle, "--connections", str(count + 100), "--seconds", "600") as server, ExitStack() as opened:
        before = asyncio.run(load(server, model.name, z, expected, 1000, 1))
        memory = server.memory()
        for _ in range(count):
            opened.enter_context(socket.create_connection((server.host, server.port)))
        beside = asyncio.run(load(server, model.name, z, expected, 1000, 1))
        grown = server.memory() - memory
    return {
        "idle connections": count,
        "wrong answers": before.wrong + beside.wrong,
        "median time": round(statistics.median(beside.times) / statistics.median(before.times), 2),
        "kB of memory for each": round(grown / count, 1),
    }


def table_of(result: dict[str, Any]) -> str:
    """The table of docs/serve.md."""
    lines = [
        "| server half | one answer alone | | throughput | p99 | p99 of one connection |",
        "|---|--:|---|--:|--:|--:|",
    ]
    for name, rows in result["models"].items():
        alone_time = f"{rows['milliseconds of onnxruntime alone']:g} ms"
        for title in WAYS:
            row = rows[title]
            numbers = " | ".join(f"{row[key]:g}" for key in ("throughput", "p99", "p99 of one connection"))
            lines.append(f"| {name} | {alone_time} | {title} | {numbers} |")
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
