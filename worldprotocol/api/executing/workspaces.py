"""The realm's workspace: a process that executes registers its own, or is refused where another one is registered.

Three cases end with an error that names the way out: the folder was copied, its id was deleted, or it is another one.
"""

from __future__ import annotations

from host.environment import HostEnvironment
from world.engine.writer import Writer
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.pipeline.leasing.realm_workspace import register_workspace
from worldprotocol.api.administration import OPERATOR
from worldprotocol.api.bootstrap import Components
from worldprotocol.api.host import Hosting

__all__ = ["keep_workspace", "replace_workspace", "settle", "take_up_workspace"]


def take_up_workspace(protocol: Writer, parts: Components, *, by: str, executes: bool = False) -> None:
    """Register the workspace of a process that executes, where the realm has none; compare it where it has one.

    Args:
        protocol: the writer of a founded log.
        parts: what the process composed.
        by: actor id that the log records.
        executes: whether the process performs effects though it was opened otherwise, as a worker does.

    Raises:
        RefusedError: ``OTHER_WORKSPACE``, ``WORKSPACE_COPIED``, ``WORKSPACE_ID_DAMAGED``.
    """
    environment = parts.executor.environment
    if environment is None or not parts.registers_workspace or not (executes or parts.executor.executes):
        return
    own, registered = environment.identify(), protocol.archive.peek(lambda realm: realm.workspace)
    if registered is None:
        own = own or environment.give_id(parts.ids.new_id())
        protocol.run(lambda work: register_workspace(work, own, by))
    elif own != registered.workspace_id:
        what = "has no id: it is another folder, or its .klock/workspace-id was deleted"
        what = what if own is None else f"is the workspace {own}"
        raise RefusedError(
            ErrorCode.OTHER_WORKSPACE,
            f"The workspace of this realm is {registered.workspace_id}, and {environment.workspace.root} {what}. Act "
            "without it (--no-execute, or execute = false in world.toml), state that it is the same folder "
            "(`worldctl workspace keep`), or make it the realm's workspace (`worldctl workspace register`).",
            workspace=registered.workspace_id,
            path=str(environment.workspace.root),
        )


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


def keep_workspace(protocol: Writer, parts: Components) -> str:
    """Give the process's folder the id of the realm's workspace: it was moved or restored, or its id was deleted.

    Returns:
        The id.

    Raises:
        RefusedError: ``NO_WORKSPACE`` where the process or the realm has none; ``WORKSPACE_ID_DAMAGED``.
    """
    registered = protocol.archive.peek(lambda realm: realm.workspace)
    if registered is None:
        raise RefusedError(
            ErrorCode.NO_WORKSPACE,
            "The realm has no workspace yet; the first process that executes with one registers it.",
        )
    environment = _environment(parts)
    return environment.give_id(registered.workspace_id, replace=True)


def replace_workspace(protocol: Writer, parts: Components, *, by: str) -> str:
    """Make the process's folder the workspace of the realm, in place of the one before; a copy gets an id of its own.

    Args:
        protocol: the writer of a founded log.
        parts: what the process composed.
        by: actor id that the log records.

    Returns:
        The id of the workspace.

    Raises:
        RefusedError: ``NO_WORKSPACE``, ``WORKSPACE_ID_DAMAGED``.
    """
    environment = _environment(parts)
    try:
        own = environment.identify()
    except RefusedError as refused:
        if refused.code != ErrorCode.WORKSPACE_COPIED:
            raise
        own = environment.give_id(parts.ids.new_id(), replace=True)
    own = own or environment.give_id(parts.ids.new_id())
    protocol.run(lambda work: register_workspace(work, own, by, replace=True))
    return own


def _environment(parts: Components) -> HostEnvironment:
    if parts.executor.environment is None:
        raise RefusedError(ErrorCode.NO_WORKSPACE, "This process has no workspace; add [workspace] to world.toml.")
    return parts.executor.environment
