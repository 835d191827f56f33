"""The realm of one request, as commands get it: it writes as the verified caller, and a repeated request writes once.

The first thing that the command of a request records has the key of the request; what it records further, such as the
submissions of the lines of a file, has the key with their number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Unpack, cast

from msgspec import structs

from world.errors import WaitTimeoutError
from world.model.intent import IntentInstance
from world.model.source import SourceEvent
from world.state.proposal import Proposal
from worldprotocol.api.callers.keyed import has_body, has_source, projected
from worldprotocol.api.options import SubmitOptions
from worldprotocol.api.realm import Realm
from worldprotocol.api.requests import ProjectionOutcome
from worldprotocol.server.commands.repeated_administration import CallerAdministration, RequestCommands

if TYPE_CHECKING:
    from world.events.verification import Verification

__all__ = ["caller_realm", "reading_realm"]

STEP_S = 0.5
"""Longest wait until a request is asked whether its caller is gone, in seconds."""


def reading_realm(realm: Realm) -> Realm:
    """Return a realm that shares the log and the state of another one, and only reads."""
    reader = copy(realm)
    reader._protocol = None
    reader._parts = None
    return reader


def caller_realm(realm: Realm, verified: Verification, check: Callable[[], None] = lambda: None) -> Realm:
    """Return a realm that acts for the caller of one request.

    Args:
        realm: the realm of the server.
        verified: the caller; its ``key`` is that of the request.
        check: raises where the caller is gone.
    """
    return cast(Realm, _CallerRealm(realm, verified, check))


class _CallerRealm(CallerAdministration):
    """See ``caller_realm``; what it does not define is that of the realm as the caller."""

    def __init__(self, realm: Realm, verified: Verification, check: Callable[[], None]) -> None:
        super().__init__(RequestCommands(realm, verified))
        self._hosted = realm
        self._as_caller = realm.as_caller(structs.replace(verified, key=None, request=None))
        self._check = check

    def __getattr__(self, name: str) -> Any:
        return getattr(self._as_caller, name)

    @property
    def host(self) -> _CallerHosting:
        """Executions that need a person."""
        return _CallerHosting(self)

    def act(
        self, actor_id: str, action: str, given: Any, *, scope: Any, note: str | None, **options: Unpack[SubmitOptions]
    ) -> Proposal:
        """Issue and submit an intent; a repeated request returns its proposal."""
        return self.submit(self._as_caller.issue(actor_id, action, given, scope=scope, note=note), **options)

    def submit(self, intent: IntentInstance | Mapping[str, Any], **options: Unpack[SubmitOptions]) -> Proposal:
        """Submit an intent; a repeated request returns its proposal."""
        instance = intent if isinstance(intent, IntentInstance) else IntentInstance.read(intent)
        return self._commands.once(
            lambda realm: realm.submit(instance, **options), self._proposal, is_same=has_body(instance)
        )

    def project(
        self, source: SourceEvent | Mapping[str, Any], actor_id: str, **options: Unpack[SubmitOptions]
    ) -> ProjectionOutcome:
        """Project a source event; a repeated request returns its proposal."""
        event = source if isinstance(source, SourceEvent) else SourceEvent.read(source)
        return self._commands.once(
            lambda realm: realm.project(event, actor_id, **options),
            lambda events: projected(self._proposal(events)),
            is_same=has_source(event),
        )

    def decide(self, proposal_id: str, choice: Any, **answer: Any) -> Proposal:
        """Answer a waiting proposal; a repeated request changes nothing."""
        return self._commands.once(lambda realm: realm.decide(proposal_id, choice, **answer), self._proposal)

    def create_branch(self, name: str, world_id: str | None, *, by: str, allow_failed: bool) -> None:
        """Create a branch; a repeated request changes nothing."""
        self._commands.once(lambda realm: realm.create_branch(name, world_id, by=by, allow_failed=allow_failed))

    def switch_branch(self, name: str, *, by: str) -> None:
        """Make a branch the active one; a repeated request changes nothing."""
        self._commands.once(lambda realm: realm.switch_branch(name, by=by))

    def wait(self, proposal: Proposal | str, timeout: float) -> Proposal:
        """Wait until a proposal has ended, as ``Realm.wait``, while the caller is there."""
        left = timeout
        while True:
            self._check()
            try:
                return self._hosted.wait(proposal, min(STEP_S, left))
            except WaitTimeoutError:
                left -= STEP_S
                if left <= 0:
                    raise

    def settle(self) -> None:
        """Do what is due, as the server does it by itself."""
        self._hosted.settle()

    def _proposal(self, events: Sequence[Any]) -> Proposal:
        """Return the proposal that an earlier request was about."""
        return self._hosted.proposal(events[0].proposal_id)


class _CallerHosting:
    """Executions that need a person, for the caller of one request; see ``worldprotocol.api.host.Hosting``."""

    def __init__(self, realm: _CallerRealm) -> None:
        self._realm = realm

    def __getattr__(self, name: str) -> Any:
        return getattr(self._realm._as_caller.host, name)

    def cancel(self, proposal_id: str, *, by: str, reason: str) -> Proposal:
        """Cancel an approved execution, or withdraw a proposal; a repeated request changes nothing."""
        realm = self._realm
        return realm._commands.once(
            lambda acting: acting.host.cancel(proposal_id, by=by, reason=reason), realm._proposal
        )

    def resolve(self, proposal_id: str, choice: Any, **resolution: Any) -> Proposal:
        """Resolve an effect in doubt; a repeated request changes nothing."""
        realm = self._realm
        return realm._commands.once(
            lambda acting: acting.host.resolve(proposal_id, choice, **resolution), realm._proposal
        )
