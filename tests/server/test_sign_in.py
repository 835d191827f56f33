"""Sign-in: API tokens, JWTs of an issuer, peers of the Unix socket; and listeners that other machines reach."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OctKey

from tests.cli.realm import COMMAND, environment
from tests.server.served import NO_TLS, ORDER, PATH, Served, founded, serving
from world.events.proposal_events import ProposalSubmitted
from world.events.verification import Verification
from worldprotocol.api.config import ServerConfig
from worldprotocol.server.serving import check_listener

pytestmark = pytest.mark.slow

ISSUER, AUDIENCE = "https://id.example", "kiosk"
KEY = ECKey.generate_key("P-256", {"kid": "k1", "alg": "ES256", "use": "sig"})


@pytest.fixture(scope="module")
def signed_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Return a server with an issuer, and with this process's user mapped to an actor."""
    folder: Path = tmp_path_factory.mktemp("signed-in")
    (folder / "keys.json").write_text(json.dumps(KeySet([KEY]).as_dict(private=False)), encoding="utf-8")
    lines = (
        f"burst = 1000\npeers = {{ '{os.getuid()}' = 'kid' }}\n"
        f"[[server.oidc]]\nissuer = '{ISSUER}'\naudience = '{AUDIENCE}'\nactor_claim = 'wp_actor'\n"
        "jwks_file = 'keys.json'"
    )
    with serving(founded(folder, server=lines)) as running:
        yield running


def claims(**changed: Any) -> dict[str, Any]:
    """Return claims of a valid JWT with some changed; None leaves one out."""
    now = int(time.time())
    whole = {"iss": ISSUER, "aud": AUDIENCE, "sub": "u-7", "wp_actor": "kid", "iat": now, "exp": now + 600} | changed
    return {name: value for name, value in whole.items() if value is not None}


def encoded(told: dict[str, Any], key: Any = KEY, algorithm: str = "ES256") -> str:
    return jwt.encode({"alg": algorithm, "kid": "k1"}, told, key, algorithms=[algorithm])


def acted(served: Served, credential: str) -> tuple[int, str | None]:
    with served.client() as client:
        answer = client.post(f"{PATH}/intents", json=ORDER, headers={"Authorization": credential})
    return answer.status_code, answer.json().get("code")


def last_verified(served: Served) -> Verification | None:
    with served.place.realm() as realm:
        return [event.verified for _, event in realm.events() if isinstance(event, ProposalSubmitted)][-1]


def test_a_jwt_of_a_configured_issuer_verifies_the_actor_of_its_claim(signed_in: Served) -> None:
    assert acted(signed_in, f"Bearer {encoded(claims())}") == (200, None)
    assert last_verified(signed_in) == Verification(method="jwt", actor_id="kid", issuer=ISSUER, subject="u-7")


def test_the_peer_of_the_unix_socket_is_verified_by_its_user(signed_in: Served) -> None:
    assert signed_in.socket is not None
    transport = httpx.HTTPTransport(uds=str(signed_in.place.folder / signed_in.socket))
    with httpx.Client(transport=transport, base_url="http://kiosk", timeout=60, verify=NO_TLS) as client:
        assert client.post(f"{PATH}/intents", json=ORDER).status_code == 200
        assert client.post(f"{PATH}/branches", json={"name": "b"}).json()["code"] == "RIGHT_MISSING"
    assert last_verified(signed_in) == Verification(method="peer", actor_id="kid", uid=os.getuid())
    assert os.stat(signed_in.place.folder / signed_in.socket).st_mode & 0o077 == 0


FORGED: list[tuple[str, Any]] = [
    ("another audience", lambda: encoded(claims(aud="other"))),
    ("no audience", lambda: encoded(claims(aud=None))),
    ("another issuer", lambda: encoded(claims(iss="https://other.example"))),
    ("expired", lambda: encoded(claims(exp=int(time.time()) - 3_600))),
    ("without an end", lambda: encoded(claims(exp=None))),
    ("not yet valid", lambda: encoded(claims(nbf=int(time.time()) + 3_600))),
    ("without the claim", lambda: encoded(claims(wp_actor=None))),
    ("an unknown actor", lambda: encoded(claims(wp_actor="nobody"))),
    ("an actor that is no text", lambda: encoded(claims(wp_actor=["kid"]))),
    ("another key", lambda: encoded(claims(), ECKey.generate_key("P-256", {"kid": "k1"}))),
    ("a shared secret", lambda: encoded(claims(), OctKey.import_key(b"s" * 32), "HS256")),
    (
        "the public key as a secret",
        lambda: encoded(claims(), OctKey.import_key(str(KEY.as_dict(private=False)["x"]).encode()), "HS256"),
    ),
    ("unsigned", lambda: encoded(claims()).rsplit(".", 1)[0] + "."),
    ("no JWT", lambda: "abc.def"),
    ("next to nothing", lambda: "."),
    ("very long", lambda: "a" * 20_000),
]


