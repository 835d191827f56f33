"""Claims of external effects from asyncio: a worker that waits gets an effect as soon as it is offered."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.pipeline.offering import START, offering
from tests.support.patience import PATIENCE_S
from world.clock import ManualClock
from world.errors import RefusedError
from worldprotocol import AsyncRealm


def test_a_task_that_waits_gets_the_effect_that_is_offered_meanwhile(tmp_path: Path) -> None:
    async def main(realm: AsyncRealm) -> tuple[str | None, str]:
        async with asyncio.TaskGroup() as tasks:
            claiming = tasks.create_task(realm.claim_effect(worker="w1", wait_s=PATIENCE_S))
            while not realm.archive.expectations.count:
                await asyncio.sleep(0)
            proposal = await realm.act("ann", "do", {})
        claim = claiming.result()
        assert await realm.claim_effect(worker="w2") is None
        with pytest.raises(RefusedError, match="wait_s"):
            await realm.claim_effect(worker="w2", wait_s=-1)
        return None if claim is None else claim.proposal_id, proposal.proposal_id

    with offering(str(tmp_path / "world.db"), clock=ManualClock(START)) as realm:
        claimed, offered = asyncio.run(main(AsyncRealm(realm)))
        assert claimed == offered
        assert realm.archive.expectations.count == 0
