"""Declared operations: bad input, repeated requests, pages, and what each caller may read."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Annotated, Any, Literal

import httpx
import pytest
from msgspec import defstruct, to_builtins

from tests.server.served import ORDER, PATH, Served
from world.events.proposal_events import ProposalSubmitted
from world.model.immutable_json import FrozenDict
from worldprotocol.api.callers.request_keys import digest_of
from worldprotocol.operations import AnswerForm, OperationCall, Paged, RequestForm, Unhashed, operation
from worldprotocol.operations.acting.leases import list_leases
from worldprotocol.operations.registry import SUBJECTS, declared_operations
from worldprotocol.operations.worlds import ListedWorlds, StateValue
from worldprotocol.server.call import answer
from worldprotocol.server.openapi import _name_of, _schemas_of

RECORD_NOTHING = {
    *("policies.ask", "verify.start", "recheck.start", "whatif.start", "backtest.start", "jobs.cancel"),
}
ISSUED = {"body": {"type": "order.place"}, "intentId": "i-1", "intentKey": "k", "meta": {}}
RELEASE = {"leaseIds": ["none"], "sessionId": "s-1"}


def sent(served: Served, path: str, actor: str = "ops", **more: Any) -> httpx.Response:
    with served.client(actor) as client:
        return client.request(more.pop("method", "POST"), f"{PATH}{path}", **more)


@pytest.mark.parametrize(
    ("path", "body", "fault"),
    [
        ("/leases:release", {**RELEASE, "leaseId": "none"}, "body"),
        ("/leases:release", {"sessionId": "s-1"}, "body"),
        ("/leases:release", {**RELEASE, "leaseIds": "none"}, "body.leaseIds"),
        ("/leases:release", {**RELEASE, "leaseIds": []}, "body.leaseIds"),
        ("/leases:release", {**RELEASE, "leaseIds": [7]}, "body.leaseIds[0]"),
        ("/leases:release", ["none"], "body"),
        ("/leases", {"resources": ["FILE:/a"], "predicate": "WRITES"}, "body.predicate"),
        ("/leases", {"resources": ["FILE:/a"], "ttlMs": 0}, "body.ttlMs"),
        ("/leases/requests/none:withdraw", {"requestId": "none"}, "body.requestId"),
        ("/intents", {}, "body"),
        ("/intents", {"input": {"item": "tea"}}, "body"),
        ("/intents", {"intentId": "i-1", "intentKey": "k", "body": {}}, "body"),
        ("/intents", {**ISSUED, "type": "order.place"}, "body"),
        ("/intents", {**ISSUED, "branch": "main"}, "body"),
        ("/intents", {"intent": ISSUED, "note": "one"}, "body"),
        ("/intents", {"intent": {**ISSUED, "branch": "main"}}, "body.intent"),
        ("/intents", {**ORDER, "traceparent": "00"}, "body.traceparent"),
    ],
)
def test_a_member_at_fault_is_named(served: Served, path: str, body: Any, fault: str) -> None:
    answer = sent(served, path, "all", json=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_VALUE")
    assert [one["path"] for one in answer.json()["details"]["faults"]] == [fault]
    assert fault in answer.json()["detail"]


@pytest.mark.parametrize(
    ("content", "media"),
    [
        (b"{", "application/json"),
        (b'"\xff"', "application/json"),
        (b"[" * 100_000, "application/json"),
        (b'{"leaseIds": [NaN]}', "application/json"),
        (b"leaseIds=none", "application/x-www-form-urlencoded"),
    ],
)
def test_a_body_that_is_not_json_is_refused(served: Served, content: bytes, media: str) -> None:
    answer = sent(served, "/leases:release", "all", content=content, headers={"Content-Type": media})
    assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_VALUE")


def test_a_parameter_that_the_operation_does_not_have_is_refused(served: Served) -> None:
    answer = sent(served, "/leases", "aud", method="GET", params={"att": "HEAD"})
    assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_VALUE")
    assert "att" in answer.json()["detail"]


@pytest.mark.parametrize("types", [["cart.ship"], ["cart.ship", "pigeon.send"]])
def test_a_parameter_that_is_a_list_is_named_once_for_each_value(served: Served, types: list[str]) -> None:
    answer = sent(served, "/effects/doubts", "mule", method="GET", params={"type": types})
    assert (answer.status_code, answer.json()) == (200, {"doubts": [], "unreadable": []})
    assert sent(served, "/effects/doubts", "mule", method="GET").json()["code"] == "INVALID_VALUE"


def test_a_missing_right_is_refused_before_a_body_at_fault(served: Served) -> None:
    answer = sent(served, "/rights", "bot", json={"no": "right"})
    assert (answer.status_code, answer.json()["code"]) == (403, "RIGHT_MISSING")


def test_a_redaction_that_does_not_exist_is_refused(served: Served) -> None:
    answer = sent(served, "/rights", json={"actorId": "bot", "right": "reader", "redaction": ["nothing"]})
    assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_REDACTION")


@pytest.mark.parametrize("key", ["none", "W1tb", "\u00e9"])
def test_a_text_that_is_no_public_key_is_refused(served: Served, key: str) -> None:
    answer = sent(served, "/keys", json={"agentId": "bot", "publicKey": key})
    assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_KEY")


def test_a_repeated_creation_of_a_token_revokes_the_token_that_was_lost(served: Served) -> None:
    body, headers = {"actorId": "kid", "note": "lost"}, {"Idempotency-Key": "a-token"}
    made = [sent(served, "/tokens", json=body, headers=headers).json() for _ in range(3)]
    assert len({one["token"] for one in made}) == 3
    with served.place.realm() as realm:
        in_force = [one.token_id for one in realm.realm().tokens.values() if one.note == "lost"]
    assert in_force == [made[-1]["tokenId"]]
    other = sent(served, "/tokens", json={**body, "note": "another"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (409, "IDEMPOTENCY_CONFLICT")


def test_the_key_of_a_command_is_not_that_of_an_operation(served: Served) -> None:
    kept, lost = (sent(served, "/tokens", json={"actorId": "kid"}).json()["tokenId"] for _ in range(2))
    headers, words = {"Idempotency-Key": "a-command"}, ["token", "revoke", lost, "--reason", "over", "--by", "ops"]
    assert '["exit",0]' in sent(served, "/commands", json={"arguments": words}, headers=headers).text
    answer = sent(served, f"/tokens/{kept}:revoke", json={"reason": "over"}, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (409, "IDEMPOTENCY_CONFLICT")
    with served.place.realm() as realm:
        assert kept in realm.realm().tokens


def test_tokens_are_created_by_equal_requests_at_once_each_in_place_of_the_one_before(served: Served) -> None:
    body, headers = {"actorId": "kid", "note": "at once"}, {"Idempotency-Key": "at-once"}
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: sent(served, "/tokens", json=body, headers=headers), range(24)))
    assert {one.status_code for one in made} == {200}
    with served.place.realm() as realm:
        assert [one.note for one in realm.realm().tokens.values()].count("at once") == 1


class Waits(RequestForm, frozen=True, kw_only=True):
    """A request that may wait."""

    name: str
    wait: Annotated[float, Unhashed] = 0
    some_history: Annotated[Literal["yes", "no"], Unhashed] = "no"


def test_members_that_do_not_belong_to_the_meaning_are_not_in_the_digest() -> None:
    def run(_: OperationCall, __: Waits) -> AnswerForm:
        """Wait."""
        return AnswerForm()

    made = operation("waits.do", "POST /waits", "actor", example=(Waits(name="a"), AnswerForm()))(run)
    assert made.unhashed == {"wait", "someHistory"}

    def digest(request: Waits) -> str:
        return digest_of(made.name, to_builtins(request), made.unhashed)

    assert digest(Waits(name="a")) == digest(Waits(name="a", wait=3, some_history="yes"))
    assert digest(Waits(name="a")) != digest(Waits(name="b"))
    canonical = b'["waits.do",{"name":"a"}]'
    assert digest(Waits(name="a")) == sha256(canonical).hexdigest()[:32]


def test_a_repeated_submission_may_have_another_trace(served: Served) -> None:
    names, parent = set(), f"00-{'1' * 32}-{'2' * 16}-01"
    for more, field in (({}, None), ({"trace": {"a": 1}}, None), ({}, parent), ({}, "none")):
        headers = {"Idempotency-Key": "traced", **({} if field is None else {"traceparent": field})}
        done = sent(served, "/intents", "kid", json={**ORDER, **more}, headers=headers)
        names.add((done.status_code, done.json()["proposalId"]))
    assert len(names) == 1
    traced = sent(served, "/intents", "kid", json={**ORDER, "trace": {"a": 1}}, headers={"traceparent": parent})
    assert traced.json()["trace"] == {"a": 1, "traceparent": parent}


def test_equal_keys_of_two_actors_are_two_requests(served: Served) -> None:
    headers = {"Idempotency-Key": "one-key"}
    body = {"resources": ["FILE:/two-actors"], "predicate": "CONSUMES", "sessionId": "s-k"}
    first, second = (sent(served, "/leases", actor, json=body, headers=headers).json() for actor in ("kid", "bot"))
    assert (first["agentId"], second["agentId"]) == ("kid", "bot")
    assert first["verdictId"] != second["verdictId"]
    assert sent(served, "/leases", "kid", json=body, headers=headers).json()["verdictId"] == first["verdictId"]


def test_a_repeated_request_of_leases_is_answered_with_its_last_verdict(served: Served) -> None:
    sent(served, "/leases", "kid", json={"resources": ["FILE:/q0"], "sessionId": "s-q0"})  # kid is older than bot
    holder = sent(served, "/leases", "bot", json={"resources": ["FILE:/q1"], "sessionId": "s-q1"}).json()
    headers, body = {"Idempotency-Key": "queued"}, {"resources": ["FILE:/q1"], "sessionId": "s-q2", "queue": True}
    queued = sent(served, "/leases", "kid", json=body, headers=headers)
    assert (queued.status_code, queued.json()["status"]) == (202, "Wait")
    ids = [one["leaseId"] for one in holder["leases"]]
    sent(served, "/leases:release", "bot", json={"leaseIds": ids, "sessionId": "s-q1"})
    again = sent(served, "/leases", "kid", json=body, headers=headers)
    assert (again.status_code, again.json()["status"]) == (200, "Granted")
    state = sent(
        served,
        f"/leases/requests/{queued.json()['requestId']}",
        "kid",
        method="GET",
        params={"after": again.json()["after"]},
    )
    assert state.json()["verdict"]["status"] == "Granted"


def test_every_declared_operation_that_records_answers_a_repetition() -> None:
    writes = [one for one in declared_operations().values() if one.is_write and not one.is_keyed]
    assert {one.name for one in writes if one.again is None} == RECORD_NOTHING


FIRST_USES = """
import sys, threading
from msgspec import convert, to_builtins
from worldprotocol.operations.registry import declared_operations
sys.setswitchinterval(1e-6)
for one in declared_operations().values():
    barrier, wire = threading.Barrier(8), to_builtins(one.example.answer)
    def use():
        barrier.wait()
        convert(wire, one.answer)
    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_types_may_be_used_for_the_first_time_by_several_threads_at_once() -> None:
    for _ in range(3):
        subprocess.run([sys.executable, "-c", FIRST_USES], check=True)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_subject_is_imported_without_the_engine_and_without_a_library_of_one_side(subject: str) -> None:
    heavy = {"world.engine", "sqlalchemy", "pydantic", "httpx", "fastapi", "click"}
    program = f"import sys, worldprotocol.operations.{subject}; print(*({heavy} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_a_declaration_at_fault_is_refused() -> None:
    example = (list_leases.example.request, list_leases.example.answer)
    given: Any = {"record": "verdict.given"}
    with pytest.raises(TypeError, match="record"):
        operation("leases.some", "GET /some", "reader", example=example, **given)
    with pytest.raises(TypeError, match="again"):
        operation("leases.some", "GET /some", "reader", example=example, again=lambda *_: example[1])


