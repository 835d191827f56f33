"""Public reading: a realm that visitors read without sign-in, with redaction, by address, and without any write."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pages.pages_of import PAGES_PATH, parsed, signed_in, signing
from tests.server.examples import EXAMPLES
from tests.server.served import ORDER, PATH, Served, founded, serving
from world.errors import RefusedError
from worldprotocol.api.config import ServerConfig
from worldprotocol.api.realm import Realm
from worldprotocol.server.operation_table import OPERATIONS, Operation
from worldprotocol.server.pages.page_table import PAGES, Page
from worldprotocol.server.service import RealmToServe, Service

pytestmark = pytest.mark.slow

PUBLIC = 'requests_per_second = 10000\nburst = 10000\n[server.public]\nmain = ["inputs"]'
OPEN = {
    "realms.read", "proposals.list", "proposals.read", "worlds.list", "worlds.read", "branches.list", "log.read",
    "checkpoint.read", "receipts.read", "receipts.find", "tiles.read", "proofs.consistency",
}  # fmt: skip
"""Operations that visitors may use; an operation that becomes open has to be added here on purpose."""

SECRET = "oolong"


def order(number: str) -> dict[str, Any]:
    return {**ORDER, "input": {"item": SECRET, "number": number}}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Return a server with a public realm, in which an order completed and another one waits."""
    with signing(founded(tmp_path_factory.mktemp("public"), server=PUBLIC), "ann") as running:
        assert running.submit("all", order("one")).status_code == 200
        assert running.submit("bot", order("two")).status_code == 202
        yield running


def asked(served: Served, operation: Operation, **more: Any) -> Any:
    """Send the example of an operation without credentials."""
    names = {"realm": "main", "proposal_id": "none", "world_id": "HEAD", "position": "1", "kind": "world", "code": "X"}
    path = operation.path.format(**{**dict.fromkeys(re.findall(r"{(\w+)}", operation.path), "none"), **names})
    with served.client() as client:
        return client.request(operation.method, path, json=EXAMPLES.get(operation.name), **more)


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_visitors_may_use_the_open_operations_and_no_other(served: Served, operation: Operation) -> None:
    assert operation.is_open is (operation.name in OPEN)
    answer = asked(served, operation)
    if operation.is_open or operation.is_public:
        assert answer.status_code != 401
        assert answer.status_code < 500
    else:
        assert (answer.status_code, answer.json()["code"]) == (401, "SIGN_IN_REQUIRED")


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_visitors_may_open_the_pages_of_open_operations_and_no_other(served: Served, page: Page) -> None:
    names = dict.fromkeys(re.findall(r"{(\w+)}", page.path), "none") | {"realm": "main", "world_id": "HEAD"}
    with served.client() as client:
        answer = client.request(page.method, f"/realms{page.path.format(**names)}", data={"choice": "approve"})
    is_open = page.method == "GET" and page.operation in OPEN
    if not page.operation and page.name != "home":
        assert answer.status_code < 500  # they sign in and out, and show nothing of a realm
    elif page.name == "home":
        assert (answer.status_code, answer.headers["location"]) == (303, f"{PAGES_PATH}/proposals")
    elif is_open:
        assert answer.status_code in (200, 404, 422, 400)
    else:
        assert answer.status_code == 401


def test_no_page_and_no_operation_shows_visitors_what_is_hidden(served: Served) -> None:
    with served.client("ann") as client:
        proposals = client.get(f"{PATH}/proposals").json()["proposals"]
        worlds = client.get(f"{PATH}/worlds").json()["worlds"]
        size = client.get(PATH).json()["position"]
    paths = [f"{at}{one}" for at in (PATH, PAGES_PATH) for one in ("/proposals", "/worlds", "/log", "/worlds/HEAD")]
    paths += [f"{at}/proposals/{one['proposalId']}" for at in (PATH, PAGES_PATH) for one in proposals]
    paths += [f"{at}/worlds/{one['worldId']}" for at in (PATH, PAGES_PATH) for one in worlds]
    paths += [f"{PATH}/log?text={SECRET[:4]}", f"{PAGES_PATH}/log?text={SECRET[:4]}"]
    paths += [f"{PATH}/receipts/{one + 1}" for one in range(size)]
    paths += [f"{PAGES_PATH}/proof?of={one + 1}" for one in range(size)]
    paths += [f"{PATH}/proposals?actor=bot", f"{PAGES_PATH}/proposals?actor=bot"]
    statuses = set()
    with served.client() as visitor:
        for path in paths:
            answer = visitor.get(path)
            statuses.add(answer.status_code)
            assert SECRET not in answer.text, path
        filtered = visitor.get(f"{PATH}/proposals?actor=bot")  # a match would name its actor
        assert filtered.status_code == 403 or filtered.json()["proposals"] == []
        assert visitor.get(f"{PATH}/log?text={SECRET[:4]}").json()["events"] == []
    assert statuses <= {200, 403}
    with served.client("ann") as client:
        assert SECRET in client.get(f"{PATH}/proposals").text
        assert SECRET in client.get(f"{PATH}/log?text={SECRET[:4]}").text


