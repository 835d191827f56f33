"""``worldctl log``: the events, filtered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from worldprotocol.api.lookup.log_filter import LogFilter, actors_of
from worldprotocol.api.time_parsing import moment_of
from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.output import counted
from worldprotocol.cli.support.point_in_time import at_option, moment
from worldprotocol.cli.support.redaction import check_position, redact_option, redaction

if TYPE_CHECKING:
    from worldprotocol.api.bootstrap import EventLog, LoggedEvent
    from worldprotocol.api.realm import Realm
    from worldprotocol.export.redaction import Redaction

HEADS: Final = ("event", "when", "topic", "who", "what")
"""Heads of the columns of the list."""

MAX_LISTED: Final = 40
"""Names listed where an unknown one was given."""


@command("log")
@click.option("--actor", metavar="ID", help="Events by this actor, or about a proposal of this actor.")
@click.option("--type", "action", metavar="ACTION", help="Events about proposals of this action.")
@click.option("--status", metavar="STATUS", help="Events about proposals in this status now, such as rejected.")
@click.option("--branch", metavar="NAME", help="Events about this branch.")
@click.option("--proposal", metavar="ID", help="Events about this proposal, by how its id begins.")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Events with this topic; repeatable.")
@click.option("--since", metavar="TIME", help="Not before: ISO 8601, ms since 1970, or 15m, 2h, 3d ago.")
@click.option("--until", metavar="TIME", help="Not after; as --since.")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many.")
@click.option("--reverse", is_flag=True, help="Newest first.")
@click.option("--follow", is_flag=True, help="Continue and wait for new events, until interrupted.")
@at_option("The log as it stood at this point in the past: events up to there, and the status of proposals then.")
@redact_option
def log(
    desk: CommandContext,
    limit: int | None,
    reverse: bool,
    follow: bool,
    at: str | None,
    rules: tuple[str, ...],
    **options: Any,
) -> int:
    """List events in the order of the log.

    With --redact, filters look at each shown event by itself, and hidden ones are left out where there are filters.
    """
    from world.clock import SystemClock
    from world.events.codec import TOPICS
    from worldprotocol.api.lookup.id_lookup import proposal_id

    if follow and reverse:
        raise click.UsageError("--follow and --reverse cannot be together.")
    if follow and at is not None:
        raise click.UsageError("--follow waits for what is to come, and --at looks at the past; say one of them.")
    for topic in options["topics"]:
        _among(topic, TOPICS, "topic")
    now = SystemClock().now_ms()
    since, until = (moment_given(options.pop(name), now) for name in ("since", "until"))
    topics = list(options.pop("topics")) or None
    hidden = redaction(desk, rules)
    with desk.look() as world:
        if hidden:
            _refuse_links(world, at, **options)
        else:
            _refuse_unknown(world, **options)
        if options["proposal"] is not None and not hidden:
            options["proposal"] = proposal_id(world, options["proposal"])
        hidden.learn(world.log)
        upto = None if at is None else moment(world, at).position
        wanted = LogFilter(world, since=since, until=until, upto=upto, alone=bool(hidden), **options)
        leaves_out = bool(hidden) and (topics is not None or wanted.narrows)
        if leaves_out:
            desk.out.remark("Hidden events are left out: it is not shown whether they match.")
        listing = _Listing(desk, wanted, limit, hidden, leaves_out)
        if follow:
            return desk.follow(world.log, topics, listing.take)
        after = desk.archived_upto(world.log)
        for logged in _events(world.log, topics, (after, upto), reverse=reverse):
            if listing.take(logged):
                break
    if not listing.found:
        desk.out.remark("No event is like that.")
    return 0


@dataclass(slots=True)
class _Listing:
    """Prints the events that are wanted, below a line of heads.

    No filter looks at a hidden event: it is there, or all of them are left out.
    """

    desk: CommandContext
    wanted: LogFilter
    limit: int | None
    hidden: Redaction
    leaves_out: bool
    found: int = 0

    def take(self, logged: LoggedEvent) -> bool:
        """Print an event where it is wanted; return whether there are as many as were asked for."""
        veiled = self.hidden.shown(logged)
        event = self.wanted.match(logged) if veiled is None else None
        is_wanted = event is not None if veiled is None else not self.leaves_out
        if not is_wanted:
            return False
        if not self.found and not self.desk.json:
            self.desk.out.text("\t".join(HEADS))
        _print(self.desk, logged, event, self.wanted, veiled)
        self.found += 1
        return self.found == self.limit


def _refuse_links(world: Realm, at: str | None, *, action: str | None, status: str | None, **_: str | None) -> None:
    """Refuse options that would reveal what hidden events say about an event."""
    if action is not None or status is not None:
        rendered = "--type and --status look at all events of a proposal, of which some may be hidden"
        raise click.UsageError(f"{rendered}; with --redact leave them out.")
    check_position(world, at)


def _refuse_unknown(
    world: Realm, *, actor: str | None, action: str | None, status: str | None, branch: str | None, **_: str | None
) -> None:
    """Refuse words that no event can fit, naming those that some can."""
    from world.state.proposal import TRANSITIONS

    if status is not None:
        _among(status, TRANSITIONS, "status")
    if branch is not None:
        _among(branch, (one.name for one in world.branches()), "branch")
    if action is not None:
        domains = world.archive.adopted_domains()
        _among(action, sorted({name for domain in domains for name in domain.schema["actions"]}), "action")
    if actor is not None and actor not in _registered(world):
        _among(actor, _all_actors(world), "actor")


def _among(given: str, known: Iterable[str], what: str) -> None:
    several = list(known)
    if given not in several:
        raise click.UsageError(f"There is no {what} {given!r}; there {_listed(several)}.")


def _listed(names: list[str]) -> str:
    if not names:
        return "is none yet"
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return f"{'is' if len(names) == 1 else 'are'} {', '.join(names[:MAX_LISTED])}{more}"


def _registered(world: Realm) -> list[str]:
    """Return the actors and agents, those who registered them first."""
    from world.events.realm_events import ActorRegistered
    from world.read_models.decoding import decoded, registry_events

    by = {decoded(logged).by: None for logged in registry_events(world.log, ActorRegistered)}  # type: ignore[attr-defined]
    realm = world.realm()
    return list({**by, **realm.actors, **realm.klis.agents})


def _all_actors(world: Realm) -> list[str]:
    """Return the registered actors, and other names that events give as their actor, such as the operator.

    The whole log is read for them.
    """
    from world.events.codec import TOPICS
    from world.read_models.decoding import decoded

    topics = [topic for topic, kind in TOPICS.items() if "by" in kind.__struct_fields__]
    read = world.log.read(topics=topics, skip_archived=True)
    doers = {decoded(logged).by for logged in read} - {None}  # type: ignore[attr-defined]
    realm = world.realm()
    registered = list({**realm.actors, **realm.klis.agents})
    return registered + sorted(doers - set(registered))


def _events(
    log: EventLog, topics: list[str] | None, span: tuple[int, int | None], *, reverse: bool
) -> Iterator[LoggedEvent]:
    after, upto = span
    if reverse:
        step, last = 1_000, log.head().size if upto is None else upto
        while last > after:
            yield from reversed(list(log.read(max(after, last - step), last, topics=topics)))
            last -= step
    else:
        yield from log.read(after, upto, topics=topics)


def _print(
    desk: CommandContext, logged: LoggedEvent, event: Any, wanted: LogFilter, veiled: dict[str, Any] | None
) -> None:
    """Print an event, or what is left of it where it is hidden."""
    if desk.json:
        desk.out.line(_wire(logged) if veiled is None else veiled)
        return
    if veiled is not None:
        desk.out.row((str(logged.position), "", "redacted", "", veiled["leaf"]), at_once=True)
        return
    from worldprotocol.api.proposal_summary import moment as words_of

    about = wanted.about(event)
    who = about.get("actor") or ",".join(sorted(actors_of(event, {})))
    cells = (str(logged.position), words_of(event.at), logged.topic, who, summary(event, about))
    desk.out.row(cells, at_once=True)


def _wire(logged: LoggedEvent) -> dict[str, Any]:
    from world.read_models.decoding import state_of

    return {
        "position": logged.position,
        "stream": logged.stream,
        "version": logged.version,
        "topic": logged.topic,
        "schemaVersion": logged.schema_version,
        "state": state_of(logged),
        "leaf": logged.leaf.hex(),
    }


def summary(event: Any, about: dict[str, Any]) -> str:
    """Return the content of an event in a few words."""
    parts = [about.get("action"), getattr(event, "branch", None), getattr(event, "name", None)]
    for attribute, key in (("ruling", "verdict"), ("decision", "decision"), ("answer", "choice"), ("error", "code")):
        value = getattr(event, attribute, None)
        if value is not None:
            parts.append(str(getattr(value, key)))
    parts.append(getattr(event, "status", None))
    for attribute, noun in (("leases", "lease"), ("lease_ids", "lease"), ("conflicts", "conflict")):
        if value := getattr(event, attribute, None):
            parts.append(counted(len(value), noun))
    parts += [f"{name} {value}" for name in ("verdict_id", "request_id") if (value := getattr(event, name, None))]
    for attribute, words in (("world_id", "world"), ("proposal_id", "proposal"), ("created_by", "of proposal")):
        value = getattr(event, attribute, None)
        if value is not None:
            parts.append(f"{words} {value[:12] if attribute == 'world_id' else value}")
    return " ".join(part for part in parts if part)


def moment_given(text: str | None, now: int) -> int | None:
    """Return ms since 1970 of a time as people write it."""
    if text is None:
        return None
    try:
        return moment_of(text, now)
    except ValueError as wrong:
        raise click.UsageError(f"{wrong}.") from None
