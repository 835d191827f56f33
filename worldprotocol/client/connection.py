"""One HTTP connection to a server, over TLS, to this machine, or on a Unix socket; and what can go wrong with it."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping
from typing import Any, Final

from world.errors import RefusedError
from worldprotocol.api.remote.addresses import ServerAddress

__all__ = ["CommandConnection", "RemoteError"]

CONNECT_S: Final = 10.0
"""Longest time to connect, in seconds."""

SILENT_S: Final = 60.0
"""Longest time without a byte of an answer, in seconds; a server that works says so every 15 s."""

MAX_PROBLEM_BYTES: Final = 1 << 20
MAX_RETRY_AFTER_S: Final = 30.0


class RemoteError(RefusedError):
    """A request was refused or failed.

    Args:
        code: the error code.
        message: one sentence.
        details: facts for programs.
        is_lost: whether the request may have been executed, and its answer was lost.
        retry_after_s: when the server wants the request again, in seconds; None where it does not.
    """

    def __init__(
        self,
        code: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        *,
        is_lost: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(code, message, **(details or {}))
        self.is_lost = is_lost
        self.retry_after_s = retry_after_s


class _UnixConnection(http.client.HTTPConnection):
    """HTTP on a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=CONNECT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        try:
            self.sock.connect(self._path)
        except BaseException:
            self.close()
            raise


class CommandConnection:
    """A connection to a server, which is opened by the first request.

    Args:
        address: the server.
        token: sent with each request; None where the peer of a socket is verified.
        silent_s: longest time without a byte of an answer, in seconds.
    """

    def __init__(self, address: ServerAddress, token: str | None, *, silent_s: float = SILENT_S) -> None:
        """Open nothing yet."""
        self._silent_s = silent_s
        self._address = address
        self._token = token
        self._connection: http.client.HTTPConnection | None = None

    def close(self) -> None:
        """Close the connection; idempotent."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def connect(self) -> http.client.HTTPConnection:
        """Return the open connection.

        Raises:
            RemoteError: the server cannot be reached.
        """
        if self._connection is not None:
            return self._connection
        import ssl

        at = self._address
        try:
            made: http.client.HTTPConnection
            if at.scheme == "unix":
                made = _UnixConnection(at.path)
            elif at.scheme == "https":
                made = http.client.HTTPSConnection(
                    at.host, at.port, timeout=CONNECT_S, context=ssl.create_default_context()
                )
            else:
                made = http.client.HTTPConnection(at.host, at.port, timeout=CONNECT_S)
            made.connect()
        except ssl.SSLError as error:
            why = getattr(error, "verify_message", None) or error.reason or str(error)
            raise RemoteError(
                "LOG_UNAVAILABLE",
                f"There is no safe connection to {at.text}: {why}. Check the address, and that this machine trusts the "
                "certificate of the server.",
            ) from None
        except (OSError, UnicodeError) as error:
            raise RemoteError(
                "LOG_UNAVAILABLE",
                f"No server answers at {at.text}: {getattr(error, 'strerror', None) or error}. Start it (`worldctl "
                "serve`), or check --server.",
            ) from None
        made.sock.settimeout(self._silent_s)
        self._connection = made
        return made

    def send(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> http.client.HTTPResponse:
        """Return the answer to a request, whose body is not read yet.

        Raises:
            RemoteError: there is none, or it is a problem.
        """
        connection = self.connect()
        fields = {"Accept": "*/*", **(headers or {})}
        if self._token is not None:
            fields["Authorization"] = f"Bearer {self._token}"
        content = None if body is None else json.dumps(body).encode()
        if content is not None:
            fields["Content-Type"] = "application/json"
        try:
            connection.request(method, self._address_path(path), content, fields)
            answer = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self.lost(error) from None
        if not 200 <= answer.status < 300:
            raise self._problem(answer)
        return answer

    def _address_path(self, path: str) -> str:
        return path if self._address.scheme == "unix" else self._address.path + path

    def lost(self, error: Exception) -> RemoteError:
        """Return the error of a request whose answer was lost."""
        if isinstance(error, http.client.BadStatusLine) and not isinstance(error, http.client.RemoteDisconnected):
            return self._foreign("something else than HTTP")
        if isinstance(error, TimeoutError):
            why = f"the server said nothing for {self._silent_s:g} s"
        else:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return RemoteError("LOG_UNAVAILABLE", f"The connection to {self._address.text} was lost: {why}.", is_lost=True)

    def _foreign(self, said: str) -> RemoteError:
        return RemoteError(
            "LOG_UNAVAILABLE", f"{self._address.text} answered {said} and is no server of realms; check --server."
        )

    def _problem(self, answer: http.client.HTTPResponse) -> RemoteError:
        """Return the problem of an answer, and close the connection."""
        status, kind = answer.status, answer.headers.get_content_type()
        retry = answer.headers.get("Retry-After", "")
        try:
            content = answer.read(MAX_PROBLEM_BYTES)
            problem: Any = json.loads(content) if kind == "application/problem+json" else None
            code, detail = problem["code"], problem["detail"]
            details = problem.get("details") or {}
            assert isinstance(code, str)
            assert isinstance(detail, str)
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, AssertionError):
            if status in (502, 503, 504):
                return RemoteError(
                    "LOG_UNAVAILABLE",
                    f"{self._address.text} answered {status}: the server behind it cannot be reached.",
                    is_lost=status != 503,
                    retry_after_s=1.0 if status == 503 else None,
                )
            return self._foreign(str(status))
        finally:
            self.close()
        wait = min(float(retry), MAX_RETRY_AFTER_S) if retry.isdecimal() and status in (429, 503) else None
        return RemoteError(code, detail, details, is_lost=code == "REQUEST_TIMED_OUT", retry_after_s=wait)
