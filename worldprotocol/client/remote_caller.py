"""Operations on a realm of a server, over one connection; a request whose answer was lost is sent again."""

from __future__ import annotations

import http.client
import os
import re
import time
from collections.abc import Mapping
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from worldprotocol.client.connection import CommandConnection, RemoteError
from worldprotocol.operations import AnswerForm, RequestForm
from worldprotocol.operations.declaring import Declared

__all__ = ["RemoteCaller"]

A = TypeVar("A", bound=AnswerForm)

REPEATED_FOR_S: Final = 30.0
"""Time in which a request is sent again whose answer was lost, or that the server wants later, in seconds."""

PAUSE_S: Final = 0.2
_MEMBER: Final = re.compile(r"\{(\w+)\}")


class RemoteCaller:
    """Operations on a realm of a server.

    Args:
        connection: the connection to the server.
        realm: the name of the realm there.
        actor: the actor that the server has to have verified; None leaves that to the server.
    """

    def __init__(self, connection: CommandConnection, realm: str, actor: str | None = None) -> None:
        self._connection = connection
        self._realm = realm
        self._actor = actor

    def call(self, operation: Declared[Any, A], request: RequestForm, key: str | None = None) -> A:
        """Return the answer to a request.

        Raises:
            RemoteError: what the server refuses; ``LOG_UNAVAILABLE`` without an answer.
        """
        path, body = _written(operation, request, self._realm)
        headers = {} if self._actor is None else {"Wp-Actor": quote(self._actor, safe="")}
        if operation.is_write:
            headers["Idempotency-Key"] = key or os.urandom(16).hex()
        end, was_lost = time.monotonic() + REPEATED_FOR_S, False
        while True:
            try:
                with self._connection.send(operation.method, path, body, headers) as answer:
                    return self._read(operation, answer)
            except RemoteError as error:
                was_lost = was_lost or error.is_lost
                wants_more = error.is_lost or error.retry_after_s is not None
                if not (wants_more or (was_lost and error.code == "LOG_UNAVAILABLE")):
                    raise
                if time.monotonic() + (error.retry_after_s or 0) > end:
                    raise
                time.sleep(error.retry_after_s or PAUSE_S)

    def _read(self, operation: Declared[Any, A], answer: http.client.HTTPResponse) -> A:
        try:
            return msgspec.json.decode(answer.read(), type=operation.answer)
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise self._connection.lost(error) from None
        except msgspec.DecodeError as error:
            raise RemoteError(
                "LOG_UNAVAILABLE",
                f"The server answered {operation.name} in another form: {error}. Use the release of the server.",
            ) from None


def _written(operation: Declared[Any, Any], request: RequestForm, realm: str) -> tuple[str, Mapping[str, Any] | None]:
    """Return the path of a request with its query, and its body."""
    members = dict(zip(request.__struct_fields__, request.__struct_encode_fields__, strict=True))
    given: dict[str, Any] = msgspec.to_builtins(request)
    values = {name: given.pop(members[name]) for name in _MEMBER.findall(operation.path) if name != "realm"}
    path = _MEMBER.sub(lambda at: quote(str({**values, "realm": realm}[at[1]]), safe=""), operation.path)
    shown = {name: given[name] for name in given if name in operation.unhashed or not operation.is_write}
    query = {name: str(value).lower() if isinstance(value, bool) else value for name, value in shown.items()}
    rest = {name: value for name, value in given.items() if name not in shown}
    return path + (f"?{urlencode(query)}" if query else ""), rest if operation.is_write else None
