"""Ask a real Triton with the client of a device, in an environment of Triton's own.

python scripts/edge_against_triton.py results/edge_triton.json

Needs Linux, a package registry, and the shared libpython of this Python's version (Debian: libpython3.11). PyTriton
brings tritonserver with its Python backend alone, without that for ONNX. So in the configuration that `attncem export
--triton` writes, the line of the platform is replaced, and a model of a few lines runs the same file in onnxruntime.
The bundle is that of the demo's model.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from edge_costs import run
from numpy.typing import NDArray
from serve_beside_mlserver import free_ports, wait_for

import attncem
from attncem.base.progress import silent
from attncem.deploy.comparing import images_of
from attncem.deploy.exporting import export
from attncem.deploy.triton import write_triton
from attncem.judging.opening import OpenRun, open_run
from attncem_edge import Client, ServerError
from attncem_edge.manifest import read_manifest
from attncem_edge.wire import Request, Server, make_request

COMMAND = "python scripts/edge_against_triton.py results/edge_triton.json"
PACKAGES = ("nvidia-pytriton", "onnxruntime")
PICTURES = 200
DOWN, RETRIES = 1.0, 8
"""Seconds from a kill of Triton to its next start, and retries of the client, enough for the time that both take."""
CLOSE = 1e-4
"""Largest difference of logits."""
PLATFORM, BACKEND = 'platform: "onnxruntime_onnx"', 'backend: "python"'
MODEL = """
from pathlib import Path

import onnxruntime
import triton_python_backend_utils as triton


class TritonPythonModel:
    def initialize(self, args):
        self.session = onnxruntime.InferenceSession(str(Path(__file__).with_name("model.onnx")))

    def execute(self, requests):
        return [self.answer(triton.get_input_tensor_by_name(request, "z").as_numpy()) for request in requests]

    def answer(self, z):
        logits = self.session.run(["logits"], {"z": z})[0]
        return triton.InferenceResponse([triton.Tensor("logits", logits)])
