"""The run of an allowed shell command: it runs what was allowed, once, under the leases of its call."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.agents.hooked import Claude, hooked, proposals
from tests.agents.test_claude_code_hooks import decided
from tests.agents.test_confined_commands import agent_of, hidden_writing, line_of, ran, started
from tests.agents.test_hooks_command import worldctl
from tests.cli.realm import environment
from tests.server.served import Served
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.slow

WITHOUT_NAMESPACES = str(Path(__file__).parent.parent / "cli" / "without_namespaces.py")

COMMANDS = """
[[agents.commands]]
words = ["bash", "build.sh"]
writes = ["dist/**"]

[[agents.commands]]
words = ["bash", "fetch.sh"]
hosts = ["registry.example:443"]
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with hooked(tmp_path_factory.mktemp("called"), "wait_s = 0", confined=True, commands=COMMANDS) as running:
        yield running


def given_up(agent: Claude, call_id: str) -> None:
    """Say that a call is not made."""
    answer = agent.event("PermissionDenied", tool_name="Bash", tool_input={}, tool_use_id=call_id, reason="no")
    assert answer.status_code == 200, answer.text


def last(served: Served) -> dict[str, Any]:
    with served.client("ann") as client:
        return client.get(f"/v1/realms/main/proposals/{proposals(served)[-1]['proposalId']}").json()


def leases(served: Served) -> list[Any]:
    with served.client("ann") as client:
        return client.get("/v1/realms/main/leases").json()["leases"]


def result_of(served: Served) -> dict[str, Any]:
    """Return the recorded result of the last call."""
    with served.place.realm() as realm:
        [*_, found] = [one for _, one in realm.events() if one.TOPIC == "effect.fulfilled"]
    return dict(msgspec.to_builtins(found.result))


def test_the_next_call_begins_in_the_folder_in_which_the_last_one_ended(served: Served) -> None:
    agent = agent_of(served, "folder")
    assert ran(agent, "cd src && ls", then="; pwd")[:2] == (0, f"app.py\nlib.py\n{agent.project}/src\n")
    assert ran(agent, "cd src; exit 3", then='; echo "$?"; pwd')[1] == f"3\n{agent.project}/src\n"
    assert ran(agent, "ls src >/dev/null", then="; pwd")[1] == f"{agent.project}\n"
    line, call_id = line_of(agent, "echo x")
    given_up(agent, call_id)
    assert "cat" not in line  # these words leave the folder as it is


def test_a_command_leads_its_agents_shell_to_no_folder_outside_of_the_workspace(served: Served) -> None:
    agent = agent_of(served, "folder outside")
    code, out, err = ran(
        agent, f"cd src; ln -s {agent.project}/../realm $TMPDIR/.folder; for i in 1; do cd /usr; done", then="; pwd"
    )
    assert (code, out) == (0, f"{agent.project}\n"), err


def test_the_shell_is_that_of_the_agent(served: Served) -> None:
    agent = agent_of(served, "bash")
    assert ran(agent, "[[ -f src/app.py ]] && a=(1 2) && echo ${#a[@]}")[:2] == (0, "2\n")


def test_the_effect_is_completed_by_the_run_and_what_the_agent_says_changes_nothing(served: Served) -> None:
    agent = agent_of(served, "effect")
    line, call_id = line_of(agent, "echo made > src/made.txt; exit 4")
    process = started(agent, line)
    process.communicate()
    assert process.returncode == 4
    first = last(served)
    assert first["status"] == "completed"
    assert leases(served) == []
    found = result_of(served)["value"]
    assert (found["exitCode"], found["changed"]) == (4, ["FILE:/src/made.txt"])
    assert found["heldBy"][0].startswith("namespaces")
    agent.after(call_id, "Bash", "done")
    assert last(served) == first


def test_another_text_is_not_run_and_the_allowed_one_still_is(served: Served) -> None:
    agent = agent_of(served, "differs")
    line, call_id = line_of(agent, "echo allowed")
    process = started(agent, line.replace("echo allowed", "echo other"))
    out, err = process.communicate()
    assert (process.returncode, out) == (125, "")
    assert "CALL_DIFFERS" in err
    unconfined = started(agent, line.replace(" -- bash", " --unconfined -- bash"))
    out, err = unconfined.communicate()
    assert (unconfined.returncode, out, "CALL_DIFFERS" in err) == (125, "", True)
    process = started(agent, line)
    out, err = process.communicate()
    assert (process.returncode, out) == (0, "allowed\n"), err
    agent.after(call_id, "Bash")


def test_a_call_is_run_once(served: Served) -> None:
    agent = agent_of(served, "once")
    line, _ = line_of(agent, "echo x >> src/once.txt")
    codes = []
    for _ in range(2):
        process = started(agent, line)
        _, err = process.communicate()
        codes.append(process.returncode)
    assert codes == [0, 125]
    assert "CALL_NOT_OPEN" in err
    assert (agent.project / "src/once.txt").read_text() == "x\n"


