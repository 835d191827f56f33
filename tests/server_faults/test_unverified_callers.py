"""What callers can make a server do before they are verified: the bodies it reads, where it works, what it holds.

Requests are given to the application itself, so that a test sees which parts of a body were taken.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey
from starlette import requests

from tests.server.kiosk import kiosk
from tests.server.served import ORDER, PATH, Place, founded
from world.clock import SystemClock
from world.klis.identity.signature import public_key
from world.limits import Limits
from worldprotocol.api.callers.signing import signature_of
from worldprotocol.api.config import ServerConfig
from worldprotocol.api.realm import Realm
from worldprotocol.server.app import create_app
from worldprotocol.server.service import RealmToServe, Service

pytestmark = pytest.mark.requirement("WALL-bodies")

KEY = b"\x01" * 32
PART = b" " * 65_536
CHUNKED = ("transfer-encoding", "chunked")
FORM = ("content-type", "application/x-www-form-urlencoded")
INTENTS, SIGN_IN = f"{PATH}/intents", "/realms/main/sign-in"


@dataclass
class Sent:
    """A request whose body is given part by part.

    Args:
        fields: header fields.
        parts: the parts of the body.
        ends: whether the body ends after them; else the rest of it never arrives.
        path: the path.
        method: the method.
        host: the address of the caller.
    """

    fields: list[tuple[str, str]] = field(default_factory=list)
    parts: list[bytes] = field(default_factory=list)
    ends: bool = True
    path: str = INTENTS
    method: str = "POST"
    host: str = "192.0.2.1"
    taken: int = 0
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    content: bytes = b""

    @property
    def code(self) -> str:
        return str(json.loads(self.content)["code"])

    async def receive(self) -> dict[str, Any]:
        if self.taken >= max(1, len(self.parts)):
            await asyncio.Event().wait()
        self.taken += 1
        part = self.parts[self.taken - 1] if self.parts else b""
        return {"type": "http.request", "body": part, "more_body": self.taken < len(self.parts) or not self.ends}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
        self.content += message.get("body", b"")

    async def to(self, app: Any) -> Sent:
        """Have the request answered."""
        fields = [("host", "kiosk"), ("content-type", "application/json"), *self.fields]
        if self.parts and CHUNKED not in fields:
            size = sum(map(len, self.parts)) + (0 if self.ends else 1)
            fields.append(("content-length", str(size)))
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http", "method": self.method,
            "path": self.path, "raw_path": self.path.encode(), "root_path": "", "query_string": b"", "state": {},
            "headers": [(name.encode(), value.encode()) for name, value in dict(fields).items()],
            "client": (self.host, 1), "server": ("kiosk", 80),
        }  # fmt: skip
        await app(scope, self.receive, self.send)
        return self


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Return a realm with a key of the actor kid."""
    found = founded(tmp_path_factory.mktemp("unverified"))
    with Realm.open(found.log, domain=kiosk, on_change="hold") as realm:
        realm.leases.desk.register_key("kid", public_key(KEY), by="operator")
    return found


@pytest.fixture
def signed(place: Place) -> dict[str, Any]:
    """Return a signed intent."""
    with Realm.open(place.log, domain=kiosk, on_change="hold") as realm:
        intent = realm.issue("kid", "order.place", ORDER["input"], scope=["orders"])
        signature = signature_of(realm, intent, KEY, now_ms=SystemClock().now_ms())
    return {**intent.to_wire(), "signature": signature.to_wire()}


@pytest.fixture
def run(place: Place) -> Callable[..., None]:
    """Return what runs a test with a service and its application."""

    def run(
        test: Callable[[Service, Any], Coroutine[Any, Any, None]], max_intent_bytes: int = 1 << 20, **limits: Any
    ) -> None:
        async def serve() -> None:
            of_realm = Limits(max_intent_bytes=max_intent_bytes)
            realm = Realm.open(place.log, domain=kiosk, on_change="hold", limits=of_realm)
            service = Service.of(ServerConfig(**limits), [RealmToServe("main", realm)])
            app = create_app(service)
            await service.start()
            try:
                async with asyncio.timeout(60):
                    await test(service, app)
            finally:
                await service.stop()

        asyncio.run(serve())

    return run


