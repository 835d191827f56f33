"""What the words of a command say: attacks on the reading of them, each of which must not look harmless."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tables import for_each
from worldprotocol.agents.command_kinds import kinds_of
from worldprotocol.agents.command_terms import CommandTerms
from worldprotocol.agents.command_words import read_command
from worldprotocol.agents.intents import Intent, command, delete, edit, patch, read, search
from worldprotocol.agents.project import Project

HARMLESS = {"read", "test", "format", "write"}
"""Kinds of what reads, tests, and changes the files that it names."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    root, realm = tmp_path / "project", tmp_path / "realm"
    for folder in (root / "src", root / ".claude", root / ".git/hooks", realm):
        folder.mkdir(parents=True)
    for name in ("src/app.py", ".env", "Dockerfile", ".claude/settings.json", ".git/config"):
        (root / name).write_text("x")
    for name in ("policy.toml", "world.db", "world.toml"):
        (realm / name).write_text("x")
    (root / "link").symlink_to(root / ".claude/settings.json")
    (root / "folder").symlink_to(realm)
    return Project(root, [realm / "policy.toml", realm / "world.db", realm / "world.toml"])


def ran(project: Project, text: str, *, is_confined: bool = False) -> Intent:
    return command(
        project, "Bash", text, str(project.root), terms=CommandTerms("namespaces" if is_confined else "none")
    )


@for_each(
    ("text", "kinds"),
    [
        ("git status", ["read"]),
        ("ls -la src | head -5 > /dev/null", ["read"]),
        ("cd src && grep -rn 'rm -rf' .", ["read"]),
        ("sed -n '1,20p' src/app.py", ["read"]),
        ("sed -i 's/a/b/g' src/app.py", ["read", "write"]),
        ("python -m pytest -q", ["test"]),
        ("CI=1 pytest -q 2>&1 | tail", ["read", "test"]),
        ("git add -A && git commit -m 'a; rm b'", ["commit"]),
        ("echo 'costs $5'", ["read"]),
        ("rm -rf build", ["remove"]),
        ("git push origin main", ["push"]),
        ("sudo ls", ["read", "privileged"]),
        ("curl https://example.com", ["network"]),
        ("make", ["code"]),
    ],
)
def test_kinds_of_ordinary_commands(text: str, kinds: list[str]) -> None:
    assert kinds_of(*read_command(text)) == kinds


@for_each(
    "text",
    [
        "git -c core.pager='sh -c x' log",
        "git log --output=x",
        "git grep -O'sh -c x' y",
        "git diff --ext-d",
        "git --exec-path=/tmp log",
        "git stash drop",
        "git branch -D main",
        "git worktree remove x",
        "PATH=. ls",
        "LD_PRELOAD=./x.so ls",
        "GIT_PAGER=x git log",
        "env -S 'rm -rf x' ls",
        "./ls",
        "bin/pytest",
        "/tmp/ls",
        "ls $(rm x)",
        "ls `rm x`",
        "ls <(rm x)",
        "cat <<X\n$(rm x)\nX",
        "ls\nrm x",
        "ls & rm x",
        "ls |& rm x",
        "ls||rm x",
        "r''m x",
        "\\rm x",
        '"rm" x',
        "r\\\nm x",
        "$'rm' x",
        "${x:-rm} y",
        "{rm,x}",
        "if true; then rm x; fi",
        "(rm x)",
        "! rm x",
        "eval rm",
        "source x",
        ". ./x",
        "exec rm x",
        "xargs rm",
        "xargs -I{} sh -c {}",
        "time rm x",
        "timeout 5 rm x",
        "nice -n 5 rm x",
        "find . -exec rm {} +",
        "find . -delete",
        "fd -x rm",
        "rg --pre=sh x",
        "sort --compress-program=sh x",
        "sed -n '1e rm x' f",
        "sed 's/a/b/e' f",
        "sed 's/a/b/;w x' f",
        "sed -f x f",
        "awk 'BEGIN{system(0)}'",
        "tar xf x --to-command=sh",
        "zip a b -TT 'sh -c x'",
        "less +!rm x",
        "date -s x",
        "nobody-knows-this",
        "ls 'x",
        "x" * 30_000,
        "",
    ],
)
def test_what_hides_in_a_command_is_not_harmless(text: str) -> None:
    assert not set(kinds_of(*read_command(text))) <= HARMLESS, kinds_of(*read_command(text))


@pytest.mark.parametrize(
    "text",
    [
        "echo x > .claude/settings.json",
        "echo x >> ./src/../.claude/settings.json",
        "tee .cl''aude/settings.json",
        "cp src/app.py .claude/",
        "cp src/settings.json .claude",
        "cd .claude && tee settings.json",
        "cd .claude; cd ..; tee .claude/settings.json",
        "tee .claude/sett*",
        "tee .c*/settings.json",
        "tee link",
        "tee .CLAUDE/settings.json",
        "tee folder/policy.toml",
        "mv folder x",
        "mv ../realm ../other",
        "mv -t /tmp ../realm",
        "mv ../project ../other",
        "sort src/app.py -o.claude/settings.json",
        "sort src/app.py --output=.claude/settings.json",
        "uniq src/app.py .claude/settings.json",
        "ln -s x .git/hooks/pre-push",
        "git -C .claude mv settings.json x",
        "mv .git x",
        "mv .claude x",
        "sqlite3 ../realm/world.db 'delete from x'",
        "python3 -c \"open('.claude/settings.json', 'w')\"",
        "cat > .codex/hooks.json",
        "cat > .gemini/settings.json",
        "cat > .cursor/hooks.json",
        "cat > ~/.claude/settings.json",
        "cat > .mcp.json",
        "touch .git/config",
    ],
)
def test_commands_that_name_what_governs_the_agent_are_guarded(project: Project, text: str) -> None:
    intent = ran(project, text)
    assert intent.input["guarded"] is True
    assert ran(project, text, is_confined=True).input["guarded"] is True


