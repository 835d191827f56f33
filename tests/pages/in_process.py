"""Sends one request to a server in this process, whose modules a test may change."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from tests.pages.fleet import fleet, handlers
from tests.server.served import NO_TLS, Place
from worldprotocol.api.config import ServerConfig
from worldprotocol.api.realm import Realm
from worldprotocol.server.app import create_app
from worldprotocol.server.service import RealmToServe, Service


def asked(place: Place, path: str) -> Any:
    """Return the answer to a GET by an actor with all rights.

    Args:
        place: the realm.
        path: path of the request.
    """
    with Realm.open(place.log, domain=fleet, effects=handlers, on_change="hold") as realm:
        service = Service.of(ServerConfig(), [RealmToServe("main", realm)])

        async def ask() -> Any:
            headers = {"Authorization": f"Bearer {place.tokens['all']}"}
            transport = httpx.ASGITransport(create_app(service))
            async with httpx.AsyncClient(
                transport=transport, base_url="http://test", headers=headers, verify=NO_TLS
            ) as client:
                answer = await client.get(path)
            await service.threads.close()
            return answer.json()

        return asyncio.run(ask())
