"""Becomes a command: puts the confinement on, waits until it may go, and executes.

Run as ``python -I -S launcher.py N``, where N is the file descriptor of the specification: a mapping that `marshal`
wrote in the same interpreter. Only the standard library is imported, and as little of it as can be: `json`, `signal`
or `typing` would cost more time than all the rest.

The supervisor and this process talk over one socket. To the supervisor go ``listener N`` with the number of the
descriptor that the kernel asks its questions on, ``ready``, or ``failed CODE ERRNO WHAT``; back comes one byte, "go".
The supervisor takes the listener by itself: after the filter is on, sending it would be a call to ask about. The socket
is closed on exec, so its end is the sign that the command runs.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import sys

TYPE_CHECKING = False  # importing `typing` takes longer than starting the interpreter
if TYPE_CHECKING:
    from typing import Any

_PR_SET_PDEATHSIG = 1
_SIGKILL = 9
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_MODE_FILTER = 1
_NEW_LISTENER = 1 << 3
_WAIT_KILLABLE = 1 << 5
_LANDLOCK_RESTRICT_SELF = 446
_SIGNALS_PYTHON_IGNORES = (13, 25)  # SIGPIPE, SIGXFSZ
_SIGINT = 2
_SET_MASK = 2


class Failed(Exception):
    """The command could not be made to run."""

    def __init__(self, code: str, error: int, what: str) -> None:
        """Keep what the supervisor is told: the error's code, an errno, and what was tried."""
        super().__init__(code, error, what)


def main(specification: int) -> None:
    """Become the command; returns only when the supervisor went away.

    Args:
        specification: a file descriptor that the mapping is read from: ``socket`` (descriptor), ``argv``, ``env``,
            ``executable`` (bytes), ``cwd`` (bytes or descriptor), ``parent`` (process), ``limits`` (by number: soft and
            hard), ``ruleset`` (descriptor or None), ``filter`` (a BPF program or None), ``machine``.
    """
    with open(specification, "rb") as file:
        given = marshal.loads(file.read())
    libc = ctypes.CDLL(None, use_errno=True)
    connection = given["socket"]
    os.set_inheritable(connection, False)
    try:
        if not tie(libc, given["parent"]):
            return
        listener = confine(libc, given)
        tell(connection, "ready" if listener is None else f"listener {listener}")
        if os.read(connection, 1) != b"g":
            return
        if listener is not None:
            os.close(listener)
        default_signals(libc)
        execute(given)
    except Failed as failed:
        code, error, what = failed.args
        tell(connection, f"failed {code} {error} {what}")


def tie(libc: Any, parent: int) -> bool:
    """Have the command killed when who started it is killed; tell whether that one is still there.

    The kernel ties it to the thread that started it, not to the process: threads that start commands wait for their
    end (the handlers' threads of `host.worker`, and the one that runs `worldctl run`), also when nobody waits for them
    any more. It holds through execution, except of a program that changes the user or its privileges, and not for what
    the command starts: that is found by its mark (`host.confinement.descendants`).
    """
    if libc.prctl(_PR_SET_PDEATHSIG, *map(ctypes.c_ulong, (_SIGKILL, 0, 0, 0))):
        raise Failed("CONFINEMENT_FAILED", ctypes.get_errno(), "tying it to its parent")
    return os.getppid() == parent


def confine(libc: Any, given: dict[str, Any]) -> int | None:
    """Put limits, Landlock and the filter on, in this order; return the descriptor that questions are asked on."""
    try:
        os.chdir(given["cwd"])
        if isinstance(given["cwd"], int):
            os.close(given["cwd"])
    except OSError as error:
        raise Failed("NOT_A_FOLDER", error.errno or 0, "entering the folder") from None
    if given["limits"]:
        limit(given["limits"])
    ruleset, program = given["ruleset"], given["filter"]
    if ruleset is None and program is None:
        return None
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, *map(ctypes.c_ulong, (1, 0, 0, 0))):
        raise Failed("CONFINEMENT_FAILED", ctypes.get_errno(), "giving up new privileges")
    if ruleset is not None:
        if libc.syscall(ctypes.c_long(_LANDLOCK_RESTRICT_SELF), ctypes.c_long(ruleset), ctypes.c_long(0)):
            raise Failed("CONFINEMENT_FAILED", ctypes.get_errno(), "adopting the Landlock rules")
        os.close(ruleset)
    return None if program is None else install(libc, program, _SECCOMP[given["machine"]])


def limit(limits: dict[int, tuple[int, int]]) -> None:
    """Set resource limits."""
    import resource

    for kind, values in limits.items():
        try:
            resource.setrlimit(kind, values)
        except (OSError, ValueError) as error:
            raise Failed("CONFINEMENT_FAILED", getattr(error, "errno", 0) or 0, f"setting limit {kind}") from None


def install(libc: Any, program: bytes, seccomp: int) -> int:
    """Install the filter and return its listener; a kernel that cannot wait killably waits the old way."""
    code = ctypes.create_string_buffer(program, len(program))
    described = (ctypes.c_size_t * 2)(len(program) // 8, ctypes.addressof(code))  # struct sock_fprog, with its padding
    for flags in (_NEW_LISTENER | _WAIT_KILLABLE, _NEW_LISTENER):
        arguments = (ctypes.c_long(seccomp), ctypes.c_long(_SET_MODE_FILTER), ctypes.c_long(flags))
        listener: int = libc.syscall(*arguments, described)
        if listener >= 0:
            return listener
    raise Failed("CONFINEMENT_FAILED", ctypes.get_errno(), "installing the seccomp filter")


def default_signals(libc: Any) -> None:
    """Undo what this interpreter did to signals, and block none: the command starts as it would without us."""
    for number in _SIGNALS_PYTHON_IGNORES:
        libc.signal(number, None)
    libc.pthread_sigmask(_SET_MASK, ctypes.byref((ctypes.c_ulong * 16)()), None)


def execute(given: dict[str, Any]) -> None:
    """Become the command."""
    try:
        os.execve(given["executable"], given["argv"], given["env"])
    except FileNotFoundError as error:
        raise Failed("COMMAND_NOT_FOUND", error.errno or 0, "executing it or its interpreter") from None
    except OSError as error:
        raise Failed("COMMAND_NOT_EXECUTABLE", error.errno or 0, "executing it") from None


def tell(connection: int, message: str) -> None:
    """Say something to the supervisor, who may be gone."""
    try:
        os.write(connection, message.encode() + b"\n")
    except OSError:
        return


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]))
    except KeyboardInterrupt:
        os._exit(130)
    os._exit(127)