@pytest.mark.parametrize(
    "fields",
    [[], [("authorization", "Bearer wp1_x_y")], [("authorization", "Bearer a.b.c")], [("wp-key-id", "0" * 16)]],
    ids=["none", "a token", "a JWT", "a key"],
)
def test_the_body_of_a_caller_who_is_not_known_is_not_read(run: Any, fields: list[tuple[str, str]]) -> None:
    async def test(service: Service, app: Any) -> None:
        for path in (INTENTS, f"{PATH}/hooks/claude-code", "/mcp/main", "/v1/realms/none/intents"):
            sent = await Sent(fields, [b'{"signature": 1, "a":"', *[PART] * 30], path=path).to(app)
            assert (sent.status, sent.taken) == (401, 0), path
            assert sent.headers["connection"] == "close"
            assert service.unread.size == 0

    run(test)


def test_a_form_of_sign_in_is_read_up_to_a_limit(run: Any) -> None:
    async def test(service: Service, app: Any) -> None:
        declared = await Sent([FORM], [b"%41" * 20_000] * 30, path=SIGN_IN).to(app)
        assert (declared.status, declared.taken) == (413, 0)
        assert b"max_unverified_bytes" in declared.content
        chunked = await Sent([FORM, CHUNKED], [b"%41" * 20_000] * 30, path=SIGN_IN).to(app)
        assert (chunked.status, chunked.taken) == (413, 2)
        small = await Sent([FORM], [b"code=none"], path=SIGN_IN).to(app)
        assert small.status == 401

    run(test)


def test_a_page_reads_the_form_of_a_session_alone(run: Any) -> None:
    async def test(service: Service, app: Any) -> None:
        sent = await Sent([FORM], [b"choice=approve"], path="/realms/main/inbox/none").to(app)
        assert (sent.status, sent.taken) == (401, 0)

    run(test)


@pytest.mark.parametrize(
    ("limits", "setting", "taken"),
    [
        ({"max_intent_bytes": 200_000, "max_body_bytes": 1 << 24}, b"max_intent_bytes + max_unverified_bytes", 5),
        ({"max_intent_bytes": 1 << 20, "max_body_bytes": 100_000}, b"max_body_bytes", 2),
    ],
)
def test_a_body_that_a_key_is_named_for_is_read_up_to_the_size_of_an_intent(
    run: Any, signed: dict[str, Any], limits: dict[str, int], setting: bytes, taken: int
) -> None:
    async def test(service: Service, app: Any) -> None:
        named = ("wp-key-id", signed["signature"]["keyId"])
        declared = await Sent([named], [PART] * 100).to(app)
        assert (declared.status, declared.code, declared.taken) == (413, "REQUEST_TOO_LARGE", 0)
        assert setting in declared.content
        chunked = await Sent([named, CHUNKED], [PART] * 100).to(app)
        assert (chunked.status, chunked.code, chunked.taken) == (413, "REQUEST_TOO_LARGE", taken)
        assert declared.headers["connection"] == chunked.headers["connection"] == "close"
        assert service.unread.size == 0
        assert service.rates.check("address 192.0.2.1") < 199  # both are failed sign-ins
        body = json.dumps(signed).encode()
        assert (await Sent([named], [body + b" " * 80_000]).to(app)).status == 200

    run(test, requests_per_second=1, max_unread_bytes=1 << 26, **limits)


def test_an_actor_who_was_verified_sends_a_body_of_the_whole_size(run: Any, place: Place) -> None:
    async def test(service: Service, app: Any) -> None:
        body = json.dumps(ORDER).encode() + PART * 10
        sent = await Sent([("authorization", f"Bearer {place.tokens['kid']}")], [body]).to(app)
        assert sent.status == 200, sent.content

    run(test, max_intent_bytes=10_000)


def test_a_small_signed_intent_does_not_wait_for_large_ones(run: Any, signed: dict[str, Any]) -> None:
    async def test(service: Service, app: Any) -> None:
        held = HeldChecks(service, of="large_checks")
        fields = [("wp-key-id", signed["signature"]["keyId"])]
        large = json.dumps(signed | {"intentId": "another"}).encode() + PART
        async with asyncio.TaskGroup() as tasks:
            sending = [tasks.create_task(Sent(fields, [large]).to(app)) for _ in range(4)]
            await held.begun.wait()
            sent = await Sent(fields, [json.dumps(signed).encode()]).to(app)
            assert sent.status == 200, sent.content
            assert not any(one.done() for one in sending)
            held.end.set()
        assert {one.result().status for one in sending} == {401}
        assert len(held.threads) == 1

    run(test)


