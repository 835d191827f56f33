"""``Realm.governed``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar, cast, overload

__all__ = ["RealmGoverning"]

P = ParamSpec("P")
R = TypeVar("R")


class RealmGoverning:
    """Python functions whose calls are intents."""

    @overload
    def governed(self, function: Callable[P, R]) -> Callable[P, R]: ...

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
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...

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
        """Put a function, or a coroutine function, under this realm: each call is an intent (docs/agents.md).

        The body runs once the call is allowed, and its result or exception is recorded. A refused call raises
        ``RefusedError`` ``CALL_REFUSED`` with the reason, ``why`` (the code of the refusal) and ``proposal_id``; one
        whose time is over raises ``WaitTimeoutError``, and its proposal stays open.

        Args:
            function: the function, in ``@realm.governed`` without parentheses.
            actor: the acting actor; None is the one that the server verified.
            action: the action, whose input has the parameters as members, and that requests the effect ``tool.call``;
                None is ``tool.use`` with the members ``tool`` and ``arguments``.
            narrows: by parameter the pattern of the data that each of its values means, in which ``{}`` is the value;
                a value that is not within the approved scope is left out of the call.
            writes: patterns of further data that the action writes.
            wait_s: how long a call waits for people and resources, in seconds; None is unlimited.
            key: returns the id of a call of this function from its arguments: a repeated call with the same id
                returns the recorded result. None makes a new id for each call.

        Raises:
            RefusedError: ``UNKNOWN_ACTOR`` for a realm on this machine without an actor; ``INVALID_VALUE`` for a
                generator function.
        """
        from worldprotocol.agents.frameworks.functions import governed_function
        from worldprotocol.agents.frameworks.gate import GovernedTool
        from worldprotocol.api.realm import Realm

        realm, how = cast(Realm, self), GovernedTool(action, dict(narrows or {}), tuple(writes))

        def decorate(decorated: Callable[P, R]) -> Callable[P, R]:
            return governed_function(decorated, realm, actor, how, wait_s, key)

        return decorate if function is None else decorate(function)
