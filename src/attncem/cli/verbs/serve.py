"""attncem serve: answer the requests of clients with the server halves of bundles."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attncem.base.progress import open_console, show_line
from attncem.base.texts import text
from attncem.base.types import ConfigError
from attncem.cli.verbs.base import Verbs, verb

if TYPE_CHECKING:
    from attncem.deploy.serving.model import ServedModel
    from attncem.deploy.serving.running import Place

_LIMITS = {
    "rows": (1, 1 << 16, "rows of one request at most (default: 32)"),
    "batch": (1, 1 << 16, "rows computed together at most; 1 turns batching off (default: 32)"),
    "queue": (1, 1 << 20, "requests that wait at most, then 503 (default: 256)"),
    "seconds": (1, 86_400, "time to receive a request, and to compute it (default: 30)"),
}
_PLACE = {
    "port": (0, 65_535, "port; 0 takes a free one (default: 8000)"),
    "budget": (1, 1 << 53, "releases answered for each token, then 429; needs --counts"),
    "connections": (1, 1 << 20, "open connections at most (default: 10000)"),
    "threads": (1, 1024, "threads that compute one batch (default: 1)"),
}
_RAY = {"replicas": (1, 1024, "ray: processes that answer (default: 1)")}
_MEANT_FOR = {
    **dict.fromkeys(("address", "replicas"), "ray"),
    **dict.fromkeys(("budget", "counts", "connections", "log_requests", "origin"), "local"),
}
"""The engine that uses an option."""


def add(verbs: Verbs) -> None:
    """The verb `serve`."""
    parser = verb(verbs, "serve", "Serve bundles of attncem export: Open Inference Protocol v2 over HTTP.")
    parser.epilog = "Without tokens only this machine can ask. Details: docs/serve.md"
    parser.add_argument("bundles", nargs="+", metavar="BUNDLE", help="folder that attncem export wrote")
    parser.add_argument("--host", default="127.0.0.1", help="address (default: 127.0.0.1); any other needs tokens")
    parser.add_argument("--tokens", metavar="FILE", help="lines of NAME TOKEN [BUDGET] (default: ATTNCEM_TOKEN)")
    parser.add_argument("--counts", metavar="FILE", help="where releases are counted; made if it is missing")
    parser.add_argument("--tls-certificate", metavar="FILE", help="certificate, PEM: answer by HTTPS")
    parser.add_argument("--tls-key", metavar="FILE", help="its key, PEM, if the certificate's file does not hold it")
    parser.add_argument("--tls-client-ca", metavar="FILE", help="clients need a certificate signed by this authority")
    parser.add_argument("--engine", default="local", help="local, or ray: replicas on Ray Serve (default: local)")
    parser.add_argument("--address", help="ray: address of the cluster, e.g. auto (default: this machine only)")
    parser.add_argument("--origin", action="append", metavar="URL", help="a page of this origin may ask; repeatable")
    parser.add_argument("--log-requests", action="store_true", help="a line for each request: route, status, time")
    for name, (_, _, meaning) in {**_PLACE, **_LIMITS, **_RAY}.items():
        parser.add_argument(f"--{name}", type=int, metavar="N", help=meaning)
    parser.set_defaults(run=_serve)


def _serve(known: argparse.Namespace, rest: Sequence[str]) -> None:
    from attncem.deploy.serving.limits import Limits
    from attncem.deploy.serving.origins import allow
    from attncem.deploy.serving.running import Place, Tls, serve

    limits = Limits(**_chosen(known, _LIMITS))
    tls = Tls(known.tls_certificate, known.tls_key, known.tls_client_ca)
    words: dict[str, Any] = {name: getattr(known, name) for name in ("host", "tokens", "counts", "log_requests")}
    place = Place(tls=tls, **words, **_chosen(known, _PLACE))
    _warn(place)
    if not _is_for_ray(known):
        serve(known.bundles, place, limits, _announce, around=allow(known.origin or ()))
        return
    from attncem.deploy.serving.on_ray import Cluster, serve_on_ray

    if known.address is not None:
        show_line(text("serve.ray_trust"), open_console(stderr=True))
    serve_on_ray(known.bundles, place, limits, _announce, Cluster(known.address, **_chosen(known, _RAY)))


def _is_for_ray(known: argparse.Namespace) -> bool:
    """Whether Ray Serve answers; ConfigError for an unknown engine, or an option that it does not use."""
    if known.engine not in ("local", "ray"):
        raise ConfigError(f"engine={known.engine}: local or ray")
    for name, engine in _MEANT_FOR.items():
        if getattr(known, name) and known.engine != engine:
            raise ConfigError(f"--{name.replace('_', '-')} is for --engine {engine}, not for {known.engine}")
    return bool(known.engine == "ray")


def _chosen(known: argparse.Namespace, ranges: Mapping[str, tuple[int, int, str]]) -> dict[str, Any]:
    """The numbers of the command line that are set; ConfigError for one outside its range."""
    chosen: dict[str, Any] = {name: value for name in ranges if (value := getattr(known, name)) is not None}
    for name, value in chosen.items():
        least, most, _ = ranges[name]
        if not least <= value <= most:
            raise ConfigError(f"{name}={value}: from {least} to {most}")
    return chosen


def _warn(place: Place) -> None:
    """Say what is not protected."""
    from attncem.deploy.serving.tokens import readable_by_others

    console = open_console(stderr=True)
    if place.tokens is not None and readable_by_others(place.tokens):
        show_line(text("serve.readable", file=place.tokens), console)
    if place.tls.certificate is None and not (place.host.startswith("127.") or place.host in ("::1", "localhost")):
        show_line(text("serve.no_tls"), console)


def _announce(url: str, models: Mapping[str, ServedModel]) -> None:
    for name, model in models.items():
        show_line(text("serve.ready", url=url, name=name, fingerprint=model.fingerprint), open_console())
