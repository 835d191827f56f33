"""The options that every command has, before or after its name, and the desk that a command works at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from world.state.proposal import Proposal
    from worldprotocol.api.bootstrap import EventLog, LoggedEvent
    from worldprotocol.api.config import Config
    from worldprotocol.api.lookup.closed_log import ClosedLog
    from worldprotocol.api.realm import Realm
    from worldprotocol.cli.remote.input_files import InputFiles
    from worldprotocol.cli.support.output import Printer, Progress, Streams


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
        self.execute: bool | None = None
        self.server: str | None = None
        self.realm: str | None = None
        self.directory: str | None = None
        self.token_file: str | None = None
        self.local = False
        self.is_offline = False  # the command runs on this machine although the environment names a server
        self.typed: set[str] = set()

    @property
    def named_server(self) -> str | None:
        """The server that was typed; that of ``WORLDCTL_SERVER`` where no log, no configuration and no --local was."""
        by_place = {"log", "config", "local", "directory"} & self.typed
        return None if self.local or (by_place and "server" not in self.typed) else self.server

    def check_server_options(self) -> None:
        """Refuse options about a server that contradict each other.

        Raises:
            click.UsageError: with what to leave out.
        """
        if "server" in self.typed:
            for name in ("log", "config", "paranoid", "local", "directory"):
                if name in self.typed:
                    raise click.UsageError(f"--server and --{name} contradict each other: the server has the realm.")
        elif self.token_file is not None and self.named_server is None:
            raise click.UsageError("--token-file goes with --server URL.")

    def check_place(self, path: str, *, is_named: bool) -> None:
        """Refuse options about the place of the realm that contradict each other, or without effect.

        Args:
            path: the words of the command.
            is_named: whether the command was given arguments that may name realms.

        Raises:
            click.UsageError: with what to leave out, or to add.
        """
        if "directory" in self.typed and path.partition(" ")[0] not in ("realm", "serve"):
            if self.realm is None and not (is_named and path in NAMES_REALMS):
                raise click.UsageError("--directory goes with --realm NAME.")
            if "log" in self.typed:
                raise click.UsageError("--directory and --log contradict each other: the directory has the address.")
            if path in FOUNDS:
                raise click.UsageError(
                    f"`worldctl {path}` founds a realm in no directory; use `worldctl realm create`."
                )
        if "realm" in self.typed and self.placed is None and self.named_server is None:
            raise click.UsageError("--realm NAME goes with --directory or --server; here it would have no effect.")

    @property
    def placed(self) -> tuple[str, str] | None:
        """The directory and the name of the realm that it places; None where the log is named otherwise."""
        is_remote = self.named_server is not None and not self.is_offline
        if self.directory is None or self.realm is None or "log" in self.typed or is_remote:
            return None
        return self.directory, self.realm

    def settings(self) -> Config:
        """Return what ``world.toml`` says, or the defaults where there is none and none was named.

        Raises:
            RefusedError: ``NO_CONFIG``, ``INVALID_CONFIG``.
        """
        from worldprotocol.cli.support.opening import settings_of

        return settings_of(self)

    def address(self) -> str:
        """Return the log's address: by the directory, else --log, else WORLD_LOG, else what the configuration says.

        Every command takes the address from here, so that each works where a moved realm is.

        Raises:
            RefusedError: ``UNKNOWN_REALM`` and others of a directory; ``NO_CONFIG``, ``INVALID_CONFIG``.
        """
        if self.placed is not None:
            from worldprotocol.cli.support.opening import place_of

            return place_of(*self.placed)
        return self.log or self.settings().log_address

    def open(self, *, execute: bool = True) -> AbstractContextManager[Realm]:
        """Open the realm for acting; a context manager closes it.

        Args:
            execute: whether the command performs effects where neither its option nor world.toml says it.

        Raises:
            RefusedError: see ``Realm.open``.
        """
        from worldprotocol.cli.support.opening import open_for_acting

        return open_for_acting(self, execute=execute)

    def look(self, *, tells_closed: bool = True) -> AbstractContextManager[Realm]:
        """Open the realm for looking only; a context manager closes it.

        Args:
            tells_closed: remark that the log was closed to writers.

        Raises:
            RefusedError: see ``Realm.open_read_only``.
        """
        from worldprotocol.api.realm import Realm

        realm = Realm.open_read_only(self.address())
        if tells_closed:
            from worldprotocol.api.lookup.closed_log import closed_at_end

            self.remark_closed(closed_at_end(realm.log))
        return realm

    def remark_closed(self, closed: ClosedLog | None, realm: str | None = None) -> None:
        """Remark that a log was closed to writers, so that what it holds is a state of the past.

        Args:
            closed: why it is closed; None makes no remark.
            realm: of several, the one that is meant.
        """
        if closed is not None:
            self.out.remark(f"{'The log was' if realm is None else f'{realm}: The log was'} {closed}.")

    def archived_upto(self, log: EventLog) -> int:
        """Return the position up to which contents are missing from a cut log, 0 for others, and remark on it."""
        from world.read_models.live.sealed_snapshot import archived_upto

        upto = archived_upto(log)
        self.remark_archived(upto)
        return upto

    def remark_archived(self, upto: int, realm: str | None = None) -> None:
        """Remark that a command left out the archived events of a cut log.

        Args:
            upto: position of the last one; 0 makes no remark.
            realm: of several, the one that is meant.
        """
        if upto:
            of_realm = "" if realm is None else f"{realm}: "
            self.out.remark(
                f"{of_realm}Events 1 to {upto} are archived and left out; `worldctl verify` names the archive. To read "
                "them, import the archives into another log with `worldctl import`."
            )

    @property
    def streams(self) -> Streams:
        """Where results, remarks and errors go."""
        from worldprotocol.cli.support.output import Streams

        return Streams.of_process()

    @property
    def inputs(self) -> InputFiles:
        """What arguments may name as an input: files, and stdin."""
        from worldprotocol.cli.remote.input_files import InputFiles

        return InputFiles()

    @property
    def out(self) -> Printer:
        """What prints results on stdout: for people, or JSON."""
        from worldprotocol.cli.support.output import Printer

        return Printer(as_json=self.json, quiet=self.quiet, streams=self.streams)

    def may_see(self, proposal: Proposal) -> bool:
        """Return whether the caller may read a proposal; on a local log, any one."""
        return True

    def follow(self, log: EventLog, topics: Sequence[str] | None, take: Callable[[LoggedEvent], bool]) -> int:
        """Hand over the events of a log, of a cut one those after the cut, and then those that are committed.

        It returns the exit code.

        Args:
            log: the log.
            topics: only events of these topics; None is all.
            take: takes an event and returns whether it was the last one.
        """
        from worldprotocol.cli.program import INTERRUPTED

        try:
            for logged in log.follow(self.archived_upto(log), topics=topics):
                if take(logged):
                    return 0
        except KeyboardInterrupt:
            return INTERRUPTED  # the way to end it: nothing is wrong
        return 0

    def progress(self, description: str) -> AbstractContextManager[Progress]:
        """Return a progress bar, shown on stderr when that is a terminal; call what it gives with (done, total)."""
        from worldprotocol.cli.support.output import progress

        return progress(description, shown=not self.quiet)


class CliCommand(click.Command):
    """A command that also takes the global options after its name, unless one of its own has that name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Make a click command and add the global options to it."""
        super().__init__(*args, **kwargs)
        own = {name for one in self.params for name in one.opts}
        self.params += [one for one in global_options() if not own & set(one.opts)]


class Group(click.Group):
    """A command with commands of its own, such as ``actor add``."""

    command_class = CliCommand


def command(name: str, **settings: Any) -> Callable[[Callable[..., int | None]], CliCommand]:
    """Make a function ``(desk, **parameters) -> exit code or None`` a command; its docstring is the help."""

    def decorate(function: Callable[..., int | None]) -> CliCommand:
        return click.command(name, cls=CliCommand, **settings)(with_desk(function))

    return decorate


def execution_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--execute/--no-execute`` to a command that may perform effects."""

    def note(ctx: click.Context, _: click.Parameter, value: bool | None) -> None:
        if value is not None:
            ctx.find_root().obj.execute = value

    text = "Perform effects here, or offer them to workers; see docs/operator.md, Workers."
    return click.option("--execute/--no-execute", default=None, help=text, callback=note, expose_value=False)(function)


