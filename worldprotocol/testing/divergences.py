"""Divergences of a recorded log from the loaded code, as text for developers.

``worldprotocol.analysis.recheck.recheck`` finds what differs under the policies of then; here the available policies
judge the recorded cases, too (``worldprotocol.analysis.rejudging``), where they are not those that the log ends with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from world.audit.verify import verify
from world.errors import RefusedError
from world.events.base import Event
from world.events.lease_events import VerdictGiven
from world.events.policy_events import PolicyAdopted
from world.events.proposal_events import ProjectionRecorded
from world.events.realm_events import WorldSealed
from world.model.immutable_json import thaw
from world.read_models.decoding import decoded
from world.read_models.diff import Absent, changes
from worldprotocol.analysis.recheck.recheck import Divergence, recheck
from worldprotocol.analysis.rejudging import CaseRejudger, CaseSelection
from worldprotocol.api.realm import Realm
from worldprotocol.json_text import as_text

CHANGED: Final = ("CODE_CHANGED", "POLICY_CHANGED")
"""Codes of drift that by itself is no divergence: its results are compared."""

NOT_AT_HAND: Final = ("POLICY_NOT_AT_HAND", "BINDING_NOT_AT_HAND", "CANNOT_RECHECK")
"""Codes of drift for which nothing could be performed again, so that nothing is proven."""

DAMAGED: Final = "LOG_DAMAGED"
FLIPPED: Final = "DECISION_FLIPPED"

MAX_VALUE: Final = 200
"""Characters shown of one value."""

MAX_VALUES: Final = 12
"""Places shown in which two values differ."""


@dataclass(frozen=True, slots=True)
class FoundDivergence:
    """Something that comes out differently.

    Args:
        position: the event of the record.
        topic: its topic.
        code: what kind of difference it is.
        message: what differs, for people.
        values: ``(place, recorded, now)``.
        proposal_id: which proposal it is about, None for none.
        to: the verdict of now, where it is a decision that flips.
    """

    position: int
    topic: str
    code: str
    message: str
    values: tuple[tuple[str, Any, Any], ...] = ()
    proposal_id: str | None = None
    to: str | None = None


@dataclass(slots=True)
class LogCheck:
    """Result of the check of a recorded log.

    Args:
        found: what differs, in the order of the log.
        changed: what is another one than it was when the log was recorded, in words.
        steps: how many steps were performed again, by kind.
        size: events in the log.
    """

    found: list[FoundDivergence] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    steps: Mapping[str, int] = field(default_factory=dict)
    size: int = 0


def check(world: Realm) -> LogCheck:
    """Verify and recheck a log, and judge its cases by the loaded policies.

    Args:
        world: opened with the code (``open_to_recheck``).
    """
    done = LogCheck(size=world.log.head().size)
    report = verify(world.log)
    if not report.ok:
        done.found += [
            FoundDivergence(one.position, "", DAMAGED, f"{one.code}: {one.message}") for one in report.findings
        ]
        return done
    rechecked = recheck(world, every=True)
    done.steps = rechecked.steps
    for one in rechecked.divergences:
        if one.difference.code in CHANGED:
            details = one.difference.details
            done.changed.append(f"the policy {details['policy']}" if "policy" in details else _code(details["changed"]))
        else:
            done.found.append(_divergence(world, one))
    done.found += _flips(world, done.changed)
    done.found.sort(key=lambda one: one.position)
    return done


def _code(names: Sequence[str]) -> str:
    return "the code of " + ", ".join(names)


def _divergence(world: Realm, one: Divergence) -> FoundDivergence:
    details = one.difference.details
    if "differences" in details:
        values = [(each["at"], each["recorded"], each["now"]) for each in details["differences"]]
    elif "what" in details:
        values = [(details["what"], details["recorded"], details["computed"])]
    else:
        values = []
    proposal_id = about(event_at(world, one.position))
    return FoundDivergence(
        one.position, one.topic, one.difference.code, one.difference.message, tuple(values), proposal_id
    )


def event_at(world: Realm, position: int) -> Event:
    """Return an event of a log."""
    return decoded(world.log.event_at(position))


def about(event: Event) -> str | None:
    """Return the proposal that an event is about."""
    if isinstance(event, VerdictGiven):
        return event.request_id
    if isinstance(event, WorldSealed):
        return event.created_by
    return getattr(event, "proposal_id", None)


def _flips(world: Realm, changed: list[str]) -> Iterator[FoundDivergence]:
    """Yield decisions that the loaded policies of the same names would not make."""
    parts = world.parts
    assert parts is not None
    newest = {event.name: event for _, event in world.events() if isinstance(event, PolicyAdopted)}
    for name, adopted in newest.items():
        recorded = adopted.policy_hash
        try:
            policy = parts.policies.get(name).hashed_like(adopted.policy)
        except RefusedError:  # it is not available; the recheck reported it where that matters
            continue
        if policy.hash == recorded:
            continue
        changed.append(f"the policy {name}")
        judge = CaseRejudger(world.archive, parts.domain, policy, CaseSelection(of=name), at_hand=True)
        for line in judge.stretch(0, world.log.head().size).lines:
            if line.get("from", {}).get("policyHash") in (recorded, None) and line.get("to") is not None:
                yield _flip(line)


def _flip(line: Mapping[str, Any]) -> FoundDivergence:
    then, now = line["from"], line["to"]
    names = ("verdict", "approvedScope", "decidedBy", "reason")
    values = tuple((name, then[name], now[name]) for name in names if then[name] != now[name])
    words = f"{line['actor']} {line['action']}: it was {then['verdict']} and is now {now['verdict']}."
    return FoundDivergence(
        line["position"], "proposal.judged", FLIPPED, words, values, line["proposalId"], now["verdict"]
    )


def rendered(world: Realm, one: FoundDivergence, checked: LogCheck, name: str) -> str:
    """Return a difference as text: place, actor, reason, change, and both values.

    Args:
        world: the log.
        one: what differs.
        checked: the whole check.
        name: the file.
    """
    where = f"event {one.position} of {checked.size}" + (f" ({one.topic})" if one.topic else "")
    lines = [f"{name} comes out differently at {where}: {one.code}", f"  {one.message}"]
    lines += _who_and_why(world, one)
    if one.code != DAMAGED and (checked.changed or one.code not in NOT_AT_HAND):
        changed = ", ".join(dict.fromkeys(checked.changed)) or "neither an action nor a policy"
        lines.append(f"  changed   {changed}, since it was recorded")
    for place, recorded, now in one.values:
        lines += _both(place, recorded, now)
    others = [other for other in checked.found if other is not one]
    if others:
        lines.append(f"  further   {len(others)} more, the first of them at event {others[0].position}")
    return printable("\n".join([*lines, *_what_to_do(one)]))


def _what_to_do(one: FoundDivergence) -> Iterator[str]:
    """Yield how to continue."""
    if one.code == DAMAGED:
        yield "Restore the file from where it was sound: a recorded log is never edited by hand."
    elif one.code in NOT_AT_HAND:
        yield "Give the test the domain, the policies and the projections of then, or record it anew: --record=all."
    else:
        what = f"position={one.position}" if one.proposal_id is None else f'proposal="{one.proposal_id}"'
        to = "" if one.to is None else f', to="{one.to}"'
        yield "Mend the code. Where this is wanted, record anew, --record=all, or keep the log and mark the test:"
        yield f"  @pytest.mark.expected_flip({what}{to})"


def printable(text: str) -> str:
    """Return a text with control characters escaped."""
    return "".join(one if one.isprintable() or one == "\n" else repr(one)[1:-1] for one in text)


def _who_and_why(world: Realm, one: FoundDivergence) -> Iterator[str]:
    """Yield the actor and the reason of what was recorded."""
    if one.code == DAMAGED:
        return
    event = event_at(world, one.position)
    if isinstance(event, ProjectionRecorded):
        source = f"{event.source.kind} event {event.source.event_id}"
        yield f"  who       {event.actor.actor_id}, by the projection {event.projection_id} of {source}"
    if one.proposal_id is None:
        return
    try:
        proposal = world.proposal(one.proposal_id)
    except RefusedError:  # a request for leases alone
        return
    told_actor, body = proposal.submitted.actor, proposal.submitted.intent.body
    wanted = f"{body.type} {short(body.input)}"
    yield f"  who       {told_actor.actor_id} ({told_actor.kind}) wanted {wanted}, proposal {one.proposal_id}"
    decision = proposal.decision
    if decision is not None:
        yield f"  why       {decision.decision} by {decision.authority}: {decision.reason}"


def _both(place: str, recorded: Any, now: Any) -> Iterator[str]:
    """Yield two values, or the places within in which they differ."""
    if isinstance(recorded, dict | list) and isinstance(now, type(recorded)):
        parts = list(changes(recorded, now))
        for change in parts[:MAX_VALUES]:
            path = change.path if place == "" else f"{place}: {change.path}" if change.path else place
            yield from _pair(path, change.before, change.after)
        if len(parts) > MAX_VALUES:
            yield f"  ...       and {len(parts) - MAX_VALUES} more places"
    else:
        yield from _pair(place, recorded, now)


def _pair(place: str, recorded: Any, now: Any) -> Iterator[str]:
    yield f"  differs   {place}"
    yield f"    recorded  {short(recorded)}"
    yield f"    now       {short(now)}"


def short(value: Any) -> str:
    """Return a value as text, cut where it is long."""
    if isinstance(value, Absent):
        return "nothing"
    text = value if isinstance(value, str) else as_text(thaw(value))
    return text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}..."
