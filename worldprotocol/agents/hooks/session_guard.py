"""The guard of a session: a process that renews the session at the server, and reports the end of its agent.

The first hook of a session leaves it. It has a session of the operating system of its own, so that neither Ctrl-C nor a
closed terminal ends it, and nothing of the agent: no descriptors, no folder, no variables but the token
and the files of certificates. It holds a
pidfd of the agent, which is the nearest process above the hook that is not a shell of the hook.

- Every 5 s it renews the session.
- The end of the agent it reports at once, and again until the server has answered.
- It binds the name of its socket, so that a session has one guard, and releases it when the agent has ended. A
  connection to the socket says that the session ended.

``hook_client.py`` loads this module without its package, so it imports built-in and extension modules alone.
"""

import _json
import _socket
import posix
import select
import sys
import time

TYPE_CHECKING = False  # the modules of types are not loaded when this runs
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import ModuleType

INTERVAL_S = 5.0
"""Time between two renewals, in seconds: the server takes a session for left after 15 s without one."""

ANSWER_S = 10.0
"""Longest time for an answer, in seconds."""

REPORT_S = 600.0
"""How long it is tried to report the end of the agent, in seconds."""

PAUSE_S = 1.0
"""Time between two reports, in seconds."""

PASSING = (401, 408, 429)
"""Refusals that may pass: a token is replaced, a server has much to do."""

MOST_DESCRIPTORS = 1 << 20
_KEPT = (b"WORLDCTL_TOKEN", b"SSL_CERT_FILE", b"SSL_CERT_DIR")
_CREDENTIALS = 12


def leave(name: int, program: "Sequence[str]", marks: "Sequence[str]") -> bool:
    """Start a guard that outlives this process, and return whether there is an agent that it looks after.

    Args:
        name: descriptor of the socket that has the name of the guard.
        program: the words that start the guard; ``--agent`` and ``--socket`` are added.
        marks: texts in the command lines of a hook, and of the shells that run it.
    """
    agent = _agent([mark.encode() for mark in marks])
    if agent is None:
        return False
    child = posix.fork()
    if child == 0:
        try:
            posix.setsid()
            if posix.fork() == 0:
                _become(agent, name, program)
        finally:
            posix._exit(0)
    posix.waitpid(child, 0)
    posix.close(agent)
    return True


def _agent(marks: "Sequence[bytes]") -> int | None:
    """Return a pidfd of the agent; None where it has ended."""
    found = next(_above(marks), 0)
    try:
        agent = posix.pidfd_open(found)
    except OSError:
        return None
    if next(_above(marks), 0) == found:  # it lived until now, so the descriptor is not that of a later process
        return agent
    posix.close(agent)
    return None


def _above(marks: "Sequence[bytes]") -> "Iterator[int]":
    """Yield the processes above this one that are no shells of a hook, the nearest first."""
    process = posix.getppid()
    while process > 0:
        line = _read(f"/proc/{process}/cmdline")
        if not any(mark in line for mark in marks):
            yield process
        above = _read(f"/proc/{process}/stat").rpartition(b")")[2].split()  # the name of a program may have spaces
        process = int(above[1]) if above else 0


def _read(file: str) -> bytes:
    """Return what a file of the kernel says of a process; empty where it has ended."""
    found = b""
    try:
        descriptor = posix.open(file, posix.O_RDONLY | posix.O_CLOEXEC)
    except OSError:
        return b""
    try:
        while piece := posix.read(descriptor, 65_536):
            found += piece
    except OSError:
        return b""
    finally:
        posix.close(descriptor)
    return found


def _become(agent: int, name: int, program: "Sequence[str]") -> None:
    """Replace this process by the guard, without anything that it was given but two descriptors."""
    empty = posix.open("/dev/null", posix.O_RDWR)
    for standard in (0, 1, 2):
        posix.dup2(empty, standard)
    lower, higher = sorted((agent, name))
    for kept in (lower, higher):
        posix.set_inheritable(kept, True)
    posix.closerange(3, lower)
    posix.closerange(lower + 1, higher)
    posix.closerange(higher + 1, MOST_DESCRIPTORS)
    posix.chdir("/")
    words = [*program, "--agent", str(agent), "--socket", str(name)]
    posix.execve(program[0], words, {key: value for key, value in posix.environ.items() if key in _KEPT})


def run(http: "ModuleType", words: "Sequence[str]") -> None:
    """Be the guard of a session until it ends.

    Args:
        http: the module ``http_client``.
        words: options, each with its value.
    """
    options = dict(zip(words[::2], words[1::2], strict=True))
    session = _json.encode_basestring_ascii(options["--session"])
    bodies = {"renew": f'{{"sessions": [{session}]}}', "end": f'{{"session": {session}, "noticedBy": "process"}}'}

    def send(operation: str, watched: list[int]) -> bool:
        path, end = f"{http.realm_path(options)}/sessions:{operation}", time.monotonic() + ANSWER_S
        try:
            http.sent(options["--server"], path, http.signed(options), bodies[operation].encode(), watched, end)
        except http.LeftError:
            return True
        except http.FailedError as failed:
            return 400 <= failed.status < 500 and failed.status not in PASSING
        return True

    look_after(int(options["--agent"]), int(options["--socket"]), send)


def look_after(agent: int, name: int, send: "Callable[[str, list[int]], bool]") -> None:
    """Renew a session until it ends, and report the end of its agent.

    Args:
        agent: pidfd of the agent.
        name: descriptor of the socket that has the name of the guard.
        send: sends an operation, ``renew`` or ``end``, and returns whether it need not be sent again; it gives up when
            one of the descriptors is ready.
    """
    notice = _socket.socket(fileno=name)
    poll = select.poll()
    poll.register(agent, select.POLLIN)
    poll.register(name, select.POLLIN)
    due = time.monotonic()
    while True:
        ready = [descriptor for descriptor, _ in poll.poll(max(0.0, due - time.monotonic()) * 1000)]
        if agent in ready:
            break
        if name in ready and _is_notified(notice):
            return
        if time.monotonic() >= due:
            due = time.monotonic() + INTERVAL_S
            send("renew", [agent])
    address = notice.getsockname()
    notice.close()
    end = time.monotonic() + REPORT_S
    while not send("end", []) and time.monotonic() < end:
        time.sleep(PAUSE_S)
        if _has_guard(address):  # the session was continued by another process of the agent
            return


def _is_notified(notice: _socket.socket) -> bool:
    """Return whether a connection to the socket is of a process of this user."""
    descriptor, _ = notice._accept()  # type: ignore[attr-defined]  # the class of C has no other
    try:
        peer = _socket.socket(fileno=descriptor)
        credentials = peer.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, _CREDENTIALS)
        return int.from_bytes(credentials[4:8], sys.byteorder) == posix.getuid()
    finally:
        peer.close()


def _has_guard(address: bytes) -> bool:
    """Return whether another guard has the name."""
    probe = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        probe.bind(address)
    except OSError:
        return True
    finally:
        probe.close()
    return False
