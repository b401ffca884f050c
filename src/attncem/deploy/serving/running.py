"""A server from start to stop: bundles checked, address bound, requests answered, what was accepted finished."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from attncem.base.types import ConfigError
from attncem.deploy.serving.libraries import needed, optional
from attncem.deploy.serving.limits import Limits

if TYPE_CHECKING:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.types import ASGIApp

    from attncem.deploy.serving.app import Service
    from attncem.deploy.serving.model import ServedModel

_GRACE = 5.0
"""Seconds beyond the time limit of a request that a stop waits for the last answers."""
_BACKLOG = 2048
Announce = Callable[[str, Mapping[str, "ServedModel"]], None]
Around = Callable[["Starlette"], "ASGIApp"]


@dataclass(frozen=True)
class Tls:
    """Files of TLS; with `client_ca`, a client needs a certificate that it signed."""

    certificate: str | None = None
    key: str | None = None
    client_ca: str | None = None

    def context(self) -> ssl.SSLContext | None:
        """The context, None without a certificate; ConfigError where a file is missing or wrong."""
        if self.certificate is None:
            if self.key or self.client_ca:
                raise ConfigError("--tls-key and --tls-client-ca need --tls-certificate")
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.certificate, self.key, password=_no_password)
            if self.client_ca is not None:
                context.load_verify_locations(self.client_ca)
                context.verify_mode = ssl.CERT_REQUIRED
        except OSError as error:
            files = ", ".join(filter(None, (self.certificate, self.key, self.client_ca)))
            raise ConfigError(f"TLS files {files}: {error.strerror or error}") from error
        return context


def _no_password() -> str:
    raise ConfigError("--tls-key: the key is encrypted; a server needs one without a password")


@dataclass(frozen=True)
class Place:
    """Where and for whom a server answers; ``secret``: the environment may hold a token."""

    host: str = "127.0.0.1"
    port: int = 8000
    tls: Tls = field(default_factory=Tls)
    tokens: str | None = None
    budget: int | None = None
    counts: str | None = None
    connections: int = 10_000
    threads: int = 1
    log_requests: bool = False
    secret: bool = True


def open_service(bundles: Sequence[str | Path], place: Place, limits: Limits) -> Service:
    """The service of bundles: everything is checked, nothing listens yet."""
    for library in ("starlette", "uvicorn", "onnxruntime"):
        needed(library)
    from attncem.deploy.serving.app import Service
    from attncem.deploy.serving.model import open_models
    from attncem.deploy.serving.tokens import Counts, read_tokens

    tokens = read_tokens(place.tokens, place.budget, os.environ if place.secret else {})
    budgets = any(token.budget is not None for token in tokens)
    if place.budget is not None and not tokens:
        raise ConfigError("--budget counts for each token, so it needs --tokens FILE or ATTNCEM_TOKEN")
    if budgets != (place.counts is not None):
        raise ConfigError("a budget of releases and --counts FILE need each other: the count must survive a restart")
    models = open_models(bundles, place.threads)
    counts = Counts(place.counts) if place.counts is not None else None
    return Service(models, limits, tokens, counts, place.log_requests)


def serve(
    bundles: Sequence[str | Path], place: Place, limits: Limits, announce: Announce, *, around: Around = lambda app: app
) -> None:
    """Answer until SIGTERM or Ctrl-C, then finish what was accepted. `announce` gets URL and models when it listens.

    ``around`` gives the ASGI app that is served, of that of the models.
    """
    tls = place.tls.context()
    service = open_service(bundles, place, limits)
    from attncem.deploy.serving.address import bind, shown

    with closing(service), bind(place.host, place.port, has_tokens=bool(service.tokens)) as listening, _to_stderr():
        server, url = _server(service, place, tls, around), shown(listening, tls=tls is not None)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(server, listening, lambda: announce(url, service.models)))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Uvloop's loop where it is installed, else asyncio's."""
    uvloop = optional("uvloop")
    return None if uvloop is None else cast(Callable[[], asyncio.AbstractEventLoop], uvloop.new_event_loop)


def _server(service: Service, place: Place, tls: ssl.SSLContext | None, around: Around) -> uvicorn.Server:
    import uvicorn

    from attncem.deploy.serving.address import most_connections
    from attncem.deploy.serving.app import build_app
    from attncem.deploy.serving.connections import limited

    config = uvicorn.Config(
        around(build_app(service)),
        http=limited(service.limits.seconds, most_connections(place.connections)),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=round(service.limits.seconds + _GRACE),
    )
    config.load()
    config.ssl = tls
    return _stoppable(config, service)


def _stoppable(config: uvicorn.Config, service: Service) -> uvicorn.Server:
    """Uvicorn's server, whose stop by a signal is an ordinary end: exit code 0."""
    import uvicorn

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            kept = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}
            try:
                yield
            finally:
                for number, handler in kept.items():
                    signal.signal(number, handler)

        def _stop(self, number: int, frame: object) -> None:
            service.stopping = True
            self.force_exit = self.should_exit and number == signal.SIGINT
            self.should_exit = True
            if self.force_exit:  # asyncio waits for open connections from Python 3.12 on
                for connection in list(self.server_state.connections):
                    connection.transport.abort()

    return Server(config)


async def _serve(server: uvicorn.Server, listening: socket.socket, ready: Callable[[], None]) -> None:
    asyncio.get_running_loop().set_exception_handler(_log_in_one_line)
    task = asyncio.create_task(server.serve(sockets=[listening]))
    while not server.started and not task.done():
        await asyncio.sleep(0.01)
    if server.started:
        ready()
    await task


def _log_in_one_line(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Problems of connections, such as no file left to open; without a traceback, which helps nobody here."""
    error = context.get("exception")
    logging.getLogger("attncem.serve").error("%s%s", context["message"], f" ({type(error).__name__})" if error else "")


class _Lines(logging.Formatter):
    """Lines with their time. An exception is its name: a traceback helps nobody, and a message may hold content."""

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the name in logging
        """The name of an exception."""
        return str(ei[0].__name__)


@contextmanager
def _to_stderr() -> Iterator[None]:
    """Lines of the server and of uvicorn's warnings, with their time, to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines("%(asctime)s %(message)s"))
    levels = {"attncem.serve": logging.INFO, "uvicorn.error": logging.WARNING}
    logs = [logging.getLogger(name) for name in levels]
    kept = [(log.level, log.propagate) for log in logs]
    for log in logs:
        log.addHandler(handler)
        log.setLevel(levels[log.name])
        log.propagate = False
    try:
        yield
    finally:
        for log, (level, propagate) in zip(logs, kept, strict=True):
            log.removeHandler(handler)
            log.setLevel(level)
            log.propagate = propagate
