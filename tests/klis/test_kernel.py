"""The kernel: a pure function of ledger, request and time (KLIS-5)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.klis.lease_game import SETTINGS, fingerprint, read_wanted, wanted_triples
from world.events.lease_events import AgentRegistered, KlisConfigured, VerdictGiven
from world.events.resource_values import GrantedLease
from world.klis.conflict import clash
from world.klis.kernel import Verdict, arbitrate, judge
from world.klis.ledger import Ledger
from world.klis.manifest import read_triple

AGES = {"ann": 1, "bob": 2, "cleo": 3, "dan": 4}


def ledger_of(held: list[tuple[str, tuple[str, str]]], *, ttl: int = 1_000) -> Ledger:
    """Return a ledger in which each of these leases is in force, whether or not they go together."""
    ledger = Ledger()
    ledger.fold(KlisConfigured(at=0, settings=SETTINGS.to_wire(), by="test"))
    for agent, age in AGES.items():
        ledger.fold(AgentRegistered(at=0, agent_id=agent, priority=age, by="test"))
    for token, (agent, (predicate, resource)) in enumerate(held, 1):
        lease = GrantedLease(
            lease_id=f"{agent} {predicate} {resource}", token=token, predicate=predicate, resource=resource
        )
        ledger.fold(
            VerdictGiven(
                at=0,
                verdict_id=f"v{token}",
                request_id=f"r{token}",
                agent_id=agent,
                session_id="s",
                status="Granted",
                cause="request",
                ttl_ms=ttl,
                leases=[lease],
            )
        )
    return ledger


def ask(ledger: Ledger, agent: str, *wanted: tuple[str, str], now: int = 1, session: str = "s") -> Verdict:
    triples = read_wanted((agent, session), wanted).triples
    return arbitrate(ledger, ledger.session(agent, session), triples, now)


@pytest.mark.requirement("KP-5a")
def test_what_is_free_is_granted() -> None:
    assert ask(ledger_of([]), "dan", ("MUTATES", "FILE:/a")) == Verdict("Granted")


@pytest.mark.requirement("KP-3a", "KP-5a", "KM-2.1")
def test_one_intent_that_dies_makes_the_manifest_die() -> None:
    ledger = ledger_of([("ann", ("MUTATES", "FILE:/a")), ("dan", ("MUTATES", "FILE:/b"))])
    assert ask(ledger, "bob", ("MUTATES", "FILE:/b")).status == "Wait"
    assert ask(ledger, "bob", ("MUTATES", "FILE:/b"), ("MUTATES", "FILE:/a/b"), ("MUTATES", "FILE:/a")).status == "Die"


@pytest.mark.requirement("KP-3a")
def test_with_several_holders_in_the_way_only_who_is_older_than_all_waits() -> None:
    readers = ledger_of([("bob", ("CONSUMES", "FILE:/a")), ("dan", ("CONSUMES", "FILE:/a"))])
    assert ask(readers, "cleo", ("MUTATES", "FILE:/a")).status == "Die"
    assert ask(readers, "ann", ("MUTATES", "FILE:/a")).status == "Wait"


@pytest.mark.requirement("KP-5b")
def test_a_verdict_names_what_is_in_the_way_of_which_intent() -> None:
    ledger = ledger_of([("ann", ("MUTATES", "FILE:/a/b")), ("bob", ("CONSUMES", "FILE:/b"))])
    verdict = ask(ledger, "dan", ("PROVIDES", "FILE:/c"), ("CONSUMES", "FILE:/a/*"), ("MUTATES", "FILE:/b"))
    assert [conflict.named().to_wire() for conflict in verdict.conflicts] == [
        {
            "intent": 1,
            "holder": "ann",
            "session": "s",
            "predicate": "MUTATES",
            "resource": "FILE:/a/b",
            "leaseId": "ann MUTATES FILE:/a/b",
        },
        {
            "intent": 2,
            "holder": "bob",
            "session": "s",
            "predicate": "CONSUMES",
            "resource": "FILE:/b",
            "leaseId": "bob CONSUMES FILE:/b",
        },
    ]
    assert (verdict.retry_after_ms, verdict.more_conflicts) == (1_000, False)


@pytest.mark.requirement("KP-7")
def test_a_session_is_never_in_its_own_way_but_another_of_its_agent_is() -> None:
    ledger = ledger_of([("ann", ("MUTATES", "FILE:/a"))])
    assert ask(ledger, "ann", ("MUTATES", "FILE:/a")).status == "Granted"
    assert ask(ledger, "ann", ("MUTATES", "FILE:/a"), session="other").status == "Die"


@pytest.mark.requirement("KP-4c")
def test_a_lease_whose_time_is_over_is_in_nobodys_way_though_it_is_still_in_the_ledger() -> None:
    ledger = ledger_of([("ann", ("MUTATES", "FILE:/a"))], ttl=1_000)
    assert ask(ledger, "dan", ("MUTATES", "FILE:/a"), now=1_000).status == "Die"
    assert ask(ledger, "dan", ("MUTATES", "FILE:/a"), now=1_001).status == "Granted"
    assert ask(ledger, "dan", ("MUTATES", "FILE:/a"), now=1_000).status == "Die"
    assert len(ledger.leases) == 1


def test_a_verdict_spells_out_so_many_conflicts_and_says_that_there_are_more() -> None:
    held = [("bob", ("MUTATES", f"FILE:/a/{number:03}")) for number in range(40)]
    ledger = ledger_of(held)
    ledger.fold(KlisConfigured(at=0, settings={"max_named_conflicts": 3}, by="test"))
    verdict = ask(ledger, "dan", ("MUTATES", "FILE:/a/*"))
    assert [conflict.resource for conflict in verdict.conflicts] == ["FILE:/a/000", "FILE:/a/001", "FILE:/a/002"]
    assert verdict.more_conflicts
    exactly = ask(ledger_of(held[:3]), "dan", ("MUTATES", "FILE:/a/*"))
    assert (len(exactly.conflicts), exactly.more_conflicts) == (3, False)


held_by_some = st.lists(
    st.tuples(
        st.sampled_from(("ann", "bob", "cleo")),
        st.tuples(
            st.sampled_from(("MUTATES", "CONSUMES")),
            st.sampled_from(("FILE:/a", "FILE:/a/b", "FILE:/b/*", "FILE:/b/a", "FILE:/b")),
        ),
    ),
    unique=True,
    max_size=8,
)


@pytest.mark.requirement("KP-5a", "CARD-replay")
@given(held_by_some, st.randoms(use_true_random=False), st.sampled_from(sorted(AGES)), wanted_triples())
def test_the_order_in_which_leases_were_granted_makes_no_difference(
    held: Any, random: Any, agent: str, wanted: Any
) -> None:
    other = list(held)
    random.shuffle(other)
    assert ask(ledger_of(held), agent, *wanted) == ask(ledger_of(other), agent, *wanted)


@pytest.mark.requirement("KP-5a")
@given(held_by_some, st.sampled_from(sorted(AGES)), wanted_triples(), st.integers(0, 2_000))
def test_the_kernel_changes_nothing_and_its_short_form_agrees(held: Any, agent: str, wanted: Any, now: int) -> None:
    ledger = ledger_of(held)
    before = fingerprint(ledger.copy())
    first, second = ask(ledger, agent, *wanted, now=now), ask(ledger, agent, *wanted, now=now)
    assert first == second
    assert fingerprint(ledger) == before
    if now <= 1_000:
        triples = read_wanted((agent, "s"), wanted).triples
        assert judge(ledger, ledger.session(agent, "s"), triples) == first.status


@pytest.mark.requirement("KP-2b", "KP-wild")
@given(wanted_triples(), wanted_triples())
def test_two_triples_clash_whichever_is_held(one: Any, other: Any) -> None:
    for left, right in zip(one, other, strict=False):
        first = read_triple(left[0], left[1])
        second = read_triple(right[0], right[1])
        assert clash(first, second) is clash(second, first)
