"""Adopting another schema migrates every branch in one commit, in the lineage, checked and undone by adopting again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from tests import second_implementation as second_one
from tests.pipeline.migrating import AddMore, AddText, asking, first, second, up
from world.audit.replay import replay
from world.audit.verify import verify
from world.core import Domain, load_domain, load_schema
from world.core.migrations import Misfit, misfits
from world.errors import RefusedError
from world.events.proposal_events import ProposalSubmitted, ProposalSuperseded
from world.events.realm_events import DomainAdopted, WorldSealed
from world.limits import Limits
from world.log import NewEvent, open_log
from world.model.canonical_json import canonical_bytes, read_json
from world.read_models.blame import blame
from worldprotocol import Realm
from worldprotocol.analysis.recheck.recheck import open_to_recheck, recheck
from worldprotocol.api.program_changes import plan_for
from worldprotocol.export.jsonl import export_log


def founded(address: str, **options: Any) -> Realm:
    realm = Realm.create(address, domain=first(), data={"names": ["ann", "bob"]}, policies=[asking], **options)
    realm.register("ann", "human", binding={"kind": "auto_approve"})
    realm.register("bot", "agent", binding={"kind": "policy_rules", "policy": "asking"})
    realm.act("ann", "add", {"by": 2})
    realm.create_branch("side")
    realm.act("ann", "add", {"by": 3})
    realm.create_branch("twin")
    return realm


def is_sound(realm: Realm) -> bool:
    report = verify(realm.log)
    export_log(realm.log, out := BytesIO())
    told = second_one.verify(out.getvalue().decode().splitlines(keepends=True))
    assert report.ok, report.findings
    assert report.index == "whole"
    assert told["sound"], told
    return True


def divergences(address: str, domain: Domain) -> tuple[set[str], dict[str, int]]:
    with open_to_recheck(address, domain=domain, policies=[asking]) as realm:
        done = recheck(realm, every=True)
    return {one.difference.code for one in done.divergences}, dict(done.steps)


@pytest.mark.requirement("WP-schema", "WP-lineage", "WP-world", "CARD-audit", "CARD-replay", "INV-SD2")
def test_an_adoption_migrates_every_branch_and_adopting_again_undoes_it(shared_log_url: str) -> None:
    with founded(shared_log_url) as realm:
        before = {name: branch.head for name, branch in realm.realm().branches.items()}
    with Realm.open_to_adopt(shared_log_url, domain=second(), by="olga") as realm:
        branches = realm.realm().branches
        assert realm.data() == {"total": 5, "people": {"ann": {"n": 0}, "bob": {"n": 1}}}
        assert realm.archive.state(branches["side"].head)["total"] == 2
        assert branches["main"].head == branches["twin"].head != branches["side"].head  # equal content is one world
        for name, head in before.items():
            sealed = realm.sealed(branches[name].head)
            assert (sealed.parent, sealed.schema_hash) == (head, second().schema.hash)
            maker = realm.proposal(sealed.created_by or "")
            assert (maker.status, maker.intent.body.type, maker.submitted.actor.kind) == (
                "completed",
                "domain.migrate",
                "system",
            )
            assert maker.intent.body.input["by"] == "olga"
        found = blame(realm.archive, "total", branches["main"].head)
        assert found.proposal is not None
        assert found.proposal.intent.body.type == "domain.migrate"
        assert "migration" not in realm.realm().bindings
        assert realm.act("ann", "add", {"by": 1}).status == "completed"
        assert is_sound(realm)
    with Realm.open_to_adopt(shared_log_url, domain=first(), policies=[asking]) as realm:
        assert realm.data() == {"count": 6, "names": ["ann", "bob"]}
        assert is_sound(realm)
        state = replay(realm.log)
        assert state.data["main"] == realm.data()
    for domain in (first(), second()):
        codes, steps = divergences(shared_log_url, domain)
        assert codes == {"CANNOT_RECHECK"}, codes
        assert steps["migrations"] == 6


@pytest.mark.requirement("WP-schema")
def test_without_a_fitting_migration_nothing_changes_and_every_place_is_listed(shared_log_url: str) -> None:
    with founded(shared_log_url) as realm:
        size = realm.log.head().size
    for domain, code in ((second(migrates=False), "DATA_DOES_NOT_FIT"), (second(wrong=True), "DATA_DOES_NOT_FIT")):
        with pytest.raises(RefusedError) as refused:
            Realm.open_to_adopt(shared_log_url, domain=domain)
        assert refused.value.code == code
        told = refused.value.details["branches"]
        assert [one["branch"] for one in told] == ["main", "side", "twin"]
        places = {place["path"] for place in told[0]["places"]}
        assert places == {"count", "names", "total", "people"}
        with Realm.open_read_only(shared_log_url) as realm:
            assert realm.log.head().size == size
            plan = plan_for(realm.archive, domain, Limits())
        assert not plan.is_possible
        assert plan.to_wire()["branches"] == told
    assert {place["path"] for place in told[0]["left"]} == {"total"}


@pytest.mark.requirement("WP-base", "WP-schema")
def test_a_branch_begins_only_at_a_world_that_obeys_the_schema_in_force(shared_log_url: str) -> None:
    with founded(shared_log_url) as realm:
        earlier = realm.branch("side").head
    with Realm.open_to_adopt(shared_log_url, domain=second()) as realm:
        with pytest.raises(RefusedError) as refused:
            realm.create_branch("old", earlier)
        assert refused.value.code == "DATA_DOES_NOT_FIT"
        realm.create_branch("new", realm.branch("side").head)


class Broken(Domain):
    """A domain whose migration is what the test gives."""


@pytest.mark.requirement("WP-schema")
@pytest.mark.parametrize("kind", ["raises", "nothing", "changing", "system"])
def test_a_migration_that_is_no_pure_function_is_refused(shared_log_url: str, kind: str) -> None:
    calls: list[int] = []

    def migrate(data: dict[str, Any]) -> Any:
        calls.append(1)
        if kind == "raises":
            raise ValueError("no")
        made = {"total": len(calls) if kind == "changing" else 0, "people": {}}
        return None if kind == "nothing" else {**made, "$host": {}} if kind == "system" else made

    domain = second(migrates=False)
    domain.migration("1.0.0")(migrate)
    with founded(shared_log_url) as realm:
        size = realm.log.head().size
    with pytest.raises(RefusedError) as refused:
        Realm.open_to_adopt(shared_log_url, domain=domain)
    assert refused.value.code == "MIGRATION_FAILED"
    assert (" failed: it returned different data for equal" in refused.value.message) is (kind == "changing")
    with Realm.open_read_only(shared_log_url) as realm:
        assert realm.log.head().size == size


PORTABLE: dict[str, Any] = {
    "id": "urn:test:tally",
    "version": "1.0.0",
    "state": {"fields": {"count": {"type": "number", "required": True, "default": 4}}},
    "computed": {"fields": {}},
    "actions": {"rest": {"flow": {"kind": "seq", "steps": []}}},
}
MOVED: dict[str, Any] = {
    **PORTABLE,
    "version": "2.0.0",
    "state": {"fields": {"total": {"type": "number", "required": True}, "unit": {"type": "string", "required": True}}},
}
READ = {"kind": "get", "path": "count"}
TWICE = {"kind": "add", "left": READ, "right": READ}
PATCHES = [
    {"op": "set", "path": "total", "expr": TWICE},
    {"op": "set", "path": "unit", "value": "pieces"},
    {"op": "unset", "path": "count"},
]


@pytest.mark.requirement("WP-schema")
def test_portable_domains_migrate_by_patches_which_are_no_part_of_the_schema(shared_log_url: str) -> None:
    old, new = load_domain(PORTABLE), load_domain({**MOVED, "migrations": {"1.0.0": PATCHES}})
    assert new.schema.hash == load_domain(MOVED).schema.hash
    Realm.create(shared_log_url, domain=old).close()
    with Realm.open_to_adopt(shared_log_url, domain=new) as realm:
        assert realm.data() == {"total": 8, "unit": "pieces"}
        (submitted,) = [one for _, one in realm.events() if isinstance(one, ProposalSubmitted)]
        assert (submitted.migration or "").startswith("patches-1:")
        assert is_sound(realm)
    assert divergences(shared_log_url, new) == (set(), {"migrations": 1})
    assert divergences(shared_log_url, load_domain(MOVED)) == ({"CODE_CHANGED"}, {"migrations": 1})
    faulty: list[Any] = [
        {"1": {}},
        {"1": [{"op": "set", "path": "x"}]},
        {"1": [{"op": "set", "path": "x", "expr": {}}]},
        [],
    ]
    for wrong in faulty:
        with pytest.raises(RefusedError) as refused:
            load_domain({**MOVED, "migrations": wrong})
        assert refused.value.code == "INVALID_SCHEMA"
        assert "$.migrations" in refused.value.message


@pytest.mark.requirement("WP-schema", "CARD-replay")
def test_a_recheck_runs_the_migration_again_and_finds_forged_results(tmp_path: Path) -> None:
    address, forged = str(tmp_path / "w.db"), str(tmp_path / "forged.db")
    founded(address).close()
    Realm.open_to_adopt(address, domain=second()).close()
    assert divergences(address, second())[0] == {"CANNOT_RECHECK"}
    assert "CODE_CHANGED" in divergences(address, second(migrates=False))[0]
    with Realm.open_read_only(address) as realm, open_log(forged, create=True) as log, log.write() as transaction:
        for logged in realm.log.read():
            state = read_json(logged.state)
            if logged.topic == ProposalSubmitted.TOPIC and "migration" in state:
                state = {**state, "migration": second().migration_from("1.0.0").identity}  # type: ignore[union-attr]
            if logged.topic == WorldSealed.TOPIC and state["schemaHash"] == second().schema.hash:
                state = {**state, "patches": [*state["patches"], {"op": "set", "path": "total", "value": 99}]}
            transaction.append([NewEvent(logged.stream, logged.topic, logged.schema_version, canonical_bytes(state))])
    Realm.open(forged, domain=second()).close()
    assert "EXECUTION_DIVERGED" in divergences(forged, second())[0]


@pytest.mark.requirement("WP-schema", "WP-epoch")
def test_undecided_proposals_are_superseded_with_the_reason(shared_log_url: str) -> None:
    with founded(shared_log_url) as realm:
        asked = realm.act("bot", "add", {"by": 1})
        assert asked.status == "evaluating"
    with Realm.open_to_adopt(shared_log_url, domain=second(), policies=[asking]) as realm:
        assert realm.proposal(asked.proposal_id).status == "superseded"
        (event,) = [one for _, one in realm.events() if isinstance(one, ProposalSuperseded)]
        assert (event.reason, event.successor) == ("version 2.0.0 of the domain was adopted", None)
        assert is_sound(realm)


@pytest.mark.requirement("WP-schema", "WP-epoch", "INT-6.1.2")
def test_proposals_that_still_fit_are_carried_over_and_judged_from_the_start(shared_log_url: str) -> None:
    with founded(shared_log_url) as realm:
        fits, gone = realm.act("bot", "add", {"by": 1}), realm.act("bot", "name", {"by": "eve"})
    with Realm.open_to_adopt(shared_log_url, domain=second(), policies=[asking], open_proposals="carry_over") as realm:
        told = {one.proposal_id: one for _, one in realm.events() if isinstance(one, ProposalSuperseded)}
        assert (told[gone.proposal_id].reason or "").endswith("it has no action 'name'")
        successor = realm.proposal(told[fits.proposal_id].successor or "")
        assert successor.status == "evaluating"
        assert successor.intent.body == fits.intent.body
        assert successor.intent.intent_id != fits.intent.intent_id
        assert successor.submitted.schema_hash == second().schema.hash
        assert realm.decide(successor.proposal_id, "approve", by="ann").status == "completed"
        assert is_sound(realm)


@pytest.mark.requirement("WP-schema")
def test_an_input_that_does_not_fit_any_more_is_not_carried_over(shared_log_url: str) -> None:
    with founded(shared_log_url) as realm:
        realm.act("bot", "add", {"by": 1})
    with Realm.open_to_adopt(
        shared_log_url, domain=second(more=AddText), policies=[asking], open_proposals="carry_over"
    ) as realm:
        (event,) = [one for _, one in realm.events() if isinstance(one, ProposalSuperseded)]
        assert event.successor is None
        assert "input.by" in (event.reason or "")


@pytest.mark.requirement("WP-schema")
def test_a_process_that_runs_the_old_domain_is_refused_and_sees_the_new_data(tmp_path: Path) -> None:
    address = str(tmp_path / "w.db")
    with founded(address) as old:
        Realm.open_to_adopt(address, domain=second()).close()
        with pytest.raises(RefusedError) as refused:
            old.act("ann", "add", {"by": 1})
        assert refused.value.code in ("SCHEMA_MISMATCH", "WRONG_SCHEMA")
        assert old.data()["total"] == 5


KILLED = """
import os, signal, sys
from tests.pipeline.migrating import second, up
from worldprotocol import Realm

