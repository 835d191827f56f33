"""Forms of commands that were read as harmless: none of them runs without confinement or a person."""

from __future__ import annotations

import os
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tables import for_each
from worldprotocol.agents.command_grammars import PROGRAMS, Grammar
from worldprotocol.agents.command_kinds import kinds_of
from worldprotocol.agents.command_terms import CommandTerms
from worldprotocol.agents.command_words import read_command
from worldprotocol.agents.intents import Intent, command, search
from worldprotocol.agents.project import Project

pytestmark = pytest.mark.requirement("WALL-words")

FORMS: Final[Mapping[str, list[str]]] = tomllib.loads(
    (Path(__file__).parent / "bypass_forms.toml").read_text(encoding="utf-8")
)
STRICT: Final = {"read", "test", "format"}
"""Kinds that each preset runs without a person, confined."""


def git(root: Path, *words: str) -> None:
    settings = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *settings, *words], cwd=root, check=True, capture_output=True)


def make_project(root: Path, secret: str) -> None:
    """Make a project with all that the forms name; hidden files have a text of their own."""
    for folder in ("src", ".claude", "sub", "deploy", "d/d/d", "nested"):
        (root / folder).mkdir(parents=True)
    for name in ("src/app.py", ".env", ".env.local", ".claude/settings.json", "deploy/server.pem", "list", "evil.toml"):
        (root / name).write_text(secret if ".env" in name else "x")
    (root / "secret").symlink_to(".env")
    git(root, "init", "-q", ".")
    git(root, "add", "src", ".claude")
    git(root, "commit", "-qm", "one")
    git(root, "init", "-q", "--bare", "evil")
    git(root / "nested", "init", "-q", ".")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    above = tmp_path_factory.mktemp("forms")
    root = above / "project"
    make_project(root, "x")
    (above / "claude.token").write_text("secret")
    (root / "d/d/d/top").symlink_to(root)
    return Project(root)


def ran(project: Project, text: str) -> Intent:
    return command(project, "Bash", text, str(project.root), terms=CommandTerms())


@for_each(("text"), [one for forms in FORMS.values() for one in forms])
def test_no_form_is_read_as_harmless(project: Project, text: str) -> None:
    found = ran(project, text).input
    is_harmless = set(found["kinds"]) <= STRICT and not (found["guarded"] or found["hidden"])
    assert not is_harmless, found


def test_the_list_is_long_and_says_nothing_twice() -> None:
    every = [one for forms in FORMS.values() for one in forms]
    assert len(every) >= 120
    assert len(set(every)) == len(every)


