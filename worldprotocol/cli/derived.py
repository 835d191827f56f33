"""Commands derived from operations: options and arguments are the members of the request, and the answer is printed.

Here or over a server, what is printed is the view of the same answer; ``--json`` prints the answer of the HTTP API.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import click
import msgspec

from worldprotocol.cli.remote.target import target_of
from worldprotocol.cli.support.command_context import CliCommand, CommandContext
from worldprotocol.client import LocalCaller, OperationCaller
from worldprotocol.operations.commands import AnswerView, IdKind, IdOf, Table
from worldprotocol.operations.declaring import Declared

__all__ = ["add_commands", "command_of", "operations_with_commands"]

WHOLE_ID: Final = 32
"""Characters of a whole id; of shorter texts the rest is asked for."""


def operations_with_commands(subject: str) -> list[Declared[Any, Any]]:
    """Return the operations of a module of ``worldprotocol.operations`` that are commands."""
    found = vars(import_module(f"worldprotocol.operations.{subject}")).values()
    return [one for one in found if isinstance(one, Declared) and one.command is not None]


def add_commands(group: click.Group, subject: str) -> click.Group:
    """Add the commands of a subject that begin with the name of a group to it, and return it."""
    for one in operations_with_commands(subject):
        words = one.command.words.split() if one.command is not None else []
        if len(words) > 1 and words[0] == group.name:
            *between, last = words[1:]
            parent = group
            for name in between:
                known = parent.commands.get(name)
                parent = known if isinstance(known, click.Group) else parent
            parent.add_command(command_of(one, last))
    return group


def command_of(operation: Declared[Any, Any], name: str) -> CliCommand:
    """Return the command that performs an operation.

    Args:
        operation: an operation with a command.
        name: the last word of the command.
    """
    form = operation.command
    assert form is not None
    fields = msgspec.structs.fields(operation.request)
    members = {one.name: _Member.of(one, form.options.get(one.name)) for one in fields}
    arguments = [members[one].argument() for one in form.arguments]
    options = [one.option() for one in members.values() if one.name not in form.arguments]
    caller = form.caller
    if caller is not None:
        options.append(
            click.Option(
                [caller.option, "actor"],
                metavar="ID",
                help=caller.text if caller.default is None else f"{caller.text}  [default: {caller.default}]",
            )
        )

    def perform(**given: Any) -> int:
        context = click.get_current_context()
        desk: CommandContext = context.find_root().obj
        actor = given.pop("actor", None)
        wanted = {
            members[one].wire: members[one].value(value) for one, value in given.items() if value not in (None, ())
        }
        with _caller(desk, operation, actor) as client:
            for one in members.values():
                if one.named is not None and one.wire in wanted:
                    wanted[one.wire] = _completed(client, one.named, wanted[one.wire])
            request = _request(operation.request, wanted, members)
            answer = client.call(operation, request)
        return _print(desk, form.shown(answer), answer)

    docs = (operation.run.__doc__ or "").strip()
    return CliCommand(name, params=[*arguments, *options], callback=perform, help=docs)


def _request(kind: Any, wanted: Mapping[str, Any], members: Mapping[str, _Member]) -> Any:
    """Return a request.

    Raises:
        click.UsageError: a value is out of bounds.
    """
    try:
        return msgspec.convert(wanted, kind)
    except msgspec.ValidationError as error:
        words, _, place = str(error).partition(" - at `$.")
        name = next((one.option_name for one in members.values() if place.startswith(one.wire)), place)
        raise click.UsageError(f"Invalid value for '{name}': {words}.") from None


@dataclass(frozen=True, slots=True)
class _Member:
    """A member of a request, as an option or an argument."""

    name: str
    wire: str
    option_name: str
    default: Any
    is_required: bool
    kind: Any
    is_list: bool
    named: IdKind | None
    text: str | None
    metavar: str | None

    @classmethod
    def of(cls, field: Any, spelled: str | None) -> _Member:
        """Return a member of a struct; ``spelled`` is its option where that is not called by the member's name."""
        kind, notes = _unwrapped(field.type)
        is_list = get_origin(kind) is list
        if is_list:
            kind, more = _unwrapped(get_args(kind)[0])
            notes += more
        metas = [one for one in notes if isinstance(one, msgspec.Meta)]
        extra: dict[str, Any] = {name: value for one in metas for name, value in (one.extra or {}).items()}
        named = next((one.kind for one in notes if isinstance(one, IdOf)), None)
        return cls(
            name=field.name,
            wire=field.encode_name,
            option_name=spelled or f"--{field.name.replace('_', '-')}",
            default=None if field.default is msgspec.NODEFAULT else field.default,
            is_required=field.required,
            kind=kind,
            is_list=is_list,
            named=named,
            text=next((one.description for one in metas if one.description), None),
            metavar=extra.get("metavar") or ("ID" if named else None),
        )

    def _type(self) -> click.ParamType[Any]:
        if get_origin(self.kind) is Literal:
            return click.Choice([str(one) for one in get_args(self.kind)])
        if self.kind in (int, float):
            return click.INT if self.kind is int else click.FLOAT
        return click.STRING

    def argument(self) -> click.Argument:
        """Return the member as an argument."""
        shown = (self.metavar or self.name.removesuffix("_id").removesuffix("_ids")).upper().replace("_", "-")
        if self.is_list:
            return click.Argument(
                [self.name], metavar=f"{shown}...", nargs=-1, required=self.is_required, type=self._type()
            )
        return click.Argument([self.name], metavar=shown, required=self.is_required, type=self._type())

    def option(self) -> click.Option:
        """Return the member as an option."""
        name = self.option_name
        if self.kind is bool:
            return click.Option([name, self.name], is_flag=True, help=self.text)
        return click.Option(
            [name, self.name],
            multiple=self.is_list,
            required=self.is_required,
            type=self._type(),
            **({} if self.default is None else {"default": self.default, "show_default": True}),
            metavar=self.metavar,
            help=self.text,
        )

    def value(self, given: Any) -> Any:
        """Return a value as the request has it."""
        if self.is_list:
            return list(given)
        if self.kind not in (str, int, float, bool) and get_origin(self.kind) is not Literal:
            from worldprotocol.cli.support.input_reading import read_argument

            return read_argument(given, what=self.option_name)
        return given


