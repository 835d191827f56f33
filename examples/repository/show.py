"""Output of the demo about a world: what worldctl shows, in the terms of this domain."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, cast

from examples.repository.account import Account, proposal_of
from examples.repository.domain import entry_of
from examples.repository.timing import intent_id_of
from world.events.base import Event
from world.events.proposal_events import DecisionMade, HumanAnswered
from world.state.proposal import Proposal
from worldprotocol.api.realm import Realm


def when(at_ms: int) -> str:
    """Return a time (ms since 1970) as people write it, in UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")


def table(rows: Iterable[tuple[Any, ...]]) -> None:
    """Print rows with their columns below each other."""
    lines = [tuple(map(str, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("   " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def show_counts(realm: Realm, account: Account) -> None:
    """Print how the proposals ended, and which rule decided how often."""
    errors = ", ".join(f"{number} of them with {code}" for code, number in account.errors.most_common())
    table((number, status, errors if status == "failed" else "") for status, number in sorted(account.statuses.items()))
    print("   Decided by")
    deciders = Counter(
        (decision, _decider(authority, reason)) for decision, authority, reason in account.decisions.values()
    )
    table((number, decision, decider) for (decision, decider), number in deciders.most_common())
    computed = {name.removeprefix("computed."): value for name, value in realm.snapshot().computed.items()}
    print(f"   The tree now: {json.dumps(computed)}")


def _decider(authority: str, reason: str) -> str:
    head, colon, _ = reason.partition(":")
    if colon and " " not in head:
        return f"the rule {head}"
    return "time running out" if "did not decide" in reason else "the maintainer"


def show_stretch(realm: Realm, number: int) -> None:
    """Print some events of the log: those before and after a person answered, somewhere in the middle."""
    answers = [logged.position for logged in realm.log.read(topics=[HumanAnswered.TOPIC])]
    after = answers[len(answers) // 2] - number // 2 if answers else 0
    stretch = realm.events(after, after + number)
    table((position, when(event.at), event.TOPIC, rendering_of(event)) for position, event in stretch)


def rendering_of(event: Event) -> str:
    """Return the gist of an event."""
    if isinstance(event, DecisionMade):
        return f"{event.decision.decision}: {event.decision.reason}"
    for name in ("result", "intent", "ruling", "requirement", "answer"):
        value = getattr(event, name, None)
        if value is None:
            continue
        rendered: Mapping[str, Any] = value.to_wire()
        body = rendered.get("body") or rendered
        words = body.get("type") or body.get("verdict") or body.get("choice") or body.get("kind")
        return f"{words} {_paths(body.get('input'))}".rstrip()
    return str(getattr(event, "world_id", None) or getattr(event, "on_world", ""))[:16]


def _paths(rendered: Any) -> str:
    if not isinstance(rendered, Mapping) or "changes" not in rendered:
        return ""
    changes: list[Mapping[str, str]] = cast("Mapping[str, Any]", rendered)["changes"]
    paths = [change["path"] for change in changes]
    return paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"


def show_world(realm: Realm, world_id: str) -> None:
    """Print what is known of one world."""
    sealed = realm.sealed(world_id)
    proposal = realm.proposal(sealed.created_by or "")
    table(
        [
            ("world", sealed.world_id),
            ("content", sealed.content_id),
            ("parent", sealed.parent),
            ("sealed", f"{when(sealed.at)}, {sealed.outcome}, {sealed.height} worlds after the first"),
            ("by", f"{_actor(proposal)} through proposal {proposal.proposal_id}"),
            ("patches", len(sealed.patches)),
        ]
    )
    for patch in sealed.patches[:3]:
        print(f"      {patch.op} {patch.path} {json.dumps(patch.value, sort_keys=True)}")


def show_refusal(proposal: Proposal) -> None:
    """Print a refused proposal: why, and what every rule said."""
    record = proposal.decision
    assert record is not None
    rendered = proposal.intent.body.input
    print(f"   {_actor(proposal)} wanted {proposal.intent.body.type}: {_paths(rendered)} ({rendered['session']})")
    print(f"   {record.decision} by {record.authority}, {when(record.decided_at)}: {record.reason}")
    table(
        ("*" if rule.decisive else " ", rule.rule, "no opinion" if rule.answer == "none" else rule.answer, rule.reason)
        for rule in record.trace
    )
    print(f"   under the policy {record.policy_hash}")


def show_blame(realm: Realm, path: str) -> None:
    """Print the last change of a path with its author, from the state, and the decision."""
    entry = entry_of(realm.data(), path)
    assert entry is not None
    print(
        f"   {path}: {'present' if entry['present'] else 'deleted'}, {entry['changes']} changes, "
        f"the last by {entry['by']} at {when(entry['at'])} in {entry['session']}"
    )
    proposal = proposal_of(realm, intent_id_of(entry["session"]))
    record = proposal.decision
    assert record is not None
    scope = list((proposal.approved_scope and proposal.approved_scope.allowed_paths) or ["unrestricted"])
    table(
        [
            ("actor", _actor(proposal)),
            ("proposal", f"{proposal.proposal_id}, {proposal.status}"),
            ("decision", f"{record.decision} by {record.authority}: {record.reason}"),
            ("scope", ", ".join(scope[:2]) + (f" and {len(scope) - 2} more" if len(scope) > 2 else "")),
            ("world", proposal.world_id),
        ]
    )


def _actor(proposal: Proposal) -> str:
    actor = proposal.submitted.actor
    role = (actor.meta or {}).get("role")
    return f"{actor.actor_id} ({actor.kind}{', ' + role if role else ''})"
