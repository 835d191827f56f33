"""Computed values of past worlds, by their own schemas.

Values of expressions are evaluated by the world's own schema, which the log holds. Values of Python functions are
evaluated by the loaded functions: if these are the adopted ones, the values are the original ones; if they differ
under the same schema, the values are marked; without a loaded function the value is omitted. Sources: WP-restore,
CARD-audit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn

from world.core import Domain, DomainSchema, recompute, unchecked_schema
from world.core.execution import Execution
from world.core.validate import StateFault
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.realm_events import DomainAdopted, WorldSealed
from world.limits import Limits
from world.model.immutable_json import FrozenDict
from world.read_models.archive import Archive
from world.read_models.decoding import decoded, registry_events
from worldprotocol.api.code_fingerprints import changed_computed

__all__ = ["PastValues", "PastValuesReader"]

NO_DOMAIN: Final = "no domain is loaded; set domain in world.toml"


@dataclass(frozen=True, slots=True)
class PastValues:
    """The computed values of a world.

    Args:
        values: by full name, such as ``computed.total``.
        by_other_code: names of values evaluated by loaded code that differs from the code adopted then.
        missing: names of values that no loaded code evaluates.
        why: reason for missing values; None if none are missing.
    """

    values: FrozenDict
    by_other_code: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    why: str | None = None

    def of_then(self) -> FrozenDict:
        """Return only the values that the code adopted then would return."""
        return FrozenDict({name: value for name, value in self.values.items() if name not in self.by_other_code})


class PastValuesReader:
    """Evaluates the computed values of past worlds; adoptions are read from the log once.

    Args:
        archive: archive of the log.
        domain: the loaded domain, if any.
        limits: time limits of an evaluation.
        why_none: reason for the absence of a domain.
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
        """Return the computed values of a world; a time-out omits all of them.

        Args:
            sealed: the world.
            data: its data.

        Raises:
            RefusedError: ``UNKNOWN_WORLD`` if the log has no adoption of its schema.
        """
        return self._by(self._adoption(sealed.schema_hash, self._archive.world(sealed.world_id).position), data)

    def in_force(self, upto: int, data: FrozenDict) -> PastValues:
        """Return the computed values of data by the schema in force after an event.

        Raises:
            RefusedError: ``UNKNOWN_WORLD`` if no schema was in force.
        """
        for adoption in reversed(self._adoptions()):
            if adoption[0] <= upto:
                return self._by(adoption, data)
        raise RefusedError(ErrorCode.UNKNOWN_WORLD, f"No domain was in force after event {upto}.")

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
            read = ((one.position, decoded(one)) for one in registry_events(self._archive.log, DomainAdopted))
            self._adopted = [(position, event) for position, event in read if isinstance(event, DomainAdopted)]
        return self._adopted

    def _adoption(self, schema_hash: str, before: int | None) -> tuple[int, DomainAdopted]:
        """Return the last adoption of a schema before a position, with its position."""
        known = [one for one in self._adoptions() if one[1].schema_hash == schema_hash]
        earlier = [one for one in known if before is None or one[0] < before]
        if not known:
            raise RefusedError(ErrorCode.UNKNOWN_WORLD, f"The log holds no schema {schema_hash[:12]}.")
        return earlier[-1] if earlier else known[0]

    def _program(self, adopted: DomainAdopted) -> tuple[_Program, tuple[str, ...], tuple[str, ...]]:
        """Return the evaluator of an adopted schema, names that other code evaluates, and missing names."""
        in_form = None if self._domain is None else self._domain.in_form(adopted.schema_hash, adopted.rules)
        domain, is_same = in_form or self._domain, in_form is not None
        schema = domain.schema if domain is not None and is_same else unchecked_schema(adopted.schema)
        changed: set[str] = set()
        loaded: set[str] = set()
        if domain is not None:
            changed = {f"computed.{name}" for name in changed_computed(domain, adopted)}
            loaded = {spec.name for spec in domain.schema.computed if spec.python is not None}
        other, missing = set[str](), set[str]()
        for spec in schema.computed:  # in order of dependency
            is_usable = spec.python is None or (spec.name in loaded and (is_same or spec.name not in changed))
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
        return f"{names}: the schema of the loaded domain differs from the world's, {adopted.schema_hash[:12]}"


@dataclass(frozen=True, slots=True)
class _Program:
    """Schema with computed values from expressions and from Python functions of a loaded domain."""

    schema: DomainSchema
    domain: Domain | None

    def run_action(self, execution: Execution) -> NoReturn:
        raise RefusedError(
            ErrorCode.PYTHON_REQUIRED, f"The action {execution.action_id!r} cannot run without its domain."
        )

    def computed_function(self, name: str) -> Callable[..., Any]:
        if self.domain is None:
            raise RefusedError(
                ErrorCode.PYTHON_REQUIRED, f"No loaded function computes {name!r}; load the domain that defines it."
            )
        return self.domain.computed_function(name)

    def local_predicate(self, _action: str) -> None:
        return None

    def state_faults(self, _data: FrozenDict) -> list[StateFault]:
        return []

    def state_of(self, _data: FrozenDict) -> NoReturn:
        raise TypeError("Values of the past have no model.")
