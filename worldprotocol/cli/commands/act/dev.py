"""``worldctl dev``: run a program that adopts its changes, and start it again when files change."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Any, Final

import click

from worldprotocol.cli.support.command_context import CommandContext, command

ENDINGS: Final = (".toml", ".yaml", ".yml", ".json", ".mel", ".cedar")
"""Suffixes of watched files beside those of Python."""


@command("dev", context_settings={"ignore_unknown_options": True})
@click.option(
    "--watch",
    "folders",
    multiple=True,
    type=click.Path(exists=True),
    help="A folder to watch; repeat for more. Without it, that of PROGRAM.",
)
@click.argument("program", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def dev(desk: CommandContext, program: str, folders: tuple[str, ...], arguments: tuple[str, ...]) -> None:
    """Run PROGRAM, a Python file, with adoption of its changes; start it again when a file changes. Ctrl-C ends it.

    A realm that PROGRAM opens adopts its domain (with migrations) and its policies, unless the program says otherwise
    (`on_change`). This is refused in a realm that was not created for development: `worldctl init --dev`,
    `Realm.create(development=True)`, or by a program that runs under this command.
    """
    from worldprotocol.api.program_changes import DEVELOPMENT

    watchfiles = _library()
    _check_realm(desk)
    os.environ[DEVELOPMENT] = "1"
    places = folders or (str(Path(program).resolve().parent),)
    desk.out.remark(f"Running {program}; watching {', '.join(places)}. Ctrl-C ends it.")
    reloads = watchfiles.run_process(
        *places,
        target=shlex.join([sys.executable, program, *arguments]),
        target_type="command",
        watch_filter=watchfiles.PythonFilter(extra_extensions=ENDINGS),
        callback=lambda changes: desk.out.remark(
            f"Changed: {', '.join(sorted({Path(one).name for _, one in changes}))}"
        ),
        grace_period=0.1,
    )
    desk.out.remark(f"Ended after {reloads} restart{'' if reloads == 1 else 's'}.")


def _library() -> Any:
    from world.extras import missing_extra

    try:
        import watchfiles
    except ImportError:
        raise missing_extra("Watched programs", "watchfiles", "watch") from None
    return watchfiles


def _check_realm(desk: CommandContext) -> None:
    """Refuse the realm that the options or world.toml name, where it is not marked for development."""
    from world.errors import RefusedError
    from worldprotocol.api.config import CONFIG_NAME
    from worldprotocol.api.program_changes import check_development

    if desk.placed is None and desk.log is None and desk.config is None and not Path(CONFIG_NAME).exists():
        return  # opening the realm checks it
    try:
        looked = desk.look()
    except RefusedError as refused:
        if refused.code in ("LOG_NOT_FOUND", "NOT_FOUNDED"):
            return
        raise
    with looked as world:
        world.archive.peek(check_development)
