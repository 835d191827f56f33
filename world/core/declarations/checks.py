"""Checks of what a domain in Python declares, and of what a portable one needs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypedDict, get_type_hints

from pydantic import BaseModel

from world.core.lint import is_version
from world.core.schema import DomainSchema
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.immutable_json import freeze

__all__ = [
    "ActionOptions",
    "check_computed",
    "check_declared",
    "check_deps",
    "check_migration",
    "check_named",
    "check_predicate",
    "check_state_type",
    "model_of_input",
    "refuse_python",
]


class ActionOptions(TypedDict, total=False):
    """Portable members of an action: availability expression, texts, manifest and confinement."""

    available: Any
    label: str | None
    description: str | None
    manifest: Any
    confinement: Any


_EXPRESSION = (
    'an expression as portable data, such as {"kind": "gt", "left": {"kind": "get", "path": "stock"}, '
    '"right": {"kind": "lit", "value": 0}}, or None for always; a condition in Python goes into the action itself, '
    "as ctx.fail(code, message), or into a function under @domain.available(name)"
)
_ACCEPTED: Mapping[str, tuple[tuple[type, ...], str]] = {
    "version": ((str,), 'a text, such as "1"'),
    "available": ((Mapping,), _EXPRESSION),
    "label": ((str,), "a text or None"),
    "description": ((str,), "a text or None"),
    "confinement": (
        (Mapping,),
        'portable data such as {"stated": "input.confined", "exact": ["input.command"]} or None',
    ),
    "manifest": ((Mapping, list), "portable data (objects, arrays, texts, numbers, booleans) or None"),
}
"""Accepted types of an action's arguments, and their names in errors."""


def check_declared(action: str, given: Mapping[str, Any]) -> None:
    """Raise for an argument of an action that is not portable data of its type."""
    for name, value in given.items():
        types, words = _ACCEPTED.get(name, ((object,), "portable data"))
        if value is None and name != "version":
            continue
        wrong = None if isinstance(value, types) else f"not {type(value).__name__}"
        try:
            freeze(value)
        except RefusedError as refused:
            wrong = wrong or refused.message.rstrip(".")
        if wrong:
            raise RefusedError(
                ErrorCode.INVALID_ACTION,
                f"The action {action!r} is declared with {name}={value!r:.60}; {name} takes {words} ({wrong}).",
                action=action,
                argument=name,
            )


def _accepts(function: Callable[..., Any], count: int) -> bool:
    """Return whether a function can be called with so many arguments by position; a decorator counts as it is written.

    ``functools.wraps`` shows the signature of the decorated function, to which the decorator may pass other arguments.
    """
    try:
        inspect.signature(function, follow_wrapped=False).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # a function of C has no signature
        pass
    return True


def model_of_input(function: Callable[..., Any], name: str) -> type[BaseModel] | None:
    """Return the pydantic model of an action's second parameter, or None."""
    parameters = list(inspect.signature(function).parameters.values())
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise RefusedError(
            ErrorCode.INVALID_ACTION,
            f"The action {name!r} must not be async: write def, and `yield effect(type, ...)` in place of await.",
            action=name,
        )
    if len(parameters) == 1:
        return None
    hints: dict[str, Any] = {}
    if len(parameters) == 2:
        try:
            hints = get_type_hints(function)
        except Exception:  # noqa: BLE001 - a name that cannot be found now is the same mistake as no type
            hints = {}
    is_passed = len(parameters) == 2 and _accepts(function, 2)
    model = hints.get(parameters[1].name) if is_passed else None
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise RefusedError(
            ErrorCode.INVALID_ACTION,
            f"The action {name!r} must be f(ctx) or f(ctx, input: Model) with a pydantic Model.",
            action=name,
        )
    return model


def check_predicate(action: str, function: Callable[..., Any]) -> None:
    """Raise for a predicate that is async or a generator."""
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise RefusedError(
            ErrorCode.INVALID_ACTION,
            f"The predicate of {action!r} must be a plain function of one context, which answers at once.",
            action=action,
        )


def check_state_type(state: object) -> None:
    """Raise for a state that is neither portable data nor a pydantic model."""
    if not isinstance(state, Mapping) and not (isinstance(state, type) and issubclass(state, BaseModel)):
        raise RefusedError(
            ErrorCode.UNSUPPORTED_TYPE,
            "The state of a domain is a class derived from pydantic.BaseModel, or portable data such as "
            f'{{"fields": {{...}}}}, not {state!r:.80}.',
        )


def check_computed(name: str, function: Callable[..., Any]) -> None:
    """Raise for a function of a computed value that can only fail: async, a generator, or not of one argument."""
    is_lazy = (
        inspect.iscoroutinefunction(function)
        or inspect.isgeneratorfunction(function)
        or inspect.isasyncgenfunction(function)
    )
    if is_lazy or not _accepts(function, 1):
        raise RefusedError(
            ErrorCode.INVALID_ACTION,
            f"The function of the computed value {name!r} must be a plain function f(data) that returns the value.",
            name=name,
        )


def check_deps(name: str, deps: object) -> None:
    """Raise for the paths of a computed value that are one text: each of its letters would be a path."""
    if isinstance(deps, str):
        raise RefusedError(
            ErrorCode.INVALID_ACTION,
            f"The computed value {name!r} takes a list of paths: write deps=[{deps!r}].",
            name=name,
        )


def check_named(name: object, decorator: str) -> None:
    """Raise for a decorator that is written without parentheses, where its first argument is the function."""
    if not isinstance(name, str):
        shown = getattr(name, "__name__", type(name).__name__)
        raise RefusedError(
            ErrorCode.INVALID_ACTION,
            f"@domain.{decorator} takes a text first, and was given {shown!r}; write @domain.{decorator}(...) above "
            "the function.",
            decorator=decorator,
        )


def check_migration(version: str, function: Callable[..., Any]) -> None:
    """Raise for a migration that is not a plain function of the old data, or whose version cannot be in force."""
    if not is_version(version):
        raise RefusedError(
            ErrorCode.INVALID_ACTION,
            f"@domain.migration({version!r:.80}) takes the version of the earlier schema, such as '1.0.0'.",
            version=str(version),
        )
    is_plain = not (inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function))
    try:
        inspect.signature(function).bind({})
    except TypeError:
        is_plain = False
    except ValueError:  # a function of C has no signature
        pass
    if not is_plain:
        raise RefusedError(
            ErrorCode.INVALID_ACTION,
            f"The migration from version {version} must be a plain function f(data) that returns the new data.",
            version=version,
        )


def refuse_python(schema: DomainSchema) -> None:
    """Raise for a schema that names Python functions."""
    wanted = [f"action {name}" for name, action in schema.actions.items() if action.python is not None]
    wanted += [f"computed value {spec.name}" for spec in schema.computed if spec.python is not None]
    if wanted:
        raise RefusedError(
            ErrorCode.PYTHON_REQUIRED,
            f"The schema of {schema.id} needs Python functions for {', '.join(wanted)}; portable data "
            "holds none. Give the Domain object of the module that declares them, as module:name.",
            names=wanted,
        )
