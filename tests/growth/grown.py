"""Two realms that differ in the number of their past proposals alone: the long one continues a copy of the short."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from authority import Approve, Policy, rule
from authority.policies.opinions import Opinion
from tests.plugins.forms import scaled
from tests.server.kiosk import handlers, kiosk
from tests.server.served import Place, founded
from tests.support.engines import engine_of
from tests.world.test_rebuilt_index import OPENED, begin
from world.events.lease_events import VerdictGiven
from world.events.realm_events import WorldSealed
from world.events.run_events import RunOpened
from world.limits import Limits
from world.pipeline.driver import submit
from world.pipeline.submit import Submission
from world.pipeline.unit_of_work import UnitOfWork
from world.read_models.decoding import decoded
from world.state.ports import Case
from worldprotocol import Realm

SHORT: Final = scaled(3_000, ci=500)
LONG: Final = scaled(100_000, ci=6_000)
"""Past proposals of the two realms."""

AT_ONCE: Final = 500
"""Proposals of one commit."""

ORDERS: Final = 32
"""Values of the state, which does not grow."""


@rule
def fine(case: Case) -> Opinion:
    """Approve everything."""
    return Approve("fine")


house: Final = Policy("house", [fine])


@dataclass(frozen=True)
class GrownRealm:
    """A realm with a past.

    Args:
        place: where it is.
        names: names of things of it, which are of the same age in both realms.
    """

    place: Place
    names: dict[str, str]


PATIENT: Final = Limits(max_unit_ms=600_000)
"""Limits under which a commit of many proposals passes on a busy machine."""


def opened(place: Place) -> Realm:
    """Open a realm for acting; a commit is as safe as the process."""
    return Realm.open(place.log, domain=kiosk, effects=handlers, on_change="hold", durability="normal", limits=PATIENT)


def grow(realm: Realm, first: int, count: int) -> None:
    """Submit proposals that are approved and executed, many in each commit.

    Args:
        realm: open for acting.
        first: number of the first one.
        count: how many.
    """
    for start in range(first, first + count, AT_ONCE):
        numbers = range(start, min(first + count, start + AT_ONCE))
        inputs = [{"item": f"tea {number}", "number": f"n{number % ORDERS}"} for number in numbers]
        intents = [realm.issue("kid", "order.place", one, scope=["orders"]) for one in inputs]

        def command(work: UnitOfWork, intents: list[Any] = intents) -> None:
            for intent in intents:
                submit(work, Submission(intent), realm.new_id())

        engine_of(realm).run(command)


def grown(folder: Path) -> Iterator[GrownRealm]:
    """Yield the short realm, and the long one.

    Args:
        folder: an empty folder for both.
    """
    (folder / "short").mkdir()
    short = founded(folder / "short")
    with Realm.open(
        short.log, domain=kiosk, effects=handlers, policies=[house], on_change="adopt", limits=PATIENT
    ) as realm:
        _begin(realm)
        grow(realm, 0, SHORT)
    shutil.copytree(folder / "short", folder / "long")
    long = replace(short, folder=folder / "long", log=str(folder / "long" / "world.db"))
    config = long.folder / "world.toml"
    config.write_text(config.read_text(encoding="utf-8").replace(short.log, long.log), encoding="utf-8")
    for place, more in ((short, 0), (long, LONG - SHORT)):
        with opened(place) as realm:
            grow(realm, SHORT, more)
            yield GrownRealm(place, _end(realm))


def _begin(realm: Realm) -> None:
    """Make one of each kind of thing that a realm can have open, before its past."""
    first = realm.branch().head
    realm.act("kid", "order.place", {"item": "old", "number": "n0"})
    realm.create_branch("side", first)
    realm.act("bot", "order.place", {"item": "asked", "number": "n1"})
    realm.act("kid", "order.bake", {"item": "bread", "number": "n2"}, branch="side")  # others of its branch wait for it
    begin(realm, RunOpened(at=5, run_id="r1", **OPENED))


def _end(realm: Realm) -> dict[str, str]:
    """Make what is new in both realms, and return the names of old and new things."""
    old, waiting, _ = list(zip(range(3), realm.proposals(), strict=False))
    new = realm.act("kid", "order.place", {"item": "new", "number": "n3"})
    begin(realm, RunOpened(at=5, run_id="r2", **OPENED))
    size = realm.log.head().size
    verdicts = list(realm.log.read(size - 20, topics=[VerdictGiven.TOPIC]))
    verdict = decoded(verdicts[-1])
    assert isinstance(verdict, VerdictGiven)
    world = realm.sealed()
    return {
        "old": old[1].proposal_id,
        "old_world": next(event.world_id for _, event in realm.events() if isinstance(event, WorldSealed)),
        "waiting": waiting[1].proposal_id,
        "proposal": new.proposal_id,
        "intent": new.submitted.intent.intent_id,
        "world": world.world_id,
        "parent": str(world.parent),
        "verdict": verdict.verdict_id,
        "request": str(verdict.request_id),
        "run": "r1",
        "position": "100",
        "past": "100",
        "past_end": "200",
    }