def pages(served: Served, path: str, actor: str, rows: str) -> list[Any]:
    """Return the rows of a list, read one by one by the header field that names the next page."""
    found = []
    with served.client(actor) as client:
        following = f"{PATH}{path}{'&' if '?' in path else '?'}limit=1"
        while following:
            answer = client.get(following)
            assert len(answer.json()[rows]) <= 1
            found += answer.json()[rows]
            following = answer.links.get("next", {}).get("url", "")
            assert (answer.json()["next"] is None) == (not following)
    return found


@pytest.fixture(scope="module")
def forked(served: Served) -> str:
    """Return a world that has children on three branches, of which the oldest one has a child."""
    base = sent(served, "/worlds/HEAD", "aud", method="GET").json()["worldId"]
    for name in ("fork-1", "fork-2"):
        assert sent(served, "/branches", json={"name": name, "worldId": base}).status_code == 201
    for number, branch in enumerate(("main", "fork-1", "fork-2", "main")):
        order = {"type": "order.place", "input": {"item": "tea", "number": f"fork-{number}"}, "branch": branch}
        assert sent(served, "/intents", "kid", json=order).json()["status"] == "completed"
    return str(base)


def test_the_descendants_of_a_world_are_listed_newest_first(served: Served, forked: str) -> None:
    path = f"/worlds?under={forked}&depth=2"
    whole = sent(served, path, "aud", method="GET").json()["worlds"]
    assert [(one["branch"], one["parent"] == forked) for one in whole] == [
        ("main", False),
        ("fork-2", True),
        ("fork-1", True),
        ("main", True),
    ]
    assert pages(served, path, "aud", "worlds") == whole


