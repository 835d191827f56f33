"""Hooks of git: merges, and updates of shared branches, take leases on the paths that they change."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.hooked import Claude, hooked
from tests.agents.test_hooks_command import install, worldctl
from tests.cli.realm import environment
from tests.server.served import Served
from world.events.lease_events import VerdictGiven
from worldprotocol.agents.git_hooks import GitRepository, changed_by, hook_script, lacking

pytestmark = pytest.mark.slow

BRANCHES = ("main", "master")


def git(folder: Path, *words: str, check: bool = True, **variables: str) -> subprocess.CompletedProcess[str]:
    identity = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    for role in ("AUTHOR", "COMMITTER"):
        identity |= {f"GIT_{role}_NAME": "a", f"GIT_{role}_EMAIL": "a@example.com"}
    return subprocess.run(
        ["git", *words],
        cwd=folder,
        env=environment() | identity | variables,
        capture_output=True,
        text=True,
        check=check,
    )


def commit(folder: Path, **files: str) -> str:
    for name, text in files.items():
        (folder / name.replace("__", "/")).with_suffix(".py").write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "x")
    return git(folder, "rev-parse", "HEAD").stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository whose branch feature changes src/app.py and src/lib.py, and whose main has gone on."""
    folder = tmp_path / "repository"
    (folder / "src").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main", ".")
    commit(folder, src__app="1", src__lib="1", src__own="1")
    git(folder, "switch", "-qc", "feature")
    commit(folder, src__app="2", src__lib="2")
    git(folder, "switch", "-q", "main")
    commit(folder, src__own="2")
    return folder


def sha(folder: Path, name: str) -> str:
    return git(folder, "rev-parse", name).stdout.strip()


def test_a_merge_is_known_before_it_changes_a_file(repository: Path) -> None:
    head, other = sha(repository, "main"), sha(repository, "feature")
    line = f"{'0' * 40} {head} ORIG_HEAD"
    read = GitRepository(repository)
    changed = changed_by(read, "reference-transaction", [line], BRANCHES, {f"GITHEAD_{other}": "feature"})
    assert changed == ["FILE:/src/app.py", "FILE:/src/lib.py"]  # and not what main itself changed
    assert changed_by(read, "reference-transaction", [line], BRANCHES, {}) == []  # of a reset or a rebase


def test_updates_of_shared_branches_change_what_differs(repository: Path) -> None:
    head, other, first = sha(repository, "main"), sha(repository, "feature"), sha(repository, "main^")
    read, event = GitRepository(repository), "reference-transaction"

    def updated(before: str, after: str, name: str = "refs/heads/main") -> list[str]:
        return changed_by(read, event, [f"{before} {after} {name}"], BRANCHES, {})

    assert updated(head, other) == ["FILE:/src/app.py", "FILE:/src/lib.py", "FILE:/src/own.py"]
    assert updated(first, head) == []  # a commit
    assert updated("0" * 40, head) == []  # a new branch
    assert updated(head, "0" * 40) == ["FILE:/*"]
    assert updated(head, "1" * 40) == ["FILE:/*"]  # not known
    assert updated(head, other, "refs/heads/feature") == []
    assert updated(head, other, "refs/tags/main") == []
    pushed = [f"refs/heads/feature {other} refs/heads/main {head}"]
    assert changed_by(read, "pre-push", pushed, BRANCHES, {}) == updated(head, other)
    assert changed_by(read, "pre-push", [pushed[0].replace("heads/main", "heads/x")], BRANCHES, {}) == []
    assert changed_by(read, event, ["nonsense", ""], BRANCHES, {}) == []


def test_paths_that_no_resource_can_name_are_everything(repository: Path) -> None:
    before = sha(repository, "main")
    (repository / "a*b").write_text("x")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "x")
    (repository / "c").write_text("x")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "x")
    line = f"{before} {sha(repository, 'main')} refs/heads/main"
    assert changed_by(GitRepository(repository), "reference-transaction", [line], BRANCHES, {}) == ["FILE:/*"]


def test_what_the_agent_holds_already_is_not_asked_for() -> None:
    held = [
        {"predicate": "MUTATES", "resource": "FILE:/src/*"},
        {"predicate": "CONSUMES", "resource": "FILE:/docs/*"},
        {"predicate": "CONSUMES", "resource": "URL:https://example.com/"},
    ]
    wanted = ["FILE:/src/app.py", "FILE:/docs/a.md", "FILE:/b"]
    assert lacking(wanted, held) == ["FILE:/docs/a.md", "FILE:/b"]
    assert lacking(wanted, [{"predicate": "MUTATES", "resource": "FILE:/*"}]) == []


