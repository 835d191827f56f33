"""Names of the state that begin with ``$`` belong to the engine, and no write below them is lost without an error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pydantic import BaseModel

from tests.core.test_compute import domain, get, lit, put, run, seq
from world.core import ActionContext, Domain, Patch, merge, set_
from world.errors import RefusedError
from worldprotocol import Realm
from worldprotocol.analysis.recheck.recheck import recheck
from worldprotocol.cli.program import run as program

COUNT = {"count": {"type": "number", "default": 0}}
DECLARED = {**COUNT, "$x": {"type": "number", "default": 0}}


class Written(BaseModel):
    """What the action writes, and whether by a merge of the whole data."""

    value: int
    root: bool = False


def writing(fields: dict[str, Any] = COUNT) -> Domain:
    """A domain whose action writes ``$x``, at a path or by a merge of the whole data."""
    own = Domain("urn:example:own", version="1.0.0", state={"fields": fields})

    @own.action("write", version="1")
    def write(ctx: ActionContext, given: Written) -> list[Patch]:
        return [merge("", {"$x": given.value}) if given.root else set_("$x", given.value)]

    return own


@contextmanager
def rules_2() -> Iterator[None]:
    """The rules of a domain as they were before names that begin with ``$`` were refused."""
    with mock.patch("world.core.domain.RULES", 2), mock.patch("world.core.schema.RULES", 2):
        yield


def forked(world: Realm) -> list[str]:
    """Register an actor and write 1 and 2 on two branches from one world; return how the two proposals ended."""
    world.register("ada", "agent", binding={"kind": "auto_approve"})
    world.create_branch("other")
    return [
        world.act("ada", "write", {"value": value}, branch=name).status for value, name in ((1, "main"), (2, "other"))
    ]


def older(folder: Path, fields: dict[str, Any] = COUNT) -> Path:
    """Record a realm of an earlier version, in which two forks share a world though they wrote different values."""
    file = folder / "older.db"
    with rules_2():
        own = writing(fields)
        with Realm.create(str(file), domain=own) as world:
            assert forked(world) == ["completed", "completed"]
            assert world.branch("main").head == world.branch("other").head
    return file


@pytest.mark.requirement("WP-hash", "WP-world", "WP-dollar")
@pytest.mark.parametrize("root", [False, True])
def test_two_forks_that_write_an_unhashed_member_fail_instead_of_losing_one_write(root: bool, tmp_path: Path) -> None:
    with Realm.create(str(tmp_path / "own.db"), domain=writing()) as world:
        world.register("ada", "agent", binding={"kind": "auto_approve"})
        world.create_branch("other")
        for value, name in ((1, "main"), (2, "other")):
            done = world.act("ada", "write", {"value": value, "root": root}, branch=name)
            assert done.status == "failed"
            failure = done.error
            assert failure is not None
            assert "names that begin with $ belong to the engine" in failure.message
            assert world.data(world.branch(name).head) == {"count": 0}


@pytest.mark.requirement("CARD-replay", "WP-dollar")
def test_a_recheck_of_an_older_realm_reports_the_write_that_another_world_hid(tmp_path: Path) -> None:
    with Realm.open(str(older(tmp_path)), domain=writing()) as world:
        told = recheck(world, every=True)
        assert not told.ok
        found = [one.difference.message for one in told.divergences]
        assert len(found) == 1
        assert "what the patches make of '$x'" in found[0]


@pytest.mark.requirement("WP-dollar")
def test_a_world_with_a_new_unhashed_member_is_refused_where_no_other_check_did(tmp_path: Path) -> None:
    with (
        Realm.create(str(tmp_path / "own.db"), domain=writing()) as world,
        mock.patch("world.core.validate.written_own_name", return_value=None),
        mock.patch("world.core.schema.OWN_NAMES_RULES", 4),
    ):
        world.register("ada", "agent", binding={"kind": "auto_approve"})
        done = world.act("ada", "write", {"value": 1})
        failure = done.error
        assert (done.status, failure and failure.code) == ("failed", "INVALID_PATCH")
        assert failure is not None
        assert "no hash covers them" in failure.message
        assert world.data() == {"count": 0}


@pytest.mark.requirement("WP-dollar")
def test_an_older_realm_whose_state_declares_such_a_name_opens_and_goes_on_under_its_rules(tmp_path: Path) -> None:
    file = older(tmp_path, DECLARED)
    with Realm.open(str(file), domain=writing(DECLARED)) as world:
        assert world.act("ada", "write", {"value": 5}).status == "completed"
        assert world.data()["$x"] == 5
        before = world.log.head().size
        with pytest.raises(RefusedError) as refused:
            world.adopt_domain()
        assert refused.value.code == "INVALID_SCHEMA"
        assert world.log.head().size == before
        assert world.act("ada", "write", {"value": 6}).status == "completed"


def rules_told(file: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return what doctor finds about the version of the rules."""
    program(["--log", str(file), "--json", "doctor"])
    return [one["found"] for one in json.loads(capsys.readouterr().out)["checks"] if one["check"] == "rules"]


