"""Python code of an agent under leases: in a confined child process, or in a thread under audit hooks.

The origin of the code decides: code that comes as a text, and code that runs for an agent or for an
unregistered actor, is untrusted and runs in a process; a function of the operator's program that runs for a
registered human or system stays in the program, unless requested otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from host.confinement import RunningCommand
from host.environment import HostEnvironment
from host.isolation.child_process import ENVIRONMENT, Answer, Code, Isolation, converse, program
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.actor import ActorRef
from world.model.canonical_json import canonical_bytes, read_json
from worldprotocol.runs.command import CommandRunOptions, check_can_be_confined, run_command
from worldprotocol.runs.governed import GovernedRun, Outcome
from worldprotocol.runs.session import GovernedSession

__all__ = ["PythonResult", "default_isolation", "run_in_thread", "run_isolated"]


@dataclass(frozen=True, slots=True)
class PythonResult:
    """Result of Python code.

    Args:
        run_id: its record in the log.
        outcome: of the run.
        value: the return value of the code; from a child process as JSON.
        output: the end of its output, in a child process.
        isolation: where it ran.
    """

    run_id: str
    outcome: Outcome
    value: Any
    output: str
    isolation: Isolation


def default_isolation(code: str | Callable[[Any], Any], actor: ActorRef | None) -> Isolation:
    """Return the default isolation of code: untrusted code runs in a child process.

    Args:
        code: a text or a function.
        actor: the registered actor whose run it is; None where it is not registered.
    """
    is_trusted = not isinstance(code, str) and actor is not None and actor.kind != "agent"
    return "thread" if is_trusted else "process"


def run_in_thread(session: GovernedSession, code: str | Callable[[Any], Any], argument: Any) -> PythonResult:
    """Run code in this thread under audit hooks.

    Args:
        session: not yet entered.
        code: a text that defines ``main``, or a function.
        argument: its one argument.

    Raises:
        ScopeViolationError: the code attempted an undeclared operation.
        RefusedError: as ``GovernedSession``. An exception of the code is passed on.
    """
    with session:
        function: Any = code
        if isinstance(code, str):
            names: dict[str, Any] = {"__name__": "__isolated__"}
            exec(compile(code, "<source>", "exec"), names)  # noqa: S102 - requested by isolation="thread"
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
    """Run code in a child process under leases.

    Args:
        begin: acquires the leases.
        premises: the workspace; its root is the working directory.
        code: the code to call.
        argument: its one argument, JSON.
        timeout_ms: time after which it is killed, in milliseconds; None is a week.
        require: required kinds of confinement.

    Raises:
        ScopeViolationError: the code attempted an undeclared operation.
        RefusedError: ``INVALID_VALUE``, ``PYTHON_FAILED`` where the code raised or gave no answer, ``LEASE_LOST``, and
            what ``begin`` and ``run_command`` refuse.
    """
    talk = _Talk(Code.of(code), read_json(canonical_bytes(argument)), timeout_ms)
    check_can_be_confined(unconfined=False, require=require, namespaces_by=premises.namespaces_by)
    run_options = CommandRunOptions(cwd=str(premises.workspace.root), env=ENVIRONMENT, read=talk.code.reads)
    run = begin()
    result = run_command(run, premises, program(), run_options, talk=talk)
    violations = run.watch.violations
    if result.outcome == "violated" and violations:
        raise violations[0].error
    if result.outcome == "lost":
        raise RefusedError(
            ErrorCode.LEASE_LOST, f"{result.reason} Its changes may conflict with those of others; check them."
        )
    answer = talk.answer
    if answer.raised is not None or result.outcome != "completed":
        raised = answer.raised or {"type": "", "message": str(result.reason), "trace": ""}
        raise RefusedError(
            ErrorCode.PYTHON_FAILED,
            f"The code of run {result.run_id} failed, and its changes were undone unless keep was set: "
            f"{result.reason} Read details['trace'] and details['output'].",
            run_id=result.run_id,
            output=answer.output,
            **raised,
        )
    return PythonResult(result.run_id, result.outcome, answer.value, answer.output, "process")


class _Talk:
    """Sends the code and its argument to the child, and stores its answer."""

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
