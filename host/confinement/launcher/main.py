"""Launcher of a command: applies the confinement, waits for the supervisor, and executes the command.

Run as ``python -I -S main.py N``, where N is the file descriptor of the specification: a mapping that `marshal`
wrote in the same interpreter. Only the standard library is imported, and as little of it as possible: `json`, `signal`
or `typing` would take more time than all the rest. Namespaces are made by ``namespaces.py`` beside this file.

The supervisor and this process communicate over one socket. This process sends ``pids N M`` with the ids of the first
process and of the command, as the supervisor counts, where there are namespaces, followed by that of bubblewrap; then
``listener N`` with the number of the seccomp descriptor, ``ready``, or ``failed CODE ERRNO WHAT``; the supervisor
answers one byte, "go". It duplicates the listener itself: with an active filter, sending it would be a watched call.
The socket is closed on exec, so its end shows that the command runs.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import sys

if not __package__:
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
if __package__:
    from host.confinement.launcher import support
else:  # run as a script, which has its folder on the path
    import support  # type: ignore[import-not-found,no-redef]

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
_RLIMIT_CORE = 4
_SET_MASK = 2
_LANDLOCK_ADD_RULE = 445
_KEPT_CAPABILITIES = 0x5FB  # of root: owners, modes, signals, users, low ports


def _namespaces() -> Any:
    """Import the module of namespaces, which commands without them do not need."""
    if __package__:
        from host.confinement.launcher import namespaces
    else:  # run as a script, which has its folder on the path
        import namespaces  # type: ignore[import-not-found,no-redef]
    return namespaces


def main(specification: int) -> None:
    """Become the command; returns only when the supervisor went away.

    Args:
        specification: a file descriptor that the mapping is read from: ``socket`` (descriptor), ``argv``, ``env``,
            ``executable`` (bytes), ``cwd`` (bytes or descriptor), ``parent`` (process), ``limits`` (by number: soft and
            hard), ``ruleset`` (descriptor or None), ``filter`` (a BPF program or None), ``machine``, ``tree`` (see
            `host.confinement.tree`, or None), ``bubblewrap`` (its program and the steps of
            `host.confinement.bubblewrap`, or None where this process makes the namespaces itself), ``lifeline``
            (descriptor or None), ``fresh`` (what Landlock grants at places that are made anew).
    """
    with open(specification, "rb") as file:
        given = marshal.loads(file.read())
    libc = ctypes.CDLL(None, use_errno=True)
    connection = given["socket"]
    os.set_inheritable(connection, False)
    try:
        if not tie(libc, given["parent"]):
            return
        if given["tree"] is not None:
            namespaces = _namespaces()
            try:
                namespaces.seclude(libc, given)
            except OSError as missing:
                raise support.LaunchError(
                    "CONFINEMENT_FAILED", missing.errno or 0, "making the tree of files"
                ) from None
        become(libc, given)
    except support.LaunchError as failed:
        code, error, what = failed.args
        support.tell(connection, f"failed {code} {error} {what}")


def become(libc: Any, given: dict[str, Any]) -> None:
    """Put the confinement on, wait for the word, and execute."""
    connection = given["socket"]
    listener = confine(libc, given)
    support.tell(connection, "ready" if listener is None else f"listener {listener}")
    if os.read(connection, 1) != b"g":
        return
    if listener is not None:
        os.close(listener)
    default_signals(libc)
    execute(given)


def tie(libc: Any, parent: int) -> bool:
    """Have the command killed when its starter is killed; return whether the starter still runs.

    The kernel ties it to the thread that started it, not to the process: threads that start commands wait for their
    end (the handlers' threads of `host.worker`, and the one that runs `worldctl run`), also after their callers
    stopped waiting. It holds through execution, except of a program that changes the user or its privileges, and not
    for what the command starts: that is found by its mark (`host.confinement.descendants`).
    """
    if libc.prctl(_PR_SET_PDEATHSIG, *map(ctypes.c_ulong, (_SIGKILL, 0, 0, 0))):
        raise support.LaunchError("CONFINEMENT_FAILED", ctypes.get_errno(), "tying it to its parent")
    return os.getppid() == parent


def confine(libc: Any, given: dict[str, Any]) -> int | None:
    """Put limits, Landlock and the filter on, in this order; return the descriptor that questions are asked on."""
    try:
        os.chdir(given["cwd"])
        if isinstance(given["cwd"], int):
            os.close(given["cwd"])
    except OSError as error:
        raise support.LaunchError("NOT_A_FOLDER", error.errno or 0, "entering the folder") from None
    if given["limits"]:
        limit(given["limits"])
    ruleset, program = given["ruleset"], given["filter"]
    if ruleset is None and program is None:
        return None
    forbid_dumps(libc)
    support.drop(libc, given["machine"], _KEPT_CAPABILITIES)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, *map(ctypes.c_ulong, (1, 0, 0, 0))):
        raise support.LaunchError("CONFINEMENT_FAILED", ctypes.get_errno(), "giving up new privileges")
    if ruleset is not None:
        if given["tree"] is not None:
            grant(libc, ruleset, given["fresh"])
        if libc.syscall(ctypes.c_long(_LANDLOCK_RESTRICT_SELF), ctypes.c_long(ruleset), ctypes.c_long(0)):
            raise support.LaunchError("CONFINEMENT_FAILED", ctypes.get_errno(), "adopting the Landlock rules")
        os.close(ruleset)
    return None if program is None else install(libc, program, _SECCOMP[given["machine"]])


def limit(limits: dict[int, tuple[int, int]]) -> None:
    """Set resource limits."""
    import resource

    for kind, values in limits.items():
        try:
            resource.setrlimit(kind, values)
        except (OSError, ValueError) as error:
            raise support.LaunchError(
                "CONFINEMENT_FAILED", getattr(error, "errno", 0) or 0, f"setting limit {kind}"
            ) from None


def forbid_dumps(libc: Any) -> None:
    """Have the kernel write no memory of crashed processes: no call names the file, or the program it starts.

    A limit of 1 forbids both; where the hard limit is 0 already, it cannot be raised to that, and 0 forbids files.
    """
    for most in (1, 0):
        if not libc.setrlimit(_RLIMIT_CORE, (ctypes.c_ulong * 2)(most, most)):
            return
    raise support.LaunchError("CONFINEMENT_FAILED", ctypes.get_errno(), "forbidding memory dumps")


def install(libc: Any, program: bytes, seccomp: int) -> int:
    """Install the filter and return its listener; a kernel that cannot wait killably waits the old way."""
    code = ctypes.create_string_buffer(program, len(program))
    described = (ctypes.c_size_t * 2)(len(program) // 8, ctypes.addressof(code))  # struct sock_fprog, with its padding
    for flags in (_NEW_LISTENER | _WAIT_KILLABLE, _NEW_LISTENER):
        arguments = (ctypes.c_long(seccomp), ctypes.c_long(_SET_MODE_FILTER), ctypes.c_long(flags))
        listener: int = libc.syscall(*arguments, described)
        if listener >= 0:
            return listener
    raise support.LaunchError("CONFINEMENT_FAILED", ctypes.get_errno(), "installing the seccomp filter")


def grant(libc: Any, ruleset: int, fresh: list[tuple[bytes, int]]) -> None:
    """Add what was made anew to the Landlock rules."""
    for path, access in fresh:
        at = os.open(path, os.O_PATH | os.O_CLOEXEC)
        described = ctypes.create_string_buffer(access.to_bytes(8, sys.byteorder) + at.to_bytes(4, sys.byteorder), 12)
        rule = (ctypes.c_long(ruleset), ctypes.c_long(1), described, ctypes.c_long(0))
        if libc.syscall(ctypes.c_long(_LANDLOCK_ADD_RULE), *rule):
            raise support.LaunchError("CONFINEMENT_FAILED", ctypes.get_errno(), "granting what was made anew")
        os.close(at)


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
        raise support.LaunchError("COMMAND_NOT_FOUND", error.errno or 0, "executing it or its interpreter") from None
    except OSError as error:
        raise support.LaunchError("COMMAND_NOT_EXECUTABLE", error.errno or 0, "executing it") from None


if __name__ == "__main__":
    try:
        if sys.argv[1] == "try":
            os._exit(_namespaces().attempt(sys.argv[2], int(sys.argv[3]) if sys.argv[3:] else None))
        main(int(sys.argv[1]))
    except KeyboardInterrupt:
        os._exit(130)
    os._exit(127)
