"""Operations that wait, as steps: a generator yields what has to be done, and a thread or an asyncio task performs it.

The result of each step is sent to the generator, and its error is raised there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

__all__ = ["drive", "drive_async"]

S = TypeVar("S")
R = TypeVar("R")


def drive(steps: Generator[S, Any, R], perform: Callable[[S], Any]) -> R:
    """Perform steps in the calling thread, and return their result; raises what they raise."""
    try:
        step = next(steps)
        while True:
            try:
                result = perform(step)
            except BaseException as error:  # noqa: BLE001  # the steps decide what to do about it
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        returned: R = end.value
        return returned


async def drive_async(steps: Generator[S, Any, R], perform: Callable[[S], Awaitable[Any]]) -> R:
    """Perform steps in a task, and return their result; raises what they raise."""
    try:
        step = next(steps)
        while True:
            try:
                result = await perform(step)
            except GeneratorExit:  # the task was dropped with its loop
                raise
            except BaseException as error:  # noqa: BLE001  # the steps decide what to do about it
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        returned: R = end.value
        return returned
