"""A small history that is made for real, and made for real once more with something otherwise in it.

What comes of the second is what ``whatif`` has to say of the first. Only what left a trace in the record is done again,
at its time; answers where the same is asked, results of effects where the record has them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from authority import Approve, Escalate, Narrow, Policy, PolicyRegistry, Reject, StandardAuthority, rule
from tests.pipeline.shop import shop
from world.clock import SequentialIds
from world.core import EffectAnswer
from world.engine.effect_runner import EffectRecorder
from world.engine.protocol import WorldProtocol
from world.errors import RefusedError
from world.klis.resources.resource_types import ResourceTypes
from world.model.canonical_json import digest
from world.model.decision import HumanAnswer
from world.model.snapshot import ErrorValue
from world.pipeline.submit import Submission
from world.pipeline.unit_of_work import Task
from world.state.ports import Performed
from world.state.proposal import Proposal
from worldprotocol.analysis.counterfactual.stand_ins import RecordedClock
from worldprotocol.analysis.rejudging import question_of
from worldprotocol.api.bootstrap import bootstrap
from worldprotocol.api.realm import Realm
from worldprotocol.api.workers import Idle

Step = tuple[Any, ...]


@rule
def shut(case: Any) -> Any:
    return Reject("closed today") if case.intent.body.type == "close" and case.actor.actor_id == "bot" else None


@rule
def cakes_ask(case: Any) -> Any:
    given = case.intent.body.input or {}
    return Escalate("ann", "a cake") if given.get("item") == "cake" else None


@rule
def many_ask(case: Any) -> Any:
    return Escalate("ann", "many") if case.history.count(actor_id=case.actor.actor_id) > 2 else None


@rule
def few_left_narrows(case: Any) -> Any:
    return Narrow(["data.stock.*", "data.sold"], "few left") if case.view.data["stock"]["tea"] < 8 else None


@rule
def otherwise(case: Any) -> Any:
    return Approve("why not")


@rule
def charges_never(case: Any) -> Any:
    return Reject("no charges") if case.intent.body.type == "charge" else None


@rule
def teas_ask(case: Any) -> Any:
    given = case.intent.body.input or {}
    return Escalate("ann", "a tea") if given.get("item") == "tea" else None


HOUSE = Policy("house", [shut, cakes_ask, many_ask, few_left_narrows, otherwise])
OTHERS = {
    "strict": Policy("house", [charges_never, cakes_ask, otherwise]),
    "lax": Policy("house", [otherwise]),
    "asking": Policy("house", [teas_ask, cakes_ask, otherwise]),
}
BINDINGS: dict[str, dict[str, Any]] = {
    "ann": {"kind": "auto_approve"},
    "bot": {"kind": "policy_rules", "policy": "house", "timeoutMs": 900, "onTimeout": "approve"},
    "kit": {"kind": "policy_rules", "policy": "house", "timeoutMs": 700},
    "kid": {"kind": "hitl", "ask": ["ann"], "timeoutMs": 800},
}


class Later(WorldProtocol):
    """Puts every effect off until somebody brings its result."""

    outstanding: list[Task]

    def perform(self, task: Task) -> list[Task]:
        self.outstanding.append(task)
        return []

    def bring(self, task: Task, result: EffectAnswer) -> None:
        self.outstanding.remove(task)
        for following in self.record(EffectRecorder(task, Performed(result))):
            self.perform(following)


@dataclass
class Came:
    """What came of a step of the record.

    Args:
        proposal_id: of the proposal that it submitted.
        intent: the intent, in wire form.
        of: the step whose proposal it was about.
        branch: that it named.
        heads: the branches whose head it began at.
        question: what somebody answered.
        request: the lease request that it made: its id, the agent and the session.
    """

    proposal_id: str | None = None
    intent: Any = None
    of: int = -1
    branch: str | None = None
    heads: list[str] = field(default_factory=list)
    question: Any = None
    request: tuple[str, str, str] | None = None


@dataclass
class Effect:
    """An effect of the record: ``step`` is where its result came in, None where it never did."""

    name: str
    call: str
    step: int | None = None
    result: EffectAnswer | None = None
    taken: str | None = None


@dataclass
class Record:
    """What a history leaves behind for another that is to be like it."""

    came: dict[int, Came] = field(default_factory=dict)
    effects: dict[int, list[Effect]] = field(default_factory=dict)
    ended: dict[int, tuple[tuple[int, int], str, str]] = field(default_factory=dict)  # at which look, branch, and how


class History:
    """Makes steps for real; ``like`` is the record that it follows, None where it is the record itself."""

    def __init__(self, file: Path, like: Record | None = None) -> None:
        self.like = like
        self.record = Record()
        self.now = 0
        self.part = 0
        self.clock = RecordedClock(1_000)
        self.bases: dict[int, str] = {}
        self.inserted: list[str] = []
        self.sizes: list[int] = []
        ids = SequentialIds("record" if like is None else "real")
        self.log, parts, _ = bootstrap(
            str(file), create=True, domain=shop, policies=[HOUSE], clock=self.clock, ids=ids, execute=True
        )
        self.protocol = Later(
            self.log,
            domain=parts.domain,
            authority=parts.authority,
            executor=parts.executor,
            clock=self.clock,
            ids=parts.ids,
            workers=Idle("whatif"),
            limits=parts.limits,
            types=ResourceTypes.installed(),
        )
        self.protocol.outstanding = []
        self.world = Realm(self.log, parts, self.protocol)
        self.world._found(None, "operator")
        for name, binding in BINDINGS.items():
            self.world.register(name, "human" if name in ("ann", "kid") else "agent", binding=binding)
        self.founded = self.log.head().size

    def close(self) -> None:
        self.world.close()

    def at(self, number: int, wait_ms: int) -> None:
        """Begin a step."""
        self.now, self.part = number, 0
        self.clock.now += 10 + wait_ms

    def do(self, step: Step) -> None:
        """Do what is due, and a step where the record has it; then leave a trace of the time that passed.

        After each of these three parts the worlds that it made are noted, in the record and in what follows it alike:
        a step can begin at a world that came about when its time came, and of two worlds of one step each stands for
        the head that there was then.
        """
        self.protocol.run(lambda work: None)
        self._after()
        came = Came()
        if self.like is None or self.now in self.like.came:
            try:
                getattr(self, f"_{step[0]}")(came, *step[1:])
                self.record.came[self.now] = came
            except RefusedError:
                pass
        self._after()
        self.world.register("mark", "system", name=f"step {self.now}")
        self._after()

    def insert(self, actor: str, action: str, given: Any, branch: str | None) -> None:
        """Submit what is in no record."""
        self.protocol.run(lambda work: None)
        self._after()
        proposal = self.world.act(actor, action, given, branch=branch)
        self.inserted.append(proposal.proposal_id)
        self._after()

    def judge_by(self, policy: Policy) -> None:
        """Let another policy judge from here on."""
        self.protocol._authority = StandardAuthority(PolicyRegistry([policy]))
        self.world.adopt_policy(policy.name)

    # Steps

    def _nothing(self, came: Came) -> None:
        raise RefusedError("DROPPED", "it is not done")

    def _sell(self, came: Came, actor: str, item: str, count: int, branch: int = 0) -> None:
        named = self._branch_named(came, branch)
        self._submit(came, actor, "sell", {"item": item, "count": count}, branch=named)

    def _sparing(self, came: Came, actor: str, item: str) -> None:
        self._submit(came, actor, "sell", {"item": item}, scope=["data.stock.*", "data.sold"])

    def _close(self, came: Came, actor: str) -> None:
        self._submit(came, actor, "close", None)

    def _charge(self, came: Came, actor: str, amount: int, times: int) -> None:
        key = "till" if amount == 1 else None
        self._submit(came, actor, "charge", {"amount": amount, "times": times}, execution_key=key)

    def _fork(self, came: Came, actor: str, which: int) -> None:
        base = self._base(came, which)
        self._submit(came, actor, "sell", {"item": "cake"}, base_world=base, fork_name=f"b{self.now}", failed=True)

    def _branch(self, came: Came, which: int) -> None:
        self.world.create_branch(f"b{self.now}", self._base(came, which), allow_failed=True)

    def _switch(self, came: Came, which: int) -> None:
        self.world.switch_branch(self._branch_named(came, which))

    def _decide(self, came: Came, which: int, choice: str) -> None:
        name = self._named(came, which, lambda one: one.asked)
        asked = self.world.proposal(name).asked
        if asked is None:
            raise RefusedError("NOT_WAITING", "nobody asks")
        came.question = question_of(asked), asked.step
        if self.like is not None and self.like.came[self.now].question != came.question:
            raise RefusedError("NOT_ASKED", "it is another question")
        scope = ["data.stock.*", "data.sold"] if choice == "narrow" else None
        wire = {"answerId": f"a{self.now}", "by": self.world._actor("ann"), "choice": choice, "reason": "so"}
        answer = HumanAnswer.read({**wire, "scope": None if scope is None else {"allowedPaths": scope}})
        self.protocol.answer(name, answer)

    def _cancel(self, came: Came, which: int) -> None:
        name = self._named(came, which, lambda one: one.status in ("approved", "executing"))
        self.protocol.cancel(name, by="ann", reason="not today")

    def _deliver(self, came: Came, which: int, fails: bool) -> None:
        """Bring a result in; done again it comes by itself, where the same is asked for."""
        if self.like is not None:
            return
        name = self._named(came, which, lambda one: one.requested)
        task = next(one for one in self.protocol.outstanding if one.proposal_id == name)
        result = EffectAnswer({"receipt": f"r{self.now}"})
        if fails:
            asked = task.requirement
            result = EffectAnswer(error=ErrorValue.at("BANK_CLOSED", "no", asked.action_id, asked.node_path, 5))
        found = next(one for one in self.record.effects[self._step_of(name)] if one.name == task.requirement.id)
        found.step, found.result = self.now, result
        self.protocol.bring(task, result)

    def _lease(self, came: Came, actor: str, resource: str, ttl_ms: int, queue: bool) -> None:
        scope = [{"predicate": "MUTATES", "resource": resource}]
        manifest = {"ver": "1.0", "session_id": f"s{self.now}", "agent_id": actor, "scope": scope}
        came.request = f"q{self.now}", actor, f"s{self.now}"
        name = came.request[0]
        self.protocol.leasing.request(manifest, by=actor, ttl_ms=ttl_ms, queue=queue, request_id=name)

    def _release(self, came: Came, which: int) -> None:
        agent, session, leases = self._leases_of(which)
        self.protocol.leasing.release(leases, agent_id=agent, session_id=session)

    def _beat(self, came: Came, which: int) -> None:
        agent, session, leases = self._leases_of(which)
        self.protocol.leasing.heartbeat(leases, agent_id=agent, session_id=session, ttl_ms=5_000)

    def _withdraw(self, came: Came, which: int) -> None:
        found = self._requests()
        name = found[which % len(found)][0]
        if not self.protocol.leasing.withdraw(name):
            raise RefusedError("NOT_WAITING", "it does not wait")

    def _revoke(self, came: Came, which: int) -> None:
        _, _, leases = self._leases_of(which)
        self.protocol.leasing.revoke(leases, by="operator", reason="enough")

    def _revoke_from(self, came: Came, which: int) -> None:
        name = self._named(came, which, lambda one: one.status == "executing")
        leases = [lease for _, session, lease, _ in self._held() if session == name]
        if not leases:
            raise RefusedError("UNKNOWN_LEASE", "it holds none")
        self.protocol.leasing.revoke(leases, by="operator", reason="enough")

    def _agent(self, came: Came, actor: str, priority: int) -> None:
        if self.protocol.archive.peek(lambda realm: actor in realm.klis.agents):
            raise RefusedError("KNOWN", "it is known")
        self.protocol.leasing.register_agent(actor, by="operator", priority=priority)

    def _bind(self, came: Came, actor: str, how: str) -> None:
        self.world.bind(actor, BINDINGS[how])

    def _wait(self, came: Came) -> None:
        self.world.settle()

    # What steps name

    def _submit(self, came: Came, actor: str, action: str, given: Any, *, failed: bool = False, **wishes: Any) -> None:
        if self.like is None:
            intent = self.world.issue(actor, action, given, scope=wishes.pop("scope", None))
        else:
            wishes.pop("scope", None)
            intent = self.like.came[self.now].intent
        if not {"branch", "base_world"} & set(wishes):
            wishes["branch"] = self._branch_named(came, 0)
        asked = Submission(intent, allow_failed_base=failed, **wishes)
        came.intent = intent
        came.proposal_id = self.protocol.submit(asked).proposal_id

    def _submitted(self) -> list[int]:
        """The steps of the record that submitted something, so far."""
        came = (self.like or self.record).came
        return [number for number, one in came.items() if number < self.now and one.intent is not None]

    def _step(self, which: int) -> int:
        numbers = self._submitted()
        if not numbers:
            raise RefusedError("NONE", "nothing was submitted")
        return numbers[which % len(numbers)]

    def _named(self, came: Came, which: int, fits: Callable[[Proposal], object]) -> str:
        """Return a proposal that fits; another history takes the one that the record took."""
        if self.like is None:
            numbers = [number for number in self._submitted() if fits(self.world.proposal(self._id(number)))]
            if not numbers:
                raise RefusedError("NONE", "none fits")
            came.of = numbers[which % len(numbers)]
        else:
            came.of = self.like.came[self.now].of
        return self._id(came.of)

    def _id(self, number: int) -> str:
        found = self.record.came.get(number)
        if found is None or found.proposal_id is None:
            raise RefusedError("NONE", "it was not submitted here")
        return found.proposal_id

    def _step_of(self, proposal_id: str) -> int:
        return next(number for number, one in self.record.came.items() if one.proposal_id == proposal_id)

    def _branch_named(self, came: Came, which: int) -> str:
        """Return a branch of the record; 0 is the active one, which the record knows by its name."""
        if self.like is None:
            names = [branch.name for branch in self.world.branches()]
            came.branch = self.world.branch().name if which == 0 else names[which % len(names)]
        else:
            came.branch = self.like.came[self.now].branch
        return came.branch or "main"

    def _base(self, came: Came, which: int) -> str:
        """Return a world to begin at; who begins at a head goes on from whatever is the head."""
        heads = {branch.name: branch.head for branch in self.world.branches()}
        base = self.bases.get(self._step(which))
        if self.like is None:
            came.heads = [name for name in (self.world.branch().name, *heads) if heads[name] == base]
        else:
            found = [name for name in self.like.came[self.now].heads if name in heads]
            base = heads[found[0]] if found else base
        if base is None:
            raise RefusedError("NONE", "it made no world")
        return base

    def _requests(self) -> list[tuple[str, str, str]]:
        came = (self.like or self.record).came
        found = [one.request for number, one in came.items() if number < self.now and one.request is not None]
        if not found:
            raise RefusedError("NONE", "nobody asked for a lease")
        return found

    def _leases_of(self, which: int) -> tuple[str, str, list[str]]:
        found = self._requests()
        _, agent, session = found[which % len(found)]
        leases = [lease for holder, held_in, lease, _ in self._held() if (holder, held_in) == (agent, session)]
        if not leases:
            raise RefusedError("UNKNOWN_LEASE", "it holds none")
        return agent, session, leases

    def _held(self) -> list[tuple[str, str, str, str]]:
        def look(realm: Any) -> list[tuple[str, str, str, str]]:
            return [
                (one.session.agent_id, one.session.session_id, one.lease_id, one.triple.resource.text)
                for one in realm.klis.leases.values()
            ]

        return self.protocol.archive.peek(look)

    # After a step

    def _after(self) -> None:
        self._bring_all()
        for number, came in self.record.came.items():
            if number in self.record.ended or came.proposal_id is None:
                continue
            proposal = self.world.proposal(came.proposal_id)
            if proposal.world_id is not None:
                self.record.ended[number] = (self.now, self.part), proposal.branch, proposal.status
                if self.like is None:
                    self.bases[number] = proposal.world_id
        if self.like is not None:
            self._find_bases(self.like)
        self.part += 1

    def _find_bases(self, like: Record) -> None:
        """Find what stands for worlds of the record, when the record has them: the own one, or the branch's head."""
        for number, (look, branch, how) in like.ended.items():
            if number in self.bases or look > (self.now, self.part):
                continue
            came = self.record.came.get(number)
            proposal = None if came is None or came.proposal_id is None else self.world.proposal(came.proposal_id)
            own = None if proposal is None else proposal.world_id
            is_failed = proposal is not None and proposal.status == "failed"
            if own is not None and (not is_failed or how == "failed"):
                self.bases[number] = own
            else:
                heads = {one.name: one.head for one in self.world.branches()}
                if branch in heads:
                    self.bases[number] = heads[branch]

    def _bring_all(self) -> None:
        asked = list(self.protocol.outstanding)
        if self.like is None:
            for task in asked:
                known = self.record.effects.setdefault(self._step_of_new(task.proposal_id), [])
                if all(one.name != task.requirement.id for one in known):
                    known.append(Effect(task.requirement.id, _call(task)))
            return
        while self._bring_one(self.like):
            pass

    def _step_of_new(self, proposal_id: str) -> int:
        found = [number for number, one in self.record.came.items() if one.proposal_id == proposal_id]
        return found[0] if found else self.now

    def _bring_one(self, like: Record) -> bool:
        for task in self.protocol.outstanding:
            found = self._recorded(like, task)
            if found is None:
                self._call_off(task)
                return True
            found.taken = task.requirement.id
            if found.step is not None and found.step <= self.now and found.result is not None:
                self.protocol.bring(task, found.result)
                return True
        return False

    def _recorded(self, like: Record, task: Task) -> Effect | None:
        if task.proposal_id in self.inserted:
            return None
        known = like.effects.get(self._step_of_new(task.proposal_id), [])
        own = task.requirement.id
        free = [one for one in known if one.taken in (None, own)]
        taken = [one for one in free if one.taken == own] or [one for one in free if one.name == own]
        return next(iter(taken or [one for one in free if one.call == _call(task)]), None)

    def _call_off(self, task: Task) -> None:
        name, asked = task.proposal_id, task.requirement
        if self.world.proposal(name).cancelled is None:
            self.protocol.cancel(name, by="whatif", reason=f"effect needed: {asked.type}")
        error = ErrorValue.at("CANCELLED", "effect needed", asked.action_id, asked.node_path, self.clock.now)
        self.protocol.bring(task, EffectAnswer(error=error))