@pytest.mark.parametrize(
    ("path", "rows"), [("/worlds", "worlds"), ("/worlds?branch=fork-1", "worlds"), ("/proposals", "proposals")]
)
def test_pages_of_a_list_are_its_parts(served: Served, forked: str, path: str, rows: str) -> None:
    whole = sent(served, f"{path}{'&' if '?' in path else '?'}limit=500", "aud", method="GET").json()
    assert whole["next"] is None
    assert len(whole[rows]) > 1
    assert pages(served, path, "aud", rows) == whole[rows]


@pytest.fixture(scope="module")
def asked(served: Served) -> list[str]:
    """Return proposals that wait for ann or bob."""
    orders = [
        {"type": "order.place", "input": {"item": "tea", "number": f"asked-{number}"}, "scopeProposal": scope}
        for number in range(3)
        for scope in [{"allowedPaths": [f"orders.asked-{number}"]}]
    ]
    return [sent(served, "/intents", "bot", json=order).json()["proposalId"] for order in orders]


def test_an_inbox_is_read_in_parts_and_by_readers_whole(served: Served, asked: list[str]) -> None:
    own = sent(served, "/inbox", "ann", method="GET").json()
    names = [one["proposalId"] for one in own["inbox"]]
    assert set(asked) <= set(names)
    assert (own["next"], "held" in own) == (None, False)
    assert [one["proposalId"] for one in pages(served, "/inbox", "ann", "inbox")] == names
    whole = sent(served, "/inbox", "aud", method="GET").json()  # an auditor can answer nothing
    assert [one["proposalId"] for one in whole["inbox"]] == names
    assert whole["held"] == []
    assert sent(served, "/inbox?all=true", "aud", method="GET").json() == whole
    assert sent(served, "/inbox?all=false", "aud", method="GET").json()["inbox"] == []
    refused = sent(served, "/inbox?all=true", "kid", method="GET")
    assert (refused.status_code, refused.json()["code"]) == (403, "RIGHT_MISSING")


