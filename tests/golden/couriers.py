"""Couriers outside carry parcels and collect money: external effects that are claimed, extended, lapse, and come late.

``record`` plays the same scenes with the same clock and the same ids, so it writes the same log byte by byte.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from pydantic import BaseModel

from host import external
from tests.golden.garden import START, the_same_worker
from world.clock import ManualClock, SequentialIds
from world.core import ActionContext, Domain, effect, set_
from world.errors import RefusedError
from world.klis.settings import KlisSettings
from world.limits import Limits
from world.model.snapshot import EffectAnswer, ErrorValue
from world.pipeline.recover import Choice
from world.state.effect_claim import EffectClaim
from world.state.ports import Performed
from worldprotocol.api.realm import Realm

SETTINGS = KlisSettings.recorded({"max_clock_ahead_ms": 120_000})
LIMIT_MS = 60_000
GRACE_MS = 5_000
YEAR = 365 * 86_400_000


class Office(BaseModel):
    parcels: dict[str, str] = {}
    money: dict[str, int] = {}


class Parcel(BaseModel):
    name: str
    stops: list[str] = ["door"]


class Bill(BaseModel):
    name: str
    amount: int


couriers = Domain("urn:golden:couriers", version="1.0.0", state=Office)


@couriers.action("send", version="1", manifest=[{"predicate": "MUTATES", "resource": "SYMBOL:{input.name}"}])
def send(ctx: ActionContext, input: Parcel) -> Any:  # noqa: A002
    stops: list[str] = []
    for stop in input.stops:
        stops += [(yield effect("parcel.carry", name=input.name, to=stop))]
    return [set_(f"parcels.{input.name}", " ".join(stops))]


@couriers.action("collect", version="1")
def collect(ctx: ActionContext, input: Bill) -> Any:  # noqa: A002
    paid = yield effect("money.collect", name=input.name, amount=input.amount)
    return [set_(f"money.{input.name}", paid)]


EFFECTS = (
    external(
        "parcel.carry",
        idempotent=True,
        time_limit_ms=LIMIT_MS,
        retries=1,
        backoff_ms=2_000,
        touches=lambda params: [("MUTATES", f"SYMBOL:{params['name']}")],
    ),
    external("money.collect", time_limit_ms=LIMIT_MS),
)


@the_same_worker()
def record(address: str) -> Realm:
    """Found an office and play its scenes; the caller closes it."""
    clock = ManualClock(START)
    limits, ids = Limits(klis=SETTINGS), SequentialIds("couriers")
    realm = Realm.create(address, domain=couriers, effects=EFFECTS, clock=clock, ids=ids, limits=limits)
    for name in ("ada", "ben"):
        realm.register(name, "human", binding={"kind": "auto_approve"})
    _carried(realm, clock)
    _lapsed(realm, clock)
    _failing(realm, clock)
    _in_doubt(realm, clock)
    _called_off(realm, clock)
    _ahead(realm, clock)
    return realm


def _carried(realm: Realm, clock: ManualClock) -> None:
    """Two stops; at the first the van is slow and says so, and reports twice."""
    _send(realm, "tea", stops=["gate", "door"])
    clock.advance(10)
    claim = _claim(realm, "van-1")
    clock.advance(50_000)
    claim = realm.heartbeat_effect(claim)
    clock.advance(50_000)
    realm.complete_effect(claim, _done("gate"))
    realm.complete_effect(claim, _done("gate"))
    realm.complete_effect(_claim(realm, "van-2"), _done("door"))


def _lapsed(realm: Realm, clock: ManualClock) -> None:
    """The first van goes silent; what it says later, and what another one makes up, is refused."""
    _send(realm, "salt")
    lost = _claim(realm, "van-1")
    clock.advance(LIMIT_MS + GRACE_MS + 1)
    held = _claim(realm, "van-2")
    _refused(lambda: realm.complete_effect(lost, _done("ditch")), "OTHER_CLAIM")
    _refused(lambda: realm.complete_effect(replace(held, worker="van-3"), _done("nowhere")), "NOT_HOLDER")
    realm.complete_effect(held, _done("door"))
    _refused(lambda: realm.complete_effect(lost, _done("ditch")), "ENDED")


def _failing(realm: Realm, clock: ManualClock) -> None:
    """A failure that may be temporary is tried once more; the second one is the result."""
    for name, second in (("rice", _done("door")), ("lime", _failed("FLAT_TYRE"))):
        _send(realm, name)
        realm.complete_effect(_claim(realm, "van-1"), _failed("NO_FUEL"))
        clock.advance(2_000)
        realm.complete_effect(_claim(realm, "van-2"), second)


def _in_doubt(realm: Realm, clock: ManualClock) -> None:
    """Money may be collected once only: a person says what became of it."""
    choices: list[tuple[str, Choice, int | None]] = [
        ("cash", "retry", None),
        ("coin", "happened", 7),
        ("gold", "fail", None),
    ]
    for name, choice, value in choices:
        realm.act("ben", "collect", {"name": name, "amount": 7}, scope=[f"money.{name}"])
        claim = _claim(realm, "van-1")
        clock.advance(LIMIT_MS + GRACE_MS + 1)
        realm.settle()
        _refused(lambda late=claim: realm.complete_effect(late, _done(7)), "LAPSED")  # type: ignore[misc]
        ((proposal, _),) = realm.realm().proposals.items()
        realm.host.resolve(proposal, choice, by="ada", reason="asked at the door", value=value)
        if choice == "retry":
            realm.complete_effect(_claim(realm, "van-2"), _done(7))


def _called_off(realm: Realm, clock: ManualClock) -> None:
    """Executions are cancelled, and lose their leases, before and after a worker claims."""
    for name, is_claimed, is_silent in (("bran", False, False), ("corn", True, False), ("dill", True, True)):
        proposal = _send(realm, name)
        claim = _claim(realm, "van-1") if is_claimed else None
        realm.host.cancel(proposal, by="ada", reason="not needed")
        _end(realm, clock, claim, "CANCELLED", is_silent=is_silent)
    for name, is_claimed in (("kale", False), ("leek", True)):
        _send(realm, name)
        claim = _claim(realm, "van-1") if is_claimed else None
        leases = [lease.lease_id for lease in realm.realm().klis.leases.values()]
        realm.leases.desk.revoke(leases, by="operator", reason="taken back")
        _end(realm, clock, claim, "LEASES_REVOKED", is_silent=False)


def _end(realm: Realm, clock: ManualClock, claim: EffectClaim | None, why: str, *, is_silent: bool) -> None:
    if claim is None:
        return
    _refused(lambda: realm.heartbeat_effect(claim), why)
    if is_silent:
        clock.advance(LIMIT_MS + GRACE_MS + 1)
        realm.settle()
    else:
        realm.complete_effect(claim, _done("door"))


def _ahead(realm: Realm, clock: ManualClock) -> None:
    """Parcels are claimed, failed and offered by a clock that is ahead, and the clock is confirmed."""
    clock.advance(YEAR)
    _send(realm, "wine")
    wine = _claim(realm, "van-1")
    _send(realm, "wood")
    realm.complete_effect(_claim(realm, "van-2"), _failed("NO_FUEL"))
    _send(realm, "wool")
    clock.advance(-YEAR)
    realm.confirm_clock(reason="the clock was a year ahead")
    realm.complete_effect(realm.heartbeat_effect(wine), _done("door"))
    clock.advance(2_000)
    wood = _claim(realm, "van-1")
    _claim(realm, "van-2")  # it goes silent, and the wool waits
    realm.complete_effect(wood, _done("door"))
    clock.advance(LIMIT_MS + GRACE_MS + 1)
    realm.settle()


def _send(realm: Realm, name: str, **more: Any) -> str:
    return realm.act("ada", "send", {"name": name, **more}, scope=[f"parcels.{name}"]).proposal_id


def _claim(realm: Realm, worker: str) -> EffectClaim:
    claim = realm.claim_effect(worker=worker)
    assert claim is not None
    return claim


def _done(value: Any) -> Performed:
    return Performed(EffectAnswer(value))


def _failed(code: str) -> Performed:
    return Performed(EffectAnswer(error=ErrorValue.at(code, "The van stands.", "", "", START)), retryable=True)


def _refused(call: Callable[[], object], why: str) -> None:
    with pytest.raises(RefusedError) as refused:
        call()
    assert (refused.value.code, refused.value.details["why"]) == ("CLAIM_LOST", why)
