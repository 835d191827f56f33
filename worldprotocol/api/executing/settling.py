"""Settling: what a process does when it opens a realm for acting, and on request."""

from __future__ import annotations

from world.engine.writer import Writer
from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.api.administration import OPERATOR
from worldprotocol.api.bootstrap import Components
from worldprotocol.api.executing.workspaces import take_up_workspace
from worldprotocol.api.host import Hosting

__all__ = ["settle"]


def settle(protocol: Writer, parts: Components, hosting: Hosting) -> None:
    """Finish abandoned executions, decide timed-out proposals, start approved ones.

    Args:
        protocol: the writer of the log.
        parts: what the process composed.
        hosting: its governed runs.

    Raises:
        RefusedError: ``NOT_FOUNDED``; the codes of ``take_up_workspace``.
    """
    mode = parts.executor.enforcement
    is_founded, in_force, klis = protocol.archive.peek(
        lambda realm: (realm.founded is not None, realm.enforcement, realm.klis.settings)
    )
    if not is_founded:
        raise RefusedError(
            ErrorCode.NOT_FOUNDED, "This log has not been founded; `worldctl init` (Realm.create) founds it."
        )
    if parts.executor.keeper is not None and klis is not None:
        parts.executor.keeper.follow(klis.names)
    take_up_workspace(protocol, parts, by=OPERATOR)
    if in_force != mode:
        protocol.choose_enforcement(by=OPERATOR)
    hosting.end_orphans()
    protocol.settle()
    if parts.executor.environment is not None:
        hosting.look_after()
