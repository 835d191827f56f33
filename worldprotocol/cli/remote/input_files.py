"""Files and stdin that a command reads because an argument names them."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO

__all__ = ["InputFiles", "RequestFiles"]


class InputFiles:
    """The files of this machine, and stdin of this process."""

    def stdin(self) -> IO[bytes]:
        """Return stdin."""
        return sys.stdin.buffer

    def is_file(self, name: str) -> bool:
        """Return whether a name is that of a file."""
        return Path(name).is_file()

    def open(self, name: str) -> IO[bytes]:
        """Open a file for reading.

        Raises:
            OSError: it cannot be opened.
        """
        return Path(name).open("rb")


class RequestFiles(InputFiles):
    """The contents that a request has; no file of this machine is read.

    Args:
        contents: by the name in the arguments.
        given: content of stdin.
    """

    def __init__(self, contents: Mapping[str, bytes], given: bytes) -> None:
        """Take the contents of a request."""
        self._contents = contents
        self._given = io.BytesIO(given)

    def stdin(self) -> IO[bytes]:
        """Return the content of the caller's stdin."""
        return self._given

    def is_file(self, name: str) -> bool:
        """Return whether the request has the content of a file of this name."""
        return name in self._contents

    def open(self, name: str) -> IO[bytes]:
        """Open the content that the request has under a name.

        Raises:
            FileNotFoundError: it has none.
        """
        content = self._contents.get(name)
        if content is None:
            raise FileNotFoundError(2, "No such file or directory", name)
        return io.BytesIO(content)
