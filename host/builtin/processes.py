"""Processes: ``process.run`` starts a command, and waits until it and all it started have ended.

A command is a list of arguments. A shell reads a script only where that is spelt out: ``shell: "sh"``. It runs in a
process group of its own, below the workspace's root, with a small environment: what the caller names, the idempotency
key, and the usual ones such as ``PATH`` and ``HOME``. When it ends, takes too long or is cancelled, whatever is left of
it is killed, so that nothing goes on changing files after its effect is over. Being opaque, it counts as changing all
of its working directory (KO-5.1); where there is a workspace and the kernel can, it is confined to what its proposal
was granted (KO-5.2). It is repeated after a crash only where the parameters say that this does no harm.
Source: design sections 7 and 8; HC-handlers, KO-2.1, KO-5.1.
"""

from __future__ import annotations

import os
import signal
import subprocess
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, StringConstraints

from host.builtin.children import Child, ChildExit
from host.builtin.effect_support import EFFECT_CANCELLED, EffectError, Params, answering, fits, last_look
from host.builtin.places import FilePath, looking, subtree_of, telling
from host.confinement.private import private_folder
from host.effect_call import EffectCallInfo
from host.effects import MAX_TIME_LIMIT_MS, EffectHandler, handler
from world.errors import RefusedError
from world.klis.resources.resource import canonical_resource

__all__ = ["PROCESSES"]

_GRACE_MS: Final = 10_000
_MAX_TIMEOUT_MS: Final = MAX_TIME_LIMIT_MS - _GRACE_MS
_KEPT_BYTES: Final = 256 * 1024
_LEAST_KEPT_BYTES: Final = 1024
_CODES: Final = {"COMMAND_NOT_FOUND": "PROCESS_NOT_FOUND", "COMMAND_NOT_EXECUTABLE": "PROCESS_NOT_EXECUTABLE"}
_PASSED_ON: Final = ("PATH", "HOME", "LANG", "TZ")

Argument = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$", max_length=128 * 1024)]
_Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


def _named(argv: list[str]) -> list[str]:
    try:
        _process(argv[0])
    except RefusedError:
        raise ValueError("the command's name holds what no process can be called by") from None
    if not os.path.basename(argv[0]):
        raise ValueError("the command has no name")
    return argv


def _process(command: str) -> str:
    return canonical_resource(f"PROCESS:{os.path.basename(command)}", literal_stars=True).text


class ProcessRun(Params):
    """What is started, and how; ``expect`` are the exit codes that are no failure."""

    argv: Annotated[list[Argument], Field(min_length=1, max_length=10_000), AfterValidator(_named)]
    cwd: FilePath = "FILE:/"
    env: Annotated[dict[_Name, Argument], Field(default_factory=dict)]
    stdin: str = ""
    timeout_ms: Annotated[int, Field(ge=1, le=_MAX_TIMEOUT_MS)] = 60_000
    expect: Annotated[list[Annotated[int, Field(ge=0, le=255)]], Field(default_factory=lambda: [0])]
    shell: Literal["sh"] | None = None
    idempotent: bool = False

    @property
    def command(self) -> list[str]:
        """The arguments as they are started: a script's own arguments come after it."""
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
@answering
def _run(params: ProcessRun, call: EffectCallInfo) -> Any:
    command = params.command
    with private_folder(call.proposal_id) as private:
        ended = _lived(params, call, {**_environment(params, call), "TMPDIR": private})
    told = _told(ended)
    name = os.path.basename(command[0])
    if ended.why == "cancelled":
        raise EffectError(EFFECT_CANCELLED, f"{name} was cancelled, and killed with all it had started.", told)
    if ended.why == "timed out":
        raise EffectError("PROCESS_TIMED_OUT", f"{name} took longer than {params.timeout_ms} ms, and was killed.", told)
    if ended.code < 0 or ended.code not in params.expect:
        how = f"was ended by {told['signal']}" if ended.code < 0 else f"ended with exit code {ended.code}"
        raise EffectError("PROCESS_FAILED", f"{name} {how}.", told)
    return told


def _lived(params: ProcessRun, call: EffectCallInfo, environment: dict[str, str]) -> ChildExit:
    """Run the command from beginning to end."""
    place = looking(call, params.cwd)
    with telling(params.cwd):
        folder = place.workspace.open(place.relative, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        last_look(call)
        child = _started(call, params.command, folder, environment)
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


def _started(call: EffectCallInfo, command: list[str], folder: int, environment: dict[str, str]) -> Child:
    pipe = subprocess.PIPE
    try:  # in what was opened, whatever its name leads to by now
        return Child(call.start(command, cwd=folder, env=environment, stdin=pipe, stdout=pipe, stderr=pipe))
    except RefusedError as refused:
        code = _CODES.get(refused.code, "PROCESS_NOT_STARTED")
        raise EffectError(code, refused.message, {"command": command[0]}) from None


def _told(ended: ChildExit) -> dict[str, Any]:
    """Return how a command ended, with as much of its output's end as a result can hold."""
    kept = _KEPT_BYTES
    while True:
        told: dict[str, Any] = {
            "exitCode": ended.code if ended.code >= 0 else None,
            "confined": ended.is_confined,
        }
        if ended.code < 0:
            told["signal"] = _signal(-ended.code)
        for name, output in (("stdout", ended.stdout), ("stderr", ended.stderr)):
            tail = output.tail[-kept:]
            told[name] = tail.decode("utf-8", "replace")
            told[f"{name}Bytes"] = output.size
            told[f"{name}Truncated"] = output.size > len(tail)
        if kept <= _LEAST_KEPT_BYTES or fits(told):
            return told
        kept //= 2


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


PROCESSES: Final[tuple[EffectHandler, ...]] = (_run,)
"""The handlers of this module."""
