"""An execution performed again from its record agrees with it; any change of it is found and named."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from host import STATE_CONFLICT, EffectFailure, Host, handler, recheck_execution
from tests.host.driving import Record, hosted, order, shop, start
from world.core import Domain, EffectAnswer, merge, set_
from world.errors import DivergenceError
from world.model.identity import requirement_id
from world.model.intent import IntentScope
from world.model.snapshot import ErrorValue


@handler("pay")
def pay(params: Any, call: Any) -> Any:
    return {"paid": params.get("item")}


@handler("declined")
def declined(params: Any, call: Any) -> Any:
    return EffectFailure("CARD_DECLINED", "No money.", {"attempts": 2})


@handler("http.get")
def get(params: Any, call: Any) -> Any:
    return [set_("stock", 9)]


@handler("pay")
def forbidden(params: Any, call: Any) -> Any:
    raise AssertionError("a recheck made an effect")


def record_of(action: str, value: Any = None, *, enforcement: Any = "enforcing", **given: Any) -> Record:
    host = hosted(pay, declined, get, enforcement=enforcement)
    record = Record(order(host.domain, action, value, **given))
    record.run(host)
    return record


def recheck(record: Record, **changed: Any) -> DivergenceError | None:
    sealed = msgspec.structs.replace(record.sealed(), **changed)
    return recheck_execution(
        hosted(forbidden), record.order(), sealed, enforcement="enforcing", requested=record.requested()
    )


RECORDS: dict[str, Any] = {
    "with an effect": ("buy", {"item": "tea"}, {}),
    "of a flow": ("fetch", None, {}),
    "halted": ("stop", {"item": "x"}, {}),
    "with ids and chance": ("stamp", None, {}),
    "that failed": ("refuse", None, {}),
    "whose effect failed": ("ask", {"effects": [{"type": "pay"}, {"type": "declined"}]}, {}),
    "without a handler": ("ask", {"effects": [{"type": "absent"}]}, {}),
    "with a caught failure": ("ask", {"effects": [{"type": "declined"}], "catch": True}, {}),
    "outside its scope": ("buy", {"item": "tea"}, {"paths": ["title"]}),
    "of bad input": ("buy", {"item": 3}, {}),
    "of an unknown action": ("absent", None, {}),
}


@pytest.mark.requirement("HC-journal", "HC-context")
@pytest.mark.parametrize("name", RECORDS)
def test_an_execution_agrees_with_its_record_and_makes_no_effect(name: str) -> None:
    action, value, given = RECORDS[name]
    assert recheck(record_of(action, value, **given)) is None


def diverged(record: Record, **changed: Any) -> DivergenceError:
    found = recheck(record, **changed)
    assert isinstance(found, DivergenceError)
    assert found.code == "EXECUTION_DIVERGED"
    assert "proposal-1" in found.message
    assert found.details["what"] in found.message
    return found


COMPLETED: dict[str, dict[str, Any]] = {
    "the outcome": {"outcome": "failed"},
    "the error": {"error": ErrorValue.at("NO", "no", "buy", "", 0)},
    "patch 0": {"patches": [set_("stock", 7).to_wire()]},
    "patch 1": {"patches": [set_("stock", 2).to_wire()]},
    "the snapshotHash": {"snapshot_hash": "0" * 64},
    "the contentId": {"content_id": "0" * 64},
    "the worldId": {"world_id": "0" * 64},
}


@pytest.mark.parametrize("what", COMPLETED)
def test_a_changed_record_is_found_and_what_differs_is_named(what: str) -> None:
    found = diverged(record_of("buy", {"item": "tea"}), **COMPLETED[what])
    assert found.details["what"] == what
    assert found.details["recorded"] != found.details["computed"]


def test_a_patch_too_many_is_found() -> None:
    record = record_of("buy", {"item": "tea"})
    patches = [*record.sealed().patches, set_("title", "more")]
    found = diverged(record, patches=patches)
    assert (found.details["what"], found.details["computed"]) == ("patch 3", None)
    assert "now nothing" in found.message


@pytest.mark.parametrize("value", [1.0, True, "1", None])
def test_values_of_another_kind_are_told_apart_though_python_calls_some_equal(value: Any) -> None:
    record = record_of("steer", {"patches": [set_("receipt", 1).to_wire()]})
    found = recheck(record, patches=[set_("receipt", value)])
    assert (found is None) == (value == 1.0 and not isinstance(value, bool))


def test_what_no_host_can_have_recorded_is_found() -> None:
    assert diverged(record_of("buy", {"item": "tea"}), patches=[set_("", "no data")]).details["what"] == "patch 0"
    assert diverged(record_of("refuse"), error=None).details["what"] == "the error"


def test_another_error_is_found_but_its_words_and_its_time_do_not_count() -> None:
    record = record_of("refuse")
    error = record.sealed().error
    assert error is not None
    assert recheck(record, error=structs.replace(error, message="other words", timestamp=0)) is None
    assert diverged(record, error=structs.replace(error, code="OTHER")).details["what"] == "the error"
    assert diverged(record, error=structs.replace(error, context={"a": 1})).details["what"] == "the error"


def test_the_first_difference_is_told() -> None:
    found = diverged(record_of("buy", {"item": "tea"}), patches=[], snapshot_hash="0" * 64, world_id="0" * 64)
    assert found.details["what"] == "patch 0"


def test_another_parent_is_another_world() -> None:
    assert diverged(record_of("buy", {"item": "tea"}), parent="1" * 64).details["what"] == "the worldId"


def test_a_lost_result_is_told_as_what_the_execution_waits_for() -> None:
    record = record_of("buy", {"item": "tea"})
    lost = structs.replace(record.order(), journal={})
    found = recheck_execution(hosted(forbidden), lost, record.sealed(), enforcement="enforcing")
    assert found is not None
    assert found.details["what"] == "the outcome"
    assert "pending on pay" in found.message


def test_a_changed_result_a_changed_base_and_a_changed_input_are_found() -> None:
    record = record_of("buy", {"item": "tea"})
    whole = record.order()
    (name,) = whole.journal
    for changed in (
        structs.replace(whole, journal={name: EffectAnswer("other")}),
        structs.replace(whole, snapshot=start(shop(), stock=5)),
        structs.replace(whole, now=whole.now, intent=order(shop(), "buy", {"item": "milk"}).intent),
        structs.replace(whole, approved_scope=IntentScope.read({"allowedPaths": ["title"]})),
    ):
        assert recheck_execution(hosted(pay), changed, record.sealed(), enforcement="enforcing") is not None


@pytest.mark.requirement("IC-reqid")
def test_a_request_that_was_tampered_with_is_found() -> None:
    record = record_of("buy", {"item": "tea"})
    (asked,) = record.requested()
    schema = record.sealed().schema_hash
    place = ("buy", asked.node_path, "pay", asked.params)
    assert asked.id == requirement_id(schema, "intent-1", *place)
    for forged in (structs.replace(asked, params={"item": "gold"}), structs.replace(asked, type="give")):
        found = recheck_execution(
            hosted(pay), record.order(), record.sealed(), enforcement="enforcing", requested=[forged]
        )
        assert found is not None
        assert found.details["what"] == "the id of a request"


@pytest.mark.requirement("INT-13.5")
def test_the_enforcement_that_was_in_force_counts_and_not_the_hosts_own() -> None:
    record = record_of("buy", {"item": "tea"}, paths=["title"], enforcement="trusting")
    for host in (hosted(pay), hosted(pay, enforcement="trusting")):
        assert recheck_execution(host, record.order(), record.sealed(), enforcement="trusting") is None
        found = recheck_execution(host, record.order(), record.sealed(), enforcement="enforcing")
        assert found is not None
        assert found.details["what"] == "the outcome"


def test_another_domain_cannot_recheck() -> None:
    record = record_of("buy", {"item": "tea"})
    other = Domain("urn:test:other", version="1.0.0", state={"fields": {}})
    other.flow("stop", {"kind": "halt"})
    found = recheck_execution(hosted(domain=other), record.order(), record.sealed(), enforcement="enforcing")
    assert found is not None
    assert found.code == "CANNOT_RECHECK"
    assert other.schema.hash in found.message


def conflict_on_a_moved_head() -> tuple[Host, Record]:
    """Return a record whose effects were made on one head, sealed as a conflict on another."""
    host = hosted(pay)
    made_on = Record(order(host.domain, "buy", {"item": "tea"}))
    made_on.run(host)
    moved = structs.replace(made_on.order(), snapshot=start(host.domain, stock=8))
    record = Record(structs.replace(moved, journal={}))
    record.events = [event for event in made_on.events if event.TOPIC.startswith("effect.")]
    outcome = host.step(record.order())
    assert outcome.error is not None
    assert outcome.error.code == STATE_CONFLICT
    record.seal(host, outcome)
    return host, record


@pytest.mark.requirement("IC-reentry")
def test_a_conflict_agrees_with_its_record() -> None:
    _, record = conflict_on_a_moved_head()
    assert recheck(record) is None


def test_a_conflict_because_more_effects_would_be_asked_for_agrees_with_its_record() -> None:
    host = hosted(pay)
    record = Record(order(host.domain, "buy", {"item": "tea"}))  # on this head nothing was asked for yet
    record.seal(host, host.conflict(record.order()))
    assert recheck(record) is None


def test_a_world_that_another_proposal_made_is_compared_by_its_state() -> None:
    record = record_of("steer", {"patches": [set_("profile.a", 1).to_wire()]})
    shared: dict[str, Any] = {"created_by": "proposal-0", "patches": [merge("profile", {"a": 1})]}
    assert recheck(record, **shared) is None
    assert diverged(record, patches=shared["patches"]).details["what"] == "patch 0"
    assert diverged(record, **shared, snapshot_hash="0" * 64).details["what"] == "the snapshotHash"


@given(
    st.sampled_from(sorted(RECORDS)),
    st.sampled_from(["snapshot_hash", "world_id", "content_id", "outcome"]),
    st.text(max_size=5),
)
def test_no_other_text_in_the_place_of_a_hash_agrees(name: str, field: str, text: str) -> None:
    action, value, given_more = RECORDS[name]
    assert recheck(record_of(action, value, **given_more), **{field: text}) is not None
