"""Commands of workers for asyncio: a worker that waits for an effect holds no thread."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import partial

from world.read_models.live.expectations import ANY
from world.state.effect_claim import EffectClaim
from worldprotocol.api.asynchronous.twins import Twin, awaited
from worldprotocol.api.executing.external_effects import check_wait
from worldprotocol.api.leasing.async_calls import result_of
from worldprotocol.api.realm import Realm

__all__ = ["AsyncExternalEffects"]


class AsyncExternalEffects(Twin[Realm]):
    """Commands of workers; ``AsyncRealm`` adds the commands of actors."""

    heartbeat_effect = awaited(Realm.heartbeat_effect)
    complete_effect = awaited(Realm.complete_effect)
    claimed_order = awaited(Realm.claimed_order)
    offered_effects = awaited(Realm.offered_effects)

    async def claim_effect(
        self,
        types: Collection[str] | None = None,
        *,
        worker: str,
        workspaces: Collection[str] = (),
        proposal_id: str | None = None,
        wait_s: float = 0,
        key: str | None = None,
    ) -> EffectClaim | None:
        """Claim the effect that was offered first; see ``Realm.claim_effect``. A wait for one holds no thread.

        A task that is cancelled while its claim is being recorded leaves the claim to its deadline.
        """
        check_wait(wait_s)
        realm = self._sync
        if wait_s:
            realm._check_may_wait()
        loop = asyncio.get_running_loop()
        claim = partial(
            realm.claim_effect, types, worker=worker, workspaces=workspaces, proposal_id=proposal_id, key=key
        )
        end = loop.time() + wait_s
        while True:
            position = await self._pool.run(lambda: realm.archive.peek(lambda state: state.position))
            claimed = await self._pool.run(claim)
            left = end - loop.time()
            if claimed is not None or left <= 0:
                return claimed
            pause = min(left, await self._pool.run(partial(realm._next_offer_s, left)))
            await result_of(realm.archive.expectations.expect(ANY, partial(realm._is_past, position)), pause)
