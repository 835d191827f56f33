"""Domains of a log: loaded ones, and those that the log holds as data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from world.core import Domain, load_domain
from world.errors import RefusedError
from world.events.realm_events import DomainAdopted

__all__ = ["Domains", "changed_code"]


@dataclass(slots=True)
class Domains:
    """Finds the domain of an adoption.

    Args:
        at_hand: loaded domains.
    """

    at_hand: Iterable[Domain]
    _known: dict[str, Domain] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Index the loaded domains by schema hash; the first one with a hash is used."""
        for domain in self.at_hand:
            self._known.setdefault(domain.schema.hash, domain)

    def of(self, adopted: DomainAdopted) -> Domain | None:
        """Return a domain with the adopted schema; None if its Python functions are not loaded."""
        rules = adopted.rules or 1
        known = self._known.get(adopted.schema_hash)
        if known is None or known.schema.rules != rules:
            known = self._in_form(adopted.schema_hash, rules)
        if known is None and adopted.sources:
            return None
        if known is None:
            try:
                made = load_domain(adopted.schema, oldest_rules=rules)
            except RefusedError:  # portable data that this engine would not adopt
                return None
            if not made.take_form(adopted.schema_hash, rules):
                return None
            known = self._known[adopted.schema_hash] = made
        return known

    def _in_form(self, schema_hash: str, rules: int) -> Domain | None:
        """Return a loaded domain in the form that a log adopted, None where none has it."""
        for domain in self.at_hand:
            copy = domain.copied()
            if copy.take_form(schema_hash, rules):
                self._known[schema_hash] = copy
                return copy
        return None


def changed_code(adopted: DomainAdopted | None, domain: Domain) -> set[str]:
    """Return the names of loaded Python functions that differ from the adopted ones."""
    return set(domain.changed({} if adopted is None else adopted.sources))
