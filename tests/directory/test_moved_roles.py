"""Moves between PostgreSQL servers whose roles have least rights: the realm's writers can go on at the new place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.pipeline.shop import house, open_shop, shop
from world.errors import RefusedError
from worldprotocol import Realm
from worldprotocol.directory.directory import RealmDirectory

pytestmark = pytest.mark.slow

ROLES = Path(__file__).resolve().parents[2] / "docs" / "deploy" / "postgresql-roles.sql"


def grant(place: str) -> None:
    """Run the file of the roles."""
    with psycopg.connect(place) as connection:
        connection.execute(ROLES.read_text(encoding="utf-8").encode())


def of(place: str, role: str) -> str:
    assert "//postgres@" in place
    return place.replace("//postgres@", f"//{role}@")


@pytest.fixture
def shop_place(places: tuple[str, str], directory: RealmDirectory) -> Callable[[], None]:
    """List a shop whose servers use the role ``world_engine``; return a call that writes where it is."""
    grant(places[0])
    with open_shop(of(places[0], "world_owner")):
        pass
    grant(places[0])
    directory.add("shop", of(places[0], "world_engine"))

    def write() -> None:
        place = directory.entry("shop").place.replace("world_owner", "world_engine")
        with Realm.open(place, domain=shop, policies=[house]) as realm:
            assert realm.act("ann", "sell", {"item": "tea"}).status == "completed"

    return write


@pytest.mark.parametrize("is_prepared", [True, False])
def test_a_move_to_tables_that_the_writers_cannot_write_is_refused_before_the_old_place_is_closed(
    places: tuple[str, str], directory: RealmDirectory, shop_place: Callable[[], None], *, is_prepared: bool
) -> None:
    shop_place()
    target = places[1]
    if is_prepared:
        grant(target)  # the tables do not exist yet
        target = of(target, "world_owner")
    with pytest.raises(RefusedError) as caught:
        directory.move("shop", target, by="ann")
    assert caught.value.code == "ROLE_WITHOUT_RIGHTS"
    assert list(caught.value.details["missing"]) == ["world_engine"]
    assert "postgresql-roles.sql" in caught.value.message
    entry = directory.entry("shop")
    assert (entry.status, entry.work, entry.place) == ("open", None, of(f"{places[0]}#main", "world_engine"))
    shop_place()
    if is_prepared:
        grant(places[1])
        directory.move("shop", target, by="ann")
        shop_place()


def test_a_role_that_only_the_old_place_knows_is_looked_for_at_the_new_one(
    places: tuple[str, str], directory: RealmDirectory, shop_place: Callable[[], None]
) -> None:
    with psycopg.connect(places[0]) as connection:
        connection.execute("DROP ROLE IF EXISTS till")
        connection.execute("CREATE ROLE till LOGIN")
        connection.execute("GRANT INSERT ON world.wp_event TO till")
    grant(places[1])
    with open_shop(of(f"{places[1]}#other", "world_owner")):
        pass
    grant(places[1])
    with pytest.raises(RefusedError) as caught:
        directory.move("shop", of(places[1], "world_owner"), by="ann")
    assert caught.value.details["missing"] == {"till": ["the role does not exist"]}
    with psycopg.connect(places[0]) as connection:
        connection.execute("DROP OWNED BY till")
        connection.execute("DROP ROLE till")
    shop_place()
