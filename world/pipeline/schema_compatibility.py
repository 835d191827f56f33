"""Check that the data of a world is valid under the loaded schema (WP-schema)."""

from __future__ import annotations

from typing import Any

from world.core import ComputeContext, genesis
from world.errors import RefusedError
from world.pipeline.unit_of_work import UnitOfWork

__all__ = ["misfit"]


def misfit(work: UnitOfWork, world_id: str) -> tuple[str, dict[str, Any]] | None:
    """Return why a world does not obey the domain's schema, as half a sentence and details; None where it does."""
    data = work.snapshot(world_id).data
    fields = work.domain.schema.state.fields or {}
    missing = [name for name, spec in fields.items() if spec.required and name not in data]
    if missing:
        return f"lacks {', '.join(missing)}, which the new schema requires", {"missing": missing}
    try:
        genesis(work.domain, ComputeContext(now=0, random_seed=""), data)
    except RefusedError as refused:
        faults = refused.message.removesuffix(".")
        return f"does not obey the new schema: {faults}", {"faults": refused.details.get("faults")}
    return None
