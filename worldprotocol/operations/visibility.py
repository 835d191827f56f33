"""What a caller may read: everything, events apart from those that rules hide, or only its own proposals."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.policy_events import ProposalShadowed
from world.events.realm_events import BranchCreated
from world.events.verification import Verification
from world.model.decision import voters
from world.read_models.decoding import decoded
from world.state.access import Rights
from world.state.realm_view import RealmView
from worldprotocol.api.remote.event_forms import logged_form
from worldprotocol.export.redaction import Redaction

if TYPE_CHECKING:
    from world.read_models.archive import Archive
    from world.state.proposal import Proposal
    from worldprotocol.api.bootstrap import EventLog, LoggedEvent

__all__ = ["Redactions", "Visibility", "rights_of"]


def rights_of(realm: RealmView, verified: Verification) -> Rights:
    """Return the rights of a caller: those of its actor, as far as its token is not limited to others."""
    held = realm.rights.get(verified.actor_id or "", {})
    token = realm.tokens.get(verified.token_id or "") if verified.uses_token else None
    if token is None or token.can is None:
        return held
    return {right: granted for right, granted in held.items() if right in token.can}


class Redactions:
    """Redactions of the readers of one realm; readers with equal rules share one.

    Args:
        log: the log.
        roles: the rules of each role, from ``[redact]`` in ``world.toml``.
        public: the rules for visitors, who are not signed in; without rules there are no visitors.

    Raises:
        RefusedError: ``INVALID_REDACTION`` for a rule of ``public`` that does not exist.
    """

    def __init__(self, log: EventLog, roles: Mapping[str, Iterable[str]] | None, public: Iterable[str] = ()) -> None:
        self._log = log
        self._roles = roles
        self.public = tuple(public)
        if self.public:
            Redaction(self.public, roles)
        self._known: dict[tuple[str, ...], tuple[Redaction, int]] = {}
        self._mutex = threading.Lock()

    def check(self, rules: Iterable[str]) -> None:
        """Refuse rules that do not exist.

        Raises:
            RefusedError: ``INVALID_REDACTION``.
        """
        Redaction(tuple(rules), self._roles)

    def shown(self, rules: tuple[str, ...], events: Iterable[LoggedEvent]) -> list[tuple[LoggedEvent, bool]]:
        """Return events, each with whether it is hidden by rules."""
        if not rules:
            return [(event, False) for event in events]
        with self._mutex:
            size = self._log.head().size
            redaction, learned = self._known.get(rules, (None, 0))
            redaction = redaction or Redaction(rules, self._roles)
            if learned < size:  # names of actors and types may be in any text
                redaction.learn(self._log, learned)
            self._known[rules] = redaction, size
            return [(event, redaction.hides(event)) for event in events]


class Visibility:
    """What one caller may read of a realm.

    Args:
        realm: the state of the realm.
        verified: the caller; one that is not verified is a visitor, and reads with the rules for the public.
        redactions: the redactions of the realm.
    """

    def __init__(self, realm: RealmView, verified: Verification, redactions: Redactions) -> None:
        """Derive it from the rights of the caller."""
        self._realm = realm
        self._actor_id = verified.actor_id or ""
        self._redactions = redactions
        self.is_visitor = not verified.is_verified
        if self.is_visitor:
            assert redactions.public, "a realm without public rules has no visitors"
            self.rights: Rights = {}
            self.reads_all = True
            self.rules: tuple[str, ...] = redactions.public
            return
        rights = rights_of(realm, verified)
        reader = rights.get("reader")
        self.rights = rights
        self.reads_all = "auditor" in rights or reader is not None
        self.rules = () if reader is None or "auditor" in rights else tuple(reader.redaction or ())

    @classmethod
    def of_everything(cls, realm: RealmView, verified: Verification, redactions: Redactions) -> Visibility:
        """Return the visibility of who has the log itself, and may read all of it."""
        made = cls.__new__(cls)
        made._realm, made._actor_id, made._redactions = realm, verified.actor_id or "", redactions
        made.is_visitor, made.rights, made.reads_all, made.rules = False, {}, True, ()
        return made

    def check_whole(self) -> None:
        """Refuse a reader with redaction what is made of many events.

        Raises:
            RefusedError: ``RIGHT_MISSING``.
        """
        if self.rules:
            raise RefusedError(
                ErrorCode.RIGHT_MISSING,
                "This is made of events of which some are hidden from "
                f"{'visitors' if self.is_visitor else repr(self._actor_id)}; it needs the right reader without "
                "redaction, or auditor.",
            )

    def events(self, events: Iterable[LoggedEvent]) -> list[tuple[LoggedEvent, bool]]:
        """Return events, each with whether it is hidden from the caller."""
        return self._redactions.shown(self.rules, events)

    def branches(self, archive: Archive) -> set[str] | None:
        """Return the names of the branches that the caller may read; None where those are all."""
        if not self.rules:
            return None
        places = [position for _, position in archive.rows("branch_places")]
        created = self.events(one for batch in archive.log.events_at(places) for one in batch)
        found = [decoded(event) for event, is_hidden in created if not is_hidden]
        return {event.branch for event in found if isinstance(event, BranchCreated)}

    def may_see(self, proposal: Proposal) -> bool:
        """Return whether a caller may read a proposal: any one, its own, or one that it may answer."""
        return self.reads_all or self.is_own(proposal)

    def is_own(self, proposal: Proposal) -> bool:
        """Return whether a proposal is of the caller as an actor, or concerns it as an approver."""
        if "actor" in self.rights and proposal.submitted.actor.actor_id == self._actor_id:
            return True
        return "approver" in self.rights and self._is_concerned(proposal)

    def may_answer(self, proposal: Proposal) -> bool:
        """Return whether a waiting proposal asks the caller."""
        if proposal.asked is None:
            return False
        known = self._realm.actors.get(self._actor_id)
        if proposal.submitted.actor.actor_id == self._actor_id:
            return bool(proposal.open_questions)
        is_any = "*" in proposal.asked.ask and known is not None and known.kind == "human"
        return self._actor_id in proposal.asked.ask or is_any

    def waiting(self, proposals: Iterable[Proposal]) -> list[Proposal]:
        """Return those proposals that wait for the caller, earliest deadline first.

        Args:
            proposals: proposals of the realm.
        """
        found = [one for one in proposals if self.may_answer(one)]
        if "approver" not in self.rights:  # an actor is asked about its own proposals only
            found = [one for one in found if one.submitted.actor.actor_id == self._actor_id]
        return sorted(found, key=lambda one: (one.deadline is None, one.deadline or 0, one.submitted.at))

    def _is_concerned(self, proposal: Proposal) -> bool:
        """Return whether a proposal asks the caller, asked it before, or would have."""
        known = self._realm.actors.get(self._actor_id)
        names = {self._actor_id} | ({"*"} if known is not None and known.kind == "human" else set())
        binding = proposal.binding or {}
        ruling = proposal.decision or proposal.ruling
        asked = {*binding.get("ask", ()), *voters(binding), *(() if proposal.asked is None else proposal.asked.ask)}
        asked |= {name for outcome in (() if ruling is None else ruling.trace) for name in outcome.to}
        asked |= {name for answer in proposal.answers for name in (answer.by.actor_id, answer.to) if name is not None}
        return bool(names & asked)

    def proposal(self, proposal: Proposal, log: EventLog, *, history: bool = False) -> dict[str, Any]:
        """Return a proposal as JSON, withheld where one of its events is hidden from the caller.

        Args:
            proposal: the proposal.
            log: the log.
            history: add its events, of which programs make the same object as from the log.

        Raises:
            RefusedError: ``UNKNOWN_PROPOSAL`` where the caller may not read it.
        """
        if not self.may_see(proposal):
            raise unknown_proposal(proposal.proposal_id)
        events = self.events(log.stream(proposal.proposal_id)) if self.rules or history else []
        if any(is_hidden for _, is_hidden in events):
            leaves = [
                {"position": event.position, **({"leaf": event.leaf.hex(), "redacted": True} if is_hidden else {})}
                for event, is_hidden in events
            ]
            return {"proposalId": proposal.proposal_id, "status": proposal.status, "redacted": True, "events": leaves}
        return proposal.to_wire() | ({"history": self.history(event for event, _ in events)} if history else {})

    def history(self, events: Iterable[LoggedEvent]) -> list[dict[str, Any]]:
        """Return the events of a proposal that the caller may read; rulings in shadow are for readers."""
        return [logged_form(one) for one in events if self.reads_all or one.topic != ProposalShadowed.TOPIC]


def unknown_proposal(proposal_id: str) -> RefusedError:
    """Return the refusal of a proposal that does not exist, or that the caller may not read."""
    return RefusedError(
        ErrorCode.UNKNOWN_PROPOSAL,
        f"There is no proposal {proposal_id!r} that the caller may read.",
        proposal_id=proposal_id,
    )
