"""JSON Schemas and examples of the answers, for the API description."""

from __future__ import annotations

from typing import Any, Final

from worldprotocol.server.answer_schemas import ACTOR as _ACTOR
from worldprotocol.server.answer_schemas import ANY, FLAG, INT, OBJECT, TEXT, Schema
from worldprotocol.server.answer_schemas import HASH as _HASH
from worldprotocol.server.answer_schemas import ID as _ID
from worldprotocol.server.answer_schemas import WORLD as _WORLD
from worldprotocol.server.answer_schemas import array as _array
from worldprotocol.server.answer_schemas import or_null as _or_null
from worldprotocol.server.answer_schemas import ref as _ref
from worldprotocol.server.answer_schemas import shape as _object
from worldprotocol.server.audit_answers import AUDIT_ANSWERS, AUDIT_BODIES, AUDIT_STATUSES

__all__ = ["ANSWERS", "BODIES", "PROBLEM", "SCHEMAS", "STATUSES"]

_LEASE = {"leaseId": _ID, "token": 12, "predicate": "MUTATES", "resource": "FILE:/docs/plan"}

PROBLEM: Final = _object("details", type=TEXT, title=TEXT, status=INT, code=TEXT, detail=TEXT, details=OBJECT)
SCHEMAS: Final[dict[str, Schema]] = {
    "Problem": PROBLEM,
    "Proposal": _object(
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
        events=_array(OBJECT),
        position=INT,
        history=_array(_ref("Event")),
    ),
    "EffectClaim": _object(
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
    "World": _object(
        "createdBy createdAt contentId schemaHash snapshotHash patches error redacted leaf heads tips",
        heads=_array(TEXT),
        tips=_array(TEXT),
        worldId=TEXT,
        parent=_or_null(TEXT),
        height=INT,
        position=INT,
        branch=_or_null(TEXT),
        outcome=TEXT,
        createdBy=_or_null(TEXT),
        createdAt=INT,
        contentId=TEXT,
        schemaHash=TEXT,
        snapshotHash=TEXT,
        patches=_array(OBJECT),
        error=_or_null(OBJECT),
        redacted=FLAG,
        leaf=TEXT,
    ),
    "Event": _object(
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
    "Verdict": _object(
        "priorities event after",
        verdictId=TEXT,
        requestId=TEXT,
        status=TEXT,
        agentId=TEXT,
        sessionId=TEXT,
        queued=FLAG,
        ttlMs=_or_null(INT),
        retryAfterMs=_or_null(INT),
        leases=_array(OBJECT),
        conflicts=_array(OBJECT),
        priorities=OBJECT,
        event=_ref("Recorded"),
        after=INT,
    ),
    "Recorded": _object(topic=TEXT, schemaVersion=INT, state=OBJECT),
    "Entry": _object(
        "history",
        history=_array(_ref("Event")),
        proposalId=TEXT,
        actor=OBJECT,
        wants=OBJECT,
        branch=TEXT,
        since=INT,
        deadline=_or_null(INT),
        overdue=FLAG,
        onTimeout=_or_null(TEXT),
        waitsFor=_array(TEXT),
        authority=TEXT,
        reason=TEXT,
        rules=_array(OBJECT),
        answers=_array(OBJECT),
        preview=OBJECT,
        shown=TEXT,
    ),
}
"""Schemas that several answers share."""

_PROPOSAL: Final = {
    "proposalId": _ID,
    "status": "completed",
    "actor": _ACTOR,
    "intent": {"body": {"type": "order.place", "input": {"item": "tea"}}, "intentId": "order-17"},
    "branch": "main",
    "baseWorld": _WORLD,
    "submittedAt": 1_767_225_600_000,
}
_ROW: Final = {
    "worldId": _WORLD, "parent": None, "height": 0, "position": 6, "branch": "main", "outcome": "completed",
}  # fmt: skip
_EVENT: Final = {
    "position": 7, "stream": "realm", "version": 4, "topic": "actor.registered", "schemaVersion": 1,
    "state": {"actor": _ACTOR, "at": 1_767_225_600_000, "by": "operator"}, "leaf": _HASH,
}  # fmt: skip
_ENTRY: Final[dict[str, Any]] = {
    "proposalId": _ID, "actor": _ACTOR, "wants": {"type": "order.place", "input": {"item": "tea"}}, "branch": "main",
    "since": 1_767_225_600_000, "deadline": None, "overdue": False, "onTimeout": "reject", "waitsFor": ["ann"],
    "authority": "hitl", "reason": "a person decides", "rules": [], "answers": [],
    "preview": {
        "status": "completed", "onWorld": _WORLD, "changes": [{"path": "orders.1", "after": {"item": "tea"}}],
        "moreChanges": False, "changesHash": _HASH, "error": None, "effects": [],
        "leases": [{"predicate": "MUTATES", "resource": "STATE:main/orders"}],
    },
    "shown": _HASH,
}  # fmt: skip
_VERDICT: Final = {
    "verdictId": _ID, "requestId": _ID, "status": "Granted", "agentId": "bot", "sessionId": "s-1", "queued": False,
    "ttlMs": 60_000, "retryAfterMs": None, "leases": [_LEASE], "conflicts": [],
}  # fmt: skip
_CLAIM: Final = {
    "claimId": _ID, "proposalId": _ID, "idempotencyKey": "order-17:" + _HASH, "token": 19, "attempt": 1,
    "requirement": {
        "id": _HASH, "type": "mail.send", "params": {"to": "rome"}, "actionId": "send", "nodePath": "actions.send.0",
    },
    "deadline": 1_767_225_635_000, "worker": "mailer-1", "timeLimitMs": 30_000, "idempotent": True,
    "intent": {
        "body": {"type": "send", "input": {"to": "rome"}}, "intentId": "order-17", "intentKey": _HASH,
        "meta": {
            "origin": {"projectionId": "api:intent", "source": {"kind": "api", "eventId": _ID}, "actor": _ACTOR}
        },
    },
    "now": 1_767_225_600_000, "seed": "order-17", "onWorld": _WORLD, "requestedAt": 1_767_225_600_000,
    "fencingToken": 0,
}  # fmt: skip
_CLAIMED: Final = (
    _object(claim=_or_null(_ref("EffectClaim")), now=INT, trace=_or_null(OBJECT)),
    {"claim": _CLAIM, "now": 1_767_225_600_000, "trace": None},
)  # fmt: skip
_ANSWERED: Final = (_ref("Proposal"), _PROPOSAL)

ANSWERS: Final[dict[str, tuple[Schema, Any]]] = {
    "realms.list": (
        _object(realms=_array(_object("file", name=TEXT, actorId=TEXT, rights=_array(TEXT), file=TEXT))),
        {"realms": [{"name": "shop", "actorId": "bot", "rights": ["actor", "reader"]}]},
    ),
    "realms.read": (
        _object(
            "actor",
            actor=_or_null(OBJECT),
            name=TEXT,
            logId=_or_null(TEXT),
            position=INT,
            schemaHash=TEXT,
            activeBranch=_or_null(TEXT),
            epoch=INT,
            actorId=TEXT,
            rights=_array(TEXT),
        ),
        {
            "name": "shop",
            "logId": _ID,
            "position": 7,
            "schemaHash": _HASH,
            "activeBranch": "main",
            "epoch": 0,
            "actorId": "bot",
            "actor": _ACTOR,
            "rights": ["reader"],
        },
    ),
    "actions.list": (
        _object(
            "explanations",
            kind=TEXT,
            schemaHash=TEXT,
            catalogHash=TEXT,
            actions=_array(OBJECT),
            explanations=_array(OBJECT),
        ),
        {
            "kind": "action_catalog",
            "schemaHash": _HASH,
            "catalogHash": _HASH,
            "actions": [{"type": "order.place", "availability": {"status": "available"}}],
        },
    ),
    "intents.submit": _ANSWERED,
    "events.project": (
        _object(projectionId=_or_null(TEXT), reason=_or_null(TEXT), proposal=_or_null(_ref("Proposal"))),
        {"projectionId": "orders", "reason": None, "proposal": _PROPOSAL},
    ),
    "proposals.list": (
        _object("archivedUpto", proposals=_array(_ref("Proposal")), archivedUpto=INT, next=_or_null(INT)),
        {"proposals": [{"position": 9, **_PROPOSAL}], "next": None},
    ),
    "proposals.read": _ANSWERED,
    "proposals.preview": (
        _object(
            status=TEXT,
            onWorld=TEXT,
            changes=_array(OBJECT),
            moreChanges=FLAG,
            changesHash=TEXT,
            error=_or_null(OBJECT),
            effects=_array(OBJECT),
            leases=_array(OBJECT),
            before=OBJECT,
            after=OBJECT,
        ),
        {**_ENTRY["preview"], "before": {"orders": {}}, "after": {"orders": {"1": {"item": "tea"}}}},
    ),
    "proposals.answer": _ANSWERED,
    "proposals.cancel": _ANSWERED,
    "proposals.settle": _ANSWERED,
    "inbox.list": (_object(inbox=_array(_ref("Entry")), more=FLAG), {"inbox": [_ENTRY], "more": False}),
    "worlds.list": (_object(worlds=_array(_ref("World"))), {"worlds": [_ROW]}),
    "worlds.read": (_ref("World"), {**_ROW, "patches": [], "createdBy": None}),
    "worlds.state": (
        _object("path", worldId=TEXT, path=TEXT, value=ANY),
        {"worldId": _WORLD, "path": "orders.1.item", "value": "tea"},
    ),
    "worlds.computed": (
        _object(worldId=TEXT, values=OBJECT, byOtherCode=_array(TEXT), missing=_array(TEXT), why=_or_null(TEXT)),
        {"worldId": _WORLD, "values": {"computed.total": 3}, "byOtherCode": [], "missing": [], "why": None},
    ),
    "worlds.diff": (
        _object(a=TEXT, b=TEXT, commonAncestor=TEXT, same=FLAG, changes=_array(OBJECT)),
        {"a": _WORLD, "b": _HASH, "commonAncestor": _WORLD, "same": False, "changes": [{"path": "orders.1"}]},
    ),
    "worlds.blame": (OBJECT, {"path": "orders.1.item", "worldId": _WORLD}),
    "branches.list": (
        _object(branches=_array(_object(name=TEXT, head=TEXT, tip=TEXT, active=FLAG))),
        {"branches": [{"name": "main", "head": _WORLD, "tip": _WORLD, "active": True}]},
    ),
    "branches.create": (_object(name=TEXT), {"name": "plan"}),
    "branches.switch": (_object(active=TEXT), {"active": "plan"}),
    "leases.list": (_object(leases=_array(OBJECT)), {"leases": [{**_LEASE, "agentId": "bot", "sessionId": "s-1"}]}),
    "leases.waits": (_object(waits=_array(OBJECT)), {"waits": []}),
    "leases.held": (_object(leases=_array(OBJECT)), {"leases": [{**_LEASE, "agentId": "bot", "sessionId": "s-1"}]}),
    "leases.request": (
        _object(requestId=TEXT, isWaiting=FLAG, verdict=_or_null(_ref("Verdict")), withdrawn=_or_null(TEXT)),
        {"requestId": _ID, "isWaiting": False, "verdict": _VERDICT, "withdrawn": None},
    ),
    "leases.withdraw": (_object(requestId=TEXT, withdrawn=FLAG), {"requestId": _ID, "withdrawn": True}),
    "leases.acquire": (_ref("Verdict"), {**_VERDICT, "priorities": {"bot": 1_767_225_600_000}, "after": 40}),
    "leases.heartbeat": (
        _object(leases=_array(_object("event", leaseId=TEXT, expiresAt=INT, event=_ref("Recorded")))),
        {"leases": [{"leaseId": _ID, "expiresAt": 1_767_225_660_000}]},
    ),
    "leases.release": (_object(states=OBJECT), {"states": {_ID: "Released"}}),
    "leases.revoke": (_object(states=OBJECT), {"states": {_ID: "Revoked"}}),
    "effects.list": (
        _object("inDoubt", effects=_array(OBJECT), inDoubt=_array(OBJECT)),
        {"effects": [{"proposalId": _ID, "requirementId": _HASH, "effect": "mail.send", "state": "offered"}]},
    ),
    "effects.claim": _CLAIMED,
    "effects.heartbeat": _CLAIMED,
    "calls.report": (_object(proposalId=TEXT, status=TEXT), {"proposalId": _ID, "status": "completed"}),
    "calls.begin": (
        _object(
            "proposalId code reason result waitsFor claim",
            answer=TEXT,
            proposalId=TEXT,
            code=TEXT,
            reason=TEXT,
            result=_or_null(OBJECT),
            waitsFor=TEXT,
            claim=_ref("EffectClaim"),
        ),
        {"answer": "waiting", "proposalId": _ID, "waitsFor": "an answer of ann"},
    ),
    "hooks.call": (
        OBJECT,
        {
            "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": "allow",
                "permissionDecisionReason": f"Allowed by proposal {_ID}.",
            }
        },
    ),
    "mcp.pins": (
        _object(server=TEXT, pins=_or_null(OBJECT)),
        {"server": "git", "pins": {"instructions": None, "tools": {"git_status": {"name": "git_status"}}}},
    ),
    "effects.complete": (_object(proposalId=TEXT, status=TEXT), {"proposalId": _ID, "status": "completed"}),
    "commands.run": (TEXT, '["out","No proposal waits.\\n"]\n["exit",0]\n'),
    "log.read": (
        _object(
            "archivedUpto", events=_array(_ref("Event")), after=INT, upto=INT, archivedUpto=INT, next=_or_null(INT)
        ),
        {"events": [_EVENT], "after": 0, "upto": 7, "next": None},
    ),
    "log.stream": (TEXT, 'id: 7\nevent: actor.registered\ndata: {"position": 7}\n\n'),
    "checkpoint.read": (TEXT, "world-protocol/shop\n7\nW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1s=\n"),
    "receipts.read": (OBJECT, {"worldProtocol": "receipt"}),
    "receipts.find": (OBJECT, {"worldProtocol": "receipt"}),
    **AUDIT_ANSWERS,
    "tokens.list": (
        _object(tokens=_array(_ref("Recorded"))),
        {"tokens": [{"topic": "token.created", "schemaVersion": 1, "state": {"tokenId": _ID, "actorId": "bot"}}]},
    ),
    "errors.read": (
        _object(type=TEXT, code=TEXT, title=TEXT, remedy=_or_null(TEXT), status=INT, documentation=TEXT),
        {
            "type": "/v1/errors/RIGHT_MISSING",
            "code": "RIGHT_MISSING",
            "title": "the right is missing",
            "remedy": "an operator grants it",
            "status": 403,
            "documentation": "docs/errors.md",
        },
    ),
    "server.health": (_object(status=TEXT), {"status": "ok"}),
    "server.ready": (_object(status=TEXT, realms=INT), {"status": "ok", "realms": 1}),
    "server.metrics": (TEXT, 'worldprotocol_log_events{realm="shop"} 7.0\n'),
}
"""Schema and example of the successful answer of each operation."""

STATUSES: Final[dict[str, tuple[int, ...]]] = {
    "intents.submit": (200, 202),
    "events.project": (200, 202),
    "proposals.answer": (200, 202),
    "proposals.cancel": (200, 202),
    "proposals.settle": (200, 202),
    "leases.acquire": (200, 202),
    "branches.create": (201,),
    **AUDIT_STATUSES,
    "worlds.state": (200, 304),
}
"""Statuses of success other than 200 alone."""

BODIES: Final[dict[str, Any]] = {
    "intents.submit": {"type": "order.place", "input": {"item": "tea"}},
    "events.project": {"kind": "api", "eventId": "mail-17", "payload": {"text": "one tea"}},
    "proposals.answer": {"choice": "approve", "reason": "agreed"},
    "proposals.cancel": {"reason": "no longer wanted"},
    "proposals.settle": {"choice": "fail", "reason": "the supplier has no record of it"},
    "branches.create": {"name": "plan"},
    "branches.switch": {"name": "plan"},
    "leases.acquire": {"resources": ["FILE:/docs/plan"], "sessionId": "s-1"},
    "leases.withdraw": {"after": 40},
    "leases.heartbeat": {"leaseIds": [_ID], "sessionId": "s-1"},
    "leases.release": {"leaseIds": [_ID], "sessionId": "s-1"},
    "effects.claim": {"worker": "mailer-1", "types": ["mail.send"]},
    "effects.heartbeat": {"claim": _CLAIM},
    "effects.complete": {"claim": _CLAIM, "report": {"result": {"value": {"receipt": "r-1"}}}},
    "calls.report": {"claim": _CLAIM, "report": {"result": {"value": {"value": "paid"}}}},
    "calls.begin": {
        "action": "tool.use",
        "input": {"tool": "refund", "arguments": {"order": "o-1"}},
        "attempt": "1",
    },
    "hooks.call": {
        "hook_event_name": "PreToolUse",
        "session_id": "s-1",
        "cwd": "/project",
        "tool_name": "Read",
        "tool_input": {"file_path": "/project/src/app.py"},
        "tool_use_id": "toolu_01",
    },
    "commands.run": {"arguments": ["lease", "list", "--json"]},
    **AUDIT_BODIES,
    "leases.revoke": {"leaseIds": [_ID], "reason": "the holder is gone"},
}
"""Example of the body of each operation that has one."""
