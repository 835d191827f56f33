"""Operations: what can be asked of a realm and done in it, each declared once with request, answer and rights.

HTTP endpoints and the API description are derived from the declarations (``worldprotocol.server.endpoints``). A module
of a subject (``leases``, ``access``) imports the engine inside of its functions, so that importing it costs little.
Source: docs/contributing.md, "An HTTP endpoint, or a command on it".
"""

from __future__ import annotations

from worldprotocol.operations.calling import OperationCall
from worldprotocol.operations.declaring import (
    REALM,
    AnswerForm,
    Awaited,
    Example,
    InHeader,
    MediaContent,
    MediaType,
    Negotiated,
    Operation,
    Paged,
    RequestForm,
    Unhashed,
    operation,
)

__all__ = [
    "REALM",
    "AnswerForm",
    "Awaited",
    "Example",
    "InHeader",
    "MediaContent",
    "MediaType",
    "Negotiated",
    "Operation",
    "OperationCall",
    "Paged",
    "RequestForm",
    "Unhashed",
    "operation",
]
