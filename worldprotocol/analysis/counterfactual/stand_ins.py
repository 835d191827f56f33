"""Replacements for clock, effects, workspace and policies in a counterfactual."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeVar

from authority import Policy, PolicyRegistry, StandardAuthority, rebuilt_policy
from host import Host
from world.clock import Boot
from world.code.time_limit import TimeLimit
from world.core import Domain
from world.engine.protocol import WorldProtocol
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.base import Event
from world.klis.resources.names import BYTE_WISE, NameComparison
from world.klis.resources.resource import Resource
from world.klis.triple import Triple
from world.model.decision import HumanAnswer, Ruling
from world.model.immutable_json import freeze
from world.model.snapshot import Requirement
from world.pipeline.execution_state import failed
from world.pipeline.unit_of_work import Emitted, Task
from world.state.ports import Case, EffectAttempt, EffectTerms, Enforcement, ExecutionOrder, Performed, StepOutcome
from world.state.realm_view import RealmView
from worldprotocol.analysis.counterfactual.foreseen import Foreseen

__all__ = ["NOTHING_RESTORED", "InForce", "Putting", "RecordedBackups", "RecordedClock", "Thinking"]

R = TypeVar("R")

NOTHING_RESTORED: Final[Mapping[str, Any]] = freeze({"restored": [], "removed": [], "failed": []})
"""Result of a rollback in an unchanged workspace."""


@dataclass(slots=True)
class RecordedClock:
    """Clock that shows the time of the replayed event, ms since 1970."""

    now: int = 0

    def now_ms(self) -> int:
        """Return the time of the replayed event."""
        return self.now

    def boot(self) -> Boot:
        """Return the same time, as time passes as recorded."""
        return Boot("recorded", self.now)


@dataclass(slots=True)
class RecordedBackups:
    """Backup service that copies nothing and takes the recorded time.

    Args:
        clock: clock that is advanced to the end of the recorded backup.
        foreseen: recorded end times and file existence.
        workspace_id: the realm's workspace at the replayed event; None where none is registered.
    """

    clock: RecordedClock
    foreseen: Foreseen
    workspace_id: str | None = None

    def needs(self, triples: Sequence[Triple]) -> bool:
        """Return True: ``take`` decides, as it has the session."""
        return True

    def prepare(self, triples: Sequence[Triple]) -> None:
        """Copy nothing."""

    def take(self, backup_id: str, triples: Sequence[Triple], *, at: int, note: Mapping[str, Any]) -> bool:
        """Advance the clock by the recorded duration; return whether a backup was recorded."""
        done = self.foreseen.backups.get(str(note.get("sessionId")))
        if done is not None:
            self.clock.now = max(self.clock.now, done)
        return done is not None

    def exists(self, resource: Resource, *, session_id: str, before: Literal["grant", "execution"]) -> bool | None:
        """Return the recorded existence of a file; None if it is not recorded."""
        return self.foreseen.existence.get((session_id, before, resource.text))

    def ignored(self) -> NameComparison:
        """Return the byte-wise comparison: the recorded settings decide."""
        return BYTE_WISE

    def follow(self, names: NameComparison) -> None:
        """Do nothing: there is no workspace."""

    def restore(self, backup_id: str, *, fresh: bool = False) -> Mapping[str, Any]:
        """Restore nothing: there is no workspace."""
        return NOTHING_RESTORED


@dataclass(slots=True)
class Thinking:
    """Executor that computes as the host does and performs no effects.

    Args:
        host: host that computes.
        keeper: replacement of the backup service.
    """

    host: Host
    keeper: RecordedBackups

    @property
    def enforcement(self) -> Enforcement:
        """Enforcement mode of the host."""
        return self.host.enforcement

    def step(self, order: ExecutionOrder) -> StepOutcome:
        """Compute as far as the journal permits; repeat recorded time-outs."""
        error = self.keeper.foreseen.errors.get(order.proposal_id)
        if error is None:
            return self.host.step(order)
        self.keeper.foreseen.taken.add(order.proposal_id)
        return failed(order.snapshot, error)

    def terms(self, effect_type: str, params: Mapping[str, Any] | None = None) -> EffectTerms:
        """Return the terms of an effect; one that workers perform is answered with its recorded result too."""
        return replace(self.host.terms(effect_type, params), external=False, looks_up=False)

    def literal_secrets(self, effect_type: str, params: Mapping[str, Any]) -> Sequence[str]:
        """Return nothing: recorded effects are requested again unchanged."""
        return ()

    def perform(self, order: ExecutionOrder, requirement: Requirement, call: EffectAttempt) -> Performed:
        """Refuse: effects are not performed."""
        raise RefusedError(ErrorCode.NOT_MADE, f"The effect {requirement.type} is not performed in a counterfactual.")

    def look_up(self, order: ExecutionOrder, requirement: Requirement, call: EffectAttempt) -> None:
        """Find nothing out: recorded results are taken as recorded."""


class Putting(WorldProtocol):
    """Writer of the scratch log that defers every effect and reports its commits."""

    asked: list[Task]
    on_event: Callable[[Event], None]

    def perform(self, task: Task) -> list[Task]:
        """Defer a requested effect."""
        self.asked.append(task)
        return []

    def ask(self, question: Callable[[RealmView], R]) -> R:
        """Read the state after the last commit; this process is the only writer."""
        return self.archive.peek(question)

    def work_under(self, domain: Domain) -> None:
        """Use the actions of another domain from now on."""
        self._domain = domain
        self._forget()

    def _run_units(self, open_commands: list[Any]) -> list[Emitted]:
        committed = super()._run_units(open_commands)
        for item in committed:
            self.on_event(item.event)
        return committed


@dataclass(slots=True)
class InForce:
    """Authority with the policies in force in the counterfactual.

    Args:
        at_hand: the authority with the loaded policies.
        foreseen: recorded rulings that cannot be repeated.
        time_limit: time limit of each rule.
        others: by name, policies in force that differ from the loaded ones.
        replaced: by recorded name, the replacing policy.
        everything: the policy that replaces all others, if any.
        missing: by name, errors of policies in force that are not available.
    """

    at_hand: StandardAuthority
    foreseen: Foreseen
    time_limit: TimeLimit
    others: dict[str, StandardAuthority] = field(default_factory=dict)
    replaced: dict[str, str] = field(default_factory=dict)
    everything: str | None = None
    missing: dict[str, RefusedError] = field(default_factory=dict)

    def judge(self, case: Case) -> Ruling:
        """Judge by the bound policy, or return the recorded ruling if it cannot be repeated."""
        recorded = self.foreseen.rulings.get(case.proposal_id)
        name = str(case.binding.get("policy"))
        if recorded is None or name == self.everything or name in self.replaced:
            return self._by(case.binding).judge(case)
        self.foreseen.taken.add(case.proposal_id)
        return recorded

    def answer(self, case: Case, asked: Ruling, answer: HumanAnswer) -> Ruling:
        """Apply a human answer."""
        return self.at_hand.answer(case, asked, answer)

    def expire(self, case: Case, asked: Ruling) -> Ruling:
        """Apply the time-out of a question."""
        return self.at_hand.expire(case, asked)

    def check_binding(self, binding: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a binding in its full form."""
        return self._by(binding).check_binding(binding)

    def check_policy(self, name: str, actions: Collection[str]) -> None:
        """Check a policy before it is adopted."""
        self.others.get(name, self.at_hand).check_policy(name, actions)

    def describe_policy(self, name: str, like: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """Return the description of a policy."""
        return self.others.get(name, self.at_hand).describe_policy(name, like)

    def _by(self, binding: Mapping[str, Any]) -> StandardAuthority:
        return self.others.get(str(binding.get("policy")), self.at_hand)

    def bring(self, policy: Policy) -> None:
        """Use a policy under its name."""
        self.others[policy.name] = StandardAuthority(PolicyRegistry([policy]), time_limit=self.time_limit)

    def adopt(self, name: str, policy_hash: str, description: Mapping[str, Any]) -> None:
        """Adopt a recorded policy; ``require`` reports it if it is not available."""
        self.missing.pop(name, None)
        self.others.pop(name, None)
        try:
            if self.at_hand.describe_policy(name, description)["hash"] == policy_hash:
                return
        except RefusedError:  # it is not loaded
            pass
        rebuilt = rebuilt_policy(description, policy_hash)
        if rebuilt is not None:
            self.bring(rebuilt)
            return
        self.missing[name] = RefusedError(
            ErrorCode.POLICY_NOT_AT_HAND,
            f"The policy {name!r} with the hash {policy_hash[:12]} is in force, but it is not loaded, and the log does "
            "not hold the code of its rules. Load the code of that time, or replace the policy (--policy).",
            policy=name,
            policy_hash=policy_hash,
        )

    def require(self, binding: Mapping[str, Any]) -> None:
        """Check that the policy of a binding is available.

        Raises:
            RefusedError: ``POLICY_NOT_AT_HAND``.
        """
        missing = self.missing.get(str(binding.get("policy")))
        if missing is not None:
            raise missing

    def stand_in(self, name: str) -> str | None:
        """Return the replacement of a recorded policy; None without replacement."""
        return self.replaced.get(name, self.everything)

    def bound(self, binding: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a recorded binding with the replacing policy."""
        name = self.stand_in(str(binding.get("policy"))) if binding.get("kind") == "policy_rules" else None
        return binding if name is None else {**binding, "policy": name}
