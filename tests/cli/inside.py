"""Runs ``worldctl`` within the test's own process, which spares its start; governed commands in one of their own."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from tests.cli.realm import CliRealm, Said, environment
from worldprotocol.cli.program import run


@dataclass(frozen=True)
class Inside(CliRealm):
    """A folder in which ``worldctl`` runs; what it prints is caught where Python prints it."""

    def __call__(self, *arguments: str, given: str | bytes = b"", code: int = 0, **variables: str) -> Said:
        """Run ``worldctl`` and check its exit code."""
        if arguments[0] == "run":
            return super().__call__(*arguments, given=given, code=code, **variables)
        said = ended(self.folder, arguments, given, variables)
        assert said.code == code, (said.code, said.out, said.err)
        return said


def ended(folder: Path, arguments: Sequence[str], given: str | bytes, variables: Mapping[str, str]) -> Said:
    """Run ``worldctl`` in this process and return what it said, and how it ended.

    Args:
        folder: the folder in which it runs.
        arguments: the words after its name.
        given: what it reads from stdin.
        variables: what its environment has besides this process's own.
    """
    stdin = io.TextIOWrapper(io.BytesIO(given.encode() if isinstance(given, str) else given))
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="", write_through=True) for _ in range(2))
    with (
        contextlib.chdir(folder),
        mock.patch.dict(os.environ, {**environment(), **variables}, clear=True),
        mock.patch.object(sys, "path", [*sys.path]),
        mock.patch.object(sys, "stdin", stdin),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = run(list(arguments))
    told, complaints = (stream.detach().getvalue().decode() for stream in (out, err))
    return Said(code, told, complaints)
