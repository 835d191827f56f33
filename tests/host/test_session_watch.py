"""The watch over one session: strict and permissive, what is remembered, and many threads at once."""

from __future__ import annotations

import threading

import pytest

from host.observation import Violation, Watch
from world.errors import ScopeViolationError
from world.klis.observation import Declaration, Seen, outside_resource
from world.klis.predicate import Predicate
from world.klis.resources.resource_reading import canonical_resource
from world.klis.triple import Triple


def seen(predicate: str, resource: str) -> Seen:
    return Seen(Predicate(predicate), canonical_resource(resource))


def watch(*told: tuple[str, str], **more: object) -> Watch:
    triples = [Triple(Predicate(predicate), canonical_resource(resource)) for predicate, resource in told]
    return Watch(Declaration("ann", "s", triples), **more)  # type: ignore[arg-type]


@pytest.mark.requirement("KO-3", "KO-3.2a")
def test_the_first_violation_ends_a_strict_session_for_good() -> None:
    told: list[Violation] = []
    eyes = watch(("CONSUMES", "FILE:/b"), on_violation=told.append)
    eyes.check([seen("CONSUMES", "FILE:/b")], depth="process")
    with pytest.raises(ScopeViolationError, match="attempted MUTATES on /b but only declared CONSUMES"):
        eyes.check([seen("MUTATES", "FILE:/b")], depth="process")
    assert eyes.is_over
    with pytest.raises(ScopeViolationError, match="ended by an earlier violation"):
        eyes.check([seen("CONSUMES", "FILE:/b")], depth="child")
    assert [one.blocked for one in told] == [True]
    assert [(one.seen.predicate, one.depth) for one in eyes.violations] == [("MUTATES", "process")]


@pytest.mark.requirement("KO-3")
def test_one_call_with_several_effects_happens_whole_or_not_at_all() -> None:
    eyes = watch(("RENAMES", "FILE:/old"), ("MUTATES", "FILE:/a"))
    with pytest.raises(ScopeViolationError, match="PROVIDES on /elsewhere"):
        eyes.check([seen("RENAMES", "FILE:/old"), seen("PROVIDES", "FILE:/elsewhere")], depth="child")
    assert eyes.observations == ()


@pytest.mark.requirement("KO-3.2b")
def test_permissive_asks_for_a_lease_on_the_way_and_does_not_proceed_into_a_conflict() -> None:
    asked: list[str] = []

    def amend(one: Seen) -> bool:
        asked.append(one.resource.text)
        return "free" in one.resource.text

    eyes = watch(("CONSUMES", "FILE:/b"), strict=False, amend=amend)
    eyes.check([seen("MUTATES", "FILE:/free")], depth="process")
    eyes.check([seen("MUTATES", "FILE:/free")], depth="process")
    assert asked == ["FILE:/free"]  # what was widened once is declared from then on
    with pytest.raises(ScopeViolationError):
        eyes.check([seen("MUTATES", "FILE:/taken")], depth="process")
    assert not eyes.is_over
    eyes.check([seen("CONSUMES", "FILE:/b")], depth="process")


@pytest.mark.requirement("KO-3.2b")
def test_nothing_outside_of_the_workspace_can_be_leased_on_the_way() -> None:
    eyes = watch(("CONSUMES", "FILE:/b"), strict=False, amend=lambda _: True)
    with pytest.raises(ScopeViolationError, match="outside of the workspace"):
        eyes.check([Seen(Predicate.MUTATES, outside_resource("/etc/x"), outside="/etc/x")], depth="process")


def test_what_a_session_made_it_may_rename_and_remove() -> None:
    eyes = watch(("MUTATES", "FILE:/src/*"))
    eyes.check([seen("PROVIDES", "FILE:/src/tmp1")], depth="child")
    eyes.check([seen("RENAMES", "FILE:/src/tmp1"), seen("MUTATES", "FILE:/src/a.py")], depth="child")
    eyes.check([seen("PROVIDES", "FILE:/src/dir")], depth="child")
    eyes.check([seen("DELETES", "FILE:/src/dir/x")], depth="child")
    with pytest.raises(ScopeViolationError):
        eyes.check([seen("DELETES", "FILE:/src/a.py")], depth="child")


@pytest.mark.requirement("KO-4")
def test_every_observation_is_told_once_and_again_at_the_end_with_its_count() -> None:
    eyes = watch(("CONSUMES", "FILE:/b"), ("DELETES", "FILE:/never"))
    for _ in range(3):
        eyes.check([seen("CONSUMES", "FILE:/b")], depth="process")
    first, none = eyes.drain()
    assert ([one.recorded().to_wire() for one in first], none) == (
        [{"predicate": "CONSUMES", "resource": "FILE:/b", "depth": "process", "count": 3}],
        [],
    )
    assert eyes.drain() == ([], [])
    eyes.check([seen("CONSUMES", "FILE:/b")], depth="process")
    assert eyes.drain() == ([], [])
    last, _ = eyes.drain(final=True)
    assert [one.count for one in last] == [4]
    assert [one.resource.text for one in eyes.unused()] == ["FILE:/never"]


@pytest.mark.requirement("KO-3", "KO-5.2")
def test_what_was_found_afterwards_is_noted_as_not_blocked() -> None:
    eyes = watch(("CONSUMES", "FILE:/b"))
    errors = eyes.note([seen("CONSUMES", "FILE:/b"), seen("DELETES", "FILE:/c")], depth="content")
    assert [error.details["resource"] for error in errors] == ["FILE:/c"]
    (found,) = eyes.violations
    assert (found.blocked, found.depth, found.recorded().message) == (False, "content", errors[0].message)
    assert eyes.is_over


def test_many_threads_are_judged_as_one_session() -> None:
    told: list[Violation] = []
    eyes = watch(("CONSUMES", "FILE:/*"), on_violation=told.append)
    wrong: list[str] = []

    def work() -> None:
        for number in range(200):
            try:
                eyes.check([seen("CONSUMES", f"FILE:/{number}")], depth="process")
                eyes.check([seen("DELETES", "FILE:/0")], depth="process")
                wrong.append("let through")
            except ScopeViolationError:
                continue

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (wrong, len(told)) == ([], 1)
