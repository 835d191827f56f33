"""The surface of ``AsyncRealm`` is that of ``Realm``: nothing of it can be forgotten, and no signature differs."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from worldprotocol.api.actions import Actions
from worldprotocol.api.asynchronous.leases import AsyncLeaseHandle, AsyncLeases
from worldprotocol.api.asynchronous.realm import AsyncAccess, AsyncActions, AsyncBackups, AsyncHosting, AsyncRealm
from worldprotocol.api.callers.access import RealmAccess
from worldprotocol.api.host import Hosting
from worldprotocol.api.leases import Leases
from worldprotocol.api.leasing.handle import LeaseHandle
from worldprotocol.api.realm import Realm
from worldprotocol.runs.backups import BackupAdministration

TWINS: dict[type, type] = {
    Realm: AsyncRealm,
    Actions: AsyncActions,
    RealmAccess: AsyncAccess,
    Hosting: AsyncHosting,
    BackupAdministration: AsyncBackups,
    Leases: AsyncLeases,
    LeaseHandle: AsyncLeaseHandle,
}
WITHOUT_TWIN = {
    (Realm, "schedule"): "a task acts where it takes an event",
    (Leases, "acquire_async"): "acquire",
    (Leases, "acquire_in"): "acquire",
    (Leases, "hold_async"): "acquire",
}
PLAIN = {"new_id", "as_caller", "session", "keep_alive", "subscribe", "acquire", "governed"}
"""Methods that do not block, or return what is awaited, iterated or entered."""

OTHER_PARAMETERS = {(Realm, "subscribe"), (LeaseHandle, "is_active")}


def surface(kind: type) -> list[str]:
    return sorted(name for name in dir(kind) if not name.startswith("_"))


def parameters(kind: type, name: str) -> list[Any]:
    """Return the parameters of a method or class method, without ``self``, as the source writes them."""
    found = list(inspect.signature(getattr(kind, name)).parameters.values())
    return [one for one in found if one.name not in ("self", "cls")]


@pytest.mark.parametrize("kind", TWINS, ids=lambda kind: kind.__name__)
def test_every_public_name_has_a_twin(kind: type) -> None:
    missing = [name for name in surface(kind) if (kind, name) not in WITHOUT_TWIN and name not in dir(TWINS[kind])]
    assert missing == []
    assert [name for of, name in WITHOUT_TWIN if of is kind and name not in surface(kind)] == []
    assert [name for name in surface(TWINS[kind]) if name not in surface(kind)] == ["sync"]


@pytest.mark.parametrize("kind", TWINS, ids=lambda kind: kind.__name__)
def test_every_twin_has_the_signature_and_the_documentation_of_its_method(kind: type) -> None:
    for name in surface(kind):
        mine = inspect.getattr_static(kind, name)
        if (kind, name) in WITHOUT_TWIN or (kind, name) in OTHER_PARAMETERS or isinstance(mine, property):
            continue
        assert parameters(TWINS[kind], name) == parameters(kind, name), name
        twin = getattr(TWINS[kind], name)
        assert twin.__doc__
        wrapped = getattr(twin, "__wrapped__", None)
        assert wrapped is None or wrapped.__doc__ == twin.__doc__


@pytest.mark.parametrize("kind", TWINS, ids=lambda kind: kind.__name__)
def test_what_blocks_is_awaited_or_iterated(kind: type) -> None:
    for name in surface(TWINS[kind]):
        twin = inspect.getattr_static(TWINS[kind], name)
        if isinstance(twin, (property, staticmethod)) or name in PLAIN:
            continue
        assert inspect.iscoroutinefunction(twin) or inspect.isasyncgenfunction(twin), name
