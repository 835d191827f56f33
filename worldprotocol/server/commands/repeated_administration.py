"""Leases, actors, rights, keys and policies as the command of one request changes them: a repeated request once.

What a request records has its key; where it records several times, each has the key with its number. A repeated
request finds it and returns the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import structs

from world.engine.lease_commands import LeaseCommands
from world.engine.verified_commands import VerifiedProtocol
from world.events.access_events import RightGranted, RightRevoked, TokenCreated, TokenRevoked
from world.events.base import Event
from world.events.lease_events import KeyRegistered, KeyRevoked, RequestWithdrawn, VerdictGiven
from world.events.policy_events import PolicyAdopted, PolicyRetired, ShadowConfigured
from world.events.realm_events import ActorBound, ActorRegistered
from world.model.immutable_json import freeze
from world.read_models.live.request_events import events_of_request
from worldprotocol.api.callers.access import NewToken, RealmAccess
from worldprotocol.api.callers.keyed import check_key
from worldprotocol.api.callers.recorded_keys import RequestKeys, says_acquire
from worldprotocol.api.leases import Leases
from worldprotocol.api.realm import Realm

if TYPE_CHECKING:
    from world.events.verification import Right, Verification

__all__ = ["CallerAccess", "CallerAdministration", "RequestCommands"]

R = TypeVar("R")

LOST: Final = "The answer with the text of the token was lost."
"""Reason of the revocation of a token whose creation is repeated."""


class RequestCommands:
    """The commands of one request that are recorded with its key.

    Args:
        realm: the realm of the server.
        verified: the caller, with the key of the request.
        keys: the keys that the log has.
    """

    def __init__(self, realm: Realm, verified: Verification, keys: RequestKeys) -> None:
        self.realm = realm
        self.verified = verified
        self._keys = keys
        self._run = 0

    def once(
        self,
        run: Callable[[Realm], R],
        says: Callable[[list[Any]], bool],
        repeated: Callable[[list[Any]], R] = lambda _: None,  # type: ignore[assignment,return-value]
    ) -> R:
        """Run the next command of the request, unless it was recorded before.

        Args:
            run: the command, on the realm of the caller.
            says: whether the events of the earlier request are those of this one.
            repeated: returns the result from the events of the earlier request.

        Raises:
            RefusedError: ``IDEMPOTENCY_CONFLICT``, and what the command refuses.
        """
        return self._keys.once(self.realm, self._numbered(), run, says=says, repeated=repeated)

    def _numbered(self) -> Verification:
        """Return the caller with the key, which has a number from the second command on."""
        key = self.verified.key
        self._run += 1
        if key is None or self._run == 1:
            return self.verified
        return structs.replace(self.verified, key=check_key(f"{key}:{self._run}"))


class CallerAdministration:
    """Actors, policies, rights and leases for the caller of one request; a base of its realm.

    Args:
        commands: the commands of the request.
    """

    def __init__(self, commands: RequestCommands) -> None:
        self._commands = commands

    @property
    def access(self) -> CallerAccess:
        """Rights of actors and API tokens."""
        return CallerAccess(self._commands)

    @property
    def leases(self) -> Leases:
        """Leases, whose sessions and requests have ids that a repeated request gives again."""
        realm, verified = self._commands.realm, self._commands.verified
        ids = realm._composed.ids if verified.key is None else _RequestIds(f"{verified.verified_actor}\n{verified.key}")
        return Leases(_KeyedProtocol(self._commands), ids, realm._composed.executor.keeper)  # type: ignore[arg-type]

    def register(
        self,
        actor_id: str,
        kind: Any,
        *,
        binding: Mapping[str, Any] | None,
        name: str | None,
        meta: Mapping[str, Any] | None,
        by: str,
    ) -> None:
        """Register an actor; a repeated request changes nothing."""

        def says(events: list[Any]) -> bool:
            return all(
                (one.actor.actor_id, one.actor.kind) == (actor_id, kind)
                if isinstance(one, ActorRegistered)
                else _binds([one], actor_id, binding or {})
                for one in events
            )

        def run(realm: Realm) -> None:
            realm.register(actor_id, kind, binding=binding, name=name, meta=meta, by=by)

        self._commands.once(run, says)

    def bind(self, actor_id: str, binding: Mapping[str, Any], *, by: str) -> None:
        """Bind an actor to an authority; a repeated request changes nothing."""
        self._commands.once(
            lambda realm: realm.bind(actor_id, binding, by=by), lambda events: _binds(events, actor_id, binding)
        )

    def adopt_policy(self, name: str, *, by: str) -> bool:
        """Bring a loaded policy into force; a repeated request returns the same."""
        says = _one(PolicyAdopted, name=name)
        return self._commands.once(lambda realm: realm.adopt_policy(name, by=by), says, lambda _: True)

    def retire_policy(self, name: str, *, by: str, reason: str) -> str:
        """Take a policy out of force; a repeated request returns the same hash."""
        says = _one(PolicyRetired, name=name, reason=reason)
        return self._commands.once(
            lambda realm: realm.retire_policy(name, by=by, reason=reason),
            says,
            lambda events: str(events[0].policy_hash),
        )

    def shadow(self, name: str | None, *, actors: Collection[str] = (), by: str) -> bool:
        """Configure the shadow policy; a repeated request returns the same."""
        says = _one(ShadowConfigured, name=name)
        return self._commands.once(lambda realm: realm.shadow(name, actors=actors, by=by), says, lambda _: True)


class CallerAccess:
    """Rights and tokens for the caller of one request; see ``worldprotocol.api.callers.access.RealmAccess``.

    Args:
        commands: the commands of the request.
    """

    def __init__(self, commands: RequestCommands) -> None:
        self._commands = commands

    def grant(self, actor_id: str, right: Right, *, by: str, redaction: Sequence[str] | None) -> bool:
        """Grant a right; a repeated request returns the same."""
        says = _one(RightGranted, actor_id=actor_id, right=right, redaction=None if redaction is None else [*redaction])
        return self._commands.once(
            lambda realm: realm.access.grant(actor_id, right, by=by, redaction=redaction), says, lambda _: True
        )

    def revoke(self, actor_id: str, right: Right, *, by: str, reason: str) -> None:
        """Revoke a right; a repeated request changes nothing."""
        says = _one(RightRevoked, actor_id=actor_id, right=right, reason=reason)
        self._commands.once(lambda realm: realm.access.revoke(actor_id, right, by=by, reason=reason), says)

    def create_token(
        self, actor_id: str, *, by: str, can: Sequence[Right] | None, ttl_ms: int, note: str | None
    ) -> NewToken:
        """Create a token. The text of the token of an earlier request is lost: it is revoked, and another created."""
        says = _one(TokenCreated, actor_id=actor_id, can=None if can is None else [*can], note=note)

        def run(realm: Realm) -> NewToken | TokenCreated:
            return realm.access.create_token(actor_id, by=by, can=can, ttl_ms=ttl_ms, note=note)

        while True:
            made = self._commands.once(run, says, lambda events: events[0])
            if isinstance(made, NewToken):
                return made
            if made.token_id in self._commands.realm.realm().tokens:
                caller = structs.replace(self._commands.verified, key=None)
                access: RealmAccess = self._commands.realm.as_caller(caller).access
                access.revoke_token(made.token_id, by=by, reason=LOST)

    def revoke_token(self, token_id: str, *, by: str, reason: str) -> None:
        """Revoke a token; a repeated request changes nothing."""
        says = _one(TokenRevoked, token_id=token_id, reason=reason)
        self._commands.once(lambda realm: realm.access.revoke_token(token_id, by=by, reason=reason), says)


class _KeyedProtocol(VerifiedProtocol):
    """The commands of one request, of which those on leases are recorded with its key."""

    def __init__(self, commands: RequestCommands) -> None:
        super().__init__(commands.realm._acting, commands.realm._composed.ids, commands.verified)
        self._commands = commands

    @property
    def leasing(self) -> LeaseCommands:
        """Leases that are requested directly."""
        return _KeyedLeases(self._commands, self.run)


class _KeyedLeases(LeaseCommands):
    """The commands on leases of one request; a repeated one finds what it recorded."""

    __slots__ = ("_commands",)

    def __init__(self, commands: RequestCommands, run: Callable[[Callable[..., Any]], Any]) -> None:
        super().__init__(run)
        self._commands = commands

    def request(self, manifest: Any, *, ttl_ms: int | None = None, **options: Any) -> VerdictGiven:
        """Request leases; a repeated request has the last verdict of the earlier one, or waits on with it."""
        says = says_acquire(dict(manifest), "", ttl_ms) if isinstance(manifest, Mapping) else _one(VerdictGiven)
        return self._commands.once(
            lambda realm: realm.leases.desk.request(manifest, ttl_ms=ttl_ms, **options),
            says,
            lambda events: self._last(events[0]),
        )

    def _last(self, first: VerdictGiven) -> VerdictGiven:
        """Return the verdict that ended the wait of a request, else the first one."""
        if not first.queued or first.request_id is None:
            return first
        for _, event in events_of_request(self._commands.realm.archive, first.request_id):
            if isinstance(event, RequestWithdrawn):
                return structs.replace(first, queued=False)
            if not event.queued:
                return event
        return first

    def register_key(self, agent_id: str, public_key: bytes, *, by: str) -> str:
        """Register a public key; a repeated request returns the same id."""
        return self._commands.once(
            lambda realm: realm.leases.desk.register_key(agent_id, public_key, by=by),
            _one(KeyRegistered, agent_id=agent_id),
            lambda events: str(events[0].key_id),
        )

    def revoke_key(self, name: str, *, by: str, reason: str) -> None:
        """Revoke a key; a repeated request changes nothing."""
        self._commands.once(
            lambda realm: realm.leases.desk.revoke_key(name, by=by, reason=reason),
            _one(KeyRevoked, key_id=name, reason=reason),
        )


class _RequestIds:
    """Ids that follow from the key of a request, so that a repeated request gives the same ones."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._made = 0

    def new_id(self) -> str:
        """Return the next id."""
        self._made += 1
        return hashlib.sha256(f"{self._key}\n{self._made}".encode()).hexdigest()[:32]


def _binds(events: list[Any], actor_id: str, binding: Mapping[str, Any]) -> bool:
    """Return whether events are one binding of an actor; what is recorded has the defaults, too."""
    if not _one(ActorBound, actor_id=actor_id)(events):
        return False
    recorded = events[0].binding
    return all(freeze(recorded.get(name)) == freeze(value) for name, value in binding.items())


def _one(kind: type[Event], **members: Any) -> Callable[[list[Any]], bool]:
    """Return whether events are one of a kind, with these members."""

    def says(events: list[Any]) -> bool:
        return len(events) == 1 and isinstance(events[0], kind) and _has(events[0], members)

    return says


def _has(event: Any, members: Mapping[str, Any]) -> bool:
    return all(getattr(event, name) == value for name, value in members.items())
