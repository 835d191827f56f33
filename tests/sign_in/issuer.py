"""An OIDC issuer as a process of its own, which checks what a real one checks, and can be told to misbehave.

``python tests/sign_in/issuer.py NAME`` prints its address. It shares no code with the server: codes are used once and
belong to a client, a redirect URI and an S256 challenge; ID tokens are signed with ES256. ``POST /behaviour`` merges
JSON into what it does; ``GET /seen`` returns what it was asked.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import secrets
import socket
import sys
import time
from typing import Any
from urllib.parse import parse_qsl, urlencode

import uvicorn
from joserfc import jwt
from joserfc.jwk import ECKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

CLIENT, SECRET = "kiosk-pages", "a secret of the client"
LARGE = 2_000_000


class Issuer:
    """The state of an issuer.

    Args:
        address: where it listens.
    """

    def __init__(self, address: str) -> None:
        """Create an issuer with one key."""
        self.address = address
        self.keys = [self.key("k1")]
        self.codes: dict[str, dict[str, str]] = {}
        self.behaviour: dict[str, Any] = {}
        self.seen: list[dict[str, Any]] = []

    @staticmethod
    def key(name: str) -> ECKey:
        return ECKey.generate_key("P-256", {"kid": name, "alg": "ES256", "use": "sig"})

    async def metadata(self, request: Request) -> Response:
        self.seen.append({"path": "metadata"})
        base = self.address
        found: dict[str, Any] = {
            "issuer": base,
            "authorization_endpoint": f"{base}/authorize",
            "token_endpoint": f"{base}/token",
            "jwks_uri": f"{base}/jwks",
            "end_session_endpoint": f"{base}/end-session",
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
        }
        return JSONResponse(found | self.behaviour.get("metadata", {}))

    async def jwks(self, request: Request) -> Response:
        self.seen.append({"path": "jwks"})
        way = self.behaviour.get("jwks")
        keys = [one.as_dict(private=False) for one in self.keys]
        if way == "large":
            return JSONResponse({"keys": keys, "padding": "x" * LARGE})
        if way == "redirect":
            return RedirectResponse(f"{self.address}/elsewhere", 302)
        if way == "slow":
            return StreamingResponse(self.drops(), media_type="application/json")
        return JSONResponse({"keys": keys + self.behaviour.get("more_keys", [])})

    async def drops(self) -> Any:
        while True:
            yield b" "
            await asyncio.sleep(0.05)

    async def elsewhere(self, request: Request) -> Response:
        return JSONResponse({"keys": [one.as_dict(private=False) for one in self.keys]})

    async def authorize(self, request: Request) -> Response:
        asked = dict(request.query_params)
        self.seen.append({"path": "authorize", **asked})
        back = asked.get("redirect_uri", "")
        if asked.get("client_id") != CLIENT or not back.endswith("/back"):
            return HTMLResponse("Unknown client or redirect URI.", 400)
        rows = "".join(f"<input type=hidden name={name} value='{value}'>" for name, value in asked.items())
        user = "<label>Name <input name=user autofocus></label><button>Sign in</button>"
        return HTMLResponse(f"<!doctype html><title>Issuer</title><form method=post action=/login>{rows}{user}</form>")

    async def login(self, request: Request) -> Response:
        asked = dict(parse_qsl((await request.body()).decode()))
        answer = {"state": asked.get("state", ""), "iss": self.address}
        if self.behaviour.get("error"):
            answer["error"] = self.behaviour["error"]
            answer["error_description"] = "<b>call 555-0100</b>"
        else:
            code = answer["code"] = secrets.token_urlsafe(16)
            self.codes[code] = asked
        answer |= self.behaviour.get("answer", {})
        shown = {name: value for name, value in answer.items() if value is not None}
        return RedirectResponse(f"{asked['redirect_uri']}?{urlencode(shown)}", 302)

    async def token(self, request: Request) -> Response:
        given = dict(parse_qsl((await request.body()).decode()))
        self.seen.append({"path": "token", **given})
        if self.behaviour.get("token_status"):
            return Response("<html>", self.behaviour["token_status"])
        scheme, _, pair = request.headers.get("authorization", "").partition(" ")
        expected = base64.b64encode(f"{CLIENT}:{SECRET.replace(' ', '+')}".encode()).decode()
        plain = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if scheme != "Basic" or pair not in (expected, plain):
            return JSONResponse({"error": "invalid_client"}, 401)
        asked = self.codes.pop(given.get("code", ""), None)
        if asked is None or asked["redirect_uri"] != given.get("redirect_uri"):
            return JSONResponse({"error": "invalid_grant"}, 400)
        digest = hashlib.sha256(given.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if asked.get("code_challenge_method") != "S256" or asked.get("code_challenge") != challenge:
            return JSONResponse({"error": "invalid_grant"}, 400)
        now = int(time.time())
        claims = {
            "iss": self.address,
            "aud": CLIENT,
            "sub": f"u-{asked['user']}",
            "wp_actor": asked["user"],
            "nonce": asked.get("nonce"),
            "iat": now,
            "exp": now + 300,
        }
        claims |= self.behaviour.get("claims", {})
        whole = {name: value for name, value in claims.items() if value is not None}
        key = self.key("k1") if self.behaviour.get("other_key") else self.keys[-1]
        signed = jwt.encode({"alg": "ES256", "kid": key.kid}, whole, key, algorithms=["ES256"])
        if self.behaviour.get("unsigned"):
            head = base64.urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=").decode()
            signed = f"{head}.{signed.split('.')[1]}."
        found = {"access_token": "opaque", "token_type": "Bearer", "expires_in": 60, "id_token": signed}
        if self.behaviour.get("no_id_token"):
            del found["id_token"]
        return JSONResponse(found)

    async def end_session(self, request: Request) -> Response:
        self.seen.append({"path": "end-session", **request.query_params})
        return HTMLResponse("<!doctype html><title>Issuer</title><p>Signed out.")

    async def behave(self, request: Request) -> Response:
        self.behaviour = json.loads(await request.body())
        if self.behaviour.pop("rotate", None):
            self.keys = [self.key(f"k{time.time_ns()}")]
        return JSONResponse({})

    async def saw(self, request: Request) -> Response:
        seen, self.seen = self.seen, []
        return JSONResponse(seen)

    async def sign(self, request: Request) -> Response:
        """Return a JWT with the given claims."""
        key = self.keys[-1]
        claims = json.loads(await request.body())
        return Response(jwt.encode({"alg": "ES256", "kid": key.kid}, claims, key, algorithms=["ES256"]))


def main() -> None:
    """Serve until the process is killed."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    address = f"http://{sys.argv[1]}:{listening.getsockname()[1]}"
    issuer = Issuer(address)
    app = Starlette(
        routes=[
            Route("/.well-known/openid-configuration", issuer.metadata),
            Route("/jwks", issuer.jwks),
            Route("/elsewhere", issuer.elsewhere),
            Route("/authorize", issuer.authorize),
            Route("/login", issuer.login, methods=["POST"]),
            Route("/token", issuer.token, methods=["POST"]),
            Route("/end-session", issuer.end_session),
            Route("/behaviour", issuer.behave, methods=["POST"]),
            Route("/seen", issuer.saw),
            Route("/sign", issuer.sign, methods=["POST"]),
        ]
    )
    print(address, flush=True)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    asyncio.run(server.serve([listening]))


if __name__ == "__main__":
    main()
