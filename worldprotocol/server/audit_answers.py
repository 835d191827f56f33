"""JSON Schemas and examples of the answers to auditors, for the API description."""

from __future__ import annotations

from typing import Any, Final

from worldprotocol.server.answer_schemas import ACTOR, HASH, ID, INT, OBJECT, TEXT, Schema, array, or_null, shape

__all__ = ["AUDIT_ANSWERS", "CLOUD_EVENTS"]

_MEMBERS: Final[dict[str, Schema]] = {
    "jobId": TEXT, "kind": {"enum": ["verify", "recheck", "whatif", "backtest"]},
    "status": {"enum": ["running", "done", "failed", "cancelled"]}, "options": OBJECT, "by": TEXT, "startedAt": INT,
    "endedAt": or_null(INT), "done": INT, "total": INT, "error": or_null(shape(code=TEXT, message=TEXT)),
}  # fmt: skip
_STATE: Final = {
    "jobId": ID, "kind": "verify", "status": "running", "options": {"against": []}, "by": "aud",
    "startedAt": 1_767_225_600_000, "endedAt": None, "done": 512, "total": 2_048, "error": None,
}  # fmt: skip


def _job(**more: Schema) -> Schema:
    """Return the schema of a job with further members."""
    members = {**_MEMBERS, **more}
    return {"type": "object", "properties": members, "required": list(members)}


_JOB: Final = (_job(result=or_null(OBJECT)), {**_STATE, "result": None})
_VERIFICATION: Final = (
    _job(result=or_null(OBJECT), checked=INT, report=or_null(OBJECT)),
    {**_STATE, "result": None, "checked": 512, "report": None},
)

CLOUD_EVENTS: Final = (
    array(
        shape(
            "subject datacontenttype time traceparent schemaversion streamversion data",
            specversion={"const": "1.0"},
            id=TEXT,
            source=TEXT,
            type=TEXT,
            leaf=TEXT,
            subject=TEXT,
            datacontenttype=TEXT,
            time={"type": "string", "format": "date-time"},
            traceparent=TEXT,
            schemaversion=INT,
            streamversion=INT,
            data=OBJECT,
        )
    ),
    [
        {
            "specversion": "1.0",
            "id": "7",
            "source": f"urn:world-protocol:log:{ID}",
            "type": "world-protocol.actor.registered",
            "subject": "realm",
            "datacontenttype": "application/json",
            "time": "2026-01-01T00:00:00.000Z",
            "leaf": HASH,
            "schemaversion": 1,
            "streamversion": 4,
            "data": {"actor": ACTOR},
        }
    ],
)
"""Schema and example of events as CloudEvents."""

AUDIT_ANSWERS: Final[dict[str, tuple[Schema, Any]]] = {
    "verify.start": _VERIFICATION,
    "verify.read": _VERIFICATION,
    "verify.stream": (TEXT, 'event: ended\ndata: {"status": "done"}\n\n'),
    "recheck.start": _JOB,
    "whatif.start": _JOB,
    "backtest.start": _JOB,
    "jobs.list": (shape(jobs=array(_job())), {"jobs": [_STATE]}),
    "jobs.read": _JOB,
    "jobs.stream": (TEXT, 'event: ended\ndata: {"status": "done"}\n\n'),
    "jobs.cancel": _JOB,
}
"""Schema and example of the successful answer of each operation."""
