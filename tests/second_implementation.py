"""A second implementation of replay and verification, from docs/reference/log-format.md alone, with nothing of ours.

``python -m tests.second_implementation EXPORT...`` prints for each exported log whether it is sound, its tree heads,
worlds, branches and their data; or the first bad event. Only the standard library is used; canonical text, hashes,
patches and the forms of events are in ``tests.second_forms``, effects and claims in ``tests.second_effects``, leases
in ``tests.second_leases``, signatures in ``tests.second_signatures``.
"""

from __future__ import annotations

import base64
import binascii
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.second_access import Access
from tests.second_adoptions import HELD_IN, adoption_of, hold_is_possible
from tests.second_effects import Effects, stream_of_caller
from tests.second_forms import (
    TOPICS,
    Bad,
    Tree,
    canonical,
    covers,
    has_form,
    hash_of,
    intent_key,
    leaf_of,
    must,
    patched,
    read,
    schema_hash,
    world_ids,
)
from tests.second_leases import Leases
from tests.second_signatures import check_signature

__all__ = ["Bad", "Tree", "canonical", "leaf_of", "lines_of", "patched", "read", "verify", "world_ids"]

LATEST = {"decision.made": 2}
ENDS = {"rejected", "superseded", "completed", "failed"}
MODES = {"enforcing", "trusting"}
BY_TIME = {"approve": {"approve", "reject"}, "reject": {"reject"}, "escalate": {"wait", "reject"}}
REMARKS = {"ask", "reply"}
REFUSALS = (Bad, KeyError, IndexError, TypeError, AttributeError, ValueError)
"""What comes of an event that is not as the page says: a part that is looked for is missing, or of another type."""

State = Mapping[str, Any]


