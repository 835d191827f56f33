"""What the benchmarks of writing hold a governed proposal against: other ways to store as many events of as many bytes.

Each reference is a class with ``save(number)``, which stores the events of one proposal in one commit, and ``close``.
All write with ``synchronous=FULL`` to a file of their own beside the log that they are compared with.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event

from authority import Approve, Policy, Reject, rule
from authority.policies.opinions import Opinion
from bench.realms import MEMBERS, shelf
from world.log import Durability, open_log
from world.state.ports import Case
from worldprotocol import Realm

ONCE: Final = ("wp_branch", "wp_clock")
"""Tables with one row for each log or branch that every commit changes."""


@rule
def small(case: Case) -> Opinion | None:
    """Approve small steps."""
    return Approve("small") if case.intent.body.input["by"] <= 100 else None


@rule
def bounded(case: Case) -> Opinion | None:
    """Reject steps beyond a bound."""
    counters = case.view.data["counters"]
    over = counters.get(case.intent.body.input["counter"], 0) > 1_000_000_000
    return Reject("the counter is full") if over else None


@rule
def known(case: Case) -> Opinion | None:
    """Reject actors of other kinds."""
    return None if case.actor.kind == "agent" else Reject("only agents count")


three_rules = Policy("three", [small, bounded, known])
"""A policy of three rules in Python."""


def governed(address: str, *, policy: Policy | None = None, durability: Durability = "full") -> Realm:
    """Return a new realm with one actor, whose proposals are approved at once or judged by a policy."""
    policies = [] if policy is None else [policy]
    world = Realm.create(address, domain=shelf(), durability=durability, policies=policies)
    binding = {"kind": "auto_approve"} if policy is None else {"kind": "policy_rules", "policy": policy.name}
    world.register("ann", "agent", binding=binding)
    return world


def reopened(address: str) -> Realm:
    """Return a realm that ``governed`` made, opened once more."""
    return Realm.open(address, domain=shelf())


def propose(world: Realm, number: int) -> None:
    """Submit the number-th proposal and wait until its world is sealed."""
    done = world.act("ann", "counter.raise", {"counter": f"c{number % MEMBERS}", "by": number % 7 + 1})
    if done.status != "completed":
        raise SystemExit(f"The proposal ended as {done.status}.")


class Note(Aggregate):
    """An aggregate of the ``eventsourcing`` library with events of any size."""

    @event("Begun")
    def __init__(self, text: str) -> None:
        self.text = text

    @event("Changed")
    def change(self, text: str) -> None:
        """Keep a text."""
        self.text = text


class Library:
    """``Application.save`` of the ``eventsourcing`` library, on SQLite."""

    def __init__(self, file: Path, states: Sequence[bytes]) -> None:
        env = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(file)}
        self._application: Application[Any] = Application(env=env)
        probe = Note("")
        probe.change("")
        to_stored = self._application.mapper.to_stored_event
        first, later = [len(to_stored(one).state) for one in probe.collect_events()]
        over = [first] + [later] * (len(states) - 1)
        self._texts = ["x" * max(0, len(state) - each) for state, each in zip(states, over, strict=True)]

    def save(self, number: int) -> None:
        """Store one aggregate with the events of one proposal."""
        note = Note(self._texts[0])
        for text in self._texts[1:]:
            note.change(text)
        self._application.save(note)

    def close(self) -> None:
        """Close the database."""
        self._application.close()


class Pipeline:
    """The least that a log with hashes does: canonical JSON, SHA-256 chained, one transaction."""

    def __init__(self, file: Path, states: Sequence[bytes]) -> None:
        self._database = connected(file)
        self._database.execute("CREATE TABLE event (id INTEGER PRIMARY KEY, state TEXT, hash BLOB)")
        self._values = [json.loads(state) for state in states]
        self._last = b""

    def save(self, number: int) -> None:
        """Store the events of one proposal."""
        rows = []
        for value in self._values:
            value["at"] = number
            text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            self._last = hashlib.sha256(self._last + text.encode()).digest()
            rows.append((text, self._last))
        self._database.execute("BEGIN IMMEDIATE")
        self._database.executemany("INSERT INTO event (state, hash) VALUES (?, ?)", rows)
        self._database.execute("COMMIT")

    def close(self) -> None:
        """Close the database."""
        self._database.close()


class Tables:
    """Raw sqlite3: the rows of a log into the same tables with the same indexes, each with a statement prepared once.

    Args:
        file: the database to make.
        log: a log file of ``proposals`` proposals of one kind; its rows are what is stored again.
    """

    def __init__(self, file: Path, log: Path, proposals: int) -> None:
        self._database = connected(file)
        source = sqlite3.connect(log)
        made = source.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'")
        for (sql,) in made.fetchall():
            self._database.execute(sql)
        tables = [name for (name,) in source.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        self._work: list[tuple[str, list[list[tuple[Any, ...]]]]] = []
        for name in tables:
            rows = source.execute(f"SELECT * FROM {name}").fetchall()
            if name in ONCE and rows:
                again = f"INSERT OR REPLACE INTO {name} VALUES ({','.join('?' * len(rows[0]))})"
                self._work.append((again, [rows[:1]] * proposals))
            elif len(rows) >= proposals:
                once = f"INSERT INTO {name} VALUES ({','.join('?' * len(rows[0]))})"
                bounds = [len(rows) * at // proposals for at in range(proposals + 1)]
                self._work.append((once, [rows[low:high] for low, high in pairwise(bounds)]))
        source.close()

    def save(self, number: int) -> None:
        """Store the rows of one proposal."""
        database = self._database
        database.execute("BEGIN IMMEDIATE")
        for sql, parts in self._work:
            database.executemany(sql, parts[number])
        database.execute("COMMIT")

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def connected(file: Path) -> sqlite3.Connection:
    """Return a new database that survives the loss of power."""
    database = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    return database


def states_of_one(address: str) -> list[bytes]:
    """Return the states of the events of the last proposal in a log."""
    with open_log(address, read_only=True) as log:
        size = log.head().size
        events = list(log.read(max(0, size - 100)))
    begins = [at for at, one in enumerate(events) if one.topic == "proposal.submitted"]
    return [one.state for one in events[begins[-1] :]]
