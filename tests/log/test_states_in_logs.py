"""States in recorded logs fit their models; a forged one is found from the pages, and by a recheck without Python."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from tests import second_implementation as second
from tests.golden import orchard
from tests.golden.garden import FOLDER
from tests.golden.generate import rehashed
from tests.second_states import unfit_worlds
from world.audit.verify import verify
from world.core import load_domain
from worldprotocol.analysis.recheck.recheck import open_to_recheck, recheck
from worldprotocol.api.realm import Realm
from worldprotocol.export.jsonl import import_log

LOGS = sorted(path for path in FOLDER.glob("*.jsonl") if not path.stem.endswith("forged"))

MODELLED = ("access", "callers", "couriers", "gate", "guards", "moves", "orchard", "repeats", "signed", "wakes")
"""Golden logs whose domains have a state model."""


def unfit(lines: list[bytes]) -> list[str]:
    """Return the worlds that the second implementation finds unfit in a log that it finds sound."""
    events = [told for told in map(json.loads, lines) if "leaf" in told]
    replay = second.Replay()
    for event in events:
        replay.take(event)
    return unfit_worlds(events, {name: world[3] for name, world in replay.worlds.items()})


@pytest.mark.requirement("WP-schema", "CARD-audit")
@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_every_state_of_a_golden_log_fits_its_model(path: Path) -> None:
    lines = path.read_bytes().splitlines()
    assert unfit(lines) == []
    adopted = [one["state"] for one in map(json.loads, lines) if one.get("topic") == "domain.adopted"]
    assert all("dialect" in one["schema"]["state"] for one in adopted) is (path.stem in MODELLED)


def forged(name: str, field: str, value: Any, version: str) -> tuple[list[bytes], str]:
    """Return a log whose last world under a version has another value, with fitting hashes, and the world's id."""
    lines = [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_bytes().splitlines()]
    schema = next(
        one["state"]["schemaHash"]
        for one in lines
        if one.get("topic") == "domain.adopted" and one["state"]["schema"]["version"] == version
    )
    sealed = [one for one in lines if one.get("topic") == "world.sealed" and one["state"].get("patches")]
    last = [one for one in sealed if one["state"]["schemaHash"] == schema][-1]
    data = second.Replay()
    for event in [one for one in lines if "leaf" in one]:
        if event is last:
            break
        data.take(event)
    after = data.worlds[last["state"]["parent"]][3]
    last["state"]["patches"].append({"op": "set", "path": field, "value": value})
    for patch in last["state"]["patches"]:
        after = second.patched(after, patch)
    ids = second.world_ids(schema, after, None, last["state"]["parent"])
    text = json.dumps(lines)
    for part in ("snapshotHash", "contentId", "worldId"):
        text = text.replace(last["state"][part], ids[part])
    return rehashed(json.loads(text)), ids["worldId"]


@pytest.mark.requirement("WP-schema", "CARD-audit", "CARD-replay")
@pytest.mark.parametrize(
    ("field", "value", "version", "is_fit"),
    [
        ("remark", 5, "2.0.0", False),
        ("crops.new.kilos", -1, "2.0.0", False),
        ("crops.new.kilos", 7, "2.0.0", True),
    ],
)
def test_a_forged_state_is_found_from_the_page_and_by_a_recheck_without_python(
    tmp_path: Path, field: str, value: Any, version: str, is_fit: bool
) -> None:
    """All hashes fit, and so verification cannot find it; the recheck has neither the schema's domain nor its code."""
    lines, world = forged("orchard", field, value, version)
    address = str(tmp_path / "w.db")
    import_log(BytesIO(b"".join(lines)), address)
    assert second.verify([line.decode() for line in lines])["sound"]
    assert unfit(lines) == ([] if is_fit else [world])
    with Realm.open_read_only(address) as realm:
        assert verify(realm.log).ok
    other = load_domain(FOLDER / "ledger.yaml")
    with open_to_recheck(address, domain=other) as realm:
        done = recheck(realm, every=True)
    found = [one.difference.details for one in done.divergences if not one.is_drift]
    assert [one["world"] for one in found] == ([] if is_fit else [world])
    assert all(one["faults"][0]["path"] == field for one in found)


@pytest.mark.requirement("WP-schema", "CARD-replay")
def test_a_recheck_of_a_migrated_log_repeats_both_migrations(tmp_path: Path) -> None:
    address = str(tmp_path / "w.db")
    with (FOLDER / "orchard.jsonl").open("rb") as lines:
        import_log(lines, address)
    with open_to_recheck(address, domain=orchard.grown) as realm:
        done = recheck(realm, every=True)
    assert done.steps["migrations"] == 2
    assert {one.difference.code for one in done.divergences} <= {"CANNOT_RECHECK", "CODE_CHANGED"}
