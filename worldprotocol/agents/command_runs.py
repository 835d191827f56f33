"""Runs of allowed shell commands: what ``worldctl run --call`` receives of a call, and what it reports.

The run executes the text of the proposal under the leases of its call, and its report completes the effect. A call is
run once: the beginning of its run extends its claim, so that the log shows that it began. Source: docs/agents.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.base import Event
from world.events.claim_events import EffectClaimed, EffectExtended
from world.klis.predicate import Predicate
from world.model.snapshot import EffectAnswer, ErrorValue
from world.read_models.decoding import decoded
from world.state.effect_claim import EffectClaim, EffectReport
from world.state.ports import Performed
from world.state.proposal import Proposal
from worldprotocol.agents.call_values import EFFECT
from worldprotocol.agents.command_terms import EVERYTHING
from worldprotocol.api.realm import Realm
from worldprotocol.runs.boundary import Boundary, holds

__all__ = ["COMMAND", "RUN", "VIOLATED", "CommandRuns", "RunRequest", "has_begun", "is_run"]

COMMAND: Final = "command.run"
"""The action of the domain whose calls are run."""

RUN: Final = "isRun"
"""Member of the trace of a call that is rewritten to ``worldctl run --call``."""

VIOLATED: Final = "SCOPE_VIOLATION"
_DELETING: Final = frozenset({"remove", "code", "test"})


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What ``worldctl run --call`` states when it begins.

    Args:
        key: the key of the call.
        text: the text that it was given.
        boundary: what it found.
        is_unconfined: whether it was started to run the text unconfined.
    """

    key: str
    text: str
    boundary: Boundary
    is_unconfined: bool


def is_run(proposal: Proposal) -> bool:
    """Return whether the call of a proposal is made by ``worldctl run --call``."""
    return bool((proposal.submitted.trace or {}).get(RUN))


def has_begun(realm: Realm, claimed: EffectClaimed, emitted: Iterable[Event] = ()) -> bool:
    """Return whether the run of a call began, which extended the claim of its effect.

    Args:
        realm: the realm.
        claimed: the claim.
        emitted: events of a unit, which are not on the log yet.
    """
    recorded = map(decoded, realm.log.read(stream=claimed.proposal_id, topics=[EffectExtended.TOPIC]))
    extensions = (one for one in (*recorded, *emitted) if isinstance(one, EffectExtended))
    return any(one.claim_id == claimed.claim_id for one in extensions)


