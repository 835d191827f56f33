"""One realm for the tests, used on this machine, over TCP with tokens, and over the Unix socket of a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.server.kiosk import handlers, kiosk, mail
from tests.server.served import ADMINISTRATORS, Place, Served, founded, serving
from world.events.verification import Verification
from world.klis.settings import KlisSettings
from world.limits import Limits
from worldprotocol.api.realm import Realm

OVER_HTTP = ("tcp", pytest.param("socket", marks=pytest.mark.slow))
KINDS = ("local", *OVER_HTTP)
LIMITS = "requests_per_second = 10000\nburst = 10000"


@dataclass
class Yard:
    """A realm with actors, rights and tokens.

    Args:
        kind: how it is used.
        place: the realm.
        shared: the realm that is open in this process; None where a server has it.
        served: the server; None where this process has the realm.
    """

    kind: str
    place: Place
    shared: Realm | None
    served: Served | None
    _connected: dict[str, Realm] = field(default_factory=dict)

    def realm(self, actor: str) -> Realm:
        """Return the realm as an actor uses it."""
        if actor not in self._connected:
            self._connected[actor] = self.connect(actor)
        return self._connected[actor]

    def connect(self, actor: str) -> Realm:
        """Return the realm as an actor uses it, over a connection of its own; the caller closes a remote one."""
        token = self.place.tokens[actor]
        if self.shared is not None:
            token_id = token.split("_")[1]
            return self.shared.as_caller(Verification(method="token", actor_id=actor, token_id=token_id))
        assert self.served is not None
        server = self.served.url if self.kind == "tcp" else f"unix:{self.served.socket}"
        return Realm.connect(server, token=token, realm="main")

    def reading(self) -> Realm:
        """Return the realm, opened from its log for reading."""
        return self.place.realm()

    def close(self) -> None:
        """Close what was connected."""
        for one in self._connected.values():
            if one is not self.shared:
                one.close()


def prepared(folder: Path) -> Place:
    """Found the realm; ``jury`` is judged by two of three votes, and ``veil`` reads with redaction."""
    place = founded(folder, server=LIMITS)
    with Realm.open(place.log, domain=kiosk, effects=handlers, limits=LIMITS_OF_LEASES) as realm:
        members = ["ann", "bob", "all"]
        tribunal = {"kind": "tribunal", "members": members, "rule": "threshold", "threshold": 2}
        realm.register("jury", "agent", binding=tribunal)
        realm.register("veil", "human", binding={"kind": "auto_approve"})
        for actor, right in (("jury", "actor"), ("jury", "reader")):
            realm.access.grant(actor, right, by="operator")  # type: ignore[arg-type]
        realm.access.grant("veil", "reader", by="operator", redaction=["inputs"])
        for actor in ("jury", "veil"):
            place.tokens[actor] = realm.access.create_token(actor, by="operator").token
    return place


LIMITS_OF_LEASES = Limits(klis=KlisSettings.read({"administrators": ADMINISTRATORS}))


@contextmanager
def yard_of(kind: str, folder: Path) -> Iterator[Yard]:
    """Return a yard of its own; a server is started where it needs one."""
    place = prepared(folder)
    with ExitStack() as stack:
        shared = served = None
        if kind == "local":
            opened = Realm.open(place.log, domain=kiosk, effects=handlers, projections=[mail], limits=LIMITS_OF_LEASES)
            shared = stack.enter_context(opened)
        else:
            served = stack.enter_context(serving(place))
        yard = Yard(kind, place, shared, served)
        stack.callback(yard.close)
        yield yard
