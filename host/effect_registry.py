"""Registry of effect handlers: one handler for each type of effect.

Source: design section 8; HC-handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Unpack

from host.effects import DEFAULT_TIME_LIMIT_MS, EffectFunction, EffectHandler, HandlerOptions, handler
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.state.ports import EffectTerms

__all__ = ["EffectRegistry", "WholeRegistry"]


class EffectRegistry:
    """The effect handlers of a host, one for each type of effect.

    Args:
        handlers: initial handlers.
        builtin: handlers that any other handler of the same type replaces.

    Raises:
        RefusedError: ``DUPLICATE_HANDLER`` as ``add`` does.
    """

    def __init__(self, handlers: Iterable[EffectHandler] = (), *, builtin: Iterable[EffectHandler] = ()) -> None:
        """Start with these handlers."""
        self._handlers: dict[str, EffectHandler] = {given.type: given for given in builtin}
        self._replaceable = set(self._handlers)
        for given in handlers:
            self.add(given)

    def add(self, given: EffectHandler) -> None:
        """Add a handler; it replaces a built-in one of the same type, and an external declaration of it.

        An external declaration replaces no handler: a process with the handler performs the effect.

        Raises:
            RefusedError: ``DUPLICATE_HANDLER`` where its type already has a handler; the choice between two must not
                depend on the order in which packages are loaded. ``INVALID_HANDLER`` for anything but a handler.
        """
        if not isinstance(given, EffectHandler):
            raise RefusedError(
                ErrorCode.INVALID_HANDLER,
                f"{given!r:.80} is not an effect handler; decorate the function with @handler(type).",
                given=type(given).__name__,
            )
        if given.type in self._replaceable:
            self._replaceable.remove(given.type)
            self._handlers[given.type] = given
        known = self._handlers.get(given.type)
        if known is not None and known.terms.external != given.terms.external:
            self._handlers[given.type] = known if given.terms.external else given
            return
        existing = self._handlers.setdefault(given.type, given)
        if existing is not given:
            raise RefusedError(
                ErrorCode.DUPLICATE_HANDLER,
                f"Effect {given.type!r} has two handlers, {existing.source} and {given.source}; leave one out.",
                effect=given.type,
            )

    def handler(
        self, effect_type: str, /, **options: Unpack[HandlerOptions]
    ) -> Callable[[EffectFunction], EffectHandler]:
        """Convert the decorated function to a handler and add it; see ``host.effects.handler``."""
        make = handler(effect_type, **options)

        def register(function: EffectFunction) -> EffectHandler:
            made_handler = make(function)
            self.add(made_handler)
            return made_handler

        return register

    def find(self, effect_type: str) -> EffectHandler | None:
        """Return the handler of a type of effect, or None."""
        return self._handlers.get(effect_type)

    def terms(self, effect_type: str, params: Mapping[str, Any] | None = None) -> EffectTerms:
        """Return the terms of a type of effect, and of its parameters where they are given.

        A type without a handler has the default terms.
        """
        existing = self._handlers.get(effect_type)
        if existing is None:
            return EffectTerms(DEFAULT_TIME_LIMIT_MS, idempotent=False)
        return existing.terms if params is None else existing.terms_for(params)

    @property
    def builtin(self) -> frozenset[str]:
        """The types of effects whose handlers are built in."""
        return frozenset(self._replaceable)

    def __iter__(self) -> Iterator[EffectHandler]:
        return iter(sorted(self._handlers.values(), key=lambda given: given.type))

    def __len__(self) -> int:
        return len(self._handlers)

    def __contains__(self, effect_type: object) -> bool:
        return effect_type in self._handlers


class WholeRegistry(EffectRegistry):
    """The complete handlers of a realm: built-in ones and those of installed packages are not added."""
