"""What computing reads of a snapshot, and what it leaves alone in it."""

from __future__ import annotations

import pytest

from tests.core.test_compute import domain, effect_node, get, lit, put, run, seq, start
from world.core import ComputeContext, EffectAnswer, apply, set_
from world.model.identity import snapshot_hash
from world.model.immutable_json import freeze


@pytest.mark.requirement("HC-snapshot", "WP-dollar")
def test_state_of_a_host_is_allowed_below_its_own_member_and_nowhere_else() -> None:
    program = domain(go=put("$host.jobs", lit([1])), astray=put("host.jobs", lit([1])), unchecked=True)
    before = start(program)
    computed = run(program)
    assert computed.error is not None
    assert (computed.error.code, computed.patches) == ("PATH_NOT_FOUND", ())
    context = ComputeContext(2_000, "i")
    after = apply(program, before, [set_("$host.jobs", [1])], context)
    assert after.system.last_error is None
    refused = apply(program, before, [set_("$host", 1)], context)
    assert refused.system.last_error is not None
    assert refused.system.last_error.code == "TYPE_MISMATCH"
    assert after.data == {**before.data, "$host": {"jobs": [1]}}
    assert snapshot_hash(after.to_wire()) == snapshot_hash(before.to_wire())
    astray = run(program, "astray").snapshot
    assert astray.system.last_error is not None
    assert astray.system.last_error.code == "PATH_NOT_FOUND"
    assert astray.data == before.data


@pytest.mark.requirement("HC-snapshot", "HC-compute")
def test_computing_adds_nothing_of_its_own_to_the_data() -> None:
    program = domain(go=seq(put("count", lit(2)), effect_node("http", url="u"), put("name", lit("x"))))
    before = start(program)
    waiting = run(program)
    assert waiting.snapshot.data == {**before.data, "count": 2}
    assert waiting.snapshot.system.status == "pending"
    journal = {waiting.requirements[0].id: EffectAnswer(value=freeze({}))}
    done = run(program, journal=journal).snapshot
    assert done.data == {**before.data, "count": 2, "name": "x"}
    assert (done.system.pending_requirements, done.system.current_action) == ((), None)


@pytest.mark.requirement("HC-flow")
def test_calling_a_flow_that_does_not_exist_is_an_error_value_at_its_node() -> None:
    error = run(domain(unchecked=True, go=seq({"kind": "call", "flow": "nosuch"}))).error
    assert (error.code, error.action_id, error.node_path) == ("UNKNOWN_FLOW", "go", "actions.go.flow.steps[0]")
    assert "'nosuch'" in error.message


@pytest.mark.requirement("HC-snapshot")
def test_a_flow_reads_the_system_part_of_its_snapshot() -> None:
    whole = {"kind": "object", "fields": {"v": get("system")}}
    done = run(domain(unchecked=True, go=put("bag", whole)))
    assert done.snapshot.data["bag"]["v"] == {
        "status": "idle",
        "lastError": None,
        "errors": [],
        "pendingRequirements": [],
        "currentAction": None,
    }
