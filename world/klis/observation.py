"""Comparison of observed side effects with the declaration of an agent (KLIS-6).

A declared predicate satisfies an observed one by the table of the design (section 7): the same predicate; MUTATES
covers CONSUMES and DEPENDS_ON; CONSUMES covers DEPENDS_ON; PROVIDES covers MUTATES and CONSUMES of its resource, and an
observed PROVIDES may be declared as MUTATES; DELETES and RENAMES cover only themselves. A session may also rename and
remove what it created under its declaration. The texts of violations are recorded and must not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlsplit

from world.errors import RefusedError, ScopeViolationError
from world.events.resource_values import ResourceClaim
from world.klis.predicate import Predicate
from world.klis.resources.resource import Resource
from world.klis.resources.resource_reading import recorded_url
from world.klis.resources.url_host import bare_host
from world.klis.triple import Triple
from world.model.short_repr import listed

__all__ = ["KLIS_SCOPE_VIOLATION", "OUTSIDE", "SATISFIED_BY", "Declaration", "Seen", "outside_resource", "violation"]

KLIS_SCOPE_VIOLATION: Final = "KLIS_SCOPE_VIOLATION"
"""Error code of a side effect outside of the declaration."""

OUTSIDE: Final = "OUTSIDE"
"""Type of files outside of the workspace, which cannot be declared."""

SATISFIED_BY: Final[Mapping[Predicate, frozenset[Predicate]]] = {
    Predicate.PROVIDES: frozenset({Predicate.PROVIDES, Predicate.MUTATES}),
    Predicate.MUTATES: frozenset({Predicate.MUTATES, Predicate.PROVIDES}),
    Predicate.CONSUMES: frozenset({Predicate.CONSUMES, Predicate.MUTATES, Predicate.PROVIDES}),
    Predicate.DEPENDS_ON: frozenset({Predicate.DEPENDS_ON, Predicate.CONSUMES, Predicate.MUTATES, Predicate.PROVIDES}),
    Predicate.DELETES: frozenset({Predicate.DELETES}),
    Predicate.RENAMES: frozenset({Predicate.RENAMES}),
}
"""Which declared predicates satisfy an observed one."""

_ANYTHING: Final = frozenset(Predicate)
"""Any predicate on a whole folder allows listing its names."""

_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21}


@dataclass(frozen=True, slots=True)
class Seen:
    """One attempted or observed side effect.

    Args:
        predicate: the effect.
        resource: the resource, in canonical form.
        call: the call, for messages, such as ``open('/a.txt', 'w')``.
        outside: the real path of a file outside of the workspace; its resource has the type ``OUTSIDE``.
        address: host and port of a connection, which a declared URL of that place satisfies.
        looks: whether only the names in a directory are read, which every declared use allows.
        opaque_of: for the assumed effect of an opaque tool on its working directory: its process, which may be
            declared instead (KO-5.1).
        is_engines: whether it is a file of the engine, which no agent may access.
        is_held: whether another mechanism enforces the declaration, so that it is recorded but not checked.
    """

    predicate: Predicate
    resource: Resource
    call: str = field(default="", compare=False)
    outside: str | None = field(default=None, compare=False)
    address: tuple[str, int] | None = field(default=None, compare=False)
    looks: bool = field(default=False, compare=False)
    opaque_of: Resource | None = field(default=None, compare=False)
    is_held: bool = field(default=False, compare=False)
    is_engines: bool = field(default=False, compare=False)

    @property
    def name(self) -> str:
        """The resource in error texts: files by their path."""
        if self.outside is not None:
            return self.outside
        return shown(self.resource)

    def claim(self) -> ResourceClaim:
        """Return predicate and resource for an event."""
        return ResourceClaim(predicate=self.predicate.value, resource=self.resource.text)


def shown(resource: Resource) -> str:
    """Return a resource for messages: a file by its path, others with their type."""
    return resource.text.removeprefix("FILE:")


def outside_resource(path: str) -> Resource:
    """Return the resource of a file outside of the workspace by its printable path."""
    return Resource(OUTSIDE, f"{OUTSIDE}:{path}", subtree=False, ancestors=(), nested=False)


class Declaration:
    """Declaration of one session with an index for checks.

    Args:
        agent_id: the agent.
        session_id: its session.
        triples: the declared triples, with the targets of RENAMES as PROVIDES.
    """

    __slots__ = ("_above", "_by_key", "_hosts", "_subtrees", "agent_id", "session_id", "triples")

    def __init__(self, agent_id: str, session_id: str, triples: Iterable[Triple]) -> None:
        """Create a declaration; ``add`` extends it."""
        self.agent_id = agent_id
        self.session_id = session_id
        self.triples: tuple[Triple, ...] = ()
        self._by_key: dict[str, set[Predicate]] = {}
        self._subtrees: dict[str, set[Predicate]] = {}
        self._hosts: set[tuple[str, int]] = set()
        self._above: set[str] = {"FILE:/"}  # an interpreter lists its working directory
        for triple in dict.fromkeys(triples):
            self.add(triple)

    @property
    def hosts(self) -> frozenset[tuple[str, int]]:
        """Host and port of every declared URL."""
        return frozenset(self._hosts)

    def add(self, triple: Triple) -> None:
        """Add a triple to the declaration (permissive mode, KO-3.2b)."""
        if triple in self.triples:
            return
        self.triples += (triple,)
        resource = _place(triple.resource)
        places = self._subtrees if triple.covers else self._by_key
        places.setdefault(resource.key, set()).add(triple.predicate)
        self._above |= set(resource.ancestors)
        address = _address_of(resource)
        if address is not None and triple.predicate is not Predicate.DEPENDS_ON:
            self._hosts.add(address)

    def covers(self, seen: Seen) -> bool:
        """Return whether the declaration covers a side effect; a subtree only as a whole."""
        if seen.address is not None:
            return seen.address in self._hosts
        if seen.looks and (seen.resource.key in self._above or self._covers(seen.resource, _ANYTHING)):
            return True
        return self._covers(seen.resource, SATISFIED_BY[seen.predicate])

    def outside(self, seen: Sequence[Seen]) -> list[Seen]:
        """Return the effects of one call that the declaration does not cover.

        An opaque tool is checked by its process where that is declared, else by the assumed effect on its working
        directory (KO-5.1).
        """
        processes = {one.opaque_of for one in seen if one.opaque_of is not None}
        by_hand = {process for process in processes if self._covers(process, SATISFIED_BY[Predicate.PROVIDES])}
        found = []
        for one in seen:
            if one.is_held or one.opaque_of in by_hand or (one.resource in processes and one.resource not in by_hand):
                continue
            if not self.covers(one):
                found.append(one)
        return found

    def declared_at(self, seen: Seen) -> list[Triple]:
        """Return the declared triples at an overlapping place, for the error text."""
        if seen.address is not None:
            return [triple for triple in self.triples if triple.resource.type == "URL"]
        return [
            triple
            for triple in self.triples
            if triple.resource.overlaps(seen.resource)
            or (triple.covers and triple.resource.key in seen.resource.ancestors)
        ]

    def unused(self, seen: Iterable[Seen]) -> list[Triple]:
        """Return the declared triples without an observed use (KO-4)."""
        observed = list(seen)
        return [triple for triple in self.triples if not any(_uses(triple, one) for one in observed)]

    def _covers(self, resource: Resource, accepted: frozenset[Predicate]) -> bool:
        resource = _place(resource)
        key = resource.key
        if not resource.subtree and not accepted.isdisjoint(self._by_key.get(key, ())):
            return True
        subtrees = self._subtrees
        if not accepted.isdisjoint(subtrees.get(key, ())):
            return True
        return any(not accepted.isdisjoint(subtrees.get(above, ())) for above in resource.ancestors)


def _uses(triple: Triple, seen: Seen) -> bool:
    if seen.address is not None:
        return _address_of(triple.resource) == seen.address
    if triple.predicate not in SATISFIED_BY[seen.predicate]:
        return False
    resource, other = _place(triple.resource), _place(seen.resource)
    return resource.key == other.key or (triple.covers and resource.key in other.ancestors)


def _place(resource: Resource) -> Resource:
    """Return a URL by the latest rules for hosts."""
    return resource if resource.type != "URL" else _url_place(resource)


@lru_cache(4_096)
def _url_place(resource: Resource) -> Resource:
    try:
        return recorded_url(resource.text)
    except RefusedError:
        return resource


def _address_of(resource: Resource) -> tuple[str, int] | None:
    """Return host and port of a URL, None for other resources."""
    if resource.type != "URL":
        return None
    try:
        parts = urlsplit(resource.key.removeprefix("URL:"))
        port = parts.port or _PORTS.get(parts.scheme)
        host = bare_host(parts.hostname or "")
    except ValueError:
        return None
    return None if not host or port is None else (host, port)


def violation(declaration: Declaration, seen: Seen) -> ScopeViolationError:
    """Return the error of an undeclared side effect (KLIS-6 section 3.1, KO-3.1).

    Args:
        declaration: the declaration.
        seen: the side effect.
    """
    there = declaration.declared_at(seen)
    rendered = _what_was_declared(seen, there)
    details: dict[str, Any] = {
        "agent_id": declaration.agent_id,
        "session_id": declaration.session_id,
        **seen.claim().to_wire(),
        "declared": [one.claim().to_wire() for one in there],
    }
    if seen.call:
        details["call"] = seen.call
    if seen.outside is not None:
        details["path"] = seen.outside
    return ScopeViolationError(
        KLIS_SCOPE_VIOLATION,
        f"Agent attempted {seen.predicate} on {seen.name} but {rendered}. {_what_to_do(declaration, seen)}"
        f"The agent is {declaration.agent_id!r}, its session {declaration.session_id}.",
        **details,
    )


def _what_to_do(declaration: Declaration, seen: Seen) -> str:
    """Return advice for frequent violations."""
    if seen.is_engines:
        return ""
    if seen.outside is not None and seen.predicate is Predicate.CONSUMES:
        return "What agents need to read there is named in [workspace] read of world.toml, or by --allow-read. "
    folder = seen.resource.ancestors[-1:] if seen.predicate is Predicate.PROVIDES else ()
    if any(triple.resource.ancestors[-1:] == folder for triple in declaration.triples if folder):
        return "Tools that write a new file and put it in place need its folder declared, with /*. "
    return ""


def _what_was_declared(seen: Seen, there: list[Triple]) -> str:
    if seen.is_engines:
        return "that is the engine's own"
    if seen.outside is not None:
        return "that lies outside of the workspace"
    if not there:
        return "declared nothing there"
    same = [
        one for one in there if one.resource.key == seen.resource.key and one.resource.subtree == seen.resource.subtree
    ]
    if same and len(same) == len(there):
        return "only declared " + " and ".join(dict.fromkeys(one.predicate.value for one in same))
    return "only declared " + listed([f"{one.predicate} on {shown(one.resource)}" for one in there], 3)
