"""Sign-in of browsers at a real OIDC issuer, step by step, and every attack on it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, quote, urlencode, urlsplit

import httpx
import pytest

from tests.pages.pages_of import PAGES_PATH, form_of
from tests.server.served import NO_TLS, PATH, Served, serving
from tests.sign_in.at_issuer import (
    SIGN_IN,
    RunningIssuer,
    answered,
    begun,
    heading,
    issuing,
    section,
    serving_with,
    signed_in,
    text_of,
)
from tests.sign_in.issuer import CLIENT, SECRET
from world.audit.verify import verify
from world.events.access_events import TokenCreated, TokenRevoked
from world.events.proposal_events import HumanAnswered
from world.events.verification import BrowserSession, Verification

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def issuer() -> Iterator[RunningIssuer]:
    with issuing() as running:
        yield running


@pytest.fixture(scope="module")
def other() -> Iterator[RunningIssuer]:
    with issuing() as running:
        yield running


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, issuer: RunningIssuer, other: RunningIssuer) -> Iterator[Served]:
    sections = [section(issuer.url, "logout = true"), section(other.url, name="partner")]
    with serving_with(tmp_path_factory.mktemp("issuers"), *sections) as running:
        yield running


@pytest.fixture(autouse=True)
def good(issuer: RunningIssuer, other: RunningIssuer) -> None:
    """Let both issuers behave well at the start of each test."""
    issuer.behave()
    other.behave()


def tokens(served: Served) -> list[TokenCreated]:
    with served.place.realm() as realm:
        return [event for _, event in realm.events() if isinstance(event, TokenCreated)]


def refused(served: Served, browser: httpx.Client, answer: httpx.Response, status: int = 401) -> str:
    """Check that an answer signed nobody in; return its page."""
    assert answer.status_code == status, answer.text
    assert "world_protocol_" not in (answer.headers.get("set-cookie") or "").replace("world_protocol_sign_in", "")
    assert browser.get(f"{PAGES_PATH}/inbox").status_code == 401
    return answer.text


def test_a_person_signs_in_at_an_issuer_and_every_write_records_it(served: Served, issuer: RunningIssuer) -> None:
    proposal = served.submit("bot").json()["proposalId"]
    with served.client() as browser:
        page = browser.get(f"{PAGES_PATH}/sign-in")
        assert issuer.url in page.text
        assert f'href="{SIGN_IN}?next=' in page.text
        answer = signed_in(browser, "ann", f"{SIGN_IN}?next={quote(f'{PAGES_PATH}/inbox?done=ask')}")
        assert answer.status_code == 200
        assert heading(answer.text) == "Signed in"
        assert f'content="0;url={PAGES_PATH}/inbox?done=ask"' in answer.text
        inbox = browser.get(f"{PAGES_PATH}/inbox").text
        fields = form_of(inbox, proposal) | {"choice": "approve"}
        assert browser.post(f"{PAGES_PATH}/inbox/{proposal}", data=fields).status_code == 303
        out = browser.post(f"{PAGES_PATH}/sign-out", data=fields)
        assert f"{issuer.url}/end-session?client_id={CLIENT}" in out.text
        assert browser.get(f"{PAGES_PATH}/inbox").status_code == 401
    made = tokens(served)[-1]
    assert made.session == BrowserSession(method="oidc", issuer=issuer.url, subject="u-ann")
    with served.place.realm() as realm:
        events = [event for _, event in realm.events()]
        assert verify(realm.log).ok
    written = [event.verified for event in events if isinstance(event, HumanAnswered)][-1]
    way = Verification(method="oidc", actor_id="ann", token_id=made.token_id, issuer=issuer.url, subject="u-ann")
    assert written == way
    assert [event.token_id for event in events if isinstance(event, TokenRevoked)] == [made.token_id]


def test_the_request_has_state_nonce_and_an_s256_challenge_and_an_exact_redirect_uri(served: Served) -> None:
    with served.client() as one, served.client() as two:
        asked = [parse_qs(urlsplit(begun(browser)).query) for browser in (one, two)]
    for found in asked:
        assert found["response_type"] == ["code"]
        assert found["client_id"] == [CLIENT]
        assert found["redirect_uri"] == [f"{served.url}{SIGN_IN}/back"]
        assert found["code_challenge_method"] == ["S256"]
        assert found["scope"] == ["openid"]
        assert all(len(found[name][0]) >= 20 for name in ("state", "nonce", "code_challenge"))
    assert all(asked[0][name] != asked[1][name] for name in ("state", "nonce", "code_challenge"))


def test_the_cookies_are_for_this_realm_and_unreadable_to_scripts(served: Served) -> None:
    with served.client() as browser:
        first = browser.get(SIGN_IN).headers["set-cookie"].lower()
        last = signed_in(browser, "ann").headers.get_list("set-cookie")
    session = next(one for one in last if "wp1_" in one).lower()
    assert {"httponly", "samesite=strict", "path=/realms/main", "max-age=43200"} <= set(session.split("; "))
    assert {"httponly", "samesite=lax", "path=/realms", "max-age=600"} <= set(first.split("; "))


def test_neither_the_secret_nor_a_code_is_in_the_log_or_the_output(served: Served, issuer: RunningIssuer) -> None:
    issuer.seen()
    with served.client() as browser:
        assert signed_in(browser, "ann").status_code == 200
    asked = next(one for one in issuer.seen() if one["path"] == "token")
    log = (served.place.folder / "world.db").read_bytes() + (served.place.folder / "server.log").read_bytes()
    for hidden in (SECRET, asked["code"], asked["code_verifier"]):
        assert hidden.encode() not in log


@pytest.mark.parametrize(
    ("user", "words"),
    [("stranger", ["not an actor of", "worldctl actor add stranger"]), ("nil", ["has no right in"])],
)
def test_an_actor_without_access_is_shown_what_to_request(served: Served, user: str, words: list[str]) -> None:
    before = len(tokens(served))
    with served.client() as browser:
        shown = text_of(refused(served, browser, signed_in(browser, user), 403))
    assert all(one in shown for one in (*words, f"worldctl rights grant {user}", f"u-{user}"))
    assert len(tokens(served)) == before


def test_a_code_and_a_state_are_used_once(served: Served) -> None:
    with served.client() as browser, served.client() as thief:
        url = begun(browser)
        kept = httpx.Cookies(browser.cookies)
        back = answered(browser, url, "ann")
        assert browser.get(back).status_code == 200
        assert browser.get(back).status_code == 401  # the state is used up
        thief.cookies = kept
        assert "invalid_grant" in refused(served, thief, thief.get(back))  # and so is the code


def test_an_answer_that_another_browser_began_signs_in_nobody(served: Served) -> None:
    """Login CSRF: the attacker's own answer in the victim's browser, with and without a sign-in of the victim."""
    with served.client() as attacker, served.client() as victim:
        back = answered(attacker, begun(attacker), "bob")
        refused(served, victim, victim.get(back))
        begun(victim)
        refused(served, victim, victim.get(back))


@pytest.mark.parametrize("change", ["state=wrong", "state=", "none"])
def test_a_wrong_state_is_refused(served: Served, change: str) -> None:
    with served.client() as browser:
        back = answered(browser, begun(browser), "ann")
        changed = re.sub(r"&?state=[^&]*", "" if change == "none" else f"&{change}", back)
        refused(served, browser, browser.get(changed))


def test_a_changed_cookie_of_a_sign_in_is_refused(served: Served) -> None:
    with served.client() as browser:
        back = answered(browser, begun(browser), "ann")
        (cookie,) = (one for one in browser.cookies.jar if one.name == "world_protocol_sign_in")
        assert cookie.value is not None
        value = cookie.value
        browser.cookies.set(cookie.name, ("A" if value[0] != "A" else "B") + value[1:], cookie.domain, cookie.path)
        refused(served, browser, browser.get(back))


NOW = int(time.time())
BAD_TOKENS: list[tuple[str, dict[str, Any]]] = [
    ("another nonce", {"claims": {"nonce": "another"}}),
    ("no nonce", {"claims": {"nonce": None}}),
    ("expired", {"claims": {"exp": NOW - 600}}),
    ("no end", {"claims": {"exp": None}}),
    ("not yet valid", {"claims": {"nbf": NOW + 6_000}}),
    ("another audience", {"claims": {"aud": "another-client"}}),
    ("no audience", {"claims": {"aud": None}}),
    ("several audiences", {"claims": {"aud": [CLIENT, "another-client"]}}),
    ("another authorized party", {"claims": {"azp": "another-client"}}),
    ("another issuer", {"claims": {"iss": "https://id.example"}}),
    ("no subject", {"claims": {"sub": None}}),
    ("no actor", {"claims": {"wp_actor": None}}),
    ("an actor that is no text", {"claims": {"wp_actor": ["ann"]}}),
    ("another key", {"other_key": True}),
    ("unsigned", {"unsigned": True}),
    ("no ID token", {"no_id_token": True}),
]


@pytest.mark.parametrize(("what", "behaviour"), BAD_TOKENS, ids=[what for what, _ in BAD_TOKENS])
def test_an_id_token_that_is_not_valid_signs_in_nobody(
    served: Served, issuer: RunningIssuer, what: str, behaviour: dict[str, Any]
) -> None:
    issuer.behave(**behaviour)
    before = len(tokens(served))
    with served.client() as browser:
        refused(served, browser, signed_in(browser, "ann"))
    assert len(tokens(served)) == before


@pytest.mark.parametrize("stated", ["https://id.example", None, ""])
def test_an_answer_of_another_issuer_is_refused_before_its_code_is_sent(
    served: Served, issuer: RunningIssuer, stated: str | None
) -> None:
    """Mix-up (RFC 9207): the issuer states ``iss`` in its metadata, so an answer needs it."""
    issuer.behave(answer={"iss": stated})
    issuer.seen()
    with served.client() as browser:
        refused(served, browser, signed_in(browser, "ann"))
    assert [one for one in issuer.seen() if one["path"] == "token"] == []


def test_an_answer_at_the_address_of_another_issuer_is_refused(
    served: Served, issuer: RunningIssuer, other: RunningIssuer
) -> None:
    with served.client() as browser:
        back = answered(browser, begun(browser), "ann")
        begun(browser, f"{PAGES_PATH}/sign-in/partner")
        other.seen()
        refused(served, browser, browser.get(back.replace("/sign-in/corp/", "/sign-in/partner/")))
        assert other.seen() == []


def test_without_the_challenge_or_with_a_plain_one_the_code_is_worthless(served: Served) -> None:
    for changed in ({"code_challenge": None, "code_challenge_method": None}, {"code_challenge_method": "plain"}):
        with served.client() as browser:
            parts = urlsplit(begun(browser))
            query = {**dict(parse_qsl(parts.query)), **changed}
            kept = {name: value for name, value in query.items() if value is not None}
            back = answered(browser, parts._replace(query=urlencode(kept)).geturl(), "ann")
            assert "invalid_grant" in refused(served, browser, browser.get(back))


def test_the_error_of_an_issuer_is_shown_without_its_words(served: Served, issuer: RunningIssuer) -> None:
    for error, shown in (("access_denied", "access_denied"), ("<script>alert(1)</script>", "no reason")):
        issuer.behave(error=error)
        with served.client() as browser:
            page = refused(served, browser, signed_in(browser, "ann"))
        assert shown in page
        assert "555-0100" not in page
        assert "alert(1)" not in page


@pytest.mark.parametrize("status", [302, 400, 500])
def test_an_issuer_that_gives_no_token_is_unavailable(served: Served, issuer: RunningIssuer, status: int) -> None:
    issuer.behave(token_status=status)
    with served.client() as browser:
        page = refused(served, browser, signed_in(browser, "ann"), 503)
    assert "ISSUER_UNAVAILABLE" in page


def test_an_issuer_that_cannot_be_reached_is_named_and_links_work_without_it(tmp_path: Path) -> None:
    with issuing() as gone:
        pass
    arguments = ["--sign-in", "ann"]
    with serving_with(tmp_path, section(gone.url), arguments=arguments) as running, running.client() as browser:
        answer = browser.get(SIGN_IN)
        assert answer.status_code == 503
        assert gone.url in answer.text
        path, _, code = running.links["ann"].partition("?code=")
        assert browser.post(path, data={"code": code}).status_code == 303
        assert browser.get(f"{PAGES_PATH}/inbox").status_code == 200


FOREIGN = [
    "https://evil.example/",
    "//evil.example/",
    "/\\evil.example",
    "/realms/main//evil.example",
    "/realms/main/../../evil",
    "/realms/main/%2e%2e/evil",
    "/realms/main/%2f%2fevil.example",
    "/realms/mainland/inbox",
    "/realms/other/inbox",
    "/realms/main\r\nLocation: https://evil.example",
    "/realms/main/inbox#https://evil.example",
    "/v1/realms",
    "javascript:alert(1)",
    "/realms/main@evil.example",
    "",
]


@pytest.mark.parametrize("wanted", FOREIGN)
def test_the_way_back_leads_to_a_page_of_the_realm(served: Served, wanted: str) -> None:
    with served.client() as browser:
        answer = signed_in(browser, "ann", f"{SIGN_IN}?{urlencode({'next': wanted})}")
    assert f'content="0;url={PAGES_PATH}"' in answer.text


def test_a_page_without_a_session_leads_to_sign_in_and_back(served: Served) -> None:
    with served.client() as browser:
        page = browser.get(f"{PAGES_PATH}/proposals?status=completed")
        assert page.status_code == 401
        path = f"{PAGES_PATH}/sign-in?{urlencode({'next': f'{PAGES_PATH}/proposals?status=completed'})}"
        assert f'href="{path}"' in page.text
        choices = browser.get(path).text
        assert urlencode({"next": f"{PAGES_PATH}/proposals?status=completed"}) in choices
        unknown = browser.get("/realms/none/sign-in")
        assert unknown.status_code == 200  # as for a realm that exists
        assert browser.get("/realms/none/inbox").status_code == 401
        assert browser.get(f"{PAGES_PATH}/sign-in/none").status_code == 404


def test_a_link_of_another_site_begins_no_sign_in(served: Served) -> None:
    with served.client() as browser:
        headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
        answer = browser.get(SIGN_IN, headers=headers)
        assert answer.headers["location"] == f"{PAGES_PATH}/sign-in"
        assert "set-cookie" not in answer.headers


def test_a_session_that_was_there_before_is_replaced(served: Served) -> None:
    """Session fixation: the session after a sign-in is a new one, whatever cookie the browser sent."""
    with served.client() as attacker, served.client() as victim:
        assert signed_in(attacker, "bob").status_code == 200
        for one in attacker.cookies.jar:
            victim.cookies.set(one.name, one.value or "", one.domain, one.path)
        before = {one.value for one in attacker.cookies.jar}
        assert signed_in(victim, "ann").status_code == 200
        mine = [one.value for one in victim.cookies.jar if (one.value or "").startswith("wp1_")]
        assert not before & set(mine)
        assert ">ann<" in victim.get(f"{PAGES_PATH}/inbox").text
        assert ">bob<" in attacker.get(f"{PAGES_PATH}/inbox").text


def test_a_session_is_no_api_token_and_an_api_token_is_no_session(served: Served) -> None:
    with served.client() as browser:
        assert signed_in(browser, "ann").status_code == 200
        (cookie,) = (one for one in browser.cookies.jar if (one.value or "").startswith("wp1_"))
        bearer = {"Authorization": f"Bearer {cookie.value}"}
        assert (
            httpx.get(f"{served.url}{PATH}/inbox", headers=bearer, verify=NO_TLS).json()["code"] == "SIGN_IN_REQUIRED"
        )
        browser.cookies.set(cookie.name, served.place.tokens["ann"], cookie.domain, cookie.path)
        assert browser.get(f"{PAGES_PATH}/inbox").status_code == 401


def test_failed_sign_ins_of_an_address_are_limited(tmp_path: Path, issuer: RunningIssuer) -> None:
    limits = "requests_per_second = 1\nburst = 3"
    with serving_with(tmp_path, section(issuer.url), server=limits) as running, running.client() as browser:
        found = [browser.get(f"{SIGN_IN}/back?code=x&state={number}").status_code for number in range(6)]
        assert found[:3] == [401] * 3
        assert 429 in found[3:]
        codes = [browser.get(f"{PAGES_PATH}/sign-in?code=guess{number}").status_code for number in range(3)]
        assert 429 in codes


def test_two_servers_with_the_same_client_finish_each_other_s_sign_ins(tmp_path: Path, issuer: RunningIssuer) -> None:
    url = "public_url = 'http://127.0.0.1:1'\nburst = 1000"
    with (
        serving_with(tmp_path, section(issuer.url), server=url) as one,
        serving(one.place, "--socket", "other.sock", KIOSK_SECRET_OIDC_CLIENT=SECRET) as two,
        one.client() as browser,
    ):
        back = urlsplit(answered(browser, begun(browser), "ann"))
        assert (back.netloc, back.path) == ("127.0.0.1:1", f"{SIGN_IN}/back")
        answer = browser.get(f"{two.url}{back.path}?{back.query}")
        assert answer.status_code == 200
        assert heading(answer.text) == "Signed in"
