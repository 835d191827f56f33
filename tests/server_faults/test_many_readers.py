"""Many readers of the log: an event is encoded once, idle readers rest, and one that takes nothing is dropped."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice, takewhile
from pathlib import Path

import httpx
import psutil
import pytest

from tests.plugins.forms import scaled
from tests.server.kiosk import kiosk
from tests.server.served import ORDER, PATH, Served, founded, serving
from tests.server_faults.inside import Inside, while_serving
from tests.server_faults.wire import Address, connected, exchanged, request
from tests.support.patience import PATIENCE_S
from worldprotocol import Realm
from worldprotocol.server import log_watch as log_watch_module
from worldprotocol.server.connections import protocol
from worldprotocol.server.connections.event_stream import CHUNK_BYTES, PING
from worldprotocol.server.log_watch import MOST_AT_ONCE, PING_S

pytestmark = pytest.mark.slow

READERS = 60
MANY = scaled(10_000, ci=1_000)
LIMITS = f"requests_per_second = 100000\nburst = 100000\nmax_waits = {MANY * 10 // 9}"
"""Limits of a server of which streams may take nine tenths."""
BYTES_OF_A_READER = 64 * 1024
"""Most resident memory of the server for one idle reader."""


class Reader:
    """A connection that follows the log after a position.

    Args:
        address: the server.
        stack: closes the connection.
        after: the position.
        receive_bytes: size of the receive buffer.
        actor: who reads.
        query: further parameters.
    """

    def __init__(
        self,
        address: Address | Served,
        stack: ExitStack,
        after: int,
        receive_bytes: int | None = None,
        *,
        actor: str = "bot",
        query: str = "",
    ) -> None:
        self.connection = stack.enter_context(connected(address, receive_bytes=receive_bytes))
        self.connection.sendall(request(address, "GET", f"{PATH}/log/stream?after={after}{query}", actor=actor))
        self._stream = stack.enter_context(self.connection.makefile("rb"))
        assert self._stream.readline() == b"HTTP/1.1 200 OK\r\n"
        while self._stream.readline() != b"\r\n":
            pass

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of the chunks, until the connection ends."""
        try:
            while size := int(self._stream.readline() or b"0", 16):
                data = self._stream.read(size)
                if len(data) < size:
                    return
                yield from data.splitlines()
                self._stream.readline()
        except ConnectionResetError:
            return

    def positions(self) -> Iterator[int]:
        """Yield the positions of whole events."""
        position = 0
        for line in self.lines():
            if line.startswith(b"id: "):
                position = int(line[4:])
            elif not line and position:
                yield position
                position = 0


def submitted(address: Address | Served, number: str, item: str = "tea") -> None:
    """Submit an order, and wait for its end."""
    order = ORDER | {"input": {"item": item, "number": number}}
    data = request(
        address, "POST", f"{PATH}/intents", "Connection: close", body=json.dumps(order).encode(), actor="kid"
    )
    [answer] = exchanged(address, data)
    assert (answer.status, answer.json["status"]) == (200, "completed")


def position_of(inside: Inside) -> int:
    return inside.service.realms["main"].realm.log.head().size


def test_an_event_is_encoded_once_for_all_readers(tmp_path: Path) -> None:
    def body(inside: Inside) -> None:
        log_watch = inside.service.realms["main"].log_watch
        begin = position_of(inside)
        with ExitStack() as stack:
            readers = [Reader(inside.address, stack, begin) for _ in range(READERS)]
            for number in range(3):
                submitted(inside.address, f"n{number}")
            end = position_of(inside)
            for reader in readers:
                seen = []
                for position in reader.positions():
                    seen.append(position)
                    if position == end:
                        break
                assert seen == list(range(begin + 1, end + 1))
            assert inside.within(lambda: log_watch.frames.made) == end - begin
            assert log_watch.readers == READERS
            late = Reader(inside.address, stack, begin)
            assert next(late.positions()) == begin + 1
            assert inside.within(lambda: log_watch.frames.made) == end - begin

    while_serving(founded(tmp_path), body)


