"""Reading the words of a command by the table alone, without importing the command.

The client finds with it what to send, and the server what a request asks for. Both parse with click, so that what
belongs to an option is decided as by the command itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import click

from worldprotocol.server.commands.command_table import LOCAL, REMOTE, WRITES_FILES, RemoteCommand

__all__ = ["CommandWords", "local_reason", "only_otherwise", "read_words"]

_GROUPS: Final = frozenset(path.rpartition(" ")[0] for path in REMOTE if " " in path) | {"policy"}


@dataclass(slots=True)
class CommandWords:
    """The words of a command, as far as the table has them.

    Args:
        path: the words of its name, such as ``lease list``.
        row: of the table; None where a server does not execute the command.
        options: values by name, in the order in which they were given; flags have no value.
        arguments: its arguments.
    """

    path: str = ""
    row: RemoteCommand | None = None
    options: Mapping[str, Sequence[str]] = field(default_factory=dict)
    arguments: Sequence[str] = ()

    def values(self, form: str) -> Iterator[str]:
        """Yield the values of all options and arguments of a form."""
        if self.row is None:
            return
        for name, given in self.options.items():
            option = self.row.option(name)
            if option is not None and option.form == form:
                yield from given
        for index, given_argument in enumerate(self.arguments):
            if self.row.form_of(index) == form:
                yield given_argument

    def written(self, *, json: bool, quiet: bool) -> list[str]:
        """Return the words in one form: the name, ``--json``, ``--quiet``, options with their values, and arguments."""
        words = [*self.path.split(), *(["--json"] if json else []), *(["--quiet"] if quiet else [])]
        assert self.row is not None
        for one in self.row.options:
            given = self.options.get(one.name)
            if given is None:
                continue
            if one.form == "pair":
                words += [one.name, *given[-2:]]
            else:
                words += [f"{one.name}={value}" for value in given] if one.form else [one.name]
        return [*words, "--", *self.arguments] if self.arguments else words


class _Words(click.Group):
    """A group of the table; what the table does not have is a command that reads nothing."""

    def __init__(self, path: str, found: CommandWords, shared: Sequence[click.Parameter]) -> None:
        super().__init__(path.rpartition(" ")[2] or "worldctl", params=list(shared), add_help_option=False)
        self._path = path
        self._found = found
        self._shared = shared

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        path = f"{self._path} {cmd_name}".strip()
        if path in _GROUPS and path not in REMOTE:
            return _Words(path, self._found, self._shared)
        self._found.path = path
        row = REMOTE.get(path)
        return _unread(cmd_name) if row is None else _leaf(row, self._found, self._shared)


def _unread(name: str) -> click.Command:
    settings = {"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False}
    words = [click.Argument(["words"], nargs=-1, type=click.UNPROCESSED)]
    return click.Command(name, params=list(words), context_settings=settings, add_help_option=False)


def _leaf(row: RemoteCommand, found: CommandWords, shared: Sequence[click.Parameter]) -> click.Command:
    params: list[click.Parameter] = [
        click.Option([one.name, f"option{number}"], is_flag=True)
        if not one.form
        else click.Option([one.name, f"option{number}"], multiple=True, nargs=2 if one.form == "pair" else 1)
        for number, one in enumerate(row.options)
    ]

    def note(words: Sequence[str], **given: Any) -> None:
        options: dict[str, Sequence[str]] = {}
        for number, one in enumerate(row.options):
            value = given[f"option{number}"]
            if value:
                flat = value if one.form != "pair" else [word for pair in value for word in pair]
                options[one.name] = () if value is True else tuple(flat)
        found.row, found.options, found.arguments = row, options, words

    argument = click.Argument(["words"], nargs=-1, type=click.UNPROCESSED)
    name = row.path.rpartition(" ")[2]
    return click.Command(name, callback=note, params=[argument, *params, *shared], add_help_option=False)


def read_words(arguments: Sequence[str], shared: Sequence[click.Parameter], context: Any = None) -> CommandWords:
    """Read the words of a command.

    Args:
        arguments: the words after ``worldctl``.
        shared: options that every command has; their callbacks note them in ``context``.
        context: click's object for these callbacks.

    Returns:
        What was found; without a row where a server does not execute the command, or where its arguments are more than
        the table permits.

    Raises:
        click.UsageError: an option is unknown, or lacks its value.
    """
    found = CommandWords()
    group = _Words("", found, shared)
    with group.make_context("worldctl", list(arguments), obj=context) as ctx:
        group.invoke(ctx)
    row = found.row
    if row is not None and any(row.form_of(index) is None for index in range(len(found.arguments))):
        return CommandWords(f"{found.path} {found.arguments[0]}")
    return found


def only_otherwise(path: str) -> str:
    """Return why a server does not execute a command with the options and arguments that it was given."""
    if path in WRITES_FILES:
        return "writes no file over a server: redirect what it prints; a server also takes no key"
    return "is executed with other options and arguments only (docs/server.md)"


def local_reason(path: str) -> str:
    """Return why a server does not execute a command, as the end of a sentence after its name."""
    words = path.split()
    names = (" ".join(words[:count]) for count in range(len(words), 0, -1))
    known = next((LOCAL[name] for name in names if name in LOCAL), None)
    return known or "is executed by no server"
