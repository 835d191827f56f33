"""A desk whose servers hold the sessions of callers: callers leave, return at the other server, and are approved late.

``record`` plays the same scenes with the same clock, ids and servers, so it writes the same log byte by byte.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel

from host import external
from tests.golden.garden import START
from world.clock import ManualClock, SequentialIds
from world.core import ActionContext, Domain, effect, set_
from world.events.caller_events import Attended
from world.klis.settings import KlisSettings
from world.limits import Limits
from world.model.snapshot import EffectAnswer
from world.state.effect_claim import EffectClaim
from world.state.ports import Performed
from world.state.proposal import Proposal
from worldprotocol.api.callers.keyed import submit_attended
from worldprotocol.api.callers.sessions import (
    Leaving,
    caller_left,
    caller_returned,
    hold_session,
    resume_held_call,
)
from worldprotocol.api.realm import Realm

SETTINGS = KlisSettings.recorded({"manifest_rules": 3, "wake_rules": 2})
BOT: Final[dict[str, Any]] = {"actor_id": "bot", "client": "claude-code"}
KID: Final[dict[str, Any]] = {"actor_id": "kid", "client": "codex"}


class Desk(BaseModel):
    letters: dict[str, str] = {}


class Letter(BaseModel):
    name: str
    stamped: bool = True


desk = Domain("urn:golden:desk", version="1.0.0", state=Desk)


@desk.action("write", version="1", manifest=[{"predicate": "MUTATES", "resource": "FILE:/letters/{input.name}"}])
def write(ctx: ActionContext, input: Letter) -> Any:  # noqa: A002
    if not input.stamped:
        yield effect("stamp.buy", name=input.name)
    told = yield effect("letter.write", name=input.name)
    return [set_(f"letters.{input.name}", told)]


EFFECTS = (
    external("letter.write", time_limit_ms=60_000, by_actor=True),
    external("stamp.buy", time_limit_ms=60_000),
)


class AServer:
    """A process that records: one of two, and both run.

    Args:
        me: its name.
    """

    def __init__(self, me: str) -> None:
        self.me = me

    def close(self) -> None:
        """There is nothing to leave."""

    def is_gone(self, worker: str) -> bool:
        return False


def record(address: str) -> Realm:
    """Found a desk at one server, open it at another one, and play its scenes; the caller closes it."""
    clock = ManualClock(START, 10)
    limits, ids = Limits(klis=SETTINGS), SequentialIds("callers")
    given: dict[str, Any] = {"domain": desk, "effects": EFFECTS, "clock": clock, "ids": ids, "limits": limits}
    world = Realm.create(address, workers=AServer("east"), **given)
    world.register("ann", "human", binding={"kind": "auto_approve"})
    world.register("bot", "agent", binding={"kind": "auto_approve"})
    world.register("kid", "agent", binding={"kind": "hitl", "ask": ["ann"]})
    with Realm.open(address, workers=AServer("west"), **given) as other:
        _moved(world, other)
        _returned(world, other)
    _undecided(world)
    _late(world)
    _allowed(world)
    _cancelled(world)
    _without_a_session(world)
    return world


def _call(world: Realm, actor: str, name: str, session: str | None, **more: Any) -> Proposal:
    """Submit the call of a session, which its hook attends."""
    attended = Attended(by="hook", limit_ms=30_000, server=world._acting.worker)
    trace = {"client": KID["client"] if actor == "kid" else BOT["client"]}
    intent = world.issue(actor, "write", {"name": name, **more}, scope=[f"letters.{name}"])
    trace = trace if session is None else {**trace, "session": session}
    return submit_attended(world, intent, attended, trace=trace)


def _claim(world: Realm, proposal: Proposal, kind: str = "letter.write") -> EffectClaim:
    claim = world.claim_effect([kind], worker="bot", proposal_id=proposal.proposal_id)
    assert claim is not None
    return claim


def _done(world: Realm, claim: EffectClaim) -> None:
    world.complete_effect(claim, Performed(EffectAnswer("written")))


def _moved(world: Realm, other: Realm) -> None:
    """The renewals of a session reach another server, and a call of it is made there."""
    hold_session(world, "bot", "s-1", "claude-code", "2.1.330")
    hold_session(world, "bot", "s-1", "claude-code", "2.1.330")  # is recorded already
    call = _call(world, "bot", "tea", "s-1")
    hold_session(other, "bot", "s-1", "claude-code")
    _done(other, _claim(other, call))
    caller_left(world, Leaving(**BOT, noticed_by="renewal", session="s-1"), of_holder=True)  # another server holds it
    hold_session(world, "bot", "s-1", "claude-code")


def _returned(world: Realm, other: Realm) -> None:
    """A caller asks again at another server, and is answered there."""
    call = _call(world, "kid", "salt", "s-2")
    caller_returned(other, call.proposal_id)
    caller_returned(other, call.proposal_id)  # is recorded already
    other.decide(call.proposal_id, "approve", by="ann", reason="a letter")
    resume_held_call(other, call.proposal_id)
    _done(other, _claim(other, call))


def _undecided(world: Realm) -> None:
    """The connection of a call ends while a person is asked, and its session goes on."""
    hold_session(world, "kid", "s-2", "codex", "0.171.0")
    first, second = _call(world, "kid", "rice", "s-2"), _call(world, "kid", "corn", "s-2")
    caller_left(world, Leaving(**KID, noticed_by="connection", session="s-2", calls=[first.proposal_id]))
    world.decide(second.proposal_id, "reject", by="ann", reason="no letter")


def _late(world: Realm) -> None:
    """A call is approved while its caller waits no more: it requests leases when it is repeated, or ends unrepeated."""
    for name, is_repeated in (("lime", True), ("kale", False)):
        call = _call(world, "kid", name, "s-2")
        world.decide(call.proposal_id, "approve", by="ann", reason="a letter")
        if is_repeated:
            resume_held_call(world, call.proposal_id)
            _done(world, _claim(world, call))
    caller_left(world, Leaving(**KID, noticed_by="process", session="s-2"))


def _allowed(world: Realm) -> None:
    """A process ends with one call that is not begun, one that is, one that needs a stamp first, and one with a run."""
    _call(world, "bot", "dill", "s-1")
    _claim(world, _call(world, "bot", "leek", "s-1"))
    stamp = _claim(world, _call(world, "bot", "mint", "s-1", stamped=False), "stamp.buy")
    run = _claim(world, _call(world, "bot", "sage", "s-1"))
    caller_left(world, Leaving(**BOT, noticed_by="process", session="s-1", running=[run.proposal_id]))
    _done(world, stamp)
    _done(world, run)
    hold_session(world, "bot", "s-1", "claude-code")  # begins again
    caller_left(world, Leaving(**BOT, noticed_by="renewal", session="s-1"))  # without a call


def _cancelled(world: Realm) -> None:
    """An operator cancels a call that runs, whose caller shows no sign."""
    call = _call(world, "bot", "wine", "s-3")
    _claim(world, call)
    world.host.cancel(call.proposal_id, by="ann", reason="it hangs")
    caller_left(world, Leaving(**BOT, noticed_by="operator", session="s-3", calls=[call.proposal_id]))


def _without_a_session(world: Realm) -> None:
    """A caller without a session leaves; its call is known not to have been made."""
    call = _call(world, "bot", "wood", None)
    _claim(world, call)
    calls = [call.proposal_id]
    caller_left(world, Leaving(**BOT, noticed_by="connection", calls=calls, not_made=calls))
