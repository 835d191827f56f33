"""What an effect touches outside, told before it is made: triples from its parameters (KLIS-1).

A touch is a pair of predicate and resource. The resource is a text, a template with places over the parameters, such as
``URL:https://mail.example/{to}``, or a function of them; ``{{`` and ``}}`` stand for braces, ``{user.name}`` looks into
an object. All touches together may be one function of the parameters, too.
Source: HC-handlers; KM-2.2; design section 8.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final, Literal, get_args

from host.effect_input import invalid_input
from world.core.resource_declarations import places_of
from world.errors import RefusedError
from world.klis.observation import Seen
from world.klis.predicate import Predicate as KlisPredicate
from world.klis.predicate import read_predicate
from world.klis.resources.names import NameComparison
from world.klis.resources.resource_reading import canonical_resource
from world.klis.resources.resource_types import ResourceTypes
from world.model.paths import look_up, parse_path

__all__ = [
    "Predicate",
    "Touch",
    "Touches",
    "TouchesOf",
    "resources_of",
    "seen_in",
    "source_of",
    "touch_faults",
    "touch_to_wire",
]

Predicate = Literal["PROVIDES", "CONSUMES", "MUTATES", "DELETES", "RENAMES", "DEPENDS_ON"]
Touch = tuple[Predicate, str | Callable[[Any], str | Iterable[str]]]
"""What an effect does to what outside: a predicate and a resource such as ``URL:https://mail.example/{to}``."""

TouchesOf = Callable[[Any], Iterable[tuple[str, str]]]
"""A function of an effect's parameters that gives all it touches."""

Touches = tuple[Touch, ...] | TouchesOf

_RESOURCE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*:.+")
_PLACE: Final = re.compile(r"\{\{|\}\}|\{([^{}]+)\}")


def touch_faults(touches: Any) -> str | None:
    """Return what is wrong with an effect's declared touches, as a clause, or None."""
    if callable(touches):
        return None
    for touch in touches:
        if not (isinstance(touch, tuple) and len(touch) == 2 and touch[0] in get_args(Predicate)):
            return f'what it touches must be pairs like ("MUTATES", "FILE:/a"), not {touch!r}'
        given = touch[1]
        if callable(given):
            continue
        if not isinstance(given, str) or _RESOURCE.fullmatch(given) is None:
            return f'what it touches must be pairs like ("MUTATES", "FILE:/a"), not {touch!r}'
        try:
            places_of(given)
        except RefusedError as refused:
            return f"what it touches is no template. {refused.message.rstrip('.')}"
    return None


def resources_of(effect: str, touches: Touches, params: Any, told: Callable[[], Any]) -> list[tuple[Predicate, str]]:
    """Return what an effect touches with some parameters.

    Args:
        effect: the effect's name, for errors.
        touches: what its handler declares.
        params: as the handler gets them, for functions.
        told: gives them as JSON, for templates.

    Raises:
        RefusedError: ``EFFECT_INVALID_INPUT`` where a place has nothing to be filled with; ``EFFECT_INVALID_TOUCHES``
            where a function raises, or gives something else than predicates and resources.
    """
    if callable(touches):
        return _called(effect, touches, params)
    found: list[tuple[Predicate, str]] = []
    for predicate, resource in touches:
        if callable(resource):
            found += [(predicate, text) for text in _texts(effect, resource, params)]
        else:
            found.append((predicate, _filled(effect, resource, told)))
    return found


def seen_in(touched: Iterable[tuple[str, str]], *, types: ResourceTypes, names: NameComparison) -> list[Seen]:
    """Return what an effect touches as observations that a declaration can be compared with.

    An effect that starts a process and may change a whole folder is an opaque tool: a declaration of either is enough
    (KO-5.1).

    Args:
        touched: pairs of predicate and resource; the resources need not be in canonical form.
        types: the resource types in force.
        names: which differences of paths are ignored.

    Raises:
        RefusedError: ``INVALID_PREDICATE``, ``AMBIGUOUS_RESOURCE`` and the like, for what is no triple.
    """
    seen = [
        Seen(
            read_predicate(predicate),
            canonical_resource(resource, types=types, names=names, literal_stars=True),
        )
        for predicate, resource in touched
    ]
    process = next((one.resource for one in seen if one.resource.type == "PROCESS"), None)
    if process is None:
        return seen
    return [
        replace(one, opaque_of=process) if one.predicate is KlisPredicate.MUTATES and one.resource.subtree else one
        for one in seen
    ]


def _filled(effect: str, template: str, told: Callable[[], Any]) -> str:
    if "{" not in template and "}" not in template:
        return template
    params = told()

    def fill(found: re.Match[str]) -> str:
        place = found[1]
        if place is None:
            return found[0][0]
        value = look_up(params, parse_path(place))
        if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
            message = f"a text or a whole number must stand here: it is a part of {template!r}"
            raise invalid_input(effect, [{"path": f"$.{place}", "message": message}])
        return str(value)

    return _PLACE.sub(fill, template)


def _texts(effect: str, function: Callable[[Any], str | Iterable[str]], params: Any) -> list[str]:
    try:
        given = function(params)
        texts = [given] if isinstance(given, str) else list(given)
    except RefusedError:
        raise
    except Exception as error:  # noqa: BLE001 - foreign code
        raise _wrong(effect, f"the function that tells what it touches raised {type(error).__name__}") from None
    for text in texts:
        if not isinstance(text, str) or _RESOURCE.fullmatch(text) is None:
            raise _wrong(effect, f"{text!r:.80} is no resource")
    return texts


def _called(effect: str, function: TouchesOf, params: Any) -> list[tuple[Predicate, str]]:
    try:
        given: list[Any] = [tuple(touch) for touch in function(params)]
    except RefusedError:
        raise
    except Exception as error:  # noqa: BLE001 - foreign code
        raise _wrong(effect, f"the function that tells what it touches raised {type(error).__name__}") from None
    for touch in given:
        is_pair = len(touch) == 2 and touch[0] in get_args(Predicate) and isinstance(touch[1], str)
        if not is_pair or _RESOURCE.fullmatch(touch[1]) is None:
            raise _wrong(effect, f"{touch!r:.80} is no pair of predicate and resource")
    return [(predicate, resource) for predicate, resource in given]


def _wrong(effect: str, why: str) -> RefusedError:
    return RefusedError("EFFECT_INVALID_TOUCHES", f"What {effect} touches cannot be told: {why}.", effect=effect)


def source_of(function: Any) -> str:
    """Return where a function stands, as ``module:qualname``, for people."""
    inner = inspect.unwrap(function)
    named = inner if hasattr(inner, "__qualname__") else type(inner)
    return f"{named.__module__}:{named.__qualname__}"


def touch_to_wire(touches: Touches) -> list[dict[str, Any]]:
    """Return declared touches as JSON; functions are told by where they stand."""
    if callable(touches):
        return [{"by": source_of(touches)}]
    return [
        {"predicate": predicate, "by": source_of(resource)}
        if callable(resource)
        else {"predicate": predicate, "resource": resource}
        for predicate, resource in touches
    ]