@for_each(
    "text",
    [
        "git status",
        "git diff HEAD~1 -- src",
        "git log --oneline -5",
        "git log -n 5 --stat",
        "git show HEAD:src/app.py",
        "git branch",
        "git branch --show-current",
        "git stash list",
        "ls -la src",
        "cat src/app.py | head -20",
        "cd src && ls -l .",
        "rg -n 'def x' src",
        "grep -rn x src",
        "grep -rn --include='*.py' x src",
        "find . -name '*.py' -not -path './d/*'",
        "sed -n '1,20p' src/app.py",
        "sed -e 's/[ab]/c/g' src/app.py",
        "timeout 60 pytest -q -x tests 2>&1 | tail -5",
        "python -m pytest -k 'a and b' --tb=short",
        "ruff check src && mypy --strict src",
        "ruff format src",
        "cargo test --all-features -- --nocapture",
        "tsc --noEmit -p tsconfig.json",
        "jq '.a | length' src/app.py",
        "wc -l src/*.py",
        "command -v node",
        "test -f src/app.py && echo 'yes $5'",
        "printf '%s\\n' a b",
        "date +%s",
        "date -d '-1 day' +%F",
        "env CI=1 pytest",
        "echo 'Fixes the größe — done'",
        "pytest -q 2>&1 >/dev/null </dev/null",
        "ls src 2>/dev/null >&2",
        "ls src >&-",
        "git diff HEAD~1 HEAD^:src/app.py",
        "grep -n 'https://example.com' src/app.py",
        "rg -n https://example.com src",
        "grep -n '=~0' src/app.py",
        "git diff --color-words",
        "git diff --color-words -- src",
        "git diff -U3",
        "git diff -U0 --unified=5 HEAD~1",
        "git diff -- '*.py'",
        "git diff -- 'src/*'",
        "git log -p -- 'src/**/*.py'",
        "git log --format=%h -n 3 --since '2 days'",
        "git grep -n x -- '*.py' ':!*.md'",
        "git show --format=%h HEAD^{tree} -- src",
        "git status -uno --porcelain",
        "head -n -5 src/app.py",
        "find . -mtime -7 -name '*.py' -newer src/app.py",
        "grep -e '->' src/app.py",
        "grep -n -A 3 -B3 --color=never x src/app.py",
        "rg -e --foo src",
        "pytest --cov -q",
        "pytest --cov=src -m 'not slow' tests",
        "od -c -w8 src/app.py",
        "diff src/app.py list",
        "diff -u src/app.py list",
        "strings src/app.py",
        "jq '.environment | .a_env' src/app.py",
        "cargo metadata --no-deps",
    ],
)
def test_everyday_commands_are_read_as_what_they_are(project: Project, text: str) -> None:
    found = ran(project, text).input
    assert set(found["kinds"]) <= STRICT, found
    assert not found["guarded"]
    assert not found["hidden"]


@pytest.mark.parametrize("version", ["2", "4"])
def test_git_is_unknown_where_it_enters_a_nested_repository(tmp_path: Path, version: str) -> None:
    project = Project(tmp_path)
    for folder in (tmp_path, nested := tmp_path / "nested"):
        folder.mkdir(exist_ok=True)
        git(folder, "init", "-q", ".")
    if version == "2":
        (tmp_path / "src").write_bytes(b"x" * 0o160000)  # as large as the mode of a nested repository
    else:
        (tmp_path / "src").touch()
    git(tmp_path, "add", "src")
    git(tmp_path, "update-index", "--index-version", version)
    assert ran(project, "git status").input["kinds"] == ["read"]
    git(nested, "commit", "-q", "--allow-empty", "-m", "one")
    git(tmp_path, "add", "nested")
    (hook := tmp_path / "hook").write_text("#!/bin/sh\ntouch $(dirname $0)/ran\n")
    hook.chmod(0o755)
    git(nested, "config", "core.fsmonitor", str(hook))
    git(tmp_path, "status")
    assert (tmp_path / "ran").exists()
    for text in ("git status", "git diff", "git diff --stat HEAD", "cd . && git status", "git describe --dirty"):
        assert "unknown" in ran(project, text).input["kinds"], text
    (tmp_path / "part").mkdir()
    assert "unknown" in ran(Project(tmp_path / "part"), "git status").input["kinds"]
    for text in ("git log -p", "git show HEAD", "git branch"):
        assert ran(project, text).input["kinds"] == ["read"], text


@for_each(
    ("text", "kind"),
    [
        ("timeout 9 git push", "push"),
        ("git -c a=b push", "push"),
        ("xargs git push", "push"),
        ("bash -c 'git push'", "push"),
        ("eval 'git reset --hard'", "discard"),
        ("sudo -u root rm x", "remove"),
        ("git checkout .", "discard"),
        ("git checkout src/app.py", "discard"),
        ("git checkout -f other", "discard"),
        ("git stash drop", "discard"),
        ("git branch -D x", "discard"),
        ("git worktree remove x", "discard"),
        ("npm ci", "install"),
        ("uv sync --frozen", "install"),
        ("npm install x", "network"),
        ("npm publish", "publish"),
        ("gh pr create", "publish"),
        ("docker run x", "container"),
        ("git commit -m x", "commit"),
        ("find . -exec git push ;", "push"),
        ("cat < /dev/tcp/example.com/80", "network"),
    ],
)
def test_the_kind_of_a_command_is_found_wherever_it_is(project: Project, text: str, kind: str) -> None:
    assert kind in ran(project, text).input["kinds"]


