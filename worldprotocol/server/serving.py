"""Listeners, signals and the end of a server process.

A server listens on a TCP address and on a Unix socket. SIGTERM and SIGINT drain it: new requests are refused, waiting
ones are answered, running calls and their effects are recorded.
"""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import os
import signal
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import uvicorn

from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.api.config import ServerConfig
from worldprotocol.server.app import create_app
from worldprotocol.server.connections.protocol import KEEP_ALIVE_S, HttpConnection
from worldprotocol.server.limits import HostLimit
from worldprotocol.server.service import Service

__all__ = ["check_listener", "serve"]

BACKLOG: Final = 2_048
FLUSH_S: Final = 2
"""Time for the ends of answers after the requests have been answered, or given up, in seconds."""

YOUNG_OBJECTS: Final = 50_000
"""Allocations between two runs of the garbage collector; requests make cycles, and few of them."""


class _Server(uvicorn.Server):
    """A uvicorn server whose signals are handled by ``serve``."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield


def check_listener(config: ServerConfig, *, can_sign_in: bool) -> None:
    """Refuse a listener that other machines reach, without TLS or without a way to sign in.

    Args:
        config: the configuration.
        can_sign_in: whether a realm has a token, or an issuer is configured.

    Raises:
        RefusedError: ``UNSAFE_LISTENER``, with what is missing.
    """
    has_tls = config.tls_certificate is not None and config.tls_key is not None
    if (config.tls_certificate is None) != (config.tls_key is None):
        raise RefusedError(
            ErrorCode.UNSAFE_LISTENER, "TLS needs both tls_certificate and tls_key; one of them is not configured."
        )
    if _is_local(config.host):
        return
    missing = [] if has_tls else ["TLS (tls_certificate and tls_key in [server])"]
    missing += [] if can_sign_in else ["a way to sign in (`worldctl token create`, or [[server.oidc]])"]
    if missing:
        raise RefusedError(
            ErrorCode.UNSAFE_LISTENER,
            f"{config.host} can be reached from other machines, and {' and '.join(missing)} is missing. Configure it, "
            "or listen on 127.0.0.1.",
        )


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def serve(service: Service, path: Path | None, ready: Callable[[list[str]], None]) -> None:
    """Serve until SIGTERM or SIGINT, and close the realms.

    Args:
        service: the service, not started.
        path: the Unix socket; None listens on TCP alone.
        ready: called with the addresses once the server listens.

    Raises:
        RefusedError: ``INVALID_ADDRESS`` where the address or the socket cannot be used.
    """
    config = service.config
    tcp = _tcp(config)
    sockets = [tcp] if path is None else [tcp, _unix(path)]
    host, port = tcp.getsockname()[:2]
    scheme = "http" if config.tls_certificate is None else "https"
    shown = f"[{host}]" if ":" in host else host
    addresses = [f"{scheme}://{shown}:{port}"] + ([] if path is None else [f"unix:{path}"])
    service.address = addresses[0]
    try:
        asyncio.run(_serve(service, sockets, lambda: ready(addresses)))
    finally:
        for one in sockets:
            one.close()
        if path is not None:
            path.unlink(missing_ok=True)


async def _serve(service: Service, sockets: list[socket.socket], ready: Callable[[], None]) -> None:
    app = create_app(service)
    of_tcp = HostLimit(app, hosts=_hosts(service.config), public_url=service.config.public_url)
    servers = [
        _Server(_config(service.config, app, is_unix=True))
        if one.family == socket.AF_UNIX
        else _Server(_config(service.config, of_tcp, is_unix=False))
        for one in sockets
    ]
    loop = asyncio.get_running_loop()

    stopping = asyncio.Event()

    def stop() -> None:
        service.begin_stop()
        stopping.set()

    async def drain() -> None:
        """Refuse new requests until the running ones are answered, and end the listeners then."""
        await stopping.wait()
        await service.running.ended(service.config.drain_timeout_s)
        for server in servers:
            server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    await service.start()
    draining = asyncio.ensure_future(drain())
    try:
        running = [asyncio.ensure_future(server.serve([one])) for server, one in zip(servers, sockets, strict=True)]
        while not all(server.started for server in servers) and not any(one.done() for one in running):
            await asyncio.sleep(0.005)
        _settle_memory()
        ready()
        await asyncio.gather(*running)
    finally:
        stop()
        draining.cancel()
        await service.stop()


def _hosts(config: ServerConfig) -> set[str] | None:
    """Return the names of the server in requests to its TCP listener; None where any is accepted."""
    public = set() if config.public_url is None else {urlsplit(config.public_url).hostname or ""}
    if _is_local(config.host):
        return {"localhost", "127.0.0.1", "::1", config.host, *public, *config.hosts}
    return {config.host, *public, *config.hosts} if public or config.hosts else None


def _settle_memory() -> None:
    """Leave what was made so far out of all runs of the garbage collector, which would scan it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])


def _config(config: ServerConfig, app: Any, *, is_unix: bool) -> uvicorn.Config:
    tls: dict[str, Any] = {}
    if config.tls_certificate is not None and not is_unix:
        tls = {"ssl_certfile": config.tls_certificate, "ssl_keyfile": config.tls_key}
    return uvicorn.Config(
        app,
        http=HttpConnection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=bool(config.trusted_proxies) and not is_unix,
        forwarded_allow_ips=config.trusted_proxies,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=FLUSH_S,
        **tls,
    )


def _tcp(config: ServerConfig) -> socket.socket:
    try:
        found = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        raise RefusedError(
            ErrorCode.INVALID_ADDRESS,
            f"The server cannot listen on {config.host}, port {config.port}: {error.strerror or error}. Choose another "
            "address or port.",
        ) from None
    listening.setblocking(False)
    return listening


def _unix(path: Path) -> socket.socket:
    """Return a socket that only its owner may use; one that a server left is replaced, and one in use is refused."""
    try:
        if stat.S_ISSOCK(path.lstat().st_mode):
            _check_unused(path)
            path.unlink()
    except FileNotFoundError:
        pass
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listening.bind(str(path))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise RefusedError(
            ErrorCode.INVALID_ADDRESS,
            f"The server cannot listen on the socket {path}: {error.strerror or error}. Choose another one (--socket).",
        ) from None
    finally:
        os.umask(before)
    listening.setblocking(False)
    return listening


def _check_unused(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return
    raise RefusedError(
        ErrorCode.INVALID_ADDRESS, f"Another server listens on {path}; stop it, or choose another socket (--socket)."
    )
