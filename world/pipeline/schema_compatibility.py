"""Check that the data of a world is valid under the loaded schema (WP-schema)."""

from __future__ import annotations

from typing import Any

from world.core import ComputeContext, Domain, genesis
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.realm_events import DomainAdopted
from world.pipeline.preparation.prepared import prepared_misfit
from world.pipeline.unit_of_work import UnitOfWork

__all__ = ["is_recorded", "misfit"]


def is_recorded(adopted: DomainAdopted, domain: Domain) -> bool:
    """Return whether an adoption has the schema, the code and the distributions of a domain."""
    is_same = adopted.schema_hash == domain.schema.hash and (adopted.rules or 1) == domain.schema.rules
    is_same_code = adopted.sources == domain.sources()
    return is_same and is_same_code and (adopted.distributions or {}) == domain.distributions()


def misfit(work: UnitOfWork, world_id: str) -> tuple[str, dict[str, Any]] | None:
    """Return why a world does not obey the domain's schema, as half a sentence and details; None where it does.

    Raises:
        RefusedError: ``COMPUTED_TIMED_OUT``.
    """
    ready = prepared_misfit(work, world_id)
    return _misfit(work, world_id) if ready is None else ready[0]


def _misfit(work: UnitOfWork, world_id: str) -> tuple[str, dict[str, Any]] | None:
    data = work.snapshot(world_id).data
    fields = work.domain.schema.state.fields or {}
    missing = [name for name, spec in fields.items() if spec.required and name not in data]
    if missing:
        return f"lacks {', '.join(missing)}, which the new schema requires", {"missing": missing}
    try:
        work.limits.in_time(lambda: genesis(work.domain, ComputeContext(now=0, random_seed=""), data))
    except RefusedError as refused:
        if refused.code == ErrorCode.COMPUTED_TIMED_OUT:
            raise
        faults = refused.message.removesuffix(".")
        return f"does not obey the new schema: {faults}", {"faults": refused.details.get("faults")}
    return None
