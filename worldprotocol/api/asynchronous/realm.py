"""``AsyncRealm``, the realm for asyncio: what blocks or waits in ``Realm`` is awaited here.

async with AsyncRealm.open("shop.db", domain=shop) as realm:
    proposal = await realm.act("bot", "order.place", {"item": "tea"}, wait=True)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from dataclasses import replace
from functools import partial, wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, cast

from world.errors import WaitTimeoutError
from world.log import EventLog
from world.read_models.archive import Archive
from world.state.proposal import Proposal
from worldprotocol.api.actions import Actions
from worldprotocol.api.asynchronous.external_effects import AsyncExternalEffects
from worldprotocol.api.asynchronous.governing import AsyncGoverning
from worldprotocol.api.asynchronous.leases import AsyncLeases
from worldprotocol.api.asynchronous.subscription import Subscription
from worldprotocol.api.asynchronous.twins import CallPool, Twin, awaited, iterated
from worldprotocol.api.callers.access import RealmAccess
from worldprotocol.api.host import Hosting, SessionOptions
from worldprotocol.api.leasing.async_calls import in_thread, run_to_end, wait_for_end
from worldprotocol.api.realm import Realm
from worldprotocol.api.requests import ProjectionOutcome
from worldprotocol.api.waiting.proposals import Until, wait_seconds
from worldprotocol.runs.backups import BackupAdministration

if TYPE_CHECKING:
    from host.environment import HostEnvironment
    from world.events.verification import Verification
    from worldprotocol.api.bootstrap import Components
    from worldprotocol.runs.session import GovernedSession

__all__ = ["AsyncAccess", "AsyncActions", "AsyncBackups", "AsyncHosting", "AsyncRealm", "RealmOpening"]

P = ParamSpec("P")
R = TypeVar("R", bound=Proposal | ProjectionOutcome)


class RealmOpening:
    """A realm that is opened when this is awaited; in ``async with``, it is closed at the end."""

    def __init__(self, call: Callable[[], Realm]) -> None:
        """Create an opening that begins when it is awaited or entered."""
        self._call = call
        self._realm: AsyncRealm | None = None

    def __await__(self) -> Generator[Any, None, AsyncRealm]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncRealm:
        self._realm = await self._open()
        return self._realm

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._realm is not None:
            await self._realm.close()

    async def _open(self) -> AsyncRealm:
        opening = in_thread(self._call, "worldprotocol-opening", unclaimed=Realm.close)
        try:
            await asyncio.wait([opening])
        except asyncio.CancelledError:
            await wait_for_end(opening)
            if opening.exception() is None:
                await run_to_end(opening.result().close)
            raise
        return AsyncRealm(opening.result())


def _opened(method: Callable[P, Realm]) -> Callable[P, RealmOpening]:
    """Return the twin of a function that opens a realm."""

    @wraps(method)
    def twin(*args: P.args, **kwargs: P.kwargs) -> RealmOpening:
        return RealmOpening(partial(method, *args, **kwargs))

    return twin


def _submitted(
    method: Callable[Concatenate[Realm, P], R],
) -> Callable[Concatenate[AsyncRealm, P], Coroutine[Any, Any, R]]:
    """Return the twin of a method that submits, whose option ``wait`` holds no thread."""

    @wraps(method)
    async def twin(self: AsyncRealm, /, *args: P.args, **kwargs: P.kwargs) -> R:
        wait: Any = kwargs.get("wait")
        seconds = wait_seconds(wait)
        kwargs["wait"] = None
        call: Callable[..., R] = getattr(self._sync, method.__name__)
        result = await self._pool.run(partial(call, *args, **kwargs))
        proposal = result.proposal if isinstance(result, ProjectionOutcome) else result
        if seconds == 0 or proposal is None:
            return result
        ended = await self._waited(proposal, seconds)
        return cast(R, replace(result, proposal=ended) if isinstance(result, ProjectionOutcome) else ended)

    return twin


class AsyncAccess(Twin[RealmAccess]):
    """Rights of actors, and API tokens; ``AsyncRealm.access``."""

    grant = awaited(RealmAccess.grant)
    revoke = awaited(RealmAccess.revoke)
    rights = awaited(RealmAccess.rights)
    create_token = awaited(RealmAccess.create_token)
    revoke_token = awaited(RealmAccess.revoke_token)
    tokens = awaited(RealmAccess.tokens)


class AsyncActions(Twin[Actions]):
    """Actions available to an actor in a state; ``AsyncRealm.actions``."""

    catalog = awaited(Actions.catalog)
    tools = awaited(Actions.tools)
    explain = awaited(Actions.explain)
    request = awaited(Actions.request)
    actor = awaited(Actions.actor)
    place = awaited(Actions.place)
    view = awaited(Actions.view)
    computed = awaited(Actions.computed)


class AsyncBackups(Twin[BackupAdministration]):
    """Backups of the workspace; ``AsyncRealm.host.backups``."""

    list = awaited(BackupAdministration.list)
    get = awaited(BackupAdministration.get)
    read = awaited(BackupAdministration.read)
    holders = awaited(BackupAdministration.holders)
    restore = awaited(BackupAdministration.restore)
    prune = awaited(BackupAdministration.prune)
    size_bytes = awaited(BackupAdministration.size_bytes)
    interrupted = awaited(BackupAdministration.interrupted)


class AsyncHosting(Twin[Hosting]):
    """Governed runs, backups and executions; ``AsyncRealm.host``. A session is an asynchronous context manager."""

    run_python = awaited(Hosting.run_python)
    begin = awaited(Hosting.begin)
    verification = awaited(Hosting.verification)
    runs = awaited(Hosting.runs)
    end_orphans = awaited(Hosting.end_orphans)
    look_after = awaited(Hosting.look_after)
    recover = awaited(Hosting.recover)
    stuck = awaited(Hosting.stuck)
    resolve = awaited(Hosting.resolve)
    cancel = awaited(Hosting.cancel)

    def session(self, **options: Unpack[SessionOptions]) -> GovernedSession:
        """Return a session for code in ``async with``; see ``Hosting.session``."""
        return self._sync.session(**options)

    @property
    def premises(self) -> HostEnvironment:
        """The workspace and its backups; raises ``RefusedError`` ``NO_WORKSPACE``."""
        return self._sync.premises

    @property
    def backups(self) -> AsyncBackups:
        """Backups of the workspace; raises ``RefusedError`` ``NO_WORKSPACE``."""
        return AsyncBackups(self._sync.backups, self._pool)


class AsyncRealm(AsyncExternalEffects, AsyncGoverning):
    """A realm for asyncio; each method has the signature and the documentation of the one of ``Realm``.

    ``create``, ``open`` and the other functions that open are awaited, or used in ``async with``. Where a task is
    cancelled, what it submitted stays submitted; a wait leaves nothing behind. ``sync`` is the realm itself.

    Args:
        realm: an open realm, which the object owns and closes.
    """

    def __init__(self, realm: Realm) -> None:
        """Own an open realm."""
        super().__init__(realm, CallPool())

    # Opening and closing

    create = staticmethod(_opened(Realm.create))
    open_or_create = staticmethod(_opened(Realm.open_or_create))
    open = staticmethod(_opened(Realm.open))
    open_to_adopt = staticmethod(_opened(Realm.open_to_adopt))
    open_read_only = staticmethod(_opened(Realm.open_read_only))
    from_config = staticmethod(_opened(Realm.from_config))
    connect = staticmethod(_opened(Realm.connect))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the log, even if the task is cancelled meanwhile, and wait for the calls that run; idempotent."""
        await self._pool.close(self._sync.close)

    # Commands of actors

    issue = awaited(Realm.issue)
    issue_direct = awaited(Realm.issue_direct)
    act = _submitted(Realm.act)
    submit = _submitted(Realm.submit)
    project = _submitted(Realm.project)
    decide = awaited(Realm.decide)
    settle = awaited(Realm.settle)

    async def wait(self, proposal: Proposal | str, timeout: float | None = None, *, until: Until = "ended") -> Proposal:
        """Wait until a proposal is decided and has ended, without holding a thread; see ``Realm.wait``."""
        return await self._sync._wait_async(self._pool.run, proposal, timeout, until)

    async def _waited(self, proposal: Proposal, seconds: float | None) -> Proposal:
        """Return a proposal as it is after the time of the option ``wait``."""
        if proposal.is_terminal:
            return proposal
        with suppress(WaitTimeoutError):
            return await self.wait(proposal, seconds)
        return await self.proposal(proposal.proposal_id)

    def subscribe(self) -> Subscription:
        """Return an asynchronous iterator of ``(position, event)`` of what is committed from the moment of entering."""
        return Subscription(self._sync, self._pool)

    # Commands of an operator

    register = awaited(Realm.register)
    bind = awaited(Realm.bind)
    adopt_policy = awaited(Realm.adopt_policy)
    retire_policy = awaited(Realm.retire_policy)
    shadow = awaited(Realm.shadow)
    changes = awaited(Realm.changes)
    confirm_clock = awaited(Realm.confirm_clock)
    adopt_domain = awaited(Realm.adopt_domain)
    create_branch = awaited(Realm.create_branch)
    switch_branch = awaited(Realm.switch_branch)

    preview = awaited(Realm.preview)

    @property
    def access(self) -> AsyncAccess:
        """Rights of actors and API tokens; raises ``RefusedError`` ``LOG_READ_ONLY``."""
        return AsyncAccess(self._sync.access, self._pool)

    def as_caller(self, verified: Verification) -> AsyncRealm:
        """Return this realm for one caller; see ``Realm.as_caller``."""
        return AsyncRealm(self._sync.as_caller(verified))

    # Reading

    realm = awaited(Realm.realm)
    proposal = awaited(Realm.proposal)
    proposals = iterated(Realm.proposals)
    branch = awaited(Realm.branch)
    branches = awaited(Realm.branches)
    sealed = awaited(Realm.sealed)
    worlds = iterated(Realm.worlds)
    data = awaited(Realm.data)
    snapshot = awaited(Realm.snapshot)
    computed = awaited(Realm.computed)
    blame = awaited(Realm.blame)
    events = iterated(Realm.events)
    inbox = awaited(Realm.inbox)

    def new_id(self) -> str:
        """Return a new unique id, for sessions and requests."""
        return self._sync.new_id()

    @property
    def log(self) -> EventLog:
        """The log itself, whose methods block."""
        return self._sync.log

    @property
    def archive(self) -> Archive:
        """Past worlds and ended proposals; its methods block."""
        return self._sync.archive

    @property
    def is_read_only(self) -> bool:
        """Whether this realm only reads its log."""
        return self._sync.is_read_only

    @property
    def parts(self) -> Components | None:
        """Components of this process; None if the realm is open for reading only."""
        return self._sync.parts

    @property
    def actions(self) -> AsyncActions:
        """Actions available to an actor in a state: catalogs, tools, explanations."""
        return AsyncActions(self._sync.actions, self._pool)

    @property
    def leases(self) -> AsyncLeases:
        """Direct use of leases; raises ``RefusedError`` ``LOG_READ_ONLY``."""
        return AsyncLeases(self._sync.leases, self._pool)

    @property
    def host(self) -> AsyncHosting:
        """Governed runs and effects in doubt; raises ``RefusedError`` ``LOG_READ_ONLY``."""
        return AsyncHosting(self._sync.host, self._pool)
