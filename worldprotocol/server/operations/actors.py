"""Operations on actors: their bindings, rights and keys, also at a point in the past."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Response

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.access_events import RightGranted
from world.klis.ledger_view import ReadableLedger
from world.state.realm_view import RealmView
from worldprotocol.api.remote.event_forms import event_form
from worldprotocol.server.call import Authorized, answer
from worldprotocol.server.operation_table import handles
from worldprotocol.server.operations.past import At, looked_at, view_at


@handles("actors.list")
async def list_actors(call: Authorized, at: At = None) -> Response:
    """List the registered actors with their bindings."""

    def run() -> list[dict[str, Any]]:
        view = view_at(call, at)
        return [_actor(view, name) for name in view.actors]

    return answer({"actors": await call.run(run)})


@handles("actors.read")
async def read_actor(
    call: Authorized, actor_id: Annotated[str, Path(min_length=1, max_length=1_000)], at: At = None
) -> Response:
    """Return an actor with its binding, its rights and its keys."""

    def run() -> dict[str, Any]:
        view = view_at(call, at)
        if actor_id not in view.actors:
            raise RefusedError(
                ErrorCode.NOT_FOUND, f"No actor {actor_id[:80]!r} is registered; `GET /actors` lists them."
            )
        rights = [_right(one) for one in view.rights.get(actor_id, {}).values()]
        keys = [one for one in _keys(looked_at(call, at).ledger()) if one["agentId"] == actor_id]
        return {**_actor(view, actor_id), "rights": rights, "keys": keys}

    return answer(await call.run(run))


def _actor(view: RealmView, name: str) -> dict[str, Any]:
    return {**view.actors[name].to_wire(), "binding": view.bindings.get(name)}


@handles("tokens.list")
async def list_tokens(call: Authorized) -> Response:
    """List the API tokens that were not revoked; a token itself is recorded nowhere."""
    return answer({"tokens": [event_form(one) for one in call.view.tokens.values()]})


@handles("rights.list")
async def list_rights(call: Authorized, at: At = None) -> Response:
    """List the rights in force."""

    def run() -> list[dict[str, Any]]:
        return [_right(one) for held in view_at(call, at).rights.values() for one in held.values()]

    return answer({"rights": await call.run(run)})


def _right(one: RightGranted) -> dict[str, Any]:
    return {
        "actorId": one.actor_id,
        "right": one.right,
        "redaction": one.redaction,
        "by": one.by,
        "since": one.at,
    }


@handles("keys.list")
async def list_keys(call: Authorized, at: At = None) -> Response:
    """List the registered keys of agents, revoked ones included."""
    return answer({"keys": await call.run(lambda: _keys(looked_at(call, at).ledger()))})


def _keys(ledger: ReadableLedger) -> list[dict[str, Any]]:
    return [
        {"keyId": one.key_id, "agentId": one.agent_id, "publicKey": one.public, "revoked": one.revoked}
        for one in ledger.keys.values()
    ]
