"""A branch that leaves the record at some event, made in a scratch log; the real log is only read (CARD-audit)."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from world.actor import ActorRef
from world.clock import SequentialIds
from world.errors import Refused
from world.events import ProjectionRecorded, ProposalSubmitted
from world.intent import IntentBody
from world.klis.resource import ResourceTypes
from world.ports import Enforcement
from world.submission import Submission
from world.views.archive import Archive, decoded
from world.views.index import WorldIndex
from worldprotocol.assemble import EventLog, Parts, compose, open_for_reading
from worldprotocol.whatif.asked import Insertion, WhatIf
from worldprotocol.whatif.replaying import WHATIF, Replaying, backups_taken
from worldprotocol.whatif.report import Report, compare
from worldprotocol.whatif.scratch import copy_beginning, cut_before, open_scratch
from worldprotocol.whatif.stand_ins import Backups, Bystander, InForce, Putting, RecordedClock, Thinking

__all__ = ["cut_of", "what_if"]

TOLD_EVERY: Final = 500
"""Events between two words about how far it came."""

Progress = Callable[[int, int], None]


def what_if(question: WhatIf, progress: Progress = lambda done, total: None) -> Report:
    """Go through a log again from some event on, with something otherwise, and tell what comes of it.

    Args:
        question: what is otherwise.
        progress: called with events done and in all.

    Raises:
        Refused: ``NOT_AFTER_START`` for a proposal that was submitted before; ``SCHEMA_MISMATCH``,
            ``POLICY_NOT_AT_HAND``; ``UNKNOWN_ACTOR`` and the like for what is inserted; ``FILE_EXISTS``; what cannot be
            opened or loaded.
        DamagedLog: when the log contradicts itself; ``verify`` comes first.
    """
    with open_for_reading(question.address) as source, _scratch(question) as (scratch, view):
        _check_dropped(source, question)
        copy_beginning(source, scratch, view, question.start, progress)
        replaying = _prepared(question, source, scratch)
        try:
            size = source.head().size
            replaying.begin()
            for logged in source.read(question.start, size):
                replaying.take(logged.position, decoded(logged), logged.stream)
                if replaying.stopped is not None:
                    break
                if logged.position % TOLD_EVERY == 0:
                    progress(logged.position, size)
            if replaying.stopped is None:
                replaying.end()
            progress(size, size)
            return compare(Archive(source), replaying, question.start)
        finally:
            replaying.protocol.close()


def cut_of(archive: Archive, *, world: str | None, drop: list[str]) -> int:
    """Return the position behind which a branch begins.

    Args:
        archive: of the real log.
        world: the world after which it begins; None is before the first proposal that is dropped.
        drop: ids of proposals.

    Raises:
        Refused: ``UNKNOWN_WORLD``, ``UNKNOWN_PROPOSAL``, ``INVALID_VALUE`` where nothing says where it begins.
    """
    if world is not None:
        return cut_before(archive.log, archive.world(world).position)
    if not drop:
        raise Refused("INVALID_VALUE", "Say where the branch begins: --from WORLD; only --drop says it by itself.")
    first = min(_submitted_at(archive.log, name) for name in drop)
    if first > 1:
        before = decoded(archive.log.event_at(first - 1))
        if isinstance(before, ProjectionRecorded) and before.proposal_id in drop:
            return first - 2
    return first - 1


def _submitted_at(log: EventLog, name: str) -> int:
    for logged in log.stream(name):
        if logged.topic == ProposalSubmitted.TOPIC:
            return logged.position
    raise Refused("UNKNOWN_PROPOSAL", f"There is no proposal {name!r}.", proposal_id=name)


def _check_dropped(source: EventLog, question: WhatIf) -> None:
    for name in question.drop:
        if _submitted_at(source, name) <= question.start:
            raise Refused(
                "NOT_AFTER_START",
                f"Proposal {name} was submitted before the branch begins, so it cannot be left out there. Name an "
                "earlier world, or leave --from away.",
                proposal_id=name,
            )


@contextmanager
def _scratch(question: WhatIf) -> Iterator[tuple[EventLog, WorldIndex]]:
    """Give an empty log, in a file that stays or in one that goes."""
    given = question.scratch
    if given is not None and given.exists():
        raise Refused("FILE_EXISTS", f"{str(given)!r} exists already; name a new file for the scratch log.")
    with tempfile.TemporaryDirectory(prefix="whatif-") as folder:
        view = WorldIndex(checkpoint_every=question.limits.checkpoint_every)
        path = given or Path(folder, "scratch.db")
        with open_scratch(path, view) as log:
            yield log, view


def _prepared(question: WhatIf, source: EventLog, scratch: EventLog) -> Replaying:
    clock = RecordedClock(decoded(source.event_at(question.start)).at)
    realm = Archive(scratch).realm()
    enforcement: Enforcement = "trusting" if realm.enforcement == "trusting" else "enforcing"
    parts = compose(
        domain=question.domain,
        folder=question.folder,
        policies=question.at_hand,
        enforcement=enforcement,
        limits=question.limits,
        ids=SequentialIds(f"whatif {source.root_at(question.start).root_hex}"),
        clock=clock,
    )
    if realm.schema_hash != parts.domain.schema.hash:
        raise Refused(
            "SCHEMA_MISMATCH",
            f"Where the branch begins schema {realm.schema_hash[:12]} is in force, the domain at hand has "
            f"{parts.domain.schema.hash[:12]}. Ask with the domain of then.",
            in_force=realm.schema_hash,
            at_hand=parts.domain.schema.hash,
        )
    authority = InForce(parts.authority)
    protocol = Putting(
        scratch,
        domain=parts.domain,
        authority=authority,
        executor=Thinking(parts.executor, Backups(clock, backups_taken(source, question.start))),
        clock=clock,
        ids=parts.ids,
        workers=Bystander(),
        limits=question.limits,
        types=ResourceTypes.installed(),
    )
    protocol.asked = []
    _replace_policies(question, protocol, authority)
    return Replaying(
        protocol,
        clock,
        authority,
        source,
        frozenset(question.drop),
        lambda given: _insert(protocol, parts, given),
        deque(sorted(question.insert, key=lambda given: given.at or 0)),
        question.start,
    )


def _replace_policies(question: WhatIf, protocol: Putting, authority: InForce) -> None:
    """Bring the policies of then into force, or those that stand in their place, and bind whom they judge."""
    realm = protocol.realm()
    for policy in question.policies:
        authority.bring(policy)
        if policy.name in realm.policies:
            authority.replaced[policy.name] = policy.name
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


def _insert(protocol: Putting, parts: Parts, given: Insertion) -> str:
    """Submit an intent that nobody submitted, and return the proposal's id."""
    realm = protocol.realm()
    actor: Any = realm.actors.get(given.actor)
    if actor is None:
        raise Refused("UNKNOWN_ACTOR", f"Nobody registered the actor {given.actor!r} by then.", actor_id=given.actor)
    intent = parts.issue(ActorRef.read(actor), IntentBody.read(given.body), realm.schema_hash)
    return protocol.submit(Submission(intent, branch=given.branch)).proposal_id
