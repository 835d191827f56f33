"""Every page at two widths in both schemes, on a realm whose agents chose hostile texts.

Each page of the table has an entry here: a page without one fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import expect

from tests.pages.pages_of import PAGES_PATH, judged, signing
from tests.pages.records_of import CONTROLS, NASTY, founded_records
from tests.server.served import PATH, Served
from worldprotocol.server.pages.page_table import PAGES

pytestmark = pytest.mark.slow

WORDS = NASTY + CONTROLS
DRAFT = '{"name": "draft", "rules": [{"id": "none", "verdict": "reject", "reason": "no"}]}'
STEERING = re.compile("[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def first(served: Served, path: str, *names: str) -> str:
    """Return a value of the first entry of a list of the API, by its names."""
    with served.client("all") as client:
        found: Any = client.get(PATH + path).json()
    for name in names:
        found = found[int(name)] if name.isdecimal() else found[name]
    return str(found)


def at(path: str) -> Callable[[Served], list[str]]:
    return lambda _: [path]


OPENED: dict[str, Callable[[Served], list[str]]] = {
    "home": at(""),
    "inbox": at("/inbox"),
    "proposals": at("/proposals"),
    "proposal": lambda served: [
        f"/proposals/{first(served, '/proposals', 'proposals', '0', 'proposalId')}",
        f"/proposals/{first(served, '/inbox', 'inbox', '0', 'proposalId')}",
        "/proposals/none",
    ],
    "worlds": at("/worlds"),
    "world": lambda served: ["/worlds/HEAD", "/worlds/HEAD?path=notices.search&with=HEAD"],
    "leases": at("/leases"),
    "policies": at("/policies"),
    "policy": lambda served: [f"/policies/{first(served, '/policies', 'policies', '0', 'policyHash')}"],
    "draft": at("/policies/backtest"),
    "runs": at("/runs"),
    "run": lambda served: [f"/runs/{first(served, '/runs', 'runs', number, 'runId')}" for number in ("0", "1")],
    "proof": lambda served: ["/proof", "/proof?of=3", "/proof?of=<script>alert(5)</script>"],
    "log": lambda served: ["/log", "/log?text=%3Cscript%3E", "/log?after=3", "/log?actor=%22%3E%3Cscript%3E"],
}
"""By page that is opened: its addresses below the realm."""

OTHERWISE = {
    "sign_in": "opened by the fixture of the signed-in browser, and looked at there",
    "begin_session": "a form of sign_in",
    "end_session": "a form of every page",
    "answer": "a form of the inbox",
    "backtest": "the form of draft, sent below",
    "receipt": "a file",
    "inbox_stream": "a stream of inbox",
    "settle": "a form of proposal",
    "cancel": "a form of proposal",
    "recheck_proposal": "a form of proposal",
    "revoke": "a form of leases",
    "what_if_proposal": "a form of proposal",
    "cancel_job": "a form of proposal and backtest",
    "log_stream": "a stream of log",
    "go_to_issuer": "sends the browser to an issuer: tests/sign_in",
    "come_back": "sends the browser on from an issuer: tests/sign_in",
}
"""Pages that are no document to open by an address, with the reason."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with signing(founded_records(tmp_path_factory.mktemp("hostile"), WORDS), "all") as running:
        yield running


def violations(tab: Any) -> list[Any]:
    found = Axe().run(tab).response
    assert {"document-title", "html-has-lang"} <= {one["id"] for one in found["passes"]}
    return [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in found["violations"]]


@pytest.fixture(scope="module")
def state(served: Served, browser: Any) -> Any:
    """Return the stored state of a signed-in browser; the page of sign-in is examined on the way."""
    context = browser.new_context(bypass_csp=True)
    tab = context.new_page()
    tab.goto(served.links["all"])
    assert violations(tab) == []
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/inbox")
    stored = context.storage_state()
    context.close()
    return stored