@pytest.mark.parametrize("text", ["coverage report -m", "cargo tree", "cargo metadata --no-deps", "cargo tree -d"])
def test_a_report_that_runs_code_of_the_project_is_no_reading(project: Project, text: str) -> None:
    assert ran(project, text).input["kinds"] == ["test"]


def test_a_digit_after_a_redirection_is_a_file(project: Project) -> None:
    assert ran(project, "cat < 2").input["touches"] == ["/2"]
    assert ran(project, "ls src 3< 4 >&2 2<&1").input["touches"] == ["/src", "/4"]


def test_an_address_is_no_file_that_is_recorded(project: Project) -> None:
    assert "/https:/example.com/x" not in ran(project, "curl https://example.com/x").input["touches"]


def test_a_change_of_branch_discards_nothing(project: Project) -> None:
    for text in ("git checkout main", "git checkout -b new", "git switch -c new"):
        assert "discard" not in ran(project, text).input["kinds"]
        assert "write" in ran(project, text).input["kinds"]


def words(path: str, grammar: Grammar) -> list[tuple[str, Grammar]]:
    below = [one for name, each in grammar.below.items() for one in words(f"{path} {name}", each)]
    return [(path, grammar), *below] if grammar.style != "first" or not grammar.below else below


EVERY: Final = [one for name, grammar in PROGRAMS.items() for one in words(name, grammar)]
WITH_OPTIONS: Final = [one for one in EVERY if one[1].style != "none"]


@st.composite
def commands(draw: st.DrawFn, among: list[tuple[str, Grammar]]) -> str:
    """Texts that a grammar lists: some of its options with values."""
    path, grammar = draw(st.sampled_from(among))
    chosen = draw(st.lists(st.sampled_from(sorted({*grammar.flags, *grammar.values}) or [""]), max_size=4))
    given_words = [f"{one} 1" if one in grammar.values else one for one in chosen if one and one not in "!()"]
    return " ".join([path, *given_words])


@given(
    commands(EVERY), st.sampled_from([*map(chr, range(9)), *map(chr, range(11, 32)), "\x7f", "\x85", "\xa0", "\u2003"])
)
def test_a_control_character_makes_a_text_unknown(text: str, sign: str) -> None:
    assert "unknown" in kinds_of(*read_command(f"{text}{sign}"))


@given(commands(WITH_OPTIONS), st.sampled_from(["--unlisted-option", "--unlisted=x", "-\u00e9", "-@x", "--x-"]))
def test_an_unlisted_option_makes_a_command_unknown(text: str, option: str) -> None:
    assert "unknown" in kinds_of(*read_command(f"{text} {option}"))
    program, _, rest = text.partition(" ")
    if not rest or rest[0] == "-":
        assert "unknown" in kinds_of(*read_command(f"{program} {option} {rest}"))


@given(
    st.sampled_from([(path, one) for path, g in WITH_OPTIONS for one in g.flags if len(one) > 5 and one[:2] == "--"])
)
def test_an_abbreviated_option_makes_a_command_unknown(listed: tuple[str, str]) -> None:
    path, option = listed
    grammar = dict(EVERY)[path]
    short = option[:-1]
    known = {*grammar.flags, *grammar.values, *grammar.optional}
    assert short in known or "unknown" in kinds_of(*read_command(f"{path} {short}"))


