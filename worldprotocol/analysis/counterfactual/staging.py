"""Setup of a counterfactual: its scratch realm, policies and domain."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import Any, cast

from host import Host
from world.clock import SequentialIds
from world.code.time_limit import TimeLimit
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.realm_events import DomainAdopted, WorkspaceRegistered
from world.klis.resources.resource_types import ResourceTypes
from world.model.intent import IntentBody
from world.pipeline.shadowing import configure_shadow
from world.pipeline.submit import Submission
from world.read_models.archive import Archive
from world.read_models.decoding import decoded
from world.state.ports import Enforcement
from world.state.realm_view import RealmView
from worldprotocol.analysis.counterfactual.asked import WHATIF, Insertion, WhatIf
from worldprotocol.analysis.counterfactual.domains import Domains, changed_code
from worldprotocol.analysis.counterfactual.foreseen import foresee
from worldprotocol.analysis.counterfactual.outcomes import Outcomes
from worldprotocol.analysis.counterfactual.outside import EffectReplayer
from worldprotocol.analysis.counterfactual.replaying import Replaying
from worldprotocol.analysis.counterfactual.stand_ins import (
    InForce,
    Putting,
    RecordedBackups,
    RecordedClock,
    Thinking,
)
from worldprotocol.api.bootstrap import Components, EventLog, compose, load_any_domain
from worldprotocol.api.options import ComponentOptions
from worldprotocol.api.workers import Idle

__all__ = ["Stage", "prepared"]


@dataclass(slots=True)
class Stage:
    """Scratch realm, with the changes that the record makes to it.

    Args:
        protocol: writer of the scratch log.
        thinking: executor of the scratch realm.
        parts: its components.
        domains: all known domains.
        time_limit: time limit of each step of an action.
        code: names of loaded Python functions that differ from the adopted ones.
    """

    protocol: Putting
    thinking: Thinking
    parts: Components
    domains: Domains
    time_limit: TimeLimit
    code: set[str]

    def enforce(self, mode: str) -> None:
        """Set the enforcement mode (``enforcing``, ``trusting``)."""
        self.thinking.host = Host(
            self.protocol.domain,
            self.parts.executor.effects,
            enforcement=cast(Enforcement, mode),
            time_limit=self.time_limit,
            clock=self.thinking.keeper.clock,
        )

    def register(self, event: WorkspaceRegistered) -> None:
        """Let the stand-in for backups have the workspace that was registered."""
        self.thinking.keeper.workspace_id = event.workspace_id

    def adopt(self, event: DomainAdopted) -> bool:
        """Adopt a recorded domain; return False if it is not available.

        Raises:
            RefusedError: see ``WorldProtocol.adopt_domain``; the previous domain then stays in force.
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
        """Submit an additional intent, and return the proposal's id.

        Raises:
            RefusedError: ``UNKNOWN_ACTOR``, and see ``world.pipeline.submit.record_proposal``.
        """
        realm = self.protocol.realm()
        actor = realm.actors.get(given.actor)
        if actor is None:
            raise RefusedError(
                ErrorCode.UNKNOWN_ACTOR,
                f"The actor {given.actor!r} is not registered at that time; insert the intent later.",
                actor_id=given.actor,
            )
        intent = self.parts.issue(actor, IntentBody.read(given.body), realm.schema_hash)
        return self.protocol.submit(Submission(intent, branch=given.branch)).proposal_id


def prepared(question: WhatIf, source: EventLog, scratch: EventLog) -> Replaying:
    """Return the replay of the later part of a log, with the changes applied.

    Args:
        question: the changes.
        source: the real log.
        scratch: the scratch log with a copy of the first events.

    Raises:
        RefusedError: see ``what_if``.
    """
    clock = RecordedClock(decoded(source.event_at(question.start)).at)
    options = ComponentOptions(
        folder=question.folder,
        policies=question.at_hand,
        limits=question.limits,
        ids=SequentialIds(f"whatif {source.root_at(question.start).root_hex}"),
        clock=clock,
        execute=True,  # effects are requested as recorded, and performed by no handler
    )
    parts = compose(domain=question.domain, options=options)
    others = [load_any_domain(given, base=question.folder, oldest_rules=1) for given in question.domains]
    domains, time_limit = Domains([parts.domain, *others]), TimeLimit(question.limits.max_call_ms)
    realm = Archive(scratch).realm()
    foreseen = foresee(source, question.start)
    authority = InForce(parts.authority, foreseen, time_limit)
    registered = None if realm.workspace is None else realm.workspace.workspace_id
    thinking = Thinking(parts.executor, RecordedBackups(clock, foreseen, registered))
    protocol = Putting(
        scratch,
        domain=_domain_at_start(domains, realm),
        authority=authority,
        executor=thinking,
        clock=clock,
        ids=parts.ids,
        workers=Idle(WHATIF),
        limits=replace(question.limits, judge_invalid_input=True),  # as recorded proposals may have been
        types=ResourceTypes.installed(),
    )
    outcomes = Outcomes(Archive(source), protocol.archive)
    outcomes.begin(realm.proposals, question.start)
    protocol.asked, protocol.on_event = [], outcomes.happened
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
        _ordered_insertions(source, question),
    )


def _ordered_insertions(source: EventLog, question: WhatIf) -> deque[Insertion]:
    """Return the insertions, earliest first; refuse times before the start."""
    start_ms = decoded(source.event_at(question.start)).at if question.start else 0
    early = next((one.at for one in question.insert if one.at is not None and one.at < start_ms), None)
    if early is not None:
        raise RefusedError(
            ErrorCode.INVALID_VALUE,
            f"The time of an inserted intent, {early} ms, is before the start of the counterfactual, {start_ms} ms. "
            "Start earlier (--from), or omit its time to insert it at the start.",
        )
    return deque(sorted(question.insert, key=lambda given: given.at or 0))


def _domain_at_start(domains: Domains, realm: RealmView) -> Any:
    assert realm.domain is not None  # a proposal requires a domain
    domain = domains.of(realm.domain)
    if domain is None:
        raise RefusedError(
            ErrorCode.SCHEMA_MISMATCH,
            f"At the start of the counterfactual schema {realm.schema_hash[:12]} is in force, which has Python "
            "functions, and no loaded domain has this schema. Name the domain that was in force then.",
            in_force=realm.schema_hash,
        )
    return domain


def _replace_policies(question: WhatIf, protocol: Putting, authority: InForce) -> None:
    """Adopt the policies in force at the start, or their replacements, and bind the actors."""
    realm = protocol.realm()
    for policy in question.policies:
        authority.bring(policy)
        if policy.name in realm.policies:
            authority.replaced[policy.name] = policy.name
        elif authority.everything not in (None, policy.name):
            names = f"{authority.everything!r} and {policy.name!r}"
            raise RefusedError(
                ErrorCode.INVALID_VALUE,
                f"The policies {names} are not in force, so each would replace all policies; name one.",
            )
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
