"""Scenarios: operations on an empty ledger, each with its own clock, for other implementations to compare with.

An operation gives one plain value; a refusal is a value too (``{"reject": CODE}``), and only an operation that makes no
sense in itself is answered by ``{"error": CODE, "message"}``. Nothing here has rules of its own: manifests are read by
``world.klis.manifest``, leases are the lease desk's, calls are read by ``conformance.calls`` and held against what was
declared by the watch of the host.
"""

from __future__ import annotations

import itertools
import json
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from conformance.calls import read_call
from conformance.klis_observing import Observing, ScratchWorkspace, lease_wire, read_declared
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.base import Event
from world.events.lease_events import LeasesExpired, VerdictGiven
from world.klis.identity.signature import key_id, verify
from world.klis.lease_manager import LeaseManager, RequestOptions
from world.klis.ledger import Ledger
from world.klis.manifest import Manifest, read_manifest
from world.klis.observation import Seen
from world.klis.predicate import Predicate, compatible, read_predicate
from world.klis.resources.resource_reading import canonical_resource
from world.klis.resources.resource_types import STANDARD, ResourceTypes
from world.klis.session import Lease, Session
from world.klis.settings import KlisSettings
from world.klis.triple import Triple, read_claim

__all__ = ["OPS", "LedgerScenario", "ScenarioCase", "read_cases"]

SETTINGS: Final = KlisSettings(max_named_conflicts=10_000, accept_priority=True)
"""The defaults, but every conflict is counted, and a priority_timestamp registers an unknown agent (KP-3e)."""

_BY: Final = "scenario"
_CHANNELS: Final = ("mtls", "plain")
_NOT_IN_FORCE: Final = frozenset({"UNKNOWN_LEASE", "LEASE_NOT_ACTIVE", "NOT_THE_HOLDER"})


@dataclass(frozen=True, slots=True)
class ScenarioCase:
    """Operations that belong together; ``name`` is the case's id, or its place."""

    name: str
    ops: list[Any]


def read_cases(text: bytes) -> tuple[list[ScenarioCase], bool]:
    """Read one case, a list of cases, ``{"cases": [...]}``, or JSON lines of cases.

    Returns:
        The cases, and whether the text is one case by itself.

    Raises:
        RefusedError: ``MALFORMED_JSON``, ``INVALID_SCENARIO``.
    """
    try:
        rendered = _json(text)
    except RefusedError as refused:
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) < 2:
            raise
        try:
            rendered = [_json(line) for line in lines]
        except RefusedError:
            raise refused from None
    if isinstance(rendered, dict) and "ops" in rendered:
        return [_case(rendered, 0)], True
    several = rendered.get("cases") if isinstance(rendered, dict) else rendered
    if not isinstance(several, list):
        raise _invalid('A scenario is {"ops": [...]}, a list of these, {"cases": [...]}, or a line for each.')
    return [_case(one, index) for index, one in enumerate(several)], False


def _case(rendered: Any, index: int) -> ScenarioCase:
    if not isinstance(rendered, dict) or not isinstance(rendered.get("ops"), list):
        raise _invalid(f'Case {index + 1} is no object with a list "ops".', case=index + 1)
    return ScenarioCase(str(rendered.get("id", index + 1)), rendered["ops"])


