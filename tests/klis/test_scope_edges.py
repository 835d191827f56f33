"""What the claims of a manifest come to together: which are leased, which contradict, and which two are named."""

from __future__ import annotations

from typing import Any

import pytest

from tests.klis.test_desk import Office
from tests.support.tables import for_each
from world.errors import RefusedError
from world.klis.kernel import arbitrate, judge
from world.klis.manifest import read_manifest
from world.klis.settings import KlisSettings


def manifest(*scope: str, ordered: bool = False, settings: KlisSettings | None = None, **more: Any) -> Any:
    entries = []
    for one in scope:
        predicate, resource, *to = one.split()
        entries.append({"predicate": predicate, "resource": resource} | ({"to": to[0]} if to else {}))
    told = {"ver": "1.0", "session_id": "s", "agent_id": "a", "scope": entries}
    return read_manifest(told | ({"ordered": True} if ordered else {}), settings=settings or KlisSettings(), **more)


@pytest.mark.requirement("KM-6.4", "KM-3.3", "KP-wild")
@for_each(
    ("scope", "leased"),
    [
        (["MUTATES FILE:/a/*", "DELETES FILE:/a"], ["DELETES FILE:/a"]),
        (["MUTATES FILE:/a", "DELETES FILE:/a"], ["DELETES FILE:/a"]),
        (["MUTATES FILE:/a/b", "DELETES FILE:/a"], ["DELETES FILE:/a"]),
        (["PROVIDES FILE:/a/b/c", "CONSUMES FILE:/x", "DELETES FILE:/a/*"], ["CONSUMES FILE:/x", "DELETES FILE:/a/*"]),
        (["CONSUMES API_ENDPOINT:/a", "DELETES API_ENDPOINT:/a/*"], ["DELETES API_ENDPOINT:/a/*"]),
        (
            ["CONSUMES API_ENDPOINT:/a/b", "DELETES API_ENDPOINT:/a"],
            ["CONSUMES API_ENDPOINT:/a/b", "DELETES API_ENDPOINT:/a"],
        ),
        (["CONSUMES FILE:/ab", "DELETES FILE:/a"], ["CONSUMES FILE:/ab", "DELETES FILE:/a"]),
        (["DELETES FILE:/a", "DELETES FILE:/a/b"], ["DELETES FILE:/a", "DELETES FILE:/a/b"]),
        (["CONSUMES FILE:/a", "MUTATES FILE:/a"], ["MUTATES FILE:/a"]),
        (["CONSUMES FILE:/a/*", "MUTATES FILE:/a"], ["CONSUMES FILE:/a/*", "MUTATES FILE:/a"]),
        (["RENAMES FILE:/a FILE:/b", "CONSUMES FILE:/b"], ["RENAMES FILE:/a", "PROVIDES FILE:/b"]),
        (["DEPENDS_ON FILE:/a", "CONSUMES FILE:/a", "PROVIDES FILE:/a"], ["PROVIDES FILE:/a"]),
    ],
)
def test_what_is_leased_of_an_ordered_scope(scope: list[str], leased: list[str]) -> None:
    told = manifest(*scope, ordered=True)
    assert [f"{one.predicate} {one.resource.text}" for one in told.triples] == leased
    assert list(told.effective()) == [one.split()[1] for one in leased]
    assert len(told.declared) == len(scope)


@pytest.mark.requirement("KM-6.4", "KM-3.3", "KP-1")
@for_each(
    ("scope", "ordered", "places"),
    [
        (["DELETES FILE:/a", "CONSUMES FILE:/a"], False, ("0", "1")),
        (["CONSUMES FILE:/a", "DELETES FILE:/a"], False, ("0", "1")),
        (["CONSUMES FILE:/a", "DELETES FILE:/a", "CONSUMES FILE:/a"], True, ("1", "2")),
        (["DELETES FILE:/a", "CONSUMES FILE:/b", "MUTATES FILE:/a/x", "MUTATES FILE:/a/x"], True, ("0", "3")),
        (["DELETES FILE:/a", "CONSUMES FILE:/b", "MUTATES FILE:/a/x", "MUTATES FILE:/a/x"], False, ("0", "2")),
        (["DEPENDS_ON FILE:/a", "DELETES FILE:/a"], True, ("0", "1")),
        (["DEPENDS_ON FILE:/a", "DEPENDS_ON FILE:/a", "MUTATES FILE:/a", "MUTATES FILE:/a"], False, ("0", "2")),
        (["DEPENDS_ON FILE:/a", "DEPENDS_ON FILE:/a", "MUTATES FILE:/a", "MUTATES FILE:/a"], True, ("1", "3")),
        (["MUTATES FILE:/a/*", "DEPENDS_ON FILE:/a/b"], False, ("0", "1")),
        (["DEPENDS_ON FILE:/a/*", "RENAMES FILE:/a/b FILE:/c"], False, ("0", "1")),
        (["RENAMES FILE:/a FILE:/b", "RENAMES FILE:/a FILE:/c"], False, ("0.to", "1.to")),
        (["RENAMES FILE:/a FILE:/a"], False, ("0.to", "0.to")),
        (["RENAMES FILE:/a FILE:/a/b"], False, ("0.to", "0.to")),
        (["RENAMES FILE:/a SYMBOL:b"], False, ("0.to", "0.to")),
        (["RENAMES FILE:/a FILE:/b/*"], False, ("0.to", "0.to")),
    ],
)
def test_a_contradiction_is_between_these_two(scope: list[str], ordered: bool, places: tuple[str, str]) -> None:
    with pytest.raises(RefusedError) as caught:
        manifest(*scope, ordered=ordered)
    assert caught.value.code == "INTERNAL_CONTRADICTION"
    first, second = (f"$.scope[{one[0]}].{one[2:] or 'resource'}" for one in places)
    assert caught.value.details == {"other_path": first, "path": second}


