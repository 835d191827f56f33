"""Who decided stands in the record: where the engine overrules rules and people, all that tells of it says so."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import world.pipeline.adopted_code.holding
import world.pipeline.arbitrate
import world.pipeline.judge
from authority.people.questions import TIME_LIMIT
from tests import second_implementation as second
from tests.golden.generate import rehashed
from world.audit.verify import verify
from world.clock import ManualClock, SequentialIds
from world.errors import DamagedLogError, RefusedError
from world.events.base import Event
from world.events.codec import decode_event
from world.events.execution_events import ExecutionStarted
from world.events.proposal_events import DecisionMade
from world.klis.settings import KlisSettings
from world.klis.verdict_emitter import VerdictEmitter
from world.limits import Limits
from world.model.decision import ENGINE
from world.model.overruling import second_version
from world.model.record import to_wire
from world.read_models.trace import TraceStep, trace_proposal
from world.state.proposal import Proposal
from worldprotocol import Realm
from worldprotocol.analysis.backtest import Backtest, BacktestSetup
from worldprotocol.analysis.recheck.recheck import open_to_recheck, recheck
from worldprotocol.analysis.work.workers import Workers
from worldprotocol.export.jsonl import export_log, import_log
from worldprotocol.policy_tools.explain import explain_trace, trace_lines
from worldprotocol.report.gathering import Window, gather
from worldprotocol.testing.recorded import recorded_case

RULES = """
name = "house"

[[rules]]
id = "fine"
verdict = "approve"
when = "!intent.input.name.startsWith('silent')"

[[rules]]
id = "asks"
verdict = "escalate"
when = "intent.input.name.startsWith('ask')"

[[rules]]
id = "asks_itself"
verdict = "escalate"
to = ["bot"]
when = "intent.input.name == 'itself'"

[[rules]]
id = "narrows"
verdict = "narrow"
scope = ["data.built"]
when = "intent.input.name.startsWith('narrow')"

[[rules]]
id = "narrows_to_nothing"
verdict = "narrow"
scope = ["data.none"]
when = "intent.input.name == 'narrowed'"

[[rules]]
id = "no"
verdict = "reject"
when = "intent.input.name.startsWith('no')"
"""
SITE = """
from pydantic import BaseModel

from world.core import ActionContext, Domain, set_


class Site(BaseModel):
    built: int = 0


class Page(BaseModel):
    name: str


site = Domain("urn:test:site", version="1.0.0", state=Site)


@site.action("build", version="1", manifest=[{"predicate": "MUTATES", "resource": "FILE:/out/{input.name}.html"}])
def build(ctx, given: Page):
    return [set_("built", ctx.data["built"] + 1)]
