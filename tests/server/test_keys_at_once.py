"""Equal requests at once, to one server and to two, and to a server that was killed before it answered."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from msgspec import structs

from tests.server.kiosk import handlers, kiosk
from tests.server.served import PATH, Place, Served, founded, serving
from world.audit.verify import verify
from world.clock import SystemClock
from world.errors import RefusedError
from world.events.lease_events import LeasesReleased, VerdictGiven
from world.events.proposal_events import ProposalSubmitted
from world.events.verification import Verification
from world.log import GroupCommit, Pending
from worldprotocol.api.callers.keyed import caller_of, submit_once
from worldprotocol.api.callers.request_keys import keyed, once
from worldprotocol.api.realm import Realm
from worldprotocol.operations import OperationCall
from worldprotocol.operations.access import CreateToken, create_token
from worldprotocol.operations.acting.lease_requests import Acquire, acquire
from worldprotocol.operations.acting.leases import Release, release
from worldprotocol.operations.calling import perform
from worldprotocol.operations.visibility import Redactions, Visibility

pytestmark = pytest.mark.slow

AT_ONCE = 16
KILLED = 9


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    log = None if request.param == "sqlite" else request.getfixturevalue("postgres_database")
    return founded(tmp_path, log)


def opened(place: Place) -> Realm:
    return Realm.open(place.log, domain=kiosk, effects=handlers)


@pytest.fixture
def servers(place: Place) -> Iterator[list[Realm]]:
    with ExitStack() as stack:
        yield [stack.enter_context(opened(place)) for _ in range(2)]


def a_call(realm: Realm, actor: str = "kid") -> OperationCall:
    verified = Verification(method="peer", actor_id=actor, uid=1)
    redactions = Redactions(realm.log, None, ())
    hosted: Any = SimpleNamespace(realm=realm, redactions=redactions)
    view = realm.realm()
    visibility = Visibility(view, verified, redactions)
    return OperationCall(hosted=hosted, verified=verified, view=view, visibility=visibility, clock=SystemClock())


def at_once(run: Callable[[Realm], Any], servers: list[Realm]) -> list[Any]:
    """Return the answers to equal requests, each in a thread, half of them to each server."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(run, [servers[number % len(servers)] for number in range(AT_ONCE)]))


def asked(operation: Any, wanted: Any, key: str, realm: Realm) -> Any:
    return perform(operation, a_call(realm), wanted, key)


def recorded(realm: Realm, kind: type) -> list[Any]:
    return [one for _, one in realm.events() if isinstance(one, kind)]


def answered(found: Any) -> tuple[str, list[str]]:
    return found.verdict_id, [one.lease_id for one in found.leases]


@pytest.mark.parametrize("number", [1, 2])
def test_equal_requests_at_once_get_one_lease_and_one_answer(servers: list[Realm], number: int) -> None:
    used = servers[:number]
    for key in ("k-1", "k-2", "k-3"):
        wanted = Acquire(resources=[f"FILE:/{key}"], session_id="s")
        found = at_once(partial(asked, acquire, wanted, key), used)
        assert len({repr(answered(one)) for one in found}) == 1
        ids = [one.lease_id for one in found[0].leases]
        given = Release(lease_ids=ids, session_id="s")
        states = at_once(partial(asked, release, given, f"r-{key}"), used)
        assert [one.states for one in states] == [dict.fromkeys(ids, "Released")] * AT_ONCE
    assert len(recorded(servers[0], VerdictGiven)) == len(recorded(servers[0], LeasesReleased)) == 3
    assert verify(servers[0].log).findings == ()


