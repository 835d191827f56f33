"""The realm of a server that a command runs on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from worldprotocol.cli.remote.client import NotServedError, connection_to, only_realm, realm_with_file
from worldprotocol.cli.remote.target import Target
from worldprotocol.client.connection import RemoteError
from worldprotocol.client.remote_caller import RemoteCaller

__all__ = ["connected"]

_REFUSED_THERE = ("RIGHT_MISSING", "NOT_THE_VERIFIED_ACTOR", "TOKEN_NOT_VALID")


@contextmanager
def connected(target: Target, actor: str | None) -> Iterator[RemoteCaller | None]:
    """Yield what performs operations on a server.

    None is yielded where the socket that was found does not serve this caller and this file.

    Args:
        target: the server.
        actor: the actor that was named; None leaves it to the server.

    Raises:
        RemoteError: what the server refuses, with what to do.
    """
    connection = connection_to(target)
    try:
        if target.file is None:
            realm = target.realm or only_realm(connection, target.address)
        else:
            try:
                realm = realm_with_file(connection, target)
            except NotServedError:
                yield None
                return
        yield RemoteCaller(connection, realm, actor)
    except RemoteError as error:
        raise _with_a_way_out(error, target) from None
    finally:
        connection.close()


def _with_a_way_out(error: RemoteError, target: Target) -> RemoteError:
    """Return an error with what to do about it."""
    hint = ""
    if target.file is not None and error.code in _REFUSED_THERE:
        hint = " A server has this log, and it refuses; --local works on the file without it."
    elif error.code == "SIGN_IN_REQUIRED":
        hint = " Give an API token with --token-file FILE or WORLDCTL_TOKEN; `worldctl token create` prints one."
    return RemoteError(error.code, error.message + hint, error.details)
