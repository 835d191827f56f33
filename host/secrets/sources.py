"""Sources of secrets: environment variables, a folder with one file per secret, and the system keyring."""

from __future__ import annotations

import importlib
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.extras import missing_extra

__all__ = ["EnvironmentSecrets", "FolderSecrets", "KeyringSecrets", "SecretSource"]

MAX_SECRET_BYTES = 64 * 1024
"""The largest file that is read as a secret, in bytes."""


class SecretSource(Protocol):
    """A source of secrets."""

    def read(self, name: str) -> str | None:
        """Return the value of a secret, None where this source does not have it.

        Raises:
            RefusedError: ``SECRET_UNREADABLE`` for a secret that must not or cannot be read.
        """
        ...

    def location_of(self, name: str) -> str:
        """Describe where the secret is read from, for people."""
        ...


@dataclass(frozen=True, slots=True)
class EnvironmentSecrets:
    """Environment variables of this process.

    Args:
        names: variables that are secrets under their own names.
        prefix: secret ``NAME`` is the variable ``<prefix>NAME``; an empty prefix provides no variable.
        environ: the variables; those of the process by default.
    """

    names: Sequence[str] = ()
    prefix: str = ""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    def read(self, name: str) -> str | None:
        """Return the variable's value."""
        if name in self.names:
            return self.environ.get(name)
        return self.environ.get(f"{self.prefix}{name}") if self.prefix else None

    def location_of(self, name: str) -> str:
        """Return the variable's name, or that it is not permitted."""
        if name in self.names:
            return f"environment variable {name}"
        if self.prefix:
            return f"environment variable {self.prefix}{name}"
        return f"environment ({name} is not in [secrets] environment)"


@dataclass(frozen=True, slots=True)
class FolderSecrets:
    """A folder with one file per secret, named as the secret; one final line break is not part of the value.

    A file must belong to this user or to root, and only its owner may read or write it; root's files may be
    readable by all where other users cannot enter the folder, as container platforms mount secrets.
    """

    folder: Path

    def read(self, name: str) -> str | None:
        """Return the file's text.

        Raises:
            RefusedError: ``SECRET_UNREADABLE`` for a file that others may read or write, that is not a regular file, is
                too large or not UTF-8, or that cannot be read.
        """
        path = self.folder / name
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unreadable(name, path, f"cannot be opened ({error.strerror})") from None
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise _unreadable(name, path, "is not a regular file")
            if status.st_uid not in (os.geteuid(), 0):
                raise _unreadable(name, path, f"belongs to user {status.st_uid}")
            if status.st_mode & 0o077 and not self._is_closed():
                raise _unreadable(name, path, f"has the mode {stat.S_IMODE(status.st_mode):04o}; run `chmod 600` on it")
            data = file.read(MAX_SECRET_BYTES + 1)
        if len(data) > MAX_SECRET_BYTES:
            raise _unreadable(name, path, f"has more than {MAX_SECRET_BYTES} bytes")
        try:
            return data.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            raise _unreadable(name, path, "is not UTF-8 text") from None

    def location_of(self, name: str) -> str:
        """Return the file's path."""
        return f"file {self.folder / name}"

    def _is_closed(self) -> bool:
        """Whether only its owner, this user or root, may enter the folder."""
        status = os.stat(self.folder)
        return not status.st_mode & 0o077 and status.st_uid in (os.geteuid(), 0)


@dataclass(frozen=True, slots=True)
class KeyringSecrets:
    """The system keyring, accessed by the library ``keyring`` (extra ``keyring``).

    Args:
        service: the service's name under which the secrets are stored.
    """

    service: str

    def read(self, name: str) -> str | None:
        """Return the password stored under the service and the secret's name.

        Raises:
            RefusedError: ``SECRET_UNREADABLE`` where the library is not installed or the keyring raises.
        """
        try:
            library: Any = importlib.import_module("keyring")
        except ImportError:
            raise missing_extra("Secrets of a keyring", "keyring", "keyring", code="SECRET_UNREADABLE") from None
        try:
            password: str | None = library.get_password(self.service, name)
        except Exception as error:  # noqa: BLE001 - each backend of the library has its own errors
            raise _unreadable(name, self.location_of(name), f"cannot be read ({type(error).__name__})") from None
        return password

    def location_of(self, name: str) -> str:
        """Return the service's name."""
        return f"keyring service {self.service}"


def _unreadable(name: str, location: object, why: str) -> RefusedError:
    return RefusedError(
        ErrorCode.SECRET_UNREADABLE, f"Secret {name}: {location} {why}.", name=name, location=str(location)
    )