@dataclass
class HeldChecks:
    """Threads for callers who are not verified, whose calls begin and wait for ``end``."""

    service: Service
    of: str = "checks"
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    end: threading.Event = field(default_factory=threading.Event)
    threads: set[threading.Thread] = field(default_factory=set)

    def __post_init__(self) -> None:
        threads, loop = getattr(self.service, self.of), asyncio.get_running_loop()
        run = threads.run

        async def checked(call: Callable[[], Any]) -> Any:
            def held() -> Any:
                self.threads.add(threading.current_thread())
                loop.call_soon_threadsafe(self.begun.set)
                assert self.end.wait(60)
                return call()

            return await run(held)

        threads.run = checked


def test_the_server_answers_while_the_body_of_a_key_is_checked(run: Any, signed: dict[str, Any]) -> None:
    async def test(service: Service, app: Any) -> None:
        held = HeldChecks(service)
        body = json.dumps(signed | {"intentId": "another"}).encode()
        fields = [("wp-key-id", signed["signature"]["keyId"])]
        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(Sent(fields, [body]).to(app))
            await held.begun.wait()
            assert (await Sent(path="/healthz", method="GET").to(app)).status == 200
            assert not sending.done()
            held.end.set()
        sent = sending.result()
        assert (sent.status, sent.code) == (401, "UNAUTHENTICATED")
        assert threading.main_thread() not in held.threads

    run(test)


@pytest.mark.parametrize("is_valid", [True, False])
def test_a_jwt_is_verified_in_a_thread_after_its_failure_was_counted(run: Any, tmp_path: Path, is_valid: bool) -> None:
    known, other = (ECKey.generate_key("P-256", {"kid": "k1"}) for _ in range(2))
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [known.as_dict(private=False)]}), encoding="utf-8")
    config = {"issuer": "https://issuer.example", "audience": "kiosk", "jwks_file": str(keys)}
    claims = {"iss": config["issuer"], "aud": "kiosk", "sub": "bot", "exp": int(time.time()) + 600}
    text = jwt.encode({"alg": "ES256", "kid": "k1"}, claims, known if is_valid else other)

    async def test(service: Service, app: Any) -> None:
        held = HeldChecks(service)
        sent = Sent([("authorization", f"Bearer {text}")], path=PATH, method="GET")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(sent.to(app))
            await held.begun.wait()
            assert (await Sent(path="/healthz", method="GET").to(app)).status == 200
            second = Sent([("authorization", f"Bearer {text}")], path=PATH, method="GET")
            assert (await second.to(app)).code == "TOO_MANY_REQUESTS"
            held.end.set()
        assert sent.status == (200 if is_valid else 401), sent.content
        if is_valid:
            service.rates.check("address 192.0.2.1")
        assert threading.main_thread() not in held.threads

    run(test, burst=1, requests_per_second=1, oidc=[config])


def test_failures_of_an_address_are_counted_before_its_bodies_are_read(run: Any, signed: dict[str, Any]) -> None:
    async def test(service: Service, app: Any) -> None:
        fields = [("wp-key-id", signed["signature"]["keyId"])]
        arriving = [Sent(fields, [b"{"], ends=False) for _ in range(2)]
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(one.to(app)) for one in arriving]
            while not all(one.taken for one in arriving):
                await asyncio.sleep(0)
            third = await Sent(fields, [PART]).to(app)
            assert (third.status, third.code, third.taken) == (429, "TOO_MANY_REQUESTS", 0)
            other = await Sent(fields, [json.dumps(signed).encode()], host="192.0.2.2").to(app)
            assert other.status == 200
            for one in running:
                one.cancel()

    run(test, burst=2, requests_per_second=1)


