"""JSON Schemas and examples of the answers, for the API description."""

from __future__ import annotations

from typing import Any, Final

from worldprotocol.server.answer_schemas import (
    FLAG,
    HOOK_ANSWER,
    ID,
    INT,
    OBJECT,
    TEXT,
    Schema,
    array,
    or_null,
    shape,
)

__all__ = ["ANSWERS", "BODIES", "PROBLEM", "SCHEMAS"]

_READINESS = shape("code cause busy holder", name=TEXT, ready=FLAG, code=TEXT, cause=TEXT, busy=FLAG, holder=OBJECT)
PROBLEM: Final = shape("details", type=TEXT, title=TEXT, status=INT, code=TEXT, detail=TEXT, details=OBJECT)
SCHEMAS: Final[dict[str, Schema]] = {
    "Problem": PROBLEM,
    "Event": shape(
        "stream version topic schemaVersion state redacted",
        position=INT,
        leaf=TEXT,
        stream=TEXT,
        version=INT,
        topic=TEXT,
        schemaVersion=INT,
        state=OBJECT,
        redacted=FLAG,
    ),
}
"""Schemas that several answers share."""


ANSWERS: Final[dict[str, tuple[Schema, Any]]] = {
    "realms.list": (
        shape(realms=array(shape("file", name=TEXT, actorId=TEXT, rights=array(TEXT), file=TEXT))),
        {"realms": [{"name": "shop", "actorId": "bot", "rights": ["actor", "reader"]}]},
    ),
    "realms.identity": (shape(name=TEXT, logId=TEXT), {"name": "shop", "logId": ID}),
    "hooks.call": (OBJECT, HOOK_ANSWER),
    "commands.run": (TEXT, '["out","No proposal waits.\\n"]\n["exit",0]\n'),
    "errors.read": (
        shape(type=TEXT, code=TEXT, title=TEXT, remedy=or_null(TEXT), status=INT, documentation=TEXT),
        {
            "type": "/v1/errors/RIGHT_MISSING",
            "code": "RIGHT_MISSING",
            "title": "the right is missing",
            "remedy": "an operator grants it",
            "status": 403,
            "documentation": "docs/errors.md",
        },
    ),
    "server.health": (shape(status=TEXT), {"status": "ok"}),
    "server.ready": (
        shape(status=TEXT, realms=array(_READINESS)),
        {"status": "ok", "realms": [{"name": "shop", "ready": True}]},
    ),
    "server.metrics": (TEXT, 'worldprotocol_log_events{realm="shop"} 7.0\n'),
}
"""Schema and example of the successful answer of each operation."""


BODIES: Final[dict[str, Any]] = {
    "hooks.call": {
        "hook_event_name": "PreToolUse",
        "session_id": "s-1",
        "cwd": "/project",
        "tool_name": "Read",
        "tool_input": {"file_path": "/project/src/app.py"},
        "tool_use_id": "toolu_01",
    },
    "commands.run": {"arguments": ["lease", "list", "--json"]},
}
"""Example of the body of each operation that has one."""