def test_equal_requests_may_share_a_commit(servers: list[Realm], monkeypatch: pytest.MonkeyPatch) -> None:
    realm, wanted = servers[0], Acquire(resources=["FILE:/shared"], session_id="s")
    sizes: list[int] = []
    lead = GroupCommit._lead

    def leads(self: Any, mine: Any) -> None:
        while len(self._queue) < AT_ONCE and not sizes:
            os.sched_yield()
        sizes.append(len(self._queue))
        lead(self, mine)

    monkeypatch.setattr(GroupCommit, "_lead", leads)
    found = at_once(partial(asked, acquire, wanted, "shared"), [realm])
    assert sizes[0] == AT_ONCE
    assert len({repr(answered(one)) for one in found}) == 1
    assert len(recorded(realm, VerdictGiven)) == 1


def test_equal_submissions_at_once_are_one_proposal(servers: list[Realm]) -> None:
    def submit(realm: Realm) -> str:
        given = {"item": "tea", "number": "n1"}
        intent = realm.issue("kid", "order.place", given, scope=["orders.n1"])
        caller = keyed(a_call(realm).verified, "s-1", "intents.submit", {"input": given})
        return submit_once(realm, caller, intent).proposal_id

    found = at_once(submit, servers)
    assert len(set(found)) == 1
    [one] = recorded(servers[0], ProposalSubmitted)
    assert (one.verified.key, one.proposal_id) == ("s-1", found[0])
    assert one.intent.intent_id != "s-1"


def test_equal_requests_at_once_leave_one_token(servers: list[Realm]) -> None:
    wanted = CreateToken(actor_id="kid", note="at once")
    made = at_once(lambda realm: perform(create_token, a_call(realm, "ops"), wanted, "t-1").token_id, servers)
    assert len(set(made)) == AT_ONCE
    assert [one.note for one in servers[1].realm().tokens.values()].count("at once") == 1


