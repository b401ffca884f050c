"""The process in which an ONNX file is read and run, under limits of time and memory. No torch.

A message is the length of its header, the header in JSON, and raw bytes, whose number the header holds; nothing is
unpickled. `onnx_process` starts this module and sends the requests.
"""

from __future__ import annotations

import faulthandler
import json
import os
import queue
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import numpy as np

from attncem.base.types import ConfigError, RunError
from attncem.models.onnx_file import OnnxFile, need, read_onnx
from attncem.models.onnx_session import Session

_GRACE = 5
"""Seconds after which this process ends itself, if the process that waits for it has not ended it in time."""
OUT_OF_MEMORY = ("bad_alloc", "Failed to allocate memory", "Arena alloc failed", "Cannot allocate memory")
"""Words of libraries that could not get memory."""
Message = tuple[dict[str, Any], bytes]


def send(stream: IO[bytes], header: dict[str, Any], data: Any = b"") -> None:
    """Write one message; the data is anything with a buffer of bytes."""
    view = memoryview(data).cast("B") if len(data) else memoryview(b"")
    text = json.dumps({**header, "bytes": view.nbytes}).encode()
    stream.write(len(text).to_bytes(4, "big") + text)
    stream.write(view)
    stream.flush()


def receive(stream: IO[bytes]) -> dict[str, Any]:
    """Read the header of one message, whose data follows; EOFError if the other side has ended."""
    length = int.from_bytes(exactly(stream, 4), "big")
    header: dict[str, Any] = json.loads(exactly(stream, length))
    return header


def fill(stream: IO[bytes], buffer: memoryview) -> None:
    """Read as many bytes as the buffer holds; EOFError if the other side has ended."""
    if stream.readinto(buffer) < len(buffer):  # type: ignore[attr-defined]
        raise EOFError


def exactly(stream: IO[bytes], length: int) -> bytes:
    """Read this number of bytes; EOFError if the other side has ended."""
    data = stream.read(length)
    if len(data) < length:
        raise EOFError
    return data


def main() -> None:
    """Answer requests until the other side closes the pipe or ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # a library that prints does not disturb the messages
    requests: queue.SimpleQueue[Message] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, requests), daemon=True).start()
    served = _Served()
    while True:
        header, data = requests.get()
        faulthandler.dump_traceback_later(header["seconds"] + _GRACE, exit=True, file=sys.stderr)
        answer = _answer(served, header, data)
        del data
        faulthandler.cancel_dump_traceback_later()
        with suppress(OSError):  # the other side has ended; the listener ends this process
            send(answers, *answer)


def _listen(stream: IO[bytes], requests: queue.SimpleQueue[Message]) -> None:
    """Queue every request, and end this process, in the middle of its work, once the pipe is closed."""
    try:
        while True:
            header = receive(stream)
            requests.put((header, exactly(stream, header["bytes"])))
            del header
    except MemoryError:
        os.write(2, OUT_OF_MEMORY[0].encode())
        os._exit(1)
    except BaseException:  # without requests there is no work
        os._exit(1)


def _answer(served: _Served, header: dict[str, Any], data: bytes) -> tuple[dict[str, Any], Any]:
    try:
        return served.does[header["what"]](header, data)
    except Exception as error:  # everything is reported to the other side
        clear = isinstance(error, RunError | ConfigError)
        words = (
            str(error) if clear else f"{header.get('path', 'the ONNX file')}: {type(error).__name__}: {error!s:.400}"
        )
        kind = "memory" if _ran_out(error) else "ConfigError" if isinstance(error, ConfigError) else "RunError"
        return {"error": kind, "said": words}, b""


def _ran_out(error: BaseException | None) -> bool:
    """Whether memory that ran out is the error, or its cause."""
    if error is None:
        return False
    words = "" if isinstance(error, RunError) else str(error)  # ours may hold a user's path
    return isinstance(error, MemoryError) or any(word in words for word in OUT_OF_MEMORY) or _ran_out(error.__cause__)


class _Served:
    """The file of this process and its session."""

    session: Session

    def __init__(self) -> None:
        self.does: dict[str, Callable[[dict[str, Any], bytes], tuple[dict[str, Any], Any]]] = {
            "begin": self.begin,
            "read": self.read,
            "load": self.load,
            "run": self.run,
        }

    def begin(self, header: dict[str, Any], _: bytes) -> tuple[dict[str, Any], bytes]:
        """Import the libraries, then limit this process: no more memory than now and this, no file written."""
        for library in ("onnx", "onnxruntime"):
            need(library)
        if header["memory"]:
            _limit(header["memory"])
        return {}, b""

    def read(self, header: dict[str, Any], _: bytes) -> tuple[dict[str, Any], bytes]:
        """The facts of a file, and its checked graph as data."""
        file = read_onnx(Path(header["path"]), header["output"])
        facts = {**asdict(file), "path": str(file.path)}
        return facts, facts.pop("graph")

    def load(self, header: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
        """Make a session of a checked graph."""
        facts = {name: header[name] for name in ("file_sha256", "sha256", "input", "kind", "shape", "output")}
        self.session = Session(OnnxFile(path=Path(header["path"]), graph=data, **facts), header["threads"])
        return {}, b""

    def run(self, header: dict[str, Any], data: bytes) -> tuple[dict[str, Any], Any]:
        """The output for an input; the shape and type alone if these are no floating-point numbers, or too many."""
        made = self.session(np.frombuffer(data, header["type"]).reshape(header["shape"]))
        facts = {"shape": list(made.shape), "type": made.dtype.name}
        if made.dtype.kind != "f" or made.size > header["largest"]:
            return facts, b""
        with np.errstate(over="ignore"):
            return facts, np.ascontiguousarray(made, np.float32).reshape(-1)


def _limit(memory: int) -> None:
    """Limits of Linux: private memory, files written and core dumps."""
    import resource

    status = Path("/proc/self/status").read_text(encoding="ascii")
    taken = 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmData:"))
    for kind, wanted in ((resource.RLIMIT_DATA, taken + memory), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(kind)[1]
        lowest = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(kind, (lowest, lowest))


if __name__ == "__main__":
    main()
