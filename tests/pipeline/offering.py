"""A realm whose work is done by workers outside, in boxes that do not conflict, for tests of external effects."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import BaseModel

from host import external
from tests.pipeline.works import ACTORS
from world.clock import ManualClock, SequentialIds
from world.core import ActionContext, Domain, effect, set_
from world.klis.settings import KlisSettings
from world.limits import Limits
from world.model.snapshot import EffectAnswer, ErrorValue
from world.state.effect_claim import EffectClaim
from world.state.ports import Performed
from worldprotocol.api.realm import Realm


class Room(BaseModel):
    done: list[str] = []
    boxes: dict[str, list[str]] = {}


class Work(BaseModel):
    what: list[str] = ["x"]
    box: str | None = None
    effect: str = "work"


room = Domain("urn:test:offering", version="1.0.0", state=Room)


@room.action("do", version="1")
def do(ctx: ActionContext, input: Work) -> Any:  # noqa: A002
    told = []
    for what in input.what:
        told += [(yield effect(input.effect, what=what))]
    if input.box is None:
        return [set_("done", [*ctx.data["done"], *told])]
    return [set_(f"boxes.{input.box}", told)]


LIMIT_MS = 10_000
GRACE_MS = 5_000
START = 1_000_000


def answered(value: Any) -> Performed:
    """Return the result of an effect that succeeded."""
    return Performed(EffectAnswer(value))


def failing(code: str = "BUSY", *, retryable: bool = True) -> Performed:
    """Return the result of an effect that failed."""
    return Performed(EffectAnswer(error=ErrorValue.at(code, "It failed.", "", "", 0)), retryable=retryable)


@contextmanager
def offering(address: str, *, clock: ManualClock | None = None, **terms: Any) -> Iterator[Realm]:
    """Found a realm whose effect ``work`` is external; its clock stands still, and its ids are its own."""
    given: dict[str, Any] = {"clock": clock or ManualClock(START), "ids": SequentialIds()}
    limits = Limits(klis=KlisSettings(backoff_ms=1, max_backoff_ms=4))
    effects = [external("work", **{"time_limit_ms": LIMIT_MS, **terms})]
    with Realm.create(address, domain=room, effects=effects, limits=limits, **given) as realm:
        for name, kind in ACTORS.items():
            realm.register(name, kind, binding={"kind": "auto_approve"})  # type: ignore[arg-type]
        yield realm


def open_again(address: str, clock: ManualClock, seed: str, **terms: Any) -> Realm:
    """Open the realm in another process, as far as the log can tell."""
    effects = [external("work", **{"time_limit_ms": LIMIT_MS, **terms})]
    return Realm.open(address, domain=room, effects=effects, clock=clock, ids=SequentialIds(seed))


def work_in(realm: Realm, box: str, *what: str) -> str:
    """Issue work that writes to one box only, so that others may go on beside it; return the proposal's id."""
    asked = {"box": box, "what": list(what) or ["x"]}
    return realm.act("ann", "do", asked, scope=[f"boxes.{box}"]).proposal_id


def claimed(realm: Realm, worker: str = "w1", **options: Any) -> EffectClaim:
    """Claim an effect that must be there."""
    claim = realm.claim_effect(worker=worker, **options)
    assert claim is not None
    return claim
