"""Commands in threads of their own pool, so that long ones leave the threads of all other requests alone."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Final

from worldprotocol.server.commands.output import CommandOutput
from worldprotocol.server.problems import TooManyRequestsError
from worldprotocol.server.threads import Threads

__all__ = ["RunningCommands"]

SHARE: Final = 4
"""One in so many of the server's threads runs commands, besides those threads."""

LEAST: Final = 4


class RunningCommands:
    """The commands that run in a server.

    Args:
        threads: threads of the server for other requests.
    """

    def __init__(self, threads: int) -> None:
        """Create the pool; threads start when they are needed."""
        self._most = max(LEAST, threads // SHARE)
        self._threads = Threads(self._most)
        self._by_actor: Counter[str] = Counter()
        self._actors: dict[CommandOutput, str] = {}
        self._outputs: set[CommandOutput] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, actor_id: str, output: CommandOutput, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run what writes to an output, until it ends or the server stops; an actor may have half of the threads.

        Raises:
            TooManyRequestsError: too many commands run.
        """
        most = max(1, self._most // 2)
        if self._by_actor[actor_id] >= most or self._by_actor.total() >= self._most:
            raise TooManyRequestsError(
                f"{self._by_actor[actor_id]} commands of {actor_id} and {self._by_actor.total()} in all run already; "
                f"the limits are {most} and {self._most}."
            )
        self._by_actor[actor_id] += 1
        self._actors[output] = actor_id
        task = asyncio.ensure_future(run())
        self._tasks.add(task)
        self._outputs.add(output)

        def ended(_: asyncio.Task[None]) -> None:
            self.release(output)
            self._outputs.discard(output)
            self._tasks.discard(task)

        task.add_done_callback(ended)

    def release(self, output: CommandOutput) -> None:
        """Count a command no more: it has ended, or continues without a thread; idempotent."""
        actor_id = self._actors.pop(output, None)
        if actor_id is not None:
            self._by_actor[actor_id] -= 1
            self._by_actor += Counter()  # forgets actors without commands

    async def in_thread(self, call: Callable[[], int]) -> int:
        """Return the result of a call in a thread of the pool."""
        return await self._threads.run(call)

    async def close(self) -> None:
        """Stop all commands at their next output, and wait for them."""
        for output in list(self._outputs):
            output.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._threads.close()
