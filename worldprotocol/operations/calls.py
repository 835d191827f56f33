"""Operations on calls of tools: the report of a result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import to_builtins

from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.operations import OperationCall, operation
from worldprotocol.operations.effects import CLAIM, ReportedEffect, ReportResult, completed
from worldprotocol.operations.fields import ID

if TYPE_CHECKING:
    from world.state.effect_claim import EffectClaim

_CLAIM: Final[dict[str, Any]] = to_builtins(CLAIM)


@operation(
    "calls.report",
    "POST /calls:report",
    "actor",
    is_keyed=True,
    example=(
        ReportResult(claim=_CLAIM, report={"result": {"value": {"value": "paid"}}}),
        ReportedEffect(proposal_id=ID, status="completed"),
    ),
)
def report_call(call: OperationCall, request: ReportResult) -> ReportedEffect:
    """Record the result of a call that the caller began; a repetition changes nothing."""

    def check(claim: EffectClaim) -> None:
        if call.hosted.realm.proposal(claim.proposal_id).submitted.actor.actor_id != call.actor_id:
            raise RefusedError(
                ErrorCode.CLAIM_LOST, f"The call {claim.proposal_id} is of another actor, who reports its result."
            )

    return completed(call, request, check)
