"""The live page on this machine: the server of bundles, with the page and its files in front of it."""

from __future__ import annotations

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from attncem.deploy.serving.limits import Limits
from attncem.deploy.serving.running import Place, serve
from attncem.live.facts import Shown
from attncem.live.page import files_of, page_of

_HOSTS = ["127.0.0.1", "localhost"]
"""Names by which the page may be asked for: a foreign name that leads here could read the answers."""
_HEADERS = {
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(self)",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


def show(shown: Shown, port: int, announce: Callable[[str], None]) -> None:
    """Answer on this machine until Ctrl-C; `announce` gets the address of the page."""
    page, files = page_of(shown, offline=False), files_of(shown, offline=False)
    serve(
        [shown.folder],
        Place(port=port, secret=False),  # a page has no token
        Limits(),
        lambda url, _: announce(f"{url}/"),
        around=lambda models: live_app(models, page, files),
    )


def live_app(models: Starlette, page: str, files: dict[str, bytes]) -> Starlette:
    """The app of a server with a page at its root; what is no page is asked of the server."""

    async def root(request: Request) -> Response:
        return HTMLResponse(page)

    async def file(request: Request) -> Response:
        data = files.get(request.path_params["name"])
        if data is None:
            return Response("there is no such file", 404)
        kind = "application/wasm" if request.path_params["name"].endswith(".wasm") else "application/octet-stream"
        return Response(data, media_type=kind)

    async def icon(request: Request) -> Response:
        return Response(status_code=204)

    routes = [Route("/", root), Route("/files/{name}", file), Route("/favicon.ico", icon), Mount("/", models)]
    hosts = Middleware(TrustedHostMiddleware, allowed_hosts=_HOSTS, www_redirect=False)
    return Starlette(routes=routes, middleware=[Middleware(_Headers), hosts])


class _Headers:
    """Adds the headers that keep a page and its answers to themselves."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and add the headers to its answer."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]
                message["headers"] = [*message["headers"], *added]
            await send(message)

        await self.app(scope, receive, with_headers)
