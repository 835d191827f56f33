"""Requests to the server of a realm, from processes that start in a few milliseconds.

One request a connection: on a Unix socket, to this machine, or over TLS. ``hook_client.py`` loads this module without
its package, so it imports built-in and extension modules alone, and Python's ``ssl`` for ``https:``.
"""

import _json
import _socket
import posix
import select
import time

CONNECT_S = 10.0
"""Longest time to connect, and to send, in seconds."""

MAX_ANSWER_BYTES = 1024 * 1024
LOOPBACK = ("127.0.0.1", "::1", "localhost")
_PIECE = 65_536
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~")


class FailedError(Exception):
    """There is no answer that can be used; its text says why.

    Args:
        why: the text.
        status: the HTTP status by which the server refused the request; 0 where there is none.
    """

    def __init__(self, why: str, status: int = 0) -> None:
        super().__init__(why)
        self.status = status


class LostError(FailedError):
    """The connection ended before the answer was complete."""


class LeftError(Exception):
    """The caller has left."""


class _ScannerSettings:
    """How JSON is read: as Python's module ``json`` does it, whose scanner this is."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int, parse_constant = float, int, float


def read_object(content: bytes) -> dict[str, object]:
    """Return a JSON object.

    Raises:
        ValueError: it is none.
    """
    text = content.decode().strip(" \t\r\n")
    try:
        value, end = _json.make_scanner(_ScannerSettings)(text, 0)  # type: ignore[arg-type]  # it takes any object with these members
    except StopIteration:
        raise ValueError("it is no JSON") from None
    if end != len(text) or not isinstance(value, dict):
        raise ValueError("it is no JSON object")
    return value


def quoted(text: str) -> str:
    """Return a text with everything but letters, digits and ``_.-~`` in percent-encoding."""
    return "".join(chr(one) if one in _PLAIN else f"%{one:02X}" for one in text.encode())


def token(file: str | None) -> bytes:
    """Return the token in a file, or that of ``WORLDCTL_TOKEN``; empty where there is none.

    Raises:
        FailedError: the file cannot be read, or what is given is no token.
    """
    if file is None:
        text = posix.environ.get(b"WORLDCTL_TOKEN", b"").strip()
    else:
        try:
            text = _content(posix.open(file, posix.O_RDONLY | posix.O_CLOEXEC), _PIECE).strip()
        except OSError as error:
            raise FailedError(f"the token in {file} cannot be read: {error.strerror}") from None
    lines = text.splitlines()
    if len(lines) == 2 and lines[1].startswith(b"token "):  # as `worldctl token create` prints it
        text = lines[0].strip()
    if (text or file is not None) and (text.split() != [text] or not text.isascii()):
        raise FailedError(f"{file or 'WORLDCTL_TOKEN'} holds no token: write what `worldctl token create` prints")
    return text


def _content(descriptor: int, limit: int) -> bytes:
    found = b""
    try:
        while len(found) <= limit and (piece := posix.read(descriptor, limit + 1 - len(found))):
            found += piece
    finally:
        posix.close(descriptor)
    return found


def _connected(server: str) -> tuple["_socket.socket", str, str]:
    """Return a connection to a server, the host, and what precedes its paths.

    Raises:
        FailedError: the address is not one that a token goes to.
        OSError: there is no connection.
    """
    if server.startswith("unix:"):
        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        connection.settimeout(CONNECT_S)
        connection.connect(server[5:])
        return connection, "localhost", ""
    scheme, _, rest = server.partition("://")
    place, _, prefix = rest.partition("/")
    host, _, port = place.rpartition(":") if place.rpartition(":")[2].isdecimal() else (place, "", "")
    host = host.strip("[]")
    if scheme == "https":
        import socket
        import ssl

        plain = socket.create_connection((host, int(port or 443)), CONNECT_S)
        return ssl.create_default_context().wrap_socket(plain, server_hostname=host), place, f"/{prefix}".rstrip("/")
    if scheme != "http" or host not in LOOPBACK:
        raise FailedError(f"{server} is not the address of a server on this machine, and not https")
    named = host.encode()  # a text would be encoded by modules of IDNA
    family, kind, protocol, _, address = _socket.getaddrinfo(named, int(port or 80), 0, _socket.SOCK_STREAM)[0]
    connection = _socket.socket(family, kind, protocol)
    connection.settimeout(CONNECT_S)
    connection.connect(address)
    return connection, place, f"/{prefix}".rstrip("/")


def sent(server: str, path: str, fields: dict[str, str], body: bytes, watched: list[int], end: float) -> bytes:
    """Send a request, and return the body of the answer.

    Args:
        server: the address.
        path: of the operation.
        fields: headers.
        body: JSON.
        watched: descriptors that become ready when the caller has left.
        end: when to give up, in seconds of ``time.monotonic``.

    Raises:
        LostError: the connection ended before the answer.
        LeftError: the caller has left.
        FailedError: there is no connection, no answer in time, or one that is no success.
    """
    try:
        connection, host, prefix = _connected(server)
    except OSError as error:
        raise FailedError(f"no server answers at {server}: {error.strerror or error}") from None
    head = {"Host": host, "Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in (head | fields).items())
    try:
        connection.sendall(f"POST {prefix}{path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + body)
        status, content = _received(connection, watched, end)
    except OSError as error:
        raise LostError(f"the connection to {server} was lost: {error.strerror or error}") from None
    finally:
        connection.close()
    if not 200 <= status <= 299:
        raise FailedError(_problem(server, status, content), status)
    return content


def _received(connection: "_socket.socket", watched: list[int], end: float) -> tuple[int, bytes]:
    """Return the status and the body of an answer; arguments and errors are those of ``sent``."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    for one in watched:
        poll.register(one, 0 if one == 1 else select.POLLIN)  # an error and a hang-up are reported always
    received = b""
    while True:
        ready = poll.poll(max(0.0, end - time.monotonic()) * 1000)
        if not ready:
            raise FailedError("the server did not answer in time")
        if any(one != connection.fileno() for one, _ in ready):
            raise LeftError
        piece = connection.recv(_PIECE)
        received += piece
        if len(received) > MAX_ANSWER_BYTES:
            raise FailedError("the answer is longer than 1 MB")
        try:
            found = _answer(received, is_whole=not piece)
        except (ValueError, IndexError):
            raise FailedError("the server answered something else than HTTP") from None
        if found is not None:
            return found
        if not piece:
            raise LostError("the connection ended before the answer")


