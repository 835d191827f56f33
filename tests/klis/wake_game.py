"""Desks of several processes on one log, and the moves of a game on them: requests, proposals, and what frees them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.klis.lease_game import CHANNEL
from world.errors import RefusedError
from world.events.base import Event
from world.events.codec import decode_event, encode_event
from world.events.lease_events import VerdictGiven
from world.klis.kernel import judge
from world.klis.lease_manager import LeaseManager, RequestOptions
from world.klis.ledger import Ledger
from world.klis.ledger_codec import ledger_to_wire, read_ledger
from world.klis.manifest import Manifest, read_manifest
from world.klis.settings import KlisSettings
from worldprotocol.analysis.recheck.leases import recheck_verdict

AGENTS = ("ann", "bob", "cleo", "dan", "eve")
SETTINGS = KlisSettings(max_hold_ms=100_000, max_named_conflicts=2, max_proposal_retries=4)


class Realm:
    """Desks of several processes on one log: each has a ledger, and folds what the others recorded."""

    def __init__(self, settings: KlisSettings = SETTINGS, *, processes: int = 1) -> None:
        self.log: list[Event] = []
        self.now, self.ids = 1_000, 0
        self.ledgers = [Ledger() for _ in range(processes)]
        self.desks = [LeaseManager(one, emit=self.emitting(one), new_id=self.new_id) for one in self.ledgers]
        self.desk, self.ledger = self.desks[0], self.ledgers[0]
        self.desk.configure(settings, self.now, by="test")
        for age, agent in enumerate(AGENTS):
            self.desk.register(agent, self.now, priority=age, by="test")

    def emitting(self, own: Ledger) -> Callable[[Event], None]:
        def emit(event: Event) -> None:
            self.log.append(event)
            for ledger in self.ledgers:
                ledger.fold(event if ledger is own else decode_event(event.TOPIC, event.VERSION, encode_event(event)))

        return emit

    def new_id(self) -> str:
        self.ids += 1
        return f"id-{self.ids}"

    def ask(
        self, agent: str, *wanted: str, session: str = "s", desk: LeaseManager | None = None, **more: Any
    ) -> VerdictGiven:
        """Request leases directly."""
        manifest, channel = manifest_of(agent, session, wanted), more.pop("channel", CHANNEL)
        return (desk or self.desk).request(manifest, self.now, channel=channel, options=RequestOptions(**more))

    def propose(self, agent: str, name: str, *wanted: str, desk: LeaseManager | None = None) -> VerdictGiven:
        """Request the leases of a proposal, as the engine does."""
        options = {"until_sealed": True, "queue": True, "request_id": name, "channel": {"kind": "engine"}}
        return self.ask(agent, *wanted, session=name, desk=desk, **options)

    def hold(self, agent: str, *wanted: str, session: str = "s") -> list[str]:
        verdict = self.ask(agent, *wanted, session=session)
        assert verdict.status == "Granted"
        return [lease.lease_id for lease in verdict.leases]

    def release(self, leases: list[str], agent: str, session: str = "s", desk: LeaseManager | None = None) -> None:
        (desk or self.desk).release(leases, self.now, agent_id=agent, session_id=session)

    def leave(self, woken: int) -> LeaseManager:
        """Free what five proposals died of, in a pass that wakes so many and leaves the others; return its desk."""
        left = iter(range(woken))
        desk = LeaseManager(
            self.ledger,
            emit=self.emitting(self.ledger),
            new_id=self.new_id,
            check=lambda _: next(left, None) is not None,
        )
        held = self.hold("ann", "MUTATES FILE:/a/*")
        for at in range(5):
            self.propose("bob", f"p{at}", f"MUTATES FILE:/a/{at}")
        self.release(held, "ann", desk=desk)
        assert self.woken() == [(f"p{at}", "Granted") for at in range(woken)]
        return desk

    def seal(self, agent: str, name: str) -> None:
        """Release what a proposal holds."""
        self.desk.release_session(agent, name, self.now)

    def woken(self) -> list[tuple[str, str]]:
        """Return the requests that were woken, with their verdicts, in the order of the log."""
        verdicts = [event for event in self.log if isinstance(event, VerdictGiven)]
        return [(event.request_id, event.status) for event in verdicts if event.cause == "wake"]

    def check(self) -> None:
        """Check that nothing waits for what is free, and that every ledger is the one that the log gives."""
        for ledger in self.ledgers:
            for refused in ledger.refused.values():
                session = ledger.session(refused.session.agent_id, refused.session.session_id)
                is_full = len(ledger.requests) >= ledger.in_force.max_waiting
                assert judge(ledger, session, refused.triples) in (("Die", "Wait") if is_full else ("Die",)), refused
            for request in ledger.requests.values():
                assert judge(ledger, ledger.named(request.session), request.triples, queued=True) == "Wait", request
            assert ledger_to_wire(read_ledger(ledger_to_wire(ledger))) == ledger_to_wire(self.ledger)
            assert ledger.copy() == ledger

    def recheck(self) -> None:
        """Give every verdict again."""
        again = Ledger()
        for event in self.log:
            if isinstance(event, VerdictGiven):
                assert recheck_verdict(again, event) is None
            again.fold(event)
        assert again == self.ledger


def manifest_of(agent: str, session: str, wanted: Iterable[str]) -> Manifest:
    """Return the manifest of some claims."""
    scope = [dict(zip(("predicate", "resource"), one.split(" ", 1), strict=True)) for one in wanted]
    return read_manifest({"ver": "1.0", "agent_id": agent, "session_id": session, "scope": scope}, settings=SETTINGS)


def _fit_together(wanted: tuple[str, ...]) -> bool:
    try:
        manifest_of("ann", "s", wanted)
    except RefusedError:
        return False
    return True


class Ask(NamedTuple):
    """A direct request, or one of a proposal."""

    desk: int
    agent: int
    wanted: tuple[str, ...]
    kind: str


class Move(NamedTuple):
    """What is done to which of the leases, the requests or the proposals."""

    desk: int
    kind: str
    which: int


PLACES = ("FILE:/a", "FILE:/a/*", "FILE:/a/x", "FILE:/a/x/y", "FILE:/b", "SYMBOL:S")
CLAIMS = st.builds(
    "{} {}".format, st.sampled_from(("MUTATES", "MUTATES", "CONSUMES", "DELETES")), st.sampled_from(PLACES)
)
DESKS = st.integers(0, 1)
ASKS = st.builds(
    Ask,
    DESKS,
    st.integers(0, len(AGENTS) - 1),
    st.lists(CLAIMS, min_size=1, max_size=3, unique_by=lambda one: one.split(" ")[1]).map(tuple).filter(_fit_together),
    st.sampled_from(("proposal", "proposal", "proposal", "direct", "queued")),
)
MOVES = st.builds(
    Move,
    DESKS,
    st.sampled_from(("release", "release", "seal", "revoke", "withdraw", "retry", "tick")),
    st.integers(0, 9),
)


def asked(realm: Realm, move: Ask, made: dict[str, Ask], name: str | None = None) -> None:
    desk, agent = realm.desks[move.desk], AGENTS[move.agent]
    try:
        if move.kind == "proposal":
            name = name or f"p{len(made)}"
            made[name] = move
            realm.propose(agent, name, *move.wanted, desk=desk)
        else:
            realm.ask(agent, *move.wanted, desk=desk, queue=move.kind == "queued", ttl_ms=500)
    except RefusedError as refused:
        if refused.code not in ("TERMINAL", "QUEUE_FULL"):  # a session that deletes what it wants more of
            raise


def moved(realm: Realm, move: Move, made: dict[str, Ask]) -> None:
    desk, ledger = realm.desks[move.desk], realm.ledger
    timed = [one for one in ledger.leases.values() if one.expires_at is not None]
    if move.kind == "tick":
        realm.now += 400
        desk.advance(realm.now)
    elif move.kind == "retry" and ledger.refused:
        name = list(ledger.refused)[move.which % len(ledger.refused)]
        asked(realm, made[name]._replace(desk=move.desk), made, name)
    elif move.kind == "withdraw" and (names := [*ledger.requests, *ledger.refused]):
        assert desk.withdraw(names[move.which % len(names)], realm.now)
    elif move.kind == "seal":
        sealed = sorted(
            {(one.session.agent_id, one.session.session_id) for one in ledger.leases.values()}
            - {(one.session.agent_id, one.session.session_id) for one in timed}
        )
        if sealed:
            desk.release_session(*sealed[move.which % len(sealed)], realm.now)
    elif move.kind in ("release", "revoke") and timed:
        lease = timed[move.which % len(timed)]
        desk.advance(realm.now)
        if lease.lease_id not in ledger.leases:
            return
        if move.kind == "revoke":
            desk.revoke([lease.lease_id], realm.now, by="operator", reason="test")
        else:
            realm.release([lease.lease_id], lease.session.agent_id, lease.session.session_id, desk=desk)