def test_the_timeline_of_a_proposal_leaves_out_hidden_events(tmp_path: Path) -> None:
    server = 'burst = 1000\n[server.public]\nmain = ["topic=world.sealed", "topic=lease.*"]'
    with signing(founded(tmp_path, server=server), "all") as running:
        path = f"{PAGES_PATH}/proposals/{running.submit('all', order('one')).json()['proposalId']}"
        with running.client() as visitor, signed_in(running, "all") as signed:
            hidden, whole = (kinds(one.get(path).text) for one in (visitor, signed))
    assert whole - hidden == {"source", "projection", "world"}  # the first two have no event of their own
    assert {"proposal", "decision"} <= hidden


def kinds(page: str) -> set[str]:
    """Return the kinds of the steps of a timeline."""
    steps = next(one for one in parsed(page).iter("ol") if "timeline" in one.get("class", ""))
    return {"".join(one.itertext()) for one in steps.iter("span") if one.get("class") == "kind"}


def test_the_public_view_says_so_and_has_no_form_that_writes(served: Served) -> None:
    with served.client() as visitor, signed_in(served, "ann") as ann:
        for path in ("/proposals", "/worlds", "/log", "/proof"):
            root = parsed(visitor.get(PAGES_PATH + path).text)
            assert "read-only" in "".join(root.itertext())
            assert {one.get("method") for one in root.iter("form")} <= {"get"}
            titles = ["".join(one.itertext()) for one in root.iter("a") if "/realms/main/" in one.get("href", "")]
            assert "Inbox" not in titles
            assert "Leases" not in titles
        assert "read-only" not in ann.get(f"{PAGES_PATH}/proposals").text


def test_nothing_that_a_visitor_sends_is_recorded(served: Served) -> None:
    with served.place.realm() as realm:
        size = realm.log.head().size
    for operation in OPERATIONS.values():
        if operation.method == "POST":
            assert asked(served, operation).status_code == 401
    with served.client() as visitor:
        for page in PAGES.values():
            if page.method == "POST":
                names = dict.fromkeys(re.findall(r"{(\w+)}", page.path), "none") | {"realm": "main"}
                assert visitor.post(f"/realms{page.path.format(**names)}", data={"token": ""}).status_code == 401
    with served.place.realm() as realm:
        assert realm.log.head().size == size


def test_a_visitor_cannot_wait_and_wrong_credentials_make_no_visitor(served: Served) -> None:
    with served.place.realm() as realm:
        (name,) = (one.proposal_id for one in realm.inbox())
    with served.client() as visitor:
        assert visitor.get(f"{PATH}/proposals/{name}").status_code == 200
        assert visitor.get(f"{PATH}/proposals/{name}", params={"wait": 1}).status_code == 401
        wrong = visitor.get(f"{PATH}/proposals", headers={"Authorization": "Bearer wp1_x_y"})
    assert wrong.status_code == 401


def test_visitors_are_counted_by_address(tmp_path: Path) -> None:
    limits = 'requests_per_second = 1\nburst = 3\n[server.public]\nmain = ["inputs"]'
    with serving(founded(tmp_path, server=limits)) as running, running.client() as visitor:
        answers = [visitor.get(f"{PATH}/proposals") for _ in range(8)]
        assert answers[0].status_code == 200
        assert answers[-1].status_code == 429
        assert int(answers[-1].headers["retry-after"]) >= 1
        with running.client("ann") as ann:  # a subject of its own
            assert ann.get(f"{PATH}/proposals").status_code == 200


@pytest.mark.parametrize(
    ("public", "code"),
    [({"main": ["nonsense"]}, "INVALID_REDACTION"), ({"other": ["inputs"]}, "INVALID_CONFIG")],
)
def test_a_public_realm_needs_rules_that_exist(tmp_path: Path, public: dict[str, list[str]], code: str) -> None:
    place = founded(tmp_path)
    with Realm.open_read_only(place.log) as realm, pytest.raises(RefusedError) as refused:
        Service.of(ServerConfig(public=public), [RealmToServe("main", realm)])
    assert refused.value.code == code
    with pytest.raises(ValueError, match="at least 1"):
        ServerConfig(public={"main": []})


def test_a_realm_is_not_public_unless_it_is_named(tmp_path: Path) -> None:
    with serving(founded(tmp_path)) as running, running.client() as visitor:
        assert visitor.get(f"{PATH}/proposals").status_code == 401
        assert visitor.get(f"{PAGES_PATH}/proposals").status_code == 401
