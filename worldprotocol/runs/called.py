"""``worldctl run --call``: the run of a shell command that a coding agent was allowed, under the leases of its call.

The server has the log, and says what is run and on which terms; backups and observation are on the machine of the
workspace, which is this one. The report of the run completes the effect of the call. Source: docs/agents.md.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from host.backups import Backups
from host.environment import HostEnvironment
from host.observation import RuntimePaths, Violation, Watch
from host.observation.audit import exempt
from host.workspace import Workspace
from host.workspace.scan import Scan, take
from world.clock import SystemClock
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.klis.observation import Declaration
from world.klis.predicate import Predicate
from world.klis.resources.names import NameComparison
from world.klis.resources.resource import Resource
from world.klis.resources.resource_reading import canonical_resource
from world.klis.triple import CHANGES, Triple
from world.private_files import open_private
from worldprotocol.agents.hooks.session_guard import MOVE, renew
from worldprotocol.runs.boundary import boundary_of
from worldprotocol.runs.call_folder import folder_file
from worldprotocol.runs.calling_process import watch_caller
from worldprotocol.runs.command import CommandResult, CommandRunOptions, run_command
from worldprotocol.runs.contents import ContentFindings, findings
from worldprotocol.runs.outcomes import Kind, Outcome

__all__ = ["CallServer", "CalledCommand", "run_call"]

INTERVAL_S: Final = 3.0
"""Time between two questions whether the run continues, in seconds."""

SILENT_S: Final = 12.0
"""Time without an answer of the server after which a run ends, in seconds: shorter than the server's own."""

REPORT_S: Final = 60.0
"""How long it is tried to report the end of a run, in seconds."""

KEPT_S: Final = 86_400.0
"""How long the file with the folder of a run is kept, in seconds."""

MAX_REPORTED: Final = 1_000
MAX_PATH: Final = 4_096
_FOLDER: Final = ".folder"
_REPORT_FOLDER: Final = f'trap "pwd -P >${{TMPDIR@Q}}/{_FOLDER} 2>/dev/null" EXIT'
"""What precedes the text in its shell: its last folder is written where this process reads it."""

_LOST: Final = "Its leases ended, or the server did not answer; another agent may be working there."
_LEFT: Final = "The process that called this run ended, so the command was ended, and its changes undone."
_CODES: Final = {"violated": "SCOPE_VIOLATION", "lost": "LEASE_LOST", "interrupted": "RUN_INTERRUPTED"}


