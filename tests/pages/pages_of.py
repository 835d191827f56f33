"""Signs browsers in to a server, and reads the forms of its pages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from xml.etree.ElementTree import Element

import html5lib
import httpx

from tests.server.served import Place, Served, serving

PAGES_PATH = "/realms/main"


@contextmanager
def signing(place: Place, *actors: str) -> Iterator[Served]:
    """Run a server that prints a link for each actor."""
    arguments = [part for actor in actors for part in ("--sign-in", actor)]
    with serving(place, *arguments) as running:
        yield running


@contextmanager
def signed_in(served: Served, actor: str) -> Iterator[httpx.Client]:
    """Yield a client with a session of an actor, whose link is used up."""
    with served.client() as client:
        path, _, code = served.links[actor].partition("?code=")
        assert client.post(path, data={"code": code}).status_code == 303
        yield client


def parsed(page: str) -> Element:
    """Return a page as browsers read it; a mistake in its HTML is an error."""
    root = html5lib.HTMLParser(html5lib.getTreeBuilder("etree"), strict=True, namespaceHTMLElements=False).parse(page)
    assert isinstance(root, Element)
    return root


def form_of(page: str, proposal_id: str) -> dict[str, str]:
    """Return the fields of the form that answers a proposal."""
    forms = [one for one in parsed(page).iter("form") if one.get("action", "").endswith(f"/inbox/{proposal_id}")]
    assert len(forms) == 1, page
    return {one.get("name", ""): one.get("value", "") for one in forms[0].iter("input") if one.get("type") == "hidden"}


def judged(tab: Any) -> None:
    """Look again until the backtest that a tab shows has ended."""
    while True:
        tab.wait_for_selector("#flips, .tag.bad, a:text('Look again')")
        if not tab.locator("a:text('Look again')").count():
            break
        tab.get_by_role("link", name="Look again").click()
    tab.wait_for_selector("#flips")
