"""Realms with a past of every kind, and logs cut off at an event: what ``--at`` tells must be what those tell."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli.inside import Inside
from tests.golden import garden, harbour
from tests.pipeline.till import BOUND, HOUSE, STRICT, till
from world.clock import ManualClock, SequentialIds
from world.log import LoggedEvent
from world.log.merkle import Frontier
from world.model.canonical_json import canonical_bytes
from worldprotocol import Realm, ScopeViolationError
from worldprotocol.export.jsonl import export_log, import_log

KEY = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
GARDEN = (
    'domain = "tests.golden.garden:garden"\npolicies = ["tests.golden.garden:rules"]\n'
    'projections = ["tests.golden.garden:sensor"]\n'
)


@dataclass(frozen=True)
class Past:
    """A realm with a past, and its log cut off at any event.

    Args:
        realm: the whole of it.
        events: what was logged.
    """

    realm: Inside
    events: list[LoggedEvent]

    def first(self, topic: str, number: int = 0) -> int:
        """Return the position of an event by its topic: the first, or one after it."""
        return [event.position for event in self.events if event.topic == topic][number]

    def at_ms(self, position: int) -> int:
        """Return when an event was recorded, ms since 1970."""
        at: int = json.loads(self.events[position - 1].state)["at"]
        return at

    def cut(self, folder: Path, position: int) -> Inside:
        """Return the realm as it was when it had so many events and no more."""
        out = io.BytesIO()
        with Realm.open_read_only(self.realm.folder / "world.db") as world:
            export_log(world.log, out)
        lines = out.getvalue().splitlines()[: position + 1]
        tree = Frontier().extended(event.leaf for event in self.events[:position])
        head = {"head": {"root": tree.root().hex(), "size": position}}
        import_log(io.BytesIO(b"\n".join([*lines, canonical_bytes(head), b""])), str(folder / "world.db"))
        for file in self.realm.folder.glob("*.toml"):
            (folder / file.name).write_bytes(file.read_bytes())
        return Inside(folder)


def past_of(folder: Path) -> Past:
    """Return the past of the realm in a folder."""
    with Realm.open_read_only(folder / "world.db") as world:
        return Past(Inside(folder), list(world.log.read()))


def garden_in(folder: Path) -> Past:
    """Record branches, people, effects and source events."""
    garden.record(str(folder / "world.db")).close()
    (folder / "world.toml").write_text(GARDEN)
    return past_of(folder)


def harbour_in(folder: Path) -> Past:
    """Record leases that are waited for, and verdicts."""
    harbour.record(str(folder / "world.db")).close()
    (folder / "world.toml").write_text('domain = "tests.golden.harbour:harbour"\n')
    return past_of(folder)


def till_in(folder: Path) -> Past:
    """Record policies that come and go, a shadow, keys and governed runs."""
    for name, text in (("house", HOUSE), ("strict", STRICT)):
        (folder / f"{name}.toml").write_text(text)
    (folder / "world.toml").write_text(
        'domain = "tests.pipeline.till:till"\npolicies = ["house.toml", "strict.toml"]\n[workspace]\nroot = "w"\n'
    )
    (folder / "w").mkdir()
    given: dict[str, Any] = {"clock": ManualClock(1_700_000_000_000, 1_000), "ids": SequentialIds("till")}
    with Realm.create(
        folder / "world.db",
        domain=till,
        policies=["house.toml", "strict.toml"],
        folder=folder,
        workspace=folder / "w",
        **given,
    ) as world:
        _scenes(world, folder / "w")
    return past_of(folder)


def _scenes(world: Realm, root: Path) -> None:
    world.register("ann", "human", binding={"kind": "auto_approve"})
    world.register("bot", "agent", binding=BOUND, meta={"level": 1})
    world.shadow("strict")
    world.act("bot", "pay", {"amount": 15})
    asked = world.act("bot", "pay", {"amount": 30})
    with world.host.session(agent="bot", session="one", writes=["/made"]):
        (root / "made").touch()
    world.decide(asked.proposal_id, "approve", by="ann")
    session = world.host.session(agent="bot", session="one", reads=["/made"])
    with suppress(ScopeViolationError), session:
        (root / "other").touch()
    key = world.leases.desk.register_key("bot", KEY, by="operator")  # from here on it has to sign
    world.leases.desk.revoke_key(key, by="operator", reason="lost")
    world.shadow(None)
    world.adopt_policy("strict")
    world.bind("bot", {**BOUND, "policy": "strict"})
    world.retire_policy("house", reason="too mild")
    world.register("bot", "agent", meta={"level": 5})
    world.act("bot", "pay", {"amount": 30})
