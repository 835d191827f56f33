"""Leases for agents that want nothing but leases: hold what you work on, wait your turn, give it back.

As a context manager::

    with world.leases.acquire(agent="ann", resource="FILE:/src/a.py", predicate="MUTATES", timeout=30) as held:
        write(token=held.token)

While a lease is held, a thread keeps it alive. Waiting is in the log's own queue: the oldest agent comes first, a
younger one dies instead of waiting (KP-3a), and no circle of waits can form. Safe in many threads and processes.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import copy_context
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from world.clock import IdSource
from world.engine.lease_commands import LeaseCommands
from world.engine.protocol import WorldProtocol
from world.errors import RefusedError, WorldProtocolError
from world.events.lease_events import RequestWithdrawn, VerdictGiven
from world.klis.manifest import read_manifest
from world.klis.session import Rank
from world.read_models.archive import Archive
from world.read_models.decoding import decoded
from world.state.ports import BackupService
from worldprotocol.api.bootstrap import Follower, LoggedEvent

__all__ = ["Cancel", "LeaseHandle", "Leases"]

POLL_MS: Final = 100
"""How often who waits looks for what other processes did; what this one does is seen at once."""

LOST: Final = frozenset({"LEASE_NOT_ACTIVE", "UNKNOWN_LEASE", "NOT_THE_HOLDER"})
"""Refusals of a heartbeat that say that the lease is gone."""

MAX_BEAT_S: Final = 3_600.0

R = TypeVar("R")


class LeaseHandle:
    """Leases that were granted together; a context manager that releases them.

    Args of interest to callers: ``agent``, ``session``, ``lease_ids``, ``tokens`` (one fencing token for each lease)
    and ``token``, the largest of them: a store that remembers the largest token it saw can refuse older holders.
    """

    def __init__(
        self, leasing: LeaseCommands, archive: Archive, verdict: VerdictGiven, *, now_ms: Callable[[], int]
    ) -> None:
        """Take over leases of a granted verdict; ``keep_alive`` begins the heartbeats."""
        self._leasing = leasing
        self._archive = archive
        self._now_ms = now_ms
        self._ended = threading.Event()
        self._lost: str | None = None
        self._thread: threading.Thread | None = None
        self.verdict = verdict
        self.agent = verdict.agent_id
        self.session = verdict.session_id
        self.lease_ids: tuple[str, ...] = tuple(lease["leaseId"] for lease in verdict.leases)
        self.tokens: tuple[int, ...] = tuple(lease["token"] for lease in verdict.leases)
        self.ttl_ms = verdict.ttl_ms or 0

    @property
    def token(self) -> int:
        """The fencing token: it is larger than that of every earlier grant."""
        return max(self.tokens)

    @property
    def is_active(self) -> bool:
        """Whether every lease is still in force, by the log as it is now."""
        return self._why_lost() is None

    def check(self) -> None:
        """Make sure that the leases are still in force: call it before something that cannot be undone.

        Raises:
            RefusedError: ``LEASE_LOST``.
        """
        why = self._why_lost()
        if why is not None:
            raise RefusedError(
                "LEASE_LOST", f"{why} Stop what it was for, and ask again.", lease_ids=list(self.lease_ids)
            )

    def keep_alive(self) -> None:
        """Send heartbeats from a thread of its own, three in every time to live, until the leases are released."""
        if self._thread is None and not self._ended.is_set():
            self._thread = threading.Thread(target=self._beat, name="worldprotocol-heartbeat", daemon=True)
            self._thread.start()

    def heartbeat(self) -> None:
        """Let the leases live on from now.

        Raises:
            RefusedError: ``LEASE_LOST`` when one of them has ended.
        """
        try:
            self._leasing.heartbeat(self.lease_ids, agent_id=self.agent, session_id=self.session)
        except RefusedError as refused:
            if refused.code in LOST:
                self._lose(refused.message)
            self.check()
            raise

    def release(self) -> None:
        """Give the leases back; those that ended already stay as they are, and twice is once."""
        self._stop()
        if self._lost is None:
            self._lost = "It was released."
            try:
                self._leasing.release(self.lease_ids, agent_id=self.agent, session_id=self.session)
            except RefusedError as refused:
                if refused.code not in LOST:  # ended so long ago that nobody remembers
                    raise

    def stop_beating(self) -> None:
        """Send no heartbeats any more; the leases end when their time is over."""
        self._stop()

    def __enter__(self) -> Self:
        self.keep_alive()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    def _why_lost(self) -> str | None:
        if self._lost is None:
            states = self._archive.peek(lambda realm: [realm.klis.leases.get(one) for one in self.lease_ids])
            now = self._now_ms()
            for name, lease in zip(self.lease_ids, states, strict=True):
                if lease is None:
                    self._lose(f"Lease {name} has ended: it expired or was revoked.")
                elif lease.expires_at is not None and now > lease.expires_at:
                    self._lose(f"Lease {name} has expired.")
        return self._lost

    def _lose(self, why: str) -> None:
        self._lost = self._lost or why
        self._ended.set()

    def _beat(self) -> None:
        pause = min(max(self.ttl_ms, 1) / 3_000, MAX_BEAT_S)
        while not self._ended.wait(pause):
            try:
                self._leasing.heartbeat(self.lease_ids, agent_id=self.agent, session_id=self.session)
            except RefusedError as refused:
                if refused.code in LOST or refused.code == "LOG_CLOSED":
                    self._lose(refused.message)
                    return
            except Exception:  # noqa: BLE001  # a store that is away for a while must not end the heartbeats
                continue

    def _stop(self) -> None:
        self._ended.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()


class Cancel:
    """Lets another thread break off a wait."""

    def __init__(self) -> None:
        """Begin with nothing to break off."""
        self.told = threading.Event()
        self._follower: Follower | None = None
        self._mutex = threading.Lock()

    def watch(self, follower: Follower) -> None:
        """Break this one off when it is told."""
        with self._mutex:
            self._follower = follower
            if self.told.is_set():
                follower.stop()

    def tell(self) -> None:
        """Break the wait off."""
        with self._mutex:
            self.told.set()
            if self._follower is not None:
                self._follower.stop()


class Leases:
    """Direct use of leases; ``Realm.leases``."""

    def __init__(self, protocol: WorldProtocol, ids: IdSource, keeper: BackupService | None = None) -> None:
        """Use the desk of what acts on the log.

        Args:
            protocol: acts on the log.
            ids: makes the ids of sessions and requests.
            keeper: copies ahead what will be backed up, so that the log's lock is not held for it.
        """
        self._keeper = keeper
        self._protocol = protocol
        self._archive = protocol.archive
        self._ids = ids
        self._now_ms = protocol.now_ms

    @property
    def desk(self) -> LeaseCommands:
        """The single commands: request, heartbeat, release, revoke, withdraw, agents and keys."""
        return self._protocol.leasing

    def acquire(
        self,
        *,
        agent: str | None = None,
        session: str | None = None,
        resource: str | None = None,
        resources: Iterable[str] = (),
        predicate: str = "MUTATES",
        manifest: Mapping[str, Any] | None = None,
        ttl_ms: int | None = None,
        timeout: float | None = None,
        retry: bool = False,
        by: str | None = None,
        require_signature: bool = False,
        run_id: str | None = None,
        cancel: Cancel | None = None,
    ) -> LeaseHandle:
        """Get leases, waiting for them where the rules let this agent wait; use the result as a context manager.

        Args:
            agent: who asks; with ``manifest``, its agent_id counts.
            session: its unit of work, whose leases never conflict; None begins one.
            resource: what is wanted, such as ``FILE:/src/*``.
            resources: more of it, a text being one; all or nothing is granted.
            predicate: for what, one of the six.
            manifest: a whole manifest in place of the five above, maybe signed.
            ttl_ms: how long a lease lives without a heartbeat, in ms; None is the settings' default.
            timeout: how long to wait at most, in seconds; None and infinity are for ever, 0 not at all.
            retry: ask again after Die, when the verdict says, until the time is over.
            by: the caller's identity, which vouches for a request in its own name. None is ``agent``; with ``manifest``
                it is a caller without a name, so that the manifest needs a signature unless the setting
                ``authentication`` is ``open``.
            require_signature: accept a signed manifest only.
            run_id: for the engine: the open run in whose name it asks.
            cancel: breaks the wait off from another thread.

        Returns:
            The leases. Nothing keeps them alive until the context is entered, or ``keep_alive`` is called.

        Raises:
            RefusedError: ``DIED`` with ``retry_after_ms`` and ``conflicts``, ``WAIT_TIMED_OUT``, ``WAIT_CANCELLED``,
                ``INVALID_VALUE``, and what ``LeaseCommands.request`` refuses.
        """
        wanted = [*_one(resource), *_several(resources)]
        told = _manifest(manifest, agent, session or self._ids.new_id(), wanted, predicate)
        limit = _seconds(timeout)
        more = {"by": by or agent, "ttl_ms": ttl_ms, "require_signature": require_signature, "run_id": run_id}
        until = None if limit is None else time.monotonic() + limit
        while True:
            self._copy_ahead(told, run_id)
            left = None if until is None else until - time.monotonic()
            verdict = self._ask(told, left, cancel, **more)
            if verdict.status == "Granted":
                return LeaseHandle(self.desk, self._archive, verdict, now_ms=self._now_ms)
            pause = (verdict.retry_after_ms or 0) / 1000
            signed = "signature" in told  # its nonce is used up
            if not retry or signed or (until is not None and time.monotonic() + pause > until):
                raise _died(verdict, self._ranks(verdict))
            waker = cancel.told if cancel is not None else threading.Event()
            if waker.wait(pause):
                raise _cancelled(verdict.request_id)

    @asynccontextmanager
    async def hold_async(self, **wanted: Any) -> AsyncIterator[LeaseHandle]:
        """Hold leases in ``async with``; arguments as for ``acquire``.

        A cancelled wait withdraws its request, a cancelled body releases what it holds.

        Raises:
            RefusedError: as ``acquire``.
        """
        held = await self.acquire_async(**wanted)
        try:
            held.keep_alive()
            yield held
        finally:
            await _to_the_end(held.release)

    async def acquire_async(self, **wanted: Any) -> LeaseHandle:
        """Get leases without blocking the loop; arguments, result and errors as for ``acquire``."""
        cancel = Cancel()
        asking = _apart(
            lambda: self.acquire(cancel=cancel, **wanted), "worldprotocol-acquire", unclaimed=LeaseHandle.release
        )
        try:
            await asyncio.wait([asking])
        except asyncio.CancelledError:
            cancel.tell()
            await _ended(asking)
            if asking.exception() is None:
                await _to_the_end(asking.result().release)
            raise
        return asking.result()

    # Within

    def _copy_ahead(self, told: Mapping[str, Any], run_id: str | None) -> None:
        if self._keeper is None:
            return
        settings, types = self._archive.peek(lambda realm: (realm.klis.in_force, realm.klis.types))
        read = read_manifest(told, settings=settings, types=types, on_the_way=run_id is not None)
        self._keeper.prepare(read.triples)

    def _ask(
        self,
        told: Mapping[str, Any],
        left: float | None,
        cancel: Cancel | None,
        **more: Any,
    ) -> VerdictGiven:
        """Ask once, and wait where that is the answer; return the last verdict."""
        may_wait = left is None or left > 0
        request_id = self._ids.new_id()
        position = self._archive.log.head().size
        try:
            verdict = self.desk.request(
                told,
                queue=may_wait,
                wait_ms=None if left is None or not may_wait else max(1, math.ceil(left * 1000)),
                request_id=request_id,
                **more,
            )
            if verdict.status != "Wait":
                return verdict
            if not verdict.queued:
                raise _timed_out(request_id, verdict)
            final = self._wait(request_id, position, left, cancel)
        except RefusedError:
            raise
        except BaseException:  # the caller was broken off: nothing may stay behind, neither queued nor granted
            with suppress(WorldProtocolError):
                self._clean_up(request_id, position)
            raise
        if isinstance(final, VerdictGiven):
            return final
        is_over = final is None and (cancel is None or not cancel.told.is_set())
        if final is not None and final.reason not in ("timeout", "cancelled"):
            raise RefusedError(
                final.reason.upper(),
                f"Its turn had come, but nothing was granted: {final.reason}. Ask again once that is mended.",
                request_id=request_id,
            )
        if is_over or (final is not None and final.reason == "timeout"):
            raise _timed_out(request_id, verdict)
        raise _cancelled(request_id)

    def _wait(
        self, request_id: str, position: int, left: float | None, cancel: Cancel | None
    ) -> VerdictGiven | RequestWithdrawn | None:
        """Wait for the last word about a request; None where it was taken back here."""
        topics = [VerdictGiven.TOPIC, RequestWithdrawn.TOPIC]
        follower = self._archive.log.follow(position, poll_ms=POLL_MS, topics=topics)
        timer = None if left is None else threading.Timer(left, follower.stop)
        if timer is not None:
            timer.daemon = True
            timer.start()
        if cancel is not None:
            cancel.watch(follower)
        try:
            end = _last_word(follower, request_id)
        finally:
            if timer is not None:
                timer.cancel()
        if end is None and not self.desk.withdraw(request_id):  # it may have been granted at the last moment
            end = _last_word(follower.poll(), request_id)
        return end

    def _ranks(self, verdict: VerdictGiven) -> dict[str, Rank]:
        """Return the priorities of who asked and of who is in the way."""
        names = {verdict.agent_id, *(conflict["holder"] for conflict in verdict.conflicts)}
        return self._archive.peek(lambda realm: {name: realm.klis.agents[name] for name in names})

    def _clean_up(self, request_id: str, position: int) -> None:
        if self.desk.withdraw(request_id):
            return
        end = _last_word(self._archive.log.read(position, topics=[VerdictGiven.TOPIC]), request_id)
        if isinstance(end, VerdictGiven) and end.leases:
            ids = [lease["leaseId"] for lease in end.leases]
            self.desk.release(ids, agent_id=end.agent_id, session_id=end.session_id)


def _last_word(logged: Iterable[LoggedEvent], request_id: str) -> VerdictGiven | RequestWithdrawn | None:
    """Return the event that ends the waiting of a request."""
    needle = request_id.encode()
    for one in logged:
        if needle not in one.state:
            continue
        event = decoded(one)
        if isinstance(event, RequestWithdrawn) and event.request_id == request_id:
            return event
        if isinstance(event, VerdictGiven) and event.request_id == request_id and event.status != "Wait":
            return event
    return None


def _manifest(
    manifest: object, agent: str | None, session: str, resources: list[str], predicate: str
) -> Mapping[str, Any]:
    if manifest is not None:
        if not isinstance(manifest, Mapping):
            kind = type(manifest).__name__
            raise RefusedError(
                "INVALID_VALUE", f"A manifest is given as a mapping, such as json.loads makes; not as {kind}."
            )
        if agent is not None or resources:
            raise RefusedError("INVALID_VALUE", "Give a manifest, or an agent with resources, but not both.")
        return manifest
    if agent is None or not resources:
        raise RefusedError(
            "INVALID_VALUE", "Say who asks (agent) and for what (resource, resources), or give a manifest."
        )
    scope = [{"predicate": predicate, "resource": one} for one in resources]
    return {"ver": "1.0", "session_id": session, "agent_id": agent, "scope": scope}


def _one(resource: str | None) -> list[str]:
    return [] if resource is None else [resource]


def _several(resources: object) -> list[str]:
    if isinstance(resources, str):  # its letters are surely not meant
        return [resources]
    if not isinstance(resources, Iterable):
        raise RefusedError(
            "INVALID_VALUE", f"resources is a list of texts such as 'FILE:/src/*', and not {resources!r:.100}."
        )
    return list(resources)


def _seconds(timeout: object) -> float | None:
    """Check how long to wait, in seconds; return None where there is no limit.

    Raises:
        RefusedError: ``INVALID_VALUE``.
    """
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout >= 0:  # NaN is not, either
        raise RefusedError(
            "INVALID_VALUE",
            f"timeout is how many seconds to wait: a number from 0, or None for no limit; not {timeout!r:.100}.",
        )
    return None if timeout >= threading.TIMEOUT_MAX else float(timeout)  # nothing can wait for longer


def _in_the_way(conflict: Mapping[str, Any]) -> str:
    what = "holds" if "leaseId" in conflict else "waits before it for"
    return f"{conflict['holder']!r} {what} {conflict['predicate']} on {conflict['resource']}"


def _why_died(verdict: VerdictGiven, ranks: Mapping[str, Rank]) -> str:
    """Name one that is not younger: a holder before one that waits, because that rules out waiting for everybody."""
    own = ranks[verdict.agent_id]
    older = [conflict for conflict in verdict.conflicts if ranks[conflict["holder"]] <= own]
    if not older:  # the settings say how many are spelt out
        return f"{_in_the_way(verdict.conflicts[0])}, and another in the way that is not named here is older"
    first = min(older, key=lambda conflict: "leaseId" not in conflict)
    if "leaseId" not in first:
        return _in_the_way(first)
    is_own = ranks[first["holder"]] == own
    return f"{_in_the_way(first)} {'in another session' if is_own else 'and is older'}"


def _died(verdict: VerdictGiven, ranks: Mapping[str, Rank]) -> RefusedError:
    return RefusedError(
        "DIED",
        f"{_why_died(verdict, ranks)}, so {verdict.agent_id!r} must not wait; ask again in "
        f"{verdict.retry_after_ms} ms (`worldctl explain {verdict.verdict_id}`).",
        verdict_id=verdict.verdict_id,
        retry_after_ms=verdict.retry_after_ms,
        conflicts=verdict.conflicts,
    )


def _timed_out(request_id: str, verdict: VerdictGiven) -> RefusedError:
    return RefusedError(
        "WAIT_TIMED_OUT",
        f"{_in_the_way(verdict.conflicts[0])}; it was not free in time. The request does not wait any more; ask again, "
        "or longer.",
        request_id=request_id,
        verdict_id=verdict.verdict_id,
        conflicts=verdict.conflicts,
    )


def _cancelled(request_id: str) -> RefusedError:
    return RefusedError(
        "WAIT_CANCELLED", "The waiting was broken off; the request was withdrawn.", request_id=request_id
    )


def _apart(call: Callable[[], R], name: str, *, unclaimed: Callable[[R], object] | None = None) -> asyncio.Future[R]:
    """Run a blocking call in a thread of its own, never in a pool, where those who wait keep out those they wait for.

    Args:
        call: what to run, in a copy of the context of the caller.
        name: the thread's.
        unclaimed: what to do with the result where the loop was closed meanwhile.

    Returns:
        A future of the running loop; to cancel it does not stop the call.
    """
    loop, context = asyncio.get_running_loop(), copy_context()
    future: asyncio.Future[R] = loop.create_future()

    def settle(settled: Callable[[], None]) -> None:
        if not future.done():
            settled()

    def run() -> None:
        try:
            result = context.run(call)
        except BaseException as error:  # noqa: BLE001  # whatever it is, it is the caller's
            failure = error
            with suppress(RuntimeError):  # the loop is closed: nobody is left to be told
                loop.call_soon_threadsafe(settle, lambda: future.set_exception(failure))
            return
        try:
            loop.call_soon_threadsafe(settle, lambda: future.set_result(result))
        except RuntimeError:
            if unclaimed is not None:
                unclaimed(result)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


async def _ended(future: asyncio.Future[Any]) -> None:
    """Wait for a future to its end, also when the task is cancelled meanwhile; the caller raises for that."""
    while not future.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([future])


async def _to_the_end(call: Callable[[], object]) -> None:
    """Run a blocking call to its end, also when the task is cancelled meanwhile."""
    running = _apart(call, "worldprotocol-release")
    try:
        await asyncio.wait([running])
    except asyncio.CancelledError:
        await _ended(running)
        running.exception()  # looked at: being cancelled counts for more
        raise
    running.result()
