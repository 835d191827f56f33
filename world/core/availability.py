"""Availability predicates: their inputs, requirements and local functions.

A predicate decides from data, computed values and the actor alone whether an action is available
(INT-7.4.2). The actor is read at ``meta.actor``: ``actorId`` (or ``id``), ``kind`` (or ``type``), ``name`` and
``meta``. Time, randomness, input and the state of the engine are refused when a schema is loaded; a predicate that
names them nevertheless cannot be evaluated.

The requirements of a predicate are found before it is evaluated, so that an ``and`` or ``or`` that stops early
hides no missing key. A value that ``isNull`` or ``coalesce`` tests for absence is not required.

Source: intent specification 3.4 and 7.4.2; INV-AC4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from world.core.expressions.expression import Evaluate, compile_expression
from world.core.expressions.expression_ast import check_expression, operands, paths_read
from world.core.expressions.scope import Scope
from world.core.python_action import ComputedView
from world.core.values import ExpressionError, kind_of, truth
from world.model.actor import ActorRef
from world.model.immutable_json import FrozenDict, freeze
from world.model.paths import Segments, format_name, format_path, is_present, parse_path
from world.model.snapshot import SnapshotView

__all__ = [
    "AvailabilityContext",
    "CompiledPredicate",
    "LocalPredicate",
    "actor_fields",
    "impure_reads",
    "needed",
    "read_answer",
    "read_predicate",
]

ACTOR: Final = "meta.actor"
"""Path of the actor in a predicate."""

_ACTOR_FIELDS: Final = frozenset({"actorId", "id", "kind", "type", "name", "meta"})
_WALK: Final = frozenset({"$item", "$index", "$array"})
_OUTSIDE: Final = frozenset({"input", "system", "meta"})


@dataclass(frozen=True, slots=True)
class AvailabilityContext:
    """Input of a local predicate: data, computed values and the actor (INT-3.4b).

    Args:
        data: the data.
        computed: the computed values.
        actor: the acting actor; None without one.
    """

    data: FrozenDict
    computed: Mapping[str, Any]
    actor: ActorRef | None

    @classmethod
    def of(cls, view: SnapshotView, actor: ActorRef | None) -> AvailabilityContext:
        """Return the context of a view and an actor."""
        return cls(view.data, ComputedView(view.computed), actor)


@dataclass(frozen=True, slots=True)
class LocalPredicate:
    """A predicate that is a Python function, without a wire form (INT-3.4b).

    Args:
        evaluate: from the context to true or false; pure.
        name: its name in messages.
    """

    evaluate: Callable[[AvailabilityContext], Any]
    name: str

    def decide(self, context: AvailabilityContext, *, strict: bool = True) -> bool | None:
        """Return the function's answer, None where it raises or returns no boolean; see ``read_answer``."""
        try:
            return read_answer(self.evaluate(context), strict=strict)
        except Exception:  # noqa: BLE001 - whatever its author's function raises, it decided nothing
            return None

    @property
    def kind(self) -> Literal["fn"]:
        """The kind that distinguishes it from an expression."""
        return "fn"


def read_answer(answer: Any, *, strict: bool = True) -> bool | None:
    """Return a predicate's answer, None where it is neither true nor false.

    Args:
        answer: the value of the expression or of the function.
        strict: false for a domain that was adopted under rules version 1: then the truth of any JSON counts.
    """
    if strict:
        return answer if isinstance(answer, bool) else None
    return truth(answer) if answer is None or isinstance(answer, _JSON) else None


_JSON: Final = (bool, int, float, str, list, dict)


@dataclass(frozen=True, slots=True)
class CompiledPredicate:
    """A checked and compiled expression as a predicate.

    Args:
        faults: sentences about its malformed parts.
        impure: the paths that it must not read.
        actor: the required fields of the actor, as the segments of their paths below ``meta``.
        computed: the required computed values, by full name.
        reads: every path it reads, sorted.
        evaluate: the compiled expression; with faults or impure reads it raises ``ExpressionError``.
    """

    faults: tuple[str, ...]
    impure: tuple[str, ...]
    actor: tuple[Segments, ...]
    computed: tuple[str, ...]
    reads: tuple[str, ...]
    evaluate: Evaluate

    def missing(self, fields: Mapping[str, Any], computed: Mapping[str, Any]) -> list[str]:
        """Return the required paths that are absent.

        Args:
            fields: as ``actor_fields`` gives them.
            computed: computed values by full name.
        """
        absent = [
            format_path(("meta", *segments))
            for segments in self.actor
            if not is_present(fields, segments, with_length=True)
        ]
        return absent + [name for name in self.computed if not _is_known(computed, name)]


