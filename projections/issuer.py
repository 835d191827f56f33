"""Issuer: makes an intent instance from a body (intent specification 7.2).

The issuer only assigns identity: a new intentId, the intentKey that is derived from the body, and the origin. Equal
requests give equal keys and origins but different ids (INT-11.2).
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from world.clock import IdSource
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.actor import ActorRef
from world.model.intent import IntentBody, IntentInstance, IntentMeta, IntentOrigin
from world.model.member_types import is_ascii_id
from world.model.source import SourceEvent

__all__ = ["IssueRequest", "Issuer"]


class IssueRequest(Struct, frozen=True):
    """Input of the issuer.

    Args:
        schema_hash: the schema in force; part of the meaning.
        projection_id: the projection that produced the body.
        actor: the responsible actor.
        source: the source event.
        body: the intent's body; passed on unchanged.
        note: a remark for people; never part of the meaning.

    Raises:
        RefusedError: ``INVALID_ISSUE`` for an empty schema hash or a body that is not an IntentBody.
    """

    schema_hash: str
    projection_id: str
    actor: ActorRef
    source: SourceEvent
    body: IntentBody
    note: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.schema_hash, str) or not self.schema_hash:
            raise RefusedError(
                ErrorCode.INVALID_ISSUE, "The schema hash is empty; give the hash of the schema in force."
            )
        if not isinstance(self.body, IntentBody):
            raise RefusedError(
                ErrorCode.INVALID_ISSUE,
                f"An instance is issued for an IntentBody, not for {type(self.body).__name__}; read foreign "
                "data with IntentBody.read.",
            )


@dataclass(frozen=True, slots=True)
class Issuer:
    """Makes intent instances; the only part of this package that takes new ids."""

    ids: IdSource

    def issue(self, req: IssueRequest) -> IntentInstance:
        """Return a new, frozen instance of a body (INT-7.2a, INV-IS1, INV-IS2, INV-IS4).

        The body is the given object itself, unchanged (INT-7.2b, INV-IS3).

        Raises:
            RefusedError: ``INVALID_VALUE`` for an invalid projection id or note.
        """
        origin = _origin(req)
        return IntentInstance(
            body=req.body,
            intent_id=self.ids.intent_id(),
            intent_key=req.body.key(req.schema_hash),  # INV-I2, INV-I3: independent of the origin
            meta=IntentMeta(origin=origin),
        )


def _origin(req: IssueRequest) -> IntentOrigin:
    """Return the origin of an intent; its members are typed already, except for the texts."""
    if is_ascii_id(req.projection_id) and req.note is None and isinstance(req.actor, ActorRef):
        return IntentOrigin(projection_id=req.projection_id, source=req.source.ref, actor=req.actor)
    return IntentOrigin.read(
        {
            "projectionId": req.projection_id,
            "source": req.source.ref,
            "actor": req.actor,
            "note": req.note,
        }
    )
