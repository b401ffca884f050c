"""A process that reads and runs one ONNX file under limits of time and memory; its side of it is `onnx_child`."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attncem.base.types import ConfigError, RunError
from attncem.config.options.encoder import EncoderLimits
from attncem.models import trial
from attncem.models.onnx_child import OUT_OF_MEMORY, fill, receive, send
from attncem.models.onnx_file import OnnxFile, require

LIMITS_MEMORY = sys.platform == "linux"
"""Whether the memory of a process is limited on this system."""
_START_SECONDS = 120.0
"""Time in seconds that the process has to start, on a busy machine."""
_ADVICE = "Set {option}, in Python limits={{{key!r}: …}}, if you trust the file"
_FLOATS = ("float16", "float32", "float64")


class LimitMet(RunError):
    """A file took more time or memory than its process may take."""


class OnnxProcess:
    """Reads one file and runs it in a process of its own, which starts when it is first needed.

    The process ends with this one, however that ends. It is started again after it met a limit or crashed, and in
    copies that were pickled or forked; other copies share it, and threads take turns. ``advice`` tells the user what to
    change when a limit is met.
    """

    def __init__(
        self, limits: EncoderLimits, threads: int = 1, *, advice: str = "", file: OnnxFile | None = None
    ) -> None:
        self.limits, self._threads, self._advice, self._file = limits, threads, advice, file
        self._child: _Child | None = None
        self._turn = threading.RLock()

    def read(self, path: Path, output: str | None = None) -> OnnxFile:
        """Read, check and cut a file in the process, as `read_onnx` does."""
        request = {"what": "read", "path": str(path), "output": output}
        with self._turn:
            facts, graph = self._ask(request, b"", path, "it read the file")
        shape = None if facts["shape"] is None else tuple(facts["shape"])
        same = {name: facts[name] for name in ("file_sha256", "sha256", "input", "kind", "output")}
        self._file = OnnxFile(path=path, graph=graph.tobytes(), shape=shape, **same)
        return self._file

    def load(self) -> None:
        """Make a session of the file, unless the process has one; RunError if onnxruntime cannot run it."""
        assert self._file is not None
        with self._turn:
            if self._child is not None and self._child.usable and self._child.loaded:
                return
            facts = {**asdict(self._file), "path": str(self._file.path), "threads": self._threads}
            graph = facts.pop("graph")
            self._ask({"what": "load", **facts}, graph, self._file.path, "it loaded the file")
            assert self._child is not None
            self._child.loaded = True

    def __call__(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """The output of the file for an input [B, …]; RunError unless it is a feature."""
        assert self._file is not None
        file, rows = self._file, len(x)
        request = {"what": "run", "shape": list(x.shape), "type": x.dtype.name, "largest": rows * trial.LARGEST}
        with self._turn:
            self.load()
            facts, data = self._ask(request, x.reshape(-1), file.path, f"it ran a batch of {rows}")
        require_feature(file, facts["shape"], facts["type"], rows)
        return data.view(np.float32).reshape(facts["shape"])

    def _ask(
        self, request: dict[str, Any], data: Any, path: Path, doing: str
    ) -> tuple[dict[str, Any], NDArray[np.uint8]]:
        """One answer of the process; LimitMet, RunError or ConfigError tells what went wrong."""
        if self._child is None or not self._child.usable:
            self._child = _Child(self.limits)
        try:
            answer, payload = self._child.ask(request, data, self.limits.seconds)
        except _Ended as ended:
            if ended.limit:
                raise self._met(ended.limit, path, doing) from ended
            raise RunError(f"{path}: onnxruntime's process ended ({ended.how}) while {doing}") from ended
        kind = answer.get("error")
        if kind == "memory":
            self._child.end()  # gives its memory back
            raise self._met("memory", path, doing)
        if kind is not None:
            raise (ConfigError if kind == "ConfigError" else RunError)(answer["said"])
        return answer, payload

    def _met(self, limit: str, path: Path, doing: str) -> LimitMet:
        """The error that names a limit and the option that changes it."""
        much = {"seconds": f"{self.limits.seconds:g} s", "memory": f"{self.limits.memory:g} GiB of memory"}[limit]
        advice = self._advice or _ADVICE.format(option=f"--encoder-{limit}", key=limit)
        if limit == "memory" and not LIMITS_MEMORY:
            return LimitMet(f"{path}: memory ran out while {doing}")
        return LimitMet(f"{path}: its process met the limit of {much} while {doing}. {advice}")

    def __deepcopy__(self, memo: object) -> OnnxProcess:
        return self

    def __getstate__(self) -> tuple[Any, ...]:
        return self.limits, self._threads, self._advice, self._file

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        limits, threads, advice, file = state
        OnnxProcess.__init__(self, limits, threads, advice=advice, file=file)


def require_feature(file: OnnxFile, shape: Sequence[int], kind: str, rows: int) -> None:
    """RunError unless an output of this shape and type holds a feature of limited size for each row of a batch."""
    if len(shape) < 2 or shape[0] != rows:
        raise RunError(
            f"{file.path}: {file.output} is {list(shape)} for a batch of {rows}; a feature must be [B, …], one row for "
            "each image"
        )
    if kind not in _FLOATS:
        raise RunError(
            f"{file.path}: {file.output} is of type {kind}; choose a tensor of floating-point numbers with output=NAME"
        )
    if math.prod(shape[1:]) > trial.LARGEST:
        raise RunError(
            f"{file.path}: {file.output} has {math.prod(shape[1:])} values for each image, more than {trial.LARGEST}: "
            "cut it elsewhere"
        )


class _Ended(Exception):
    """The process ended before its answer; ``limit`` is the limit that was met, or empty."""

    def __init__(self, limit: str, how: str) -> None:
        super().__init__(how)
        self.limit, self.how = limit, how


class _Child:
    """One running process, with its limits in force."""

    def __init__(self, limits: EncoderLimits) -> None:
        for library in ("onnx", "onnxruntime"):
            require(library)
        self.loaded = False
        self._pid, self._process = os.getpid(), _start()
        self.end = weakref.finalize(self, _end, self._process, self._pid)
        memory = int(limits.memory * 2**30) if LIMITS_MEMORY else 0
        try:
            answer, _ = self.ask({"what": "begin", "memory": memory}, b"", _START_SECONDS)
        except _Ended as ended:
            raise RunError(f"the process for ONNX files could not start: {ended.how}") from ended
        if "error" in answer:
            raise (ConfigError if answer["error"] == "ConfigError" else RunError)(answer["said"])

    @property
    def usable(self) -> bool:
        """Whether the process still runs, and was started by this one."""
        return self._pid == os.getpid() and self.end.alive and self._process.poll() is None

    def ask(self, request: dict[str, Any], data: Any, seconds: float) -> tuple[dict[str, Any], NDArray[np.uint8]]:
        """The header and the data of the answer; _Ended if the process ends, or does not answer in time."""
        assert self._process.stdin is not None and self._process.stdout is not None
        late = threading.Event()
        timer = threading.Timer(seconds, _stop, (self._process, late))
        timer.daemon = True
        timer.start()
        try:
            send(self._process.stdin, {**request, "seconds": seconds}, data)
            answer = receive(self._process.stdout)
            payload = np.empty(answer["bytes"], np.uint8)
            fill(self._process.stdout, payload.data)
        except (EOFError, OSError) as error:
            raise self._explained(late.is_set()) from error
        except BaseException:  # Ctrl-C: half of an answer may be on its way
            self.end()
            raise
        finally:
            timer.cancel()
        return answer, payload

    def _explained(self, late: bool) -> _Ended:
        """Why there is no answer, by the last words of the process and its exit code."""
        process = self._process
        assert process.stderr is not None
        if not late:
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
        process.kill()
        words, code = process.stderr.read(2**16).decode(errors="replace"), process.wait()
        self.end()
        limit = "seconds" if late else "memory" if any(word in words for word in OUT_OF_MEMORY) else ""
        return _Ended(limit, signal.Signals(-code).name if code < 0 else f"exit code {code}")


def _start() -> subprocess.Popen[bytes]:
    """Start `onnx_child` with this process's modules; Ctrl-C does not reach it."""
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "attncem.models.onnx_child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        start_new_session=True,
    )
    _widen(process)
    return process


def _widen(process: subprocess.Popen[bytes]) -> None:
    """Give the pipes 1 MiB where the system can: features of many megabytes then pass in half the time."""
    if sys.platform != "linux":
        return
    import fcntl

    for stream in (process.stdin, process.stdout):
        assert stream is not None
        with suppress(OSError):  # more than this user may have
            fcntl.fcntl(stream, fcntl.F_SETPIPE_SZ, 2**20)


def _stop(process: subprocess.Popen[bytes], late: threading.Event) -> None:
    """End a process whose time is over."""
    late.set()
    process.kill()


def _end(process: subprocess.Popen[bytes], pid: int) -> None:
    """End and reap the process; a forked copy of its parent leaves it alone."""
    if pid != os.getpid():
        return
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        with suppress(OSError):  # a request that was never read
            assert stream is not None
            stream.close()
