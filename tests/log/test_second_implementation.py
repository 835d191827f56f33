"""docs/reference/log-format.md says enough: what is written from it alone agrees with the engine on everything."""

from __future__ import annotations

import ast
import json
import random
import re
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import second_implementation as second
from tests.documents import GENERATED, LOG_FORMAT
from tests.log.generate_vectors import FILES, FOLDER, LOGS, TESTS, text_of, vectors
from world.errors import RefusedError
from world.events.codec import EVENT_TYPES
from world.model.canonical_json import canonical_text
from world.model.immutable_json import freeze
from world.model.patch import Patch, apply_patch

PROGRAM = (
    "second_implementation",
    "second_access",
    "second_adoptions",
    "second_effects",
    "second_forms",
    "second_leases",
    "second_signatures",
    "second_states",
)


@pytest.mark.requirement("CARD-replay")
@pytest.mark.parametrize("name", sorted(FILES))
def test_the_kept_vectors_are_what_the_engine_computes(name: str) -> None:
    """``python -m tests.log.generate_vectors`` writes them anew."""
    assert (FOLDER / f"{name}.jsonl").read_bytes() == text_of(name)


def test_the_second_implementation_imports_nothing_but_the_standard_library() -> None:
    own = {f"tests.{name}" for name in PROGRAM}
    for path in (TESTS / f"{name}.py" for name in PROGRAM):
        for node in ast.walk(ast.parse(path.read_text())):
            names = {alias.name for alias in node.names} if isinstance(node, ast.Import) else set()
            names |= {node.module or ""} if isinstance(node, ast.ImportFrom) else set()
            assert {name.partition(".")[0] for name in names - own} <= sys.stdlib_module_names


@pytest.mark.requirement("CARD-replay", "CARD-audit")
def test_the_second_implementation_agrees_on_the_golden_logs() -> None:
    logs = (f"tests/golden/{name}.jsonl" for name in LOGS)
    command = [sys.executable, "-E", "-s", "-m", f"tests.{PROGRAM[0]}", *logs]
    done = subprocess.run(command, cwd=TESTS.parent, capture_output=True, check=True)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    for found in told:
        found.pop("why", None)
        found["log"] = found["log"].removeprefix("tests/")
    assert told == vectors("logs")
    assert [found["sound"] for found in told] == [name != "garden-forged" for name in LOGS]


def test_the_second_implementation_agrees_on_the_small_vectors() -> None:
    for told in vectors("canonical"):
        assert outcome(lambda text=told["text"]: second.canonical(second.read(text))) == told.get("canonical")
    for told in vectors("leaves"):
        assert second.leaf_of(told).hex() == told["leaf"]
    for told in vectors("trees"):
        assert second.Tree(map(bytes.fromhex, told["leaves"])).root() == told["root"]
    for told in vectors("patches"):
        assert outcome(lambda told=told: patched(told["data"], told["patches"])) == told.get("result")
    for told in vectors("worlds"):
        ids = second.world_ids(told["schemaHash"], told["data"], told["error"], told["parent"])
        assert {name: told[name] for name in ids} == ids


def outcome(run: Any) -> Any:
    """Return what comes of something, None where it is refused."""
    try:
        return run()
    except second.Bad:
        return None


def patched(data: Any, patches: list[dict[str, Any]]) -> Any:
    for patch in patches:
        data = second.patched(data, patch)
    return data


NAMES = st.sampled_from(["a", "b", "0", "1", "2", "01", "x.y", "\\", ""])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-9, 9)
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


@given(VALUES)
def test_both_implementations_write_the_same_canonical_text(value: Any) -> None:
    assert second.canonical(value) == canonical_text(value)


@given(
    st.dictionaries(NAMES, VALUES, max_size=3),
    st.sampled_from(["set", "unset", "merge"]),
    st.lists(NAMES, max_size=3),
    VALUES,
)
def test_both_implementations_apply_patches_alike(data: Any, operation: str, names: list[str], value: Any) -> None:
    path = ".".join(name.replace("\\", "\\\\").replace(".", "\\.") for name in names)
    wire = {"op": operation, "path": path} | ({} if operation == "unset" else {"value": value})
    try:
        expected = apply_patch(freeze(data), Patch.from_wire(wire))
    except RefusedError:
        with pytest.raises(second.Bad):
            second.patched(data, wire)
    else:
        assert canonical_text(second.patched(data, wire)) == canonical_text(expected)


@pytest.mark.requirement("CARD-audit")
def test_the_second_implementation_finds_what_was_changed_in_an_export() -> None:
    data, chance = (TESTS / "golden" / "ledger.jsonl").read_bytes(), random.Random(1)
    name = range(data.index(b'"name":"main"') + 8, data.index(b'"name":"main"') + 12)  # which no hash covers
    for _ in range(15):
        at = chance.choice([at for at in range(0, len(data), 7) if at not in name])
        changed = bytearray(data)
        changed[at] ^= chance.randrange(1, 256)
        lines = bytes(changed).decode("utf-8", "surrogateescape").splitlines(keepends=True)
        assert not second.verify(lines)["sound"], at


@pytest.mark.parametrize("name", ["topics", "parts"])
def test_the_tables_of_events_are_in_step_with_the_code(name: str) -> None:
    """``python -m tests.documents`` writes them anew."""
    assert GENERATED[LOG_FORMAT, name]() in LOG_FORMAT.read_text(encoding="utf-8")


def test_every_field_of_every_event_is_explained() -> None:
    text = LOG_FORMAT.read_text(encoding="utf-8").partition("### Fields")[2].partition("\n## ")[0]
    told = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", text, re.MULTILINE))))
    assert {field.encode_name for kind in EVENT_TYPES for field in msgspec.structs.fields(kind)} == told
