"""The address of a server: bound before anything is loaded into it, loopback unless it has tokens."""

from __future__ import annotations

import ipaddress
import socket
from contextlib import suppress

from attncem.base.types import ConfigError

_SPARE = 128
"""Open files that are not connections."""


def bind(host: str, port: int, *, has_tokens: bool) -> socket.socket:
    """A socket on an address; ConfigError where it is taken, unknown, or not loopback without tokens."""
    if not 0 <= port <= 65535:
        raise ConfigError(f"port={port}: from 0 to 65535; 0 takes a free one")
    family, address = _resolved(host, port)
    if not has_tokens and not is_loopback(address[0]):
        raise ConfigError(
            f"host={host}: other machines can reach this address, so the server needs tokens: --tokens FILE or "
            "ATTNCEM_TOKEN; without them it takes loopback addresses only, e.g. 127.0.0.1"
        )
    # named TCP, else asyncio does not set TCP_NODELAY, and each answer waits 40 ms for an acknowledgement
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(address)
    except OSError as error:
        listening.close()
        raise ConfigError(f"host={host}, port={port}: {error.strerror or error}; port=0 takes a free one") from error
    return listening


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    return ipaddress.ip_address(host.partition("%")[0]).is_loopback


def _resolved(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"host={host}: no address of this machine ({error})") from error
    return family, (str(address[0]), port)


def shown(listening: socket.socket, *, tls: bool) -> str:
    """The URL of a server."""
    host, port = listening.getsockname()[:2]
    return f"http{'s' * tls}://{f'[{host}]' if ':' in host else host}:{port}"


def most_connections(wanted: int) -> int:
    """The connections that this process may have open, after its limit of open files was raised as far as possible."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY and soft < wanted + _SPARE:
            most = wanted + _SPARE if hard == resource.RLIM_INFINITY else min(hard, wanted + _SPARE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            return max(most - _SPARE, 1)
    return wanted
