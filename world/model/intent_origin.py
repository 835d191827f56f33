"""Rules for the origin of an intent: the projection that selected it, or none (intent specification 8).

A projectionId is one of:

* the id of a registered projection, which selected the intent;
* ``api:intent``: a caller submitted the intent without a projection;
* ``system:JOB``, such as ``system:scheduler``: a system produced the intent directly (SD-1). Its source and its actor
  are systems (SD-2), the intentKey is derived from its body as for any intent (SD-4), and no projection is run (SD-5).

The issuer, the public API and the submission stage share the checks of this module.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.intent import IntentInstance, IntentOrigin

__all__ = ["API_ORIGIN", "DIRECT_PREFIX", "check_direct", "check_key", "check_origin", "is_direct", "not_direct"]

API_ORIGIN: Final = "api:intent"
"""projectionId of intents that a caller submits without a source event."""

DIRECT_PREFIX: Final = "system:"
"""Prefix of the projectionId of a system direct intent (SD-1); reserved, so no projection id may begin with it."""


def is_direct(instance: IntentInstance) -> bool:
    """Return whether the origin of an instance is a system direct one (SD-1)."""
    return instance.meta.origin.projection_id.startswith(DIRECT_PREFIX)


def check_direct(instance: IntentInstance, schema_hash: str | None = None) -> None:
    """Check the rules for a system direct intent; an instance of another origin passes.

    Args:
        instance: any instance.
        schema_hash: hash of the schema in force, to check the intentKey also (INV-SD3); None omits that check.

    Raises:
        RefusedError: ``NOT_A_DIRECT_INTENT`` when source or actor is not a system, or the job's name is empty;
            ``WRONG_SCHEMA`` when the intentKey is not that of the body.
    """
    if not is_direct(instance):
        return
    origin = instance.meta.origin
    if origin.source.kind != "system" or origin.actor.kind != "system":  # INV-SD2
        raise not_direct(origin)
    if not origin.projection_id.removeprefix(DIRECT_PREFIX).strip():
        raise RefusedError(
            ErrorCode.NOT_A_DIRECT_INTENT,
            f"The projectionId {origin.projection_id!r} names no job; write {DIRECT_PREFIX}scheduler.",
        )
    if schema_hash is not None:
        check_key(instance, schema_hash)


def check_key(instance: IntentInstance, schema_hash: str) -> None:
    """Refuse an instance whose intentKey is not that of its body under a schema (INV-I2, INV-SD3).

    Raises:
        RefusedError: ``WRONG_SCHEMA``.
    """
    expected = instance.body.key(schema_hash)
    if instance.intent_key != expected:
        raise RefusedError(
            ErrorCode.WRONG_SCHEMA,
            "The intentKey does not follow from the intent under the schema in force: it was issued for another "
            "schema or changed afterwards. Issue the intent again.",
            expected=expected,
            given=instance.intent_key,
            schema_hash=schema_hash,
        )


def check_origin(instance: IntentInstance, projection_ids: Iterable[str]) -> None:
    """Refuse an instance whose origin names no possible producer.

    Args:
        instance: any instance.
        projection_ids: ids of the registered projections.

    Raises:
        RefusedError: ``UNKNOWN_PROJECTION`` with the registered ids for a projectionId that is not registered;
            ``NOT_A_DIRECT_INTENT`` as ``check_direct`` does, and for an intent of a system that no projection selected
            and whose projectionId lacks the prefix ``system:`` (SD-1).
    """
    origin = instance.meta.origin
    check_direct(instance)
    if is_direct(instance):
        return
    if origin.projection_id == API_ORIGIN:
        if "system" in (origin.source.kind, origin.actor.kind):  # INV-SD1
            raise RefusedError(
                ErrorCode.NOT_A_DIRECT_INTENT,
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
            ErrorCode.UNKNOWN_PROJECTION,
            f"The intent's origin names the projection {origin.projection_id!r}, which is not registered; registered: "
            f"{', '.join(map(repr, known)) or 'none'}. Register it, or write {API_ORIGIN!r} for an intent that a "
            f"caller states outright, or '{DIRECT_PREFIX}JOB' for one that a system produced directly.",
            projection=origin.projection_id,
            known=known,
        )


def not_direct(origin: IntentOrigin) -> RefusedError:
    """Return the error for a system direct intent whose source or actor is not a system."""
    return RefusedError(
        ErrorCode.NOT_A_DIRECT_INTENT,
        f"The projectionId {origin.projection_id!r} marks a system direct intent, but its source is "
        f"{origin.source.kind!r} and its actor {origin.actor.actor_id!r} is {origin.actor.kind!r}; both must be "
        "'system'.",
        projection=origin.projection_id,
        actor_id=origin.actor.actor_id,
    )
