"""Receipts and consistency proofs: made from a log, checked here and by the verifier that knows nothing of us."""

from __future__ import annotations

import importlib.util
import json
import os
import sqlite3
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.golden.garden import record
from tests.plugins.forms import scaled
from tests.support.patience import PATIENCE_S
from world.errors import DamagedLogError, RefusedError
from world.log import TreeHead, open_log
from world.log.merkle import consistency_proof, leaf_hash, subtrees_of, tree_root
from world.model.canonical_json import canonical_bytes, canonical_text, digest
from worldprotocol.api.realm import Realm
from worldprotocol.export.proofs.checkpoint import Checkpoint, Trusted, checkpoint_of, read_checkpoint
from worldprotocol.export.proofs.note import COSIGNATURE, Signature, SignedNote, SigningKey, VerifierKey
from worldprotocol.export.proofs.receipt import (
    SUBJECTS,
    Subject,
    check_proof,
    make_consistency,
    make_receipt,
    proof_kind,
)

ROOT = Path(__file__).resolve().parents[2]
VERIFIER = ROOT / "docs" / "verify_receipt.py"
ORIGIN = "example.com/garden"
KEY = SigningKey(ORIGIN, bytes(range(32)))
WITNESS = SigningKey("witness.example.com/w1", bytes(32))
TRUSTED = Trusted((KEY.verifier, WITNESS.verifier))


