"""What the steps of a recheck need of earlier events, beside the state that is folded from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from world.core import Domain
from world.events.base import Event
from world.events.execution_events import EffectRequested
from world.events.policy_events import PolicyAdopted, PolicyRetired, ShadowConfigured
from world.events.proposal_events import (
    DecisionMade,
    HumanAnswered,
    HumanTimedOut,
    ProposalCompleted,
    ProposalFailed,
    ProposalJudged,
    ProposalSuperseded,
)
from world.events.realm_events import DomainAdopted, WorldSealed
from world.model.decision import HumanAnswer, Ruling
from world.model.snapshot import Requirement
from world.pipeline.preparation.snapshots import SnapshotCache
from world.read_models.decoding import decoded
from world.read_models.live.sealed_snapshot import SealedSnapshot, kept_events
from world.state.proposal import fold_proposal
from world.state.realm_state import RealmState
from worldprotocol.analysis.recheck.available_code import AvailableCode
from worldprotocol.analysis.recheck.past import PastLookup
from worldprotocol.analysis.recheck.ruling_checks import RulingInput
from worldprotocol.api.bootstrap import EventLog

__all__ = ["EarlierEvents", "events_before"]


def events_before(log: EventLog, snapshot: SealedSnapshot) -> Iterator[tuple[int, Event, RealmState]]:
    """Yield the events before the cut of a log whose contents are kept.

    Args:
        log: the log.
        snapshot: of the cut.

    Yields:
        Position and event, with the position before it and the proposals that are open at the cut as they were then.
    """
    earlier = RealmState()
    open_proposals = set(snapshot.proposals)
    for logged in kept_events(log, snapshot):
        event = decoded(logged)
        earlier.position = logged.position - 1
        yield logged.position, event, earlier
        if logged.stream in open_proposals:
            earlier.proposals[logged.stream] = fold_proposal(earlier.proposals.get(logged.stream), event)


class EarlierEvents:
    """Notes of the events before a step.

    Args:
        domain: the loaded domain; adoptions change its form.
        code: the code that adoptions are compared with.
        past: look-ups, which remember worlds.
        snapshots: cleared when another domain is adopted.
    """

    def __init__(self, domain: Domain, code: AvailableCode, past: PastLookup, snapshots: SnapshotCache) -> None:
        """Begin before the first event."""
        self._domain = domain
        self._code = code
        self._past = past
        self._snapshots = snapshots
        self._asking: dict[str, RulingInput] = {}
        self._judged: dict[str, tuple[RulingInput, Ruling]] = {}
        self._requested: dict[str, list[Requirement]] = {}
        self.sealed: WorldSealed | None = None

    def take(self, event: Event, realm: RealmState) -> None:
        """Note an event.

        Args:
            event: the event.
            realm: the state before it: its position, and the proposal that the event is about.
        """
        note = _NOTES.get(type(event))
        if note is not None:
            note(self, event, realm)

    def question(self, event: ProposalJudged, realm: RealmState) -> RulingInput:
        """Return the input of a ruling, with the state before it."""
        asking = self._asking.get(event.proposal_id)
        return asking or RulingInput(event.binding, realm.position + 1)

    def judged(self, proposal_id: str) -> tuple[RulingInput, Ruling] | None:
        """Return the last ruling on a proposal whose trace is in its decision, with its input; None for others."""
        return self._judged.get(proposal_id)

    def requested(self, proposal_id: str) -> list[Requirement]:
        """Return the effects that a proposal requested, in their order."""
        return self._requested.get(proposal_id, [])

    def _adoption(self, event: DomainAdopted, _realm: RealmState) -> None:
        self._snapshots.clear()
        self._code.forget_changes(event)

    def _policy(self, event: PolicyAdopted | PolicyRetired | ShadowConfigured, _realm: RealmState) -> None:
        self._code.note_policy(event)

    def _answer(self, event: HumanAnswered, realm: RealmState) -> None:
        answer = HumanAnswer.read(event.answer)
        self._ask(event.proposal_id, answer, realm, 1)  # it is judged before it is recorded

    def _time_out(self, event: HumanTimedOut, realm: RealmState) -> None:
        self._ask(event.proposal_id, None, realm, 2)  # it is recorded before it is judged

    def _ask(self, proposal_id: str, answer: HumanAnswer | None, realm: RealmState, later: int) -> None:
        proposal = realm.proposals[proposal_id]
        asked = proposal.asked
        if asked is None or proposal.submitted.schema_hash != self._domain.schema.hash:
            return
        self._asking[proposal_id] = RulingInput(proposal.binding or {}, realm.position + later, asked, answer)

    def _ruling(self, event: ProposalJudged, realm: RealmState) -> None:
        question = self.question(event, realm)
        self._asking.pop(event.proposal_id, None)
        recorded = event.ruling
        submitted = realm.proposals[event.proposal_id].submitted
        is_ours = submitted.schema_hash == self._domain.schema.hash and submitted.migration is None
        if is_ours and recorded.verdict != "wait" and not recorded.trace:
            self._judged[event.proposal_id] = question, recorded  # its trace is in the decision

    def _decision(self, event: DecisionMade, _realm: RealmState) -> None:
        self._judged.pop(event.proposal_id, None)

    def _request(self, event: EffectRequested, _realm: RealmState) -> None:
        self._requested.setdefault(event.proposal_id, []).append(event.requirement)

    def _world(self, event: WorldSealed, _realm: RealmState) -> None:
        self.sealed = event
        self._past.follow(event)

    def _superseded(self, event: ProposalSuperseded, _realm: RealmState) -> None:
        self._asking.pop(event.proposal_id, None)

    def _end(self, event: ProposalCompleted | ProposalFailed, _realm: RealmState) -> None:
        self._requested.pop(event.proposal_id, None)


_NOTES: Final[Mapping[type[Event], Callable[[EarlierEvents, Any, RealmState], None]]] = {
    DomainAdopted: EarlierEvents._adoption,
    PolicyAdopted: EarlierEvents._policy,
    PolicyRetired: EarlierEvents._policy,
    ShadowConfigured: EarlierEvents._policy,
    HumanAnswered: EarlierEvents._answer,
    HumanTimedOut: EarlierEvents._time_out,
    ProposalJudged: EarlierEvents._ruling,
    DecisionMade: EarlierEvents._decision,
    EffectRequested: EarlierEvents._request,
    WorldSealed: EarlierEvents._world,
    ProposalSuperseded: EarlierEvents._superseded,
    ProposalCompleted: EarlierEvents._end,
    ProposalFailed: EarlierEvents._end,
}
"""Notes by type of event."""
