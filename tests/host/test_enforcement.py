"""Patches against approvedScope: what lies outside is refused before anything is sealed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host import SCOPE_VIOLATION, EffectResult, check_enforcement, first_outside, handler
from tests.host.driving import Record, hosted, order, run
from world.core import merge, set_, unset
from world.errors import RefusedError
from world.model.identity import snapshot_hash
from world.model.intent import IntentScope


def scope(*paths: str) -> IntentScope:
    return IntentScope.read({"allowedPaths": list(paths)})


# --- the check ------------------------------------------------------------------------------------


@pytest.mark.requirement("INT-13.5")
def test_the_first_patch_outside_is_the_one_that_is_told() -> None:
    patches = [set_("profile.name", "x"), set_("stock", 1), unset("title")]
    assert first_outside(scope("data.profile.*"), patches) == patches[1]
    assert first_outside(scope("profile.*", "stock", "title"), patches) is None


def test_no_scope_and_a_scope_without_paths_are_no_restriction() -> None:
    patches = [set_("", {"stock": 0})]
    assert first_outside(None, patches) is None
    assert first_outside(IntentScope(note="free"), patches) is None


@pytest.mark.requirement("INT-13.5")
def test_a_scope_with_no_paths_in_it_allows_nothing() -> None:
    assert first_outside(scope(), [set_("stock", 1)]) == set_("stock", 1)
    assert first_outside(scope(), []) is None


@pytest.mark.requirement("INT-13.5")
@pytest.mark.parametrize(
    "patch",
    [set_("profile", {}), merge("", {"profile": {}, "stock": 1}), merge("", {"stock": 1}), unset("profile")],
)
def test_a_patch_that_touches_more_than_the_scope_is_outside(patch: Any) -> None:
    assert first_outside(scope("profile.name"), [patch]) == patch


def test_an_enforcement_has_one_of_two_names() -> None:
    assert check_enforcement("enforcing") == "enforcing"
    assert check_enforcement("trusting") == "trusting"
    with pytest.raises(RefusedError) as refused:
        check_enforcement("permissive")
    assert refused.value.code == "INVALID_ENFORCEMENT"


# --- in an execution ------------------------------------------------------------------------------


def steer(*patches: Any) -> dict[str, Any]:
    return {"patches": [patch.to_wire() for patch in patches]}


@pytest.mark.requirement("INT-13.5")
def test_an_enforcing_host_refuses_what_lies_outside_and_names_it() -> None:
    host = hosted()
    given = order(host.domain, "steer", steer(set_("title", "t"), set_("stock", 1)), paths=["data.title", "profile.*"])
    outcome = host.step(given)
    assert outcome.status == "failed"
    error = outcome.error
    assert error is not None
    assert error.code == SCOPE_VIOLATION
    assert error.context == {"op": "set", "path": "stock", "allowedPaths": ["data.title", "profile.*"]}
    assert (error.action_id, error.node_path) == ("steer", "stock")
    for named in ("'stock'", "data.title", "profile.*", "steer"):
        assert named in error.message
    assert outcome.patches == ()
    assert outcome.snapshot.data is given.snapshot.data
    assert outcome.snapshot.computed == {"computed.lineCount": 0}
    assert outcome.snapshot.system.last_error == error
    assert outcome.snapshot.system.errors == (error,)


@pytest.mark.requirement("INT-13.5")
def test_a_trusting_host_does_not_look() -> None:
    host = hosted(enforcement="trusting")
    outcome = host.step(order(host.domain, "steer", steer(set_("stock", 1)), paths=[]))
    assert outcome.status == "completed"
    assert outcome.snapshot.data["stock"] == 1


@pytest.mark.requirement("INT-13.5")
def test_the_patches_of_an_effect_are_held_against_the_scope_too() -> None:
    answers = handler("http.get")(lambda params, call: EffectResult(patches=[set_("stock", 9)]))
    host = hosted(answers)
    inside = run(host, order(host.domain, "fetch", paths=["title", "stamps", "stock"]))
    assert inside.status == "completed"
    outside = run(host, order(host.domain, "fetch", paths=["title", "stamps"]))
    assert outside.error is not None
    assert outside.error.code == SCOPE_VIOLATION
    assert outside.snapshot.data["title"] == ""


@pytest.mark.requirement("INT-13.5")
def test_no_effect_is_made_once_a_patch_lies_outside() -> None:
    made: list[Any] = []
    host = hosted(handler("pay")(lambda params, call: made.append(params)))
    outcome = run(host, order(host.domain, "buy", {"item": "tea"}, paths=["receipt", "lines"]))
    assert outcome.error is not None
    assert outcome.error.code == SCOPE_VIOLATION
    assert made == []


def test_the_actions_own_error_is_told_rather_than_the_scope() -> None:
    host = hosted()
    outcome = host.step(order(host.domain, "buy", {"item": "tea"}, paths=[], stock=0))
    assert outcome.error is not None
    assert outcome.error.code == "SOLD_OUT"


def test_the_whole_data_is_called_so() -> None:
    host = hosted()
    outcome = host.step(order(host.domain, "steer", steer(merge("", {"title": "t"})), paths=["stock"]))
    assert outcome.error is not None
    assert "the whole data" in outcome.error.message


def test_a_refused_execution_is_sealed_the_same_each_time() -> None:
    hashes = set()
    for _ in range(2):
        host = hosted()
        outcome = host.step(order(host.domain, "steer", steer(set_("stock", 1)), paths=["title"]))
        hashes.add(snapshot_hash(outcome.snapshot.to_wire()))
    assert len(hashes) == 1


patches = st.one_of(
    st.builds(set_, st.just("stock"), st.integers(0, 9)),
    st.builds(set_, st.just("title"), st.text(max_size=3)),
    st.builds(set_, st.sampled_from(["profile.a", "profile.b", "profile.a.c"]), st.integers(0, 9)),
    st.builds(set_, st.just("profile"), st.dictionaries(st.sampled_from("ab"), st.integers(0, 9))),
    st.builds(merge, st.just("profile"), st.dictionaries(st.sampled_from("ab"), st.integers(0, 9))),
    st.builds(unset, st.sampled_from(["profile.a", "profile.b"])),
)
patterns = st.sampled_from(
    ["stock", "data.title", "profile", "data.profile.*", "profile.a", "profile.b.*", "*", "receipt"]
)


@pytest.mark.requirement("INT-13.5")
@given(st.lists(patches, max_size=4), st.lists(patterns, max_size=3))
def test_nothing_outside_the_scope_ever_changes(changes: list[Any], paths: list[str]) -> None:
    host = hosted()
    given_order = order(host.domain, "steer", steer(*changes), paths=paths)
    record = Record(given_order)
    outcome = record.run(host)
    roots = {pattern.removeprefix("data.").split(".")[0] for pattern in paths}
    before, after = given_order.snapshot.data, outcome.snapshot.data
    for name in before:
        if name not in roots and "*" not in roots:
            assert after[name] == before[name]
    if outcome.status == "completed":
        assert first_outside(given_order.approved_scope, outcome.patches) is None
        assert outcome.patches == tuple(changes)
    else:
        assert after == before
    trusted = hosted(enforcement="trusting").step(given_order)
    is_violation = outcome.error is not None and outcome.error.code == SCOPE_VIOLATION
    assert is_violation or (trusted.status, trusted.snapshot) == (outcome.status, outcome.snapshot)
