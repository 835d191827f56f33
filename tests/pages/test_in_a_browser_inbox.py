"""The inbox and the pages beside it in a real browser, on a realm with votes, a doubt and leases that are waited for.

It is collected where a browser is installed; see ``tests/plugins/browser.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import expect

from tests.pages.fleet_of import deployment, founded_fleet
from tests.pages.pages_of import PAGES_PATH, signing
from tests.server.served import PATH, Served

pytestmark = pytest.mark.slow

PEOPLE = ("ann", "bob", "dev")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with signing(founded_fleet(tmp_path_factory.mktemp("fleet")), *PEOPLE) as running:
        yield running


@pytest.fixture(scope="module")
def states(served: Served, browser: Any) -> dict[str, Any]:
    """Return the stored state of a signed-in browser for each person."""
    found = {}
    for name in PEOPLE:
        context = browser.new_context()
        tab = context.new_page()
        tab.goto(served.links[name])
        tab.get_by_role("button", name=f"Sign in as {name}").click()
        tab.wait_for_url("**/inbox")
        found[name] = context.storage_state()
        context.close()
    return found


@contextmanager
def opened(browser: Any, state: Any, served: Served, width: int = 1280, **more: Any) -> Iterator[Any]:
    """Yield a tab; what its console says, its errors and its requests elsewhere are failures."""
    context = browser.new_context(storage_state=state, viewport={"width": width, "height": 900}, **more)
    tab = context.new_page()
    said: list[str] = []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("request", lambda one: None if one.url.startswith(served.url) else said.append(one.url))
    yield tab
    assert said == []
    context.close()


def asked(served: Served, actor: str, service: str, **more: Any) -> str:
    """Submit a deployment that people review, and return its proposal."""
    body = {"type": "service.deploy", "input": deployment(service, 9), **more}
    submitted = served.submit(actor, body)
    assert submitted.status_code == 202, submitted.text
    name: str = submitted.json()["proposalId"]
    return name


def answer(served: Served, actor: str, proposal: str, **body: Any) -> None:
    with served.client(actor) as client:
        assert client.post(f"{PATH}/proposals/{proposal}:answer", json=body).status_code in (200, 202)


def pages_of(served: Served) -> list[str]:
    with served.client("ann") as client:
        proposals = client.get(f"{PATH}/proposals").json()["proposals"]
        worlds = client.get(f"{PATH}/worlds").json()["worlds"]
    doubt = next(one["proposalId"] for one in proposals if one["status"] == "executing")
    done = next(one["proposalId"] for one in proposals if one["status"] == "completed")
    parts = ["/inbox", "/proposals", f"/proposals/{doubt}", f"/proposals/{done}", "/leases"]
    parts += ["/worlds?depth=0&q=search&path=services.search", "/worlds?at=1"]
    parts.append(f"/worlds/HEAD?path=services.search.replicas&with={worlds[-2]['worldId']}")
    return [served.url + PAGES_PATH + part for part in parts]


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 420), ("dark", 420)])
def test_the_pages_of_a_full_realm_are_accessible(
    browser: Any, served: Served, states: Any, scheme: str, width: int
) -> None:
    with opened(browser, states["ann"], served, width, color_scheme=scheme, bypass_csp=True) as tab:
        for url in pages_of(served):
            tab.goto(url)
            tab.locator("details").evaluate_all("all => all.forEach((one) => { one.open = true; })")
            assert tab.evaluate("document.documentElement.scrollWidth") <= width, url
            found = Axe().run(tab).response
            assert [(url, one["id"], [node["html"] for node in one["nodes"]]) for one in found["violations"]] == []


def test_one_asks_and_sees_that_another_narrowed_it(browser: Any, served: Served, states: Any) -> None:
    scope = {"allowedPaths": ["services.*", "notices.*"]}
    proposal = asked(served, "dev", "billing", scopeProposal=scope)
    with opened(browser, states["dev"], served) as dev, opened(browser, states["ann"], served) as ann:
        dev.goto(f"{served.url}{PAGES_PATH}/inbox")
        assert dev.locator(f"#p-{proposal}").count() == 0  # the asker cannot answer his own question
        dev.goto(f"{served.url}{PAGES_PATH}/proposals/{proposal}")
        expect(dev.locator(".timeline .pending")).to_contain_text("waits for an answer of ann, bob")
        ann.goto(f"{served.url}{PAGES_PATH}/inbox")
        card = ann.locator(f"#p-{proposal}")
        assert "billing gets 9 replicas, 6 or more" in card.locator(".why").inner_text()
        assert "replicas: 9" in card.locator(".diff .added").inner_text()
        card.get_by_text("Approve with a narrower scope").click()
        card.get_by_role("checkbox", name="notices.*").uncheck()
        card.get_by_role("button", name="Approve only these paths").click()
        ann.wait_for_url("**/inbox?done=narrow*")
        dev.reload()
        expect(dev.locator("h1 .tag")).to_have_text("completed")
        assert dev.locator("#input ~ .chips").last.inner_text() == "services.*"


def test_an_entry_that_changes_keeps_what_was_typed_and_waits_until_it_was_read(
    browser: Any, served: Served, states: Any
) -> None:
    proposal = asked(served, "rollout-bot", "audit")
    with opened(browser, states["ann"], served) as tab:
        tab.goto(f"{served.url}{PAGES_PATH}/inbox")
        expect(tab.locator("#live")).to_have_text("Live.")
        card = tab.locator(f"#p-{proposal}")
        reason = card.get_by_label("Reason")
        reason.press_sequentially("as agreed on")
        before = card.get_attribute("data-shown")
        answer(served, "bob", proposal, choice="ask", reason="Who watches it at night?")
        expect(card.locator(".people .said")).to_contain_text("Who watches it at night?")
        expect(card.get_by_role("alert")).to_contain_text("What you typed is kept")
        assert card.get_attribute("data-shown") != before
        assert reason.input_value() == "as agreed on"
        assert reason.evaluate("one => one === document.activeElement")
        approve = card.get_by_role("button", name="Approve", exact=True)
        assert approve.is_disabled()
        card.get_by_role("button", name="I have read it").click()
        assert approve.is_enabled()
        tab.keyboard.press("Control+End")
        tab.keyboard.type(" Monday")
        approve.click()
        tab.wait_for_url("**/inbox?done=approve*")
    with served.client("ann") as client:
        found = client.get(f"{PATH}/proposals/{proposal}").json()
    assert found["status"] == "completed"
    assert [(one["choice"], one.get("reason")) for one in found["answers"]][-1] == ("approve", "as agreed on Monday")


def test_an_entry_appears_and_goes_without_a_reload(browser: Any, served: Served, states: Any) -> None:
    with opened(browser, states["ann"], served) as tab:
        tab.goto(f"{served.url}{PAGES_PATH}/inbox")
        expect(tab.locator("#live")).to_have_text("Live.")
        number = int(tab.locator("#number").inner_text())
        first = tab.locator("article.entry").first
        first.get_by_label("Reason").fill("typed before")
        proposal = asked(served, "rollout-bot", "reports")
        expect(tab.locator(f"#p-{proposal}.fresh")).to_be_visible()
        assert tab.locator("#number").inner_text() == str(number + 1)
        assert tab.locator(".bar [aria-current] .count").inner_text().split()[0] == str(number + 1)
        assert tab.locator(f".queue a[href='#p-{proposal}']").count() == 1
        assert first.get_by_label("Reason").input_value() == "typed before"
        answer(served, "bob", proposal, choice="reject", reason="not now")
        expect(tab.locator(f"#p-{proposal}")).to_have_count(0)
        assert tab.locator("#number").inner_text() == str(number)


def test_the_keyboard_moves_between_entries_and_answers(browser: Any, served: Served, states: Any) -> None:
    proposal = asked(served, "rollout-bot", "keys")
    focused = "document.activeElement.closest('article')?.id"
    with opened(browser, states["bob"], served) as tab:
        tab.goto(f"{served.url}{PAGES_PATH}/inbox")
        ids = [one.get_attribute("id") for one in tab.locator("article.entry").all()]
        assert ids[-1] == f"p-{proposal}"
        for place in (0, *range(1, len(ids)), len(ids) - 1):
            tab.keyboard.press("j")
            assert tab.evaluate(focused) == ids[place]
        tab.keyboard.press("k")
        assert tab.evaluate(focused) == ids[-2]
        tab.keyboard.press("j")
        tab.keyboard.press("a")
        tab.keyboard.type("jakarta")  # letters in a field are text
        assert tab.evaluate("document.activeElement.value") == "jakarta"
        tab.keyboard.press("Tab")
        tab.keyboard.press("Tab")
        assert tab.evaluate("document.activeElement.textContent") == "Reject"
        outline = tab.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"
        tab.keyboard.press("Enter")
        tab.wait_for_url("**/inbox?done=reject*")
    with served.client("ann") as client:
        assert client.get(f"{PATH}/proposals/{proposal}").json()["status"] == "rejected"