def _json(text: bytes) -> Any:
    """Read JSON as it is; a time to live of 2^64 is for the desk to refuse, in its place."""
    try:
        return json.loads(text, object_pairs_hook=_members, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise RefusedError(ErrorCode.MALFORMED_JSON, f"This is no JSON: {error.msg} at {where}.") from None
    except (ValueError, RecursionError) as error:
        raise RefusedError(ErrorCode.MALFORMED_JSON, f"The JSON cannot be read: {error}.") from None


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice in one object")
    return found


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number")


def _invalid(message: str, **details: Any) -> RefusedError:
    return RefusedError(ErrorCode.INVALID_SCENARIO, message, **details)


class LedgerScenario:
    """One ledger and the names that operations give to leases (``as``)."""

    def __init__(self, *, settings: KlisSettings = SETTINGS, types: ResourceTypes = STANDARD) -> None:
        """Begin with nothing registered, held or wanted."""
        self._settings, self._types = settings, types
        self._ledger = Ledger()
        self._names: dict[str, str] = {}
        self._expired = 0
        self._observed: dict[tuple[str, str], Observing] = {}
        self._scratch: ScratchWorkspace | None = None
        self._backed_up: dict[str, tuple[str, Triple]] = {}
        number = itertools.count(1)
        self._desk = LeaseManager(
            self._ledger, emit=self._emit, new_id=lambda: f"id-{next(number)}", before_grant=self._before_grant
        )
        self._desk.configure(settings, 0, by=_BY)

    def run(self, ops: list[Any]) -> Iterator[Any]:
        """Yield the result of each operation, in order; an operation that is refused changes nothing."""
        if any(isinstance(op, dict) and op.get("op") == "backup_exists" for op in ops):
            self._scratch = ScratchWorkspace()
        try:
            for op in ops:
                try:
                    yield self._one(op)
                except RefusedError as refused:
                    yield {"error": refused.code, "message": refused.message}
        finally:
            if self._scratch is not None:
                self._scratch.close()

    def _emit(self, event: Event) -> None:
        self._ledger.fold(event)
        if isinstance(event, LeasesExpired):
            self._expired += len(event.lease_ids)
        elif isinstance(event, VerdictGiven) and event.backup:
            for lease in event.leases:
                self._backed_up[lease.lease_id] = event.verdict_id, read_claim(lease, self._types)

    def _before_grant(self, verdict_id: str, session: Session, triples: tuple[Triple, ...], now: int) -> bool:
        return self._scratch is not None and self._scratch.before_grant(verdict_id, session, triples, now)

    def _one(self, op: Any) -> Any:
        name = op.get("op") if isinstance(op, dict) else None
        step = OPS.get(name) if isinstance(name, str) else None
        if step is None:
            raise _invalid(f"{op!r:.200} is no operation: an object whose op is one of {', '.join(OPS)}.")
        return step(self, op)

    # Agents

    def _register(self, op: Mapping[str, Any]) -> str:
        self._desk.register(_text(op, "agent"), self._now(op), priority=op.get("priority"), by=_BY)
        return "OK"

    def _register_key(self, op: Mapping[str, Any]) -> str:
        encoded = _text(op, "key")
        try:
            public = b64decode(encoded, validate=True)
        except ValueError:
            public = b""
        if len(public) != 32:
            raise _invalid("key is the base64 of an Ed25519 public key, 32 bytes.", path="$.key")
        self._desk.register_key(_text(op, "agent"), key_id(public), encoded, self._now(op), by=_BY)
        return "OK"

    # Leases

    def _acquire(self, op: Mapping[str, Any]) -> str:
        intent = {name: op[name] for name in ("predicate", "resource", "confidence") if name in op}
        given = self._ask(op, [intent], on_the_way=True)  # one lease of a larger piece of work, and no manifest
        return "REJECT" if isinstance(given, RefusedError) else given.status.upper()

    def _declare(self, op: Mapping[str, Any]) -> dict[str, Any]:
        given = self._ask(op, op.get("intents"))
        if isinstance(given, RefusedError):
            return {"reject": given.code}
        return {"verdict": given.status.upper(), "conflicts": len(given.conflicts)}

    def _ask(self, op: Mapping[str, Any], scope: Any, *, on_the_way: bool = False) -> VerdictGiven | RefusedError:
        now = self._now(op)
        wire = {"ver": "1.0", "session_id": op.get("session"), "agent_id": op.get("agent"), "scope": scope}
        wire |= {name: op[name] for name in ("ordered", "priority_timestamp") if name in op}
        try:
            manifest = self._read(wire, on_the_way=on_the_way)
            options = RequestOptions(ttl_ms=op.get("ttl"))
            given = self._desk.request(manifest, now, channel={"kind": _BY}, options=options)
        except RefusedError as refused:
            return refused
        name = op.get("as")
        if name is not None and given.leases:
            self._names[str(name)] = given.leases[0].lease_id
        return given

    def _heartbeat(self, op: Mapping[str, Any]) -> bool:
        lease = self._lease(op)
        return lease is not None and self._done(
            lambda: self._desk.heartbeat(lease.lease_id, self._now(op), **_who(op, lease), ttl_ms=op.get("ttl"))
        )

    def _release(self, op: Mapping[str, Any]) -> bool:
        lease = self._lease(op)
        return lease is not None and self._done(
            lambda: self._desk.release([lease.lease_id], self._now(op), **_who(op, lease))
        )

    def _revoke(self, op: Mapping[str, Any]) -> bool:
        lease, reason = self._lease(op), _text(op, "reason")
        return lease is not None and self._done(
            lambda: self._desk.revoke([lease.lease_id], self._now(op), by=str(op.get("by", _BY)), reason=reason)
        )

    def _evict(self, op: Mapping[str, Any]) -> int:
        self._desk.advance(self._now(op))
        found, self._expired = self._expired, 0
        return found

    # Questions

    def _active(self, op: Mapping[str, Any]) -> list[str]:
        self._desk.advance(self._now(op))
        return sorted(
            f"{lease.session.agent_id}/{lease.session.session_id} {lease.triple.predicate} {lease.triple.resource.text}"
            for lease in self._ledger.leases.values()
        )

    def _distinct_ids(self, op: Mapping[str, Any]) -> bool:
        names = op.get("leases")
        if not isinstance(names, list):
            raise _invalid("leases is a list of names that operations gave with `as`.", path="$.leases")
        ids = [self._names.get(str(name)) for name in names]
        return None not in ids and len(set(ids)) == len(ids)

    def _compat(self, op: Mapping[str, Any]) -> bool:
        return compatible(read_predicate(op.get("held"), "$.held"), read_predicate(op.get("requested"), "$.requested"))

    def _canonicalize(self, op: Mapping[str, Any]) -> Any:
        settings = self._settings
        try:
            return canonical_resource(
                op.get("resource"),  # type: ignore[arg-type]  # what is no text is refused
                types=self._types,
                names=settings.names,
                max_chars=settings.max_resource_chars,
                max_depth=settings.max_depth,
            ).text
        except RefusedError as refused:
            return {"error": refused.code}

    def _validate(self, op: Mapping[str, Any]) -> Any:
        channel = op.get("channel")
        if channel is not None and channel not in _CHANNELS:
            raise _invalid(f"channel is one of {', '.join(_CHANNELS)}, or left out.", path="$.channel")
        try:
            manifest = self._read(op.get("manifest"))
            if channel == "plain" or manifest.signature is not None:  # a signature that is there has to be right
                verify(manifest, self._keys(manifest.agent_id))
        except RefusedError as refused:
            return {"reject": refused.code}
        return accepted(manifest)

    # Observation

    def _observe(self, op: Mapping[str, Any]) -> dict[str, Any]:
        """Hold a call against what its session declared (KLIS-6)."""
        now, types, names = self._now(op), self._types, self._settings.names
        who, exists = (_text(op, "agent"), _text(op, "session")), op.get("exists")
        if exists is not None and not isinstance(exists, bool):
            raise _invalid("exists is true or false, or left out.", path="$.exists")
        seen = read_call(_text(op, "call"), cwd=op.get("cwd", "/"), exists=exists, types=types, names=names)
        declared = read_declared(op["declared"], types=types, names=names) if "declared" in op else None
        self._desk.advance(now)
        observing = self._observed.get(who)
        if observing is None:
            observing = self._observed[who] = Observing(
                *who,
                lease=lambda one: self._lease_on_the_way(who, one),
                end=lambda: self._desk.release_session(*who, self._ledger.clock),
            )
        if "mode" in op:
            observing.set_mode(op["mode"])
        if declared is not None:
            observing.declared = declared
        return observing.judge(seen, self._ledger.sessions.get(who))

    def _lease_on_the_way(self, who: tuple[str, str], seen: Seen) -> bool:
        """Ask for a lease on what was attempted and not declared (permissive mode, KO-3.2b)."""
        try:
            manifest = self._read(lease_wire(*who, seen), on_the_way=True)
            return self._desk.request(manifest, self._ledger.clock, channel={"kind": _BY}).status == "Granted"
        except RefusedError:
            return False

    def _backup_exists(self, op: Mapping[str, Any]) -> bool:
        """Return whether what the holder of a lease may change was backed up before the grant (KO-7)."""
        name = _text(op, "lease")
        folder, found = _text(op, "dir"), self._backed_up.get(self._names.get(name, name))
        return self._scratch is not None and found is not None and self._scratch.has(*found, folder)

    # Within

    def _now(self, op: Mapping[str, Any]) -> int:
        """Return when an operation happens: its ``t``, else when the one before it did."""
        now = op.get("t", self._ledger.clock)
        if type(now) is not int or not 0 <= now < 1 << 53:
            raise _invalid(f"t is a time in ms, a whole number from 0 to 2^53 - 1, and not {now!r:.100}.", path="$.t")
        return now

    def _read(self, rendered: Any, *, on_the_way: bool = False) -> Manifest:
        return read_manifest(rendered, settings=self._settings, types=self._types, on_the_way=on_the_way)

    def _keys(self, agent_id: str) -> list[bytes]:
        keys = self._ledger.keys.values()
        return [b64decode(key.public) for key in keys if key.agent_id == agent_id and not key.revoked]

    def _lease(self, op: Mapping[str, Any]) -> Lease | None:
        """Return the lease that an operation names, by its name or id, where it is in force at that time."""
        self._desk.advance(self._now(op))
        name = _text(op, "lease")
        return self._ledger.leases.get(self._names.get(name, name))

    @staticmethod
    def _done(step: Callable[[], object]) -> bool:
        try:
            step()
        except RefusedError as refused:
            if refused.code in _NOT_IN_FORCE:
                return False
            raise
        return True


def accepted(manifest: Manifest) -> Any:
    """Return ``ACCEPT``, or with the effective predicates where CONSUMES was escalated (KM-6.4)."""
    effective = manifest.effective()
    for triple in manifest.declared:
        leased = effective.get(triple.resource.text)
        if triple.predicate is Predicate.CONSUMES and leased is Predicate.MUTATES:
            return {"accept": {"effective": {text: predicate.value for text, predicate in effective.items()}}}
    return "ACCEPT"


def _who(op: Mapping[str, Any], lease: Lease) -> dict[str, str]:
    """Return the acting agent: the one that the operation names, else the holder."""
    session = lease.session
    return {
        "agent_id": str(op.get("agent", session.agent_id)),
        "session_id": str(op.get("session", session.session_id)),
    }


def _text(op: Mapping[str, Any], name: str) -> str:
    found = op.get(name)
    if not isinstance(found, str) or not found:
        raise _invalid(f"{op['op']} needs {name}, a text.", path=f"$.{name}")
    return found


OPS: Final[Mapping[str, Callable[[LedgerScenario, Mapping[str, Any]], Any]]] = {
    "register": LedgerScenario._register,
    "register_key": LedgerScenario._register_key,
    "acquire": LedgerScenario._acquire,
    "declare": LedgerScenario._declare,
    "heartbeat": LedgerScenario._heartbeat,
    "release": LedgerScenario._release,
    "revoke": LedgerScenario._revoke,
    "evict": LedgerScenario._evict,
    "active": LedgerScenario._active,
    "distinct_ids": LedgerScenario._distinct_ids,
    "compat": LedgerScenario._compat,
    "canonicalize": LedgerScenario._canonicalize,
    "validate": LedgerScenario._validate,
    "observe": LedgerScenario._observe,
    "backup_exists": LedgerScenario._backup_exists,
}
"""The operations by name."""
