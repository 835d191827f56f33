"""``worldctl log``: the events, filtered."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from worldprotocol.cli.options import Desk, command

if TYPE_CHECKING:
    from world.events import Event
    from worldprotocol.assemble import EventLog, LoggedEvent
    from worldprotocol.facade import World

MAX_KNOWN: Final = 10_000
"""Proposals remembered while events are filtered; others are looked up again."""


@command("log")
@click.option("--actor", metavar="ID", help="Events by this actor, or about a proposal of this actor.")
@click.option("--type", "action", metavar="ACTION", help="Events about proposals of this action.")
@click.option("--status", metavar="STATUS", help="Events about proposals that are in this status now.")
@click.option("--branch", metavar="NAME", help="Events about this branch.")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Events with this topic; may be given often.")
@click.option("--since", metavar="TIME", help="Not before: ISO 8601, ms since 1970, or 15m, 2h, 3d ago.")
@click.option("--until", metavar="TIME", help="Not after; as --since.")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many.")
@click.option("--reverse", is_flag=True, help="Newest first.")
@click.option("--follow", is_flag=True, help="Go on and wait for new events, until interrupted.")
def log(desk: Desk, limit: int | None, reverse: bool, follow: bool, **wishes: Any) -> int:
    """List events in the order of the log."""
    from world.clock import SystemClock
    from world.events import TOPICS

    if follow and reverse:
        raise click.UsageError("--follow and --reverse cannot be together.")
    unknown = sorted(set(wishes["topics"]) - set(TOPICS))
    if unknown:
        raise click.UsageError(f"There is no topic {unknown[0]!r}; there are {', '.join(TOPICS)}.")
    now = SystemClock().now_ms()
    since, until = (_time(wishes.pop(name), now) for name in ("since", "until"))
    topics = list(wishes.pop("topics")) or None
    with desk.look() as world:
        wanted = Filter(world, since=since, until=until, **wishes)
        left = limit
        for logged in _events(world.log, topics, reverse=reverse, follow=follow):
            event = wanted.match(logged)
            if event is None:
                continue
            _print(desk, logged, event, wanted)
            left = None if left is None else left - 1
            if left == 0:
                break
    return 0


def _events(log: EventLog, topics: list[str] | None, *, reverse: bool, follow: bool) -> Iterator[LoggedEvent]:
    if follow:
        yield from log.follow(topics=topics)
    elif reverse:
        step, upto = 1_000, log.head().size
        while upto > 0:
            yield from reversed(list(log.read(max(0, upto - step), upto, topics=topics)))
            upto -= step
    else:
        yield from log.read(topics=topics)


@dataclass(slots=True)
class Filter:
    """Which events are wanted; what is not given does not matter. Times are ms since 1970."""

    world: World
    actor: str | None = None
    action: str | None = None
    status: str | None = None
    branch: str | None = None
    since: int | None = None
    until: int | None = None
    _known: OrderedDict[str, dict[str, Any]] = field(default_factory=OrderedDict)

    def match(self, logged: LoggedEvent) -> Event | None:
        """Return the event where it is wanted."""
        from world.views.archive import decoded

        event: Any = decoded(logged)
        if (self.since is not None and event.at < self.since) or (self.until is not None and event.at > self.until):
            return None
        about = self.about(event)
        if self.action is not None and about.get("action") != self.action:
            return None
        if self.status is not None and about.get("status") != self.status:
            return None
        if self.branch is not None and self.branch not in (getattr(event, "branch", None), about.get("branch")):
            return None
        if self.actor is not None and self.actor not in actors_of(event, about):
            return None
        return event  # type: ignore[no-any-return]

    def about(self, event: Any) -> dict[str, Any]:
        """Return action, actor, branch and status of the proposal an event is about."""
        name = getattr(event, "proposal_id", None) or getattr(event, "created_by", None)
        if name is None:
            return {}
        known = self._known.get(name)
        if known is None or (self.status is not None and known["open"]):
            proposal = self.world.proposal(name)
            told = proposal.submitted
            known = self._known[name] = {
                "action": told.intent["body"]["type"],
                "actor": told.actor["actorId"],
                "branch": told.branch,
                "status": proposal.status,
                "open": not proposal.is_terminal,
            }
            if len(self._known) > MAX_KNOWN:
                self._known.popitem(last=False)
        return known


def actors_of(event: Any, about: dict[str, Any]) -> set[str]:
    """Return the ids of the actors who did what an event tells, or whom it is about."""
    named = {about.get("actor"), getattr(event, "by", None), getattr(event, "actor_id", None)}
    for part in (getattr(event, "actor", None), getattr(event, "answer", {}).get("by")):
        if isinstance(part, dict):
            named.add(part.get("actorId"))
    return {name for name in named if name}


def _print(desk: Desk, logged: LoggedEvent, event: Any, wanted: Filter) -> None:
    import orjson

    if desk.json:
        wire = {"position": logged.position, "stream": logged.stream, "version": logged.version, "topic": logged.topic}
        desk.out.line(wire | {"schemaVersion": logged.schema_version, "state": orjson.loads(logged.state)})
        return
    from worldprotocol.cli.output import moment

    about = wanted.about(event)
    who = about.get("actor") or ",".join(sorted(actors_of(event, {})))
    words = "\t".join((str(logged.position), moment(event.at), logged.topic, who, summary(event, about)))
    print(words, flush=True)  # noqa: T201


def summary(event: Any, about: dict[str, Any]) -> str:
    """Return in a few words what an event tells."""
    parts = [about.get("action"), getattr(event, "branch", None), getattr(event, "name", None)]
    for attribute, key in (("ruling", "verdict"), ("decision", "decision"), ("answer", "choice"), ("error", "code")):
        value = getattr(event, attribute, None)
        if isinstance(value, dict):
            parts.append(str(value.get(key)))
    for attribute in ("world_id", "proposal_id", "created_by"):
        value = getattr(event, attribute, None)
        if value is not None:
            parts.append(f"{attribute.partition('_')[0]} {value if attribute == 'proposal_id' else value[:12]}")
    return " ".join(part for part in parts if part)


def _time(text: str | None, now: int) -> int | None:
    """Return ms since 1970 of a time as people write it."""
    if text is None:
        return None
    if text.isascii() and text.isdigit():
        return int(text)
    units = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
    if text[:-1].isascii() and text[:-1].isdigit() and text[-1:] in units:
        return now - int(timedelta(**{units[text[-1]]: int(text[:-1])}).total_seconds() * 1_000)
    try:
        told = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(
            f"{text!r} is no time: write 2024-05-01T12:00:00Z, milliseconds since 1970, or 15m, 2h, 3d for ago."
        ) from None
    return int((told if told.tzinfo else told.replace(tzinfo=UTC)).timestamp() * 1_000)
