"""What the results of calls record about contents of files: which sessions have read or written them.

The results are read from the log, the newest first, so that nothing is lost with the process. A result has the members
``seen``, by path the content that its session has read or written whole, ``wrote``, by path the content that is there
after it (null: none), and, of a shell command, ``changed``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from world.events.claim_events import EffectClaimed
from world.events.execution_events import EffectFulfilled
from world.events.proposal_events import ProposalSubmitted
from world.klis.triple import CHANGES
from world.model.canonical_json import canonical_bytes
from world.read_models.decoding import decoded
from worldprotocol.api.realm import Realm

__all__ = [
    "MOST_SEARCHED",
    "FileBase",
    "FileChange",
    "Reader",
    "base_of",
    "changes_since",
    "inputs_changed",
    "reader_of",
]

MOST_SEARCHED: Final = 50_000
"""Events of the log that are searched for what a session has read, the newest first."""

MOST_CHANGED: Final = 1_000
"""Names of files that others changed during a command that are recorded."""

_FIRST: Final = 512
_NOT_MADE: Final = frozenset({"NOT_READ", "STALE_READ", "TOOL_NOT_CALLED"})
"""Failures of calls that changed nothing."""

_FILE: Final = "FILE:"


class Reader(NamedTuple):
    """Who reads and writes: a session of an agent, and a subagent in it.

    Args:
        actor_id: the agent's actor.
        client: the name of its program.
        session: id of its session.
        agent_id: id of the subagent; None is the agent itself.
    """

    actor_id: str
    client: str
    session: str
    agent_id: str | None


class FileBase(NamedTuple):
    """The content of a file that a session last read or wrote whole, and the position of the result that records it."""

    content: str
    position: int


@dataclass(frozen=True, slots=True)
class FileChange:
    """A call that changed a file, or may have.

    Args:
        reader: who made it.
        proposal_id: its proposal.
        at: when it ended, ms since 1970.
        content: what it left there; None where the file was gone.
        is_certain: whether the content is known.
    """

    reader: Reader
    proposal_id: str
    at: int
    content: str | None = None
    is_certain: bool = True


def reader_of(submitted: ProposalSubmitted) -> Reader:
    """Return who made a call, by the trace of its proposal."""
    trace = submitted.trace or {}
    client, session, agent = (trace.get(name) for name in ("client", "session", "agentId"))
    return Reader(submitted.actor.actor_id, str(client), str(session), agent if isinstance(agent, str) else None)


def base_of(realm: Realm, reader: Reader, path: str, *, content: str | None = None) -> FileBase | None:
    """Return the content that a session last read or wrote whole; None where there is none.

    Args:
        realm: the realm.
        reader: the session.
        path: the file, from the root of the project.
        content: only this one; None is the last one.
    """
    for position, event in _newest(realm, max(0, realm.log.head().size - MOST_SEARCHED), path):
        found = _member(event, "seen").get(path)
        if not isinstance(found, str) or (content is not None and found != content):
            continue
        if event.verified is not None and event.verified.actor_id not in (None, reader.actor_id):
            continue
        submitted = _submitted(realm, event.proposal_id)
        if submitted is not None and reader_of(submitted) == reader:
            return FileBase(found, position)
    return None


def changes_since(realm: Realm, path: str, position: int) -> Iterator[FileChange]:
    """Yield the calls after a position that changed a file or may have, the newest first.

    Args:
        realm: the realm.
        path: the file.
        position: in the log.
    """
    for _, event in _newest(realm, max(position, realm.log.head().size - MOST_SEARCHED)):
        wrote = _member(event, "wrote")
        is_certain = path in wrote
        if not is_certain and not _may_have_changed(realm, event, path):
            continue
        submitted = _submitted(realm, event.proposal_id)
        if submitted is not None:
            yield FileChange(reader_of(submitted), event.proposal_id, event.at, wrote.get(path), is_certain)


def inputs_changed(realm: Realm, proposal_id: str) -> list[str]:
    """Return the files that others changed since a command was begun, or are changing.

    Args:
        realm: the realm.
        proposal_id: of the command, whose call has not ended.
    """
    events = [decoded(one) for one in realm.log.stream(proposal_id)]
    begun = [one.token for one in events if isinstance(one, EffectClaimed)]
    found: set[str] = set()
    for _, event in _newest(realm, max([*begun[-1:], realm.log.head().size - MOST_SEARCHED])):
        if event.proposal_id != proposal_id:
            found.update(f"{_FILE}{path}" for path in _member(event, "wrote"))
            found.update(_changed(event))
    for lease in realm.realm().klis.leases.values():
        resource = lease.triple.resource
        if resource.type == "FILE" and lease.triple.predicate in CHANGES and lease.session.session_id != proposal_id:
            found.add(resource.text)
    return sorted(found)[:MOST_CHANGED]


def _newest(realm: Realm, after: int, path: str | None = None) -> Iterator[tuple[int, EffectFulfilled]]:
    """Yield the results of effects after a position, the newest first; with a path those alone that name it."""
    upto, count = realm.log.head().size, _FIRST
    name = b"" if path is None else canonical_bytes(path)
    while upto > after:
        begin = max(after, upto - count)
        events = realm.log.read(begin, upto, topics=[EffectFulfilled.TOPIC], skip_archived=True)
        for logged in reversed([one for one in events if name in one.state]):
            event = decoded(logged)
            if isinstance(event, EffectFulfilled):
                yield logged.position, event
        upto, count = begin, count * 2


def _member(event: EffectFulfilled, name: str) -> Mapping[str, Any]:
    value = event.result.value
    found = value.get(name) if isinstance(value, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _changed(event: EffectFulfilled) -> list[str]:
    value = event.result.value
    found = value.get("changed") if isinstance(value, Mapping) else None
    return [one for one in found if isinstance(one, str)] if isinstance(found, list | tuple) else []


def _may_have_changed(realm: Realm, event: EffectFulfilled, path: str) -> bool:
    """Return whether a call may have changed a file: a command, or a call that failed."""
    error, value = event.result.error, event.result.value
    if error is not None:
        return error.code not in _NOT_MADE and _declares(realm, event, path)
    if isinstance(value, Mapping) and "changed" in value:
        return f"{_FILE}{path}" in _changed(event)
    return not _member(event, "wrote") and _declares(realm, event, path)


def _declares(realm: Realm, event: EffectFulfilled, path: str) -> bool:
    """Return whether a call declared to write a file."""
    submitted = _submitted(realm, event.proposal_id)
    if submitted is None:
        return False
    body = submitted.intent.body
    given = body.input if isinstance(body.input, Mapping) else {}
    named = [*(given.get("writes") or ()), *(given.get("deletes") or ())]
    if body.type in ("file.edit", "file.create", "file.delete"):
        named.append(given.get("path"))
    places = [one for one in named if isinstance(one, str)]
    return any(one == path or (one.endswith("/*") and path.startswith(one[:-1])) for one in places)


def _submitted(realm: Realm, proposal_id: str) -> ProposalSubmitted | None:
    """Return the submission of a proposal; None where a cut removed its content."""
    [(position,)] = realm.archive.rows("place", {"of_proposal": proposal_id})
    found = next(realm.log.read(int(position) - 1, int(position), skip_archived=True), None)
    event = None if found is None else decoded(found)
    return event if isinstance(event, ProposalSubmitted) else None
