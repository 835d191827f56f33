"""Decisions and outcomes as OCSF events, validated against the JSON Schema of the class API Activity."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import jsonschema
import pytest
from ocsf_json_schema import OcsfJsonSchemaEmbedded, get_ocsf_schema

from tests.feeds.feeding import Feeding, act, deliver
from worldprotocol.export.ocsf import OCSF_VERSION


@cache
def schema() -> dict[str, Any]:
    """Return the whole schema."""
    found: dict[str, Any] = get_ocsf_schema(version=OCSF_VERSION)
    return found


@cache
def validator() -> jsonschema.Draft202012Validator:
    """Return the validator of the class; it takes no member that the schema does not have."""
    schemas = OcsfJsonSchemaEmbedded(schema())
    made = schemas.get_class_schema(schemas.lookup_class_name_from_uid(6003), profiles=["security_control"])
    return jsonschema.Draft202012Validator(made)


def caption(attribute: str, value: int) -> str:
    """Return what the schema calls a value of an enumeration."""
    attributes = schema()["classes"]["api_activity"]["attributes"]
    return str(attributes[attribute]["enum"][str(value)]["caption"])


def activities(fed: Feeding, settings: str = "") -> list[dict[str, Any]]:
    """Return the OCSF events of a feed, each valid."""
    deliver(fed.feed(f'file = "ocsf.jsonl"\nformat = "ocsf"\n{settings}'))
    found = [json.loads(line) for line in (fed.folder / "ocsf.jsonl").read_text().splitlines()]
    for one in found:
        assert [error.message for error in validator().iter_errors(one)] == []
    return found


@pytest.fixture
def decided(fed: Feeding) -> Feeding:
    """Return a realm with a proposal that completed, one that failed, and one that was rejected."""
    act(fed.realm)
    assert fed.realm.act("ada", "add", {"count": 1_000}).status == "failed"
    assert fed.realm.act("bot", "add", {"count": 1}).status == "rejected"
    return fed


def test_a_denied_decision_is_blocked_and_each_outcome_has_its_status(decided: Feeding) -> None:
    found = activities(decided)
    told = [
        (one["metadata"]["event_code"], one["actor"]["user"]["uid"], one["action"], one["disposition"], one["status"])
        for one in found
    ]
    assert told == [
        ("decision.made", "ada", "Allowed", "Allowed", "Approved"),
        ("proposal.completed", "ada", "Allowed", "Allowed", "Success"),
        ("decision.made", "ada", "Allowed", "Allowed", "Approved"),
        ("proposal.failed", "ada", "Allowed", "Allowed", "Failure"),
        ("decision.made", "bot", "Denied", "Blocked", "Failure"),
    ]
    blocked = found[-1]
    assert (blocked["disposition_id"], blocked["action_id"], blocked["type_uid"]) == (2, 2, 600399)
    assert blocked["api"]["operation"] == "add"
    assert blocked["status_detail"] == "nothing_passes: closed today"
    assert blocked["unmapped"]["rules"] == ["nothing_passes"]
    assert blocked["actor"]["user"]["type"] == "Service"
    failed = found[-2]
    assert (failed["status_code"], failed["api"]["response"]["error"]) == ("TOO_MANY", "TOO_MANY")
    assert failed["metadata"]["correlation_uid"] == found[-3]["metadata"]["correlation_uid"]


def test_captions_are_those_of_the_schema(decided: Feeding) -> None:
    for one in activities(decided):
        for name in ("action", "disposition", "severity"):
            assert one[name] == caption(f"{name}_id", one[f"{name}_id"])
        for name in ("class", "category"):
            assert one[f"{name}_name"] == caption(f"{name}_uid", one[f"{name}_uid"])
        assert one["type_name"] == f"{one['class_name']}: {caption('activity_id', one['activity_id'])}"
        assert one["status"] == ("Approved" if one["status_id"] == 99 else caption("status_id", one["status_id"]))


def test_events_are_identified_and_in_the_order_of_the_log(decided: Feeding) -> None:
    found = activities(decided)
    topics = ["decision.made", "proposal.completed", "proposal.failed"]
    logged = list(decided.realm.log.read(topics=topics))
    assert [one["metadata"]["sequence"] for one in found] == [event.position for event in logged]
    assert len({one["metadata"]["uid"] for one in found}) == len(found)
    assert [one["unmapped"]["leaf"] for one in found] == [event.leaf.hex() for event in logged]


def test_an_ocsf_feed_shows_nothing_of_hidden_events(decided: Feeding) -> None:
    found = activities(decided, 'redact = ["inputs"]')
    assert {one["metadata"]["event_code"] for one in found} == {"decision.made", "proposal.completed"}
    text = json.dumps(found)
    assert '"ada"' not in text  # it is in the submissions, which are hidden
    assert {one["api"]["operation"] for one in found} == {"redacted"}
    assert activities(decided, 'redact = ["topic=*"]\nstate = "other.state"') == found  # nothing was added


def test_the_validator_finds_what_is_wrong(decided: Feeding) -> None:
    event = activities(decided)[-1]
    changes: list[dict[str, Any]] = [{"disposition_id": 77}, {"colour": "red"}, {"metadata": {}}, {"actor": {}}]
    for wrong in changes:
        assert list(validator().iter_errors(event | wrong)) != []
