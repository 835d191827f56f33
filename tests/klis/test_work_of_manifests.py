"""What a manifest of many claims costs under the log's lock, counted in calls of functions and never in time."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest

from tests.klis.lease_game import CHANNEL
from tests.klis.test_desk import Office
from world.engine.lease_commands import LeaseCommands
from world.errors import RefusedError
from world.klis.conflict import clash
from world.klis.lease_manager import LeaseManager
from world.klis.predicate import Predicate
from world.klis.settings import KlisSettings

MANY = 300


def calls_in(module: str, act: Callable[[], object]) -> int:
    """Return how many functions of a module were called in an act."""
    count = 0

    def note(frame: Any, event: str, _: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.endswith(module)

    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
    return count


def test_subtrees_are_not_compared_with_every_deletion_that_the_session_holds() -> None:
    office = Office(KlisSettings())
    office.lease("ann", *(f"DELETES FILE:/held/{at}" for at in range(MANY)))
    wanted = office.manifest("ann", *(f"CONSUMES FILE:/z/{at}/*" for at in range(MANY)))
    assert calls_in("klis/conflict.py", lambda: office.desk.request(wanted, 1_000, channel=CHANNEL)) < MANY


def test_subtrees_do_not_visit_every_place_that_the_session_holds() -> None:
    class Watched(dict[str, Any]):
        visits = 0

        def __iter__(self) -> Any:
            Watched.visits += 1
            return super().__iter__()

    office = Office(KlisSettings())
    office.lease("ann", *(f"CONSUMES FILE:/held/{at}" for at in range(MANY)))
    session = office.ledger.session("ann", "s")
    session.places = Watched(session.places)
    office.lease("ann", *(f"CONSUMES FILE:/z/{at}/*" for at in range(MANY)))
    assert Watched.visits < 10


@pytest.mark.requirement("KP-1")
def test_renames_are_not_compared_with_every_name_that_is_provided() -> None:
    office = Office(KlisSettings())
    provided = [f"PROVIDES URL:http://host/{at}" for at in range(MANY)] + ["PROVIDES FILE:/q/x"]
    renamed = [f"RENAMES FILE:/r/{at}" for at in range(MANY)]
    assert calls_in("klis/scope.py", lambda: office.manifest("ann", *provided, *renamed)) < 20 * MANY


@pytest.mark.requirement("KM-3.3")
def test_a_session_is_refused_what_overlaps_with_its_deletions_as_if_each_was_compared() -> None:
    chosen = random.Random(7)
    resources = ["FILE:/a", "FILE:/a/*", "FILE:/a/b", "FILE:/a/b/*", "FILE:/c", "API_ENDPOINT:/a", "API_ENDPOINT:/a/*"]
    answers = {"TERMINAL": 0, "Granted": 0}
    for _ in range(400):
        office = Office(KlisSettings())
        held: dict[str, str] = {}
        for _ in range(3):
            one = f"{chosen.choice(['DELETES', 'CONSUMES'])} {chosen.choice(resources)}"
            with suppress(RefusedError):  # TERMINAL
                held |= {lease.lease_id: one for lease in office.ask("ann", one).leases}
        for lease in chosen.sample(sorted(held), len(held) // 2):
            office.release(lease, "ann")
        wanted = office.manifest("ann", f"{chosen.choice(['CONSUMES', 'MUTATES'])} {chosen.choice(resources)}")
        leases = [lease.triple for lease in office.ledger.leases.values()]
        expected = any(
            clash(lease, triple)
            for lease in leases
            for triple in wanted.triples
            if lease.predicate is Predicate.DELETES
        )
        copied = _answer(_copied(office), wanted)
        answer = _answer(office, wanted)
        assert (answer == "TERMINAL") == expected
        assert copied == answer
        answers[answer] += 1
    assert min(answers.values()) > 50


def _answer(office: Office, wanted: Any) -> str:
    try:
        return office.desk.request(wanted, 1_000, channel=CHANNEL).status
    except RefusedError as refused:
        return refused.code


def _copied(office: Office) -> Office:
    other = Office(KlisSettings())
    other.ids = office.ids
    other.ledger = office.ledger.copy()
    other.desk = LeaseManager(other.ledger, emit=other.emit, new_id=other.new_id)
    return other


def test_the_text_of_a_manifest_is_read_before_the_lock_is_taken() -> None:
    ran: list[object] = []
    leasing = LeaseCommands(lambda command: ran.append(command))
    with pytest.raises(RefusedError) as refused:
        leasing.request("{", by="ann")
    assert refused.value.code == "MALFORMED_SCHEMA"
    assert not ran
    document: Mapping[str, Any] = {"ver": "1.0"}
    leasing.request(document, by="ann")
    leasing.request("ver: '1.0'", by="ann", yaml=True)
    assert len(ran) == 2
