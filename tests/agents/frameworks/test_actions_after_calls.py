"""Actions that change the state after a call was made."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from worldprotocol import Domain, Realm, effect, set_
from worldprotocol.agents.tool_calls import TOOL_CALL


class Counter(BaseModel):
    """The state."""

    total: int = 0


class Added(BaseModel):
    """The input."""

    amount: int


counter = Domain("urn:test:counter", version="1.0.0", state=Counter)


@counter.action("counter.add", version="1")
def added(ctx: Any, given: Added) -> Any:
    yield effect("tool.call", tool="add")
    return [set_("total", ctx.data["total"] + given.amount)]


@pytest.mark.parametrize("writes", [["total"], []])
def test_an_action_that_fails_after_the_call_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, writes: list[str]
) -> None:
    with Realm.create(tmp_path / "counter.db", domain=counter, effects=[TOOL_CALL]) as realm:
        realm.register("bot", "agent", binding={"kind": "auto_approve"})

        @realm.governed(actor="bot", action="counter.add", writes=writes)
        def add(amount: int) -> str:
            return f"added {amount}"

        with caplog.at_level(logging.WARNING, "worldprotocol"):
            assert add(3) == "added 3"  # it was made
        [proposal] = realm.proposals()
        assert proposal.status == ("completed" if writes else "failed")
        said = [one for one in caplog.messages if f"The call {proposal.proposal_id} was made, but" in one]
        assert len(said) == (0 if writes else 1)
