"""Resources: one canonical form per thing, strict and lenient reading, extents."""

from __future__ import annotations

import json
import pickle
from importlib.metadata import EntryPoint
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.tables import for_each
from world.code import references
from world.errors import DamagedLogError, RefusedError
from world.klis.resources.names import BYTE_WISE, NameComparison
from world.klis.resources.resource import Resource, recorded_resource
from world.klis.resources.resource_reading import canonical_resource, read_resource
from world.klis.resources.resource_types import STANDARD, ResourceType, ResourceTypes

CASES = json.loads(Path("tests/vectors/klis.json").read_bytes())["cases"]
CANONICAL = [
    (case["id"], op["resource"], expected)
    for case in CASES
    for op, expected in zip(case["ops"], case["expect"], strict=True)
    if op["op"] == "canonicalize"
]
BUCKETS = STANDARD.with_types(ResourceType("S3", "path", authority=True))

names = st.sampled_from(["a", "b", "c"])
places = st.lists(names, max_size=4).map(tuple)
pieces = st.sampled_from(["a", "b", ".", "..", "", "A", "...", "Σ", "ä"]) | st.text(max_size=3)
paths = st.lists(pieces, max_size=8).map(lambda parts: "/" + "/".join(parts))
stars = st.sampled_from(["", "/*"])
urls = st.builds(
    "{}://{}{}{}{}{}".format,
    st.sampled_from(["http", "HTTPS", "s3", "x-y"]),
    st.sampled_from(["Example.COM", "u:p@h", "[::1]", "127.0.0.1", "bucket"]),
    st.sampled_from(["", ":", ":80", ":443", ":0443", ":8080"]),
    st.lists(st.sampled_from(["a", ".", "..", "", "%7e", "%2f", "%2A", "%2e", "ä", " ", "[", "b;c=1"]), max_size=5).map(
        lambda parts: "".join(f"/{part}" for part in parts)
    ),
    st.sampled_from(["", "?", "?q=/a/..", "?b=%41", "/*"]),
    st.sampled_from(["", "#top"]),
)
texts = st.one_of(
    st.builds("{}:{}{}".format, st.sampled_from(["FILE", "file", "STATE", "API_ENDPOINT"]), paths, stars),
    urls.map("URL:{}".format),
    st.builds("{}:{}".format, st.sampled_from(["SYMBOL", "db", "S3"]), st.text(max_size=8)),
    st.builds("S3:{}{}{}".format, st.sampled_from(["bucket", "s3://Bucket", ".", ""]), paths, stars),
    st.text(max_size=12),
)


def refusal(text: Any, **options: Any) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        read_resource(text, **options)
    return caught.value


def attempt(text: str, **options: Any) -> Resource | RefusedError:
    try:
        return canonical_resource(text, **options)
    except RefusedError as error:
        return error


def resource(place: tuple[str, ...], subtree: bool) -> Resource:
    base = "FILE:/" + "/".join(place)
    return read_resource((base.rstrip("/") + "/*") if subtree else base)


# The canonical form


@pytest.mark.requirement("KM-4", "KM-4.2a")
@pytest.mark.parametrize(("case", "text", "expected"), CANONICAL)
def test_canonicalization_gives_what_the_vectors_say(case: str, text: str, expected: Any) -> None:
    if isinstance(expected, str):
        assert canonical_resource(text).text == expected, case
        return
    with pytest.raises(RefusedError) as caught:
        canonical_resource(text)
    assert caught.value.code == expected["error"], case


