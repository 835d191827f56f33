"""The check of a token takes one path, whatever is wrong with it: what is compared are two digests of equal length.

Time is not measured: the comparisons themselves are recorded.
"""

from __future__ import annotations

import ast
import hashlib
import hmac
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.golden.garden import START
from tests.golden.harbour import harbour
from tests.pages.pages_of import PAGES_PATH
from tests.server.served import PATH, Served, founded, serving
from world.clock import ManualClock
from world.errors import RefusedError
from world.events.access_events import TokenCreated
from worldprotocol.api.callers import access
from worldprotocol.api.callers.access import verify_token
from worldprotocol.api.realm import Realm
from worldprotocol.server.pages import browser_sessions

DAY = 86_400_000


@pytest.fixture
def realm(tmp_path: Path) -> Iterator[Realm]:
    with Realm.create(tmp_path / "world.db", domain=harbour, clock=ManualClock(START, 1)) as realm:
        realm.register("bob", "human")
        yield realm


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Return what is compared by ``hmac.compare_digest`` from now on."""
    found: list[tuple[str, str]] = []

    def compare(one: Any, other: Any) -> bool:
        found.append((one, other))
        return hmac.compare_digest(one, other)

    class Watched:
        compare_digest = staticmethod(compare)
        new = staticmethod(hmac.new)

    monkeypatch.setattr(access, "hmac", Watched)
    return found


def candidates(token: str) -> dict[str, str]:
    """Return tokens of which one is right, and the others differ from it at each place."""
    prefix, token_id, secret = token.split("_", 2)
    return {
        "the right one": token,
        "its first character is another": f"{prefix}_{token_id}_{'x' if secret[0] != 'x' else 'y'}{secret[1:]}",
        "its last character is another": f"{prefix}_{token_id}_{secret[:-1]}{'x' if secret[-1] != 'x' else 'y'}",
        "no character is right": f"{prefix}_{token_id}_" + "".join("x" if one != "x" else "y" for one in secret),
        "an unknown id": f"{prefix}_{'0' * len(token_id)}_{secret}",
        "no secret": f"{prefix}_{token_id}_",
        "a short secret": f"{prefix}_{token_id}_{secret[:5]}",
        "a long secret": f"{prefix}_{token_id}_{secret * 50}",
        "another prefix": f"wp0_{token_id}_{secret}",
        "nothing": "",
        "no text of UTF-8": f"{prefix}_{token_id}_\udc80",
    }


def test_every_token_is_hashed_and_compared_once_as_a_whole(realm: Realm, compared: list[tuple[str, str]]) -> None:
    token = realm.access.create_token("bob", by="operator", ttl_ms=DAY).token
    for what, text in candidates(token).items():
        compared.clear()
        if what == "the right one":
            assert verify_token(realm.realm(), text, START).actor_id == "bob"
        else:
            with pytest.raises(RefusedError) as caught:
                verify_token(realm.realm(), text, START)
            assert caught.value.code == "TOKEN_NOT_VALID"
            assert "worldctl token create" in caught.value.message
            assert text.split("_")[-1] not in caught.value.message or not text.split("_")[-1]
        ((given, kept),) = compared
        secret = text.split("_", 2)[2] if text.count("_") >= 2 else ""
        assert given == hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest(), what
        assert len(given) == len(kept) == 64, what


def test_all_refusals_of_a_wrong_token_read_the_same(realm: Realm) -> None:
    token = realm.access.create_token("bob", by="operator", ttl_ms=DAY).token
    said = set()
    for what, text in candidates(token).items():
        if what != "the right one":
            with pytest.raises(RefusedError) as caught:
                verify_token(realm.realm(), text, START)
            said.add(caught.value.message)
    assert len(said) == 1


def test_an_expired_token_is_named_to_the_owner_of_its_secret_alone(realm: Realm) -> None:
    made = realm.access.create_token("bob", by="operator", ttl_ms=1)
    for text, is_named in ((made.token, True), (made.token[:-1] + "~", False)):
        with pytest.raises(RefusedError) as caught:
            verify_token(realm.realm(), text, START + DAY)
        assert (made.created.token_id in caught.value.message) is is_named


@pytest.mark.parametrize("module", [access, browser_sessions])
def test_no_digest_or_secret_is_compared_in_another_way(module: Any) -> None:
    """A comparison with ``==`` of something that is secret would depend on where two texts differ."""
    secret = {"digest", "secret", "token", "session", "code", "_digest", "form_token"}
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq):
            names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
            names |= {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}
            assert not names & secret, ast.unparse(node)


def test_only_digests_of_secrets_are_kept(realm: Realm) -> None:
    made = realm.access.create_token("bob", by="operator", ttl_ms=DAY)
    (event,) = (event for _, event in realm.events() if isinstance(event, TokenCreated))
    secret = made.token.split("_", 2)[2]
    assert event.digest == hashlib.sha256(secret.encode()).hexdigest()
    assert len(secret) >= 43  # 256 bits in base64
    assert all(secret.encode() not in one.state for one in realm.log.read())


def guesses(served: Served, count: int) -> dict[str, list[int]]:
    """Return the statuses of wrong API tokens, wrong codes of links, and wrong cookies."""
    found: dict[str, list[int]] = {"token": [], "link": [], "cookie": []}
    with served.client() as client:
        for number in range(count):
            bearer = {"Authorization": f"Bearer wp1_{number}_guess"}
            found["token"].append(client.get(f"{PATH}/inbox", headers=bearer).status_code)
            found["link"].append(client.post(f"{PAGES_PATH}/sign-in", data={"code": f"{number}"}).status_code)
            cookie = {"Cookie": f"world_protocol_{served.url.rpartition(':')[2]}=wp1_{number}_guess"}
            found["cookie"].append(client.get(f"{PAGES_PATH}/inbox", headers=cookie).status_code)
    return found


@pytest.mark.slow
def test_guesses_of_an_address_are_limited_and_its_right_tokens_are_accepted(tmp_path: Path) -> None:
    with serving(founded(tmp_path, server="requests_per_second = 1\nburst = 4")) as served:
        found = guesses(served, 8)
        wrong = [status for statuses in found.values() for status in statuses]
        assert wrong.count(401) < 12
        assert all(429 in statuses for statuses in found.values())
        assert served.submit("kid").status_code == 200
