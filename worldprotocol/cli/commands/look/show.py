"""``worldctl show``: one thing, with its actor, content, time and reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from world.model.record import to_wire
from worldprotocol.cli.commands.look.inbox import votes
from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.point_in_time import at_option, moment
from worldprotocol.cli.support.redaction import check_position, redact_option, redaction, unlisted, withheld
from worldprotocol.cli.support.rendering.runs import effect_lines, show_run, show_session, verification_of
from worldprotocol.cli.support.waiting_for_leases import in_words, leases_wanted

if TYPE_CHECKING:
    from world.state.proposal import Proposal
    from worldprotocol.cli.support.point_in_time import PointInTime
    from worldprotocol.export.redaction import Redaction


@command("show")
@click.argument("named", metavar="ID")
@click.option("--data", "with_data", is_flag=True, help="For a world: its whole data as well.")
@at_option("As it stood at this point in the past; an event is proven to be in the tree of then.")
@redact_option
def show(desk: CommandContext, named: str, with_data: bool, at: str | None, rules: tuple[str, ...]) -> int:
    """Show an event (by position), or an intent, proposal, decision, world, run or session (by how its id begins).

    Of a verdict the event is shown; `worldctl explain` says why it was given.
    HEAD is the head of the active branch, and a branch's name is that branch's head. Of a run, of all runs of a
    session, and of what a proposal's effects did, it shows the verification log: what was declared, what was seen, what
    was outside of it, and what was given back. The snapshot of a world is rebuilt and compared with its hash.
    With --redact, what is made of hidden events is not shown, only the leaf hashes of these; nor is, for a world, whose
    head it is, or for a proposal the other holders of the leases that it waits for: these come from other events.
    """
    from world.read_models.lineage import number
    from worldprotocol.api.lookup.id_lookup import KINDS, as_position

    if rules and with_data:
        raise click.UsageError("--data and --redact cannot be together: a state is made of all events before it.")
    hidden = redaction(desk, rules)
    with desk.look() as world:
        if hidden:
            check_position(world, at)
        with unlisted(hidden):
            then = moment(world, at)
            upto = None if at is None else then.position
            position = as_position(world, named)
            kind, name = ("event", named) if position else then.find(named, [*KINDS, "verdict"])
        if kind == "verdict":
            position = number(world.archive.rows("verdict", {"of_verdict": name})[0][0])
            kind, name = "event", str(position)
        withheld_part = withheld(world, hidden, kind, name, then.position)
        if withheld_part is not None:
            wire, lines = withheld_part
        elif position:
            wire, lines = _event(then, position)
        elif kind == "world":
            wire, lines = _world(then, name, hidden, with_data=with_data)
        elif kind == "run":
            wire, lines = show_run(world, name, upto)
        elif kind == "session":
            wire, lines = show_session(world, name, upto)
        else:
            wire, lines = _proposal(then, name, hidden)
    desk.out.tell(wire, *lines)
    return 0


def _event(then: PointInTime, position: int) -> tuple[dict[str, Any], list[str]]:
    import orjson

    from world.read_models.decoding import state_of

    then.check_seen(f"Event {position} was recorded", position)
    logged = then.world.log.event_at(position)
    proof = then.world.log.prove_inclusion(position, then.position)
    state = state_of(logged)
    wire = {
        "kind": "event",
        "position": position,
        "stream": logged.stream,
        "version": logged.version,
        "topic": logged.topic,
        "schemaVersion": logged.schema_version,
        "state": state,
        "leaf": logged.leaf.hex(),
        "inclusion": {
            "size": proof.head.size,
            "root": proof.head.root_hex,
            "path": [node.hex() for node in proof.path],
        },
    }
    lines = [
        f"event {position}: {logged.topic} (version {logged.schema_version})",
        f"  when    {_when(state.get('at'))}",
        f"  stream  {logged.stream}, {logged.version}",
        f"  leaf    {logged.leaf.hex()}",
    ]
    rendered = orjson.dumps(state, option=orjson.OPT_INDENT_2).decode().split("\n")
    lines += [f"{'' if at else '  state':<10}{line}" for at, line in enumerate(rendered)]
    return wire, lines


def _world(then: PointInTime, world_id: str, hidden: Redaction, *, with_data: bool) -> tuple[dict[str, Any], list[str]]:
    from world.read_models.lineage import number

    archive, upto = then.world.archive, then.position
    sealed = archive.sealed(world_id)
    row = archive.world(world_id)
    then.check_seen(f"World {world_id[:12]} was sealed", row.position)
    data = archive.checked_state(world_id)
    below = {str(found[0]): number(found[3]) for found in archive.rows("children", {"of_world": world_id})}
    children = [name for name, at in below.items() if at <= upto and not _is_hidden(then, at, hidden)]
    proposal = None if sealed.created_by is None else archive.proposal(sealed.created_by, upto)
    heads = then.heads().branches.values()
    wire: dict[str, Any] = {
        "kind": "world",
        "worldId": world_id,
        "contentId": sealed.content_id,
        "schemaHash": sealed.schema_hash,
        "snapshotHash": sealed.snapshot_hash,
        "parent": sealed.parent,
        "createdAt": sealed.at,
        "createdBy": sealed.created_by,
        "branch": sealed.branch,
        "outcome": sealed.outcome,
        "height": sealed.height,
        "position": row.position,
        "patches": to_wire(sealed.patches),
        "error": to_wire(sealed.error),
        "children": children,
        **({} if hidden else {"heads": [one.name for one in heads if one.head == world_id]}),
        "snapshotChecked": True,
    }
    if proposal is not None:
        wire["proposal"] = proposal.to_wire()
    if with_data:
        wire["data"] = data
    return wire, list(_world_lines(wire, proposal, then))


def _is_hidden(then: PointInTime, position: int, hidden: Redaction) -> bool:
    return bool(hidden) and hidden.hides(then.world.log.event_at(position))


def _world_lines(wire: Mapping[str, Any], proposal: Proposal | None, then: PointInTime) -> Iterator[str]:
    yield f"world {wire['worldId']}: {wire['outcome']}"
    yield f"  when      {_when(wire['createdAt'])}, event {wire['position']}, height {wire['height']}"
    yield f"  parent    {wire['parent'] or 'none: this is genesis'}"
    yield f"  branch    {wire['branch']}" + (f"; head of {', '.join(wire['heads'])}" if wire.get("heads") else "")
    yield f"  children  {', '.join(child[:12] for child in wire['children']) or 'none'}"
    yield f"  content   {wire['contentId']}"
    yield f"  snapshot  {wire['snapshotHash']}, rebuilt and its hash agrees"
    yield f"  schema    {wire['schemaHash']}"
    for patch in wire["patches"]:
        yield f"  {patch['op']:<6}{patch['path']}" + ("" if patch["op"] == "unset" else f" = {_json(patch['value'])}")
    if wire["error"] is not None:
        yield f"  error     {wire['error']['code']}: {wire['error']['message']}"
    if proposal is not None:
        yield "  made by"
        yield from ("    " + line for line in _proposal_lines(proposal.to_wire(), then))
    if "data" in wire:
        yield f"  data      {_json(wire['data'])}"


def _proposal(then: PointInTime, proposal_id: str, hidden: Redaction) -> tuple[dict[str, Any], list[str]]:
    """Return a proposal as JSON and as lines, with what it waits for; others' leases only where nothing is hidden."""
    world, upto = then.world, then.position
    proposal = world.archive.proposal(proposal_id, upto)
    events = [logged.position for logged in world.log.stream(proposal_id) if logged.position <= upto]
    wire = {"kind": "proposal", **proposal.to_wire(), "events": events}
    if then.point is not None:
        wire["at"] = upto
    leases = leases_wanted(then.realm(), proposal_id) if proposal.wants_leases and not hidden else None
    if leases is not None:
        wire["leases"] = leases
    if proposal.asked is not None:
        wire["votes"] = votes(proposal.asked, proposal.submitted.actor.actor_id)
    lines = [*_proposal_lines(wire, then), f"  events    {', '.join(map(str, events))}"]
    seen = verification_of(world, proposal_id, upto)
    if seen is not None:
        wire["verification"] = {name: seen[name] for name in ("observed", "violations", "rollbacks")}
        lines += effect_lines(seen)
    return wire, lines