@pytest.mark.requirement("KM-4.2a")
@given(text=texts, names=st.builds(NameComparison, st.booleans(), st.booleans()))
@example(text="URL:http://bucket/*", names=BYTE_WISE)
@example(text="URL:http://bucket//*", names=BYTE_WISE)
def test_canonicalization_is_idempotent_and_its_result_reads_strictly(text: str, names: NameComparison) -> None:
    found = attempt(text, types=BUCKETS, names=names)
    if isinstance(found, RefusedError):
        assert found.code in {"AMBIGUOUS_RESOURCE", "AMBIGUOUS_URL", "UNKNOWN_RESOURCE_TYPE"}
        return
    again = canonical_resource(found.text, types=BUCKETS, names=names)
    assert again == found
    strict = read_resource(found.text, types=BUCKETS, names=names)
    recorded = recorded_resource(found.text, BUCKETS)
    for other in (again, strict, recorded):
        assert (other.text, other.type, other.ancestors, other.nested) == (
            found.text,
            found.type,
            found.ancestors,
            found.nested,
        )


@pytest.mark.requirement("KM-6.3")
@given(text=texts)
def test_a_strict_reading_accepts_what_is_canonical_and_names_the_canonical_form_of_the_rest(text: str) -> None:
    found = attempt(text, types=BUCKETS)
    if isinstance(found, RefusedError):
        assert refusal(text, types=BUCKETS).to_dict() == found.to_dict()
        return
    if text.partition(":")[2] == found.text.partition(":")[2]:
        assert read_resource(text, types=BUCKETS) == found
        return
    refused = refusal(text, types=BUCKETS, path="$.scope[2].resource")
    assert refused.code == "AMBIGUOUS_RESOURCE"
    assert refused.details == {"path": "$.scope[2].resource", "resource": text, "canonical": found.text}
    assert repr(found.text) in refused.message


@pytest.mark.requirement("KM-4.2a")
@given(path=paths)
def test_a_path_never_escapes_its_root(path: str) -> None:
    found = attempt(f"FILE:{path}")
    if isinstance(found, RefusedError):
        return
    assert found.key.startswith("FILE:/")
    assert not {"..", ".", ""} & set(found.key.removeprefix("FILE:/").split("/")) or found.key == "FILE:/"


@pytest.mark.requirement("KM-4.2a")
@given(steps=st.lists(st.sampled_from(["a", "b", "..", ".", ""]), max_size=12))
def test_a_path_leads_where_walking_it_leads(steps: list[str]) -> None:
    place: list[str] = []
    for step in steps:
        if step == "..":
            place = place[:-1]
        elif step not in {"", "."}:
            place = [*place, step]
    assert canonical_resource("FILE:/" + "/".join(steps)).key == "FILE:/" + "/".join(place)


@pytest.mark.requirement("KM-4.2b")
@given(path=paths)
def test_paths_keep_their_case_unless_the_operator_folds_it(path: str) -> None:
    strict = attempt(f"FILE:{path}")
    if isinstance(strict, RefusedError):
        return
    lower = canonical_resource(f"FILE:{path}", names=NameComparison(ignores_case=True))
    assert lower.key == f"FILE:{strict.key[5:].lower()}"


@pytest.mark.requirement("KM-4.2b")
def test_folding_case_leaves_alone_what_is_never_a_path_of_the_system() -> None:
    for text in ("STATE:/Todos", "SYMBOL:User.Name", "URL:https://h/Index"):
        assert read_resource(text, names=NameComparison(ignores_case=True)).text == text
    assert refusal("FILE:/SRC", names=NameComparison(ignores_case=True)).details["canonical"] == "FILE:/src"


@pytest.mark.requirement("KM-4")
def test_a_type_is_read_in_any_case_and_shown_in_capitals() -> None:
    assert read_resource("file:/a").text == read_resource("File:/a").text == "FILE:/a"
    assert read_resource("api_endpoint:/a") == read_resource("API_ENDPOINT:/a")


@pytest.mark.requirement("KM-4.3", "KP-6")
@pytest.mark.parametrize(
    "text",
    [
        "FILE:/boot/config.txt",
        "URL:https://example.com/api/v1",
        "ENV:PRODUCTION/DB_PASSWORD",
        "SYMBOL:User.authenticate",
        "DATABASE_TABLE:users",
        "CONFIG_KEY:db.host",
        "API_ENDPOINT:/api/users",
        "PROCESS:/4711",
        "DB:localhost/users",
        "COMMAND:make all",
        "STATE:/todos/*",
    ],
)
def test_the_examples_of_the_specifications_are_canonical(text: str) -> None:
    assert read_resource(text).text == text


