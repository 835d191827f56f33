"""The pages in a real browser: two people, keyboard alone, light, dark and print, hostile texts, live events.

It is collected where a browser is installed; see ``tests/plugins/browser.py``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import expect

from tests.pages.pages_of import PAGES_PATH, signing
from tests.report.test_page import NASTY
from tests.server.served import PATH, Served, founded
from world.events.proposal_events import HumanAnswered

pytestmark = pytest.mark.slow

EVIL = "".join(NASTY[:-2])
PEOPLE = ("ann", "bob", "all")
PAGES = ("/inbox", "/proposals", "/worlds", "/worlds/HEAD", "/leases", "/log")


def order(item: str, number: str = "one") -> dict[str, Any]:
    return {
        "type": "order.place",
        "input": {"item": item, "number": number},
        "scopeProposal": {"allowedPaths": ["orders", "orders.*"]},
    }


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Return a server with orders that completed and orders that wait, one of them hostile."""
    with signing(founded(tmp_path_factory.mktemp("pages"), server="burst = 10000"), *PEOPLE) as running:
        assert running.submit("all", order("tea")).status_code == 200
        for item, number in (("coffee", "two"), (EVIL, "three"), ("cake", "four"), ("bread", "five")):
            assert running.submit("bot", order(item, number)).status_code == 202
        with running.client("all") as client:
            leased = client.post(
                f"{PATH}/leases", json={"resources": ["FILE:/docs/plan"], "sessionId": "s-1", "ttlMs": 600_000}
            )
            assert leased.status_code == 200
        yield running


@pytest.fixture(scope="module")
def states(served: Served, browser: Any) -> dict[str, Any]:
    """Return the stored state of a signed-in browser for each person."""
    found = {}
    for name in PEOPLE:
        context = browser.new_context()
        tab = context.new_page()
        tab.goto(served.links[name])
        expect(tab.get_by_role("button").first).to_be_focused()
        tab.keyboard.press("Enter")
        tab.wait_for_url("**/inbox")
        found[name] = context.storage_state()
        context.close()
    return found


@contextmanager
def opened(browser: Any, state: Any, width: int = 1280, **more: Any) -> Iterator[Any]:
    context = browser.new_context(storage_state=state, viewport={"width": width, "height": 900}, **more)
    yield context.new_page()
    context.close()


def waiting(served: Served, number: str) -> str:
    """Return the id of the waiting proposal of an order."""
    with served.client("ann") as client:
        entries = client.get(f"{PATH}/inbox").json()["inbox"]
    return next(one["proposalId"] for one in entries if one["wants"]["input"]["number"] == number)


def every_page(served: Served) -> list[str]:
    """Return the paths of all pages, with those of one proposal and one path of a world."""
    evil = waiting(served, "three")
    return [PAGES_PATH + path for path in (*PAGES, f"/proposals/{evil}", "/worlds/HEAD?path=orders.one&with=HEAD")]


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 420), ("dark", 420)])
def test_every_page_is_accessible(browser: Any, served: Served, states: Any, scheme: str, width: int) -> None:
    with opened(browser, states["ann"], width, color_scheme=scheme, bypass_csp=True) as tab:
        for path in every_page(served):
            tab.goto(served.url + path)
            assert tab.evaluate("document.documentElement.scrollWidth") <= width, path
            found = Axe().run(tab).response
            assert [(path, one["id"], [node["html"] for node in one["nodes"]]) for one in found["violations"]] == []
            assert {"color-contrast", "document-title", "html-has-lang"} <= {one["id"] for one in found["passes"]}
            colours = tab.evaluate("getComputedStyle(document.body).backgroundColor")
            paper = sum(int(part) for part in re.findall(r"\d+", colours)[:3])
            assert (paper > 380) is (scheme == "light")


def test_no_text_of_an_agent_runs_and_nothing_is_loaded_from_elsewhere(
    browser: Any, served: Served, states: Any
) -> None:
    said: list[str] = []
    asked: list[str] = []
    with opened(browser, states["ann"]) as tab:
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on("dialog", lambda dialog: said.append(dialog.message))
        tab.on("request", lambda request: asked.append(request.url))
        for path in every_page(served):
            tab.goto(served.url + path)
            assert tab.locator("img, iframe, object, [onerror], [onmouseover], [style]").count() == 0, path
            assert tab.locator("script:not([src^='/realms/-/'])").count() == 0, path
        tab.goto(f"{served.url}{PAGES_PATH}/proposals/{waiting(served, 'three')}")
        assert "<script>alert(1)</script>" in tab.locator("main").inner_text()
    assert said == []
    assert all(url.startswith(served.url) for url in asked)


