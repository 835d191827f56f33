"""JSON Schemas and examples of the answers, for the API description."""

from __future__ import annotations

from typing import Any, Final

from worldprotocol.server.answer_schemas import (
    ACTOR,
    FLAG,
    HASH,
    HOOK_ANSWER,
    ID,
    INT,
    OBJECT,
    RUN_TERMS,
    TEXT,
    Schema,
    array,
    or_null,
    ref,
    shape,
)
from worldprotocol.server.audit_answers import AUDIT_ANSWERS

__all__ = ["ANSWERS", "BODIES", "PROBLEM", "SCHEMAS", "STATUSES"]

_READINESS = shape("code cause busy holder", name=TEXT, ready=FLAG, code=TEXT, cause=TEXT, busy=FLAG, holder=OBJECT)
PROBLEM: Final = shape("details", type=TEXT, title=TEXT, status=INT, code=TEXT, detail=TEXT, details=OBJECT)
SCHEMAS: Final[dict[str, Schema]] = {
    "Problem": PROBLEM,
    "EffectClaim": shape(
        "subject workspace",
        claimId=TEXT,
        proposalId=TEXT,
        requirement=OBJECT,
        idempotencyKey=TEXT,
        token=INT,
        attempt=INT,
        deadline=INT,
        worker=TEXT,
        timeLimitMs=INT,
        idempotent=FLAG,
        intent=OBJECT,
        now=INT,
        seed=TEXT,
        onWorld=TEXT,
        requestedAt=INT,
        fencingToken=INT,
        workspace=TEXT,
        subject=TEXT,
    ),
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

_EVENT: Final = {
    "position": 7, "stream": "realm", "version": 4, "topic": "actor.registered", "schemaVersion": 1,
    "state": {"actor": ACTOR, "at": 1_767_225_600_000, "by": "operator"}, "leaf": HASH,
}  # fmt: skip
_GOES_ON: Final = {"goesOn": True, "elsewhere": False}

ANSWERS: Final[dict[str, tuple[Schema, Any]]] = {
    "realms.list": (
        shape(realms=array(shape("file", name=TEXT, actorId=TEXT, rights=array(TEXT), file=TEXT))),
        {"realms": [{"name": "shop", "actorId": "bot", "rights": ["actor", "reader"]}]},
    ),
    "realms.identity": (shape(name=TEXT, logId=TEXT), {"name": "shop", "logId": ID}),
    "calls.begin": (
        shape(
            "proposalId code reason result waitsFor claim",
            answer=TEXT,
            proposalId=TEXT,
            code=TEXT,
            reason=TEXT,
            result=or_null(OBJECT),
            waitsFor=TEXT,
            claim=ref("EffectClaim"),
        ),
        {"answer": "waiting", "proposalId": ID, "waitsFor": "an answer of ann"},
    ),
    "calls.run": RUN_TERMS,
    "calls.extend": (shape("inputsChanged", goesOn=FLAG, elsewhere=FLAG, inputsChanged=array(TEXT)), _GOES_ON),
    "sessions.renew": (shape(renewed=INT, elsewhere=array(TEXT), now=INT), {"renewed": 1, "elsewhere": [], "now": 0}),
    "sessions.end": (shape(calls=array(TEXT)), {"calls": [ID]}),
    "calls.end": (
        shape(proposalId=TEXT, status=TEXT, inputsChanged=array(TEXT)),
        {"proposalId": ID, "status": "completed", "inputsChanged": ["FILE:/src/app.py"]},
    ),
    "hooks.call": (OBJECT, HOOK_ANSWER),
    "mcp.pins": (
        shape(server=TEXT, pins=or_null(OBJECT)),
        {"server": "git", "pins": {"instructions": None, "tools": {"git_status": {"name": "git_status"}}}},
    ),
    "commands.run": (TEXT, '["out","No proposal waits.\\n"]\n["exit",0]\n'),
    "log.read": (
        shape("archivedUpto", events=array(ref("Event")), after=INT, upto=INT, archivedUpto=INT, next=or_null(INT)),
        {"events": [_EVENT], "after": 0, "upto": 7, "next": None},
    ),
    "log.stream": (TEXT, 'id: 7\nevent: actor.registered\ndata: {"position": 7}\n\n'),
    "checkpoint.read": (TEXT, "world-protocol/shop\n7\nW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1s=\n"),
    "receipts.read": (OBJECT, {"worldProtocol": "receipt"}),
    "receipts.find": (OBJECT, {"worldProtocol": "receipt"}),
    **AUDIT_ANSWERS,
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

STATUSES: Final[dict[str, tuple[int, ...]]] = {
    **dict.fromkeys(("tiles.read", "tiles.entries", "log.read"), (200, 304)),
    **dict.fromkeys(("verify.start", "recheck.start", "whatif.start", "backtest.start"), (202,)),
}
"""Statuses of success other than 200 alone."""

BODIES: Final[dict[str, Any]] = {
    "calls.begin": {"action": "tool.use", "input": {"tool": "refund", "arguments": {"order": "o-1"}}, "attempt": "1"},
    "calls.run": {"key": "claude-code:s-1:toolu_01", "text": "make", "boundary": "namespaces"},
    "calls.extend": {"key": "claude-code:s-1:toolu_01"},
    "sessions.renew": {"sessions": ["s-1"]},
    "sessions.end": {"session": "s-1", "noticedBy": "process"},
    "calls.end": {"key": "claude-code:s-1:toolu_01", "exitCode": 0, "heldBy": ["namespaces"]},
    "hooks.call": {
        "hook_event_name": "PreToolUse",
        "session_id": "s-1",
        "cwd": "/project",
        "tool_name": "Read",
        "tool_input": {"file_path": "/project/src/app.py"},
        "tool_use_id": "toolu_01",
    },
    "commands.run": {"arguments": ["lease", "list", "--json"]},
    "verify.start": {},
    "recheck.start": {"all": True, "upto": 400},
    "jobs.cancel": {},
    "whatif.start": {"drop": [ID]},
    "backtest.start": {
        "policyText": 'name = "draft"\n[[rules]]\nid = "all"\nverdict = "approve"\n',
        "policyFormat": "toml",
        "since": "3d",
        "last": 200,
    },
}
"""Example of the body of each operation that has one."""