def test_reading_what_governs_the_agent_is_guarded_too(project: Project) -> None:
    assert ran(project, "cat .claude/settings.json").input["guarded"] is True
    assert ran(project, "git log -- .claude").input["guarded"] is True
    assert ran(project, "git log -- src").input["guarded"] is False
    assert ran(project, "mv src/app.py src/lib.py").input["guarded"] is False
    assert ran(project, "mv src/app.py .").input["guarded"] is False


@pytest.mark.parametrize(
    "text",
    [
        "cat ~/.ssh/config",
        "cat /etc/passwd",
        "cat < /etc/passwd",
        "cd / && cat etc/passwd",
        "cat ../beside",
        "cat folder/x",
    ],
)
def test_commands_that_name_files_outside_of_the_project_say_so(project: Project, text: str) -> None:
    (project.root.parent / "beside").write_text("x")
    (project.root / "folder" / "x").write_text("x")
    assert "outside" in ran(project, text).input["kinds"]


def test_the_files_that_a_command_names_are_recorded(project: Project) -> None:
    assert ran(project, "cat .env | tee src/*.py > Dockerfile").input["touches"] == [
        "/.env",
        "/src/*.py",
        "/src",
        "/src/app.py",
        "/Dockerfile",
    ]


def test_a_pattern_that_matches_too_much_is_not_understood(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ran(project, "cat src/*").input["kinds"] == ["read"]
    for number in range(30):
        (project.root / f"src/{number}").mkdir()
    monkeypatch.setattr("worldprotocol.agents.command_places.MOST_ENTRIES", 20)
    assert ran(project, "cat src/*/*/nothing").input["kinds"] == ["read", "unknown"]
    scanned: list[str] = []
    monkeypatch.setattr("os.scandir", lambda path: scanned.append(path))
    assert "outside" in ran(project, "cat /*/*/*/*/*/nothing").input["kinds"]
    assert scanned == []  # outside of the project nothing is searched


def test_a_confined_command_leases_what_it_may_change(project: Project) -> None:
    held = ran(project, "make", is_confined=True)
    assert (held.input["confined"], held.input["writes"]) == (True, ["/*"])
    reading = ran(project, "git status && ls", is_confined=True)
    assert (reading.input["confined"], reading.input["reads"], reading.input["writes"]) == (True, [], [])
    exclusive = ran(project, "git status && ls")  # unconfined, its words are no proof that it only reads
    assert (exclusive.input["confined"], exclusive.input["reads"], exclusive.input["writes"]) == (False, [], ["/*"])
    for boundary in ("namespaces", "none"):
        leased = command(project, "Bash", "ls", str(project.root), terms=CommandTerms(boundary, leases_reads=True))
        assert (leased.input["reads"], leased.input["writes"]) == (["/*"], [])
    outside = command(project, "Bash", "make", "/", terms=CommandTerms("namespaces"))
    assert outside.input["confined"] is False
    network = ran(project, "git push", is_confined=True)  # it cannot do its work confined
    assert (network.input["confined"], network.input["writes"]) == (False, ["/*"])


@pytest.mark.parametrize(
    "name", [".claude/settings.json", "link", ".CLAUDE/Settings.json", ".git/hooks/pre-push", "folder/policy.toml"]
)
def test_tools_that_name_what_governs_the_agent_are_guarded(project: Project, name: str) -> None:
    cwd = str(project.root)
    for intent in (edit(project, "Write", name, cwd, is_whole=True), delete(project, "Delete", name, cwd)):
        assert intent.input["guarded"] is True
    assert patch(project, "apply_patch", f"*** Begin Patch\n*** Add File: {name}\n+x", cwd).input["guarded"] is True
    moved = f"*** Begin Patch\n*** Update File: src/app.py\n*** Move to: {name}\n"
    assert patch(project, "apply_patch", moved, cwd).input["guarded"] is True


def test_a_patch_that_cannot_be_read_leases_everything(project: Project) -> None:
    for text in ("", "nonsense", "*** Begin Patch\n*** Update File: src\u2028/app.py\n"):
        intent = patch(project, "apply_patch", text, str(project.root))
        assert (intent.action, intent.input["writes"], intent.input["unclear"]) == ("file.patch", ["/*"], True)


def test_a_patch_names_what_it_changes_deletes_and_finds_outside(project: Project) -> None:
    text = "*** Begin Patch\n*** Update File: src/app.py\n*** Delete File: old.py\n"
    text += "*** Add File: /etc/x\n*** Add File: .env\n"
    found = patch(project, "apply_patch", text, str(project.root)).input
    assert (found["writes"], found["deletes"]) == (["/.env", "/src/app.py"], ["/old.py"])
    assert (found["outside"], found["unclear"], found["hidden"]) == (["/etc/x"], False, True)


def test_searches_beyond_the_project_are_outside(project: Project) -> None:
    cwd = str(project.root)
    for found in (
        search(project, "Glob", "", cwd, ["/etc/*"]),
        search(project, "Grep", "..", cwd),
        read(project, "Read", "/etc/passwd", cwd),
    ):
        assert found.action == "file.outside"
    assert search(project, "Glob", "", cwd, ["src/**/*.py"]).input["path"] == "/*"