def _unwrapped(kind: Any) -> tuple[Any, list[Any]]:
    """Return a type without ``None`` and annotations, and these annotations."""
    notes: list[Any] = []
    while True:
        if get_origin(kind) is Annotated:
            kind, *more = get_args(kind)
            notes += more
        elif get_origin(kind) in (Union, types.UnionType):
            kinds = [one for one in get_args(kind) if one is not type(None)]
            if len(kinds) != 1:
                return kind, notes
            kind = kinds[0]
        else:
            return kind, notes


@contextmanager
def _caller(desk: CommandContext, operation: Declared[Any, Any], actor: str | None) -> Iterator[OperationCaller]:
    """Yield what performs an operation: a server where one is named or has the file, else the realm opened here.

    Raises:
        click.UsageError: the actor has to be named here, or options contradict each other.
    """
    desk.check_server_options()
    desk.check_place(click.get_current_context().command_path.partition(" ")[2], is_named=False)
    target = target_of(desk)
    if target is not None:
        from worldprotocol.cli.remote.calling import connected

        with connected(target, actor) as remote:
            if remote is not None:
                yield remote
                return
    named = operation.command.caller if operation.command is not None else None
    if named is not None and actor is None:
        actor = named.default
        if actor is None:
            raise click.UsageError(f"Missing option '{named.option}'.", click.get_current_context())
    with desk.open() if operation.is_write else desk.look() as realm:
        from worldprotocol.cli.support.redaction import resource_digests

        yield LocalCaller(realm, actor, resource_digests=lambda: resource_digests(desk.settings()))


def _completed(client: OperationCaller, kind: IdKind, given: Any) -> Any:
    """Return ids for what a person wrote of them.

    Raises:
        RefusedError: ``AMBIGUOUS`` with the candidates.
    """
    from worldprotocol.operations.names import FindNames, find_names

    def whole(text: str) -> str:
        if len(text) >= WHOLE_ID:
            return text
        found = client.call(find_names, FindNames(kind=kind, begins=text)).ids
        if len(found) > 1:
            from worldprotocol.api.lookup.id_lookup import not_unique

            raise not_unique(text, [(kind, one) for one in found])
        return found[0] if found else text

    return [whole(one) for one in given] if isinstance(given, list) else whole(given)


def _print(desk: CommandContext, view: AnswerView, answer: Any) -> int:
    if desk.json:
        desk.out.document(msgspec.to_builtins(answer))
    else:
        for part in view.parts:
            if isinstance(part, Table):
                desk.out.table(part.heads, part.rows, empty=part.empty)
            else:
                desk.out.text(part)
        for remark in view.remarks:
            desk.out.remark(remark)
    return 1 if view.has_findings else 0