@pytest.mark.parametrize("form", ["json", "cloudevents"])
def test_an_event_is_encoded_once_for_all_readers_with_one_redaction(tmp_path: Path, form: str) -> None:
    place = founded(tmp_path)
    with Realm.open(place.log, domain=kiosk) as realm:
        for name, rules in (("ann", ["inputs"]), ("bot", ["inputs"]), ("aud", None)):
            realm.access.grant(name, "reader", by="operator", redaction=rules)

    def body(inside: Inside) -> None:
        log_watch = inside.service.realms["main"].log_watch
        begin, query = position_of(inside), f"&format={form}"
        with ExitStack() as stack:
            readers = [
                Reader(inside.address, stack, begin, actor=actor, query=query)
                for actor in ("ann", "bot", "aud")
                for _ in range(READERS // 3)
            ]
            made = inside.within(lambda: log_watch.frames.made)
            submitted(inside.address, "one")
            end = position_of(inside)
            for reader in readers:
                assert list(islice(reader.positions(), end - begin)) == list(range(begin + 1, end + 1))
            assert inside.within(lambda: log_watch.frames.made) - made == 2 * (end - begin)

    while_serving(place, body)


def test_a_commit_wakes_few_readers_at_once(tmp_path: Path) -> None:
    """So a request, which the event loop serves between them, waits for a few and not for all."""

    def body(inside: Inside) -> None:
        log_watch, begin = inside.service.realms["main"].log_watch, position_of(inside)
        turns: list[int] = []
        with ExitStack() as stack:
            readers = [Reader(inside.address, stack, begin) for _ in range(3 * MOST_AT_ONCE)]

            def look() -> None:
                woken = sum(one.changed.is_set() for group in log_watch._readers for one in group)
                turns.append(woken)
                if len(turns) < 100_000 and not log_watch.is_closed:
                    asyncio.get_running_loop().call_soon(look)

            inside.within(look)
            submitted(inside.address, "one")
            end = position_of(inside)
            for reader in readers:
                assert list(islice(reader.positions(), end - begin)) == list(range(begin + 1, end + 1))
            assert 0 < max(turns) <= MOST_AT_ONCE

    while_serving(founded(tmp_path), body)


def test_only_readers_that_were_idle_are_woken_to_keep_their_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_watch_module, "TURN_S", PATIENCE_S)  # the test itself takes the turns

    def body(inside: Inside) -> None:
        log_watch, begin = inside.service.realms["main"].log_watch, position_of(inside)

        def turns(count: int) -> list[int]:
            return [inside.within(log_watch.wake_idle) for _ in range(count)]

        with ExitStack() as stack:
            readers = [Reader(inside.address, stack, begin) for _ in range(READERS)]
            lines = [reader.lines() for reader in readers]
            submitted(inside.address, "first")  # all readers are waiting once they have it
            end = f"id: {position_of(inside)}".encode()
            for one in lines:
                while next(one) != end:
                    pass
            assert turns(PING_S) == [0] * PING_S  # none was idle before
            assert turns(PING_S) == [READERS // PING_S] * PING_S  # a part at each turn, each reader once
            for one in lines:
                assert list(islice(one, 5))[-2:] == PING.splitlines()
            submitted(inside.address, "second")
            end = f"id: {position_of(inside)}".encode()
            for one in lines:
                later = list(takewhile(lambda line: line != end, one))
                assert PING.splitlines()[0] not in later
            assert turns(PING_S) == [0] * PING_S  # an event has kept the connections open

    while_serving(founded(tmp_path), body)


def test_a_reader_that_takes_nothing_is_dropped_and_resumes_and_others_do_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "TAKEN_WITHIN_S", 5.0)
    made: list[protocol.HttpConnection] = []
    original = protocol.HttpConnection.connection_made

    def noted(self: protocol.HttpConnection, transport: object) -> None:
        made.append(self)
        original(self, transport)  # type: ignore[arg-type]

    monkeypatch.setattr(protocol.HttpConnection, "connection_made", noted)
    item = "x" * 20_000

    def body(inside: Inside) -> None:
        begin, unsent = position_of(inside), 0
        with ExitStack() as stack:
            stalled = Reader(inside.address, stack, begin, receive_bytes=4_096)
            for number in range(150):
                submitted(inside.address, f"n{number}", item)
                unsent = max(unsent, inside.within(lambda: max(one.transport.get_write_buffer_size() for one in made)))
            end = position_of(inside)
            prompt = Reader(inside.address, stack, begin)
            assert list(islice(prompt.positions(), end - begin))[-1] == end
            # what waits for the reader is bounded, by the buffer of its connection and one chunk with one frame
            assert protocol_limit() < unsent < protocol_limit() + CHUNK_BYTES + 10 * len(item)
            patience = time.monotonic() + PATIENCE_S
            while inside.service.waits.count > 1:  # it is dropped, although it never ends its connection
                assert time.monotonic() < patience
            seen = list(stalled.positions())
            resumed = Reader(inside.address, stack, seen[-1])
            seen += islice(resumed.positions(), end - seen[-1])
            assert seen == list(range(begin + 1, end + 1))

    while_serving(founded(tmp_path), body)


