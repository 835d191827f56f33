"""Scenarios that observe calls: what is declared, what a violation ends, what permissive mode amends, and backups."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from conformance.klis_observing import GIVEN_UP, ScratchWorkspace
from conformance.klis_scenario import LedgerScenario
from tests.support.tables import for_each


def observe(call: str, **more: Any) -> dict[str, Any]:
    return {"op": "observe", "t": 1_000, "agent": "a", "session": "s", "call": call, **more}


def declare(*triples: str) -> list[dict[str, str]]:
    return [dict(zip(("predicate", "resource", "to"), triple.split(), strict=False)) for triple in triples]


def acquire(predicate: str, resource: str, *, agent: str = "a", session: str = "s", **more: Any) -> dict[str, Any]:
    asked = {"op": "acquire", "t": 1_000, "agent": agent, "session": session, "ttl": 60_000}
    return {**asked, "predicate": predicate, "resource": resource, **more}


def run(*ops: dict[str, Any]) -> list[Any]:
    return list(LedgerScenario().run(list(ops)))


@pytest.mark.requirement("KO-3", "KO-3.1")
def test_a_violation_names_agent_attempt_and_declaration_in_the_words_of_the_protocol():
    [told] = run(observe("fs.writeFileSync('/etc/hosts')", declared=declare("CONSUMES FILE:/etc/hosts")))
    assert told["error"] == "ScopeViolationError"
    assert told["violation"].startswith("Agent attempted MUTATES on /etc/hosts but only declared CONSUMES.")
    assert "'a'" in told["violation"]


@pytest.mark.requirement("KO-3")
@for_each(
    ("declared", "call", "decision"),
    [
        ("MUTATES FILE:/a", "cat /a", "ALLOW"),
        ("PROVIDES FILE:/a", "cat /a", "ALLOW"),
        ("PROVIDES FILE:/a", "echo > /a", "ALLOW"),
        ("CONSUMES FILE:/a", "echo > /a", "BLOCK"),
        ("MUTATES FILE:/a", "rm /a", "BLOCK"),
        ("DELETES FILE:/a", "cat /a", "BLOCK"),
        ("CONSUMES FILE:/d/*", "cat /d/e/f", "ALLOW"),
        ("CONSUMES FILE:/d/*", "cat /de", "BLOCK"),
        ("CONSUMES FILE:/d", "cat /d/e", "BLOCK"),
        ("CONSUMES FILE:/d/*", "grep -r x /", "BLOCK"),
        ("DELETES FILE:/d", "rm -rf /d", "ALLOW"),
        ("DELETES FILE:/d/*", "rm -rf /d", "ALLOW"),
        ("RENAMES FILE:/a FILE:/b", "mv /a /b", "ALLOW"),
        ("RENAMES FILE:/a", "mv /a /b", "BLOCK"),
        ("CONSUMES URL:https://h/*", "GET https://h/x", "ALLOW"),
        ("CONSUMES URL:https://h/x", "nc h 443", "ALLOW"),
        ("CONSUMES URL:https://h/x", "nc h 80", "BLOCK"),
        ("CONSUMES URL:https://h/x", "POST https://h/x", "BLOCK"),
        ("PROVIDES PROCESS:make", "make all", "ALLOW"),
        ("MUTATES FILE:/*", "make all", "ALLOW"),
        ("CONSUMES FILE:/*", "make all", "BLOCK"),
        ("CONSUMES FILE:/x", "true", "ALLOW"),
    ],
)
def test_what_is_declared_decides(declared, call, decision):
    [told] = run(observe(call, declared=declare(declared)))
    assert told["decision"] == decision
    assert told["session"] == ("ACTIVE" if decision == "ALLOW" else "TERMINATED")


@pytest.mark.requirement("KO-3")
def test_who_declared_nothing_may_do_nothing():
    assert run(observe("cat /a"))[0]["decision"] == "BLOCK"
    assert run(observe("cat /a", declared=[]))[0]["decision"] == "BLOCK"


@pytest.mark.requirement("KO-3")
def test_of_a_line_with_several_commands_all_have_to_be_declared():
    declared = declare("CONSUMES FILE:/a")
    [told] = run(observe("cat /a > /b", declared=declared))
    assert told["decision"] == "BLOCK"
    assert told["observed"] == declare("CONSUMES FILE:/a", "MUTATES FILE:/b")


def test_a_declaration_is_remembered_until_the_next_one_and_leases_are_declared_too():
    told = run(
        observe("cat /a", declared=declare("CONSUMES FILE:/a")),
        observe("cat /a"),
        acquire("MUTATES", "FILE:/b"),
        observe("echo > /b"),
        observe("cat /a", declared=declare("CONSUMES FILE:/c")),
    )
    assert [one["decision"] for one in told if isinstance(one, dict)] == ["ALLOW", "ALLOW", "ALLOW", "BLOCK"]


@pytest.mark.requirement("KO-3.2a")
def test_the_first_violation_ends_a_strict_session_and_gives_back_its_leases():
    told = run(
        acquire("CONSUMES", "FILE:/b"),
        observe("cat /b"),
        observe("echo > /b"),
        observe("cat /b"),
        observe("true"),
        {"op": "active", "t": 1_001},
        observe("cat /b", session="t", declared=declare("CONSUMES FILE:/b")),
        acquire("MUTATES", "FILE:/b", agent="o", session="o"),
    )
    assert [told[1]["decision"], told[2]["decision"], told[3]["decision"], told[4]["decision"]] == [
        *["ALLOW", "BLOCK", "BLOCK", "BLOCK"]
    ]
    assert [one["session"] for one in told[1:5]] == ["ACTIVE", "TERMINATED", "TERMINATED", "TERMINATED"]
    assert told[5] == []
    assert told[6]["decision"] == "ALLOW"
    assert told[7] == "GRANTED"


@pytest.mark.requirement("KO-3.2b")
def test_permissive_mode_amends_the_scope_by_a_lease_where_nobody_is_in_the_way_and_says_what_it_gives_up():
    told = run(
        observe("echo > /b", declared=declare("CONSUMES FILE:/b"), mode="permissive"),
        {"op": "active", "t": 1_001},
        observe("echo > /b"),
        acquire("CONSUMES", "FILE:/b", agent="o", session="o"),
    )
    assert told[0]["decision"] == "ALLOW"
    assert told[0]["amended"] is True
    assert told[0]["warning"] == GIVEN_UP
    assert "deadlock" in GIVEN_UP
    assert told[1] == ["a/s MUTATES FILE:/b"]
    assert "amended" not in told[2]
    assert told[3] == "DIE"


@pytest.mark.requirement("KO-3.2b")
def test_permissive_mode_is_blocked_where_somebody_is_in_the_way_and_goes_on():
    told = run(
        acquire("CONSUMES", "FILE:/b", agent="o", session="o", priority_timestamp=1),
        observe("echo > /b", declared=declare("CONSUMES FILE:/b"), mode="permissive"),
        observe("cat /b"),
        observe("rm -rf /"),
        observe("echo > /b", mode="strict"),
        observe("cat /b", mode="permissive"),
    )
    assert [one["decision"] for one in told[1:]] == ["BLOCK", "ALLOW", "BLOCK", "BLOCK", "BLOCK"]
    assert [one["session"] for one in told[1:]] == ["ACTIVE", "ACTIVE", "ACTIVE", "TERMINATED", "TERMINATED"]


@pytest.mark.requirement("KO-7")
@pytest.mark.parametrize(
    ("predicate", "resource", "folder", "exists"),
    [
        ("DELETES", "FILE:/a", ".klock/backups/", True),
        ("MUTATES", "FILE:/a", ".klock/backups", True),
        ("MUTATES", "FILE:/d/*", ".klock/backups/", True),
        ("RENAMES", "FILE:/a", "/.klock/backups/", True),
        ("MUTATES", "FILE:/a", "elsewhere/", False),
        ("CONSUMES", "FILE:/a", ".klock/backups/", False),
        ("DELETES", "URL:https://h/x", ".klock/backups/", False),
    ],
)
def test_what_a_lease_lets_its_holder_change_was_backed_up_before(predicate, resource, folder, exists):
    ask = {"op": "backup_exists", "lease": "L", "dir": folder}
    release = {"op": "release", "t": 1_001, "lease": "L"}
    assert run(acquire(predicate, resource, **{"as": "L"}), ask, release, ask) == ["GRANTED", exists, True, exists]


@pytest.mark.requirement("KO-7")
def test_only_what_was_granted_is_backed_up_and_nothing_of_the_workspace_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    closed = []
    close = ScratchWorkspace.close

    def noted(self: ScratchWorkspace) -> None:
        closed.append(folders())
        close(self)

    monkeypatch.setattr(ScratchWorkspace, "close", noted)

    def folders() -> list[Path]:
        return [path for path in tmp_path.glob("klis-*/.klock/backups/**/*") if path.is_file()]

    told = run(
        acquire("CONSUMES", "FILE:/a", agent="o", session="o", **{"as": "C"}),
        acquire("MUTATES", "FILE:/a", **{"as": "L"}),
        acquire("MUTATES", "FILE:/b", **{"as": "M"}),
        *({"op": "backup_exists", "lease": name, "dir": ".klock/backups"} for name in ("C", "L", "M", "nobody")),
    )
    assert told == ["GRANTED", "WAIT", "GRANTED", False, False, True, False]
    assert len(closed) == 1
    assert closed[0]
    assert list(tmp_path.iterdir()) == []


@for_each(
    ("more", "code"),
    [
        ({"call": "rm 'a"}, "INVALID_CALL"),
        ({"call": ""}, "INVALID_SCENARIO"),
        ({"call": 5}, "INVALID_SCENARIO"),
        ({"mode": "lax"}, "INVALID_SCENARIO"),
        ({"mode": ["strict"]}, "INVALID_SCENARIO"),
        ({"cwd": "w"}, "INVALID_CALL"),
        ({"exists": "no"}, "INVALID_SCENARIO"),
        ({"declared": "FILE:/a"}, "INVALID_SCENARIO"),
        ({"declared": [5]}, "INVALID_SCENARIO"),
        ({"declared": [{"predicate": "WRITES", "resource": "FILE:/a"}]}, "INVALID_PREDICATE"),
        ({"declared": [{"predicate": "MUTATES", "resource": "a"}]}, "AMBIGUOUS_RESOURCE"),
        ({"declared": [{"predicate": "MUTATES"}]}, "MALFORMED_SCHEMA"),
        ({"agent": None}, "INVALID_SCENARIO"),
    ],
)
def test_an_observation_that_makes_no_sense_is_an_error_and_changes_nothing(more, code):
    first, second = run(observe("cat /a") | more, observe("cat /a", declared=declare("CONSUMES FILE:/a")))
    assert first["error"] == code
    assert first["message"]
    assert second["decision"] == "ALLOW"
