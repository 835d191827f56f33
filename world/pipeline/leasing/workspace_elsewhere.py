"""The refusal of leases whose backup another process has to make, because it has the realm's workspace."""

from __future__ import annotations

from world.error_codes import ErrorCode
from world.errors import RefusedError

__all__ = ["elsewhere"]


def elsewhere(workspace_id: str) -> RefusedError:
    """Return the refusal.

    Args:
        workspace_id: the realm's registered workspace.
    """
    return RefusedError(
        ErrorCode.WORKSPACE_ELSEWHERE,
        f"Files are backed up before these leases are granted, and the realm's workspace {workspace_id} is not here: "
        "request them in a process that has it.",
        workspace=workspace_id,
    )
