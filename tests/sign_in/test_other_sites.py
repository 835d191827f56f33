"""Requests that a browser sends for another site, names of other hosts, and paths that lead out of where they may."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.pages.pages_of import PAGES_PATH, signed_in, signing
from tests.server.served import NO_TLS, ORDER, PATH, Served, founded
from tests.server.test_rights_table import PARAMETERS
from tests.support.tables import for_each
from worldprotocol.server.limits import HostLimit, is_own_origin
from worldprotocol.server.operation_table import OPERATIONS
from worldprotocol.server.pages.page_table import PAGES

EVIL = "http://evil.example"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    place = founded(tmp_path_factory.mktemp("sites"), server="burst = 10000\nhosts = ['kiosk.internal']")
    with signing(place, "ann", "all") as running:
        yield running


@pytest.fixture(scope="module")
def ann(served: Served) -> Iterator[httpx.Client]:
    with signed_in(served, "ann") as client:
        yield client


def size(served: Served) -> int:
    with served.place.realm() as realm:
        return realm.log.head().size


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "evil.example:8437",
        "",
        "127.0.0.1@evil",
        "[::",
    ],
)
@pytest.mark.parametrize("path", [f"{PATH}/inbox", f"{PAGES_PATH}/inbox", "/healthz", "/openapi.json", "/none"])
@pytest.mark.slow
def test_a_request_for_another_host_is_refused(served: Served, ann: httpx.Client, host: str, path: str) -> None:
    """DNS rebinding: the name of another site leads to this server, and its scripts would be of the same origin."""
    bearer = {"Authorization": f"Bearer {served.place.tokens['all']}"}
    answer = ann.get(path, headers={"Host": host, **bearer})
    assert (answer.status_code, answer.json()["code"]) == (403, "FOREIGN_SITE")


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost:1", "LOCALHOST", "[::1]:8437", "kiosk.internal", "localhost."]
)
def test_the_names_of_the_server_are_accepted_with_any_port(served: Served, host: str) -> None:
    with served.client("all") as client:
        assert client.get(PATH, headers={"Host": host}).status_code == 200


FOREIGN: list[dict[str, str]] = [
    {"Origin": EVIL},
    {"Origin": "null"},
    {"Origin": "https://127.0.0.1"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=lambda one: json.dumps(one))
def test_a_page_of_another_site_changes_nothing_and_reads_nothing(
    served: Served, ann: httpx.Client, headers: dict[str, str]
) -> None:
    before = size(served)
    bearer = {"Authorization": f"Bearer {served.place.tokens['all']}", **headers}
    assert ann.post(f"{PATH}/intents", json=ORDER, headers=bearer).json()["code"] == "FOREIGN_SITE"
    assert ann.get(f"{PATH}/log", headers=bearer).json()["code"] == "FOREIGN_SITE"
    for page in PAGES.values():
        names = dict.fromkeys(re.findall(r"{(\w+)}", page.path), "x") | {"realm": "main", "world_id": "HEAD"}
        path = "/realms" + page.path.format(**names)
        answer = ann.request(page.method, path, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (403, "FOREIGN_SITE"), path
    assert size(served) == before


def test_following_a_link_of_another_site_is_permitted_and_sending_a_form_of_it_is_not(ann: httpx.Client) -> None:
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert ann.get(f"{PAGES_PATH}/inbox", headers=headers).status_code == 200
    assert ann.post(f"{PAGES_PATH}/sign-out", data={}, headers=headers).status_code == 403


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "multipart/form-data; boundary=x", ""])
def test_a_form_of_another_type_is_refused(served: Served, ann: httpx.Client, kind: str) -> None:
    before = size(served)
    answer = ann.post(f"{PAGES_PATH}/sign-out", content=b"token=x", headers={"Content-Type": kind})
    assert answer.status_code == 400
    assert size(served) == before
    assert ann.get(f"{PAGES_PATH}/inbox").status_code == 200


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "text/json"]
)
def test_the_api_reads_json_only_and_takes_no_cookie(served: Served, ann: httpx.Client, kind: str) -> None:
    """A form of another site can send these types without asking the server first."""
    before = size(served)
    body, headers = json.dumps(ORDER), {"Content-Type": kind}
    cookie = "; ".join(f"{one.name}={one.value}" for one in ann.cookies.jar)
    answer = httpx.post(
        f"{served.url}{PATH}/intents", content=body, headers={**headers, "Cookie": cookie}, verify=NO_TLS
    )
    assert answer.status_code in (400, 401)
    bearer = {"Authorization": f"Bearer {served.place.tokens['all']}"}
    assert (
        httpx.post(f"{served.url}{PATH}/intents", content=body, headers=headers | bearer, verify=NO_TLS).status_code
        == 400
    )
    assert size(served) == before


@for_each("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_no_operation_is_offered_to_other_origins(served: Served, operation: Any) -> None:
    path = operation.path.format(**PARAMETERS)
    with served.client("all") as client:
        asked = client.options(path, headers={"Access-Control-Request-Method": operation.method})
        assert asked.status_code == 405
        assert not [name for name in asked.headers if name.startswith("access-control-")]


@pytest.mark.parametrize("path", ["/inbox", "/sign-in", "/none", "/sign-in?code=x", "/worlds/HEAD"])
def test_no_page_is_shown_in_a_frame_or_stored(ann: httpx.Client, path: str) -> None:
    found = ann.get(PAGES_PATH + path).headers
    assert "frame-ancestors 'none'" in found["content-security-policy"]
    assert "form-action 'self'" in found["content-security-policy"]
    assert found["cache-control"] == "no-store"
    assert found["x-content-type-options"] == "nosniff"
    assert found["cross-origin-opener-policy"] == "same-origin"
    assert found["cross-origin-resource-policy"] == "same-origin"
    assert found["x-frame-options"] == "DENY"


ESCAPES = [
    "/realms/-/../../world.toml",
    "/realms/-/..%2f..%2fworld.toml",
    "/realms/-/%2e%2e/style.css",
    "/realms/-/....//style.css",
    "/realms/-/C:%5cwindows",
    "/realms/-/style.css%00.js",
    "/realms/..%2fmain/inbox",
    "/realms/main%2f../inbox",
    "/v1/realms/..%2fmain/inbox",
    "/v1/realms/main%00/inbox",
    "/v1/realms/%2e%2e/%2e%2e/etc/passwd",
    f"{PATH}/worlds/..%2f..%2fworld.db",
    f"{PATH}/proposals/..%2f..%2fworld.db",
    f"{PATH}/receipts/world/..%2f..%2fworld.toml",
    f"{PAGES_PATH}/worlds/..%2f..%2fworld.toml",
    f"{PAGES_PATH}/proposals/%00",
    f"{PAGES_PATH}/worlds/{'A' * 5_000}",
    "//evil.example/realms/main",
    "/\\evil.example",
]


@for_each("path", ESCAPES)
def test_no_path_leads_out(served: Served, ann: httpx.Client, path: str) -> None:
    bearer = {"Authorization": f"Bearer {served.place.tokens['all']}"}
    answer = raw(served, path, ann, bearer)
    assert answer.status_code in (400, 401, 403, 404), answer.text
    assert "[server]" not in answer.text
    assert "SQLite format" not in answer.text
    assert "location" not in answer.headers


def raw(served: Served, path: str, ann: httpx.Client, headers: dict[str, str]) -> httpx.Response:
    """Send a path as it is, which clients would normalise."""
    cookie = "; ".join(f"{one.name}={one.value}" for one in ann.cookies.jar)
    with httpx.Client(trust_env=False, verify=NO_TLS) as client:
        request = client.build_request("GET", served.url, headers={**headers, "Cookie": cookie})
        request.url = request.url.copy_with(raw_path=path.encode())
        return client.send(request)


@pytest.mark.parametrize("path", ["/realms/main/", "/v1/realms/main/inbox/", "/realms/main//inbox", "//", "/realms"])
def test_no_answer_redirects_to_an_address_of_the_request(served: Served, ann: httpx.Client, path: str) -> None:
    answer = ann.get(path, headers={"Host": "localhost"})
    assert answer.status_code == (200 if path == "//" else 404)  # the start page has both addresses
    assert "location" not in answer.headers


@pytest.mark.parametrize(
    ("origin", "host", "public", "is_own"),
    [
        ("http://kiosk.example", "kiosk.example", None, True),
        ("http://kiosk.example:80", "kiosk.example", None, False),
        ("https://kiosk.example", "127.0.0.1:8437", "https://kiosk.example", True),
        ("http://kiosk.example", "127.0.0.1:8437", "https://kiosk.example", False),
        ("null", "", None, False),
        ("", "", None, False),
        ("http://kiosk.example.evil.example", "kiosk.example", None, False),
        ("http://x@kiosk.example", "kiosk.example", None, False),
    ],
)
def test_an_origin_is_a_page_of_the_server_only_with_its_own_host(
    origin: str, host: str, public: str | None, is_own: bool
) -> None:
    assert is_own_origin(origin, host, public) is is_own


def test_several_host_fields_are_refused() -> None:
    scope = {"type": "http", "method": "GET", "headers": [(b"host", b"localhost"), (b"host", b"evil.example")]}
    from starlette.requests import Request

    limit = HostLimit(lambda *_: None, hosts={"localhost"}, public_url=None)  # type: ignore[arg-type]
    assert limit._fault(Request(scope)) is not None
    scope["headers"] = [(b"host", b"localhost")]
    assert limit._fault(Request(scope)) is None


def test_a_listener_for_other_machines_has_the_configured_names_only(tmp_path: Path) -> None:
    from worldprotocol.api.config import ServerConfig
    from worldprotocol.server.serving import _hosts

    assert _hosts(ServerConfig(host="0.0.0.0")) is None  # its names are unknown
    found = _hosts(ServerConfig(host="0.0.0.0", public_url="https://kiosk.example:8443", hosts=["kiosk.internal"]))
    assert found == {"0.0.0.0", "kiosk.example", "kiosk.internal"}
    assert _hosts(ServerConfig()) == {"127.0.0.1", "localhost", "::1"}
