"""The same app on Ray Serve: replicas on the machines of a Ray cluster (extra `serve-ray`).

Every replica opens the bundles itself, so their folders must have the same path on all machines. Ray's proxies take the
connections: they read a body whole before the app sees its length, and their own time limits apply.

A replica of Ray Serve also listens on a port of every interface and unpickles what comes there. On one machine
`_keep_on_loopback` closes that port to others; a cluster needs a network that you trust, as Ray's documents say.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from attncem.base.types import ConfigError, RunError
from attncem.deploy.serving.libraries import needed
from attncem.deploy.serving.limits import Limits
from attncem.deploy.serving.running import Announce, Place, Tls, open_service
from attncem.deploy.serving.tokens import Token, read_tokens

_REACHABLE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Ray reads this variable on import; 0 keeps all ports of an instance on one machine on the loopback interface."""
_NAME = "attncem"


@dataclass(frozen=True)
class Cluster:
    """The Ray cluster: its address, None for an instance on this machine, and the number of replicas."""

    address: str | None = None
    replicas: int = 1


def serve_on_ray(
    bundles: Sequence[str | Path], place: Place, limits: Limits, announce: Announce, cluster: Cluster
) -> None:
    """Answer until SIGTERM or Ctrl-C."""
    tokens, models = _checked(bundles, place)
    port, url = _free_port(place, has_tokens=bool(tokens))
    http = {"host": place.host, "port": port, **_files(place.tls)}
    if cluster.address is None:
        os.environ.setdefault(_REACHABLE, "0")
    ray, serve = (needed(name, "serve-ray") for name in ("ray", "ray.serve"))
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    _connect(ray, cluster)
    try:
        serve.start(http_options=http, logging_config={"enable_access_log": False, "log_level": "WARNING"})
        build = _builder([str(Path(it).resolve()) for it in bundles], place, limits, tokens, cluster)
        _run(serve, build, limits, cluster.replicas)
        with _until_stopped() as stopped:
            announce(url, models)
            stopped.wait()
        serve.shutdown()
    finally:
        ray.shutdown()


def _checked(bundles: Sequence[str | Path], place: Place) -> tuple[list[Token], Any]:
    """Tokens and models, opened here once, so that a mistake is reported before Ray starts."""
    if any(token.budget is not None for token in read_tokens(place.tokens, None, os.environ)):
        raise ConfigError(f"{place.tokens}: --engine ray has no budgets, because its replicas share no file of counts")
    place.tls.context()
    service = open_service(bundles, place, Limits())
    models, tokens = dict(service.models), list(service.tokens)
    service.close()
    return tokens, models


def _free_port(place: Place, *, has_tokens: bool) -> tuple[int, str]:
    """The port, free now, and the URL; ConfigError where the address is not allowed."""
    from attncem.deploy.serving.address import bind, shown

    with bind(place.host, place.port, has_tokens=has_tokens) as listening:
        return int(listening.getsockname()[1]), shown(listening, tls=place.tls.certificate is not None)


def _files(tls: Tls) -> dict[str, str | None]:
    """Ray's names of the files of TLS."""
    if tls.certificate is None:
        return {}
    return {"ssl_certfile": tls.certificate, "ssl_keyfile": tls.key or tls.certificate, "ssl_ca_certs": tls.client_ca}


def _connect(ray: Any, cluster: Cluster) -> None:
    address = cluster.address
    here = {"num_cpus": cluster.replicas + 1, "include_dashboard": False}
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        ray.init(address=address or "local", **quiet, **({} if address else here))
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ConfigError(f"engine=ray, address={address}: {error}") from error


def _builder(
    bundles: list[str], place: Place, limits: Limits, tokens: list[Token], cluster: Cluster
) -> Callable[[], Any]:
    """The function that makes the app in a replica; tokens travel as hashes."""
    threads, alone = place.threads, cluster.address is None

    def build() -> Any:
        from attncem.deploy.serving.app import Service, build_app
        from attncem.deploy.serving.model import open_models

        if alone:
            _keep_on_loopback()
        return build_app(Service(open_models(bundles, threads), limits, tokens))

    return build


def _run(serve: Any, build: Callable[[], Any], limits: Limits, replicas: int) -> None:
    deployment = serve.deployment(serve.ingress(build)())
    options = {"name": _NAME, "num_replicas": replicas, "max_ongoing_requests": limits.queue}
    bound = deployment.options(**options, graceful_shutdown_timeout_s=limits.seconds).bind()
    try:
        serve.run(bound, name=_NAME, route_prefix="/")
    except RuntimeError as error:
        raise RunError(f"Ray Serve could not start the server: {' '.join(str(error).split())[:400]}") from error


def _keep_on_loopback() -> None:
    """In a replica: bind the port for messages between replicas to this machine; fails where Ray has changed."""
    replica: Any = import_module("ray.serve._private.replica")
    add_port = replica.add_port_to_grpc_server
    replica.add_port_to_grpc_server = lambda server, place: add_port(server, place.replace("[::]", "127.0.0.1"))


@contextmanager
def _until_stopped() -> Iterator[threading.Event]:
    """An event that SIGTERM and Ctrl-C set."""
    event = threading.Event()
    kept = {number: signal.signal(number, lambda *_: event.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
