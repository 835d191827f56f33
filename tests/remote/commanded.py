"""A shop's log with something of everything, and a server on it: what remote commands are compared on."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cli.forked import run
from tests.cli.realm import COMMAND, CliRealm, Said, environment, founded, sale
from tests.server.served import Place, Served, serving
from world.events.verification import RIGHTS

ACTORS = {"ann": ("reader", "approver"), "bot": ("actor",), "kid": ("actor", "reader"), "all": RIGHTS, "nil": ()}
"""Actors with their rights."""


@dataclass(frozen=True)
class Commanded:
    """A log, a server on it, and ``worldctl`` on either."""

    realm: CliRealm
    served: Served

    def beside(self, *arguments: str, given: str = "") -> Said:
        """Run a command on the log, whatever its exit code."""
        return ended(self.realm.folder, [*arguments, "--local"], {}, given)

    def over(self, actor: str, *arguments: str, given: str = "") -> Said:
        """Run a command on the server as an actor, whatever its exit code."""
        return ended(self.elsewhere, ["--server", self.served.url, *arguments], self.token(actor), given)

    @property
    def elsewhere(self) -> Path:
        """A folder without a realm, in which remote commands run."""
        return self.realm.folder / "elsewhere"

    def token(self, actor: str) -> dict[str, str]:
        """Return the variable with the token of an actor."""
        return {"WORLDCTL_TOKEN": self.served.place.tokens[actor]}

    def on_terminal(self, *arguments: str, actor: str | None = None) -> str:
        """Return what a command prints on a terminal: on the log, or as an actor over the server."""
        master, slave = os.openpty()
        where = ["--local"] if actor is None else ["--server", self.served.url]
        variables = {} if actor is None else self.token(actor)
        folder = self.realm.folder if actor is None else self.elsewhere
        environ = environment() | {"TERM": "xterm", "COLUMNS": "90"} | variables
        command = [*COMMAND, *arguments, *where]
        with open(slave, "wb") as out, open(master, "rb") as screen:
            subprocess.run(command, cwd=folder, env=environ, stdout=out, stdin=subprocess.DEVNULL, check=True)
            return os.read(screen.fileno(), 1 << 20).decode()

    def local(self, *arguments: str, code: int = 0, given: str = "") -> Said:
        """Run a command on the log."""
        return self.realm(*arguments, "--local", code=code, given=given)

    def remote(self, actor: str, *arguments: str, code: int = 0, given: str = "", **variables: str) -> Said:
        """Run a command on the server as an actor."""
        there = CliRealm(self.elsewhere)
        return there("--server", self.served.url, *arguments, code=code, given=given, **self.token(actor), **variables)


def ended(folder: Path, words: list[str], variables: dict[str, str], given: str = "") -> Said:
    """Run ``worldctl`` and return what it said."""
    code, out, err = run(words, folder, environment() | variables, given.encode())
    return Said(code, out.decode(), err.decode())


def filled(folder: Path) -> tuple[CliRealm, Place]:
    """Found a shop with proposals of every kind, branches, leases, keys, rights and tokens."""
    realm = founded(folder)
    realm("actor", "add", "all", "--kind", "human", "--auto-approve")
    realm("actor", "add", "nil", "--kind", "human", "--auto-approve")
    place = Place(folder, str(folder / "world.db"))
    for name, rights in ACTORS.items():
        for right in rights:
            realm("rights", "grant", name, right)
        made = realm("token", "create", "--actor", name, "--json").json
        place.tokens[name] = made["token"]
    (folder / "sales.jsonl").write_text(
        sale("ann")
        + sale("bot")
        + sale("bot", "cake")
        + sale("bot", count=7)
        + sale("kid", count=2)
        + sale("ann", "gin")
    )
    realm("submit", "--intents", "sales.jsonl", code=1)
    realm("project", '{"kind": "ui", "eventId": "e1", "payload": {"item": "tea"}}', "--actor", "ann")
    realm("project", '{"kind": "ui", "eventId": "e2", "payload": {}}', "--actor", "ann")
    realm("branch", "create", "plan")
    realm("submit", "sell", "--actor", "ann", "--input", '{"item": "cake"}', "--branch", "plan")
    realm("submit", "charge", "--actor", "ann", "--input", '{"amount": 5}')
    realm("lease", "acquire", "--agent", "bot", "--session", "s1", "FILE:/docs/*", "--ttl-ms", "86400000")
    realm("lease", "acquire", "--agent", "kid", "--session", "s2", "FILE:/docs/a", "--retry", code=1)
    realm("keys", "new", "kid.pem")
    public = realm("keys", "new", "bot.pem", "--json").json["publicKey"]
    realm("keys", "register", "bot", public)
    (folder / "elsewhere").mkdir()
    (folder / "case.json").write_text(json.dumps({"type": "sell", "input": {"item": "tea", "count": 9}}))
    (folder / "elsewhere" / "case.json").write_text((folder / "case.json").read_text())
    (folder / "case-input.json").write_text(json.dumps({"item": "tea", "count": 9}))
    (folder / "elsewhere" / "case-input.json").write_text((folder / "case-input.json").read_text())
    return realm, place


@contextmanager
def commanded(folder: Path, *arguments: str) -> Iterator[Commanded]:
    """Serve a filled shop."""
    realm, place = filled(folder)
    with serving(place, *arguments) as served:
        yield Commanded(realm, served)