def _answer(received: bytes, *, is_whole: bool) -> tuple[int, bytes] | None:
    """Return the status and the body of an answer; None where it is not complete.

    Raises:
        ValueError: it is no HTTP.
        IndexError: likewise.
    """
    head, gap, rest = received.partition(b"\r\n\r\n")
    if not gap:
        return None
    first, *lines = head.split(b"\r\n")
    status = int(first.split()[1])
    fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
    if fields.get(b"transfer-encoding", b"").lower() == b"chunked":
        body = b""
        while True:
            size, gap, rest = rest.partition(b"\r\n")
            length = int(size.partition(b";")[0], 16) if gap else 0
            if not gap or len(rest) < length:
                return None
            if length == 0:
                return status, body
            body, rest = body + rest[:length], rest[length + 2 :]
    if b"content-length" not in fields:
        return (status, rest) if is_whole else None
    length = int(fields[b"content-length"])
    return (status, rest[:length]) if len(rest) >= length else None


def _problem(server: str, status: int, content: bytes) -> str:
    """Return why a server refused a request."""
    try:
        problem = read_object(content)
    except ValueError:
        problem = {}
    return f"{problem.get('detail') or f'{server} answered {status}'!s:.2000}"


def signed(options: dict[str, str]) -> dict[str, str]:
    """Return the header with the token.

    Raises:
        FailedError: as ``token``.
    """
    found = token(options.get("--token-file"))
    return {"Authorization": f"Bearer {found.decode()}"} if found else {}


def realm_path(options: dict[str, str]) -> str:
    """Return the path of the realm that options name."""
    return f"/v1/realms/{quoted(options['--realm'])}"