class Replay(Effects):
    """The fold of the events of one log; every event is checked against what came before it."""

    def __init__(self) -> None:
        """Begin before the first event."""
        self.size, self.version, self.log_id = 0, 1, ""
        self.streams: Counter[str] = Counter()
        self.ids: set[tuple[str, str]] = set()
        self.attempts: Counter[str] = Counter()
        self.modes: set[str] = set()
        self.schema: str | None = None
        self.domain: State = {}
        self.actors: dict[str, Any] = {}
        self.bindings: dict[str, Any] = {}
        self.policies: dict[str, str] = {}
        self.shadow: State | None = None
        self.worlds: dict[str, tuple[str | None, str, int, Any]] = {}  # parent, outcome, height, data
        self.branches: dict[str, dict[str, str]] = {}
        self.active, self.epoch = "", 0
        self.sealed: State | None = None  # a world whose execution has to end next
        self.announced: dict[str, State] = {}
        self.proposals: dict[str, dict[str, Any]] = {}
        self.approved: dict[str, list[str]] = {}  # by executionKey, in order
        self.running: dict[str, str] = {}
        self.runs: dict[str, str] = {}
        self.left: set[str] = set()  # calls whose callers left, which have to end next
        self.leases = Leases(self.once)
        self.access = Access(self.once, self.actors)

    def take(self, event: Mapping[str, Any]) -> None:
        """Check an event and fold it."""
        topic, state, stream = event["topic"], event["state"], event["stream"]
        self.size, self.version = self.size + 1, event["schemaVersion"]
        self.streams[stream] += 1
        must(self.streams[stream] == event["version"], "out of order in its stream")
        must(topic in TOPICS and 1 <= self.version <= LATEST.get(topic, 1), "an unknown topic, or a later version")
        must(has_form(state, TOPICS[topic][1] | {"at": (False, "integer")}), "not in the form of its topic")
        must(stream == self.stream_of(topic, state), "in a wrong stream")
        must((self.size == 1) is (topic == "log.founded"), "a log begins with its founding, once")
        if stream == "klis":
            self.leases.take_time(topic, state)
        name = "on_" + topic.replace(".", "_")
        holder_of = self.leases.holder_of if topic.startswith("lease") else self.claimer_of
        self.access.check(topic, state, (holder_of, self.performer_of))
        step = getattr(self, name, None) or getattr(self.leases, name, None) or getattr(self.access, name, None)
        if step is not None:
            step(state)
        elif topic.startswith("run."):
            self.on_run(topic, state)

    def end(self) -> None:
        """Check what a whole log must have said."""
        self.callers_ended()
        must(not self.announced, "a record names a proposal that nobody submitted")
        must(not any(one["over"] and one["status"] not in ENDS for one in self.proposals.values()), "its time was over")

    def stream_of(self, topic: str, state: State) -> str:
        """Return the stream that an event belongs to."""
        stream = TOPICS[topic][0]
        if topic == "caller.left" or topic.startswith("session."):
            return stream_of_caller(state)
        if stream == "the proposal's id":
            return str(state["proposalId"])
        return stream.replace("ID", str(state.get("projectionId", state.get("runId"))))

    def once(self, what: str, name: str) -> None:
        """Take an id in that must not come twice."""
        must((what, name) not in self.ids, f"the {what} {name} twice")
        self.ids.add((what, name))

    # The realm

    def on_log_founded(self, state: State) -> None:
        """Begin."""
        must(state["format"] == 1 and not state.get("logic"), "another format or logic")
        self.log_id = state["logId"]
        self.on_enforcement_chosen(state)

    def on_enforcement_chosen(self, state: State) -> None:
        """Let an enforcement be one that a worker may have."""
        self.modes.add(state["enforcement"])
        must(self.modes <= MODES, "no enforcement")

    def on_domain_adopted(self, state: State) -> None:
        """Take a schema into force."""
        must(schema_hash(state["schema"]) == state["schemaHash"], "a wrong schemaHash")
        must(state.get("previous") == self.schema, "another domain was in force")
        self.schema, self.domain = state["schemaHash"], state

    def on_actor_registered(self, state: State) -> None:
        """Take an actor in."""
        self.actors[state["actor"]["actorId"]] = state["actor"]

    def on_actor_bound(self, state: State) -> None:
        """Bind an actor."""
        binding = state["binding"]
        members = [member for one in (binding, *binding.get("then", ())) for member in one.get("members", ())]
        must(self.actors.keys() >= {state["actorId"], *members}, "not registered")
        must(binding.get("policy") is None or binding["policy"] in self.policies, "not adopted")
        self.bindings[state["actorId"]] = binding

    def on_policy_adopted(self, state: State) -> None:
        """Take a policy into force."""
        check_policy(state)
        must(state.get("previous") in (None, self.policies.get(state["name"])), "another policy was in force")
        self.policies[state["name"]] = state["policyHash"]

    def on_policy_retired(self, state: State) -> None:
        """Take a policy out of force."""
        must(self.policies.pop(state["name"], None) == state["policyHash"], "that policy was not in force")
        must(all(one.get("policy") != state["name"] for one in self.bindings.values()), "somebody is bound by it")

    def on_shadow_configured(self, state: State) -> None:
        """Let another policy judge too."""
        must(self.actors.keys() >= set(state["actors"]), "not registered")
        if state.get("policy") is None:
            must(state.get("name") is None and state.get("policyHash") is None, "a name without a policy")
        else:
            check_policy(state)
        self.shadow = state if state.get("name") is not None else None

    def on_key_registered(self, state: State) -> None:
        """Take a key in."""
        try:
            must(len(base64.b64decode(state["publicKey"], validate=True)) == 32, "no key")
        except binascii.Error:
            raise Bad("no key") from None
        self.leases.on_key_registered(state)

    def on_verdict_given(self, state: State) -> None:
        """Take a verdict in."""
        self.leases.check_channel(state, self.runs, self.proposals.keys())
        self.leases.on_verdict_given(state)

    # Lineage

    def on_world_sealed(self, state: State) -> None:
        """Rebuild a world and compare its hashes."""
        parent, error = state["parent"], state.get("error")
        patches = state.get("patches", [])
        must(self.sealed is None, "the world before was not followed by the end of its execution")
        must(error is None or not patches, "a failed world changes nothing")
        if parent is None:
            must(not self.branches and state["createdBy"] is None, "genesis comes first, and nobody made it")
            must(state.get("data") is not None, "genesis has data")
            data, height = state["data"], 0
        else:
            data, height = self.grown(state, parent, patches)
        outcome = "completed" if error is None else "failed"
        ids = world_ids(state["schemaHash"], data, error, parent)
        must(all(state[name] == value for name, value in ids.items()), "a wrong hash of a world")
        must((state["height"], state["outcome"]) == (height, outcome), "a wrong height or outcome")
        must(state["schemaHash"] == self.schema, "a schema that is not in force")
        self.once("world", state["worldId"])
        self.worlds[state["worldId"]] = parent, outcome, height, data
        if state["branch"] in self.branches:
            self.branches[state["branch"]]["tip"] = state["worldId"]

    def grown(self, state: State, parent: str, patches: list[Any]) -> tuple[Any, int]:
        """Return the data and the height of a world that an execution made."""
        maker = self.proposals.get(state["createdBy"] or "", {"status": ""})
        must(maker["status"] == "executing" and maker["branch"] == state["branch"], "no execution made it")
        must(self.branches[state["branch"]]["head"] == parent, "its parent is not the head")
        self.sealed = state
        data = self.worlds[parent][3]
        for patch in patches:
            data = patched(data, patch)
        allowed = (maker["decision"].get("approvedScope") or {}).get("allowedPaths")
        if maker["enforcement"] == "enforcing" and allowed is not None:
            must(
                all(covers(allowed, patch, maker["rules"]) for patch in patches),
                "a patch outside of the approved scope",
            )
        return data, self.worlds[parent][2] + 1

    def on_branch_created(self, state: State) -> None:
        """Make a branch."""
        must(state["branch"] not in self.branches and state["worldId"] in self.worlds, "a wrong branch")
        self.branches[state["branch"]] = {"head": state["worldId"], "tip": state["worldId"]}
        self.active = self.active or state["branch"]

    def on_branch_switched(self, state: State) -> None:
        """Make another branch the active one."""
        must(state["branch"] in self.branches and state["epoch"] == self.epoch + 1, "a wrong branch or epoch")
        self.active, self.epoch = state["branch"], state["epoch"]

    # Proposals: who decides

    def open(self, state: State, *statuses: str) -> dict[str, Any]:
        """Return the proposal that an event is about, which is in one of these states."""
        found = self.proposals.get(state["proposalId"], {"status": "unknown"})
        must(found["status"] in statuses, f"a proposal that is {found['status']} cannot take this")
        return found

    def on_projection_recorded(self, state: State) -> None:
        """Remember what a projection selected."""
        self.once("record", state["recordId"])
        must(state["actor"]["actorId"] in self.actors, "not registered")
        must(state["worldId"] in {one["head"] for one in self.branches.values()}, "not the head of any branch")
        if state.get("proposalId") is not None:
            self.announced[state["proposalId"]] = state

    def on_proposal_submitted(self, state: State) -> None:
        """Take a proposal in."""
        intent, actor, branch = state["intent"], state["actor"], self.branches.get(state["branch"])
        self.once("proposal", state["proposalId"])
        self.once("intent", intent["intentId"])
        must(intent_key(state["schemaHash"], intent["body"]) == intent["intentKey"], "a wrong intentKey")
        must(state["schemaHash"] == self.schema, "a schema that is not in force")
        must(self.actors.get(actor["actorId"]) == actor, "not as the actor is registered")
        must(intent["meta"]["origin"]["actor"]["actorId"] == actor["actorId"], "an intent of somebody else")
        must(branch is not None and branch["head"] == state["baseWorld"], "its base is not the head")
        must(state["epoch"] == self.epoch, "a wrong epoch")
        must(state.get("scopeRules", 2) == 2, "unknown scope rules")
        self.attempts[intent["intentKey"]] += 1
        must(state["attempt"] == self.attempts[intent["intentKey"]], "a wrong attempt")
        ledger = self.leases
        check_signature(state, self.log_id, ledger.keys, ledger.signed_from, ledger.signature_age)
        record = self.announced.pop(state["proposalId"], None)
        if record is not None:
            selected = record.get("intentId"), record.get("intentKey")
            must(selected == (intent["intentId"], intent["intentKey"]), "a record of another intent")
        self.proposals[state["proposalId"]] = {
            "status": "submitted",
            "rules": state.get("scopeRules", 1),
            "actor": actor["actorId"],
            "branch": state["branch"],
            "key": state["executionKey"],
            "intent": intent["intentId"],
            "migrates": (state["at"], intent["body"]) if state.get("migration") is not None else None,
            "ruling": {},
            "binding": None,
            "deadline": None,
            "times": {},
            "shadowed": False,
            "over": False,
            "said": [],
            **{name: set() for name in ("requested", "doubted", "fulfilled")},
            "attempt": 0,
            "name": state["proposalId"],
            "verdict": None,
            "cancelled": False,
            "attended": "attended" in state,
            "caller_at": (state.get("attended") or {}).get("server"),
            "offers": {},
            "claims": {},
            "failures": {},
        }

    def shadow_of(self, proposal: State) -> str | None:
        """Return the policy that judges an actor's proposals too."""
        shadow = self.shadow
        if shadow is None or (shadow["actors"] and proposal["actor"] not in shadow["actors"]):
            return None
        return str(shadow["name"])

    def on_proposal_shadowed(self, state: State) -> None:
        """Take in what another policy would have said."""
        proposal = self.open(state, "submitted")
        must(not proposal["shadowed"] and self.shadow_of(proposal) == state["name"], "no shadow of this actor")
        must(state["ruling"].get("policyHash") == state.get("policyHash"), "a wrong policyHash")
        proposal["shadowed"] = True

    def on_proposal_held(self, state: State) -> None:
        """Take in that a proposal waits for other code."""
        proposal = self.open(state, *HELD_IN.get(state["cause"], ("submitted", "approved", "executing")))
        is_left = state["cause"] in ("workspace", "caller")
        must(state["cause"] != "caller" or proposal["attended"], "not an attended call")
        must(not is_left or proposal["ruling"].get("verdict") == "approve", "it wants no leases")
        hold_is_possible(state, self.schema, self.policies, self.domain["sources"], self.leases.workspace)

    def on_caller_returned(self, state: State) -> None:
        """Take in that the caller of a call asks another server."""
        proposal = self.open(state, "submitted", "evaluating", "approved", "executing")
        must(proposal["attended"] and state["server"] != proposal["caller_at"], "no other server")
        proposal["caller_at"] = state["server"]

    def on_proposal_judged(self, state: State) -> None:
        """Take a ruling in."""
        proposal, ruling = self.open(state, "submitted", "evaluating"), state["ruling"]
        before, is_first = proposal["ruling"], proposal["status"] == "submitted"
        migrates = proposal["migrates"] is not None
        if is_first and not migrates:
            must(proposal["shadowed"] or self.shadow_of(proposal) is None, "what the shadow said is missing")
        bound: Any = self.bindings.get(proposal["actor"]) if is_first else proposal["binding"]
        bound = adoption_of(proposal, ruling, self.domain, self.actors) if migrates else bound
        must(bound == state["binding"], "not the binding of the actor")
        if is_first and ruling["verdict"] != "reject" and ruling.get("policyHash") is not None:
            must(self.policies.get(bound.get("policy", "")) == ruling["policyHash"], "not the adopted policy")
        if proposal["over"]:
            must(ruling["verdict"] in BY_TIME[before.get("onTimeout", "reject")], "not what its time leads to")
        last, step = before.get("step", 0), ruling.get("step", 0)
        must(last <= step <= len(bound.get("then", ())), "no such step")
        deadline = None
        if ruling["verdict"] == "wait":
            waits = ruling.get("timeoutMs")
            deadline = None if waits is None else state["at"] + waits
            if not is_first and step == last:
                deadline = proposal["deadline"]
        must(state.get("deadline") == deadline, "a wrong deadline")
        check_votes(proposal, ruling)
        proposal |= {"status": "evaluating", "ruling": ruling, "binding": bound, "deadline": deadline, "over": False}

    def on_proposal_rescheduled(self, state: State) -> None:
        """Count anew from a confirmed time what a proposal waits for."""
        proposal, now = self.open(state, "submitted", "evaluating", "approved", "executing"), state["at"]
        must(now == self.leases.confirmed, "not confirmed")
        wait, before = (proposal["ruling"] or {}).get("timeoutMs"), proposal["deadline"]
        is_sooner = proposal["status"] == "evaluating" and None not in (wait, before) and now + wait < before
        must(state.get("deadline") == (now + wait if is_sooner else None), "a wrong deadline")
        proposal["deadline"] = state.get("deadline", before)
        must(state.get("effects", {}) == self.sooner(proposal, now), "wrong deadlines of effects")

    def on_human_answered(self, state: State) -> None:
        """Take an answer in."""
        proposal, answer = self.open(state, "evaluating"), state["answer"]
        self.once("answer", answer["answerId"])
        by = answer["by"]["actorId"]
        must(by in self.actors and (answer.get("to") is None or answer["to"] in self.actors), "not registered")
        must((by == proposal["actor"]) is (answer["choice"] == "reply"), "not theirs to answer")
        deadline = proposal["deadline"]
        must(not proposal["over"] and (deadline is None or state["at"] <= deadline), "the time was over")
        if answer["choice"] not in REMARKS:
            proposal["said"].append((f"{answer['by']['kind']}:{by}", answer["choice"]))

    def on_human_timed_out(self, state: State) -> None:
        """Take in that nobody answered."""
        proposal = self.open(state, "evaluating")
        must(not proposal["over"] and state["deadline"] == proposal["deadline"], "a wrong deadline")
        must(state["at"] > state["deadline"], "the time was not over")
        proposal["over"] = True

    def on_decision_made(self, state: State) -> None:
        """Decide on a proposal."""
        told, name = state["decision"], state["proposalId"]
        is_approved = told["decision"] == "approved"
        proposal = self.open(state, "evaluating", *(() if is_approved else ("submitted",)))
        self.once("decision", told["decisionId"])
        must(name not in self.left, "the caller left")
        must((told["proposalId"], told["decidedAt"]) == (name, state["at"]), "about another proposal or time")
        must(not proposal["over"], "no ruling tells what the end of the time led to")
        must(is_approved is ("approvedScope" in told), "an approvedScope stands in an approval")
        check_votes(proposal, told)
        approves = proposal["ruling"].get("verdict") == "approve"
        lacks_leases = approves and not is_approved and self.leases.are_needed
        check_decision(proposal["ruling"], told, lacks_leases, self.version)
        held = self.leases.decided(proposal["actor"], name, state)
        if is_approved:
            scope = told.get("approvedScope")
            writes = state.get("verdictId") is not None or scope is None or scope.get("allowedPaths") != []
            is_free = not writes or proposal["migrates"] is not None
            must(held or is_free or not self.leases.are_needed, "approved without leases")
            self.approved.setdefault(proposal["key"], []).append(name)
        proposal |= {"status": told["decision"], "decision": told, "verdict": state.get("verdictId")}

    def on_proposal_superseded(self, state: State) -> None:
        """End what a switch left behind, or what was withdrawn, or whose caller left."""
        self.on_left_end(state, is_left=state.get("reason") == "caller left" and state.get("by") is None)
        self.open(state, "submitted", "evaluating")["status"] = "superseded"
        must(state["epoch"] == self.epoch, "a wrong epoch")
        is_explained = bool(state.get("reason")) and state.get("successor") is None
        must(state.get("by") is None or is_explained, "a withdrawal without a reason, or with a successor")

    # Proposals: what is done

    def on_execution_started(self, state: State) -> None:
        """Begin an execution, or let another worker take it on."""
        proposal, name = self.open(state, "approved", "executing"), state["proposalId"]
        frozen = state["now"], state["seed"], state["onWorld"]
        if proposal["status"] == "approved":
            must(self.approved[proposal["key"]][0] == name and proposal["key"] not in self.running, "out of its turn")
            must(state["onWorld"] == self.branches[proposal["branch"]]["head"], "not on the head")
            self.approved[proposal["key"]].pop(0)
            self.running[proposal["key"]] = name
            proposal |= {"status": "executing", "frozen": frozen}
        must(frozen == proposal["frozen"] and state["seed"] == proposal["intent"], "another time, seed or world")
        must(state["enforcement"] in self.modes, "nobody chose that enforcement")
        proposal |= {"attempt": proposal["attempt"] + 1, "enforcement": state["enforcement"]}
        must(state["attempt"] == proposal["attempt"], "a wrong attempt")

    def on_execution_cancelled(self, state: State) -> None:
        """Call an execution off."""
        proposal = self.open(state, "approved", "executing")
        proposal["cancelled"] = True
        self.on_left_end(state)
        self.hurry(proposal, state["at"])

    def on_proposal_completed(self, state: State) -> None:
        """Move a branch."""
        self.ended(state, "completed")
        self.branches[state["branch"]]["head"] = state["worldId"]

    def on_proposal_failed(self, state: State) -> None:
        """Move the tip of a branch; the error is that of the world."""
        sealed = self.ended(state, "failed")
        if sealed is not None:
            must(sealed.get("error") == state["error"], "another error than that of its world")
        data = self.worlds[state["worldId"]][3]
        ids = world_ids(self.schema or "", data, state["error"], state["parent"])
        must(ids["worldId"] == state["worldId"], "an error that the world's hash does not cover")

    def ended(self, state: State, outcome: str) -> State | None:
        """End an execution; return the world that was sealed for it, None where that was there before."""
        proposal, branch = self.open(state, "executing"), self.branches[state["branch"]]
        must(proposal["branch"] == state["branch"] and branch["head"] == state["parent"], "not on the head")
        must(self.worlds[state["worldId"]][:2] == (state["parent"], outcome), "a wrong world")
        sealed, self.sealed = self.sealed, None
        if sealed is not None:
            mine = state["proposalId"], state["worldId"]
            must((sealed["createdBy"], sealed["worldId"]) == mine, "another world was sealed just before")
        branch["tip"] = state["worldId"]
        proposal["status"] = outcome
        del self.running[proposal["key"]]
        return sealed

    def on_run(self, topic: str, state: State) -> None:
        """Take in what was seen of a run."""
        name = state["runId"]
        if topic == "run.opened":
            must(name not in self.runs, "opened twice")
            self.runs[name] = state["agentId"]
        elif topic == "run.closed":
            must(name in self.runs, "not open")
            del self.runs[name]
        else:
            is_open = self.proposals.get(name, {"status": "superseded"})["status"] not in ENDS
            must(name in self.runs or is_open, "not open")


