"""Hooks of git that take leases on the paths which a merge changes: ``reference-transaction`` and ``pre-push``.

A merge announces itself by ``ORIG_HEAD`` and the variables ``GITHEAD_*``, before it changes a file; an update of a
shared branch by its reference. The leases belong to the session of the git process and end with its transaction, or
with their time. Without leases the merge, the update or the push does not happen.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from world.errors import RefusedError
from world.klis.resources.resource import Resource
from world.klis.resources.resource_reading import read_resource

__all__ = ["ENDED", "EVENTS", "GitRepository", "changed_by", "hook_script", "is_own_script", "lacking"]

EVENTS: Final = ("reference-transaction", "pre-push")
MOST_PATHS: Final = 200
"""Paths that are leased one by one; for more, everything is leased."""

EVERYTHING: Final = "FILE:/*"
ENDED: Final = ("committed", "aborted")
"""States of a transaction of references that has ended."""

CHANGING: Final = frozenset({"MUTATES", "PROVIDES", "DELETES", "RENAMES"})
_MARK: Final = "# Leases while branches are merged: written by `worldctl hooks install git`."
_NO_COMMIT: Final = re.compile(r"0+")
_HEADS: Final = "refs/heads/"


class GitRepository:
    """A repository, read by the program ``git``.

    Args:
        folder: a folder in it.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = str(folder)

    def hooks(self) -> Path:
        """Return the folder of its hooks.

        Raises:
            OSError: git is not installed.
            subprocess.CalledProcessError: the folder is in no repository.
        """
        return (Path(self._folder) / self._read("rev-parse", "--git-path", "hooks").strip()).resolve()

    def is_bare(self) -> bool:
        """Whether it has no working tree."""
        return self._read("rev-parse", "--is-bare-repository").strip() == "true"

    def changed(self, before: str, after: str) -> list[str] | None:
        """Return the paths that differ between two commits; None where a commit is not known here."""
        try:
            return [
                one for one in self._read("diff", "--name-only", "--no-renames", "-z", before, after).split("\0") if one
            ]
        except subprocess.CalledProcessError:
            return None

    def base(self, one: str, other: str) -> str | None:
        """Return the best common ancestor of two commits; None where there is none."""
        try:
            return self._read("merge-base", one, other).strip()
        except subprocess.CalledProcessError:
            return None

    def parents(self, commit: str) -> list[str]:
        """Return the parents of a commit; empty where it is not known."""
        try:
            return self._read("rev-list", "--parents", "-n", "1", commit).split()[1:]
        except subprocess.CalledProcessError:
            return []

    def _read(self, *words: str) -> str:
        done = subprocess.run(
            ["git", *words],
            cwd=self._folder,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            check=True,
        )
        return done.stdout


def hook_script(event: str, program: Sequence[str], options: Sequence[str], branches: Sequence[str]) -> str:
    """Return the text of a hook: it starts ``worldctl`` for updates that may concern it only.

    Args:
        event: one of ``EVENTS``.
        program: the words that start ``worldctl``.
        options: its options: the server, the realm, the token.
        branches: names of the branches that are shared.
    """
    ends = [shlex.quote(f" {_HEADS}{one}") for one in branches]
    if event == EVENTS[0]:
        tracking = [f"' refs/remotes/'*{shlex.quote(f'/{one}')}" for one in branches]
        begun = [f'prepared*{one}"$end"*' for one in ("' ORIG_HEAD'", *ends)]
        named = [*begun, *(f'{state}*{one}"$end"*' for state in ENDED for one in (*ends, *tracking))]
    else:
        named = [f"*{one}' '*" for one in ends]
    shared = [word for one in branches for word in ("--branch", one)]
    words = shlex.join([*program, "hooks", "git", event, *options, *shared])
    lines = (
        "#!/bin/sh",
        _MARK,
        '[ -z "$WORLDPROTOCOL_RUN" ] || exit 0  # worldctl run has leases on what the command may change',
        "end='",
        "'",
        "updates=$(cat)",
        'case "$1 $updates$end" in',
        f"    {' | '.join(named)}) ;;",
        "    *) exit 0 ;;",
        "esac",
        f'printf \'%s\\n\' "$updates" | {words} --session "git-$(uname -n)-$PPID" "$1" || exit 1',
    )
    return "".join(f"{line}\n" for line in lines)


def is_own_script(text: str) -> bool:
    """Return whether a hook was written by ``hook_script``."""
    return _MARK in text


def changed_by(
    repository: GitRepository, event: str, updates: Iterable[str], branches: Sequence[str], variables: Mapping[str, str]
) -> list[str]:
    """Return the resources that updates of references change, as far as they merge something into a branch.

    Args:
        repository: the repository in which the hook runs.
        event: one of ``EVENTS``.
        updates: the lines that git gives to the hook.
        branches: names of the branches that are shared.
        variables: the environment of the hook.
    """
    found: list[str] = []
    shared = {f"{_HEADS}{one}" for one in branches}
    for line in updates:
        words = line.split()
        if event == "pre-push" and len(words) == 4 and words[2] in shared:
            found += _between(repository, words[3], words[1])
        elif event == EVENTS[0] and len(words) == 3 and line.endswith(" ORIG_HEAD"):
            for name in variables:
                if name.startswith("GITHEAD_"):
                    found += _merged(repository, words[1], name.removeprefix("GITHEAD_"))
        elif event == EVENTS[0] and len(words) == 3 and words[2] in shared and not _is_commit(repository, *words[:2]):
            found += _between(repository, words[0], words[1])
    return _resources(found)


def lacking(resources: Sequence[str], held: Iterable[Mapping[str, object]]) -> list[str]:
    """Return the resources on which an agent holds no lease for changes yet.

    Args:
        resources: what is to be changed.
        held: the leases in force of the agent, as ``RemoteDesk.held`` returns them.
    """
    own: list[Resource] = []
    for one in held:
        with suppress(RefusedError):  # of a type that is not known here
            if one["predicate"] in CHANGING:
                own.append(read_resource(str(one["resource"])))
    return [one for one in resources if not any(lease.covers(read_resource(one)) for lease in own)]


def _is_commit(repository: GitRepository, before: str, after: str) -> bool:
    """Whether an update is a new branch, or a commit in a working tree: nothing is merged by it."""
    if _NO_COMMIT.fullmatch(before):
        return True
    return not repository.is_bare() and repository.parents(after) == [before]


def _between(repository: GitRepository, before: str, after: str) -> list[str]:
    if _NO_COMMIT.fullmatch(before) or _NO_COMMIT.fullmatch(after):
        return [""]
    changed = repository.changed(before, after)
    return [""] if changed is None else changed


def _merged(repository: GitRepository, head: str, other: str) -> list[str]:
    base = repository.base(head, other)
    return [""] if base is None else _between(repository, base, other)


def _resources(paths: Iterable[str]) -> list[str]:
    """Return the resources of paths; the empty path, and paths that no resource can name, are everything."""
    named = sorted(set(paths))
    if len(named) > MOST_PATHS or "" in named or any(sign in one for one in named for sign in "*?[]"):
        return [EVERYTHING]
    try:
        return [read_resource(f"FILE:/{one}").text for one in named]
    except (RefusedError, UnicodeError):
        return [EVERYTHING]
