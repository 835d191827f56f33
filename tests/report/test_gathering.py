"""What a report tells is what a replay comes to, at every point of the log; and what is hidden is told nowhere."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.report.pages import golden, hostile, parsed, reported, table
from tests.support.making_events import made
from world.events.execution_events import EffectFulfilled
from world.events.lease_events import VerdictGiven
from world.events.proposal_events import DecisionMade, ProposalSubmitted
from world.read_models.lineage import heads_at
from worldprotocol.api.realm import Realm
from worldprotocol.export.redaction import Redaction
from worldprotocol.report.decisions import Decisions
from worldprotocol.report.gathering import Window, gather
from worldprotocol.report.page import render
from worldprotocol.report.proposals import Proposals
from worldprotocol.report.tally import EventPosition, Spell, Tally

LOGS = ("garden", "garden-leased", "harbour", "ledger-leased")


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize("name", LOGS)
def test_at_every_point_the_report_is_what_a_replay_comes_to(tmp_path, name):
    with Realm.open_read_only(golden(name, tmp_path)) as world:
        for upto in range(1, world.log.head().size + 1, 11):
            told = gather(world.archive, Window(0, upto)).to_wire()
            heads, realm = heads_at(world.archive, upto), world.archive.fold_realm(upto)
            rows = told["lineage"]["branches"]["rows"]
            assert {one["name"]: (one["head"], one["tip"]) for one in rows} == {
                one.name: (one.head, one.tip) for one in heads.branches.values()
            }
            assert told["lineage"]["active"] == heads.active
            assert told["leases"]["held"] == len(realm.klis.leases)
            assert told["leases"]["queued"] == len(realm.klis.requests)
            assert told["proposals"]["underWay"] == len(realm.proposals)
            assert told["head"] == {"size": upto, "root": world.log.root_at(upto).root_hex}


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize("name", LOGS)
def test_the_figures_are_counts_of_events(tmp_path, name):
    address = golden(name, tmp_path)
    told = reported(address)[0].to_wire()
    with Realm.open_read_only(address) as world:
        events = [event for _, event in world.events()]
    decisions = Counter(event.decision.decision for event in events if isinstance(event, DecisionMade))
    by_rule, by_actor = told["decisions"]["byRule"]["rows"], told["decisions"]["byActor"]["rows"]
    for rows in (by_rule, by_actor):
        assert sum(one["approved"] for one in rows) == decisions["approved"]
        assert sum(one["rejected"] for one in rows) == decisions["rejected"]
    assert sum(one["count"] for one in told["decisions"]["refusals"]["rows"]) == decisions["rejected"]
    assert sum(one["submitted"] for one in by_actor) == told["proposals"]["submitted"]
    verdicts = Counter(event.status for event in events if isinstance(event, VerdictGiven))
    total = told["leases"]["total"]
    assert (total["granted"], total["wait"], total["die"]) == tuple(verdicts[one] for one in ("Granted", "Wait", "Die"))
    results = [event.result for event in events if isinstance(event, EffectFulfilled)]
    assert told["effects"]["total"]["made"] == sum(one.error is None for one in results)
    assert told["effects"]["total"]["failed"] == sum(one.error is not None for one in results)
    assert told["events"]["counted"] == len(events)
    changes: Counter[str] = Counter()
    for span in told["leases"]["overTime"]["rows"]:
        changes.update(span["changes"])
    assert changes["granted"] == sum(len(event.leases) for event in events if isinstance(event, VerdictGiven))


def test_every_part_tells_of_the_log_that_has_everything(tmp_path):
    made, page = reported(hostile(tmp_path, "n"))
    told, root = made.to_wire(), parsed(page)
    assert told["proposals"]["endings"] == {"completed": 1, "failed": 1, "rejected": 1}
    assert told["proposals"]["underWay"] == 1
    assert told["runs"]["violations"]["count"] == told["runs"]["violations"]["blocked"] == 1
    assert told["effects"]["total"] == {
        "requested": 4, "made": 2, "failed": 2, "retried": 4, "inDoubt": 1, "resolved": 0, "dropped": 0,
    }  # fmt: skip
    assert len(told["effects"]["inDoubtNow"]["rows"]) == 1
    assert sum(one["narrowed"] for one in told["decisions"]["byRule"]["rows"]) == 2
    assert sum(one["waited"]["count"] for one in told["decisions"]["waits"]["rows"]) == 3
    assert sum(one["asked"] for one in told["decisions"]["waits"]["rows"]) == 4
    (agent,) = told["leases"]["byAgent"]["rows"]
    assert agent["queued"] == {"count": 1, "totalMs": 14, "meanMs": 14, "longestMs": 14}
    (shown,) = table(root, "Verdicts about leases")
    assert (shown["granted"], shown["Wait"], shown["Die"], shown["longest"]) == ("1", "1", "1", "14 ms")
    assert [one["status"].split()[0] for one in table(root, "Proposals")] == [
        "evaluating", "rejected", "failed", "completed",
    ]  # fmt: skip
    assert len(table(root, "The newest violations")) == len(table(root, "Effects in doubt")) == 1


def test_a_window_counts_what_lies_in_it_and_knows_what_was_before(tmp_path):
    with Realm.open_read_only(golden("garden-leased", tmp_path)) as world:
        size = world.log.head().size
        whole = gather(world.archive, Window(0, size)).to_wire()
        for cut in (1, 50, 111, size):
            first, last = (gather(world.archive, one).to_wire() for one in (Window(0, cut), Window(cut, size)))
            for told in (whole, first, last):
                told["events"]["byTopic"] = Counter(told["events"]["byTopic"])
            assert first["events"]["byTopic"] + last["events"]["byTopic"] == whole["events"]["byTopic"]
            for ending, count in whole["proposals"]["endings"].items():
                parts = (first["proposals"]["endings"].get(ending, 0), last["proposals"]["endings"].get(ending, 0))
                assert sum(parts) == count
            assert last["leases"]["held"] == whole["leases"]["held"]
            assert last["lineage"]["branches"] == whole["lineage"]["branches"]
            assert "hidden" not in json.dumps(last)


@pytest.mark.requirement("KM-7.3")
@pytest.mark.parametrize("rule", ["resources", "inputs", "actors", "topic=proposal.*", "actor=bot"])
def test_the_report_tells_nothing_that_only_hidden_events_say(tmp_path, rule):
    address = golden("garden-leased", tmp_path)
    told = reported(address, rules=(rule,))
    hidden, page = told[0].to_wire(), told[1]
    redaction = Redaction((rule,))
    with Realm.open_read_only(address) as world:
        redaction.learn(world.log)
        logged = list(world.log.read())
        shown = b" ".join(one.state for one in logged if not redaction.hides(one)).decode()
        secret = [event for one, (_, event) in zip(logged, world.events(), strict=True) if redaction.hides(one)]
    assert hidden["redacted"]["hidden"] == len(secret) > 0
    assert hidden["events"]["counted"] == len(logged) - len(secret)
    for event in secret:
        if isinstance(event, ProposalSubmitted):
            for word in (event.proposal_id, event.actor.actor_id, event.intent.body.type):
                assert word in shown or f"<bdi>{word}</bdi>" not in page
    assert f"{len(secret)} events are hidden by the rules" in page


def test_only_the_newest_proposals_are_listed_unless_all_are_asked_for(tmp_path, monkeypatch):
    address = golden("garden", tmp_path)
    monkeypatch.setattr("worldprotocol.report.gathering.NEWEST", 3)
    some, everything = reported(address), reported(address, every=True)
    submitted = some[0].to_wire()["proposals"]["submitted"]
    assert len(table(parsed(some[1]), "Proposals")) == 3
    assert some[0].to_wire()["proposals"]["leftOut"] == submitted - 3
    assert f"{submitted - 3} are left out" in some[1]
    whole = table(parsed(everything[1]), "Proposals")
    assert len(whole) == submitted
    assert table(parsed(some[1]), "Proposals") == whole[:3]


def test_a_tally_keeps_so_many_keys_and_counts_what_is_beyond():
    tally: Tally = Tally(("name",), _Count, most=2)
    for name, times in (("a", 3), ("b", 5), ("c", 2), ("d", 1), ("a", 1)):
        tally.of(name).weight += times
    assert tally.to_wire() == {"rows": [{"name": "b", "n": 5}, {"name": "a", "n": 4}], "more": 0, "beyond": 3}
    assert tally.to_wire(1)["more"] == 1


class _Count:
    weight = 0

    def to_wire(self):
        return {"n": self.weight}


def test_a_clock_that_was_set_back_makes_no_wait_negative():
    spell = Spell()
    for ms in (-50, 10, 30):
        spell.add(ms)
    assert spell.to_wire() == {"count": 3, "totalMs": 40, "meanMs": 13, "longestMs": 30}


def test_a_decision_whose_submission_is_hidden_is_counted_for_nobody():
    decisions = Decisions(Proposals())
    step = decisions.steps()[DecisionMade]
    decision = {
        "decisionId": "d", "proposalId": "p", "authority": "a", "decision": "rejected", "reason": "no", "decidedAt": 1,
    }  # fmt: skip
    step(made(DecisionMade, at=5, proposal_id="p", decision=decision), EventPosition(7, counts=True))
    told = decisions.to_wire()
    assert [one["actor"] for one in told["byActor"]["rows"]] == ["hidden"]
    assert [one["action"] for one in told["refusals"]["rows"]] == ["hidden"]


def test_a_log_without_its_index_is_reported_all_the_same(tmp_path):
    with Realm.open_read_only(hostile(tmp_path, "n")) as world:
        made = gather(world.archive, Window(0, world.log.head().size))
        assert "".join(render(made))
