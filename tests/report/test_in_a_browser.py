"""The page in a real browser: it asks for nothing, runs nothing, is shown in light and dark, printed and read aloud.

It is collected where a browser is installed; see ``tests/plugins/browser.py``.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]

from tests.report.pages import golden, hostile, reported
from tests.report.test_page import NASTY, SECTIONS

pytestmark = pytest.mark.slow

CONTRAST = {"runOnly": {"type": "rule", "values": ["color-contrast"]}}
"""What differs between light and dark."""


class Served:
    """A server on this machine that hands out one page, and notes all it is asked for."""

    def __init__(self, page: str) -> None:
        asked: list[str] = []
        self.asked = asked

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.end_headers()
                self.wfile.write(page.encode())

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/report.html"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> Served:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with something in every part."""
    folder = tmp_path_factory.mktemp("file")
    (folder / "report.html").write_text(reported(golden("garden-leased", folder))[1], encoding="utf-8")
    return folder / "report.html"


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page in which all hostile words stand in every name."""
    return reported(hostile(tmp_path_factory.mktemp("evil"), "".join(NASTY[:-2])))[1]


@pytest.fixture
def tab(browser: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1100, "height": 800})
    yield context.new_page()
    context.close()


def rgb(told: str) -> tuple[int, ...]:
    return tuple(int(float(part)) for part in re.findall(r"[\d.]+", told)[:3])


def test_the_page_asks_for_nothing_and_complains_of_nothing(tab, evil):
    said, asked = [], []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("dialog", lambda dialog: said.append(dialog.message))
    tab.on("request", lambda request: asked.append(request.url))
    with Served(evil) as served:
        tab.goto(served.url)
        tab.mouse.move(300, 300)
    assert said == []
    assert asked == [served.url]
    assert set(served.asked) <= {"/report.html"}
    assert tab.locator("script, img, iframe, link, [onerror], [onmouseover]").count() == 0
    assert tab.locator("h2").all_text_contents() == SECTIONS


def test_what_slipped_into_the_page_would_neither_run_nor_fetch(tab, file):
    page = file.read_text(encoding="utf-8")
    slipped = '<p id="in">in</p><script>document.title="ran"</script><style>#in{color:red}</style><img src="/leak.png">'
    with Served(page.replace("</main>", f'{slipped}<link rel="stylesheet" href="/leak.css"></main>')) as served:
        tab.goto(served.url)
        assert tab.title() != "ran"
        assert tab.evaluate("getComputedStyle(document.getElementById('in')).color") != "rgb(255, 0, 0)"
    assert served.asked == ["/report.html"]


def test_hostile_words_are_shown_as_they_are(tab, evil):
    tab.set_content(evil)
    shown = "one => one.textContent.includes('<script>alert(1)</script>')"
    assert tab.evaluate(f"[...document.querySelectorAll('tbody bdi')].filter({shown}).length") > 20
    assert not tab.evaluate("Array.from(document.querySelectorAll('bdi')).some(one => one.children.length > 0)")


@pytest.mark.parametrize(("scheme", "width", "rules"), [("light", 1100, None), ("dark", 360, CONTRAST)])
def test_the_page_is_accessible_in_light_and_dark(browser, file, scheme, width, rules):
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800}, bypass_csp=True)
    tab = context.new_page()
    tab.goto(file.as_uri())
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    found = Axe().run(tab, options=rules).response
    paper, ink = (rgb(tab.evaluate(f"getComputedStyle(document.body).{one}")) for one in ("backgroundColor", "color"))
    context.close()
    assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in found["violations"]] == []
    known = {"color-contrast"} if rules else {"color-contrast", "document-title", "html-has-lang", "heading-order"}
    assert known <= {one["id"] for one in found["passes"]}
    assert (sum(paper) > sum(ink)) is (scheme == "light")


def test_a_screen_reader_finds_headings_tables_and_pictures(tab, file):
    tab.goto(file.as_uri())
    assert [tab.get_by_role("heading", name=name, exact=True, level=2).count() for name in SECTIONS] == [1] * 9
    assert tab.get_by_role("table", name="Decisions by actor").count() == 1
    assert tab.get_by_role("navigation", name="Contents").get_by_role("link").count() == len(SECTIONS)
    assert tab.get_by_role("img").first.is_visible()
    assert "Lineage, part 1 of 1" in tab.locator("main").aria_snapshot()
    tab.get_by_role("link", name="Proposals", exact=True).click()
    assert tab.locator("#proposals").evaluate("one => one.getBoundingClientRect().top") < 400


def test_the_lines_of_the_lineage_are_drawn_where_the_worlds_are(tab, file):
    tab.goto(file.as_uri())
    drawn = tab.locator("section:has(#lineage) svg")
    places = drawn.evaluate(
        "svg => [...svg.querySelectorAll('circle, .cross')].map(one => one.getBoundingClientRect()).map("
        "box => [(box.left + box.right) / 2, (box.top + box.bottom) / 2])"
    )
    assert len(places) == 15
    assert len({round(y) for _, y in places}) == len(places)
    assert drawn.evaluate("svg => getComputedStyle(svg.querySelector('line')).stroke") != "none"
    assert drawn.evaluate(
        "svg => [...svg.querySelectorAll('text')].every(one => one.getBBox().x + one.getBBox().width <= "
        "svg.viewBox.baseVal.width)"
    )


def test_the_page_is_printed_whole_on_white(tab, file):
    tab.emulate_media(media="print", color_scheme="dark")
    tab.goto(file.as_uri())
    assert rgb(tab.evaluate("getComputedStyle(document.body).backgroundColor")) == (255, 255, 255)
    assert not tab.locator("nav").is_visible()
    assert tab.evaluate(
        "[...document.querySelectorAll('.wide')].every(one => getComputedStyle(one).overflowX == 'visible')"
    )
    tab.set_viewport_size({"width": 688, "height": 1000})  # A4 less the margins
    assert tab.evaluate("[...document.querySelectorAll('table')].every(one => one.scrollWidth <= 688)")
    printed = tab.pdf(format="A4")
    assert printed.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) >= 2
