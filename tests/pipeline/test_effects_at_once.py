"""Executions at the same time: whoever asked for one takes it as far as it goes, beside the others."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.pipeline.works import Outside, a_yard
from tests.support.patience import PATIENCE_S

CALLERS = 6


@pytest.mark.requirement("HC-journal")
def test_callers_at_once_each_make_the_effects_of_their_own_execution(log_url: str) -> None:
    together = threading.Barrier(CALLERS)

    def meet(_params: object, _call: object) -> None:
        together.wait(PATIENCE_S)  # breaks where the effects of several executions wait for one thread

    outside = Outside(*[meet] * (3 * CALLERS))
    with a_yard(log_url, outside, idempotent=True) as world, ThreadPoolExecutor(CALLERS) as pool:

        def act(number: int) -> str:
            wanted = {"what": ["a", "b", "c"], "into": "done" if number % 2 else "other"}
            return world.act("ann", "do", wanted, scope=[], execution_key=f"{number}").status

        assert set(pool.map(act, range(CALLERS))) <= {"completed", "failed"}