@pytest.fixture(scope="module")
def garden(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
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


def signed(world: Realm, size: int | None = None) -> Checkpoint:
    head = world.log.head() if size is None else world.log.root_at(size)
    return checkpoint_of(head, ORIGIN, [KEY, WITNESS])


def subjects(world: Realm) -> list[Subject]:
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


def asked(
    keys: tuple[VerifierKey, ...] = TRUSTED.keys,
    heads: tuple[TreeHead, ...] = (),
    origin: str | None = None,
    old: tuple[VerifierKey, ...] = (),
) -> Namespace:
    vkeys, old_vkeys = ([key.to_text() for key in some] for some in (keys, old))
    return Namespace(vkey=vkeys, old_vkey=old_vkeys, head=[str(one) for one in heads], origin=origin)


def alone(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the verifier where nothing of this project can be imported."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    hidden = "import sys;from importlib.abc import MetaPathFinder as F;from runpy import run_path as r\n"
    hidden += "class No(F):\n def find_spec(self,name,*_):\n  if name.split('.')[0] in ('world','worldprotocol','host',"
    hidden += "'authority','projections'): raise ImportError(name)\n"
    hidden += f"sys.meta_path.insert(0,No());sys.argv=sys.argv[1:];r({str(VERIFIER)!r},run_name='__main__')"
    command = [sys.executable, "-W", "error", "-I", "-c", hidden, "verify_receipt.py", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S)


def test_the_verifier_is_short_and_needs_one_library() -> None:
    source = VERIFIER.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 200
    imported = {line.split()[1].split(".")[0] for line in source.splitlines() if line.startswith(("import ", "from "))}
    assert imported - set(sys.stdlib_module_names) == {"cryptography"}


@pytest.mark.requirement("CARD-audit", "IC-audit")
def test_a_receipt_is_checked_without_this_project(garden: Realm, tmp_path: Path) -> None:
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
def test_a_consistency_proof_is_checked_without_this_project(garden: Realm, tmp_path: Path) -> None:
    file = tmp_path / "grown.json"
    file.write_bytes(make_consistency(garden.log, signed(garden, 5), signed(garden)))
    done = alone(file, "--vkey", KEY.verifier.to_text())
    assert done.returncode == 0, done
    assert "the first 5 events" in done.stdout
    old, new = garden.log.root_at(5), garden.log.head()
    done = alone(file, "--head", str(old), "--head", str(new))
    assert done.returncode == 0
    assert ORIGIN not in done.stdout  # nobody says that it is of this log
    assert alone(file, "--head", str(new)).returncode == 0
    assert alone(file, "--head", str(old)).returncode == 1  # anybody could have made the newer one
    assert alone(file, "--head", f"5:{'0' * 64}").returncode == 1


@pytest.mark.requirement("CARD-audit", "IC-audit")
def test_every_kind_of_thing_has_a_receipt(garden: Realm, verifier: ModuleType) -> None:
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
def test_every_event_has_a_receipt_under_every_later_head(garden: Realm, verifier: ModuleType) -> None:
    size = garden.log.head().size
    for at in (1, 2, size // 2, size - 1, size):
        for upto in {at, at + 1, (at + size) // 2, size} - {size + 1}:
            data = make_receipt(garden.log, Subject("event", str(at), at), signed(garden, upto))
            verifier.check(data, asked())
    with pytest.raises(RefusedError) as refused:
        make_receipt(garden.log, Subject("event", "5", 5), signed(garden, 4))
    assert refused.value.code == "NO_SUCH_EVENT"


@pytest.mark.requirement("CARD-audit")
def test_all_consistency_proofs_hold(garden: Realm, verifier: ModuleType) -> None:
    size = garden.log.head().size
    for first in (0, 1, 2, 3, 4, 7, 8, 13, size - 1, size):
        for second in {first, 8, 9, 16, 21, size - 1, size}:
            if first <= second:
                data = make_consistency(garden.log, signed(garden, first), signed(garden, second))
                assert check_proof(data, TRUSTED).kind == "consistency"
                verifier.check(data, asked())


def test_nothing_is_proven_under_a_checkpoint_of_another_history(garden: Realm) -> None:
    other = checkpoint_of(TreeHead(9, bytes(32)), ORIGIN, [KEY])
    for make in (
        lambda: make_receipt(garden.log, Subject("event", "1", 1), other),
        lambda: make_consistency(garden.log, other, signed(garden)),
    ):
        with pytest.raises(DamagedLogError) as damaged:
            make()
        assert damaged.value.code == "SAVED_HEAD_MISMATCH"
    with pytest.raises(RefusedError) as refused:
        make_consistency(garden.log, checkpoint_of(garden.log.root_at(3), "another", []), signed(garden))
    assert refused.value.code == "WRONG_ORIGIN"


def both_refuse(data: bytes, verifier: ModuleType) -> None:
    with pytest.raises(RefusedError):
        check_proof(data, TRUSTED)
    with pytest.raises(verifier.NotProven):
        verifier.check(data, asked())


@pytest.fixture(scope="module")
def files(garden: Realm) -> list[bytes]:
    receipts = [make_receipt(garden.log, subject, signed(garden)) for subject in subjects(garden)]
    return [*receipts, make_consistency(garden.log, signed(garden, 11), signed(garden))]


@pytest.mark.requirement("CARD-audit")
@pytest.mark.slow
def test_no_changed_byte_is_accepted(files: list[bytes], verifier: ModuleType) -> None:
    @settings(max_examples=scaled(400, ci=100))
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
@pytest.mark.slow
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


@pytest.mark.slow
def test_no_file_makes_either_of_them_crash(files: list[bytes], verifier: ModuleType) -> None:
    @settings(max_examples=scaled(200, ci=60))
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


def forged(
    content: str, kind: str = "event", name: str = "1", field: str = "position", note: str | None = None
) -> bytes:
    """The receipt of a log of one event whose owner wrote what no log of ours takes."""
    leaf = leaf_hash(content.encode("utf-8", "surrogatepass"))
    told = {
        "worldProtocol": "receipt",
        "format": 1,
        "about": {"kind": kind, "id": name, "field": field},
        "origin": ORIGIN,
        "event": {"position": 1, "leaf": leaf.hex(), "content": content},
        "inclusion": {"index": 0, "size": 1, "path": []},
        "checkpoint": note or checkpoint_of(TreeHead(1, leaf), ORIGIN, [KEY, WITNESS]).to_text(),
    }
    return canonical_bytes(told) + b"\n"


def test_what_an_event_says_cannot_write_on_the_terminal(tmp_path: Path) -> None:
    topic = "x\u2028\x9b2J signed by everybody"
    content = f'{{"schemaVersion":1,"state":{{}},"stream":"s","topic":"{topic}","version":1}}'
    file = tmp_path / "odd.json"
    file.write_bytes(forged(content, "event", "1", "position"))
    done = alone(file, "--vkey", KEY.verifier.to_text())
    assert done.returncode == 0
    assert done.stdout.count("\n") == 2
    assert done.stdout.isascii()
    assert check_proof(file.read_bytes(), TRUSTED).kind == "receipt"


def test_a_proof_is_read_from_a_log_that_is_only_looked_at(garden: Realm, tmp_path: Path) -> None:
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
def test_nothing_is_proven_from_a_damaged_log(garden: Realm, tmp_path: Path, damage: str) -> None:
    file = tmp_path / "world.db"
    with sqlite3.connect(garden.log.address.path) as whole, sqlite3.connect(file) as copy:
        whole.backup(copy)
    copy.execute(damage)
    copy.commit()
    copy.close()
    whole.close()
    with open_log(str(file), read_only=True) as log, pytest.raises(DamagedLogError):
        make_receipt(log, Subject("event", "9", 9), checkpoint_of(log.root_at(log.head().size), ORIGIN, [KEY]))


def proven(data: bytes, verifier: ModuleType, trusted: Trusted = TRUSTED) -> bool:
    """Whether a file proves something; both programs have to say the same."""
    try:
        check_proof(data, trusted)
        ours = True
    except RefusedError:
        ours = False
    heads = [read_checkpoint(json.loads(data)["checkpoint"].encode()).head] if ours and not trusted.keys else []
    try:
        verifier.check(data, asked(trusted.keys, tuple(heads), trusted.origin))
        theirs = True
    except verifier.NotProven:
        theirs = False
    assert ours is theirs, data[:400]
    return ours


def content(state: str = "{}", topic: str = '"x.y"', version: str = "1", stream: str = '"s"') -> str:
    return f'{{"schemaVersion":1,"state":{state},"stream":{stream},"topic":{topic},"version":{version}}}'


CANONICAL = [
    "{}", '{"a":1.5}', '{"a":1e-7}', '{"a":0.000001}', '{"a":1e+21}', '{"a":100000000000000000000}', '{"a":-2.5e-9}',
    '{"a":5e-324}', '{"a":9007199254740991}', '{"a":"\\u001b\\"\\\\é\u2028"}', '{"a":[[],{},null,true,-1]}',
    '{"\U0001f600":1,"\ufb33":2}',
]  # fmt: skip
OTHERWISE = [
    '{"a": 1}', '{"a":NaN}', '{"a":Infinity}', '{"a":1.0}', '{"a":1E5}', '{"a":1e5}', '{"a":1e-07}', '{"a":-0}',
    '{"a":01}', '{"b":1,"a":1}', '{"a":1,"a":2}', '{"a":0.1000000000000000055}', '{"a":1000000000000000000000}',
    '{"a":1e400}', f'{{"a":1{"0" * 5_000}}}',
    f'{{"a":{"[" * 400}{"]" * 400}}}', f'{{"a":{"[" * 90_000}{"]" * 90_000}}}',
    '{"a":"\\ud800"}', '{"a":"\\u00e9"}', '{"a":"\\/"}', '{"\ufb33":2,"\U0001f600":1}', '{"a":9007199254740993}', "",
]  # fmt: skip


@pytest.mark.requirement("CARD-audit")
def test_an_event_has_one_way_to_be_written_for_both_programs(verifier: ModuleType) -> None:
    for state in CANONICAL:
        assert proven(forged(content(state)), verifier), state
    for state in OTHERWISE:
        assert not proven(forged(content(state)), verifier), state[:80]
    names = [f'"{name}"' for name in ("", "x" * 513, "a\\tb", "a\\u001b", "a\x7f")]
    odd = [content(topic=topic) for topic in ["7", "null", "[]", '["x"]', "{}", *names]]
    odd += [content(stream=stream) for stream in ["7", "null", "[]", *names]]
    odd += [content(version=version) for version in ('"1"', "true", "0", "-1", "1.5", "null", "9007199254740994")]
    assert proven(forged(content("[]")), verifier)
    for text in [*odd, content() + " ", content()[:-1] + ',"w":1}', "[]", "1", ""]:
        assert not proven(forged(text), verifier), text
    for levels in range(196, 203):
        proven(forged(content(f'{{"a":{"[" * levels}{"]" * levels}}}')), verifier)


@given(JSON)
def test_any_value_is_written_in_the_same_way_by_both_programs(verifier: ModuleType, value: Any) -> None:
    try:
        text = canonical_text(value)
    except RefusedError:  # half a surrogate, or an infinity
        return
    assert verifier.canonical(verifier.read(text)) == text
    other = json.dumps(value, separators=(",", ":"))
    if other != text:
        with pytest.raises(verifier.NotProven):
            verifier.read(other)


def sealed(**changed: Any) -> bytes:
    """The receipt for a world, whose ids follow from its hashes as far as those can be written."""
    hashes = {name: value for name, value in changed.items() if name.endswith("Hash")}
    parts = {"schemaHash": "a" * 64, "snapshotHash": "b" * 64} | hashes
    parent = changed.get("parent")
    state = parts | {"contentId": digest(parts), "worldId": digest(parts | {"parentWorldId": parent})} | changed
    told = {name: value for name, value in state.items() if value != "missing"}
    text = content(canonical_bytes(told).decode(), '"world.sealed"')
    return forged(text, "world", str(state["worldId"]), "state.worldId")


@pytest.mark.requirement("CARD-audit")
def test_the_ids_of_a_world_follow_from_its_hashes_for_both_programs(verifier: ModuleType) -> None:
    for right in (sealed(), sealed(parent=None), sealed(parent="c" * 64)):
        assert proven(right, verifier)
    wrongs: dict[str, list[Any]] = {
        "contentId": ["0" * 64, None, "missing", 1],
        "worldId": ["0" * 64, "x"],
        "parent": [3, 1e21, "", "c" * 63, "C" * 64, [], {}],
        "schemaHash": ["é", "A" * 64, "a" * 62, None, "missing", 1],
        "snapshotHash": ["b" * 66],
    }
    for name, values in wrongs.items():
        for value in values:
            assert not proven(sealed(**{name: value}), verifier), (name, value)


@pytest.mark.requirement("CARD-audit")
def test_both_programs_read_the_same_checkpoints(verifier: ModuleType) -> None:
    text, key = content(), Trusted((KEY.verifier,))
    made = checkpoint_of(TreeHead(1, leaf_hash(text.encode())), ORIGIN, [KEY])
    whole, body = made.to_text(), made.note.text

    def holds(note: str, trusted: Trusted = key) -> bool:
        return proven(forged(text, note=note), verifier, trusted)

    good = "\u2014 other.example AAAAAAAA\n"
    for lines in ("", good, f"\u2014 {ORIGIN} AAAAAAAA\n", good * 99):
        assert holds(whole + lines)
    for lines in (
        *(f"\u2014 other.example {encoded}\n" for encoded in ("!!!!", "AAAA", "AAAAAAB=", "A" * (2 << 20))),
        *(f"\u2014 {name} AAAAAAAA\n" for name in ("o+x", "o\u00a0x", "", "a b", "a\x85b")),
        *(f"\u2014 {ORIGIN} !!!\n", "hello\n", "\n", good[:-1], good[:-1] + "\r\n", good * 100, good[2:]),
    ):
        assert not holds(whole + lines), lines[:80]
    for changed in (body + "ext\n", body + "a\x7f\n", body + "a\u2028b\n"):
        assert holds(SignedNote(changed).signed(KEY).to_text())
    sizes = [
        body.replace("\n1\n", f"\n{size}\n") for size in ("01", "+1", "\u0661", " 1", "0_1", "1" * 5_000, "-1", "0")
    ]
    others = [body + "\next\n", body + "a\tb\n", body.replace("=\n", "\n"), body.replace("=\n", "= \n"), body[:-1]]
    for changed in (*sizes, *others):
        assert not holds(SignedNote(changed).signed(KEY).to_text()), changed[:80]
    assert holds(body, Trusted())
    assert not holds(body)
    assert not holds(body + "\n", Trusted())
    assert not holds(whole, Trusted((KEY.verifier,), ""))
    assert holds(whole, Trusted((KEY.verifier,), ORIGIN))


@pytest.mark.requirement("CARD-audit")
def test_a_witness_signs_at_a_time_that_there_is(verifier: ModuleType) -> None:
    text = content()
    made = checkpoint_of(TreeHead(1, leaf_hash(text.encode())), ORIGIN, [KEY])
    private = Ed25519PrivateKey.from_private_bytes(bytes(32))
    witness = VerifierKey("wit.example", private.public_key().public_bytes_raw(), COSIGNATURE)
    for at, is_right in ((0, True), (1_700_000_000, True), (2**63 - 1, True), (2**63, False), (2**64 - 1, False)):
        value = at.to_bytes(8) + private.sign(f"cosignature/v1\ntime {at}\n{made.note.text}".encode())
        note = made.to_text() + Signature(witness.name, witness.key_id, value).to_text()
        assert proven(forged(text, note=note), verifier, Trusted((KEY.verifier, witness))) is is_right


def grown(old: Checkpoint, new: Checkpoint, path: Sequence[bytes]) -> bytes:
    told = {"worldProtocol": "consistency", "format": 1, "origin": ORIGIN, "old": old.to_text(), "new": new.to_text()}
    return canonical_bytes(told | {"path": [node.hex() for node in path]}) + b"\n"


@pytest.mark.requirement("CARD-audit")
def test_both_programs_find_every_history_that_did_not_only_grow(verifier: ModuleType) -> None:
    leaves = [leaf_hash(bytes([at])) for at in range(9)]
    heads = [checkpoint_of(TreeHead(size, tree_root(leaves[:size])), ORIGIN, [KEY]) for size in range(9)]
    other = [checkpoint_of(TreeHead(size, bytes(32)), ORIGIN, [KEY]) for size in range(9)]
    key = Trusted((KEY.verifier,))
    for a, old in enumerate(heads):
        for b, new in enumerate(heads):
            path = consistency_proof(a, b, subtrees_of(leaves)) if a <= b else []
            assert proven(grown(old, new, path), verifier, key) is (a <= b)
            for wrong in ([*path, leaves[0]], path[:-1] if path else path[:0]):
                assert proven(grown(old, new, wrong), verifier, key) is (a <= b and wrong == path)
            assert not proven(grown(other[a], new, path), verifier, key)
            if a or not b:
                assert not proven(grown(old, other[b], path), verifier, key)


@pytest.mark.requirement("CARD-audit")
def test_a_proof_leads_from_one_key_of_the_log_to_the_next(garden: Realm, verifier: ModuleType) -> None:
    later = SigningKey(ORIGIN, bytes(reversed(range(32))))
    old = checkpoint_of(garden.log.root_at(5), ORIGIN, [KEY])
    data = make_consistency(garden.log, old, checkpoint_of(garden.log.head(), ORIGIN, [later]))
    before, now = (KEY.verifier,), (later.verifier,)
    assert check_proof(data, Trusted(now), Trusted(before)).kind == "consistency"
    assert verifier.check(data, asked(now, old=before))
    for keys, old_keys in ((before, before), (now, now), (before, now), ((*before, *now), before), (now, ())):
        with pytest.raises(RefusedError):
            check_proof(data, Trusted(keys), Trusted(old_keys) if old_keys else None)
        with pytest.raises(verifier.NotProven):
            verifier.check(data, asked(keys, old=old_keys))
