"""What a branch that never was is made with: a scratch realm, its policies, its domain, and who stands in for whom."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, cast

from host import Host
from world.clock import SequentialIds
from world.code.time_limit import TimeLimit
from world.errors import RefusedError
from world.events.realm_events import DomainAdopted
from world.klis.resources.resource import ResourceTypes
from world.model.actor import ActorRef
from world.model.intent import IntentBody
from world.pipeline.shadowing import configure_shadow
from world.pipeline.submit import Submission
from world.read_models.archive import Archive
from world.read_models.decoding import decoded
from world.state.ports import Enforcement
from world.state.realm_state import RealmState
from worldprotocol.analysis.counterfactual.asked import WHATIF, Insertion, WhatIf
from worldprotocol.analysis.counterfactual.domains import Domains, changed_code
from worldprotocol.analysis.counterfactual.foreseen import foresee
from worldprotocol.analysis.counterfactual.outcomes import Outcomes
from worldprotocol.analysis.counterfactual.outside import EffectReplayer
from worldprotocol.analysis.counterfactual.replaying import Replaying
from worldprotocol.analysis.counterfactual.stand_ins import (
    Bystander,
    InForce,
    Putting,
    RecordedBackups,
    RecordedClock,
    Thinking,
)
from worldprotocol.api.bootstrap import Components, EventLog, compose, load_any_domain

__all__ = ["Stage", "prepared"]


@dataclass(slots=True)
class Stage:
    """A scratch realm, and what can be changed about it while the record is gone through.

    Args:
        protocol: of the scratch log.
        thinking: computes in it.
        parts: what it was composed of.
        domains: all that are known.
        time_limit: for each step of an action.
        code: names of Python functions at hand that are not those which were adopted.
    """

    protocol: Putting
    thinking: Thinking
    parts: Components
    domains: Domains
    time_limit: TimeLimit
    code: set[str]

    def enforce(self, mode: str) -> None:
        """Let executions be refused or not what they may not write (``enforcing``, ``trusting``)."""
        self.thinking.host = Host(
            self.protocol.domain,
            self.parts.executor.effects,
            enforcement=cast(Enforcement, mode),
            time_limit=self.time_limit,
            clock=self.thinking.keeper.clock,
        )

    def adopt(self, event: DomainAdopted) -> bool:
        """Bring the domain of an adoption into force; False where it cannot be had.

        Raises:
            RefusedError: see ``WorldProtocol.adopt_domain``; then the one before goes on.
        """
        before, domain = self.protocol.domain, self.domains.of(event)
        if domain is None:
            return False
        self.protocol.work_under(domain)
        try:
            self.protocol.adopt_domain(by=event.by)
        except RefusedError:
            self.protocol.work_under(before)
            raise
        self.enforce(self.thinking.enforcement)
        self.code.update(changed_code(event, domain))
        return True

    def insert(self, given: Insertion) -> str:
        """Submit an intent that nobody submitted, and return the proposal's id.

        Raises:
            RefusedError: ``UNKNOWN_ACTOR``, and see ``world.pipeline.submit.submit``.
        """
        realm = self.protocol.realm()
        actor: Any = realm.actors.get(given.actor)
        if actor is None:
            raise RefusedError(
                "UNKNOWN_ACTOR", f"Nobody registered the actor {given.actor!r} by then.", actor_id=given.actor
            )
        intent = self.parts.issue(ActorRef.read(actor), IntentBody.read(given.body), realm.schema_hash)
        return self.protocol.submit(Submission(intent, branch=given.branch)).proposal_id


def prepared(question: WhatIf, source: EventLog, scratch: EventLog) -> Replaying:
    """Return what goes through the later part of a log, with the question's own changes made.

    Args:
        question: what is otherwise.
        source: the real log.
        scratch: holds its beginning.

    Raises:
        RefusedError: see ``what_if``.
    """
    clock = RecordedClock(decoded(source.event_at(question.start)).at)
    parts = compose(
        domain=question.domain,
        folder=question.folder,
        policies=question.at_hand,
        limits=question.limits,
        ids=SequentialIds(f"whatif {source.root_at(question.start).root_hex}"),
        clock=clock,
    )
    others = [load_any_domain(given, base=question.folder) for given in question.domains]
    domains, time_limit = Domains([parts.domain, *others]), TimeLimit(question.limits.max_call_ms)
    realm = Archive(scratch).realm()
    foreseen = foresee(source, question.start)
    authority = InForce(parts.authority, foreseen, time_limit)
    thinking = Thinking(parts.executor, RecordedBackups(clock, foreseen))
    protocol = Putting(
        scratch,
        domain=_domain_of_then(domains, realm),
        authority=authority,
        executor=thinking,
        clock=clock,
        ids=parts.ids,
        workers=Bystander(),
        limits=question.limits,
        types=ResourceTypes.installed(),
    )
    outcomes = Outcomes(Archive(source), protocol.archive)
    outcomes.begin(realm.proposals, question.start)
    protocol.asked, protocol.told = [], outcomes.happened
    stage = Stage(protocol, thinking, parts, domains, time_limit, changed_code(realm.domain, protocol.domain))
    stage.enforce(realm.enforcement)
    if realm.shadow is not None:
        protocol.run(lambda work: configure_shadow(work, None, (), WHATIF))
    _replace_policies(question, protocol, authority)
    return Replaying(
        protocol,
        clock,
        authority,
        EffectReplayer(protocol, source, position=question.start),
        outcomes,
        frozenset(question.drop),
        stage,
        _in_time(source, question),
    )


def _in_time(source: EventLog, question: WhatIf) -> deque[Insertion]:
    """Return what is inserted, the earliest first; nothing can be inserted into what is kept as it was."""
    begins = decoded(source.event_at(question.start)).at if question.start else 0
    early = next((one.at for one in question.insert if one.at is not None and one.at < begins), None)
    if early is not None:
        raise RefusedError(
            "INVALID_VALUE",
            f"An intent was to be inserted at {early} ms, before the branch begins, at {begins} ms. Let it begin "
            "earlier (--from), or leave its time out: then it comes first.",
        )
    return deque(sorted(question.insert, key=lambda given: given.at or 0))


def _domain_of_then(domains: Domains, realm: RealmState) -> Any:
    assert realm.domain is not None  # nothing was proposed before there was one
    domain = domains.of(realm.domain)
    if domain is None:
        raise RefusedError(
            "SCHEMA_MISMATCH",
            f"Where the branch begins schema {realm.schema_hash[:12]} is in force, whose functions are Python; no "
            "domain at hand has it. Ask with the domain of then.",
            in_force=realm.schema_hash,
        )
    return domain


def _replace_policies(question: WhatIf, protocol: Putting, authority: InForce) -> None:
    """Bring the policies of then into force, or those that stand in their place, and bind whom they judge."""
    realm = protocol.realm()
    for policy in question.policies:
        authority.bring(policy)
        if policy.name in realm.policies:
            authority.replaced[policy.name] = policy.name
        elif authority.everything not in (None, policy.name):
            told = f"Neither {authority.everything!r} nor {policy.name!r} is in force there, so each would stand in "
            raise RefusedError("INVALID_VALUE", f"{told}the place of all policies; name one of them.")
        else:
            authority.everything = policy.name
    for name, adopted in realm.policies.items():
        if authority.stand_in(name) is None:
            authority.adopt(name, adopted.policy_hash, adopted.policy)
    for policy in question.policies:
        protocol.adopt_policy(policy.name, by=WHATIF)
    for actor_id, binding in realm.bindings.items():
        bound = authority.bound(binding)
        if bound != binding:
            protocol.bind_actor(actor_id, bound, by=WHATIF)
