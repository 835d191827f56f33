"""The host without governance: intents on one snapshot in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.documents import ROOT
from world.core import EffectAnswer, Invocation, create_host, set_
from world.errors import RefusedError

DOMAIN: dict[str, Any] = {
    "id": "urn:example:todo",
    "version": "1.0.0",
    "state": {"fields": {"todos": {"type": "array", "required": True, "default": []}, "last": {"type": "string"}}},
    "actions": {
        "addTodo": {
            "input": {"type": "object", "fields": {"title": {"type": "string", "required": True}}},
            "flow": {
                "kind": "patch",
                "op": "set",
                "path": "todos",
                "value": {
                    "kind": "append",
                    "array": {"kind": "get", "path": "todos"},
                    "items": [{"kind": "get", "path": "input.title"}],
                },
            },
        },
        "fetch": {
            "flow": {
                "kind": "seq",
                "steps": [
                    {"kind": "effect", "type": "first.get", "params": {"id": {"kind": "lit", "value": 7}}},
                    {"kind": "effect", "type": "second.get"},
                ],
            },
        },
    },
}


def clock() -> int:
    return 1_000


@pytest.mark.requirement("IC-action", "HC-compute")
def test_an_intent_is_computed_and_its_snapshot_is_the_state() -> None:
    host = create_host(DOMAIN, now=clock)
    done = host.dispatch(Invocation("addTodo", {"title": "Buy milk"}, "abc-123"))
    assert (done.status, done.snapshot.data["todos"]) == ("complete", ["Buy milk"])
    assert host.dispatch(Invocation("addTodo", {"title": "Call ann"}, "def-456")).status == "complete"
    assert host.snapshot.data["todos"] == ["Buy milk", "Call ann"]
    assert host.snapshot.meta.timestamp == 1_000


@pytest.mark.requirement("IC-validate", "HC-compute")
def test_an_error_is_a_value_and_leaves_the_data() -> None:
    host = create_host(DOMAIN, now=clock, initial_data={"todos": ["one"]})
    for intent in (Invocation("addTodo", {}, "a"), Invocation("removeTodo", None, "b")):
        done = host.dispatch(intent)
        assert done.status == "error"
        assert done.error is not None
    assert host.snapshot.data["todos"] == ["one"]
    with pytest.raises(RefusedError):
        create_host(DOMAIN, now=clock, initial_data={"todos": 5})


@pytest.mark.requirement("IC-effects", "IC-reentry", "HC-handlers")
def test_an_intent_waits_for_a_missing_handler_and_repeats_no_effect() -> None:
    calls: list[Mapping[str, Any]] = []

    def first(params: Mapping[str, Any]) -> EffectAnswer:
        calls.append(params)
        return EffectAnswer(patches=(set_("last", f"got {params['id']}"),))

    host = create_host(DOMAIN, now=clock, effects={"first.get": first})
    waiting = host.dispatch(Invocation("fetch", None, "a"))
    assert (waiting.status, [one.type for one in waiting.requirements]) == ("pending", ["second.get"])
    assert "last" not in host.snapshot.data
    host.effects["second.get"] = lambda _: EffectAnswer()
    assert host.dispatch(Invocation("fetch", None, "a")).status == "complete"
    assert (host.snapshot.data["last"], calls) == ("got 7", [{"id": 7}])
    host.dispatch(Invocation("fetch", None, "b"))
    assert len(calls) == 2


@pytest.mark.requirement("HC-handlers")
def test_a_handler_that_raises_is_an_error_value() -> None:
    def fails(_: Mapping[str, Any]) -> EffectAnswer:
        raise OSError("no route")

    host = create_host(DOMAIN, now=clock, effects={"first.get": fails})
    done = host.dispatch(Invocation("fetch", None, "a"))
    assert done.error is not None
    assert (done.status, done.error.code, done.error.timestamp) == ("error", "EFFECT_RAISED", clock())
    assert "OSError: no route" in done.error.message


def test_a_domain_file_has_a_host_too() -> None:
    host = create_host(ROOT / "tests" / "golden" / "ledger.yaml", now=clock)
    assert host.dispatch(Invocation("nothing", None, "a")).status == "error"
