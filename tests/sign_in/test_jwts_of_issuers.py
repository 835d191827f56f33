"""JWTs of a real issuer: keys that rotate, clocks, confused algorithms, and hostile documents."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.requests import Request

from tests.sign_in.at_issuer import RunningIssuer, issuing
from world.errors import RefusedError
from worldprotocol.api.config import OidcConfig, ServerConfig
from worldprotocol.server.issuers.code_flow import CodeFlow
from worldprotocol.server.issuers.issuer import LEEWAY_S, REFRESH_S, RETRY_S, OidcIssuer, fetched_object
from worldprotocol.server.threads import Threads

pytestmark = pytest.mark.slow


class Clock:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def running() -> Iterator[RunningIssuer]:
    with issuing("127.0.0.1") as found:
        yield found


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def issuer(running: RunningIssuer, clock: Clock) -> OidcIssuer:
    running.behave()
    running.seen()
    return OidcIssuer(OidcConfig(issuer=running.url, audience="kiosk", client_id="pages"), Threads(1), clock)


def claims(running: RunningIssuer, **changed: Any) -> dict[str, Any]:
    now = int(time.time())
    whole = {"iss": running.url, "aud": "kiosk", "sub": "ann", "iat": now, "exp": now + 600} | changed
    return {name: value for name, value in whole.items() if value is not None}


def verified(issuer: OidcIssuer, text: str) -> str:
    return issuer.actor_of(asyncio.run(issuer.jwt_claims(text)))


def refusal(issuer: OidcIssuer, text: str, code: str = "SIGN_IN_REQUIRED") -> str:
    with pytest.raises(RefusedError) as caught:
        asyncio.run(issuer.jwt_claims(text))
    assert caught.value.code == code
    return caught.value.message


def fetched(running: RunningIssuer) -> list[str]:
    """Return the documents that the issuer was asked for since the last call."""
    return [str(one["path"]) for one in running.seen()]


def test_a_new_key_is_fetched_when_it_is_first_used_and_an_old_one_ends(
    running: RunningIssuer, issuer: OidcIssuer, clock: Clock
) -> None:
    old = running.signed(claims(running))
    assert verified(issuer, old) == "ann"
    running.behave(rotate=True)
    new = running.signed(claims(running))
    assert "not valid" in refusal(issuer, new)  # the keys were fetched within RETRY_S
    clock.now += RETRY_S + 1
    fetched(running)
    assert verified(issuer, new) == "ann"
    assert fetched(running) == ["jwks"]
    assert "not valid" in refusal(issuer, old)


def test_forged_jwts_do_not_make_the_server_fetch_keys_again_and_again(
    running: RunningIssuer, issuer: OidcIssuer, clock: Clock
) -> None:
    good = running.signed(claims(running))
    assert verified(issuer, good) == "ann"
    fetched(running)
    for _ in range(5):
        refusal(issuer, good[:-8] + "AAAAAAAA")
    assert fetched(running) == []
    clock.now += RETRY_S + 1
    for _ in range(5):
        refusal(issuer, good[:-8] + "AAAAAAAA")
    assert fetched(running) == ["jwks"]


def test_known_keys_stay_in_use_while_the_issuer_fails(
    running: RunningIssuer, issuer: OidcIssuer, clock: Clock
) -> None:
    good = running.signed(claims(running))
    assert verified(issuer, good) == "ann"
    running.behave(jwks="redirect")
    clock.now += REFRESH_S + 1
    assert verified(issuer, good) == "ann"


@pytest.mark.parametrize(
    ("changed", "is_valid"),
    [
        ({"exp": -1}, True),
        ({"exp": -LEEWAY_S - 5}, False),
        ({"nbf": LEEWAY_S - 5}, True),
        ({"nbf": LEEWAY_S + 3_600}, False),
        ({"iat": LEEWAY_S - 5}, True),
        ({"iat": LEEWAY_S + 3_600}, False),
    ],
)
def test_clocks_may_differ_by_the_leeway(
    running: RunningIssuer, issuer: OidcIssuer, changed: dict[str, int], is_valid: bool
) -> None:
    now = int(time.time())
    text = running.signed(claims(running, **{name: now + value for name, value in changed.items()}))
    if is_valid:
        assert verified(issuer, text) == "ann"
    else:
        refusal(issuer, text)


@pytest.mark.parametrize("missing", ["iss", "aud", "exp"])
def test_a_jwt_without_a_claim_that_limits_it_is_refused(
    running: RunningIssuer, issuer: OidcIssuer, missing: str
) -> None:
    refusal(issuer, running.signed(claims(running, **{missing: None})))


@pytest.mark.parametrize("changed", [{"iss": "https://id.example"}, {"aud": "pages"}, {"aud": ["pages"]}])
def test_a_jwt_for_another_purpose_is_refused(
    running: RunningIssuer, issuer: OidcIssuer, changed: dict[str, Any]
) -> None:
    """An ID token of the pages (its audience is the client) is no credential of the API."""
    refusal(issuer, running.signed(claims(running, **changed)))


def encoded(part: Any) -> str:
    return (
        base64.urlsafe_b64encode(part if isinstance(part, bytes) else json.dumps(part).encode()).rstrip(b"=").decode()
    )


def public_keys(running: RunningIssuer) -> dict[str, Any]:
    import httpx

    found: dict[str, Any] = httpx.get(f"{running.url}/jwks", trust_env=False).json()["keys"][0]
    return found


def test_the_public_key_is_no_shared_secret(running: RunningIssuer, issuer: OidcIssuer) -> None:
    """HS256 with the public key in each form in which an attacker has it."""
    from joserfc.jwk import ECKey

    known = public_keys(running)
    forms = [
        ECKey.import_key(known).as_pem(private=False),
        ECKey.import_key(known).as_der(private=False),
        json.dumps(known).encode(),
        known["x"].encode(),
    ]
    for form in forms:
        signed = f"{encoded({'alg': 'HS256', 'kid': known['kid']})}.{encoded(claims(running))}"
        signature = encoded(hmac.new(form, signed.encode(), hashlib.sha256).digest())
        refusal(issuer, f"{signed}.{signature}")


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "HS256", "ES512", "RS1", "", None, ["ES256"]])
def test_only_the_listed_algorithms_verify(running: RunningIssuer, issuer: OidcIssuer, algorithm: Any) -> None:
    good = running.signed(claims(running)).split(".")
    header = encoded({"alg": algorithm, "kid": public_keys(running)["kid"]})
    refusal(issuer, f"{header}.{good[1]}.")
    refusal(issuer, f"{header}.{good[1]}.{good[2]}")


def test_a_key_in_the_header_is_not_used(running: RunningIssuer, issuer: OidcIssuer) -> None:
    from joserfc import jwt
    from joserfc.jwk import ECKey

    own = ECKey.generate_key("P-256", {"kid": public_keys(running)["kid"]})
    for more in ({"jwk": own.as_dict(private=False)}, {"jku": f"{running.url}/elsewhere"}):
        header = {"alg": "ES256", "kid": own.kid, **more}
        refusal(issuer, jwt.encode(header, claims(running), own, algorithms=["ES256"]))


def test_an_address_names_an_actor_only_where_the_issuer_verified_it(running: RunningIssuer) -> None:
    issuer = OidcIssuer(OidcConfig(issuer=running.url, audience="kiosk", actor_claim="email"), Threads(1))
    for stated, is_valid in ((True, True), (False, False), (None, False), ("true", False)):
        text = running.signed(claims(running, email="ann@kiosk.example", email_verified=stated))
        if is_valid:
            assert verified(issuer, text) == "ann@kiosk.example"
            continue
        with pytest.raises(RefusedError, match="did not verify the address"):
            verified(issuer, text)


@pytest.mark.parametrize("way", ["large", "redirect"])
def test_keys_in_a_document_that_is_too_large_or_elsewhere_are_not_read(
    running: RunningIssuer, issuer: OidcIssuer, way: str
) -> None:
    good = running.signed(claims(running))
    running.behave(jwks=way)
    refusal(issuer, good, "ISSUER_UNAVAILABLE")
    assert "elsewhere" not in fetched(running)


def test_an_issuer_that_failed_is_asked_again_after_a_while_only(
    running: RunningIssuer, issuer: OidcIssuer, clock: Clock
) -> None:
    good = running.signed(claims(running))
    running.behave(jwks="large")
    fetched(running)
    for _ in range(3):
        refusal(issuer, good, "ISSUER_UNAVAILABLE")
    assert fetched(running) == ["metadata", "jwks"]
    running.behave()
    clock.now += RETRY_S + 1
    assert verified(issuer, good) == "ann"


def test_a_document_that_arrives_drop_by_drop_is_given_up(running: RunningIssuer) -> None:
    running.behave(jwks="slow")
    with pytest.raises(TimeoutError):
        asyncio.run(fetched_object(f"{running.url}/jwks", within_s=0.5))


METADATA: list[tuple[str, dict[str, Any]]] = [
    ("another issuer", {"issuer": "https://id.example"}),
    ("PKCE without S256", {"code_challenge_methods_supported": ["plain"]}),
    ("an endpoint without TLS", {"token_endpoint": "ftp://id.example/token"}),
    ("no token endpoint", {"token_endpoint": None}),
    ("an endpoint that is no text", {"authorization_endpoint": ["https://id.example"]}),
]


@pytest.mark.parametrize(("what", "metadata"), METADATA, ids=[what for what, _ in METADATA])
def test_no_browser_is_sent_to_an_issuer_with_unacceptable_metadata(
    running: RunningIssuer, issuer: OidcIssuer, clock: Clock, what: str, metadata: dict[str, Any]
) -> None:
    request = Request({"type": "http", "session": {}})
    flow = CodeFlow(issuer, "a secret of the client")
    running.behave(metadata=metadata)
    with pytest.raises(RefusedError) as caught:
        asyncio.run(flow.begin(request, "http://kiosk/back", "/"))
    assert caught.value.code == "ISSUER_UNAVAILABLE"
    running.behave()
    clock.now += REFRESH_S + 1
    assert asyncio.run(flow.begin(request, "http://kiosk/back", "/")).startswith(f"{running.url}/authorize?")


def test_metadata_cannot_change_how_the_client_works(running: RunningIssuer, issuer: OidcIssuer) -> None:
    """Authlib takes members of the metadata as options of its client; only endpoints are handed on."""
    running.behave(metadata={"code_challenge_method": "plain", "scope": "all", "verify": False, "proxy": "http://x"})
    request = Request({"type": "http", "session": {}})
    url = asyncio.run(CodeFlow(issuer, None).begin(request, "http://kiosk/back", "/"))
    assert "code_challenge_method=S256" in url
    assert "scope=openid" in url


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"issuer": "http://id.example", "audience": "a"}, "has no TLS"),
        ({"issuer": "https://id.example"}, "needs an audience"),
        ({"issuer": "https://id.example?x=1", "audience": "a"}, "pattern"),
        ({"issuer": "https://id.example", "client_id": "a", "scopes": ["email"]}, "contain openid"),
        ({"issuer": "https://id.example", "client_id": "a", "client_secret": "plain text"}, "is a reference"),
        ({"issuer": "https://id.example", "audience": "a", "client_secret": "${secret:X}"}, "belongs to a client_id"),
        ({"issuer": "https://id.example", "client_id": "a", "name": "../x"}, "pattern"),
    ],
)
def test_a_configuration_that_is_not_safe_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        OidcConfig(**given)


def test_a_missing_file_of_keys_is_named_by_its_setting(running: RunningIssuer) -> None:
    """The answer is given before anybody is signed in, so it has no path of the server."""
    config = OidcConfig(issuer=running.url, audience="kiosk", jwks_file="/srv/private/keys.json")
    message = refusal(OidcIssuer(config, Threads(1)), running.signed(claims(running)), "ISSUER_UNAVAILABLE")
    assert "its jwks_file cannot be read (No such file or directory)" in message
    assert "/srv/private" not in message


def test_issuers_have_names_and_addresses_of_their_own() -> None:
    one, two = ({"issuer": f"https://{name}.example", "client_id": "a"} for name in ("one", "two"))
    with pytest.raises(ValueError, match="of its own"):
        ServerConfig(oidc=[OidcConfig(**one), OidcConfig(**two)])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="of its own"):
        ServerConfig(oidc=[OidcConfig(**one), OidcConfig(**one, name="other")])  # type: ignore[arg-type]