def test_every_page_of_the_table_has_an_entry() -> None:
    assert set(OPENED) | set(OTHERWISE) == set(PAGES)
    assert not set(OPENED) & set(OTHERWISE)


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 420), ("dark", 420)])
def test_every_page_is_accessible_and_fits(browser: Any, served: Served, state: Any, scheme: str, width: int) -> None:
    viewport = {"width": width, "height": 900}
    context = browser.new_context(storage_state=state, viewport=viewport, color_scheme=scheme, bypass_csp=True)
    tab = context.new_page()
    faults = []
    for name, addresses in OPENED.items():
        for path in addresses(served):
            tab.goto(served.url + PAGES_PATH + path)
            if name == "proof" and path.endswith("3"):
                tab.wait_for_selector("#result[data-state=proven]")
            faults += [(path, *one) for one in violations(tab)]
            shown = tab.evaluate("document.documentElement.scrollWidth")
            faults += [(path, f"{shown} px wide")] if shown > width else []
    tab.goto(f"{served.url}{PAGES_PATH}/policies/backtest")
    tab.get_by_label("Policy file").fill(DRAFT)
    tab.get_by_label("Format").select_option("yaml")
    tab.get_by_role("button", name="Judge again").click()
    judged(tab)
    faults += [("backtest", *one) for one in violations(tab)]
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    context.close()
    assert faults == []


def met(dialog: Any, said: list[str]) -> None:
    """Note a dialog, and close it."""
    said.append(dialog.message)
    dialog.dismiss()


def test_no_text_of_others_runs_steers_or_loads_anything(browser: Any, served: Served, state: Any) -> None:
    said: list[str] = []
    asked: list[str] = []
    context = browser.new_context(storage_state=state)
    context.add_init_script(
        "addEventListener('securitypolicyviolation', (one) => console.error(`refused ${one.violatedDirective}`));"
    )
    tab = context.new_page()
    tab.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("dialog", lambda dialog: met(dialog, said))
    tab.on("request", lambda request: asked.append(request.url))
    seen = 0
    for addresses in OPENED.values():
        for path in addresses(served):
            answer = tab.goto(served.url + PAGES_PATH + path)
            assert "script-src 'self'" in answer.headers["content-security-policy"]
            assert "unsafe" not in answer.headers["content-security-policy"]
            assert tab.locator("img, iframe, object, embed, base, [onerror], [onmouseover], [style]").count() == 0, path
            foreign = "script:not([src^='/realms/-/']), link:not([href^='/realms/-/']), style"
            assert tab.locator(foreign).count() == 0, path
            text = tab.locator("body").inner_text()
            assert STEERING.search(text) is None, (path, STEERING.findall(text)[:3])
            seen += "<script>alert(1)</script>" in text
    context.close()
    assert [one for one in said if "status of 404" not in one] == []
    assert all(url.startswith(served.url) for url in asked)
    assert seen >= 5  # the texts are shown, and as texts


def test_the_tail_of_the_log_follows_its_filter(browser: Any, served: Served, state: Any) -> None:
    context = browser.new_context(storage_state=state)
    tab = context.new_page()
    tab.goto(f"{served.url}{PAGES_PATH}/log?types=proposal.submitted&actor=bot&text=tail-of")
    expect(tab.locator("#live")).to_have_text("Live.")
    assert tab.locator("#events tr").count() == 0
    for actor, image in (("ann", "tail-of-ann"), ("bot", "other"), ("bot", f"tail-of-bot {WORDS}")):
        body = {"service": "search", "image": image, "replicas": 1}
        assert served.submit(actor, {"type": "service.deploy", "input": body}).status_code == 200
    tab.wait_for_selector("#events tr.fresh")
    assert tab.locator("#events tr").count() == 1
    row = tab.locator("#events tr.fresh")
    assert "proposal.submitted" in row.inner_text()
    assert "tail-of-bot" in row.locator("pre").text_content()
    assert tab.locator("#events img, #events script").count() == 0
    row.locator("td.num a").click()
    tab.wait_for_url("**/log?after=*")
    assert "proposal.submitted" in tab.locator("tr:target").inner_text()
    context.close()
