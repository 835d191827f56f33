"""Which settings and resource types of KLIS are in force in a realm, and how they come into force."""

from __future__ import annotations

from world.pipeline.unit_of_work import UnitOfWork

__all__ = ["configure_klis", "is_arbitrated", "know_types"]


def is_arbitrated(work: UnitOfWork) -> bool:
    """Return whether proposals need leases in this log; logs from before KLIS was configured continue without."""
    return work.realm.klis.settings is not None


def configure_klis(work: UnitOfWork, by: str) -> bool:
    """Bring the operator's settings of KLIS into force; returns False where they are in force already.

    What the file system of the workspace ignores in names is ignored too, whatever the operator's settings say.
    """
    keeper = work.executor.keeper
    settings = work.limits.klis if keeper is None else work.limits.klis.following(keeper.ignored())
    return work.desk().configure(settings, work.klis_now, by=by, types=work.types)


def know_types(work: UnitOfWork, by: str) -> None:
    """Record resource types that are loaded and were not when the settings were recorded."""
    known = work.realm.klis.types
    if work.types is known or work.types.keys() <= known.keys():
        return
    new = [given for name, given in work.types.items() if name not in known]
    work.desk().configure(work.realm.klis.in_force, work.klis_now, by=by, types=known.with_types(*new))
