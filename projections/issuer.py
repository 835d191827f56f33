"""From a body to one attempt at it (intent specification 7.2).

The issuer gives identity and nothing else, that is a new intentId, the intentKey that follows from the body,
and the origin. Equal requests give equal keys and origins and, on purpose, different ids (INT-11.2).
"""

from __future__ import annotations

from dataclasses import dataclass

from world.clock import IdSource
from world.errors import RefusedError
from world.model.actor import ActorRef
from world.model.intent import IntentBody, IntentInstance, IntentMeta, IntentOrigin
from world.model.source import SourceEvent

__all__ = ["IssueRequest", "Issuer"]


@dataclass(frozen=True, slots=True)
class IssueRequest:
    """What an instance is made of.

    Args:
        schema_hash: the schema in force; part of the meaning.
        projection_id: what produced the body.
        actor: who is responsible.
        source: what triggered it.
        body: what is wanted; it is carried on as it is.
        note: for people; never part of the meaning.

    Raises:
        RefusedError: ``INVALID_ISSUE`` for an empty schema hash or a body that is no IntentBody.
    """

    schema_hash: str
    projection_id: str
    actor: ActorRef
    source: SourceEvent
    body: IntentBody
    note: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.schema_hash, str) or not self.schema_hash:
            raise RefusedError("INVALID_ISSUE", "An intent is issued under a schema: give its hash.")
        if not isinstance(self.body, IntentBody):
            raise RefusedError(
                "INVALID_ISSUE",
                f"An instance is issued for an IntentBody, not for {type(self.body).__name__}; read foreign "
                "data with IntentBody.read.",
            )


@dataclass(frozen=True, slots=True)
class Issuer:
    """Makes intent instances; the only thing here that takes fresh ids."""

    ids: IdSource

    def issue(self, req: IssueRequest) -> IntentInstance:
        """Return a new, frozen attempt at a body (INT-7.2a, INV-IS1, INV-IS2, INV-IS4).

        The body is the given object itself: nothing of it is changed or added to (INT-7.2b, INV-IS3).

        Raises:
            RefusedError: ``INVALID_VALUE`` for a projection id or note that no origin can hold.
        """
        origin = IntentOrigin.read(
            {
                "projectionId": req.projection_id,
                "source": req.source.ref,
                "actor": req.actor,
                "note": req.note,
            }
        )
        return IntentInstance(
            body=req.body,
            intent_id=self.ids.intent_id(),
            intent_key=req.body.key(req.schema_hash),  # INV-I2, INV-I3: the origin takes no part
            meta=IntentMeta(origin=origin),
        )
