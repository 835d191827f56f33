"""URLs that two readers read differently are refused; what is accepted each of them reads alike."""

from __future__ import annotations

from urllib.parse import urlsplit

import ada_url
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from world.errors import RefusedError
from world.klis.resources.canonical_url import canonical_url
from world.klis.resources.resource_reading import canonical_resource, read_resource

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
]
READ = [
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
    ("https://a_b.example/", "https://a_b.example/"),
    ("https://localhost/", "https://localhost/"),
]
HOSTILE = "\\@:/?#%.[]<>^|~!$&'()*+,;= \t\r\n\u3002\uff0e\u00ad\u200b\uff41\u0430\u00df\u0661\u2100"


@pytest.mark.parametrize("text", REFUSED)
def test_a_url_with_two_readings_is_refused(text: str) -> None:
    with pytest.raises(RefusedError) as refused:
        canonical_url(text)
    assert refused.value.code == "AMBIGUOUS_URL"
    with pytest.raises(RefusedError):
        canonical_resource(f"URL:{text}")


@pytest.mark.parametrize(("text", "wanted"), READ)
def test_a_url_with_one_reading_is_brought_into_its_form(text: str, wanted: str) -> None:
    assert canonical_url(text).text == wanted
    assert canonical_resource(f"URL:{text}").text == f"URL:{wanted}"
    every_reader_agrees(text)


def every_reader_agrees(text: str) -> None:
    """Compare the host with those of WHATWG, and of Python's reader and an RFC 3986 client, of text and normal form."""
    found = canonical_url(text)
    for one in (text, found.text):
        assert ada_url.URL(one).hostname == found.host
        assert f"[{urlsplit(one).hostname}]" == found.host or _ascii(urlsplit(one).hostname or "") == found.host
        assert httpx.URL(one).raw_host.decode("ascii") == found.host.strip("[]") or ":" in found.host


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
