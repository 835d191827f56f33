"""Performance of tasks in a process of a work list.

A process keeps what it has begun, such as the state of a log up to a position, for the next tasks of the same work, of
two works at most. An error of a task is a result: only the loss of a process is an exception of its executor.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["MAX_BEGUN", "Begin", "Outcome", "Parcel", "perform"]

Begin = Callable[[], AbstractContextManager[Callable[[Any], Any]]]
"""Loads what the tasks of a work need, and gives the function for a task; serialisable."""

Outcome = tuple[Any, Exception | None]
"""Result of a task, or its error."""

MAX_BEGUN: Final = 2
"""Works that a process keeps; each may hold the state of a whole realm."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """What a process is sent for one task.

    Args:
        work: number of the work in its list; a process belongs to one list.
        begin: begins the work in the process.
        task: the task; serialisable.
    """

    work: int
    begin: Begin = field(repr=False)  # it may contain the password of a database
    task: Any = field(repr=False)


class _Begun:
    """The works that this process has begun, the one used last at the end."""

    def __init__(self) -> None:
        self._works: OrderedDict[int, tuple[ExitStack, Callable[[Any], Any]]] = OrderedDict()

    def function(self, parcel: Parcel) -> Callable[[Any], Any]:
        """Return the function for the tasks of a work, begun here if necessary."""
        known = self._works.get(parcel.work)
        if known is None:
            while len(self._works) >= MAX_BEGUN:
                _, (opened, _) = self._works.popitem(last=False)
                opened.close()
            with ExitStack() as opening:
                function = opening.enter_context(parcel.begin())
                known = self._works[parcel.work] = opening.pop_all(), function
        self._works.move_to_end(parcel.work)
        return known[1]


_begun: Final = _Begun()


def perform(parcel: Parcel) -> Outcome:
    """Perform a task in this process and return its result or its error."""
    try:
        return _begun.function(parcel)(parcel.task), None
    except Exception as error:  # noqa: BLE001 - the consumer of the work list raises it
        return None, error
