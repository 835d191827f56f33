"""Addresses of servers, and the rule that a token is sent over TLS, or not beyond this machine (docs/server.md).

This module imports neither an HTTP client nor the engine, because clients that start quickly use it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

__all__ = ["ServerAddress", "read_server_address"]

LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The address of a server.

    Args:
        text: the address as it was written, for messages.
        scheme: ``http``, ``https`` or ``unix``.
        host: name or address; empty for a Unix socket.
        port: TCP port; 0 for a Unix socket.
        path: file of the Unix socket, else what precedes the paths of the server, without a slash at its end.
    """

    text: str
    scheme: str
    host: str
    port: int
    path: str

    @property
    def is_local(self) -> bool:
        """Whether the server is on this machine, so that no proxy is used and TLS is not required."""
        return self.scheme == "unix" or self.host in LOOPBACK

    @property
    def socket(self) -> str | None:
        """Path of its Unix socket; None for TCP."""
        return self.path if self.scheme == "unix" else None

    @property
    def base_url(self) -> str:
        """URL of the server, without a slash at its end; for a Unix socket that of a host without a meaning."""
        return "http://localhost" if self.scheme == "unix" else self.text.rstrip("/")


def read_server_address(text: str) -> ServerAddress:
    """Return the address that a text states.

    Tokens and what realms contain are sent over TLS, except to this machine.

    Args:
        text: ``https://HOST[:PORT][/PATH]``, ``http://127.0.0.1:PORT`` or ``unix:PATH``.

    Raises:
        RefusedError: ``INVALID_ADDRESS`` for another text, and for ``http://`` of another machine.
    """
    if text.startswith("unix:") and len(text) > len("unix:"):
        return ServerAddress(text, "unix", "", 0, text.removeprefix("unix:"))
    try:
        url = urlsplit(text)
        host, port = url.hostname or "", url.port or PORTS.get(url.scheme, 0)
    except ValueError:
        raise _not_an_address(text) from None
    found = ServerAddress(text, url.scheme, host, port, url.path.rstrip("/"))
    is_plain = not (url.query or url.fragment or "@" in url.netloc or any(char.isspace() for char in text))
    is_safe = url.scheme == "https" or (url.scheme == "http" and found.is_local)
    if not (host and is_plain and text.isascii() and is_safe):
        raise _not_an_address(text)
    return found


def _not_an_address(text: str) -> Exception:
    from world.error_codes import ErrorCode
    from world.errors import RefusedError

    shown = repr(text) if "@" not in text else "The text (not shown, since it may contain a password)"
    return RefusedError(
        ErrorCode.INVALID_ADDRESS,
        f"{shown} is not the address of a server: write https://HOST:PORT, http://127.0.0.1:PORT for one on this "
        "machine, or unix:PATH.",
    )