def _proposal_lines(wire: Mapping[str, Any], then: PointInTime) -> Iterator[str]:
    intent, body = wire["intent"], wire["intent"]["body"]
    origin = intent["meta"]["origin"]
    held = f", held: {wire['held']}" if "held" in wire else ""
    ended = f" ({wire['endedReason']})" if "endedReason" in wire else ""
    yield f"proposal {wire['proposalId']}: {wire['status']}{held}{ended}"
    yield f"  who       {wire['actor']['actorId']} ({wire['actor']['kind']})"
    yield f"  what      {body['type']} {_json(body.get('input'))}"
    if body.get("scopeProposal") is not None:
        yield f"  scope     {_json(body['scopeProposal'])} proposed"
    yield f"  when      {_when(wire['submittedAt'])}, on {wire['branch']} at {wire['baseWorld'][:12]}"
    yield f"  intent    {intent['intentId']}, attempt {wire['attempt']} at {intent['intentKey'][:12]}"
    source = origin["source"]
    yield f"  from      {source['kind']} event {source['eventId']} through {origin['projectionId']}"
    if origin.get("note"):
        yield f"  note      {origin['note']}"
    yield from _why(wire, then)
    if wire.get("worldId") is not None:
        yield f"  world     {wire['worldId']}"
    if wire.get("error") is not None:
        yield f"  error     {wire['error']['code']}: {wire['error']['message']}"


