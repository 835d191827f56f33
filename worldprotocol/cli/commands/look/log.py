"""``worldctl log``: the events, filtered."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import click

from world.error_codes import ErrorCode
from worldprotocol.api.time_parsing import moment_of
from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.output import counted
from worldprotocol.cli.support.point_in_time import at_option, moment
from worldprotocol.cli.support.redaction import check_position, redact_option, redaction

if TYPE_CHECKING:
    from world.events.base import Event
    from worldprotocol.api.bootstrap import EventLog, LoggedEvent
    from worldprotocol.api.realm import Realm
    from worldprotocol.export.redaction import Redaction

HEADS: Final = ("event", "when", "topic", "who", "what")
"""Heads of the columns of the list."""

MAX_LISTED: Final = 40
"""Names listed where an unknown one was given."""

MAX_KNOWN: Final = 10_000
"""Proposals remembered while events are filtered; others are looked up again."""


@command("log")
@click.option("--actor", metavar="ID", help="Events by this actor, or about a proposal of this actor.")
@click.option("--type", "action", metavar="ACTION", help="Events about proposals of this action.")
@click.option("--status", metavar="STATUS", help="Events about proposals in this status now, such as rejected.")
@click.option("--branch", metavar="NAME", help="Events about this branch.")
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
        hidden.learn(world.log)
        upto = None if at is None else moment(world, at).position
        wanted = Filter(world, since=since, until=until, upto=upto, alone=bool(hidden), **options)
        leaves_out = bool(hidden) and (topics is not None or wanted.narrows)
        if leaves_out:
            desk.out.remark("Hidden events are left out: it is not shown whether they match.")
        events = _events(world.log, topics, upto, reverse=reverse, follow=follow)
        try:
            found = _print_all(desk, wanted, events, limit, hidden, leaves_out=leaves_out)
        except KeyboardInterrupt:
            if not follow:
                raise
            from worldprotocol.cli.program import INTERRUPTED

            return INTERRUPTED  # the way to end it: nothing is wrong
    if not found:
        desk.out.remark("No event is like that.")
    return 0


def _print_all(
    desk: CommandContext,
    wanted: Filter,
    events: Iterator[LoggedEvent],
    limit: int | None,
    hidden: Redaction,
    *,
    leaves_out: bool,
) -> int:
    """Print the events that are wanted, below a line of heads; return how many they were.

    No filter looks at a hidden event: it is there, or all of them are left out.
    """
    found = 0
    for logged in events:
        veiled = hidden.shown(logged)
        event = wanted.match(logged) if veiled is None else None
        is_wanted = event is not None if veiled is None else not leaves_out
        if not is_wanted:
            continue
        if not found and not desk.json:
            desk.out.text("\t".join(HEADS))
        _print(desk, logged, event, wanted, veiled)
        found += 1
        if found == limit:
            break
    return found


def _refuse_links(world: Realm, at: str | None, *, action: str | None, status: str | None, **_: str | None) -> None:
    """Refuse options that would reveal what hidden events say about an event."""
    if action is not None or status is not None:
        rendered = "--type and --status look at all events of a proposal, of which some may be hidden"
        raise click.UsageError(f"{rendered}; with --redact leave them out.")
    check_position(world, at)


def _refuse_unknown(
    world: Realm, *, actor: str | None, action: str | None, status: str | None, branch: str | None
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
    if actor is not None:
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


def _all_actors(world: Realm) -> list[str]:
    """Return the registered actors, and other names that events give as their actor, such as the operator."""
    from world.events.codec import TOPICS
    from world.read_models.decoding import decoded

    topics = [topic for topic, kind in TOPICS.items() if "by" in kind.__struct_fields__]
    doers = {decoded(logged).by for logged in world.log.read(topics=topics)}  # type: ignore[attr-defined]
    realm = world.realm()
    registered = list({**realm.actors, **realm.klis.agents})
    return registered + sorted(doers - set(registered))


def _events(
    log: EventLog, topics: list[str] | None, upto: int | None, *, reverse: bool, follow: bool
) -> Iterator[LoggedEvent]:
    if follow:
        yield from log.follow(topics=topics)
    elif reverse:
        step, last = 1_000, log.head().size if upto is None else upto
        while last > 0:
            yield from reversed(list(log.read(max(0, last - step), last, topics=topics)))
            last -= step
    else:
        yield from log.read(upto=upto, topics=topics)


@dataclass(slots=True)
class Filter:
    """Which events are wanted; what is not given does not matter. Times are ms since 1970.

    The status of a proposal is that of now, or of after the event ``upto``. ``alone`` looks at an event and at nothing
    else, so that it reveals no other event.
    """

    world: Realm
    actor: str | None = None
    action: str | None = None
    status: str | None = None
    branch: str | None = None
    since: int | None = None
    until: int | None = None
    upto: int | None = None
    alone: bool = False
    _known: OrderedDict[str, dict[str, Any]] = field(default_factory=OrderedDict)

    @property
    def narrows(self) -> bool:
        """Whether anything is asked of an event."""
        asked = (self.actor, self.action, self.status, self.branch, self.since, self.until)
        return any(one is not None for one in asked)

    def match(self, logged: LoggedEvent) -> Event | None:
        """Return the event where it is wanted."""
        from world.errors import DamagedLogError, RefusedError
        from world.read_models.decoding import decoded

        event: Any = decoded(logged)
        if (self.since is not None and event.at < self.since) or (self.until is not None and event.at > self.until):
            return None
        try:
            about = self.about(event)
        except RefusedError as refused:  # whatever a logged event names was logged before it
            rendered = (
                f"Event {logged.position} names what the log does not contain: {refused.message} Run `worldctl verify`."
            )
            raise DamagedLogError(ErrorCode.BAD_REFERENCE, rendered, position=logged.position) from None
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
        from world.errors import RefusedError

        name = getattr(event, "proposal_id", None) or getattr(event, "created_by", None)
        if name is None or self.alone:
            return {}
        known = self._known.get(name)
        if known is None or (self.status is not None and known["open"]):
            try:
                proposal = self.world.archive.proposal(name, self.upto)
            except RefusedError as refused:
                if refused.code != "NOT_FOUND":
                    raise
                return {}  # a projection names the proposal that is submitted right after it
            rendered = proposal.submitted
            known = self._known[name] = {
                "action": rendered.intent.body.type,
                "actor": rendered.actor.actor_id,
                "branch": rendered.branch,
                "status": proposal.status,
                "open": not proposal.is_terminal,
            }
            if len(self._known) > MAX_KNOWN:
                self._known.popitem(last=False)
        return known


def actors_of(event: Any, about: dict[str, Any]) -> set[str]:
    """Return the ids of the actors of an event, and of those it is about."""
    named = {about.get("actor"), *(getattr(event, name, None) for name in ("by", "actor_id", "agent_id"))}
    for part in (getattr(event, "actor", None), getattr(getattr(event, "answer", None), "by", None)):
        named.add(getattr(part, "actor_id", None))
    return {name for name in named if name}


def _print(
    desk: CommandContext, logged: LoggedEvent, event: Any, wanted: Filter, veiled: dict[str, Any] | None
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
