"""The computed values of past worlds, by the schema of then: for ``state``, ``bisect``, catalogs and the façade.

Values of expressions are evaluated by the world's own schema, which the log holds. Values of Python functions are
evaluated by the functions at hand: where these are the adopted ones, the values are those of then; where they differ
under the same schema, the values are marked; where there is none, they are left out. Sources: WP-restore, CARD-audit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn

from world.core import Domain, DomainSchema, recompute, unchecked_schema
from world.core.execution import Execution
from world.errors import RefusedError
from world.events.realm_events import DomainAdopted, WorldSealed
from world.limits import Limits
from world.model.immutable_json import FrozenDict
from world.read_models.archive import Archive
from world.read_models.decoding import decoded
from worldprotocol.api.code_fingerprints import changed_computed

__all__ = ["PastValues", "PastValuesReader"]

NO_DOMAIN: Final = "no domain is at hand; world.toml names one"


@dataclass(frozen=True, slots=True)
class PastValues:
    """The computed values of a world.

    Args:
        values: by full name, such as ``computed.total``.
        by_other_code: the names of those that today's code evaluated, which differs from the code of then.
        missing: the names of those that no code at hand evaluates.
        why: why some are missing; None where none is.
    """

    values: FrozenDict
    by_other_code: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    why: str | None = None

    def of_then(self) -> FrozenDict:
        """Return the values alone that the code of then would give."""
        return FrozenDict({name: value for name, value in self.values.items() if name not in self.by_other_code})


class PastValuesReader:
    """Evaluates the computed values of past worlds; adoptions are read from the log once.

    Args:
        archive: of the log.
        domain: the domain at hand; None where there is none.
        limits: how long an evaluation may take.
        why_none: why there is no domain.
    """

    def __init__(
        self, archive: Archive, domain: Domain | None, limits: Limits | None = None, *, why_none: str = NO_DOMAIN
    ) -> None:
        self._archive = archive
        self._domain = domain
        self._limits = limits
        self._why_none = why_none
        self._adopted: list[tuple[int, DomainAdopted]] | None = None
        self._programs: dict[int, tuple[_Program, tuple[str, ...], tuple[str, ...]]] = {}

    def of(self, sealed: WorldSealed, data: FrozenDict) -> PastValues:
        """Return the computed values of a world; one that takes too long leaves all of them out.

        Args:
            sealed: the world.
            data: its data.

        Raises:
            RefusedError: ``UNKNOWN_WORLD`` where the log holds no adoption of its schema.
        """
        return self._by(self._adoption(sealed.schema_hash, self._archive.world(sealed.world_id).position), data)

    def in_force(self, upto: int, data: FrozenDict) -> PastValues:
        """Return the computed values of data by the schema that was in force after an event.

        Raises:
            RefusedError: ``UNKNOWN_WORLD`` where none was.
        """
        for found in reversed(self._adoptions()):
            if found[0] <= upto:
                return self._by(found, data)
        raise RefusedError("UNKNOWN_WORLD", f"No domain was in force after event {upto}.")

    def by_schema(self, schema_hash: str, data: FrozenDict) -> PastValues:
        """Return the computed values of data by the last adoption of a schema.

        Raises:
            RefusedError: as ``of``.
        """
        return self._by(self._adoption(schema_hash, None), data)

    def _by(self, adoption: tuple[int, DomainAdopted], data: FrozenDict) -> PastValues:
        position, adopted = adoption
        if position not in self._programs:
            self._programs[position] = self._program(adopted)
        program, other, missing = self._programs[position]
        try:
            values = self._in_time(lambda: recompute(program, data))
        except RefusedError as refused:
            names = tuple(spec.name for spec in program.schema.computed)
            return PastValues(FrozenDict(), (), (*missing, *names), refused.message)
        return PastValues(values, other, missing, self._why(adopted, missing) if missing else None)

    def _in_time(self, evaluate: Callable[[], FrozenDict]) -> FrozenDict:
        return evaluate() if self._limits is None else self._limits.in_time(evaluate)

    def _adoptions(self) -> list[tuple[int, DomainAdopted]]:
        if self._adopted is None:
            read = ((one.position, decoded(one)) for one in self._archive.log.read(topics=[DomainAdopted.TOPIC]))
            self._adopted = [(position, event) for position, event in read if isinstance(event, DomainAdopted)]
        return self._adopted

    def _adoption(self, schema_hash: str, before: int | None) -> tuple[int, DomainAdopted]:
        """Return the last adoption of a schema before a position, with its own position; None is before none."""
        known = [one for one in self._adoptions() if one[1].schema_hash == schema_hash]
        earlier = [one for one in known if before is None or one[0] < before]
        if not known:
            raise RefusedError("UNKNOWN_WORLD", f"The log holds no schema {schema_hash[:12]}.")
        return earlier[-1] if earlier else known[0]

    def _program(self, adopted: DomainAdopted) -> tuple[_Program, tuple[str, ...], tuple[str, ...]]:
        """Return what evaluates values by an adopted schema, the names that other code evaluates, and those missing."""
        domain = self._domain
        is_same = domain is not None and domain.schema.hash == adopted.schema_hash
        schema = domain.schema if domain is not None and is_same else unchecked_schema(adopted.schema)
        changed: set[str] = set()
        at_hand: set[str] = set()
        if domain is not None:
            changed = {f"computed.{name}" for name in changed_computed(domain, adopted)}
            at_hand = {spec.name for spec in domain.schema.computed if spec.python is not None}
        other, missing = set[str](), set[str]()
        for spec in schema.computed:  # each comes after those it depends on
            is_usable = spec.python is None or (spec.name in at_hand and (is_same or spec.name not in changed))
            if not is_usable or not missing.isdisjoint(spec.inner):
                missing.add(spec.name)
            elif (spec.python is not None and spec.name in changed) or not other.isdisjoint(spec.inner):
                other.add(spec.name)
        kept = replace(schema, computed=tuple(spec for spec in schema.computed if spec.name not in missing))
        return _Program(kept, domain), tuple(sorted(other)), tuple(sorted(missing))

    def _why(self, adopted: DomainAdopted, missing: tuple[str, ...]) -> str:
        names = ", ".join(missing)
        if self._domain is None:
            return f"{names}: {self._why_none}"
        return f"{names}: the domain at hand has another schema than the world's, {adopted.schema_hash[:12]}"


@dataclass(frozen=True, slots=True)
class _Program:
    """A schema whose computed values are expressions, or Python functions of a domain at hand."""

    schema: DomainSchema
    domain: Domain | None

    def run_action(self, execution: Execution) -> NoReturn:
        raise RefusedError("PYTHON_REQUIRED", f"The action {execution.action_id!r} cannot be executed here.")

    def computed_function(self, name: str) -> Callable[..., Any]:
        if self.domain is None:
            raise RefusedError("PYTHON_REQUIRED", f"No function at hand computes {name!r}.")
        return self.domain.computed_function(name)

    def local_predicate(self, _action: str) -> None:
        return None