@pytest.mark.requirement("KM-7.2")
@pytest.mark.parametrize(
    ("claim", "least", "wide"),
    [
        ("MUTATES FILE:/", 1, True),
        ("MUTATES FILE:/*", 1, True),
        ("CONSUMES FILE:/a/*", 1, False),
        ("CONSUMES FILE:/a/*", 2, True),
        ("CONSUMES FILE:/a/b", 3, False),
        ("DELETES FILE:/a", 2, True),
        ("DEPENDS_ON FILE:/*", 3, False),
        ("MUTATES SYMBOL:x", 3, False),
        ("CONSUMES URL:http://h/*", 1, True),
        ("CONSUMES URL:http://h/", 1, False),
        ("MUTATES FILE:/*", 0, False),
    ],
)
def test_the_width_of_a_claim_is_the_operators(claim: str, least: int, wide: bool) -> None:
    settings = KlisSettings(min_subtree_depth=least)
    if not wide:
        assert manifest(claim, settings=settings).triples
        return
    with pytest.raises(RefusedError) as caught:
        manifest(claim, settings=settings)
    assert (caught.value.code, caught.value.details["path"]) == ("GLOBAL_SCOPE", "$.scope[0].resource")
    assert caught.value.details["min_subtree_depth"] == least
    assert manifest(claim, settings=settings, wide=frozenset({"FILE", "URL"})).triples


@pytest.mark.requirement("KP-1")
def test_a_rename_needs_a_new_name_of_its_type_somewhere_else() -> None:
    for others in ([], ["PROVIDES SYMBOL:x"], ["PROVIDES FILE:/a"], ["PROVIDES FILE:/a/b"], ["MUTATES FILE:/c"]):
        with pytest.raises(RefusedError) as caught:
            manifest("RENAMES FILE:/a", *others)
        if others != ["PROVIDES FILE:/a/b"]:
            assert (caught.value.code, caught.value.details) == (
                "MALFORMED_SCHEMA",
                {"path": "$.scope[0].to", "resource": "FILE:/a"},
            )
    assert manifest("RENAMES FILE:/a", "PROVIDES FILE:/c").triples
    assert manifest("RENAMES FILE:/a FILE:/b", "RENAMES FILE:/a").triples
    assert manifest("RENAMES FILE:/a", on_the_way=True).triples
    assert manifest("RENAMES FILE:/a", settings=KlisSettings(manifest_rules=1)).triples


@pytest.mark.requirement("KP-3b", "KP-3d")
def test_a_newcomer_dies_behind_an_older_request_and_one_in_the_queue_waits() -> None:
    office = Office()
    office.lease("dan", "MUTATES FILE:/a")
    office.wait("ann", "MUTATES FILE:/a")
    ledger = office.ledger
    session, triples = ledger.session("bob", "s"), office.manifest("bob", "MUTATES FILE:/a").triples
    assert judge(ledger, session, triples) == judge(ledger, session, triples, queued=False) == "Die"
    assert judge(ledger, session, triples, queued=True) == "Wait"
    verdict = arbitrate(ledger, session, triples, 1_000)
    assert (verdict.status, verdict.more_conflicts, verdict.retry_after_ms) == ("Die", False, 1_000)
    assert [(one.holder, one.lease_id is None) for one in verdict.conflicts] == [("dan", False), ("ann", True)]
    waits = arbitrate(ledger, session, triples, 1_000, queued=True)
    assert (waits.status, waits.retry_after_ms) == ("Wait", None)
    free = arbitrate(ledger, session, office.manifest("bob", "MUTATES FILE:/b").triples, 1_000)
    assert (free.status, free.conflicts, free.more_conflicts, free.retry_after_ms) == ("Granted", (), False, None)


@pytest.mark.requirement("KM-6.4")
@pytest.mark.parametrize(
    ("scope", "clause"),
    [
        (
            ["DELETES FILE:/a", "CONSUMES FILE:/a"],
            "DELETES is terminal; leave the other out, or say `ordered: true` and put what is deleted last",
        ),
        (["DEPENDS_ON FILE:/a", "MUTATES FILE:/a"], "DEPENDS_ON promises that the resource stays as it is"),
        (["RENAMES FILE:/a FILE:/b", "DEPENDS_ON FILE:/a"], "DEPENDS_ON promises that the resource stays as it is"),
    ],
)
def test_a_contradiction_names_both_claims_and_the_reason(scope: list[str], clause: str) -> None:
    with pytest.raises(RefusedError) as caught:
        manifest(*scope)
    assert caught.value.code == "INTERNAL_CONTRADICTION"
    first, second = (one.split() for one in scope)
    assert caught.value.message == (
        f"{second[0]} {second[1]} at $.scope[1].resource contradicts {first[0]} {first[1]} at $.scope[0].resource: "
        f"{clause}."
    )
    assert caught.value.details == {"path": "$.scope[1].resource", "other_path": "$.scope[0].resource"}
