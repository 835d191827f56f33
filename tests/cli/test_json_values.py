"""JSON output shows a value of the engine by its wire form, never by its representation."""

from __future__ import annotations

import json

from world.events.resource_values import GrantedLease
from worldprotocol.json_text import as_text


def test_a_typed_value_inside_of_a_document_is_printed_as_its_wire_form() -> None:
    lease = GrantedLease(predicate="MUTATES", resource="FILE:/a", lease_id="l1", token=3)
    assert json.loads(as_text({"leases": [lease]})) == {"leases": [lease.to_wire()]}
    assert lease.to_wire()["leaseId"] == "l1"
