"""Two agents at once, in one process and one loop, that write the same file: ``python agents.py``, in this folder.

Both read the diary, think, and write all of it back. Their sessions keep them apart: the younger dies while the older
writes, and tries again, so no entry is lost.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from world.errors import RefusedError
from worldprotocol import Realm

DIARY = Path("reports/diary.txt")
ENTRIES = 3


async def keep_diary(realm: Realm, agent: str) -> int:
    """Write entries, each in a session of its own; returns how often the agent died."""
    died = 0
    for number in range(ENTRIES):
        while not await entry_made(realm, agent, f"{agent} {number}"):
            died += 1
    return died


async def entry_made(realm: Realm, agent: str, entry: str) -> bool:
    """Add an entry, or wait as long as the verdict says and return False."""
    try:
        async with realm.host.session(agent=agent, writes=[str(DIARY)]):
            text = DIARY.read_text(encoding="utf-8") if DIARY.exists() else ""
            await asyncio.sleep(0.01)  # a program that writes now without a session would lose an entry
            DIARY.write_text(f"{text}{entry}\n", encoding="utf-8")
    except RefusedError as refused:
        if refused.code != "DIED":
            raise
        await asyncio.sleep(refused.details["retry_after_ms"] / 1000)
        return False
    return True


async def main() -> None:
    """Run both at the same time."""
    DIARY.unlink(missing_ok=True)
    with Realm.open_or_create("world.db", domain="domain.yaml", workspace=".") as realm:
        died = await asyncio.gather(keep_diary(realm, "ann"), keep_diary(realm, "bob"))
    entries = DIARY.read_text(encoding="utf-8").split("\n")[:-1]
    print(f"ann died {died[0]} times, bob {died[1]} times, and the diary has {len(entries)} of {2 * ENTRIES} entries")


if __name__ == "__main__":
    asyncio.run(main())
