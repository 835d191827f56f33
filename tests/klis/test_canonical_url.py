"""URLs that two readers read differently are refused; what is accepted each of them reads alike."""

from __future__ import annotations

from urllib.parse import urlsplit

import ada_url
import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.plugins.forms import scaled
from tests.support.tables import for_each
from world.errors import RefusedError
from world.klis.resources.canonical_url import canonical_url
from world.klis.resources.resource_reading import canonical_resource, read_resource

pytestmark = pytest.mark.requirement("WALL-names")

REFUSED = [
    "https://evil.example\\@github.com/",
    "https:\\\\evil.example/",
    "https:/\\evil.example/",
    "https://github.com\\.evil.example/",
    "https://github.com/a\\b",
    "https://evil.example/\\@github.com",
    "https://user@github.com/",
    "https://github.com@evil.example/",
    "https://github.com:80@evil.example/",
    "https://@github.com/",
    "https://a@b@github.com/",
    "https://ex%61mple.com/",
    "https://github.com%2eevil.example/",
    "https://github.com%00.evil.example/",
    "https://%67ithub.com/",
    "https://0x7f.1/",
    "http://127.1/",
    "http://2130706433/",
    "http://0177.0.0.1/",
    "http://127.0.0.1./",
    "http://127.0.0.01/",
    "http://1.2.3.4.5/",
    "http://256.1.1.1/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::127.0.0.1%25eth0]/",
    "http://[::1/",
    "http://[127.0.0.1]/",
    "http://::1/",
    "http://[0:0:0:0:0:0:0:1]/",
    "https://EXAMPLE.com./",
    "https://example..com/",
    "https://.example.com/",
    "https://exa mple.com/",
    " https://example.com/",
    "https://example.com/ ",
    "https://example.com\t.evil.example/",
    "https://exam\nple.com/",
    "ht\ntps://example.com/",
    "https://example.com/\r",
    "https://example.com\u0000/",
    "https://exam\u00adple.com/",
    "https://exam\u200bple.com/",
    "https://example\u3002com/",
    "https://\uff45xample.com/",
    "https://example.com\uff0f.evil.example/",
    "https://\u2100.example/",
    "https://\u0440\u0430ypal.com/",
    "https://xn--ypal-43d9g.com/",
    "https://g\u043eogle.com/",
    "https://xn--/",
    "https://xn--a.example/",
    "https://ab--c.example/",
    "https://a$b.example/",
    "https://a,b.example/",
    "https://a|b.example/",
    "https://a<b.example/",
    "https://a^b.example/",
    "http:example.com",
    "http:/example.com",
    "https:///example.com/x",
    "//example.com/x",
    "example.com",
    "",
    "https://",
    "https://:443/",
    "https://a.example:99999/",
    "https://a.example:8o/",
    "https://a.example:80:80/",
    "https://a.example:-1/",
    "https://\u0661.0.0.1/",
    "https://\U0001f4a9.example/",
    "https://fa\u00df.de/",
    "https://FA\u1e9e.de/",
    "https://www.\u1e9e.de/",
    "https://\u03bb\u03cc\u03b3\u03bf\u03c2.gr/",
    "https://\u03c2.gr/",
    "https://\u039f\u0394\u039f\u03a3.gr/",
    "https://\u0915\u094d\u200d\u0937.in/",
    "https://\u0928\u0940\u200c\u0915\u092e.in/",
    "https://\u03a3\u03bf\u03c6\u03af\u03b1.gr/",
    "https://\u212aelvin.com/",
    "https://\u212bngstrom.se/",
    "https://\u2126.gr/",
    "https://\u03f4.gr/",
    "https://\u0130stanbul.tr/",
    "https://\u01c5.example/",
    "https://\uf900.jp/",
    "https://bu\u0308cher.example/",
    f"https://{'a' * 64}.example/",
    f"https://www.{'a' * 64}/",
    f"https://xn--{'a' * 60}.de/",
    f"https://\u00fc{'a' * 60}.de/",
]
READ = [
    ("https://example.com/a b", "https://example.com/a%20b"),
    ("https://github.com/a?b#c", "https://github.com/a?b"),
    ("HTTPS://GitHub.COM:443", "https://github.com/"),
    ("https://a.example#@b.example/", "https://a.example/"),
    ("https://a.example?@b.example/", "https://a.example/?@b.example/"),
    ("https://a.example/@b.example/", "https://a.example/@b.example/"),
    ("http://127.0.0.1:8080/", "http://127.0.0.1:8080/"),
    ("http://[2001:DB8::1]:80/", "http://[2001:db8::1]/"),
    ("https://b\u00fccher.example/", "https://xn--bcher-kva.example/"),
    ("https://B\u00dcCHER.example/", "https://xn--bcher-kva.example/"),
    ("https://xn--bcher-kva.example/", "https://xn--bcher-kva.example/"),
    ("https://\u4f8b\u3048.jp/", "https://xn--r8jz45g.jp/"),
    ("https://xn--fa-hia.de/", "https://xn--fa-hia.de/"),
    ("https://\u03bb\u03cc\u03b3\u03bf.gr/", "https://xn--oxapn4c.gr/"),
    ("https://\u0391\u0398\u0397\u039d\u0391.gr/", "https://xn--mxaard0a.gr/"),
    ("https://\ud55c\uad6d.kr/", "https://xn--3e0b707e.kr/"),
    (f"https://{'a' * 63}.example/", f"https://{'a' * 63}.example/"),
    ("https://a_b.example/", "https://a_b.example/"),
    ("https://localhost/", "https://localhost/"),
]
HOSTILE = (
    "\\@:/?#%.[]<>^|~!$&'()*+,;= \t\r\n\u3002\uff0e\u00ad\u200b\uff41\u0430\u00df\u0661\u2100"
    "\u1e9e\u03a3\u03c2\u200d\u212a\u0130\u0308"
)