def test_a_hook_starts_nothing_for_other_references(repository: Path) -> None:
    script = repository / "hook"
    script.write_text(hook_script("reference-transaction", ["/nonexistent/worldctl"], ["--server", "x"], BRANCHES))
    for state, name, code in (
        ("prepared", "refs/heads/feature", 0),
        ("prepared", "refs/heads/mainly", 0),
        ("prepared", "refs/remotes/origin/main", 0),
        ("committed", "ORIG_HEAD", 0),
        ("preparing", "refs/heads/main", 0),
        ("prepared", "refs/heads/main", 1),  # as if worldctl were uninstalled: git gives up
        ("prepared", "ORIG_HEAD", 1),
        ("committed", "refs/remotes/origin/main", 1),
    ):
        line = f"{'0' * 40} {'1' * 40} {name}"
        done = subprocess.run(["sh", str(script), state], input=line, text=True, check=False, capture_output=True)
        assert done.returncode == code, (state, name)


def test_a_hook_asks_for_nothing_in_a_run_which_has_its_leases(repository: Path) -> None:
    script = repository / "hook"
    script.write_text(hook_script("reference-transaction", ["/nonexistent/worldctl"], ["--server", "x"], BRANCHES))
    line = f"{'0' * 40} {'1' * 40} refs/heads/main"
    for variables, code in (({"WORLDPROTOCOL_RUN": "run-1"}, 0), ({}, 1)):
        given = {**environment(), **variables}
        done = subprocess.run(
            ["sh", str(script), "prepared"], input=line, text=True, check=False, capture_output=True, env=given
        )
        assert done.returncode == code


def test_foreign_hooks_stay(served: Served, repository: Path) -> None:
    foreign = repository / ".git/hooks/pre-push"
    foreign.parent.mkdir(exist_ok=True)
    foreign.write_text("#!/bin/sh\n")
    done = install(served, "git", "--project", str(repository))
    assert (done.returncode != 0, "nothing was written" in done.stderr) == (True, True), done
    assert foreign.read_text() == "#!/bin/sh\n"
    assert not (foreign.parent / "reference-transaction").exists()
    assert install(served, "git", "--project", str(repository.parent)).returncode != 0


def test_a_dry_run_prints_the_hooks_and_writes_nothing(repository: Path) -> None:
    done = worldctl("hooks", "install", "git", "--project", str(repository), "--branch", "trunk", "--dry-run")
    assert done.stdout.count("#!/bin/sh\n") == 2
    assert "--branch trunk" in done.stdout
    assert not (repository / ".git/hooks/pre-push").exists()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with hooked(tmp_path_factory.mktemp("git"), "wait_s = 0") as running:
        yield running


def leased(served: Served, agent: str) -> list[str]:
    """Return what was leased to sessions of git of an agent, and check that all of it was given back."""
    with served.place.realm() as realm:
        events = [event for _, event in realm.events()]
        assert not [one for one in realm.realm().klis.leases.values() if one.session.session_id.startswith("git-")]
    granted = [one for one in events if isinstance(one, VerdictGiven) and one.session_id.startswith("git-")]
    return sorted({lease.resource for one in granted if one.agent_id == agent for lease in one.leases})


def test_merges_wait_for_the_files_that_others_edit(served: Served, tmp_path: Path) -> None:
    project, other = served.place.folder.parent / "project", Claude(served, "other", "edits")
    git(project, "init", "-q", "-b", "main", ".")
    commit(project, src__app="x = 1\n")
    git(project, "switch", "-qc", "feature")
    commit(project, src__app="x = 2\n")
    git(project, "switch", "-q", "main")
    place = ("--project", str(project))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    assert install(served, "git", *place, PATH=path).returncode == 0
    assert "reference-transaction" in worldctl("hooks", "status", *place).stdout
    text = (project / ".git/hooks/reference-transaction").read_text()
    hook = project / ".git/hooks/reference-transaction"
    hook.write_text(text.replace(" hooks git ", " hooks git --wait 0 "))

    given = {"PATH": path, "WORLDCTL_TOKEN": served.place.tokens["claude"]}
    unknown = git(project, "merge", "feature", check=False, PATH=path)
    assert (unknown.returncode != 0, "SIGN_IN_REQUIRED" in unknown.stderr) == (True, True), unknown.stderr

    decision, _, edit = other.edit("src/app.py")
    assert decision == "allow"
    refused = git(project, "merge", "feature", check=False, **given)
    assert refused.returncode != 0
    assert "'other' holds MUTATES on FILE:/src/app.py" in refused.stderr, refused.stderr
    assert (project / "src/app.py").read_text() == "x = 1\n"  # nothing was changed
    assert git(project, "status", "--porcelain", "-uno").stdout == ""

    other.after(edit["id"])
    hook.write_text(text)
    merged = git(project, "merge", "feature", check=False, **given)
    assert merged.returncode == 0, merged.stderr
    assert (project / "src/app.py").read_text() == "x = 2\n"
    assert leased(served, "claude") == ["FILE:/src/app.py"]

    remote = tmp_path / "remote.git"
    git(tmp_path, "init", "-q", "--bare", str(remote))
    git(project, "remote", "add", "origin", str(remote))
    assert git(project, "push", "-q", "origin", "feature:main", check=False, **given).returncode == 0
    assert leased(served, "claude") == ["FILE:/*", "FILE:/src/app.py"]  # a branch that is new there
    assert worldctl("hooks", "uninstall", "git", *place).returncode == 0
    assert not hook.exists()
