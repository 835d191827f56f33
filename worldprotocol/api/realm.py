"""``Realm``, the main class of the Python API: open, act, read, subscribe.

with Realm.create("shop.db", domain=shop) as realm:
    realm.register("ann", "human", binding={"kind": "auto_approve"})
    print(realm.act("ann", "order.place", {"item": "tea"}).status, realm.data())
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.decision import HumanAnswer, HumanChoice
from world.model.intent import IntentInstance, IntentScope
from world.model.intent_origin import check_origin
from world.model.source import SourceEvent
from world.state.proposal import Proposal
from worldprotocol.api.administration import OPERATOR
from worldprotocol.api.executing.external_effects import ExternalEffects
from worldprotocol.api.executing.governing import RealmGoverning
from worldprotocol.api.proposal_summary import fate_of
from worldprotocol.api.read_only import open_for_reading
from worldprotocol.api.remote.connecting import RealmConnecting
from worldprotocol.api.requests import (
    ProjectionOutcome,
    body_of,
    check_submission,
    fitting,
    is_foundable,
    schema_in_force,
    scope_of,
    submission,
    with_a_way_out,
)

if TYPE_CHECKING:  # a realm that is open for reading only needs none of these
    from world.core import Domain
    from world.engine.domain_adoption import OpenProposals
    from world.engine.event_bus import Handler, Reaction
    from world.pipeline.preparation.preview import PreviewBasis
    from worldprotocol.api.config import Config
    from worldprotocol.api.host import Hosting
    from worldprotocol.api.leases import Leases
    from worldprotocol.api.options import EngineOptions, FoundingOptions, SubmitOptions


class Realm(ExternalEffects, RealmConnecting, RealmGoverning):
    """A realm, open for acting (``create``, ``open``) or for reading only."""

    @classmethod
    def create(
        cls,
        address: str | Path,
        *,
        domain: Domain | str | Path,
        data: Mapping[str, Any] | None = None,
        by: str = OPERATOR,
        development: bool = False,
        **options: Unpack[EngineOptions],
    ) -> Realm:
        """Found a new realm and open it.

        Args:
            address: a SQLite file, or a SQLAlchemy URL with an optional ``#name``.
            domain: a ``Domain``, a reference to one, or a YAML or JSON file.
            data: initial data that differs from the domain's defaults.
            by: actor id that the log records as the founder.
            development: record that ``worldctl dev`` may adopt changes in it; it always may in a realm that it creates.
            **options: as for ``open``; the policies given are adopted.

        Raises:
            RefusedError: ``ALREADY_FOUNDED``, ``INVALID_DATA``, and the codes of ``open``.
        """
        domain = fitting(domain, data, options.get("folder"), options.get("limits"))
        world = cls._opened(str(address), domain, create=True, **options)
        try:
            world._found(data, by, development=development)
        except BaseException:
            world.close()
            raise
        return world

    @classmethod
    def open_or_create(
        cls,
        address: str | Path,
        *,
        domain: Domain | str | Path,
        data: Mapping[str, Any] | None = None,
        by: str = OPERATOR,
        **options: Unpack[EngineOptions],
    ) -> Realm:
        """Open a realm for acting, and found it first if it does not exist.

        A realm does not exist if its file is missing or empty, or if the database has no tables or no log of that name.
        An existing realm keeps its data and its policies, unless ``on_change`` says otherwise.

        Args:
            address: a SQLite file, or a SQLAlchemy URL with an optional ``#name``.
            domain: the domain in force.
            data: as for ``create``; used only to found the realm.
            by: actor id that the log records as the founder.
            **options: as for ``open``.

        Raises:
            RefusedError: as ``create`` and ``open``, except ``ALREADY_FOUNDED`` and ``LOG_NOT_FOUND``.
        """
        options["projections"] = list(options.get("projections", ()))  # iterables may be read twice
        options["policies"] = list(options.get("policies", ()))
        options["effects"] = list(options.get("effects", ()))
        try:
            return cls.open(address, domain=domain, **options)
        except RefusedError as refused:
            if not is_foundable(refused) and refused.code != "NOT_FOUNDED":
                raise
        try:
            return cls.create(address, domain=domain, data=data, by=by, **options)
        except RefusedError as refused:
            if refused.code != "ALREADY_FOUNDED":  # by another process in the meantime
                raise
        return cls.open(address, domain=domain, **options)

    @classmethod
    def open(cls, address: str | Path, *, domain: Domain | str | Path, **options: Unpack[EngineOptions]) -> Realm:
        """Open a realm for acting, and complete the unfinished work of earlier processes.

        Args:
            address: a SQLite file, or a SQLAlchemy URL with an optional ``#name``.
            domain: the domain in force.
            **options: see ``worldprotocol.api.options.EngineOptions``.

        Raises:
            RefusedError: ``LOG_NOT_FOUND``, ``NOT_FOUNDED``; ``SCHEMA_MISMATCH`` when another schema is in force,
                unless ``on_change`` is ``adopt`` or ``hold``; ``PROGRAM_DIFFERS`` with ``on_change="refuse"``; with
                ``adopt``, the codes of ``adopt_domain``; ``NOT_A_DEVELOPMENT_REALM`` in a process of ``worldctl dev``.
        """
        world = cls._opened(str(address), domain, create=False, **options)
        from worldprotocol.api.program_changes import meet_changes

        try:
            if meet_changes(world._archive, world._composed, world._acting, options.get("on_change")):
                world._settle_at_opening()
        except BaseException:
            world.close()
            raise
        return world

    @classmethod
    def open_read_only(cls, address: str | Path) -> Realm:
        """Open a realm for reading only; no byte of the log changes.

        Raises:
            RefusedError: ``LOG_NOT_FOUND``, ``NOT_A_LOG`` and others.
        """
        try:
            return cls(open_for_reading(str(address)), None, None)
        except RefusedError as refused:
            raise with_a_way_out(refused) from None

    @classmethod
    def from_config(
        cls,
        config: Config | Path | str,
        *,
        address: str | None = None,
        create: bool = False,
        **options: Unpack[FoundingOptions],
    ) -> Realm:
        """Open the realm that a ``world.toml`` defines, or found it with ``create``.

        Args:
            config: a file, or what ``worldprotocol.api.config.read_config`` returned.
            address: address of the log; None is the one in the configuration.
            create: found a new realm.
            **options: as for ``create`` or ``open``; they override the configuration.

        Raises:
            RefusedError: as ``create``, ``open`` and ``read_config``; ``INVALID_CONFIG`` if there is no domain.
        """
        if isinstance(config, (str, Path)):
            from worldprotocol.api.config import read_config

            config = read_config(Path(config))
        opener = cls.create if create else cls.open
        return opener(address or config.log_address, **{**config.parts(), **options})

    @classmethod
    def _opened(
        cls, address: str, domain: Domain | str | Path, *, create: bool, **options: Unpack[EngineOptions]
    ) -> Realm:
        from worldprotocol.api.bootstrap import bootstrap

        try:
            log, composed, protocol = bootstrap(address, create=create, domain=domain, **options)
        except RefusedError as refused:
            raise with_a_way_out(refused) from None
        return cls(log, composed, protocol)

    def _settle_at_opening(self) -> None:
        """Settle, unless the clock is behind the log and commands are refused."""
        try:
            self.settle()
        except RefusedError as refused:
            if refused.code != "CLOCK_AHEAD":
                raise

    def _found(self, data: Mapping[str, Any] | None, by: str, *, development: bool = False) -> None:
        """Found the realm and adopt its policies in one commit."""
        from worldprotocol.api.executing.workspaces import take_up_workspace
        from worldprotocol.api.program_changes import found_realm

        found_realm(self._acting, self._composed.policy_names, data, by, development=development)
        take_up_workspace(self._acting, self._composed, by=by)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the log even if another resource fails to close; idempotent."""
        with self._log:  # a follower of a log that stays open would wait forever
            self._archive.expectations.close()
            if self._protocol is not None:
                self._protocol.close()
            environment = None if self._parts is None else self._parts.executor.environment
            if environment is not None:
                environment.workspace.close()

    @classmethod
    def open_to_adopt(
        cls,
        address: str | Path,
        *,
        domain: Domain | str | Path,
        by: str = OPERATOR,
        open_proposals: OpenProposals = "supersede",
        **options: Unpack[EngineOptions],
    ) -> Realm:
        """Open a realm with a changed domain and adopt it; see ``adopt_domain``.

        Raises:
            RefusedError: the codes of ``adopt_domain`` and ``open``.
        """
        world = cls._opened(str(address), domain, create=False, **options)
        try:
            world.adopt_domain(by=by, open_proposals=open_proposals)
            world.settle()
        except BaseException:
            world.close()
            raise
        return world

    def settle(self) -> None:
        """Finish abandoned executions, decide timed-out proposals, start approved ones.

        Raises:
            RefusedError: ``NOT_FOUNDED``; ``OTHER_WORKSPACE``, ``WORKSPACE_COPIED``, ``WORKSPACE_ID_DAMAGED`` where the
                process executes and its workspace is not the realm's.
        """
        from worldprotocol.api.executing.workspaces import settle

        settle(self._acting, self._composed, self.host)

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
        """Issue an intent without submitting it.

        Args:
            actor_id: a registered actor; with an actor of kind system, the intent is a system direct intent.
            action: the action's type.
            input: its input, JSON.
            scope: proposed write scope: an ``IntentScope``, its wire form, or patterns.
            note: free text, stored with the intent.

        Raises:
            RefusedError: ``UNKNOWN_ACTOR``, ``INVALID_VALUE``, ``NOT_CANONICAL``.
        """
        body, composed, realm = body_of(action, input, scope), self._composed, self._archive.realm()
        return composed.issue(self._actor_in(realm, actor_id), body, realm.schema_hash, note=note)

    def issue_direct(
        self,
        actor_id: str,
        action: str,
        input: Any = None,  # noqa: A002  # the specification's word
        *,
        job: str,
        event_id: str,
        scope: IntentScope | Mapping[str, Any] | Iterable[str] | None = None,
        note: str | None = None,
    ) -> IntentInstance:
        """Issue a system direct intent without submitting it (intent specification 8).

        Args:
            actor_id: a registered actor of kind system.
            action: the action's type.
            input: its input, JSON.
            job: name of the issuing job, such as ``scheduler``; part of the origin's projectionId, after ``system:``.
            event_id: id of the trigger, such as one run of the job; the same run has the same id.
            scope: as for ``issue``.
            note: free text, stored with the intent.

        Raises:
            RefusedError: ``UNKNOWN_ACTOR``, ``INVALID_VALUE``, ``NOT_CANONICAL``; ``NOT_A_DIRECT_INTENT`` for an actor
                of another kind than system, or an invalid job name.
        """
        body, schema_hash = body_of(action, input, scope), self._archive.peek(schema_in_force)
        actor = self._actor(actor_id)
        return self._composed.issue_direct(actor, body, schema_hash, job=job, event_id=event_id, note=note)

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
        """Issue and submit an intent; see ``issue`` and ``submit``."""
        check_submission(options)
        return self._submit_issued(self.issue(actor_id, action, input, scope=scope, note=note), options)

    def submit(self, intent: IntentInstance | Mapping[str, Any], **options: Unpack[SubmitOptions]) -> Proposal:
        """Submit an issued intent.

        Args:
            intent: an instance, or its wire form.
            **options: see ``worldprotocol.api.options.SubmitOptions``.

        Returns:
            The proposal: completed, failed, rejected, or waiting for human decisions; see the option ``wait``.

        Raises:
            RefusedError: see ``world.pipeline.submit.record_proposal``; ``UNKNOWN_PROJECTION`` for an unregistered
                projection as origin, and ``NOT_A_DIRECT_INTENT`` (``world.model.intent_origin``).
        """
        check_submission(options)
        instance = intent if isinstance(intent, IntentInstance) else IntentInstance.read(intent)
        check_origin(instance, self._composed.projections.projection_ids)
        self._archive.realm()  # what other processes committed is seen before foreign code is called
        return self._submit_issued(instance, options)

    def _submit_issued(self, instance: IntentInstance, options: SubmitOptions) -> Proposal:
        return self._waited(self._acting.submit(submission(instance, **options)), options)

    def project(
        self, source: SourceEvent | Mapping[str, Any], actor_id: str, **options: Unpack[SubmitOptions]
    ) -> ProjectionOutcome:
        """Project a source event to an intent, and submit the intent.

        Args:
            source: the event, or its wire form.
            actor_id: the acting actor.
            **options: as for ``submit``; the projections read the head of ``branch``.

        Raises:
            RefusedError: ``INVALID_VALUE``, ``SOURCE_TOO_LARGE``, the errors of projections, and the codes of
                ``submit``; ``PROJECTION_IMPURE``, which is recorded, with ``attempt`` and ``where``.
        """
        check_submission(options)
        event = source if isinstance(source, SourceEvent) else SourceEvent.read(source)
        projector = self._composed.projector(event, self._actor(actor_id))
        outcome = self._acting.project(projector, lambda intent: submission(intent, **options), options.get("branch"))
        return ProjectionOutcome(
            projection_id=None if outcome.record is None else outcome.record.projection_id,
            reason=None if outcome.record is None else outcome.record.result.reason,
            proposal=None if outcome.proposal is None else self._waited(outcome.proposal, options),
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
    ) -> Proposal:
        """Answer a waiting proposal as a human actor.

        Args:
            proposal_id: the proposal.
            choice: approve, reject, narrow (with ``scope``), abstain, ask (the proposer, in ``reason``), reply (to such
                a question), delegate (to the actor ``to``) or escalate (to the binding's next step).
            by: the answering actor's id.
            scope: the narrower scope.
            to: id of the actor that answers instead.
            reason: reason that is recorded.

        Raises:
            RefusedError: ``NOT_WAITING``, ``UNKNOWN_ACTOR``, and the codes of the Authority.
        """
        given = {"by": self._actor(by), "choice": choice, "scope": scope_of(scope), "to": to, "reason": reason}
        return self._record_answer(proposal_id, given)

    def _record_answer(self, proposal_id: str, given: Mapping[str, Any], shown: PreviewBasis | None = None) -> Proposal:
        """Record an answer with the members of ``HumanAnswer`` except its id; raises as ``Commands.answer``."""
        answer = HumanAnswer.read({"answerId": self._composed.ids.new_id(), **given})
        try:
            return self._acting.answer(proposal_id, answer, shown=shown)
        except RefusedError as refused:
            if refused.code != "NOT_WAITING":
                raise
            raise RefusedError(
                ErrorCode.NOT_WAITING, fate_of(self._archive, proposal_id), proposal_id=proposal_id
            ) from None

    def subscribe(self, handler: Handler) -> Callable[[], None]:
        """Call a handler for every new event; returns the function that ends this."""
        return self._acting.subscribers.subscribe(handler)

    def schedule(self, reaction: Reaction) -> None:
        """Run a reaction after the current handler calls, or at once outside of them."""
        self._acting.subscribers.schedule(reaction)

    @property
    def leases(self) -> Leases:
        """Direct use of leases; raises ``RefusedError`` ``LOG_READ_ONLY``."""
        from worldprotocol.api.leases import Leases

        return Leases(self._acting, self._composed.ids, self._composed.executor.keeper)

    @property
    def host(self) -> Hosting:
        """Governed runs and effects in doubt; raises ``RefusedError`` ``LOG_READ_ONLY``."""
        from worldprotocol.api.host import Hosting

        return Hosting(self._acting, self.leases, self._composed.ids, self._composed.executor.environment)

    def new_id(self) -> str:
        """Return a new unique id, for sessions and requests."""
        return self._composed.ids.new_id()
