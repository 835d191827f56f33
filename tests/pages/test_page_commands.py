"""Forms of the pages without scripts: answers, doubts, recheck, revocation; and the views that addresses hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.pages.fleet_of import deployment, founded_fleet
from tests.pages.pages_of import PAGES_PATH, form_of, parsed, signed_in, signing
from tests.server.served import PATH, Served
from world.events.execution_events import EffectResolved

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with signing(founded_fleet(tmp_path_factory.mktemp("fleet")), "ann", "nil", "eve") as running:
        yield running


@pytest.fixture(scope="module")
def ann(served: Served) -> Iterator[httpx.Client]:
    with signed_in(served, "ann") as client:
        yield client


@pytest.fixture(scope="module")
def nil(served: Served) -> Iterator[httpx.Client]:
    with signed_in(served, "nil") as client:
        yield client


def page(client: httpx.Client, path: str, status: int = 200) -> str:
    found = client.get(PAGES_PATH + path)
    assert found.status_code == status, found.text
    parsed(found.text)
    return found.text


def words_of(text: str) -> str:
    return " ".join("".join(parsed(text).itertext()).split())


def proposals(served: Served, **wanted: Any) -> list[dict[str, Any]]:
    with served.client("ann") as client:
        found: list[dict[str, Any]] = client.get(f"{PATH}/proposals", params=wanted).json()["proposals"]
    return found


def token_of(text: str) -> str:
    found = next(one for one in parsed(text).iter("input") if one.get("name") == "token")
    return found.get("value", "")


def waiting(served: Served) -> str:
    body = {
        "type": "service.deploy",
        "input": deployment("forms", 8),
        "scopeProposal": {"allowedPaths": ["services.*"]},
    }
    name: str = served.submit("rollout-bot", body).json()["proposalId"]
    return name


@pytest.mark.parametrize("shown", ["", "abc", "F" * 64, "0" * 63, "0" * 65, "<script>"])
def test_an_answer_with_a_malformed_hash_is_refused(served: Served, ann: httpx.Client, shown: str) -> None:
    proposal = proposals(served, status="evaluating")[0]["proposalId"]
    fields = form_of(page(ann, "/inbox"), proposal) | {"choice": "approve", "shown": shown}
    refused = ann.post(f"{PAGES_PATH}/inbox/{proposal}", data=fields)
    assert refused.status_code == 400
    assert "shown" in words_of(refused.text)
    assert proposal in {one["proposalId"] for one in proposals(served, status="evaluating")}


def test_a_refused_answer_keeps_what_was_typed(served: Served, ann: httpx.Client) -> None:
    proposal = waiting(served)
    fields = form_of(page(ann, "/inbox"), proposal)
    typed = {"choice": "narrow", "shown": "0" * 64, "reason": "a </textarea> & more", "path2": "services.forms"}
    refused = ann.post(f"{PAGES_PATH}/inbox/{proposal}", data=fields | typed | {"paths": "notices.x"})
    assert refused.status_code == 409
    [form] = [one for one in parsed(refused.text).iter("form") if one.get("action", "").endswith(proposal)]
    areas = {one.get("name"): one.text for one in form.iter("textarea")}
    assert areas == {"reason": "a </textarea> & more", "paths": "notices.x"}
    boxes = {
        one.get("value"): one.get("checked") is not None for one in form.iter("input") if one.get("type") == "checkbox"
    }
    assert boxes == {"services.*": False, "services.forms": True}
    fields = form_of(refused.text, proposal) | typed
    fields |= {"shown": form_of(refused.text, proposal)["shown"], "paths": ""}
    assert ann.post(f"{PAGES_PATH}/inbox/{proposal}", data=fields).status_code == 303
    with served.client("ann") as client:
        found = client.get(f"{PATH}/proposals/{proposal}").json()
    assert (found["status"], found["approvedScope"]["allowedPaths"]) == ("completed", ["services.forms"])


def test_an_entry_says_who_was_asked_and_what_they_answered(served: Served, ann: httpx.Client) -> None:
    [retired] = [one["proposalId"] for one in proposals(served) if one["intent"]["body"]["type"] == "service.retire"]
    [entry] = [one for one in parsed(page(ann, "/inbox")).iter("article") if one.get("id") == f"p-{retired}"]
    text = " ".join("".join(entry.itertext()).split())
    for words in (
        "a retired service cannot be restored from here (rule retirements_need_two_people)",
        "1 of 3 approve, 1 more needed",
        "ann (you) has not answered",
        "bob approve the traffic moved last week",
        "eve ask Which service answers the old addresses?",
        "2 removed",
        "4 rules without an opinion",
        "MUTATES STATE:/main/services/checkout/*",
        "then: reject",
    ):
        assert words in text, words


def test_an_answer_is_passed_to_the_next_step_where_there_is_one(served: Served, ann: httpx.Client) -> None:
    waits = {one["intent"]["body"]["type"]: one["proposalId"] for one in proposals(served, status="evaluating")}
    text = page(ann, "/inbox")
    buttons = {}
    for form in parsed(text).iter("form"):
        name = form.get("action", "").rpartition("/")[2]
        buttons[name] = {one.get("value") for one in form.iter("button")}
    assert "escalate" in buttons[waits["refund.pay"]]
    assert "escalate" not in buttons[waits["service.retire"]]
    fields = form_of(text, waits["refund.pay"]) | {"choice": "escalate", "reason": "eve knows the customer"}
    assert ann.post(f"{PAGES_PATH}/inbox/{waits['refund.pay']}", data=fields).status_code == 303
    [passed] = [one for one in proposals(served) if one["proposalId"] == waits["refund.pay"]]
    assert (passed["status"], passed["ruling"]["ask"]) == ("evaluating", ["eve"])


def test_an_operator_resolves_an_effect_in_doubt_on_the_page(
    served: Served, ann: httpx.Client, nil: httpx.Client
) -> None:
    [doubt] = [one["proposalId"] for one in proposals(served, status="executing")]
    path = f"/proposals/{doubt}"
    assert "An operator resolves it" in words_of(page(nil, path))
    assert nil.post(f"{PAGES_PATH}{path}/settle", data={"token": token_of(page(nil, path))}).status_code == 403
    text = page(ann, path)
    [form] = [one for one in parsed(text).iter("form") if one.get("action", "").endswith("/settle")]
    fields = {one.get("name", ""): one.get("value", "") for one in form.iter("input") if one.get("type") == "hidden"}
    given = fields | {"choice": "happened", "value": "{not json", "reason": "the bank's statement has it"}
    refused = ann.post(f"{PAGES_PATH}{path}/settle", data=given)
    assert refused.status_code == 400
    assert "is not JSON" in words_of(refused.text)
    assert "the bank's statement has it" in [one.text for one in parsed(refused.text).iter("textarea")]
    assert ann.post(f"{PAGES_PATH}{path}/settle", data=given | {"choice": "maybe"}).status_code == 400
    settled = ann.post(f"{PAGES_PATH}{path}/settle", data=given | {"value": '{"cents": 12900}'}, follow_redirects=True)
    assert settled.status_code == 200
    assert "The effect is resolved." in words_of(settled.text)
    assert "completed" in words_of(settled.text)
    with served.place.realm() as realm:
        [resolved] = [event for _, event in realm.events() if isinstance(event, EffectResolved)]
    assert (resolved.by, resolved.choice, resolved.reason) == ("ann", "happened", "the bank's statement has it")


def test_a_recheck_performs_the_steps_of_one_proposal_again(
    served: Served, ann: httpx.Client, nil: httpx.Client
) -> None:
    done = proposals(served, status="completed")[0]["proposalId"]
    path = f"/proposals/{done}"
    with served.place.realm() as realm:
        size = realm.log.head().size
    words = words_of(ended_job(served, ann, path, "recheck"))
    assert "Recheck: ✓ the same results" in words
    assert "1 execution" in words
    with served.place.realm() as realm:
        assert realm.log.head().size == size
    assert "Recheck" not in words_of(page(nil, path))
    assert nil.post(f"{PAGES_PATH}{path}/recheck", data={"token": token_of(page(nil, path))}).status_code == 403


def ended_job(served: Served, pages: httpx.Client, path: str, kind: str) -> str:
    """Press a button that starts a job, and return the page with its result."""
    begun = pages.post(f"{PAGES_PATH}{path}/{kind}", data={"token": token_of(page(pages, path))})
    assert begun.status_code == 303
    job = begun.headers["location"].partition("job=")[2].partition("#")[0]
    with served.client("ann") as client, client.stream("GET", f"{PATH}/jobs/{job}/stream") as states:
        assert any(line == "event: ended" for line in states.iter_lines())
    return page(pages, begun.headers["location"].removeprefix(PAGES_PATH).partition("#")[0])


def test_a_running_job_is_cancelled_on_its_page(served: Served, ann: httpx.Client, nil: httpx.Client) -> None:
    name = proposals(served, status="completed")[0]["proposalId"]
    path = f"/proposals/{name}"
    with served.client("ann") as client:
        job = client.post(f"{PATH}/recheck", json={"proposal": name, "all": True}).json()["jobId"]
        shown = page(ann, f"{path}?job={job}")
        assert ("Cancel" in words_of(shown)) is ("running" in words_of(shown))
        address = f"{PAGES_PATH}/jobs/{job}/cancel"
        assert nil.post(address, data={"token": token_of(page(nil, path))}).status_code == 403
        assert ann.post(address, data={"token": "0"}).status_code == 403
        done = ann.post(address, data={"token": token_of(page(ann, path))})
        assert (done.status_code, done.headers["location"]) == (303, f"{PAGES_PATH}{path}?job={job}")
        assert client.get(f"{PATH}/jobs/{job}").json()["status"] in ("cancelled", "done")


def test_a_page_shows_no_job_of_another_one(served: Served, ann: httpx.Client) -> None:
    first, second, *_ = [one["proposalId"] for one in proposals(served, status="completed")]
    begun = ann.post(
        f"{PAGES_PATH}/proposals/{first}/recheck", data={"token": token_of(page(ann, f"/proposals/{first}"))}
    )
    job = begun.headers["location"].partition("job=")[2].partition("#")[0]
    assert "Recheck:" in words_of(page(ann, f"/proposals/{first}?job={job}"))
    words = words_of(page(ann, f"/proposals/{second}?job={job}"))
    assert "is not one of this page" in words
    assert "Recheck:" not in words


def test_a_what_if_shows_what_would_be_otherwise_without_the_proposal(
    served: Served, ann: httpx.Client, nil: httpx.Client
) -> None:
    [_, second, third, *_] = [one["proposalId"] for one in proposals(served, status="completed")]
    path = f"/proposals/{second}"
    text = ended_job(served, ann, path, "whatif")
    assert "What if it had not been submitted: something else" in words_of(text)
    [card] = [one for one in parsed(text).iter("section") if one.get("aria-labelledby") == "whatif"]
    assert third in {one.get("href", "").rpartition("/")[2] for one in card.iter("a")}
    assert "What if not?" not in words_of(page(nil, path))
    assert nil.post(f"{PAGES_PATH}{path}/whatif", data={"token": token_of(page(nil, path))}).status_code == 403


def test_a_lease_is_revoked_with_a_reason(served: Served, ann: httpx.Client, nil: httpx.Client) -> None:
    text = page(ann, "/leases")
    words = words_of(text)
    for found in ("queued MUTATES", "bob holds MUTATES FILE:/src/search.py in session edit", "Refused, to ask again 1"):
        assert found in words, found
    forms = [one for one in parsed(text).iter("form") if one.get("action", "").endswith("/leases/revoke")]
    fields = [
        {one.get("name", ""): one.get("value", "") for one in form.iter("input") if one.get("type") == "hidden"}
        for form in forms
    ]
    with served.client("ann") as client:
        held = client.get(f"{PATH}/leases").json()["leases"]
    assert [one["lease"] for one in fields] == [one["leaseId"] for one in held]
    [lease] = [one["leaseId"] for one in held if one["sessionId"] == "read"]
    given = fields[0] | {"lease": lease}
    assert ann.post(f"{PAGES_PATH}/leases/revoke", data=given | {"reason": ""}).status_code == 400
    assert "Revoke" not in words_of(page(nil, "/leases"))
    refused = nil.post(
        f"{PAGES_PATH}/leases/revoke", data=given | {"reason": "no", "token": token_of(page(nil, "/leases"))}
    )
    assert refused.status_code == 403
    revoked = ann.post(f"{PAGES_PATH}/leases/revoke", data=given | {"reason": "eve is away"}, follow_redirects=True)
    assert "The lease is revoked." in words_of(revoked.text)
    with served.client("ann") as client:
        assert lease not in {one["leaseId"] for one in client.get(f"{PATH}/leases").json()["leases"]}


def cells(text: str) -> list[str]:
    """Return the first cells of the rows of the lineage."""
    rows = [one for one in parsed(text).iter("tr") if one.find("th") is not None or one.find("td") is not None]
    return [" ".join("".join(row[0].itertext()).split()) for row in rows[1:]]


def test_the_address_of_the_lineage_holds_the_view(served: Served, ann: httpx.Client) -> None:
    with served.client("ann") as client:
        worlds = client.get(f"{PATH}/worlds").json()["worlds"]
    canary = [one["worldId"][:12] for one in worlds if one["branch"] == "canary"]
    now = cells(page(ann, "/worlds?depth=300"))
    assert [one[:12] for one in now] == [one["worldId"][:12] for one in worlds]
    before = [one for one in worlds if one["position"] <= worlds[-3]["position"]]
    past = cells(page(ann, f"/worlds?depth=300&at={worlds[-3]['worldId']}"))
    assert [one[:12] for one in past] == [one["worldId"][:12] for one in before]
    assert past[0].endswith("head of main")
    assert [one[:12] for one in cells(page(ann, "/worlds?depth=300&branch=canary"))][:2] == canary
    folded = cells(page(ann, "/worlds?depth=0"))
    fold = next(one for one in folded if one.startswith("Unfold"))
    link = next(
        one.get("href", "") for one in parsed(page(ann, "/worlds?depth=0")).iter("a") if "open=" in one.get("href", "")
    )
    unfolded = cells(page(ann, link.removeprefix(PAGES_PATH)))
    assert len(unfolded) == len(folded) - 1 + int(fold.split()[1])
    found = words_of(page(ann, "/worlds?q=registry%2Fsearch"))
    assert "1 value with registry/search" in found
    assert "services.search.image: registry/search:1.5" in found
    changed = page(ann, "/worlds?path=services.search&branch=main")
    assert "2 of the newest" in words_of(changed)
    assert len([one for one in parsed(changed).iter("tr") if one.get("class") == "match"]) == 2
    for refused, words in (("at=nope", "names no point in the past"), ("branch=none", "There is no branch 'none'")):
        assert words in words_of(page(ann, f"/worlds?{refused}"))


def test_a_world_is_compared_and_its_values_are_blamed(served: Served, ann: httpx.Client) -> None:
    with served.client("ann") as client:
        worlds = client.get(f"{PATH}/worlds").json()["worlds"]
    genesis = worlds[-1]["worldId"]
    text = words_of(page(ann, f"/worlds/HEAD?path=services.search.replicas&with={genesis}"))
    for words in (
        "Blame of services.search.replicas",
        "rollout-bot (agent) with service.deploy",
        "all changes of this path",
    ):
        assert words in text, words
    assert f"Changes from {genesis[:12]}" in text
    assert "INVALID_PATH" not in text
    assert "does not exist" in words_of(page(ann, "/worlds/HEAD?with=nope"))


def test_a_state_of_any_depth_and_width_is_shown(served: Served, ann: httpx.Client) -> None:
    service = deployment("wide", 1, notice="x" * 5_000)
    assert served.submit("rollout-bot", {"type": "service.deploy", "input": service}).status_code == 200
    assert "wide" in page(ann, "/worlds/HEAD")


def test_the_stream_of_the_inbox_says_when_it_changed_and_ends_with_the_session(served: Served) -> None:
    with signed_in(served, "eve") as eve, streaming(eve, "/inbox/stream?seen=other") as lines:
        assert next(lines) == "event: changed"  # what the page has seen is another state
        proposal = served.submit("cleanup-bot", {"type": "service.retire", "input": {"service": "mail"}})
        assert proposal.status_code == 202
        assert next(one for one in lines if one.startswith("event")) == "event: changed"
        assert "service.retire" in page(eve, "/inbox")
        with served.client() as client:
            client.cookies = eve.cookies
            assert (
                client.post(f"{PAGES_PATH}/sign-out", data={"token": token_of(page(eve, "/inbox"))}).status_code == 200
            )
        assert [one for one in lines if one.startswith("event")] == []  # it ends


@contextmanager
def streaming(client: httpx.Client, path: str) -> Iterator[Iterator[str]]:
    with client.stream("GET", PAGES_PATH + path) as stream:
        assert stream.status_code == 200
        yield (line for line in stream.iter_lines() if line and not line.startswith(":"))
