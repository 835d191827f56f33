"""Sockets by which processes of one user find each other: each has the first of several names that no other user has.

The names are abstract: one is free again once its process has ended, however it did. Any user may bind such a name; the
kernel says whose process listens at it. ``hook_client.py`` loads this module without its package, so it imports
built-in and extension modules alone.
"""

import _blake2
import _socket
import errno
import posix
import sys
import time

TYPE_CHECKING = False  # the modules of types are not loaded when this runs
if TYPE_CHECKING:
    from collections.abc import Iterable

NAMES = 4
"""Names of one socket."""

LOOKS = 20
"""Most looks at a name that is bound, and at which no process listens: one is about to, or has just ended."""

PAUSE_S = 0.005
"""Time between two looks, in seconds."""

_CREDENTIALS = 12


def names_of(secret: bytes, *parts: str) -> list[str]:
    """Return the names of a socket, which no process can name in advance that does not have the secret.

    Args:
        secret: what the processes have in common, and other users do not know.
        parts: what the socket is of.
    """
    of_user = "\0".join((str(posix.getuid()), *parts)).encode("utf-8", "surrogatepass")
    contents = (b"\0".join((secret, of_user, str(number).encode())) for number in range(NAMES))
    return [f"\0worldctl-{_blake2.blake2b(one, digest_size=16).hexdigest()}" for one in contents]


def taken(names: "Iterable[str]") -> tuple["_socket.socket | None", bool]:
    """Return a socket that listens at the first name that no other user has.

    Args:
        names: the names.

    Returns:
        The socket, and False. Where a process of this user listens at the name, None and True; where other users have
        all names, None and False.

    Raises:
        OSError: there are too many sockets.
    """
    for name in names:
        for _ in range(LOOKS):
            held = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
            try:
                held.bind(name)
                held.listen()
            except OSError as error:
                held.close()
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                return held, False
            try:
                peer = connected(name)
            except OSError:
                time.sleep(PAUSE_S)
                continue
            if peer is not None:
                peer.close()
                return None, True
            break
    return None, False


def connected(name: str) -> "_socket.socket | None":
    """Return a connection to the process that listens at a name, which never blocks; None where it is another user's.

    Args:
        name: the name.

    Raises:
        OSError: no process listens at it.
    """
    peer = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    peer.setblocking(False)
    try:
        peer.connect(name)
    except OSError as error:
        peer.close()
        if isinstance(error, BlockingIOError):  # too many wait for it, so it is of no use
            return None
        raise
    if is_of_user(peer):
        return peer
    peer.close()
    return None


def first_connected(names: "Iterable[str]") -> "_socket.socket | None":
    """Return a connection to the process of this user that listens at one of some names; None where there is none.

    Args:
        names: the names.
    """
    for name in names:
        try:
            peer = connected(name)
        except OSError:
            continue
        if peer is not None:
            return peer
    return None


def accepted(listening: _socket.socket) -> "_socket.socket | None":
    """Return the next connection to a socket; None where it is of another user.

    Args:
        listening: the socket, to which there is a connection.
    """
    descriptor, _ = listening._accept()  # type: ignore[attr-defined]  # the class of C has no other
    peer = _socket.socket(fileno=descriptor)
    if is_of_user(peer):
        return peer
    peer.close()
    return None


def is_of_user(peer: _socket.socket) -> bool:
    """Return whether the process at the other end of a connection is of the user of this one.

    Args:
        peer: the connection, of a Unix socket.
    """
    credentials = peer.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, _CREDENTIALS)
    return int.from_bytes(credentials[4:8], sys.byteorder) == posix.getuid()
