"""Starts ``worldctl serve`` as a process of its own, on a realm with actors, rights and tokens.

It is forked from a process that has imported everything, which takes a fifth of the time of a new interpreter.
"""

from __future__ import annotations

import json
import os
import ssl
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

import httpx

from tests.cli import forked
from tests.cli.realm import COMMAND, environment
from tests.server.kiosk import kiosk
from tests.support.patience import PATIENCE_S
from world.events.verification import RIGHTS, Right
from world.klis.settings import KlisSettings
from world.limits import Limits
from worldprotocol.api.realm import Realm

KIOSK = Path(__file__).resolve().parent / "kiosk.py"
ACTORS: Mapping[str, tuple[str, Sequence[Right]]] = {
    "ann": ("human", ["approver", "reader"]),
    "bob": ("human", ["approver"]),
    "bot": ("agent", ["actor", "reader"]),
    "kid": ("agent", ["actor"]),
    "ops": ("human", ["operator"]),
    "aud": ("human", ["auditor"]),
    "all": ("human", RIGHTS),
    "nil": ("human", []),
    "mule": ("agent", ["worker"]),
    "yak": ("agent", ["worker"]),
}
"""Actors with their kind and rights. Proposals of bot wait for ann or bob; all others are approved."""

ADMINISTRATORS = "operator ops all"
"""Actors that may revoke leases."""

SERVE = ("serve", "--json", "--port", "0")
PATH = "/v1/realms/main"
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""What spares clients of http addresses the reading of certificates, 20 ms each."""

ORDER = {"type": "order.place", "input": {"item": "tea"}, "scopeProposal": {"allowedPaths": ["orders"]}}


@dataclass
class Place:
    """A folder with a realm and its configuration.

    Args:
        folder: the folder.
        log: address of the log.
        tokens: an API token of each actor.
    """

    folder: Path
    log: str
    tokens: dict[str, str] = field(default_factory=dict)

    def realm(self) -> Realm:
        """Open the realm for reading."""
        return Realm.open_read_only(self.log)


def founded(folder: Path, log: str | None = None, server: str = "") -> Place:
    """Found a realm with actors, rights and tokens, and write its configuration.

    Args:
        folder: where the configuration goes.
        log: address of the log; None is a file in the folder.
        server: lines of the section ``[server]``.
    """
    place = Place(folder, log or str(folder / "world.db"))
    settings = KlisSettings.read({"administrators": ADMINISTRATORS})
    with Realm.create(place.log, domain=kiosk, limits=Limits(klis=settings)) as realm:
        for name, (kind, rights) in ACTORS.items():
            binding = {"kind": "hitl", "ask": ["ann", "bob"]} if name == "bot" else {"kind": "auto_approve"}
            realm.register(name, kind, binding=binding)  # type: ignore[arg-type]
            for right in rights:
                realm.access.grant(name, right, by="operator")
            place.tokens[name] = realm.access.create_token(name, by="operator").token
    hosts = "" if "hosts =" in server else "hosts = ['kiosk']\n"  # the name in requests that tests write by hand
    (folder / "world.toml").write_text(
        f"log = {json.dumps(place.log)}\ndomain = '{KIOSK}:kiosk'\nprojections = ['{KIOSK}:mail']\n"
        f"effects = ['{KIOSK}:handlers']\n[klis]\nadministrators = '{ADMINISTRATORS}'\n[server]\n{hosts}{server}\n",
        encoding="utf-8",
    )
    return place


class Process(Protocol):
    """What tests use of a process."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, sig: int) -> None: ...

    def kill(self) -> None: ...


@dataclass
class Served:
    """A running server.

    Args:
        place: the realm.
        process: the server.
        url: where it listens.
        socket: its Unix socket, None without one.
        links: by actor, the one-time link that signs a browser in.
        all_links: the links of all actors and realms.
    """

    place: Place
    process: Process
    url: str
    socket: str | None
    links: dict[str, str] = field(default_factory=dict)
    all_links: list[str] = field(default_factory=list)

    def client(self, actor: str | None = None, **more: Any) -> httpx.Client:
        """Return a client that is signed in with the token of an actor; None signs in nobody."""
        headers = {} if actor is None else {"Authorization": f"Bearer {self.place.tokens[actor]}"}
        more = {"verify": NO_TLS, **more}
        return httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE_S, trust_env=False, **more)

    def submit(
        self, actor: str, body: Mapping[str, Any] = ORDER, key: str | None = None, **query: Any
    ) -> httpx.Response:
        """Submit an intent as an actor."""
        with self.client(actor) as client:
            headers = {} if key is None else {"Idempotency-Key": key}
            return client.post(f"{PATH}/intents", json=dict(body), headers=headers, params=query)


@contextmanager
def serving(place: Place, *arguments: str, before: Sequence[str] = (), **variables: str) -> Iterator[Served]:
    """Run a server in a forked process; it is killed at the end where it still runs.

    Args:
        place: the realm.
        arguments: of ``worldctl serve``.
        before: words of a program before the command of the server, which then is a new interpreter.
        variables: of its environment.
    """
    if before:
        with _new_server(place, arguments, before, variables) as served:
            yield served
        return
    reading, writing = os.pipe()
    with os.fdopen(reading) as said, os.fdopen(writing, "w") as out, (place.folder / "server.log").open("a") as log:
        with open(os.devnull) as nothing:
            streams = (nothing.fileno(), out.fileno(), log.fileno())
            process = forked.start([*SERVE, *arguments], place.folder, environment() | variables, streams)
        out.close()
        with process:
            yield _served(place, process, said)


@contextmanager
def _new_server(
    place: Place, arguments: Sequence[str], before: Sequence[str], variables: Mapping[str, str]
) -> Iterator[Served]:
    with (place.folder / "server.log").open("a") as complaints:
        process = subprocess.Popen(
            [*before, *COMMAND, *SERVE, *arguments],
            cwd=place.folder,
            env=environment() | {"PYTHONWARNINGS": "default", **variables},
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
        )
    try:
        assert process.stdout is not None
        yield _served(place, process, process.stdout)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _served(place: Place, process: Process, said: IO[str]) -> Served:
    """Wait until the server listens."""
    line = said.readline()
    assert line, (place.folder / "server.log").read_text(encoding="utf-8")
    told = json.loads(line)
    assert "listening" in told, told
    url, *more = told["listening"]
    links = {one["actorId"]: one["url"] for one in told.get("signIn", ())}
    all_links = [one["url"] for one in told.get("signIn", ())]
    return Served(place, process, url, more[0].removeprefix("unix:") if more else None, links, all_links)


def stopped(served: Served) -> int:
    """Stop a server with SIGTERM and return its exit code."""
    os.kill(served.process.pid, 15)
    return served.process.wait(60)
