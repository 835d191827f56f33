"""``RemoteRealm``, a realm that a server has, with the methods of ``Realm``; ``Realm.connect`` returns it.

It reads and writes as the actor that its token verifies. What a method returns is what it returns for a log on this
machine: proposals, worlds and events are made from the recorded events, whose leaf hashes are compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Unpack

from projections.direct import Trigger, direct
from projections.issuer import Issuer, IssueRequest
from world.clock import SystemIds
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.actor import ActorRef
from world.model.intent import IntentInstance
from world.model.intent_origin import API_ORIGIN
from world.model.source import SourceEvent
from world.state.effect_claim import EffectClaim, EffectReport, read_form
from worldprotocol.api.administration import OPERATOR
from worldprotocol.api.executing.external_effects import check_names, check_wait
from worldprotocol.api.remote.connection import (
    HISTORY,
    RealmRequest,
    RemoteSteps,
    ServerConnection,
    resource,
)
from worldprotocol.api.remote.elsewhere import refuses_elsewhere
from worldprotocol.api.remote.parts import RemoteAccess, RemoteActions, RemoteHosting
from worldprotocol.api.remote.reading import RemoteReader
from worldprotocol.api.remote.subscribers import RemoteSubscribers
from worldprotocol.api.requests import ProjectionOutcome, body_of, check_submission, scope_of
from worldprotocol.api.waiting.proposals import Until, has_come, still_open, timeout_seconds, wait_seconds

if TYPE_CHECKING:
    from world.engine.event_bus import Handler, Reaction
    from world.model.decision import HumanChoice
    from world.model.intent import IntentScope
    from world.state.ports import Performed
    from world.state.proposal import Proposal
    from worldprotocol.api.options import SubmitOptions
    from worldprotocol.api.remote.leases import RemoteLeases

__all__ = ["PATIENCE_S", "RemoteRealm", "connected", "sole_realm"]

PATIENCE_S: Final = 30.0
"""How long a request is repeated whose answer was lost, or that the server asks to send again, in seconds."""

WAIT_S: Final = 20.0
"""Longest wait of one request, in seconds; a longer wait is several requests."""


def connected(server: str, token: str | None, realm: str | None) -> RemoteRealm:
    """Return a realm on a server; see ``Realm.connect``."""
    name = sole_realm(server, token) if realm is None else realm
    found = RemoteRealm(ServerConnection(server, name, token, patience_s=PATIENCE_S))
    try:
        found.caller()
    except BaseException:
        found.close()
        raise
    return found


def sole_realm(server: str, token: str | None) -> str:
    """Return the name of the only realm of a server in which the caller has a right.

    Raises:
        RefusedError: ``UNKNOWN_REALM`` where there is none, or several.
    """
    connection = ServerConnection(server, None, token, patience_s=0)
    try:
        names = [one["name"] for one in connection.get("")["realms"]]
    finally:
        connection.close()
    if len(names) != 1:
        listed = f"has the realms {', '.join(names)}" if names else "has no realm in which the caller has a right"
        raise RefusedError(ErrorCode.UNKNOWN_REALM, f"The server {server} {listed}; name one (realm=...).")
    name: str = names[0]
    return name


@refuses_elsewhere("Realm")
class RemoteRealm(RemoteReader):
    """A realm on a server, used as the actor that was verified.

    Args:
        connection: the client of the realm, which the object owns and closes.
    """

    def __init__(self, connection: ServerConnection) -> None:
        """Own a connection."""
        super().__init__(connection)
        self._ids = SystemIds()
        self._subscribers = RemoteSubscribers(connection)
        self._caller: ActorRef | None = None

    def close(self) -> None:
        """End subscriptions and connections; idempotent."""
        self._connection.close()
        self._subscribers.close()

    def caller(self) -> ActorRef:
        """Return the actor that was verified.

        Raises:
            RefusedError: ``SIGN_IN_REQUIRED``, ``TOKEN_NOT_VALID``, ``UNKNOWN_REALM``, ``RIGHT_MISSING``,
                ``LOG_UNAVAILABLE``.
        """
        form = self._connection.get("")["actor"]
        if form is None:
            raise RefusedError(ErrorCode.UNKNOWN_ACTOR, "The caller is not registered in the realm; register it first.")
        self._caller = ActorRef.from_wire(form)
        return self._caller

    def settle(self) -> None:
        """Do nothing: the server does what is due."""

    def new_id(self) -> str:
        """Return a new unique id, for sessions and requests."""
        return self._ids.new_id()

    # Commands of actors

    def issue(
        self,
        actor_id: str,
        action: str,
        input: Any = None,  # noqa: A002  # the specification's word
        *,
        scope: IntentScope | Mapping[str, Any] | Iterable[str] | None = None,
        note: str | None = None,
    ) -> IntentInstance:
        """Issue an intent of the caller without submitting it; see ``Realm.issue``.

        Raises:
            RefusedError: ``NOT_THE_VERIFIED_ACTOR``, ``INVALID_VALUE``, ``NOT_CANONICAL``.
        """
        body = body_of(action, input, scope)
        actor = self.caller()
        _check_caller(actor, actor_id)
        schema_hash, issuer = self._connection.get("")["schemaHash"], Issuer(self._ids)
        if actor.kind == "system":
            trigger = Trigger(self.new_id(), "direct")
            return direct(issuer, schema_hash=schema_hash, actor=actor, trigger=trigger, body=body, note=note)
        source = SourceEvent(kind="api", event_id=self.new_id())
        return issuer.issue(IssueRequest(schema_hash, API_ORIGIN, actor, source, body, note))

    def act(
        self,
        actor_id: str,
        action: str,
        input: Any = None,  # noqa: A002  # the specification's word
        *,
        scope: IntentScope | Mapping[str, Any] | Iterable[str] | None = None,
        note: str | None = None,
        **options: Unpack[SubmitOptions],
    ) -> Proposal:
        """Issue and submit an intent of the caller; the server issues it. See ``Realm.act``."""
        check_submission(options)
        body = body_of(action, input, scope).to_wire()
        self._check_verified(actor_id)
        return self._submitted({**body, "note": note}, self.new_id(), options)

    def submit(self, intent: IntentInstance | Mapping[str, Any], **options: Unpack[SubmitOptions]) -> Proposal:
        """Submit an issued intent; see ``Realm.submit``. The same intent may be submitted again, and is not repeated.

        Raises:
            RefusedError: the codes of ``Realm.submit`` except ``INTENT_ALREADY_SUBMITTED``; ``IDEMPOTENCY_CONFLICT``
                for another intent of the same intentId.
        """
        check_submission(options)
        instance = intent if isinstance(intent, IntentInstance) else IntentInstance.read(intent)
        return self._submitted({"intent": instance.to_wire()}, instance.intent_id, options)

    def _submitted(self, body: Mapping[str, Any], key: str, options: SubmitOptions) -> Proposal:
        """Submit, and wait as the options say."""
        begin, seconds = time.monotonic(), wait_seconds(options.get("wait"))
        form = self._connection.post(
            "/intents", {**body, **_options(options)}, key=key, wait_s=_part(seconds), query=HISTORY
        )
        return self._waited(self._proposal_of(form), _rest(options, seconds, begin))

    def project(
        self, source: SourceEvent | Mapping[str, Any], actor_id: str, **options: Unpack[SubmitOptions]
    ) -> ProjectionOutcome:
        """Project a source event to an intent of the caller, and submit the intent; see ``Realm.project``."""
        check_submission(options)
        event = source if isinstance(source, SourceEvent) else SourceEvent.read(source)
        self._check_verified(actor_id)
        begin, seconds = time.monotonic(), wait_seconds(options.get("wait"))
        body = {**event.to_wire(), **_options(options)}
        form = self._connection.post("/events", body, key=self.new_id(), wait_s=_part(seconds), query=HISTORY)
        proposal = None if form["proposal"] is None else self._proposal_of(form["proposal"])
        return ProjectionOutcome(
            projection_id=form["projectionId"],
            reason=form["reason"],
            proposal=None if proposal is None else self._waited(proposal, _rest(options, seconds, begin)),
        )

    def decide(
        self,
        proposal_id: str,
        choice: HumanChoice,
        *,
        by: str,
        scope: IntentScope | Mapping[str, Any] | Iterable[str] | None = None,
        to: str | None = None,
        reason: str = "",
        shown: str | None = None,
    ) -> Proposal:
        """Answer a waiting proposal as the caller; see ``Realm.decide``.

        Args:
            proposal_id: the proposal.
            choice: as for ``Realm.decide``.
            by: the caller's actor id.
            scope: the narrower scope.
            to: id of the actor that answers instead.
            reason: reason that is recorded.
            shown: ``shown`` of the entry of the inbox that the person decides by (``inbox_entries``); the answer is
                refused where something else would be shown now. None compares nothing.

        Raises:
            RefusedError: ``SHOWN_CHANGED``, ``NOT_THE_VERIFIED_ACTOR``, and the codes of ``Realm.decide``.
        """
        given = scope_of(scope)
        self._check_verified(by)
        body = {"choice": choice, "scope": None if given is None else given.to_wire(), "to": to, "reason": reason}
        path = resource("proposals", proposal_id) + ":answer"
        return self._proposal_of(
            self._connection.post(path, {**body, "shown": shown}, key=self.new_id(), query=HISTORY)
        )

    # Waiting

    def wait(self, proposal: Proposal | str, timeout: float | None = None, *, until: Until = "ended") -> Proposal:
        """Wait until a proposal is decided and has ended, and return it; see ``RealmReader.wait``."""
        return self._connection.perform(self._waiting(proposal, timeout, until))

    async def _wait_async(
        self, _: Callable[..., Any], proposal: Proposal | str, timeout: float | None, until: Until
    ) -> Proposal:
        """Wait without holding a thread."""
        return await self._connection.perform_async(self._waiting(proposal, timeout, until))

    def _waiting(self, proposal: Proposal | str, timeout: float | None, until: Until) -> RemoteSteps[Proposal]:
        """Yield the requests of a wait."""
        self._connection.before_write()
        seconds = timeout_seconds(timeout)
        if until not in ("ended", "decided"):
            raise RefusedError(ErrorCode.INVALID_VALUE, f"until is {until!r:.80}; it must be 'ended' or 'decided'.")
        path = resource("proposals", proposal if isinstance(proposal, str) else proposal.proposal_id)
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            left = None if end is None else max(0.0, end - time.monotonic())
            query = {"until": until, **HISTORY}
            found = self._proposal_of((yield RealmRequest(method="GET", path=path, query=query, wait_s=_part(left))))
            if has_come(found, until):
                return found
            if left == 0:
                raise still_open(found, seconds, until)

    # Events

    def subscribe(self, handler: Handler) -> Callable[[], None]:
        """Call a handler for every new event; returns the function that ends this.

        A cut stream is resumed after the last event, so each event is delivered once and none is left out. An event
        that rules of redaction hide is a ``HiddenEvent``.

        Raises:
            RefusedError: ``RIGHT_MISSING``.
        """
        return self._subscribers.subscribe(handler)

    def schedule(self, reaction: Reaction) -> None:
        """Run a reaction after the current handler calls, or at once outside of them."""
        self._subscribers.schedule(reaction)

    # Operators and workers

    def create_branch(
        self, name: str, world_id: str | None = None, *, by: str = OPERATOR, allow_failed: bool = False
    ) -> None:
        """Create a branch at a world as the caller; see ``RealmOperator.create_branch``."""
        self._check_operator(by)
        body = {"name": name, "worldId": world_id, "allowFailed": allow_failed}
        self._connection.post("/branches", body, key=self.new_id())

    def switch_branch(self, name: str, *, by: str = OPERATOR) -> None:
        """Make a branch the active one as the caller; undecided proposals are superseded."""
        self._check_operator(by)
        self._connection.post("/branches:switch", {"name": name}, key=self.new_id())

    def claim_effect(
        self,
        types: Collection[str] | None = None,
        *,
        worker: str,
        workspaces: Collection[str] = (),
        proposal_id: str | None = None,
        wait_s: float = 0,
        key: str | None = None,
    ) -> EffectClaim | None:
        """Claim the effect that was offered first of those that a worker performs; see ``ExternalEffects``."""
        check_wait(wait_s)
        check_names("types", types)
        check_names("workspaces", workspaces)
        body = {
            "worker": worker,
            "types": None if types is None else list(types),
            "workspaces": list(workspaces),
            "proposalId": proposal_id,
        }
        end = time.monotonic() + wait_s
        while True:
            left = max(0.0, end - time.monotonic())
            claim = self._connection.post("/effects:claim", body, key=key or self.new_id(), wait_s=_part(left))["claim"]
            if claim is not None or left == 0:
                return None if claim is None else read_form(EffectClaim, claim)

    def heartbeat_effect(self, claim: EffectClaim) -> EffectClaim:
        """Extend a claim by the time limit of its effect from now; see ``ExternalEffects``."""
        return read_form(EffectClaim, self._connection.post("/effects:heartbeat", {"claim": claim.to_wire()})["claim"])

    def complete_effect(self, claim: EffectClaim, performed: Performed) -> Proposal:
        """Record the result of a claimed effect, and continue its execution; see ``ExternalEffects``.

        Raises:
            RefusedError: ``CLAIM_LOST``; after the result was recorded, ``UNKNOWN_PROPOSAL`` or ``RIGHT_MISSING`` where
                the caller may not read the proposal. ``RemoteEffects.complete`` needs the right worker alone.
        """
        body = {"claim": claim.to_wire(), "report": EffectReport.of(performed).to_wire()}
        self._connection.post("/effects:complete", body)
        return self.proposal(claim.proposal_id)

    # Parts

    @property
    def access(self) -> RemoteAccess:
        """Rights of actors and API tokens, for reading."""
        return RemoteAccess(self._connection)

    @property
    def actions(self) -> RemoteActions:
        """Actions available to the caller: catalogs, tools, explanations."""
        return RemoteActions(self._connection)

    @property
    def host(self) -> RemoteHosting:
        """Executions: effects in doubt, and cancellation."""
        return RemoteHosting(self)

    @property
    def leases(self) -> RemoteLeases:
        """Direct use of leases."""
        from worldprotocol.api.remote.leases import RemoteLeases

        return RemoteLeases(self._connection, self._ids)

    def _check_operator(self, by: str) -> None:
        """Refuse another actor than the verified one, whose name the default takes."""
        if by != OPERATOR:
            self._check_verified(by)

    def _check_verified(self, actor_id: str) -> None:
        """Refuse to act as another actor than the verified one.

        Raises:
            RefusedError: ``NOT_THE_VERIFIED_ACTOR``.
        """
        _check_caller(self._caller or self.caller(), actor_id)


def _check_caller(caller: ActorRef, actor_id: str) -> None:
    if actor_id != caller.actor_id:
        raise RefusedError(
            ErrorCode.NOT_THE_VERIFIED_ACTOR,
            f"The caller was verified as {caller.actor_id!r} and cannot act as {actor_id!r}; connect with a token of "
            f"{actor_id!r}.",
        )


def _options(options: SubmitOptions) -> dict[str, Any]:
    """Return the members of a body for the options of a submission."""
    return {
        "branch": options.get("branch"),
        "baseWorld": options.get("base_world"),
        "forkName": options.get("fork_name"),
        "allowFailedBase": options.get("allow_failed_base", False),
        "trace": options.get("trace"),
        "executionKey": options.get("execution_key"),
    }


def _part(seconds: float | None) -> float:
    """Return the wait of one request of a wait for some seconds; None is unlimited."""
    return WAIT_S if seconds is None else min(seconds, WAIT_S)


def _rest(options: SubmitOptions, seconds: float | None, begin: float) -> SubmitOptions:
    """Return the options with the rest of the time to wait."""
    if not seconds:
        return options
    left = max(0.0, seconds - (time.monotonic() - begin))
    return {**options, "wait": left}
