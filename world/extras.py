"""Packages that only an extra installs: where one is missing, one sentence says how to install it."""

from __future__ import annotations

from world.errors import RefusedError

__all__ = ["missing_extra"]


def missing_extra(what: str, package: str, extra: str, *, code: str = "NOT_LOADED") -> RefusedError:
    """Return the refusal of what needs a package that is not installed.

    Args:
        what: what needs it, the beginning of the sentence, in the plural.
        package: the package's name.
        extra: the extra of this distribution that installs it.
        code: the error's code.
    """
    return RefusedError(code, f"{what} need the package {package}: pip install 'world-protocol[{extra}]'.", extra=extra)
