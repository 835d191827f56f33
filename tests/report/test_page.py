"""The page: well-formed HTML that loads and runs nothing, in which every word of others is text."""

from __future__ import annotations

import re
import tempfile
from base64 import b64encode
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.report.pages import every, golden, hostile, named, parsed, reported, skeleton, table, text, written
from tests.support.making_events import made as made_event
from world.events.realm_events import ActorRegistered
from worldprotocol.terminal_text import visible

SECTIONS = [
    "Summary", "Lineage of worlds", "Decisions", "Refusals", "Runs and violations", "Leases", "Effects", "Proposals",
    "Events",
]  # fmt: skip
NASTY = [
    "<script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    "--><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)" x=\'',
    "{{ 7 * 7 }}{% raw %}",
    "&lt;b&gt;&#x3c;",
    "a\nb\r\nc\td",
    "\u202eevil\u2066\u200f\u061c",
    "\x00\x07\x1b[2J\x7f\x9b",
    "\ufffe\uffff\ufdd0\U0010ffff",
    "שלום مرحبا",
    "𝕏" * 200,
    "x" * 10_240,
]


@pytest.fixture(scope="module", params=["garden-leased", "harbour", "ledger"])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return reported(golden(request.param, tmp_path_factory.mktemp("page")))[1]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> list:
    """What a page is made of whose words are harmless."""
    return skeleton(parsed(reported(hostile(tmp_path_factory.mktemp("plain"), "word"))[1]))


def test_the_page_is_whole_html_with_its_sections(page):
    root = parsed(page)
    assert root.get("lang") == "en"
    assert len(every(root, "h1")) == 1
    assert [text(one) for one in every(root, "h2")] == SECTIONS
    ids = [one.get("id") for one in root.iter() if one.get("id")]
    assert len(ids) == len(set(ids))
    assert [one.get("href") for one in every(every(root, "nav")[0], "a")] == [
        f"#{one.get('id')}" for one in every(root, "h2")
    ]


def test_the_page_allows_its_own_style_by_hash_and_nothing_else(page):
    root = parsed(page)
    (policy,) = [one.get("content") for one in every(root, "meta") if one.get("http-equiv")]
    (style,) = every(root, "style")
    digest = b64encode(sha256((style.text or "").encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = [named(one) for one in every(root, "head")[0]]
    assert head.index("meta") < head.index("style")
    assert page.index("Content-Security-Policy") < 1024


def test_nothing_in_the_page_is_fetched_or_run(page):
    root = parsed(page)
    known = {named(one) for one in root.iter() if isinstance(one.tag, str)}
    assert not known & {"script", "link", "img", "iframe", "object", "embed", "audio", "video", "image", "use", "base"}
    assert not known & {"form", "input", "button", "foreignObject", "animate", "set"}
    for one in root.iter():
        names = {name.rpartition("}")[2] for name in one.attrib}
        assert not names & {"src", "srcset", "action", "background", "style", "ping", "formaction"}
        assert not any(name.startswith("on") for name in names)
        assert one.get("href", "#").startswith("#")
    assert not re.search(r"url\(|@import|https?:", every(root, "style")[0].text or "")


def test_tables_have_captions_and_heads_and_pictures_have_words(page):
    root = parsed(page)
    for one in every(root, "table"):
        (caption,) = every(one, "caption")
        assert text(caption)
        heads = every(every(one, "thead")[0], "th")
        assert all(head.get("scope") == "col" and text(head) for head in heads)
        for row in every(every(one, "tbody")[0], "tr"):
            assert len(list(row)) == len(heads)
            assert [cell.get("scope") for cell in every(row, "th")] == ["row"]
    ids = {one.get("id"): one for one in root.iter() if one.get("id")}
    for one in every(root, "svg"):
        assert one.get("role") == "img"
        assert all(text(ids[name]) for name in one.get("aria-labelledby", "").split())


def test_levels_of_headings_are_not_skipped(page):
    levels = [
        int(named(one)[1])
        for one in parsed(page).iter()
        if isinstance(one.tag, str) and named(one) in ("h1", "h2", "h3", "h4")
    ]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


@pytest.mark.parametrize("words", NASTY, ids=range(len(NASTY)))
def test_hostile_words_stay_words(tmp_path, plain, words):
    page = reported(hostile(tmp_path, words))[1]
    root = parsed(page)
    assert skeleton(root) == plain
    (refusal,) = table(root, "Rejected proposals")
    assert re.fullmatch(r"\d+.*", refusal["reason"])
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]", page)
    assert max(len(text(one)) for one in every(root, "bdi")) <= 400
    if len(words) < 60:
        shown = re.sub("[\ufffe\uffff\ufdd0\U0010ffff]", lambda found: f"\\u{ord(found[0]):04x}", visible(words))
        assert re.sub(r"\s+", " ", shown).strip() in refusal["reason"]


@settings(max_examples=8)
@given(words=st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_no_words_change_what_the_page_is_made_of(plain, words):
    with tempfile.TemporaryDirectory() as folder:
        assert skeleton(parsed(reported(hostile(Path(folder), words))[1])) == plain


def test_a_long_name_is_cut_in_the_middle_and_says_how_long_it_is(tmp_path):
    root = parsed(reported(hostile(tmp_path, "x" * 10_240))[1])
    cut = [one for one in every(root, "bdi") if one.get("title")]
    assert cut
    assert all("…" in text(one) for one in cut)
    assert any("10,24" in (one.get("title") or "") for one in cut)


def test_the_report_of_a_log_with_nothing_in_it_is_a_page(tmp_path):
    made, page = reported(written(str(tmp_path / "empty.db"), []))
    root = parsed(page)
    assert [text(one) for one in every(root, "h2")] == SECTIONS
    assert made.to_wire()["events"] == {"counted": 0, "byTopic": {}}
    assert "no event" in text(root)
    assert not every(root, "svg")


def test_the_same_log_gives_the_same_page(tmp_path):
    address = golden("harbour", tmp_path)
    assert reported(address)[1] == reported(address)[1]


def test_the_page_says_what_log_it_is_about(tmp_path):
    made, page = reported(golden("harbour", tmp_path))
    told = made.to_wire()
    header = text(every(parsed(page), "header")[0])
    for word in (
        told["log"]["name"],
        told["log"]["logId"],
        told["head"]["root"],
        "77 events",
        "2023-11-14 22:13:20 UTC",
    ):
        assert word in header


def test_more_names_than_are_listed_are_counted(tmp_path):
    crowd = [
        made_event(ActorRegistered, at=number, actor={"actorId": f"a{number}", "kind": "human"}, by="operator")
        for number in range(3)
    ]
    made, page = reported(written(str(tmp_path / "crowd.db"), crowd))
    assert made.to_wire()["events"]["byTopic"] == {"actor.registered": 3}
    assert table(parsed(page), "Events by topic")[-1] == {"topic": "all of them", "events": "3"}