class CallServer(Protocol):
    """The server that has the realm."""

    def send(self, operation: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to an operation on calls: ``run``, ``extend`` or ``end``.

        Raises:
            RefusedError: it was refused; ``LOG_UNAVAILABLE`` where there is no answer.
        """


@dataclass(frozen=True, slots=True)
class CalledCommand:
    """What ``worldctl run --call`` was given.

    Args:
        key: the key of the call.
        argv: the shell, ``-c`` and the text.
        is_unconfined: whether a person approved the text unconfined.
        token_file: file with the agent's token, which no confined command reads.
    """

    key: str
    argv: Sequence[str]
    is_unconfined: bool = False
    token_file: str | None = None

    @property
    def text(self) -> str:
        """The text that the shell runs."""
        return self.argv[-1]


def run_call(server: CallServer, command: CalledCommand) -> CommandResult:
    """Run the text of an allowed call, and report how it ended.

    Args:
        server: the server of the realm.
        command: what was given.

    Raises:
        RefusedError: ``CALL_DIFFERS``, ``CALL_NOT_OPEN``, ``CONFINEMENT_MISSING``, and what ``run_command`` refuses;
            nothing was run then.
    """
    if len(command.argv) != 3 or command.argv[1] != "-c":
        raise RefusedError(ErrorCode.CALL_DIFFERS, "A call is run by `-- SHELL -c TEXT`. Nothing was run.")
    terms = server.send(
        "run",
        {
            "key": command.key,
            "text": command.text,
            "boundary": boundary_of(),
            "isUnconfined": command.is_unconfined,
        },
    )
    run = _CalledRun(server, command, terms)
    try:
        with exempt():
            premises = _premises(terms, command.token_file)
        folder = _folder(terms, premises.workspace.root)
        return run.execute(premises, folder)
    except BaseException as error:
        run.report_refusal(error)
        raise


def _premises(terms: Mapping[str, Any], token_file: str | None) -> HostEnvironment:
    """Return the environment of the workspace that the server names."""
    given = terms["workspace"]
    names = NameComparison(bool(terms["ignoresCase"]), bool(terms["ignoresNormalForm"]))
    place = Workspace(given["root"], names=names)
    private = [*given["private"], *([] if token_file is None else [token_file])]
    paths = {name: given[name] for name in ("read", "write", "guarded")}
    return HostEnvironment(
        place,
        Backups(place, hard_links=given["hard_links"]),
        RuntimePaths.standard(**paths, private=private),
        given["unwatched"],
        namespaces_by=given["namespaces"],
        hidden=given["hidden"],
    )


def _folder(terms: Mapping[str, Any], root: Path) -> str:
    """Return the working directory of the command.

    Raises:
        RefusedError: ``CALL_DIFFERS`` where the process is in another folder than the one in which it was allowed.
    """
    inside = str(root) + ("" if terms["cwd"] == "/" else terms["cwd"])
    if terms["isConfined"]:
        return inside
    here = os.path.realpath(os.getcwd())
    if here not in (inside, terms["cwd"]):
        raise RefusedError(
            ErrorCode.CALL_DIFFERS, f"The command was allowed in {terms['cwd']}, and this is {here}. Nothing was run."
        )
    return here


class _CalledRun:
    """The run of a call; an ``ObservedRun`` whose record is the report to the server."""

    def __init__(self, server: CallServer, command: CalledCommand, terms: Mapping[str, Any]) -> None:
        self._server = server
        self._command = command
        self._terms = terms
        names = NameComparison(bool(terms["ignoresCase"]), bool(terms["ignoresNormalForm"]))
        triples = [
            Triple(Predicate(one["predicate"]), canonical_resource(one["resource"], names=names))
            for one in terms["scope"]
        ]
        self.run_id: str = terms["proposalId"]
        self.watch = Watch(Declaration(terms["agentId"], self.run_id, triples), on_violation=self._violated)
        self.not_given_back: list[str] = []
        self.lost: str | None = None
        self._has_caller = True
        self._backup: str | None = None
        self._stop: Callable[[str], None] = lambda _why: None
        self._cannot_reach: Callable[[bytes], bool] = lambda _: False
        self._held_by: Sequence[str] = ()
        self._before: Scan | None = None
        self._of_others: list[Resource] | None = None
        self._ended = threading.Event()
        self._is_reported = False
        self._premises: HostEnvironment

    def execute(self, premises: HostEnvironment, folder: str) -> CommandResult:
        """Run the command in a folder."""
        self._premises = premises
        shell, option, text = self._command.argv
        with suppress(OSError, RefusedError):  # the agent's shell then stays where it is
            self._record_folder(folder)
        is_weak = self._terms["boundary"] == "container" and boundary_of(premises.namespaces_by) == "none"
        options = CommandRunOptions(
            unconfined=not self._terms["isConfined"],
            cwd=folder,
            passes=() if self._changes() else ("GIT_OPTIONAL_LOCKS=0",),
            at_end=self._read_folder,
            as_possible=is_weak,
        )
        return run_command(self, premises, [shell, option, f"{_REPORT_FOLDER}\n{text}"], options)

    def _changes(self) -> list[Triple]:
        return [one for one in self.watch.declaration.triples if one.predicate in CHANGES]

    # The run, as ``run_command`` sees it

    def open(
        self,
        kind: Kind,
        *,
        stop: Callable[[str], None],
        held_by: Sequence[str],
        cannot_reach: Callable[[bytes], bool] = lambda _: False,
        command: Sequence[str] = (),
    ) -> None:
        """Back up what may change, unless the server did, scan the workspace, and ask from now on."""
        self._stop, self._held_by, self._cannot_reach = stop, list(held_by), cannot_reach
        with exempt():
            threading.Thread(target=self._look_after, name="worldprotocol-call", daemon=True).start()
            watch_caller(self._left, self._ended)
            changes = self._changes()
            if changes:
                self._backup = self._backed_up(changes)
                self._before = self._scan()

    def _backed_up(self, changes: Sequence[Triple]) -> str:
        known, premises = self._terms["backup"], self._premises
        if known is not None:
            with suppress(RefusedError):
                return premises.backups.get(known).backup_id
        name = f"call-{self.run_id}"
        note = {"agentId": self._terms["agentId"], "sessionId": self.run_id}
        premises.take(name, changes, at=SystemClock().now_ms(), note=note)
        return name

    def _scan(self) -> Scan:
        self._premises.workspace.make_private()
        cache = self._premises.workspace.private / "scan-cache"
        return take(self._premises.workspace, ignore=self._premises.is_unwatched, cache=cache, known=self._before)

    def was_there(self, path: bytes) -> bool:
        """Whether a path of the workspace existed before the run; True without a scan."""
        relative = self._premises.workspace.relative(path)
        return self._before is None or relative is None or relative in self._before

    def end(self, outcome: Outcome, *, exit_code: int | None = None, reason: str | None = None) -> Outcome:
        """Compare the content, undo a violation, and report the end, which ends the leases."""
        with exempt():
            found = self._compared()
            ended: Outcome = "lost" if self.lost is not None else "violated" if self.watch.violations else outcome
            if not self._has_caller and ended not in ("lost", "violated"):
                ended, reason = "interrupted", _LEFT
            if ended in ("violated", "interrupted"):
                self._undo(found)
            self._report(ended, exit_code, self.lost or reason, found)
            self._ended.set()
        return ended

    def _compared(self) -> ContentFindings:
        if self._before is None:
            return ContentFindings()

        def is_foreign(relative: bytes, resource: Resource) -> bool:
            return self._cannot_reach(relative) or self._is_of_another(resource)

        return findings(self._before, self._scan(), self.watch, self._premises.workspace, is_foreign)

    def _is_of_another(self, resource: Resource) -> bool:
        """Return whether another call changed a resource meanwhile, or may be changing it, as the server says."""
        if self._of_others is None:
            self._of_others = []
            with suppress(RefusedError):  # without an answer it counts as the command's
                answer = self._server.send("extend", {"key": self._command.key, "isEnding": True})
                self._of_others += map(canonical_resource, answer["inputsChanged"])
        return any(one.covers(resource) for one in self._of_others)

    def _undo(self, found: ContentFindings) -> None:
        if self._backup is not None:
            try:
                self.not_given_back += self._premises.restore(self._backup)["failed"]
            except (RefusedError, OSError) as error:
                self.not_given_back.append(str(error))
        for one in found.undeclared:
            name = self._premises.workspace.resource_at(one.relative).text
            self.not_given_back.append(f"{name} ({one.kind}): it was not leased; it was left as it is")

    # The server

    def _look_after(self) -> None:
        """Ask the server that holds the run whether it continues; without leases, or an answer, it ends."""
        heard = time.monotonic()
        goes_on, reached = True, heard

        def ask(operation: str, _: list[int]) -> dict[str, object] | None:
            nonlocal heard, goes_on
            try:
                moves = {"moves": True} if operation == MOVE else {}
                answer = self._server.send("extend", {"key": self._command.key} | moves)
            except Exception:  # noqa: BLE001  # no answer; after a time the leases may be another agent's
                return None
            heard, goes_on = time.monotonic(), bool(answer["goesOn"])
            return answer

        while not self._ended.wait(INTERVAL_S):
            reached = renew(ask, -1, reached) or reached
            if not goes_on or time.monotonic() - heard >= SILENT_S:
                self.lost = _LOST
                self._stop(_LOST)
                return

    def _left(self) -> None:
        """End the command, because its caller ended: the leases are for others."""
        self._has_caller = False
        self._stop(_LEFT)

    def _violated(self, violation: Violation) -> None:
        self._stop(violation.error.message)

    def report_refusal(self, error: BaseException) -> None:
        """Report why the command was not run, unless its end was reported; a failure is left to the server."""
        self._ended.set()
        if not self._is_reported:
            code = error.code if isinstance(error, RefusedError) else "RUN_INTERRUPTED"
            reason = error.message if isinstance(error, RefusedError) else f"{type(error).__name__}: {error}"
            with suppress(Exception):
                self._server.send("end", {"key": self._command.key, "code": str(code), "reason": reason[:10_000]})

    def _report(self, ended: Outcome, exit_code: int | None, reason: str | None, found: ContentFindings) -> None:
        observed, violations = self.watch.drain(final=True)
        changed = [self._premises.workspace.resource_at(one.relative).text for one in found.changes]
        body: dict[str, Any] = {
            "key": self._command.key,
            "exitCode": exit_code,
            "heldBy": list(self._held_by),
            "changed": changed[:MAX_REPORTED],
            "observed": [one.recorded().to_wire() for one in observed[:MAX_REPORTED]],
            "violations": [one.recorded().to_wire() for one in violations[:MAX_REPORTED]],
        }
        if ended in _CODES:
            why = violations[0].error.message if ended == "violated" else reason
            body |= {"code": _CODES[ended], "reason": (why or ended)[:10_000]}
            body["isWithin"] = bool(violations) and all(one.seen.resource.type == "FILE" for one in violations)
        self._is_reported = True
        end = time.monotonic() + REPORT_S
        while True:
            try:
                self._server.send("end", body)
                return
            except RefusedError as refused:
                if refused.code == ErrorCode.CALL_NOT_OPEN and self.lost is None:
                    return  # an earlier report arrived, and its answer was lost
                if refused.code != ErrorCode.LOG_UNAVAILABLE or time.monotonic() > end:
                    raise
            self._ended.wait(1.0)

    # The folder of the agent's shell

    def _read_folder(self, private: str) -> None:
        """Record the folder in which the shell of the command ended."""
        with suppress(OSError, ValueError, RefusedError):
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            file = os.open(os.path.join(private, _FOLDER), flags)
            try:
                if not stat.S_ISREG(os.fstat(file).st_mode):
                    return
                named = os.fsdecode(os.read(file, MAX_PATH)).removesuffix("\n")
            finally:
                os.close(file)
            is_inside = self._premises.workspace.relative(named, follow=True) is not None
            if os.path.isdir(named) and "\n" not in named and (is_inside or not self._terms["isConfined"]):
                self._record_folder(named)

    def _record_folder(self, folder: str) -> None:
        workspace = self._premises.workspace
        workspace.make_private()
        path = folder_file(workspace.root, self._command.key)
        with suppress(FileExistsError):
            path.parent.mkdir(mode=0o700)
        for old in path.parent.iterdir():
            if SystemClock().now_ms() / 1_000 - old.lstat().st_mtime > KEPT_S:
                old.unlink()
        with open_private(str(path)) as file:
            file.write(os.fsencode(folder) + b"\n")
