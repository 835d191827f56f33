"""Comparison of recorded identities of code with the current ones."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["changed_names"]


def changed_names(
    recorded: Mapping[str, str | None], at_hand: Mapping[str, str | None], own: Mapping[str, str | None]
) -> tuple[str, ...]:
    """Return the sorted names of functions whose code differs from the record.

    Args:
        recorded: identities by name, each compared by the rule of its own kind.
        at_hand: the current identities.
        own: the current identities of the first kind.
    """
    names = {*recorded, *at_hand}
    return tuple(sorted(name for name in names if name not in recorded or _differs(name, recorded, at_hand, own)))


def _differs(
    name: str,
    recorded: Mapping[str, str | None],
    at_hand: Mapping[str, str | None],
    own: Mapping[str, str | None],
) -> bool:
    then = recorded[name]
    is_first_kind = then is None or ":" not in then
    return name not in at_hand or then != (own if is_first_kind else at_hand)[name]