@pytest.mark.parametrize("cursor", ["none", "7", "x.1.y", "none.1", "1.x.y", f"{'9' * 20}.1.y"])
def test_a_text_that_is_no_cursor_of_an_inbox_is_refused(served: Served, cursor: str) -> None:
    answer = sent(served, f"/inbox?after={cursor}", "ann", method="GET")
    assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_VALUE")


def test_how_a_write_is_answered_is_a_parameter_and_no_part_of_the_request(served: Served, asked: list[str]) -> None:
    path, body, headers = f"/proposals/{asked[0]}:answer", {"choice": "approve"}, {"Idempotency-Key": "shown-history"}
    first = sent(served, f"{path}?history=true", "ann", json=body, headers=headers).json()
    again = sent(served, path, "ann", json=body, headers=headers).json()
    assert first["history"]
    assert first | {"history": None} == again | {"history": None}
    assert "history" not in again
    refused = sent(served, path, "ann", json={**body, "history": True})
    assert refused.json()["details"]["faults"][0]["path"] == "body.history"
    assert sent(served, f"{path}?history=x", "ann", json=body).json()["code"] == "INVALID_VALUE"


def test_an_explanation_is_for_those_who_may_read_the_proposal(served: Served, asked: list[str]) -> None:
    for part in ("explanation", "trace"):
        for actor, code in (("bot", None), ("bob", None), ("aud", None), ("kid", "UNKNOWN_PROPOSAL")):
            answer = sent(served, f"/proposals/{asked[1]}/{part}", actor, method="GET")
            assert answer.json().get("code") == code, (part, actor)
        begun = sent(served, f"/proposals/{asked[1][:-1]}/{part}", "bob", method="GET")
        assert begun.json()["code"] == "UNKNOWN_PROPOSAL"
        assert sent(served, f"/proposals/{asked[1][:-1]}/{part}", "aud", method="GET").status_code == 200


