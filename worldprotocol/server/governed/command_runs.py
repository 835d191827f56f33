"""Operations of ``worldctl run --call``: begin the run of an allowed shell command, continue it, and end it.

The process that runs the command is on the machine of the workspace; it asks every few seconds whether it continues. A
run that is silent has ended, and its result is not known.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import Response

from world.state.effect_claim import EffectReport, read_form
from worldprotocol.agents.command_runs import VIOLATED, CommandRuns, RunRequest
from worldprotocol.server.bodies import RunToBegin, RunToContinue, RunToEnd
from worldprotocol.server.call import Authorized, answer
from worldprotocol.server.governed.calls import agents_of
from worldprotocol.server.operation_table import handles

__all__: list[str] = []


@handles("calls.run")
async def begin_run(call: Authorized, body: RunToBegin) -> Response:
    """Begin the run of an allowed shell command; the answer is its text, its scope and its workspace."""
    agents, name = agents_of(call), (call.actor_id, body.key)
    runs, absent = CommandRuns(call.realm, call.actor_id), agents.absent(call.hosted.realm)
    request = RunRequest(body.key, body.text, body.boundary, body.isUnconfined)

    def begin() -> dict[str, Any]:
        absent.take_run(name)
        return runs.begin(request, agents.boundary)

    terms = await call.run(begin)
    agents.running.hear(name)
    return answer({**terms, "workspace": agents.workspace_to_wire()})


@handles("calls.extend")
async def extend_run(call: Authorized, body: RunToContinue) -> Response:
    """Return whether a run continues, whether another server holds it, and at its end what others changed meanwhile."""
    agents, name = agents_of(call), (call.actor_id, body.key)
    runs, absent = CommandRuns(call.realm, call.actor_id), agents.absent(call.hosted.realm)

    def extend() -> dict[str, bool]:
        if not runs.is_wanted(body.key, call.service.clock.now_ms()):
            return {"goesOn": False, "elsewhere": False}
        return {"goesOn": True, "elsewhere": not absent.hear_run(name, moves=body.moves)}

    found: dict[str, Any] = await call.run(extend)
    if body.isEnding:
        changed = partial(agents.files.inputs_changed, call.realm, *name)
        found["inputsChanged"] = await call.run(changed)
    return answer(found)


@handles("calls.end")
async def end_run(call: Authorized, body: RunToEnd) -> Response:
    """Record how a run ended, which completes the effect of its call."""
    agents = agents_of(call)
    running, runs = agents.running, CommandRuns(call.realm, call.actor_id)
    report = read_form(EffectReport, {"result": {}, "observed": body.observed, "violations": body.violations})
    value: dict[str, Any] = {"exitCode": body.exitCode, "heldBy": body.heldBy, "changed": body.changed}
    failure = None if body.code is None else (body.code, body.reason)
    try:
        value |= await call.run(lambda: agents.files.end(call.realm, call.actor_id, body.key))
        ended = await call.run(lambda: runs.end(body.key, value, failure, report))
    finally:
        running.drop((call.actor_id, body.key))
    given = ended.intent.body.input
    if body.code == VIOLATED and body.isWithin and given.get("confined"):
        running.widen(call.actor_id, given["command"])
    changed = value.get("inputsChanged", [])
    return answer({"proposalId": ended.proposal_id, "status": ended.status, "inputsChanged": changed})
