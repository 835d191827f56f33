"""Where triples stand: conflicts are found as a search through all of them finds them, and nothing is left behind."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.klis.simple_ledger import exclude
from world.klis.conflict_index import ConflictIndex, Holders
from world.klis.manifest import Triple, read_triple
from world.klis.session import Session

SESSIONS = [Session(f"agent-{number}", "s", (number % 7, f"agent-{number}")) for number in range(40)]
PREDICATES = ("PROVIDES", "CONSUMES", "MUTATES", "DELETES", "DEPENDS_ON", "RENAMES")
RESOURCES = (
    "FILE:/",
    "FILE:/*",
    "FILE:/a",
    "FILE:/a/*",
    "FILE:/a/b",
    "FILE:/a/b/*",
    "FILE:/a/b/a",
    "FILE:/b",
    "FILE:/b/*",
)

told = st.tuples(st.sampled_from(PREDICATES), st.sampled_from(RESOURCES))
stands = st.lists(st.tuples(st.integers(0, 5), told), max_size=30)


def triple(told: tuple[str, str]) -> Triple:
    return read_triple(told[0], told[1])


def standing(entries: list[tuple[int, tuple[str, str]]]) -> ConflictIndex:
    found = ConflictIndex()
    for who, what in entries:
        found.add(SESSIONS[who], triple(what))
    return found


@pytest.mark.requirement("KP-wild", "KP-2a")
@given(stands, told)
def test_what_opposes_a_triple_is_what_a_search_through_all_finds(
    entries: list[tuple[int, tuple[str, str]]], asked: tuple[str, str]
) -> None:
    found = {session for holders in standing(entries).opposing(triple(asked)) for session in holders.counts}
    assert found == {SESSIONS[who] for who, what in entries if exclude(what, asked)}


@given(stands, st.randoms(use_true_random=False))
def test_nothing_is_left_when_everything_is_taken_back(
    entries: list[tuple[int, tuple[str, str]]], random: object
) -> None:
    found = standing(entries)
    order = list(entries)
    random.shuffle(order)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    for place, (who, what) in enumerate(order):
        found.remove(SESSIONS[who], triple(what))
        left = order[place + 1 :]
        for asked in (("MUTATES", "FILE:/*"), ("CONSUMES", "FILE:/a/b")):
            opposing = {session for holders in found.opposing(triple(asked)) for session in holders.counts}
            assert opposing == {SESSIONS[who] for who, what in left if exclude(what, asked)}
    assert not found._places


@pytest.mark.requirement("KP-wild")
@given(st.lists(st.tuples(st.booleans(), st.integers(0, len(SESSIONS) - 1)), max_size=200), st.integers(0, 39))
def test_the_oldest_holder_but_oneself_is_the_least_of_the_others(churn: list[tuple[bool, int]], own: int) -> None:
    holders = Holders()
    there: list[int] = []
    for who in range(20):  # more than are looked through one by one
        holders.add(SESSIONS[who])
        there.append(who)
    for comes, who in churn:
        if comes:
            holders.add(SESSIONS[who])
            there.append(who)
        elif who in there:
            holders.remove(SESSIONS[who])
            there.remove(who)
        others = [SESSIONS[one] for one in there if one != own]
        expected = min(others, key=lambda session: session.order, default=None)
        assert holders.oldest_but(SESSIONS[own]) is expected
        in_order = sorted(set(others), key=lambda session: session.order)
        assert holders.oldest(5, SESSIONS[own]) == in_order[:5]
        assert holders.oldest(100, None)[:1] == [holders.oldest_but(None)][: len(there)]
    assert holders.oldest_but(None) is min(
        (SESSIONS[one] for one in there), key=lambda session: session.order, default=None
    )


def test_a_session_that_ends_and_begins_again_among_many_is_found_again() -> None:
    holders = Holders()
    crowd = [Session("crowd", f"s{number}", (5, "crowd")) for number in range(40)]
    first = Session("old", "s", (1, "old"))
    for session in (*crowd, first):
        holders.add(session)
    assert holders.oldest_but(None) is first
    holders.remove(first)
    again = Session("old", "s", (1, "old"))
    holders.add(again)
    assert holders.oldest_but(crowd[0]) is again
    holders.remove(again)
    assert holders.oldest_but(crowd[0]) is crowd[1]
