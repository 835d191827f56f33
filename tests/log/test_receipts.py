"""Receipts and consistency proofs: made from a log, checked here and by the verifier that knows nothing of us."""

from __future__ import annotations

import importlib.util
import json
import os
import sqlite3
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.golden.garden import record
from world.canonical import canonical_bytes
from world.errors import DamagedLog, Refused
from world.log import TreeHead, open_log
from world.log.merkle import leaf_hash
from worldprotocol.facade import World
from worldprotocol.proofs.checkpoint import Checkpoint, Trusted, checkpoint_of
from worldprotocol.proofs.note import SigningKey, VerifierKey
from worldprotocol.proofs.receipt import SUBJECTS, Subject, check_proof, make_consistency, make_receipt, proof_kind

ROOT = Path(__file__).resolve().parents[2]
VERIFIER = ROOT / "docs" / "verify_receipt.py"
ORIGIN = "example.com/garden"
KEY = SigningKey(ORIGIN, bytes(range(32)))
WITNESS = SigningKey("witness.example.com/w1", bytes(32))
TRUSTED = Trusted((KEY.verifier, WITNESS.verifier))


@pytest.fixture(scope="module")
def garden(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with record(str(tmp_path_factory.mktemp("receipts") / "world.db")) as world:
        yield world


@pytest.fixture(scope="module")
def verifier() -> ModuleType:
    """The verifier of docs/, loaded as a module so that many files are checked in one process."""
    spec = importlib.util.spec_from_file_location("verify_receipt", VERIFIER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def signed(world: World, size: int | None = None) -> Checkpoint:
    head = world.log.head() if size is None else world.log.root_at(size)
    return checkpoint_of(head, ORIGIN, [KEY, WITNESS])


def subjects(world: World) -> list[Subject]:
    """One subject of every kind of which the log has one."""
    found: dict[str, Subject] = {}
    for event in world.log.read():
        state = json.loads(event.state)
        for kind, (topic, field) in SUBJECTS.items():
            if topic == event.topic:
                name: Any = state
                for step in field.split("."):
                    name = name[step]
                found[kind] = Subject(kind, name, event.position)
    last = world.log.head().size
    return [*found.values(), Subject("event", "1", 1), Subject("event", str(last), last)]


def asked(*, keys: tuple[VerifierKey, ...] = TRUSTED.keys, head: tuple[TreeHead, ...] = ()) -> Namespace:
    return Namespace(vkey=[key.to_text() for key in keys], head=[str(one) for one in head], origin=None)


def alone(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the verifier where nothing of this project can be imported."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    hidden = "import sys;from importlib.abc import MetaPathFinder as F;from runpy import run_path as r\n"
    hidden += "class No(F):\n def find_spec(self,name,*_):\n  if name.split('.')[0] in ('world','worldprotocol','host',"
    hidden += "'authority','projections'): raise ImportError(name)\n"
    hidden += f"sys.meta_path.insert(0,No());sys.argv=sys.argv[1:];r({str(VERIFIER)!r},run_name='__main__')"
    command = [sys.executable, "-W", "error", "-I", "-c", hidden, "verify_receipt.py", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


def test_the_verifier_is_short_and_needs_one_library() -> None:
    source = VERIFIER.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 200
    imported = {line.split()[1].split(".")[0] for line in source.splitlines() if line.startswith(("import ", "from "))}
    assert imported - set(sys.stdlib_module_names) == {"cryptography"}


@pytest.mark.requirement("CARD-audit", "IC-audit")
def test_a_receipt_is_checked_without_this_project(garden: World, tmp_path: Path) -> None:
    file, vkey = tmp_path / "receipt.json", KEY.verifier.to_text()
    decision = next(one for one in subjects(garden) if one.kind == "decision")
    file.write_bytes(make_receipt(garden.log, decision, signed(garden)))
    done = alone(file, "--vkey", vkey, "--vkey", WITNESS.verifier.to_text())
    assert (done.returncode, done.stderr) == (0, "")
    assert f"proven: decision {decision.name}: event {decision.position} of {ORIGIN}, decision.made" in done.stdout
    assert f"signed by {ORIGIN}, {WITNESS.name}" in done.stdout
    other = SigningKey.generate(ORIGIN).verifier.to_text()
    assert alone(file, "--vkey", other).returncode == 1
    assert alone(file).returncode == 2
    assert alone(tmp_path / "none.json", "--vkey", vkey).returncode == 2
    file.write_bytes(file.read_bytes().replace(b'"format":1', b'"format":2'))
    assert alone(file, "--vkey", vkey).stderr.startswith("NOT PROVEN")
    file.write_bytes(b"\xff{")
    assert alone(file, "--vkey", vkey).stderr.startswith("NOT PROVEN")


@pytest.mark.requirement("CARD-audit")
def test_a_consistency_proof_is_checked_without_this_project(garden: World, tmp_path: Path) -> None:
    file = tmp_path / "grown.json"
    file.write_bytes(make_consistency(garden.log, signed(garden, 5), signed(garden)))
    done = alone(file, "--vkey", KEY.verifier.to_text())
    assert done.returncode == 0, done
    assert "the first 5 events" in done.stdout
    head = garden.log.root_at(5)
    assert alone(file, "--head", str(head)).returncode == 0
    assert alone(file, "--head", f"5:{'0' * 64}").returncode == 1


@pytest.mark.requirement("CARD-audit", "IC-audit")
def test_every_kind_of_thing_has_a_receipt(garden: World, verifier: ModuleType) -> None:
    found = subjects(garden)
    assert {one.kind for one in found} >= {"proposal", "intent", "decision", "world", "verdict", "event"}
    for subject in found:
        data = make_receipt(garden.log, subject, signed(garden))
        assert proof_kind(data) == "receipt"
        checked = check_proof(data, TRUSTED)
        assert checked.about == {"kind": subject.kind, "id": subject.name, "field": subject.field}
        assert checked.event is not None
        assert checked.event["position"] == subject.position
        assert subject.name in verifier.check(data, asked())


@pytest.mark.requirement("CARD-audit")
def test_every_event_has_a_receipt_under_every_later_head(garden: World, verifier: ModuleType) -> None:
    size = garden.log.head().size
    for at in (1, 2, size // 2, size - 1, size):
        for upto in {at, at + 1, (at + size) // 2, size} - {size + 1}:
            data = make_receipt(garden.log, Subject("event", str(at), at), signed(garden, upto))
            verifier.check(data, asked())
    with pytest.raises(Refused) as refused:
        make_receipt(garden.log, Subject("event", "5", 5), signed(garden, 4))
    assert refused.value.code == "NO_SUCH_EVENT"


@pytest.mark.requirement("CARD-audit")
def test_all_consistency_proofs_hold(garden: World, verifier: ModuleType) -> None:
    size = garden.log.head().size
    for first in (0, 1, 2, 3, 4, 7, 8, 13, size - 1, size):
        for second in {first, 8, 9, 16, 21, size - 1, size}:
            if first <= second:
                data = make_consistency(garden.log, signed(garden, first), signed(garden, second))
                assert check_proof(data, TRUSTED).kind == "consistency"
                verifier.check(data, asked())


def test_nothing_is_proven_under_a_checkpoint_of_another_history(garden: World) -> None:
    other = checkpoint_of(TreeHead(9, bytes(32)), ORIGIN, [KEY])
    for make in (
        lambda: make_receipt(garden.log, Subject("event", "1", 1), other),
        lambda: make_consistency(garden.log, other, signed(garden)),
    ):
        with pytest.raises(DamagedLog) as damaged:
            make()
        assert damaged.value.code == "SAVED_HEAD_MISMATCH"
    with pytest.raises(Refused) as refused:
        make_consistency(garden.log, checkpoint_of(garden.log.root_at(3), "another", []), signed(garden))
    assert refused.value.code == "WRONG_ORIGIN"


def both_refuse(data: bytes, verifier: ModuleType) -> None:
    with pytest.raises(Refused):
        check_proof(data, TRUSTED)
    with pytest.raises(verifier.NotProven):
        verifier.check(data, asked())


@pytest.fixture(scope="module")
def files(garden: World) -> list[bytes]:
    receipts = [make_receipt(garden.log, subject, signed(garden)) for subject in subjects(garden)]
    return [*receipts, make_consistency(garden.log, signed(garden, 11), signed(garden))]


@pytest.mark.requirement("CARD-audit")
def test_no_changed_byte_is_accepted(files: list[bytes], verifier: ModuleType) -> None:
    @settings(max_examples=400)
    @given(st.sampled_from(files), st.data())
    def change(data: bytes, draw: st.DataObject) -> None:
        whole = bytearray(data)
        at = draw.draw(st.integers(0, len(whole) - 1))
        what = draw.draw(st.integers(0, 2))
        if what == 0:
            whole[at] ^= draw.draw(st.integers(1, 255))
        elif what == 1:
            del whole[at : at + draw.draw(st.integers(1, 40))]
        else:
            whole[at:at] = draw.draw(st.binary(min_size=1, max_size=8))
        if bytes(whole) != data:
            both_refuse(bytes(whole), verifier)

    change()


def every_value(told: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = told.items() if isinstance(told, dict) else enumerate(told) if isinstance(told, list) else ()
    for name, value in items:
        yield from every_value(value, (*path, name))


def replaced(told: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = dict(told) if isinstance(told, dict) else list(told)
    copy[path[0]] = replaced(copy[path[0]], path[1:], value)
    return copy


@pytest.mark.requirement("CARD-audit")
def test_no_field_can_be_something_else(files: list[bytes], verifier: ModuleType) -> None:
    others = [None, True, 0, 1, -1, 2**53 - 1, "", "x", "0" * 64, [], {}, ["0" * 64], {"a": 1}]
    chosen = [data for data in files if b'"kind":"world"' in data or b'"kind":"event"' in data] + files[-1:]
    for data in chosen:
        told = json.loads(data)
        for path in every_value(told):
            for other in others:
                changed = canonical_bytes(replaced(told, path, other)) + b"\n"
                if changed != data:
                    both_refuse(changed, verifier)


def test_no_part_of_one_proof_serves_in_another(files: list[bytes], verifier: ModuleType) -> None:
    told = [json.loads(data) for data in files]
    for one in told:
        for other in told:
            for name in one.keys() & other.keys():
                is_true = name == "about" and one.get("event") == other.get("event")  # of one event, both are
                if one[name] != other[name] and not is_true:
                    both_refuse(canonical_bytes(one | {name: other[name]}) + b"\n", verifier)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def test_no_file_makes_either_of_them_crash(files: list[bytes], verifier: ModuleType) -> None:
    @settings(max_examples=200)
    @given(st.sampled_from(files), st.data())
    def try_one(data: bytes, draw: st.DataObject) -> None:
        told = json.loads(data)
        path = draw.draw(st.sampled_from(list(every_value(told))))
        value = draw.draw(JSON)
        changed = json.dumps(replaced(told, path, value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        raw = changed.encode("utf-8", "surrogatepass") + b"\n"
        if raw != data:
            both_refuse(raw, verifier)

    try_one()
    deep = b'{"a":' * 100_000
    for raw in (b"", b"\n", b"[]", b"null\n", deep, b"\xed\xa0\x80", b'{"worldProtocol":"receipt"}\n', b"1" * 5_000):
        both_refuse(raw, verifier)


def test_an_event_that_reads_in_two_ways_is_no_evidence(verifier: ModuleType) -> None:
    """Its owner could commit to such a text, and show each reader another meaning of it."""
    twice = '"decision":{"decisionId":"a"},"decision":{"decisionId":"b"}'
    within = '"decision":{"decisionId":"a","decisionId":"b"}'
    for state in (twice, within):
        content = f'{{"schemaVersion":1,"state":{{{state}}},"stream":"s","topic":"decision.made","version":1}}'
        for name in ("a", "b"):
            both_refuse(forged(content, "decision", name, "state.decision.decisionId"), verifier)


def forged(content: str, kind: str, name: str, field: str) -> bytes:
    """The receipt of a log of one event whose owner wrote what no log of ours takes."""
    leaf = leaf_hash(content.encode())
    told = {
        "worldProtocol": "receipt",
        "format": 1,
        "about": {"kind": kind, "id": name, "field": field},
        "origin": ORIGIN,
        "event": {"position": 1, "leaf": leaf.hex(), "content": content},
        "inclusion": {"index": 0, "size": 1, "path": []},
        "checkpoint": checkpoint_of(TreeHead(1, leaf), ORIGIN, [KEY, WITNESS]).to_text(),
    }
    return canonical_bytes(told) + b"\n"


def test_what_an_event_says_cannot_write_on_the_terminal(tmp_path: Path) -> None:
    topic = r"x\n\u001b[2J\ud800 signed by everybody"
    content = f'{{"schemaVersion":1,"state":{{}},"stream":"s","topic":"{topic}","version":1}}'
    file = tmp_path / "odd.json"
    file.write_bytes(forged(content, "event", "1", "position"))
    done = alone(file, "--vkey", KEY.verifier.to_text())
    assert done.returncode == 0
    assert done.stdout.count("\n") == 2
    assert "\x1b" not in done.stdout
    with pytest.raises(Refused):
        check_proof(file.read_bytes(), TRUSTED)


def test_a_proof_is_read_from_a_log_that_is_only_looked_at(garden: World, tmp_path: Path) -> None:
    with open_log(garden.log.address, read_only=True) as log:
        before = Path(log.address.path).read_bytes()
        make_receipt(log, Subject("event", "3", 3), signed(garden))
        assert Path(log.address.path).read_bytes() == before


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE wp_event SET state = replace(state, 'a', 'b') WHERE id & 1099511627775 = 9",
        "UPDATE wp_event SET state = CAST(x'ff00' AS TEXT) WHERE id & 1099511627775 = 9",
        "UPDATE wp_event SET leaf = zeroblob(32) WHERE id & 1099511627775 = 9",
        "UPDATE wp_event SET leaf = x'00' WHERE id & 1099511627775 = 9",
        "UPDATE wp_event SET stream = 'x' || char(0), version = 1 WHERE id & 1099511627775 = 9",
        "UPDATE wp_head SET root = zeroblob(32)",
        "DELETE FROM wp_event WHERE id & 1099511627775 = 9",
        "DELETE FROM wp_event WHERE id & 1099511627775 > 100",
        "DELETE FROM wp_head",
    ],
)
def test_nothing_is_proven_from_a_damaged_log(garden: World, tmp_path: Path, damage: str) -> None:
    file = tmp_path / "world.db"
    with sqlite3.connect(garden.log.address.path) as whole, sqlite3.connect(file) as copy:
        whole.backup(copy)
    copy.execute(damage)
    copy.commit()
    copy.close()
    whole.close()
    with open_log(str(file), read_only=True) as log, pytest.raises(DamagedLog):
        make_receipt(log, Subject("event", "9", 9), checkpoint_of(log.root_at(log.head().size), ORIGIN, [KEY]))
