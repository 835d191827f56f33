"""Recorded logs are tests: what they came to when they were recorded, they come to for ever.

Each topic that an engine can record occurs in one of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.golden import callers, cellar, couriers, garden, gate, guards, harbour, orchard
from tests.golden.generate import FORGED, RECORDED, summary
from world.audit.verify import verify
from world.events.base import Event
from world.events.caller_events import NoticedBy
from world.events.codec import TOPICS
from world.model.canonical_json import canonical_bytes
from worldprotocol.analysis.recheck.recheck import open_to_recheck, recheck
from worldprotocol.api.realm import Realm
from worldprotocol.directory.events import DirectoryFounded
from worldprotocol.export.jsonl import import_log

LOGS = sorted(path.name.removesuffix(".jsonl") for path in garden.FOLDER.glob("*.jsonl"))
SOUND = [name for name in LOGS if name != FORGED]
GARDEN: dict[str, Any] = {"domain": garden.garden, "policies": [garden.rules], "projections": [garden.sensor]}
LEDGER: dict[str, Any] = {"domain": garden.FOLDER / "ledger.yaml"}
CODE: dict[str, tuple[dict[str, Any], ...]] = {
    "garden": (GARDEN,),
    "garden-leased": (GARDEN,),
    "ledger": (LEDGER,),
    "ledger-leased": (LEDGER,),
    "harbour": ({"domain": harbour.harbour},),
    "clocks": ({"domain": harbour.harbour},),
    "access": ({"domain": harbour.harbour},),
    "signed": ({"domain": harbour.harbour},),
    "wakes": ({"domain": harbour.harbour},),
    "moves": ({"domain": harbour.harbour},),
    "repeats": ({"domain": harbour.harbour},),
    "callers": ({"domain": callers.desk},),
    "guards": ({"domain": gate.gate, "policies": [gate.before, guards.strict]},),
    "couriers": ({"domain": couriers.couriers},),
    "orchard": ({"domain": orchard.orchard}, {"domain": orchard.grown}),
    "cellar": ({"domain": cellar.cellar},),
    "gate": tuple({"domain": gate.gate, "policies": [one]} for one in (gate.before, gate.after)),
}
"""The code of each log, one for each schema and policy that was in force."""
REOPENED = ("orchard", "gate", "callers", "guards", "moves")
"""Logs whose scenes open their realm again, so that it cannot be in memory."""

CALLED_OFF = {"couriers": 5, "callers": 3}
"""Executions that were cancelled or lost their leases, so that performing the action again gives something else."""

QUICK_ON_POSTGRES = {"harbour", "orchard"}
"""Logs that the quick tests import into PostgreSQL as well; the slow ones import all."""


def on_backends(fixture: str, names: Iterable[str], *backends: str) -> pytest.MarkDecorator:
    """Return the mark that runs a test with each log on each backend."""
    cases = [
        pytest.param(
            name,
            backend,
            id=f"{backend}-{name}",
            marks=[pytest.mark.slow] if backend == "postgres" and name not in QUICK_ON_POSTGRES else [],
        )
        for backend in backends
        for name in names
    ]
    return pytest.mark.parametrize(("name", fixture), cases, indirect=[fixture])


ON_FILES = on_backends("shared_log_url", SOUND, "sqlite-file", "postgres")


def told(name: str) -> Any:
    return json.loads((garden.FOLDER / f"{name}.summary.json").read_text(encoding="utf-8"))


def imported(name: str, address: str) -> str:
    with (garden.FOLDER / f"{name}.jsonl").open("rb") as lines:
        import_log(lines, address)
    return address


def test_every_golden_log_has_its_summary_and_code() -> None:
    assert set(SOUND) == set(CODE) >= set(RECORDED)


def kinds_of_events(kind: type[Event] = Event) -> Iterator[type[Event]]:
    """Yield the types of events of the product."""
    for one in kind.__subclasses__():
        if one.TOPIC and one.__module__.partition(".")[0] in ("world", "worldprotocol"):
            yield one
        yield from kinds_of_events(one)


@pytest.mark.requirement("CARD-tests", "CARD-log")
def test_every_topic_that_can_be_recorded_is_in_a_golden_log() -> None:
    lines = [line for path in garden.FOLDER.rglob("*.jsonl") for line in path.read_bytes().splitlines()]
    recorded = {event["topic"] for event in map(json.loads, lines) if "topic" in event}
    can_be = {kind.TOPIC for kind in kinds_of_events()}
    assert can_be >= TOPICS.keys() | {DirectoryFounded.TOPIC}
    assert can_be == recorded


def test_servers_and_attendance_of_calls_are_in_a_golden_log() -> None:
    """Members that are absent in earlier logs."""
    lines = (garden.FOLDER / "callers.jsonl").read_bytes().splitlines()
    states = [event["state"] for event in map(json.loads, lines) if "topic" in event]
    attended = {state["attended"]["server"] for state in states if "attended" in state}
    assert attended == {"east"}
    assert {state["offer"].get("attended") for state in states if "offer" in state} == {"hook", None}
    assert {state["noticedBy"] for state in states if "noticedBy" in state} == set(get_args(NoticedBy))


@pytest.mark.requirement("CARD-tests", "CARD-replay", "CARD-log")
@ON_FILES
def test_a_golden_log_replays_to_the_same_worlds_decisions_and_states(name: str, shared_log_url: str) -> None:
    with Realm.open_read_only(imported(name, shared_log_url)) as world:
        assert canonical_bytes(summary(world)) == canonical_bytes(told(name))


@pytest.mark.requirement("CARD-audit", "WP-hash", "WP-world", "WP-restore")
@ON_FILES
def test_a_golden_log_verifies(name: str, shared_log_url: str) -> None:
    with Realm.open_read_only(imported(name, shared_log_url)) as world:
        report = verify(world.log)
    assert report.ok, report.findings
    assert report.index == "whole"
    assert str(report.head) == told(name)["head"]


@pytest.mark.requirement("CARD-replay", "CARD-tests", "INT-12.2", "HC-context", "HC-journal")
@ON_FILES
def test_every_step_of_a_golden_log_comes_out_again_as_it_was_recorded(name: str, shared_log_url: str) -> None:
    imported(name, shared_log_url)
    steps: Counter[str] = Counter()
    for code in CODE[name]:
        with open_to_recheck(shared_log_url, **code) as world:
            done = recheck(world, every=True)
        assert [one.to_wire() for one in done.divergences if not one.is_drift] == []
        steps += Counter({**done.steps, "migrations": 0})
    steps["migrations"] = done.steps["migrations"]  # their results are checked under every code
    ended = sum(told(name)["statuses"].get(end, 0) for end in ("completed", "failed"))
    repeated = steps["executions"] + steps["notRepeatable"]
    assert repeated + steps["migrations"] >= ended
    assert len(CODE[name]) > 1 or repeated == ended
    assert len(CODE[name]) > 1 or steps["notRepeatable"] == CALLED_OFF.get(name, 0)
    assert steps["rulings"] + steps["migrations"] >= len(told(name)["decisions"])


@pytest.mark.requirement("CARD-tests")
@on_backends("log_url", sorted(RECORDED.keys() - set(REOPENED)), "sqlite-file", "sqlite-memory", "postgres")
def test_the_same_scenes_played_again_give_the_same_worlds_and_decisions(name: str, log_url: str) -> None:
    same_again(name, log_url)


@pytest.mark.requirement("CARD-tests")
@on_backends("shared_log_url", REOPENED, "sqlite-file", "postgres")
def test_scenes_that_open_their_realm_again_give_the_same_worlds_and_decisions(name: str, shared_log_url: str) -> None:
    same_again(name, shared_log_url)


def same_again(name: str, address: str) -> None:
    with RECORDED[name](address) as world:
        again, then = summary(world), told(name)
    for part in ("worlds", "verdicts", "data", "statuses", "active", "epoch"):
        assert canonical_bytes(again[part]) == canonical_bytes(then[part]), part
    hashless = [[{**one, "policyHash": ""} for one in found["decisions"]] for found in (again, then)]
    assert canonical_bytes(hashless[0]) == canonical_bytes(hashless[1])


@pytest.mark.requirement("CARD-audit", "WP-hash")
def test_the_log_that_was_forged_with_fitting_hashes_is_found_out(tmp_path: Path) -> None:
    with Realm.open_read_only(imported(FORGED, str(tmp_path / "world.db"))) as world:
        report = verify(world.log)
    assert not report.ok
    assert report.findings[0].position == told(FORGED)["firstBadEvent"]
    assert report.findings[0].code == "WRONG_HASH"


@pytest.mark.requirement("CARD-replay")
def test_a_recheck_of_the_forged_log_begins_to_differ_at_the_forged_event(tmp_path: Path) -> None:
    address = imported(FORGED, str(tmp_path / "world.db"))
    with open_to_recheck(address, **GARDEN) as world:
        done = recheck(world)
    [found] = [one for one in done.divergences if not one.is_drift]
    assert found.position == told(FORGED)["firstBadEvent"] + 1  # the end of the execution that sealed it
    assert found.difference.details["what"].startswith("patch")