def _call(task: Task) -> str:
    return digest({"name": task.requirement.type, "args": task.requirement.params})


def state_of(world: Realm) -> dict[str, Any]:
    """Return what is comparable of a realm: heads, the active branch, and who holds and wants what."""
    realm = world.realm()
    numbers = dict.fromkeys(realm.proposals)
    held = [
        (one.session.agent_id, "own" if one.session.session_id not in numbers else "proposal", one.triple.resource.text)
        for one in realm.klis.leases.values()
    ]
    return {
        "heads": {name: branch.head for name, branch in realm.branches.items()},
        "active": realm.active,
        "held": sorted(held),
        "agents": {name: rank[0] for name, rank in realm.klis.agents.items()},
        "waiting": len(realm.klis.requests),
    }


def outcome_of(world: Realm, proposal_id: str | None) -> dict[str, Any]:
    """Return what came of a proposal."""
    if proposal_id is None:
        return {"status": "none"}
    proposal = world.proposal(proposal_id)
    told: dict[str, Any] = {"status": proposal.status, "world": proposal.world_id, "branch": proposal.branch}
    if proposal.world_id is not None:
        told["content"] = world.archive.sealed(proposal.world_id).content_id
    if proposal.decision is not None:
        wire = proposal.decision.to_wire()
        told |= {name: wire.get(name) for name in ("decision", "approvedScope", "reason")}
    return told


def made(file: Path, steps: Sequence[tuple[int, Step]], like: Record | None = None, **otherwise: Any) -> History:
    """Make a history step by step.

    Args:
        file: its log.
        steps: how long to wait before each, in ms, and what it does.
        like: the record that it follows.
        **otherwise: ``drop``, the number of a step that is not done; ``insert``, ``(step, intent)``: before which step
            what is submitted; ``policy``, which judges from there on.
    """
    history = History(file, like)
    insert, policy = otherwise.get("insert"), otherwise.get("policy")
    for number, (wait_ms, step) in enumerate(steps):
        if policy is not None and policy[0] == number:
            history.judge_by(policy[1])
        if insert is not None and insert[0] == number:
            history.clock.now += 5 + wait_ms
            history.insert(*insert[1])
            history.clock.now -= 5 + wait_ms
        history.at(number, wait_ms)
        if otherwise.get("drop") == number:
            step = ("nothing",)
        history.do(step)
        history.sizes.append(history.log.head().size)
    return history