def patience_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command that runs until it is stopped the time for which it waits for its log at the start."""
    option = click.option(
        "--patience",
        type=click.FloatRange(min=0),
        default=60.0,
        metavar="SECONDS",
        help="Wait so long for a database that is starting, or a log that is locked or without room; 60.",
    )
    return option(function)


def with_desk(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """Hand a function the desk as its first argument."""

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> int | None:
        context = click.get_current_context()
        desk = context.find_root().obj
        if desk.server is not None or desk.typed:
            _check_not_remote(context, desk)
        return function(desk, *args, **kwargs)

    return called


def _check_not_remote(context: click.Context, desk: CommandContext) -> None:
    """Refuse a command that this process runs although a server was named.

    Raises:
        click.UsageError: options contradict each other.
        RefusedError: ``NOT_OVER_SERVER``.
    """
    from worldprotocol.server.commands.command_table import OFFLINE, REMOTE

    desk.check_server_options()
    path = context.command_path.partition(" ")[2]
    words = path.split()
    is_offline = any(" ".join(words[: count + 1]) in OFFLINE for count in range(len(words)))
    desk.is_offline = is_offline and "server" not in desk.typed
    desk.check_place(path, is_named=any(context.params.get(name) for name in ("realms", "files")))
    if desk.named_server is None or desk.is_offline:
        return
    if path == "run" and context.params.get("call") is not None:  # the server has the call, this machine the workspace
        return
    from world.error_codes import ErrorCode
    from world.errors import RefusedError
    from worldprotocol.server.commands.command_words import local_reason, only_otherwise

    why = only_otherwise(path) if path in REMOTE else local_reason(path)
    raise RefusedError(
        ErrorCode.NOT_OVER_SERVER,
        f"`worldctl {path}` {why}, so it does not run on the server {desk.named_server}; leave --server out, or pass "
        "--local where WORLDCTL_SERVER names it.",
    )


NAMES_REALMS: Final = ("verify", "recheck", "policy backtest")
"""Commands whose arguments may be names of realms of a directory."""

FOUNDS: Final = ("init", "new")
"""Commands that found a realm at an address of their own."""


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
        _option(
            ["--server"],
            "server",
            "Run on this server: https://HOST:PORT, or unix:PATH.",
            metavar="URL",
            envvar="WORLDCTL_SERVER",
        ),
        _option(["--realm"], "realm", "The realm of the server, or of the directory.", metavar="NAME"),
        _option(
            ["--directory"],
            "directory",
            "With --realm: act on the realm where this directory of realms says it is.",
            metavar="ADDRESS",
            envvar="WORLDCTL_DIRECTORY",
        ),
        _option(["--token-file"], "token_file", "API token for --server; WORLDCTL_TOKEN by default.", metavar="FILE"),
        _option(["--local"], "local", "Use no server, also where one has the log.", is_flag=True),
    ]


def _option(names: list[str], attribute: str, text: str, **settings: Any) -> click.Option:
    def note(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
        from click.core import ParameterSource

        typed = ctx.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        desk = ctx.find_root().obj
        if value and typed:
            desk.typed.add(attribute)
        if value and (typed or not getattr(desk, attribute)):  # the environment never overrides what was typed
            setattr(ctx.find_root().obj, attribute, value)

    return click.Option(names, help=text, callback=note, expose_value=False, **settings)
