"""Signatures of intents by registered keys of their actors, as those of manifests.

A signature covers the whole IntentInstance with its intentId, the id of the realm's log, and the time of signing; so it
holds for no other intent, intentId or realm, and for ``max_signature_age_ms``. The engine refuses with
``signature_fault`` what ``verify`` reports with it. Source: docs/server.md, Signed intents.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import TYPE_CHECKING, Final

from world.events.verification import IntentSignature
from world.klis.identity.signature import key_id, public_key, sign_bytes, signing_key
from world.model.canonical_json import canonical_bytes

if TYPE_CHECKING:
    from world.events.proposal_events import ProposalSubmitted
    from world.klis.ledger_view import ReadableLedger
    from world.model.intent import IntentInstance

__all__ = ["PURPOSE", "intent_fault", "sign_intent", "signature_fault", "signed_content"]

PURPOSE: Final = "world-protocol intent v1"
"""Member ``signs`` of what is signed, which a manifest cannot have."""


def signed_content(intent: IntentInstance, log_id: str, issued_at: int) -> bytes:
    """Return the signed bytes of an intent: RFC 8785.

    Args:
        intent: the intent, with its intentId.
        log_id: id of the realm's log.
        issued_at: when it is signed, ms since 1970.
    """
    return canonical_bytes({"signs": PURPOSE, "logId": log_id, "issuedAt": issued_at, "intent": intent.to_wire()})


def sign_intent(intent: IntentInstance, private: bytes, *, log_id: str, issued_at: int) -> IntentSignature:
    """Return the signature of an intent.

    Args:
        intent: the intent, with its intentId.
        private: the actor's private key: PEM without a password, or its 32 bytes.
        log_id: id of the realm's log.
        issued_at: the present time, ms since 1970.

    Raises:
        RefusedError: ``INVALID_KEY``.
    """
    signature = sign_bytes(signed_content(intent, log_id, issued_at), private)
    return IntentSignature(key_id=key_id(public_key(private)), issued_at=issued_at, signature=signature)


def signature_fault(ledger: ReadableLedger, log_id: str, event: ProposalSubmitted) -> str | None:
    """Return why the signature of a submission does not hold, as a clause; None where it holds, or there is none.

    Args:
        ledger: the keys and settings before the event.
        log_id: id of the realm's log.
        event: the submission.
    """
    signed, verified = event.signed, event.verified
    by_signature = verified is not None and verified.method == "signature"
    if signed is None:
        return "it is not signed" if by_signature else None
    if by_signature and verified is not None and verified.key_id != signed.key_id:
        return f"it was verified by the key {verified.key_id}, but is signed with {signed.key_id}"
    return intent_fault(ledger, log_id, event.intent, signed, event.at)


def intent_fault(
    ledger: ReadableLedger, log_id: str, intent: IntentInstance, signed: IntentSignature, at: int
) -> str | None:
    """Return why a signature does not verify the actor of an intent, as a clause; None where it does.

    Args:
        ledger: the keys and settings at that time.
        log_id: id of the realm's log.
        intent: the intent.
        signed: the signature.
        at: ms since 1970.
    """
    fault = _key_fault(ledger, intent.meta.origin.actor.actor_id, signed)
    if fault is not None:
        return fault
    limit = ledger.in_force.max_signature_age_ms
    if abs(at - signed.issued_at) > limit or signed.issued_at < ledger.signed_from:
        return (
            f"it was signed at {signed.issued_at}, more than {limit} ms (max_signature_age_ms) from {at}, or "
            "before lease time was set (clock.confirmed); sign it again"
        )
    return _content_fault(ledger, log_id, intent, signed)


def _key_fault(ledger: ReadableLedger, actor_id: str, signed: IntentSignature) -> str | None:
    key = ledger.keys.get(signed.key_id)
    if key is None:
        return f"the key {signed.key_id} is not registered; register it (`worldctl keys register`)"
    if key.agent_id != actor_id:
        return f"the key {signed.key_id} is one of {key.agent_id!r}, not of {actor_id!r}; sign with one of {actor_id!r}"
    if key.revoked:
        return f"the key {signed.key_id} was revoked; sign with a key in force"
    return None


def _content_fault(ledger: ReadableLedger, log_id: str, intent: IntentInstance, signed: IntentSignature) -> str | None:
    try:
        signature = b64decode(signed.signature, validate=True)
    except (binascii.Error, ValueError):
        return "the signature is not base64"
    content = signed_content(intent, log_id, signed.issued_at)
    if signing_key(signature, content, [b64decode(ledger.keys[signed.key_id].public)]) is None:
        return (
            f"the key {signed.key_id} did not sign this intent with this intentId for the realm {log_id}; sign exactly "
            "what is submitted"
        )
    return None