"""
PLACES = "import json, sys, sysconfig; print(json.dumps([sys.version_info[:2], sysconfig.get_path('purelib')]))"
VERSIONS = (
    "import json, sys; from importlib.metadata import version; print(json.dumps(list(map(version, sys.argv[1:]))))"
)
Numbers = NDArray[np.float32]


class Triton:
    """A real Triton with one model on a port of this machine; it can be killed and started again."""

    def __init__(self, python: Path, folder: Path, repository: Path, name: str) -> None:
        (major, minor), packages = json.loads(run(python, "-c", PLACES))
        home = Path(packages) / "pytriton" / "tritonserver"
        backends = shutil.copytree(home / "backends", folder / "backends")
        stub = home / "python_backend_stubs" / f"{major}.{minor}" / "triton_python_backend_stub"
        shutil.copy(stub, backends / "python")
        (port,) = free_ports(1)
        self.url, self.name = f"http://127.0.0.1:{port}", name
        self._memory = f"attncem_{os.getpid()}_"
        self._log = folder / "log"
        programs = f"{python.parent}{os.pathsep}{os.environ['PATH']}"  # Triton's Python takes its packages from there
        libraries = Path(packages) / "nvidia_pytriton.libs"
        self._variables = {**os.environ, "PATH": programs, "LD_LIBRARY_PATH": str(libraries)}
        self._command = [
            str(home / "bin" / "tritonserver"),
            f"--model-repository={repository}",
            f"--backend-directory={backends}",
            f"--backend-config=python,shm-region-prefix-name={self._memory}",
            "--disable-auto-complete-config",
            "--http-address=127.0.0.1",
            f"--http-port={port}",
            "--allow-grpc=false",
            "--allow-metrics=false",
        ]

    def start(self) -> None:
        """Start it, and wait until it takes requests."""
        with self._log.open("a", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, text=True, env=self._variables, start_new_session=True
            )
        try:
            wait_for(f"{self.url}/v2/models/{self.name}/ready", self._process)
        except BaseException:
            self.kill()
            lines = self._log.read_text(encoding="utf-8").splitlines()
            print(*(line for line in lines if line[:1] not in ("|", "+")), sep="\n", file=sys.stderr)
            raise

    def kill(self) -> None:
        """Kill it with the processes that it started, and remove the shared memory that they leave."""
        with suppress(ProcessLookupError):  # it ended itself
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(60)
        for file in Path("/dev/shm").glob(f"{self._memory}*"):
            file.unlink()

    def get(self, path: str) -> Any:
        """What it answers at an address."""
        with urllib.request.urlopen(f"{self.url}/{path}", timeout=10) as answer:
            return json.load(answer)

    def answered(self) -> int:
        """How many rows it says that it answered since its start."""
        (statistics,) = self.get(f"v2/models/{self.name}/stats")["model_stats"]
        return int(statistics["inference_stats"]["success"]["count"])


@contextmanager
def started(python: Path, folder: Path, bundle: Path) -> Iterator[Triton]:
    """Triton with the repository that is written for a bundle, until the end of the block."""
    model = write_triton(bundle, folder / "models")
    config = (model / "config.pbtxt").read_text(encoding="utf-8")
    assert config.count(PLATFORM) == 1
    (model / "config.pbtxt").write_text(config.replace(PLATFORM, BACKEND), encoding="utf-8")
    (model / "1" / "model.py").write_text(MODEL, encoding="utf-8")
    triton = Triton(python, folder, folder / "models", model.name)
    triton.start()
    try:
        read = triton.get(f"v2/models/{triton.name}/config")["parameters"]["fingerprint"]["string_value"]
        assert read == read_manifest(bundle).fingerprint, "Triton read another configuration"
        yield triton
    finally:
        triton.kill()


class Recorder(Server):
    """A device's connection, which notes every attempt and every answer."""

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self.attempts: list[Request] = []
        self.answers: list[tuple[Numbers, Numbers]] = []

    def _exchange(self, path: str, request: Request) -> Any:
        self.attempts.append(request)
        return super()._exchange(path, request)

    def ask(self, model: str, request: Request, classes: int) -> Numbers:
        """Ask as the client does, and note the z that was sent and its logits."""
        logits = super().ask(model, request, classes)
        (z,) = json.loads(request.body[: request.head])["inputs"]
        self.answers.append((np.frombuffer(request.body[request.head :], np.float32).reshape(z["shape"]), logits))
        return logits


@contextmanager
def device(triton: Triton, bundle: Path, folder: Path) -> Iterator[tuple[Client, Recorder]]:
    """The client of a device, and its connection."""
    client, recorder = Client(bundle, url=triton.url, device=folder), Recorder(triton.url, retries=RETRIES)
    client._server = recorder
    with client:
        yield client, recorder


def against_torch(opened: OpenRun, recorder: Recorder, labels: Sequence[str]) -> dict[str, Any]:
    """The last labels, and their logits, compared with those of torch for the z that were sent."""
    z, there = map(np.stack, zip(*recorder.answers[-len(labels) :], strict=True))
    with torch.inference_mode():
        here = opened.model.predict(torch.from_numpy(z[:, 0])).numpy()
    equal = sum(label == opened.name_of(int(row.argmax())) for label, row in zip(labels, here, strict=True))
    differ = float(np.abs(there - here).max())
    assert equal == len(labels) and differ <= CLOSE, (equal, differ)
    return {"labels_equal": equal, "logits_differ_by": float(f"{differ:.2g}")}


def after_a_kill(triton: Triton, client: Client, recorder: Recorder, picture: NDArray[np.uint8]) -> tuple[str, Any]:
    """Ask while Triton is dead and starts again: the label, and what was sent."""
    before = len(recorder.attempts)
    triton.kill()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.predict, picture)
        time.sleep(DOWN)
        triton.start()
        label = waiting.result(120).label
    bodies = [request.body for request in recorder.attempts[before:]]
    assert len(bodies) > 1, "Triton was back before the client asked"
    return label, {"attempts": len(bodies), "different_requests": len(set(bodies))}


