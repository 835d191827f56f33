"""A full disk in the middle of a batch: what the log has of the line under way is not denied."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.cli.inside import Inside
from tests.cli.realm import FOUND
from world.state.proposal import Proposal
from worldprotocol.api.realm import Realm
from worldprotocol.cli.support import batch
from worldprotocol.cli.support.rendering.proposals import result_of


def test_a_full_disk_in_a_batch_says_that_the_line_under_way_may_be_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first line is done; the disk is full after the proposal of the second was recorded."""
    realm = Inside(tmp_path)
    realm(*FOUND)
    realm("actor", "add", "bot", "--kind", "agent", "--auto-approve")
    lines = [json.dumps({"actor": "bot", "type": "sell", "input": {"item": item}}) for item in ("tea", "milk")]
    reported = result_of

    def without_room(world: Realm, proposal: Proposal) -> dict[str, Any]:
        if len(list(world.proposals())) == 2:
            writer: sqlite3.Connection = world.log._store._writer  # type: ignore[attr-defined]
            pages = writer.execute("PRAGMA page_count").fetchone()[0]
            writer.execute(f"PRAGMA max_page_count = {pages}")
            while True:  # until the limit refuses a commit
                world.act("bot", "sell", {"item": "tea"})
        return reported(world, proposal)

    monkeypatch.setattr(batch, "result_of", without_room)
    said = realm("submit", "--intents", "-", given="\n".join(lines), code=1)
    assert "1 line done (1 completed); all of them are in the log. The line after them may be there in part" in said.err
    assert "STORAGE_FULL" in said.err
    assert "Nothing was appended" not in said.err