"""
ASKING = {"ask": ["ann"], "timeoutMs": 1_000, "onTimeout": "escalate", "then": [{"ask": ["bot"]}]}
BOUND = {"kind": "policy_rules", "policy": "house", **ASKING}

OVERRULED = {
    "approved/../x": "leases",
    "narrow/../x": "leases",
    "ask/../x": "leases",
    "auto/../x": "leases",
    "held": "leases",
    "withdrawn": "leases",
    "ask_no_more": "case",
    "other": "policy in force",
    "ask_other": "policy in force",
    "no_other": "policy in force",
    "narrow_other": "policy in force",
    "silent_other": "policy in force",
}
"""What the engine rejects, whatever is ruled, by the name of its page; and what it goes by."""

DECIDED = {
    "no": ["no"],
    "silent": [],
    "itself": ["asks_itself"],
    "narrowed": ["narrows", "narrows_to_nothing"],
    "ask_ann": ["human answer"],
    "split": ["human answer"],
    "ask_late": [TIME_LIMIT],
    "fine": ["fine"],
}
"""What rules and people decide, and which of them."""


def lease(agent: str, name: str) -> dict[str, Any]:
    scope = [{"predicate": "MUTATES", "resource": f"FILE:/out/{name}.html"}]
    return {"ver": "1.0", "session_id": "s", "agent_id": agent, "scope": scope}


class Scenes:
    """Plays everything that is overruled, and some that is not, in a realm in a folder."""

    def __init__(self, folder: Path, name: str = "world.db") -> None:
        self.address = str(folder / name)
        self.site, self.house = str(folder / "site.py"), folder / "house.toml"
        Path(self.site).write_text(SITE)
        self.house.write_text(RULES)
        self.clock, self.ids = ManualClock(1_000_000, 1), SequentialIds()
        self.pages: dict[str, str] = {}

    @property
    def parts(self) -> dict[str, Any]:
        return {"domain": f"{self.site}:site", "policies": [str(self.house)]}

    def play(self, patch: pytest.MonkeyPatch) -> dict[str, str]:
        """Return the ids of the proposals by the names of their pages."""
        limits = Limits(klis=KlisSettings(max_proposal_retries=2))
        owned: dict[str, Any] = {"clock": self.clock, "ids": self.ids, "limits": limits}
        with Realm.create(self.address, **self.parts, **owned) as realm:
            realm.register("ann", "human", binding={"kind": "auto_approve"})
            realm.register("bot", "agent", binding=BOUND)
            realm.register("eve", "human", binding={"kind": "auto_approve"})
            realm.register(
                "jury", "agent", binding={"kind": "tribunal", "members": ["ann", "eve"], "rule": "unanimous"}
            )
            realm.register("auto", "agent", binding={"kind": "auto_approve"})
            self._decided(realm)
            self._leases(realm, patch)
            self._case(realm, patch)
        self.house.write_text(RULES + 'reason = "another one, which nobody adopted"\n')
        with Realm.open(self.address, **self.parts, **owned) as realm, patch.context() as within:
            within.setattr(world.pipeline.judge, "hold", _never)  # earlier releases rejected what is held today
            for name, why in OVERRULED.items():
                if why == "policy in force":
                    self._act(realm, name)
        self.house.write_text(RULES)
        return self.pages

    def _act(self, realm: Realm, name: str, actor: str = "bot", **wishes: Any) -> str:
        done = realm.act(actor, "build", {"name": name}, **wishes)
        self.pages[name] = done.proposal_id
        return done.proposal_id

    def _decided(self, realm: Realm) -> None:
        for name in ("fine", "no", "silent", "itself"):
            self._act(realm, name)
        self._act(realm, "narrowed", scope=["data.built"])
        realm.decide(self._act(realm, "ask_ann"), "reject", by="ann")
        asked = self._act(realm, "split", "jury", scope=["data.*"])
        for judge in ("ann", "eve"):  # nothing is left that both would approve
            realm.decide(asked, "narrow", by=judge, scope=[f"data.{judge}"])
        self._act(realm, "ask_late")
        self.clock.advance(5_000)
        realm.settle()

    def _leases(self, realm: Realm, patch: pytest.MonkeyPatch) -> None:
        self._act(realm, "approved/../x")
        self._act(realm, "narrow/../x")
        realm.decide(self._act(realm, "ask/../x"), "approve", by="ann")
        self._act(realm, "auto/../x", "auto")
        desk = realm.leases.desk
        desk.register_agent("old", by="operator", priority=1)
        desk.request(lease("old", "held"), by="old")
        self._act(realm, "held")
        for _ in range(3):
            self.clock.advance(5_000)
            realm.settle()
        young = desk.request(lease("zoe", "withdrawn"), by="zoe")
        self._act(realm, "withdrawn")
        with patch.context() as within:
            within.setattr(VerdictEmitter, "_give", _gives_nothing)
            desk.release([young.leases[0].lease_id], agent_id="zoe", session_id="s")
        realm.settle()

    def _case(self, realm: Realm, patch: pytest.MonkeyPatch) -> None:
        self._act(realm, "ask_no_more")
        self.clock.advance(5_000)
        with patch.context() as within:
            within.setattr(world.pipeline.judge, "case_of", _cannot_be_made)
            realm.settle()


def _never(*_: Any) -> bool:
    return False


def _gives_nothing(*_: Any, **__: Any) -> Any:
    raise RefusedError("NOT_RECORDED", "It is too large for an event.")


def _cannot_be_made(*_: Any, **__: Any) -> Any:
    raise RefusedError("NOT_MADE", "The case cannot be made any more.")


def _left_as_ruled(ruling: Any, _why: str, reason: str) -> Any:
    """Overrule as version 1 did: who decided was not told."""
    ended = {"ask": (), "timeout_ms": None, "on_timeout": "reject"}
    return structs.replace(ruling, verdict="reject", reason=reason, approved_scope=None, **ended)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Scenes:
    played = Scenes(tmp_path_factory.mktemp("new"))
    with pytest.MonkeyPatch.context() as patch:
        played.play(patch)
    return played


@pytest.fixture(scope="module")
def older(scenes: Scenes) -> Scenes:
    """Return the same scenes as version 1 recorded them."""
    played = Scenes(Path(scenes.site).parent, "older.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.pipeline.judge, "overruled", _left_as_ruled)
        patch.setattr(world.pipeline.adopted_code.holding, "overruled", _left_as_ruled)
        patch.setattr(world.pipeline.arbitrate, "overruled", _left_as_ruled)
        patch.setattr(DecisionMade, "VERSION", 1)
        played.play(patch)
    return played


@pytest.fixture(params=["scenes", "older"])
def log(request: pytest.FixtureRequest) -> Scenes:
    """Return the scenes, as they are recorded today and as they were."""
    played: Scenes = request.getfixturevalue(request.param)
    return played


def proposals(realm: Realm, played: Scenes) -> Iterator[tuple[str, Proposal, list[str]]]:
    """Yield the pages, their proposals, and what decided those."""
    for name, proposal_id in played.pages.items():
        yield name, realm.archive.proposal(proposal_id), [ENGINE] if name in OVERRULED else DECIDED[name]


@pytest.mark.requirement("WP-decision", "CARD-audit")
def test_the_record_says_who_decided(log: Scenes) -> None:
    with Realm.open_read_only(log.address) as realm:
        for name, proposal, decided in proposals(realm, log):
            record = proposal.decision
            assert record is not None, name
            assert [one.rule for one in record.trace if one.decisive] == decided, name
            if name in OVERRULED:
                assert (record.trace[-1].source, record.trace[-1].answer) == (OVERRULED[name], "reject"), name
        assert {name for name, _, _ in proposals(realm, log)} == OVERRULED.keys() | DECIDED.keys()


def test_a_log_of_before_reads_as_if_it_had_been_recorded_today(scenes: Scenes, older: Scenes) -> None:
    with Realm.open_read_only(scenes.address) as new, Realm.open_read_only(older.address) as old:
        assert {one.schema_version for one in old.log.read(topics=[DecisionMade.TOPIC])} == {1}
        assert {one.schema_version for one in new.log.read(topics=[DecisionMade.TOPIC])} == {2}
        assert [_without_worker(event) for _, event in old.events()] == [
            _without_worker(event) for _, event in new.events()
        ]


def _without_worker(event: Event) -> Event:
    return structs.replace(event, worker="") if isinstance(event, ExecutionStarted) else event


@pytest.mark.requirement("CARD-audit", "CARD-policy")
def test_all_that_tells_who_decided_says_the_same(log: Scenes) -> None:
    with Realm.open_read_only(log.address) as realm:
        told = gather(realm.archive, Window(0, realm.log.head().size))
        reported = {one["proposalId"]: one.get("rule", "") for one in told.rows()}
        for name, proposal, decided in proposals(realm, log):
            assert reported[proposal.proposal_id] == ", ".join(decided), name
            assert rules_of(trace_proposal(realm.archive, proposal.proposal_id)) == decided, name
            explained = explain_trace(to_wire(proposal.decision) or {}, None, None, None, proposer="bot")
            assert explained["decidedBy"] == decided, name
            assert [one["rule"] for one in explained["rules"] if one["role"] == "decided"] == [
                rule for rule in decided if rule in {one["rule"] for one in explained["rules"]}
            ]
            is_outside = "outside" in (explained["changes"] or {})
            is_of_people = name == "split"  # their narrowings leave nothing, whatever rules say
            assert is_outside is (name in OVERRULED or is_of_people), (name, explained["changes"])
            said = [line for line in trace_lines(explained) if line.startswith("  engine    * the engine reject")]
            assert bool(said) is (name in OVERRULED)
        assert {one["rule"] for one in told.decisions.to_wire()["refusals"]["rows"]} == {
            ", ".join(decided) for name, _, decided in proposals(realm, log) if name != "fine"
        }


def rules_of(step: TraceStep) -> list[str]:
    """Return what a trace says that decided."""
    if step.kind == "decision":
        return list(step.facts["rules"])
    return [one for below in step.steps for one in rules_of(below)]


@pytest.mark.requirement("CARD-replay")
@pytest.mark.parametrize("is_changed", [False, True])
def test_overruled_decisions_come_out_again_as_they_were_recorded(log: Scenes, is_changed: bool) -> None:
    with Realm.open_read_only(log.address) as realm:
        assert verify(realm.log).ok
        export_log(realm.log, out := BytesIO())
        assert second.verify(out.getvalue().decode().splitlines(keepends=True))["sound"]
    if is_changed:  # the policy that nobody adopted is the one at hand
        log.house.write_text(RULES + 'reason = "another one, which nobody adopted"\n')
    try:
        with open_to_recheck(log.address, **log.parts) as realm:
            done = recheck(realm)
    finally:
        log.house.write_text(RULES)
    assert done.ok, [str(one.difference) for one in done.divergences]
    unknown = [name for name, why in OVERRULED.items() if why == "policy in force"]
    assert done.steps["notRepeatable"] == 1 + (0 if is_changed else len(unknown))


@pytest.mark.requirement("CARD-policy")
def test_a_backtest_compares_with_what_was_ruled_whatever_became_of_its_leases(log: Scenes, tmp_path: Path) -> None:
    (tmp_path / "strict.toml").write_text('name = "strict"\n[[rules]]\nid = "never"\nverdict = "reject"\n')
    running = Backtest(BacktestSetup(log.address, log.parts["domain"], str(tmp_path / "strict.toml")), Workers(1))
    found = {one["proposalId"]: one["from"]["decidedBy"] for one in running.lines() if one["kind"] == "flip"}
    approved = {
        "fine": ["fine"],
        "approved/../x": ["fine"],
        "narrow/../x": ["narrows"],
        "ask/../x": ["human answer"],
        "held": ["fine"],
        "withdrawn": ["fine"],
    }
    assert {name: found[log.pages[name]] for name in approved} == approved
    assert len(found) == len(approved)
    (tmp_path / "lax.toml").write_text('name = "lax"\n[[rules]]\nid = "always"\nverdict = "approve"\n')
    running = Backtest(BacktestSetup(log.address, log.parts["domain"], str(tmp_path / "lax.toml")), Workers(1))
    by = {one["proposalId"]: one["from"]["decidedBy"] for one in running.lines() if one["kind"] == "flip"}
    with Realm.open_read_only(log.address) as realm:
        for name, proposal, decided in proposals(realm, log):
            if proposal.proposal_id in by and OVERRULED.get(name) != "leases" and name != "narrow/../x":
                assert by[proposal.proposal_id] == decided, name


@pytest.mark.requirement("CARD-policy")
def test_what_the_engine_said_in_place_of_a_policy_is_no_case_of_it(log: Scenes) -> None:
    with open_to_recheck(log.address, **log.parts) as realm:
        policy = realm.parts.policies.get("house")  # type: ignore[union-attr]
        for name, proposal, _ in proposals(realm, log):
            if OVERRULED.get(name) == "policy in force":
                with pytest.raises(RefusedError, match="No policy in force judged"):
                    recorded_case(realm.archive, proposal, policy, realm.parts.domain)  # type: ignore[union-attr]
            elif name == "approved/../x":
                case = recorded_case(realm.archive, proposal, policy, realm.parts.domain)  # type: ignore[union-attr]
                assert case["expected"]["decidedBy"] == ["fine"]


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize(
    "state", [b"[]", b"{}", b'{"decision":7}', b'{"decision":{"decision":"rejected","trace":[7]}}']
)
def test_a_broken_decision_of_version_1_is_damage(state: bytes) -> None:
    with pytest.raises(DamagedLogError) as damage:
        decode_event(DecisionMade.TOPIC, 1, state, 5)
    assert (damage.value.code, damage.value.details["position"]) == ("BAD_EVENT", 5)


@pytest.mark.requirement("CARD-audit", "WP-decision")
def test_of_several_decisive_outcomes_of_version_1_those_that_contradict_the_reason_lose_their_mark() -> None:
    approved = {"rule": "fine", "source": "policy", "answer": "approve", "decisive": True}
    rejected = {"rule": "no", "source": "policy", "answer": "reject", "decisive": True}
    wire = {"decision": {"decision": "rejected", "reason": "no: never", "trace": [approved, rejected]}}
    trace = second_version(wire)["decision"]["trace"]
    assert trace == [{"rule": "fine", "source": "policy", "answer": "approve"}, rejected]


def _on(outcome: int, trace: list[dict[str, Any]]) -> None:
    for one in trace:
        one.pop("decisive", None)
    trace[outcome]["decisive"] = True


BY_ENGINE = {"rule": ENGINE, "source": "leases", "answer": "reject"}
FORGERIES: dict[str, tuple[str, Callable[[list[dict[str, Any]]], Any]]] = {
    "a rule decided beside the engine": ("held", lambda trace: trace[0].update(decisive=True)),
    "a rule decided in place of the engine": ("held", lambda trace: _on(0, trace)),
    "nobody says that it was overruled": ("held", list.pop),
    "the engine spoke before the others": ("held", list.reverse),
    "the engine approved": ("fine", lambda trace: trace.append(BY_ENGINE)),
}


@pytest.mark.requirement("CARD-audit", "WP-decision")
@pytest.mark.parametrize("what", FORGERIES)
def test_a_forged_record_of_who_decided_is_found(scenes: Scenes, tmp_path: Path, what: str) -> None:
    name, alter = FORGERIES[what]
    with Realm.open_read_only(scenes.address) as realm:
        export_log(realm.log, out := BytesIO())
    told = [json.loads(line) for line in out.getvalue().splitlines()]
    wanted = ("decision.made", scenes.pages[name])
    (made,) = [one for one in told if (one.get("topic"), one.get("stream")) == wanted]
    alter(made["state"]["decision"]["trace"])
    address = str(tmp_path / "forged.db")
    import_log(BytesIO(b"".join(rehashed(told))), address)
    with Realm.open_read_only(address) as realm:
        found = verify(realm.log).findings
        assert {(one.code, one.position) for one in found} == {("BAD_EVENT", made["position"])}, found
