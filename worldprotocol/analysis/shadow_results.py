"""What a shadowing policy said beside what was ruled: where both agree, and where they do not.

``worldctl policy shadow show`` imports this. It is told from the log alone. Source: design section 6; CARD-policy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from world.errors import RefusedError
from world.events.policy_events import ProposalShadowed, ShadowConfigured
from world.events.proposal_events import DecisionMade, ProposalJudged, ProposalSubmitted
from world.model.decision import Ruling
from world.read_models.decoding import decoded
from worldprotocol.analysis.ruling_trace import as_ruled
from worldprotocol.api.realm import Realm

_TOPICS: Final = [kind.TOPIC for kind in (ProposalSubmitted, ProposalShadowed, ProposalJudged, DecisionMade)]


@dataclass(slots=True)
class Shadows:
    """What came of shadowing.

    Args:
        counts: how often a policy was asked (``shadowed``), said the same (``agree``) or not (``disagree``), or could
            not be asked (``notAsked``).
        policies: how often each was asked, by name and hash.
        lines: the proposals on which both do not agree, or the shadow could not be asked, in the order of the log.
    """

    counts: Counter[str] = field(default_factory=Counter)
    policies: Counter[tuple[str, str | None]] = field(default_factory=Counter)
    lines: list[dict[str, Any]] = field(default_factory=list)

    def to_wire(self) -> dict[str, Any]:
        """Return all of it as JSON."""
        names = ("shadowed", "agree", "disagree", "notAsked")
        policies = [{"name": name, "hash": hash_, "times": times} for (name, hash_), times in self.policies.items()]
        return {**{name: self.counts[name] for name in names}, "policies": policies, "disagreements": self.lines}


def shadows_of(world: Realm, name: str | None = None, upto: int | None = None) -> Shadows:
    """Compare what shadowing policies said with the rulings that were given, the first of each proposal.

    Args:
        world: an open realm.
        name: only what the policy of this name said.
        upto: up to this event; None is up to now.

    Raises:
        RefusedError: ``UNKNOWN_POLICY`` where no policy of that name ever shadowed.
    """
    if name is not None:
        _check_known(world, name)
    result = Shadows()
    if next(iter(world.log.read(upto=upto, topics=[ProposalShadowed.TOPIC])), None) is None:
        return result
    submitted: ProposalSubmitted | None = None  # the events of a submission stand beside each other
    shadows: dict[str, tuple[int, ProposalShadowed, ProposalSubmitted]] = {}
    told: dict[str, tuple[dict[str, Any], Ruling]] = {}
    for logged in world.log.read(upto=upto, topics=_TOPICS):
        event: Any = decoded(logged)
        if isinstance(event, ProposalSubmitted):
            submitted = event
        elif isinstance(event, ProposalShadowed):
            if submitted is not None and name in (None, event.name):
                shadows[event.proposal_id] = (logged.position, event, submitted)
        elif isinstance(event, ProposalJudged):
            shadow = shadows.pop(event.proposal_id, None)
            ruling = Ruling.from_wire(event.ruling)
            line = None if shadow is None else _compared(result, *shadow, ruling)
            if line is not None:
                told[event.proposal_id] = line, ruling
                result.lines.append(line)
        elif isinstance(event, DecisionMade) and event.proposal_id in told:
            _decided(*told.pop(event.proposal_id), event.decision)
    return result


def _check_known(world: Realm, name: str) -> None:
    events = (decoded(logged) for logged in world.log.read(topics=[ShadowConfigured.TOPIC]))
    known = sorted({event.name for event in events if isinstance(event, ShadowConfigured) and event.name is not None})
    if name not in known:
        raise RefusedError(
            "UNKNOWN_POLICY",
            f"No policy {name!r} ever shadowed in this log, so it said nothing; there are: "
            f"{', '.join(known) or 'none at all'}.",
            policy=name,
            known=known,
        )


def _compared(
    result: Shadows, position: int, shadow: ProposalShadowed, submitted: ProposalSubmitted, ruling: Ruling
) -> dict[str, Any] | None:
    """Count a shadow, and return what is to be told of it; None where both agree."""
    said = Ruling.from_wire(shadow.ruling)
    change = None if shadow.policy_hash is None else _change(ruling, said)
    result.counts["shadowed"] += 1
    result.policies[shadow.name, shadow.policy_hash] += 1
    kind = "notAsked" if shadow.policy_hash is None else "agree" if change is None else "disagree"
    result.counts[kind] += 1
    if kind == "agree":
        return None
    body = submitted.intent["body"]
    return {
        "kind": kind,
        "position": position,
        "proposalId": shadow.proposal_id,
        "actor": submitted.actor["actorId"],
        "action": body["type"],
        "input": body.get("input"),
        "branch": submitted.branch,
        "submittedAt": submitted.at,
        **({} if change is None else {"change": change}),
        "ruling": _told(ruling),
        "shadow": {"name": shadow.name, **_told(said)},
    }


def _change(ruling: Ruling, said: Ruling) -> str | None:
    if ruling.verdict != said.verdict:
        return "verdict"
    if ruling.approved_scope != said.approved_scope:
        return "scope"
    return "question" if ruling.verdict == "wait" and _question(ruling) != _question(said) else None


def _question(ruling: Ruling) -> tuple[Any, ...]:
    """Return who is asked, how many must approve where they vote, and what they can approve at most."""
    quorums = sorted((one.to, one.quorum.rule, one.quorum.threshold or 0) for one in ruling.trace if one.quorum)
    return sorted(ruling.ask), quorums, {one.scope for one in ruling.trace if one.scope is not None}


def _told(ruling: Ruling) -> dict[str, Any]:
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


def _decided(line: dict[str, Any], ruling: Ruling, decision: Mapping[str, Any]) -> None:
    """Add how the proposal was decided in the end; the trace of an immediate ruling stands only there."""
    if ruling.verdict == "wait":
        line["decision"] = decision["decision"]
    else:
        line["ruling"] = _told(as_ruled(ruling, decision))
