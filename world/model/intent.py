"""Intents and their two identities (intent specification 4-6).

An intent is a request, not a fact. ``IntentBody`` holds only the requested action, its input and its scope.
``IntentInstance`` is one attempt: ``intent_id`` identifies the attempt, ``intent_key`` its meaning.
"""

from __future__ import annotations

from typing import Annotated, Any

from world.model.actor import ActorRef
from world.model.canonical_json import canonical_bytes
from world.model.identity import intent_key
from world.model.immutable.frozen_text import text_around
from world.model.member_types import Identifier, Json, MemberValidator, Text
from world.model.record import Record, freeze_member
from world.model.source import SourceRef


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class IntentScope(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Paths that an intent proposes to write, or is allowed to write (INT-5.3).

    ``allowed_paths`` holds patterns such as ``data.profile.*``; None means no restriction is stated.
    """

    allowed_paths: Annotated[tuple[Identifier, ...], MemberValidator("before", _as_tuple)] | None = None
    note: Text | None = None


class IntentBody(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Semantic content of an intent, the only output of a projection (INT-5.1)."""

    type: Identifier
    input: Json = None
    scope_proposal: IntentScope | None = None

    def __post_init__(self) -> None:
        freeze_member(self, "input")

    def key(self, schema_hash: str) -> str:
        """Return the intentKey of this body under a schema (INT-6.2.1)."""
        scope = None if self.scope_proposal is None else self.scope_proposal.to_wire()
        return intent_key(schema_hash, self.type, self.input, scope)


class IntentOrigin(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Projection, source and actor that an intent originates from; never semantic (INT-5.2, INV-I3)."""

    projection_id: Identifier
    source: SourceRef
    actor: ActorRef
    note: Text | None = None


class IntentMeta(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Facts about an instance that are not part of its meaning."""

    origin: IntentOrigin


class IntentInstance(Record, frozen=True, kw_only=True, eq=False, omit_defaults=True):
    """One attempt at an intent, deeply immutable (INV-I1).

    Two instances are equal when they are the same attempt (INT-6.3); ``means_the_same_as`` compares their meanings.
    """

    body: IntentBody
    intent_id: Identifier
    intent_key: Identifier
    meta: IntentMeta

    def text(self) -> bytes:
        """Return the canonical JSON of the wire form."""
        return text_around(self, self.body.input, self.meta.origin.actor.meta) or canonical_bytes(self.to_wire())

    def means_the_same_as(self, other: IntentInstance) -> bool:
        """Return whether both instances have the same intentKey, whichever actor issued them (INT-6.3)."""
        return self.intent_key == other.intent_key

    def has_content_of(self, other: IntentInstance) -> bool:
        """Return whether all members of both instances are equal."""
        return (self.intent_id, self.intent_key, self.body, self.meta) == (
            other.intent_id,
            other.intent_key,
            other.body,
            other.meta,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IntentInstance) and self.intent_id == other.intent_id

    def __hash__(self) -> int:
        return hash(self.intent_id)
