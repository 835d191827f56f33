"""Signatures by keys of agents: Ed25519 (RFC 8032) over canonical JSON; those of manifests (KM-7.1).

The signature covers the RFC 8785 form of the document without ``signature``. A signed manifest has ``issued_at`` and
``nonce``; the signature binds them to agent, session and scope. The ledger checks the single use of a nonce and the age
of a manifest. The caller passes the keys of the manifest's own agent.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.klis.manifest import Manifest
from world.model.canonical_json import canonical_bytes, sha256_hex

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = ["key_id", "private_key", "public_key", "sign", "sign_bytes", "signed_bytes", "signing_key", "verify"]

_KEY_BYTES: Final = 32
_KEY_ID_DIGITS: Final = 16


def key_id(public: bytes) -> str:
    """Return the id of a public key: the first 16 hex digits of its SHA-256."""
    return sha256_hex(public)[:_KEY_ID_DIGITS]


def signed_bytes(document: Mapping[str, Any]) -> bytes:
    """Return the signed bytes of a manifest.

    Raises:
        RefusedError: ``NOT_CANONICAL``.
    """
    return canonical_bytes({name: rendered for name, rendered in document.items() if name != "signature"})


def public_key(private: bytes) -> bytes:
    """Return the public key (32 bytes) of a private one (PEM, or 32 bytes).

    Raises:
        RefusedError: ``INVALID_KEY``.
    """
    return private_key(private).public_key().public_bytes_raw()


def sign(document: Mapping[str, Any], private: bytes) -> dict[str, Any]:
    """Return a manifest with its signature.

    Args:
        document: the manifest in wire form, with ``issued_at`` and ``nonce``; an old signature is replaced.
        private: the agent's private key: PEM without a password, or its 32 bytes.

    Raises:
        RefusedError: ``INVALID_KEY``, ``NOT_CANONICAL``, ``MALFORMED_SCHEMA`` where ``issued_at`` or ``nonce`` is
            missing.
    """
    for name in ("issued_at", "nonce"):
        if document.get(name) is None:
            raise RefusedError(
                ErrorCode.MALFORMED_SCHEMA, f"$.{name} is missing; a signed manifest has one.", path=f"$.{name}"
            )
    return {**document, "signature": sign_bytes(signed_bytes(document), private)}


def sign_bytes(content: bytes, private: bytes) -> str:
    """Return the signature of bytes, in base64.

    Args:
        content: the bytes.
        private: a private key: PEM without a password, or its 32 bytes.

    Raises:
        RefusedError: ``INVALID_KEY``.
    """
    return b64encode(private_key(private).sign(content)).decode()


def signing_key(signature: bytes, content: bytes, public_keys: Iterable[bytes]) -> str | None:
    """Return the id of the key that signed bytes; None where none of the keys did.

    Args:
        signature: the signature.
        content: the bytes.
        public_keys: the keys, 32 bytes each.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    for public in public_keys:
        try:
            Ed25519PublicKey.from_public_bytes(public).verify(signature, content)
        except (InvalidSignature, ValueError):
            continue
        return key_id(public)
    return None


def verify(manifest: Manifest, public_keys: Iterable[bytes]) -> str:
    """Return the id of the key that signed a manifest.

    Args:
        manifest: the manifest as it was read.
        public_keys: the keys of its agent that are in force, 32 bytes each.

    Raises:
        RefusedError: ``UNAUTHENTICATED`` for a manifest without a signature, with another content, or of another key.
    """
    if manifest.signature is None:
        raise _unauthenticated(manifest, "is not signed")
    if manifest.issued_at is None or manifest.nonce is None:
        raise _unauthenticated(manifest, "has a signature but no issued_at or no nonce")
    try:
        signature = b64decode(manifest.signature, validate=True)
    except (binascii.Error, ValueError):
        raise _unauthenticated(manifest, "has a signature that is no base64") from None
    found = signing_key(signature, signed_bytes(manifest.document), public_keys)
    if found is None:
        raise _unauthenticated(manifest, "was altered, or is not signed with a key in force")
    return found


def _unauthenticated(manifest: Manifest, clause: str) -> RefusedError:
    return RefusedError(
        ErrorCode.UNAUTHENTICATED,
        f"The manifest of {manifest.agent_id!r} {clause}.",
        path="$.signature",
        agent_id=manifest.agent_id,
    )


def private_key(rendered: bytes) -> Ed25519PrivateKey:
    """Read a private key: PEM without a password, or 32 bytes.

    Raises:
        RefusedError: ``INVALID_KEY``.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        if len(rendered) == _KEY_BYTES:
            return Ed25519PrivateKey.from_private_bytes(rendered)
        found = load_pem_private_key(rendered, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise RefusedError(
            ErrorCode.INVALID_KEY, "This is no private key: give Ed25519 as PEM, or as its 32 bytes."
        ) from error
    if not isinstance(found, Ed25519PrivateKey):
        raise RefusedError(
            ErrorCode.INVALID_KEY, f"Signatures are made with Ed25519; this key is {type(found).__name__}."
        )
    return found
