"""Migrations as recorded: the intent, the binding and the ruling of a proposal that migrates a branch.

The adoption of a domain with a migration submits one system direct intent for each branch (intent specification 8),
approves it and seals its world, in one commit. ``proposal.submitted`` then has the member ``migration``, the identity
of the migration. No authority judges it, since the adoption itself is the operator's decision, and it holds no lease,
since no proposal is under way when a schema is adopted. Sources: WP-schema, WP-lineage, SD-1 to SD-5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from world.model.actor import ActorRef
from world.model.canonical_json import digest
from world.model.decision import Ruling
from world.model.immutable_json import freeze
from world.model.intent import IntentBody, IntentInstance, IntentMeta, IntentOrigin
from world.model.intent_origin import DIRECT_PREFIX
from world.model.source import SourceRef

__all__ = [
    "ADOPTION",
    "MIGRATE",
    "MIGRATION_ACTOR",
    "UNKNOWN_CODE",
    "adoption_binding",
    "migration_id",
    "migration_intent",
    "migration_ruling",
]

MIGRATE: Final = "domain.migrate"
"""Type of the intents of migrations."""

MIGRATION_ACTOR: Final = "migration"
"""Id of the actor of migrations, of kind system. It is registered at the first one and bound to no authority."""

ADOPTION: Final = "adoption"
"""Kind of the binding and authority of the rulings on migrations."""

UNKNOWN_CODE: Final = "unknown"
"""Identity of a migration without source."""


def migration_intent(ids: tuple[str, str], schema_hash: str, change: Mapping[str, Any]) -> IntentInstance:
    """Return the intent of a migration.

    Args:
        ids: id of the intent, and id of its source event.
        schema_hash: hash of the adopted schema.
        change: the input: versions and hashes of both schemas, and the operator.
    """
    body = IntentBody(type=MIGRATE, input=freeze(dict(change)))
    origin = IntentOrigin(
        projection_id=f"{DIRECT_PREFIX}{MIGRATION_ACTOR}",
        source=SourceRef(kind="system", event_id=ids[1]),
        actor=ActorRef(actor_id=MIGRATION_ACTOR, kind="system"),
    )
    return IntentInstance(body=body, intent_id=ids[0], intent_key=body.key(schema_hash), meta=IntentMeta(origin=origin))


def migration_id(intent_key_: str, attempt: int) -> str:
    """Return the id of a migration's proposal, which a replay of the log with one change gives again.

    Args:
        intent_key_: of its intent.
        attempt: the number of proposals with this intentKey so far, this one included.
    """
    hash_ = digest({"intentKey": intent_key_, "attempt": attempt})
    return f"{hash_[:8]}-{hash_[8:12]}-8{hash_[13:16]}-8{hash_[17:20]}-{hash_[20:32]}"


def adoption_binding(by: str) -> dict[str, Any]:
    """Return the binding of a ruling on a migration.

    Args:
        by: the operator that the adoption names.
    """
    return {"kind": ADOPTION, "by": by}


def migration_ruling(change: Mapping[str, Any]) -> Ruling:
    """Return the ruling on a migration, which follows from its input."""
    versions = change["from"]["version"], change["to"]["version"]
    return Ruling("approve", ADOPTION, f"{change['by']} adopted version {versions[1]} in place of {versions[0]}")
