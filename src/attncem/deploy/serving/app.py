"""The ASGI app: routes of the protocol, and everything that a request must pass before it is computed."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from attncem import __version__
from attncem.deploy.serving import protocol
from attncem.deploy.serving.batching import Batcher
from attncem.deploy.serving.body import Store
from attncem.deploy.serving.call import Call, Reply, json_reply
from attncem.deploy.serving.deadline import Deadline
from attncem.deploy.serving.limits import Limits
from attncem.deploy.serving.metrics import TYPE, Metrics
from attncem.deploy.serving.model import VERSION, ServedModel
from attncem.deploy.serving.refusal import Refusal, busy
from attncem.deploy.serving.tokens import Counts, Token, holder

log = logging.getLogger("attncem.serve")

_GONE = 499
"""Status in metrics of a request whose client left."""
Answering = Callable[[Call], Awaitable[Reply]]


@dataclass
class Service:
    """The models of one process and what their requests share."""

    models: Mapping[str, ServedModel]
    limits: Limits = field(default_factory=Limits)
    tokens: Sequence[Token] = ()
    counts: Counts | None = None
    log_requests: bool = False
    metrics: Metrics = field(default_factory=Metrics)
    stopping: bool = False

    def __post_init__(self) -> None:
        self.store = Store(self.limits.held)
        limits = {"rows": self.limits.batch, "queue": self.limits.queue}
        self.batchers = {name: Batcher(model.run, **limits) for name, model in self.models.items()}

    async def infer(self, call: Call) -> Reply:
        """Answer one request for logits."""
        token, model = holder(self.tokens, call.headers.get("authorization")), self._model(call)
        batcher = self.batchers[model.name]
        batcher.require_room()
        length = call.headers.get(protocol.HEADER.lower())
        largest = protocol.largest_body(model, self.limits.rows, binary=length is not None)
        body = await call.body.read(largest, self.limits.seconds)
        asked = protocol.parse(body, length, model, self.limits.rows)
        protocol.check(asked, model)
        batcher.require_room()
        self._count(token, len(asked.z))
        answer = protocol.render(await self._computed(batcher, asked), asked, model)
        self.metrics.answered(model.name, token.name if token else "", len(asked.z))
        return Reply(answer.body, answer.headers)

    def _count(self, token: Token | None, releases: int) -> None:
        if token is not None and self.counts is not None:
            self.counts.take(token, releases)

    async def _computed(self, batcher: Batcher, asked: protocol.Asked) -> Any:
        try:
            with Deadline(self.limits.seconds):
                return await batcher.answer(asked.z)
        except TimeoutError:
            raise busy(f"the answer was not computed within {self.limits.seconds:g} s") from None

    def _model(self, call: Call) -> ServedModel:
        """The model that the address names; Refusal 404 where there is none."""
        model = self.models.get(call.names["name"])
        if model is None:
            raise Refusal(404, f"this server has no such model; it has {', '.join(self.models)}")
        if call.names.get("version", VERSION) != VERSION:
            raise Refusal(404, f"{model.name} has the version {VERSION} only")
        call.model = model.name
        return model

    async def server(self, call: Call) -> Reply:
        """Name, version and extensions of the server."""
        holder(self.tokens, call.headers.get("authorization"))
        return json_reply({"name": "attncem", "version": __version__, "extensions": ["binary_tensor_data"]})

    async def live(self, call: Call) -> Reply:
        """Whether the process answers; needs no token."""
        return json_reply({"live": True})

    async def ready(self, call: Call) -> Reply:
        """Whether the server takes requests; needs no token."""
        return self._readiness({})

    async def model_ready(self, call: Call) -> Reply:
        """Whether a model takes requests."""
        holder(self.tokens, call.headers.get("authorization"))
        return self._readiness({"name": self._model(call).name})

    def _readiness(self, names: Mapping[str, str]) -> Reply:
        if self.stopping:
            raise Refusal(400, "the server is stopping")
        return json_reply({**names, "ready": True})

    async def model(self, call: Call) -> Reply:
        """Metadata of a model: its tensors, card, fingerprint and identity."""
        holder(self.tokens, call.headers.get("authorization"))
        return json_reply(self._model(call).metadata())

    async def numbers(self, call: Call) -> Reply:
        """The numbers for Prometheus."""
        holder(self.tokens, call.headers.get("authorization"))
        now = {
            "attncem_waiting_requests": {name: it.waiting for name, it in self.batchers.items()},
            "attncem_batches_total": {name: it.batches for name, it in self.batchers.items()},
            "attncem_budget_used_releases": self.counts.all_used() if self.counts else {},
        }
        return Reply(self.metrics.text(now).encode(), {"Content-Type": TYPE})

    async def answered(self, answering: Answering, name: str, call: Call) -> Reply:
        """The answer of a route or its refusal, counted; never an exception."""
        start = time.perf_counter()
        try:
            reply, status = await self._answer(answering, name, call)
        finally:
            call.body.release()
        seconds = time.perf_counter() - start
        self.metrics.request(name, call.model, status, seconds)
        if self.log_requests:
            log.info("%s %s %d %.1f ms", name, call.model or "-", status, 1000 * seconds)
        return reply

    async def _answer(self, answering: Answering, name: str, call: Call) -> tuple[Reply, int]:
        """The answer, and the status that metrics count."""
        try:
            reply = await answering(call)
        except ClientDisconnect:
            return Reply(b"", {}, 400), _GONE
        except Refusal as refusal:
            reply = refused(refusal)
        except Exception as error:  # the client gets no detail, the log no content
            log.error("%s failed: %s", name, type(error).__name__)
            reply = refused(Refusal(500, "the server failed on this request"))
        return await _after_its_body(reply, call), reply.status

    def close(self) -> None:
        """End the threads; return counted releases that were not answered."""
        for batcher in self.batchers.values():
            batcher.close()
        if self.counts is not None:
            self.counts.close()


def refused(refusal: Refusal) -> Reply:
    """The answer to a refused request."""
    return json_reply({"error": refusal.reason}, refusal.status, refusal.headers)


class App(Starlette):
    """Starlette, which a request for the logits of a model that is here does not pass: it is found by its path."""

    def __init__(self, service: Service, **options: Any) -> None:
        super().__init__(**options)
        self._service = service
        self._infer = {
            f"/v2/models/{name}{version}/infer": {"name": name}
            for name in service.models
            for version in ("", f"/versions/{VERSION}")
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        names = self._infer.get(scope["path"]) if scope.get("method") == "POST" else None
        if names is None:
            await super().__call__(scope, receive, send)
            return
        call = Call(scope, receive, self._service.store, names)
        reply = await self._service.answered(self._service.infer, "infer", call)
        await reply(scope, receive, send)


def build_app(service: Service) -> Starlette:
    """The app of a service; any ASGI server runs it."""
    model = "/v2/models/{name}"
    table: list[tuple[str, str, Answering, str]] = [
        ("/v2", "GET", service.server, "server"),
        ("/v2/health/live", "GET", service.live, "live"),
        ("/v2/health/ready", "GET", service.ready, "ready"),
        ("/metrics", "GET", service.numbers, "metrics"),
    ]
    for place in (model, model + "/versions/{version}"):
        table += [
            (place, "GET", service.model, "model"),
            (f"{place}/ready", "GET", service.model_ready, "model_ready"),
            (f"{place}/infer", "POST", service.infer, "infer"),
        ]
    routes = [Route(path, _endpoint(service, answering, name), methods=[verb]) for path, verb, answering, name in table]
    app = App(service, routes=routes, exception_handlers={HTTPException: _no_route})
    app.router.redirect_slashes = False  # a redirect would repeat the Host that a client claims
    return app


def _endpoint(service: Service, answering: Answering, name: str) -> Callable[[Request], Awaitable[Response]]:
    """A route of Starlette, which sends any ASGI app that it gets as an answer."""

    async def endpoint(request: Request) -> Any:
        call = Call(request.scope, request.receive, service.store, request.path_params)
        return await service.answered(answering, name, call)

    return endpoint


async def _after_its_body(reply: Reply, call: Call) -> Reply:
    """The answer to a request whose body is read now, or whose connection closes."""
    if not await call.body.drained():
        reply.headers["Connection"] = "close"
    return reply


async def _no_route(request: Request, error: Exception) -> Any:
    """404 for an unknown address, 405 for a wrong verb."""
    assert isinstance(error, HTTPException)
    reason = {404: "there is no such address here; start at /v2", 405: "this address does not take this verb"}
    reply = json_reply({"error": reason.get(error.status_code, error.detail)}, error.status_code, error.headers)
    return await _after_its_body(reply, Call(request.scope, request.receive, Store(0), {}))
