"""Resources that an effect touches, derived from its parameters before it runs: triples (KLIS-1).

A touch is a pair of predicate and resource. The resource is a template over the parameters, such as
``URL:https://mail.example/{to}``, or a function of them; ``{{`` and ``}}`` are braces, ``{user.name}`` addresses
a member of an object. All touches together may also be one function of the parameters.
Source: HC-handlers; KM-2.2; design section 8.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, Literal, get_args

from host.effect_input import invalid_input
from world.core.declarations.resources import places_of
from world.error_codes import ErrorCode
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
]

Predicate = Literal["PROVIDES", "CONSUMES", "MUTATES", "DELETES", "RENAMES", "DEPENDS_ON"]
Touch = tuple[Predicate, str | Callable[[Any], str | Iterable[str]]]
"""What an effect does to which resource, such as ``("MUTATES", "URL:https://mail.example/{to}")``."""

TouchesOf = Callable[[Any], Iterable[tuple[str, str]]]
"""A function of an effect's parameters that returns all touches."""

Touches = tuple[Touch, ...] | TouchesOf

_RESOURCE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*:.+")
_PLACE: Final = re.compile(r"\{\{|\}\}|\{([^{}]+)\}")


def touch_faults(touches: Any) -> str | None:
    """Return what is wrong with an effect's declared touches, as a clause, or None."""
    if callable(touches):
        return None
    for touch in touches:
        if not (isinstance(touch, tuple) and len(touch) == 2 and touch[0] in get_args(Predicate)):
            return f'its touches must be pairs like ("MUTATES", "FILE:/a"), not {touch!r}'
        given = touch[1]
        if callable(given):
            continue
        if not isinstance(given, str) or _RESOURCE.fullmatch(given) is None:
            return f'its touches must be pairs like ("MUTATES", "FILE:/a"), not {touch!r}'
        try:
            places_of(given)
        except RefusedError as refused:
            return f"the resource {given!r} of its touches is not a valid template. {refused.message.rstrip('.')}"
    return None


def resources_of(effect: str, touches: Touches, params: Any, as_json: Callable[[], Any]) -> list[tuple[Predicate, str]]:
    """Return the resources that an effect touches with given parameters.

    Args:
        effect: the effect's name, for errors.
        touches: the handler's declaration.
        params: as the handler receives them, for functions.
        as_json: returns them as JSON, for templates.

    Raises:
        RefusedError: ``EFFECT_INVALID_INPUT`` for a template whose parameter is missing; ``EFFECT_INVALID_TOUCHES``
            for a function that raises, or returns anything but pairs of predicate and resource.
    """
    if callable(touches):
        return _called(effect, touches, params)
    touched: list[tuple[Predicate, str]] = []
    for predicate, resource in touches:
        if callable(resource):
            touched += [(predicate, text) for text in _texts(effect, resource, params)]
        else:
            touched.append((predicate, _filled(effect, resource, as_json)))
    return touched


def seen_in(touched: Iterable[tuple[str, str]], *, types: ResourceTypes, names: NameComparison) -> list[Seen]:
    """Convert what an effect touches to observations that can be compared with a declaration.

    For an effect that starts a process and may change a whole folder, a declaration of either is sufficient (KO-5.1).

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


def _filled(effect: str, template: str, params_json: Callable[[], Any]) -> str:
    if "{" not in template and "}" not in template:
        return template
    params = params_json()

    def fill(match: re.Match[str]) -> str:
        path = match[1]
        if path is None:
            return match[0][0]
        value = look_up(params, parse_path(path))
        if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
            message = f"must be a non-empty text or an integer, because it fills {template!r}"
            raise invalid_input(effect, [{"path": f"$.{path}", "message": message}])
        return str(value)

    return _PLACE.sub(fill, template)


@contextmanager
def _foreign(effect: str) -> Iterator[None]:
    """Refuse an effect whose function of resources raises."""
    try:
        yield
    except RefusedError:
        raise
    except Exception as error:  # noqa: BLE001 - foreign code
        raise _wrong(effect, f"the function of its resources raised {type(error).__name__}") from None


def _texts(effect: str, function: Callable[[Any], str | Iterable[str]], params: Any) -> list[str]:
    with _foreign(effect):
        given = function(params)
        texts = [given] if isinstance(given, str) else list(given)
    for text in texts:
        if not isinstance(text, str) or _RESOURCE.fullmatch(text) is None:
            raise _wrong(effect, f"{text!r:.80} is not a resource such as 'FILE:/a'")
    return texts


def _called(effect: str, function: TouchesOf, params: Any) -> list[tuple[Predicate, str]]:
    with _foreign(effect):
        given: list[Any] = [tuple(touch) for touch in function(params)]
    for touch in given:
        is_pair = len(touch) == 2 and touch[0] in get_args(Predicate) and isinstance(touch[1], str)
        if not is_pair or _RESOURCE.fullmatch(touch[1]) is None:
            raise _wrong(
                effect, f"{touch!r:.80} is not a pair of predicate and resource such as ('MUTATES', 'FILE:/a')"
            )
    return [(predicate, resource) for predicate, resource in given]


def _wrong(effect: str, why: str) -> RefusedError:
    return RefusedError(
        ErrorCode.EFFECT_INVALID_TOUCHES,
        f"The resources that {effect} touches cannot be determined: {why}.",
        effect=effect,
    )


def source_of(function: Any) -> str:
    """Return where a function is defined, as ``module:qualname``, for people."""
    inner = inspect.unwrap(function)
    named = inner if hasattr(inner, "__qualname__") else type(inner)
    return f"{named.__module__}:{named.__qualname__}"
