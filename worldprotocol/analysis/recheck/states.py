"""Recheck of states: the data of each sealed world fits the model of the schema that was in force.

The models are read from the log, so no Python is needed, and worlds of other schemas than that of the loaded domain are
checked too. A check visits the places that the world's patches touched. Worlds of migrations are checked with their
migration; states of field specs with the executions. Sources: WP-schema, CARD-audit.
"""

from __future__ import annotations

from collections.abc import Iterator

from world.core import unchecked_schema
from world.core.schema import DomainSchema
from world.core.state_model.checking import NEW, Touched
from world.core.validate import Change, check_state
from world.error_codes import ErrorCode
from world.errors import DivergenceError, RefusedError
from world.events.realm_events import WorldSealed
from world.model.immutable_json import freeze
from world.model.patch import apply_patches
from world.pipeline.unit_of_work import UnitOfWork

__all__ = ["StateRecheck"]


class StateRecheck:
    """Checks of the states of one log, in order.

    Args:
        work: the state before each event that is checked.
    """

    def __init__(self, work: UnitOfWork) -> None:
        """Check nothing yet."""
        self._work = work
        self._schema: DomainSchema | None = None

    def check(self, sealed: WorldSealed) -> Iterator[DivergenceError]:
        """Yield the difference between a world's data and the model of its state."""
        schema = self._in_force(sealed.schema_hash)
        if schema is None or schema.state.model is None or self._is_migrated(sealed):
            return
        try:
            if sealed.parent is None:
                data, change = freeze(sealed.data), Change(NEW, Touched(is_whole=True))
            else:
                before = self._work.data(sealed.parent)
                data, change = apply_patches(before, sealed.patches), Change(before)
                for patch in sealed.patches:
                    change.touched.note(patch)
        except RefusedError:
            return  # verification reports patches that cannot be applied
        faults = check_state(schema, data, change)
        if faults:
            shown = "; ".join(f"{fault.path or 'it'} {fault.message}" for fault in faults[:3])
            yield DivergenceError(
                ErrorCode.EXECUTION_DIVERGED,
                f"The data of the world {sealed.world_id} does not fit the model of its schema: {shown}.",
                world=sealed.world_id,
                what="the model of the state",
                faults=[{"path": fault.path, "message": fault.message} for fault in faults],
            )

    def _in_force(self, schema_hash: str) -> DomainSchema | None:
        if self._schema is None or self._schema.hash != schema_hash:
            adopted = self._work.realm.domain
            if adopted is None or adopted.schema_hash != schema_hash:
                return None
            self._schema = unchecked_schema(adopted.schema)
        return self._schema

    def _is_migrated(self, sealed: WorldSealed) -> bool:
        maker = self._work.realm.proposals.get(sealed.created_by or "")
        return maker is not None and maker.submitted.migration is not None
