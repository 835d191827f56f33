"""Over a server: reads wait for no command, and of interleaved writes of whole files none is lost."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.agents.hooked import Claude, hooked, proposals, refusals
from tests.agents.test_confined_commands import agent_of, line_of, started
from tests.plugins.forms import scaled
from tests.server.served import Served
from tests.support.patience import PATIENCE_S
from world.audit.verify import verify

pytestmark = pytest.mark.slow

DECLARED = """
[[agents.commands]]
words = ["bash", "test.sh"]
writes = ["dist/**"]
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = tmp_path_factory.mktemp("files")
    with hooked(made, "wait_s = 30", confined=True, commands=DECLARED) as running:
        yield running


def result_of(served: Served, proposal_id: str) -> dict[str, Any]:
    with served.place.realm() as realm:
        events = [one for _, one in realm.events() if one.TOPIC == "effect.fulfilled"]
    [found] = [one for one in events if one.proposal_id == proposal_id]
    return dict(msgspec.to_builtins(found.result.value))


def waiting_command(agent: Claude, words: str) -> tuple[Any, str]:
    """Start a command that ends when the project has a file ``go``; return its process and the id of its call."""
    (agent.project / "test.sh").write_text("echo begun > $TMPDIR/x; while [ ! -e go ]; do sleep 0.02; done\n")
    (agent.project / "go").unlink(missing_ok=True)
    before = begun(agent.served)
    line, call_id = line_of(agent, words)
    process = started(agent, line)
    end = time.monotonic() + PATIENCE_S
    while begun(agent.served) == before and time.monotonic() < end:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    return process, call_id


def begun(served: Served) -> int:
    """Return how many runs of commands have begun."""
    with served.place.realm() as realm:
        return sum(one.TOPIC == "effect.extended" for _, one in realm.events())


@pytest.mark.requirement("KO-5.1")
def test_reads_of_nine_agents_wait_for_no_command(served: Served) -> None:
    testing = agent_of(served, "testing")
    process, call_id = waiting_command(testing, "bash -c 'bash test.sh'")  # it may change the whole project
    readers = [Claude(served, "other", f"reads-{number}") for number in range(9)]

    def read(reader: Claude) -> None:
        for tool, given in (
            ("Read", {"file_path": str(reader.project / "src/app.py")}),
            ("Grep", {"pattern": "x", "path": str(reader.project / "src")}),
            ("Glob", {"pattern": "**/*.py"}),
        ):
            decision, reason, told = reader.before(tool, **given)
            assert decision == "allow", reason
            reader.after(told["id"], tool)

    with ThreadPoolExecutor(len(readers)) as pool:
        list(pool.map(read, readers))
    assert process.poll() is None  # all have read while the command ran
    assert refusals(served, "other") == []
    with served.place.realm() as realm:
        assert {one.triple.resource.text for one in realm.realm().klis.leases.values()} >= {"FILE:/*"}
    (testing.project / "go").touch()
    process.communicate(timeout=PATIENCE_S)
    testing.after(call_id, "Bash")


def test_what_others_changed_during_a_command_is_in_its_result(served: Served) -> None:
    testing, editing = agent_of(served, "declared"), Claude(served, "other", "edits")
    process, call_id = waiting_command(testing, "bash test.sh")
    name = proposals(served)[-1]["proposalId"]
    for path, text in ((editing.project / "src/app.py", "x = 2\n"), (editing.project / "go", "")):
        given = {"file_path": str(path), "old_string": "1", "new_string": "2"}
        decision, reason, told = editing.before("Edit", **given)
        assert decision == "allow", reason
        path.write_text(text)
        editing.after(told["id"])
    _, err = process.communicate(timeout=PATIENCE_S)
    testing.after(call_id, "Bash")
    assert process.returncode == 0, err
    assert result_of(served, name)["inputsChanged"] == ["FILE:/go", "FILE:/src/app.py"]
    assert "others changed meanwhile: FILE:/go, FILE:/src/app.py" in err  # the agent reads it with the output


def test_reads_take_leases_of_files_where_the_operator_says_so(tmp_path: Path) -> None:
    with hooked(tmp_path, 'wait_s = 0\nreads = "leased"') as served:
        first, second = Claude(served, "claude", "edits"), Claude(served, "other", "reads")
        _, _, editing = first.edit("src/app.py")
        path = str(first.project / "src/app.py")
        decision, reason, _ = second.before("Read", file_path=path)
        assert (decision, "claude holds MUTATES on /src/app.py" in reason) == ("deny", True), reason
        first.after(editing["id"])
        while (asked := second.before("Read", file_path=path))[0] != "allow":
            pass  # it continues the proposal that waited
        second.after(asked[2]["id"], "Read")
        assert second.before("Write", file_path=path, content="y")[0] == "allow"  # it was read


@dataclass
class Storm:
    """Agents that write one file whole, each from its own reading.

    Args:
        served: the server.
        name: the file.
        most: how many stale writes are tried.
    """

    served: Served
    name: str
    most: int
    stale: int = 0
    written: list[str] = field(default_factory=list)
    mutex: threading.Lock = field(default_factory=threading.Lock)

    def run(self, agent: Claude) -> None:
        """Read, wait a little, and write, until there were enough stale writes."""
        path, number, chance = agent.project / self.name, 0, random.Random(agent.session)
        while self.stale < self.most:
            decision, reason, told = agent.before("Read", file_path=str(path))
            assert decision == "allow", reason
            text = path.read_text()
            agent.after(told["id"], "Read")
            time.sleep(chance.random() / 50)
            line = f"{agent.session} {number}\n"
            decision, reason, told = agent.before("Write", file_path=str(path), content=text + line)
            if decision == "allow":
                path.write_text(text + line)
                agent.after(told["id"], "Write")
                number += 1
            with self.mutex:
                self.written += [line] if decision == "allow" else []
                self.stale += "STALE_READ" in reason
            is_known = any(one in reason for one in ("STALE_READ", "NOT_READ", "Not yet", "Allowed"))
            assert is_known, reason


def test_of_a_thousand_interleaved_stale_writes_none_loses_a_change(tmp_path: Path) -> None:
    with hooked(tmp_path, "wait_s = 30") as served:
        storm = Storm(served, "src/app.py", scaled(1_000, ci=20))
        agents = [Claude(served, ("claude", "other")[number % 2], f"agent-{number}") for number in range(8)]
        with ThreadPoolExecutor(len(agents)) as pool:
            list(pool.map(storm.run, agents))
        found = (agents[0].project / storm.name).read_text().splitlines(keepends=True)
        assert sorted(found) == sorted(["x = 1\n", *storm.written])
        assert storm.stale >= storm.most
        with served.place.realm() as realm:
            assert verify(realm.log).ok
            assert not realm.realm().klis.leases
