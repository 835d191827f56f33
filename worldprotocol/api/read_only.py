"""``RealmReader``: the read methods of a realm; ``Realm`` adds the commands.

What only some methods need is imported by them: a program that only reads a log imports neither the engine nor the
rooms. Sources: WP-restore, CARD-audit; design section 9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.proposal_events import ProposalSubmitted
from world.events.realm_events import WorldSealed
from world.log import EventLog, open_log
from world.model.immutable_json import FrozenDict
from world.model.short_repr import short_repr
from world.model.snapshot import Meta, Snapshot, System
from world.read_models.archive import Archive, WorldRow
from world.read_models.blame import Blame, blame
from world.read_models.decoding import decoded, decoded_rows
from world.read_models.index import WorldIndex
from world.state.branches import Branch
from world.state.proposal import Proposal
from world.state.realm_view import RealmView
from worldprotocol.api.requests import waiting_in

if TYPE_CHECKING:
    from worldprotocol.api.actions import Actions
    from worldprotocol.api.bootstrap import Components
    from worldprotocol.api.past_values import PastValues, PastValuesReader
    from worldprotocol.api.waiting.proposals import Until


def open_for_reading(address: str) -> EventLog:
    """Open a log for reading only; no byte of it changes.

    Raises:
        RefusedError: ``LOG_NOT_FOUND``, ``NOT_A_LOG`` and others; see ``world.log.open_log``.
    """
    return open_log(address, read_only=True, view=WorldIndex())


class RealmReader:
    """Read access to a realm: its branches, worlds, proposals, data and events.

    Args:
        log: an open log.
        parts: components of this process; None if the realm is open for reading only.
        archive: archive of the log.
    """

    def __init__(self, log: EventLog, parts: Components | None, archive: Archive) -> None:
        """Read an open log."""
        self._log = log
        self._parts = parts
        self._archive = archive

    def __repr__(self) -> str:
        return short_repr(self, str(self._log.address), "read-only" if self._parts is None else "open for acting")

    @property
    def log(self) -> EventLog:
        """The log itself."""
        return self._log

    @property
    def is_read_only(self) -> bool:
        """Whether this realm only reads its log."""
        return getattr(self, "_protocol", None) is None

    @property
    def archive(self) -> Archive:
        """Past worlds and ended proposals."""
        return self._archive

    @property
    def parts(self) -> Components | None:
        """Components of this process; None if the realm is open for reading only."""
        return self._parts

    def realm(self) -> RealmView:
        """Return the current state of the realm, as of the last commit of any process.

        It holds actors, bindings, policies, branches, open proposals and leases. It is an immutable view, which costs
        the same whatever the realm holds, and does not change with later commits.
        """
        return self._archive.realm()

    def proposal(self, proposal_id: str) -> Proposal:
        """Return a proposal, open or ended; raises ``RefusedError`` ``UNKNOWN_PROPOSAL``."""
        return self._archive.proposal(proposal_id)

    def wait(self, proposal: Proposal | str, timeout: float | None = None, *, until: Until = "ended") -> Proposal:
        """Wait until a proposal is decided and has ended, in whichever process, and return it.

        Time-outs of people, leases and effects are handled meanwhile, in a realm that is open for acting.

        Args:
            proposal: the proposal, or its id.
            timeout: seconds; None is unlimited, and 0 does not wait.
            until: ``ended`` (completed, failed, rejected or superseded), or ``decided``: its execution may go on.

        Raises:
            WaitTimeoutError: ``NOT_ENDED_IN_TIME`` with ``proposal_id`` and ``status``; also a ``TimeoutError``.
            RefusedError: ``UNKNOWN_PROPOSAL``, ``INVALID_VALUE``; ``CALL_FROM_HANDLER`` and ``CALL_FROM_WITHIN`` where
                commands are refused; ``LOG_CLOSED``, also where another thread closes the realm meanwhile.
        """
        from worldprotocol.api.waiting.proposals import wait_for_proposal

        self._check_may_wait()
        return wait_for_proposal(self._archive, proposal, timeout, until)

    def _check_may_wait(self) -> None:
        """Refuse to wait where that would never end."""

    async def _wait_async(
        self, run: Callable[..., Any], proposal: Proposal | str, timeout: float | None, until: Until
    ) -> Proposal:
        """Wait in asyncio without holding a thread; see ``wait``.

        Args:
            run: awaits a blocking call in another thread.
            proposal: the proposal, or its id.
            timeout: seconds; None is unlimited.
            until: what is waited for.
        """
        from worldprotocol.api.leasing.async_calls import result_of
        from worldprotocol.api.waiting.proposals import look_for, still_open, timeout_seconds

        seconds = timeout_seconds(timeout)
        self._check_may_wait()
        proposal_id, look = look_for(self._archive, proposal, until)
        found: Proposal | None = await run(look)
        if found is None and seconds != 0:
            found = await result_of(self._archive.expectations.expect(proposal_id, look), seconds)
        if found is None:
            raise still_open(await run(lambda: self._archive.proposal(proposal_id)), seconds, until)
        return found

    def proposals(
        self, *, actor: str | None = None, status: str | None = None, branch: str | None = None
    ) -> Iterator[Proposal]:
        """Yield the proposals in the order of submission; of a cut log, those whose events it still has.

        Args:
            actor: only those of this actor.
            status: only those with this status now.
            branch: only those on this branch.
        """
        for logged in self._log.read(topics=[ProposalSubmitted.TOPIC], skip_archived=True):
            event = decoded(logged)
            assert isinstance(event, ProposalSubmitted)
            if actor in (None, event.actor.actor_id) and branch in (None, event.branch):
                proposal = self.proposal(event.proposal_id)
                if status in (None, proposal.status):
                    yield proposal

    def branch(self, name: str | None = None) -> Branch:
        """Return a branch; None is the active one.

        Raises:
            RefusedError: ``UNKNOWN_BRANCH``.
        """
        return self._archive.peek(lambda realm: _branch_of(realm, name))

    def branches(self) -> list[Branch]:
        """Return all branches in order of creation."""
        return self._archive.peek(lambda realm: list(realm.branches.values()))

    def sealed(self, world_id: str | None = None) -> WorldSealed:
        """Return the event that sealed a world; None is the active branch's head."""
        return self._archive.sealed(world_id or self.branch().head)

    def worlds(self, most: int = 100) -> Iterator[WorldRow]:
        """Yield at most ``most`` worlds, newest first."""
        for row in self._archive.rows("worlds", {"most": most}):
            yield WorldRow(*row)

    def data(self, world_id: str | None = None) -> FrozenDict:
        """Return the data of any world; None is the active branch's head."""
        return self._archive.state(world_id or self.branch().head)

    def snapshot(self, world_id: str | None = None) -> Snapshot:
        """Return the snapshot of any world with its computed values.

        The computed values of a branch's head are those of the loaded domain. Those of a past world are those of its
        own schema, as ``computed`` returns them, without the values that would be evaluated by other code than the
        code adopted at that time.
        """
        from world.core import recompute

        sealed = self.sealed(world_id)
        data = self._archive.state(sealed.world_id)
        error = sealed.error
        system = System("idle") if error is None else System("error", error, (error,))
        domain = None if self._parts is None else self._parts.domain
        heads = self._archive.peek(lambda realm: {one.head for one in realm.branches.values()})
        computed = (
            recompute(domain, data)
            if domain is not None and sealed.world_id in heads
            else self._past_values().of(sealed, data).of_then()
        )
        return Snapshot(data, computed, system, None, Meta(sealed.height, sealed.at, "", sealed.schema_hash))

    def computed(self, world_id: str | None = None) -> PastValues:
        """Return the computed values of a world by its own schema.

        Without ``world_id`` the world is the active branch's head.

        Values of Python functions that have changed since are marked (``by_other_code``).

        Raises:
            RefusedError: ``UNKNOWN_WORLD``, ``UNKNOWN_BRANCH``.
        """
        sealed = self.sealed(world_id)
        return self._past_values().of(sealed, self._archive.state(sealed.world_id))

    def _past_values(self) -> PastValuesReader:
        from worldprotocol.api.past_values import PastValuesReader

        parts = self._parts
        if parts is None:
            return PastValuesReader(self._archive, None, why_none="the realm was opened without a domain")
        return PastValuesReader(self._archive, parts.domain, parts.limits)

    def blame(self, path: str, world_id: str | None = None) -> Blame:
        """Return the last change of a path, and the decision that allowed it.

        Without ``world_id`` the world is the active branch's head.

        Raises:
            RefusedError: ``UNKNOWN_WORLD``, ``INVALID_PATH``.
        """
        return blame(self._archive, path, world_id or self.branch().head)

    def events(self, after: int = 0, upto: int | None = None) -> Iterator[tuple[int, Any]]:
        """Yield ``(position, event)`` in log order."""
        for rows in self._log.read_rows(after, upto):
            yield from decoded_rows(rows)

    def inbox(self) -> list[Proposal]:
        """Return the proposals that wait for human decisions, oldest first.

        A proposal past its deadline cannot be answered any more: the next command decides it by its binding's rule;
        until then it is listed.
        """
        waiting = self._archive.peek(waiting_in)
        return sorted(waiting, key=lambda proposal: (proposal.submitted.at, proposal.proposal_id))

    @property
    def actions(self) -> Actions:
        """Actions available to an actor in a state: catalogs, tools, explanations."""
        from worldprotocol.api.actions import Actions

        parts = self._parts
        return Actions(self._archive) if parts is None else Actions(self._archive, parts.domain, parts.limits)


def _branch_of(realm: RealmView, name: str | None) -> Branch:
    """Return a branch; None is the active one."""
    branch = realm.branches.get(realm.active if name is None else name)
    if branch is None:
        raise unknown_branch(name, realm.branches)
    return branch


def unknown_branch(name: str | None, known: Iterable[str]) -> RefusedError:
    """Return the error for a branch that does not exist."""
    listed = ", ".join(sorted(known)) or "none"
    return RefusedError(ErrorCode.UNKNOWN_BRANCH, f"There is no branch {name!r}; the branches are: {listed}.")
