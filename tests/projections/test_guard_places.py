"""The guard says where: by the file's name for what was loaded from a bare file."""

from __future__ import annotations

from pathlib import Path

import pytest

from projections import ProjectionRequest, find_projections
from projections.purity.guard import Guard
from world.errors import RefusedError
from world.model.actor import ActorRef
from world.model.immutable_json import FrozenDict
from world.model.snapshot import SnapshotView
from world.model.source import SourceEvent

FILE = """
import random

from projections import projection


def chance():
    return random.random()


@projection("gambler")
def gambler(req):
    return None if chance() > 2 else {"kind": "none", "reason": "lost"}


@projection("thief", sources=["ui"])
def thief(req):
    req.snapshot.data["mine"] = True
"""


@pytest.mark.requirement("INT-9.2")
@pytest.mark.parametrize(
    ("attribute", "kind", "where"),
    [
        ("gambler", "randomness", "luck.py:8"),
        ("thief", "mutation", "luck.py:18"),
    ],
)
def test_an_impure_projection_of_a_bare_file_is_told_by_file_and_line(
    tmp_path: Path, attribute: str, kind: str, where: str
) -> None:
    (tmp_path / "luck.py").write_text(FILE)
    registry = find_projections([f"luck.py:{attribute}"], base=tmp_path, entry_points=False, invocation_mode=Guard())
    actor = ActorRef(actor_id="ann", kind="human")
    asked = ProjectionRequest(
        "schema", SnapshotView(FrozenDict(), FrozenDict()), actor, SourceEvent(kind="ui", event_id="e1")
    )
    with pytest.raises(RefusedError) as refused:
        registry.route(asked)
    assert refused.value.code == "PROJECTION_IMPURE"
    assert refused.value.details["kind"] == kind
    assert refused.value.details["where"] == where
    assert where in refused.value.message
    assert "_worldprotocol_" not in refused.value.message
