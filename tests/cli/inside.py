"""Runs ``worldctl`` within the test's own process, which spares its start; governed commands in one of their own."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from dataclasses import dataclass
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
        stdin = io.TextIOWrapper(io.BytesIO(given.encode() if isinstance(given, str) else given))
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="", write_through=True) for _ in range(2))
        with (
            contextlib.chdir(self.folder),
            mock.patch.dict(os.environ, environment() | variables, clear=True),
            mock.patch.object(sys, "path", [*sys.path]),
            mock.patch.object(sys, "stdin", stdin),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            ended = run(list(arguments))
        told, complaints = (stream.detach().getvalue().decode() for stream in (out, err))
        said = Said(ended, told, complaints)
        assert said.code == code, (said.code, said.out, said.err)
        return said
