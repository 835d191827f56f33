"""The governed examples, run as their README says: a shell script, agents in Python, a coding agent's command."""

from __future__ import annotations

import doctest
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import ROOT, Block, blocks
from worldprotocol import Realm
from worldprotocol.runs import read_verification
from worldprotocol.runs.command import confinement_support

GOVERNED = ROOT / "examples" / "governed"
SCRIPT, AGENT, CODING = (block for block in blocks(GOVERNED / "README.md") if block.language == "console")
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
WORKFLOW = Path("coding/project/.github/workflows/ci.yml")
MEND = """AGENT_HOME="$PWD/agent" sh govern-agent.sh python ../agent/pretend.py"""


class User:
    """Somebody who copied the examples and types commands there."""

    def __init__(self, folder: Path, *, confined: bool) -> None:
        self.folder = folder / "governed"
        self.confined = confined
        self.home = folder / "home"
        self.home.mkdir()
        shutil.copytree(GOVERNED, self.folder)
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("WORLD_")},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "100",
            **({} if confined else {"GOVERN": "--unconfined"}),
        }

    def follow(self, page: Block) -> None:
        """Type the commands of a block, and compare what they print and how they end."""
        folder = self.folder
        for shown in re.split(r"^\$ ", page.text, flags=re.MULTILINE)[1:]:
            command, _, wanted = shown.partition("\n")
            if command.startswith("cd "):
                folder = (folder / command.removeprefix("cd ")).resolve()
                continue
            told = re.search(r"# exit (\d+)$", command)
            code, said = self.types(command, folder)
            assert code == (int(told[1]) if told else 0), f"{command}: {said}"
            if self.confined or not told:  # unconfined it is found later, and told with another call
                assert doctest.OutputChecker().check_output(wanted, said, FLAGS), f"{command}: {said}"

    def types(self, command: str, folder: Path | None = None) -> tuple[int, str]:
        """Run one command line; returns its exit code and what it printed."""
        if not self.confined:
            command = command.replace("worldctl run ", "worldctl run --unconfined ")
        ran = subprocess.run(
            ["sh", "-c", command],
            cwd=folder or self.folder / "coding",
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            check=False,
        )
        return ran.returncode, ran.stdout

    def changed(self, place: str = "") -> set[str]:
        """Return the files below a place that are not as they were when they were copied, but for the engine's own."""
        found = set()
        for base in (GOVERNED, self.folder):
            found |= {path.relative_to(base) for path in (base / place).rglob("*") if path.is_file()}
        own = {"world.db", "last-run.json", ".klock", ".git", "__pycache__"}
        return {
            str(path.relative_to(place))
            for path in found
            if own.isdisjoint(path.parts) and content(GOVERNED / path) != content(self.folder / path)
        }


def content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


@pytest.fixture
def user(tmp_path: Path) -> User:
    """A user whose commands are confined where the kernel can."""
    return User(tmp_path, confined=confinement_support().why_not is None)


@pytest.fixture
def unconfined(tmp_path: Path) -> User:
    """A user who asks for nothing of the kind."""
    return User(tmp_path, confined=False)


@pytest.mark.requirement("KO-3", "KO-3.3", "KO-5.2")
@pytest.mark.slow
def test_a_shell_script_is_governed_as_the_page_says(user: User) -> None:
    user.follow(SCRIPT)
    notes = user.folder / "script" / "notes"
    assert (notes / "people.txt").read_text() == "ann\nbob\nsue\n"
    assert (notes / "todo.txt").read_text() == "call ann\nwater the plants\n"
    assert sorted(path.name for path in notes.iterdir()) == ["people.txt", "todo.txt"]


@pytest.mark.slow
def test_a_script_that_goes_too_far_leaves_what_it_declared_as_it_was(user: User) -> None:
    folder = user.folder / "script"
    assert user.types("python ../found.py", folder)[0] == 0
    code, _ = user.types("worldctl run --agent tidy --reads tidy.sh --writes notes/people.txt -- sh tidy.sh", folder)
    assert code == 120
    assert user.changed("script") == (set() if user.confined else {"notes/todo.txt"})


@pytest.mark.requirement("KO-3", "KO-3.3")
@pytest.mark.slow
def test_agents_in_python_are_governed_as_the_page_says(user: User) -> None:
    user.follow(AGENT)
    reports = user.folder / "agent" / "reports"
    assert json.loads((reports / "totals.json").read_text()) == {"milk": 5, "sugar": 1, "tea": 7}
    assert (reports / "best.txt").read_text() == "tea\n"
    diary = (reports / "diary.txt").read_text().splitlines()
    assert sorted(diary) == [f"{agent} {number}" for agent in ("ann", "bob") for number in range(3)]
    assert user.changed("agent") == {f"reports/{name}" for name in ("totals.json", "best.txt", "diary.txt")}


