"""The surface of a remote realm is that of ``Realm``: each method works, or refuses and names what takes its place."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from tests.server.served import Served, founded, serving
from tests.support.tables import for_each
from world.engine.lease_commands import LeaseCommands
from world.errors import RefusedError
from worldprotocol.api.actions import Actions
from worldprotocol.api.callers.access import RealmAccess
from worldprotocol.api.host import Hosting
from worldprotocol.api.leases import Leases
from worldprotocol.api.leasing.handle import LeaseHandle
from worldprotocol.api.realm import Realm
from worldprotocol.api.remote.elsewhere import ELSEWHERE
from worldprotocol.api.remote.leases import RemoteDesk, RemoteLeaseHandle, RemoteLeases
from worldprotocol.api.remote.parts import RemoteAccess, RemoteActions, RemoteHosting
from worldprotocol.api.remote.realm import RemoteRealm

REMOTE: dict[str, tuple[type, type]] = {
    "Realm": (Realm, RemoteRealm),
    "Realm.access": (RealmAccess, RemoteAccess),
    "Realm.actions": (Actions, RemoteActions),
    "Realm.host": (Hosting, RemoteHosting),
    "Realm.leases": (Leases, RemoteLeases),
    "Realm.leases.desk": (LeaseCommands, RemoteDesk),
    "a lease": (LeaseHandle, RemoteLeaseHandle),
}
INHERITED = {
    "Realm": {"connect", "governed"},
    "Realm.actions": {"tools"},
    "Realm.leases": {"hold_async"},
    "a lease": {"check", "heartbeat", "is_active", "keep_alive", "release", "stop_beating", "token"},
}
"""What a remote object does with the code of the local one, over its own other methods."""

MORE = {
    "Realm": {
        "actors",
        "caller",
        "checkpoint",
        "diff",
        "inbox_entries",
        "keys",
        "policies",
        "receipt",
        "runs",
        "verify",
    },
    "Realm.leases": {"in_force", "waits"},
    "Realm.leases.desk": {"held"},
}
"""What a remote object has besides."""

PAGE = Path(__file__).parents[2] / "docs" / "server.md"


def surface(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def own(kind: type, local: type) -> set[str]:
    """Return the public names that a remote class does not take from the local one."""
    return {name for name in surface(kind) if getattr(kind, name, None) is not getattr(local, name, None)}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with serving(founded(tmp_path_factory.mktemp("served"))) as running:
        yield running


@pytest.mark.parametrize("what", REMOTE)
def test_every_public_name_works_or_refuses(what: str) -> None:
    local, remote = REMOTE[what]
    missing = surface(local) - own(remote, local) - INHERITED.get(what, set())
    if what == "Realm":  # bound class methods are new objects at each access
        missing -= {name for name in missing if name in ELSEWHERE[what]}
    assert missing == set()
    assert surface(remote) - surface(local) == MORE.get(what, set())
    assert ELSEWHERE.get(what, {}).keys() <= surface(local)


@pytest.mark.parametrize("what", REMOTE)
def test_every_method_has_the_parameters_of_the_local_one(what: str) -> None:
    local, remote = REMOTE[what]
    for name in surface(local) - ELSEWHERE.get(what, {}).keys():
        mine, theirs = inspect.getattr_static(local, name), inspect.getattr_static(remote, name)
        assert isinstance(mine, property) == isinstance(theirs, property), name
        if isinstance(mine, property):
            continue
        expected = inspect.signature(getattr(local, name)).parameters
        found = inspect.signature(getattr(remote, name)).parameters
        added = [one for one in found if one not in expected]
        assert added == (["shown"] if name == "decide" else []), name
        assert [str(found[one]) for one in expected] == [str(one) for one in expected.values()], name


@for_each(("what", "name"), [(what, name) for what, names in ELSEWHERE.items() for name in names])
def test_what_is_elsewhere_refuses_and_says_where(served: Served, what: str, name: str) -> None:
    with Realm.connect(served.url, token=served.place.tokens["all"]) as realm:
        found: Any = realm
        for part in what.split(".")[1:]:
            found = getattr(found, part)
        with pytest.raises(RefusedError, match=re.escape(f"{what}.{name} is not offered")) as refused:
            getattr(found, name)()
    assert refused.value.code == "NOT_REMOTE"
    assert ELSEWHERE[what][name] in str(refused.value)


def test_the_page_of_the_server_has_the_table() -> None:
    rows = re.findall(r"^\| `(Realm[\w.]*)` \| (.*) \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    table: dict[str, dict[str, str]] = {}
    for what, names, instead in rows:
        table.setdefault(what, {}).update(dict.fromkeys(re.findall(r"`(\w+)`", names), instead))
    assert table == ELSEWHERE
