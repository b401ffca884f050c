"""Pages of other origins that may ask a server from a browser (CORS): none that is not named."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from attncem.base.types import ConfigError

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.types import ASGIApp

_ORIGIN = re.compile(r"https?://(\[[0-9a-f:]+\]|[a-z0-9.-]+)(:[0-9]{1,5})?")
_KEPT = 600
"""Seconds for which a browser need not ask again whether it may."""


def allow(origins: Sequence[str]) -> Callable[[Starlette], ASGIApp]:
    """What lets pages of these origins ask an app and read its answers; ConfigError for one that is no origin."""
    for origin in origins:
        if _ORIGIN.fullmatch(origin) is None:
            raise ConfigError(
                f"origin={origin}: must be what a browser calls the page's origin, as https://HOST or "
                "http://127.0.0.1:PORT, in small letters and without a path"
            )

    def around(app: Starlette) -> ASGIApp:
        from starlette.middleware.cors import CORSMiddleware

        from attncem.deploy.serving.protocol import HEADER

        return CORSMiddleware(
            app,
            allow_origins=origins,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", HEADER],
            expose_headers=[HEADER, "Retry-After"],
            max_age=_KEPT,
        )

    return around if origins else lambda app: app
