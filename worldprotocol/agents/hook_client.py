"""The program that hooks of coding agents run: it sends an event to the server of a realm, and prints the answer.

``PYTHON -I -S hook_client.py AGENT --server ADDRESS --realm NAME [--token-file FILE] [--program WORDS] [--time-s N]``
starts as fast as Python does: it imports built-in and extension modules alone, and Python's ``ssl`` for ``https:``.
``worldctl hooks call`` calls ``answered`` below. Rules:

- Before a call of a tool, everything but a decision blocks it by exit code 2 and one sentence: no answer, a status that
  is not 2xx, an answer over 1 MB. After it, a lost report has exit code 1.
- A call ends with its caller: where nothing reads stdout any more, or the parent process has ended, the connection is
  closed, and the server withdraws the call. A report is delivered nevertheless.
- A connection that is lost before the answer is made again for 2 s; the event has the same key.
- The first hook of a session leaves a process that looks after it (``hooks/session_guard.py``), and all say that there
  is one, so that the server ends the session where no renewal follows.

Source: docs/agents.md.
"""

import _frozen_importlib
import _frozen_importlib_external
import posix
import select
import sys
import time

TYPE_CHECKING = False  # the modules of types, and packages, are not loaded when this runs
if TYPE_CHECKING:
    from types import ModuleType

    from worldprotocol.agents.hooks import http_client, local_sockets

FILE = __file__
GUARD = "guard"
"""The word by which this program is a guard."""

BLOCKS = 2
"""Exit code of a hook by which agents block a call."""

FAILED = 1
MAX_EVENT_BYTES = 16 * 1024 * 1024
LONGEST_S = 590
"""Time after which a hook gives up and blocks, in seconds: shorter than the time that agents give it."""

RETURN_S = 2.0
"""Time in which a lost connection is made again, in seconds."""

AGAIN_S = 0.1

REPORT_S = 20.0
"""Longest time for the report of an earlier guard, in seconds: it connects within 10 s, and is answered within 10 s."""

BEFORE = ("PreToolUse", "BeforeTool", "preToolUse")
"""Events whose answer decides whether a call is made."""

ENDS = ("SessionEnd", "sessionEnd")
_PIECE = 65_536


def _module(name: str) -> "ModuleType":
    """Return a module of the folder ``hooks``; as a program from its compiled file, without its package."""
    if __package__:
        return __import__(f"{__package__}.hooks.{name}", fromlist=[name])
    file = f"{FILE.rpartition('/')[0]}/hooks/{name}.py"
    loader = _frozen_importlib_external.SourceFileLoader(name, file)
    spec = _frozen_importlib.ModuleSpec(name, loader, origin=file)
    spec.has_location = True
    module = _frozen_importlib.module_from_spec(spec)
    loader.exec_module(module)
    return module


if not TYPE_CHECKING:
    http_client, local_sockets = _module("http_client"), _module("local_sockets")


# Decisions


def refusal(client: str, answer: dict[str, object]) -> str | None:
    """Return the reason of an answer that refuses a call; None for any other.

    Args:
        client: the agent.
        answer: the server's.
    """
    decision, reason = _decided(client, answer)
    return str(reason or "The realm refused this.") if decision == "deny" else None


def is_decision(client: str, answer: dict[str, object]) -> bool:
    """Return whether an answer permits or refuses a call in the form of an agent; the arguments are as above."""
    decision, _ = _decided(client, answer)
    no_objection = {"hookSpecificOutput": {"hookEventName": "PreToolUse"}}
    return decision in ("allow", "deny") or (client == "codex" and answer == no_objection)


def _decided(client: str, answer: dict[str, object]) -> tuple[object, object]:
    if client == "gemini":
        return answer.get("decision"), answer.get("reason")
    if client == "cursor":
        return answer.get("permission"), answer.get("agent_message")
    inner = answer.get("hookSpecificOutput")
    if not isinstance(inner, dict) or inner.get("hookEventName") != "PreToolUse":
        return None, None
    return inner.get("permissionDecision"), inner.get("permissionDecisionReason")


# The hook


def answered(words: list[str]) -> int:
    """Pass the event on stdin on to the server, print the answer, and return the exit code.

    Args:
        words: the agent, and options, each with its value.
    """
    client, options = words[0], dict(zip(words[1::2], words[2::2], strict=True))
    decides, end = True, time.monotonic() + float(options.get("--time-s", LONGEST_S))
    try:
        content = _event(end)
        event = http_client.read_object(content)
        decides = event.get("hook_event_name") in BEFORE
        watched = _caller()
        if decides and not watched:
            raise http_client.LeftError
        if watched and event.get("hook_event_name") not in ENDS and _leave_guard(client, options, event):
            options[GUARD] = "yes"
        answer, given = _asked(client, options, content, watched if decides else [], end)
        if decides and not is_decision(client, given):
            raise http_client.FailedError("the server answered something else than a decision")
        if event.get("hook_event_name") in ENDS:
            _end_guard(client, options, event)
    except http_client.LeftError:
        return BLOCKS
    except BaseException as error:  # noqa: BLE001  # whatever it is, the call is blocked
        what = "asked, so this is blocked" if decides else "reached, so this is not recorded; its files stay leased"
        _print(2, f"The realm could not be {what}: {str(error) or type(error).__name__}\n".encode())
        return BLOCKS if decides else FAILED
    reason = refusal(client, given)
    if not _print(1, answer.strip() + b"\n"):
        return BLOCKS
    if reason is None or client in ("claude-code", "codex"):
        return 0
    _print(2, reason.encode("utf-8", "replace") + b"\n")
    return BLOCKS


