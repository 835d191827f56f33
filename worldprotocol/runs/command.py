"""A governed command: any program under leases, held by the operating system, watched, recorded, undone where it fails.

Where the kernel has Landlock and seccomp notification, the command can do nothing else than its manifest allows, and
every call is judged before it happens. Unconfined it runs as it is, and what it did is found in the content alone.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any, Final, Protocol

from host.confinement import (
    UNCONFINED,
    Access,
    Confinement,
    MountTree,
    Rules,
    RunningCommand,
    landlock,
    namespaces,
    rules_for,
    start,
    watcher,
)
from host.confinement.descendants import RUN
from host.confinement.private import private_folder
from host.environment import HostEnvironment
from host.observation import Operations, tracing
from host.observation.operations import printable
from host.observation.system_calls import decision_of
from host.observation.tracing import TraceReader
from host.system_paths import is_below
from world.error_codes import ErrorCode
from world.errors import RefusedError, WorldProtocolError
from world.klis.predicate import Predicate
from world.klis.triple import Triple
from worldprotocol.runs.outcomes import ObservedRun, Outcome

__all__ = ["CommandResult", "CommandRunOptions", "Talk", "confinement_support", "run_command"]

_CHANGING: Final = Access.WRITE | Access.MAKE | Access.REMOVE | Access.REFER

_PASSED: Final = """
PATH HOME USER LOGNAME SHELL LANG LANGUAGE TZ TERM COLORTERM NO_COLOR FORCE_COLOR COLUMNS LINES
PYTHONIOENCODING PYTHONUTF8 PYTHONDONTWRITEBYTECODE
"""
PASSED_ENV: Final = frozenset(_PASSED.split())
"""Environment variables that a confined command receives by default, besides ``LC_*``."""

PASSED_ON: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that are forwarded to the command."""

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that end Python code in a child process, before they are raised in this process."""


@dataclass(frozen=True, slots=True)
class CommandRunOptions:
    """Options of a governed command.

    Args:
        unconfined: neither Landlock nor the watcher; only the content is compared.
        trace: also run it under ``strace``, and record the trace.
        cwd: its working directory; None is the current one.
        env: its whole environment; None is ``PASSED_ENV`` of this process's, or all of it where it is unconfined.
        read: further paths outside the workspace that it may read.
        passes: further variables of this process's environment by name, or ``NAME=VALUE``.
        as_possible: where the kernel cannot confine it, it runs all the same, with the environment of a confined
            command: the operator states that a container holds it.
        at_end: called with its folder of temporary files after it has ended.
    """

    unconfined: bool = False
    trace: bool = False
    cwd: str | None = None
    env: Mapping[str, str] | None = None
    read: tuple[str, ...] = ()
    passes: tuple[str, ...] = ()
    at_end: Callable[[str], None] | None = None
    as_possible: bool = False


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Result of a governed command.

    Args:
        run_id: its record in the log.
        outcome: of the run.
        exit_code: of the command, as in a shell: 128 and the signal's number where one ended it.
        reason: one sentence, or None.
        not_given_back: what should have been restored and was not, each with the reason.
    """

    run_id: str
    outcome: Outcome
    exit_code: int
    reason: str | None = None
    not_given_back: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConfinementSupport:
    """Support of confinement on this machine.

    Args:
        held_by: the names of the mechanisms, for the record.
        why_not: why a command cannot be confined; None where it can.
        gaps: operations that are not restricted all the same.
    """

    held_by: tuple[str, ...] = ()
    why_not: str | None = None
    gaps: tuple[str, ...] = field(default=())


def confinement_support(namespaces_by: namespaces.Wanted = "auto") -> ConfinementSupport:
    """Determine the support of the kernel.

    Args:
        namespaces_by: permitted creators of namespaces.
    """
    walls, eyes = landlock.available(), watcher.available()
    why_not = walls.why_not or eyes.why_not
    if why_not is not None:
        return ConfinementSupport(why_not=why_not)
    apart = namespaces.available(namespaces_by)
    held_by = (f"landlock {walls.abi}", "seccomp watcher", "content")
    gaps = (*walls.not_held, *eyes.not_held)
    if apart.why_not is not None:
        return ConfinementSupport(held_by, None, (*gaps, f"what else exists on this machine ({apart.why_not})"))
    return ConfinementSupport((apart.recorded, *held_by), None, gaps)


