"""Refusals: a status and a sentence that the client gets as {"error": text}. It never holds a number of z."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus


class Refusal(Exception):
    """A request that is not answered."""

    def __init__(self, status: int, reason: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status = HTTPStatus(status)
        self.reason = reason
        self.headers = headers


def bad(reason: str) -> Refusal:
    """400: the request itself is wrong; repeating it helps nobody."""
    return Refusal(HTTPStatus.BAD_REQUEST, reason)


def busy(reason: str) -> Refusal:
    """503: the same request may succeed a second later."""
    return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, reason, {"Retry-After": "1"})
