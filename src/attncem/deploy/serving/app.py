"""The ASGI app: routes of the protocol, and everything that a request must pass before it is computed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from attncem import __version__
from attncem.deploy.serving import protocol
from attncem.deploy.serving.batching import Batcher
from attncem.deploy.serving.body import Body, Store
from attncem.deploy.serving.limits import Limits
from attncem.deploy.serving.metrics import TYPE, Metrics
from attncem.deploy.serving.model import VERSION, ServedModel
from attncem.deploy.serving.refusal import Refusal, busy
from attncem.deploy.serving.tokens import Counts, Token, holder

log = logging.getLogger("attncem.serve")

_GONE = 499
"""Status in metrics of a request whose client left."""
Answering = Callable[[Request], Awaitable[Response]]


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

    async def infer(self, request: Request) -> Response:
        """Answer one request for logits."""
        token, model = holder(self.tokens, request.headers.get("authorization")), self._model(request)
        batcher = self.batchers[model.name]
        batcher.require_room()
        length = request.headers.get(protocol.HEADER)
        largest = protocol.largest_body(model, self.limits.rows, binary=length is not None)
        body = await request.state.body.read(largest, self.limits.seconds)
        asked = protocol.parse(body, length, model, self.limits.rows)
        protocol.check(asked, model)
        batcher.require_room()
        self._count(token, len(asked.z))
        answer = protocol.render(await self._computed(batcher, asked), asked, model)
        self.metrics.answered(model.name, token.name if token else "", len(asked.z))
        return Response(answer.body, headers=dict(answer.headers))

    def _count(self, token: Token | None, releases: int) -> None:
        if token is not None and self.counts is not None:
            self.counts.take(token, releases)

    async def _computed(self, batcher: Batcher, asked: protocol.Asked) -> Any:
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await batcher.answer(asked.z)
        except TimeoutError:
            raise busy(f"the answer was not computed within {self.limits.seconds:g} s") from None

    def _model(self, request: Request) -> ServedModel:
        """The model that the address names; Refusal 404 where there is none."""
        model = self.models.get(request.path_params["name"])
        if model is None:
            raise Refusal(404, f"this server has no such model; it has {', '.join(self.models)}")
        if request.path_params.get("version", VERSION) != VERSION:
            raise Refusal(404, f"{model.name} has the version {VERSION} only")
        request.state.model = model.name
        return model

    async def server(self, request: Request) -> Response:
        """Name, version and extensions of the server."""
        holder(self.tokens, request.headers.get("authorization"))
        return JSONResponse({"name": "attncem", "version": __version__, "extensions": ["binary_tensor_data"]})

    async def live(self, request: Request) -> Response:
        """Whether the process answers; needs no token."""
        return JSONResponse({"live": True})

    async def ready(self, request: Request) -> Response:
        """Whether the server takes requests; needs no token."""
        return self._readiness({})

    async def model_ready(self, request: Request) -> Response:
        """Whether a model takes requests."""
        holder(self.tokens, request.headers.get("authorization"))
        return self._readiness({"name": self._model(request).name})

    def _readiness(self, names: Mapping[str, str]) -> Response:
        if self.stopping:
            raise Refusal(400, "the server is stopping")
        return JSONResponse({**names, "ready": True})

    async def model(self, request: Request) -> Response:
        """Metadata of a model: its tensors, card, fingerprint and identity."""
        holder(self.tokens, request.headers.get("authorization"))
        return JSONResponse(self._model(request).metadata())

    async def numbers(self, request: Request) -> Response:
        """The numbers for Prometheus."""
        holder(self.tokens, request.headers.get("authorization"))
        now = {
            "attncem_waiting_requests": {name: it.waiting for name, it in self.batchers.items()},
            "attncem_batches_total": {name: it.batches for name, it in self.batchers.items()},
            "attncem_budget_used_releases": self.counts.all_used() if self.counts else {},
        }
        return Response(self.metrics.text(now), media_type=TYPE)

    async def answered(self, answering: Answering, name: str, request: Request) -> Response:
        """The answer of a route or its refusal, counted; never an exception."""
        start = time.perf_counter()
        request.state.model, request.state.body = "", Body(request, self.store)
        try:
            response, status = await self._answer(answering, name, request)
        finally:
            request.state.body.release()
        seconds = time.perf_counter() - start
        self.metrics.request(name, request.state.model, status, seconds)
        if self.log_requests:
            log.info("%s %s %d %.1f ms", name, request.state.model or "-", status, 1000 * seconds)
        return response

    async def _answer(self, answering: Answering, name: str, request: Request) -> tuple[Response, int]:
        """The answer, and the status that metrics count."""
        try:
            response = await answering(request)
        except ClientDisconnect:
            return Response(status_code=400), _GONE
        except Refusal as refusal:
            response = refused(refusal)
        except Exception as error:  # the client gets no detail, the log no content
            log.error("%s failed: %s", name, type(error).__name__)
            response = refused(Refusal(500, "the server failed on this request"))
        return await _after_its_body(response, request.state.body), response.status_code

    def close(self) -> None:
        """End the threads; return counted releases that were not answered."""
        for batcher in self.batchers.values():
            batcher.close()
        if self.counts is not None:
            self.counts.close()


def refused(refusal: Refusal) -> Response:
    """The answer to a refused request."""
    return JSONResponse({"error": refusal.reason}, status_code=refusal.status, headers=refusal.headers)


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
    routes = [
        Route(path, partial(service.answered, answering, name), methods=[verb]) for path, verb, answering, name in table
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _no_route})
    app.router.redirect_slashes = False  # a redirect would repeat the Host that a client claims
    return app


async def _after_its_body(response: Response, body: Body) -> Response:
    """The answer to a request whose body is read now, or whose connection closes."""
    if not await body.drained():
        response.headers["Connection"] = "close"
    return response


async def _no_route(request: Request, error: Exception) -> Response:
    """404 for an unknown address, 405 for a wrong verb."""
    assert isinstance(error, HTTPException)
    reason = {404: "there is no such address here; start at /v2", 405: "this address does not take this verb"}
    text = reason.get(error.status_code, error.detail)
    response = JSONResponse({"error": text}, status_code=error.status_code, headers=error.headers)
    return await _after_its_body(response, Body(request, Store(0)))
