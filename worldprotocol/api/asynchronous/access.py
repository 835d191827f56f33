"""Rights and API tokens for asyncio."""

from __future__ import annotations

from worldprotocol.api.asynchronous.twins import Twin, awaited
from worldprotocol.api.callers.access import RealmAccess

__all__ = ["AsyncAccess"]


class AsyncAccess(Twin[RealmAccess]):
    """Rights of actors, and API tokens; ``AsyncRealm.access``."""

    grant = awaited(RealmAccess.grant)
    revoke = awaited(RealmAccess.revoke)
    rights = awaited(RealmAccess.rights)
    create_token = awaited(RealmAccess.create_token)
    revoke_token = awaited(RealmAccess.revoke_token)
    tokens = awaited(RealmAccess.tokens)