def protocol_limit() -> int:
    """Return the size from which a connection makes its writer wait."""
    from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT

    return HIGH_WATER_LIMIT


def test_many_idle_readers_fit_and_get_the_next_event(tmp_path: Path) -> None:
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert allowed > MANY + 500, f"This machine allows {allowed} open files; the test needs {MANY + 500}."
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, allowed))
    with (
        serving(founded(tmp_path, server=LIMITS)) as served,
        ExitStack() as stack,
    ):
        process = psutil.Process(served.process.pid)
        with served.client("bot") as client:
            begin = client.get(PATH).json()["position"]
            before = process.memory_info().rss
            readers = [Reader(served, stack, begin) for _ in range(MANY)]
            each = (process.memory_info().rss - before) / MANY
            assert each < BYTES_OF_A_READER, f"{each / 1024:.1f} KiB a reader"
            refused = client.get(f"{PATH}/log/stream")
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
            submitted(served, "all")
            end = client.get(PATH).json()["position"]
        for reader in readers:
            assert list(islice(reader.positions(), end - begin)) == list(range(begin + 1, end + 1))


def test_connections_that_do_not_end_their_part_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEAD_WITHIN_S", "KEEP_ALIVE_S", "TAKEN_WITHIN_S"):
        monkeypatch.setattr(protocol, name, 2.0)
    lost: list[tuple[str, int]] = []
    original = protocol.HttpConnection.connection_lost

    def noted(self: protocol.HttpConnection, exc: Exception | None) -> None:
        assert self.client is not None
        lost.append(self.client)
        original(self, exc)

    monkeypatch.setattr(protocol.HttpConnection, "connection_lost", noted)

    def body(inside: Inside) -> None:
        for number in range(30):
            submitted(inside.address, f"n{number}", "x" * 20_000)
        read = request(inside.address, "GET", PATH)
        large = request(inside.address, "GET", f"{PATH}/log?limit=500", actor="bot")
        intent = request(inside.address, "POST", f"{PATH}/intents", "Content-Length: 1000")
        for begin, drip in (
            (b"", b""),  # a connection without a request
            (b"", b"\r\n"),  # empty lines before a request
            (b"", b"G"),  # an endless method
            (read[:-2], b"X-More: field\r\n"),  # an endless head
            (read, b""),  # an idle connection
            (read, b"\r\n"),
            (read + read[:20], b""),  # a second request that does not end
            (read + read[:-2], b"X-More: field\r\n"),
            (intent, b""),  # a body that does not arrive
            (intent, b" "),  # a body that arrives too slowly
            (intent.replace(b"Content-Length: 1000", b"Transfer-Encoding: chunked"), b"1\r\n \r\n"),
        ):
            with connected(inside.address) as connection:
                connection.sendall(begin)
                connection.settimeout(0.1)
                assert has_ended(connection, drip), (begin, drip)
        with connected(inside.address, receive_bytes=4_096) as connection:  # answers that are not taken
            connection.sendall(large * 8)  # more than the kernel keeps
            mine, end = connection.getsockname(), time.monotonic() + PATIENCE_S
            while mine not in lost:
                assert time.monotonic() < end
            taken = b"".join(iter(lambda: received(connection), b""))
            whole = httpx.get(f"{inside.url}{PATH}/log?limit=500", headers=signed(inside))
            assert len(taken) < 8 * len(whole.content)

    while_serving(founded(tmp_path), body, request_timeout_s=2)


def test_a_late_head_does_not_end_the_answer_to_an_earlier_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEAD_WITHIN_S", 0.2)

    def body(inside: Inside) -> None:
        waits = request(inside.address, "POST", f"{PATH}/intents?wait=2", body=json.dumps(ORDER).encode(), actor="bot")
        [answer] = exchanged(inside.address, waits + waits[:30])  # the connection ends after the answer
        assert (answer.status, answer.json["status"]) == (202, "evaluating")

    while_serving(founded(tmp_path), body)


def signed(inside: Inside) -> dict[str, str]:
    return {"Authorization": f"Bearer {inside.address.tokens['bot']}"}


def received(connection: socket.socket) -> bytes:
    """Return what arrived; nothing at the end, however the connection ended."""
    try:
        return connection.recv(65_536)
    except ConnectionResetError:
        return b""


def has_ended(connection: socket.socket, drip: bytes) -> bool:
    """Send a drop again and again until the server ends the connection."""
    for _ in range(int(PATIENCE_S * 10)):
        try:
            if drip:
                connection.sendall(drip)
            if not connection.recv(65_536):
                return True
        except TimeoutError:
            continue
        except (BrokenPipeError, ConnectionResetError):
            return True
    return False
