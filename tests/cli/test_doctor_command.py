"""``worldctl doctor`` finds what is wrong, says what to do, and builds the index anew."""

from __future__ import annotations

import hashlib
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.counter import counter, house
from tests.cli.realm import COUNTER, FOUND, CliRealm, founded, sale
from tests.pipeline.clock_child import Off
from world.clock import ManualClock, SystemClock
from world.klis.settings import AUTHENTICATION, KlisSettings
from world.limits import Limits
from world.log.backends import sqlite
from world.pipeline.recorded_time import as_moment
from worldprotocol import Realm
from worldprotocol.cli.support.health import checks as health_checks

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    realm = founded(tmp_path_factory.mktemp("realm"))
    realm("submit", "--intents", "-", given=sale("ann") * 3 + sale("kid"), code=4)  # ann has to answer kid's
    return realm.folder


@pytest.fixture
def realm(template, tmp_path) -> CliRealm:
    return CliRealm(Path(shutil.copytree(template, tmp_path / "realm")))


def change(realm: CliRealm, *statements: str) -> None:
    with closing(sqlite3.connect(realm.folder / "world.db")) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()


def checks(said: Any) -> dict[str, Any]:
    return {one["check"]: one for one in said.json["checks"]}


def test_all_is_well_and_no_byte_changes(realm):
    before = hashlib.sha256((realm.folder / "world.db").read_bytes()).hexdigest()
    told = checks(realm("doctor", "--json"))
    assert set(told) == {
        "python",
        "sqlite",
        "log",
        "disk",
        "modes",
        "file",
        "wal",
        "tables",
        "head",
        "index",
        "realm",
        "unsettled",
        "writable",
        "domain",
        "policy",
        "confinement",
        "tracer",
        "workspace",
        "names",
        "backups",
        "rollbacks",
        "runs",
        "authentication",
        "clock",
    }
    assert all(one["ok"] and "advice" not in one for one in told.values())
    assert "1 wait for people" in told["unsettled"]["found"]
    assert hashlib.sha256((realm.folder / "world.db").read_bytes()).hexdigest() == before


def test_a_jump_of_recorded_time_is_named_with_positions_times_and_how_far(realm):
    clock = ManualClock(SystemClock().now_ms())
    with Realm.open(realm.folder / "world.db", domain=counter, policies=[house], clock=clock) as world:
        before, size = clock.now_ms(), world.log.head().size
        world.leases.desk.register_agent("early", by="operator")
        clock.advance(10 * 365 * 86_400_000)
        world.leases.desk.register_agent("late", by="operator")
    [jumped] = [one for one in realm("doctor", "--json", code=1).json["checks"] if one["check"] == "clock"]
    assert not jumped["ok"]
    assert (
        f"recorded time jumps at event {size + 2} from {as_moment(before)} (event {size + 1}) to "
        f"{as_moment(before + 315_360_000_000)}, by 315360000000 ms, which is still to come" in jumped["found"]
    )
    assert "worldctl clock confirm" in jumped["advice"]
    done = realm("clock", "confirm", "--reason", "that clock was ahead", "--json").json
    assert done["confirmed"]
    assert done["leaseTime"] == before + 315_360_000_000
    [known] = [one for one in realm("doctor", "--json").json["checks"] if one["check"] == "clock"]
    assert known["ok"]
    assert f"recorded time jumps at event {size + 2}" in known["found"]
    assert known["found"].endswith(f" is at {as_moment(done['at'])}")
    assert not realm("clock", "confirm", "--reason", "again", "--json").json["confirmed"]


@pytest.mark.parametrize(("off_ms", "kind"), [(86_400_000, "behind"), (-86_400_000, "ahead")])
def test_a_clock_that_is_off_is_named(realm, off_ms, kind):
    clock = Off(off_ms)
    with Realm.open(realm.folder / "world.db", domain=counter, policies=[house], clock=clock) as world:
        if off_ms > 0:
            world.confirm_clock(reason="the other clocks were slow")
        world.register("late", "agent")
        if off_ms < 0:
            world.confirm_clock(reason="the other clocks were fast")
    [found] = [one for one in realm("doctor", "--json", code=1).json["checks"] if one["check"] == "clock"]
    assert not found["ok"]
    assert re.search(rf"this machine's clock is \d+ ms {kind}", found["found"])
    assert "set this machine's clock right" in found["advice"]


def test_a_lost_index_is_built_anew(realm):
    worlds = realm("branch", "list", "--json").json
    change(realm, "DELETE FROM wp_branch", "DELETE FROM wp_world", "DELETE FROM wp_landmark", "DELETE FROM wp_proposal")
    assert "INDEX_DAMAGED" in realm("doctor", code=3).out
    said = realm("doctor", "--rebuild", "--json")
    assert "built anew" in said.err
    assert realm("branch", "list", "--json").json == worlds
    assert len(realm("inbox", "--json").json) == 1