def read_predicate(expression: Any) -> CompiledPredicate:
    """Return an expression as a predicate with its faults and impure reads."""
    faults = tuple(f"{path}: {message}" for path, message in check_expression(expression))
    if faults:
        return CompiledPredicate(faults, (), (), (), (), _undecided(faults[0]))
    impure = tuple(impure_reads(expression))
    reads = tuple(sorted(paths_read(expression)))
    if impure:
        rendered = (
            f"A predicate is a function of data, computed values and {ACTOR}; it cannot read {', '.join(impure)}."
        )
        return CompiledPredicate((), impure, (), (), reads, _undecided(rendered))
    wanted = sorted(set(needed(expression)))
    actor = tuple(parse_path(path)[1:] for path in wanted if path.startswith(ACTOR))
    computed = tuple(path for path in wanted if path.startswith("computed."))
    return CompiledPredicate((), (), actor, computed, reads, compile_expression(expression))


def _undecided(message: str) -> Evaluate:
    def fail(_: Scope) -> Any:
        raise ExpressionError("INTERNAL_ERROR", message)

    return fail


def impure_reads(expression: Any) -> list[str]:
    """Return the paths that a predicate must not read, sorted (INT-7.4.2b)."""
    return sorted(path for path in paths_read(expression) if _is_impure(path))


def _is_impure(path: str) -> bool:
    root = path.partition(".")[0]
    if root == "meta":
        segments = parse_path(path)
        return segments[1:2] != ("actor",) or (len(segments) > 2 and segments[2] not in _ACTOR_FIELDS)
    return root in _OUTSIDE or (root.startswith("$") and root not in _WALK)


def needed(expression: Any) -> Iterator[str]:
    """Yield the actor and computed paths that a predicate requires (INT-7.4.2e)."""
    path = _place(expression)
    if path is not None:
        if path.startswith((ACTOR, "computed.")):
            yield path
        return
    excused: tuple[Any, ...] = ()
    inner = operands(expression)
    if kind_of(expression) == "isNull":
        excused = inner
    elif kind_of(expression) == "coalesce":
        excused = inner[:-1]
    for one in inner:
        if not any(one is other for other in excused) or _place(one) is None:
            yield from needed(one)


def _place(node: Any) -> str | None:
    """Return the path of a ``get`` or of a member of one; None for other nodes."""
    kind = kind_of(node)
    if kind == "get":
        path = node["path"]
        return path if isinstance(path, str) else None
    if kind == "field":
        inner, name = node["object"], node["property"]
    elif kind == "at" and kind_of(node["index"]) == "lit" and isinstance(node["index"]["value"], str):
        inner, name = node["array"], node["index"]["value"]
    else:
        return None
    outer = _place(_picked_from(inner, name))
    return None if outer is None else f"{outer}.{format_name(name)}"


def _picked_from(node: Any, name: str) -> Any:
    """Return the source of a member that is picked by a literal list."""
    if kind_of(node) == "pick" and kind_of(node["keys"]) == "lit":
        keys = node["keys"]["value"]
        if isinstance(keys, list) and name in keys:
            return node["obj"]
    return node


def actor_fields(actor: ActorRef | None) -> FrozenDict:
    """Return the fields below ``meta`` that a predicate may read: only the actor."""
    if actor is None:
        return _NOBODY
    fields: FrozenDict = freeze({"actor": {**actor.to_wire(), "id": actor.actor_id, "type": actor.kind}})
    return fields


_NOBODY: Final = FrozenDict()


def _is_known(computed: Mapping[str, Any], path: str) -> bool:
    """Return whether the computed value of a path is present."""
    while path not in computed:
        path = path.rpartition(".")[0]
        if not path:
            return False
    return True