def test_another_agent_cannot_run_it(served: Served) -> None:
    agent, other = agent_of(served, "mine"), agent_of(served, "mine", "other")
    line, call_id = line_of(agent, "echo x")
    process = started(other, line)
    _, err = process.communicate()
    assert (process.returncode, "CALL_NOT_OPEN" in err) == (125, True)
    given_up(agent, call_id)


def test_a_run_that_finds_less_than_its_proposal_states_runs_nothing(served: Served) -> None:
    agent = agent_of(served, "missing")
    line, _ = line_of(agent, "echo x > src/missing.txt")
    variables = environment() | {"WORLDCTL_TOKEN": served.place.tokens["claude"]}
    argv = [sys.executable, WITHOUT_NAMESPACES, "/bin/bash", "-c", line]
    done = subprocess.run(argv, cwd=agent.project, env=variables, capture_output=True, text=True, check=False)
    assert (done.returncode, "CONFINEMENT_MISSING" in done.stderr) == (125, True), done.stderr
    assert not (agent.project / "src/missing.txt").exists()
    assert last(served)["status"] == "failed"
    assert leases(served) == []


@pytest.mark.parametrize("boundary", ["none", "container"])
def test_a_boundary_that_an_agent_states_itself_confines_nothing(served: Served, boundary: str) -> None:
    agent = agent_of(served, f"states {boundary}")
    decision, _, _ = agent.before("Bash", command=f"echo {boundary} > src/own.txt")
    assert decision == "allow"
    given = dict(proposals(served)[-1]["intent"]["body"]["input"]) | {"boundary": boundary}
    agent.event("SessionEnd")
    key = f"states-{boundary}"
    with served.client("claude") as client:
        body = {"action": "command.run", "input": given}
        asked = client.post("/v1/realms/main/calls", json=body, headers={"Idempotency-Key": key})
        assert asked.json()["answer"] == "allowed", asked.text
    words = ("--server", served.url, "run", "--realm", "main", "--call", key, "--", "bash", "-c", given["command"])
    done = worldctl(*words, WORLDCTL_TOKEN=served.place.tokens["claude"])
    assert (done.returncode, "CONFINEMENT_MISSING" in done.stderr) == (125, True), done
    assert not (agent.project / "src/own.txt").exists()


