"""Manifests: the wire form, every refusal with its code, and the triples that leases are taken for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tests.support.tables import for_each
from world.errors import DamagedLogError, RefusedError
from world.klis.manifest import (
    MAX_MANIFEST_CHARS,
    Confidence,
    Manifest,
    Triple,
    manifest_schema,
    read_manifest,
    read_triple,
)
from world.klis.predicate import Predicate
from world.klis.resources import resource_reading, resource_types
from world.klis.scope import severity
from world.klis.settings import KlisSettings
from world.klis.triple import read_claim
from world.model.canonical_json import canonical_text

SETTINGS = KlisSettings()
PUBLISHED = Draft202012Validator(manifest_schema())
CODES = {
    "MALFORMED_SCHEMA",
    "MANIFEST_TOO_LARGE",
    "INVALID_PREDICATE",
    "AMBIGUOUS_RESOURCE",
    "UNKNOWN_RESOURCE_TYPE",
    "INTERNAL_CONTRADICTION",
    "GLOBAL_SCOPE",
}
CASES = json.loads(Path("tests/vectors/klis.json").read_bytes())["cases"]
VALIDATIONS = [
    pytest.param(op["manifest"], expected, id=case["id"])
    for case in CASES
    for op, expected in zip(case["ops"], case["expect"], strict=True)
    if op["op"] == "validate" and expected != {"reject": "UNAUTHENTICATED"}
]


def document(*scope: Any, **fields: Any) -> dict[str, Any]:
    """Return a manifest in wire form; a scope entry is an object or a text like ``MUTATES FILE:/a``."""
    entries = [one if not isinstance(one, str) else entry(one) for one in scope]
    return {"ver": "1.0", "session_id": "s", "agent_id": "a", "scope": entries} | fields


def entry(text: str) -> dict[str, Any]:
    predicate, name, *to = text.split()
    return {"predicate": predicate, "resource": name} | ({"to": to[0]} if to else {})


def read(*scope: Any, settings: KlisSettings = SETTINGS, **fields: Any) -> Manifest:
    return read_manifest(document(*scope, **fields), settings=settings)


def refusal(told: Any, **options: Any) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        read_manifest(told, **{"settings": SETTINGS} | options)
    assert caught.value.details["path"].startswith("$")
    return caught.value


def attempt(told: Any) -> Manifest | RefusedError:
    try:
        return read_manifest(told, settings=SETTINGS)
    except RefusedError as error:
        return error


def effective(*scope: Any, **fields: Any) -> dict[str, str]:
    return {name: predicate.value for name, predicate in read(*scope, **fields).effective().items()}


def contradicts(*scope: Any, **fields: Any) -> RefusedError:
    refused = refusal(document(*scope, **fields))
    assert refused.code == "INTERNAL_CONTRADICTION"
    return refused


# The vectors


@pytest.mark.requirement("KM-5", "KM-6.1", "KM-6.2", "KM-6.3", "KM-6.4", "KM-7.2", "KM-4.3")
@for_each(("told", "expected"), VALIDATIONS)
def test_validation_answers_as_the_vectors_say(told: dict[str, Any], expected: Any) -> None:
    if isinstance(expected, dict) and "reject" in expected:
        assert refusal(told).code == expected["reject"]
        return
    manifest = read_manifest(told, settings=SETTINGS)
    if expected != "ACCEPT":
        assert manifest.effective() == expected["accept"]["effective"]


# The wire form


@pytest.mark.requirement("KM-2.1", "KM-2.2", "KM-5", "KP-0")
def test_a_manifest_is_read_to_triples() -> None:
    told = document(
        {"predicate": "MUTATES", "resource": "file:/src/main.ts", "confidence": 0.6},
        "CONSUMES FILE:/src/utils.ts",
        priority_timestamp=1735000000000,
        issued_at=5,
        nonce="n",
        ordered=True,
    )
    manifest = read_manifest(told, settings=SETTINGS)
    assert (manifest.ver, manifest.session_id, manifest.agent_id, manifest.ordered) == ("1.0", "s", "a", True)
    assert (manifest.priority_timestamp, manifest.issued_at, manifest.nonce) == (1735000000000, 5, "n")
    assert [triple.to_wire() for triple in manifest.triples] == [
        {"predicate": "MUTATES", "resource": "FILE:/src/main.ts", "confidence": "Medium"},
        {"predicate": "CONSUMES", "resource": "FILE:/src/utils.ts", "confidence": "High"},
    ]
    assert manifest.declared == manifest.triples
    assert manifest.to_wire() == told


@pytest.mark.requirement("KM-5")
def test_json_yaml_and_objects_are_the_same_manifest() -> None:
    told = document("MUTATES FILE:/a", {"predicate": "CONSUMES", "resource": "FILE:/b/*", "confidence": "Low"})
    whole = read_manifest(told, settings=SETTINGS)
    for text in (json.dumps(told), json.dumps(told).encode(), canonical_text(told)):
        assert read_manifest(text, settings=SETTINGS) == whole
    for written in (yaml.safe_dump(told), yaml.safe_dump(told).encode(), json.dumps(told)):
        again = read_manifest(written, settings=SETTINGS, yaml=True)
        assert again == whole
        assert again.to_wire() == told


def test_a_manifest_keeps_nothing_of_the_callers_objects() -> None:
    told = document("MUTATES FILE:/a")
    manifest = read_manifest(told, settings=SETTINGS)
    told["scope"][0]["resource"] = "FILE:/b"
    assert manifest.to_wire()["scope"][0]["resource"] == "FILE:/a"


@pytest.mark.requirement("KP-0")
@pytest.mark.parametrize(
    ("told", "expected"),
    [(1.0, "High"), (1, "High"), (0.8, "High"), (0.79, "Medium"), (0.5, "Medium"), (0.49, "Low"), (0, "Low")]
    + [(name, name) for name in ("High", "Medium", "Low")],
)
def test_confidence_is_a_name_or_a_number(told: Any, expected: str) -> None:
    manifest = read({"predicate": "MUTATES", "resource": "FILE:/a", "confidence": told})
    assert manifest.triples[0].confidence == Confidence(expected)


def test_a_triple_from_the_log_is_the_triple_that_was_written() -> None:
    for triple in read("DELETES FILE:/a", "CONSUMES URL:https://h/a/*", "MUTATES DB:localhost/users").triples:
        wire = triple.to_wire()
        assert read_triple(wire["predicate"], wire["resource"], confidence=wire["confidence"]) == triple
        assert read_claim(triple.claim()) == triple


@pytest.mark.parametrize("told", [("", ""), ("WRITE", "FILE:/a"), ("MUTATES", "FILE:a")])
def test_a_triple_in_the_log_that_cannot_be_is_damage(told: tuple[str, str]) -> None:
    with pytest.raises(DamagedLogError):
        read_triple(*told)


@pytest.mark.requirement("KM-6.1")
@for_each(
    ("change", "path"),
    [
        ({"ver": "2.0"}, "$.ver"),
        ({"ver": 1.0}, "$.ver"),
        ({"session_id": ""}, "$.session_id"),
        ({"session_id": 5}, "$.session_id"),
        ({"agent_id": "a\nb"}, "$.agent_id"),
        ({"agent_id": "a" * 257}, "$.agent_id"),
        ({"scope": []}, "$.scope"),
        ({"scope": None}, "$.scope"),
        ({"scope": ["MUTATES FILE:/a"]}, "$.scope[0]"),
        ({"priority_timestamp": -1}, "$.priority_timestamp"),
        ({"priority_timestamp": 1.5}, "$.priority_timestamp"),
        ({"priority_timestamp": "5"}, "$.priority_timestamp"),
        ({"priority_timestamp": True}, "$.priority_timestamp"),
        ({"priority_timestamp": None}, "$.priority_timestamp"),
        ({"priority_timestamp": 2**53}, "$.priority_timestamp"),
        ({"ordered": "true"}, "$.ordered"),
        ({"ordered": 1}, "$.ordered"),
        ({"intents": []}, "$.intents"),
        ({"nonce": ""}, "$.nonce"),
        ({"signature": 5}, "$.signature"),
    ],
)
def test_a_wrong_field_is_refused_with_its_path(change: dict[str, Any], path: str) -> None:
    refused = refusal(document("MUTATES FILE:/a") | change)
    assert (refused.code, refused.details["path"]) == ("MALFORMED_SCHEMA", path)


@pytest.mark.requirement("KM-6.1")
@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"confidence": 1.1}, "$.scope[1].confidence"),
        ({"confidence": -0.1}, "$.scope[1].confidence"),
        ({"confidence": "high"}, "$.scope[1].confidence"),
        ({"confidence": True}, "$.scope[1].confidence"),
        ({"confidence": None}, "$.scope[1].confidence"),
        ({"resource": ""}, "$.scope[1].resource"),
        ({"resource": ["FILE:/a"]}, "$.scope[1].resource"),
        ({"predicate": None}, "$.scope[1].predicate"),
        ({"to": "FILE:/b"}, "$.scope[1].to"),
        ({"subject": "a"}, "$.scope[1].subject"),
    ],
)
def test_a_wrong_intent_is_refused_with_its_path(change: dict[str, Any], path: str) -> None:
    refused = refusal(document("MUTATES FILE:/x", entry("MUTATES FILE:/a") | change))
    assert (refused.code, refused.details["path"]) == ("MALFORMED_SCHEMA", path)


@pytest.mark.parametrize("missing", ["ver", "session_id", "agent_id", "scope"])
def test_a_required_field_that_is_missing_is_named(missing: str) -> None:
    told = document("MUTATES FILE:/a")
    del told[missing]
    assert refusal(told).details["path"] == f"$.{missing}"


@pytest.mark.requirement("KM-6.1")
@pytest.mark.parametrize("told", ["", "{", "[]", "null", '{"ver": "1.0", "ver": "1.0"}', b"\xff", '{"ver": NaN}', 5])
def test_text_that_is_no_json_object_is_malformed(told: Any) -> None:
    assert refusal(told).code == "MALFORMED_SCHEMA"


@for_each(
    "text",
    [
        "a: &x [1]\nb: *x",
        "ver: '1.0'\nver: '1.0'",
        "[" * 5_000,
        "{a: " * 20,
        "? [a]\n: b",
        "a: !!python/object:os.system x",
        "a: !!timestamp x",
        "a: !!bool x",
        "a: !!int ''",
        "a: 2020-99-99",
        "a: 2020-01-01",
        "a: .nan",
        "{",
        "- 1",
        "---\na: 1\n---\nb: 1\n",
        b"\xff\xfe\x00",
        "",
    ],
)
def test_yaml_beyond_json_is_malformed(text: str | bytes) -> None:
    assert refusal(text, yaml=True).code == "MALFORMED_SCHEMA"


@pytest.mark.requirement("KM-6.1")
def test_a_merge_cannot_repeat_a_key_of_a_yaml_manifest() -> None:
    refused = refusal(yaml.safe_dump(document("MUTATES FILE:/a")) + "<<: {agent_id: other}\n", yaml=True)
    assert (refused.code, "merge" in refused.message) == ("MALFORMED_SCHEMA", True)
    assert refusal("a: [1]\nb: {<<: {c: 1}}", yaml=True).message.endswith("write its keys out at line 2, column 5.")


@pytest.mark.requirement("KM-6.1")
def test_the_limits_are_named() -> None:
    few = KlisSettings.read({"max_triples": 2, "max_resource_chars": 11, "max_depth": 2})
    scope = ["MUTATES FILE:/a", "MUTATES FILE:/b"]
    assert len(read(*scope, settings=few).triples) == 2
    for told, limit in [
        (document(*scope, "MUTATES FILE:/c"), "max_triples"),
        (document("MUTATES FILE:/abcdefg"), "max_resource_chars"),
        (document("MUTATES FILE:/a/b/c"), "max_depth"),
        (" " * (MAX_MANIFEST_CHARS + 1), "max_manifest_chars"),
    ]:
        refused = refusal(told, settings=few)
        assert (refused.code, refused.details["limit"]) == ("MANIFEST_TOO_LARGE", limit)
    assert refusal(" " * MAX_MANIFEST_CHARS).code == "MALFORMED_SCHEMA"


@pytest.mark.requirement("KM-6.1", "KM-6.2", "KM-6.3", "KM-6.4", "KM-7.2")
def test_of_several_refusals_the_earlier_kind_wins_wherever_it_stands() -> None:
    ladder: list[tuple[list[Any], str]] = [
        (["MUTATES FILE:/"], "GLOBAL_SCOPE"),
        (["DELETES FILE:/a", "MUTATES FILE:/a"], "INTERNAL_CONTRADICTION"),
        (["MUTATES FILE:a"], "AMBIGUOUS_RESOURCE"),
        (["WRITE FILE:/a"], "INVALID_PREDICATE"),
        ([{"predicate": "MUTATES"}], "MALFORMED_SCHEMA"),
    ]
    scope: list[Any] = []
    for more, code in ladder:
        scope += more
        assert refusal(document(*scope)).code == code


@pytest.mark.requirement("KM-6.2", "KM-3")
def test_an_invalid_predicate_is_named_with_its_place() -> None:
    refused = refusal(document("MUTATES FILE:/a", "WRITE FILE:/b"))
    assert (refused.code, refused.details["path"]) == ("INVALID_PREDICATE", "$.scope[1].predicate")


@pytest.mark.requirement("KM-6.3")
def test_an_ambiguous_resource_is_named_with_its_canonical_form() -> None:
    refused = refusal(document("MUTATES FILE:/a", "RENAMES FILE:/b FILE:/c/../d"))
    assert refused.details == {"path": "$.scope[1].to", "resource": "FILE:/c/../d", "canonical": "FILE:/d"}


@pytest.mark.requirement("KP-6")
def test_registered_types_are_read_and_unknown_ones_refused() -> None:
    told = document("MUTATES QUEUE:/jobs")
    assert refusal(told).code == "UNKNOWN_RESOURCE_TYPE"
    types = resource_types.STANDARD.with_types(resource_types.ResourceType("QUEUE", "path"))
    assert read_manifest(told, settings=SETTINGS, types=types).effective() == {"QUEUE:/jobs": "MUTATES"}


@pytest.mark.requirement("KM-4.2b")
def test_the_operator_decides_whether_case_counts() -> None:
    assert read("MUTATES FILE:/A").effective() == {"FILE:/A": "MUTATES"}
    folding = KlisSettings.read({"lower_case": True})
    assert refusal(document("MUTATES FILE:/A"), settings=folding).details["canonical"] == "FILE:/a"


# Contradictions and escalation


@pytest.mark.requirement("KM-6.4", "KM-3.1", "KM-3.2")
@given(st.permutations(["DEPENDS_ON", "CONSUMES", "PROVIDES"]), st.permutations(["CONSUMES", "PROVIDES", "MUTATES"]))
def test_the_claim_that_excludes_most_is_leased_whatever_the_order(reads: list[str], writes: list[str]) -> None:
    assert effective(*(f"{one} FILE:/a" for one in reads)) == {"FILE:/a": "PROVIDES"}
    assert effective(*(f"{one} FILE:/a" for one in writes)) == {"FILE:/a": "MUTATES"}
    assert effective(*(f"{one} FILE:/a" for one in writes), "RENAMES FILE:/a FILE:/z") == {
        "FILE:/a": "RENAMES",
        "FILE:/z": "PROVIDES",
    }


@pytest.mark.requirement("KM-6.4")
def test_escalation_keeps_the_order_of_first_mention_and_the_highest_confidence_of_what_won() -> None:
    manifest = read(
        "CONSUMES FILE:/b",
        {"predicate": "MUTATES", "resource": "FILE:/a", "confidence": "Low"},
        {"predicate": "MUTATES", "resource": "FILE:/b", "confidence": "Low"},
        {"predicate": "MUTATES", "resource": "FILE:/b", "confidence": "Medium"},
    )
    told = [(one.resource.text, one.predicate.value, one.confidence.value) for one in manifest.triples]
    assert told == [("FILE:/b", "MUTATES", "Medium"), ("FILE:/a", "MUTATES", "Low")]
    assert len(manifest.declared) == 4


@pytest.mark.requirement("KM-6.4")
def test_reading_what_one_provides_is_valid() -> None:
    assert effective("PROVIDES FILE:/a", "CONSUMES FILE:/a") == {"FILE:/a": "PROVIDES"}


@pytest.mark.requirement("KM-3.3", "KM-6.4")
@pytest.mark.parametrize("other", [one.value for one in Predicate if one is not Predicate.DELETES])
def test_deletion_contradicts_every_other_predicate(other: str) -> None:
    contradicts("DELETES FILE:/a", f"{other} FILE:/a")
    contradicts(f"{other} FILE:/a", "DELETES FILE:/a")
    contradicts("DELETES FILE:/a", f"{other} FILE:/a", ordered=True)
    contradicts("DELETES FILE:/c/*", f"{other} FILE:/c/x")
    contradicts(f"{other} FILE:/c/x", "DELETES FILE:/c")
    contradicts(f"{other} FILE:/c/*", "DELETES FILE:/c/x")
    contradicts(f"{other} FILE:/c/*", "DELETES FILE:/c")


@pytest.mark.requirement("KM-3.3", "KM-6.4")
@pytest.mark.parametrize("before", ["PROVIDES", "CONSUMES", "MUTATES"])
def test_in_an_ordered_scope_what_comes_before_a_deletion_is_part_of_it(before: str) -> None:
    assert effective(f"{before} FILE:/a", "DELETES FILE:/a", ordered=True) == {"FILE:/a": "DELETES"}
    assert effective(f"{before} FILE:/c/x", "DELETES FILE:/c/*", ordered=True) == {"FILE:/c/*": "DELETES"}
    assert effective(f"{before} FILE:/c/x", "DELETES FILE:/c", ordered=True) == {"FILE:/c": "DELETES"}
    assert effective(f"{before} FILE:/c/*", "DELETES FILE:/c/x", ordered=True) == {
        "FILE:/c/*": before,
        "FILE:/c/x": "DELETES",
    }


@pytest.mark.requirement("KM-3.3")
@pytest.mark.parametrize("before", ["DEPENDS_ON", "RENAMES"])
def test_a_promise_and_a_rename_are_no_part_of_a_deletion(before: str) -> None:
    contradicts(f"{before} FILE:/a", "DELETES FILE:/a", ordered=True)


@pytest.mark.requirement("KM-3.3")
def test_after_a_deletion_nothing_is_valid_even_when_something_stood_before_it() -> None:
    refused = contradicts("MUTATES FILE:/a", "DELETES FILE:/a", "MUTATES FILE:/a", ordered=True)
    assert (refused.details["other_path"], refused.details["path"]) == ("$.scope[1].resource", "$.scope[2].resource")


def test_deleting_a_place_beside_or_above_contradicts_nothing() -> None:
    assert len(effective("DELETES FILE:/c/x", "MUTATES FILE:/c", "MUTATES FILE:/c/xy", "DELETES FILE:/c/x")) == 3
    assert len(effective("DELETES FILE:/c/*", "DELETES FILE:/c/x")) == 2
    assert len(effective("DELETES URL:https://h/a", "MUTATES URL:https://h/a/b")) == 2


@pytest.mark.requirement("KM-6.4")
@pytest.mark.parametrize("change", ["MUTATES", "RENAMES"])
def test_a_promise_of_invariance_contradicts_the_change(change: str) -> None:
    contradicts("DEPENDS_ON FILE:/a", f"{change} FILE:/a")
    contradicts(f"{change} FILE:/c/x", "DEPENDS_ON FILE:/c/*")
    contradicts(f"{change} FILE:/c/*", "DEPENDS_ON FILE:/c/x", ordered=True)


@pytest.mark.requirement("KM-6.4")
@given(
    claims=st.lists(
        st.tuples(
            st.sampled_from([one.value for one in Predicate]),
            st.sampled_from(["FILE:/c", "FILE:/c/*", "FILE:/c/x", "FILE:/c/x/y", "FILE:/d"]),
        ),
        min_size=1,
        max_size=5,
    ),
    ordered=st.booleans(),
)
def test_contradictions_agree_with_looking_at_every_pair(claims: list[tuple[str, str]], ordered: bool) -> None:
    triples = [Triple(Predicate(predicate), resource_reading.read_resource(text)) for predicate, text in claims]

    def meet(one: Triple, other: Triple) -> bool:
        a, b = one.resource, other.resource
        return (
            a.key == b.key or (one.covers and a.key in b.ancestors) or (other.covers and b.key in a.ancestors)
        ) and one.predicate is not other.predicate

    def wrong(one: Triple, other: Triple) -> bool:
        pair = {one.predicate, other.predicate}
        if Predicate.DELETES in pair:
            before = one.predicate in {Predicate.PROVIDES, Predicate.CONSUMES, Predicate.MUTATES}
            return not (ordered and before and other.predicate is Predicate.DELETES)
        return Predicate.DEPENDS_ON in pair and bool(pair & {Predicate.MUTATES, Predicate.RENAMES})

    pairs = [(one, other) for at, one in enumerate(triples) for other in triples[at + 1 :]]
    told = document(*(f"{predicate} {text}" for predicate, text in claims), "PROVIDES FILE:/z", ordered=ordered)
    if any(meet(one, other) and wrong(one, other) for one, other in pairs):
        assert refusal(told).code == "INTERNAL_CONTRADICTION"
        return
    manifest = read_manifest(told, settings=SETTINGS)
    for triple in triples:  # whatever was declared is within a lease that excludes at least as much
        assert any(
            (lease.resource.key == triple.resource.key or lease.resource.key in triple.resource.ancestors)
            and (lease.covers or not triple.covers)
            and severity(lease.predicate) >= severity(triple.predicate)
            for lease in manifest.triples
        )
    assert len({triple.resource.text for triple in manifest.triples}) == len(manifest.triples)


# Renames


@pytest.mark.requirement("KP-1")
def test_a_rename_covers_the_old_and_the_new_name() -> None:
    manifest = read("RENAMES FILE:/a FILE:/b", "MUTATES FILE:/b")
    assert manifest.effective() == {"FILE:/a": "RENAMES", "FILE:/b": "MUTATES"}
    assert [one.predicate.value for one in manifest.declared] == ["RENAMES", "MUTATES"]
    assert effective("RENAMES FILE:/a", "PROVIDES FILE:/b") == {"FILE:/a": "RENAMES", "FILE:/b": "PROVIDES"}
    assert effective("RENAMES FILE:/a FILE:/b", "RENAMES FILE:/b FILE:/c")["FILE:/b"] == "RENAMES"


@pytest.mark.requirement("KP-1", "KM-6.4")
@pytest.mark.parametrize(
    "scope",
    [
        ["RENAMES FILE:/a FILE:/a"],
        ["RENAMES FILE:/a FILE:/a/b"],
        ["RENAMES FILE:/a STATE:/a"],
        ["RENAMES FILE:/a/* FILE:/b"],
        ["RENAMES FILE:/a FILE:/b", "RENAMES FILE:/a FILE:/c"],
    ],
)
def test_a_rename_that_leads_nowhere_or_twice_is_a_contradiction(scope: list[str]) -> None:
    contradicts(*scope)


# Width


@pytest.mark.requirement("KM-7.2")
@for_each("predicate", [one.value for one in Predicate if one is not Predicate.DEPENDS_ON])
@for_each("name", ["FILE:/", "FILE:/*", "STATE:/*", "API_ENDPOINT:/", "URL:https://h/*"])
def test_a_global_scope_is_refused(predicate: str, name: str) -> None:
    refused = refusal(document("CONSUMES SYMBOL:a", f"{predicate} {name}"))
    assert (refused.code, refused.details["path"]) == ("GLOBAL_SCOPE", "$.scope[1].resource")


@pytest.mark.requirement("KM-7.2")
def test_the_width_limit_is_the_operators() -> None:
    narrow = KlisSettings.read({"min_subtree_depth": 2})
    for scope in ("MUTATES FILE:/a/*", "DELETES FILE:/a", "RENAMES FILE:/a/b FILE:/"):
        assert refusal(document(scope), settings=narrow).code == "GLOBAL_SCOPE"
    assert len(read("MUTATES FILE:/a/b/*", "MUTATES FILE:/a", "DEPENDS_ON STATE:/*", settings=narrow).triples) == 3
    assert read("MUTATES FILE:/*", settings=KlisSettings.read({"min_subtree_depth": 0})).triples


@pytest.mark.requirement("KM-7.2")
def test_a_promise_to_leave_a_root_alone_and_single_names_are_never_too_wide() -> None:
    read("DEPENDS_ON FILE:/*", "CONSUMES URL:https://h/", "MUTATES DB:localhost/users", "DEPENDS_ON FILE:/")


def test_the_engine_may_claim_the_whole_of_a_type() -> None:
    told = document("MUTATES STATE:/*")
    assert read_manifest(told, settings=SETTINGS, wide=frozenset({"STATE"})).effective() == {"STATE:/*": "MUTATES"}
    assert refusal(document("MUTATES FILE:/*"), wide=frozenset({"STATE"})).code == "GLOBAL_SCOPE"


# Any document


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
odd = plain | st.sampled_from(["1.0", "MUTATES", "High", 0.5, 5.0, -1])


def nearly(required: dict[str, Any], optional: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return objects that are mostly right: now and then a member is odd, missing or strange."""
    right = st.fixed_dictionaries(required, optional=optional)
    members = st.dictionaries(st.sampled_from([*required, *optional, "strange"]), odd, max_size=1)
    return st.builds(lambda one, other: {**one, **other}, right, members | st.just({}))


