"""Independent model of leases: holders, waiting requests and expected verdicts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from worldprotocol.simulation.found import hold

__all__ = ["LeaseModel"]

_SIDE_BY_SIDE: Final = {
    frozenset(pair)
    for pair in (
        ("PROVIDES", "CONSUMES"),
        ("PROVIDES", "DEPENDS_ON"),
        ("CONSUMES", "DEPENDS_ON"),
        ("CONSUMES",),
        ("DEPENDS_ON",),
    )
}
"""Pairs of predicates that two sessions may hold on one resource (KP-2a); all others exclude each other."""

_WITH_CONTENTS: Final = ("DELETES", "RENAMES")
_NESTED: Final = ("FILE", "STATE")

Triple = tuple[str, str]
Owner = tuple[str, str]


@dataclass(slots=True)
class _Lease:
    owner: Owner
    triple: Triple
    token: int
    granted: int
    ttl: int | None
    expires: int | None


@dataclass(slots=True)
class LeaseModel:
    """Registered agents, held leases, waiting requests, and those that died.

    ``again`` says when a request that died may be judged again without being woken, and ``latest`` when it is at the
    latest; ``lost`` are those whose wake-ups were lost, ``lapses`` the events among which they were, after one
    position up to another; ``unwoken`` are those of the last lapse, and ``forgotten`` those of each lapse of which
    the next unit woke none at the same time.
    """

    ranks: dict[str, tuple[int, str]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    active: dict[str, _Lease] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    waiting: dict[str, tuple[Owner, list[Triple]]] = field(default_factory=dict)
    wanted: dict[str, tuple[Owner, list[Triple]]] = field(default_factory=dict)
    granted: dict[str, str] = field(default_factory=dict)
    verdicts: set[str] = field(default_factory=set)
    again: dict[str, int] = field(default_factory=dict)
    latest: dict[str, int] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    unwoken: set[str] = field(default_factory=set)
    forgotten: list[set[str]] = field(default_factory=list)
    lapses: list[tuple[int, int]] = field(default_factory=list)
    clock: int = 0
    revoked: set[str] = field(default_factory=set)
    token: int = 0

    def take(self, topic: str, rendered: Mapping[str, Any]) -> None:
        """Take in an event of the lease ledger; others change nothing."""
        step = _STEPS.get(topic)
        if self.unwoken:
            self._go_on(topic, rendered)
        if step is not None:
            step(self, rendered)
            self.clock = rendered["at"] if topic == "clock.confirmed" else max(self.clock, rendered["at"])

    def _go_on(self, topic: str, rendered: Mapping[str, Any]) -> None:
        """Note whether what was not woken is woken by the next unit, at the same time, or forgotten."""
        if topic not in _PASS or rendered["at"] != self.clock or rendered.get("cause") == "request":
            self.forgotten.append(self.unwoken)
        elif topic != "verdict.given":
            return
        self.unwoken = set()

    def holds(self, agent: str, session: str) -> bool:
        """Return whether a session holds a lease."""
        return any(lease.owner == (agent, session) for lease in self.active.values())

    def check_waits(self) -> None:
        """Check the waits-for graph: it has no cycle, and every edge leads to a younger agent."""
        edges: dict[Owner, set[Owner]] = {}
        for owner, triples in self.waiting.values():
            edges.setdefault(owner, set()).update(one.owner for one in self._in_the_way(owner, triples))
        for owner, others in edges.items():
            for other in others:
                hold("KP-3b", f"{owner} waits for the older {other}", self._rank(owner) < self._rank(other))
        for start, others in edges.items():
            seen, todo = set(), list(others)
            while todo:
                at = todo.pop()
                hold("KP-3b", f"{start} waits for itself", at != start)
                if at not in seen:
                    seen.add(at)
                    todo += edges.get(at, ())

    def check_progress(self, undecided: Collection[str], *, may_lose: bool) -> None:
        """Check that nothing waits for what is free, between two commits (LIVE-wake).

        Args:
            undecided: the proposals that are open and not decided.
            may_lose: whether a wake-up was lost just now; what it was for has to continue by its timer.
        """
        for request, (owner, triples) in self.waiting.items():
            waits = any(self._in_the_way(owner, triples)) or self._queued_before(owner, request, triples)
            hold("LIVE-wake", f"request {request} waits for what is free", waits)
        if self.settings.get("wake_rules", 1) < 2:
            return
        free = {request for request in self.again if request in undecided and not self._stays(request)}
        self.lost = free if may_lose else self.lost & free
        self.unwoken = self.lost if may_lose else self.unwoken
        left = sorted(free - self.lost)
        hold("LIVE-wake", f"{left[:3]} died of what is free", not left)
        late = sorted(request for request in self.lost if self.clock > self.latest[request])
        hold("LIVE-wake", f"the timers did not continue {late[:3]}, whose wake-ups were lost", not late)

    def check_missed(self, missed: Mapping[str, int]) -> None:
        """Check that a recheck found the wake-ups that were lost, and no others.

        Args:
            missed: the requests that it reports, with the positions of the events that freed what they wait for.
        """
        lapses = [*self.forgotten, *([self.unwoken] if self.unwoken else [])]
        unseen = [sorted(lapse)[:3] for lapse in lapses if not lapse & missed.keys()]  # one may be in the way of others
        hold("LIVE-wake", f"the recheck reports none of {unseen[:1]}, whose wake-ups were lost", not unseen)
        wrong = [name for name, at in missed.items() if not any(after < at <= upto for after, upto in self.lapses)]
        hold("LIVE-wake", f"the recheck reports {wrong[:3]}, whose wake-ups were not lost", not wrong)

    def _stays(self, request: str) -> bool:
        """Return whether a request that died would die again, of a session that is not younger, or finds no room."""
        owner, triples = self.wanted[request]
        is_full = len(self.waiting) >= self.settings["max_waiting"]
        blocks = any(is_full or self._rank(one.owner) <= self._rank(owner) for one in self._in_the_way(owner, triples))
        return blocks or self._queued_before(owner, request, triples)

    def check_apart(self) -> None:
        """Look at every pair of leases."""
        leases = list(self.active.items())
        for at, (name, one) in enumerate(leases):
            for other_name, other in leases[:at]:
                clash = one.owner != other.owner and _clash(one.triple, other.triple)
                hold("KP-2a", f"leases {name} and {other_name} are both active", not clash)

    def _rank(self, owner: Owner) -> tuple[int, str]:
        return self.ranks[owner[0]]

    def _in_the_way(self, owner: Owner, triples: list[Triple]) -> Iterator[_Lease]:
        for lease in self.active.values():
            if lease.owner != owner and any(_clash(lease.triple, triple) for triple in triples):
                yield lease

    def _queued_before(self, owner: Owner, request: str, triples: list[Triple]) -> bool:
        """Return whether an older or equal request of another session waits for a conflicting resource."""
        return any(
            other != owner
            and name != request
            and self._rank(other) <= self._rank(owner)
            and _any_clash(wanted, triples)
            for name, (other, wanted) in self.waiting.items()
        )

    def _configured(self, rendered: Mapping[str, Any]) -> None:
        self.settings = rendered["settings"]

    def _registered(self, rendered: Mapping[str, Any]) -> None:
        hold("KP-3c", f"{rendered['agentId']} is registered again", rendered["agentId"] not in self.ranks)
        self.ranks[rendered["agentId"]] = (rendered["priority"], rendered["agentId"])

    def _verdict(self, rendered: Mapping[str, Any]) -> None:
        request, owner, status = rendered["requestId"], (rendered["agentId"], rendered["sessionId"]), rendered["status"]
        hold("CARD-log", f"verdict {rendered['verdictId']} is there twice", rendered["verdictId"] not in self.verdicts)
        self.verdicts.add(rendered["verdictId"])
        due = self.again.pop(request, 0)
        if rendered["cause"] == "wake":
            hold("LIVE-wake", f"request {request} was woken and had not died", due and status != "Die")
        else:
            what = f"request {request} got the verdict Die until {due}, and was judged before"
            hold("KP-3d", what, rendered["at"] >= due)
        if status == "Wait" and not rendered.get("queued") and rendered.get("wanted"):  # the queue is full
            self.again[request] = rendered["at"]
            self.latest[request] = rendered["at"] + self.settings["backoff_ms"] * 3 // 2
        if status == "Die":
            after = rendered.get("retryAfterMs") or 0
            self.again[request] = rendered["at"] + after
            self.latest[request] = rendered["at"] + after + after // 2
        hold("KP-3e", f"{owner[0]} has no priority", owner[0] in self.ranks)
        if rendered.get("manifest") is not None:
            claims = rendered["manifest"]["scope"]
            scope = [(one["predicate"], one["resource"]) for one in claims]
            scope += [("PROVIDES", one["to"]) for one in claims if "to" in one]
            self.wanted[request] = (owner, scope)
        asked = self.wanted[request][1]
        holders = list(self._in_the_way(owner, asked))
        self.waiting.pop(request, None)
        over = [one.triple for one in holders if one.expires is not None and one.expires < rendered["at"]]
        hold("KP-4c", f"{over[:1]} is in the way of {request}, and its time is over", not over)
        older = all(self._rank(owner) < self._rank(one.owner) for one in holders)
        if status == "Granted":
            hold("KP-5a", f"request {request} was granted though {holders[:1]} is in the way", not holders)
            self._grant(rendered, owner, request)
        elif status == "Wait":
            hold("KP-3a", f"request {request} waits for an older session", older)
            queued = self._queued_before(owner, request, asked)
            hold("KP-5a", f"request {request} waits for no session", holders or queued)
            if rendered.get("queued"):
                self.waiting[request] = (owner, asked)
        else:
            queued = self._queued_before(owner, request, asked)
            hold("KP-3d", f"request {request} of {owner[0]} died though it is older than all", not older or queued)

    def _grant(self, rendered: Mapping[str, Any], owner: Owner, request: str) -> None:
        hold("KP-5a", f"request {request} was granted nothing", rendered["leases"])
        self.granted[rendered["verdictId"]] = request
        for lease in rendered["leases"]:
            name = lease["leaseId"]
            hold("KP-4a", f"lease {name} was there before", name not in self.active and name not in self.ended)
            hold("KP-4a", f"token {lease['token']} is not larger than {self.token}", lease["token"] > self.token)
            self.token = lease["token"]
            ttl = rendered.get("ttlMs")
            expires = None if ttl is None else rendered["at"] + min(ttl, self.settings["max_hold_ms"])
            triple = (lease["predicate"], lease["resource"])
            self.active[name] = _Lease(owner, triple, lease["token"], rendered["at"], ttl, expires)

    def _renewed(self, rendered: Mapping[str, Any]) -> None:
        lease = self.active.get(rendered["leaseId"])
        hold("KP-4b", f"{rendered['leaseId']} was renewed and is not active", lease is not None)
        assert lease is not None
        expires = lease.expires
        hold(
            "KP-4b",
            f"{rendered['leaseId']} was renewed after its end",
            expires is not None and rendered["at"] <= expires,
        )
        last = lease.granted + self.settings["max_hold_ms"]
        due = min(rendered["at"] + rendered["ttlMs"], last)
        hold(
            "KP-4b",
            f"{rendered['leaseId']} lives until {rendered['expiresAt']}, not {due}",
            rendered["expiresAt"] <= due,
        )
        lease.expires, lease.ttl = rendered["expiresAt"], rendered["ttlMs"]

    def _released(self, rendered: Mapping[str, Any]) -> None:
        for name in rendered["leaseIds"]:
            lease = self._end(name, "Released")
            hold(
                "KP-4b",
                f"{name} was released by another agent",
                lease.owner == (rendered["agentId"], rendered["sessionId"]),
            )

    def _expired(self, rendered: Mapping[str, Any]) -> None:
        for name in rendered["leaseIds"]:
            lease = self._end(name, "Expired")
            hold("KP-4c", f"{name} expired early", lease.expires is not None and rendered["at"] > lease.expires)

    def _revoked(self, rendered: Mapping[str, Any]) -> None:
        hold("KP-4b", "leases were revoked without a reason", rendered["reason"])
        hold("KP-4b", f"{rendered['by']} revoked leases", rendered["by"] in self.settings["administrators"].split())
        for name in rendered["leaseIds"]:
            self.revoked.add(self._end(name, "Revoked").owner[1])

    def _end(self, name: str, how: str) -> _Lease:
        lease = self.active.pop(name, None)
        hold("KP-4a", f"lease {name} became {how} and was {self.ended.get(name, 'never there')}", lease is not None)
        assert lease is not None
        self.ended[name] = how
        return lease

    def _confirmed(self, rendered: Mapping[str, Any]) -> None:
        if rendered["leaseTime"] <= rendered["at"]:
            return
        for lease in self.active.values():
            lease.granted = min(lease.granted, rendered["at"])
            if lease.expires is not None and lease.ttl is not None:
                last = lease.granted + self.settings["max_hold_ms"]
                lease.expires = min(lease.expires, rendered["at"] + lease.ttl, last)
        self.latest = {
            request: min(due, rendered["at"] + due - self.again.get(request, due))
            for request, due in self.latest.items()
        }
        self.again = {request: min(due, rendered["at"]) for request, due in self.again.items()}

    def _withdrawn(self, rendered: Mapping[str, Any]) -> None:
        self.waiting.pop(rendered["requestId"], None)


_STEPS: Final = {
    "klis.configured": LeaseModel._configured,
    "agent.registered": LeaseModel._registered,
    "verdict.given": LeaseModel._verdict,
    "lease.renewed": LeaseModel._renewed,
    "lease.released": LeaseModel._released,
    "lease.expired": LeaseModel._expired,
    "lease.revoked": LeaseModel._revoked,
    "request.withdrawn": LeaseModel._withdrawn,
    "clock.confirmed": LeaseModel._confirmed,
}


_PASS: Final = ("lease.released", "lease.expired", "lease.revoked", "request.withdrawn", "verdict.given")
"""Topics of what may belong to one pass."""


def _any_clash(some: list[Triple], others: list[Triple]) -> bool:
    return any(_clash(one, other) for one in some for other in others)


def _clash(one: Triple, other: Triple) -> bool:
    if frozenset((one[0], other[0])) in _SIDE_BY_SIDE:
        return False
    place, there = one[1].removesuffix("/*"), other[1].removesuffix("/*")
    if place == there:
        return True
    return (_covers(one) and _is_below(there, place)) or (_covers(other) and _is_below(place, there))


def _covers(triple: Triple) -> bool:
    predicate, resource = triple
    return resource.endswith("/*") or (predicate in _WITH_CONTENTS and resource.partition(":")[0] in _NESTED)


def _is_below(place: str, above: str) -> bool:
    return place.startswith(f"{above.removesuffix('/')}/")
