"""The least that an answer over HTTP takes in Python, for scripts/serve_load.py.

app: an app that reads a body and answers the same bytes to all, under the uvicorn of `attncem serve`
bare: onnxruntime in the event loop, behind the shortest code that reads a request, with none of the server's checks

python scripts/serve_floor.py app|bare BUNDLE
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np

from attncem.deploy.serving.libraries import optional
from attncem.deploy.serving.limits import Limits
from attncem.deploy.serving.model import ServedModel
from attncem.deploy.serving.running import Place, serve

_ANSWER = b"0" * 200
_HEADERS = [(b"content-type", b"application/octet-stream"), (b"content-length", str(len(_ANSWER)).encode())]
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\ninference-header-content-length: %d\r\n\r\n"


async def empty(scope: Any, receive: Any, send: Any) -> None:
    """Read a body, and answer."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": _ANSWER})


class Bare(asyncio.Protocol):
    """A connection that computes each request when its bytes are there."""

    def __init__(self, model: ServedModel) -> None:
        self._model = model
        self._read = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep where answers go."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it

    def data_received(self, data: bytes) -> None:
        """Answer a request that is whole."""
        self._read += data
        start = self._read.find(b"\r\n\r\n") + 4
        if start == 3 or len(self._read) < start + self._number(b"\r\nContent-Length: "):
            return
        json_length = self._number(b"Inference-Header-Content-Length: ")
        shape = json.loads(self._read[start : start + json_length])["inputs"][0]["shape"]
        z = np.frombuffer(self._read, "<f4", offset=start + json_length).astype(np.float32).reshape(shape)  # aligned
        self._read = b""
        self._transport.write(_HEAD % (4 * 10 * len(z), 0) + self._model.run(z).tobytes())

    def _number(self, name: bytes) -> int:
        start = self._read.index(name) + len(name)
        return int(self._read[start : self._read.index(b"\r\n", start)])


async def answer_bare(model: ServedModel) -> None:
    """Listen until the process ends."""
    server = await asyncio.get_running_loop().create_server(lambda: Bare(model), "127.0.0.1", 0)
    announce(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    await server.serve_forever()


def announce(url: str) -> None:
    """Say where the server is."""
    print(f"{url}/", flush=True)


def main(way: str, bundle: Path) -> None:
    """Answer until the process ends."""
    if way == "app":
        serve([bundle], Place(port=0), Limits(), lambda url, _: announce(url), around=lambda _: empty)
        return
    uvloop = optional("uvloop")
    with asyncio.Runner(loop_factory=uvloop and uvloop.new_event_loop) as runner:
        runner.run(answer_bare(ServedModel(bundle)))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
