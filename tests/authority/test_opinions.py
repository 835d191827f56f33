"""Opinions are complete and sound when they are made."""

from __future__ import annotations

import pytest

from authority import Approve, Escalate, Narrow, Reject
from authority.bounded_text import MAX_WORDS, error_text, is_name
from authority.policies.opinions import MAX_ASKED
from tests.authority.cases import scope
from world.errors import RefusedError
from world.model.canonical_json import canonical_bytes
from world.model.intent import IntentScope


@pytest.mark.parametrize("given", ["data.a.*", ["data.a.*"], ("data.a.*",), scope("data.a.*"), iter(["data.a.*"])])
def test_a_narrowing_takes_a_pattern_several_or_a_scope(given):
    assert Narrow(given, "why").scope == scope("data.a.*")


@pytest.mark.parametrize("given", [[], (), IntentScope(), scope()])
def test_a_narrowing_to_nothing_is_no_narrowing(given):
    with pytest.raises(RefusedError, match="reject") as refused:
        Narrow(given)
    assert refused.value.code == "INVALID_OPINION"


@pytest.mark.parametrize("given", [[""], [7], 7, None, ["x" * 600], ["\ud800"]])
def test_a_narrowing_to_what_is_no_pattern_is_refused(given):
    with pytest.raises(RefusedError):
        Narrow(given)


def test_an_escalation_names_each_actor_once():
    assert Escalate("alice").to == ("alice",)
    assert Escalate(["alice", "bob", "alice"], "why").to == ("alice", "bob")
    assert Escalate(reason="why").to == ()


@pytest.mark.parametrize("given", [[""], [None], 7, ["\ud800"], [f"a{n}" for n in range(MAX_ASKED + 1)]])
def test_an_escalation_to_what_is_no_actor_is_refused(given):
    with pytest.raises(RefusedError) as refused:
        Escalate(given)
    assert refused.value.code == "INVALID_OPINION"


@pytest.mark.parametrize(
    "make", [Approve, Reject, lambda reason: Narrow("data.a", reason), lambda reason: Escalate("a", reason)]
)
def test_a_reason_is_a_text_that_a_log_can_hold(make):
    assert make("fine").reason == "fine"
    assert canonical_bytes(make("half \ud83d of a pair").reason)
    assert len(make("x" * 100_000).reason) == MAX_WORDS
    with pytest.raises(RefusedError) as refused:
        make(7)
    assert refused.value.code == "INVALID_OPINION"


def test_errors_are_told_without_what_differs_from_run_to_run():
    thing = object()
    assert "0x" not in error_text(ValueError(f"cannot judge {thing!r}"))
    assert error_text(ValueError()) == "ValueError"


def test_an_error_that_cannot_tell_itself_is_told_by_its_type():
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    assert error_text(Mute()) == "Mute"


@pytest.mark.parametrize(("text", "answer"), [("todo.small-changes", True), ("größe", True), ("a b", False)])
def test_names_hold_no_spaces(text, answer):
    assert is_name(text) is answer


@pytest.mark.parametrize("text", ["", ".a", "a" * 129, 7, None, "a\n"])
def test_some_things_are_no_names(text):
    assert not is_name(text)