@pytest.mark.requirement("KM-4.2a", "KM-6.3")
@pytest.mark.parametrize(
    "text",
    ["FILE:a", "FILE:", "FILE:./a", "FILE:../a", "FILE:localhost/a", "FILE:*", "FILE:C:/a", "STATE:todos", "URL:/x"],
)
def test_a_relative_name_is_refused_by_both_readings(text: str) -> None:
    assert refusal(text).code == "AMBIGUOUS_RESOURCE"
    with pytest.raises(RefusedError, match="relative"):
        canonical_resource(text)


@pytest.mark.requirement("KM-6.3", "KP-wild")
@for_each(
    "text",
    [
        "FILE:/*/a",
        "FILE:/a*",
        "FILE:/a/**",
        "FILE:/a/*/",
        "FILE:/a/*/..",
        "URL:https://h/a*",
        "URL:https://h/a/*?q=1",
        "URL:https://h/a?q=/*",
        "URL:https://h/a/*#x",
        "URL:https://*/a",
        "DB:localhost/*",
        "S3:*/a",
    ],
)
def test_a_star_stands_nowhere_but_at_the_end_of_a_path(text: str) -> None:
    assert refusal(text, types=BUCKETS).code == "AMBIGUOUS_RESOURCE"
    with pytest.raises(RefusedError):
        canonical_resource(text, types=BUCKETS)


@pytest.mark.parametrize("text", ["", "a", "/a/b", "FILE", ":/a", "/a:b", "1X:/a"])
def test_a_text_without_a_type_is_ambiguous(text: str) -> None:
    assert refusal(text).code == "AMBIGUOUS_RESOURCE"


@pytest.mark.requirement("KP-6")
def test_an_unknown_type_is_refused_and_the_known_ones_are_named() -> None:
    refused = refusal("QUEUE:/jobs")
    assert refused.code == "UNKNOWN_RESOURCE_TYPE"
    assert refused.details["known"] == list(STANDARD)
    assert "DATABASE_TABLE" in refused.message


@for_each("character", ["\n", "\0", "\x7f", "\x85", "\u2028", "\ud800"])
@for_each("text", ["FILE:/a{}b", "SYMBOL:a{}", "URL:https://h/{}"])
def test_control_characters_and_half_characters_are_refused(text: str, character: str) -> None:
    assert refusal(text.format(character)).code == "AMBIGUOUS_RESOURCE"


@pytest.mark.parametrize("told", [None, 5, b"FILE:/a", ["FILE:/a"], {}, 1.5])
def test_what_is_no_text_is_malformed(told: Any) -> None:
    assert refusal(told).code == "MALFORMED_SCHEMA"


def test_an_opaque_name_is_not_empty() -> None:
    assert refusal("SYMBOL:").code == "AMBIGUOUS_RESOURCE"


def test_the_limits_are_named() -> None:
    assert refusal("FILE:/" + "a" * 4_096).details["limit"] == "max_resource_chars"
    assert read_resource("FILE:" + "/a" * 256).depth == 256
    assert refusal("FILE:" + "/a" * 257).details == {
        "path": "$",
        "resource": ("FILE:" + "/a" * 257)[:256] + "...",
        "limit": "max_depth",
        "maximum": 256,
    }
    assert refusal("URL:https://h" + "/a" * 257).code == "MANIFEST_TOO_LARGE"
    assert read_resource("FILE:/a", max_chars=7, max_depth=1).depth == 1


def test_a_refusal_is_the_same_the_second_time() -> None:
    assert refusal("FILE:/a/../b").to_dict() == refusal("FILE:/a/../b").to_dict()


# URLs


