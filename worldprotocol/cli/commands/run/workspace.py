"""``worldctl workspace``: the id of the workspace, and which workspace is the realm's."""

from __future__ import annotations

import click

from worldprotocol.cli.support.command_context import CommandContext, Group, command

BY = click.option("--by", default="operator", metavar="ID", help="Who does it, for the record.")


@click.group("workspace", cls=Group)
def workspace() -> None:
    """Show, keep or replace the workspace of the realm: the one folder that FILE resources name.

    A process registers its workspace when it first opens the realm to execute. The folder keeps its id in
    .klock/workspace-id; a copy of the folder is not the workspace.
    """


@command("show")
def show(desk: CommandContext) -> None:
    """Show the workspace of the realm, and the id of the folder here."""
    from world.errors import RefusedError
    from worldprotocol.cli.support.opening import look_at_workspace

    with look_at_workspace(desk) as (world, premises):
        registered = world.archive.peek(lambda realm: realm.workspace)
        own, why = None, None
        try:
            own = premises.identify()
        except RefusedError as refused:
            why = refused.code
    realm_id = None if registered is None else registered.workspace_id
    wire = {"registered": realm_id, "folder": str(premises.workspace.root), "here": own, "problem": why}
    here = own or {"WORKSPACE_COPIED": "a copy of a workspace"}.get(why or "", why or "no id")
    is_it = "; it is the realm's" if own is not None and own == realm_id else ""
    desk.out.tell(wire, f"realm   {realm_id or 'none registered'}", f"folder  {wire['folder']}: {here}{is_it}")


@command("keep")
def keep(desk: CommandContext) -> None:
    """State that the folder is the workspace of the realm: it was moved or restored, or its id was deleted.

    The other folder must not be used any more.
    """
    from worldprotocol.api.executing.workspaces import keep_workspace
    from worldprotocol.cli.support.opening import open_with_workspace

    with open_with_workspace(desk, execute=False) as world:
        name = keep_workspace(world._acting, world._composed)
    desk.out.tell({"workspace": name}, f"The folder is the workspace {name}.")


@command("register")
@BY
def register(desk: CommandContext, by: str) -> None:
    """Make the folder the workspace of the realm, in place of the one before; a copy gets an id of its own.

    Executions whose backups are in the earlier workspace continue only there.
    """
    from worldprotocol.api.executing.workspaces import replace_workspace
    from worldprotocol.cli.support.opening import open_with_workspace

    with open_with_workspace(desk, execute=False) as world:
        name = replace_workspace(world._acting, world._composed, by=by)
    desk.out.tell({"workspace": name}, f"The workspace of the realm is {name}.")


for _one in (show, keep, register):
    workspace.add_command(_one)
