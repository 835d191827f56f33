"""Process effects: ``process.run`` starts a command, and waits until it and its descendants have ended.

A command is a list of arguments. A shell reads a script only with ``shell: "sh"``. The command runs in its own
process group, below the workspace's root, with a small environment: the named variables, the idempotency
key, and the usual ones such as ``PATH`` and ``HOME``. When it ends, exceeds its time limit or is cancelled, its
remaining processes are killed, so that no file changes after its effect. As an opaque tool it may change
its whole working directory (KO-5.1); where there is a workspace and the kernel supports it, it is confined to the
grants of its proposal (KO-5.2). It is repeated after a crash only where the parameters declare that to be harmless.
Source: design sections 7 and 8; HC-handlers, KO-2.1, KO-5.1.
"""

from __future__ import annotations

import os
import signal
import subprocess
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, StringConstraints

from host.builtin.children import Child, ChildExit
from host.builtin.effect_support import (
    EFFECT_CANCELLED,
    EffectError,
    Params,
    check_before_change,
    fits,
    with_error_values,
)
from host.builtin.workspace_entries import FilePath, read_entry, reporting_errors, subtree_of
from host.confinement.private import private_folder
from host.effect_call import EffectCallInfo
from host.effects import MAX_TIME_LIMIT_MS, EffectHandler, handler
from world.errors import RefusedError
from world.klis.resources.resource_reading import canonical_resource

__all__ = ["PROCESSES"]

_GRACE_MS: Final = 10_000
_MAX_TIMEOUT_MS: Final = MAX_TIME_LIMIT_MS - _GRACE_MS
_KEPT_BYTES: Final = 256 * 1024
_LEAST_KEPT_BYTES: Final = 1024
_CODES: Final = {"COMMAND_NOT_FOUND": "PROCESS_NOT_FOUND", "COMMAND_NOT_EXECUTABLE": "PROCESS_NOT_EXECUTABLE"}
_PASSED_ON: Final = ("PATH", "HOME", "LANG", "TZ")

Argument = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$", max_length=128 * 1024)]
_Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


def _check_command(argv: list[str]) -> list[str]:
    try:
        _process(argv[0])
    except RefusedError:
        raise ValueError("the command's name is not a valid process name") from None
    if not os.path.basename(argv[0]):
        raise ValueError("the command has no name")
    return argv


def _process(command: str) -> str:
    return canonical_resource(f"PROCESS:{os.path.basename(command)}", literal_stars=True).text


class ProcessRun(Params):
    """Parameters of ``process.run``; ``expect`` are the accepted exit codes."""

    argv: Annotated[list[Argument], Field(min_length=1, max_length=10_000), AfterValidator(_check_command)]
    cwd: FilePath = "FILE:/"
    env: Annotated[dict[_Name, Argument], Field(default_factory=dict)]
    stdin: str = ""
    timeout_ms: Annotated[int, Field(ge=1, le=_MAX_TIMEOUT_MS)] = 60_000
    expect: Annotated[list[Annotated[int, Field(ge=0, le=255)]], Field(default_factory=lambda: [0])]
    shell: Literal["sh"] | None = None
    idempotent: bool = False

    @property
    def command(self) -> list[str]:
        """The arguments of the started process: a script's own arguments come after it."""
        if self.shell is None:
            return list(self.argv)
        return [f"/bin/{self.shell}", "-c", self.argv[0], self.shell, *self.argv[1:]]


def _touches(params: ProcessRun) -> list[tuple[str, str]]:
    return [("PROVIDES", _process(params.command[0])), ("MUTATES", subtree_of(params.cwd))]


@handler(
    "process.run",
    input=ProcessRun,
    touches=_touches,
    idempotent=lambda params: params.idempotent,
    time_limit_ms=lambda params: params.timeout_ms + _GRACE_MS,
)
@with_error_values
def _run(params: ProcessRun, call: EffectCallInfo) -> Any:
    command = params.command
    with private_folder(call.proposal_id) as private:
        ended = _run_to_end(params, call, {**_environment(params, call), "TMPDIR": private})
    result = _result_of(ended)
    name = os.path.basename(command[0])
    if ended.why == "cancelled":
        raise EffectError(EFFECT_CANCELLED, f"{name} was cancelled, and killed with its descendants.", result)
    if ended.why == "timed out":
        raise EffectError(
            "PROCESS_TIMED_OUT", f"{name} took longer than {params.timeout_ms} ms, and was killed.", result
        )
    if ended.code < 0 or ended.code not in params.expect:
        how = f"was ended by {result['signal']}" if ended.code < 0 else f"ended with exit code {ended.code}"
        raise EffectError("PROCESS_FAILED", f"{name} {how}.", result)
    return result


def _run_to_end(params: ProcessRun, call: EffectCallInfo, environment: dict[str, str]) -> ChildExit:
    """Start the command and wait for its end."""
    entry = read_entry(call, params.cwd)
    with reporting_errors(params.cwd):
        folder = entry.workspace.open(entry.relative, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        check_before_change(call)
        child = _start_child(call, params.command, folder, environment)
    finally:
        os.close(folder)
    return child.run(
        params.stdin.encode(), timeout_ms=params.timeout_ms, kept=_KEPT_BYTES, is_cancelled=call.is_cancelled
    )


def _environment(params: ProcessRun, call: EffectCallInfo) -> dict[str, str]:
    kept = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    environment = {"PATH": os.defpath, **kept, **params.env}
    environment.update(IDEMPOTENCY_KEY=call.idempotency_key)
    return environment


def _start_child(call: EffectCallInfo, command: list[str], folder: int, environment: dict[str, str]) -> Child:
    pipe = subprocess.PIPE
    try:  # the opened folder, independent of later renames
        return Child(call.start(command, cwd=folder, env=environment, stdin=pipe, stdout=pipe, stderr=pipe))
    except RefusedError as refused:
        code = _CODES.get(refused.code, "PROCESS_NOT_STARTED")
        raise EffectError(code, refused.message, {"command": command[0]}) from None


def _result_of(ended: ChildExit) -> dict[str, Any]:
    """Describe the end of a command, with as much of its last output as fits into a result."""
    kept = _KEPT_BYTES
    while True:
        result: dict[str, Any] = {
            "exitCode": ended.code if ended.code >= 0 else None,
            "confined": ended.is_confined,
        }
        if ended.code < 0:
            result["signal"] = _signal(-ended.code)
        for name, output in (("stdout", ended.stdout), ("stderr", ended.stderr)):
            tail = output.tail[-kept:]
            result[name] = tail.decode("utf-8", "replace")
            result[f"{name}Bytes"] = output.size
            result[f"{name}Truncated"] = output.size > len(tail)
        if kept <= _LEAST_KEPT_BYTES or fits(result):
            return result
        kept //= 2


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


PROCESSES: Final[tuple[EffectHandler, ...]] = (_run,)
"""The handlers of this module."""
