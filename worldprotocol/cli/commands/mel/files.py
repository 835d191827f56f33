"""``worldctl domain compile``, ``check`` and ``format``: domains as MEL."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.sizes import MAX_MEL_BYTES
from worldprotocol.cli.support.command_context import CliCommand, CommandContext, with_desk

if TYPE_CHECKING:
    from world.core.mel.compiling import CompiledMel

__all__ = ["check", "compile_", "format_", "lsp"]

STDIN: Final = "-"
_MAX_READ: Final = 2 * MAX_MEL_BYTES + 2  # too long even where every line end is two bytes
_FILE = click.argument("file", metavar="FILE.mel")


def _read(file: str) -> tuple[str, str]:
    """Return the name and the text of a source; of one that is too long, a part that is too long as well."""
    name = "<stdin>" if file == STDIN else file
    try:
        if file == STDIN:
            content = sys.stdin.buffer.read(_MAX_READ)
        else:
            with Path(file).open("rb") as source:
                content = source.read(_MAX_READ)
        text = content.decode("utf-8", "strict" if len(content) < _MAX_READ else "replace")
    except OSError as error:
        why = f"{name} cannot be read: {error.strerror or error}."
        raise RefusedError(ErrorCode.FILE_UNREADABLE, why, path=file) from None
    except UnicodeDecodeError as error:
        why = f"{name} cannot be read: byte {error.start + 1} is no UTF-8. Save it as UTF-8."
        raise RefusedError(ErrorCode.FILE_UNREADABLE, why, path=file) from None
    return name, text.replace("\r\n", "\n").replace("\r", "\n")


def _compiled(file: str, *, has_errors: bool = False) -> CompiledMel:
    """Return a compiled source; one with errors is refused, unless it may have some."""
    from world.core.mel.loading import checked_mel, refusal

    name, text = _read(file)
    compiled = checked_mel(text, name)
    if compiled.schema is None and not has_errors:
        raise refusal(compiled)
    return compiled


@click.command("compile", cls=CliCommand, short_help="Print the portable schema of a MEL file.")
@_FILE
@with_desk
def compile_(desk: CommandContext, file: str) -> None:
    """Print the portable schema that FILE.mel compiles to, with its hash, as JSON; - reads stdin."""
    desk.out.document(_compiled(file).schema)


@click.command("check", cls=CliCommand, short_help="Show the errors of MEL files in their lines.")
@click.argument("files", metavar="FILE.mel...", nargs=-1, required=True)
@with_desk
def check(desk: CommandContext, files: tuple[str, ...]) -> int:
    """Show every error of the files, with its line and what may have been meant; exit code 1 where one has any.

    Warnings, and what the style of the reference asks for, are shown too and are no errors.
    """
    found: list[dict[str, Any]] = []
    is_wrong = False
    for file in files:
        compiled = _compiled(file, has_errors=True)
        is_wrong = is_wrong or bool(compiled.errors)
        rows = [*compiled.errors, *compiled.warnings, *compiled.advice]
        for one in sorted(rows, key=lambda one: (one.start, one.end)):
            severity = "warning" if one.is_warning else "error"
            found.append({"file": compiled.source.name, "severity": severity, **one.to_wire()})
            if not desk.json and not (desk.quiet and one.is_warning):
                for row in compiled.source.show(one).split("\n"):
                    desk.out.text(row)
        if not compiled.errors and not desk.json:
            desk.out.remark(f"{compiled.source.name}: schemaHash {(compiled.schema or {}).get('hash')}")
    if desk.json:
        desk.out.document(found)
    return 1 if is_wrong else 0


@click.command("format", cls=CliCommand, short_help="Lay out a MEL file, or print a domain as MEL.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--write", is_flag=True, help="Write each FILE.mel in place instead of printing it.")
@click.option(
    "--check", "only_check", is_flag=True, help="Name the files that would change; exit code 1 where one would."
)
@with_desk
def format_(desk: CommandContext, files: tuple[str, ...], *, write: bool, only_check: bool) -> int:
    """Print FILE.mel in the uniform layout; a domain in YAML or JSON is printed as MEL that has the same schemaHash.

    Tokens and comments stay as they are, so the schema does. A file with errors is refused.
    """
    changed = 0
    for file in files:
        before, after = _formatted(file)
        changed += before != after
        if only_check:
            if before != after:
                desk.out.text(file)
        elif not write:
            _print(desk, after)
        elif before != after:
            if not file.endswith(".mel"):
                raise click.UsageError("--write takes files of MEL; redirect the output for others.")
            _replace(Path(file), after)
    return 1 if only_check and changed else 0


def _formatted(file: str) -> tuple[str, str]:
    from world.core.mel.formatting import format_tokens
    from world.core.mel.printing import mel_of_schema

    if file.endswith((".yaml", ".yml", ".json")):
        from world.core import load_domain

        return "", mel_of_schema(load_domain(Path(file)).schema.portable)
    compiled = _compiled(file)
    return compiled.source.text, format_tokens(compiled.source.text)


def _print(desk: CommandContext, text: str) -> None:
    """Print a source: as it is where it is piped, and so that it steers nothing on a terminal."""
    if desk.out.terminal:
        desk.out.text(text.rstrip("\n"), laid_out=True)
    else:
        sys.stdout.write(text)


def _replace(path: Path, text: str) -> None:
    """Replace a file's content at once; an interrupted run leaves the old one, and a symbolic link stays one."""
    path = path.resolve()
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text, encoding="utf-8")
    temporary.chmod(path.stat().st_mode)
    os.replace(temporary, path)


@click.command("lsp", cls=CliCommand, short_help="Run the language server of MEL on stdin and stdout.")
@with_desk
def lsp(desk: CommandContext) -> None:
    """Run a language server: diagnostics, hover, and the way to a definition in MEL files.

    An editor starts this command and speaks with it over stdin and stdout. It needs the extra lsp.
    """
    from worldprotocol.cli.commands.mel.language_server import serve

    serve()
