"""step: from an order to an outcome, purely; and the loop around it, as the protocol drives it."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from pydantic import Field, create_model

from host import STATE_CONFLICT, EffectRegistry, Host, handler, rebuild_journal
from tests.host.driving import NOW, Record, hosted, order, run, shop, start
from world.core import Domain, EffectAnswer, effect, set_
from world.core.execution import MAX_EFFECTS
from world.errors import RefusedError
from world.events.execution_events import EffectFulfilled, EffectRequested
from world.model.identity import requirement_id, snapshot_hash
from world.model.snapshot import Meta
from world.state.ports import Executor


@handler("pay", time_limit_ms=5_000, idempotent=True)
def pay(params: Any, call: Any) -> Any:
    return {"paid": params["item"], "left": params["stock"]}


@handler("http.get")
def get(params: Any, call: Any) -> Any:
    return [set_("stock", 9)]


def test_a_host_is_an_executor() -> None:
    executor: Executor = hosted(pay)
    assert executor.terms("pay") == pay.terms
    assert executor.terms("unknown").idempotent is False


def test_a_host_tells_what_it_works_with() -> None:
    domain, effects = shop(), EffectRegistry([pay])
    host = Host(domain, effects)
    assert host.domain is domain
    assert host.effects is effects


# --- how executions end ---------------------------------------------------------------------------


def test_a_pure_action_completes_in_one_step() -> None:
    host = hosted()
    given = order(host.domain, "steer", {"patches": [set_("stock", 7).to_wire()]})
    outcome = host.step(given)
    assert outcome.status == "completed"
    assert outcome.patches == (set_("stock", 7),)
    assert outcome.snapshot.data["stock"] == 7
    assert outcome.requirements == ()


@pytest.mark.requirement("IC-effects", "IC-reentry", "INT-14.3")
def test_an_action_pauses_for_an_effect_and_goes_on_with_its_result() -> None:
    host = hosted(pay)
    given = order(host.domain, "buy", {"item": "tea"})
    waiting = host.step(given)
    assert waiting.status == "pending"
    assert waiting.patches == ()
    (asked,) = waiting.requirements
    assert (asked.type, asked.params) == ("pay", {"item": "tea", "stock": 2})
    done = host.step(replace(given, journal={asked.id: host.perform(given, asked).result}))
    assert done.status == "completed"
    assert done.snapshot.data["receipt"] == {"paid": "tea", "left": 2}
    assert done.snapshot.data["stock"] == 2
    assert done.snapshot.computed == {"computed.lineCount": 1}


@pytest.mark.requirement("IC-effects", "HC-handlers")
def test_the_patches_of_an_effect_are_taken_over_by_a_declarative_flow() -> None:
    host = hosted(get)
    outcome = run(host, order(host.domain, "fetch"))
    assert outcome.status == "completed"
    assert [patch.path for patch in outcome.patches] == ["title", "stock", "stamps"]
    assert outcome.snapshot.data["stock"] == 9


def test_a_flow_that_halts_is_completed() -> None:
    host = hosted()
    assert host.step(order(host.domain, "stop", {"item": "x"})).status == "completed"


def test_an_error_of_the_action_fails_the_proposal_with_that_error() -> None:
    host = hosted()
    outcome = host.step(order(host.domain, "refuse"))
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert outcome.error.code == "NO"
    assert outcome.snapshot.system.errors == (outcome.error,)


@pytest.mark.requirement("WP-exec")
@pytest.mark.parametrize(
    ("action", "value", "code"),
    [
        ("absent", None, "UNKNOWN_ACTION"),
        ("buy", {"item": 3}, "INVALID_INPUT"),
        ("buy", None, "INVALID_INPUT"),
        ("steer", {"patches": [{"op": "set", "path": "stock", "value": "many"}]}, "TYPE_MISMATCH"),
        ("steer", {"patches": [{"op": "grow"}]}, "ACTION_RAISED"),
    ],
)
def test_whatever_an_intent_asks_the_proposal_ends_failed_and_can_be_sealed(action: str, value: Any, code: str) -> None:
    host = hosted()
    given = order(host.domain, action, value)
    outcome = host.step(given)
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert outcome.error.code == code
    assert outcome.snapshot.data == given.snapshot.data
    assert snapshot_hash(outcome.snapshot.to_wire()) != snapshot_hash(given.snapshot.to_wire())


@pytest.mark.requirement("WP-exec")
def test_an_action_that_leaves_the_process_fails_and_does_not_take_it_along() -> None:
    domain = shop()

    @domain.action("leave", version="1")
    def leave(ctx: Any) -> Any:
        raise SystemExit(3)

    outcome = hosted(domain=domain).step(order(domain, "leave"))
    assert outcome.error is not None
    assert outcome.error.code == "ACTION_RAISED"
    assert "SystemExit: 3" in outcome.error.message


@pytest.mark.requirement("WP-exec", "HC-context")
def test_a_fault_in_the_computation_itself_fails_the_proposal(monkeypatch: pytest.MonkeyPatch) -> None:
    host = hosted()
    monkeypatch.setattr(host.domain, "run_action", lambda execution: 1 // 0)
    given = order(host.domain, "steer", {"patches": []})
    outcome = host.step(given)
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert outcome.error.code == "INTERNAL_ERROR"
    assert "ZeroDivisionError" in outcome.error.message
    assert outcome.snapshot.data is given.snapshot.data
    assert outcome.snapshot.computed == {"computed.lineCount": 0}
    assert outcome.snapshot.system.last_error == outcome.error
    assert outcome.snapshot.meta == Meta(given.snapshot.meta.version + 1, NOW, given.seed, host.domain.schema.hash)


# --- the loop ends --------------------------------------------------------------------------------


def answered_in_advance(host: Host, effects: int) -> dict[str, EffectAnswer]:
    """Return a journal that answers this many effects of ``ask``, without making any."""
    schema = host.domain.schema.hash
    places = [f"actions.ask.python[{index}]" for index in range(effects)]
    return {
        requirement_id(schema, "intent-1", "ask", place, "pay", {}): EffectAnswer(index)
        for index, place in enumerate(places)
    }


@pytest.mark.requirement("WP-exec")
def test_an_execution_makes_a_bounded_number_of_effects() -> None:
    host = hosted(pay)
    full = answered_in_advance(host, MAX_EFFECTS)
    asks = {"effects": [{"type": "pay"}] * MAX_EFFECTS}
    assert host.step(order(host.domain, "ask", asks, journal=full)).status == "completed"
    asks["effects"].append({"type": "pay"})
    outcome = host.step(order(host.domain, "ask", asks, journal=full))
    assert outcome.error is not None
    assert outcome.error.code == "LIMIT_EXCEEDED"


@pytest.mark.requirement("IC-reentry", "WP-exec")
def test_an_action_that_asks_for_something_else_each_time_ends_at_its_second_effect() -> None:
    domain, numbers, made = shop(), count(), []

    @domain.action("fickle", version="1")
    def fickle(ctx: Any) -> Any:
        while True:
            yield effect("pay", item=str(next(numbers)), stock=0)

    @handler("pay")
    def counted(params: Any, call: Any) -> Any:
        made.append(params["item"])

    outcome = run(hosted(counted, domain=domain), order(domain, "fickle"))
    assert outcome.error is not None
    assert outcome.error.code == STATE_CONFLICT
    assert len(made) == 1


@pytest.mark.requirement("IC-reentry")
@pytest.mark.parametrize("other", [{"effects": [{"type": "other"}]}, {"effects": []}])
def test_an_execution_that_would_now_ask_for_other_effects_is_a_conflict(other: Any) -> None:
    host = hosted(pay)
    journal = answered_in_advance(host, 1)
    outcome = host.step(order(host.domain, "ask", other, journal=journal))
    assert outcome.error is not None
    assert outcome.error.code == STATE_CONFLICT
    assert (outcome.error.action_id, outcome.error.node_path) == ("ask", "")


def test_an_execution_on_a_moved_state_that_asks_for_the_same_goes_on() -> None:
    host = hosted(pay)
    given = order(host.domain, "ask", {"effects": [{"type": "pay", "args": {"item": "a", "stock": 1}}]})
    (asked,) = host.step(given).requirements
    moved = replace(
        given, snapshot=start(host.domain, title="moved"), journal={asked.id: host.perform(given, asked).result}
    )
    outcome = host.step(moved)
    assert outcome.status == "completed"
    assert outcome.snapshot.data["title"] == "moved"


def test_the_actions_own_error_on_a_moved_state_is_told() -> None:
    host = hosted(pay)
    given = order(host.domain, "buy", {"item": "tea"})
    (asked,) = host.step(given).requirements
    sold_out = replace(
        given, snapshot=start(host.domain, stock=0), journal={asked.id: host.perform(given, asked).result}
    )
    outcome = host.step(sold_out)
    assert outcome.error is not None
    assert outcome.error.code == "SOLD_OUT"


effect_lists = st.lists(
    st.builds(
        lambda name, args: {"type": name, "args": args},
        st.sampled_from(["pay", "http.get", "raises", "absent"]),
        st.fixed_dictionaries({"item": st.sampled_from("ab"), "stock": st.integers(0, 2)}),
    ),
    max_size=5,
)


@handler("raises")
def raises(params: Any, call: Any) -> Any:
    raise ValueError(params)


@pytest.mark.requirement("IC-effects", "IC-reentry", "IC-reqid", "HC-journal")
@given(effect_lists, st.booleans())
def test_every_effect_is_made_once_and_every_execution_ends(effects: list[Any], catch: bool) -> None:
    host = hosted(pay, get, raises)
    record = Record(order(host.domain, "ask", {"effects": effects, "catch": catch}))
    outcome = record.run(host)
    requests = [event for event in record.events if isinstance(event, EffectRequested)]
    results = [event for event in record.events if isinstance(event, EffectFulfilled)]
    bad = [index for index, asked in enumerate(effects) if asked["type"] in ("raises", "absent")]
    expected = effects if catch or not bad else effects[: bad[0] + 1]
    assert [event.requirement.type for event in requests] == [asked["type"] for asked in expected]
    assert len({event.requirement.id for event in requests}) == len(requests)  # the same call twice is two
    assert [event.requirement_id for event in results] == [event.requirement.id for event in requests]
    assert outcome.status == ("completed" if catch or not bad else "failed")


# --- purity, and one attempt through the whole execution ------------------------------------------


@pytest.mark.requirement("HC-compute")
def test_equal_orders_give_equal_outcomes() -> None:
    host = hosted(pay)
    for action, value in (("buy", {"item": "tea"}), ("refuse", None), ("stamp", None)):
        given = order(host.domain, action, value)
        assert host.step(given) == host.step(given) == hosted(pay).step(order(shop(), action, value))


@pytest.mark.requirement("HC-compute")
def test_a_step_changes_neither_its_order_nor_its_state() -> None:
    host = hosted(pay)
    given = order(host.domain, "buy", {"item": "tea"})
    before = given.snapshot.to_wire()
    host.step(given)
    assert given.snapshot.to_wire() == before
    assert given.journal == {}


@pytest.mark.requirement("INV-I5", "INT-14.3", "HC-context", "IC-reentry")
def test_intent_time_and_seed_stay_the_same_through_all_steps() -> None:
    host = hosted(pay)
    seen = []
    for _ in range(2):
        outcome = run(host, order(host.domain, "stamp", intent_id="mine"))
        assert outcome.status == "completed"
        seen.append(outcome.snapshot.data)
    (one, other) = seen
    assert one == other
    now, new_id, random, later, next_id = one["stamps"]
    assert now == later == NOW
    assert new_id != next_id
    assert 0 <= random < 1
    assert one["profile"] == {"intent": "mine"}


def test_another_seed_gives_other_ids() -> None:
    host = hosted(pay)
    one = run(host, order(host.domain, "stamp"))
    other = run(host, replace(order(host.domain, "stamp"), seed="other"))
    assert one.snapshot.data["stamps"][1] != other.snapshot.data["stamps"][1]


# --- after a crash --------------------------------------------------------------------------------


class ProcessEnds(BaseException):
    """What kills a process in the middle of an effect, as far as a test can."""


@pytest.mark.requirement("HC-journal", "IC-reentry")
@pytest.mark.parametrize("survived", range(4))
def test_after_a_crash_an_execution_goes_on_from_its_journal_and_repeats_no_effect(survived: int) -> None:
    made: list[str] = []
    alive = [True]

    @handler("pay", idempotent=True)
    def once(params: Any, call: Any) -> Any:
        if alive[0] and len(made) == survived:
            raise ProcessEnds
        made.append(call.idempotency_key)
        return len(made)

    domain = shop()
    effects = [{"type": "pay", "args": {"item": "tea", "stock": 1}}] * 4
    record = Record(order(domain, "ask", {"effects": effects}))
    with pytest.raises(ProcessEnds):
        record.run(hosted(once, domain=domain))
    journal = rebuild_journal(record.events, "proposal-1")
    assert len(journal.results) == survived
    assert [asked.type for asked in journal.in_doubt] == ["pay"]
    alive[0] = False
    outcome = record.run(hosted(once, domain=shop()))  # another process: another host, the same log
    assert outcome.status == "completed"
    assert outcome.snapshot.data["receipt"] == [1, 2, 3, 4]
    assert len(set(made)) == len(made) == 4


@pytest.mark.requirement("HC-journal")
def test_a_step_never_makes_an_effect() -> None:
    @handler("pay")
    def forbidden(params: Any, call: Any) -> Any:
        raise AssertionError("made by a step")

    host = hosted(forbidden)
    given = order(host.domain, "ask", {"effects": [{"type": "pay"}]})
    (asked,) = host.step(given).requirements
    outcome = host.step(replace(given, journal={asked.id: EffectAnswer("from the journal")}))
    assert outcome.snapshot.data["receipt"] == ["from the journal"]


# --- construction ---------------------------------------------------------------------------------


@pytest.mark.requirement("INT-13.5")
def test_a_host_is_enforcing_unless_told_otherwise() -> None:
    assert Host(shop(), EffectRegistry()).enforcement == "enforcing"
    assert Host(shop(), EffectRegistry(), enforcement="trusting").enforcement == "trusting"


@pytest.mark.parametrize("slip", ["Trusting", "", "off", None])
def test_an_unknown_enforcement_mode_is_refused(slip: Any) -> None:
    with pytest.raises(RefusedError, match="Unknown enforcement mode"):
        Host(shop(), EffectRegistry(), enforcement=slip)


def test_a_domain_with_faults_is_refused_when_the_host_takes_it_on() -> None:
    domain = shop()
    domain.flow("broken", {"kind": "no such kind"})
    with pytest.raises(RefusedError, match="fault"):
        Host(domain, EffectRegistry())


@pytest.mark.parametrize("modelled", [False, True])
def test_a_host_takes_on_a_domain_that_only_earlier_rules_accept(modelled: bool) -> None:
    state = create_model("Owned", own=(int, Field(0, alias="$own"))) if modelled else None
    fields = {"fields": {"$own": {"type": "number", "default": 0}}}
    domain: Domain[Any] = Domain("urn:test:own", version="1.0.0", state=state or fields)
    domain.flow("go", {"kind": "seq", "steps": []})
    with pytest.raises(RefusedError):
        domain.schema  # noqa: B018
    assert Host(domain, EffectRegistry()).domain is domain
