"""Redaction: hiding of events from the readers of an export (KM-7.3). A hidden event is replaced by its leaf hash.

Shown events are exactly the hashed bytes. A hidden event reveals its position and its leaf hash, but not its topic,
stream, time or length. So every tree head, proof and checkpoint of the log can still be checked.

In doubt, a rule hides an event. It examines the event alone, its members and all its texts:

resources        names a resource or a path of a scope, or belongs to a governed run
inputs           contains inputs of actors or values computed from them: sources, intents, effects, states, errors
actors           names an actor: in a field for actors, or in any text
actor=ID         names this actor, anywhere
topic=GLOB       has this topic
stream=GLOB      belongs to this stream
role=NAME        the rules that ``[redact]`` in world.toml lists for this role

A leaf hash is not salted: a reader who guesses a complete event, including its ids, can confirm the guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

import orjson

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.codec import decode_event
from world.events.lease_events import AgentRegistered, KlisConfigured
from world.events.realm_events import ActorRegistered
from world.klis.ledger_codec import read_ledger
from world.klis.resources.resource_types import STANDARD
from world.read_models.live.sealed_snapshot import open_snapshot

if TYPE_CHECKING:
    from worldprotocol.api.bootstrap import EventLog, LoggedEvent

__all__ = ["RULES", "Redaction"]

RULES: Final = ("resources", "inputs", "actors", "actor=ID", "topic=GLOB", "stream=GLOB", "role=NAME")
"""The supported rules, in their written form."""

_RESOURCE_FIELD: Final = re.compile(rb'"(?:resource|allowedPaths)":(?!null)|"scope":\[(?!\])')
_RESOURCE: Final = re.compile(r"\b[A-Z][A-Z0-9_]*:\S")
"""A resource within a text, such as FILE:/plan."""

_ANY_CASE: Final = r"\b(?i:{}):\S"
"""A resource of a known type within a text, case-insensitive, such as file:/plan."""

_ESCAPE: Final = re.compile(r"\\+(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
"""An escaped character in JSON text that is itself embedded in a text."""

_ACTOR: Final = re.compile(rb'"(?:actor|actorId|agentId|agent_id|ask|by|holder|team)":(?!null)')
_WORD: Final = re.compile(r"\w+")

_INPUTS: Final = ("proposal.submitted", "proposal.failed", "projection.recorded", "world.sealed", "effect.*")
_ACTORS: Final = ("actor.*", "agent.*", "key.*")
_RUNS: Final = "run.*"

_Test = Callable[["LoggedEvent"], bool]


class Redaction:
    """Redaction rules for one reader."""

    def __init__(self, rules: Iterable[str], roles: Mapping[str, Iterable[str]] | None = None) -> None:
        """Parse rules.

        Args:
            rules: the rules as text; an event is hidden if at least one rule hides it.
            roles: the rules of each role, for ``role=NAME``.

        Raises:
            RefusedError: ``INVALID_REDACTION``.
        """
        expanded = [one for rule in rules for one in _expanded(rule, roles or {})]
        self.kinds: Final = tuple(sorted({rule.partition("=")[0] for rule in expanded}))
        """The kinds of the rules, without their values."""
        self._names: dict[str, set[str]] = {}  # by their first word
        self._odd: set[str] = set()  # names that do not begin with a word
        self._follows: Final = _learned_from(expanded)
        self._types: dict[str, None] = dict.fromkeys(STANDARD)
        self._known = self._of_types()
        self._tests = [self._test(rule) for rule in expanded]

    def __bool__(self) -> bool:
        return bool(self._tests)

    def learn(self, log: EventLog, after: int = 0) -> None:
        """Collect the names of all actors and resource types of a log, which may occur in any text.

        Those of a cut log that only removed contents have are in the lease ledger of its snapshot.

        Args:
            log: the log.
            after: position of the last event that was learned from before.
        """
        if not self._follows:
            return
        try:
            for event in log.read(after, topics=self._follows):
                self._take(event)
        except RefusedError as refused:
            snapshot = open_snapshot(log) if refused.code == ErrorCode.EVENT_ARCHIVED else None
            if snapshot is None:
                raise
            ledger = read_ledger(snapshot.ledger)
            self._take_names(ledger.agents)
            self._take_types(ledger.types.to_wire())
            for event in log.read(after, topics=self._follows, skip_archived=True):
                self._take(event)

    def hides(self, event: LoggedEvent) -> bool:
        """Return whether an event is hidden."""
        if event.topic in self._follows:
            self._take(event)
        return any(test(event) for test in self._tests)

    def shown(self, event: LoggedEvent) -> dict[str, Any] | None:
        """Return the visible part of a hidden event as JSON; None for an event that is not hidden."""
        if not self.hides(event):
            return None
        return {"position": event.position, "leaf": event.leaf.hex(), "redacted": True}

    def _test(self, rule: str) -> _Test:
        kind, _, value = rule.partition("=")
        if kind == "resources":
            return self._names_a_resource
        if kind == "inputs":
            return lambda event: any(fnmatchcase(event.topic, glob) for glob in _INPUTS)
        if kind == "actors":
            return self._names_an_actor
        if kind == "topic":
            return lambda event: fnmatchcase(event.topic, value)
        if kind == "stream":
            return lambda event: fnmatchcase(event.stream, value)
        named = re.compile(rf"(?<!\w){re.escape(value)}(?!\w)")
        return lambda event: bool(named.search(_texts(event)) or named.search(event.stream))

    def _names_an_actor(self, event: LoggedEvent) -> bool:
        if any(fnmatchcase(event.topic, glob) for glob in _ACTORS) or _ACTOR.search(event.state):
            return True
        text = _texts(event)
        for word in _WORD.finditer(text):
            for name in self._names.get(word[0], ()):
                end = word.start() + len(name)
                if text.startswith(name, word.start()) and not _WORD.match(text[end : end + 1]):
                    return True
        return any(name in text for name in self._odd)

    def _names_a_resource(self, event: LoggedEvent) -> bool:
        if fnmatchcase(event.topic, _RUNS) or _RESOURCE_FIELD.search(event.state):
            return True
        text = _texts(event)
        return bool(_RESOURCE.search(text) or self._known.search(text))

    def _of_types(self) -> re.Pattern[str]:
        return re.compile(_ANY_CASE.format("|".join(map(re.escape, self._types))))

    def _take(self, logged: LoggedEvent) -> None:
        event = decode_event(logged.topic, logged.schema_version, logged.state, logged.position)
        if isinstance(event, KlisConfigured):
            self._take_types(event.types)
        elif isinstance(event, ActorRegistered):
            self._take_names([event.actor.actor_id, event.actor.name])
        else:
            self._take_names([getattr(event, "agent_id", None)])

    def _take_types(self, types: Mapping[str, Any]) -> None:
        if not types.keys() <= self._types.keys():
            self._types |= dict.fromkeys(types)
            self._known = self._of_types()

    def _take_names(self, names: Iterable[str | None]) -> None:
        for name in names:
            if name:
                first = _WORD.match(name)
                (self._odd if first is None else self._names.setdefault(first[0], set())).add(name)


def _learned_from(rules: Iterable[str]) -> tuple[str, ...]:
    """Return the topics of the events from which rules collect names."""
    topics_by_rule = {"actors": (ActorRegistered.TOPIC, AgentRegistered.TOPIC), "resources": (KlisConfigured.TOPIC,)}
    return tuple(topic for rule, topics in topics_by_rule.items() if rule in rules for topic in topics)


def _expanded(rule: str, roles: Mapping[str, Iterable[str]]) -> list[str]:
    kind, sign, value = rule.partition("=")
    if kind == "role" and value in roles:
        return [one for inner in roles[value] for one in _expanded(inner, {})]
    if kind == "role":
        known = ", ".join(sorted(roles)) or "none"
        raise RefusedError(
            ErrorCode.INVALID_REDACTION, f"[redact] in world.toml has no role {value!r}; its roles: {known}."
        )
    if (kind in ("resources", "inputs", "actors") and not sign) or (kind in ("actor", "topic", "stream") and value):
        return [rule]
    raise RefusedError(ErrorCode.INVALID_REDACTION, f"{rule!r} is not a redaction rule; use one of {', '.join(RULES)}.")


def _texts(event: LoggedEvent) -> str:
    """Return all texts in the state of an event, including keys, one per line; also with embedded JSON unescaped."""
    try:
        text = "\n".join(_texts_in(orjson.loads(event.state)))
    except ValueError:  # a damaged event is searched as text
        text = event.state.decode("utf-8", "replace")
    return text if "\\" not in text else f"{text}\n{_ESCAPE.sub(_unescaped, text)}"


def _texts_in(value: Any) -> Iterator[str]:
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            waiting += one
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one


def _unescaped(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16)) if escape[1] else " "
