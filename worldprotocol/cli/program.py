"""Runs one command line: whatever happens becomes an exit code and, where something is wrong, one sentence.

0    clean
1    findings: refused, rejected, failed, or something verify or recheck has found
2    usage: arguments, input or configuration that cannot be right whatever the log holds
3    the log is damaged
130  interrupted; what was done is in the log
141  the reader of the output is gone
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from worldprotocol.cli.registry import LazyGroup
from worldprotocol.cli.remote.target import run_remotely
from worldprotocol.cli.support.command_context import CommandContext, global_options
from worldprotocol.terminal_text import visible

CLEAN: Final = 0
FINDINGS: Final = 1
USAGE: Final = 2
DAMAGED: Final = 3
WAITING: Final = 4
HELD: Final = 5
INTERRUPTED: Final = 130
NOBODY_READS: Final = 141

HELP = """Govern what people, agents and systems do to one shared world.

Every change is an intent; an authority decides; what was decided and done is in one log that anyone can verify.
Start with `worldctl init --domain FILE`. Exit codes: 0 clean, 1 findings, 2 usage, 3 damaged log,
4 still waiting, 5 held."""

root = LazyGroup("worldctl", help=HELP, params=global_options(), context_settings={"max_content_width": 110})
root.params.append(
    click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        help="Print the version.",
        callback=lambda ctx, _, value: _print_version(ctx) if value else None,
    )
)


def run(arguments: Sequence[str], program: click.Group = root) -> int:
    """Run a command of a program and return its exit code.

    Args:
        arguments: the words after the program's name.
        program: the group of its commands; its name is the program's in messages.
    """
    if program is root:
        if "_WORLDCTL_COMPLETE" in os.environ:  # a shell requests completions
            root.main(list(arguments), prog_name="worldctl", obj=CommandContext())
        code = run_remotely(arguments)
        if code is not None:
            return code
    return run_in(CommandContext(json="--json" in _own(arguments)), arguments, program)


def _own(arguments: Sequence[str]) -> Sequence[str]:
    """Return the words that are not those of another program."""
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


def run_in(desk: CommandContext, arguments: Sequence[str], program: click.Group = root) -> int:
    """Run a command with a given context and return its exit code.

    Args:
        desk: its realm, options and streams.
        arguments: the words after the program's name.
        program: the group of its commands.
    """
    own = _own(arguments)
    try:
        rendered = _invoke(list(arguments), desk, program)
        desk.streams.out.flush()
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.UsageError as error:
        context = f"\nSee `{error.ctx.command_path} --help`." if error.ctx else ""
        return report_error(desk, "USAGE", error.format_message(), {}, USAGE, context)
    except click.ClickException as error:
        return report_error(desk, "USAGE", error.format_message(), {}, USAGE)
    except (KeyboardInterrupt, click.Abort) as error:
        said = str(error) or "Interrupted; what was done before is in the log."
        return report_error(desk, "INTERRUPTED", said, {}, INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left in the buffer goes nowhere
        return NOBODY_READS
    except UnicodeEncodeError:
        odd = next((word for word in own if not _is_utf8(word)), None)
        if odd is None:
            raise
        return report_error(desk, "USAGE", f"{odd!r} is no UTF-8.", {}, USAGE)
    except Exception as error:
        code = _reported(desk, error)
        if code is None:
            raise
        return code
    return rendered if isinstance(rendered, int) else CLEAN


def _reported(desk: CommandContext, error: Exception) -> int | None:
    """Report an error of the engine or of the system and return the exit code; None for any other error."""
    from world.errors import WorldProtocolError
    from worldprotocol.cli.support.exit_codes import exit_code_of

    if isinstance(error, WorldProtocolError):  # asked first: the end of a wait is a ``TimeoutError`` too
        return report_error(desk, error.code, error.message, error.details, exit_code_of(error))
    if isinstance(error, OSError):  # a folder that may not be written, a full disk under the output
        where = f"{error.filename}: " if error.filename else ""
        return report_error(desk, "SYSTEM", f"{where}{error.strerror or error}.", {}, FINDINGS)
    return None


def _is_utf8(word: str) -> bool:
    """Return whether a word of the command line is text; other bytes appear as lone surrogates."""
    return not any("\ud800" <= char <= "\udfff" for char in word)


def _invoke(arguments: list[str], desk: CommandContext, program: click.Group) -> object:
    """Run the command; click's own ``main`` would turn Ctrl-C and a closed pipe into something else on the way."""
    with program.make_context(program.name, arguments, obj=desk) as ctx:
        return program.invoke(ctx)


def report_error(
    desk: CommandContext, code: str, message: str, details: Mapping[str, Any], exit_code: int, hint: str = ""
) -> int:
    """Print what is wrong: one sentence, and below it the faults that did not fit into it, each with its path."""
    try:
        out, err = desk.streams.out, desk.streams.err
        if desk.json:
            import json

            rendered = {"error": {"code": code, "message": message, "details": details}}
            text = _printable(json.dumps(rendered, default=str, ensure_ascii=False))
            print(visible(text) if out.isatty() else text, file=out, flush=True)
        mark = "" if code == "USAGE" else f" [{code}]"
        said, faults = _with_all_faults(message, details.get("faults"))
        print(visible(f"error: {said}{mark}{hint}{faults}", "\t\n"), file=err, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return exit_code


def _printable(text: str) -> str:
    """Return a text without the half surrogates that bytes of a damaged log were read as."""
    return text.encode("utf-8", "replace").decode()


def _with_all_faults(message: str, faults: Any) -> tuple[str, str]:
    """Return the sentence, and lines of all faults where the sentence names only some of them."""
    listed = [one for one in faults or () if isinstance(one, Mapping) and "path" in one and "message" in one]
    if all(str(one["message"]) in message for one in listed):
        return message, ""
    head = message.partition(f"{listed[0]['path']}: ")[0].rstrip()
    return head, "".join(f"\n  {one['path']}: {one['message']}" for one in listed)


def _print_version(ctx: click.Context) -> None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        click.echo(f"worldctl {version('world-protocol')}")
    except PackageNotFoundError:
        click.echo("worldctl, not installed")
    ctx.exit()
