"""DEPENDS_ON: what must exist is checked when it is leased, and again before execution (KLIS-1 section 3)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from host import handler
from tests import second_implementation
from tests.golden.generate import rehashed
from tests.pipeline.works import Held, acting, check_log
from tests.pipeline.workshop import a_workshop, furnished, step, workshop
from world.audit.verify import verify
from world.clock import ManualClock, SequentialIds
from world.core import ActionContext, Domain, effect, set_, unset
from world.errors import RefusedError
from world.events.execution_events import ExecutionStarted
from world.events.lease_events import RequestWithdrawn, VerdictGiven
from world.events.proposal_events import DecisionMade, ProposalFailed
from world.events.resource_values import ResourceExistence
from world.events.run_events import RunOpened
from worldprotocol.analysis.recheck.recheck import open_to_recheck, recheck
from worldprotocol.api.realm import Realm
from worldprotocol.export.jsonl import export_log, import_log
from worldprotocol.runs.governed import RunOptions

pytestmark = pytest.mark.requirement("KM-3", "KO-3")


@pytest.fixture
def address(tmp_path: Path) -> str:
    return str(tmp_path / "w.db")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return furnished(tmp_path / "ws")


@pytest.fixture
def realm(address: str, root: Path) -> Iterator[Realm]:
    with a_workshop(address, root) as world:
        yield world
    check_log(address, domain=workshop)


def of(world: Realm, kind: type[Any]) -> list[Any]:
    return [event for _, event in world.events() if isinstance(event, kind)]


def depends(*resources: str, **more: Any) -> dict[str, Any]:
    return {"depends_on": list(resources), "steps": [], **more}


def lease(world: Realm, resource: str, **more: Any) -> Any:
    return world.leases.acquire(agent="bot", predicate="DEPENDS_ON", resource=resource, session="s", timeout=0, **more)


# FILE


@pytest.mark.parametrize(
    "there", ["FILE:/a.txt", "FILE:/sub", "FILE:/sub/*", "FILE:/sub/deep.txt", "FILE:/", "FILE:/*"]
)
def test_a_file_that_exists_can_be_depended_on(realm: Realm, there: str) -> None:
    done = realm.act("ann", "run", depends(there))
    assert (done.status, done.error) == ("completed", None)
    (verdict,) = of(realm, VerdictGiven)
    (started,) = of(realm, ExecutionStarted)
    assert verdict.existence == started.existence == [ResourceExistence(there, True)]
    with lease(realm, there) as held:
        assert held.verdict.existence == [ResourceExistence(there, True)]


@pytest.mark.parametrize("absent", ["FILE:/no.txt", "FILE:/no/*", "FILE:/a.txt/b", "FILE:/sub/no.txt"])
def test_a_file_that_does_not_exist_is_not_leased(realm: Realm, absent: str) -> None:
    rejected = realm.act("ann", "run", depends("FILE:/a.txt", absent))
    assert rejected.status == "rejected"
    message = f"DEPENDS_ON requires {absent} to exist, and it does not. Create what is missing, or do not depend on it."
    assert rejected.decision is not None
    assert rejected.decision.reason == f"Its manifest was refused (RESOURCE_ABSENT): {message}"
    (decided,) = of(realm, DecisionMade)
    assert decided.existence == [ResourceExistence("FILE:/a.txt", True), ResourceExistence(absent, False)]
    assert of(realm, VerdictGiven) == []
    with pytest.raises(RefusedError) as refused:
        lease(realm, absent)
    assert (refused.value.code, refused.value.message) == ("RESOURCE_ABSENT", message)
    assert list(realm.realm().klis.leases) == []


def test_links_are_followed_as_far_as_they_stay_in_the_workspace(realm: Realm, root: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.txt").write_text("x")
    for name, target in {
        "good": "a.txt",
        "dangling": "no.txt",
        "out": str(tmp_path / "outside.txt"),
        "loop": "loop",
        "folder": "sub",
    }.items():
        (root / name).symlink_to(target)
    for there in ("FILE:/good", "FILE:/folder/deep.txt", "FILE:/folder/*"):
        lease(realm, there).release()
    for absent in ("FILE:/dangling", "FILE:/out", "FILE:/loop", "FILE:/folder/no"):
        with pytest.raises(RefusedError) as refused:
            lease(realm, absent)
        assert refused.value.code == "RESOURCE_ABSENT"


def test_a_file_that_vanished_after_the_grant_fails_the_execution_before_it_begins(address: str, root: Path) -> None:
    held, made = Held(), []

    @handler("hold")
    def hold(params: Any, call: Any) -> Any:
        return held(params, call)

    @handler("mark")
    def mark(params: Any, call: Any) -> str:
        made.append("made")
        return "made"

    one_key: dict[str, Any] = {"execution_key": "one", "scope": []}
    plan = {**depends("FILE:/a.txt"), "steps": [step("mark")]}
    with a_workshop(address, root, effects=[hold, mark]) as world:
        with acting(world, "ann", "run", {"steps": [step("hold")]}, **one_key):
            assert held.begun.wait(60)
            assert world.act("bob", "run", plan, **one_key).status == "approved"
            (root / "a.txt").unlink()
            held.may_go.set()
        failed = of(world, ProposalFailed)[-1]
        assert (failed.error.code, made) == ("RESOURCE_ABSENT", [])
        assert of(world, VerdictGiven)[-1].existence == [ResourceExistence("FILE:/a.txt", True)]
        assert of(world, ExecutionStarted)[-1].existence == [ResourceExistence("FILE:/a.txt", False)]
        assert list(world.realm().klis.leases) == []
    (root / "a.txt").write_text("back")  # what is there now plays no part in the recheck
    check_log(address, domain=workshop)


def test_a_request_that_waited_is_checked_when_it_is_granted(realm: Realm, root: Path) -> None:
    realm.leases.desk.register_agent("ann", by="ann", priority=1)
    holder = realm.leases.acquire(agent="bot", predicate="MUTATES", resource="FILE:/a.txt", session="s")
    waiting = realm.act("ann", "run", depends("FILE:/a.txt"))
    assert waiting.status == "evaluating"
    (root / "a.txt").unlink()
    holder.release()
    ended = realm.archive.proposal(waiting.proposal_id)
    assert ended.status == "rejected"
    assert ended.decision is not None
    assert "RESOURCE_ABSENT" in ended.decision.reason
    (withdrawn,) = of(realm, RequestWithdrawn)
    expected = [ResourceExistence("FILE:/a.txt", False)]
    assert (withdrawn.reason, withdrawn.existence) == ("RESOURCE_ABSENT", expected)


def test_without_a_workspace_no_file_is_checked(address: str) -> None:
    clock, ids = ManualClock(1_000, 1), SequentialIds()
    with Realm.create(address, domain=workshop, clock=clock, ids=ids) as world:
        world.register("ann", "human", binding={"kind": "auto_approve"})
        done = world.act("ann", "run", depends("FILE:/no.txt"))
        assert done.status == "completed"
        assert of(world, VerdictGiven)[0].existence == []
        assert of(world, ExecutionStarted)[0].existence is None
    check_log(address, domain=workshop)


@pytest.mark.parametrize("resource", ["URL:https://example.com/x", "SYMBOL:User.authenticate", "PROCESS:no-such"])
def test_other_types_have_no_existence_check(realm: Realm, resource: str) -> None:
    assert realm.act("ann", "run", depends(resource)).status == "completed"
    assert of(realm, VerdictGiven)[0].existence == []


# STATE


class Shelf(BaseModel):
    items: dict[str, Any] = {}
    other: int = 0


class Need(BaseModel):
    what: str
    ask: bool = False


shelf = Domain("urn:test:shelf", version="1.0.0", state=Shelf)


@shelf.action("put", version="1")
def put(ctx: ActionContext, input: Need) -> Any:  # noqa: A002
    return [set_(f"items.{input.what}", [1, {"deep": None}])]


@shelf.action("drop", version="1")
def drop(ctx: ActionContext, input: Need) -> Any:  # noqa: A002
    return [unset(f"items.{input.what}")]


@shelf.action("use", version="1", manifest=[{"predicate": "DEPENDS_ON", "resource": "STATE:/{input.what}"}])
def use(ctx: ActionContext, input: Need) -> Any:  # noqa: A002
    if input.ask:
        yield effect("timer.wait", ms=1)
    return [set_("other", ctx.data["other"] + 1)]


def a_shelf(address: str, **parts: Any) -> Realm:
    given = {"clock": ManualClock(1_000, 1), "ids": SequentialIds(), "domain": shelf, "execute": True, **parts}
    world = Realm.create(address, **given)
    world.register("ann", "human", binding={"kind": "auto_approve"})
    world.register("kid", "human", binding={"kind": "hitl", "ask": ["ann"]})
    world.act("ann", "put", {"what": "nut"}, scope=["items.*"])
    return world


def used(world: Realm, what: str, actor: str = "ann", **more: Any) -> Any:
    return world.act(actor, "use", {"what": what, **more}, scope=["other"])


@pytest.mark.parametrize(
    ("what", "is_there"),
    [
        ("main/items/nut", True),
        ("main/items/nut/*", True),
        ("main/items/nut/1/deep", True),  # null is there
        ("main/items/*", True),
        ("main/items/bolt", False),
        ("main/items/nut/2", False),
        ("main/items/nut/length", False),
        ("main/items/nut/1/deep/er", False),
        ("nowhere/items", False),
        ("nowhere", False),
    ],
)
@pytest.mark.requirement("CARD-replay")
def test_state_has_to_be_in_the_base_world(address: str, what: str, is_there: bool) -> None:
    with a_shelf(address) as world:
        done = used(world, what, ask=True)
        assert done.status == ("completed" if is_there else "rejected")
        last = of(world, VerdictGiven if is_there else DecisionMade)[-1]
        assert last.existence == [ResourceExistence(f"STATE:/{what}", is_there)]
        if is_there:
            with lease(world, f"STATE:/{what}") as held:
                assert held.verdict.existence == last.existence
        else:
            with pytest.raises(RefusedError) as refused:
                lease(world, f"STATE:/{what}")
            assert refused.value.code == "RESOURCE_ABSENT"
    check_log(address, domain=shelf)


def test_state_that_is_gone_from_the_head_fails_the_execution(address: str) -> None:
    with a_shelf(address) as world:
        waiting = used(world, "main/items/nut", "kid")
        assert world.act("ann", "drop", {"what": "nut"}, scope=["items.*"]).status == "completed"
        world.decide(waiting.proposal_id, "approve", by="ann")
        failed = world.archive.proposal(waiting.proposal_id)
        assert failed.status == "failed"
        assert failed.error is not None
        assert failed.error.code == "RESOURCE_ABSENT"
        assert of(world, VerdictGiven)[-1].existence == [ResourceExistence("STATE:/main/items/nut", True)]
        assert of(world, ExecutionStarted)[-1].existence == [ResourceExistence("STATE:/main/items/nut", False)]
        assert world.data()["other"] == 0
        exported = address.replace("w.db", "w.jsonl")
        with Path(exported).open("wb") as out:
            export_log(world.log, out)
    check_log(address, domain=shelf)
    second = second_implementation.verify(second_implementation.lines_of(Path(exported)))
    assert second["sound"], second


def test_names_of_state_are_read_as_they_are_written(address: str) -> None:
    with a_shelf(address) as world:
        for name in ("a b", "100%", "a/b"):
            world.act("ann", "put", {"what": name}, scope=["items.*"])
        for segment, is_there in {"a%20b": True, "100%25": True, "a%2Fb": True, "a%20c": False}.items():
            done = used(world, f"main/items/{segment}")
            assert done.status == ("completed" if is_there else "rejected"), segment
    check_log(address, domain=shelf)


@pytest.mark.requirement("CARD-replay", "KP-5a")
@pytest.mark.parametrize(
    ("topic", "was"), [("verdict.given", True), ("decision.made", False), ("execution.started", True)]
)
def test_a_record_that_says_otherwise_of_the_state_is_found_by_recheck(
    address: str, tmp_path: Path, topic: str, was: bool
) -> None:
    with a_shelf(address) as world:
        used(world, "main/items/nut")
        used(world, "main/items/bolt")
        export_log(world.log, out := BytesIO())
    told = [json.loads(line) for line in out.getvalue().splitlines()]
    (line,) = [one for one in told if one.get("topic") == topic and one["state"].get("existence")]
    (seen,) = line["state"]["existence"]
    assert seen["exists"] is was
    seen["exists"] = not was
    forged = str(tmp_path / "forged.db")
    import_log(BytesIO(b"".join(rehashed(told))), forged)
    with open_to_recheck(forged, domain=shelf) as looked:
        assert verify(looked.log).ok
        found = recheck(looked, every=True).divergences
    assert (found[0].topic, found[0].difference.code) == (topic, "EXISTENCE_DIFFERS")


@pytest.mark.requirement("CARD-replay")
def test_a_withdrawal_whose_reason_the_record_contradicts_is_found_by_recheck(
    address: str, root: Path, tmp_path: Path
) -> None:
    with a_workshop(address, root) as world:
        world.leases.desk.register_agent("ann", by="ann", priority=1)
        holder = world.leases.acquire(agent="bot", predicate="MUTATES", resource="FILE:/a.txt", session="s")
        assert world.act("ann", "run", depends("FILE:/a.txt")).status == "evaluating"
        (root / "a.txt").unlink()
        holder.release()
        export_log(world.log, out := BytesIO())
    told = [json.loads(line) for line in out.getvalue().splitlines()]
    (line,) = [one for one in told if one.get("topic") == RequestWithdrawn.TOPIC]
    (seen,) = line["state"]["existence"]
    assert seen["exists"] is False
    seen["exists"] = True
    forged = str(tmp_path / "forged.db")
    import_log(BytesIO(b"".join(rehashed(told))), forged)
    with open_to_recheck(forged, domain=workshop) as looked:
        found = [(one.topic, one.difference.code) for one in recheck(looked, every=True).divergences]
    assert (RequestWithdrawn.TOPIC, "EXISTENCE_DIFFERS") in found


@pytest.mark.requirement("CARD-replay")
def test_an_execution_that_went_on_without_what_its_record_says_is_absent_is_found_by_recheck(
    address: str, root: Path, tmp_path: Path
) -> None:
    with a_workshop(address, root) as world:
        assert world.act("ann", "run", depends("FILE:/a.txt")).status == "completed"
        export_log(world.log, out := BytesIO())
    told = [json.loads(line) for line in out.getvalue().splitlines()]
    (line,) = [one for one in told if one.get("topic") == ExecutionStarted.TOPIC]
    line["state"]["existence"][0]["exists"] = False
    forged = str(tmp_path / "forged.db")
    import_log(BytesIO(b"".join(rehashed(told))), forged)
    with open_to_recheck(forged, domain=workshop) as looked:
        found = [(one.topic, one.difference.code) for one in recheck(looked, every=True).divergences]
    assert found == [("proposal.completed", "EXISTENCE_DIFFERS")]


# Governed runs


def test_a_session_depends_on_what_exists_when_it_begins(realm: Realm, root: Path) -> None:
    manifest = {
        "ver": "1.0",
        "session_id": "s1",
        "agent_id": "ann",
        "scope": [{"predicate": "DEPENDS_ON", "resource": "FILE:/a.txt"}],
    }
    with realm.host.session(agent="ann", manifest=manifest, run_options=RunOptions(by="ann")):
        pass
    (opened,) = of(realm, RunOpened)
    assert opened.existence == [ResourceExistence("FILE:/a.txt", True)]
    (root / "a.txt").unlink()
    with (
        pytest.raises(RefusedError) as refused,
        realm.host.session(agent="ann", manifest={**manifest, "session_id": "s2"}, run_options=RunOptions(by="ann")),
    ):
        raise AssertionError("it began")
    assert refused.value.code == "RESOURCE_ABSENT"
    assert list(realm.realm().klis.leases) == []
    assert len(of(realm, RunOpened)) == 1