def test_one_asks_and_another_narrows_with_the_keyboard_alone(browser: Any, served: Served, states: Any) -> None:
    proposal = waiting(served, "two")
    with opened(browser, states["ann"]) as tab:
        tab.goto(f"{served.url}{PAGES_PATH}/inbox")
        form = tab.locator(f"form[action$='{proposal}']")
        for _ in range(400):
            tab.keyboard.press("Tab")
            if form.locator("summary").first.evaluate("one => one === document.activeElement"):
                break
        tab.keyboard.press("Enter")
        boxes = form.locator("input[type=checkbox]")
        assert [box.get_attribute("value") for box in boxes.all()] == ["orders", "orders.*", "orders.two"]
        assert [box.is_checked() for box in boxes.all()] == [True, True, False]
        for box in boxes.all():  # untick what is proposed, and tick what the change writes
            tab.keyboard.press("Tab")
            assert box.evaluate("one => one === document.activeElement")
            tab.keyboard.press("Space")
        tab.keyboard.press("Tab")
        assert form.locator("textarea[name=paths]").evaluate("one => one === document.activeElement")
        tab.keyboard.press("Tab")
        tab.keyboard.press("Enter")
        tab.wait_for_url("**/inbox?done=narrow*")
        assert "Approved with a narrower scope" in tab.get_by_role("status").inner_text()
    with served.place.realm() as realm:
        found = realm.proposal(proposal)
        (answer,) = (
            event for _, event in realm.events() if isinstance(event, HumanAnswered) if event.proposal_id == proposal
        )
    assert found.decision is not None
    assert found.decision.approved_scope is not None
    assert found.decision.approved_scope.allowed_paths == ("orders.two",)
    assert found.status == "completed"
    assert answer.verified is not None
    assert (answer.answer.by.actor_id, answer.verified.method, answer.verified.actor_id) == ("ann", "link", "ann")


def test_an_answer_to_what_is_not_shown_any_more_is_refused(browser: Any, served: Served, states: Any) -> None:
    proposal = waiting(served, "four")
    with opened(browser, states["bob"], java_script_enabled=False) as bob:  # with scripts, the page changes at once
        bob.goto(f"{served.url}{PAGES_PATH}/inbox")
        assert served.submit("all", order("milk", "four")).status_code == 200  # an approval would now replace it
        bob.locator(f"form[action$='{proposal}']").get_by_role("button", name="Approve", exact=True).click()
        assert "read the inbox again" in bob.get_by_role("alert").inner_text()
        with served.place.realm() as realm:
            assert realm.proposal(proposal).status == "evaluating"
        card = bob.locator("article", has=bob.locator(f"form[action$='{proposal}']"))
        assert "milk" in card.locator(".diff .gone").inner_text()
        assert "cake" in card.locator(".diff .new").inner_text()
        card.get_by_label("Reason").fill("milk stays")
        card.get_by_role("button", name="Reject").click()
        bob.wait_for_url("**/inbox?done=reject*")
    with served.place.realm() as realm:
        assert realm.proposal(proposal).status == "rejected"


def test_pages_say_the_same_as_the_api(browser: Any, served: Served, states: Any) -> None:
    with served.client("ann") as client, opened(browser, states["ann"], java_script_enabled=False) as tab:
        inbox = client.get(f"{PATH}/inbox").json()["inbox"]
        worlds = client.get(f"{PATH}/worlds").json()["worlds"]
        proposals = client.get(f"{PATH}/proposals").json()["proposals"]
        leases = client.get(f"{PATH}/leases").json()["leases"]

        def shown(path: str, selector: str) -> list[str]:
            tab.goto(served.url + PAGES_PATH + path)
            return [text.strip() for text in tab.locator(selector).all_inner_texts()]

        assert shown("/inbox", "h1 .count") == [str(len(inbox))]
        assert shown("/inbox", ".diff tbody th") == [
            one["path"] for entry in inbox for one in entry["preview"]["changes"]
        ]
        assert shown("/worlds", "tbody td:nth-child(4)") == [f"{one['height']:,}" for one in worlds]
        assert shown("/worlds", "tbody td:nth-child(5)") == [f"{one['position']:,}" for one in worlds]
        assert shown("/proposals", "tbody td:nth-child(1)") == [f"{one['position']:,}" for one in proposals]
        assert shown("/proposals", "tbody td:nth-child(4)") == [one["status"] for one in proposals]
        assert shown("/leases", "#held .count") == [str(len(leases))]
        size = client.get(PATH).json()["position"]
        assert shown("/log", "#size") == [f"{size:,}"]
        events = client.get(f"{PATH}/log", params={"after": max(0, size - 100)}).json()["events"]
        assert shown("/log", "tbody th") == [one["topic"] for one in reversed(events)]


def test_the_log_shows_events_as_they_are_committed(browser: Any, served: Served, states: Any) -> None:
    with opened(browser, states["ann"]) as tab:
        tab.goto(f"{served.url}{PAGES_PATH}/log")
        expect(tab.locator("#live")).to_have_text("Live.")
        assert served.submit("all", order(EVIL, "six")).status_code == 200
        with served.place.realm() as realm:
            size = realm.log.head().size
        expect(tab.locator("#size")).to_have_text(f"{size:,}")
        positions = [int(text.replace(",", "")) for text in tab.locator("tbody td:first-child").all_inner_texts()]
        assert positions == list(range(size, size - len(positions), -1))
        tab.locator("tr.fresh summary").first.click()
        state = tab.locator("tr.fresh pre").first.inner_text()
        assert isinstance(json.loads(state), dict)
        assert tab.locator("#events img, #events script").count() == 0


def test_the_inbox_is_printed_on_white_without_forms(browser: Any, served: Served, states: Any) -> None:
    with opened(browser, states["ann"]) as tab:
        tab.emulate_media(media="print", color_scheme="dark")
        tab.goto(f"{served.url}{PAGES_PATH}/inbox")
        assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert not tab.locator("form.answer").first.is_visible()
        assert tab.pdf(format="A4").startswith(b"%PDF-")
