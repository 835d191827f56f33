"""What stands in for the outside in a branch that never was: its time, its effects, its workspace and its policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from authority import Policy, PolicyRegistry, StandardAuthority, rebuilt_policy
from host import Host
from world.clock import Boot
from world.code.time_limit import TimeLimit
from world.core import Domain
from world.engine.protocol import WorldProtocol
from world.errors import RefusedError
from world.events.base import Event
from world.klis.resources.names import BYTE_WISE, NameComparison
from world.klis.resources.resource import Resource
from world.klis.triple import Triple
from world.model.decision import HumanAnswer, Ruling
from world.model.snapshot import ErrorValue, Requirement
from world.pipeline.execute import failed
from world.pipeline.unit_of_work import Task
from world.state.ports import Case, EffectAttempt, EffectTerms, Enforcement, ExecutionOrder, Performed, StepOutcome
from world.state.realm_state import RealmState
from worldprotocol.analysis.counterfactual.foreseen import Foreseen

__all__ = ["Bystander", "InForce", "Putting", "RecordedBackups", "RecordedClock", "Thinking"]

R = TypeVar("R")


@dataclass(slots=True)
class RecordedClock:
    """A clock that stands at the time of the record, ms since 1970."""

    now: int = 0

    def now_ms(self) -> int:
        """Return the time at which the record stands."""
        return self.now

    def boot(self) -> Boot:
        """Return the same time: in a branch of the record, time passes as it did there."""
        return Boot("recorded", self.now)


@dataclass(slots=True)
class RecordedBackups:
    """Takes no backup, and as long for it as the recorded one took (``world.state.ports.Keeper``).

    Args:
        clock: moves to when the recorded backup was done.
        foreseen: knows when that was.
    """

    clock: RecordedClock
    foreseen: Foreseen

    def needs(self, triples: Sequence[Triple]) -> bool:
        """Ask again with ``take``, which knows for whom."""
        return True

    def prepare(self, triples: Sequence[Triple]) -> None:
        """Copy nothing."""

    def take(self, backup_id: str, triples: Sequence[Triple], *, at: int, note: Mapping[str, Any]) -> bool:
        """Let the time pass that it took then; returns whether there was a backup then."""
        done = self.foreseen.backups.get(str(note.get("sessionId")))
        if done is not None:
            self.clock.now = max(self.clock.now, done)
        return done is not None

    def exists(self, resource: Resource, *, session_id: str, before: Literal["grant", "execution"]) -> bool | None:
        """Return what was observed of a file then; None where nothing was."""
        return self.foreseen.existence.get((session_id, before, resource.text))

    def ignored(self) -> NameComparison:
        """Return that nothing is ignored: the settings that were recorded say all."""
        return BYTE_WISE

    def follow(self, names: NameComparison) -> None:
        """Change nothing: no workspace is looked at."""

    def restore(self, backup_id: str, *, fresh: bool = False) -> Mapping[str, Any]:
        """Give nothing back: no workspace was touched."""
        return {"restored": [], "removed": [], "failed": []}


@dataclass(slots=True)
class Thinking:
    """Computes as the host does and makes no effect (``world.state.ports.Executor``).

    Args:
        host: computes.
        keeper: stands in for the workspace.
    """

    host: Host
    keeper: RecordedBackups

    @property
    def enforcement(self) -> Enforcement:
        """What the host does."""
        return self.host.enforcement

    def step(self, order: ExecutionOrder) -> StepOutcome:
        """Compute as far as the journal goes; what was broken off then is broken off."""
        error = self.keeper.foreseen.errors.get(order.proposal_id)
        if error is None:
            return self.host.step(order)
        self.keeper.foreseen.taken.add(order.proposal_id)
        return failed(order.snapshot, ErrorValue.from_wire(error))

    def terms(self, effect_type: str, params: Mapping[str, Any] | None = None) -> EffectTerms:
        """Return what is promised for an effect."""
        return self.host.terms(effect_type, params)

    def literal_secrets(self, effect_type: str, params: Mapping[str, Any]) -> Sequence[str]:
        """Return nothing: an effect that was recorded is requested again as it was."""
        return ()

    def perform(self, order: ExecutionOrder, requirement: Requirement, call: EffectAttempt) -> Performed:
        """Refuse: nothing is made here."""
        raise RefusedError("NOT_MADE", f"The effect {requirement.type} is not made in a branch that never was.")


class Bystander:
    """A worker that takes nobody's work over (``world.pipeline.unit_of_work.Workers``)."""

    me = "whatif"

    def is_gone(self, worker: str) -> bool:
        """Tell that everybody is there: their results stand in the record."""
        return False

    def close(self) -> None:
        """There is nothing to leave."""


