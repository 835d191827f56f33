"""Past states that a server keeps, and the callers that may wait for one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from world.errors import RefusedError
from worldprotocol.api.lookup.past_views import MAX_KEPT, MAX_WAITING, PastViews


class Folding:
    """An archive that notes what is folded."""

    def __init__(self) -> None:
        self.positions: list[int] = []

    def fold_realm(self, position: int) -> Any:
        self.positions.append(position)
        return f"state {position}"


def test_recently_used_states_are_folded_once() -> None:
    archive = Folding()
    views = PastViews(SimpleNamespace(archive=archive))  # type: ignore[arg-type]
    for position in [1, 2, 1, *range(3, MAX_KEPT + 2), 1, 2]:
        assert views.view(position) == f"state {position}"
    assert archive.positions == [*range(1, MAX_KEPT + 2), 2]


def test_one_more_caller_than_the_limit_is_refused() -> None:
    views = PastViews(SimpleNamespace(archive=Folding()))  # type: ignore[arg-type]
    for _ in range(MAX_WAITING):
        assert views._waiting.acquire(blocking=False)
    with pytest.raises(RefusedError, match="are running"):
        views.view(1)
    views._waiting.release()
    assert views.view(1) == "state 1"