@for_each("text", REFUSED)
def test_a_url_with_two_readings_is_refused(text: str) -> None:
    with pytest.raises(RefusedError) as refused:
        canonical_url(text)
    assert refused.value.code == "AMBIGUOUS_URL"
    with pytest.raises(RefusedError):
        canonical_resource(f"URL:{text}")


@for_each(("text", "wanted"), READ)
def test_a_url_with_one_reading_is_brought_into_its_form(text: str, wanted: str) -> None:
    assert canonical_url(text).text == wanted
    assert canonical_resource(f"URL:{text}").text == f"URL:{wanted}"
    every_reader_agrees(text)


@given(st.deferred(lambda: st.sampled_from([chr(one) for one in range(0x80, 0x30000) if chr(one).isalnum()])))
@settings(max_examples=scaled(2_000, ci=500))
def test_a_name_with_any_letter_has_one_host_for_each_reader(letter: str) -> None:
    for host in (letter, f"a{letter}", f"{letter}a", f"{letter}{letter.lower()}"):
        if _is_accepted(f"https://{host}.example/"):
            every_reader_agrees(f"https://{host}.example/")


def every_reader_agrees(text: str) -> None:
    """Compare the host with those of WHATWG, Python's reader and codec, and an RFC 3986 client, in text and form."""
    found = canonical_url(text)
    for one in (text, found.text):
        assert ada_url.URL(one).hostname == found.host
        assert f"[{urlsplit(one).hostname}]" == found.host or _ascii(urlsplit(one).hostname or "") == found.host
        assert httpx.URL(one).raw_host.decode("ascii") == found.host.strip("[]") or ":" in found.host
        named = urlsplit(one).hostname or ""
        assert ":" in named or named.encode("idna").decode("ascii") == found.host


def _ascii(host: str) -> str:
    import idna

    return host if host.isascii() else idna.encode(host).decode("ascii")


@given(st.text(alphabet=st.sampled_from(sorted(set(HOSTILE) | set("abcxn-0123456789_"))), max_size=24))
def test_what_is_accepted_has_one_host_for_each_reader(host: str) -> None:
    for text in (
        f"https://{host}/",
        f"https://github.com{host}",
        f"https://{host}@github.com/",
        f"http://{host}.com/x",
    ):
        if _is_accepted(text):
            every_reader_agrees(text)


def _is_accepted(text: str) -> bool:
    try:
        canonical_url(text)
    except RefusedError:
        return False
    return True


@given(st.text(max_size=30))
def test_the_form_of_a_url_stays_as_it_is(text: str) -> None:
    if _is_accepted(f"https://{text}"):
        found = canonical_url(f"https://{text}")
        assert canonical_url(found.text) == found


def test_a_manifest_names_the_form_of_what_it_spells_otherwise() -> None:
    with pytest.raises(RefusedError) as refused:
        read_resource("URL:https://evil.example\\@github.com/")
    assert refused.value.code == "AMBIGUOUS_RESOURCE"


def test_a_long_url_is_shortened_in_its_refusal() -> None:
    for chars in (200, 201):
        text = "https://user@" + "a" * (chars - 13)
        with pytest.raises(RefusedError) as refused:
            canonical_url(text)
        assert refused.value.details["url"] == (text if chars == 200 else text[:200] + "...")
