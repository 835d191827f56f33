"""``Realm.connect``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from worldprotocol.api.remote.realm import RemoteRealm

__all__ = ["RealmConnecting"]


class RealmConnecting:
    """The function that connects to a realm on a server; the HTTP client is imported when it is called."""

    @staticmethod
    def connect(server: str, *, token: str | None = None, realm: str | None = None) -> RemoteRealm:
        """Return a realm on a server (docs/server.md), used as the actor that is verified.

        Args:
            server: ``https://HOST:PORT``, ``http://127.0.0.1:PORT`` for a server on this machine, or ``unix:PATH`` of
                its socket.
            token: API token or JWT; None where the server verifies the peer of the socket.
            realm: name of the realm; None where the caller has rights in one only.

        Raises:
            RefusedError: ``INVALID_ADDRESS``, ``LOG_UNAVAILABLE`` where the server does not answer, ``UNKNOWN_REALM``,
                ``SIGN_IN_REQUIRED``, ``TOKEN_NOT_VALID``, ``RIGHT_MISSING``.
        """
        from worldprotocol.api.remote.realm import connected

        return connected(server, token, realm)
