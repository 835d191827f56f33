"""Sign-in at an issuer in a real browser, where the issuer is another site than the server.

It is collected where a browser is installed; see ``tests/plugins/browser.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import expect

from tests.pages.pages_of import PAGES_PATH
from tests.server.served import Served
from tests.sign_in.at_issuer import RunningIssuer, issuing, section, serving_with
from world.events.proposal_events import HumanAnswered

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def issuer() -> Iterator[RunningIssuer]:
    with issuing("localhost") as running:
        yield running


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, issuer: RunningIssuer) -> Iterator[Served]:
    with serving_with(tmp_path_factory.mktemp("browser"), section(issuer.url, "logout = true")) as running:
        assert "127.0.0.1" in running.url  # another site than `localhost`
        yield running


def accessible(tab: Any) -> None:
    """Check that axe finds nothing on a page."""
    found = Axe().run(tab).response
    assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in found["violations"]] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_person_signs_in_answers_and_signs_out(
    browser: Any, served: Served, issuer: RunningIssuer, scheme: str
) -> None:
    proposal = served.submit("bot").json()["proposalId"]
    complaints: list[str] = []
    context = browser.new_context(color_scheme=scheme, bypass_csp=False)
    tab = context.new_page()
    tab.on("console", lambda message: complaints.append(f"{message.location['url']}: {message.text}"))
    tab.goto(f"{served.url}{PAGES_PATH}/inbox")
    tab.get_by_role("link", name="Sign in").click()
    tab.get_by_role("link", name=issuer.url).click()
    tab.get_by_label("Name").fill("ann")
    tab.keyboard.press("Enter")
    tab.wait_for_url(f"**{PAGES_PATH}/inbox")  # a strict cookie, after an answer of another site
    expect(tab.get_by_role("heading", name="Inbox")).to_be_visible()
    card = tab.locator(f'form[action$="/inbox/{proposal}"]')
    card.get_by_role("button", name="Approve", exact=True).click()
    expect(tab.get_by_text("Approved").first).to_be_visible()
    with served.place.realm() as realm:
        answered = [event for _, event in realm.events() if isinstance(event, HumanAnswered)][-1]
    assert answered.verified is not None
    assert (answered.verified.method, answered.verified.subject) == ("oidc", "u-ann")
    tab.get_by_role("button", name="Sign out").click()
    tab.get_by_role("link", name="Sign out at the issuer, too").click()
    tab.wait_for_url(f"{issuer.url}/end-session**")
    tab.goto(f"{served.url}{PAGES_PATH}/inbox")
    expect(tab.get_by_role("link", name="Sign in")).to_be_visible()
    assert [one for one in complaints if one.startswith(served.url) and "401" not in one] == []
    context.close()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 420)])
def test_the_pages_of_sign_in_are_accessible(browser: Any, served: Served, scheme: str, width: int) -> None:
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900}, bypass_csp=True)
    tab = context.new_page()
    for path in ("/inbox", "/sign-in"):
        tab.goto(served.url + PAGES_PATH + path)
        accessible(tab)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
    tab.get_by_role("link", name="http").click()
    tab.get_by_label("Name").fill("stranger")
    tab.keyboard.press("Enter")
    expect(tab.get_by_role("heading", name="No access to this realm")).to_be_visible()
    accessible(tab)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    context.close()


def test_a_page_of_another_site_reaches_nothing(browser: Any, served: Served, issuer: RunningIssuer) -> None:
    """Forms, images, scripts and requests of another site, with a signed-in person in the browser, and frames."""
    context = browser.new_context()
    tab = context.new_page()
    tab.goto(f"{served.url}{PAGES_PATH}/sign-in")
    tab.get_by_role("link", name=issuer.url).click()
    tab.get_by_label("Name").fill("all")
    tab.keyboard.press("Enter")
    tab.wait_for_url(f"**{PAGES_PATH}/inbox")
    with served.place.realm() as realm:
        size = realm.log.head().size
    tab.goto(f"{issuer.url}/end-session")
    got = tab.evaluate(
        """async (url) => {
            const tried = [];
            for (const [path, options] of [
                ["/realms/main/inbox", {credentials: "include"}],
                ["/realms/main/sign-out", {method: "POST", credentials: "include", body: "token=x",
                    headers: {"Content-Type": "application/x-www-form-urlencoded"}}],
                ["/v1/realms/main/intents", {method: "POST", credentials: "include", body: "{}",
                    headers: {"Content-Type": "text/plain"}}],
                ["/healthz", {}],
            ]) {
                try { const answer = await fetch(url + path, options); tried.push(answer.status); }
                catch (error) { tried.push("blocked"); }
            }
            const frame = document.createElement("iframe");
            frame.src = url + "/realms/main/inbox";
            document.body.append(frame);
            await new Promise((done) => { frame.onload = done; frame.onerror = done; });
            try { tried.push(frame.contentDocument ? "readable" : "closed"); } catch (error) { tried.push("closed"); }
            return tried;
        }""",
        served.url,
    )
    assert got == ["blocked"] * 4 + ["closed"]
    tab.set_content(
        f'<form method="post" action="{served.url}{PAGES_PATH}/sign-out"><button>Win a prize</button></form>'
    )
    tab.get_by_role("button").click()
    expect(tab.get_by_text("FOREIGN_SITE").first).to_be_visible()
    with served.place.realm() as realm:
        assert realm.log.head().size == size
    tab.goto(f"{served.url}{PAGES_PATH}/inbox")
    expect(tab.get_by_role("heading", name="Inbox")).to_be_visible()  # still signed in
    context.close()
