"""A server in the process of the test, with which tests look at what it holds."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from tests.server.kiosk import handlers, kiosk
from tests.server.served import Place
from tests.server_faults.wire import Address
from tests.support.patience import PATIENCE_S
from worldprotocol.api.config import ServerConfig
from worldprotocol.api.realm import Realm
from worldprotocol.server.service import RealmToServe, Service
from worldprotocol.server.serving import serve

R = TypeVar("R")


class Inside:
    """A running server and its parts.

    Args:
        place: the realm.
        url: where it listens.
        service: the service.
        loop: its event loop.
    """

    def __init__(self, place: Place, url: str, service: Service, loop: asyncio.AbstractEventLoop) -> None:
        """Look at a server."""
        self.place = place
        self.url = url
        self.service = service
        self._loop = loop

    @property
    def address(self) -> Address:
        """Where it listens, and the tokens."""
        return Address(self.url, self.place.tokens)

    def within(self, call: Callable[[], R]) -> R:
        """Return the result of a call in the server's event loop."""
        found: Future[R] = Future()

        def run() -> None:
            try:
                found.set_result(call())
            except BaseException as error:  # noqa: BLE001 - it is raised in the test
                found.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return found.result(PATIENCE_S)


def while_serving(place: Place, body: Callable[[Inside], object], **config: Any) -> None:
    """Serve a realm while a function runs in a thread of its own.

    Args:
        place: the realm.
        body: the function.
        **config: members of ``ServerConfig``.
    """
    rates = {"requests_per_second": 1_000_000, "burst": 1_000_000}
    threshold = gc.get_threshold()
    realm = Realm.open(place.log, domain=kiosk, effects=handlers)
    service = Service.of(ServerConfig(port=0, hosts=["kiosk"], **rates | config), [RealmToServe("main", realm)])
    ended: list[Future[object]] = []
    with ThreadPoolExecutor(1) as pool:

        def run(inside: Inside) -> None:
            try:
                body(inside)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)

        def ready(addresses: list[str]) -> None:
            inside = Inside(place, addresses[0], service, asyncio.get_running_loop())
            ended.append(pool.submit(run, inside))

        try:
            serve(service, None, ready)
        finally:
            gc.set_threshold(*threshold)
        ended[0].result()