def test_classes_of_one_name_have_schemas_of_their_own() -> None:
    members: list[Any] = [("count", int)]
    twin = defstruct(ListedWorlds.__name__, members, bases=(AnswerForm,), module="acme", kw_only=True)
    taken = defstruct("Problem", members, bases=(AnswerForm,), module="acme", kw_only=True)
    found, schemas = _schemas_of((ListedWorlds, twin, taken))
    names = {one: _name_of(schema) for one, schema in found.items()}
    assert len({*names.values(), "Problem", "ListedWorlds"}) == 5
    assert "worlds" in schemas[names[ListedWorlds]]["properties"]
    for theirs in (twin, taken):
        assert list(schemas[names[theirs]]["properties"]) == ["count"]
    assert "Problem" not in schemas


def test_a_page_without_its_members_is_refused() -> None:
    example = (list_leases.example.request, list_leases.example.answer)
    with pytest.raises(TypeError, match="before"):
        operation("leases.some", "GET /some", "reader", example=example, page=Paged("leases", "before"))


def test_an_answer_is_written_from_its_struct_and_repeats_any_text() -> None:
    whole: Any = answer(StateValue(world_id="w", value={"a": [1, 2.5, None], "b": FrozenDict({"c": "é"})}))
    assert whole.body == '{"worldId":"w","value":{"a":[1,2.5,null],"b":{"c":"é"}}}'.encode()
    lone: Any = answer(StateValue(world_id="w", value="\ud800"))
    assert json.loads(lone.body) == {"worldId": "w", "value": "\ud800"}


def test_an_intent_keeps_an_intent_id_that_is_no_key(served: Served) -> None:
    intent = served.submit("kid").json()["intent"]
    for name in ("order/17", "é", "x" * 300):
        found = [served.submit("kid", {**intent, "intentId": name}) for _ in range(2)]
        assert {(one.status_code, one.json()["intent"]["intentId"]) for one in found} == {(200, name)}
        assert len({one.json()["proposalId"] for one in found}) == 1


def test_the_parts_of_a_keyed_command_have_keys_that_nobody_can_send(served: Served) -> None:
    lines = "".join(json.dumps({"actor": "kid", **ORDER, "note": f"part {n}"}) + "\n" for n in range(2))
    body = {"arguments": ["submit", "--intents", "-"], "stdin": base64.b64encode(lines.encode()).decode()}
    for key in ("parts", "parts", "parts:2"):
        answer = sent(served, "/commands", "kid", json=body, headers={"Idempotency-Key": key})
        assert answer.status_code == 200
    with served.place.realm() as realm:
        made = [one for _, one in realm.events() if isinstance(one, ProposalSubmitted)]
    keys = [one.verified.key for one in made if one.verified is not None and one.verified.key is not None]
    assert [key for key in keys if key.startswith("parts")] == ["parts", "parts#2", "parts:2", "parts:2#2"]


def test_names_of_hidden_branches_are_not_listed(served: Served) -> None:
    sent(served, "/branches", json={"name": "hush"})
    sent(served, "/rights", json={"actorId": "nil", "right": "reader", "redaction": ["topic=branch.created"]})
    for branch in ("hush", "none"):
        answer = sent(served, "/worlds", "nil", method="GET", params={"branch": branch})
        assert (answer.status_code, answer.json()["code"]) == (404, "UNKNOWN_BRANCH")
        assert "hush" not in answer.text.replace(f"'{branch}'", "")
