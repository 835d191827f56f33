"""Which member of an action's input states that it is performed under confinement: the action's ``confinement``.

``{"stated": "input.confined", "exact": ["input.command", "input.cwd"]}``. Without confinement, what such an action does
depends on words that no list of rules understands completely. So an authority approves it only where ``stated`` is
true, a person approved it, or the rule that approves compares each member of ``exact`` with exact texts
(``authority.bindings.unconfined``). The declaration is a part of the schema, so an adoption records it. Source:
docs/agents.md, rule W.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from world.core.fields import FieldSpec, field_at
from world.model.paths import parse_path

__all__ = ["ConfinementDeclaration", "confinement_faults", "confinement_of"]

_KEYS: Final = frozenset({"stated", "exact"})
_ROOT: Final = "input"


@dataclass(frozen=True, slots=True)
class ConfinementDeclaration:
    """The declaration of one action.

    Args:
        stated: name of the member of the input that is true where the action is performed under confinement.
        exact: names of the members that a rule must compare with exact texts to approve it without confinement.
    """

    stated: str
    exact: tuple[str, ...]

    def is_stated(self, given: Any) -> bool:
        """Return whether an input states confinement: the member is true, and nothing that only counts as true."""
        return isinstance(given, Mapping) and given.get(self.stated) is True


def confinement_of(action: Mapping[str, Any] | None) -> ConfinementDeclaration | None:
    """Return the declaration of an action's portable spec, None where it has none."""
    declared = None if action is None else action.get("confinement")
    if declared is None:
        return None
    return ConfinementDeclaration(_member(declared["stated"]), tuple(_member(path) for path in declared["exact"]))


def confinement_faults(declared: Any, path: str, given: FieldSpec) -> Iterator[tuple[str, str]]:
    """Yield path and message of every fault of an action's declaration.

    Args:
        declared: what the schema holds.
        path: its path.
        given: the spec of the action's input.
    """
    if not isinstance(declared, Mapping) or declared.keys() != _KEYS:
        yield path, "confinement has the members stated and exact."
        return
    yield from _member_faults(declared["stated"], f"{path}.stated", given, "boolean")
    exact = declared["exact"]
    if not isinstance(exact, Sequence) or isinstance(exact, str) or not exact:
        yield f"{path}.exact", "exact is a list of at least one member of the input, such as input.command."
        return
    for at, one in enumerate(exact):
        yield from _member_faults(one, f"{path}.exact[{at}]", given, "string")


def _member_faults(named: Any, path: str, given: FieldSpec, type_: str) -> Iterator[tuple[str, str]]:
    segments = parse_path(named) if isinstance(named, str) and named else ()
    if len(segments) != 2 or segments[0] != _ROOT:
        yield path, f"It names a member of the input, such as input.confined, not {named!r:.60}."
        return
    spec = field_at(given, segments[1:])
    if spec is None or not spec.required or spec.type != type_:
        yield path, f"{named} is not a required {type_} of the input."


def _member(path: str) -> str:
    return str(parse_path(path)[1])
