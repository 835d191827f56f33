"""Hooks of Claude Code: a call is judged and leased before it is made, and its result is recorded afterwards."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents.hooked import FILES, Claude, hooked, proposals, refusals
from tests.server.served import Served
from tests.support.patience import PATIENCE_S
from world.audit.verify import verify

pytestmark = pytest.mark.slow

APP = f"sha256-{hashlib.sha256(FILES['src/app.py'].encode()).hexdigest()}"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with hooked(tmp_path_factory.mktemp("agents")) as running:
        yield running


def last(served: Served) -> dict[str, Any]:
    return proposals(served)[-1]


def read(served: Served, name: str) -> dict[str, Any]:
    with served.client("ann") as client:
        return dict(client.get(f"/v1/realms/main/proposals/{name}").json())


def decided(served: Served, choice: str, reason: str) -> str:
    """Answer the only question in the inbox of ann; return its proposal."""
    with served.client("ann") as client:
        [asked] = client.get("/v1/realms/main/inbox").json()["inbox"]
        path = f"/v1/realms/main/proposals/{asked['proposalId']}:answer"
        answer = client.post(path, json={"choice": choice, "reason": reason, "shown": asked["shown"]})
        assert answer.status_code in (200, 202), answer.text
    return str(asked["proposalId"])


def asks_ann(served: Served) -> None:
    """Wait until ann is asked."""
    with (
        served.client("ann") as client,
        client.stream("GET", "/v1/realms/main/log/stream?types=proposal.judged") as lines,
    ):
        for line in lines.iter_lines():
            if line.startswith("data:") and client_inbox(served):
                return


def client_inbox(served: Served) -> list[Any]:
    with served.client("ann") as client:
        return list(client.get("/v1/realms/main/inbox").json()["inbox"])


def test_an_edit_is_allowed_leased_and_recorded(served: Served) -> None:
    agent = Claude(served, session="edits")
    decision, reason, told = agent.edit("src/app.py")
    assert decision == "allow"
    made = last(served)
    assert made["proposalId"] in reason
    assert (made["status"], made["intent"]["body"]["type"]) == ("executing", "file.edit")
    assert made["intent"]["body"]["input"] == {
        "path": "/src/app.py",
        "tool": "Edit",
        "guarded": False,
        "hidden": False,
        "content": APP,
    }
    with served.place.realm() as realm:
        [lease] = realm.realm().klis.leases.values()
    assert (lease.session.agent_id, str(lease.triple.predicate), lease.triple.resource.text) == (
        "claude",
        "MUTATES",
        "FILE:/src/app.py",
    )
    agent.after(told["id"], response={"filePath": "/src/app.py", "success": True})
    assert read(served, made["proposalId"])["status"] == "completed"
    with served.place.realm() as realm:
        assert not realm.realm().klis.leases
        assert verify(realm.log).ok


def test_a_result_whose_numbers_have_no_canonical_form_is_recorded(served: Served) -> None:
    agent = Claude(served, session="numbers")
    _, _, told = agent.edit("src/app.py")
    agent.after(told["id"], response={"inode": 2**60 + 1})
    assert last(served)["status"] == "completed"


def test_the_result_of_a_large_file_is_recorded(served: Served) -> None:
    agent = Claude(served, session="large")
    _, _, told = agent.edit("src/app.py")
    agent.after(told["id"], response={"originalFile": "x" * 3_000_000})  # beyond the limit of other servers
    assert last(served)["status"] == "completed"


def test_a_call_that_failed_fails(served: Served) -> None:
    agent = Claude(served, session="fails")
    _, _, told = agent.edit("src/app.py")
    agent.failed(told["id"], "String to replace not found in file.")
    ended = last(served)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "TOOL_FAILED")
    assert "String to replace not found" in ended["error"]["message"]


def test_a_repeated_event_is_one_call(served: Served) -> None:
    agent, before = Claude(served, session="repeats"), len(proposals(served))
    answers = {agent.edit("src/app.py", "toolu_1")[:2] for _ in range(3)}
    assert len(answers) == 1
    assert len(proposals(served)) == before + 1
    for _ in range(2):
        agent.after("toolu_1")
    assert last(served)["status"] == "completed"
    decision, reason, _ = agent.edit("src/app.py", "toolu_1")
    assert decision == "deny"
    assert "MADE_ALREADY" in reason
    assert len(proposals(served)) == before + 1


@pytest.mark.parametrize(
    ("tool", "given", "action", "predicate", "resource"),
    [
        ("Read", {"file_path": "src/app.py"}, "file.read", "CONSUMES", f"CONTENT:{APP}"),
        ("Edit", {"file_path": "src/app.py", "old_string": "1"}, "file.edit", "MUTATES", "FILE:/src/app.py"),
        ("Write", {"file_path": "src/new.py", "content": ""}, "file.create", "PROVIDES", "FILE:/src/new.py"),
        ("NotebookEdit", {"notebook_path": "a.ipynb"}, "file.create", "PROVIDES", "FILE:/a.ipynb"),
        ("Glob", {"pattern": "**/*.py"}, "file.read", "CONSUMES", "CONTENT:scan-"),
        ("Grep", {"pattern": "x", "path": "src"}, "file.read", "CONSUMES", "CONTENT:scan-"),
        (
            "WebFetch",
            {"url": "https://docs.python.org/3/", "prompt": "x"},
            "web.fetch",
            "CONSUMES",
            "URL:https://docs.python.org/3/",
        ),
        ("TodoWrite", {"todos": []}, "tool.use", None, None),
    ],
)
def test_each_tool_is_an_intent_and_leases_what_it_touches(
    served: Served, tool: str, given: dict[str, Any], action: str, predicate: str | None, resource: str | None
) -> None:
    agent = Claude(served, session=f"tools-{tool}-{action}-{predicate}")
    if "file_path" in given or "notebook_path" in given:
        name = "file_path" if "file_path" in given else "notebook_path"
        given = {**given, name: str(agent.project / given[name])}
    decision, reason, told = agent.before(tool, **given)
    assert decision == "allow", reason
    assert last(served)["intent"]["body"]["type"] == action
    with served.place.realm() as realm:
        leases = [(str(one.triple.predicate), one.triple.resource.text) for one in realm.realm().klis.leases.values()]
    found = [(one, name[: name.find("-") + 1] if ":scan-" in name else name) for one, name in leases]
    assert found == ([] if predicate is None else [(predicate, resource)])
    agent.after(told["id"], tool)
    assert last(served)["status"] == "completed"


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("Edit", {"file_path": ".claude/settings.json"}),
        ("Write", {"file_path": ".claude/hooks/evil.sh"}),
        ("Edit", {"file_path": "../realm/policy.toml"}),
        ("Write", {"file_path": "../realm/world.db"}),
        ("Write", {"file_path": "src/../.git/hooks/pre-commit"}),
        ("Bash", {"command": "echo '{}' > .claude/settings.json"}),
        ("Bash", {"command": "sqlite3 ../realm/world.db 'delete from x'"}),
    ],
)
def test_an_agent_does_not_change_what_governs_it(served: Served, tool: str, given: dict[str, Any]) -> None:
    agent = Claude(served, session="guarded")
    if "file_path" in given:
        given = {"file_path": str(agent.project / given["file_path"])}
    decision, reason, _ = agent.before(tool, **given)
    assert (decision, "REJECTED" in reason) == ("deny", True), reason
    assert "changed by people only" in reason


def test_a_link_in_the_project_is_judged_by_what_it_denotes(served: Served) -> None:
    agent = Claude(served, session="links")
    (agent.project / "innocent.py").symlink_to(served.place.folder / "policy.toml")
    decision, reason, _ = agent.edit("innocent.py")
    assert decision == "deny"
    assert "changed by people only" in reason


def test_an_escalation_waits_for_the_person_in_the_inbox(served: Served) -> None:
    agent, answers = Claude(served, session="asks"), []
    asking = threading.Thread(target=lambda: answers.append(agent.before("Bash", command="git push origin main")))
    asking.start()
    while not client_inbox(served):
        asking.join(0.05)
        assert not answers, answers
    name = decided(served, "approve", "go ahead")
    asking.join(PATIENCE_S)
    [(decision, reason, told)] = answers
    assert decision == "allow"
    assert name in reason
    agent.after(told["id"], "Bash")
    assert read(served, name)["status"] == "completed"


def test_what_a_person_rejects_is_denied_with_the_reason(served: Served) -> None:
    agent, answers = Claude(served, session="rejected"), []
    asking = threading.Thread(
        target=lambda: answers.append(agent.before("Read", file_path=str(agent.project / ".env")))
    )
    asking.start()
    while not client_inbox(served):
        asking.join(0.05)
    decided(served, "reject", "use the test settings")
    asking.join(PATIENCE_S)
    [(decision, reason, _)] = answers
    assert decision == "deny"
    assert "use the test settings" in reason


def test_actors_without_the_right_and_without_a_token_are_refused(served: Served) -> None:
    for actor, status in (("idle", 403), ("ann", 403), (None, 401)):
        answer = Claude(served, actor=actor or "", session="s").event if actor else None
        if answer is None:
            with served.client(None) as client:
                assert client.post("/v1/realms/main/hooks/claude-code", json={}).status_code == status
        else:
            given = {"tool_name": "Read", "tool_input": {"file_path": "/a"}, "tool_use_id": "t"}
            assert answer("PreToolUse", **given).status_code == status


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"hook_event_name": "PreToolUse"},
        {"hook_event_name": "PreToolUse", "session_id": "s", "cwd": "/", "tool_name": "Edit", "tool_use_id": "t"},
        {"hook_event_name": "PreToolUse", "session_id": "s", "cwd": "/", "tool_name": 1, "tool_use_id": "t"},
        {"hook_event_name": "PreToolUse", "session_id": "s", "tool_name": "Read", "tool_use_id": "t"},
        {"hook_event_name": "PostToolUse", "session_id": "s"},
    ],
)
def test_nonsense_is_no_success_so_that_the_call_is_blocked(served: Served, body: dict[str, Any]) -> None:
    before = len(proposals(served))
    with served.client("claude") as client:
        answer = client.post("/v1/realms/main/hooks/claude-code", json=body)
        assert answer.status_code == 400
        assert answer.json()["code"] == "INVALID_VALUE"
        unknown = client.post("/v1/realms/main/hooks/nobody", json=body)
        assert unknown.status_code == 400
    assert len(proposals(served)) == before


def test_other_events_have_no_meaning(served: Served) -> None:
    before = len(proposals(served))
    for name in ("SessionStart", "UserPromptSubmit", "Stop", "Notification", "PreCompact"):
        answer = Claude(served).event(name)
        assert (answer.status_code, answer.json()) == (200, {})
    assert len(proposals(served)) == before


def test_the_second_agent_on_a_file_is_held_until_the_first_is_done(served: Served) -> None:
    first, second = Claude(served, "claude", "holds"), Claude(served, "other", "waits")
    file, answers = first.project / "src/app.py", []
    file.write_text("x = 1\n")
    decision, _, begun = first.edit("src/app.py")
    assert decision == "allow"
    asking = threading.Thread(target=lambda: answers.append(second.edit("src/app.py")))
    asking.start()
    while not refusals(served, "other"):
        asking.join(0.2)
        assert not answers, answers  # its call is held
    file.write_text(file.read_text() + "y = 2\n")
    assert not answers
    first.after(begun["id"])
    asking.join(PATIENCE_S)
    [(decision, reason, told)] = answers
    assert decision == "allow", reason
    file.write_text(file.read_text() + "z = 3\n")
    second.after(told["id"])
    assert file.read_text() == "x = 1\ny = 2\nz = 3\n"
    with served.place.realm() as realm:
        assert not realm.realm().klis.leases


def test_two_agents_on_one_file_lose_no_update(tmp_path: Path) -> None:
    with hooked(tmp_path, "wait_s = 0") as served:
        first, second = Claude(served, "claude", "one"), Claude(served, "other", "two")
        decision, _, begun = first.edit("src/app.py")
        assert decision == "allow"
        decision, reason, _ = second.edit("src/app.py")
        assert decision == "deny"
        assert "claude holds MUTATES on /src/app.py since" in reason
        assert "repeat exactly this call later" in reason
        assert second.edit("src/lib.py")[0] == "allow"
        first.after(begun["id"])
        while (again := second.edit("src/app.py"))[0] == "deny":  # it died, and is retried by the realm
            assert "waits for" in again[1]
        second.after(again[2]["id"])
        with served.place.realm() as realm:
            assert verify(realm.log).ok
        edits = [one for one in proposals(served) if one["intent"]["body"]["input"]["path"] == "/src/app.py"]
        assert [(one["actor"]["actorId"], one["status"]) for one in edits] == [
            ("claude", "completed"),
            ("other", "completed"),
        ]


def test_an_answer_that_came_later_is_found_by_the_same_call(tmp_path: Path) -> None:
    with hooked(tmp_path, "wait_s = 0") as served:
        agent = Claude(served, session="later")
        decision, reason, _ = agent.before("Bash", command="git push")
        assert decision == "deny"
        assert "an answer of ann" in reason
        name = decided(served, "approve", "go")
        decision, reason, told = agent.before("Bash", command="git push")
        assert decision == "allow"
        assert name in reason
        assert len(proposals(served)) == 1
        agent.after(told["id"], "Bash")
        assert read(served, name)["status"] == "completed"
        assert agent.before("Bash", command="git push")[0] == "deny"  # each approval is for one call
        assert len(proposals(served)) == 2


def test_the_end_of_a_session_ends_its_calls_and_leases(tmp_path: Path) -> None:
    with hooked(tmp_path, "wait_s = 0") as served:
        agent, next_one = Claude(served, session="ends"), Claude(served, session="goes on")
        _, _, begun = agent.edit("src/app.py")
        agent.before("Bash", command="git push")
        _, _, other = next_one.edit("src/lib.py")
        assert len(client_inbox(served)) == 1
        assert agent.event("SessionEnd", reason="exit").json() == {}
        assert client_inbox(served) == []
        first, push, last_one = proposals(served)
        assert [one["status"] for one in (first, push, last_one)] == ["failed", "superseded", "executing"]
        assert first["error"]["code"] == "TOOL_OUTCOME_UNKNOWN"
        with served.place.realm() as realm:
            assert [one.triple.resource.text for one in realm.realm().klis.leases.values()] == ["FILE:/src/lib.py"]
        agent.after(begun["id"])  # too late, and no error
        next_one.after(other["id"])
        assert [one["status"] for one in proposals(served)] == ["failed", "superseded", "completed"]


def test_a_call_that_nobody_begins_is_cancelled(tmp_path: Path) -> None:
    with hooked(tmp_path, "wait_s = 0\nunclaimed_s = 1") as served:
        other, agent = Claude(served, "other", session="first"), Claude(served, session="gone")
        _, _, begun = other.edit("src/app.py")
        assert agent.edit("src/app.py")[0] == "deny"  # it waits for the file, and nobody comes back for it
        name = last(served)["proposalId"]
        other.after(begun["id"])
        with served.client("ann") as client:
            ended = client.get(f"/v1/realms/main/proposals/{name}?wait=60", timeout=PATIENCE_S).json()
        assert ended["status"] == "failed", json.dumps(ended)


def test_a_killed_server_forgets_nothing(tmp_path: Path) -> None:
    with hooked(tmp_path) as served:
        agent = Claude(served, session="crash")
        _, _, begun = agent.edit("src/app.py")
        served.process.kill()
        served.process.wait()
        place = served.place
    from tests.server.served import serving

    with serving(place) as again:
        agent.served = again
        assert agent.edit("src/app.py", begun["id"])[0] == "allow"  # the same call
        agent.after(begun["id"])
        assert [one["status"] for one in proposals(again)] == ["completed"]
