"""Bindings are closed records with their defaults filled in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from authority import Approve, PolicyRegistry, StandardAuthority, read_binding
from authority.bindings.asking import DAY_MS, MAX_STEPS, MAX_TIMEOUT_MS
from tests.authority.cases import authority_with, policy
from tests.support.tables import for_each
from world.errors import RefusedError
from world.model.canonical_json import canonical_bytes
from worldprotocol.testing import strategies as wp

JSON = wp.json_values()
KINDS = st.sampled_from(["auto_approve", "policy_rules", "hitl", "tribunal", "x", None, 7])
WIRES = st.fixed_dictionaries(
    {},
    optional={
        "kind": KINDS,
        "policy": JSON,
        "ask": JSON,
        "timeoutMs": JSON,
        "onTimeout": JSON,
        "more": JSON,
        "members": st.one_of(JSON, st.lists(st.sampled_from("abc*"))),
        "rule": st.one_of(JSON, st.sampled_from(["majority", "unanimous", "threshold"])),
        "threshold": st.one_of(JSON, st.integers(1, 3)),
        "then": st.one_of(JSON, st.lists(st.fixed_dictionaries({}, optional={"ask": JSON, "members": JSON}))),
    },
)


@pytest.mark.parametrize(
    ("given_", "full"),
    [
        ({"kind": "auto_approve"}, {"kind": "auto_approve"}),
        (
            {"kind": "hitl"},
            {"kind": "hitl", "ask": ["*"], "timeoutMs": DAY_MS, "onTimeout": "reject"},
        ),
        (
            {"kind": "hitl", "ask": ["alice", "bob"], "timeoutMs": None, "onTimeout": "approve"},
            {"kind": "hitl", "ask": ["alice", "bob"], "timeoutMs": None, "onTimeout": "approve"},
        ),
        (
            {"kind": "tribunal", "members": ["alice", "bob"]},
            {
                "kind": "tribunal",
                "members": ["alice", "bob"],
                "rule": "majority",
                "timeoutMs": DAY_MS,
                "onTimeout": "reject",
            },
        ),
        (
            {"kind": "policy_rules", "policy": "house"},
            {
                "kind": "policy_rules",
                "policy": "house",
                "ask": ["*"],
                "timeoutMs": DAY_MS,
                "onTimeout": "reject",
            },
        ),
    ],
)
@pytest.mark.requirement("WP-bind")
def test_a_binding_in_its_full_form_says_everything(given_, full):
    authority = authority_with(policy(Approve()))
    assert authority.check_binding(given_) == full
    assert authority.check_binding(full) == full


@for_each(
    ("wire", "code"),
    [
        ({}, "UNKNOWN_BINDING"),
        ({"kind": "anarchy"}, "UNKNOWN_BINDING"),
        ({"kind": ["hitl"]}, "UNKNOWN_BINDING"),
        ({"kind": "tribunal"}, "INVALID_VALUE"),
        ({"kind": "tribunal", "members": []}, "INVALID_VALUE"),
        ({"kind": "tribunal", "members": ["a", "a"]}, "INVALID_VALUE"),
        ({"kind": "tribunal", "members": ["a", "*"]}, "INVALID_VALUE"),
        ({"kind": "tribunal", "members": ["a"], "rule": "anarchy"}, "INVALID_VALUE"),
        ({"kind": "tribunal", "members": ["a"], "rule": "threshold"}, "INVALID_VALUE"),
        ({"kind": "tribunal", "members": ["a"], "threshold": 1}, "INVALID_VALUE"),
        ({"kind": "tribunal", "members": ["a"], "rule": "threshold", "threshold": 2}, "INVALID_VALUE"),
        ({"kind": "tribunal", "members": ["a"], "rule": "threshold", "threshold": 0}, "INVALID_VALUE"),
        ({"kind": "tribunal", "members": ["a"], "onTimeout": "escalate"}, "INVALID_VALUE"),
        ({"kind": "hitl", "then": [{}]}, "INVALID_VALUE"),
        ({"kind": "hitl", "then": [{"ask": ["a"], "members": ["b"]}]}, "INVALID_VALUE"),
        ({"kind": "hitl", "then": [{"ask": ["a"], "rule": "majority"}]}, "INVALID_VALUE"),
        ({"kind": "hitl", "then": [{"ask": ["a"], "onTimeout": "escalate"}]}, "INVALID_VALUE"),
        ({"kind": "hitl", "then": [{"members": ["a"], "rule": "threshold", "threshold": 2}]}, "INVALID_VALUE"),
        ({"kind": "hitl", "then": [{"ask": ["a"], "then": []}]}, "INVALID_VALUE"),
        ({"kind": "hitl", "then": [{"ask": ["a"]}] * (MAX_STEPS + 1)}, "INVALID_VALUE"),
        ({"kind": "auto_approve", "then": [{"ask": ["a"]}]}, "INVALID_VALUE"),
        ({"kind": "auto_approve", "ask": ["alice"]}, "INVALID_VALUE"),
        ({"kind": "policy_rules"}, "INVALID_VALUE"),
        ({"kind": "policy_rules", "policy": "nobody-knows"}, "UNKNOWN_POLICY"),
        ({"kind": "hitl", "ask": []}, "INVALID_VALUE"),
        ({"kind": "hitl", "ask": ["a", "a"]}, "INVALID_VALUE"),
        ({"kind": "hitl", "ask": [""]}, "INVALID_VALUE"),
        ({"kind": "hitl", "ask": "alice"}, "INVALID_VALUE"),
        ({"kind": "hitl", "timeoutMs": 0}, "INVALID_VALUE"),
        ({"kind": "hitl", "timeoutMs": -1}, "INVALID_VALUE"),
        ({"kind": "hitl", "timeoutMs": "1000"}, "INVALID_VALUE"),
        ({"kind": "hitl", "timeoutMs": True}, "INVALID_VALUE"),
        ({"kind": "hitl", "timeoutMs": MAX_TIMEOUT_MS + 1}, "INVALID_VALUE"),
        ({"kind": "hitl", "onTimeout": "wait"}, "INVALID_VALUE"),
        ({"kind": "hitl", "timeout": 5}, "INVALID_VALUE"),
    ],
)
@pytest.mark.requirement("WP-bind")
def test_a_binding_that_is_wrong_anywhere_is_refused(wire, code):
    with pytest.raises(RefusedError) as refused:
        StandardAuthority(PolicyRegistry()).check_binding(wire)
    assert refused.value.code == code


@pytest.mark.requirement("WP-bind")
def test_where_the_chain_goes_on_the_time_limit_hands_up_and_at_its_end_it_rejects():
    full = read_binding({"kind": "hitl", "then": [{"members": ["a"]}, {"ask": ["b"], "timeoutMs": None}]}).to_wire()
    assert full == {
        "kind": "hitl",
        "ask": ["*"],
        "timeoutMs": DAY_MS,
        "onTimeout": "escalate",
        "then": [
            {"members": ["a"], "rule": "majority", "timeoutMs": DAY_MS, "onTimeout": "escalate"},
            {"ask": ["b"], "timeoutMs": None, "onTimeout": "reject"},
        ],
    }
    assert read_binding(full).to_wire() == full


@pytest.mark.parametrize("wire", [None, 7, "hitl", []])
def test_what_is_no_object_is_no_binding(wire):
    with pytest.raises(RefusedError) as refused:
        read_binding(wire)
    assert refused.value.code == "UNKNOWN_BINDING"


@given(WIRES)
def test_any_object_is_a_binding_or_refused(wire):
    try:
        full = read_binding(wire).to_wire()
    except RefusedError:
        return
    assert canonical_bytes(read_binding(full).to_wire()) == canonical_bytes(full)
    assert {name for name, value in wire.items() if name != "kind" and value not in (None, [])} <= set(full)