def run_command(
    run: ObservedRun,
    premises: HostEnvironment,
    argv: Sequence[str],
    run_options: CommandRunOptions,
    *,
    talk: Talk | None = None,
) -> CommandResult:
    """Run a command to its end under a run whose leases are granted.

    Args:
        run: begun and not yet opened; it is ended here in any case.
        premises: the workspace.
        argv: the command and its arguments.
        run_options: the options.
        talk: communicates with the command over pipes; None gives it the streams of this process.

    Returns:
        Its result. Signals of this process are forwarded to the command; with ``talk`` those that end a
        process end the command, and are raised in this process after the end of the run is recorded.

    Raises:
        RefusedError: ``COMMAND_NOT_FOUND``, ``COMMAND_NOT_EXECUTABLE``, ``CONFINEMENT_UNAVAILABLE``,
            ``CONFINEMENT_FAILED``, ``NO_TRACER``; nothing was run then, and the leases are released.
    """
    running = _Running(run, premises, run_options, talk)
    held_by = confinement_support(premises.namespaces_by).held_by if running.is_confined else ("content",)
    run.open(
        "command" if talk is None else "python",
        stop=running.stop,
        held_by=(*held_by, *(("strace",) if run_options.trace else ())),
        cannot_reach=running.cannot_reach,
        command=[printable(os.fsencode(one)) for one in (argv if talk is None else ["python", talk.name])],
    )
    try:
        with private_folder(run.run_id) as private:
            code = running.run(argv, private)
            if run_options.at_end is not None:
                run_options.at_end(private)
    except BaseException as error:
        with _undisturbed():
            run.end("interrupted", reason=f"{type(error).__name__}: {error}")
        raise
    outcome: Outcome = "completed" if code == 0 else "failed"
    reason = None if code == 0 else (talk and talk.reason) or f"The command ended with exit code {code}."
    try:
        with _undisturbed():
            ended = run.end(outcome, exit_code=code, reason=reason)
    except (WorldProtocolError, OSError) as error:
        raise RefusedError(
            ErrorCode.RUN_NOT_ENDED,
            f"The command ended with exit code {code}, but the run could not be ended ({error}). Its "
            "changes were undone, or the next start undoes them; run `worldctl settle` to do so.",
            run_id=run.run_id,
            exit_code=code,
        ) from error
    finally:
        for number in running.signals:
            os.kill(os.getpid(), number)
    return CommandResult(run.run_id, ended, code, running.why or run.lost or reason, tuple(run.not_given_back))


class Talk(Protocol):
    """Communicates with a command over its pipes."""

    @property
    def name(self) -> str:
        """Name of the code, for the record."""

    @property
    def reason(self) -> str | None:
        """Why it failed, as one sentence, after it has ended."""

    def __call__(self, command: RunningCommand) -> int:
        """Communicate until the command has ended; return its exit code, negative for a signal."""