def _event(end: float) -> bytes:
    """Return what stdin holds.

    Raises:
        FailedError: it does not end, or is too large.
    """
    poll, found = select.poll(), bytearray()
    poll.register(0, select.POLLIN)
    while poll.poll(max(0.0, end - time.monotonic()) * 1000):
        piece = posix.read(0, _PIECE)
        found += piece
        if not piece:
            return bytes(found)
        if len(found) > MAX_EVENT_BYTES:
            raise http_client.FailedError("the event is larger than 16 MB")
    raise http_client.FailedError("the event on stdin did not end in time")


def _caller() -> list[int]:
    """Return what becomes ready when the caller leaves: stdout, and the parent process. Empty: it has left."""
    poll = select.poll()
    poll.register(1, 0)
    if poll.poll(0):
        return []
    parent = posix.getppid()
    try:
        found = [1, posix.pidfd_open(parent)]
    except (AttributeError, OSError):  # this system has none
        found = [1]
    return found if posix.getppid() == parent else []


def _asked(
    client: str, options: dict[str, str], content: bytes, watched: list[int], end: float
) -> tuple[bytes, dict[str, object]]:
    """Return the answer to an event, as text and read. A connection that is lost is made again for a short time.

    Raises:
        FailedError: there is none that can be understood.
        LeftError: the caller has left.
    """
    path = f"{http_client.realm_path(options)}/hooks/{client}"
    installed = {"Server": "--server", "Token-File": "--token-file", "Program": "--program", "Guarded": GUARD}
    fields = {f"Wp-Hook-{name}": http_client.quoted(options[key]) for name, key in installed.items() if key in options}
    until = None
    while True:
        try:
            text = http_client.sent(
                options["--server"], path, http_client.signed(options) | fields, content, watched, end
            )
            return text, http_client.read_object(text)
        except http_client.FailedError as failed:
            if until is None and isinstance(failed, http_client.LostError):
                until = time.monotonic() + RETURN_S
            if until is None or failed.status or time.monotonic() > until:
                raise
            time.sleep(AGAIN_S)


def _print(descriptor: int, content: bytes) -> bool:
    """Write to stdout or stderr; return whether something reads it."""
    try:
        while content:
            content = content[posix.write(descriptor, content) :]
    except OSError:
        return False
    return True


# The guard of a session


def _session(client: str, event: dict[str, object]) -> str:
    """Return the session of an event; empty where it has none."""
    names = ("conversation_id", "session_id") if client == "cursor" else ("session_id",)
    return next((found for name in names if isinstance(found := event.get(name), str) and found), "")


def _names(client: str, options: dict[str, str], session: str) -> tuple[list[str], list[str]]:
    """Return the names of the socket of a session's guard, and of the one that it has while it reports.

    Raises:
        FailedError: there is no token.
    """
    of_session = (client, options["--server"], options["--realm"], session)
    secret = http_client.token(options.get("--token-file"))
    guard, ending = (local_sockets.names_of(secret, what, *of_session) for what in (GUARD, "ending"))
    return guard, ending


def _leave_guard(client: str, options: dict[str, str], event: dict[str, object]) -> bool:
    """Start a guard for the session of an event, unless it has one, and return whether it has one then.

    Raises:
        FailedError: there is no token.
    """
    session = _session(client, event)
    if not session or not hasattr(posix, "pidfd_open"):
        return False
    guard, ending = _names(client, options, session)
    stated = [word for key in ("--server", "--realm", "--token-file") if key in options for word in (key, options[key])]
    program = [sys.executable, "-I", "-S", FILE, GUARD, "--client", client, "--session", session, *stated]
    _await_report(ending)
    held = None
    try:
        held, has_guard = local_sockets.taken(guard)
        if held is None:
            return bool(has_guard)
        marks = [FILE, f"hooks call {client} --server"]
        return bool(_module("session_guard").leave(held.fileno(), program, marks))
    except OSError:  # there are too many processes, or sockets
        return False
    finally:
        if held is not None:
            held.close()


def _await_report(ending: list[str]) -> None:
    """Wait while an earlier guard of the session reports the end of its agent: that ends the calls made until then."""
    waiting = local_sockets.first_connected(ending)
    if waiting is not None:
        poll = select.poll()
        poll.register(waiting.fileno(), select.POLLIN)
        poll.poll(REPORT_S * 1000)
        waiting.close()


def _end_guard(client: str, options: dict[str, str], event: dict[str, object]) -> None:
    """Send the guard of a session the word that the session ended."""
    guard, _ = _names(client, options, _session(client, event))
    teller = local_sockets.first_connected(guard)
    if teller is None:
        return
    try:
        teller.send(_module("session_guard").ENDED)
    except OSError:  # it has ended
        return
    finally:
        teller.close()


def main() -> None:
    """Run as the program that hooks start, or as a guard."""
    words = sys.argv[1:]
    if words[0] == GUARD:
        options = dict(zip(words[1::2], words[2::2], strict=True))
        _, ending = _names(options["--client"], options, options["--session"])
        _module("session_guard").run(http_client, local_sockets, options, ending)
        posix._exit(0)
    posix._exit(answered(words))


if __name__ == "__main__":
    main()
