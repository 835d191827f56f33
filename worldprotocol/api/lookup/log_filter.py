"""Filter of events by their content and their proposals; ``worldctl log``, the HTTP API and the pages use it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from world.error_codes import ErrorCode
from world.errors import DamagedLogError, RefusedError
from world.read_models.decoding import decoded

if TYPE_CHECKING:
    from world.events.base import Event
    from worldprotocol.api.bootstrap import LoggedEvent
    from worldprotocol.api.realm import Realm

__all__ = ["LogFilter", "actors_of"]

MAX_KNOWN: Final = 10_000
"""Proposals remembered while events are filtered; others are looked up again."""


@dataclass(slots=True)
class LogFilter:
    """Conditions of a search in the log; None is no condition, and all others have to hold.

    Args:
        world: an open realm.
        topics: topics of which the event has one.
        stream: the stream of the event.
        text: text in the state of the event as JSON, in upper or lower case.
        actor: an actor of the event, or of the proposal that it is about.
        action: the action of the proposal.
        status: the status of the proposal, now or after the event ``upto``.
        branch: the branch of the event or of the proposal.
        proposal: id of the proposal.
        since: not before, ms since 1970.
        until: not after, ms since 1970.
        upto: position after which events do not count.
        alone: whether an event is looked at without the others of its proposal, so that nothing of those is revealed.
    """

    world: Realm
    topics: Collection[str] | None = None
    stream: str | None = None
    text: str | None = None
    actor: str | None = None
    action: str | None = None
    status: str | None = None
    branch: str | None = None
    proposal: str | None = None
    since: int | None = None
    until: int | None = None
    upto: int | None = None
    alone: bool = False
    _known: OrderedDict[str, dict[str, Any]] = field(default_factory=OrderedDict)

    @property
    def narrows(self) -> bool:
        """Whether there is a condition besides topics and stream, by which the log itself is read."""
        asked = (self.text, self.proposal, self.since, self.until)
        return self.narrows_proposals or any(one is not None for one in asked)

    @property
    def narrows_proposals(self) -> bool:
        """Whether there is a condition on the proposals that events are about."""
        return any(one is not None for one in (self.actor, self.action, self.status, self.branch))

    def match(self, logged: LoggedEvent) -> Event | None:
        """Return the event if all conditions hold.

        Raises:
            DamagedLogError: ``BAD_REFERENCE``.
        """
        if not self._has_words(logged):
            return None
        event: Any = decoded(logged)
        if (self.since is not None and event.at < self.since) or (self.until is not None and event.at > self.until):
            return None
        if self.proposal is not None and self.proposal != _proposal_of(event):
            return None
        try:
            about = self.about(event)
        except RefusedError as refused:  # whatever a logged event names was logged before it
            rendered = (
                f"Event {logged.position} names what the log does not contain: {refused.message} Run `worldctl verify`."
            )
            raise DamagedLogError(ErrorCode.BAD_REFERENCE, rendered, position=logged.position) from None
        if self.action is not None and about.get("action") != self.action:
            return None
        if self.status is not None and about.get("status") != self.status:
            return None
        if self.branch is not None and self.branch not in (getattr(event, "branch", None), about.get("branch")):
            return None
        if self.actor is not None and self.actor not in actors_of(event, about):
            return None
        return event  # type: ignore[no-any-return]

    def _has_words(self, logged: LoggedEvent) -> bool:
        """Return whether topic, stream and text are as wanted."""
        if self.topics is not None and logged.topic not in self.topics:
            return False
        if self.stream is not None and logged.stream != self.stream:
            return False
        return self.text is None or self.text.casefold() in logged.state.decode("utf-8", "replace").casefold()

    def about(self, event: Any) -> dict[str, Any]:
        """Return action, actor, branch and status of the proposal that an event is about, empty without one."""
        name = _proposal_of(event)
        if name is None or self.alone:
            return {}
        known = self._known.get(name)
        if known is None or (self.status is not None and known["open"]):
            try:
                proposal = self.world.archive.proposal(name, self.upto)
            except RefusedError as refused:
                if refused.code != "NOT_FOUND":
                    raise
                return {}  # a projection names the proposal that is submitted right after it
            rendered = proposal.submitted
            known = self._known[name] = {
                "action": rendered.intent.body.type,
                "actor": rendered.actor.actor_id,
                "branch": rendered.branch,
                "status": proposal.status,
                "open": not proposal.is_terminal,
            }
            if len(self._known) > MAX_KNOWN:
                self._known.popitem(last=False)
        return known


def actors_of(event: Any, about: dict[str, Any]) -> set[str]:
    """Return the ids of the actors of an event, and of those it is about."""
    named = {about.get("actor"), *(getattr(event, name, None) for name in ("by", "actor_id", "agent_id"))}
    for part in (getattr(event, "actor", None), getattr(getattr(event, "answer", None), "by", None)):
        named.add(getattr(part, "actor_id", None))
    return {name for name in named if name}


def _proposal_of(event: Any) -> str | None:
    """Return the id of the proposal that an event is about."""
    return getattr(event, "proposal_id", None) or getattr(event, "created_by", None)
