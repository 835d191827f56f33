"""``worldctl domain``: what a domain declares, for other programs, and domains as MEL."""

from __future__ import annotations

import click

from world.core.state_model.publishing import published_input, published_state
from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.cli.commands.mel.files import check, compile_, format_, lsp
from worldprotocol.cli.support.command_context import CommandContext, Group, with_desk


@click.group("domain", cls=Group)
def domain() -> None:
    """Show what the domain of world.toml declares; compile, check and format domains in MEL."""


domain.add_command(compile_)
domain.add_command(check)
domain.add_command(format_)
domain.add_command(lsp)


@domain.command("schema")
@click.option("--action", "action", metavar="NAME", help="The input of this action instead of the state.")
@with_desk
def schema(desk: CommandContext, action: str | None) -> None:
    """Print the JSON Schema (2020-12) of the state, or of an action's input.

    It has everything that the models of the domain say, and what every sealed world is checked against; the schemaHash
    is in $comment.
    """
    from worldprotocol.api.bootstrap import load_any_domain

    config = desk.settings()
    if config.domain is None:
        raise RefusedError(ErrorCode.NO_CONFIG, "No domain is named in world.toml; name one, or go to its folder.")
    loaded = load_any_domain(config.domain, base=config.folder).schema
    desk.out.document(published_state(loaded) if action is None else published_input(loaded, action))