def test_a_signature_that_holds_leaves_the_allowance_of_its_address(run: Any, signed: dict[str, Any]) -> None:
    async def test(service: Service, app: Any) -> None:
        before = service.rates.check("address 192.0.2.1")
        fields = [("wp-key-id", signed["signature"]["keyId"])]
        sent = await Sent(fields, [json.dumps(signed).encode()]).to(app)
        assert sent.status == 200, sent.content
        assert service.rates.check("address 192.0.2.1") >= before
        wrong = await Sent(fields, [json.dumps(signed | {"intentId": "x"}).encode()]).to(app)
        assert wrong.status == 401
        assert service.rates.check("address 192.0.2.1") < before

    run(test, burst=1_000, requests_per_second=1)


def test_all_bodies_that_are_arriving_share_a_limit_and_one_subject_leaves_a_part(run: Any, place: Place) -> None:
    async def test(service: Service, app: Any) -> None:
        def by(actor: str, *parts: bytes) -> Sent:
            return Sent([("authorization", f"Bearer {place.tokens[actor]}")], list(parts), ends=False)

        arriving = [by("kid", *[PART] * 4) for _ in range(10)]
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(one.to(app)) for one in arriving]
            while sum(one.taken == 4 or one.status == 429 for one in arriving) < 10:
                await asyncio.sleep(0)
                assert service.unread.size <= 900_000
            refused = [one for one in arriving if one.status == 429]
            assert refused
            assert {one.code for one in refused} == {"TOO_MANY_REQUESTS"}
            assert all(one.headers["connection"] == "close" for one in refused)
            assert b"max_unread_bytes" in refused[0].content
            body = json.dumps(ORDER).encode()
            sent = await Sent([("authorization", f"Bearer {place.tokens['mule']}")], [body]).to(app)
            assert sent.status == 403  # read, and refused by its right
            for one in running:
                one.cancel()
        assert service.unread.size == 0

    run(test, max_body_bytes=500_000, max_unread_bytes=1_000_000)


def test_no_parser_reads_the_cookies_of_other_programs(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    parse = requests.cookie_parser

    def noted(text: str) -> dict[str, str]:
        seen.append(text)
        return parse(text) if len(text) < 1_000 else {}

    monkeypatch.setattr(requests, "cookie_parser", noted)

    async def test(service: Service, app: Any) -> None:
        quoted = 'world_protocol_80="' + "\\1" * 30_000 + '"'
        for cookie in ('a="' + "\\" * 60_000 + '"', quoted, "world_protocol_80=" + "a" * 60_000, "a=b;" * 15_000):
            for path in ("/healthz", PATH, "/realms/main", "/"):
                await Sent([("cookie", cookie)], path=path, method="GET").to(app)
        await Sent([("cookie", "a=b; world_protocol_80=wp1_x; c=d")], path="/realms/main", method="GET").to(app)

    run(test)
    assert [one for one in seen if one] == ["world_protocol_80=wp1_x"]


def test_of_unknown_members_of_a_body_the_first_one_is_reported(run: Any, place: Place) -> None:
    async def test(service: Service, app: Any) -> None:
        body = json.dumps({f"m{number}": 1 for number in range(50_000)} | ORDER).encode()
        sent = await Sent([("authorization", f"Bearer {place.tokens['kid']}")], [body]).to(app)
        assert (sent.status, sent.code) == (400, "INVALID_VALUE")
        [fault] = json.loads(sent.content)["details"]["faults"]
        assert "`m0`" in fault["message"]

    run(test)


def test_a_large_body_is_parsed_in_a_thread(run: Any, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from worldprotocol.server import endpoints

    threads: list[bool] = []
    decoded = endpoints._decoded

    def parsed(content: bytes, request: Any) -> Any:
        threads.append(threading.current_thread() is threading.main_thread())
        return decoded(content, request)

    monkeypatch.setattr(endpoints, "_decoded", parsed)

    async def test(service: Service, app: Any) -> None:
        for size in (10, 300_000):
            body = json.dumps(ORDER | {"note": "n" * size}).encode()
            sent = await Sent([("authorization", f"Bearer {place.tokens['kid']}")], [body]).to(app)
            assert sent.status == 200, sent.content

    run(test)
    assert threads == [True, False]


def test_limits_that_no_body_fits_are_refused() -> None:
    with pytest.raises(ValueError, match="max_unread_bytes"):
        ServerConfig(max_body_bytes=1_000, max_unread_bytes=1_000)
