"""What the origin of an intent may say: which projection selected it, or that none did (intent specification 8).

A projectionId is one of three:

* the id of a registered projection, which selected the intent;
* ``api:intent``: a caller stated the intent outright;
* ``system:JOB``, such as ``system:scheduler``: a system produced the intent directly (SD-1). Its source and its actor
  are systems (SD-2), the intentKey follows from its body as for any intent (SD-4), and no projection takes part (SD-5).

Every check of these rules is here, for the issuer, the public API and the submission alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from world.errors import RefusedError
from world.model.intent import IntentInstance, IntentOrigin

__all__ = ["API_ORIGIN", "DIRECT_PREFIX", "check_direct", "check_key", "check_origin", "is_direct", "not_direct"]

API_ORIGIN: Final = "api:intent"
"""projectionId of intents that a caller states outright, without a source event."""

DIRECT_PREFIX: Final = "system:"
"""How the projectionId of a system direct intent begins (SD-1); no projection may be named so."""


def is_direct(instance: IntentInstance) -> bool:
    """Tell whether an instance says that a system produced it directly (SD-1)."""
    return instance.meta.origin.projection_id.startswith(DIRECT_PREFIX)


def check_direct(instance: IntentInstance, schema_hash: str | None = None) -> None:
    """Refuse an instance that says it was produced directly and breaks the rules for that; others pass.

    Args:
        instance: from anywhere.
        schema_hash: the schema in force, to check the intentKey too (INV-SD3); None leaves that out.

    Raises:
        RefusedError: ``NOT_A_DIRECT_INTENT`` when source or actor is no system, or nothing follows the prefix;
            ``WRONG_SCHEMA`` when the intentKey does not follow from the body.
    """
    if not is_direct(instance):
        return
    origin = instance.meta.origin
    if origin.source.kind != "system" or origin.actor.kind != "system":  # INV-SD2
        raise not_direct(origin)
    if not origin.projection_id.removeprefix(DIRECT_PREFIX).strip():
        raise RefusedError(
            "NOT_A_DIRECT_INTENT",
            f"The projectionId {origin.projection_id!r} names no job; write {DIRECT_PREFIX}scheduler.",
        )
    if schema_hash is not None:
        check_key(instance, schema_hash)


def check_key(instance: IntentInstance, schema_hash: str) -> None:
    """Refuse an instance whose intentKey does not follow from its body under a schema (INV-I2, INV-SD3).

    Raises:
        RefusedError: ``WRONG_SCHEMA``.
    """
    expected = instance.body.key(schema_hash)
    if instance.intent_key != expected:
        raise RefusedError(
            "WRONG_SCHEMA",
            "The intentKey does not follow from the intent under the schema in force: it was issued for another "
            "schema or changed afterwards. Issue the intent again.",
            expected=expected,
            given=instance.intent_key,
            schema_hash=schema_hash,
        )


def check_origin(instance: IntentInstance, projection_ids: Iterable[str]) -> None:
    """Refuse an instance whose origin names nothing that could have produced it.

    Args:
        instance: from anywhere.
        projection_ids: of the registered projections.

    Raises:
        RefusedError: ``UNKNOWN_PROJECTION`` with the registered ones for a projectionId that names none of them;
            ``NOT_A_DIRECT_INTENT`` as ``check_direct`` does, and for an intent of a system that no projection selected
            and whose projectionId does not say so (SD-1).
    """
    origin = instance.meta.origin
    check_direct(instance)
    if is_direct(instance):
        return
    if origin.projection_id == API_ORIGIN:
        if "system" in (origin.source.kind, origin.actor.kind):  # INV-SD1
            raise RefusedError(
                "NOT_A_DIRECT_INTENT",
                f"The projectionId {API_ORIGIN!r} does not say that a system produced the intent, but its source is "
                f"{origin.source.kind!r} and its actor {origin.actor.actor_id!r} is {origin.actor.kind!r}; write "
                f"{DIRECT_PREFIX}JOB, such as {DIRECT_PREFIX}scheduler, with a source of kind 'system'.",
                projection=origin.projection_id,
                actor_id=origin.actor.actor_id,
            )
        return
    known = list(projection_ids)
    if origin.projection_id not in known:
        raise RefusedError(
            "UNKNOWN_PROJECTION",
            f"The intent's origin names the projection {origin.projection_id!r}, which is not registered; registered: "
            f"{', '.join(map(repr, known)) or 'none'}. Register it, or write {API_ORIGIN!r} for an intent that a "
            f"caller states outright, or '{DIRECT_PREFIX}JOB' for one that a system produced directly.",
            projection=origin.projection_id,
            known=known,
        )


def not_direct(origin: IntentOrigin) -> RefusedError:
    """Return the refusal of a system direct intent whose source or actor is no system."""
    return RefusedError(
        "NOT_A_DIRECT_INTENT",
        f"The projectionId {origin.projection_id!r} marks a system direct intent, but its source is "
        f"{origin.source.kind!r} and its actor {origin.actor.actor_id!r} is {origin.actor.kind!r}; both must be "
        "'system'.",
        projection=origin.projection_id,
        actor_id=origin.actor.actor_id,
    )
