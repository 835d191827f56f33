"""The guard of a session: a process that renews the session at the server, and reports the end of its agent.

The first hook of a session leaves it. It has a session of the operating system of its own, so that neither Ctrl-C nor a
closed terminal ends it, and nothing of the agent: no descriptors, no folder, no variables but the token
and the files of certificates. It holds a
pidfd of the agent, which is the nearest process above the hook that is not a shell of the hook.

- Every 5 s it renews the session at the server that holds it, which is another attempt where a balancer chose another,
  or one that refuses it.
- The end of the agent it reports at once, and again until a server has answered, with the time of that end by the
  server's clock, so that a report which arrives late ends no call of a process that continues the session. Where the
  guard itself was stopped, that is the last time at which it saw the agent.
- It has the name of a socket, so that a session has one guard. A byte sent to it says that the session ended. When the
  agent has ended, the guard takes a second name, and then releases the first; while it has that one, hooks of a process
  that continues the session wait, so that the report ends no call of theirs. No other user keeps it from these names
  (``local_sockets.py``).

``hook_client.py`` loads this module without its package, so it imports built-in and extension modules alone.
"""

import _json
import _socket
import posix
import select
import time

TYPE_CHECKING = False  # the modules of types are not loaded when this runs
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import ModuleType

    Answer = dict[str, object] | None
    Send = Callable[[str, list[int]], Answer]

INTERVAL_S = 5.0
"""Time between two renewals, in seconds: the server takes a session for left after 15 s without one."""

ANSWER_S = 10.0
"""Longest time for an answer, in seconds."""

ATTEMPTS = 16
"""Most renewals in succession that reach servers which do not hold the session."""

MOVES_S = 9.0
"""Time without a renewal at the server that holds the session after which it moves, in seconds: two rounds."""

FAILURES = 4
"""Most attempts in succession that are refused, or fail: another one may reach another server."""

STOPPED_S = 3.0
"""Delay of a look at the agent after which this process is taken as having been stopped, in seconds."""

ENDED = b"e"
"""What a hook sends to the guard where the session ended; without it, it looks whether there is a guard."""

WORD_S = 1.0
"""Longest time for that word, in seconds."""

REPORT_S = 600.0
"""How long it is tried to report the end of the agent, in seconds."""

PAUSE_S = 1.0
"""Time between two reports, in seconds."""

PASSING = (401, 408, 429)
"""Refusals that may pass: a token is replaced, a server has much to do."""

REFUSED: "dict[str, object]" = {"refused": True}
"""In place of the answer of a server that refuses an operation."""

RENEW, MOVE, END = "renew", "renew there", "end"
"""What a guard sends: the first word is the operation."""

MOST_DESCRIPTORS = 1 << 20
_KEPT = (b"WORLDCTL_TOKEN", b"SSL_CERT_FILE", b"SSL_CERT_DIR")


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


def run(http: "ModuleType", sockets: "ModuleType", options: "Mapping[str, str]", endings: "Sequence[str]") -> None:
    """Be the guard of a session until it ends.

    Args:
        http: the module ``http_client``.
        sockets: the module ``local_sockets``.
        options: those of the program, by name.
        endings: names of the socket that a guard has while it reports the end of its agent.
    """
    session = _json.encode_basestring_ascii(options["--session"])
    bodies = {
        RENEW: f'{{"sessions": [{session}]}}',
        MOVE: f'{{"sessions": [{session}], "moves": true}}',
        END: f'{{"session": {session}, "noticedBy": "process"}}',
    }
    ahead_ms: float | None = None

    def send(operation: str, watched: list[int]) -> "Answer":
        nonlocal ahead_ms
        path = f"{http.realm_path(options)}/sessions:{operation.partition(' ')[0]}"
        try:
            fields, body, end = http.signed(options), bodies[operation].encode(), time.monotonic() + ANSWER_S
            found = dict(http.read_object(http.sent(options["--server"], path, fields, body, watched, end)))
            if operation != END and isinstance(at := found.get("now"), int):
                ahead_ms = at - time.monotonic() * 1000
            return found
        except http.LeftError:
            return {}
        except ValueError:
            return REFUSED
        except http.FailedError as failed:
            return REFUSED if 400 <= failed.status < 500 and failed.status not in PASSING else None

    notice = _socket.socket(fileno=int(options["--socket"]))
    ended = look_after(int(options["--agent"]), notice, send, sockets)
    if ended is not None and ahead_ms is not None:
        bodies[END] = f'{bodies[END][:-1]}, "endedAt": {int(ahead_ms + ended * 1000)}}}'
    elif ended is None or time.monotonic() - ended >= STOPPED_S:  # when is not known: the server misses the renewals
        notice.close()
        return
    report(send, notice, sockets, endings)


