"""``@realm.governed``: a Python function whose calls are intents. Its body runs only when the call is allowed.

    @realm.governed(actor="bot", action="refund.issue")
    def refund(order: str, amount: int) -> str: ...

A call waits until it is decided; one that must not be made raises ``RefusedError`` with the reason.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from functools import partial, wraps
from typing import Any, Final, ParamSpec, TypeVar, cast
from uuid import uuid4

from world.error_codes import ErrorCode
from world.errors import RefusedError, WaitTimeoutError
from worldprotocol.agents.frameworks.gate import GovernedTool, ToolGate
from worldprotocol.agents.frameworks.outcomes import Begun, MadeBefore, Pause, Permit
from worldprotocol.api.realm import Realm

__all__ = ["governed_function"]

P = ParamSpec("P")
R = TypeVar("R")

CLIENT: Final = "python"


def governed_function(
    function: Callable[P, R],
    realm: Realm,
    actor: str | None,
    how: GovernedTool,
    wait_s: float | None,
    key: Callable[..., str] | None,
) -> Callable[P, R]:
    """Return a function whose calls are intents; see ``Realm.governed``.

    Args:
        function: a function, or a coroutine function.
        realm: the realm.
        actor: the acting actor; None is the one that the server verified.
        how: which intent a call is.
        wait_s: how long a call waits, in seconds; None is unlimited.
        key: returns the id of a call from its arguments; None makes a new one for each call.

    Raises:
        RefusedError: ``INVALID_VALUE`` for a generator function.
    """
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise RefusedError(ErrorCode.INVALID_VALUE, "A generator is no call: return its items, or govern their maker.")
    name = function.__qualname__.rpartition("<locals>.")[2]
    call = _FunctionCalls(function, name, ToolGate(realm, actor, client=CLIENT, tools={name: how}, wait_s=wait_s))

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        bound = call.bound(args, kwargs)
        begun = call.gate.begin(call.name, call.arguments(bound), _key(key, args, kwargs), call.name)
        if isinstance(begun, Permit):
            return cast(R, call.gate.make(begun, partial(call.made_at_once, bound, begun)))
        return cast(R, _without_call(begun))

    async def run_async(*args: P.args, **kwargs: P.kwargs) -> Any:
        bound = call.bound(args, kwargs)
        begun = await call.gate.begin_async(call.name, call.arguments(bound), _key(key, args, kwargs), call.name)
        if isinstance(begun, Permit):
            body = cast(Callable[[], Awaitable[Any]], call.body(bound, begun))
            return await call.gate.make_async(begun, body)
        return _without_call(begun)

    if inspect.iscoroutinefunction(function):
        return cast(Callable[P, R], wraps(function)(run_async))
    return run


class _FunctionCalls:
    """The calls of one function: its arguments as JSON, and its body with narrower ones.

    Args:
        function: the function.
        name: its name in the record.
        gate: asks for the calls.
    """

    def __init__(self, function: Callable[..., Any], name: str, gate: ToolGate) -> None:
        self.name = name
        self.gate = gate
        self._function = function
        self._signature = inspect.signature(function)
        first = next(iter(self._signature.parameters), None)
        self._receiver = first if "." in name and first in ("self", "cls") else None  # only a method has one

    def bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> inspect.BoundArguments:
        """Return arguments by the names of the parameters, with defaults; raises ``TypeError`` as a call does."""
        found = self._signature.bind(*args, **kwargs)
        found.apply_defaults()
        return found

    def arguments(self, bound: inspect.BoundArguments) -> dict[str, Any]:
        """Return the arguments of the intent: those of a method are without the object itself."""
        return {name: value for name, value in bound.arguments.items() if name != self._receiver}

    def body(self, bound: inspect.BoundArguments, permit: Permit) -> Callable[[], Any]:
        """Return the call itself, with the approved arguments."""
        bound.arguments.update(permit.arguments(self.arguments(bound)))
        return partial(self._function, *bound.args, **bound.kwargs)

    def made_at_once(self, bound: inspect.BoundArguments, permit: Permit) -> Any:
        """Make the call; what is still to be awaited is no result."""
        result = self.body(bound, permit)()
        if inspect.isawaitable(result):
            raise TypeError(f"{self.name} returned an awaitable: only coroutine functions are awaited")
        return result


def _without_call(begun: Begun) -> Any:
    """Return the result that was recorded, or refuse.

    Raises:
        RefusedError: ``CALL_REFUSED``, with ``why`` and ``proposal_id``.
        WaitTimeoutError: ``NOT_ENDED_IN_TIME``.
    """
    if isinstance(begun, MadeBefore):
        return begun.value
    if isinstance(begun, Pause):
        raise WaitTimeoutError(ErrorCode.NOT_ENDED_IN_TIME, begun.message, proposal_id=begun.proposal_id)
    assert not isinstance(begun, Permit)
    raise RefusedError(ErrorCode.CALL_REFUSED, begun.message, why=begun.code, proposal_id=begun.proposal_id)


def _key(key: Callable[..., str] | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    return uuid4().hex if key is None else key(*args, **kwargs)