@pytest.mark.requirement("KM-4", "KM-4.2a")
@for_each(
    ("told", "expected"),
    [
        ("HTTPS://Example.COM:443/a", "https://example.com/a"),
        ("http://h:80", "http://h/"),
        ("http://h:443/", "http://h:443/"),
        ("https://h:/a", "https://h/a"),
        ("https://h:08443/a", "https://h:8443/a"),
        ("https://h/a/./b/../c", "https://h/a/c"),
        ("https://h/../../a", "https://h/a"),
        ("https://h/a/..", "https://h/"),
        ("https://h/a/b/.", "https://h/a/b/"),
        ("https://h/%7euser/%2e%2e/a", "https://h/a"),
        ("https://h/a%2fb", "https://h/a%2Fb"),
        ("https://h/ä b", "https://h/%C3%A4%20b"),
        ("https://h/a?b=%7e&c=d/../e", "https://h/a?b=~&c=d/../e"),
        ("https://h/a#part", "https://h/a"),
        ("https://[2001:DB8::1]:443/a", "https://[2001:db8::1]/a"),
        ("s3://Bucket/key", "s3://bucket/key"),
        ("https://h/a/./*", "https://h/a/*"),
        ("https://h/%2A", "https://h/%2A"),
    ],
)
def test_urls_are_normalised_by_rfc_3986(told: str, expected: str) -> None:
    assert canonical_resource(f"URL:{told}").text == f"URL:{expected}"


@pytest.mark.parametrize(
    "told",
    ["mailto:a@b", "https:///a", "file:///etc", "https://h:99999/", "https://h:x/", "https://h/%zz", "https://ä/a", ""],
)
def test_what_is_no_url_with_a_host_is_ambiguous(told: str) -> None:
    assert refusal(f"URL:{told}").code == "AMBIGUOUS_RESOURCE"


def test_a_url_with_a_query_is_below_the_url_without_it() -> None:
    tree, asked = read_resource("URL:https://h/a/*"), read_resource("URL:https://h/a?q=1/2")
    assert asked.ancestors == ("URL:https://h/", "URL:https://h/a")
    assert tree.covers(asked)
    assert not read_resource("URL:https://h/b/*").overlaps(asked)


# Extents


@pytest.mark.requirement("KP-wild", "KM-4.2a")
@given(one=places, one_tree=st.booleans(), other=places, other_tree=st.booleans())
def test_extents_agree_with_sets_of_places(
    one: tuple[str, ...], one_tree: bool, other: tuple[str, ...], other_tree: bool
) -> None:
    first, second = resource(one, one_tree), resource(other, other_tree)

    def below(place: tuple[str, ...], root: tuple[str, ...]) -> bool:
        return place[: len(root)] == root

    # Beyond the names that both spell out, every extent goes on in the same way: two more levels tell all.
    def holds(place: tuple[str, ...], root: tuple[str, ...], tree: bool) -> bool:
        return below(place, root) if tree else place == root

    probes = {place[:n] + more for place in (one, other) for n in range(len(place) + 1) for more in ((), ("x",))}
    ours = {probe for probe in probes if holds(probe, one, one_tree)}
    theirs = {probe for probe in probes if holds(probe, other, other_tree)}
    assert first.overlaps(second) == second.overlaps(first) == bool(ours & theirs)
    assert first.covers(second) == (ours >= theirs)


@pytest.mark.requirement("KP-wild")
def test_a_subtree_covers_its_root_and_ends_at_the_boundary_of_a_name() -> None:
    tree = read_resource("FILE:/c/*")
    assert tree.covers(read_resource("FILE:/c"))
    assert tree.covers(read_resource("FILE:/c/d/e.txt"))
    assert tree.covers(read_resource("FILE:/c/d/*"))
    assert not tree.overlaps(read_resource("FILE:/cat/x"))
    assert not tree.overlaps(read_resource("API_ENDPOINT:/c/x"))
    assert read_resource("FILE:/*").covers(tree)


