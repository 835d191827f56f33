"""Effects without a workspace: what a handler touches is declared by the manifest of its action, or it is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from host import EffectFailure, EffectResult, handler
from tests.golden import garden as golden
from tests.pipeline.works import check_log
from tests.pipeline.workshop import a_workshop, step, workshop
from world.audit.verify import verify
from world.clock import ManualClock, SequentialIds
from world.core import load_domain
from world.events.execution_events import EffectFulfilled
from world.events.proposal_events import ProposalFailed
from world.events.run_events import RunObserved, RunViolated
from world.klis.settings import KlisSettings
from world.limits import Limits
from worldprotocol.analysis.recheck.recheck import open_to_recheck, recheck
from worldprotocol.api.realm import Realm
from worldprotocol.export.jsonl import import_log

pytestmark = pytest.mark.requirement("KM-2.2", "KO-3", "HC-handlers")

MAIL = "URL:https://mail.example/ann"
POST = step("http.post", url="http://127.0.0.1:9/x", json={"a": 1})


class Outbox:
    """Where mail goes; counts what was sent, and fails as often as it is told to."""

    def __init__(self, failures: int = 0) -> None:
        self.sent: list[str] = []
        self.failures = failures

    def handlers(self) -> list[Any]:
        @handler("mail.send", touches=[("MUTATES", "URL:https://mail.example/{to}")], idempotent=True, retries=3)
        def send(params: Any, call: Any) -> Any:
            self.sent.append(params["to"])
            if self.failures:
                self.failures -= 1
                return EffectFailure("BUSY", "Later.", retryable=True)
            return EffectResult(len(self.sent))

        @handler("think")
        def think(params: Any, call: Any) -> Any:
            return "thought"

        return [send, think]


@pytest.fixture
def outbox() -> Outbox:
    return Outbox()


def a_realm(address: str, outbox: Outbox, **parts: Any) -> Realm:
    """Found a realm without a workspace."""
    given: dict[str, Any] = {"clock": ManualClock(1_000, 1), "ids": SequentialIds(), "domain": workshop, **parts}
    world = Realm.create(address, effects=outbox.handlers(), **given)
    world.register("ann", "human", binding={"kind": "auto_approve"})
    return world


@pytest.fixture
def address(tmp_path: Path) -> str:
    return str(tmp_path / "w.db")


@pytest.fixture
def realm(address: str, outbox: Outbox) -> Iterator[Realm]:
    with a_realm(address, outbox) as world:
        yield world
    check_log(address, domain=workshop)


def of(world: Realm, kind: type[Any]) -> list[Any]:
    return [event for _, event in world.events() if isinstance(event, kind)]


WRONG: list[tuple[str, str, dict[str, Any]]] = [
    ("MUTATES", "URL:http://127.0.0.1:9/x", POST),
    ("MUTATES", "URL:http://127.0.0.1:9/x", step("http.request", method="PUT", url="http://127.0.0.1:9/x")),
    ("CONSUMES", "URL:http://127.0.0.1:9/x", step("http.get", url="http://127.0.0.1:9/x")),
    ("MUTATES", MAIL, step("mail.send", to="ann")),
    ("MUTATES", "/a.txt", step("file.write", path="/a.txt", text="x")),
    ("MUTATES", "/*", step("process.run", argv=["true"])),
]


@pytest.mark.parametrize(("predicate", "name", "wrong"), WRONG, ids=[one[2]["effect"] for one in WRONG])
def test_an_effect_that_was_not_declared_fails_the_proposal_before_its_handler_runs(
    realm: Realm, outbox: Outbox, predicate: str, name: str, wrong: dict[str, Any]
) -> None:
    failed = realm.act("ann", "run", {"steps": [wrong]})
    assert failed.status == "failed"
    assert failed.error is not None
    assert failed.error.code == "KLIS_SCOPE_VIOLATION"
    assert failed.error.message.startswith(f"Agent attempted {predicate} on {name} but declared nothing there.")
    assert failed.error.context is not None
    assert failed.error.context["agent_id"] == "ann"
    assert failed.error.context["session_id"] == failed.proposal_id
    assert outbox.sent == []
    (violated,) = of(realm, RunViolated)
    assert (violated.run_id, violated.violation.depth, violated.violation.blocked) == (
        failed.proposal_id,
        "effect",
        True,
    )
    (told,) = of(realm, EffectFulfilled)
    assert told.result.error.code == "KLIS_SCOPE_VIOLATION"
    assert realm.host.verification(failed.proposal_id).outcome == "failed"


def test_what_is_declared_is_made_and_recorded(realm: Realm, outbox: Outbox) -> None:
    done = realm.act("ann", "run", {"mutates": [MAIL], "steps": [step("mail.send", to="ann")]})
    assert (done.status, done.error, outbox.sent) == ("completed", None, ["ann"])
    (seen,) = realm.host.verification(done.proposal_id).observed.values()
    assert (seen.predicate, seen.resource, seen.depth) == ("MUTATES", MAIL, "effect")


def test_a_declared_subtree_covers_what_is_below(realm: Realm, outbox: Outbox) -> None:
    below = {"mutates": ["URL:https://mail.example/ann/*"], "steps": [step("mail.send", to="ann")]}
    assert realm.act("ann", "run", below).status == "completed"
    reading = {"consumes": [MAIL], "steps": [step("mail.send", to="ann")]}
    failed = realm.act("ann", "run", reading)
    assert failed.error is not None
    assert failed.error.message.startswith(f"Agent attempted MUTATES on {MAIL} but only declared CONSUMES.")
    assert outbox.sent == ["ann"]


def test_a_process_is_declared_by_hand_or_by_its_folder(realm: Realm) -> None:
    for declared in ({"provides": ["PROCESS:true"]}, {"mutates": ["FILE:/out/*"]}):
        plan = {**declared, "steps": [step("process.run", argv=["true"], cwd="/out")]}
        failed = realm.act("ann", "run", plan)
        assert failed.error is not None
        assert failed.error.code == "EFFECT_NO_WORKSPACE"  # the handler was called


def test_an_effect_that_touches_nothing_needs_no_manifest(realm: Realm) -> None:
    done = realm.act("ann", "run", {"steps": [step("think"), step("timer.wait", ms=1)]})
    assert done.status == "completed"
    assert of(realm, RunObserved) == []


def test_a_later_effect_of_an_action_is_held_to_the_manifest_like_the_first(realm: Realm, outbox: Outbox) -> None:
    steps = [step("mail.send", to="ann"), step("think"), step("mail.send", to="bob"), step("mail.send", to="ann")]
    failed = realm.act("ann", "run", {"mutates": [MAIL], "steps": steps})
    assert (failed.status, outbox.sent) == ("failed", ["ann"])
    assert len(of(realm, EffectFulfilled)) == 3


def test_catching_the_error_does_not_help(realm: Realm, outbox: Outbox) -> None:
    failed = realm.act("ann", "insist", {"steps": [step("mail.send", to="ann"), step("think")]})
    assert failed.error is not None
    assert (failed.status, failed.error.code, outbox.sent) == ("failed", "KLIS_SCOPE_VIOLATION", [])
    assert len(of(realm, ProposalFailed)) == 1


def test_a_retried_effect_is_held_to_the_manifest_each_time(address: str) -> None:
    outbox = Outbox(failures=1)
    with a_realm(address, outbox) as world:
        done = world.act("ann", "run", {"mutates": [MAIL], "steps": [step("mail.send", to="ann")]})
        assert (done.status, outbox.sent) == ("completed", ["ann", "ann"])
        (seen,) = world.host.verification(done.proposal_id).observed.values()
        assert seen.count == 2
    check_log(address, domain=workshop)


FLOW: dict[str, Any] = {
    "version": "1.0.0",
    "id": "urn:test:mailing",
    "state": {"fields": {"sent": {"type": "number", "required": True, "default": 0}}},
    "computed": {"fields": {}},
    "actions": {
        "mail": {"flow": {"kind": "effect", "type": "mail.send", "params": {"to": {"kind": "lit", "value": "ann"}}}},
    },
}


@pytest.mark.parametrize("declared", [None, [{"predicate": "MUTATES", "resource": MAIL}]])
def test_a_declarative_flow_is_held_to_its_manifest(address: str, outbox: Outbox, declared: Any) -> None:
    flow = {**FLOW, "actions": {"mail": {**FLOW["actions"]["mail"], **({"manifest": declared} if declared else {})}}}
    domain = load_domain(flow)
    with a_realm(address, outbox, domain=domain) as world:
        done = world.act("ann", "mail")
        assert done.status == ("completed" if declared else "failed")
        assert outbox.sent == (["ann"] if declared else [])
    check_log(address, domain=domain)


@pytest.mark.parametrize("with_workspace", [False, True])
def test_a_proposal_that_may_write_nothing_and_declares_nothing_may_touch_nothing(
    address: str, tmp_path: Path, outbox: Outbox, with_workspace: bool
) -> None:
    if with_workspace:
        world = a_workshop(address, tmp_path / "ws", effects=outbox.handlers())
    else:
        world = a_realm(address, outbox)
    with world:
        failed = world.act("ann", "run", {"steps": [step("mail.send", to="ann")]}, scope=[])
        assert failed.error is not None
        assert (failed.error.code, outbox.sent) == ("KLIS_SCOPE_VIOLATION", [])
    check_log(address, domain=workshop)


@pytest.mark.parametrize(
    "parts",
    [
        {"enforcement": "trusting"},
        {"limits": Limits(klis=KlisSettings.recorded({"manifest_rules": 2, "wake_rules": 2}))},
    ],
    ids=["trusting", "earlier rules"],
)
def test_a_trusting_host_and_earlier_rules_hold_effects_to_the_manifest_too(
    address: str, outbox: Outbox, parts: Any
) -> None:
    scopes: list[Any] = [None, []]
    with a_realm(address, outbox, **parts) as world:
        for scope in scopes:
            failed = world.act("ann", "run", {"steps": [step("mail.send", to="ann")]}, scope=scope)
            assert failed.error is not None
            assert (failed.error.code, outbox.sent) == ("KLIS_SCOPE_VIOLATION", [])
    check_log(address, domain=workshop)


def test_names_are_compared_as_the_settings_in_force_say(address: str, outbox: Outbox) -> None:
    limits = Limits(klis=KlisSettings(lower_case=True))
    with a_realm(address, outbox, limits=limits) as world:
        failed = world.act(
            "ann", "run", {"mutates": ["FILE:/a.txt"], "steps": [step("file.write", path="/A.txt", text="x")]}
        )
        assert failed.error is not None
        assert failed.error.code == "EFFECT_NO_WORKSPACE"  # the handler was called
    check_log(address, domain=workshop)


@pytest.mark.requirement("CARD-replay", "KP-5a")
def test_a_log_from_before_there_were_leases_holds_effects_to_no_manifest_until_it_has_settings(address: str) -> None:
    bought: list[str] = []
    with (golden.FOLDER / "garden.jsonl").open("rb") as lines:
        import_log(lines, address)

    @handler("seeds.buy", touches=[("MUTATES", "URL:https://seeds.example/{seed}")])
    def buy(params: Any, call: Any) -> Any:
        bought.append(params["seed"])
        if params["seed"] == "peas":
            world.leases.desk.configure(by="ann")
        return {"paid": 1}

    parts: dict[str, Any] = {"policies": [golden.rules], "projections": [golden.sensor]}
    with Realm.open(address, domain=golden.garden, effects=[buy], **parts) as world:
        assert world.act("cron", "order", {"seeds": ["kale"]}).status == "completed"
        underway = world.act("cron", "order", {"seeds": ["peas", "leek"]})
        assert (underway.status, bought) == ("completed", ["kale", "peas", "leek"])  # it was decided without a manifest
        held = world.act("cron", "order", {"seeds": ["beet"]})
        assert held.error is not None
        assert (held.error.code, bought) == ("KLIS_SCOPE_VIOLATION", ["kale", "peas", "leek"])
    with open_to_recheck(address, domain=golden.garden, **parts) as looked:
        assert verify(looked.log).ok
        told = recheck(looked, every=True)
        assert {one.difference.code for one in told.divergences} <= {"POLICY_CHANGED"}  # its rules have moved since
        assert told.steps["executions"] >= 19
