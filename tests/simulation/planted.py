"""Faults to plant in the engine: each is what a mistake in one place would make of it."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from msgspec import structs

import authority.people.answers
import host.executor
import world.engine.domain_adoption
import world.engine.effect_runner
import world.engine.protocol
import world.klis.kernel
import world.klis.ledger
import world.klis.predicate
import world.pipeline.adopted_code.adoption_plan
import world.pipeline.driver
import world.pipeline.execution_state
import world.pipeline.judge
import world.pipeline.leasing.proposal_manifest
import world.pipeline.seal
import world.pipeline.shadowing
from authority import StandardAuthority
from host import Host
from world.engine.protocol import WorldProtocol
from world.errors import WorldProtocolError
from world.events.policy_events import ProposalShadowed
from world.klis.predicate import Predicate
from world.klis.refused_requests import RefusedRequests
from world.log import Transaction
from world.model.decision import Quorum, Ruling
from world.pipeline.driver import STAGES
from world.pipeline.steps import Decidable, LeftBehind, Step
from world.read_models.archive import Archive
from world.read_models.live.live_state import LiveState
from world.read_models.unit_lookup import UnitLookup
from world.state.ports import EffectTerms
from world.state.proposal import Proposal
from world.state.realm_state import RealmState
from worldprotocol.simulation import DrawnIntent, Scenario, SimulationStep
from worldprotocol.simulation.depot import scenario

Plant = Callable[[pytest.MonkeyPatch], None]


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _no_steps(*_: Any, **__: Any) -> tuple[Step, ...]:
    return ()


def patches_are_not_held_to_their_scope(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(host.executor, "first_outside", _nothing)


def nobody_asks_whether_an_effect_is_still_wanted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(world.engine.effect_runner, "_why_over", _nothing)


def a_commit_without_acknowledgement_is_done_again(patch: pytest.MonkeyPatch) -> None:
    run = WorldProtocol._run_unit

    def twice(self: WorldProtocol, commands: Any, **options: Any) -> Any:
        try:
            return run(self, commands, **options)
        except WorldProtocolError as error:
            if error.code != "COMMIT_UNKNOWN":
                raise
            self._forget()
            return run(self, commands, **options)

    patch.setattr(WorldProtocol, "_run_unit", twice)


def the_journal_is_not_looked_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Proposal, "effect_journal", lambda _self: {})


def a_decision_is_recorded_twice(patch: pytest.MonkeyPatch) -> None:
    decide = STAGES[Decidable]

    def twice(work: Any, decidable: Decidable) -> Iterable[Step]:
        following = decide(work, decidable)
        if following:
            made = work.emitted[-1]
            work.emit(made.stream, made.event)
        return following

    patch.setitem(STAGES, Decidable, twice)


def readers_and_writers_do_not_conflict(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(world.klis.predicate.OPPOSED, Predicate.CONSUMES, ())


def everybody_waits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(world.klis.kernel, "decide", lambda _mine, _other: "Wait")


def everybody_dies(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(world.klis.kernel, "decide", lambda _mine, _other: "Die")


def no_lease_expires(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(world.klis.ledger.Ledger, "expired", lambda _self, _now: [])


def nothing_is_superseded(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(STAGES, LeftBehind, _no_steps)


def the_time_to_answer_never_ends(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(world.pipeline.driver, "expire", _no_steps)


def every_effect_is_taken_for_idempotent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Host, "terms", lambda *_: EffectTerms(2_000, idempotent=True, retries=2, backoff_ms=500))


def what_failed_to_be_committed_is_remembered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WorldProtocol, "_forget", _nothing)
    patch.setattr(LiveState, "_drop_state", _nothing)
    follow = LiveState._follow

    def once(self: LiveState, size: int) -> None:
        """Follow, and fail where a state that is ahead of the log would be followed for ever."""
        follow(self, size)
        assert self._reaches(size)

    patch.setattr(LiveState, "_follow", once)


def an_intent_is_taken_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(UnitLookup, "proposal_of_intent", lambda _self, _intent: None)


def everything_is_approved(patch: pytest.MonkeyPatch) -> None:
    def judge(_self: Any, case: Any) -> Ruling:
        return Ruling("approve", "nobody", "why not", case.intent.body.scope_proposal)

    patch.setattr(StandardAuthority, "judge", judge)


def proposals_write_without_leases(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(world.pipeline.leasing.proposal_manifest, "manifest_of", _nothing)


def equal_keys_run_at_once(patch: pytest.MonkeyPatch) -> None:
    decide = STAGES[Decidable]

    def start(work: Any, decidable: Decidable) -> Iterator[Step]:
        key = decidable.proposal.submitted.execution_key
        for following in decide(work, decidable):
            running = work.realm.running.pop(key, None)
            yield following
            if running is not None:
                work.realm.running.setdefault(key, running)

    patch.setitem(STAGES, Decidable, start)


def a_worker_that_starts_takes_nothing_over(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(world.engine.protocol, "recover", _nothing)
    patch.setattr(world.pipeline.driver, "take_over", _no_steps)


def what_other_workers_asked_meanwhile_does_not_count(patch: pytest.MonkeyPatch) -> None:
    def due(self: RealmState, now: int) -> list[Proposal]:
        found = {}
        while self.retries and self.retries[0][0] <= now:
            _, name = heapq.heappop(self.retries)
            if name in self.proposals and self.still_lacks_leases(self.proposals[name]):
                found[name] = self.proposals[name]
        return list(found.values())

    patch.setattr(RealmState, "due_retries", due)


def what_is_freed_wakes_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RefusedRequests, "free", _nothing)


def a_majority_is_half_of_them(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Quorum, "needed", lambda self, members: members if self.rule == "unanimous" else members // 2)


def no_further_step_is_asked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(authority.people.answers, "ask_next_step", lambda _case, otherwise, *_: otherwise)


def an_answer_begins_the_time_anew(patch: pytest.MonkeyPatch) -> None:
    record = world.pipeline.judge._record
    patch.setattr(world.pipeline.judge, "_record", lambda *one, is_late, deadline=None: record(*one, is_late=is_late))


def who_rejects_approves(patch: pytest.MonkeyPatch) -> None:
    counted = authority.people.answers._counted

    def turned(case: Any, asked: Ruling, answer: Any, questions: Any) -> Ruling:
        ruling = counted(case, asked, answer, questions)
        return structs.replace(ruling, verdict="approve") if answer.choice == "reject" else ruling

    patch.setattr(authority.people.answers, "_counted", turned)


def a_time_out_approves(patch: pytest.MonkeyPatch) -> None:
    ended = authority.people.answers._ended
    patch.setattr(authority.people.answers, "_ended", lambda asked, _verdict, *more: ended(asked, "approve", *more))


def narrowings_by_people_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(authority.people.answers, "offered_scope", lambda case, _trace: case.intent.body.scope_proposal)


def what_is_called_off_goes_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Proposal, "cancelled", property(_nothing, _nothing))


def who_lost_their_leases_goes_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(world.pipeline.execution_state, "lost_leases", lambda *_: False)
    patch.setattr(world.pipeline.seal, "lost_leases", lambda *_: False)


def effects_are_tried_for_ever(patch: pytest.MonkeyPatch) -> None:
    terms = Host.terms
    patch.setattr(Host, "terms", lambda *given: replace(terms(*given), retries=99))


def effects_are_tried_again_at_once(patch: pytest.MonkeyPatch) -> None:
    terms = Host.terms
    patch.setattr(Host, "terms", lambda *given: replace(terms(*given), backoff_ms=1))


def nobody_is_shadowed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(world.pipeline.shadowing, "shadowed_by", lambda *_: None)


def everybody_is_shadowed(patch: pytest.MonkeyPatch) -> None:
    def all_of_them(configured: Any, _actor: str) -> Any:
        return None if configured is None else configured.name

    patch.setattr(world.pipeline.shadowing, "shadowed_by", all_of_them)


def a_shadow_rules(patch: pytest.MonkeyPatch) -> None:
    ruled = world.pipeline.judge._record

    def record(work: Any, proposal: Proposal, ruling: Ruling, binding: Any, **more: Any) -> Iterable[Step]:
        last = work.emitted[-1].event
        if isinstance(last, ProposalShadowed):
            ruling = last.ruling
        return ruled(work, proposal, ruling, binding, **more)

    patch.setattr(world.pipeline.judge, "_record", record)


def what_is_open_outlives_its_schema(patch: pytest.MonkeyPatch) -> None:
    planned = world.pipeline.adopted_code.adoption_plan.plan_adoption

    def plan(*given: Any) -> Any:
        return structs.replace(planned(*given), ends=(), blocking=())

    patch.setattr(world.engine.domain_adoption, "plan_adoption", plan)


def any_data_fits_a_new_schema(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(world.pipeline.adopted_code.adoption_plan, "misfits", lambda *_: [])


def a_domain_that_is_out_of_force_still_acts(patch: pytest.MonkeyPatch) -> None:
    outcome = world.engine.protocol._outcome

    def fitting(work: Any, pending: Any, others: Any, *, fits: bool) -> Any:
        return outcome(work, pending, others, fits=True)

    patch.setattr(world.engine.protocol, "_outcome", fitting)


def an_index_gives_proposals_in_another_order(patch: pytest.MonkeyPatch) -> None:
    load = Archive.load_realm

    def turned(self: Archive) -> RealmState:
        realm = load(self)
        realm.proposals = dict(reversed(realm.proposals.items()))
        return realm

    patch.setattr(Archive, "load_realm", turned)


def a_unit_that_was_ended_is_not_done_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(world.engine.protocol, "UnitEndedError", ZeroDivisionError)


def only_the_time_of_the_last_commit_is_kept(patch: pytest.MonkeyPatch) -> None:
    rows = Transaction._clock_rows
    patch.setattr(Transaction, "_clock_rows", lambda *given: rows(*given)[:1])


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
    what_failed_to_be_committed_is_remembered: {"CARD-log", "CARD-replay", "KP-3d", "KP-3e", "WP-exec", "CRASH"},
    an_intent_is_taken_twice: {"INT-6.1.2", "CRASH"},
    everything_is_approved: {"CARD-policy"},
    proposals_write_without_leases: {"KM-2.2", "CRASH"},
    equal_keys_run_at_once: {"WP-exkey", "CRASH"},
    a_worker_that_starts_takes_nothing_over: {"WP-exec"},
    what_other_workers_asked_meanwhile_does_not_count: {"KP-3d"},
    what_is_freed_wakes_nothing: {"LIVE-wake"},
    a_majority_is_half_of_them: {"WP-bind"},
    no_further_step_is_asked: {"WP-bind"},
    an_answer_begins_the_time_anew: {"WP-decision"},
    who_rejects_approves: {"WP-bind"},
    a_time_out_approves: {"WP-bind"},
    narrowings_by_people_are_forgotten: {"INT-13.3", "INT-13.5"},
    what_is_called_off_goes_on: {"WP-exec", "CRASH"},
    who_lost_their_leases_goes_on: {"WP-exec", "CRASH"},
    effects_are_tried_for_ever: {"HC-journal"},
    effects_are_tried_again_at_once: {"HC-journal"},
    nobody_is_shadowed: {"CARD-policy"},
    everybody_is_shadowed: {"CARD-policy"},
    a_shadow_rules: {"CARD-policy"},
    what_is_open_outlives_its_schema: {"WP-schema"},
    any_data_fits_a_new_schema: {"WP-schema"},
    a_domain_that_is_out_of_force_still_acts: {"WP-schema"},
    an_index_gives_proposals_in_another_order: {"CARD-replay"},
    a_unit_that_was_ended_is_not_done_again: {"CRASH"},
    only_the_time_of_the_last_commit_is_kept: {"KP-4c"},
}
"""Each fault, and the requirements by one of which it must be found."""


def _wire(chance: Random) -> DrawnIntent:
    return DrawnIntent(
        "wire", {"to": chance.choice("abc"), "amount": 3}, chance.choice((None, ("data.paid.*", "data.receipts")))
    )


WIRES = replace(scenario, draw=_wire)
"""The depot, where all want payments by the bank that does not know a payment again."""


def _name(chance: Random) -> DrawnIntent:
    return DrawnIntent("name", {"name": "north"}) if chance.random() < 0.5 else DrawnIntent("add", {"to": "a", "by": 1})


def _pay(chance: Random) -> DrawnIntent:
    return DrawnIntent("pay", {"to": chance.choice("abc"), "amount": 3})


PAYS = replace(scenario, draw=_pay, actors=scenario.actors[:2], bad_weather=0.9)
"""The depot, where all want payments by the bank that knows a payment again, and it is rarely there."""

NAMES = replace(scenario, draw=_name, actors=scenario.actors[:3])
"""The depot, where nothing takes long, and much is named: its later edition can be adopted."""

SCENARIOS: Mapping[Plant, Scenario] = {
    nobody_asks_whether_an_effect_is_still_wanted: WIRES,
    every_effect_is_taken_for_idempotent: WIRES,
    a_domain_that_is_out_of_force_still_acts: NAMES,
    effects_are_tried_again_at_once: PAYS,
    any_data_fits_a_new_schema: NAMES,
}
"""What a fault is looked for in, where that is not the depot as it is."""

_FAILS = [
    SimulationStep("fly", 0, {"which": 0, "weather": "fails", "record": True}),
    SimulationStep("time", 0, {"ms": 8_000}),
]

SCRIPTS: Mapping[Plant, list[SimulationStep]] = {
    narrowings_by_people_are_forgotten: [
        SimulationStep("submit", 0, {"actor": 2, "type": "add", "input": {"to": "a", "by": 1}}),
        SimulationStep("decide", 0, {"of": "waiting", "which": 5, "actor": 1, "choice": "narrow"}),
    ],
    effects_are_tried_for_ever: [
        SimulationStep("submit", 0, {"actor": 0, "type": "pay", "input": {"to": "a", "amount": 3}}),
        *(_FAILS * 3),
    ],
}
"""Steps that bring a fault to light which seeds seldom meet."""