def check_policy(state: State) -> None:
    """Compare a policy with its name and its hash."""
    policy = state["policy"]
    if policy.get("identity") in ("rules-1", "rules-2"):
        head = {name: policy[name] for name in ("combination", "identity", "name", "version") if name in policy}
        found = hash_of({**head, "rules": [[one["rule"], one["identity"]] for one in policy["rules"]]})
    else:
        found = hash_of({name: value for name, value in policy.items() if name != "hash"})
    must(found == policy["hash"] == state["policyHash"], "a wrong policyHash")
    must(policy["name"] == state["name"], "another policy")


def check_votes(proposal: State, told: State) -> None:
    """Check that votes can be won, and that those spoke whose answers were recorded."""
    trace = told.get("trace", [])
    for one in trace:
        quorum = one.get("quorum")
        if quorum is not None:
            needed = quorum.get("threshold")
            must(needed is None or needed <= len(one.get("to", ())), "a vote that nobody can win")
            must(one.get("to"), "a vote of nobody")
    spoken = [(one["source"], one["answer"]) for one in trace if one["rule"] == "human answer"]
    must(not spoken or spoken == proposal["said"], "answers that nobody gave")


def check_decision(ruling: State, told: State, lacks_leases: bool, version: int) -> None:
    """Check that a decision follows from its ruling."""
    verdict = "approved" if ruling.get("verdict") == "approve" else "rejected"
    must(lacks_leases or (told["decision"] == verdict and ruling.get("verdict") != "wait"), "not what was ruled")
    names = ("authority", "policyHash") if lacks_leases else ("authority", "policyHash", "reason", "approvedScope")
    must(not ruling or all(told.get(name) == ruling.get(name) for name in names), "not as it was ruled")
    trace, before = told.get("trace", []), ruling.get("trace")
    engine = [one for one in trace if one["rule"] == "the engine"]
    if version >= 2 and (engine or lacks_leases):
        must(told["decision"] == "rejected" and engine == trace[-1:], "the engine spoke last")
        sources = ("leases",) if lacks_leases else ("policy in force", "case")
        must(engine[0]["source"] in sources and engine[0] == {**ENGINE, "source": engine[0]["source"]}, "not its words")
        must(not any(one.get("decisive") for one in trace[:-1]), "the engine alone decided")
        trace = trace[:-1]
    if before:
        must(unmarked(trace, lacks_leases) == unmarked(before, lacks_leases), "not the trace of the ruling")


