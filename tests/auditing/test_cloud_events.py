"""Events as CloudEvents 1.0, read by the SDK of the specification; also in streams and with redaction."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from cloudevents.core.v1.event import CloudEvent

from tests.auditing.audited import founded_audited, ordered
from tests.server.kiosk import handlers, kiosk
from tests.server.served import ORDER, PATH, Served, serving
from worldprotocol.api.realm import Realm

LIMITS = "requests_per_second = 10000\nburst = 10000"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Return a server of a realm with a traced proposal, and a reader that sees no inputs."""
    place = founded_audited(tmp_path_factory.mktemp("cloud"), LIMITS)
    with Realm.open(place.log, domain=kiosk, effects=handlers, on_change="hold") as realm:
        realm.access.grant("yak", "reader", by="operator", redaction=["inputs"])
    with serving(place) as running:
        with running.client("kid") as kid:
            traced = kid.post(f"{PATH}/intents", json=ORDER, headers={"traceparent": TRACE, "Idempotency-Key": "t-1"})
            assert traced.status_code == 200
        ordered(running, "pol", "tea", "one")
        yield running


def read_by_sdk(form: Any) -> CloudEvent:
    """Return what the SDK reads of an event in structured mode, which it validates."""
    body = json.dumps(form).encode()
    found = from_http_event(HTTPMessage({"content-type": "application/cloudevents+json"}, body))
    assert isinstance(found, CloudEvent)
    return found


def batches(served: Served, actor: str, limit: int = 500, **query: Any) -> list[Any]:
    """Return all events as CloudEvents, following the links."""
    found: list[Any] = []
    with served.client(actor) as client:
        answer = client.get(f"{PATH}/log", params={"format": "cloudevents", "limit": limit, **query})
        while True:
            assert answer.status_code == 200, answer.text
            assert answer.headers["content-type"] == "application/cloudevents-batch+json"
            found += answer.json()
            if "next" not in answer.links:
                return found
            answer = client.get(answer.links["next"]["url"])


def plain(served: Served, actor: str, **query: Any) -> list[Any]:
    with served.client(actor) as client:
        events: list[Any] = client.get(f"{PATH}/log", params={"limit": 500, **query}).json()["events"]
    return events


@pytest.mark.parametrize("actor", ["aud", "yak"])
def test_every_event_is_a_cloud_event_with_all_that_the_log_shows(audited: Served, actor: str) -> None:
    forms, events = batches(audited, actor), plain(audited, actor)
    assert len(forms) == len(events) > 70
    sources = set()
    for form, event in zip(forms, events, strict=True):
        read = read_by_sdk(form)
        sources.add(read.get_source())
        assert read.get_id() == str(event["position"])
        assert read.get_extension("leaf") == event["leaf"]
        if "redacted" in event:
            assert form.keys() == {"specversion", "id", "source", "type", "leaf"}
            assert read.get_type() == "world-protocol.redacted"
            continue
        assert read.get_type() == f"world-protocol.{event['topic']}"
        assert read.get_subject() == event["stream"]
        assert read.get_data() == event["state"]
        assert read.get_datacontenttype() == "application/json"
        assert read.get_extension("schemaversion") == event["schemaVersion"]
        assert read.get_extension("streamversion") == event["version"]
        time = read.get_time()
        assert time is not None
        assert round(time.timestamp() * 1_000) == event["state"]["at"]
    [source] = sources
    with audited.client("aud") as aud:
        assert source == f"urn:world-protocol:log:{aud.get(PATH).json()['logId']}"
    assert any("redacted" in event for event in events) == (actor == "yak")


def test_events_of_a_traced_proposal_have_its_trace_context(audited: Served) -> None:
    proposal = next(one for one in plain(audited, "aud") if one["state"].get("trace") is not None)
    traced = [form for form in batches(audited, "aud") if form.get("traceparent") == TRACE]
    assert {form["subject"] for form in traced} == {proposal["stream"]}
    stream = [event for event in plain(audited, "aud") if event["stream"] == proposal["stream"]]
    assert [int(form["id"]) for form in traced] == [event["position"] for event in stream]
    assert len(traced) > 3
    hidden = {event["position"] for event in plain(audited, "yak") if "redacted" in event}
    assert proposal["position"] in hidden
    assert all(
        "traceparent" not in form for form in batches(audited, "yak") if form.get("subject") == proposal["stream"]
    )


def test_pages_of_a_batch_are_linked(audited: Served) -> None:
    everything = batches(audited, "aud")
    assert batches(audited, "aud", limit=7) == everything
    topics: dict[str, Any] = {"types": "proposal.submitted,world.sealed"}
    assert batches(audited, "aud", limit=1, **topics) == batches(audited, "aud", **topics)
    wanted = [form for form in everything if form["type"].partition(".")[2] in topics["types"].split(",")]
    assert batches(audited, "aud", **topics) == wanted


@pytest.mark.parametrize("actor", ["aud", "yak"])
def test_a_stream_sends_the_same_cloud_events(audited: Served, actor: str) -> None:
    expected = batches(audited, actor)
    with (
        audited.client(actor) as client,
        client.stream("GET", f"{PATH}/log/stream", params={"after": 0, "format": "cloudevents"}) as answer,
    ):
        seen: list[Any] = []
        ids: list[str] = []
        names: list[str] = []
        for line in answer.iter_lines():
            name, _, value = line.partition(": ")
            if name == "data":
                seen.append(json.loads(value))
            elif name == "id":
                ids.append(value)
            elif name == "event":
                names.append(value)
            if len(seen) == len(expected):
                break
    assert seen == expected
    assert ids[: len(seen)] == [form["id"] for form in expected]
    assert names == [form["type"] for form in expected]


def test_an_unknown_format_is_refused(audited: Served) -> None:
    with audited.client("aud") as aud:
        for path in ("log", "log/stream"):
            answer = aud.get(f"{PATH}/{path}", params={"format": "avro"})
            assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_VALUE")