def test_equal_requests_at_once_to_two_servers_get_one_answer(place: Place) -> None:
    body = {"resources": ["FILE:/http"], "sessionId": "s"}

    def post(served: Served) -> dict[str, Any]:
        while True:
            with (
                served.client("kid") as client,
                suppress(httpx.RemoteProtocolError),
            ):  # a lost answer is asked for again
                answer: httpx.Response = client.post(f"{PATH}/leases", json=body, headers={"Idempotency-Key": "h-1"})
                assert answer.status_code == 200, answer.text
                return {**answer.json(), "after": 0}

    socket = str(place.folder / "o.sock")
    with (
        serving(place) as one,
        serving(place, "--socket", socket) as other,
        ThreadPoolExecutor(AT_ONCE) as pool,
    ):
        answers = list(pool.map(post, [one, other] * (AT_ONCE // 2)))
    assert answers == [answers[0]] * AT_ONCE
    with place.realm() as realm:
        assert len(recorded(realm, VerdictGiven)) == 1
        assert len(realm.realm().klis.leases) == 1


def performed(address: str, what: str, *, dies: bool = False) -> tuple[str, str]:
    """Perform a request with a key, and return what the answer names; or die once it is committed."""
    with Realm.open(address, domain=kiosk, effects=handlers) as realm:
        if dies:
            Pending.succeed = lambda self, result: os._exit(KILLED)  # type: ignore[method-assign]
        if what == "lease":
            wanted = Acquire(resources=["FILE:/killed"], session_id="s")
            return "lease", perform(acquire, a_call(realm), wanted, "killed").verdict_id
        intent = realm.issue("kid", "order.place", {"item": "tea"}, scope=["orders"])
        caller = keyed(a_call(realm).verified, "killed", "intents.submit", {"item": "tea"})
        return submit_once(realm, caller, intent).status, "killed"


@pytest.mark.parametrize("what", ["lease", "intent"])
def test_what_was_committed_and_not_answered_is_answered_from_the_record(place: Place, what: str) -> None:
    code = f"import tests.server.test_keys_at_once as it; it.performed({place.log!r}, {what!r}, dies=True)"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=Path(__file__).parents[2]).returncode == KILLED
    kind = VerdictGiven if what == "lease" else ProposalSubmitted
    with place.realm() as realm:
        [first] = recorded(realm, kind)
        size = realm.log.head().size
    answers = [performed(place.log, what) for _ in range(3)]
    assert set(answers) == {("lease", first.verdict_id) if what == "lease" else ("completed", "killed")}
    with place.realm() as realm:
        assert len(recorded(realm, kind)) == 1
        assert what == "intent" or realm.log.head().size == size


# Keys of earlier releases


def test_a_submission_of_an_earlier_release_is_found_by_its_key_and_its_body(servers: list[Realm]) -> None:
    realm, old = servers[0], Verification(method="peer", actor_id="kid", uid=1)

    def submit(actor: str, item: str, key: str = "old") -> str:
        intent = realm.issue(actor, "order.place", {"item": item}, scope=["orders"])
        caller = keyed(a_call(realm, actor).verified, key, "intents.submit", {"item": item})
        return submit_once(realm, caller, intent).proposal_id

    intent = realm.issue("kid", "order.place", {"item": "tea"}, scope=["orders"])
    first = realm.as_caller(old).submit(structs.replace(intent, intent_id="old"))
    assert submit("kid", "tea") == first.proposal_id
    for refused_as in ("cake", "milk"):
        with pytest.raises(RefusedError) as refused:
            submit("kid", refused_as)
        assert refused.value.code == "IDEMPOTENCY_CONFLICT"
        assert refused.value.details == {"proposal_id": first.proposal_id}
    assert submit("all", "tea") != first.proposal_id  # the key of another actor
    assert len(recorded(realm, ProposalSubmitted)) == 2


def test_a_key_without_a_digest_answers_no_other_operation(servers: list[Realm]) -> None:
    realm = servers[0]
    scope = [{"predicate": "MUTATES", "resource": "FILE:/old"}]
    manifest = {"ver": "1.0", "agent_id": "kid", "session_id": "s", "scope": scope}
    old = Verification(method="peer", actor_id="kid", uid=1, key="old")
    realm.as_caller(old).leases.desk.request(manifest, by="kid")
    with pytest.raises(RefusedError) as refused:
        perform(acquire, a_call(realm), Acquire(resources=["FILE:/old"], session_id="s"), "old")
    assert refused.value.code == "IDEMPOTENCY_CONFLICT"
    assert perform(acquire, a_call(realm, "bot"), Acquire(resources=["FILE:/bot"], session_id="b"), "old").leases


def test_an_actor_that_nothing_verified_owns_its_keys(servers: list[Realm]) -> None:
    realm = servers[0]
    for _ in range(2):
        caller = keyed(caller_of(realm, "kid"), "mine", "do", {})
        once(realm, caller, lambda acting: acting.act("kid", "order.place", {"item": "tea"}, scope=["orders"]),
             again=lambda events: events[0])  # fmt: skip
    [one] = recorded(realm, ProposalSubmitted)
    assert one.verified == keyed(Verification(method="unauthenticated", actor_id="kid"), "mine", "do", {})


def test_what_has_no_canonical_form_is_named_within_the_request(servers: list[Realm]) -> None:
    manifest = {"ver": "1.0", "scope": [{"x": float("nan")}]}
    with pytest.raises(RefusedError) as refused:
        perform(acquire, a_call(servers[0]), Acquire(manifest=manifest), "nan")
    assert (refused.value.code, refused.value.details["path"]) == ("NOT_CANONICAL", "$.manifest.scope[0].x")


def test_a_repeated_request_does_not_continue_another_open_proposal(servers: list[Realm]) -> None:
    realm = servers[0]

    def submit(key: str) -> str:
        intent = realm.issue("bot", "order.place", {"item": "tea"}, scope=["orders"])
        caller = keyed(a_call(realm, "bot").verified, key, "intents.submit", {"item": "tea"})
        return submit_once(realm, caller, intent, continues=True).proposal_id

    first = submit("a")
    assert submit("b") == first  # it waits still
    realm.decide(first, "reject", by="ann", reason="no")
    second = submit("c")
    assert second != first
    assert (submit("a"), submit("c"), submit("d")) == (first, second, second)
