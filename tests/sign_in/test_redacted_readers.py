"""No answer of any operation shows a reader with redaction a text that is only in hidden events.

What is hidden is decided by the redaction of exports alone; the texts are markers in every place where people and
agents write something.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

import httpx
import pytest

from tests.server.examples import EXAMPLES
from tests.server.kiosk import handlers, kiosk
from tests.server.served import ADMINISTRATORS, NO_TLS, PATH, Served, founded, serving
from tests.server.test_rights_table import PARAMETERS
from world.klis.settings import KlisSettings
from world.limits import Limits
from worldprotocol.api.realm import Realm
from worldprotocol.export.redaction import Redaction
from worldprotocol.server.operation_table import OPERATIONS, Operation

READERS: dict[str, list[str]] = {
    "no-inputs": ["inputs"],
    "no-resources": ["resources"],
    "no-actors": ["actors"],
    "no-shy": ["actor=mk-shy"],
    "no-answers": ["topic=human.*", "topic=decision.*", "topic=proposal.judged"],
    "no-leases": ["stream=klis"],
    "no-branches": ["topic=branch.*", "topic=proposal.*"],
}
"""By actor id of a reader, its rules."""

MARKERS = (
    *("mk-input", "mk-number", "mk-note", "mk-trace", "mk-reason", "mk-scope", "mk-resource", "mk-session"),
    *("mk-branch", "mk-shy", "mk-named", "mk-key", "mk-cancel", "mk-source", "mk-token"),
)


def prepare(log: str) -> dict[str, str]:
    """Write every marker into the log; return a token for each reader."""
    limits = Limits(klis=KlisSettings.read({"administrators": ADMINISTRATORS}))
    with Realm.open(log, domain=kiosk, effects=handlers, limits=limits) as realm:
        realm.register("mk-shy", "agent", binding={"kind": "hitl", "ask": ["ann"]}, name="mk-named")
        order = {"item": "mk-input", "number": "mk-number"}
        first = realm.act("bot", "order.place", order, scope=["orders.mk-scope", "orders"], note="mk-note")
        realm.decide(first.proposal_id, "approve", by="ann", reason="mk-reason")
        realm.act("mk-shy", "order.place", {"item": "mk-input"}, scope=["orders"], trace={"of": "mk-trace"})
        shipped = realm.act("kid", "order.ship", {"item": "mk-input"}, scope=["orders.*"])
        realm.host.cancel(shipped.proposal_id, by="ops", reason="mk-cancel")
        realm.leases.acquire(agent="mk-shy", session="mk-session", resource="FILE:/mk-resource", ttl_ms=10**7)
        realm.create_branch("mk-branch", by="ops")
        realm.switch_branch("mk-branch", by="ops")
        realm.act("kid", "order.place", {"item": "on a branch"}, scope=["orders"])
        realm.access.create_token("ann", by="operator", note="mk-token")
        tokens = {}
        for name, rules in READERS.items():
            realm.register(name, "human")
            realm.access.grant(name, "reader", by="operator", redaction=rules)
            tokens[name] = realm.access.create_token(name, by="operator").token
        return tokens


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    place = founded(tmp_path_factory.mktemp("redacted"), server="requests_per_second = 10000\nburst = 10000")
    place.tokens |= prepare(place.log)
    with serving(place) as running:
        yield running


@pytest.fixture(scope="module")
def names(served: Served) -> dict[str, list[str]]:
    """Return the values of the parameters of paths."""
    with served.place.realm() as realm:
        streams = sorted({event.stream for event in realm.log.read()})
        worlds = [one.world_id for one in realm.worlds(20)]
        size = realm.log.head().size
        decisions = [event.decision.decision_id for _, event in realm.events() if hasattr(event, "decision")]
    proposals = [one for one in streams if len(one) == 36]
    return {
        **{name: [value] for name, value in PARAMETERS.items()},
        "proposal_id": [*proposals, "none"],
        "world_id": ["HEAD", *worlds],
        "position": [str(one) for one in range(1, size + 2)],
        "kind": ["proposal", "intent", "decision", "world", "verdict"],
        "subject_id": [*proposals[:3], *worlds[:3], *decisions[:2], "none"],
        "actor_id": [*READERS, "mk-shy"],
    }


@cache
def hidden_by(log: str, rules: tuple[str, ...]) -> frozenset[str]:
    """Return the markers that are in hidden events only."""
    with Realm.open_read_only(log) as realm:
        redaction = Redaction(rules)
        redaction.learn(realm.log)
        events = [(event, redaction.hides(event)) for event in realm.log.read()]
    shown = b"".join(event.state + event.stream.encode() for event, is_hidden in events if not is_hidden)
    whole = b"".join(event.state + event.stream.encode() for event, _ in events)
    return frozenset(one for one in MARKERS if one.encode() in whole and one.encode() not in shown)


QUERIES: dict[str, list[dict[str, str]]] = {
    "worlds.blame": [{"path": "orders.mk-number"}],
    "worlds.state": [{}, {"path": "orders.mk-number"}],
    "worlds.diff": [{}, {"with": "HEAD"}],
    "log.read": [{"limit": "500"}, {"types": "proposal.submitted"}, {"after": "3"}],
    "proposals.list": [{}, {"limit": "500"}, {"after": "5"}],
}


def answers(served: Served, operation: Operation, token: str, names: dict[str, list[str]]) -> Iterator[str]:
    """Yield every answer of an operation with its header fields, for all values of its parameters."""
    parameters = [one for one in names if f"{{{one}}}" in operation.path]
    body = EXAMPLES.get(operation.name)
    with httpx.Client(
        base_url=served.url, headers={"Authorization": f"Bearer {token}"}, trust_env=False, verify=NO_TLS
    ) as client:
        for values in product(*(names[one] for one in parameters)):
            path = operation.path.format(**dict(zip(parameters, values, strict=True)))
            for query in QUERIES.get(operation.name, [{}]):
                yield text_of(client, operation, path, body, query)


def text_of(client: httpx.Client, operation: Operation, path: str, body: Any, query: dict[str, str]) -> str:
    """Return an answer with its header fields; of a stream, all events that are there."""
    query = {**query, "after": "0"} if operation.name == "log.stream" else query
    with client.stream(operation.method, path, json=body, params=query) as answer:
        text = str(answer.headers)
        if not answer.headers["content-type"].startswith("text/event-stream"):
            return text + answer.read().decode(errors="replace")  # tiles are bytes
        last = client.get(PATH).json()["position"]
        for line in answer.iter_lines():
            text += line + "\n"
            if line.startswith("id: ") and int(line[4:]) >= last:
                break
    return text


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_no_answer_shows_a_hidden_text(served: Served, names: dict[str, list[str]], operation: Operation) -> None:
    found = set()
    for reader, rules in READERS.items():
        hidden = hidden_by(served.place.log, tuple(rules))
        assert hidden, reader
        for text in answers(served, operation, served.place.tokens[reader], names):
            found |= {(reader, marker) for marker in hidden if marker in text}
    assert found == set()


def test_the_markers_are_shown_to_a_reader_without_redaction(served: Served, names: dict[str, list[str]]) -> None:
    """The test above looks at the right places: together, the same requests show every marker that is in the log."""
    token = served.place.tokens["bot"]  # a reader
    reading = ("proposals.list", "log.read", "log.stream", "branches.list", "actors.list", "leases.list")
    whole = "".join(text for name in reading for text in answers(served, OPERATIONS[name], token, names))
    with served.place.realm() as realm:
        log = b"".join(event.state for event in realm.log.read())
    assert {one for one in MARKERS if one.encode() in log} == {one for one in MARKERS if one in whole}


@pytest.mark.parametrize("condition", ["actor=mk-shy", "branch=main", "status=completed", "since=1", "until=1"])
def test_a_filter_does_not_reveal_what_hidden_proposals_say(served: Served, condition: str) -> None:
    with served.client("no-shy") as client:
        answer = client.get(f"{PATH}/proposals?{condition}")
        assert (answer.status_code, answer.json()["code"]) == (403, "RIGHT_MISSING")
        assert client.get(f"{PATH}/proposals").status_code == 200