@given(place=places, subtree=st.booleans())
def test_ancestors_lead_from_the_root_to_the_parent(place: tuple[str, ...], subtree: bool) -> None:
    found = resource(place, subtree)
    assert found.ancestors == tuple("FILE:/" + "/".join(place[:n]) for n in range(len(place)))
    assert found.depth == len(place)


@given(text=texts)
def test_every_ancestor_is_a_resource_one_name_shallower(text: str) -> None:
    found = attempt(text, types=BUCKETS)
    if isinstance(found, RefusedError):
        return
    line = [read_resource(key, types=BUCKETS) for key in found.ancestors]
    assert [one.depth for one in line] == list(range(found.depth))
    for above, below in pairwise([*line, found]):
        assert above.key != below.key
        assert canonical_resource(f"{above.key}/*", types=BUCKETS).overlaps(below)


def test_siblings_share_the_keys_of_their_ancestors() -> None:
    for place in ("FILE:/a/b", "FILE:/" + "long/" * 100 + "way"):
        assert read_resource(f"{place}/1").ancestors is read_resource(f"{place}/2").ancestors


def test_opaque_names_have_nothing_above_or_below() -> None:
    one = read_resource("DB:localhost/users")
    assert (one.ancestors, one.depth, one.subtree) == ((), 0, False)
    assert not one.overlaps(read_resource("DB:localhost/users/1"))
    assert one.covers(read_resource("db:localhost/users"))


def test_an_authority_is_the_root_of_its_own_tree() -> None:
    one = read_resource("S3:bucket/a/b", types=BUCKETS)
    assert one.ancestors == ("S3:bucket/", "S3:bucket/a")
    assert read_resource("S3:bucket/*", types=BUCKETS).covers(one)
    assert not read_resource("S3:other/*", types=BUCKETS).overlaps(one)
    assert read_resource("S3:s3://bucket/a", types=BUCKETS).ancestors == ("S3:s3://bucket/",)
    assert refusal("S3:bucket", types=BUCKETS).code == "AMBIGUOUS_RESOURCE"
    assert refusal("S3:../a", types=BUCKETS).code == "AMBIGUOUS_RESOURCE"


def test_a_resource_survives_pickling() -> None:
    one = read_resource("FILE:/a/b/*")
    again = pickle.loads(pickle.dumps(one))
    assert (again, again.ancestors, again.nested) == (one, one.ancestors, True)


# Types


@pytest.mark.requirement("KP-6")
def test_further_types_are_registered_by_name() -> None:
    types = STANDARD.with_types(ResourceType("QUEUE", "path", nested=True))
    assert read_resource("queue:/jobs/1", types=types).nested
    assert "QUEUE" not in STANDARD
    assert types.to_wire() == {"QUEUE": {"kind": "path", "authority": False, "nested": True, "case_sensitive": False}}
    assert STANDARD.with_types() is STANDARD


@pytest.mark.requirement("KP-6")
def test_a_replay_reads_recorded_resources_without_the_plug_in() -> None:
    types = STANDARD.with_types(ResourceType("TOPIC", "path", canonical=str.lower))
    recorded = ResourceTypes.recorded(types.to_wire())
    there = recorded_resource("TOPIC:/a/b/*", recorded)
    assert there.ancestors == read_resource("TOPIC:/a/b/*", types=types).ancestors
    assert recorded["TOPIC"].canonical is None


@pytest.mark.requirement("KP-6", "KP-wild")
@given(
    name=st.lists(st.sampled_from(["", "a", "b.", "é", "ab"]), min_size=1, max_size=4).map("/".join),
    separator=st.sampled_from([".", "/", ":", " "]),
)
def test_a_recorded_name_of_a_hierarchy_is_the_one_that_was_read(name: str, separator: str) -> None:
    types = STANDARD.with_types(ResourceType("TOPIC", "opaque", nested=True, separator=separator))
    recorded = ResourceTypes.recorded(types.to_wire())
    for text in (f"TOPIC:{name}", f"TOPIC:{name}{separator}*", "TOPIC:*"):
        try:
            found = read_resource(text, types=types)
        except RefusedError:
            assert text == "TOPIC:" or text == f"TOPIC:{separator}*"
            continue
        again = recorded_resource(text, recorded)
        assert (again.text, again.key, again.subtree, again.ancestors) == (
            text,
            found.key,
            found.subtree,
            found.ancestors,
        )
        assert found.ancestors == () if text == "TOPIC:*" else found.ancestors[0] == "TOPIC:"
        for above in found.ancestors:
            assert read_resource(f"{above}{separator if above != 'TOPIC:' else ''}*", types=types).covers(found)


