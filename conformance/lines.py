"""JSON lines in, JSON lines out: what the commands ``id``, ``eval`` and ``flow`` share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.cli.support.command_context import CommandContext
from worldprotocol.cli.support.input_reading import read_lines
from worldprotocol.cli.support.output import counted


def answer_lines(
    desk: CommandContext, source: str, read: Callable[[bytes], Any], answer: Callable[[Mapping[str, Any]], Any]
) -> int:
    """Print the answer to each line of a file or of stdin; a bad line gives ``{"error"}`` and exit code 1 at the end.

    Args:
        desk: where to print.
        source: a file, or ``-``.
        read: makes a value of a line.
        answer: makes an answer of an object.

    Raises:
        RefusedError: ``FILE_UNREADABLE``.
    """
    bad = 0
    for number, line in read_lines(source):
        try:
            desk.out.line(_answered(line, read, answer))
        except RefusedError as refused:
            bad += 1
            rendered = refused.to_dict()
            desk.out.line({"error": {**rendered, "line": number}})
    if bad:
        desk.out.remark(f"{counted(bad, 'line')} could not be answered.")
    return 1 if bad else 0


def _answered(
    line: bytes | RefusedError, read: Callable[[bytes], Any], answer: Callable[[Mapping[str, Any]], Any]
) -> Any:
    if isinstance(line, RefusedError):
        raise line
    given = read(line)
    if not isinstance(given, dict):
        raise RefusedError(ErrorCode.INVALID_VALUE, "The line must be a JSON object.")
    try:
        return answer(given)
    except KeyError as missing:
        raise RefusedError(ErrorCode.INVALID_VALUE, f"The line lacks {missing}.") from None
    except (TypeError, AttributeError, ValueError, IndexError, RecursionError) as error:
        raise RefusedError(ErrorCode.INVALID_VALUE, f"The line is not as it should be: {error}.") from None
