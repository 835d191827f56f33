"""What performs operations."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from worldprotocol.operations import AnswerForm, RequestForm
from worldprotocol.operations.declaring import Declared

__all__ = ["OperationCaller"]

A = TypeVar("A", bound=AnswerForm)


class OperationCaller(Protocol):
    """Performs operations, here or on a server."""

    def call(self, operation: Declared[Any, A], request: RequestForm, key: str | None = None) -> A:
        """Return the answer to a request.

        Args:
            operation: the operation.
            request: a request of its type.
            key: key of the request, by which an equal one of the caller is recognised; None chooses one.

        Raises:
            WorldProtocolError: what the operation refuses; over a server ``LOG_UNAVAILABLE`` without an answer.
        """
        ...