@pytest.mark.requirement("WP-dollar")
def test_doctor_names_a_realm_under_earlier_rules_until_it_adopts_its_domain_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = older(tmp_path)
    (told,) = rules_told(file, capsys)
    assert "version 2 of the rules" in told
    with Realm.open_to_adopt(str(file), domain=writing()) as world:
        assert world.act("ada", "write", {"value": 3}).status == "failed"
    assert rules_told(file, capsys) == []


@pytest.mark.requirement("WP-dollar")
def test_a_realm_with_such_a_domain_is_not_founded_and_leaves_no_file(tmp_path: Path) -> None:
    portable = {
        "id": "urn:example:own", "version": "1.0.0", "state": {"fields": DECLARED}, "computed": {"fields": {}},
        "actions": {},
    }  # fmt: skip
    named = tmp_path / "own.yaml"
    named.write_text(json.dumps(portable), encoding="utf-8")
    with rules_2():
        loaded = writing(DECLARED)
        assert loaded.take_form(loaded.schema.hash, 2)
    for given in (writing(DECLARED), loaded, named):
        with pytest.raises(RefusedError) as refused:
            Realm.create(str(tmp_path / "own.db"), domain=given)
        assert refused.value.code == "INVALID_SCHEMA"
        assert "$x" in refused.value.message
        assert list(tmp_path.glob("own.db*")) == []


def test_a_domain_with_faults_is_refused_when_a_realm_is_founded_or_opened_with_it(tmp_path: Path) -> None:
    faulty = writing()
    faulty.flow("broken", {"kind": "no such kind"})
    with pytest.raises(RefusedError, match="fault"):
        Realm.create(str(tmp_path / "other.db"), domain=faulty)
    with Realm.create(str(tmp_path / "own.db"), domain=writing()):
        pass
    with pytest.raises(RefusedError, match="fault"):
        Realm.open(str(tmp_path / "own.db"), domain=faulty)


@pytest.mark.requirement("IC-mel", "HC-flow")
def test_a_once_guard_runs_once_in_an_execution_and_leaves_no_mark_in_the_state() -> None:
    guards = "$mel.guards.intent"
    mark = {"kind": "object", "fields": {"a": get("meta.intentId")}}
    more = {"kind": "add", "left": get("count"), "right": lit(1)}
    steps = seq({"kind": "patch", "op": "merge", "path": guards, "value": mark}, put("count", more))
    condition = {"kind": "neq", "left": get(f"{guards}.a"), "right": get("meta.intentId")}
    once = {"kind": "if", "cond": condition, "then": steps}
    twice = seq({"kind": "call", "flow": "once"}, {"kind": "call", "flow": "once"})
    done = run(domain(once=once, go=twice))
    assert (done.status, [patch.path for patch in done.patches]) == ("complete", ["count"])