calls = 0

def migrate(data):
    global calls
    calls += 1
    if calls == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return up(data)

domain = second(migrates=False)
domain.migration("1.0.0")(migrate)
Realm.open_to_adopt(sys.argv[1], domain=domain).close()
print("adopted", calls)
"""


@pytest.mark.requirement("WP-schema")
@pytest.mark.slow
def test_an_adoption_that_is_killed_at_any_branch_changes_nothing(tmp_path: Path) -> None:
    address = str(tmp_path / "w.db")
    with founded(address) as realm:
        size, heads = realm.log.head().size, {name: one.head for name, one in realm.realm().branches.items()}
    root = Path(__file__).resolve().parents[2]
    for number in (1, 3, 6, 7):  # two calls for each of three branches
        done = subprocess.run(
            [sys.executable, "-c", KILLED, address, str(number)],
            cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, check=False,
        )  # fmt: skip
        if number < 7:
            assert done.returncode == -signal.SIGKILL
            with Realm.open(address, domain=first(), policies=[asking]) as realm:
                assert realm.log.head().size == size
                assert {name: one.head for name, one in realm.realm().branches.items()} == heads
    assert done.returncode == 0, done.stderr
    with Realm.open(address, domain=second(), policies=[asking]) as realm:
        assert [type(one) for _, one in realm.events(size)].count(DomainAdopted) == 1
        assert all(realm.archive.state(one.head).get("total") for one in realm.realm().branches.values())
        assert is_sound(realm)


def test_hosts_members_are_kept_and_not_shown_to_a_migration() -> None:
    from world.core.migrations import migrated_patches
    from world.model.immutable_json import freeze
    from world.model.patch import apply_patches

    data = freeze({"count": 1, "names": [], "$host": {"x": 1}})
    migration = second().migration_from("1.0.0")
    assert migration is not None
    patches, left = migrated_patches(migration, second().schema, data)
    assert (left, apply_patches(data, patches)) == ([], {"$host": {"x": 1}, "total": 1, "people": {}})


def test_migrations_change_only_the_members_that_differ() -> None:
    from world.model.immutable_json import freeze

    domain = second(migrates=False)
    domain.migration("1.0.0")(
        lambda data: {"total": 1, "people": {**data["people"], "b": 2, "n": {"same": 1, "new": 3}}}
    )
    migration = domain.migration_from("1.0.0")
    assert migration is not None
    patches = migration.patches(freeze({"total": 1, "people": {"a": 1, "b": True, "n": {"same": 1, "gone": 0}}}))
    assert sorted((one.op, one.path) for one in patches) == [
        ("set", "people.b"),
        ("set", "people.n.new"),
        ("unset", "people.n.gone"),
    ]
    assert misfits(domain.schema, freeze({"total": 1, "people": {}})) == []
    told = {name: part for name, part in domain.schema.portable.items() if name != "hash"}
    by_fields = load_schema({**told, "state": {"fields": {"total": {"type": "number"}}}})
    assert misfits(by_fields, freeze({"total": "x"})) == [Misfit("total", "must be a finite number, not 'x'")]
    with pytest.raises(RefusedError) as refused:
        domain.migration("1.0.0")(up)
    assert refused.value.code == "DUPLICATE_NAME"
    assert issubclass(AddMore, BaseModel)
