"""A second policy judges beside the one in force: what it says is recorded, and nothing else is otherwise."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from authority import Policy, rule
from tests.pipeline.till import HOUSE, STRICT, opened, parts, sound, till
from world.audit.verify import verify
from world.clock import ManualClock, SequentialIds
from world.errors import RefusedError
from world.events.codec import encode_event
from world.events.policy_events import ProposalShadowed, ShadowConfigured
from world.limits import Limits
from world.log import NewEvent, open_log
from world.model.canonical_json import canonical_bytes
from worldprotocol import Realm
from worldprotocol.analysis.shadow_results import shadows_of

BOTH = ("house.toml", "strict.toml")
OFTEN = """
[[rules]]
id = "not_too_often"
when = 'history.count({"actorId": actor.actorId}) >= 3'
verdict = "escalate"
to = ["ann"]
"""


def said(world: Realm) -> list[ProposalShadowed]:
    return [event for _, event in world.events() if isinstance(event, ProposalShadowed)]


@pytest.mark.requirement("CARD-policy", "CARD-audit", "CARD-replay")
def test_what_a_shadow_says_is_recorded_and_can_be_said_again(shared_log_url: str, tmp_path: Path) -> None:
    address = shared_log_url
    with opened(address, tmp_path, *BOTH) as world:
        assert world.shadow("strict", actors="bot") is True
        assert world.shadow("strict") is True
        assert world.shadow("strict") is False
        small, middle, large = (world.act("bot", "pay", {"amount": amount}) for amount in (5, 15, 30))
        world.act("ann", "pay", {"amount": 12})
        told = said(world)
        assert [one.proposal_id for one in told[:3]] == [small.proposal_id, middle.proposal_id, large.proposal_id]
        assert [one.ruling.verdict for one in told] == ["approve", "wait", "wait", "reject"]
        assert [one.status for one in (small, middle, large)] == ["completed", "completed", "evaluating"]
        assert told[1].ruling.trace[2].to == ("ann",)
        assert told[3].ruling.trace[2].answer == "error"  # ann has no level; her binding approves her proposal
        assert {one.policy_hash for one in told} == {world.parts.policies.get("strict").hash}  # type: ignore[union-attr]
        assert world.shadow(None, by="ann") is True
        assert world.shadow(None) is False
        world.act("bot", "pay", {"amount": 5})
        assert len(said(world)) == 4
        assert world.realm().shadow is None
    checked = sound(address, tmp_path, *BOTH)
    assert checked.ok, checked.to_wire()
    assert checked.steps["shadows"] == 4


@pytest.mark.requirement("CARD-policy")
def test_a_shadow_may_judge_only_what_some_actors_propose(tmp_path: Path) -> None:
    with opened("sqlite:///:memory:", tmp_path, *BOTH) as world:
        with pytest.raises(RefusedError, match="zoe"):
            world.shadow("strict", actors=["zoe"])
        with pytest.raises(RefusedError, match="no policy 'nowhere'"):
            world.shadow("nowhere")
        world.shadow("strict", actors=["ann"])
        world.act("bot", "pay", {"amount": 5})
        own = world.act("ann", "pay", {"amount": 5})
        assert [one.proposal_id for one in said(world)] == [own.proposal_id]


@pytest.mark.requirement("CARD-policy", "WP-bind")
@pytest.mark.parametrize(
    "binding",
    [
        {"kind": "hitl", "ask": ["ann"], "onTimeout": "escalate", "then": [{"ask": ["*"], "timeoutMs": 5}]},
        {"kind": "tribunal", "members": ["ann"], "timeoutMs": 5},
        {"kind": "policy_rules", "policy": "house", "ask": ["ann"], "then": [{"members": ["ann"]}]},
    ],
)
def test_a_shadow_would_ask_whom_the_actors_binding_names(tmp_path: Path, binding: dict[str, Any]) -> None:
    with opened("sqlite:///:memory:", tmp_path, *BOTH, strict=STRICT.replace('to = ["ann"]', "")) as world:
        world.bind("bot", binding)
        world.shadow("strict")
        world.act("bot", "pay", {"amount": 15})
        (one,) = said(world)
        assert (one.ruling.verdict, one.ruling.ask) == ("wait", ("ann",))
        assert one.ruling.timeout_ms == world.realm().bindings["bot"]["timeoutMs"]


@pytest.mark.requirement("CARD-policy", "CARD-replay")
def test_a_shadow_that_changed_or_is_missing_says_so_and_nothing_stops(tmp_path: Path) -> None:
    address = str(tmp_path / "world.db")
    with opened(address, tmp_path, *BOTH) as world:
        world.shadow("strict")
        configured = world.realm().shadow
        assert configured is not None
    (tmp_path / "strict.toml").write_text(STRICT.replace("10", "12"), encoding="utf-8")
    with Realm.open(address, **parts(tmp_path, *BOTH)) as world:
        assert world.act("bot", "pay", {"amount": 11}).status == "completed"
    with Realm.open(address, **parts(tmp_path)) as world:
        assert world.act("bot", "pay", {"amount": 11}).status == "completed"
        changed, missing = said(world)
        found = shadows_of(world)
    assert changed.policy_hash not in (None, configured.policy_hash)
    assert changed.ruling.verdict == "approve"
    assert missing.policy_hash is None
    assert "There is no policy 'strict' at hand" in missing.ruling.reason
    assert (found.counts["agree"], found.counts["notAsked"]) == (1, 1)
    checked = sound(address, tmp_path, *BOTH)
    assert (checked.steps["shadows"], checked.steps["notRepeatable"]) == (1, 1)
    assert checked.ok, checked.to_wire()
    (tmp_path / "strict.toml").write_text(STRICT, encoding="utf-8")  # what it said meanwhile is in no description
    for files in (BOTH, ("house.toml",)):
        checked = sound(address, tmp_path, *files)
        assert checked.ok, checked.to_wire()
        assert (checked.steps["shadows"], checked.steps["notRepeatable"]) == (0, 2)


@pytest.mark.requirement("CARD-policy")
def test_a_shadow_that_fails_or_says_too_much_is_recorded_as_far_as_it_can_be(tmp_path: Path) -> None:
    @rule
    def broken(case: Any) -> Any:
        raise SystemExit("no")

    rules = [
        {"id": f"r{at}", "verdict": "approve", "reason": "{intent.input.note}" * 5, "when": "true"} for at in range(100)
    ]
    (tmp_path / "wordy.yaml").write_text(json.dumps({"name": "wordy", "rules": rules}))
    (tmp_path / "house.toml").write_text(HOUSE)
    limits = Limits(max_event_bytes=60_000, judge_invalid_input=True)
    policies = ["house.toml", Policy("broken", [broken]), "wordy.yaml"]
    with Realm.create("sqlite:///:memory:", domain=till, policies=policies, folder=tmp_path, limits=limits) as world:
        world.register("bot", "agent", binding={"kind": "policy_rules", "policy": "house"})
        world.shadow("broken")
        assert world.act("bot", "pay", {"amount": 5}).status == "completed"
        world.shadow("wordy")
        world.act("bot", "pay", {"amount": 6, "note": "x" * 200})
        failed, cut = said(world)
        assert failed.ruling.verdict == "reject"
        assert "SystemExit" in failed.ruling.trace[0].reason
        assert cut.ruling.verdict == "approve"
        assert not cut.ruling.trace
        assert "too large" in cut.ruling.reason
        assert cut.policy_hash is not None
        assert verify(world.log).ok


FORGERIES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "the policy's hash": (lambda state: state.update(policyHash="0" * 64), "WRONG_HASH"),
    "the policy": (lambda state: state.update(name="house"), "BAD_REFERENCE"),
    "that there was none": (lambda state: state.clear(), "BAD_EVENT"),
}


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize("what", FORGERIES)
def test_verification_finds_a_shadow_that_cannot_have_been(tmp_path: Path, what: str) -> None:
    forge, code = FORGERIES[what]

    def forged(world: Realm) -> Iterator[NewEvent]:
        versions: dict[str, int] = {}
        for logged in world.log.read():
            state = json.loads(logged.state)
            if logged.topic == ProposalShadowed.TOPIC:
                forge(state)
            if state:
                yield NewEvent(logged.stream, logged.topic, logged.schema_version, canonical_bytes(state))
                versions[logged.stream] = versions.get(logged.stream, 0) + 1

    with opened("sqlite:///:memory:", tmp_path, *BOTH) as world:
        world.shadow("strict")
        world.act("bot", "pay", {"amount": 5})
        with open_log(str(tmp_path / "forged.db"), create=True) as log, log.write() as transaction:
            transaction.append(forged(world))
    with Realm.open_read_only(tmp_path / "forged.db") as looked:
        assert verify(looked.log).findings[0].code == code


STEP = st.one_of(
    st.tuples(st.just("act"), st.sampled_from(["bot", "ann", "kid"]), st.integers(1, 60)),
    st.tuples(st.just("decide"), st.sampled_from(["approve", "reject"]), st.integers(0, 2)),
    st.tuples(st.just("branch"), st.sampled_from(["main", "other"]), st.just(0)),
)


def lived(folder: Path, steps: list[tuple[str, str, int]], *, shadow: str | None) -> list[tuple[str, bytes]]:
    """Return all events of a realm's life that are not about shadows, as they are recorded."""
    (folder / "house.toml").write_text(HOUSE + OFTEN, encoding="utf-8")
    (folder / "strict.toml").write_text(STRICT + OFTEN.replace(">= 3", ">= 1"), encoding="utf-8")
    given: dict[str, Any] = {"clock": ManualClock(1_700_000_000_000, 1_000), "ids": SequentialIds()}
    with Realm.create("sqlite:///:memory:", **parts(folder, *BOTH), **given) as world:
        world.register("ann", "human", binding={"kind": "auto_approve"})
        world.register("bot", "agent", binding={"kind": "policy_rules", "policy": "house"}, meta={"level": 1})
        world.register("kid", "human", binding={"kind": "hitl", "ask": ["ann"], "timeoutMs": 4_000})
        world.create_branch("other")
        world.shadow(shadow)
        for what, who, number in steps:
            if what == "act":
                world.act(who, "pay", {"amount": number})
            elif what == "decide" and number < len(world.inbox()):
                with suppress(RefusedError):  # its time was over, or it is her own
                    world.decide(world.inbox()[number].proposal_id, who, by="ann")  # type: ignore[arg-type]
            elif what == "branch" and world.realm().active != who:
                world.switch_branch(who)
        assert verify(world.log).ok
        if shadow is not None:
            assert len(said(world)) == sum(what == "act" for what, _, _ in steps)
        kinds = (ProposalShadowed, ShadowConfigured)
        told = [event for _, event in world.events() if not isinstance(event, kinds)]
        return [(event.TOPIC, encode_event(event).replace(world._acting.worker.encode(), b"")) for event in told]


@pytest.mark.requirement("CARD-policy", "WP-decision")
@settings(max_examples=15, deadline=None)
@given(st.lists(STEP, min_size=1, max_size=8))
def test_a_shadow_never_changes_any_ruling_world_or_head(steps: list[tuple[str, str, int]]) -> None:
    with TemporaryDirectory() as folder:
        alone = lived(Path(folder), steps, shadow=None)
        assert lived(Path(folder), steps, shadow="strict") == alone
