"""Whatif, reports, explanations, blame and readings of past states go through a migration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.golden import gate, orchard
from tests.golden.garden import FOLDER
from tests.pipeline.migrating import first, second
from tests.pipeline.test_whatif import ask, by_id, sealed
from world.errors import RefusedError
from world.events.proposal_events import ProposalHeld, ProposalSubmitted, ProposalSuperseded
from world.read_models.blame import blame
from world.read_models.trace import trace_proposal
from worldprotocol.analysis.backtest import Backtest, BacktestSetup
from worldprotocol.analysis.work.workers import Workers
from worldprotocol.api.realm import Realm
from worldprotocol.export.jsonl import import_log
from worldprotocol.report.gathering import Window, gather
from worldprotocol.report.page import render

MIGRATING = Path(__file__).parent / "migrating.py"
BOTH: dict[str, Any] = {"domain": orchard.orchard, "domains": [orchard.grown], "at_hand": []}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return imported(tmp_path, "orchard")


def imported(folder: Path, name: str) -> Path:
    address = folder / f"{name}.db"
    with (FOLDER / f"{name}.jsonl").open("rb") as lines:
        import_log(lines, str(address))
    return address


def submitted(file: Path) -> list[ProposalSubmitted]:
    with Realm.open_read_only(str(file)) as realm:
        return [event for _, event in realm.events() if isinstance(event, ProposalSubmitted)]


@pytest.mark.requirement("CARD-replay", "WP-schema", "WP-restore")
def test_what_if_nothing_changes_a_migration_is_made_again_alike(file: Path) -> None:
    report = ask(file, world=sealed(file)[1], **BOTH)
    assert not report.changed
    assert report.worlds == {"same": len(sealed(file)) - 2}


@pytest.mark.requirement("CARD-replay", "WP-schema")
def test_what_if_a_proposal_before_a_migration_is_dropped_the_migration_starts_from_other_data(file: Path) -> None:
    first = submitted(file)[0].proposal_id
    report = ask(file, drop=[first], **BOTH)
    assert by_id(report)[first]["change"] == "dropped"
    changes = {line["branch"]: [one["path"] for one in line["changes"]] for line in report.heads}
    assert changes == {"main": ["trees.0"], "plan": ["crops.old", "trees.1"]}
    migrated = [one.proposal_id for one in submitted(file) if one.migration is not None]
    assert {by_id(report)[name]["change"] for name in migrated} == {"world"}


@pytest.mark.requirement("WP-schema")
def test_a_migration_alone_cannot_be_dropped(file: Path) -> None:
    """Its branch would have the new schema and the old data."""
    migrated = next(one.proposal_id for one in submitted(file) if one.migration is not None)
    with pytest.raises(RefusedError) as refused:
        ask(file, drop=[migrated], **BOTH)
    assert refused.value.code == "INVALID_VALUE"
    assert "part of the adoption" in refused.value.message


@pytest.mark.requirement("CARD-policy", "CARD-replay")
def test_what_if_the_policy_had_been_the_later_one_from_the_start(tmp_path: Path) -> None:
    """Nothing is held then, and the name that only the earlier policy takes is rejected."""
    file = imported(tmp_path, "gate")
    report = ask(file, world=sealed(file)[1], domain=gate.gate, at_hand=[], policies=[gate.after])
    (head,) = report.heads
    assert [(one["path"], one["before"]) for one in head["changes"]] == [("passed.2", "Otto")]


@pytest.mark.requirement("WP-schema", "WP-restore", "IC-audit")
def test_past_states_are_read_under_the_schema_of_their_world(file: Path) -> None:
    with Realm.open_read_only(str(file)) as realm:
        worlds = [realm.snapshot(world) for world in sealed(file)]
        kinds = ["crops" in one.data for one in worlds]
        assert kinds == sorted(kinds)  # the earlier schema first
        assert True in kinds
        assert False in kinds
        old = next(one for one in worlds if "old" in one.data.get("trees", {}))
        assert old.data["trees"]["old"]["planted"] == "1998-03-01"
        found = blame(realm.archive, "trees.0.planted", realm.realm().branches["main"].head)
        assert found.proposal is not None
        assert found.proposal.intent.body.type == "domain.migrate"


@pytest.mark.requirement("IC-audit")
def test_a_report_shows_migrations_successors_and_what_is_held(tmp_path: Path, file: Path) -> None:
    page = page_of(file)
    with Realm.open_read_only(str(file)) as realm:
        superseded = [event for _, event in realm.events() if isinstance(event, ProposalSuperseded)]
    assert "domain.migrate" in page
    assert superseded
    assert all((one.reason or "").partition("'")[0] in page for one in superseded)
    held_file = imported(tmp_path, "gate")
    cut = next(at for at, event in events_of(held_file) if isinstance(event, ProposalHeld))
    assert "held: policy changed: guard" in page_of(held_file, cut)
    assert "held: policy changed" not in page_of(held_file)


def events_of(file: Path) -> list[tuple[int, Any]]:
    with Realm.open_read_only(str(file)) as realm:
        return list(realm.events())


def page_of(file: Path, upto: int | None = None) -> str:
    with Realm.open_read_only(str(file)) as realm:
        size = realm.log.head().size if upto is None else upto
        return "".join(render(gather(realm.archive, Window(0, size), every=True)))


@pytest.mark.requirement("IC-audit")
def test_the_trace_of_a_value_ends_at_the_migration_and_names_who_adopted(file: Path) -> None:
    migrated = next(one.proposal_id for one in submitted(file) if one.migration is not None)
    with Realm.open_read_only(str(file)) as realm:
        text = json.dumps(trace_proposal(realm.archive, migrated).to_wire(), default=str)
    assert "domain.migrate" in text
    assert "olga" in text


STRICT = """
name = "strict"

[[rules]]
id = "nothing_passes"
verdict = "reject"
"""


@pytest.mark.requirement("CARD-policy", "CARD-replay")
def test_a_backtest_judges_no_migration(tmp_path: Path) -> None:
    """An adoption is approved by the operator; no policy could have ruled otherwise."""
    address, policy, mild = str(tmp_path / "w.db"), tmp_path / "strict.toml", tmp_path / "mild.toml"
    policy.write_text(STRICT)
    mild.write_text(STRICT.replace("strict", "mild").replace("reject", "approve"))
    with Realm.create(address, domain=first(), policies=[str(mild)]) as realm:
        realm.register("bot", "agent", binding={"kind": "policy_rules", "policy": "mild"})
        realm.act("bot", "add", {"by": 1})
    with Realm.open_to_adopt(address, domain=second(), policies=[str(mild)]) as realm:
        acted = realm.act("bot", "add", {"by": 1}).proposal_id
    running = Backtest(BacktestSetup(address, f"{MIGRATING}:SECOND", str(policy)), Workers(1))
    assert [line["proposalId"] for line in running.lines() if line["kind"] == "flip"] == [acted]
    assert running.counts["flips"] == 1
