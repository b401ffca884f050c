"""Compare `attncem serve` with MLServer in the same run: the same server half, client and connections.

MLServer takes no binary tensors, so both are asked in JSON, ours also in binary. It needs its own environment:

python3 -m venv mlserver-env
mlserver-env/bin/pip install mlserver onnxruntime
python scripts/serve_beside_mlserver.py mlserver-env results/serve_mlserver.json
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from serve_client import BINARY, JSON, Load, Served, Way, load
from serve_load import DIFFERENT, SHAPE, WIDTHS, graph_of, served, write_bundle

from attncem.deploy.serving.model import ServedModel

ROUNDS = 5
REQUESTS = 1000
CONNECTIONS = 32
RUNTIME = """
import numpy as np
import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse


class Half(MLModel):
    async def load(self):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.session = onnxruntime.InferenceSession(self.settings.parameters.uri, options)
        return True

    async def predict(self, payload):
        z = NumpyCodec.decode_input(payload.inputs[0]).astype(np.float32)
        logits = self.session.run(["logits"], {"z": z})[0]
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("logits", logits)])
"""


@contextmanager
def mlserver(environment: Path, bundle: Path, folder: Path, **batching: Any) -> Iterator[Served]:
    """MLServer with the server half of a bundle, in one process as ours; `batching` are its own options."""
    folder.mkdir()
    (folder / "half.py").write_text(RUNTIME, encoding="utf-8")
    half = {"name": bundle.name, "implementation": "half.Half", "parameters": {"uri": str(bundle / "server.onnx")}}
    (folder / "model-settings.json").write_text(json.dumps({**half, **batching}), encoding="utf-8")
    ports = dict(zip(("http_port", "grpc_port", "metrics_port"), free_ports(3), strict=True))
    settings = {"host": "127.0.0.1", **ports, "parallel_workers": 0, "debug": False}
    (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [str(environment.absolute() / "bin" / "mlserver"), "start", str(folder)]
    variables = {**os.environ, "PYTHONPATH": str(folder)}
    null = subprocess.DEVNULL
    process = subprocess.Popen(command, cwd=folder, text=True, env=variables, stdout=null, stderr=null)
    try:
        wait_for(f"http://127.0.0.1:{ports['http_port']}/v2/models/{bundle.name}/ready", process)
        yield Served(process, "127.0.0.1", ports["http_port"])
    finally:
        process.terminate()
        process.wait(60)


def free_ports(count: int) -> list[int]:
    """Ports of this machine that are free now."""
    with ExitStack() as opened:
        sockets = [opened.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(one.getsockname()[1]) for one in sockets]


def wait_for(url: str, process: subprocess.Popen[str]) -> None:
    """Wait at most a minute until a model is ready."""
    for _ in range(600):
        assert process.poll() is None, "the server did not start"
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise TimeoutError(url)


def compare(environment: Path, folder: Path, size: str) -> dict[str, Any]:
    """Medians over rounds of ours divided by MLServer's; in every round each is asked once, in turn."""
    bundle = write_bundle(folder / size, graph_of(WIDTHS[size]))
    model = ServedModel(bundle)
    z = np.random.default_rng(1).uniform(-1, 1, (DIFFERENT, *SHAPE)).astype(np.float32)
    expected = model.run(z)
    with (
        served(bundle) as ours,
        mlserver(environment, bundle, folder / f"{size}-plain") as plain,
        mlserver(environment, bundle, folder / f"{size}-batches", max_batch_size=32, max_batch_time=0.001) as batching,
    ):
        asked: dict[str, tuple[Served, Way]] = {
            "ours, binary": (ours, BINARY),
            "ours, JSON": (ours, JSON),
            "MLServer, JSON": (plain, JSON),
            "MLServer with batches, JSON": (batching, JSON),
        }
        rounds: dict[str, list[Load]] = {name: [] for name in asked}
        for _ in range(ROUNDS + 1):
            for name, (server, way) in asked.items():
                rounds[name].append(load(server, size, z, expected, REQUESTS, CONNECTIONS, way))
    return {name: against(loads[1:], rounds["MLServer, JSON"][1:]) for name, loads in rounds.items()}


def against(loads: list[Load], others: list[Load]) -> dict[str, Any]:
    """One server relative to another, round by round."""
    pairs = list(zip(loads, others, strict=True))
    return {
        "wrong answers": sum(one.wrong for one in loads),
        "throughput": round(statistics.median(one.per_second / other.per_second for one, other in pairs), 2),
        "p99": round(statistics.median(one.p99 / other.p99 for one, other in pairs), 2),
    }


def table_of(result: dict[str, Any]) -> str:
    """The table of docs/serve.md."""
    lines = ["| server half | asked | throughput | p99 |", "|---|---|--:|--:|"]
    for size, servers in result["models"].items():
        lines += [f"| {size} | {name} | {row['throughput']:g} | {row['p99']:g} |" for name, row in servers.items()]
    return "\n".join(lines)


def main() -> None:
    """Compare for every size of the server half, and write the result."""
    environment, out = map(Path, sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        models = {size: compare(environment, Path(folder), size) for size in WIDTHS}
    command = "python scripts/serve_beside_mlserver.py mlserver-env results/serve_mlserver.json"
    facts = {"command": command, "rounds": ROUNDS, "requests": REQUESTS, "connections": CONNECTIONS, "z": list(SHAPE)}
    out.write_text(json.dumps({**facts, "models": models}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
