"""Whatever happens to the bytes of a log, commands end with a named error, and verification finds what was changed."""

from __future__ import annotations

import io
import json
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from authority import Policy
from host import EffectFailure, handler
from tests.golden.garden import FOLDER, record
from tests.pipeline.workshop import a_workshop, step
from world.audit.verify import verify
from world.errors import DamagedLogError, RefusedError, ScopeViolationError
from world.events.base import Event
from world.events.codec import TOPICS, decode_event, encode_event
from world.events.realm_events import EnforcementChosen
from world.log import NewEvent, event_leaf, open_log
from world.log.merkle import tree_root
from world.log.sql.statement import LOG_SHIFT, POSITION_MASK
from world.model.canonical_json import canonical_bytes
from world.model.record import Record
from world.read_models.archive import Archive
from worldprotocol.api.realm import Realm
from worldprotocol.cli.program import run
from worldprotocol.export.jsonl import import_log

COMMANDS = [
    ["verify"], ["log"], ["worlds"], ["replay"], ["show", "HEAD"], ["inbox"], ["blame", "beds"], ["doctor"],
]  # fmt: skip
FLIPS = 60
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("damaged") / "world.db"
    record(str(place)).close()
    return place


@pytest.fixture(scope="module")
def governed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a log in which an effect was made again, a governed run violated its scope, and a policy shadowed."""
    folder = tmp_path_factory.mktemp("governed")
    (folder / "w").mkdir()
    tries: list[int] = []

    @handler("flaky", idempotent=True, retries=1, backoff_ms=1)
    def flaky(_: Any, call: Any) -> Any:
        tries.append(call.attempt)
        return EffectFailure("BUSY", "not now", retryable=True) if len(tries) == 1 else None

    with a_workshop(str(folder / "world.db"), folder / "w", effects=[flaky], policies=[Policy("silent", [])]) as world:
        assert world.act("ann", "run", {"steps": [step("flaky")]}).status == "completed"
        session = world.host.session(agent="ann", writes=["/made/**"], reads=["/x"])
        with suppress(ScopeViolationError), session:
            (folder / "w" / "made").mkdir()
            (folder / "w" / "other").touch()
        assert session.outcome == "violated"
        world.shadow("silent")
        assert world.act("ann", "run", {"steps": []}).status == "completed"
    return folder / "world.db"


@pytest.fixture
def address(original: Path, tmp_path: Path) -> str:
    return str(shutil.copyfile(original, tmp_path / "world.db"))


@pytest.fixture
def worldctl(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs a command in this process, where any other exception than ours would come through."""
    monkeypatch.chdir(tmp_path)

    def runs(address: str, *arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(["--json", "--log", address, *arguments])
        return code, *capsys.readouterr()

    return runs


def sql(address: str, *statements: str) -> None:
    with closing(sqlite3.connect(address)) as database, database:
        for statement in statements:
            database.execute(statement)


def content(address: str) -> Any:
    """Return what SQLite reads of the events, None where it cannot."""
    with closing(sqlite3.connect(f"file:{address}?mode=ro&immutable=1", uri=True)) as database:
        database.text_factory = bytes
        try:
            return database.execute("SELECT * FROM wp_event ORDER BY id").fetchall()
        except sqlite3.Error:
            return None


# Bytes


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.slow
def test_a_byte_changed_anywhere_never_crashes_a_command_and_is_found_where_it_matters(
    original: Path, tmp_path: Path, worldctl: Run, seed: int
) -> None:
    data, before, chance = original.read_bytes(), content(str(original)), random.Random(seed)
    damaged = tmp_path / "damaged.db"
    for number in range(FLIPS):
        at = chance.randrange(len(data) if number % 4 else 100)
        changed = bytearray(data)
        changed[at] ^= chance.randrange(1, 256)
        damaged.write_bytes(changed)
        code, out, err = worldctl(str(damaged), "verify")
        assert code == 3 or "NOT_A_LOG" in err or content(str(damaged)) == before, (at, err)
        named = ("_NOT_FOUND", "LOG_FORMAT", "NOT_A_LOG")
        assert code in (0, 3) or "_DIFFERS" in out or any(word in err for word in named), (at, err)
        command = chance.choice(COMMANDS)
        code, out, err = worldctl(str(damaged), *command)
        assert code == 0 or '"error":' in out or command[0] in ("verify", "doctor"), (at, command, out, err)


@pytest.mark.requirement("CARD-audit")
def test_verify_and_doctor_report_what_sqlite_says_about_its_own_pages(address: str, worldctl: Run) -> None:
    with closing(sqlite3.connect(address)) as database, database:
        database.execute("PRAGMA writable_schema=ON")  # the index is left with rows of a table it does not belong to
        [(root,)] = database.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'wp_world_parent'")
        database.execute("UPDATE sqlite_schema SET rootpage = ? WHERE name = 'wp_proposal_actor'", (root,))
    code, out, _ = worldctl(address, "verify")
    assert code == 3
    findings = json.loads(out)["findings"]
    assert {finding["code"] for finding in findings} == {"FILE_DAMAGED"}
    assert all(finding["position"] == 0 for finding in findings)
    code, out, _ = worldctl(address, "doctor")
    assert code == 3
    [file] = [check for check in json.loads(out)["checks"] if check["check"] == "file"]
    assert not file["ok"]
    assert "worldctl verify" in file["advice"]


# Tree heads


@pytest.mark.requirement("CARD-audit", "CARD-log")
@pytest.mark.parametrize("command", [["log"], ["worlds"], ["replay"], ["inbox"], ["doctor"]])
def test_a_log_whose_last_heads_were_removed_is_not_shown_as_a_shorter_one(
    address: str, worldctl: Run, command: list[str]
) -> None:
    with open_log(address, read_only=True) as log:
        last = log.head().size
    sql(address, f"DELETE FROM wp_head WHERE id & {POSITION_MASK} > {last - 10}")
    with closing(sqlite3.connect(address)) as database:
        [(head,)] = database.execute(f"SELECT max(id) & {POSITION_MASK} FROM wp_head")
    code, out, err = worldctl(address, *command)
    assert code == 3
    assert f"events up to {last}" in out + err
    assert f"covers {head}" in out + err
    code, out, _ = worldctl(address, "verify")
    assert (code, [finding["code"] for finding in json.loads(out)["findings"]]) == (3, ["EVENT_UNSEALED"])


@pytest.mark.requirement("CARD-log")
def test_nothing_is_appended_after_events_without_a_head(address: str) -> None:
    with open_log(address) as log:
        sql(address, "DELETE FROM wp_head WHERE id = (SELECT max(id) FROM wp_head)")
        with pytest.raises(DamagedLogError), log.write() as transaction:
            transaction.append([NewEvent("s", "t", 1, b"{}")])
    with open_log(address) as log, pytest.raises(DamagedLogError) as caught, log.write():
        pass
    assert caught.value.code == "EVENT_UNSEALED"


@pytest.mark.requirement("CARD-log")
def test_removed_events_are_missed_before_they_are_read(address: str) -> None:
    sql(address, "DELETE FROM wp_event WHERE id = (SELECT max(id) FROM wp_event)")
    with open_log(address, read_only=True) as log, pytest.raises(DamagedLogError) as caught:
        log.head()
    assert caught.value.code == "LOG_GAP"


# Embedded values, changed with every hash made to fit


def forge(address: str, position: int, alter: Callable[[dict[str, Any]], None]) -> None:
    """Change an event and recompute its leaf and all tree heads."""
    with closing(sqlite3.connect(address)) as database, database:
        rows = database.execute(
            "SELECT id, stream, version, topic, schema_version, state, leaf FROM wp_event ORDER BY id"
        ).fetchall()
        leaves = [row[6] for row in rows]
        key, stream, version, topic, schema_version, state, _ = rows[position - 1]
        told = json.loads(state)
        alter(told)
        text = canonical_bytes(told)
        leaves[position - 1] = event_leaf(stream, version, topic, schema_version, text)
        database.execute(
            "UPDATE wp_event SET state = ?, leaf = ? WHERE id = ?", (text.decode(), leaves[position - 1], key)
        )
        for (head,) in database.execute("SELECT id FROM wp_head").fetchall():
            root = tree_root(leaves[: head & POSITION_MASK])
            database.execute("UPDATE wp_head SET root = ? WHERE id = ?", (root, head))


def paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the path of every key in a value."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in pairs:
        if isinstance(key, str):
            yield (*path, key)
        yield from paths(part, (*path, key))


def rename(value: Any, path: tuple[str | int, ...]) -> None:
    for key in path[:-1]:
        value = value[key]
    value[f"{path[-1]}x"] = value.pop(path[-1])


def embedded(kind: type[Event]) -> list[str]:
    """Return the wire names of the members of an event that hold checked values."""
    return [
        one.encode_name
        for one in msgspec.structs.fields(kind)
        if one.name in kind.TEXTS or any(map(is_record, (one.type, *inner_types(one.type))))
    ]


def inner_types(kind: Any) -> list[Any]:
    """Return the types inside of a union or a list."""
    return [found for inner in get_args(kind) for found in (inner, *inner_types(inner))]


def is_record(kind: Any) -> bool:
    """Return whether a type is that of an embedded value."""
    return isinstance(kind, type) and issubclass(kind, Record)


EMBEDDED = {topic: names for topic, kind in TOPICS.items() if (names := embedded(kind))}
UNUSUAL = {
    *("request.withdrawn", "effect.claimed", "effect.dropped", "effect.extended", "effect.resolved"),
    *("lease.renewed", "lease.revoked", "execution.cancelled"),
    *("right.granted", "right.revoked", "token.created", "token.revoked"),
    *("key.registered", "key.revoked", "policy.retired", "writer.opened", "writer.closed", "caller.left"),
}
"""Topics whose only parts are optional and in none of these logs.

tests/pipeline/test_existence.py, tests/pipeline/test_access.py and tests/world/test_claim_checks.py change these parts.
"""


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize("topic", sorted(EMBEDDED.keys() - UNUSUAL))
@pytest.mark.slow
def test_a_renamed_key_with_fitting_hashes_is_damage_that_names_the_event(
    original: Path, governed: Path, tmp_path: Path, worldctl: Run, topic: str
) -> None:
    if topic.startswith(("run.", "shadow.")) or topic in ("effect.retried", "proposal.shadowed"):
        original = governed
    with Realm.open_read_only(original) as world:
        position, payload = next(
            (logged.position, json.loads(logged.state)) for logged in world.log.read(topics=[topic])
        )
    known = [path for name in EMBEDDED[topic] for path in paths(payload.get(name), (name,))]
    forged, found = tmp_path / "forged.db", 0
    for path in sorted(known, key=len)[:12]:
        shutil.copyfile(original, forged)
        forge(str(forged), position, partial(rename, path=path))
        for command in COMMANDS[1:7]:
            code, _, err = worldctl(str(forged), *command)
            assert code in (0, 3) or "was never written" in err, (path, command, err)
            if code == 3 and command == ["log"]:
                found += 1
                assert f"Event {position} is not a valid '{topic}'" in err
    assert found or not known


@pytest.mark.parametrize(
    ("topic", "state"),
    [
        ("actor.registered", {"at": 1, "by": "x", "actor": {"id": "ann", "kind": "human"}}),
        ("actor.bound", {"at": 1, "by": "x", "actorId": "ann", "binding": {"policy": "p"}}),
        ("decision.made", {"at": 1, "proposalId": "p", "decision": {"verdict": "approved"}}),
    ],
)
def test_an_event_is_looked_into_when_it_is_decoded(topic: str, state: dict[str, Any]) -> None:
    with pytest.raises(DamagedLogError) as caught:
        decode_event(topic, 1, canonical_bytes(state), 7)
    assert (caught.value.code, caught.value.details["position"]) == ("BAD_EVENT", 7)


TRIGGER = "CREATE TRIGGER t AFTER INSERT ON wp_event BEGIN DELETE FROM wp_event WHERE id < new.id; END"


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize(
    ("statements", "words"),
    [
        ([TRIGGER], "there is a trigger t on wp_event"),
        (
            ["DROP VIEW world_events", "CREATE VIEW world_events AS SELECT 1 AS position"],
            "the view world_events is another",
        ),
        (["UPDATE wp_branch SET created_pos = created_pos + 1"], "the positions of the branches"),
    ],
)
def test_what_would_change_or_hide_the_log_unseen_is_found(address: str, statements: list[str], words: str) -> None:
    sql(address, *statements)
    with Realm.open_read_only(address) as world:
        report = verify(world.log)
    assert not report.ok
    assert any(words in finding.message for finding in report.findings)


# The index


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize("table", ["wp_proposal", "wp_world", "wp_branch", "wp_landmark", "wp_checkpoint", "wp_run"])
def test_a_lost_table_of_the_index_is_a_finding_and_is_made_again(address: str, worldctl: Run, table: str) -> None:
    worlds = worldctl(address, "worlds")
    sql(address, f"DROP TABLE {table}")
    code, out, _ = worldctl(address, "verify")
    found = {finding["code"] for finding in json.loads(out)["findings"]}
    assert (code, found) == (1, {"INDEX_DIFFERS", "SCHEMA_DIFFERS"})
    code, out, _ = worldctl(address, "doctor")
    assert code == 1
    [index] = [check for check in json.loads(out)["checks"] if check["check"] == "index"]
    assert table in index["found"]
    assert "--rebuild" in index["advice"]
    _, out, err = worldctl(address, "doctor", "--rebuild")
    assert "built anew" in err
    assert [check["ok"] for check in json.loads(out)["checks"] if check["check"] == "index"] == [True]
    assert worldctl(address, "verify")[0] == 0
    assert worldctl(address, "worlds") == worlds


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize("text", ["{", "", "[]", "null", "7", '{"beds": NaN}', '{"beds":' * 5_000, "caf\u00e9\ud800"])
@pytest.mark.parametrize("helper", ["checkpoint", "ledger"])
@pytest.mark.slow
def test_a_copy_beside_the_log_that_cannot_be_read_names_the_way_out(
    address: str, worldctl: Run, helper: str, text: str
) -> None:
    data = worldctl(address, "show", "HEAD", "--data")
    with closing(sqlite3.connect(address)) as database, database:
        stored = text.encode("utf-8", "surrogatepass")
        if helper == "ledger":
            database.execute("INSERT INTO wp_ledger VALUES (1, 9, 1, CAST(? AS TEXT))", (stored,))
        else:
            database.execute("UPDATE wp_checkpoint SET data = CAST(? AS TEXT)", (stored,))
    for command in (["show", "HEAD", "--data"], ["blame", "beds"]):
        code, out, _ = worldctl(address, *command)
        assert (code, json.loads(out)["error"]["code"]) == (3, "INDEX_DAMAGED"), command
        assert "worldctl doctor --rebuild" in out
    code, out, _ = worldctl(address, "verify")
    assert (code, {finding["code"] for finding in json.loads(out)["findings"]}) == (1, {"INDEX_DIFFERS"})
    assert "built anew" in worldctl(address, "doctor", "--rebuild")[2]
    assert worldctl(address, "show", "HEAD", "--data") == data
    assert worldctl(address, "verify")[0] == 0


def test_a_rebuilt_table_is_not_taken_for_whole_by_the_other_logs_of_the_store(tmp_path: Path, worldctl: Run) -> None:
    place = str(tmp_path / "world.db")
    for name in ("one", "two"):
        with (FOLDER / "garden.jsonl").open("rb") as lines:
            import_log(lines, f"{place}#{name}")
    sql(place, "DROP TABLE wp_world")
    assert "built anew" in worldctl(f"{place}#one", "doctor", "--rebuild")[2]
    assert worldctl(f"{place}#one", "worlds")[0] == 0
    code, _, err = worldctl(f"{place}#two", "worlds")
    assert (code, "INDEX_NOT_CURRENT" in err) == (1, True)
    assert "built anew" in worldctl(f"{place}#two", "doctor", "--rebuild")[2]
    assert worldctl(f"{place}#two", "worlds")[0] == 0


def test_who_only_looks_is_not_answered_from_an_index_that_is_behind(address: str, worldctl: Run) -> None:
    with open_log(address) as log, log.write() as transaction:  # a writer that knows nothing of the index
        enforcement = EnforcementChosen(at=1, enforcement="enforcing", by="operator")
        transaction.append([NewEvent("realm", enforcement.TOPIC, 1, encode_event(enforcement))])
    with open_log(address, read_only=True) as log:
        archive = Archive(log)
        for ask in (lambda: archive.rows("branches"), lambda: archive.count(9), lambda: archive.find_world("x")):
            with pytest.raises(RefusedError) as caught:
                ask()
            assert caught.value.code == "INDEX_NOT_CURRENT"
            assert "doctor --rebuild" in caught.value.message
    assert worldctl(address, "worlds")[0] == 1


def test_a_log_in_memory_is_no_place_to_import_into() -> None:
    for address in ("sqlite://", "sqlite:///:memory:", ":memory:", "sqlite://#name"):
        with pytest.raises(RefusedError) as caught:
            import_log(io.BytesIO((FOLDER / "garden.jsonl").read_bytes()), address)
        assert caught.value.code == "INVALID_ADDRESS"
        assert "memory" in caught.value.message


def test_a_damaged_row_of_any_type_is_a_finding(address: str) -> None:
    """The tables are strict, but bytes changed in the file can make a column of a row anything."""
    changes = {"wp_event": ["state", "topic", "stream", "version", "schema_version", "leaf"], "wp_head": ["root"]}
    for table, columns in changes.items():
        for number, column in enumerate(columns):
            place = address + f".{table}.{column}"
            shutil.copyfile(address, place)
            with closing(sqlite3.connect(place)) as database, database:
                database.execute("PRAGMA writable_schema=ON")
                database.execute("UPDATE sqlite_schema SET sql = replace(sql, 'STRICT', '')")
            key = (1 << LOG_SHIFT) + 20 + number
            sql(place, f"UPDATE {table} SET {column} = 3.5 WHERE id = (SELECT max(id) FROM {table} WHERE id <= {key})")
            with open_log(place, read_only=True) as log:
                assert not verify(log).ok, (table, column)


@pytest.mark.requirement("CARD-audit")
def test_an_event_that_was_changed_is_not_shown_as_if_it_were_proven(address: str, worldctl: Run) -> None:
    with open_log(address, read_only=True) as log:
        state = log.event_at(3).state.decode()
    for changed in (state.replace("1", "2", 1), "{", "", "[" * 500):
        with closing(sqlite3.connect(address)) as database, database:
            database.execute(f"UPDATE wp_event SET state = ? WHERE id & {POSITION_MASK} = 3", (changed,))
        for command in (["show", "3"], ["log"]):
            code, out, _ = worldctl(address, *command)
            assert (code, "EVENT_CHANGED" in out or "BAD_EVENT" in out) == (3, True), (changed, command, out)
