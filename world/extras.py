"""Packages that only an extra installs: where one is missing, one sentence says how to install it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from world.errors import RefusedError

__all__ = ["missing_extra", "needs_extra"]

_OWN = ("world", "projections", "authority", "host", "worldprotocol")


def missing_extra(what: str, package: str, extra: str, *, code: str = "NOT_LOADED") -> RefusedError:
    """Return the refusal of what needs a package that is not installed.

    Args:
        what: what needs it, the beginning of the sentence, in the plural.
        package: the package's name.
        extra: the extra of this distribution that installs it.
        code: the error's code.
    """
    return RefusedError(code, f"{what} need the package {package}: pip install 'world-protocol[{extra}]'.", extra=extra)


@contextmanager
def needs_extra(what: str, extra: str) -> Iterator[None]:
    """Import modules that need the packages of an extra.

    Args:
        what: as for ``missing_extra``.
        extra: as for ``missing_extra``.

    Raises:
        RefusedError: ``NOT_LOADED`` where a package is not installed; a missing module of this distribution is an
            error of its own.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in _OWN:
            raise
        raise missing_extra(what, error.name, extra) from None