@pytest.mark.requirement("KO-3", "KO-3.3", "KO-4", "KO-5.2")
@pytest.mark.slow
def test_a_coding_agent_is_governed_as_the_page_says(user: User) -> None:
    user.follow(CODING)
    assert user.changed("coding/project/src") == {"greetings.py"}
    assert (user.folder / "coding/project/src/greetings.py").read_text().count('"Hello, "') == 1
    assert (content(user.folder / WORKFLOW) == content(GOVERNED / WORKFLOW)) is user.confined


@pytest.mark.slow
def test_where_nothing_confines_them_commands_are_judged_by_what_they_left(unconfined: User) -> None:
    unconfined.follow(SCRIPT)
    the_record_of_a_careless_agent(unconfined)


@pytest.mark.requirement("KO-4")
@pytest.mark.slow
def test_the_record_of_a_careless_agent_says_what_it_tried_and_what_was_given_back(user: User) -> None:
    the_record_of_a_careless_agent(user)


def the_record_of_a_careless_agent(user: User) -> None:
    assert user.types("python ../found.py")[0] == 0
    assert user.types(f"{MEND} --careless")[0] == 120
    assert user.changed("coding/project") == (set() if user.confined else {".github/workflows/ci.yml"})
    told = json.loads((user.folder / "coding" / "last-run.json").read_text())
    assert [one["resource"] for one in told["violations"]] == ["FILE:/.github/workflows/ci.yml"]
    given_back, *left = told["rollbacks"]
    assert "/src/greetings.py" in given_back["restored"]
    caches = {"/src/__pycache__", "/tests/__pycache__"}  # Python leaves them where the environment allows it
    assert set(given_back["removed"]) - caches == {"/src/notes.md"}
    assert [one["failed"][0].partition(" ")[0] for one in left] == [
        name for name in ["FILE:/.github/workflows/ci.yml"] if not user.confined
    ]
    with Realm.open_read_only(user.folder / "coding" / "world.db") as world:
        assert read_verification(world.archive, told["runId"]).to_wire() == told


@pytest.mark.slow
def test_a_coding_agent_reads_its_settings_and_remembers_at_home(user: User) -> None:
    settings, state = user.home / ".config/coding-agent", user.home / ".local/state/coding-agent"
    settings.mkdir(parents=True)
    state.mkdir(parents=True)
    (settings / "settings.txt").write_text("Hello\n")
    assert user.types("python ../found.py")[0] == 0
    assert user.types(MEND)[0] == 0
    assert (state / "last.txt").read_text() == "mended a greeting\n"


@pytest.mark.slow
def test_what_stands_at_home_beside_what_was_named_is_closed_to_a_coding_agent(user: User) -> None:
    (user.home / "secret.txt").write_text("key\n")
    assert user.types("python ../found.py")[0] == 0
    code, said = user.types('sh govern-agent.sh cat "$HOME/secret.txt"')
    assert (code, "key" in said) == ((120, False) if user.confined else (0, True))


@pytest.mark.slow
def test_git_looks_and_does_not_commit(user: User) -> None:
    me = "git -C project -c user.name=ann -c user.email=ann@example.org"
    assert user.types(f"git -C project init -q && {me} add . && {me} commit -qm first")[0] == 0
    assert user.types("python ../found.py")[0] == 0
    (user.folder / "coding/project/README.md").write_text("# Greetings\n")
    assert user.types("GOVERN=-q; export GOVERN; sh govern-agent.sh git status --short") == (0, " M README.md\n")
    code, _ = user.types("sh govern-agent.sh git -c user.name=x -c user.email=x@example.org commit -qam second")
    assert code == 120
    if user.confined:
        assert user.types("git -C project log --format=%s") == (0, "first\n")


@pytest.mark.slow
def test_every_run_of_a_coding_agent_is_a_session_of_its_own(user: User) -> None:
    assert user.types("python ../found.py")[0] == 0
    sessions = set()
    for _ in range(2):
        assert user.types("sh govern-agent.sh true")[0] == 0
        sessions.add(json.loads((user.folder / "coding" / "last-run.json").read_text())["sessionId"])
    assert len(sessions) == 2


@pytest.mark.slow
def test_founding_twice_changes_nothing(user: User) -> None:
    folder = user.folder / "script"
    first, second = (user.types("python ../found.py", folder) for _ in range(2))
    assert first == second == (0, "world.db holds the record of what is governed here.\n")
