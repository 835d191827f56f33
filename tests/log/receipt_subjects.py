"""Subjects of receipts in a log, one of every kind of which the log has one."""

from __future__ import annotations

import json
from typing import Any

from worldprotocol.api.realm import Realm
from worldprotocol.export.proofs.receipt import EVENT, SUBJECTS, Subject


def subjects(world: Realm) -> list[Subject]:
    """Return one subject of every kind of which the log has one."""
    found: dict[str, Subject] = {}
    for event in world.log.read():
        state = json.loads(event.state)
        for kind, (topic, field) in SUBJECTS.items():
            if topic == event.topic:
                name: Any = state
                for step in field.split("."):
                    name = name[step]
                found[kind] = Subject(kind, name, event.position)
    last = world.log.head().size
    return [*found.values(), Subject(EVENT, "1", 1), Subject(EVENT, str(last), last)]
