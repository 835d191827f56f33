"""With ``confine = true`` shell commands run under ``worldctl run``: the kernel holds what their words do not say."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.hooked import Claude, hooked, proposals
from tests.agents.test_hooks_command import install
from tests.cli.realm import environment
from tests.server.served import Served

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with hooked(tmp_path_factory.mktemp("confined"), "wait_s = 0", confined=True) as running:
        yield running


def agent_of(served: Served, session: str, actor: str = "claude") -> Claude:
    return Claude(served, actor, session, is_rewritten=True)


def line_of(agent: Claude, command: str) -> tuple[str, str]:
    """Ask whether a command may run; return the command line that the answer says, and the id of the call."""
    decision, reason, answer = agent.before("Bash", command=command, description="x")
    assert decision == "allow", reason
    given = answer["updatedInput"]
    assert given["description"] == "x"
    assert f" --server {agent.served.url} run --realm main --call claude-code:" in given["command"]
    return str(given["command"]), str(answer["id"])


def started(agent: Claude, line: str, folder: Path | None = None) -> subprocess.Popen[str]:
    """Start a command line in the shell of the agent."""
    variables = environment() | {"WORLDCTL_TOKEN": agent.served.place.tokens[agent.actor]}
    return subprocess.Popen(
        ["bash", "-c", line],
        cwd=folder or agent.project,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ran(agent: Claude, command: str, then: str = "") -> tuple[int, str, str]:
    """Run a command as the answer says, and report it: exit code, and what it printed."""
    line, call_id = line_of(agent, command)
    process = started(agent, line + then)
    out, err = process.communicate()
    agent.after(call_id, "Bash", {"stdout": out, "stderr": err})
    return process.returncode, out, err


def test_a_command_changes_the_project_under_leases_of_its_own(served: Served) -> None:
    agent = agent_of(served, "ordinary")
    assert ran(agent, "echo hi > src/made.txt && cat src/made.txt")[:2] == (0, "hi\n")
    assert (agent.project / "src/made.txt").read_text() == "hi\n"
    call = proposals(served)[-1]
    assert (call["intent"]["body"]["type"], call["status"]) == ("command.run", "completed")
    assert call["intent"]["body"]["input"]["confined"] is True
    assert ran(agent, hidden_writing(agent.project / "src/hidden.txt"))[0] == 0
    assert (agent.project / "src/hidden.txt").read_text() == "evil\n"


def test_a_command_that_fails_keeps_what_it_changed_but_not_after_a_violation(served: Served) -> None:
    agent = agent_of(served, "failing")
    assert ran(agent, "echo fixed > src/fixed.txt; exit 3")[0] == 3  # such as a linter that mends what it reports
    assert (agent.project / "src/fixed.txt").read_text() == "fixed\n"
    beside = hidden_writing(agent.project / "../beside.txt")
    assert ran(agent, f"echo broken > src/fixed.txt; {beside}")[0] == 120
    assert (agent.project / "src/fixed.txt").read_text() == "fixed\n"


def test_git_works_with_its_hooks(served: Served) -> None:
    agent = agent_of(served, "git")
    subprocess.run(["git", "init", "-q", "-b", "main", "."], cwd=agent.project, check=True)
    installed = install(served, "git", "--project", str(agent.project))
    assert installed.returncode == 0, installed.stderr
    who = "git -c user.name=a -c user.email=a@example.com"
    code, out, err = ran(
        agent, f"git add -A && {who} commit -qm one && {who} commit -q --allow-empty -m two && git log"
    )
    assert (code, out.count("Author:")) == (0, 2), err


def hidden_writing(path: Path) -> str:
    """Return a command that appends to a file whose name is not among its words."""
    escaped = "".join(f"\\0{ord(sign):03o}" for sign in str(path))
    return f"p=$(printf '%b' '{escaped}'); mkdir -p ${{p%/*}}; echo evil >> $p"


@pytest.mark.parametrize(
    "target",
    [
        "{project}/.claude/settings.json",
        "{project}/.git/hooks/pre-push",
        "{project}/.codex/hooks.json",
        "{realm}/policy.toml",
        "{realm}/world.db",
        "{realm}/token",
        "{project}/../beside.txt",
    ],
)
def test_what_its_words_do_not_say_is_held_by_the_kernel(served: Served, target: str) -> None:
    agent = agent_of(served, f"attacks {target}")
    (agent.project / ".claude").mkdir(exist_ok=True)
    (agent.project / ".git/hooks").mkdir(parents=True, exist_ok=True)
    for name in (".claude/settings.json", ".git/hooks/pre-push"):
        (agent.project / name).write_text("{}")
    (served.place.folder / "token").write_text(served.place.tokens["claude"])
    path = Path(target.format(project=agent.project, realm=served.place.folder))
    before = path.read_bytes() if path.exists() and path.name != "world.db" else None
    code, _, err = ran(agent, hidden_writing(path))
    assert code != 0, err
    if path.name == "world.db":
        assert b"evil" not in path.read_bytes()
    else:
        assert (path.read_bytes() if path.exists() else None) == before, err


def test_a_command_sees_no_token(served: Served) -> None:
    agent = agent_of(served, "token")
    (served.place.folder / "token").write_text(served.place.tokens["claude"])
    for command in ("set", "cat /proc/*/environ", f"cat {served.place.folder}/token"):
        code, out, err = ran(agent, command)
        assert served.place.tokens["claude"] not in out + err
        assert (code == 0) is (command == "set"), err


def test_a_command_reaches_no_network(served: Served) -> None:
    agent = agent_of(served, "network")
    code, out, _ = ran(
        agent, f"python3 -c 'import urllib.request as u; print(u.urlopen(\"{served.url}/health\").status)'"
    )
    assert (code == 0, out) == (False, "")


def test_a_command_waits_for_a_file_that_another_agent_edits(served: Served) -> None:
    first, second = agent_of(served, "first", "other"), agent_of(served, "second")
    decision, _, edit = first.edit("src/app.py")
    assert decision == "allow"
    decision, reason, _ = second.before("Bash", command="echo 'z = 3' >> src/app.py", description="x")
    assert (decision, "Not yet" in reason) == ("deny", True)
    (first.project / "src/app.py").write_text("x = 2\n")
    first.after(edit["id"])
    while second.before("Bash", command="echo 'z = 3' >> src/app.py", description="x")[0] != "allow":
        pass  # it continues the proposal that waited, whose leases are granted after a while
    assert (first.project / "src/app.py").read_text() == "x = 2\n"


def test_a_command_that_nothing_confines_is_refused_where_commands_have_to_be_confined(served: Served) -> None:
    earlier = Claude(served, "claude", "earlier")  # its hooks do not say how they were installed
    decision, reason, _ = earlier.before("Bash", command="ls src", description="x")
    assert (decision, "CONFINEMENT_MISSING" in reason) == ("deny", True)
