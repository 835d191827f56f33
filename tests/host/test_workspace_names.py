"""Names of files: every path has one name, every name at most one path."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from host.workspace.names import name_of, path_of
from tests.support.tables import for_each
from world.errors import RefusedError
from world.klis.resources.names import NameComparison
from world.klis.resources.resource_reading import canonical_resource, read_resource

SEGMENTS = (
    st.one_of(
        st.binary(min_size=1, max_size=12),
        st.text("%0123456789abcdefABCDEF2a*\n é\u0301\u030a\u2028\x85", min_size=1, max_size=10).map(str.encode),
    )
    .map(lambda name: name.replace(b"/", b"").replace(b"\0", b""))
    .filter(lambda name: name not in {b"", b".", b".."})
)
PATHS = st.lists(SEGMENTS, max_size=4).map(b"/".join)


@given(PATHS)
@example(b"%2a")
@example(b"%\n")
@example(b"%2\n")
@example(b"%%25")
@example(b"%00")
@example(b"\xed\xa0\x80")
def test_a_path_comes_back_from_its_name(path):
    assert path_of(name_of(path)) == path


@given(PATHS, PATHS)
def test_two_paths_have_two_names(one, other):
    assert (name_of(one) == name_of(other)) == (one == other)


@given(PATHS)
def test_a_name_is_canonical_in_a_resource(path):
    assert read_resource(f"FILE:{name_of(path)}").key == f"FILE:{name_of(path)}"


@given(PATHS)
def test_a_name_in_lower_case_leads_to_a_path_that_differs_in_case_alone(path):
    names = NameComparison(ignores_case=True)
    lower = canonical_resource(f"FILE:{name_of(path)}", names=names).key.removeprefix("FILE:")
    assert name_of(path_of(lower, names=names)).lower() == lower


@given(PATHS, st.builds(NameComparison, st.booleans(), st.booleans()))
@example("a\n\u030a/%0A\u0301".encode(), NameComparison(True, True))
@example("%2\u0301/%250A\u030a\u0327".encode(), NameComparison(False, True))
def test_a_name_by_which_files_are_compared_leads_to_a_path_with_the_same_key(path, names):
    key = canonical_resource(f"FILE:{name_of(path)}", names=names).key.removeprefix("FILE:")
    assert names.key(name_of(path_of(key, names=names))) == key


@given(st.text(max_size=12).map(lambda text: f"/{text}"))
def test_a_text_is_the_name_of_its_path_or_is_refused(text):
    path = None
    with contextlib.suppress(RefusedError):
        path = path_of(text)
    assert path is None or name_of(path) == text


@for_each(
    ("path", "name"),
    [
        (b"", "/"),
        (b"src/a.py", "/src/a.py"),
        ("é ü".encode(), "/é ü"),
        (b"a\nb", "/a%0Ab"),
        (b"a%20b", "/a%20b"),
        (b"100%", "/100%"),
        (b"%41", "/%41"),
        (b"%2F", "/%2F"),
        (b"%0A", "/%250A"),
        (b"%0a", "/%250a"),
        (b"%25", "/%2525"),
        (b"%252A", "/%25252A"),
        (b"*.txt", "/%2A.txt"),
        (b"\xff\xfe", "/%FF%FE"),
        (b"\xc3", "/%C3"),
        ("\u2028\x85".encode(), "/%E2%80%A8%C2%85"),
    ],
)
def test_only_what_cannot_stand_in_a_name_is_escaped(path, name):
    assert name_of(path) == name
    assert path_of(name) == path


@pytest.mark.parametrize(
    ("name", "canonical"), [("/%C3%A9", "/é"), ("/%0a", "/%0A"), ("/%2a", "/%2A"), ("/a\nb", "/a%0Ab"), ("/*", "/%2A")]
)
def test_a_second_spelling_of_a_file_is_refused_with_the_first(name, canonical):
    with pytest.raises(RefusedError) as refused:
        path_of(name)
    assert refused.value.code == "AMBIGUOUS_RESOURCE"
    assert refused.value.details["canonical"] == canonical


@pytest.mark.parametrize("name", ["", "a", "/a//b", "/a/", "/./a", "/a/..", "/a\0", "/\udc80"])
def test_what_names_no_file_is_refused(name):
    with pytest.raises(RefusedError) as refused:
        path_of(name)
    assert refused.value.code == "AMBIGUOUS_RESOURCE"
