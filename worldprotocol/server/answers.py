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
    WORLD,
    Schema,
    array,
    or_null,
    ref,
    shape,
)

__all__ = ["ANSWERS", "BODIES", "PROBLEM", "SCHEMAS", "STATUSES"]

_READINESS = shape("code cause busy holder", name=TEXT, ready=FLAG, code=TEXT, cause=TEXT, busy=FLAG, holder=OBJECT)
PROBLEM: Final = shape("details", type=TEXT, title=TEXT, status=INT, code=TEXT, detail=TEXT, details=OBJECT)
SCHEMAS: Final[dict[str, Schema]] = {
    "Problem": PROBLEM,
    "Proposal": shape(
        "actor intent branch baseWorld submittedAt ruling decision worldId error redacted events position history",
        proposalId=TEXT,
        status=TEXT,
        actor=OBJECT,
        intent=OBJECT,
        branch=TEXT,
        baseWorld=TEXT,
        submittedAt=INT,
        ruling=OBJECT,
        decision=OBJECT,
        worldId=TEXT,
        error=OBJECT,
        redacted=FLAG,
        events=array(OBJECT),
        position=INT,
        history=array(ref("Event")),
    ),
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

_PROPOSAL: Final = {
    "proposalId": ID,
    "status": "completed",
    "actor": ACTOR,
    "intent": {"body": {"type": "order.place", "input": {"item": "tea"}}, "intentId": "order-17"},
    "branch": "main",
    "baseWorld": WORLD,
    "submittedAt": 1_767_225_600_000,
}
_CLAIM: Final = {
    "claimId": ID, "proposalId": ID, "idempotencyKey": "order-17:" + HASH, "token": 19, "attempt": 1,
    "requirement": {
        "id": HASH, "type": "mail.send", "params": {"to": "rome"}, "actionId": "send", "nodePath": "actions.send.0",
    },
    "deadline": 1_767_225_635_000, "worker": "mailer-1", "timeLimitMs": 30_000, "idempotent": True,
    "intent": {
        "body": {"type": "send", "input": {"to": "rome"}}, "intentId": "order-17", "intentKey": HASH,
        "meta": {
            "origin": {"projectionId": "api:intent", "source": {"kind": "api", "eventId": ID}, "actor": ACTOR}
        },
    },
    "now": 1_767_225_600_000, "seed": "order-17", "onWorld": WORLD, "requestedAt": 1_767_225_600_000,
    "fencingToken": 0,
}  # fmt: skip
_OF_CLAIMS: Final = ("claimId", "token", "deadline", "worker", "timeLimitMs", "idempotent")
_DOUBT: Final = {name: value for name, value in _CLAIM.items() if name not in _OF_CLAIMS} | {
    "askedAt": 1_767_225_600_000
}
_CLAIMED: Final = (
    shape(claim=or_null(ref("EffectClaim")), now=INT, trace=or_null(OBJECT)),
    {"claim": _CLAIM, "now": 1_767_225_600_000, "trace": None},
)  # fmt: skip
_GOES_ON: Final = {"goesOn": True, "elsewhere": False}
_ANSWERED: Final = (ref("Proposal"), _PROPOSAL)

ANSWERS: Final[dict[str, tuple[Schema, Any]]] = {
    "realms.list": (
        shape(realms=array(shape("file", name=TEXT, actorId=TEXT, rights=array(TEXT), file=TEXT))),
        {"realms": [{"name": "shop", "actorId": "bot", "rights": ["actor", "reader"]}]},
    ),
    "realms.identity": (shape(name=TEXT, logId=TEXT), {"name": "shop", "logId": ID}),
    "intents.submit": _ANSWERED,
    "events.project": (
        shape(projectionId=or_null(TEXT), reason=or_null(TEXT), proposal=or_null(ref("Proposal"))),
        {"projectionId": "orders", "reason": None, "proposal": _PROPOSAL},
    ),
    "effects.list": (
        shape("inDoubt", effects=array(OBJECT), inDoubt=array(OBJECT)),
        {"effects": [{"proposalId": ID, "requirementId": HASH, "effect": "mail.send", "state": "offered"}]},
    ),
    "effects.doubts": (shape(doubts=array(OBJECT), unreadable=array(OBJECT)), {"doubts": [_DOUBT], "unreadable": []}),
    "effects.found": (shape(proposalId=TEXT, status=TEXT), {"proposalId": ID, "status": "completed"}),
    "effects.claim": _CLAIMED,
    "effects.heartbeat": _CLAIMED,
    "calls.report": (shape(proposalId=TEXT, status=TEXT), {"proposalId": ID, "status": "completed"}),
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
    "effects.complete": (shape(proposalId=TEXT, status=TEXT), {"proposalId": ID, "status": "completed"}),
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

STATUSES: Final[dict[str, tuple[int, ...]]] = {
    "intents.submit": (200, 202),
    "events.project": (200, 202),
}
"""Statuses of success other than 200 alone."""

BODIES: Final[dict[str, Any]] = {
    "intents.submit": {"type": "order.place", "input": {"item": "tea"}},
    "events.project": {"kind": "api", "eventId": "mail-17", "payload": {"text": "one tea"}},
    "effects.claim": {"worker": "mailer-1", "types": ["mail.send"]},
    "effects.heartbeat": {"claim": _CLAIM},
    "effects.found": {"doubt": _DOUBT, "report": {"result": {"value": {"receipt": "r-1"}}}},
    "effects.complete": {"claim": _CLAIM, "report": {"result": {"value": {"receipt": "r-1"}}}},
    "calls.report": {"claim": _CLAIM, "report": {"result": {"value": {"value": "paid"}}}},
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
}
"""Example of the body of each operation that has one."""
