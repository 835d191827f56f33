"""Rules of the second version for manifests: stars in opaque names, and new names of RENAMES; the first is kept."""

from __future__ import annotations

import pytest

from tests.klis.lease_game import CHANNEL
from tests.klis.test_desk import Office
from tests.klis.test_manifest import SETTINGS, document, read, refusal
from world.klis.ledger import Ledger
from world.klis.manifest import read_manifest
from world.klis.resources.resource_reading import read_resource
from world.klis.resources.resource_types import STANDARD, ResourceType
from world.klis.settings import KlisSettings

# Stars in opaque names


@pytest.mark.requirement("KM-6.3", "KM-7.2")
@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("DB:*", "GLOBAL_SCOPE"),
        ("SYMBOL:*", "GLOBAL_SCOPE"),
        ("SYMBOL:User.*", "AMBIGUOUS_RESOURCE"),
        ("DATABASE_TABLE:user*", "AMBIGUOUS_RESOURCE"),
        ("ENV:PRODUCTION/*", "AMBIGUOUS_RESOURCE"),
        ("COMMAND:rm -r *", "AMBIGUOUS_RESOURCE"),
    ],
)
def test_a_star_of_a_type_that_does_not_say_what_it_covers_is_refused(name: str, code: str) -> None:
    for predicate in ("MUTATES", "DEPENDS_ON"):
        refused = refusal(document(f"{predicate} SYMBOL:a", {"predicate": predicate, "resource": name}))
        assert (refused.code, refused.details["path"]) == (code, "$.scope[1].resource")
    anyhow = KlisSettings(min_subtree_depth=0)
    assert refusal(document({"predicate": "MUTATES", "resource": name}), settings=anyhow).code == code


def test_a_star_that_was_recorded_before_it_was_refused_is_still_one_name() -> None:
    before = KlisSettings.recorded({})
    for name in ("DB:*", "SYMBOL:User.*"):
        manifest = read(f"MUTATES {name}", settings=before)
        assert manifest.effective() == {name: "MUTATES"}
        assert not manifest.triples[0].resource.overlaps(read_resource(name.replace("*", "x")))


@pytest.mark.requirement("KP-6", "KP-wild", "KM-7.2")
def test_a_star_of_a_type_with_a_separator_covers_what_is_below() -> None:
    types = STANDARD.with_types(ResourceType("TOPIC", "opaque", separator="."))
    manifest = read_manifest(document("MUTATES TOPIC:orders.*"), settings=SETTINGS, types=types)
    (wide,) = (one.resource for one in manifest.triples)
    covered = {name: wide.overlaps(read_resource(f"TOPIC:{name}", types=types)) for name in TOPICS}
    assert covered == TOPICS
    whole = refusal(document("MUTATES TOPIC:*"), types=types)
    assert whole.code == "GLOBAL_SCOPE"
    allowed = read_manifest(document("MUTATES TOPIC:*"), settings=KlisSettings(min_subtree_depth=0), types=types)
    assert allowed.triples[0].resource.covers(wide)
    for name in ("TOPIC:or*", "TOPIC:*.eu", "TOPIC:.*"):
        assert refusal(document({"predicate": "MUTATES", "resource": name}), types=types).code == "AMBIGUOUS_RESOURCE"


TOPICS = {"orders": True, "orders.eu": True, "orders.eu.*": True, "ordersx": False, "orders-eu": False, "bills": False}


# New names of RENAMES


@pytest.mark.requirement("KP-1")
@pytest.mark.parametrize(
    "others",
    [[], ["MUTATES FILE:/b"], ["PROVIDES FILE:/a"], ["PROVIDES SYMBOL:b"], ["PROVIDES FILE:/a/b"]],
)
def test_a_rename_without_a_new_name_is_refused(others: list[str]) -> None:
    refused = refusal(document(*others, "RENAMES FILE:/a"))
    assert refused.code == "MALFORMED_SCHEMA"
    assert refused.details["path"] == f"$.scope[{len(others)}].to"
    assert "PROVIDES" in refused.message


@pytest.mark.requirement("KP-1")
def test_a_rename_that_was_recorded_without_a_new_name_is_still_read() -> None:
    before = KlisSettings.recorded({})
    assert read("RENAMES FILE:/a", settings=before).effective() == {"FILE:/a": "RENAMES"}
    assert read_manifest(document("RENAMES FILE:/a"), settings=SETTINGS, on_the_way=True).triples


@pytest.mark.requirement("KP-wild", "KP-3a")
@pytest.mark.parametrize(
    ("held", "asked", "status"),
    [
        ("TOPIC:orders.*", "TOPIC:orders.eu", "Die"),
        ("TOPIC:orders.eu", "TOPIC:orders.*", "Die"),
        ("TOPIC:*", "TOPIC:bills", "Die"),
        ("TOPIC:orders.*", "TOPIC:ordersx", "Granted"),
    ],
)
def test_a_lease_on_a_star_of_a_hierarchy_excludes_what_it_covers(held: str, asked: str, status: str) -> None:
    office = Office()
    types = STANDARD.with_types(ResourceType("TOPIC", "opaque", separator="."))
    office.desk.configure(KlisSettings(min_subtree_depth=0), 1_000, by="test", types=types)
    given = []
    for agent, name in (("ann", held), ("bob", asked)):
        told = document(f"MUTATES {name}", agent_id=agent)
        manifest = read_manifest(told, settings=office.desk.settings, types=types)
        given.append(office.desk.request(manifest, 1_000, channel=CHANNEL).status)
    assert given == ["Granted", status]
    again = Ledger()
    for event in office.events:
        again.fold(event)
    assert again == office.ledger
