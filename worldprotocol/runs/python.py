"""Python code of an agent under leases: in a confined process of its own, or in a thread under audit hooks.

Which of the two is decided by whose code it is: code that comes as a text, and code that runs for an agent or for an
actor that is not registered, is not trusted and gets a process; a function of the operator's program that runs for a
registered human or system stays in the program, unless it is asked for otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from host.confinement import RunningCommand
from host.environment import HostEnvironment
from host.isolation import ENVIRONMENT, Answer, Code, Isolation, converse, program
from world.errors import RefusedError
from world.model.canonical_json import canonical_bytes, read_json
from worldprotocol.runs.command import CommandWishes, check_can_be_confined, run_command
from worldprotocol.runs.governed import GovernedRun, Outcome
from worldprotocol.runs.session import GovernedSession

__all__ = ["PythonResult", "default_isolation", "run_in_thread", "run_isolated"]


@dataclass(frozen=True, slots=True)
class PythonResult:
    """What Python code answered.

    Args:
        run_id: its record in the log.
        outcome: of the run.
        value: what the code returned; from a process of its own as JSON.
        output: the end of what it printed, in a process of its own.
        isolation: where it ran.
    """

    run_id: str
    outcome: Outcome
    value: Any
    output: str
    isolation: Isolation


def default_isolation(code: str | Callable[[Any], Any], actor: Mapping[str, Any] | None) -> Isolation:
    """Return where code runs unless it is said otherwise: what is not trusted runs in a process of its own.

    Args:
        code: a text or a function.
        actor: the registered actor whose run it is, with its ``kind``; None where it is not registered.
    """
    is_trusted = not isinstance(code, str) and actor is not None and actor["kind"] != "agent"
    return "thread" if is_trusted else "process"


def run_in_thread(session: GovernedSession, code: str | Callable[[Any], Any], argument: Any) -> PythonResult:
    """Run code in this thread under audit hooks.

    Args:
        session: not yet entered.
        code: a text that defines ``main``, or a function.
        argument: its one argument.

    Raises:
        ScopeViolationError: the code attempted what it had not declared.
        RefusedError: what ``GovernedSession`` refuses. What the code raises passes through.
    """
    with session:
        function: Any = code
        if isinstance(code, str):
            names: dict[str, Any] = {"__name__": "__isolated__"}
            exec(compile(code, "<source>", "exec"), names)  # noqa: S102 - asked for with isolation="thread"
            function = names.get("main", lambda _: None)
        value = function(argument)
    assert session.outcome is not None
    return PythonResult(session.run.run_id, session.outcome, value, "", "thread")


def run_isolated(
    begin: Callable[[], GovernedRun],
    premises: HostEnvironment,
    code: str | Callable[[Any], Any],
    argument: Any,
    *,
    timeout_ms: int | None,
    require: Sequence[str] = (),
) -> PythonResult:
    """Run code in a process of its own under leases.

    Args:
        begin: gets the leases.
        premises: the workspace; its root is the working directory.
        code: what is called.
        argument: its one argument, JSON.
        timeout_ms: after which it is killed, in milliseconds; None is a week.
        require: walls that have to hold it.

    Raises:
        ScopeViolationError: the code attempted what it had not declared.
        RefusedError: ``INVALID_VALUE``, ``PYTHON_FAILED`` where the code raised or gave no answer, ``LEASE_LOST``, and
            what ``begin`` and ``run_command`` refuse.
    """
    talk = _Talk(Code.of(code), read_json(canonical_bytes(argument)), timeout_ms)
    check_can_be_confined(unconfined=False, require=require, namespaces_by=premises.namespaces_by)
    wishes = CommandWishes(cwd=str(premises.workspace.root), env=ENVIRONMENT, read=talk.code.reads)
    run = begin()
    result = run_command(run, premises, program(), wishes, talk=talk)
    violations = run.watch.violations
    if result.outcome == "violated" and violations:
        raise violations[0].error
    if result.outcome == "lost":
        raise RefusedError("LEASE_LOST", f"{result.reason} What it did may have met what others did; look at it.")
    answer = talk.answer
    if answer.raised is not None or result.outcome != "completed":
        raised = answer.raised or {"type": "", "message": str(result.reason), "trace": ""}
        raise RefusedError(
            "PYTHON_FAILED",
            f"The code of run {result.run_id} failed, and what it did was undone unless keep was asked for: "
            f"{result.reason} Read details['trace'] and details['output'].",
            run_id=result.run_id,
            output=answer.output,
            **raised,
        )
    return PythonResult(result.run_id, result.outcome, answer.value, answer.output, "process")


class _Talk:
    """Gives the child its code and its argument, and keeps its answer."""

    def __init__(self, code: Code, argument: Any, timeout_ms: int | None) -> None:
        self.code = code
        self._argument = argument
        self._timeout_ms = timeout_ms
        self.answer = Answer()

    @property
    def name(self) -> str:
        return self.code.name

    @property
    def reason(self) -> str | None:
        raised = self.answer.raised
        return None if raised is None else f"{raised['type']}: {raised['message']}"

    def __call__(self, command: RunningCommand) -> int:
        code, self.answer = converse(command, self.code, [self._argument], timeout_ms=self._timeout_ms)
        return code
