"""Names of the state that begin with ``$`` belong to the engine, and no write below them is lost without an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from world.core import ActionContext, Domain, Patch, set_
from worldprotocol import Realm


@pytest.mark.requirement("WP-hash", "WP-world")
def test_two_forks_that_write_an_unhashed_member_fail_instead_of_losing_one_write(tmp_path: Path) -> None:
    domain = Domain("urn:example:own", version="1.0.0", state={"fields": {"count": {"type": "number", "default": 0}}})

    @domain.action("write", version="1")
    def write(ctx: ActionContext) -> list[Patch]:
        return [set_("$x", 1)]

    with Realm.create(str(tmp_path / "own.db"), domain=domain) as world:
        world.register("ada", "agent", binding={"kind": "auto_approve"})
        done = world.act("ada", "write")
        assert done.status == "failed"
        assert world.data() == {"count": 0}
