"""Reading what is given: JSON on the command line, in files and on stdin, and JSON lines of any number."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, Final

import click

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.canonical_json import read_json
from worldprotocol.cli.remote.input_files import InputFiles
from worldprotocol.cli.support.command_context import CommandContext

STDIN: Final = "-"
"""How stdin is written where a file is expected."""

MAX_LINE_BYTES: Final = 16 << 20
"""Most bytes of one line of JSON lines; a longer line is passed over with an error."""


def read_argument(given: str, *, what: str) -> Any:
    """Return a JSON value given as text, as ``@file`` or as ``-`` for stdin.

    Raises:
        RefusedError: ``MALFORMED_JSON``, ``NOT_CANONICAL``, ``FILE_UNREADABLE``.
    """
    try:
        return read_json(_content(given))
    except RefusedError as refused:
        raise RefusedError(refused.code, f"{what}: {refused.message}", **refused.details) from None


def read_object(given: str, *, what: str) -> dict[str, Any]:
    """Return a JSON object given as ``read_argument`` takes it.

    Raises:
        RefusedError: ``INVALID_VALUE`` when it is no object, and as ``read_argument``.
    """
    value = read_argument(given, what=what)
    if not isinstance(value, dict):
        raise RefusedError(ErrorCode.INVALID_VALUE, f"{what} must be a JSON object.")
    return value


def read_manifest_document(given: str) -> dict[str, Any]:
    """Return the document of ``--manifest``, which is given as text, as ``@file`` or as ``-`` for stdin.

    A file that ends in ``.yaml`` or ``.yml`` is YAML, one that ends in ``.json`` JSON; any other text is JSON where it
    begins with a brace, and YAML otherwise.

    Raises:
        RefusedError: ``MALFORMED_SCHEMA`` with the line or the place in it, ``MANIFEST_TOO_LARGE``,
            ``FILE_UNREADABLE``.
    """
    from world.klis.manifest import manifest_document

    content = _content(given)
    try:
        return manifest_document(content, yaml=is_yaml(content, given if given.startswith("@") else ""))
    except RefusedError as refused:
        raise RefusedError(refused.code, f"--manifest: {refused.message}", **refused.details) from None


def is_yaml(content: str | bytes, name: str) -> bool:
    """Return whether a manifest is YAML: by the name of its file, else by its first character."""
    if name.endswith((".yaml", ".yml", ".json")):
        return not name.endswith(".json")
    head = content.lstrip()[:1]
    return head not in ("{", b"{")


def inputs() -> InputFiles:
    """Return the inputs of the running command: of this machine, or those that a request to a server has."""
    context = click.get_current_context(silent=True)
    desk = None if context is None else context.find_root().obj
    return desk.inputs if isinstance(desk, CommandContext) else InputFiles()


def read_file(path: str) -> bytes:
    """Return the content of a file, or of stdin for ``-``.

    Raises:
        RefusedError: ``FILE_UNREADABLE``.
    """
    with _opened(path) as stream:
        return stream.read()


def _content(given: str) -> str | bytes:
    if given == STDIN:
        return read_file(given)
    if not given.startswith("@"):
        return given
    with _opened_file(given[1:]) as stream:
        return stream.read()


def read_lines(source: str) -> Iterator[tuple[int, bytes | RefusedError]]:
    """Yield ``(number from 1, line)`` of a file or of stdin; empty lines are passed over.

    A line that is too long is yielded as the error that says so.

    Raises:
        RefusedError: ``FILE_UNREADABLE``.
    """
    with _opened(source) as stream:
        yield from _lines(stream)


def _lines(stream: IO[bytes]) -> Iterator[tuple[int, bytes | RefusedError]]:
    number = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
            while line and not line.endswith(b"\n"):
                line = stream.readline(MAX_LINE_BYTES)
            yield (
                number,
                RefusedError(ErrorCode.LINE_TOO_LONG, f"The line has more than {MAX_LINE_BYTES} bytes.", line=number),
            )
        elif line.strip():
            yield number, line


@contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    """Give a file, or stdin for ``-``."""
    if path == STDIN:
        yield inputs().stdin()
        return
    with _opened_file(path) as stream:
        yield stream


@contextmanager
def _opened_file(path: str) -> Iterator[IO[bytes]]:
    try:
        stream = inputs().open(path)  # closed below; only opening may be refused here
    except OSError as error:
        raise RefusedError(
            ErrorCode.FILE_UNREADABLE, f"{path} cannot be read: {error.strerror or error}.", path=path
        ) from None
    try:
        yield stream
    except IsADirectoryError:
        raise RefusedError(ErrorCode.FILE_UNREADABLE, f"{path} is a folder.", path=path) from None
    finally:
        stream.close()


def count_lines(source: str) -> int:
    """Return how many lines a file has, 0 for stdin and what is no ordinary file; for progress bars only."""
    if source == STDIN or not inputs().is_file(source):
        return 0
    with inputs().open(source) as stream:
        return sum(block.count(b"\n") for block in iter(lambda: stream.read(1 << 20), b""))
