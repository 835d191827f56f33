"""Resources at the edges of their rules: every refusal with its sentence, every limit at its value, every split."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.tables import for_each
from world.errors import DamagedLogError, RefusedError
from world.klis.resources.names import NameComparison
from world.klis.resources.resource import Resource, recorded_resource
from world.klis.resources.resource_reading import canonical_resource, read_resource
from world.klis.resources.resource_types import STANDARD, ResourceType, ResourceTypes
from world.klis.resources.url import normal_url


def _exact(name: str) -> str:
    if "?" in name:
        raise ValueError("has a question mark")
    if name == "silent":
        raise ValueError
    if name == "broken":
        raise RuntimeError("no rule")
    return {"unstable": "unstable-1", "unprintable": "\n"}.get(name, name.lower())


TYPES = STANDARD.with_types(
    ResourceType("S3", "path", authority=True),
    ResourceType("TOPIC", "opaque", separator="."),
    ResourceType("MAIL", "opaque", separator=".", canonical=_exact),
    ResourceType("DOC", "path", canonical=str.lower),
)
KNOWN = ", ".join(TYPES)
EXACTLY = "are compared exactly, so it would cover no other name; name each one"


def refused(text: Any, **options: Any) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        canonical_resource(text, types=TYPES, path="$.here", **options)
    assert caught.value.details["path"] == "$.here"
    return caught.value


@pytest.mark.requirement("KM-4", "KM-6.3", "KP-6")
@for_each(
    ("text", "code", "sentence"),
    [
        (5, "MALFORMED_SCHEMA", "5 at $.here is no text."),
        ("a\nb", "AMBIGUOUS_RESOURCE", "holds a control character or half a surrogate pair"),
        ("FILE", "AMBIGUOUS_RESOURCE", "names no type; write TYPE:name, like FILE:/src/main.ts"),
        ("1X:/a", "AMBIGUOUS_RESOURCE", "names no type; write TYPE:name, like FILE:/src/main.ts"),
        ("NONE:/a", "UNKNOWN_RESOURCE_TYPE", f"is of an unknown type; the types are {KNOWN}"),
        ("FILE:a", "AMBIGUOUS_RESOURCE", "is relative; FILE names are absolute paths, written FILE:/name"),
        ("FILE:", "AMBIGUOUS_RESOURCE", "is relative; FILE names are absolute paths, written FILE:/name"),
        ("S3:", "AMBIGUOUS_RESOURCE", "is relative; S3 names are absolute paths, written S3:[authority]/name"),
        ("S3:bucket", "AMBIGUOUS_RESOURCE", "is relative; S3 names are absolute paths, written S3:[authority]/name"),
        ("FILE:/a*", "AMBIGUOUS_RESOURCE", "has a * that is not the final /* of a subtree"),
        ("FILE:/*/a", "AMBIGUOUS_RESOURCE", "has a * that is not the final /* of a subtree"),
        (
            "URL:/a",
            "AMBIGUOUS_RESOURCE",
            "is relative; a URL names scheme and host, like URL:https://example.com/api",
        ),
        ("URL:http://a..b/", "AMBIGUOUS_RESOURCE", "has no host that can be compared"),
        ("URL:http://a:65536/", "AMBIGUOUS_RESOURCE", "has no valid port; ports are numbers up to 65535"),
        ("URL:http://a:100000/", "AMBIGUOUS_RESOURCE", "has no valid port; ports are numbers up to 65535"),
        (
            "URL:http://a/%4",
            "AMBIGUOUS_RESOURCE",
            "has a % that begins no two hexadecimal digits; write %25 for the sign itself",
        ),
        (
            "URL:http://a/?q/*",
            "AMBIGUOUS_RESOURCE",
            "is a subtree with a query or fragment; a subtree is a URL without them and a final /*",
        ),
        (
            "URL:http://a/#/*",
            "AMBIGUOUS_RESOURCE",
            "is a subtree with a query or fragment; a subtree is a URL without them and a final /*",
        ),
        (
            "URL:http://a/*b",
            "AMBIGUOUS_RESOURCE",
            "has a * that is not the final /* of a subtree; write %2A for the sign itself",
        ),
        ("SYMBOL:", "AMBIGUOUS_RESOURCE", "has an empty name"),
        ("TOPIC:", "AMBIGUOUS_RESOURCE", "has an empty name"),
        (
            "SYMBOL:a/*",
            "AMBIGUOUS_RESOURCE",
            "is no subtree; SYMBOL names are compared exactly, so name each one",
        ),
        (
            "SYMBOL:a*",
            "AMBIGUOUS_RESOURCE",
            "has a *: SYMBOL names " + EXACTLY,
        ),
        (
            "SYMBOL:*",
            "GLOBAL_SCOPE",
            f"names everything of its type: SYMBOL names {EXACTLY}",
        ),
        ("TOPIC:a*", "AMBIGUOUS_RESOURCE", "has a * that is not the final .* of a subtree"),
        ("TOPIC:*.a", "AMBIGUOUS_RESOURCE", "has a * that is not the final .* of a subtree"),
        ("MAIL:a?", "AMBIGUOUS_RESOURCE", "has a question mark"),
        ("MAIL:silent", "AMBIGUOUS_RESOURCE", "has no canonical form"),
    ],
)
def test_every_refusal_of_a_resource_says_what_is_wrong_with_it(text: Any, code: str, sentence: str) -> None:
    told = refused(text)
    assert told.code == code
    assert told.message == (sentence if text == 5 else f"{text!r} at $.here {sentence}.")
    if text != 5:
        assert told.details["resource"] == text
    if code == "UNKNOWN_RESOURCE_TYPE":
        assert told.details["known"] == list(TYPES)


@pytest.mark.requirement("KP-6")
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("broken", "The rules of MAIL failed on 'broken': RuntimeError: no rule."),
        ("unstable", "The rules of MAIL give no canonical form of 'unstable': 'unstable-1', then 'unstable-1'."),
        ("unprintable", "The rules of MAIL give no canonical form of 'unprintable': '\\n', then '\\n'."),
    ],
)
def test_rules_of_a_type_that_give_no_canonical_form_are_refused(name: str, sentence: str) -> None:
    def rule(given: str) -> str:
        if name == "unstable":
            return given + "-1"
        return _exact(given)

    types = ResourceTypes(ResourceType("MAIL", "opaque", canonical=rule))
    with pytest.raises(RefusedError) as caught:
        canonical_resource(f"MAIL:{name}", types=types)
    assert caught.value.code == "INVALID_RESOURCE_TYPE"
    if name == "unstable":
        sentence = "The rules of MAIL give no canonical form of 'unstable': 'unstable-1', then 'unstable-1-1'."
    assert caught.value.message == sentence


def test_a_long_text_is_shortened_in_its_refusal_and_a_limit_is_named() -> None:
    for chars in (256, 257):
        text = "FILE:" + "a" * (chars - 5)
        shown = text if chars == 256 else text[:256] + "..."
        told = refused(text)
        assert told.details["resource"] == shown
        assert told.message.startswith(f"{shown!r} at $.here is relative")


@pytest.mark.requirement("KM-4")
@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("FILE:/a/b/c", 3),
        ("FILE:/a/b/*", 2),
        ("FILE:/", 0),
        ("URL:http://h/a/b?q=/x/y", 2),
        ("TOPIC:a.b.c", 2),
        ("S3:bucket/a/b", 2),
    ],
)
def test_the_limits_of_a_resource_are_met_exactly(text: str, names: int) -> None:
    assert canonical_resource(text, types=TYPES, max_depth=names, max_chars=len(text)).text == text
    told = refused(text, max_chars=len(text) - 1)
    assert (told.code, told.details["limit"], told.details["maximum"]) == (
        "MANIFEST_TOO_LARGE",
        "max_resource_chars",
        len(text) - 1,
    )
    assert f"is longer than {len(text) - 1} characters (max_resource_chars)" in told.message
    if names:
        told = refused(text, max_depth=names - 1)
        assert (told.code, told.details["limit"], told.details["maximum"]) == (
            "MANIFEST_TOO_LARGE",
            "max_depth",
            names - 1,
        )
        assert f"has more than {names - 1} names (max_depth)" in told.message


def test_the_limits_are_those_of_the_settings_unless_others_are_given() -> None:
    deep = "FILE:" + "/a" * 256
    for read in (read_resource, canonical_resource):
        assert read(deep).depth == 256
        assert len(read("FILE:/" + "a" * 4_090).text) == 4_096
        for text in (deep + "/a", "FILE:/" + "a" * 4_091):
            with pytest.raises(RefusedError, match=r" at \$ ") as caught:
                read(text)
            assert caught.value.code == "MANIFEST_TOO_LARGE"


@pytest.mark.requirement("KM-4.2a", "KP-wild")
@for_each(
    ("text", "canonical", "key", "ancestors"),
    [
        ("FILE:/", "FILE:/", "FILE:/", []),
        ("FILE:/*", "FILE:/*", "FILE:/", []),
        ("file:/a/./b/../c//d", "FILE:/a/c/d", "FILE:/a/c/d", ["FILE:/", "FILE:/a", "FILE:/a/c"]),
        ("FILE:/../a/*", "FILE:/a/*", "FILE:/a", ["FILE:/"]),
        ("FILE:/a/../*", "FILE:/*", "FILE:/", []),
        ("S3:bucket/*", "S3:bucket/*", "S3:bucket/", []),
        ("S3:bucket/a/*", "S3:bucket/a/*", "S3:bucket/a", ["S3:bucket/"]),
        ("S3:s3://bucket/a/b", "S3:s3://bucket/a/b", "S3:s3://bucket/a/b", ["S3:s3://bucket/", "S3:s3://bucket/a"]),
        ("S3:/a", "S3:/a", "S3:/a", ["S3:/"]),
        ("URL:HTTP://H", "URL:http://h/", "URL:http://h/", []),
        ("URL:http://h/*", "URL:http://h/*", "URL:http://h/", []),
        ("URL:http://h/a/", "URL:http://h/a/", "URL:http://h/a/", ["URL:http://h/", "URL:http://h/a"]),
        ("URL:http://h/a?q=/x", "URL:http://h/a?q=/x", "URL:http://h/a?q=/x", ["URL:http://h/", "URL:http://h/a"]),
        ("URL:http://h:65535/", "URL:http://h:65535/", "URL:http://h:65535/", []),
        ("URL:http://h:0000080/", "URL:http://h/", "URL:http://h/", []),
        ("URL:http://h:/", "URL:http://h/", "URL:http://h/", []),
        ("URL:ftp://h:21/%7e%2f#x", "URL:ftp://h/~%2F", "URL:ftp://h/~%2F", ["URL:ftp://h/"]),
        ("URL:http://h/a/b/..", "URL:http://h/a/", "URL:http://h/a/", ["URL:http://h/", "URL:http://h/a"]),
        ("URL:http://h/a/.", "URL:http://h/a/", "URL:http://h/a/", ["URL:http://h/", "URL:http://h/a"]),
        ("URL:http://h/?q", "URL:http://h/?q", "URL:http://h/?q", ["URL:http://h/"]),
        ("SYMBOL:A.b", "SYMBOL:A.b", "SYMBOL:A.b", []),
        ("TOPIC:*", "TOPIC:*", "TOPIC:", []),
        ("TOPIC:a", "TOPIC:a", "TOPIC:a", ["TOPIC:"]),
        ("TOPIC:a.b.*", "TOPIC:a.b.*", "TOPIC:a.b", ["TOPIC:", "TOPIC:a"]),
        ("MAIL:*", "MAIL:*", "MAIL:", []),
        ("MAIL:A.*", "MAIL:a.*", "MAIL:a", ["MAIL:"]),
        ("MAIL:A.B", "MAIL:a.b", "MAIL:a.b", ["MAIL:", "MAIL:a"]),
        ("DOC:/A/../B/*", "DOC:/b/*", "DOC:/b", ["DOC:/"]),
    ],
)
def test_a_resource_is_split_into_its_place_and_what_lies_above(
    text: str, canonical: str, key: str, ancestors: list[str]
) -> None:
    found = canonical_resource(text, types=TYPES)
    assert (found.text, found.key, list(found.ancestors)) == (canonical, key, ancestors)
    assert found.depth == len(ancestors)
    assert found.subtree is text.endswith("*")
    assert found.type == canonical.partition(":")[0]
    assert found.separator == ("." if found.type in ("TOPIC", "MAIL") else "/")
    assert found.nested is (found.type in ("FILE", "STATE"))
    for again in (read_resource(canonical, types=TYPES), recorded_resource(canonical, TYPES)):
        assert (again.text, again.key, again.ancestors, again.subtree, again.separator, again.nested, again.type) == (
            found.text,
            found.key,
            found.ancestors,
            found.subtree,
            found.separator,
            found.nested,
            found.type,
        )


@pytest.mark.requirement("KM-4.2b")
def test_lower_case_is_for_paths_that_have_no_case_of_their_own() -> None:
    read = {
        text: canonical_resource(text, types=TYPES, names=NameComparison(ignores_case=True)).text
        for text in ("FILE:/A/*", "STATE:/A", "SYMBOL:A", "URL:http://H/A", "API_ENDPOINT:/A", "TOPIC:A")
    }
    assert list(read.values()) == [
        "FILE:/a/*",
        "STATE:/A",
        "SYMBOL:A",
        "URL:http://h/A",
        "API_ENDPOINT:/a",
        "TOPIC:A",
    ]


def test_a_literal_star_is_for_names_without_a_hierarchy() -> None:
    for text in ("SYMBOL:a*b", "SYMBOL:*"):
        assert canonical_resource(text, types=TYPES, literal_stars=True).text == text
        assert not canonical_resource(text, types=TYPES, literal_stars=True).subtree
    for text in ("SYMBOL:a/*", "TOPIC:a*", "FILE:/a*b"):
        assert refused(text, literal_stars=True).code == "AMBIGUOUS_RESOURCE"


@pytest.mark.requirement("KP-wild")
@pytest.mark.parametrize("text", ["NONE:/a", "S3:", "S3:bucket", "URL:x", "URL:http:/a", "FILE"])
def test_a_text_that_no_log_holds_is_damage(text: str) -> None:
    with pytest.raises(DamagedLogError) as caught:
        recorded_resource(text, TYPES)
    assert caught.value.code == "BAD_RESOURCE"
    assert repr(text) in caught.value.message


@pytest.mark.requirement("KP-wild")
def test_covering_and_overlapping_are_by_place_and_subtree() -> None:
    names = ["FILE:/", "FILE:/*", "FILE:/a", "FILE:/a/*", "FILE:/a/b", "FILE:/a/b/*", "FILE:/ab", "TOPIC:a.b"]
    read = [canonical_resource(name, types=TYPES) for name in names]
    covers = {(one.text, other.text) for one in read for other in read if one.covers(other)}
    files = names[:-1]
    assert covers == (
        {(name, name) for name in names}
        | {("FILE:/*", name) for name in files}
        | {("FILE:/a/*", name) for name in ("FILE:/a", "FILE:/a/b", "FILE:/a/b/*")}
        | {("FILE:/a/b/*", "FILE:/a/b")}
    )
    overlaps = {(one.text, other.text) for one in read for other in read if one.overlaps(other)}
    same_place = {(one.text, other.text) for one in read for other in read if one.key == other.key}
    assert overlaps == covers | {(other, one) for one, other in covers} | same_place


@pytest.mark.requirement("KP-6")
@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([ResourceType("low", "opaque")], "is no resource type: a name in capitals, of kind path, url or opaque."),
        ([ResourceType("1A", "opaque")], "is no resource type: a name in capitals, of kind path, url or opaque."),
        ([ResourceType("A", "tree")], "is no resource type"),  # type: ignore[arg-type]
        (["A"], "'A' is no resource type"),
        ([ResourceType("A", "path", separator=".")], "A has the separator '.': give one printable character"),
        ([ResourceType("A", "opaque", separator="*")], "A has the separator '*': give one printable character"),
        ([ResourceType("A", "opaque", separator="")], "A has the separator '': give one printable character"),
        ([ResourceType("A", "opaque", separator="::")], "A has the separator '::': give one printable character"),
        ([ResourceType("A", "opaque", separator="\n")], "A has the separator '\\n': give one printable character"),
        ([ResourceType("A", "opaque"), ResourceType("A", "path")], "There are two different resource types A"),
    ],
)
def test_a_type_that_cannot_be_is_refused(given: list[Any], sentence: str) -> None:
    with pytest.raises(RefusedError) as caught:
        ResourceTypes(*given)
    assert caught.value.code == "INVALID_RESOURCE_TYPE"
    assert sentence in caught.value.message


@pytest.mark.requirement("KP-6")
def test_the_types_in_force_are_a_mapping_and_have_a_wire_form() -> None:
    assert STANDARD.to_wire() == {}
    assert STANDARD.with_types() is STANDARD
    assert len(TYPES) == len(STANDARD) + 4
    assert list(TYPES)[-4:] == ["S3", "TOPIC", "MAIL", "DOC"]
    plain = {"kind": "path", "authority": False, "nested": False, "case_sensitive": False}
    assert TYPES.to_wire() == {
        "S3": {**plain, "authority": True},
        "TOPIC": {**plain, "kind": "opaque", "separator": "."},
        "MAIL": {**plain, "kind": "opaque", "separator": "."},
        "DOC": plain,
    }
    assert ResourceTypes.recorded(TYPES.to_wire()).to_wire() == TYPES.to_wire()
    assert {name: (one.kind, one.authority, one.nested, one.case_sensitive) for name, one in STANDARD.items()} == {
        "FILE": ("path", False, True, False),
        "API_ENDPOINT": ("path", False, False, False),
        "STATE": ("path", False, True, True),
        "URL": ("url", True, False, False),
        "SYMBOL": ("opaque", False, False, False),
        "DATABASE_TABLE": ("opaque", False, False, False),
        "CONFIG_KEY": ("opaque", False, False, False),
        "DB": ("opaque", True, False, False),
        "ENV": ("opaque", True, False, False),
        "PROCESS": ("opaque", False, False, False),
        "COMMAND": ("opaque", False, False, False),
        "CONTENT": ("opaque", False, False, False),
    }
    assert Resource("FILE", "FILE:/a", subtree=False, ancestors=(), nested=False).separator == "/"


@pytest.mark.requirement("KM-4")
@pytest.mark.parametrize("host", ["b\u00fccher.example", "ex%61mple.com"])
def test_hosts_that_are_brought_into_one_form_today_were_refused_by_earlier_rules(host: str) -> None:
    with pytest.raises(ValueError, match="has no host that can be compared"):
        normal_url(f"https://{host}/", plain_hosts=True)
