"""Tribunals and chains on the command line: bind, vote, ask back, reply, hand on, hand up, and see how it stands."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.inside import Inside
from tests.cli.realm import COUNTER, FOUND, CliRealm

CHAIN = {"kind": "hitl", "ask": ["ann"], "then": [{"members": ["bob", "cat"], "rule": "unanimous", "timeoutMs": None}]}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("people")
    realm = Inside(folder)
    realm(*FOUND)
    realm("actor", "add", "bot", "--kind", "agent", "--policy", "house")
    for name, kind in (("ann", "human"), ("bob", "human"), ("cat", "system"), ("kid", "human")):
        realm("actor", "add", name, "--kind", kind, "--auto-approve")
    bench = [word for name in ("ann", "bob", "cat") for word in ("--tribunal", name)]
    said = realm("actor", "add", "kit", "--kind", "agent", *bench, "--vote", "threshold", "--threshold", "2")
    assert said.out == "kit (agent) is registered, bound by tribunal of ann, bob, cat, threshold 2.\n"
    assert "1 further step" in realm("actor", "bind", "bot", "--bind", json.dumps(CHAIN)).out
    realm("submit", "sell", "--actor", "kit", "--input", '{"item": "tea"}', code=4)
    return folder


@pytest.fixture
def realm(template: Path, tmp_path: Path) -> CliRealm:
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    return Inside(tmp_path)


def decide(realm: CliRealm, choice: str, by: str, *more: str, code: int = 0) -> Any:
    return realm("decide", "01", choice, "--by", by, *more, code=code)


@pytest.mark.requirement("WP-bind", "WP-decision")
def test_members_vote_and_the_inbox_shows_how_it_stands(realm: CliRealm) -> None:
    assert "2 of 3 decide: ann, bob, cat" in realm("inbox").out
    assert (
        "waits for bob, cat: ann agreed (1 of 3 approve, 1 more needed; ann voted)"
        in decide(realm, "approve", "ann").out
    )
    assert "ALREADY_VOTED" in decide(realm, "reject", "ann", code=1).err
    assert realm("inbox", "--for", "ann", "--json").json == []
    assert "no actor 'bobb'" in realm("inbox", "--for", "bobb", code=1).err
    (one,) = realm("inbox", "--for", "bob", "--json").json
    assert (one["waitsFor"], one["step"], one["steps"], one["onTimeout"]) == (["bob", "cat"], 1, 1, "reject")
    (vote,) = one["votes"]
    assert (vote["rule"], vote["needed"], vote["approved"]) == ("threshold", 2, ["ann"])
    decide(realm, "ask", "bob", "--reason", "for whom?")
    assert [one["proposalId"] for one in realm("inbox", "--for", "kit", "--json").json] == [one["proposalId"]]
    decide(realm, "reply", "kit", "--reason", "for me")
    assert "bob: for whom?; kit: for me" in realm("inbox").out
    decide(realm, "abstain", "bob")
    assert "completed" in decide(realm, "approve", "cat").out
    shown = realm("show", one["proposalId"]).out
    assert "answer    reply by kit: for me" in shown
    assert "* human answer approve [system:cat]" in shown
    assert "people    - human answer abstain [human:bob]" in realm("explain", one["proposalId"]).out
    assert realm("inbox", "--for", "kit", "--json").json == []
    assert realm("recheck", "--json").json["divergences"] == []
    realm("verify")
    assert "bound otherwise: 1" in realm("policy", "backtest", "--with", f"{COUNTER}:house").out


@pytest.mark.requirement("WP-bind")
def test_a_seat_is_handed_on_and_a_question_handed_up(realm: CliRealm) -> None:
    assert "DELEGATION_REFUSED" in decide(realm, "delegate", "ann", "--to", "kit", code=1).err
    handed = decide(realm, "delegate", "ann", "--to", "kid", "--reason", "on leave", "--json").json
    assert handed["waitsFor"] == ["kid", "bob", "cat"]
    name = handed["proposalId"]
    assert "answer    delegate to kid by ann: on leave" in realm("show", name).out
    decide(realm, "reject", "bob")
    assert decide(realm, "reject", "kid", "--json").json["status"] == "rejected"
    first = realm("submit", "sell", "--actor", "bot", "--input", '{"item": "tea"}', "--json", code=4).json
    raised = decide(realm, "escalate", "ann", "--reason", "not mine", "--json").json
    assert (first["waitsFor"], raised["waitsFor"]) == (["ann"], ["bob", "cat"])
    (one,) = realm("inbox", "--json").json
    assert (one["step"], one["steps"], one["deadline"]) == (2, 2, None)
    assert decide(realm, "reject", "cat", "--json").json["decision"]["reason"] == (
        "cat rejected it (0 of 2 approved, 2 needed)"
    )


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("escalate", "--by", "ann"), "needs --reason"),
        (("reply", "--by", "kit"), "needs --reason"),
        (("delegate", "--by", "ann"), "needs --to"),
        (("approve", "--by", "ann", "--to", "bob"), "needs --to"),
    ],
)
def test_an_answer_that_lacks_something_says_what(realm: CliRealm, words: tuple[str, ...], why: str) -> None:
    assert why in realm("decide", "01", *words, code=2).err


@pytest.mark.parametrize(
    "options",
    [
        ("--tribunal", "ann", "--ask", "bob"),
        ("--vote", "majority", "--ask", "bob"),
        ("--tribunal", "ann", "--threshold", "2"),
        ("--tribunal", "ann", "--vote", "threshold", "--threshold", "2"),
    ],
)
def test_a_tribunal_that_cannot_be_is_refused_when_it_is_bound(realm: CliRealm, options: tuple[str, ...]) -> None:
    realm("actor", "bind", "kit", *options, code=2)
