"""Sign-in of browsers: one-time links, sessions, forms of other sites, sign-out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.pages.pages_of import PAGES_PATH, form_of, signed_in, signing
from tests.server.served import ORDER, PATH, Served, founded
from world.events.access_events import TokenCreated, TokenRevoked
from world.events.proposal_events import HumanAnswered
from world.events.verification import Verification
from worldprotocol.server.pages.browser_sessions import LINK_S, Links

pytestmark = pytest.mark.slow


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with signing(founded(tmp_path), "ann", "bob", "bot", "nil") as running:
        yield running


def test_a_link_signs_in_once_and_only_when_the_form_is_sent(served: Served) -> None:
    url = served.links["ann"]
    with served.client() as one, served.client() as other:
        for _ in range(2):  # programs that look at links use up none
            page = one.get(url)
            assert page.status_code == 200
        assert "ann" in page.text
        begun = one.post(url.partition("?")[0], data={"code": url.partition("code=")[2]})
        assert begun.status_code == 303
        assert other.post(url.partition("?")[0], data={"code": url.partition("code=")[2]}).status_code == 401
        assert other.get(url).status_code == 401
        assert other.get(f"{PAGES_PATH}/inbox").status_code == 401
        assert one.get(f"{PAGES_PATH}/inbox").status_code == 200


def test_the_address_of_the_server_says_how_to_sign_in_and_names_no_realm(served: Served) -> None:
    with served.client() as client:
        start = client.get("/")
    assert (start.status_code, start.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "worldctl serve --sign-in ACTOR" in start.text
    assert "main/" not in start.text
    assert "/realms/main" not in start.text
    assert "default-src 'none'" in start.headers["content-security-policy"]


def test_the_cookie_is_unreadable_to_scripts_and_never_sent_by_other_sites(served: Served) -> None:
    url = served.links["ann"]
    with served.client() as client:
        begun = client.post(url.partition("?")[0], data={"code": url.partition("code=")[2]})
    parts = {part.strip().partition("=")[0].lower(): part for part in begun.headers["set-cookie"].split(";")}
    assert {"httponly", "path", "max-age", "samesite"} <= set(parts)
    assert parts["samesite"].strip().lower() == "samesite=strict"
    assert parts["path"].strip().lower() == "path=/realms/main"
    assert "secure" not in parts  # this server has no TLS, and browsers would not store it


def test_a_link_expires() -> None:
    now = [0.0]
    links = Links(lambda: now[0])
    code = links.create("main", "ann")
    now[0] = LINK_S - 1
    assert links.actor_of("main", code) == "ann"
    with pytest.raises(Exception, match="used already"):
        links.use("garden", code)
    now[0] = LINK_S
    with pytest.raises(Exception, match="expired"):
        links.use("main", code)


def test_a_form_without_the_token_of_its_session_or_from_another_site_changes_nothing(served: Served) -> None:
    proposal = served.submit("bot").json()["proposalId"]
    with signed_in(served, "ann") as ann, signed_in(served, "bob") as bob:
        fields = form_of(ann.get(f"{PAGES_PATH}/inbox").text, proposal) | {"choice": "approve"}
        other = form_of(bob.get(f"{PAGES_PATH}/inbox").text, proposal)["token"]
        path = f"{PAGES_PATH}/inbox/{proposal}"
        assert ann.post(path, data=fields | {"token": other}).status_code == 403
        assert ann.post(path, data={name: fields[name] for name in ("shown", "choice")}).status_code == 403
        for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}):
            assert ann.post(path, data=fields, headers=headers).status_code == 403
            assert ann.post(f"{PAGES_PATH}/sign-out", data=fields, headers=headers).status_code == 403
        with served.place.realm() as realm:
            assert realm.proposal(proposal).status == "evaluating"
        other_order = ORDER | {
            "input": {"item": "milk", "number": "nine"}
        }  # a new head, and the same effect of approval
        assert served.submit("all", other_order).status_code == 200
        assert ann.post(path, data=fields).status_code == 303
        ann.cookies.clear()
        assert ann.post(path, data=fields).status_code == 401


def test_writes_record_the_link_and_sign_out_revokes_the_session(served: Served) -> None:
    proposal = served.submit("bot").json()["proposalId"]
    with signed_in(served, "ann") as ann:
        page = ann.get(f"{PAGES_PATH}/inbox").text
        fields = form_of(page, proposal)
        assert ann.post(f"{PAGES_PATH}/inbox/{proposal}", data=fields | {"choice": "approve"}).status_code == 303
        kept = httpx.Cookies(ann.cookies)
        assert ann.post(f"{PAGES_PATH}/sign-out", data=fields).status_code == 200
        ann.cookies = kept
        assert ann.get(f"{PAGES_PATH}/inbox").status_code == 401
    with served.place.realm() as realm:
        events = [event for _, event in realm.events()]
    made = [event for event in events if isinstance(event, TokenCreated)][-1]
    (answered,) = (event for event in events if isinstance(event, HumanAnswered))
    assert answered.verified == Verification(method="link", actor_id="ann", token_id=made.token_id)
    assert [event.token_id for event in events if isinstance(event, TokenRevoked)] == [made.token_id]
    kept_text = next(iter(kept.jar)).value or ""
    assert kept_text.startswith("wp1_")
    assert kept_text.rpartition("_")[2] not in (served.place.folder / "world.db").read_bytes().decode("latin-1")


def test_a_session_has_the_rights_of_its_actor_and_the_api_takes_no_cookie(served: Served) -> None:
    with signed_in(served, "nil") as nil, signed_in(served, "ann") as ann:
        assert nil.get(f"{PAGES_PATH}/inbox").status_code == 403
        home = nil.get(PAGES_PATH)
        assert home.status_code == 403
        assert "worldctl rights grant" in home.text
        cookie = "; ".join(f"{one.name}={one.value}" for one in ann.cookies.jar)
        assert ann.get(f"{PATH}/inbox", headers={"Cookie": cookie}).status_code == 401


@pytest.mark.parametrize(
    "path", ["/inbox", "/inbox/stream", "/proposals", "/worlds", "/worlds/HEAD", "/leases", "/log", "/log/stream"]
)
def test_no_page_is_shown_without_a_session(served: Served, path: str) -> None:
    with served.client() as client:
        answer = client.get(PAGES_PATH + path)
        assert answer.status_code == 401
        assert client.get(f"/realms/none{path}").status_code == 401
    assert re.search(r"script-src 'self'", answer.headers["content-security-policy"])
    assert "unsafe" not in answer.headers["content-security-policy"]


def test_an_order_of_the_asker_cannot_be_answered_by_the_asker(served: Served) -> None:
    proposal = served.submit("bot", ORDER).json()["proposalId"]
    with signed_in(served, "bot") as bot:
        page = bot.get(f"{PAGES_PATH}/inbox")
        assert proposal not in page.text
        token = re.search(r'name="token" value="([0-9a-f]+)"', page.text)
        assert token is not None
        fields = {"token": token[1], "shown": "0" * 64, "choice": "approve"}
        assert bot.post(f"{PAGES_PATH}/inbox/{proposal}", data=fields).status_code == 409
    with served.place.realm() as realm:
        assert realm.proposal(proposal).status == "evaluating"
