"""Comparison of shadow rulings with the rulings in force.

``worldctl policy shadow show`` imports this; it reads only the log. Source: design section 6; CARD-policy.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.policy_events import ProposalShadowed, ShadowConfigured
from world.events.proposal_events import DecisionMade, ProposalJudged, ProposalSubmitted
from world.model.decision import DecisionRecord, Ruling
from world.model.record import WireForm
from world.read_models.decoding import decoded, registry_events
from worldprotocol.analysis.ruling_trace import as_ruled
from worldprotocol.api.realm import Realm

_TOPICS: Final = [kind.TOPIC for kind in (ProposalSubmitted, ProposalShadowed, ProposalJudged, DecisionMade)]


@dataclass(slots=True)
class Shadows(WireForm):
    """Results of shadowing.

    Args:
        counts: number of shadow rulings (``shadowed``), equal (``agree``) and different (``disagree``) ones, and of
            cases that could not be judged (``notAsked``).
        policies: number of shadow rulings by name and hash.
        lines: proposals with different or missing shadow rulings, in the order of the log.
    """

    counts: Counter[str] = field(default_factory=Counter)
    policies: Counter[tuple[str, str | None]] = field(default_factory=Counter)
    lines: list[dict[str, Any]] = field(default_factory=list)
    WIRE: ClassVar = "*counted policies=shown disagreements=lines"

    @property
    def counted(self) -> dict[str, int]:
        """All counts by name."""
        return {name: self.counts[name] for name in ("shadowed", "agree", "disagree", "notAsked")}

    @property
    def shown(self) -> list[dict[str, Any]]:
        """The policies as JSON."""
        return [{"name": name, "hash": hash_, "times": times} for (name, hash_), times in self.policies.items()]


def shadows_of(world: Realm, name: str | None = None, upto: int | None = None, *, after: int = 0) -> Shadows:
    """Compare shadow rulings with the first ruling of each proposal.

    Args:
        world: an open realm.
        name: only rulings of the policy of this name.
        upto: the last event; None is the newest one.
        after: position before the first event.

    Raises:
        RefusedError: ``UNKNOWN_POLICY`` if no policy of that name has shadowed.
    """
    if name is not None:
        _check_known(world, name)
    result = Shadows()
    if next(iter(world.log.read(after, upto, topics=[ProposalShadowed.TOPIC])), None) is None:
        return result
    submitted: ProposalSubmitted | None = None  # the events of a submission are consecutive
    shadows: dict[str, tuple[int, ProposalShadowed, ProposalSubmitted]] = {}
    compared: dict[str, tuple[dict[str, Any], Ruling]] = {}
    for logged in world.log.read(after, upto, topics=_TOPICS):
        event: Any = decoded(logged)
        if isinstance(event, ProposalSubmitted):
            submitted = event
        elif isinstance(event, ProposalShadowed):
            if submitted is not None and name in (None, event.name):
                shadows[event.proposal_id] = (logged.position, event, submitted)
        elif isinstance(event, ProposalJudged):
            shadow = shadows.pop(event.proposal_id, None)
            ruling = event.ruling
            line = None if shadow is None else _compared(result, *shadow, ruling)
            if line is not None:
                compared[event.proposal_id] = line, ruling
                result.lines.append(line)
        elif isinstance(event, DecisionMade) and event.proposal_id in compared:
            _decided(*compared.pop(event.proposal_id), event.decision)
    return result


def shadow_wire(configured: ShadowConfigured | None) -> dict[str, Any]:
    """Return the shadow policy of a realm as JSON; None is no policy."""
    if configured is None:
        return {"name": None, "hash": None, "actors": []}
    return {"name": configured.name, "hash": configured.policy_hash, "actors": configured.actors}


def _check_known(world: Realm, name: str) -> None:
    events = (decoded(logged) for logged in registry_events(world.log, ShadowConfigured))
    known = sorted({event.name for event in events if isinstance(event, ShadowConfigured) and event.name is not None})
    if name not in known:
        raise RefusedError(
            ErrorCode.UNKNOWN_POLICY,
            f"No policy {name!r} has shadowed in this log; the shadow policies are: {', '.join(known) or 'none'}.",
            policy=name,
            known=known,
        )


def _compared(
    result: Shadows, position: int, shadow: ProposalShadowed, submitted: ProposalSubmitted, ruling: Ruling
) -> dict[str, Any] | None:
    """Count a shadow ruling, and return its line; None for equal rulings."""
    shadowed = shadow.ruling
    change = None if shadow.policy_hash is None else _change(ruling, shadowed)
    result.counts["shadowed"] += 1
    result.policies[shadow.name, shadow.policy_hash] += 1
    kind = "notAsked" if shadow.policy_hash is None else "agree" if change is None else "disagree"
    result.counts[kind] += 1
    if kind == "agree":
        return None
    body = submitted.intent.body
    return {
        "kind": kind,
        "position": position,
        "proposalId": shadow.proposal_id,
        "actor": submitted.actor.actor_id,
        "action": body.type,
        "input": body.input,
        "branch": submitted.branch,
        "submittedAt": submitted.at,
        **({} if change is None else {"change": change}),
        "ruling": _wire(ruling),
        "shadow": {"name": shadow.name, **_wire(shadowed)},
    }


def _change(ruling: Ruling, shadowed: Ruling) -> str | None:
    if ruling.verdict != shadowed.verdict:
        return "verdict"
    if ruling.approved_scope != shadowed.approved_scope:
        return "scope"
    return "question" if ruling.verdict == "wait" and _question(ruling) != _question(shadowed) else None


def _question(ruling: Ruling) -> tuple[Any, ...]:
    """Return the asked actors, their quorums, and the widest scopes that they can approve."""
    quorums = sorted((one.to, one.quorum.rule, one.quorum.threshold or 0) for one in ruling.trace if one.quorum)
    return sorted(ruling.ask), quorums, {one.scope for one in ruling.trace if one.scope is not None}


def _wire(ruling: Ruling) -> dict[str, Any]:
    scope = ruling.approved_scope
    return {
        "verdict": ruling.verdict,
        "authority": ruling.authority,
        "reason": ruling.reason,
        "policyHash": ruling.policy_hash,
        "approvedScope": None if scope is None else scope.to_wire(),
        "ask": list(ruling.ask),
        "decidedBy": [one.rule for one in ruling.trace if one.decisive],
    }


def _decided(line: dict[str, Any], ruling: Ruling, decision: DecisionRecord) -> None:
    """Add the decision, or the trace of an immediate ruling from it."""
    if ruling.verdict == "wait":
        line["decision"] = decision.decision
    else:
        line["ruling"] = _wire(as_ruled(ruling, decision))
