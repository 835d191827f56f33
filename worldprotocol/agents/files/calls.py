"""Reads that wait for nothing, and writes of whole files that lose no change of another.

A read takes ``CONSUMES CONTENT:`` of the content that is there, which nothing mutates; it counts as read if the same
content is there after it. A write of a whole file is refused under its lease where the file is not the content that its
session last read or wrote: ``STALE_READ`` names who changed it. Without such a content it is ``NOT_READ``, before it is
proposed, so that it waits for nothing. A new file needs none, and neither does an edit that carries its context.
Source: docs/agents.md.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.state.proposal import Proposal
from worldprotocol.agents.call_values import is_claim_of, is_proposed_as
from worldprotocol.agents.files.hashes import content_hash, is_hash
from worldprotocol.agents.files.history import Reader, base_of, inputs_changed, reader_of
from worldprotocol.agents.files.refusals import FileFault, fault, not_read
from worldprotocol.agents.files.uses import FileUse, scan_key
from worldprotocol.agents.intents import Intent
from worldprotocol.agents.project import Project
from worldprotocol.agents.tool_calls import ToolCalls
from worldprotocol.api.callers.keyed import key_of, proposal_of_key
from worldprotocol.api.realm import Realm

__all__ = ["FileCalls"]

Refused = TypeVar("Refused")

MAX_BEGUN: Final = 10_000
"""Calls that were begun whose contents are kept in memory; the oldest are dropped, and count as nothing known."""

MAX_DETAIL: Final = 500
"""Characters of an error that are recorded."""

_SEEN_ANEW: Final = frozenset({"content", "base", "bases"})
"""Members of an input that another look at the files may change."""

_READ: Final = "file.read"
_EDIT: Final = "file.edit"
_CREATE: Final = "file.create"
_PATCH: Final = "file.patch"
_DELETE: Final = "file.delete"
_COMMAND: Final = "command.run"
_OF_FILES: Final = frozenset({_READ, _EDIT, _CREATE, _PATCH, _DELETE, _COMMAND})


@dataclass(frozen=True, slots=True)
class _CallOnFiles:
    """A call that was begun: its proposal, what it uses, and the contents that its files had then."""

    proposal_id: str
    use: FileUse
    before: Mapping[str, str | None]


@dataclass(slots=True)
class FileCalls:
    """The contents of the files of a project, for the calls of its agents; safe to use from several threads.

    What sessions have read is in the log. In memory are the contents at the beginning of calls that have not ended; a
    call that ends after a restart of the server reads nothing.

    Args:
        project: the project.
        leases_reads: whether reads lease files in place of contents (``[agents] reads = "leased"``).
    """

    project: Project
    leases_reads: bool = False
    _begun: OrderedDict[tuple[str, str], _CallOnFiles] = field(default_factory=OrderedDict)
    _continued: OrderedDict[tuple[str, str], dict[str, Any]] = field(default_factory=OrderedDict)
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def proposed(self, realm: Realm, reader: Reader, key: str, intent: Intent, *, has_own_id: bool) -> Intent:
        """Return the intent of a call with what its files hold now, and what its session has read of them.

        A call that was proposed before keeps what was seen then, so that it is the same call; an equal one that was
        proposed before a later reading of the session, and was not begun, is withdrawn.

        Args:
            realm: the realm, open for acting.
            reader: who makes the call.
            key: the key of the call.
            intent: the call.
            has_own_id: whether the key is the id of this call alone.

        Raises:
            RefusedError: ``NOT_READ``; nothing is proposed, and no lease is requested.
        """
        if intent.action not in _OF_FILES:
            return intent
        own = _own(realm, reader.actor_id)
        known = next((one for one in own if _is_claimed(one, key) or _is_unbegun(one, key)), None)
        if known is None and has_own_id:
            known = proposal_of_key(realm, reader.actor_id, key)
        with self._mutex:
            seen = self._continued.get((reader.actor_id, key)) if has_own_id else None
        if known is not None:
            seen = _only(known.intent.body.input, *_SEEN_ANEW)
        if seen is None:
            seen = self._seen(realm, reader, intent)
            waiting = [one for one in own if _is_waiting(one, intent)]
            equal = next((one for one in waiting if _bases(one.intent.body.input) == _bases(seen)), None)
            if equal is not None:
                seen = _only(equal.intent.body.input, *_SEEN_ANEW)
                self._continue(reader.actor_id, key, seen)
            for one in waiting:
                if _bases(one.intent.body.input) != _bases(seen) and reader_of(one.submitted) == reader:
                    calls = ToolCalls(realm, reader.actor_id, reader.client)
                    calls.give_up(key_of(one.submitted), "The call was made again after another reading.")
            if equal is None and intent.action != _READ and not intent.input.get("guarded"):
                self._check_read(intent, seen)  # what the policy says of a guarded file is recorded
        return Intent(intent.action, {**intent.input, **seen}, intent.files)

    def _check_read(self, intent: Intent, seen: Mapping[str, Any]) -> None:
        """Refuse a write of a whole file that its session has not read.

        Raises:
            RefusedError: ``NOT_READ``.
        """
        for path in sorted(intent.files.whole):
            reason = not_read(intent.action, path, _base(seen, path), self._content(path))
            if reason is not None:
                raise RefusedError(ErrorCode.NOT_READ, f"{reason}.", path=path)

    def _continue(self, actor_id: str, key: str, seen: dict[str, Any]) -> None:
        with self._mutex:
            self._continued[actor_id, key] = seen
            while len(self._continued) > MAX_BEGUN:
                self._continued.popitem(last=False)

    def begin(self, realm: Realm, proposal: Proposal, key: str, use: FileUse) -> FileFault | None:
        """Look at the files of a call that is allowed, under its leases.

        Args:
            realm: the realm.
            proposal: its proposal.
            key: the key of the call.
            use: what it does with the contents of files.

        Returns:
            Why it must not be made: it would lose a change of another. None where it may be.
        """
        action, given, name = proposal.intent.body.type, proposal.intent.body.input, proposal.proposal_id
        with self._mutex:
            begun = self._begun.get((proposal.submitted.actor.actor_id, key))
        if begun is not None and begun.proposal_id == name:
            return None  # its event is repeated, and the tool may be writing
        before = {path: self._content(path) for path in use.paths}
        for path in sorted(use.whole) if action != _READ else ():
            found = fault(realm, proposal, path, _base(given, path), before[path])
            if found is not None:
                return found
        with self._mutex:
            if before:
                self._begun[proposal.submitted.actor.actor_id, key] = _CallOnFiles(name, use, before)
            while len(self._begun) > MAX_BEGUN:
                self._begun.popitem(last=False)
        return None

    def checked(
        self, realm: Realm, proposal: Proposal, by: tuple[str, FileUse], refuse: Callable[[str, str], Refused]
    ) -> Refused | None:
        """Look at the files of an allowed call as ``begin`` does, and refuse it where it must not be made.

        Args:
            realm: the realm.
            proposal: its proposal.
            by: the key of the call, and what it does with the contents of files.
            refuse: reports that it is not made, by a code and a sentence without its end, and returns the answer.

        Returns:
            The answer; None where it may be made. Where its files cannot be compared, it is refused, and the error is
            raised.
        """
        try:
            found = self.begin(realm, proposal, *by)
        except Exception as error:
            refuse("TOOL_NOT_CALLED", f"Its files could not be compared: {error}"[:MAX_DETAIL].rstrip("."))
            raise
        return None if found is None else refuse(str(found[0]), found[1])

    def end(self, realm: Realm, actor_id: str, key: str, *, is_partial: bool = False) -> dict[str, Any]:
        """Return what the result of a call says about files; its leases hold until it is recorded.

        Args:
            realm: the realm.
            actor_id: the agent.
            key: the key of the call.
            is_partial: whether the tool said that it read a part of its file.
        """
        with self._mutex:
            begun = self._begun.pop((actor_id, key), None)
        proposal = _claimed(realm, actor_id, key)
        if proposal is None:
            return {}
        if begun is not None and begun.proposal_id != proposal.proposal_id:
            begun = None
        action, given = proposal.intent.body.type, proposal.intent.body.input
        if action == _COMMAND:
            changed = self.inputs_changed(realm, actor_id, key)
            return {"inputsChanged": changed} if changed else {}
        after = {path: self._content(path) for path in (_written(given, action) if begun is None else begun.use.paths)}
        seen = {} if begun is None or is_partial else _seen_after(begun, given, action, after)
        wrote = {} if action == _READ else after
        return {name: value for name, value in (("seen", seen), ("wrote", wrote)) if value}

    def inputs_changed(self, realm: Realm, actor_id: str, key: str) -> list[str]:
        """Return the files that others changed since a call was begun, or are changing.

        Args:
            realm: the realm.
            actor_id: the agent.
            key: the key of the call.
        """
        proposal = _claimed(realm, actor_id, key)
        return [] if proposal is None else inputs_changed(realm, proposal.proposal_id)

    def forget(self, actor_id: str, key: str) -> None:
        """Forget a call that failed: what its files hold now is not known.

        Args:
            actor_id: the agent.
            key: the key of the call.
        """
        with self._mutex:
            self._begun.pop((actor_id, key), None)

    def _content(self, path: str) -> str | None:
        return content_hash(f"{self.project.root}{path}")

    def _seen(self, realm: Realm, reader: Reader, intent: Intent) -> dict[str, Any]:
        """Return the members of an input that say what its files hold, and what its session has read of them."""
        action, use = intent.action, intent.files
        if action in (_READ, _COMMAND):
            if self.leases_reads:
                return {}
            content = None if use.scan else self._content(use.paths[0])
            return {"content": content if is_hash(content) else use.scan or scan_key(intent.input["path"])}
        if action == _PATCH:
            there = {path: base_of(realm, reader, path) for path in use.whole if self._content(path) is not None}
            bases = {path: base.content for path, base in sorted(there.items()) if base is not None}
            return {"bases": bases} if bases else {}
        if action not in (_EDIT, _DELETE):
            return {}
        content = self._content(intent.input["path"])
        base = base_of(realm, reader, intent.input["path"]) if action == _EDIT else None
        found = {"content": content if is_hash(content) else None, "base": None if base is None else base.content}
        return {name: value for name, value in found.items() if value is not None}


def _seen_after(begun: _CallOnFiles, given: Any, action: str, after: Mapping[str, str | None]) -> dict[str, str]:
    """Return the contents that a session has read or written whole, after a call.

    They are those that it read whole and that did not change meanwhile, that it wrote whole, and that it changed from
    one that it knew.
    """
    seen = {}
    for path, content in after.items():
        before, is_whole = begun.before[path], path in begun.use.whole
        base = _base(given, path)
        is_known = (
            is_whole and before == content if action == _READ else is_whole or (base is not None and before == base)
        )
        if is_known and content is not None and is_hash(content):
            seen[path] = content
    return seen


def _is_unbegun(proposal: Proposal, key: str) -> bool:
    return is_proposed_as(key, proposal.submitted) and not proposal.claims


def _is_waiting(proposal: Proposal, intent: Intent) -> bool:
    """Return whether an open proposal is that of an equal call which was not begun, whatever was seen then."""
    body = proposal.intent.body
    if body.type != intent.action or proposal.claims or proposal.journal or proposal.in_doubt:
        return False
    given = {name: value for name, value in body.input.items() if name not in _SEEN_ANEW}
    return proposal.cancelled is None and given == intent.input


def _own(realm: Realm, actor_id: str) -> list[Proposal]:
    return [one for one in realm.realm().proposals.values() if one.submitted.actor.actor_id == actor_id]


def _claimed(realm: Realm, actor_id: str, key: str) -> Proposal | None:
    """Return the open proposal that was claimed with a key."""
    return next((one for one in _own(realm, actor_id) if _is_claimed(one, key)), None)


def _is_claimed(proposal: Proposal, key: str) -> bool:
    return any(is_claim_of(key, claim) for claim in proposal.claims.values())


def _only(given: Mapping[str, Any], *members: str) -> dict[str, Any]:
    return {name: given[name] for name in members if name in given}


def _bases(given: Mapping[str, Any]) -> tuple[Any, Any]:
    return given.get("base"), given.get("bases")


def _base(given: Any, path: str) -> str | None:
    """Return the content of a file that the session of a call knew when it was proposed."""
    base = given.get("base") or (given.get("bases") or {}).get(path)
    return base if isinstance(base, str) else None


def _written(given: Any, action: str) -> list[str]:
    if action == _PATCH:
        return [*given["writes"], *given["deletes"]] if not given["unclear"] else []
    return [given["path"]] if action in (_EDIT, _CREATE, _DELETE) else []