class CommandRuns:
    """The runs of one agent's calls.

    Args:
        realm: the realm, open for acting as the agent.
        actor_id: the agent.
    """

    def __init__(self, realm: Realm, actor_id: str) -> None:
        self._realm = realm
        self._actor_id = actor_id

    def begin(self, request: RunRequest, configured: Boundary) -> dict[str, Any]:
        """Begin the run of a call, and return what it runs and on which terms.

        Args:
            request: what the run states.
            configured: the boundary of the realm's agents, which its operator states or its server found.

        Raises:
            RefusedError: ``CALL_NOT_OPEN`` where no call with the key may be run, or its run began before;
                ``CALL_DIFFERS`` for another text, or another confinement, than was allowed; ``CONFINEMENT_MISSING``
                where the boundary is less than the proposal states, which ends the call.
        """
        proposal, claim = self._held(request.key)
        given = proposal.intent.body.input
        if has_begun(self._realm, proposal.claims[claim.requirement.id]):
            raise _not_open(request.key, "its run began before, and a call is run once")
        if given["command"] != request.text or bool(given["confined"]) is request.is_unconfined:
            what = "text" if given["command"] != request.text else "confinement"
            raise RefusedError(
                ErrorCode.CALL_DIFFERS,
                f"The {what} of the command is not the one that was allowed ({proposal.proposal_id}). Nothing was run; "
                "run the command line of the answer unchanged.",
                proposal_id=proposal.proposal_id,
            )
        if given["confined"] and not holds(str(given.get("boundary")), request.boundary, configured):
            refused = RefusedError(
                ErrorCode.CONFINEMENT_MISSING,
                f"The proposal {proposal.proposal_id} states the boundary {given.get('boundary')}, and here is "
                f"{request.boundary}. Nothing was run.",
                proposal_id=proposal.proposal_id,
            )
            self._complete(claim, failure=(str(refused.code), refused.message))
            raise refused
        self._realm._claims.heartbeat(claim, begins=True)
        return self._terms(proposal, claim)

    def is_wanted(self, key: str, now_ms: int) -> bool:
        """Return whether a run continues: its claim and its leases hold. A claim that is half over is extended.

        Args:
            key: the key of the call.
            now_ms: ms since 1970.

        Raises:
            RefusedError: ``CLAIM_LOST`` where its leases were revoked, or it was cancelled.
        """
        try:
            proposal, claim = self._held(key)
        except RefusedError:
            return False
        if proposal.cancelled is not None:
            return False
        if proposal.verdict_id is not None and not self._realm.realm().klis.holds(self._actor_id, proposal.proposal_id):
            return False
        if claim.deadline - now_ms < claim.time_limit_ms / 2:
            self._realm.heartbeat_effect(claim)
        return True

    def end(self, key: str, value: dict[str, Any], failure: tuple[str, str] | None, report: EffectReport) -> Proposal:
        """Record the end of a run.

        Args:
            key: the key of the call.
            value: what is recorded of a command that ran to its end.
            failure: code and sentence where it did not, or was undone.
            report: what was observed; its result is not used.

        Raises:
            RefusedError: ``CALL_NOT_OPEN``; ``CLAIM_LOST``, which is recorded.
        """
        _, claim = self._held(key)
        return self._complete(claim, value, failure=failure, observed=report)

    def _complete(
        self,
        claim: EffectClaim,
        value: Any = None,
        *,
        failure: tuple[str, str] | None = None,
        observed: EffectReport | None = None,
    ) -> Proposal:
        action = claim.intent.body.type
        error = None if failure is None else ErrorValue.at(failure[0], failure[1], action, "", claim.now)
        result = EffectAnswer(None if error else value, error=error)
        seen = () if observed is None else observed.observed
        violations = () if observed is None else observed.violations
        return self._realm.complete_effect(claim, Performed(result, observed=seen, violations=violations))

    def _held(self, key: str) -> tuple[Proposal, EffectClaim]:
        """Return the open proposal that was claimed with a key, and the claim."""
        for proposal in self._realm.realm().proposals.values():
            if proposal.submitted.actor.actor_id != self._actor_id or proposal.intent.body.type != COMMAND:
                continue
            for claimed in proposal.claims.values():
                if claimed.key == key:
                    return proposal, self._claim(claimed)
        raise _not_open(key, "no allowed call of this actor has it, or it has ended")

    def _claim(self, claimed: EffectClaimed) -> EffectClaim:
        name, key = claimed.proposal_id, claimed.key
        claim = self._realm.claim_effect([EFFECT], worker=claimed.worker, proposal_id=name, key=key)
        if claim is None:
            raise _not_open(str(key), "it has ended")
        return claim

    def _terms(self, proposal: Proposal, claim: EffectClaim) -> dict[str, Any]:
        given = proposal.intent.body.input
        return {
            "proposalId": proposal.proposal_id,
            "agentId": self._actor_id,
            "text": given["command"],
            "cwd": given["cwd"],
            "isConfined": bool(given["confined"]),
            "boundary": given.get("boundary"),
            "scope": _scope(given),
            "backup": proposal.verdict_id if proposal.backup else None,
            "ignoresCase": claim.ignores_case,
            "ignoresNormalForm": claim.ignores_normal_form,
        }


def _scope(given: Any) -> list[dict[str, str]]:
    """Return what a run may do: its writes, what its words delete there, and reading the workspace."""
    kinds = set(given["kinds"])
    deletes = bool(kinds & _DELETING) or ("write" in kinds and "unknown" not in kinds)
    changes = [Predicate.MUTATES, *([Predicate.DELETES] if deletes or given["writes"] != [EVERYTHING] else [])]
    found = [(one, path) for one in changes for path in given["writes"]]
    if given["confined"] or not found:
        found.append((Predicate.CONSUMES, EVERYTHING))
    return [{"predicate": one.value, "resource": f"FILE:{path}"} for one, path in found]


def _not_open(key: str, why: str) -> RefusedError:
    return RefusedError(
        ErrorCode.CALL_NOT_OPEN, f"The call {key[:200]} cannot be run: {why}. Nothing was run.", key=key
    )
