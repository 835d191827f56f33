"""Hosts of URLs have one form: manifests refuse others, and observation normalises them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host.observation import Operations
from host.workspace import Workspace
from tests.klis.test_manifest import document, read, refusal
from tests.support.tables import for_each
from world.errors import RefusedError
from world.klis.observation import Declaration, Seen
from world.klis.predicate import Predicate
from world.klis.resources.resource_reading import canonical_resource, read_resource, recorded_url
from world.klis.resources.url_host import canonical_host
from world.klis.settings import KlisSettings
from world.klis.triple import Triple

FORMS = [
    ("[::1]", ["[0:0:0:0:0:0:0:1]", "[0000::0001]", "[::0:1]"]),
    ("[2001:db8::1:0:0:1]", ["[2001:DB8:0:0:1:0:0:1]", "[2001:db8:0:0:1::1]"]),
    (
        "127.0.0.1",
        ["127.1", "127.0.1", "0x7f.1", "0177.0.0.1", "2130706433", "0x7F000001", "127.0.0.1.", "127.0.0.%31"],
    ),
    ("127.0.0.1", ["[::ffff:127.0.0.1]", "[::FFFF:7f00:1]", "\uff11\uff12\uff17.0.0.1", "127\u30020.0.1"]),
    ("10.0.1.2", ["10.0.258", "012.0.1.2", "10.258"]),
    ("example.com", ["EXAMPLE.com", "example.com.", "ex%61mple.com", "example.com\u3002"]),
    (
        "xn--bcher-kva.example",
        ["b\u00fccher.example", "B\u00dcCHER.example", "b%C3%BCcher.example", "bu\u0308cher.example"],
    ),
    ("xn--bcher-kva.example", ["XN--BCHER-KVA.example", "b\u00fccher.example."]),
]
PAIRS = [(canonical, other) for canonical, others in FORMS for other in others]


@pytest.mark.requirement("KM-6.3")
@for_each(("canonical", "other"), PAIRS)
def test_every_form_of_a_host_is_one_place_and_a_manifest_names_its_canonical_form(canonical: str, other: str) -> None:
    for port in ("", ":8080"):
        text, wanted = f"URL:http://{other}{port}/a", f"URL:http://{canonical}{port}/a"
        assert recorded_url(text).text == wanted
        assert read_resource(wanted).text == wanted
        refused = refusal(document(f"MUTATES {text}"))
        assert (refused.code, refused.details["canonical"]) == ("AMBIGUOUS_RESOURCE", wanted)
    recorded = recorded_url(f"URL:http://{other}/*")
    assert recorded == canonical_resource(f"URL:http://{canonical}/*")


@for_each(
    "host",
    [
        *(
            "1.2.3.4.5",
            "1.2.3.4..",
            "a..",
            "a.%2E",
            "\u00e4..",
            "127..",
            "256.1.1.1",
            "1.2.3.256",
            "08.1.1.1",
            "4294967296",
            "1..2",
            "a..b",
            ".",
            "..",
            "a.0x100g.1",
            "example.1",
        ),
        *(
            "[::1",
            "[1::2::3]",
            "[fe80::1%25eth0]",
            "[127.0.0.1]",
            "%00",
            "%2",
            "%FF",
            "a b",
            "a*b",
            "",
            "\u2024",
            "xn--\u00fc",
        ),
    ],
)
def test_what_names_no_host_is_refused(host: str) -> None:
    with pytest.raises(RefusedError) as refused:
        canonical_resource(f"URL:http://{host}/a")
    assert refused.value.code == "AMBIGUOUS_RESOURCE"
    assert "canonical" not in refused.value.details


@pytest.mark.requirement("KM-6.3")
@for_each(
    ("host", "why"),
    [
        ("%2", "a % in its host that begins no two hexadecimal digits"),
        ("%FF", "percent-encoding is no UTF-8"),
        ("a b", "no host that can be compared"),
        ("08.1.1.1", "ends in a number and is no IPv4 address"),
        ("[::1", "no IPv6 address"),
    ],
)
def test_a_refused_host_says_why(host: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        canonical_host(host)


@given(st.integers(0, 2**32 - 1), st.integers(0, 3), st.sampled_from([str, hex, lambda one: f"0{one:o}"]))
def test_every_written_form_of_an_address_is_its_dotted_quad(value: int, dots: int, write: object) -> None:
    octets = list(value.to_bytes(4, "big"))
    parts = [*octets[:dots], int.from_bytes(bytes(octets[dots:]), "big")]
    written = ".".join(write(part) for part in parts)  # type: ignore[operator]
    assert canonical_host(written) == ".".join(map(str, octets))


@given(st.integers(0, 2**128 - 1))
def test_addresses_of_version_6_are_stable_and_mapped_ones_are_of_version_4(value: int) -> None:
    written = ":".join(f"{value >> shift & 0xFFFF:04X}" for shift in range(112, -1, -16))
    canonical = canonical_host(f"[{written}]")
    assert canonical_host(canonical) == canonical
    assert canonical.startswith("[") == (value >> 32 != 0xFFFF)


@given(st.text(max_size=30))
def test_a_canonical_host_stays_as_it_is(text: str) -> None:
    try:
        canonical = canonical_host(text)
    except ValueError:
        return
    assert canonical_host(canonical) == canonical
    assert canonical.isascii()


def test_a_manifest_that_was_recorded_before_is_read_by_its_own_rules() -> None:
    before = KlisSettings.recorded({"manifest_rules": 2})
    for host in ("127.1", "[0:0:0:0:0:0:0:1]", "example.com.", "2130706433"):
        manifest = read(f"MUTATES URL:http://{host}/a", settings=before)
        assert manifest.effective() == {f"URL:http://{host}/a": "MUTATES"}
    assert KlisSettings().manifest_rules == 3


def test_what_was_declared_by_earlier_rules_covers_what_is_observed() -> None:
    before = KlisSettings.recorded({"manifest_rules": 2})
    manifest = read("MUTATES URL:http://127.1:8080/a", settings=before)
    declared = Declaration("ann", "s", manifest.declared)
    assert declared.hosts == {("127.0.0.1", 8080)}
    seen = Seen(Predicate.MUTATES, canonical_resource("URL:http://127.0.0.1:8080/a"))
    assert declared.covers(seen)
    assert declared.unused([seen]) == []
    assert not declared.covers(Seen(Predicate.MUTATES, canonical_resource("URL:http://127.0.0.2:8080/a")))


@pytest.mark.parametrize(
    ("declared", "connected"),
    [
        ("[::1]", "0:0:0:0:0:0:0:1"),
        ("127.0.0.1", "::ffff:127.0.0.1"),
        ("127.0.0.1", "127.1"),
        ("example.com", "EXAMPLE.com."),
    ],
)
def test_a_connection_is_compared_with_declared_hosts_by_the_same_form(
    tmp_path: Path, declared: str, connected: str
) -> None:
    triple = Triple(Predicate.CONSUMES, read_resource(f"URL:http://{declared}:8080/"))
    declaration = Declaration("ann", "s", [triple])
    with Workspace(tmp_path) as workspace:
        operations = Operations(workspace, hosts=[host for host, _ in declaration.hosts])
        (seen,) = operations.connected(connected, 8080)
        assert declaration.covers(seen)
        (other,) = operations.connected("127.0.0.9", 8080)
        assert not declaration.covers(other)