ms = st.integers(0, 2**53 - 1) | st.just(5.0)
intents = nearly(
    {
        "predicate": st.sampled_from([*(one.value for one in Predicate), "WRITE"]),
        "resource": st.sampled_from(["FILE:/a", "FILE:/a/*", "FILE:/b/../c", "FILE:x", "Q:/a", "FILE:/", "x" * 5_000]),
    },
    {"confidence": st.floats(0, 1) | st.sampled_from(["High", "Low"]), "to": st.just("FILE:/b")},
)
documents = nearly(
    {
        "ver": st.sampled_from(["1.0", "1.12"]),
        "session_id": st.text(st.characters(codec="utf-8"), min_size=1, max_size=3),
        "agent_id": st.sampled_from(["a", "a" * 256, "a" * 257]),
        "scope": st.lists(intents | odd, min_size=1, max_size=4),
    },
    {
        "priority_timestamp": ms,
        "ordered": st.booleans(),
        "issued_at": ms,
        "nonce": st.just("n"),
        "signature": st.text(),
    },
)


@pytest.mark.requirement("KM-6.1")
@given(told=documents | plain)
def test_every_document_is_a_manifest_or_refused_with_a_known_code(told: Any) -> None:
    manifest = attempt(told)
    if isinstance(manifest, RefusedError):
        assert manifest.code in CODES
        assert manifest.details["path"].startswith("$")
        return
    assert manifest.triples
    assert read_manifest(canonical_text(manifest.to_wire()), settings=SETTINGS) == manifest


