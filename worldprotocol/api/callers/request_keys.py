"""Keys of requests: a repeated request returns what the first one recorded, and records nothing.

A key belongs to the actor who sent the request. It is in the verification of what the request recorded, with a digest
by which an equal request is recognised. Requests that earlier releases recorded have no digest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, TypeVar

from msgspec import structs

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.verification import Verification
from world.model.canonical_json import canonical_bytes
from worldprotocol.api.realm import Realm

__all__ = ["check_key", "digest_of", "key_conflict", "keyed", "once"]

R = TypeVar("R")

_KEY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:~-]{0,199}")
DIGEST_DIGITS: Final = 32
"""Hex digits of a request's digest, 128 bits."""


def check_key(key: str) -> str:
    """Return a key of a caller.

    Raises:
        RefusedError: ``INVALID_VALUE``.
    """
    if not _KEY.fullmatch(key):
        raise RefusedError(
            ErrorCode.INVALID_VALUE,
            f"{key[:80]!r} is no key of a request: 1 to 200 letters, digits and `. _ : ~ -`, beginning with a letter "
            "or a digit. Use a new UUID for each request.",
        )
    return key


def digest_of(name: str, request: Mapping[str, Any], unhashed: Iterable[str] = ()) -> str:
    """Return the digest of a request: of the canonical JSON of a list of its name and its members.

    Args:
        name: the operation.
        request: its members, JSON.
        unhashed: members that do not belong to the meaning of the request.

    Raises:
        RefusedError: ``NOT_CANONICAL``, with the path within the request.
    """
    meant = {member: value for member, value in request.items() if member not in unhashed}
    return sha256(b"[%b,%b]" % (canonical_bytes(name), canonical_bytes(meant))).hexdigest()[:DIGEST_DIGITS]


def keyed(
    verified: Verification,
    key: str | None,
    name: str,
    request: Mapping[str, Any],
    unhashed: Iterable[str] = (),
    *,
    checks: bool = True,
) -> Verification:
    """Return a caller with the key of its request; without a key, the caller.

    Args:
        verified: the caller.
        key: the key.
        name: as for ``digest_of``.
        request: as for ``digest_of``.
        unhashed: as for ``digest_of``.
        checks: whether the text has to be a key; an intentId may be any text.

    Raises:
        RefusedError: ``INVALID_VALUE`` for a text that is no key; ``NOT_CANONICAL``.
    """
    if key is None:
        return verified
    return structs.replace(verified, key=check_key(key) if checks else key, request=digest_of(name, request, unhashed))


def once(
    realm: Realm,
    caller: Verification,
    run: Callable[[Realm], R],
    *,
    again: Callable[[Sequence[Any]], R],
    is_same: Callable[[Any], bool] = lambda _: False,
) -> R:
    """Run the command of a request, unless an equal one of the caller was recorded with the same key.

    Args:
        realm: the realm.
        caller: the caller, as ``keyed`` returns it; without a key the command runs.
        run: the command, on the realm of the caller: one command of the writer, which looks for the key.
        again: returns the result of a repeated request from the events of the first one.
        is_same: whether the first event of a request that an earlier release recorded is that of this one.

    Raises:
        RefusedError: ``IDEMPOTENCY_CONFLICT`` where the caller used the key for another request; ``EVENT_ARCHIVED``
            where what an earlier request recorded was removed from a cut log; what the command refuses.
    """
    from world.engine.verified_commands import OnceProtocol, RepeatedRequestError

    if caller.key is None or caller.actor_id is None:
        return run(realm.as_caller(caller))
    acting = realm.as_caller(caller)
    acting._protocol = OnceProtocol(realm._acting, realm._composed.ids, caller)
    try:
        return run(acting)
    except RepeatedRequestError as repeated:
        events = repeated.events
    except RefusedError:
        events = realm.archive.events_of_key(caller.actor_id, caller.key)  # it may be refused for what it did before
        if not events:
            raise
    before = events[0].verified.request
    if before != caller.request if before is not None else not is_same(events[0]):
        raise key_conflict(caller.key, getattr(events[0], "proposal_id", None))
    return again([structs.replace(one, verified=None) for one in events])  # as the command returned them


def key_conflict(key: str, proposal_id: str | None = None) -> RefusedError:
    """Return the refusal of a key that its actor used for another request.

    Args:
        key: the key.
        proposal_id: the proposal that the other request is about, where there is one.
    """
    details = {} if proposal_id is None else {"proposal_id": proposal_id}
    return RefusedError(
        ErrorCode.IDEMPOTENCY_CONFLICT,
        f"The key {key} was used for another request; use a new key for each request.",
        **details,
    )
