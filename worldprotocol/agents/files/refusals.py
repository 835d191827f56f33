"""Refusals of writes of whole files that would lose a change of another, and who made that change."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from world.error_codes import ErrorCode
from world.state.proposal import Proposal
from worldprotocol.agents.files.hashes import MAX_BYTES, UNKNOWN
from worldprotocol.agents.files.history import FileChange, Reader, base_of, changes_since, reader_of
from worldprotocol.api.proposal_summary import moment
from worldprotocol.api.realm import Realm

__all__ = ["FileFault", "fault", "not_read"]

FileFault = tuple[ErrorCode, str]
"""Why a call must not be made: the code, and a sentence for the agent."""

MOST_COMPARED: Final = 100
"""Changes since a reading that are looked at, the newest first."""

MOST_NAMED: Final = 3
"""Changes that a refusal names."""


_UNKNOWN: Final = (
    "{} cannot be compared with what this session read: it is no regular file, has more than "
    f"{MAX_BYTES // 2**20} MiB, or the server may not read it. Change it by an edit that names what it replaces"
)
_NOT_READ: Final = (
    "{} exists, and this session has not read all of it, or it changed while it was read. Read it, then write it; or "
    "change it by an edit that names the text it replaces"
)


def not_read(action: str, path: str, base: str | None, now: str | None) -> str | None:
    """Return why a whole file must not be written that its session has not read; None for any other file.

    That does not depend on a lease, so the call is refused before it is proposed.

    Args:
        action: of the call.
        path: the file.
        base: the content that the session last read or wrote; None is none.
        now: the content that is there; None where there is no file.
    """
    if _code(action, base, now) != ErrorCode.NOT_READ:
        return None
    return _UNKNOWN.format(path) if now == UNKNOWN else _NOT_READ.format(path)


def fault(realm: Realm, proposal: Proposal, path: str, base: str | None, now: str | None) -> FileFault | None:
    """Return why a whole file must not be written; None where it may be.

    Args:
        realm: the realm.
        proposal: of the call, which has its leases.
        path: the file.
        base: the content that its session knew when the call was proposed; None is none.
        now: the content that is there; None where there is no file.
    """
    code = _code(proposal.intent.body.type, base, now)
    return None if code is None else (code, _sentence(realm, proposal, code, (path, base, now)))


def _code(action: str, base: str | None, now: str | None) -> ErrorCode | None:
    if now is None:
        return None if base is None else ErrorCode.STALE_READ
    if action == "file.create" or base is not None:
        return None if now == base else ErrorCode.STALE_READ
    return ErrorCode.NOT_READ


def _sentence(realm: Realm, proposal: Proposal, code: ErrorCode, found: tuple[str, str | None, str | None]) -> str:
    path, base, now = found
    if now == UNKNOWN:
        return _UNKNOWN.format(path)
    if code == ErrorCode.NOT_READ:
        return _NOT_READ.format(path)
    reader = reader_of(proposal.submitted)
    known = None if base is None else base_of(realm, reader, path, content=base)
    [(proposed,)] = realm.archive.rows("place", {"of_proposal": proposal.proposal_id})
    who = _who(changes_since(realm, path, int(proposed) if known is None else known.position), reader, now)
    what = "is no longer there" if now is None else "is not what this session last read or wrote"
    if base is None:
        what = "was created after this call was proposed"
    return f"{path} {what}: {who}. Read it, then decide again what to write"


def _who(changes: Iterator[FileChange], reader: Reader, now: str | None) -> str:
    """Return who made the changes of a file, others before the session itself."""
    found = list(islice(changes, MOST_COMPARED))
    certain = [one for one in found if one.is_certain]
    if not certain or certain[0].content != now:
        doubtful = [one for one in found[: found.index(certain[0]) if certain else None] if not one.is_certain]
        if not doubtful:
            return "it was changed outside of the protocol"
        return f"{_words(doubtful[0], reader)} may have changed it, or it was changed outside of the protocol"
    named = sorted(certain, key=lambda one: one.reader == reader)[:MOST_NAMED]
    return " and ".join(f"{_words(one, reader)} {'deleted' if one.content is None else 'changed'} it" for one in named)


def _words(change: FileChange, reader: Reader) -> str:
    who = change.reader.actor_id
    if change.reader == reader:
        who = "this session"
    elif who == reader.actor_id:
        who = f"another session of {who}"
    return f"{who} (proposal {change.proposal_id}, {moment(change.at)})"