@for_each(
    ("folder", "patterns"),
    [
        ("", [".env"]),
        ("", [".ENV"]),
        ("", ["{a,.env}"]),
        ("", ["{a,{b,.en{v,w}}}"]),
        ("", ["**/.env*"]),
        ("deploy", []),
        ("deploy", ["*.pem"]),
        ("", ["**/*"]),
        ("", [".e?v"]),
        ("src", ["../.env"]),
        ("", ["{" + ",".join(f"a{one}" for one in range(300)) + "}"]),
        ("d/d/d/top", []),
        (".env", []),
        ("", [".e[^x]v"]),
        ("", ["**/.e[^x]v"]),
        ("", [".e[!x]v"]),
        ("", [".en[[:alpha:]]"]),
        ("", [".en[a-z]"]),
        ("", [".en{v}"]),
        ("", [".{env}"]),
        ("", ["{.e}nv"]),
        ("", [".en{u..w}"]),
        ("", [".en\\v"]),
        ("", ["\\.env"]),
        ("", [".e*[^x]"]),
        ("", ["*.pe[^x]"]),
        ("", ["*.pe[l-n]"]),
        ("", ["*.py,.env"]),
        ("", ["*.py .env"]),
        ("", ["*.py\t.env"]),
        ("", ["*.py, .env"]),
        ("", ["!*.py,.env"]),
        ("", ["{*.py, .env}"]),
        ("", ["x{a,.env,b}"]),
        ("", ["*.py", ".e[^x]v"]),
        ("", ["@(.env)"]),
        ("", [".en+(v)"]),
        ("", ["#x"]),
        ("", ["!!.env"]),
        ("", [":(icase).ENV"]),
        ("", [":/.env"]),
        ("", ["dep*"]),
        ("", ["deploy"]),
        ("", ["d*.pem"]),
        ("", ["src/../.e*"]),
        ("src", ["../*"]),
        ("", ["/"]),
        ("", ["'.env'"]),
    ],
)
def test_a_search_that_may_read_secrets_says_so(project: Project, folder: str, patterns: list[str]) -> None:
    assert search(project, "Grep", folder, str(project.root), patterns).input["hidden"] is True


def test_a_search_elsewhere_does_not(project: Project) -> None:
    for folder, patterns in (
        ("src", []),
        ("", ["*.py"]),
        ("", ["*.{py,toml}"]),
        ("", ["*.{js,mjs},*.py"]),
        ("", ["**/*.[jt]s", "*.[a-z0-9]"]),
        ("", ["*.py,*.toml *.md"]),
        ("", ["src/**/*.py", "./src/*", "src"]),
        ("", ["!.env", "*.py"]),
        ("", ["!.env,*.py"]),
    ):
        found = search(project, "Grep", folder, str(project.root), patterns).input
        assert (found["hidden"], found["guarded"]) == (False, False), patterns


def test_a_search_below_a_folder_that_a_pattern_names_absolutely_says_so(project: Project) -> None:
    for pattern in (f"{project.root}/deploy/*", f"{project.root}/dep*"):
        assert search(project, "Glob", "src", str(project.root), [pattern]).input["hidden"] is True


def test_a_search_that_tools_read_differently_may_name_guarded_files(project: Project) -> None:
    assert search(project, "Grep", "", str(project.root), [".cl[^x]ude/*"]).input["guarded"] is True


@pytest.mark.requirement("WALL-names")
def test_links_are_followed_before_the_folder_above_is_taken(project: Project) -> None:
    place = project.place("d/d/d/top/../claude.token", str(project.root))
    assert (place.is_inside, place.path) == (False, str(project.root.parent / "claude.token"))


@pytest.mark.requirement("WALL-names")
def test_more_links_than_the_kernel_follows_lead_nowhere_inside(project: Project) -> None:
    for number in range(60):
        link = project.root / f"src/link{number}"
        link.symlink_to(f"link{number + 1}" if number < 59 else project.root.parent / "claude.token")
    try:
        assert project.place("src/link0", str(project.root)).is_inside is False
    finally:
        for number in range(60):
            os.unlink(project.root / f"src/link{number}")
