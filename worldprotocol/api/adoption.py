"""Plan of an adoption for a log that is open for reading."""

from __future__ import annotations

from world.core import Domain
from world.engine.adoption_plan import AdoptionPlan, plan_adoption
from world.limits import Limits
from world.read_models.archive import Archive

__all__ = ["plan_for"]


def plan_for(archive: Archive, domain: Domain, limits: Limits) -> AdoptionPlan:
    """Return what the adoption of a domain would do to the realm of a log.

    Args:
        archive: archive of the log.
        domain: the domain to adopt.
        limits: limits of the pipeline, with the time limit of a migration.

    Raises:
        RefusedError: ``NOT_FOUNDED``.
        DamagedLogError: a head's state cannot be restored.
    """
    return plan_adoption(archive.realm(), domain, archive.checked_state, limits.in_time)