def test_an_index_of_another_version_is_reported(realm):
    change(realm, "UPDATE wp_view SET version = 0")
    index = checks(realm("doctor", "--json", code=1))["index"]
    assert index["found"].startswith("version 0")
    assert "--rebuild" in index["advice"]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE wp_head SET root = zeroblob(32) WHERE id = (SELECT max(id) FROM wp_head)",
        "UPDATE wp_event SET state = '{}' WHERE id = (SELECT max(id) FROM wp_event)",
        "UPDATE wp_event SET topic = 'no.such' WHERE id = (SELECT max(id) FROM wp_event)",
    ],
)
def test_a_damaged_log_has_exit_code_3(realm, damage):
    change(realm, damage)
    told = realm("doctor", "--json", code=3).json
    assert not told["ok"]


def test_changed_code_and_a_missing_policy_are_reported(realm):
    config = realm.folder / "world.toml"
    source = Path(__file__).with_name("counter.py").read_text()
    changed = source.replace('receipt = yield effect("bank.charge"', 'receipt = yield effect("bank.charged"')
    (realm.folder / "changed.py").write_text(changed.replace('"a small sale"', '"a little sale"'))
    origin = str(Path(__file__).resolve().with_name("counter.py"))
    config.write_text(config.read_text().replace(origin, "changed.py"))
    told = checks(realm("doctor", "--json", code=1))
    assert "action:charge" in told["domain"]["found"]
    assert "changed" in told["policy"]["found"]
    config.write_text(config.read_text().replace('["changed.py:house"]', "[]"))
    assert "world.toml" in checks(realm("doctor", "--json", code=1))["policy"]["advice"]


def test_a_folder_without_a_realm_is_told_what_is_missing(tmp_path):
    said = CliRealm(tmp_path)("doctor", code=1)
    assert "LOG_NOT_FOUND" in said.out


def test_an_index_is_built_anew_where_the_domain_is_gone(realm):
    worlds = realm("worlds", "--json").out
    change(realm, "DROP TABLE wp_proposal")
    config = realm.folder / "world.toml"
    told = config.read_text()
    config.write_text(told.replace(str(Path(__file__).resolve().with_name("counter.py")), "gone.py"))
    said = realm("doctor", "--rebuild", "--json", code=1)
    assert "built anew" in said.err
    found = checks(said)
    assert (found["index"]["ok"], found["code"]["ok"]) == (True, False)
    assert realm("worlds", "--json").out == worlds
    config.write_text(told)
    change(realm, "DROP TABLE wp_proposal")
    assert "built anew" in realm("doctor", "--rebuild").err
    realm("verify")


@pytest.mark.requirement("KM-7.1")
def test_a_realm_that_takes_every_callers_word_is_warned_of(tmp_path):
    realm = CliRealm(tmp_path)
    realm(*FOUND, "--authentication", "open")
    assert '[klis]\nauthentication = "open"' in (tmp_path / "world.toml").read_text()
    warned = checks(realm("doctor", "--json", code=1))["authentication"]
    assert warned["found"].startswith("open: any caller is granted leases")
    assert "worldctl klis configure" in warned["advice"]
    text = (tmp_path / "world.toml").read_text()
    (tmp_path / "world.toml").write_text(text.replace('"open"', '"signed"'))
    assert realm("klis", "configure", "--json").json["settings"]["authentication"] == "signed"
    told = checks(realm("doctor", "--json"))["authentication"]
    assert (told["ok"], told["found"]) == (True, "signed, 0 agents with keys")
    assert "UNAUTHENTICATED" in realm("lease", "acquire", "FILE:/a", "--agent", "ann", code=1).err


@pytest.mark.requirement("KM-7.1")
def test_a_log_that_does_not_record_how_manifests_are_authenticated_is_warned_of(tmp_path):
    limits = Limits(klis=KlisSettings.recorded({}))
    with Realm.create(tmp_path / "world.db", domain=counter, limits=limits):
        pass
    (tmp_path / "world.toml").write_text(f'domain = "{COUNTER}:counter"\n')
    warned = checks(CliRealm(tmp_path)("doctor", "--json", code=1))["authentication"]
    assert warned["found"].startswith("not recorded, so open: ")


def test_the_choices_of_init_are_those_of_the_settings():
    from worldprotocol.cli.commands.admin import init

    assert init.AUTHENTICATION == AUTHENTICATION


@pytest.mark.parametrize(("is_faulty", "words"), [(True, "has the WAL-reset fault"), (False, "has not the")])
def test_a_sqlite_that_can_lose_pages_is_named(
    realm: CliRealm, monkeypatch: pytest.MonkeyPatch, is_faulty: bool, words: str
) -> None:
    monkeypatch.setattr(sqlite, "has_wal_reset_fault", lambda: is_faulty)
    with Realm.open_read_only(realm.folder / "world.db") as world:
        found = health_checks._wal(world)
    assert found.ok
    assert words in found.facts
    assert ("3.51.3" in found.facts) is is_faulty
