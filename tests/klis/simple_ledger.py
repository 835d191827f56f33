"""The lease protocol once more, as simply as it can be told: plain lists, every pair compared, nothing indexed.

It is what the ledger and the desk of the engine are compared with, so it shares nothing with them but words. A place is
a tuple of names under ``FILE:/``; which places a triple takes is spelt out in a small finite world of names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product

__all__ = ["GO_TOGETHER", "NAMES", "SimpleLease", "SimpleLedger", "SimpleRequest", "Triple", "exclude", "places_of"]

Triple = tuple[str, str]
"""A predicate and a resource like ``FILE:/a/b`` or ``FILE:/a/*``."""
Who = tuple[str, str]
"""An agent and its session."""

GO_TOGETHER: dict[str, set[str]] = {
    "PROVIDES": {"CONSUMES", "DEPENDS_ON"},
    "CONSUMES": {"PROVIDES", "CONSUMES", "DEPENDS_ON"},
    "MUTATES": set(),
    "DELETES": set(),
    "DEPENDS_ON": {"PROVIDES", "CONSUMES", "DEPENDS_ON"},
    "RENAMES": set(),
}
NAMES = ("a", "b")
DEPTH = 4
_WORLD = [names for depth in range(DEPTH + 1) for names in product(NAMES, repeat=depth)]


def places_of(triple: Triple) -> set[tuple[str, ...]]:
    """Return every place of the small world that a triple takes."""
    predicate, resource = triple
    names = tuple(name for name in resource.removeprefix("FILE:/").split("/") if name)
    whole = predicate in ("DELETES", "RENAMES")
    if names and names[-1] == "*":
        names, whole = names[:-1], True
    return {place for place in _WORLD if place == names or (whole and place[: len(names)] == names)}


def exclude(one: Triple, other: Triple) -> bool:
    """Tell whether two triples of different sessions cannot stand side by side."""
    return other[0] not in GO_TOGETHER[one[0]] and bool(places_of(one) & places_of(other))


@dataclass
class SimpleLease:
    """A lease and its state: Active, Released, Expired or Revoked."""

    who: Who
    triple: Triple
    expires_at: int
    hold_until: int
    ttl: int
    state: str = "Active"
    lease_id: str = ""


@dataclass
class SimpleRequest:
    """A request in the queue."""

    who: Who
    triples: list[Triple]
    number: int
    ttl: int
    deadline: int | None
    request_id: str = ""


@dataclass
class SimpleLedger:
    """Everything there is; ``told`` lists what the queue told its requests since it was last emptied."""

    max_hold: int = 10_000
    backoff: int = 1_000
    max_backoff: int = 60_000
    priorities: dict[str, int] = field(default_factory=dict)
    leases: list[SimpleLease] = field(default_factory=list)
    queue: list[SimpleRequest] = field(default_factory=list)
    dies: dict[Who, int] = field(default_factory=dict)
    requests: int = 0
    told: list[tuple[SimpleRequest, str, list[SimpleLease]]] = field(default_factory=list)

    def register(self, agent: str, priority: int) -> None:
        """Register an agent; the first priority counts."""
        self.priorities.setdefault(agent, priority)

    def rank(self, who: Who) -> tuple[int, str]:
        """Return how old an agent is."""
        return self.priorities[who[0]], who[0]

    def active(self) -> list[SimpleLease]:
        """Return the leases in force."""
        return [lease for lease in self.leases if lease.state == "Active"]

    def in_the_way(self, who: Who, triples: list[Triple]) -> list[SimpleLease]:
        """Return the leases that conflict with a request."""
        others = [lease for lease in self.active() if lease.who != who]
        return [lease for lease in others if any(exclude(lease.triple, wanted) for wanted in triples)]

    def ahead(self, who: Who, triples: list[Triple]) -> list[SimpleRequest]:
        """Return the older or equally old requests in the queue that want something that conflicts."""
        return [
            request
            for request in self.queue
            if request.who != who
            and self.rank(request.who) <= self.rank(who)
            and any(exclude(one, wanted) for one in request.triples for wanted in triples)
        ]

    def holds_something(self, who: Who) -> bool:
        """Tell whether a session holds a lease."""
        return any(lease.who == who for lease in self.active())

    def is_terminal(self, who: Who, triples: list[Triple]) -> bool:
        """Tell whether a session wants more of what it deletes."""
        gone = [places_of(lease.triple) for lease in self.active() if lease.who == who and lease.triple[0] == "DELETES"]
        wanted = [places_of(triple) for triple in triples if triple[0] != "DELETES"]
        return any(one & other for one in gone for other in wanted)

    def verdict(self, who: Who, triples: list[Triple], *, queued: bool) -> str:
        """Return what the protocol says to a request."""
        holders = [lease.who for lease in self.in_the_way(who, triples)]
        if any(self.rank(holder) <= self.rank(who) for holder in holders):
            return "Die"
        ahead = self.ahead(who, triples)
        if ahead and (not queued or self.holds_something(who)):
            return "Die"
        return "Wait" if holders or ahead else "Granted"

    def request(
        self, who: Who, triples: list[Triple], now: int, ttl: int, *, queue: bool, wait: int | None = None
    ) -> tuple[str, int | None, list[SimpleLease]]:
        """Ask for leases; return the verdict, for Die when to ask again, and the leases that were granted."""
        self.pass_time(now)
        answer = self.verdict(who, triples, queued=False)
        after = min(self.max_backoff, self.backoff * 2 ** self.dies.get(who, 0))
        granted = []
        if answer == "Granted":
            granted = self._grant(who, triples, now, ttl)
        elif answer == "Die":
            self.dies[who] = self.dies.get(who, 0) + 1
        elif queue:
            self.requests += 1
            deadline = None if wait is None else now + wait
            self.queue.append(SimpleRequest(who, triples, self.requests, ttl, deadline))
        self._judge_all(now)
        return answer, after if answer == "Die" else None, granted

    def heartbeat(self, lease: SimpleLease, now: int, ttl: int) -> bool:
        """Let a lease live on; return whether it was in force."""
        self.pass_time(now)
        if lease.state != "Active":
            return False
        lease.ttl, lease.expires_at = ttl, min(now + ttl, lease.hold_until)
        return True

    def end(self, leases: list[SimpleLease], now: int, state: str) -> None:
        """Release or revoke leases."""
        self.pass_time(now)
        for lease in leases:
            if lease.state == "Active":
                lease.state = state
        self._judge_all(now)

    def withdraw(self, request: SimpleRequest, now: int) -> None:
        """Take a request out of the queue."""
        self.pass_time(now)
        if request in self.queue:
            self.queue.remove(request)
        self._judge_all(now)

    def pass_time(self, now: int) -> None:
        """Let what is due happen."""
        self.queue = [one for one in self.queue if one.deadline is None or one.deadline >= now]
        for lease in self.active():
            if now > lease.expires_at:
                lease.state = "Expired"
        self._judge_all(now)

    def _judge_all(self, now: int) -> None:
        """Judge the whole queue, oldest first, and begin again whenever something changed."""
        for request in sorted(self.queue, key=lambda one: (self.rank(one.who), one.number)):
            answer = self.verdict(request.who, request.triples, queued=True)
            if self.is_terminal(request.who, request.triples):
                answer = "Terminal"
            if answer == "Wait":
                continue
            self.queue.remove(request)
            granted = []
            if answer == "Granted":
                granted = self._grant(request.who, request.triples, now, request.ttl)
            elif answer == "Die":
                self.dies[request.who] = self.dies.get(request.who, 0) + 1
            self.told.append((request, answer, granted))
            self._judge_all(now)
            return

    def _grant(self, who: Who, triples: list[Triple], now: int, ttl: int) -> list[SimpleLease]:
        self.dies.pop(who, None)
        hold = now + self.max_hold
        new = [SimpleLease(who, triple, min(now + ttl, hold), hold, ttl) for triple in triples]
        self.leases.extend(new)
        return new
