"""Handlers of audit events of the network: connections, listening sockets, and HTTP requests."""

from __future__ import annotations

import _socket
import os
import re
import socket
from collections.abc import Mapping
from typing import Any, Final

from host.observation.other_processes import Handler, NothingHappensError
from host.observation.session_binding import OWN_CODE, SessionBinding
from world.klis.observation import Seen

__all__ = ["HANDLERS"]

_REQUEST: Final = re.compile(rb"([A-Z]+) (\S+) HTTP/1\.[01]\r\n")


def _connected(bond: SessionBinding, args: tuple[Any, ...]) -> list[Seen]:
    place, address = args[0], args[1]
    if address is None:  # sendmsg on a connected socket
        return []
    family = _family(place)
    if family == socket.AF_UNIX:
        return bond.operations.local_socket(address, call=f"connect({address!r})")
    if family not in (socket.AF_INET, socket.AF_INET6):
        bond.refuse(f"a connection of the address family {family}", "only internet and local sockets are observable")
    host, port = _internet(address)
    return _connection(bond, host, port)


def _connection(bond: SessionBinding, host: str, port: int) -> list[Seen]:
    call = f"connect({host!r}, {port})"
    names = bond.hosts.get(host, [])
    rendered = [bond.operations.connected(name, port, call=call) for name in (*names, host)]
    # An address belongs to every name that resolved to it: a declared one is preferred.
    return next((seen for seen in rendered if not bond.watch.declaration.outside(seen)), rendered[0])


def _bound(bond: SessionBinding, args: tuple[Any, ...]) -> list[Seen]:
    place, address = args
    family = _family(place)
    if family == socket.AF_UNIX:
        if not address:  # the kernel chooses an abstract name
            return []
        if os.fsencode(address).startswith(b"\0"):
            return bond.operations.local_socket(address, call=f"bind({address!r})")
        return bond.operations.made(address, call=f"bind({address!r})")
    if family not in (socket.AF_INET, socket.AF_INET6):
        bond.refuse(f"to listen at the address family {family}", "only internet and local sockets are observable")
    host, port = _internet(address)
    return bond.operations.bound(host, port, call=f"bind({host!r}, {port})")


def _family(place: Any) -> int:
    return int(_socket.socket.family.__get__(place))  # a subclass could override it


def _internet(address: Any) -> tuple[str, int]:
    if not isinstance(address, tuple) or len(address) < 2 or not isinstance(address[1], int):
        raise NothingHappensError
    host = address[0]
    return (host.decode("ascii", "replace") if isinstance(host, bytes | bytearray) else str(host)), int(address[1])


def _requested(bond: SessionBinding, args: tuple[Any, ...]) -> list[Seen]:
    url, _, _, method = args
    if not url.lower().startswith(("http:", "https:", "ftp:")):  # file: and data: make no connection
        return []
    return bond.operations.requested(method, url, call=f"{method} {url}")


def _http_connected(bond: SessionBinding, args: tuple[Any, ...]) -> list[Seen]:
    _, host, port = args
    return _connection(bond, str(host), int(port))


def _http_sent(bond: SessionBinding, args: tuple[Any, ...]) -> list[Seen]:
    """Recognize a request by its first line; a body that looks like one is only checked additionally."""
    connection, data = args
    found = _REQUEST.match(data) if isinstance(data, bytes | bytearray) else None
    if found is None or found[1] == b"CONNECT":
        return []
    method, target = found[1].decode(), found[2].decode("latin-1")
    if target.startswith("/") or target == "*":
        scheme = "https" if hasattr(connection, "_context") else "http"
        tunnelled = getattr(connection, "_tunnel_host", None)
        host = tunnelled or connection.host
        port = connection._tunnel_port if tunnelled else connection.port
        target = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{target if target != '*' else '/'}"
    return bond.operations.requested(method, target, call=f"{method} {target}")


HANDLERS: Final[Mapping[str, Handler]] = {
    "socket.connect": _connected,
    "socket.sendto": _connected,
    "socket.sendmsg": _connected,
    "socket.bind": _bound,
    "urllib.Request": _requested,
    "http.client.connect": _http_connected,
    "http.client.send": _http_sent,
}
"""Handlers of audit events that concern the network."""

OWN_CODE.append(globals())
