"""Choice of the processes that perform an analysis: those of this machine, or those of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.analysis.work.processes import ProcessCrew
from worldprotocol.analysis.work.work_list import Crew

__all__ = ["PROCESSES", "Workers"]

PROCESSES: Final = "processes"
"""Name of the executor that is this machine."""

DASK_SCHEMES: Final = {"dask": "tcp", "dask+tls": "tls"}
"""Scheme of an executor's address, and that of Dask."""


@dataclass(frozen=True, slots=True)
class Workers:
    """Processes that perform an analysis.

    Args:
        jobs: number of processes at most; None chooses it: by the duration of the work on this machine, and all workers
            of a cluster.
        executor: ``processes``, or the address of a Dask scheduler: ``dask://HOST:PORT``, ``dask+tls://HOST:PORT``.

    Raises:
        RefusedError: ``INVALID_EXECUTOR``.
    """

    jobs: int | None = None
    executor: str = PROCESSES

    def __post_init__(self) -> None:
        """Refuse an address that is malformed."""
        if self.executor != PROCESSES:
            dask_address(self.executor)

    @property
    def is_cluster(self) -> bool:
        """Whether they are the workers of a cluster."""
        return self.executor != PROCESSES

    def crew(self, count: int | None, addresses: Sequence[str] = ()) -> Crew:
        """Return the processes.

        Args:
            count: number of processes on this machine; of a cluster at most, None is all.
            addresses: logs that the workers of a cluster open.

        Raises:
            RefusedError: ``NOT_LOADED`` if the extra ``cluster`` is not installed; ``CLUSTER_UNREACHABLE``,
                ``CLUSTER_UNFIT``.
        """
        if not self.is_cluster:
            return ProcessCrew(count or 1)
        from world.extras import needs_extra

        with needs_extra("Clusters", "cluster"):
            from worldprotocol.analysis.work.cluster import ClusterCrew
        return ClusterCrew(dask_address(self.executor), count, addresses)


def dask_address(text: str) -> str:
    """Return the address of a scheduler as Dask writes it.

    Raises:
        RefusedError: ``INVALID_EXECUTOR``.
    """
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    is_bare = parts.username is None and parts.path in ("", "/") and not parts.query and not parts.fragment
    if parts.scheme not in DASK_SCHEMES or not parts.hostname or port is None or not is_bare:
        raise RefusedError(
            ErrorCode.INVALID_EXECUTOR,
            "The executor is not `processes` and not the address of a Dask scheduler; write dask://HOST:PORT, such as "
            "dask://127.0.0.1:8786, or dask+tls://HOST:PORT.",
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{DASK_SCHEMES[parts.scheme]}://{host}:{port}"
