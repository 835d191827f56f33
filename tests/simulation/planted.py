"""Faults to plant in the engine: each is what a mistake in one place would make of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest

import host.executor
import world.arbitration
import world.execution
import world.judgement
import world.klis.kernel
import world.klis.ledger
import world.klis.predicate
import world.making
import world.protocol
import world.submission
from authority import StandardAuthority
from host import Host
from world.decision import Ruling
from world.errors import WorldProtocolError
from world.klis.predicate import Predicate
from world.ports import EffectTerms
from world.proposal import Proposal
from world.protocol import WorldProtocol
from world.views.unit import UnitLookup
from worldprotocol.simulation import Scenario, Wish
from worldprotocol.simulation.depot import scenario

Plant = Callable[[pytest.MonkeyPatch], None]


def _nothing(*_: Any, **__: Any) -> None:
    return None


def patches_are_not_held_to_their_scope(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(host.executor, "first_outside", _nothing)


def nobody_asks_whether_an_effect_is_still_wanted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(world.making, "_why_over", _nothing)


def a_commit_without_acknowledgement_is_done_again(patch: pytest.MonkeyPatch) -> None:
    run = WorldProtocol._run_unit

    def twice(self: WorldProtocol, commands: Any) -> Any:
        try:
            return run(self, commands)
        except WorldProtocolError as error:
            if error.code != "COMMIT_UNKNOWN":
                raise
            self._forget()
            return run(self, commands)

    patch.setattr(WorldProtocol, "_run_unit", twice)


def the_journal_is_not_looked_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Proposal, "effect_journal", lambda _self: {})


def a_decision_is_recorded_twice(patch: pytest.MonkeyPatch) -> None:
    start = world.execution.start_next

    def twice(work: Any, key: str) -> None:
        made = next(item for item in reversed(work.emitted) if item.event.TOPIC == "decision.made")
        work.emit(made.stream, made.event)
        start(work, key)

    patch.setattr(world.arbitration, "start_next", twice)


def readers_and_writers_do_not_conflict(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(world.klis.predicate.OPPOSED, Predicate.CONSUMES, ())


def everybody_waits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(world.klis.kernel, "decide", lambda _mine, _other: "Wait")


def everybody_dies(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(world.klis.kernel, "decide", lambda _mine, _other: "Die")


def no_lease_expires(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(world.klis.ledger.Ledger, "expired", lambda _self, _now: [])


def nothing_is_superseded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(world.judgement, "supersede", _nothing)


def the_time_to_answer_never_ends(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(world.protocol, "expire", _nothing)
    patch.setattr(world.judgement, "expire", _nothing)


def every_effect_is_taken_for_idempotent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Host, "terms", lambda *_: EffectTerms(2_000, idempotent=True, retries=2, backoff_ms=500))


def what_failed_to_be_committed_is_remembered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WorldProtocol, "_forget", _nothing)


def an_intent_is_taken_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(UnitLookup, "proposal_of_intent", lambda _self, _intent: None)


def everything_is_approved(patch: pytest.MonkeyPatch) -> None:
    def judge(_self: Any, case: Any) -> Ruling:
        return Ruling("approve", "nobody", "why not", case.intent.body.scope_proposal)

    patch.setattr(StandardAuthority, "judge", judge)


def proposals_write_without_leases(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(world.arbitration, "manifest_of", _nothing)


def equal_keys_run_at_once(patch: pytest.MonkeyPatch) -> None:
    def start(work: Any, key: str) -> None:
        running = work.realm.running.pop(key, None)
        world.execution.start_next(work, key)
        if running is not None:
            work.realm.running.setdefault(key, running)

    patch.setattr(world.arbitration, "start_next", start)


def a_worker_that_starts_takes_nothing_over(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(world.protocol, "recover", _nothing)


FOUND_BY: Mapping[Plant, set[str]] = {
    patches_are_not_held_to_their_scope: {"INT-13.5"},
    nobody_asks_whether_an_effect_is_still_wanted: {"HC-journal"},
    a_commit_without_acknowledgement_is_done_again: {"INT-6.1.2", "CRASH"},
    the_journal_is_not_looked_up: {"HC-journal", "CRASH"},
    a_decision_is_recorded_twice: {"WP-decision", "WP-fsm", "CRASH"},
    readers_and_writers_do_not_conflict: {"KP-2a", "KP-3b", "KP-5a"},
    everybody_waits: {"KP-3a", "KP-3b"},
    everybody_dies: {"KP-3d"},
    no_lease_expires: {"KP-4b", "KP-4c", "CRASH"},
    nothing_is_superseded: {"WP-epoch"},
    the_time_to_answer_never_ends: {"WP-decision"},
    every_effect_is_taken_for_idempotent: {"HC-journal"},
    what_failed_to_be_committed_is_remembered: {"CARD-log", "CARD-replay", "KP-3e", "WP-exec", "CRASH"},
    an_intent_is_taken_twice: {"INT-6.1.2", "CRASH"},
    everything_is_approved: {"CARD-policy"},
    proposals_write_without_leases: {"KM-2.2", "CRASH"},
    equal_keys_run_at_once: {"WP-exkey", "CRASH"},
    a_worker_that_starts_takes_nothing_over: {"WP-exec"},
}
"""Each fault, and the requirements by one of which it must be found."""


def _wire(chance: Random) -> Wish:
    return Wish(
        "wire", {"to": chance.choice("abc"), "amount": 3}, chance.choice((None, ("data.paid.*", "data.receipts")))
    )


WIRES = replace(scenario, draw=_wire)
"""The depot, where all want payments by the bank that does not know a payment again."""

SCENARIOS: Mapping[Plant, Scenario] = {
    nobody_asks_whether_an_effect_is_still_wanted: WIRES,
    every_effect_is_taken_for_idempotent: WIRES,
}
"""What a fault is looked for in, where that is not the depot as it is."""
