"""Commands that act over a server: what they record of the caller, and that a repeated request has one effect."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.remote.commanded import Commanded, commanded
from tests.remote.cutting_commands import cutting
from tests.support.patience import until
from world.audit.verify import verify
from world.events.access_events import RightGranted, RightRevoked, TokenCreated
from world.events.lease_events import KeyRegistered, LeasesRevoked, VerdictGiven
from world.events.policy_events import PolicyAdopted, PolicyRetired, ShadowConfigured
from world.events.proposal_events import HumanAnswered, ProposalSubmitted, ProposalSuperseded
from world.events.realm_events import ActorBound, ActorRegistered, BranchCreated, BranchSwitched
from world.events.verification import Verification

pytestmark = pytest.mark.slow

TEA = '{"item": "tea", "count": 2}'


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commanded]:
    """Return a served shop."""
    with commanded(tmp_path_factory.mktemp("acting")) as running:
        yield running


def last(shop: Commanded, kind: type) -> Any:
    """Return the newest event of a kind."""
    with shop.served.place.realm() as realm:
        return [event for _, event in realm.events() if isinstance(event, kind)][-1]


def count(shop: Commanded, kind: type) -> int:
    with shop.served.place.realm() as realm:
        return sum(isinstance(event, kind) for _, event in realm.events())


def by_token(event: Any, actor: str) -> bool:
    """Return whether an event records an actor that a token verified."""
    verified: Verification = event.verified
    return (verified.method, verified.actor_id) == ("token", actor) and verified.token_id is not None


def test_one_submits_and_another_one_decides(shop: Commanded) -> None:
    asked = shop.remote("kid", "submit", "sell", "--input", TEA, "--json", code=4).json
    assert asked["status"] == "evaluating"
    assert by_token(last(shop, ProposalSubmitted), "kid")
    refused = shop.remote("kid", "decide", asked["proposalId"], "approve", code=1).err
    assert "RIGHT_MISSING" in refused or "OWN_PROPOSAL" in refused
    done = shop.remote("ann", "decide", asked["proposalId"], "approve", "--json").json
    assert done["status"] == "completed"
    answered = last(shop, HumanAnswered)
    assert by_token(answered, "ann")
    assert answered.answer.by.actor_id == "ann"
    with shop.served.place.realm() as realm:
        assert verify(realm.log).ok


def test_nobody_names_another_actor(shop: Commanded) -> None:
    for words in (
        ["submit", "sell", "--actor", "ann", "--input", TEA],
        ["lease", "acquire", "FILE:/x", "--agent", "ann"],
    ):
        assert "NOT_THE_VERIFIED_ACTOR" in shop.remote("bot", *words, code=1).err
    lines = json.dumps({"actor": "ann", "type": "sell", "input": {"item": "tea"}}) + "\n"
    (line,) = shop.remote("bot", "submit", "--intents", "-", given=lines, code=1).lines
    assert line["error"]["code"] == "NOT_THE_VERIFIED_ACTOR"
    assert "NOT_THE_VERIFIED_ACTOR" in shop.remote("all", "branch", "create", "x", "--by", "ann", code=1).err


def test_lines_of_a_file_on_this_machine_are_submitted(shop: Commanded) -> None:
    lines = "".join(json.dumps({"type": "sell", "input": {"item": "tea", "count": n}}) + "\n" for n in (1, 2, 9))
    (shop.elsewhere / "lines.jsonl").write_text(lines + "{]\n")
    said = shop.remote("bot", "submit", "--intents", "lines.jsonl", code=1)
    assert [one["status"] for one in said.lines] == ["completed", "completed", "evaluating", "refused"]
    assert [one["line"] for one in said.lines] == [1, 2, 3, 4]
    assert "4 lines done" in said.err


def test_source_events_are_projected(shop: Commanded) -> None:
    event = json.dumps({"kind": "ui", "eventId": "e9", "payload": {"item": "tea"}})
    (shop.elsewhere / "event.json").write_text(event)
    said = shop.remote("bot", "project", "@event.json", "--json").json
    assert (said["status"], said["projection"]) == ("completed", "orders")
    assert by_token(last(shop, ProposalSubmitted), "bot")


def test_what_operators_do_is_recorded_with_them(shop: Commanded) -> None:
    """Each command as one that may, and as one that may not."""
    key = shop.local("keys", "new", str(shop.elsewhere / "new.pem"), "--json").json["publicKey"]
    (shop.elsewhere / "binding.json").write_text('{"kind": "auto_approve"}')
    for words, kind in (
        (["branch", "create", "trial"], BranchCreated),
        (["branch", "switch", "trial"], BranchSwitched),
        (["actor", "add", "eve", "--kind", "agent"], ActorRegistered),
        (["actor", "bind", "eve", "--bind", "@binding.json"], ActorBound),
        (["keys", "register", "eve", key], KeyRegistered),
        (["actor", "bind", "bot", "--auto-approve"], ActorBound),
        (["policy", "retire", "house"], PolicyRetired),
        (["policy", "adopt", "house"], PolicyAdopted),
        (["policy", "shadow", "on", "house"], ShadowConfigured),
    ):
        assert "RIGHT_MISSING" in shop.remote("bot", *words, code=1).err
        before = count(shop, kind)
        shop.remote("all", *words)
        assert count(shop, kind) == before + 1
        event = last(shop, kind)
        assert by_token(event, "all")
        assert event.by == "all"
    shop.remote("all", "rights", "grant", "eve", "reader")
    made = shop.remote("all", "token", "create", "--actor", "eve", "--json").json
    shop.remote("all", "token", "revoke", made["tokenId"], "--reason", "over")
    shop.remote("all", "rights", "revoke", "eve", "reader", "--reason", "over")
    shop.remote("all", "settle")
    with shop.served.place.realm() as realm:
        assert verify(realm.log).ok


def test_leases_are_taken_kept_and_given_back(shop: Commanded) -> None:
    got = shop.remote("kid", "lease", "acquire", "FILE:/src/a", "--session", "s9", "--json").json
    assert got["agentId"] == "kid"
    assert by_token(last(shop, VerdictGiven), "kid")
    name = got["leases"][0]["leaseId"]
    shop.remote("kid", "lease", "heartbeat", name, "--session", "s9")
    assert "Released" in shop.remote("kid", "lease", "release", name, "--session", "s9").out
    again = shop.remote("kid", "lease", "acquire", "FILE:/src/a", "--session", "s9", "--json").json
    refused = shop.remote("kid", "lease", "revoke", again["leases"][0]["leaseId"], "--reason", "x", code=1)
    assert "RIGHT_MISSING" in refused.err
    assert count(shop, LeasesRevoked) == 0


def test_a_request_whose_answer_is_cut_is_repeated_with_one_effect(shop: Commanded) -> None:
    (shop.elsewhere / "lines.jsonl").write_text('{"type": "sell", "input": {"item": "tea"}}\n' * 5)
    for words, kind, more in (
        (["submit", "sell", "--input", TEA], ProposalSubmitted, 1),
        (["submit", "--intents", "lines.jsonl"], ProposalSubmitted, 5),
        (["branch", "create", "cut"], BranchCreated, 1),
        (["branch", "switch", "cut"], BranchSwitched, 1),
        (["lease", "list"], VerdictGiven, 0),
    ):
        before = count(shop, kind)
        with cutting(shop.served.url, cuts=2) as proxy:
            said = shop.remote("all", *words, "--server", proxy.url)
            assert proxy.cut == 2
        assert count(shop, kind) == before + more
        assert said.err == "" or "5 lines done" in said.err
    asked = shop.remote("kid", "submit", "sell", "--input", TEA, "--json", code=4).json["proposalId"]
    before = count(shop, HumanAnswered)
    with cutting(shop.served.url, cuts=1) as proxy:
        words = ["decide", asked, "approve", "--json", "--server", proxy.url]
        assert shop.remote("ann", *words).json["status"] == "completed"
    assert count(shop, HumanAnswered) == before + 1
    asked = shop.remote("kid", "submit", "sell", "--input", TEA, "--json", code=4).json["proposalId"]
    before = count(shop, ProposalSuperseded)
    with cutting(shop.served.url, cuts=1) as proxy:
        words = ["cancel", asked, "--reason", "no longer wanted", "--json", "--server", proxy.url]
        assert shop.remote("all", *words).json["status"] == "superseded"
    assert count(shop, ProposalSuperseded) == before + 1
    lines = [
        json.loads(one) for one in shop.remote("all", "log", "--topic", "proposal.submitted", "--json").out.splitlines()
    ]
    assert len({one["state"]["proposalId"] for one in lines}) == len(lines)


def test_an_answer_that_is_cut_within_is_printed_once(shop: Commanded) -> None:
    whole = shop.remote("all", "log", "--json").out
    with cutting(shop.served.url, cuts=1, after=6_000) as proxy:
        assert shop.remote("all", "log", "--json", "--server", proxy.url).out == whole
        assert proxy.cut == 1


ADMINISTRATION: list[tuple[str, list[str], type, int]] = [
    ("all", ["actor", "add", "new", "--kind", "agent", "--auto-approve"], ActorBound, 1),
    ("all", ["actor", "bind", "new", "--ask", "ann"], ActorBound, 1),
    ("all", ["rights", "grant", "new", "reader", "--redact", "inputs"], RightGranted, 1),
    ("all", ["token", "create", "--actor", "new"], TokenCreated, 3),
    ("all", ["rights", "revoke", "new", "reader", "--reason", "over"], RightRevoked, 1),
    ("all", ["lease", "acquire", "FILE:/cut/one", "FILE:/cut/two"], VerdictGiven, 1),
    ("all", ["lease", "acquire", "--session", "mine", "FILE:/cut/three"], VerdictGiven, 1),
]
"""Commands, the events that they record, and how many of them where two answers are cut."""


@pytest.mark.parametrize(("caller", "words", "kind", "recorded"), ADMINISTRATION, ids=lambda one: str(one)[:40])
def test_a_command_of_administration_whose_answers_are_cut_has_one_effect(
    shop: Commanded, caller: str, words: list[str], kind: type, recorded: int
) -> None:
    before = count(shop, kind)
    with cutting(shop.served.url, cuts=2) as proxy:
        said = shop.remote(caller, *words, "--json", "--server", proxy.url)
        assert proxy.cut == 2
    assert count(shop, kind) == before + recorded
    assert said.err == ""
    if kind is TokenCreated:  # its text was lost twice
        in_force = shop.remote("all", "token", "list", "--json").json
        assert [one["tokenId"] for one in in_force if one["actorId"] == "new"] == [said.json["tokenId"]]
        assert said.json["token"].split("_")[1] == said.json["tokenId"]
    if kind is VerdictGiven:
        held = {one["leaseId"] for one in shop.remote("all", "lease", "list", "--json").json["leases"]}
        assert {one["leaseId"] for one in said.json["leases"]} <= held


def test_a_token_of_which_a_part_was_received_is_not_printed(shop: Commanded) -> None:
    shop.remote("all", "actor", "add", "half", "--kind", "agent", "--auto-approve")
    with cutting(shop.served.url, cuts=1, after=500) as proxy:
        said = shop.remote("all", "token", "create", "--actor", "half", "--server", proxy.url)
    assert [line[:4] for line in said.out.splitlines()] == ["wp1_", "toke"]
    in_force = shop.remote("all", "token", "list", "--json").json
    assert [one["tokenId"] for one in in_force if one["actorId"] == "half"] == [said.out.split("_")[1]]


def test_keys_and_policies_are_changed_once_though_answers_are_cut(shop: Commanded) -> None:
    key = base64.b64encode(bytes(range(32))).decode()
    shop.remote("all", "actor", "bind", "bot", "--auto-approve")
    shop.remote("all", "policy", "shadow", "on", "house")
    for words, kind in (
        (["keys", "register", "bot", key], KeyRegistered),
        (["policy", "shadow", "off"], ShadowConfigured),
        (["policy", "shadow", "on", "house"], ShadowConfigured),
        (["policy", "retire", "house"], PolicyRetired),
        (["policy", "adopt", "house"], PolicyAdopted),
    ):
        before = count(shop, kind)
        with cutting(shop.served.url, cuts=1) as proxy:
            shop.remote("all", *words, "--server", proxy.url)
            assert proxy.cut == 1, words
        assert count(shop, kind) == before + 1, words
    with shop.served.place.realm() as realm:
        assert verify(realm.log).ok


def test_a_request_that_waits_for_leases_is_continued_when_its_answer_is_cut(shop: Commanded) -> None:
    """The older session waits; its request is answered once, and its repetition gets the leases."""
    old = shop.remote("kid", "lease", "acquire", "--session", "old", "FILE:/older", "--json").json
    shop.remote("all", "lease", "acquire", "--session", "young", "FILE:/wanted", "--json")
    before = count(shop, VerdictGiven)
    words = ["lease", "acquire", "--session", "old", "FILE:/wanted", "--wait", "20", "--json"]
    with cutting(shop.served.url, cuts=1) as proxy, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(shop.remote, "kid", *words, "--server", proxy.url)
        until(lambda: count(shop, VerdictGiven) == before + 1)
        held = shop.remote("all", "lease", "list", "--json").json["leases"]
        (young,) = (one["leaseId"] for one in held if one["sessionId"] == "young")
        shop.remote("all", "lease", "release", "--session", "young", young)
        got = asked.result()
        assert proxy.cut == 1
    assert got.json["sessionId"] == old["sessionId"]
    assert count(shop, VerdictGiven) == before + 2  # Wait, then Granted
