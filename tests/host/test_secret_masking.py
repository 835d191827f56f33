"""What libraries make of a secret's value in results and errors: none of it is left."""

from __future__ import annotations

import base64
import html
import json
import shlex
from collections.abc import Callable
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from host.secrets.masking import MIN_SECRET_CHARS, ValueMask
from tests.support.tables import for_each
from world.model.secrets.references import has_reference, references

VALUE = "pä\"s\\w/o rd'<!*>&+\N{GRINNING FACE}"
LATIN = "pä\"s\\w/o rd'<!*>&+"
LONG = "Zq7-" * 30


def jinja(text: str) -> str:
    """Escape as markupsafe does."""
    for one, other in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&#34;"), ("'", "&#39;")):
        text = text.replace(one, other)
    return text


def go(text: str) -> str:
    """Encode as the JSON of Go and Rails does."""
    return json.dumps(text)[1:-1].replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def broken(text: str) -> str:
    """Encode as in a mail."""
    return base64.encodebytes(text.encode()).decode().rstrip("=\n")


WAYS: dict[str, Callable[[str], str]] = {
    "JSON in JSON": lambda text: json.dumps(json.dumps(text)[1:-1])[1:-1],
    "JSON in JSON in JSON": lambda text: json.dumps(json.dumps(json.dumps(text)[1:-1])[1:-1])[1:-1],
    "JSON of Go": go,
    "JSON with capitals": lambda text: json.dumps(text)[1:-1].replace("\\u00e4", "\\u00E4"),
    "bytes": lambda text: repr(text.encode())[2:-1],
    "ascii": lambda text: ascii(text)[1:-1],
    "a representation of a representation": lambda text: repr(repr(text)[1:-1])[1:-1],
    "percent, as curl and JavaScript": lambda text: quote(text, safe="!*'()"),
    "percent, as requests": lambda text: quote(text, safe="!#$%&'()*+,/:;=?@[]~"),
    "percent of percent": lambda text: quote(quote(text, safe=""), safe=""),
    "HTML of Jinja": jinja,
    "HTML of HTML": lambda text: html.escape(html.escape(text)),
    "a word of the shell": lambda text: shlex.quote(text)[1:-1],
    "hexadecimal with colons": lambda text: text.encode().hex(":"),
    "hexadecimal in capitals": lambda text: text.encode().hex(" ").upper(),
    "Base64 in JSON": lambda text: base64.b64encode(text.encode()).decode().rstrip("=").replace("/", "\\/"),
}


@pytest.mark.requirement("CARD-audit")
@for_each("way", WAYS)
def test_no_usual_way_to_write_a_value_is_left(way: str) -> None:
    mask = ValueMask([VALUE])
    left = mask.text(f"before {WAYS[way](VALUE)} after")
    assert left.startswith("before ***")
    assert left.endswith(" after")
    assert len(left) <= len("before ***ww after"), (
        left
    )  # of Base64 up to two letters hold bits that are not the value's


@pytest.mark.requirement("CARD-audit")
def test_bytes_in_latin_1_are_not_left() -> None:
    assert ValueMask([LATIN]).text(f"header {LATIN.encode('latin-1')!r}") == "header b'***'"


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize("ahead", ["", "user:", "a", "ab"])
def test_base64_that_is_broken_into_lines_is_not_left(ahead: str) -> None:
    written = broken(ahead + LONG)
    assert "\n" in written
    for text in (written, json.dumps(written), written.replace("\n", "\r\n    ")):
        left = ValueMask([LONG]).text(f"<{text}>")
        assert "***" in left
        assert len(left) <= len(broken(ahead)) + 12, left


@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=MIN_SECRET_CHARS, max_size=40),
    st.sampled_from(sorted(set(WAYS) - {"a word of the shell", "JSON with capitals", "Base64 in JSON"})),
)
@example("00000&", "HTML of HTML")
@example("00000%", "percent of percent")
def test_any_value_is_masked_in_any_way(value: str, way: str) -> None:
    text = WAYS[way](value)
    assert ValueMask([value]).text(f"({text})") == "(***)"


def test_ordinary_text_stays() -> None:
    text = "no secret: p%C3%A4 \\u00e4 &amp; 'quoted' " + "\\" * 50
    assert ValueMask([VALUE, LONG]).text(text) == text


def test_a_value_of_many_bytes_is_masked_as_each_library_writes_it() -> None:
    value = 'k"/' * 400
    mask = ValueMask([value])
    for text in (value, json.dumps(value), quote(value, safe=""), value.encode().hex(), html.escape(value)):
        assert "k" not in mask.text(f"<{text}>").replace("6b", "k")


@pytest.mark.requirement("CARD-audit")
def test_many_dollar_signs_are_searched_in_one_pass() -> None:
    """In steps that grow with the square of the length, a text of this length would take days."""
    text = "$" * 4_000_000
    assert not has_reference(text)
    assert references([text + "{secret:", text + "{secret:NAME}"]) == ()
    assert references("$x$${secret:A}${secret:B}") == ("B",)
