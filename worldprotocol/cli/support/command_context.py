"""The options that every command has, before or after its name, and the desk that a command works at."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from worldprotocol.api.config import Config
    from worldprotocol.api.realm import Realm
    from worldprotocol.cli.support.output import Printer, Progress


class CommandContext:
    """What a command is handed: the global options, and through them the log, the output and the progress bar."""

    def __init__(self, *, json: bool = False) -> None:
        """Begin with no option given."""
        self.log: str | None = None
        self.config: str | None = None
        self.json = json
        self.paranoid = False
        self.quiet = False
        self.trust = False

    def settings(self) -> Config:
        """Return what ``world.toml`` says, or the defaults where there is none and none was named.

        Raises:
            RefusedError: ``NO_CONFIG``, ``INVALID_CONFIG``.
        """
        from worldprotocol.cli.support.opening import settings_of

        return settings_of(self)

    def address(self) -> str:
        """Return the log's address: --log, else WORLD_LOG, else what the configuration says."""
        return self.log or self.settings().log_address

    def open(self) -> Realm:
        """Open the realm for acting; a context manager closes it.

        Raises:
            RefusedError: see ``Realm.open``.
        """
        from worldprotocol.cli.support.opening import open_for_acting

        return open_for_acting(self)

    def look(self) -> Realm:
        """Open the realm for looking only; a context manager closes it.

        Raises:
            RefusedError: see ``Realm.open_read_only``.
        """
        from worldprotocol.api.realm import Realm

        return Realm.open_read_only(self.address())

    @property
    def out(self) -> Printer:
        """What prints results on stdout: for people, or JSON."""
        from worldprotocol.cli.support.output import Printer

        return Printer(as_json=self.json, quiet=self.quiet)

    def progress(self, description: str) -> AbstractContextManager[Progress]:
        """Return a progress bar, shown on stderr when that is a terminal; call what it gives with (done, total)."""
        from worldprotocol.cli.support.output import progress

        return progress(description, shown=not self.quiet)


class CliCommand(click.Command):
    """A command that also takes the global options after its name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Make a click command and add the global options to it."""
        super().__init__(*args, **kwargs)
        self.params += global_options()


class Group(click.Group):
    """A command with commands of its own, such as ``actor add``."""

    command_class = CliCommand


def command(name: str, **settings: Any) -> Callable[[Callable[..., int | None]], CliCommand]:
    """Make a function ``(desk, **parameters) -> exit code or None`` a command; its docstring is the help."""

    def decorate(function: Callable[..., int | None]) -> CliCommand:
        return click.command(name, cls=CliCommand, **settings)(with_desk(function))

    return decorate


def with_desk(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """Hand a function the desk as its first argument."""

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> int | None:
        return function(click.get_current_context().find_root().obj, *args, **kwargs)

    return called


def global_options() -> list[click.Parameter]:
    """Return the options that every command has."""
    return [
        _option(
            ["--log"],
            "log",
            "The log: a SQLite file, or a SQLAlchemy URL with an optional #name.",
            metavar="ADDRESS",
            envvar="WORLD_LOG",
        ),
        _option(
            ["--config"],
            "config",
            "What composes the realm; ./world.toml by default.",
            metavar="FILE",
            envvar="WORLD_CONFIG",
        ),
        _option(["--json"], "json", "Print JSON: one document, or a line each for streams.", is_flag=True),
        _option(["--paranoid"], "paranoid", "Ask every projection twice, under guard.", is_flag=True),
        _option(
            ["--trust"],
            "trust",
            "Load the code that the configuration names though another user may write it.",
            is_flag=True,
            envvar="WORLD_TRUST",
        ),
        _option(["--quiet", "-q"], "quiet", "Print no progress and no remarks.", is_flag=True),
    ]


def _option(names: list[str], attribute: str, text: str, **settings: Any) -> click.Option:
    def note(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
        from click.core import ParameterSource

        typed = ctx.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        desk = ctx.find_root().obj
        if value and (typed or not getattr(desk, attribute)):  # the environment never overrides what was typed
            setattr(ctx.find_root().obj, attribute, value)

    return click.Option(names, help=text, callback=note, expose_value=False, **settings)
