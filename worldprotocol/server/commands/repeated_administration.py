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
from world.events.lease_events import RequestWithdrawn, VerdictGiven
from world.read_models.live.request_events import events_of_request
from worldprotocol.api.callers.access import NewToken
from worldprotocol.api.callers.request_keys import once
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
    """

    def __init__(self, realm: Realm, verified: Verification) -> None:
        self.realm = realm
        self.verified = verified
        self._run = 0

    def once(
        self,
        run: Callable[[Realm], R],
        again: Callable[[Sequence[Any]], R] = lambda _: None,  # type: ignore[assignment,return-value]
        *,
        is_same: Callable[[Any], bool] = lambda _: False,
    ) -> R:
        """Run the next command of the request, unless it was recorded before.

        Args:
            run: the command, on the realm of the caller.
            again: returns the result from the events of the earlier request.
            is_same: as for ``worldprotocol.api.callers.request_keys.once``.

        Raises:
            RefusedError: ``IDEMPOTENCY_CONFLICT``, and what the command refuses.
        """
        return once(self.realm, self.caller(), run, again=again, is_same=is_same)

    def caller(self) -> Verification:
        """Return the caller of the next command with the key, which has a number from the second command on.

        A caller cannot send such a key.
        """
        key = self.verified.key
        self._run += 1
        if key is None or self._run == 1:
            return self.verified
        return structs.replace(self.verified, key=f"{key}#{self._run}")


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
        self._commands.once(lambda realm: realm.register(actor_id, kind, binding=binding, name=name, meta=meta, by=by))

    def bind(self, actor_id: str, binding: Mapping[str, Any], *, by: str) -> None:
        """Bind an actor to an authority; a repeated request changes nothing."""
        self._commands.once(lambda realm: realm.bind(actor_id, binding, by=by))

    def adopt_policy(self, name: str, *, by: str) -> bool:
        """Bring a loaded policy into force; a repeated request returns the same."""
        return self._commands.once(lambda realm: realm.adopt_policy(name, by=by), _true)

    def retire_policy(self, name: str, *, by: str, reason: str) -> str:
        """Take a policy out of force; a repeated request returns the same hash."""
        return self._commands.once(
            lambda realm: realm.retire_policy(name, by=by, reason=reason), lambda events: str(events[0].policy_hash)
        )

    def shadow(self, name: str | None, *, actors: Collection[str] = (), by: str) -> bool:
        """Configure the shadow policy; a repeated request returns the same."""
        return self._commands.once(lambda realm: realm.shadow(name, actors=actors, by=by), _true)


class CallerAccess:
    """Rights and tokens for the caller of one request; see ``worldprotocol.api.callers.access.RealmAccess``.

    Args:
        commands: the commands of the request.
    """

    def __init__(self, commands: RequestCommands) -> None:
        self._commands = commands

    def grant(self, actor_id: str, right: Right, *, by: str, redaction: Sequence[str] | None) -> bool:
        """Grant a right; a repeated request returns the same."""
        return self._commands.once(lambda realm: realm.access.grant(actor_id, right, by=by, redaction=redaction), _true)

    def revoke(self, actor_id: str, right: Right, *, by: str, reason: str) -> None:
        """Revoke a right; a repeated request changes nothing."""
        self._commands.once(lambda realm: realm.access.revoke(actor_id, right, by=by, reason=reason))

    def create_token(
        self, actor_id: str, *, by: str, can: Sequence[Right] | None, ttl_ms: int, note: str | None
    ) -> NewToken:
        """Create a token. The text of the token of an earlier request is lost: it is revoked, and another created."""
        caller = self._commands.caller()

        def create(realm: Realm, lost: str | None = None) -> NewToken:
            return realm.access.create_token(actor_id, by=by, can=can, ttl_ms=ttl_ms, note=note, lost=lost)

        realm = self._commands.realm
        return once(realm, caller, create, again=lambda _: create(realm.as_caller(caller), LOST))

    def revoke_token(self, token_id: str, *, by: str, reason: str) -> None:
        """Revoke a token; a repeated request changes nothing."""
        self._commands.once(lambda realm: realm.access.revoke_token(token_id, by=by, reason=reason))


class _KeyedProtocol(VerifiedProtocol):
    """The commands of one request, of which those on leases are recorded with its key."""

    def __init__(self, commands: RequestCommands) -> None:
        without = structs.replace(commands.verified, key=None, request=None)
        super().__init__(commands.realm._acting, commands.realm._composed.ids, without)
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

    def request(self, manifest: Any, **options: Any) -> VerdictGiven:
        """Request leases; a repeated request has the last verdict of the earlier one, or waits on with it."""
        return self._commands.once(
            lambda realm: realm.leases.desk.request(manifest, **options), lambda events: self._last(events[0])
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
            lambda events: str(events[0].key_id),
        )

    def revoke_key(self, name: str, *, by: str, reason: str) -> None:
        """Revoke a key; a repeated request changes nothing."""
        self._commands.once(lambda realm: realm.leases.desk.revoke_key(name, by=by, reason=reason))


class _RequestIds:
    """Ids that follow from the key of a request, so that a repeated request gives the same ones."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._made = 0

    def new_id(self) -> str:
        """Return the next id."""
        self._made += 1
        return hashlib.sha256(f"{self._key}\n{self._made}".encode()).hexdigest()[:32]


def _true(_: Sequence[Any]) -> bool:
    return True