def _why(wire: Mapping[str, Any], then: PointInTime) -> Iterator[str]:
    """Yield the decision with its authority and reason, and the answer of each rule."""
    for answer in wire.get("answers", ()):
        reason = f": {answer['reason']}" if answer.get("reason") else ""
        if answer["choice"] == "ask":
            yield f"  question  by {answer['by']['actorId']}{reason}"
        else:
            to = f" to {answer['to']}" if "to" in answer else ""
            yield f"  answer    {answer['choice']}{to} by {answer['by']['actorId']}{reason}"
    decision, ruling = wire.get("decision"), wire.get("ruling")
    if decision is not None:
        yield f"  why       {decision['decision']} by {decision['authority']}: {decision['reason']}"
        if decision["decision"] == "approved" and decision.get("approvedScope") is not None:
            yield f"            within {_json(decision['approvedScope'])}"
        yield f"  decision  {decision['decisionId']}, {_when(decision['decidedAt'])}"
    elif ruling is not None and ruling["verdict"] == "approve":
        yield f"  ruling    approve by {ruling['authority']}: {ruling['reason']}"
    elif ruling is not None:
        waits = f"for {', '.join(ruling.get('ask', ()))}: {ruling['reason']}"
        yield f"  waits     {waits}" + (f"; {_until(wire['deadline'], then)}" if "deadline" in wire else "")
    for outcome in (decision or ruling or {}).get("trace", ()):
        mark = "*" if outcome.get("decisive") else "-"
        reason = f": {outcome['reason']}" if outcome.get("reason") else ""
        to = f" to {', '.join(outcome['to'])}" if outcome["answer"] == "delegate" else ""
        yield f"            {mark} {outcome['rule']} {outcome['answer']}{to}{reason} [{outcome['source']}]"
    if "leases" in wire:
        hint = "; `worldctl settle` carries it on when they are free" if then.point is None else ""
        yield f"  waits     {in_words(wire['leases'], then.now)}{hint}"


def _until(deadline: int, then: PointInTime) -> str:
    if deadline < then.now:
        hint = ": the next command that acts decides it" if then.point is None else ""
        return f"overdue since {_when(deadline)}{hint}"
    return f"until {_when(deadline)}"


def _json(value: Any) -> str:
    from worldprotocol.json_text import as_text

    return "" if value is None else as_text(value)


def _when(at_ms: int | None) -> str:
    from worldprotocol.api.proposal_summary import moment

    return moment(at_ms)
