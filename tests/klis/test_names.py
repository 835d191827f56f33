"""Comparing names of files: the key that two spellings share, and how the choice is recorded."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from world.errors import RefusedError
from world.klis.manifest import read_manifest
from world.klis.resources.names import BYTE_WISE, NameComparison
from world.klis.resources.resource_reading import canonical_resource
from world.klis.resources.resource_types import STANDARD
from world.klis.settings import KlisSettings

pytestmark = pytest.mark.requirement("KM-4.2b")

CASE, FORM, BOTH = NameComparison(True, False), NameComparison(False, True), NameComparison(True, True)
COMPOSED, DECOMPOSED = "/caf\u00e9", "/cafe\u0301"


@pytest.mark.parametrize(
    ("names", "same"),
    [
        (BYTE_WISE, []),
        (CASE, ["/CAF\u00c9"]),
        (FORM, [DECOMPOSED]),
        (BOTH, ["/CAF\u00c9", DECOMPOSED, "/CAFE\u0301"]),
    ],
)
def test_names_have_one_key_exactly_where_the_difference_is_ignored(names: NameComparison, same: list[str]) -> None:
    spellings = ["/CAF\u00c9", DECOMPOSED, "/CAFE\u0301"]
    assert [one for one in spellings if names.key(one) == names.key(COMPOSED)] == same
    assert names.key(COMPOSED) == COMPOSED


def test_what_the_key_does_not_follow_is_as_documented() -> None:
    for one, other in (("/stra\u00dfe", "/STRASSE"), ("/\u03c2", "/\u03c3"), ("/a\u200b", "/a")):
        assert BOTH.key(one) != BOTH.key(other)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_keys_are_stable_and_equal_for_both_forms(name: str) -> None:
    for names in (FORM, BOTH):
        key = names.key(name)
        assert names.key(key) == key
        plain = name.replace("%", "")
        assert names.key(unicodedata.normalize("NFC", plain)) == names.key(unicodedata.normalize("NFD", plain))


def test_the_digits_of_an_escape_are_no_letters() -> None:
    assert FORM.key("/%0A\u030a") == "/%0A\u030a"  # a newline, then the mark
    assert FORM.key("/%250A\u030a") == "/%0\u00c5"  # %0A with a ring, which reads as no escape any more
    assert FORM.key("/%2500\u00e9e\u0301") == "/%2500\u00e9\u00e9"


def test_a_manifest_names_a_file_in_the_one_form_and_the_refusal_gives_it() -> None:
    settings = KlisSettings(normal_form=True)
    told = {"ver": "1.0", "session_id": "s", "agent_id": "a"}

    def read(name: str, chosen: KlisSettings) -> str:
        scope = [{"predicate": "MUTATES", "resource": f"FILE:{name}"}]
        return read_manifest(told | {"scope": scope}, settings=chosen, types=STANDARD).triples[0].resource.text

    assert read(COMPOSED, settings) == f"FILE:{COMPOSED}"
    with pytest.raises(RefusedError) as refused:
        read(DECOMPOSED, settings)
    assert (refused.value.code, refused.value.details["canonical"]) == ("AMBIGUOUS_RESOURCE", f"FILE:{COMPOSED}")
    assert read(DECOMPOSED, KlisSettings()) == f"FILE:{DECOMPOSED}"


def test_only_paths_without_a_case_of_their_own_are_compared_so() -> None:
    for text in (f"STATE:{DECOMPOSED}", "SYMBOL:e\u0301", f"URL:https://example.com{DECOMPOSED}"):
        plain = canonical_resource(text)
        assert canonical_resource(text, names=BOTH) == plain
    assert canonical_resource(f"FILE:{DECOMPOSED}/*", names=FORM).text == f"FILE:{COMPOSED}/*"


def test_the_choice_is_recorded_only_where_it_is_made_and_absent_means_not() -> None:
    assert "normal_form" not in KlisSettings().to_wire()
    told = KlisSettings(normal_form=True).to_wire()
    assert told["normal_form"] is True
    assert KlisSettings.recorded(told).names == FORM
    assert KlisSettings.recorded(KlisSettings(lower_case=True).to_wire()).names == CASE
    with pytest.raises(RefusedError):
        KlisSettings.recorded(told | {"normal_form": 1})


def test_what_the_file_system_ignores_is_added_to_what_is_configured() -> None:
    assert KlisSettings(lower_case=True).following(FORM).names == BOTH
    assert KlisSettings(normal_form=True).following(BYTE_WISE).names == FORM
    assert KlisSettings().following(BYTE_WISE) == KlisSettings()
