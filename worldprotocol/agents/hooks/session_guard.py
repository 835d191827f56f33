"""The guard of a session: a process that renews the session at the server, and reports the end of its agent.

The first hook of a session leaves it. It has a session of the operating system of its own, so that neither Ctrl-C nor a
closed terminal ends it, and nothing of the agent: no descriptors, no folder, no variables but the token
and the files of certificates. It holds a
pidfd of the agent, which is the nearest process above the hook that is not a shell of the hook.

- Every 5 s it renews the session at the server that holds it, which is another attempt where a balancer chose another.
- The end of the agent it reports at once, and again until the server has answered, with the time of that end by the
  server's clock, so that a report which arrives late ends no call of a process that continues the session.
- It binds the name of its socket, so that a session has one guard. A connection to the socket says that the session
  ended. When the agent has ended, it binds a second name, and then releases the first; while that one is bound, hooks
  of a process that continues the session wait, so that the report ends no call of theirs.

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

    Send = Callable[[str, list[int]], dict[str, object] | None]

INTERVAL_S = 5.0
"""Time between two renewals, in seconds: the server takes a session for left after 15 s without one."""

ANSWER_S = 10.0
"""Longest time for an answer, in seconds."""

ATTEMPTS = 16
"""Most renewals in succession that reach servers which do not hold the session."""

MOVES_S = 9.0
"""Time without a renewal at the server that holds the session after which it moves, in seconds: two rounds."""

ENDING = "-ending"
"""End of the second name of a socket, which a guard has while it reports the end of its agent."""

REPORT_S = 600.0
"""How long it is tried to report the end of the agent, in seconds."""

PAUSE_S = 1.0
"""Time between two reports, in seconds."""

PASSING = (401, 408, 429)
"""Refusals that may pass: a token is replaced, a server has much to do."""

RENEW, MOVE, END = "renew", "renew there", "end"
"""What a guard sends: the first word is the operation."""

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
    bodies = {
        RENEW: f'{{"sessions": [{session}]}}',
        MOVE: f'{{"sessions": [{session}], "moves": true}}',
        END: f'{{"session": {session}, "noticedBy": "process"}}',
    }
    ahead_ms: object = None

    def send(operation: str, watched: list[int]) -> "dict[str, object] | None":
        nonlocal ahead_ms
        now = time.monotonic()
        if operation == END and isinstance(ahead_ms, float):  # the first report is made as the agent ends
            ended_at, ahead_ms = int(ahead_ms + now * 1000), None
            bodies[END] = f'{bodies[END][:-1]}, "endedAt": {ended_at}}}'
        path = f"{http.realm_path(options)}/sessions:{operation.partition(' ')[0]}"
        try:
            fields, body = http.signed(options), bodies[operation].encode()
            found = dict(http.read_object(http.sent(options["--server"], path, fields, body, watched, now + ANSWER_S)))
            if operation != END and isinstance(at := found.get("now"), int):
                ahead_ms = at - time.monotonic() * 1000
            return found
        except (http.LeftError, ValueError):
            return {}
        except http.FailedError as failed:
            return {} if 400 <= failed.status < 500 and failed.status not in PASSING else None

    look_after(int(options["--agent"]), int(options["--socket"]), send)


def look_after(agent: int, name: int, send: "Send") -> None:
    """Renew a session until it ends, and report the end of its agent.

    Args:
        agent: pidfd of the agent.
        name: descriptor of the socket that has the name of the guard.
        send: sends an operation, and returns the answer; empty where it need not be sent again, None where it is to be.
            It gives up when one of the descriptors is ready.
    """
    notice = _socket.socket(fileno=name)
    poll = select.poll()
    poll.register(agent, select.POLLIN)
    poll.register(name, select.POLLIN)
    due, reached = time.monotonic(), None
    while True:
        ready = [descriptor for descriptor, _ in poll.poll(max(0.0, due - time.monotonic()) * 1000)]
        if agent in ready:
            break
        if name in ready and _is_notified(notice):
            return
        if time.monotonic() >= due:
            due = time.monotonic() + INTERVAL_S
            reached = renew(send, agent, reached)
    report(send, notice)


def renew(send: "Send", agent: int, reached: "float | None") -> "float | None":
    """Renew a session at the server that holds it, and return when that was reached last, by ``time.monotonic``.

    The session moves to another server once the one that holds it was not reached for a time. A run, which
    ``worldprotocol.runs.called`` looks after, is renewed in the same way.

    Args:
        send: as of ``look_after``.
        agent: pidfd of the agent, which gives up an attempt.
        reached: when that server was reached last, by ``time.monotonic``; None where it never was.
    """
    since = time.monotonic() if reached is None else reached
    for _ in range(ATTEMPTS):
        if time.monotonic() - since >= MOVES_S:
            break
        answer = send(RENEW, [agent])
        if answer is None:
            return reached
        if not answer.get("elsewhere"):
            return time.monotonic()
    is_lost = reached is None or time.monotonic() - since >= MOVES_S
    return time.monotonic() if is_lost and send(MOVE, [agent]) is not None else reached


def report(send: "Send", notice: _socket.socket) -> None:
    """Report the end of the agent, until the server has answered or another process continues the session.

    Args:
        send: as of ``look_after``.
        notice: the socket that has the name of the guard.
    """
    poll, end = select.poll(), time.monotonic() + REPORT_S
    ending = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        ending.bind(notice.getsockname() + ENDING.encode())
        ending.listen()
        poll.register(ending.fileno(), select.POLLIN)
    except OSError:  # an earlier guard of the session reports still
        pass
    notice.close()
    try:
        while send(END, []) is None and time.monotonic() < end:
            if _is_awaited(ending, poll):
                return
    finally:
        ending.close()


def _is_awaited(ending: _socket.socket, poll: "select.poll") -> bool:
    """Return whether a hook of this user waits, within the pause between two reports."""
    end = time.monotonic() + PAUSE_S
    while (left := end - time.monotonic()) > 0:
        if poll.poll(left * 1000) and _is_notified(ending):
            return True
    return False


def _is_notified(notice: _socket.socket) -> bool:
    """Return whether a connection to the socket is of a process of this user."""
    descriptor, _ = notice._accept()  # type: ignore[attr-defined]  # the class of C has no other
    peer = _socket.socket(fileno=descriptor)
    try:
        return is_of_user(peer)
    finally:
        peer.close()


def is_of_user(peer: _socket.socket) -> bool:
    """Return whether the process at the other end of a connection is of the user of this one.

    Args:
        peer: the connection, of a Unix socket.
    """
    credentials = peer.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, _CREDENTIALS)
    return int.from_bytes(credentials[4:8], sys.byteorder) == posix.getuid()