ENGINE = {"rule": "the engine", "answer": "reject", "decisive": True}


def unmarked(trace: list[Any], is_overruled: bool) -> list[Any]:
    """Return outcomes without the marks of what decided, where the engine overruled them."""
    return [{name: one[name] for name in one if name != "decisive" or not is_overruled} for one in trace]


def verify(lines: Iterable[str]) -> dict[str, Any]:
    """Return what an exported log comes to, or its first bad event."""
    tree, replay, heads, position = Tree(), Replay(), list[list[Any]](), 0
    try:
        for number, line in enumerate(lines):
            told = read(line)
            if canonical(told) != line.rstrip("\n"):
                position += "position" in told
                raise Bad("not canonical")
            if number == 0:
                if (told["worldProtocol"], told["format"]) != ("log", 1):
                    raise Bad("no export")
            elif "head" in told:
                heads.append([told["head"]["size"], told["head"]["root"]])
                if heads[-1] != [tree.size, tree.root()]:
                    raise Bad("a wrong tree head")
            else:
                position += 1
                leaf = leaf_of(told)
                if told["position"] != position or leaf.hex() != told["leaf"]:
                    raise Bad("a wrong position or leaf")
                tree.add(leaf)
                replay.take(told)
        replay.end()
        if not heads or heads[-1][0] != tree.size:
            raise Bad("cut off")
    except REFUSALS as error:
        return {"sound": False, "firstBad": position, "why": str(error)}
    ended = Counter(one["status"] for one in replay.proposals.values() if one["status"] in ENDS)
    return {
        "sound": True,
        "heads": heads,
        "worlds": list(replay.worlds),
        "branches": {name: one | {"data": replay.worlds[one["head"]][3]} for name, one in replay.branches.items()},
        "active": replay.active,
        "epoch": replay.epoch,
        "statuses": dict(sorted(ended.items())),
    }


def lines_of(path: Path) -> Iterator[str]:
    """Yield the lines of a file; what is no UTF-8 is no line."""
    with path.open("rb") as file:
        for line in file:
            yield line.decode("utf-8", "surrogateescape")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        sys.stdout.write(canonical({"log": name, **verify(lines_of(Path(name)))}) + "\n")
