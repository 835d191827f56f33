"""``AsyncRealm.governed``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial, wraps
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from worldprotocol.api.asynchronous.twins import Twin
from worldprotocol.api.leasing.async_calls import in_thread
from worldprotocol.api.realm import Realm

__all__ = ["AsyncGoverning", "Governing"]

P = ParamSpec("P")
R = TypeVar("R")


class Governing(Protocol):
    """A decorator whose functions are awaited."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Callable[P, Coroutine[Any, Any, R]]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Callable[P, Coroutine[Any, Any, R]]: ...

    def __call__(self, function: Callable[..., Any], /) -> Any:
        """Return the governed function."""


class AsyncGoverning(Twin[Realm]):
    """Python functions whose calls are intents, for asyncio."""

    @overload
    def governed(self, function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]: ...

    @overload
    def governed(self, function: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]: ...

    @overload
    def governed(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        narrows: Mapping[str, str] | None = None,
        writes: Iterable[str] = (),
        wait_s: float | None = None,
        key: Callable[..., str] | None = None,
    ) -> Governing: ...

    def governed(
        self,
        function: Callable[..., Any] | None = None,
        *,
        actor: str | None = None,
        action: str | None = None,
        narrows: Mapping[str, str] | None = None,
        writes: Iterable[str] = (),
        wait_s: float | None = None,
        key: Callable[..., str] | None = None,
    ) -> Any:
        """Put a function under this realm: each call is an intent, and is awaited; see ``Realm.governed``.

        A coroutine function runs in the loop, any other function in a thread of its own. A task that is cancelled
        before its call was begun leaves no call behind; the call of a function in a thread continues.
        """
        govern = self._sync.governed(actor=actor, action=action, narrows=narrows, writes=writes, wait_s=wait_s, key=key)

        def decorate(decorated: Callable[..., Any]) -> Callable[..., Any]:
            governed = govern(decorated)
            return governed if inspect.iscoroutinefunction(decorated) else _awaited(governed)

        return decorate if function is None else decorate(function)


def _awaited(function: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return a coroutine function that calls a function in a thread of its own."""

    @wraps(function)
    async def run(*args: P.args, **kwargs: P.kwargs) -> R:
        return await in_thread(partial(function, *args, **kwargs), "worldprotocol-call")

    return run
