"""Signing intents with a registered key of their actor, for ``Realm.submit``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.verification import IntentSignature
from world.klis.identity.intent_signature import sign_intent

if TYPE_CHECKING:
    from world.model.intent import IntentInstance
    from worldprotocol.api.read_only import RealmReader

__all__ = ["signature_of"]


def signature_of(realm: RealmReader, intent: IntentInstance, private: bytes, *, now_ms: int) -> IntentSignature:
    """Return the signature of an intent for a realm: `realm.submit(intent, signature=signature_of(...))`.

    Args:
        realm: the realm in which the intent will be submitted.
        intent: the issued intent.
        private: the actor's private key (`worldctl keys new`): PEM without a password, or its 32 bytes.
        now_ms: the present time, ms since 1970.

    Raises:
        RefusedError: ``INVALID_KEY``, ``NOT_FOUNDED``.
    """
    founded = realm.realm().founded
    if founded is None:
        raise RefusedError(ErrorCode.NOT_FOUNDED, "The log is not founded, so it has no id; found the realm first.")
    return sign_intent(intent, private, log_id=founded.log_id, issued_at=now_ms)
