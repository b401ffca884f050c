"""One request and its answer, as plain as ASGI allows: Starlette's objects cost more than a small server half."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.types import Receive, Scope, Send

from attncem.deploy.serving.body import Body, Store


class Call:
    """A request: its headers by names in small letters, its body, and the names that its address holds."""

    __slots__ = ("body", "headers", "model", "names")

    def __init__(self, scope: Scope, receive: Receive, store: Store, names: Mapping[str, str]) -> None:
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        self.body = Body(self.headers, receive, store)
        self.names = names
        self.model = ""


class Reply:
    """An answer; an ASGI app that sends it."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, body: bytes, headers: Mapping[str, str], status: int = 200) -> None:
        self.body = body
        self.headers = dict(headers)
        self.status = status

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it in one piece."""
        headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in self.headers.items()]
        headers.append((b"content-length", b"%d" % len(self.body)))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


def json_reply(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    """An answer in JSON."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Reply(text.encode(), {"Content-Type": "application/json", **(headers or {})}, status)
