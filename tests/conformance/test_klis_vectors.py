"""The cases of the protocol, through the scenario runner and once through the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.klis_scenario import OPS, LedgerScenario, read_cases
from tests.cli.realm import CliRealm
from tests.support.tables import for_each
from world.errors import RefusedError

TEXT: Final = (Path(__file__).resolve().parents[1] / "vectors" / "klis.json").read_bytes()
CASES: Final[list[dict[str, Any]]] = json.loads(TEXT)["cases"]

PROVES: Final = {
    "MATRIX": ("KP-1", "KP-2a", "KP-2b"),
    "WAITDIE": ("KP-3a", "KP-4b"),
    "MULTI": ("KP-3a", "KP-5a"),
    "REENTRANT": ("KP-7",),
    "TTL": ("KP-4a", "KP-4c"),
    "IDENTITY": ("KP-4b",),
    "MANIFEST": ("KP-5a", "KP-5b"),
    "VALIDATE": ("KM-3", "KM-5", "KM-6.1", "KM-6.2", "KM-6.3", "KM-6.4", "KM-7.1", "KM-7.2"),
    "CANON": ("KM-4.2a", "KM-4.2b", "KP-6"),
    "WILDCARD": ("KP-wild",),
    "OBSERVE": ("KO-2.1", "KO-3", "KO-3.1", "KO-3.2a", "KO-3.2b", "KO-7"),
}


def matches(expected: Any, given: Any) -> bool:
    """Tell whether a result is what a case expects; null is anything, objects match on the keys they name."""
    if expected is None:
        return True
    if isinstance(expected, dict):
        if "one_of" in expected:
            return any(matches(one, given) for one in expected["one_of"])
        if "not" in expected:
            return not matches(expected["not"], given)
        return isinstance(given, dict) and all(
            name in given and matches(value, given[name]) for name, value in expected.items()
        )
    return type(expected) is type(given) and bool(expected == given)


def differences(case: dict[str, Any], results: list[Any]) -> list[Any]:
    told = zip(case["ops"], case["expect"], results, strict=True)
    return [(op, expected, given) for op, expected, given in told if not matches(expected, given)]


def parameters() -> list[Any]:
    return [pytest.param(case, id=case["id"], marks=pytest.mark.requirement(*PROVES[case["group"]])) for case in CASES]


@pytest.mark.parametrize("case", parameters())
def test_a_case_ends_as_the_protocol_says(case):
    assert differences(case, list(LedgerScenario().run(case["ops"]))) == []


def test_every_group_is_there():
    assert {case["group"] for case in CASES} == set(PROVES)
    assert len(CASES) == 141


@pytest.mark.slow
@pytest.mark.requirement("KP-5a", "KP-2a", "KM-6.1")
def test_the_command_line_gives_the_same_results_for_all_cases_at_once(tmp_path):
    (tmp_path / "cases.json").write_text(json.dumps({"cases": CASES}))
    lines = CliRealm(tmp_path, "conformance")("klis-run", "cases.json").lines
    results: dict[str, list[Any]] = {}
    for line in lines:
        assert set(line) == {"case", "op", "result"}
        assert line["op"] == len(results.setdefault(line["case"], []))
        results[line["case"]].append(line["result"])
    assert [differences(case, results[case["id"]]) for case in CASES] == [[]] * len(CASES)


def test_one_case_gives_bare_results_and_several_are_read_in_each_form(tmp_path):
    realm = CliRealm(tmp_path, "conformance")
    one = next(case for case in CASES if case["id"] == "IDENTITY-011")
    assert realm("klis-run", "-", given=json.dumps(one)).lines == one["expect"]
    two = CASES[:2]
    forms = (json.dumps(two), json.dumps({"cases": two}), "".join(json.dumps(case) + "\n" for case in two))
    told = [realm("klis-run", given=form).lines for form in forms]
    assert told[0] == told[1] == told[2]
    assert {line["case"] for line in told[0]} == {case["id"] for case in two}


@pytest.mark.requirement("KP-4b", "KP-4c")
def test_bad_times_to_live_are_refused_and_change_nothing():
    ask = {"op": "acquire", "t": 1, "agent": "a", "session": "s", "resource": "FILE:/x", "predicate": "MUTATES"}
    bad = [{**ask, "ttl": ttl} for ttl in (0, -1, 2**64, 1.5, "5", True)]
    told = list(LedgerScenario().run([*bad, {"op": "active", "t": 2}]))
    assert told == ["REJECT"] * len(bad) + [[]]


@pytest.mark.requirement("KP-4b", "KP-7")
def test_only_the_holder_gives_back_and_only_once():
    ask = {"op": "acquire", "t": 1, "agent": "a", "session": "s", "resource": "FILE:/x", "predicate": "MUTATES"}
    ops = [
        {**ask, "as": "L"},
        {"op": "release", "t": 2, "lease": "L", "agent": "b", "session": "s"},
        {"op": "heartbeat", "t": 2, "lease": "L", "agent": "a", "session": "t"},
        {"op": "heartbeat", "t": 2, "lease": "L"},
        {"op": "release", "t": 3, "lease": "L"},
        {"op": "release", "t": 3, "lease": "L"},
        {**ask, "t": 4, "as": "M"},
        {"op": "revoke", "t": 5, "lease": "M", "reason": "it is stuck"},
        {"op": "revoke", "t": 5, "lease": "M", "reason": "it is stuck"},
        {"op": "active", "t": 6},
    ]
    assert list(LedgerScenario().run(ops)) == ["GRANTED", False, False, True, True, False, "GRANTED", True, False, []]


def test_a_clock_that_steps_back_is_refused():
    ask = {"op": "acquire", "agent": "a", "session": "s", "resource": "FILE:/x", "predicate": "MUTATES"}
    told = list(LedgerScenario().run([{**ask, "t": 10}, {**ask, "t": 9}, {"op": "evict", "t": 9}]))
    assert told[:2] == ["GRANTED", "REJECT"]
    assert told[2]["error"] == "CLOCK_STEPPED_BACK"


@pytest.mark.requirement("KM-3.3", "KM-6.4")
def test_a_declaration_that_is_refused_says_why():
    intents = [{"predicate": "DELETES", "resource": "FILE:/x"}, {"predicate": "MUTATES", "resource": "FILE:/x"}]
    declare = {"op": "declare", "t": 1, "agent": "a", "session": "s", "intents": intents}
    terminal = {"op": "declare", "t": 3, "agent": "a", "session": "s", "intents": intents[1:]}
    told = list(LedgerScenario().run([declare, {**declare, "t": 2, "intents": intents[:1]}, terminal]))
    assert told == [
        {"reject": "INTERNAL_CONTRADICTION"},
        {"verdict": "GRANTED", "conflicts": 0},
        {"reject": "TERMINAL"},
    ]


@pytest.mark.requirement("KM-7.1")
def test_a_plain_channel_takes_what_is_signed_with_a_registered_key():
    from base64 import b64encode

    from world.klis.identity.signature import public_key, sign

    private = bytes(range(32))
    scope = [{"predicate": "MUTATES", "resource": "FILE:/a"}]
    wire = {"ver": "1.0", "session_id": "s", "agent_id": "a", "scope": scope, "issued_at": 1, "nonce": "n"}
    manifest = sign(wire, private)
    validate = {"op": "validate", "channel": "plain", "manifest": manifest}
    key = {"op": "register_key", "agent": "a", "key": b64encode(public_key(private)).decode()}
    altered = {**validate, "manifest": {**manifest, "session_id": "t"}}
    refused = {"reject": "UNAUTHENTICATED"}
    told = list(LedgerScenario().run([validate, key, validate, altered, {**validate, "manifest": wire}]))
    assert told == [refused, "OK", "ACCEPT", refused, refused]


@pytest.mark.requirement("KP-3e", "KP-3c")
def test_an_unknown_agent_is_registered_by_the_timestamp_of_its_manifest_and_keeps_it():
    ask = {"session": "s", "op": "acquire", "predicate": "MUTATES", "resource": "FILE:/x"}
    intents = [{"predicate": "MUTATES", "resource": "FILE:/x"}]
    declare = {"op": "declare", "session": "s", "intents": intents}
    told = list(
        LedgerScenario().run(
            [
                {**ask, "t": 1_000, "agent": "holder", "priority_timestamp": 500},
                {**ask, "t": 1_001, "agent": "older", "priority_timestamp": 499},
                {**declare, "t": 1_002, "agent": "oldest", "priority_timestamp": 0},
                {**ask, "t": 1_003, "agent": "younger", "priority_timestamp": 501},
                {**ask, "t": 1_004, "agent": "younger", "priority_timestamp": 1},
                {**ask, "t": 1_005, "agent": "unknown"},
                {**ask, "t": 1_006, "agent": "bad", "priority_timestamp": -1},
                {**declare, "t": 1_007, "agent": "bad", "priority_timestamp": 2**64},
            ]
        )
    )
    waits = {"verdict": "WAIT", "conflicts": 1}
    assert told == ["GRANTED", "WAIT", waits, "DIE", "DIE", "DIE", "REJECT", {"reject": "MALFORMED_SCHEMA"}]


@pytest.mark.requirement("KM-7.1")
@pytest.mark.parametrize("channel", [{}, {"channel": "mtls"}, {"channel": "plain"}])
def test_a_signature_that_is_there_has_to_be_right_on_every_channel(channel):
    from base64 import b64encode

    from world.klis.identity.signature import public_key, sign

    private = bytes(range(32))
    scope = [{"predicate": "MUTATES", "resource": "FILE:/a"}]
    wire = {"ver": "1.0", "session_id": "s", "agent_id": "a", "scope": scope, "issued_at": 1, "nonce": "n"}
    signed, validate = sign(wire, private), {"op": "validate", **channel}
    ops = [
        {**validate, "manifest": signed},
        {"op": "register_key", "agent": "a", "key": b64encode(public_key(private)).decode()},
        {**validate, "manifest": signed},
        {**validate, "manifest": {**signed, "signature": "AAAA"}},
        {**validate, "manifest": {**signed, "session_id": "t"}},
        {**validate, "manifest": wire},
    ]
    refused = {"reject": "UNAUTHENTICATED"}
    unsigned = refused if channel == {"channel": "plain"} else "ACCEPT"
    assert list(LedgerScenario().run(ops)) == [refused, "OK", "ACCEPT", refused, refused, unsigned]


@for_each(
    "op",
    [
        None,
        "acquire",
        {},
        {"op": "dance"},
        {"op": ["acquire"]},
        {"op": "register"},
        {"op": "register_key", "agent": "a", "key": "AAAA"},
        {"op": "evict", "t": -1},
        {"op": "evict", "t": "soon"},
        {"op": "evict", "t": True},
        {"op": "release", "t": 1},
        {"op": "revoke", "t": 1, "lease": "L"},
        {"op": "distinct_ids"},
        {"op": "validate", "manifest": {}, "channel": "pigeon"},
    ],
)
def test_an_operation_that_makes_no_sense_is_an_error_in_its_place_and_the_rest_goes_on(op):
    told = list(LedgerScenario().run([op, {"op": "active", "t": 5}]))
    assert told[0]["error"] == "INVALID_SCENARIO"
    assert told[0]["message"]
    assert told[1] == []


@pytest.mark.parametrize("manifest", [None, [], "{", "[]", 5, {"scope": [2**70]}])
def test_a_manifest_that_is_none_is_malformed(manifest):
    assert list(LedgerScenario().run([{"op": "validate", "manifest": manifest}])) == [{"reject": "MALFORMED_SCHEMA"}]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"", "MALFORMED_JSON"),
        (b"{", "MALFORMED_JSON"),
        (b'{"ops": []}\n{', "MALFORMED_JSON"),
        (b'{"ops": [], "ops": []}', "MALFORMED_JSON"),
        (b'{"ops": [NaN]}', "MALFORMED_JSON"),
        (b"\xff", "MALFORMED_JSON"),
        (b"[" * 100_000, "MALFORMED_JSON"),
        (b"5", "INVALID_SCENARIO"),
        (b'{"cases": 5}', "INVALID_SCENARIO"),
        (b'[{"ops": 5}]', "INVALID_SCENARIO"),
        (b'{"ops": []}\n5', "INVALID_SCENARIO"),
    ],
)
def test_a_file_that_is_no_scenario_is_refused(text, code):
    with pytest.raises(RefusedError) as caught:
        read_cases(text)
    assert caught.value.code == code


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["a", "L", "FILE:/x", "rm /x", "fs.readFile('/x')", "permissive", ".klock/backups"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
FIELDS = (
    "t", "agent", "session", "priority", "predicate", "resource", "ttl", "as", "intents", "lease", "leases", "reason",
    "held", "requested", "manifest", "channel", "key", "ordered", "confidence", "priority_timestamp",
    "call", "declared", "mode", "cwd", "exists", "dir",
)  # fmt: skip
START = {
    "op": "acquire", "t": 1, "agent": "a", "session": "a", "resource": "FILE:/x", "predicate": "MUTATES", "as": "L",
}  # fmt: skip


@pytest.mark.requirement("KM-6.1")
@given(st.sampled_from(sorted(OPS)), st.dictionaries(st.sampled_from(FIELDS), ANYTHING))
def test_whatever_an_operation_holds_it_has_a_result(name, fields):
    told = list(LedgerScenario().run([START, {"t": 2, "agent": "a", "lease": "L", **fields, "op": name}]))
    assert len(told) == 2
    assert told[0] == "GRANTED"
