"""The library's repository returns a proposal of a realm's log, the same as the engine folds."""

from __future__ import annotations

from dataclasses import fields
from uuid import UUID

import pytest
from eventsourcing.application import AggregateNotFoundError, Repository
from eventsourcing.persistence import EventStore, JSONTranscoder

from tests.cli.counter import counter, house
from world.log import open_log
from world.state.proposal import Proposal
from worldprotocol import Realm
from worldprotocol.api.consumers import EventMapper, ProposalAggregate, RecordedEvents, project_proposal


def same(found: Proposal, expected: Proposal) -> bool:
    """Return whether all that a proposal is folded to is equal."""
    names = [one.name for one in fields(Proposal)]
    return [getattr(found, name) for name in names] == [getattr(expected, name) for name in names]


@pytest.fixture
def address(shared_log_url: str) -> str:
    """Return the address of a realm in which one proposal was executed, one waits and one was rejected."""
    with Realm.create(shared_log_url, domain=counter, policies=[house]) as world:
        world.register("bot", "agent", binding={"kind": "auto_approve"})
        world.register("kid", "human", binding={"kind": "hitl", "ask": ["bot"]})
        world.act("bot", "sell", {"item": "tea"})
        world.act("kid", "sell", {"item": "tea"})
        world.act("bot", "sell", {"item": "cake", "count": 9})
    return shared_log_url


@pytest.mark.requirement("CARD-log")
def test_the_repository_of_the_library_returns_each_proposal_as_the_engine_folds_it(address: str) -> None:
    with Realm.open_read_only(address) as world:
        names = [logged.stream for logged in world.log.read(topics=["proposal.submitted"])]
        expected = {name: world.archive.proposal(name) for name in names}
        versions = {name: len(world.log.stream(name)) for name in expected}
    assert {one.status for one in expected.values()} == {"completed", "evaluating", "failed"}
    with RecordedEvents({"WORLD_LOG": address}) as application:
        for name, proposal in expected.items():
            found = application.repository.get(name, projector_func=project_proposal)
            assert isinstance(found, ProposalAggregate)
            assert same(found, proposal)
            assert (found.id, found.version) == (name, versions[name])
            first = application.repository.get(name, version=1, projector_func=project_proposal)
            assert (first.status, first.version) == ("submitted", 1)


@pytest.mark.requirement("CARD-log")
def test_a_cached_proposal_is_brought_up_to_date_from_its_later_events(address: str) -> None:
    with Realm.open(address, domain=counter, policies=[house]) as world:
        waiting = next(iter(world.archive.realm().proposals))
        with open_log(address, read_only=True) as log:
            store = EventStore(EventMapper(JSONTranscoder()), log)
            repository: Repository[str] = Repository(store, cache_maxsize=8)
            before = repository.get(waiting, projector_func=project_proposal)
            assert (before.status, before.version) == ("evaluating", 2)
            world.decide(waiting, "approve", by="bot")
            after = repository.get(waiting, projector_func=project_proposal)
            assert same(after, world.archive.proposal(waiting))
            assert (before.status, after.status) == ("evaluating", "completed")


@pytest.mark.requirement("CARD-log")
@pytest.mark.parametrize("name", [str(UUID(int=7)), "lineage", "realm", "klis"])
def test_what_is_no_proposal_is_not_found(address: str, name: str) -> None:
    with RecordedEvents({"WORLD_LOG": address}) as application, pytest.raises(AggregateNotFoundError):
        application.repository.get(name, projector_func=project_proposal)