class Putting(WorldProtocol):
    """Puts every effect off, for its recorded result to be looked for, and tells what it commits."""

    asked: list[Task]
    told: Callable[[Event], None]

    def perform(self, task: Task) -> list[Task]:
        """Remember that an effect is asked for."""
        self.asked.append(task)
        return []

    def ask(self, question: Callable[[RealmState], R]) -> R:
        """Ask the realm as of the last commit something; nobody else writes to this log, so it is at hand."""
        realm = self._realm
        return self.archive.peek(question) if realm is None else question(realm)

    def work_under(self, domain: Domain) -> None:
        """Let the actions of another domain run from here on; nothing is under way under the one before."""
        self._domain = domain
        self._forget()

    def _run_units(self, open_commands: list[Any]) -> list[tuple[int, Event]]:
        committed = super()._run_units(open_commands)
        for _, event in committed:
            self.told(event)
        return committed


@dataclass(slots=True)
class InForce:
    """Judges by the policies in force in the branch, whatever is at hand under their names
    (``world.state.ports.Authority``).

    Args:
        at_hand: the authority over the policies at hand.
        foreseen: knows which rulings nobody can repeat.
        time_limit: for each rule.
        others: by name, those in force that are not at hand as they are.
        replaced: by the name that the record has, the policy that stands in its place.
        everything: the policy that stands in the place of all that none of those stands for; None for none.
        missing: why policies in force cannot judge, by name.
    """

    at_hand: StandardAuthority
    foreseen: Foreseen
    time_limit: TimeLimit
    others: dict[str, StandardAuthority] = field(default_factory=dict)
    replaced: dict[str, str] = field(default_factory=dict)
    everything: str | None = None
    missing: dict[str, RefusedError] = field(default_factory=dict)

    def judge(self, case: Case) -> Ruling:
        """Judge by what the binding names; what nobody can repeat is taken from the record, unless another judges."""
        recorded = self.foreseen.rulings.get(case.proposal_id)
        name = str(case.binding.get("policy"))
        if recorded is None or name == self.everything or name in self.replaced:
            return self._by(case.binding).judge(case)
        self.foreseen.taken.add(case.proposal_id)
        return recorded

    def answer(self, case: Case, asked: Ruling, answer: HumanAnswer) -> Ruling:
        """Take a person's answer."""
        return self.at_hand.answer(case, asked, answer)

    def expire(self, case: Case, asked: Ruling) -> Ruling:
        """Let the time to answer be over."""
        return self.at_hand.expire(case, asked)

    def check_binding(self, binding: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a binding in its full form."""
        return self._by(binding).check_binding(binding)

    def describe_policy(self, name: str) -> Mapping[str, Any]:
        """Return the description of a policy."""
        return self.others.get(name, self.at_hand).describe_policy(name)

    def _by(self, binding: Mapping[str, Any]) -> StandardAuthority:
        return self.others.get(str(binding.get("policy")), self.at_hand)

    def bring(self, policy: Policy) -> None:
        """Let a policy judge under its name."""
        self.others[policy.name] = StandardAuthority(PolicyRegistry([policy]), time_limit=self.time_limit)

    def adopt(self, name: str, policy_hash: str, description: Mapping[str, Any]) -> None:
        """Let the policy judge that the record adopts; whether it can is asked when somebody is bound by it."""
        self.missing.pop(name, None)
        self.others.pop(name, None)
        try:
            if self.at_hand.describe_policy(name)["hash"] == policy_hash:
                return
        except RefusedError:  # it is not at hand
            pass
        rebuilt = rebuilt_policy(description, policy_hash)
        if rebuilt is not None:
            self.bring(rebuilt)
            return
        self.missing[name] = RefusedError(
            "POLICY_NOT_AT_HAND",
            f"The policy {name!r} with the hash {policy_hash[:12]} is in force there, is not at hand, and the log "
            "does not hold the code of its rules. Bring the code of then, or put another in its place (--policy).",
            policy=name,
            policy_hash=policy_hash,
        )

    def require(self, binding: Mapping[str, Any]) -> None:
        """Make sure that what a binding names can judge.

        Raises:
            RefusedError: ``POLICY_NOT_AT_HAND``.
        """
        missing = self.missing.get(str(binding.get("policy")))
        if missing is not None:
            raise missing

    def stand_in(self, name: str) -> str | None:
        """Return which policy stands in the place of one of the record; None where that one judges itself."""
        return self.replaced.get(name, self.everything)

    def bound(self, binding: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a binding of the record as it is in the branch."""
        name = self.stand_in(str(binding.get("policy"))) if binding.get("kind") == "policy_rules" else None
        return binding if name is None else {**binding, "policy": name}