@pytest.mark.parametrize(("what", "forged"), FORGED, ids=[what for what, _ in FORGED])
def test_a_forged_jwt_verifies_nobody(signed_in: Served, what: str, forged: Any) -> None:
    assert acted(signed_in, f"Bearer {forged()}") == (401, "SIGN_IN_REQUIRED")


@pytest.mark.parametrize("scheme", ["Basic", "Bearer:", "bearer"])
def test_only_bearer_credentials_are_accepted(signed_in: Served, scheme: str) -> None:
    credential = f"{scheme} {signed_in.place.tokens['kid']}"
    assert acted(signed_in, credential) == ((200, None) if scheme == "bearer" else (401, "SIGN_IN_REQUIRED"))


def test_a_wrong_token_is_refused_and_many_of_them_are_slowed_down(tmp_path: Path) -> None:
    with serving(founded(tmp_path, server="requests_per_second = 1\nburst = 5")) as served:
        token = served.place.tokens["kid"]
        codes = [acted(served, f"Bearer {token[:-3]}abc")[1] for _ in range(8)]
        assert codes[:5] == ["TOKEN_NOT_VALID"] * 5
        assert "TOO_MANY_REQUESTS" in codes[5:]
        answers = [served.submit("kid") for _ in range(8)]
        late = next(one for one in answers if one.status_code == 429)
        assert int(late.headers["retry-after"]) >= 1
        assert late.json()["code"] == "TOO_MANY_REQUESTS"


def test_a_revoked_token_ends_its_streams_and_verifies_nobody(tmp_path: Path) -> None:
    with serving(founded(tmp_path)) as served:
        token_id = served.place.tokens["bot"].split("_")[1]
        with served.client("bot") as bot, bot.stream("GET", f"{PATH}/log/stream") as stream:
            revoke = ["token", "revoke", token_id, "--reason", "lost"]
            subprocess.run([*COMMAND, *revoke], cwd=tmp_path, env=environment(), check=True, capture_output=True)
            assert "event: token.revoked" not in list(stream.iter_lines())
        assert served.submit("bot").json()["code"] == "TOKEN_NOT_VALID"


@pytest.mark.parametrize(
    ("config", "can_sign_in", "missing"),
    [
        ({"host": "127.0.0.1"}, False, None),
        ({"host": "::1"}, False, None),
        ({"host": "localhost"}, False, None),
        ({"host": "0.0.0.0", "tls_certificate": "c", "tls_key": "k"}, True, None),
        ({"host": "0.0.0.0", "tls_certificate": "c", "tls_key": "k"}, False, "a way to sign in"),
        ({"host": "0.0.0.0"}, True, "TLS"),
        ({"host": "kiosk.example"}, True, "TLS"),
        ({"host": "127.0.0.1", "tls_key": "k"}, True, "TLS needs both"),
    ],
)
def test_a_listener_that_others_reach_needs_sign_in_and_tls(
    config: Any, can_sign_in: bool, missing: str | None
) -> None:
    if missing is None:
        check_listener(ServerConfig(**config), can_sign_in=can_sign_in)
        return
    with pytest.raises(Exception, match=missing) as caught:
        check_listener(ServerConfig(**config), can_sign_in=can_sign_in)
    assert getattr(caught.value, "code", None) == "UNSAFE_LISTENER"


def test_the_command_says_why_it_does_not_listen(tmp_path: Path) -> None:
    founded(tmp_path)
    done = subprocess.run(
        [*COMMAND, "serve", "--host", "0.0.0.0", "--port", "0"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "TLS (tls_certificate and tls_key in [server]) is missing" in done.stderr
    assert "UNSAFE_LISTENER" in done.stderr