class _Running:
    """One running command."""

    def __init__(
        self, run: ObservedRun, premises: HostEnvironment, run_options: CommandRunOptions, talk: Talk | None = None
    ) -> None:
        self._run = run
        self._premises = premises
        self._wishes = run_options
        self._talk = talk
        self.signals: list[int] = []
        self._command: RunningCommand | None = None
        self._early: list[int] = []
        self._operations: Operations | None = None
        self._granted: tuple[bytes, ...] | None = None
        self.why: str | None = None

    @property
    def is_confined(self) -> bool:
        """Whether the kernel confines it."""
        if self._wishes.unconfined:
            return False
        return not self._wishes.as_possible or confinement_support(self._premises.namespaces_by).why_not is None

    def stop(self, why: str) -> None:
        """End the command with all its descendants."""
        self.why = self.why or why
        if self._command is not None:
            self._command.kill_group()

    def signal(self, number: int) -> None:
        """Forward a signal to the command; one that arrives earlier is stored."""
        if self._talk is not None:
            self.signals.append(number)
            self.stop(f"It was ended by {signal.Signals(number).name}.")
        elif self._command is None:
            self._early.append(number)
        else:
            self._command.send_signal(number)

    def run(self, argv: Sequence[str], private: str) -> int:
        """Start the command and wait for its end; return its exit code as in a shell."""
        run_options, declaration = self._wishes, self._run.watch.declaration
        env = {**self._environment(), "TMPDIR": private, RUN: self._run.run_id}
        found = shutil.which(argv[0], path=env.get("PATH")) if argv else None
        self._operations = self._premises.operations(
            declaration,
            confined=True,
            read=[*run_options.read, *([found] if found else [])],
            write=[private],
        )  # the watcher observes child processes, so confined=True
        confinement = UNCONFINED
        if self.is_confined:
            rules, tree = self._walls(found, private, [run_options.cwd or os.getcwd(), env.get("HOME", "/")])
            self._granted = tuple(place for place, access in rules.grants.items() if access & _CHANGING)
            hides = None if tree is not None else self._premises.hides(declaration.triples)
            decide = decision_of(self._run.watch, self._operations, hides)
            confinement = Confinement(rules, decide, tree, self._premises.namespaces_by)
        traced, trace = self._traced(argv, private)
        stream = None if self._talk is None else subprocess.PIPE
        numbers = PASSED_ON if self._talk is None else ENDING
        with _handling(lambda number, _: self.signal(number), numbers):  # before the start: signals may come early
            command = start(
                traced,
                cwd=run_options.cwd or os.getcwd(),
                env=env,
                confinement=confinement,
                report=lambda error: self.stop(f"A system call could not be checked: {type(error).__name__}: {error}"),
                stdin=stream,
                stdout=stream,
                stderr=stream,
            )
            self._command = command
            try:
                if self.why is not None:  # while it was being started
                    command.kill_group()
                while self._early:
                    command.send_signal(self._early.pop(0))
                code = command.wait() if self._talk is None else self._talk(command)
            finally:
                command.close()
                if trace is not None:
                    self._read_trace(trace, found or argv[0])
        return code if code >= 0 else 128 - code

    def _environment(self) -> dict[str, str]:
        """Return the environment: the given one, else the non-secret variables of this process."""
        if self._wishes.env is not None:
            return dict(self._wishes.env)
        if self._wishes.unconfined:
            return dict(os.environ)
        kept = {name: os.environ[name] for name in os.environ if name in PASSED_ENV or name.startswith("LC_")}
        for one in self._wishes.passes:
            name, given, value = one.partition("=")
            if given or name in os.environ:
                kept[name] = value if given else os.environ[name]
        return kept

    def _walls(self, command: str | None, private: str, folders: Sequence[str]) -> tuple[Rules, MountTree | None]:
        """Return the Landlock rules and the file tree of the declaration.

        In permissive mode the declaration may be extended later, and the kernel's rules cannot: they then restrict the
        command to the workspace, and the watcher alone checks operations in it.
        """
        run, premises = self._run, self._premises
        triples = run.watch.declaration.triples
        if not run.watch.is_strict:
            everything = premises.workspace.resource_at(b"", subtree=True)
            wider = (Predicate.MUTATES, Predicate.DELETES, Predicate.RENAMES)
            triples = (*triples, *(Triple(one, everything) for one in wider))
        runtime = premises.needed(command=command, private=[private], execute=self._wishes.read)
        rules = rules_for(triples, premises.workspace, runtime)
        if not run.watch.is_strict:
            rules = replace(rules, net_ports=None)
        secluded = namespaces.available(premises.namespaces_by).why_not is None
        return rules, premises.tree(triples, runtime, rules, folders) if secluded else None

    def _traced(self, argv: Sequence[str], private: str) -> tuple[Sequence[str], int | None]:
        """Return the command line, and the descriptor of the trace."""
        if not self._wishes.trace:
            return argv, None
        name = os.path.join(private, "trace")
        out = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            traced = tracing.command(argv, out)
        except BaseException:
            os.close(out)
            raise
        if not self._wishes.unconfined:  # a confined strace cannot access the descriptors of this process
            traced[traced.index("-o") + 1] = name
        return traced, out

    def _read_trace(self, trace: int, program: str) -> None:
        """Record the traced operations; refused ones are ignored."""
        assert self._operations is not None
        with os.fdopen(trace, "r", encoding="utf-8", errors="backslashreplace") as file:
            file.seek(0)
            reader = TraceReader(
                self._operations,
                after_exec=program,
                cwd=os.fsencode(self._wishes.cwd or os.getcwd()),
                existed=self._run.was_there,
            )
            for traced in reader.feed(file):
                if not traced.is_blocked:
                    self._run.watch.note(traced.seen, depth="trace")

    def cannot_reach(self, relative: bytes) -> bool:
        """Whether the kernel prevents the command from changing a path below the root of the workspace."""
        if self._granted is None:
            return False
        path = os.path.join(self._premises.workspace.root_bytes, relative)
        return not any(is_below(path, place) for place in self._granted)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Ignore signals during the end of a run, so that no rollback is interrupted."""
    with _handling(lambda _number, _frame: None):
        yield


@contextmanager
def _handling(
    handler: Callable[[int, FrameType | None], None], numbers: Sequence[signal.Signals] = PASSED_ON
) -> Iterator[None]:
    """Handle the forwarded signals; without effect outside the main thread."""
    before: dict[signal.Signals, Any] = {}
    try:
        for number in numbers:
            before[number] = signal.signal(number, handler)
    except ValueError:
        pass
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def check_can_be_confined(
    *, unconfined: bool, require: Sequence[str] = (), namespaces_by: namespaces.Wanted = "auto"
) -> None:
    """Refuse a command that should be confined and cannot be, before leases are requested.

    Args:
        unconfined: whether it runs without confinement.
        require: required kinds of confinement: ``namespaces``, ``landlock``.
        namespaces_by: permitted creators of namespaces.

    Raises:
        RefusedError: ``CONFINEMENT_UNAVAILABLE``.
    """
    found = confinement_support(namespaces_by)
    missing = [wall for wall in require if unconfined or not any(one.startswith(wall) for one in found.held_by)]
    if missing:
        why = "it runs unconfined" if unconfined else "; ".join([*found.gaps, found.why_not or ""]).strip("; ")
        raise RefusedError(
            ErrorCode.CONFINEMENT_UNAVAILABLE,
            f"The command would not be confined by {' and '.join(missing)}, as --require demands: {why}. Run it where "
            "the kernel supports it, or omit --require.",
        )
    if found.why_not is not None and not unconfined:
        raise RefusedError(
            ErrorCode.CONFINEMENT_UNAVAILABLE,
            f"{found.why_not} With --unconfined it runs without confinement; its changes are only found afterwards.",
        )
