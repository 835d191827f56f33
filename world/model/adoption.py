"""Migrations as recorded: the intent, the binding and the ruling of a proposal that migrates a branch.

The adoption of a domain with a migration submits one system direct intent for each branch (intent specification 8),
approves it and seals its world, in one commit. ``proposal.submitted`` then has the member ``migration``, the identity
of the migration. No authority judges it, since the adoption itself is the operator's decision, and it holds no lease,
since no proposal is under way when a schema is adopted. Sources: WP-schema, WP-lineage, SD-1 to SD-5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from world.model.canonical_json import digest
from world.model.decision import Ruling
from world.model.identity import intent_key
from world.model.intent_origin import DIRECT_PREFIX

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


def migration_intent(ids: tuple[str, str], schema_hash: str, told: Mapping[str, Any]) -> dict[str, Any]:
    """Return the intent of a migration in wire form.

    Args:
        ids: id of the intent, and id of its source event.
        schema_hash: hash of the adopted schema.
        told: the input: versions and hashes of both schemas, and the operator.
    """
    actor = {"actorId": MIGRATION_ACTOR, "kind": "system"}
    source = {"kind": "system", "eventId": ids[1]}
    return {
        "body": {"type": MIGRATE, "input": dict(told)},
        "intentId": ids[0],
        "intentKey": intent_key(schema_hash, MIGRATE, dict(told), None),
        "meta": {"origin": {"projectionId": f"{DIRECT_PREFIX}{MIGRATION_ACTOR}", "source": source, "actor": actor}},
    }


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


def migration_ruling(told: Mapping[str, Any]) -> Ruling:
    """Return the ruling on a migration, which follows from its input."""
    versions = told["from"]["version"], told["to"]["version"]
    return Ruling("approve", ADOPTION, f"{told['by']} adopted version {versions[1]} in place of {versions[0]}")