class Case(NamedTuple):
    """A request made below the client: how z is changed, bytes cut from its end, and what it asks for."""

    change: Callable[[Numbers], Numbers] = np.copy
    cut: int = 0
    model: str | None = None
    fingerprint: str | None = None
    more_labels: int = 0


CASES = {
    "what a client sends": Case(),
    "z without its last row": Case(lambda z: z[..., :-1, :]),
    "a body without its last number": Case(cut=4),
    "the name of an unknown model": Case(model="unknown"),
    "a z whose logits are not finite": Case(lambda z: z * np.float32(np.nan)),
    "a z for a bundle with another label": Case(more_labels=1),
    "a z outside the range of its channel": Case(lambda z: z + 1000),
    "another fingerprint": Case(fingerprint="0" * 64),
}


def outcome(triton: Triton, client: Client, z: Numbers, case: Case) -> str:
    """What a device learns: "answered", or the error without address and identifier."""
    manifest, server = client.manifest, Server(triton.url, retries=0)
    request = make_request(case.change(z), case.fingerprint or manifest.fingerprint)
    request = replace(request, body=request.body[: len(request.body) - case.cut])
    try:
        server.ask(case.model or manifest.name, request, len(manifest.labels) + case.more_labels)
    except ServerError as error:
        return str(error).replace(triton.url, "the server").replace(f"[request id: {request.mark}] ", "")
    finally:
        server.close()
    return "answered"


def measure() -> dict[str, Any]:
    """All that is shown, with the command that shows it."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        python = make_environment(folder / "environment")
        trained = attncem.train("demo", {"device": "cpu"}, out=folder / "run", progress=silent)
        bundle = export(trained.path, folder / "bundle").folder
        opened = open_run(trained, device="cpu")
        x, pictures = images_of(opened, PICTURES)
        pixels = (x * 255).round().to(torch.uint8).numpy()
        with started(python, folder, bundle) as triton, device(triton, bundle, folder) as (client, recorder):
            labels = [client.predict(picture).label for picture in pixels]
            compared = against_torch(opened, recorder, labels)
            counted = triton.answered()
            label, restart = after_a_kill(triton, client, recorder, pixels[0])
            again = against_torch(opened, recorder, [label])
            z = recorder.answers[-1][0][0]
            answers = {name: outcome(triton, client, z, case) for name, case in CASES.items()}
            version = triton.get("v2")["version"]
        packages = dict(zip(PACKAGES, json.loads(run(python, "-c", VERSIONS, *PACKAGES)), strict=True))
    return {
        "command": COMMAND,
        "versions": {"triton": version, **packages},
        "pictures": f"{PICTURES} {pictures}",
        **compared,
        "different_labels": len(set(labels)),
        "triton_counted": counted,
        "after_a_kill": {**restart, **again},
        "answers": answers,
    }


def make_environment(folder: Path) -> Path:
    """A new environment with Triton; its Python."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", *PACKAGES)
    return python


def words_of(result: dict[str, Any]) -> str:
    """The sentences of docs/serve.md."""
    versions, restart = result["versions"], result["after_a_kill"]
    return (
        f"Triton {versions['triton']} of PyTriton {versions['nvidia-pytriton']} was asked by `attncem-edge` "
        f"(`{result['command']}`). It has no backend for ONNX, so the line `platform` of `config.pbtxt` was replaced, "
        f"and a Python model ran the same file in onnxruntime {versions['onnxruntime']}. For {result['pictures']}, "
        f"{result['labels_equal']} labels ({result['different_labels']} different ones) were those of torch for the z "
        f"that was sent, and logits differed by at most {result['logits_differ_by']:.2g}. Then Triton was killed and "
        f"started again: the client sent the same request {restart['attempts']} times, and the answer was right."
    )


def table_of(result: dict[str, Any]) -> str:
    """The table of docs/serve.md; Triton's advice behind an error is left out."""
    rows = {name: answer.partition(" NOTE:")[0] for name, answer in result["answers"].items()}
    lines = [f"| {name} | {answer} |" for name, answer in rows.items()]
    return "\n".join(["| the device sends | and learns |", "|---|---|", *lines])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(measure(), indent=1) + "\n", encoding="utf-8")