def test_the_operator_states_that_the_agents_are_in_a_container(tmp_path: Path) -> None:
    with hooked(tmp_path, 'wait_s = 0\nboundary = "container"', confined=True) as served:
        agent = agent_of(served, "contained")
        line, _ = line_of(agent, "echo x > src/contained.txt")
        variables = environment() | {"WORLDCTL_TOKEN": served.place.tokens["claude"]}
        argv = [sys.executable, WITHOUT_NAMESPACES, "/bin/bash", "-c", line]
        done = subprocess.run(argv, cwd=agent.project, env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert (agent.project / "src/contained.txt").read_text() == "x\n"
        given = last(served)["intent"]["body"]["input"]
        assert (given["boundary"], given["confined"], last(served)["status"]) == ("container", True, "completed")


def test_a_killed_run_ends_its_leases_and_its_command(served: Served) -> None:
    agent = agent_of(served, "killed")
    line, call_id = line_of(agent, "echo begun > src/begun.txt; sleep 600; echo late > src/late.txt")
    process = started(agent, f"exec {line}" if "; s=" not in line else line)
    end = time.monotonic() + PATIENCE_S
    while not (agent.project / "src/begun.txt").exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert leases(served)
    process.kill()
    process.communicate()
    agent.after(call_id, "Bash", "killed")
    while leases(served) and time.monotonic() < end:
        time.sleep(0.2)
    assert (leases(served), last(served)["status"]) == ([], "failed")
    assert not (agent.project / "src/late.txt").exists()
    found = [name for name in os.listdir("/proc") if name.isdecimal() and _sleeps(name)]
    assert found == []


AGENT = (
    "from subprocess import *; import sys, time; it = Popen(['sh', '-c', sys.argv[1]], stdout=PIPE); time.sleep(600)"
)
"""A program that runs a command, whose output it reads, in a shell."""


@pytest.mark.parametrize("how", ["killed", "output closed"])
def test_a_run_ends_with_its_caller_and_reports(served: Served, how: str) -> None:
    agent = agent_of(served, f"caller {how}")
    line, _ = line_of(agent, "echo begun > src/left.txt; sleep 611; echo late > src/late.txt")
    line = f"{line}; true"  # a shell is between
    caller: subprocess.Popen[Any]
    if how == "killed":
        words = [sys.executable, "-c", AGENT, line]
        variables = environment() | {"WORLDCTL_TOKEN": served.place.tokens[agent.actor]}
        caller = subprocess.Popen(words, cwd=agent.project, env=variables)
    else:
        caller = started(agent, line)
    end = time.monotonic() + PATIENCE_S
    while not (agent.project / "src/left.txt").exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert leases(served)
    if how == "killed":
        caller.kill()
    else:
        assert caller.stdout is not None
        caller.stdout.close()
    while leases(served) and time.monotonic() < end:
        time.sleep(0.05)
    ended = last(served)
    assert (leases(served), ended["status"], ended["error"]["code"]) == ([], "failed", "RUN_INTERRUPTED")
    assert "ended" in ended["error"]["message"]
    assert [name for name in os.listdir("/proc") if name.isdecimal() and _sleeps(name, b"611")] == []
    assert not (agent.project / "src/left.txt").exists()
    if caller.stderr is not None:
        caller.stderr.close()
    caller.wait(PATIENCE_S)


def _sleeps(pid: str, seconds: bytes = b"600") -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\x00" + seconds + b"\x00"
    except OSError:
        return False


def test_what_a_person_approved_unconfined_is_rewritten_too(served: Served) -> None:
    agent = agent_of(served, "unconfined")
    text = "curl --version >/dev/null; echo here > ../beside.txt"
    decision, _, _ = agent.before("Bash", command=text)
    assert decision == "deny"
    decided(served, "approve", "it may")
    line, call_id = line_of(agent, text)
    assert " --unconfined -- bash -c " in line
    process = started(agent, line)
    _, err = process.communicate()
    agent.after(call_id, "Bash")
    assert process.returncode == 0, err
    assert (agent.project.parent / "beside.txt").read_text() == "here\n"
    assert result_of(served)["value"]["heldBy"] == ["content"]


def test_files_with_secrets_are_empty_at_any_depth(served: Served) -> None:
    agent = agent_of(served, "hidden")
    for name in (".env", "src/deep/er/.Env.local", "src/deep/server.PEM"):
        (agent.project / name).parent.mkdir(parents=True, exist_ok=True)
        (agent.project / name).write_text("SECRET=1\n")
    (agent.project / "src/link.txt").unlink(missing_ok=True)
    (agent.project / "src/link.txt").symlink_to("../.env")
    text = "for f in $(find . -type f -o -type l); do cat $f; done; grep -rn SECRET . ; ls -a"
    code, out, err = ran(agent, text)
    assert ("SECRET" in out + err, ".env" in out) == (False, True), (code, out, err)
    assert ran(agent, "f=.en; f=${f}v; echo x > $f; rm -f $f; mv $f y")[0] != 0
    assert (agent.project / ".env").read_text() == "SECRET=1\n"


@pytest.mark.parametrize(
    "text",
    [
        "cp /bin/true mine; chmod u+s mine",
        "cp /bin/true mine; chmod 2755 mine",
        "install -m 4755 /bin/true mine",
        "python3 -c 'import os; os.close(os.open(\"mine\", os.O_CREAT | os.O_WRONLY, 0o4755))'",
        "python3 -c 'import os; os.mknod(\"mine\", 0o104755)'",
        "python3 -c 'import os; f = os.open(\".\", os.O_TMPFILE | os.O_RDWR, 0o700); os.fchmod(f, 0o6700)'",
    ],
)
def test_no_file_gets_the_rights_of_its_owner(served: Served, text: str) -> None:
    agent = agent_of(served, f"setuid {text}")
    code, _, err = ran(agent, text)
    assert code != 0, err
    path = agent.project / "mine"
    assert not path.exists() or path.stat().st_mode & 0o6000 == 0
    path.unlink(missing_ok=True)


def test_a_declared_command_writes_where_it_is_declared_and_is_widened_after_it_wrote_elsewhere(served: Served) -> None:
    agent = agent_of(served, "declared")
    (agent.project / "dist").mkdir(exist_ok=True)
    (agent.project / "build.sh").write_text('echo built > dist/out.txt\nif [ -n "$1" ]; then echo more > src/$1; fi\n')
    assert ran(agent, "bash build.sh")[0] == 0
    given = last(served)["intent"]["body"]["input"]
    assert (given["writes"], given["widened"], given["confined"]) == (["/dist/*"], False, True)
    (agent.project / "dist/out.txt").write_text("before\n")
    code, _, err = ran(agent, "bash build.sh more.txt")
    assert (code, last(served)["status"]) == (120, "failed"), err
    assert ((agent.project / "dist/out.txt").read_text(), (agent.project / "src/more.txt").exists()) == (
        "before\n",
        False,
    )
    assert ran(agent, "bash build.sh more.txt")[0] == 0
    given = last(served)["intent"]["body"]["input"]
    assert (given["writes"], given["widened"]) == (["/*"], True)
    assert (agent.project / "src/more.txt").read_text() == "more\n"


def test_a_declared_host_asks_until_a_command_has_a_way_out(served: Served) -> None:
    agent = agent_of(served, "hosts")
    (agent.project / "fetch.sh").write_text("true\n")
    agent.before("Bash", command="bash fetch.sh")
    given = last(served)["intent"]["body"]["input"]
    assert (given["confined"], given["hosts"]) == (False, ["registry.example:443"])


def test_a_violation_elsewhere_is_undone(served: Served) -> None:
    agent = agent_of(served, "violation")
    beside = hidden_writing(agent.project / "../elsewhere.txt")
    code, _, err = ran(agent, f"echo broken > src/app.py; {beside}")
    assert code == 120, err
    assert "broken" not in (agent.project / "src/app.py").read_text()
    assert last(served)["status"] == "failed"