def look_after(agent: int, notice: _socket.socket, send: "Send", sockets: "ModuleType") -> "float | None":
    """Renew a session until it ends.

    Args:
        agent: pidfd of the agent.
        notice: the socket that has the name of the guard.
        send: sends an operation, and returns the answer; ``REFUSED`` where that is no success, None where it may pass.
            It gives up when one of the descriptors is ready.
        sockets: the module ``local_sockets``.

    Returns:
        When the agent ended, by ``time.monotonic``: where this process was stopped meanwhile, when it was seen last.
        None where a hook says that the session ended.
    """
    poll = select.poll()
    poll.register(agent, select.POLLIN)
    poll.register(notice.fileno(), select.POLLIN)
    due = seen = time.monotonic()
    reached = None
    while True:
        ready = [descriptor for descriptor, _ in poll.poll(max(0.0, due - time.monotonic()) * 1000)]
        now = time.monotonic()
        if agent in ready:
            return seen if now - max(due, seen) >= STOPPED_S else now
        seen = now
        if notice.fileno() in ready and _is_notified(notice, sockets):
            return None
        if now >= due:
            due = now + INTERVAL_S
            reached = renew(send, agent, reached)


def renew(send: "Send", agent: int, reached: "float | None") -> "float | None":
    """Renew a session at the server that holds it, and return when that was reached last, by ``time.monotonic``.

    One that refuses it, or does not answer, is passed over for the next one that a balancer chooses. The session moves
    to another server once the one that holds it was not reached for a time. A run, which
    ``worldprotocol.runs.called`` looks after, is renewed in the same way.

    Args:
        send: as of ``look_after``.
        agent: pidfd of the agent, which gives up an attempt.
        reached: when that server was reached last, by ``time.monotonic``; None where it never was.
    """
    begun, failures, is_elsewhere = time.monotonic(), 0, False
    for _ in range(ATTEMPTS):
        answer = send(RENEW, [agent])
        if answer is None or answer is REFUSED:
            failures += 1
        elif not answer.get("elsewhere"):
            return time.monotonic()
        else:
            is_elsewhere = True
        if failures == FAILURES or time.monotonic() - begun >= INTERVAL_S:
            break
    moving = time.monotonic()
    is_lost = is_elsewhere if reached is None else moving - reached >= MOVES_S
    for _ in range(FAILURES if is_lost else 0):
        answer = send(MOVE, [agent])
        if answer is not None and answer is not REFUSED and not answer.get("elsewhere"):
            return time.monotonic()
        if time.monotonic() - moving >= INTERVAL_S:
            break
    return reached


def report(send: "Send", notice: _socket.socket, sockets: "ModuleType", endings: "Sequence[str]") -> None:
    """Report the end of the agent, until a server has answered or another process continues the session.

    Args:
        send: as of ``look_after``.
        notice: the socket that has the name of the guard.
        sockets: the module ``local_sockets``.
        endings: names of the socket that a guard has meanwhile.
    """
    end, refusals = time.monotonic() + REPORT_S, 0
    try:
        ending, _ = sockets.taken(endings)  # none where an earlier guard of the session reports still
    except OSError:
        ending = None
    notice.close()
    while (answer := send(END, [])) is None or answer is REFUSED:
        refusals += answer is REFUSED
        if refusals == FAILURES or time.monotonic() >= end:
            break
        if answer is None and _is_awaited(ending, sockets):
            break
    if ending is not None:
        ending.close()


def _is_awaited(ending: "_socket.socket | None", sockets: "ModuleType") -> bool:
    """Return whether a hook of this user waits, within the pause between two reports."""
    end, poll = time.monotonic() + PAUSE_S, select.poll()
    if ending is not None:
        poll.register(ending.fileno(), select.POLLIN)
    while (left := end - time.monotonic()) > 0:
        if poll.poll(left * 1000) and ending is not None and (peer := sockets.accepted(ending)) is not None:
            peer.close()
            return True
    return False


def _is_notified(notice: _socket.socket, sockets: "ModuleType") -> bool:
    """Return whether a process of this user says that the session ended; others look whether there is a guard."""
    peer = sockets.accepted(notice)
    if peer is None:
        return False
    try:
        peer.settimeout(WORD_S)
        return bool(peer.recv(1) == ENDED)
    except OSError:
        return False
    finally:
        peer.close()
