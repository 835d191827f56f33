"""The realm of one request, as commands get it: it writes as the verified caller, and a repeated request writes once.

The key of a request is the intentId of what it submits first; further submissions of the same request, such as the
lines of a file, have the key with their number. Other commands find what they recorded by the key in ``verified``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack, cast

from msgspec import structs

from world.errors import RefusedError, WaitTimeoutError
from world.events.execution_events import EffectResolved, ExecutionCancelled
from world.events.proposal_events import HumanAnswered, ProposalSuperseded
from world.events.realm_events import BranchCreated, BranchSwitched
from world.model.intent import IntentInstance
from world.model.source import SourceEvent
from world.state.proposal import Proposal
from worldprotocol.api.callers.keyed import check_key, project_keyed, proposal_of_intent, submit_keyed
from worldprotocol.api.callers.repeated import once
from worldprotocol.api.options import SubmitOptions
from worldprotocol.api.realm import Realm
from worldprotocol.api.requests import ProjectionOutcome, scope_of
from worldprotocol.server.commands.repeated_administration import CallerAdministration, RequestCommands

if TYPE_CHECKING:
    from world.events.verification import Verification
    from worldprotocol.api.callers.recorded_keys import RequestKeys

__all__ = ["caller_realm", "reading_realm"]

STEP_S = 0.5
"""Longest wait until a request is asked whether its caller is gone, in seconds."""


def reading_realm(realm: Realm) -> Realm:
    """Return a realm that shares the log and the state of another one, and only reads."""
    reader = copy(realm)
    reader._protocol = None
    reader._parts = None
    return reader


def caller_realm(
    realm: Realm, verified: Verification, keys: RequestKeys, check: Callable[[], None] = lambda: None
) -> Realm:
    """Return a realm that acts for the caller of one request.

    Args:
        realm: the realm of the server.
        verified: the caller; its ``key`` is that of the request.
        keys: the keys of earlier requests.
        check: raises where the caller is gone.
    """
    return cast(Realm, _CallerRealm(realm, verified, keys, check))


def answer_in(event: HumanAnswered) -> tuple[Any, ...]:
    """Return what a recorded answer says: choice, scope, to whom, reason, and the hash of what was shown."""
    given = event.answer
    return given.choice, None if given.scope is None else given.scope.to_wire(), given.to, given.reason, given.shown


class _CallerRealm(CallerAdministration):
    """See ``caller_realm``; what it does not define is that of the realm as the caller."""

    def __init__(self, realm: Realm, verified: Verification, keys: RequestKeys, check: Callable[[], None]) -> None:
        super().__init__(RequestCommands(realm, verified, keys))
        self._hosted = realm
        self._verified = verified
        self._as_caller = realm.as_caller(verified)
        self._check = check
        self._submitted = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._as_caller, name)

    @property
    def host(self) -> _CallerHosting:
        """Executions that need a person."""
        return _CallerHosting(self)

    def issue(self, *arguments: Any, **options: Any) -> IntentInstance:
        """Issue an intent whose id is the key of the request, with a number from the second one on."""
        return structs.replace(self._as_caller.issue(*arguments, **options), intent_id=self._next_key())

    def act(
        self, actor_id: str, action: str, given: Any, *, scope: Any, note: str | None, **options: Unpack[SubmitOptions]
    ) -> Proposal:
        """Issue and submit an intent; a repeated request returns its proposal."""
        return submit_keyed(self._as_caller, self.issue(actor_id, action, given, scope=scope, note=note), **options)

    def submit(self, intent: IntentInstance | Mapping[str, Any], **options: Unpack[SubmitOptions]) -> Proposal:
        """Submit an intent; one that this very request submitted before is returned."""
        if isinstance(intent, IntentInstance):
            return submit_keyed(self._as_caller, intent, **options)
        instance, key = IntentInstance.read(intent), self._next_key()
        numbered = self._hosted.as_caller(structs.replace(self._verified, key=key))
        try:
            return numbered.submit(instance, **options)
        except RefusedError as refused:
            if refused.code != "INTENT_ALREADY_SUBMITTED":
                raise
            earlier = proposal_of_intent(self._hosted, instance.intent_id)
            before = None if earlier is None else earlier.submitted.verified
            if earlier is None or before is None or before.key != key:
                raise
            if before.verified_actor != self._verified.verified_actor:
                raise
            return earlier

    def project(
        self, source: SourceEvent | Mapping[str, Any], actor_id: str, **options: Unpack[SubmitOptions]
    ) -> ProjectionOutcome:
        """Project a source event; a repeated request returns its proposal."""
        event = source if isinstance(source, SourceEvent) else SourceEvent.read(source)
        return project_keyed(self._as_caller, event, actor_id, self._next_key(), **options)

    def decide(
        self, proposal_id: str, choice: Any, *, by: str, scope: Any = None, to: str | None = None, reason: str = ""
    ) -> Proposal:
        """Answer a waiting proposal; a repeated request changes nothing."""
        wanted = None if scope is None else scope_of(scope)
        answer = partial(self._as_caller.decide, proposal_id, choice, by=by, scope=wanted, to=to, reason=reason)
        said = choice, None if wanted is None else wanted.to_wire(), to, reason, None
        self._once(HumanAnswered, answer, said, answer_in, proposal_id)
        return self._hosted.proposal(proposal_id)

    def create_branch(self, name: str, world_id: str | None, *, by: str, allow_failed: bool) -> None:
        """Create a branch; a repeated request changes nothing."""
        create = partial(self._as_caller.create_branch, name, world_id, by=by, allow_failed=allow_failed)
        said = name, world_id
        self._once(BranchCreated, create, said, lambda event: (event.branch, world_id and event.world_id))

    def switch_branch(self, name: str, *, by: str) -> None:
        """Make a branch the active one; a repeated request changes nothing."""
        switch = partial(self._as_caller.switch_branch, name, by=by)
        self._once(BranchSwitched, switch, name, lambda event: event.branch)

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

    def _next_key(self) -> str:
        key = self._verified.key
        if key is None:
            return self._hosted.new_id()
        self._submitted += 1
        return key if self._submitted == 1 else check_key(f"{key}:{self._submitted}")

    def _once(self, kind: Any, run: Callable[[], object], said: Any, says: Any, stream: str | None = None) -> None:
        once(self._hosted, self._verified, kind, run, said=said, says=says, stream=stream)


class _CallerHosting:
    """Executions that need a person, for the caller of one request; see ``worldprotocol.api.host.Hosting``."""

    def __init__(self, realm: _CallerRealm) -> None:
        self._realm = realm

    def __getattr__(self, name: str) -> Any:
        return getattr(self._realm._as_caller.host, name)

    def cancel(self, proposal_id: str, *, by: str, reason: str) -> Proposal:
        """Cancel an approved execution, or withdraw a proposal; a repeated request changes nothing."""
        cancel = partial(self._realm._as_caller.host.cancel, proposal_id, by=by, reason=reason)
        kinds = (ExecutionCancelled, ProposalSuperseded)
        self._realm._once(kinds, cancel, reason, lambda event: event.reason, proposal_id)
        return self._realm._hosted.proposal(proposal_id)

    def resolve(
        self, proposal_id: str, choice: Any, *, by: str, reason: str, effect: str | None, value: Any
    ) -> Proposal:
        """Resolve an effect in doubt; a repeated request changes nothing."""
        options = {"by": by, "reason": reason, "effect": effect, "value": value}
        resolve = partial(self._realm._as_caller.host.resolve, proposal_id, choice, **options)
        self._realm._once(
            EffectResolved,
            resolve,
            (choice, reason, effect),
            lambda event: (event.choice, event.reason, effect and event.requirement_id),
            proposal_id,
        )
        return self._realm._hosted.proposal(proposal_id)
