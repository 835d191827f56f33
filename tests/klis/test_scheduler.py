"""Wait-Die: who waits and who dies (KLIS-3)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from world.klis.wait_die import decide, retry_after

ranks = st.tuples(st.integers(0, 3), st.sampled_from("abc"))


@pytest.mark.requirement("KP-3a")
def test_an_older_agent_waits() -> None:
    assert decide((100, "a"), (200, "b")) == "Wait"


@pytest.mark.requirement("KP-3a")
def test_a_younger_agent_dies() -> None:
    assert decide((200, "b"), (100, "a")) == "Die"


@pytest.mark.requirement("KP-3a")
def test_of_two_agents_of_one_time_the_smaller_id_waits() -> None:
    assert decide((100, "a"), (100, "b")) == "Wait"
    assert decide((100, "b"), (100, "a")) == "Die"


@pytest.mark.requirement("KP-7")
def test_another_session_of_the_same_agent_dies() -> None:
    assert decide((100, "a"), (100, "a")) == "Die"


@pytest.mark.requirement("KP-3a", "KP-3b")
@given(ranks, ranks)
def test_two_agents_never_wait_for_each_other(one: tuple[int, str], other: tuple[int, str]) -> None:
    assert (decide(one, other), decide(other, one)) != ("Wait", "Wait")
    if one != other:
        assert {decide(one, other), decide(other, one)} == {"Wait", "Die"}


@pytest.mark.requirement("KP-3a")
def test_the_time_to_ask_again_doubles_up_to_its_end() -> None:
    times = [retry_after(dies, backoff_ms=1_000, max_backoff_ms=60_000) for dies in range(9)]
    assert times == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]
    assert retry_after(10**9, backoff_ms=1, max_backoff_ms=60_000) == 60_000
