"""``Realm``, the main class of the Python API: open a realm, act on it, read it, and subscribe to its events.

Found a realm, act and read::

with Realm.create("shop.db", domain=shop) as world:
    world.register("ann", "human", binding={"kind": "auto_approve"})
    done = world.act("ann", "order.place", {"item": "tea"})
    print(done.status, world.data())
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self, Unpack

from world.core import Domain
from world.engine.administration import adopt_policy, found
from world.engine.event_bus import Handler, Reaction
from world.errors import RefusedError
from world.model.branch_names import check_branch_name
from world.model.decision import HumanAnswer, HumanChoice
from world.model.intent import IntentInstance, IntentScope
from world.model.intent_origin import check_origin
from world.model.source import SourceEvent
from world.pipeline.submit import Submission
from world.pipeline.unit_of_work import UnitOfWork
from world.state.proposal import Proposal
from worldprotocol.api.administration import OPERATOR, RealmOperator
from worldprotocol.api.bootstrap import bootstrap, open_for_reading
from worldprotocol.api.config import Config
from worldprotocol.api.host import Hosting
from worldprotocol.api.leases import Leases
from worldprotocol.api.options import EngineOptions, FoundingOptions, SubmitOptions
from worldprotocol.api.proposal_summary import fate_of
from worldprotocol.api.requests import (
    ProjectionOutcome,
    body_of,
    fitting,
    is_foundable,
    schema_in_force,
    scope_of,
    with_a_way_out,
)


class Realm(RealmOperator):
    """One realm of worlds, open for acting (``create``, ``open``) or for reading only (``open_read_only``)."""

    # Opening

    @classmethod
    def create(
        cls,
        address: str | Path,
        *,
        domain: Domain | str | Path,
        data: Mapping[str, Any] | None = None,
        by: str = OPERATOR,
        **options: Unpack[EngineOptions],
    ) -> Realm:
        """Found a new realm and open it; see ``open_or_create`` for a program that is run again.

        Args:
            address: a SQLite file, or a SQLAlchemy URL with an optional ``#name``.
            domain: a ``Domain``, a reference to one, or a YAML or JSON file.
            data: initial data that differs from the domain's defaults.
            by: whom the record names.
            **options: as for ``open``; policies at hand are adopted.

        Raises:
            RefusedError: ``ALREADY_FOUNDED``, ``INVALID_DATA``, and what opening refuses.
        """
        domain = fitting(domain, data, options.get("folder"), options.get("limits"))
        world = cls._opened(str(address), domain, create=True, **options)
        try:
            world._found(data, by)
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
        """Open a realm for acting, and found it first where there is none: for a program that is run again.

        There is none where the file is missing or empty, where the database holds none of a log's tables, and where it
        holds no log of that name. A realm that is there keeps its data and its adopted policies, whatever ``data`` and
        ``policies`` say; ``adopt_policy`` brings a changed policy into force.

        Args:
            address: a SQLite file, or a SQLAlchemy URL with an optional ``#name``.
            domain: the domain in force.
            data: as for ``create``, where there is no realm yet.
            by: whom the record names as founder.
            **options: as for ``open``.

        Raises:
            RefusedError: as ``create`` and ``open``, but neither ``ALREADY_FOUNDED`` nor ``LOG_NOT_FOUND``.
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
            if refused.code != "ALREADY_FOUNDED":  # by another process, meanwhile
                raise
        return cls.open(address, domain=domain, **options)

    @classmethod
    def open(cls, address: str | Path, *, domain: Domain | str | Path, **options: Unpack[EngineOptions]) -> Realm:
        """Open a realm for acting, and settle what an earlier process left undone.

        Args:
            address: a SQLite file, or a SQLAlchemy URL with an optional ``#name``.
            domain: the domain in force.
            **options: see ``worldprotocol.api.options.EngineOptions``.

        Raises:
            RefusedError: ``LOG_NOT_FOUND``, ``NOT_FOUNDED``; ``SCHEMA_MISMATCH`` when another schema is in force.
        """
        world = cls._opened(str(address), domain, create=False, **options)
        try:
            world._check_schema()
            world._settle_at_opening()
        except BaseException:
            world.close()
            raise
        return world

    @classmethod
    def open_read_only(cls, address: str | Path) -> Realm:
        """Open a realm for looking only; no byte of the log changes.

        Raises:
            RefusedError: ``LOG_NOT_FOUND``, ``NOT_A_LOG`` and others.
        """
        try:
            return cls(open_for_reading(str(address)), None, None)
        except RefusedError as refused:
            raise with_a_way_out(refused) from None

    @classmethod
    def from_config(
        cls, config: Config, *, address: str | None = None, create: bool = False, **options: Unpack[FoundingOptions]
    ) -> Realm:
        """Open what a ``world.toml`` composes; ``create`` founds it first.

        Args:
            config: see ``worldprotocol.api.config.read_config``.
            address: another log than the one it names.
            create: found a new realm.
            **options: as for ``create`` or ``open``; what is given here has priority over the configuration.

        Raises:
            RefusedError: as ``create`` and ``open``; ``INVALID_CONFIG`` when it names no domain.
        """
        way_in = cls.create if create else cls.open
        return way_in(address or config.log_address, **{**config.parts(), **options})

    @classmethod
    def _opened(
        cls, address: str, domain: Domain | str | Path, *, create: bool, **options: Unpack[EngineOptions]
    ) -> Realm:
        try:
            log, composed, protocol = bootstrap(address, create=create, domain=domain, **options)
        except RefusedError as refused:
            raise with_a_way_out(refused) from None
        return cls(log, composed, protocol)

    def _settle_at_opening(self) -> None:
        """Settle, unless the clock is ahead: then every command is refused until it is set right or confirmed."""
        try:
            self.settle()
        except RefusedError as refused:
            if refused.code != "CLOCK_AHEAD":
                raise

    def _found(self, data: Mapping[str, Any] | None, by: str) -> None:
        """Found the realm and adopt its policies in one commit: no other process meets the realm without them."""
        names = self._composed.policy_names

        def command(work: UnitOfWork) -> None:
            found(work, by, data)
            for name in names:
                adopt_policy(work, name, by)

        self._acting.run(command)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the log, whatever else cannot be closed; closing twice does nothing."""
        with self._log:  # who follows a log that stays open waits for ever
            if self._protocol is not None:
                self._protocol.close()
            premises = None if self._parts is None else self._parts.executor.environment
            if premises is not None:
                premises.workspace.close()

    @classmethod
    def open_to_adopt(
        cls, address: str | Path, *, domain: Domain | str | Path, by: str = OPERATOR, **options: Unpack[EngineOptions]
    ) -> Realm:
        """Open a realm under a changed domain and adopt it; every head must obey the new schema.

        Raises:
            RefusedError: ``DATA_DOES_NOT_FIT``, and what ``open`` refuses.
        """
        world = cls._opened(str(address), domain, create=False, **options)
        try:
            world.adopt_domain(by=by)
            world.settle()
        except BaseException:
            world.close()
            raise
        return world

    def settle(self) -> None:
        """Do what is due: finish abandoned executions and runs, decide what timed out, start what is approved."""
        mode = self._composed.executor.enforcement
        is_founded, in_force, klis = self._archive.peek(
            lambda realm: (realm.founded is not None, realm.enforcement, realm.klis.settings)
        )
        if not is_founded:
            raise RefusedError(
                "NOT_FOUNDED", "This log has not been founded; `worldctl init` (Realm.create) founds it."
            )
        keeper = self._composed.executor.keeper
        if keeper is not None and klis is not None:
            keeper.follow(klis.names)
        if in_force != mode:
            self._acting.choose_enforcement(by=OPERATOR)
        self.host.end_orphans()
        self._acting.settle()
        if self._composed.executor.environment is not None:
            self.host.look_after()

    # The actors' part

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
            actor_id: a registered actor; for one of kind system this is a system direct intent.
            action: the action's type.
            input: its input, JSON.
            scope: proposed write scope: an ``IntentScope``, its wire form, or patterns.
            note: a note for people.

        Raises:
            RefusedError: ``UNKNOWN_ACTOR``, ``INVALID_VALUE``, ``NOT_CANONICAL``.
        """
        body = body_of(action, input, scope)
        return self._composed.issue(self._actor(actor_id), body, self._archive.peek(schema_in_force), note=note)

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
            job: what produced it, such as ``scheduler``; the projectionId of the origin is ``system:`` and this.
            event_id: what triggered it, such as a run of the job; the same run gives the same id.
            scope: as for ``issue``.
            note: a note for people.

        Raises:
            RefusedError: ``UNKNOWN_ACTOR``, ``INVALID_VALUE``, ``NOT_CANONICAL``; ``NOT_A_DIRECT_INTENT`` for an actor
                that is no system, or a job without a plain name.
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
        """Issue and submit an intent, and take it as far as it goes; see ``issue`` and ``submit``."""
        return self.submit(self.issue(actor_id, action, input, scope=scope, note=note), **options)

    def submit(self, intent: IntentInstance | Mapping[str, Any], **options: Unpack[SubmitOptions]) -> Proposal:
        """Submit an issued intent.

        Args:
            intent: an instance, or its wire form.
            **options: see ``worldprotocol.api.options.SubmitOptions``.

        Returns:
            The proposal: completed, failed, rejected, or waiting for people.

        Raises:
            RefusedError: see ``world.pipeline.submit.record_proposal``; ``UNKNOWN_PROJECTION`` for an origin that
                names no registered projection, and ``NOT_A_DIRECT_INTENT`` (``world.model.intent_origin``).
        """
        if options.get("fork_name") is not None:
            check_branch_name(options["fork_name"])
        instance = intent if isinstance(intent, IntentInstance) else IntentInstance.read(intent)
        check_origin(instance, self._composed.projections.projection_ids)
        return self._acting.submit(Submission(instance, **options))

    def project(
        self, source: SourceEvent | Mapping[str, Any], actor_id: str, **options: Unpack[SubmitOptions]
    ) -> ProjectionOutcome:
        """Let the projections select an intent for a source event, and submit it.

        Args:
            source: the event, or its wire form.
            actor_id: who acts.
            **options: as for ``submit``; the projections read the head of ``branch``.

        Raises:
            RefusedError: ``INVALID_VALUE``, ``SOURCE_TOO_LARGE``, what a projection does wrong, and see ``submit``;
                ``PROJECTION_IMPURE``, which is recorded, with ``attempt`` and ``where``.
        """
        if options.get("fork_name") is not None:
            check_branch_name(options["fork_name"])
        event = source if isinstance(source, SourceEvent) else SourceEvent.read(source)
        projector = self._composed.projector(event, self._actor(actor_id))
        came = self._acting.project(projector, lambda intent: Submission(intent, **options), options.get("branch"))
        proposal = None if came.proposal_id is None else self.proposal(came.proposal_id)
        result = {} if came.record is None else came.record.result
        return ProjectionOutcome(
            projection_id=None if came.record is None else came.record.projection_id,
            reason=result.get("reason"),
            proposal=proposal,
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
        """Answer a waiting proposal as a person.

        Args:
            proposal_id: the proposal.
            choice: approve, reject, narrow (with ``scope``), abstain, ask (a question back, in ``reason``), reply (to
                one, by the proposer), delegate (the own place, to ``to``) or escalate (to the binding's next step).
            by: the answering actor's id.
            scope: the narrower scope.
            to: the id of the actor who answers instead.
            reason: why, for the record.

        Raises:
            RefusedError: ``NOT_WAITING`` with what became of it, ``UNKNOWN_ACTOR``, and what the Authority refuses.
        """
        narrowed = scope_of(scope)
        answer = HumanAnswer.read(
            {
                "answerId": self._composed.ids.new_id(),
                "by": self._actor(by),
                "choice": choice,
                "scope": narrowed,
                "to": to,
                "reason": reason,
            }
        )
        try:
            return self._acting.answer(proposal_id, answer)
        except RefusedError as refused:
            if refused.code != "NOT_WAITING":
                raise
            raise RefusedError("NOT_WAITING", fate_of(self._archive, proposal_id), proposal_id=proposal_id) from None

    def subscribe(self, handler: Handler) -> Callable[[], None]:
        """Tell a handler ``(position, event, schedule)`` all that is committed from now on; returns what ends it."""
        return self._acting.subscribers.subscribe(handler)

    def schedule(self, reaction: Reaction) -> None:
        """Have something done when all handlers were told; at once in a thread that is telling nobody."""
        self._acting.subscribers.schedule(reaction)

    @property
    def leases(self) -> Leases:
        """Leases for agents that want nothing else; raises ``RefusedError`` ``LOG_READ_ONLY``."""
        return Leases(self._acting, self._composed.ids, self._composed.executor.keeper)

    @property
    def host(self) -> Hosting:
        """Governed runs, and executions that need a person; raises ``RefusedError`` ``LOG_READ_ONLY``."""
        return Hosting(self._acting, self.leases, self._composed.ids, self._composed.executor.environment)

    def new_id(self) -> str:
        """Return an id that was never used, for sessions and requests."""
        return self._composed.ids.new_id()

    # Inside

    def _check_schema(self) -> None:
        """Refuse to go on under another schema than the one in force (WP-schema)."""
        in_force, at_hand = self._archive.peek(schema_in_force), self._composed.domain.schema.hash
        if in_force and in_force != at_hand:
            raise RefusedError(
                "SCHEMA_MISMATCH",
                f"The log goes on under schema {in_force[:12]}, the domain at hand has {at_hand[:12]}. Open it with "
                "the domain it was made with, or adopt the new one on purpose (`worldctl adopt`, Realm.open_to_adopt).",
                in_force=in_force,
                at_hand=at_hand,
            )
