"""Group commit: callers that arrive while a batch is being committed share the next one.

There is no thread of its own. The first caller becomes the leader and runs the batch that is queued, its own
command among it; the others wait. When its batch is done the leader hands over to the first caller that is
still waiting, so no thread serves others for long. A lone caller runs its command in its own thread without any
switch. A batch that calls for another one in its own thread would wait for itself; it is refused.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from world.error_codes import ErrorCode
from world.errors import RefusedError, WorldProtocolError

MAX_BATCH: Final = 256
"""Commands that share one commit at most, by default."""

C = TypeVar("C")
R = TypeVar("R")
T = TypeVar("T")


class Pending(Generic[C, R]):
    """A command in a batch; the thread that runs the batch settles it, once."""

    __slots__ = ("_error", "_result", "_wake", "command", "leads", "settled")

    def __init__(self, command: C) -> None:
        """Queue a command."""
        self.command = command
        self.settled = False
        self.leads = False
        self._result: R | None = None
        self._error: BaseException | None = None
        self._wake = threading.Lock()
        self._wake.acquire()

    def succeed(self, result: R) -> None:
        """Give the caller a result, unless the command is settled already."""
        if not self.settled:
            self._result = result
            self.settled = True

    def fail(self, error: BaseException) -> None:
        """Raise an error in the caller, unless the command is settled already."""
        if not self.settled:
            self._error = error
            self.settled = True

    def wait(self) -> None:
        """Block until ``wake``."""
        self._wake.acquire()

    def wake(self) -> None:
        """Let the waiting caller go on."""
        self._wake.release()

    def outcome(self) -> R:
        """Return the result or raise the error of a settled command."""
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # settled without an error: R, which may include None


class GroupCommit(Generic[C, R]):
    """Runs commands in shared batches, one batch at a time, in order of arrival."""

    def __init__(self, run_batch: Callable[[list[Pending[C, R]]], None], *, max_batch: int = MAX_BATCH) -> None:
        """Make a queue.

        Args:
            run_batch: runs commands in order and settles each of them (``succeed`` or ``fail``). An exception
                it raises becomes the error of every command it left open.
            max_batch: most commands in one batch.
        """
        self._run_batch = run_batch
        self._max_batch = max_batch
        self._mutex = threading.Lock()
        self._queue: deque[Pending[C, R]] = deque()
        self._batch: list[Pending[C, R]] = []
        self._led = False
        self._leader: int | None = None
        self._preparing: set[int] = set()

    @property
    def preparing(self) -> int:
        """Number of threads that run ``before``."""
        return len(self._preparing)

    def before(self, call: Callable[[], T]) -> T:
        """Return the result of a call that prepares a command; commands from inside of it are refused.

        Raises:
            RefusedError: ``CALL_FROM_WITHIN``, as ``submit``.
            Exception: what the call raises.
        """
        self.refuse_within()
        thread = threading.get_ident()
        self._preparing.add(thread)
        try:
            return call()
        finally:
            self._preparing.discard(thread)

    def submit(self, command: C) -> R:
        """Run a command in a batch with others and return its result.

        Raises:
            RefusedError: ``CALL_FROM_WITHIN`` in a thread that runs a batch or ``before``: code called from there must
                not run commands.
            WorldProtocolError: ``BATCH_INTERRUPTED`` when the batch was broken off by an interrupt in another
                thread: it is not known whether the command took effect.
            Exception: what the command failed with.
        """
        self.refuse_within()
        mine: Pending[C, R] = Pending(command)
        try:
            with self._mutex:
                self._queue.append(mine)
                if not self._led:
                    self._led = mine.leads = True
            if not mine.leads:
                mine.wait()
            if mine.leads:
                self._lead(mine)
        except BaseException:
            self._abandon(mine)
            raise
        return mine.outcome()

    def refuse_within(self) -> None:
        """Refuse a call from code that a command of this thread calls.

        Raises:
            RefusedError: ``CALL_FROM_WITHIN``.
        """
        thread = threading.get_ident()
        if self._leader == thread or thread in self._preparing:  # only this thread writes its id there
            raise RefusedError(
                ErrorCode.CALL_FROM_WITHIN,
                "A rule, projection, action or computed value cannot call the world that is asking it; it would wait "
                "for itself. Answer from what it is given, and make the call when the world has returned, or in an "
                "effect handler or a scheduled reaction.",
            )

    def join(self) -> list[Pending[C, R]]:
        """Add the commands that have arrived meanwhile to the batch that this thread runs, and return them.

        A batch may have waited long for a lock that another process held; what arrived in that time shares its commit.
        """
        joined: list[Pending[C, R]] = []
        if self._leader == threading.get_ident():
            with self._mutex:
                while self._queue and len(self._batch) < self._max_batch:
                    joined.append(self._queue.popleft())
                    self._batch.append(joined[-1])
        return joined

    def _lead(self, mine: Pending[C, R]) -> None:
        """Run one batch; the leader's own command is its first."""
        batch: list[Pending[C, R]] = []
        error: BaseException | None = None
        is_ended = False
        try:
            with self._mutex:
                self._leader, self._batch = threading.get_ident(), batch
                while self._queue and len(batch) < self._max_batch:
                    batch.append(self._queue.popleft())
            self._run_batch(batch)
            is_ended = True
        except Exception as failure:  # noqa: BLE001  # it becomes the error of every caller left open
            error = failure
        finally:
            for item in batch:
                if not item.settled:
                    item.fail(error or _unsettled(is_ended=is_ended))
            self._hand_over(mine)
            for item in batch:
                if item is not mine:
                    item.wake()

    def _hand_over(self, mine: Pending[C, R]) -> None:
        """Make the first caller in the queue the leader, if any; only the leader can do that, once."""
        with self._mutex:
            if not mine.leads:
                return
            self._leader, self._batch = None, []
            mine.leads = False
            if self._queue:
                self._queue[0].leads = True
                self._queue[0].wake()
            else:
                self._led = False

    def _abandon(self, mine: Pending[C, R]) -> None:
        """Take back a command whose caller was interrupted in the queue; a running batch continues."""
        with self._mutex:
            if mine in self._queue:
                self._queue.remove(mine)
        self._hand_over(mine)


def _unsettled(*, is_ended: bool) -> WorldProtocolError:
    """Return the error for a command that a batch left without a result.

    Args:
        is_ended: whether the batch ran to its end; otherwise an interrupt broke it off.
    """
    if is_ended:
        return WorldProtocolError(ErrorCode.NOT_SETTLED, "The batch ended without a result for the command.")
    return WorldProtocolError(
        ErrorCode.BATCH_INTERRUPTED,
        "The shared commit was interrupted; whether the command took effect is not known. "
        "Load the state again before you repeat it.",
    )