@given(text=st.text(max_size=40) | st.binary(max_size=40), as_yaml=st.booleans())
def test_every_text_is_a_manifest_or_refused_with_a_known_code(text: str | bytes, as_yaml: bool) -> None:
    assert refusal(text, yaml=as_yaml).code == "MALFORMED_SCHEMA"


@given(told=documents)
def test_every_manifest_reads_the_same_from_yaml(told: dict[str, Any]) -> None:
    manifest = attempt(told)
    if isinstance(manifest, RefusedError):
        return
    assert read_manifest(yaml.safe_dump(told), settings=SETTINGS, yaml=True) == manifest


@pytest.mark.requirement("KM-5")
@given(told=documents)
def test_the_published_schema_agrees_with_the_reader_about_structure(told: dict[str, Any]) -> None:
    found = attempt(told)
    code = found.code if isinstance(found, RefusedError) else None
    try:
        text = canonical_text(told)
    except RefusedError:
        assert code == "MALFORMED_SCHEMA"  # what is no JSON has no schema
        return
    valid = PUBLISHED.is_valid(json.loads(text)) and "has no new name" not in str(found)  # which two entries decide
    assert valid is (code not in {"MALFORMED_SCHEMA", "MANIFEST_TOO_LARGE", "INVALID_PREDICATE"})


@pytest.mark.requirement("KM-5")
def test_the_published_schema_is_a_schema_with_the_operators_limits() -> None:
    schema = manifest_schema(KlisSettings.read({"max_triples": 1, "max_resource_chars": 9}))
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    assert validator.is_valid(document("RENAMES FILE:/a FILE:/b"))
    assert not validator.is_valid(document("MUTATES FILE:/a", "MUTATES FILE:/b"))
    assert not validator.is_valid(document("MUTATES FILE:/abcdef"))
    assert not validator.is_valid(document("MUTATES FILE:/a FILE:/b"))
