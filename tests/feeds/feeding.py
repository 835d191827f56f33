"""A realm with feeds, and receivers of its messages."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from standardwebhooks.webhooks import Webhook

from tests.support.patience import PATIENCE_S
from world.clock import Clock, SystemClock
from worldprotocol import ActionContext, Domain, Policy, Realm, Reject, rule, set_
from worldprotocol.api.config import read_config
from worldprotocol.export.feeds.delivery import FeedReport
from worldprotocol.export.feeds.running import ConfiguredFeed, FeedRun, configured_feeds, feed_status, opened_state
from worldprotocol.export.feeds.state import FeedProgress

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OTHER_SECRET = "whsec_" + base64.b64encode(bytes(range(1, 33))).decode()
CHILD = Path(__file__).with_name("receiver_child.py")
SIGNED = 'secret = "${secret:HOOK}"\nfirst_wait_ms = 1\nlongest_wait_ms = 20\n'


class Stock(BaseModel):
    stock: int = 0


class Addition(BaseModel):
    count: int


depot = Domain("urn:example:depot", version="1.0.0", state=Stock)


@depot.action("add", version="1")
def add(ctx: ActionContext, input: Addition) -> list[Any]:  # noqa: A002
    if input.count > 100:
        ctx.fail("TOO_MANY", "more than 100")
    return [set_("stock", ctx.data["stock"] + input.count)]


@rule
def nothing_passes(case: Any) -> Any:
    return Reject("closed today")


closed = Policy("closed", [nothing_passes])


def act(realm: Realm, times: int = 1) -> None:
    """Append the events of some proposals."""
    for _ in range(times):
        assert realm.act("ada", "add", {"count": 1}).status == "completed"


@dataclass
class Feeding:
    """A realm, and its feeds as a configuration in its folder has them."""

    folder: Path
    realm: Realm

    @property
    def address(self) -> str:
        return str(self.folder / "world.db")

    @property
    def size(self) -> int:
        return self.realm.log.head().size

    def configure(self, *feeds: str) -> list[ConfiguredFeed]:
        """Write the configuration, and return its feeds."""
        secrets = '[secrets]\nprefix = "FEED_"\n'
        (self.folder / "world.toml").write_text(f'domain = "depot"\n{secrets}' + "\n".join(feeds))
        return configured_feeds(read_config(self.folder / "world.toml"), self.address)

    def feed(self, settings: str, name: str = "hook") -> ConfiguredFeed:
        """Write a configuration with one feed, and return it."""
        [one] = self.configure(f"[feeds.{name}]\n{settings}")
        return one


@contextmanager
def feeding(folder: Path) -> Iterator[Feeding]:
    """Open a new realm with some events."""
    with Realm.create(folder / "world.db", domain=depot, policies=[closed]) as realm:
        realm.register("ada", "human", binding={"kind": "auto_approve"})
        realm.register("bot", "agent", binding={"kind": "policy_rules", "policy": "closed"})
        yield Feeding(folder, realm)


def progress(feed: ConfiguredFeed) -> FeedProgress:
    """Return what a feed has stored."""
    with opened_state(feed) as state:
        return state.progress()


def deliver(feed: ConfiguredFeed) -> list[FeedReport]:
    """Deliver what is in the log, and return the steps."""
    reports: list[FeedReport] = []
    FeedRun(feed, SystemClock(), once=True, on_report=reports.append).run()
    return reports


class Steps:
    """The steps of a feed that runs in a thread."""

    def __init__(self) -> None:
        self.reports: list[FeedReport] = []
        self.error: BaseException | None = None
        self._changed = threading.Condition()

    def note(self, report: FeedReport | BaseException) -> None:
        with self._changed:
            if isinstance(report, BaseException):
                self.error = report
            else:
                self.reports.append(report)
            self._changed.notify_all()

    def wait(self, kind: str, position: int = 0) -> FeedReport:
        """Return the first step of a kind from a position on, when it has been done; it may be far away."""

        def found() -> list[FeedReport]:
            return [one for one in self.reports if one.kind == kind and one.position >= position]

        def reached() -> int:
            return max((one.position for one in self.reports), default=0)

        with self._changed:
            while not (found() or self.error):
                before = reached()
                assert self._changed.wait_for(lambda: found() or self.error or reached() > before, PATIENCE_S)  # noqa: B023
            return found()[0]


@contextmanager
def delivering(feed: ConfiguredFeed, clock: Clock | None = None) -> Iterator[Steps]:
    """Deliver in a thread until the block ends."""
    steps = Steps()
    one = FeedRun(feed, clock or SystemClock(), on_report=steps.note)

    def run() -> None:
        try:
            one.run()
        except BaseException as error:  # noqa: BLE001 - raised below
            steps.note(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield steps
    finally:
        one.stop()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        if steps.error is not None:
            raise steps.error


@dataclass
class Receiver:
    """A receiver in this process: it answers from a list of status codes, and 204 after them."""

    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def ids(self) -> list[str]:
        return [headers["webhook-id"] for _, headers, _ in self.requests]


@contextmanager
def receiving(*answers: int | tuple[int, dict[str, str]]) -> Iterator[Receiver]:
    """Listen for messages."""
    receiver = Receiver([one if isinstance(one, tuple) else (one, {}) for one in answers])

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            receiver.requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            status, headers = receiver.answers.pop(0) if receiver.answers else (204, {})
            self.send_response(status)
            for name, value in {"content-length": "0", **headers}.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield receiver
        server.shutdown()
        thread.join(PATIENCE_S)


def wait_until_waiting(child: subprocess.Popen[str]) -> None:
    """Wait until a child says that it has come to its place; the line may have been read ahead with the one before."""
    assert child.stdout is not None
    limit = threading.Timer(PATIENCE_S, child.kill)
    limit.start()
    try:
        assert child.stdout.readline() == "waiting\n"
    finally:
        limit.cancel()


@dataclass
class ChildReceiver:
    """A receiver that is killed and started again, at one address."""

    file: Path
    host: str = field(default_factory=lambda: f"127.{1 + os.getpid() // 65_536 % 250}.{os.getpid() // 256 % 256}.9")
    port: int = 0

    @property
    def url(self) -> str:
        """Its address; no connection of other programs has this one of the loopback network."""
        return f"http://{self.host}:{self.port}/hook"

    @contextmanager
    def started(self, stop_at: int = 0, place: str = "stored") -> Iterator[subprocess.Popen[str]]:
        """Start it, and kill it at the end of the block."""
        words = [self.host, str(self.port), str(self.file), str(stop_at), place]
        command = [sys.executable, "-I", "-S", str(CHILD), *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            self.port = int(child.stdout.readline())
            try:
                yield child
            finally:
                child.kill()

    def live(self, stop_at: int, place: str) -> None:
        """Start it, and kill it when it has come to a place."""
        with self.started(stop_at, place) as child:
            wait_until_waiting(child)

    def messages(self) -> list[tuple[str, bytes]]:
        """Return id and body of what it has stored, each verified by the package of the specification."""
        found = []
        for line in self.file.read_text().splitlines():
            told = json.loads(line)
            body = base64.b64decode(told["body"])
            Webhook(SECRET).verify(body, told["headers"], json_parse=False)
            found.append((told["headers"]["webhook-id"], body))
        return found


def state_of(feed: ConfiguredFeed) -> Any:
    """Return the status of a feed without times."""
    return {name: value for name, value in feed_status(feed).items() if name != "deliveredAt"}
