"""Finding what a person names: a position, a branch, or the beginning of an id. Every command uses it.

What is one of several is refused with all of them, ``AMBIGUOUS``; points in the past are
``worldprotocol.api.lookup.point_in_time``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.proposal_events import DecisionMade
from world.model.new_names import HEAD
from world.read_models.decoding import decoded

if TYPE_CHECKING:
    from worldprotocol.api.realm import Realm

EVERY: Final = 1 << 40
"""Rows of all runs."""

MOST: Final = 20
"""Candidates that are listed when a prefix is not unique."""

MIN_ID_DIGITS: Final = 7
"""Digits from which on a number beyond the end of the log may be the beginning of an id: fewer are an event's place."""

KINDS: Final = ("world", "proposal", "intent", "run", "session", "decision")
"""What an id may be of, where a command takes any."""

_INDEXED: Final = ("world", "proposal", "verdict", "intent", "run")
"""Kinds of ids that the index finds by how they begin."""


def candidates(world: Realm, prefix: str, kinds: Collection[str] = KINDS) -> list[tuple[str, str]]:
    """Return ``(kind, id)`` of everything whose id begins like this; an intent and a decision have their proposal's id.

    Args:
        world: an open realm.
        prefix: the beginning of an id. Sessions are looked for only where nothing else is found, or one has this very
            name; decisions, which takes reading the log, only where nothing else is found.
        kinds: what is looked for, of ``KINDS`` and ``verdict``.
    """
    found: list[tuple[str, str]] = []
    for kind in _INDEXED:
        if kind in kinds:
            found += [(kind, name) for name in _indexed(world, kind, prefix)]
    own = {name for kind, name in found if kind == "proposal"}
    found = [(kind, name) for kind, name in found if kind != "intent" or name not in own]
    if "session" in kinds and (not found or world.archive.rows("runs_of_session", {"of_session": prefix})):
        found += [("session", name) for name in _sessions(world, prefix)]
    return found or (list(_decisions(world, prefix)) if "decision" in kinds else [])


def _indexed(world: Realm, kind: str, prefix: str) -> list[str]:
    if not prefix or "\x00" in prefix:  # PostgreSQL takes no text with a zero
        return []
    rows = world.archive.rows(f"{kind}_prefix", {"low": prefix, "high": prefix + "\U0010ffff", "most": MOST})
    return [str(row[0]) for row in rows]


def _sessions(world: Realm, prefix: str) -> list[str]:
    """Return the sessions of governed runs whose name begins like this; a whole name is found without looking on."""
    if world.archive.rows("runs_of_session", {"of_session": prefix}):
        return [prefix]
    rows = world.archive.rows("runs", {"most": EVERY, "before": EVERY})
    return sorted({str(session) for _, _, session, *_ in rows if str(session).startswith(prefix)})[:MOST]


def _decisions(world: Realm, prefix: str) -> Iterator[tuple[str, str]]:
    found = 0
    for logged in world.log.read(topics=[DecisionMade.TOPIC], skip_archived=True):
        event = decoded(logged)
        if isinstance(event, DecisionMade) and event.decision.decision_id.startswith(prefix):
            yield "decision", event.proposal_id
            found += 1
            if found == MOST:
                return


def head_named(world: Realm, named: str) -> str | None:
    """Return the head of the branch of this name, of the active one for ``HEAD``; None where there is none."""
    branches = {branch.name: branch.head for branch in world.branches()}
    if named == HEAD and branches:
        return world.branch().head
    return branches.get(named)


def find(world: Realm, named: str, kinds: Collection[str] = KINDS) -> tuple[str, str]:
    """Return the kind and id of the one thing that a branch's name, or the beginning of an id, names.

    Args:
        world: an open realm.
        named: what was typed.
        kinds: as for ``candidates``; a branch is found where ``world`` is among them.

    Raises:
        RefusedError: ``NOT_FOUND``; ``AMBIGUOUS`` with the candidates.
    """
    head = head_named(world, named) if "world" in kinds else None
    if head is not None:
        return "world", head
    found = only(named, candidates(world, named, kinds) if named else [])
    if found is None:
        raise nothing_named(named)
    return found


def only(named: str, found: list[tuple[str, str]]) -> tuple[str, str] | None:
    """Return the one of some candidates; the one with this very id before all others. None where there is none.

    Raises:
        RefusedError: ``AMBIGUOUS`` with the candidates.
    """
    exact = [one for one in found if one[1] == named]
    if len(found) > 1 and len(exact) != 1:
        raise not_unique(named, found)
    return exact[0] if exact else found[0] if found else None


def the_one(given: str, among: Iterable[str], *, what: str) -> str:
    """Return the id that begins as given; what begins none is returned as it is, to be refused by its name.

    Args:
        given: what was typed.
        among: the ids that can be meant.
        what: of what they are.

    Raises:
        RefusedError: ``AMBIGUOUS`` with the candidates.
    """
    found = only(given, [(what, one) for one in sorted(set(among)) if one.startswith(given)] if given else [])
    return given if found is None else found[1]


def proposal_id(world: Realm, given: str, likely: Collection[str] = ()) -> str:
    """Return the id of the proposal that begins as given; among likely ones first, then among all.

    Raises:
        RefusedError: ``AMBIGUOUS`` with the candidates.
    """
    if any(one.startswith(given) for one in likely):
        return the_one(given, likely, what="proposal")
    return the_one(given, _indexed(world, "proposal", given), what="proposal")


def world_id(world: Realm, given: str) -> str:
    """Return the id of the world that begins as given, or is the head of the branch of that name, or of ``HEAD``.

    Raises:
        RefusedError: ``AMBIGUOUS`` with the candidates.
    """
    return head_named(world, given) or the_one(given, _indexed(world, "world", given), what="world")


def nothing_named(named: str) -> RefusedError:
    """Return the error for a text that names nothing."""
    return RefusedError(
        ErrorCode.NOT_FOUND,
        f"Nothing has an id that begins with {named!r}; `worldctl log` and `worldctl worlds` list what there is.",
    )


def not_unique(named: str, found: list[tuple[str, str]]) -> RefusedError:
    """Return the error for a text that names several things, with the kind and id of each."""
    listed = "\n".join(f"  {kind} {name}" for kind, name in found[:MOST])
    more = "\n  and perhaps more" if len(found) >= MOST else ""
    return RefusedError(
        ErrorCode.AMBIGUOUS,
        f"{named!r} could be any of these; write more of it:\n{listed}{more}",
        candidates=[{"kind": kind, "id": name} for kind, name in found[:MOST]],
    )


def as_position(world: Realm, named: str) -> int | None:
    """Return the position that a text is; None where it is none: ids may begin with digits too.

    Raises:
        RefusedError: ``NOT_FOUND`` for a number of few digits beyond the end of the log.
    """
    if not (named.isascii() and named.isdigit()) or (named.startswith("0") and named != "0") or len(named) > 18:
        return None
    size = world.log.head().size
    if int(named) <= size:
        return int(named)
    if len(named) < MIN_ID_DIGITS:
        last = f"the log ends with event {size}" if size else "the log is empty"
        raise RefusedError(ErrorCode.NOT_FOUND, f"There is no event {named}: {last}.", size=size)
    return None