@pytest.mark.parametrize("text", ["QUEUE:/a", "FILE", "FILE:a", "URL:/x", "URL:http://h", ""])
def test_a_log_that_names_an_impossible_resource_is_damaged(text: str) -> None:
    with pytest.raises(DamagedLogError):
        recorded_resource(text)


@pytest.mark.parametrize(
    "given",
    [
        ResourceType("queue", "path"),
        ResourceType("QUEUE", "path", separator="."),
        ResourceType("QUEUE", "opaque", separator="*"),
        ResourceType("QUEUE", "opaque", separator="::"),
        ResourceType("QUEUE", "opaque", separator=""),
        ResourceType("", "path"),
        ResourceType("Q", "tree"),  # type: ignore[arg-type]
        ResourceType("FILE", "opaque"),
        "QUEUE",
    ],
)
def test_a_type_that_is_none_or_redefines_another_is_refused(given: Any) -> None:
    with pytest.raises(RefusedError) as caught:
        STANDARD.with_types(given)
    assert caught.value.code == "INVALID_RESOURCE_TYPE"


@pytest.mark.requirement("KP-6")
def test_a_type_may_have_rules_of_its_own() -> None:
    def tidy(name: str) -> str:
        if name.startswith("!"):
            raise ValueError("begins with a sign of exclamation")
        return name.strip().lower()

    types = STANDARD.with_types(ResourceType("TABLE", "opaque", canonical=tidy))
    assert canonical_resource("TABLE: Users ", types=types).text == "TABLE:users"
    assert refusal("TABLE:Users", types=types).details["canonical"] == "TABLE:users"
    assert "exclamation" in refusal("TABLE:!", types=types).message


@pytest.mark.parametrize(
    "canonical", [lambda name: name + "x", lambda name: 5, lambda name: 1 / 0, lambda name: name + "\n"]
)
def test_rules_that_are_no_canonical_form_are_refused_as_the_types_fault(canonical: Any) -> None:
    types = STANDARD.with_types(ResourceType("TABLE", "opaque", canonical=canonical))
    assert refusal("TABLE:users", types=types).code == "INVALID_RESOURCE_TYPE"


@pytest.mark.requirement("KP-6")
def test_installed_packages_offer_types(monkeypatch: pytest.MonkeyPatch) -> None:
    class Queue(EntryPoint):
        def load(self) -> ResourceType:
            return ResourceType("QUEUE", "path")

    point = Queue("queue", "queues:TYPE", "worldprotocol.resource_types")
    monkeypatch.setattr(references, "entry_points", lambda group: [point] if group == point.group else [])
    types = ResourceTypes.installed()
    assert set(types) == {*STANDARD, "QUEUE"}
    found = read_resource("QUEUE:/a", types=types)
    assert found.type == "QUEUE"


@pytest.mark.requirement("KM-4.2b")
@pytest.mark.parametrize("scheme", ["FILE", "API_ENDPOINT"])
@pytest.mark.parametrize("below", ["", "/*"])
def test_paths_of_every_type_of_the_system_are_folded_where_case_does_not_count(scheme: str, below: str) -> None:
    written, folded = f"{scheme}:/Api/Users{below}", f"{scheme}:/api/users{below}"
    assert canonical_resource(written, names=NameComparison(ignores_case=True)).text == folded
    assert refusal(written, names=NameComparison(ignores_case=True)).details["canonical"] == folded
    assert canonical_resource(written).text == written
    assert read_resource(written).text == written
