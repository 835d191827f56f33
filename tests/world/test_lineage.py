"""Lines of descent, branches in the past, causes and comparisons, on every kind of store."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cli.notebook import drop, notebook, opened, put, write
from world.audit.sealing import last_commit
from world.errors import RefusedError
from world.read_models.archive import Archive
from world.read_models.blame import blame_values
from world.read_models.diff import compare
from world.read_models.lineage import common_ancestor, heads_at, line, recorded_by, sealed_line
from world.read_models.log_differences import compare_logs
from world.read_models.provenance import causes_of
from world.read_models.trace import MAX_LATER, find_origins, trace_proposal, trace_source
from worldprotocol import Realm
from worldprotocol.export.archive.cutting import CutPlan, cut, open_for_cutting


@pytest.mark.requirement("WP-lineage", "WP-restore", "CARD-audit", "IC-audit")
def test_the_past_is_found_on_every_store(log_url: str) -> None:
    with opened(log_url) as world:
        first = write(world, put("count", 1), by="ann")
        then = world.log.head().size
        second = write(world, put("doc.a", 1), by="bob")
        world.create_branch("side", first)
        side = write(world, put("doc.b", 2), drop("doc.a"), by="eve", branch="side")
        genesis = world.sealed(first).parent
        archive = world.archive
        assert [row.world_id for row in line(archive, side)] == [side, first, genesis]
        assert [event.world_id for _, event in sealed_line(archive, second)] == [second, first, genesis]
        assert common_ancestor(archive, second, side) == first
        assert heads_at(archive, then).head() == first
        assert list(heads_at(archive, then).branches) == ["main"]
        assert heads_at(archive, world.log.head().size).head("side") == side
        with pytest.raises(RefusedError, match="no branch 'side'"):
            heads_at(archive, then).head("side")
        size = world.log.head().size
        for upto, most, later in ((size, 9, 2), (size, 1, 1), (then, 9, 0)):
            assert archive.rows("descendants", {"of_world": first, "upto": upto, "most": most}) == [(later,)]
        actors = [
            cause.submitted and cause.submitted.actor.actor_id
            for cause in causes_of(archive, (world.sealed(name) for name in (side, second, first, genesis)))
        ]
        assert actors == ["eve", "bob", "ann", None]
        blamed = {
            one.path: origin.cause.sealed.world_id for one, origin in blame_values(archive, "", side).with_origins()
        }
        assert blamed == {"count": first, "doc.b": side, "tags": genesis}
        assert {one.change.path for one in compare(archive, second, side).differences} == {"doc.a", "doc.b"}
        made = world.sealed(second).created_by or ""
        traced = trace_proposal(archive, made)
        assert second in [step.name for step in traced.walk()]
        [(name, came)] = find_origins(archive, traced.name).sources.items()
        assert (name, trace_source(archive, came)) == (traced.name, traced)
        assert recorded_by(archive, world.sealed(second).at) >= archive.world(second).position
        assert compare_logs(archive, Archive(world.log)) is None


@pytest.mark.requirement("WP-base")
def test_nothing_is_built_on_a_world_before_the_cut_of_the_log(tmp_path: Path) -> None:
    address = str(tmp_path / "w.db")
    with opened(address) as world:
        first, second, third = (write(world, put("count", number), by="ann") for number in (1, 2, 3))
    with open_for_cutting(address) as log:
        archives: Any = (SimpleNamespace(digest="0" * 64),)
        upto = last_commit(log, Archive(log).world(second).position)
        cut(log, CutPlan(archives, upto, 0), by="ann", now_ms=0)
    with Realm.open(address, domain=notebook) as world:
        world.create_branch("newest", third)
        with pytest.raises(RefusedError) as refused:
            world.create_branch("old", first)
        assert refused.value.code == "EVENT_ARCHIVED"


def test_an_old_world_is_said_to_have_more_than_a_hundred_descendants(log_url: str) -> None:
    with opened(log_url) as world:
        first = write(world, put("count", 0))
        made = world.sealed(first).created_by or ""

        def later() -> dict[str, Any]:
            (found,) = [step for step in trace_proposal(world.archive, made).walk() if step.kind == "later"]
            return {**found.facts, "words": found.words}

        for number in range(MAX_LATER):
            write(world, put("count", number + 1))
        assert later() == {"count": MAX_LATER, "words": "100 worlds descend from it"}
        write(world, put("count", -1))
        assert later() == {"count": MAX_LATER, "more": True, "words": "more than 100 worlds descend from it"}
