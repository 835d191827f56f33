"""JSON Schema and example of events as CloudEvents, for the API description."""

from __future__ import annotations

from typing import Final

from worldprotocol.server.answer_schemas import ACTOR, HASH, ID, INT, OBJECT, TEXT, array, shape

__all__ = ["CLOUD_EVENTS"]

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
