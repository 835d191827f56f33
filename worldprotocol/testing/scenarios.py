"""What the fixture ``given`` of the pytest plugin gives: what a realm does when somebody wants something.

    given(data={"stock": {"tea": 1}}, domain=shop).when("sell", {"item": "tea"}, actor="bot").then(
        event("decision.made", decision={"decision": "approved"}), "proposal.completed"
    )

Each scene is played in a realm of its own, in memory. Its clock stands still, its ids are always the same, and no
effect is made: effects give back what the test says.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from world.extras import missing_extra

try:
    import pytest
except ImportError:
    raise missing_extra("Tests of realms and policies", "pytest", "testing") from None

from world.clock import ManualClock
from world.errors import RefusedError
from world.events.base import Event
from world.events.codec import TOPICS
from world.events.proposal_events import ProposalSubmitted
from world.model.immutable_json import FrozenDict
from world.model.intent import IntentBody
from world.state.proposal import Proposal
from worldprotocol.api.realm import Realm
from worldprotocol.export.jsonl import import_log
from worldprotocol.testing.divergences import printable, short
from worldprotocol.testing.frozen import START_MS, Result, Results, frozen_parts, result
from worldprotocol.testing.realms import parts_of
from worldprotocol.testing.recordings import no_result

__all__ = ["Given", "Happened", "Scene", "Step", "event", "intent", "passes", "registered", "result"]

Step = Callable[[Realm], object]
"""Something that is done to a realm."""

REJECTED: Final = "REJECTED"
"""What ``then_refused`` calls a rejection, whatever rule it came of."""

TESTER: Final = "tester"
"""Who wants something, unless the test says who."""


@dataclass(frozen=True, slots=True)
class ExpectedEvent:
    """An event that is to happen; see ``event``.

    Args:
        topic: its topic.
        fields: the parts that count.
    """

    topic: str
    fields: Mapping[str, Any]

    def __str__(self) -> str:
        told = ", ".join(f"{name}={_shown(one)}" for name, one in self.fields.items())
        return f"{self.topic} {told}" if told else self.topic


def event(topic: str, /, **fields: Any) -> ExpectedEvent:
    """Return an event that is to happen.

    Args:
        topic: such as ``decision.made``.
        **fields: its parts that count, by their names in Python; of objects within, the members that are named.

    Raises:
        RefusedError: ``INVALID_VALUE`` for a topic or a part that there is not.
    """
    kind = TOPICS.get(topic)
    if kind is None:
        raise RefusedError("INVALID_VALUE", f"There is no event {topic!r}; the topics are {', '.join(sorted(TOPICS))}.")
    known = {one.name for one in msgspec.structs.fields(kind)}
    unknown = sorted(fields.keys() - known)
    if unknown:
        raise RefusedError("INVALID_VALUE", f"{topic} has no {unknown[0]!r}; it has {', '.join(sorted(known))}.")
    return ExpectedEvent(topic, fields)


def intent(action: str, input: Any = None, *, actor: str = TESTER, **wishes: Any) -> Step:  # noqa: A002
    """Return the step that somebody wants something, as ``Scene.when`` does it."""
    return lambda world: _act(world, action, input, actor, wishes)


def registered(actor: str, kind: str = "agent", *, policy: str | None = None, **more: Any) -> Step:
    """Return the step that an actor is registered.

    Args:
        actor: its id.
        kind: ``human``, ``agent`` or ``system``.
        policy: the name of the policy that judges it; without one and without a ``binding``, all it wants is approved.
        **more: as for ``Realm.register``.
    """
    bound = {"kind": "auto_approve"} if policy is None else {"kind": "policy_rules", "policy": policy}
    wanted: dict[str, Any] = {"binding": bound, **more}
    return lambda world: world.register(actor, kind, **wanted)  # type: ignore[arg-type]  # it is checked there


@dataclass(frozen=True, slots=True)
class Passes:
    """The step that time passes; see ``passes``."""

    ms: int


def passes(ms: int) -> Passes:
    """Return the step that this many milliseconds pass, and what is due by then is done."""
    return Passes(ms)


@dataclass(frozen=True, slots=True)
class Given:
    """The fixture ``given``: call it with what happened before.

    Args:
        folders: where references and recorded logs start: that of the test, and pytest's root.
        used: the recorded logs of this test run.
        realm: what is given for all scenes, see ``of``.
    """

    folders: tuple[Path, ...] = field(repr=False)
    used: set[Path] = field(default_factory=set, repr=False)
    realm: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def of(self, **realm: Any) -> Given:
        """Return the same for a realm: ``domain``, ``policies``, ``projections``, ``effects`` and so on."""
        return replace(self, realm={**self.realm, **realm})

    def __call__(
        self,
        *steps: Step | Passes | str | Path,
        data: Mapping[str, Any] | None = None,
        results: Sequence[Result] = (),
        start_ms: int = START_MS,
        **realm: Any,
    ) -> Scene:
        """Return a realm in which something has happened.

        Args:
            *steps: what: functions that take the ``Realm``, such as ``intent`` and ``registered`` make, and ``passes``.
                The first one may be the file of a recorded log, with which everything begins.
            data: what differs from the domain's defaults.
            results: what effects give back, as ``result`` makes them.
            start_ms: when the realm was founded, ms since 1970.
            **realm: as for ``of``; without a domain all is as the ``world.toml`` beside the test says.

        Raises:
            RefusedError: ``INVALID_CONFIG``, ``INVALID_VALUE``, ``FILE_UNREADABLE``.
        """
        parts = parts_of({**self.realm, **realm}, self.folders)
        first, log = steps[0] if steps else None, None
        if isinstance(first, str | Path):
            log, steps = self._placed(first), steps[1:]
            self.used.add(log.resolve())
        return Scene(parts, log, steps, data, tuple(results), start_ms)

    def _placed(self, file: str | Path) -> Path:
        """Return where a recorded log is."""
        for folder in self.folders:
            if (folder / file).is_file():
                return folder / file
        looked = " or ".join(dict.fromkeys(map(str, self.folders)))
        raise RefusedError("FILE_UNREADABLE", f"There is no recorded log {file} in {looked}.", path=str(file))


@dataclass(frozen=True, slots=True)
class Scene:
    """A realm in which something has happened; ``when`` says what happens next."""

    parts: Mapping[str, Any]
    log: Path | None
    steps: tuple[Step | Passes | str | Path, ...]
    data: Mapping[str, Any] | None
    results: tuple[Result, ...]
    start_ms: int

    def when(
        self,
        what: str | IntentBody | Mapping[str, Any] | Step | Passes | None = None,
        input: Any = None,  # noqa: A002 - the specification's word
        *,
        actor: str = TESTER,
        source: Mapping[str, Any] | None = None,
        **wishes: Any,
    ) -> Happened:
        """Play the scene, and return what happened.

        Args:
            what: an action, with its input; or an intent's body; or any step.
            input: the action's input.
            actor: who wants it. One that no step registered is an agent, judged by the realm's policy where there is
                exactly one; otherwise all that it wants is approved.
            source: a source event in wire form that the projections see, in place of an intent.
            **wishes: as for ``Realm.act`` or ``Realm.project``: ``scope``, ``branch`` and so on.
        """
        __tracebackhide__ = True
        wanted = _step(what, input, actor, source, wishes)
        clock = ManualClock(self.start_ms)
        results = Results(self.results)
        with ExitStack() as stack:
            world = self._opened(stack, clock, results)
            for step in self.steps:
                _do(world, clock, step)
            self._make_known(world, actor)
            before, refused = world.log.head().size, None
            try:
                _do(world, clock, wanted)
            except RefusedError as raised:
                refused = raised
            if results.missing:
                told = "Say what it gives back: given(..., results=[result(NAME, gives=...)])."
                raise AssertionError(no_result(results.missing[0], told))
            events = [one for _, one in world.events(after=before)]
            ids = [one.proposal_id for one in events if isinstance(one, ProposalSubmitted)]
            proposal = world.proposal(ids[-1]) if ids else None
            return Happened(events, refused, proposal, world.data())

    def _opened(self, stack: ExitStack, clock: ManualClock, results: Results) -> Realm:
        handlers = results.handlers(self.parts.get("effects", ()), self.parts["folder"])
        path = self.log
        frozen = frozen_parts("given" if path is None else f"given {path.stem}", clock, handlers)
        parts = {**self.parts, **frozen}
        if path is None:
            return stack.enter_context(Realm.create("sqlite:///:memory:", data=self.data, **parts))
        if self.data is not None:
            raise RefusedError("INVALID_VALUE", "A scene that begins with a recorded log has the data of that log.")
        address = str(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="given-")), "world.db"))
        with path.open("rb") as lines:
            import_log(lines, address)
        with Realm.open_read_only(address) as looking:
            last = max(one.at for _, one in looking.events())
        clock.advance(max(0, last - self.start_ms))
        return stack.enter_context(Realm.open(address, **parts))

    def _make_known(self, world: Realm, actor: str) -> None:
        realm = world.realm()
        if actor not in realm.actors:
            names = list(realm.policies)
            registered(actor, policy=names[0] if len(names) == 1 else None)(world)


@dataclass(frozen=True, slots=True)
class Happened:
    """What happened in a scene; every ``then`` returns it again.

    Args:
        events: in order.
        refused: what was raised, None where nothing was.
        proposal: what was submitted, as it stands at the end.
        data: of the active branch's head at the end.
    """

    events: Sequence[Event]
    refused: RefusedError | None
    proposal: Proposal | None
    data: FrozenDict

    def then(self, *expected: ExpectedEvent | str) -> Happened:
        """Expect these events in this order; others may come between.

        Args:
            *expected: topics, or events as ``event`` makes them.
        """
        __tracebackhide__ = True
        if self.refused is not None:
            raise AssertionError(printable(f"It was refused: {self.refused.code}: {self.refused.message}"))
        wanted = [event(one) if isinstance(one, str) else one for one in expected]
        found = iter(self.events)
        for at, one in enumerate(wanted):
            if not any(_is(one, happened) for happened in found):
                raise AssertionError(printable("\n".join(self._missing(wanted, at))))
        return self

    def then_nothing(self) -> Happened:
        """Expect that nothing was recorded."""
        __tracebackhide__ = True
        if self.events:
            raise AssertionError(printable("\n".join(["Nothing was to happen, but:", *self._told()])))
        return self

    def then_refused(self, code: str, *, because: str = "") -> Happened:
        """Expect that it was refused, rejected, or failed.

        Args:
            code: of the refusal or of the error with which the action failed; of a rejection the name of a rule that
                decided it, or ``REJECTED``.
            because: what the words for people must hold.
        """
        __tracebackhide__ = True
        codes, words = self._refusal()
        if code not in codes:
            was = f"it was {' or '.join(codes)}: {words}" if codes else "it was not refused"
            raise AssertionError(printable("\n".join([f"It was to be refused: {code}; {was}", *self._told()])))
        if because not in words:
            raise AssertionError(printable(f"{code} was to be because of {because!r}; it was: {words}"))
        return self

    def then_waits(self, *people: str) -> Happened:
        """Expect that it waits for people, and for these where some are named."""
        __tracebackhide__ = True
        asked = None if self.proposal is None else self.proposal.asked
        if asked is None or self.proposal is None or self.proposal.decision is not None:
            raise AssertionError(printable("\n".join(["It was to wait for people, but:", *self._told()])))
        if people and sorted(people) != sorted(asked.ask):
            raise AssertionError(printable(f"It was to wait for {', '.join(people)}, but: {', '.join(asked.ask)}"))
        return self

    def then_data(self, **expected: Any) -> Happened:
        """Expect this data at the end, of objects within the members that are named."""
        __tracebackhide__ = True
        differs = list(_differences(expected, self.data, ""))
        if differs:
            raise AssertionError(printable("\n".join(["The data is another:", *differs])))
        return self

    def _refusal(self) -> tuple[list[str], str]:
        """Return the codes that a refusal has, and its words; none where nothing was refused."""
        if self.refused is not None:
            return [self.refused.code], self.refused.message
        if self.proposal is None:
            return [], ""
        if self.proposal.error is not None:
            return [self.proposal.error["code"]], self.proposal.error.get("message", "")
        decision = self.proposal.decision or {}
        if decision.get("decision") != "rejected":
            return [], ""
        rules = [one["rule"] for one in decision.get("trace", ()) if one.get("decisive")]
        return [*rules, REJECTED], decision["reason"]

    def _told(self) -> Iterator[str]:
        if self.refused is not None:
            yield f"  refused: {self.refused.code}: {self.refused.message}"
        for one in self.events:
            yield f"  {_summary(one)}"

    def _missing(self, wanted: Sequence[ExpectedEvent], at: int) -> Iterator[str]:
        """Yield what was expected and what happened, and how the nearest event differs."""
        yield "Expected, in this order:"
        for number, one in enumerate(wanted):
            mark = "found" if number < at else "MISSING" if number == at else ""
            yield f"  {mark:8}{one}"
        yield "What happened:"
        yield from self._told()
        alike = [one for one in self.events if wanted[at].topic == one.TOPIC]
        if any(_is(wanted[at], one) for one in alike):
            yield f"{wanted[at].topic} came earlier than it was expected."
        elif alike:
            yield f"{wanted[at].topic} differs:"
            for name, expected in wanted[at].fields.items():
                yield from _differences(expected, getattr(alike[-1], name), name)


def _step(what: Any, given: Any, actor: str, source: Any, wishes: Mapping[str, Any]) -> Step | Passes:
    if source is not None:
        return lambda world: world.project(source, actor, **wishes)
    if isinstance(what, str):
        return lambda world: _act(world, what, given, actor, wishes)
    if isinstance(what, IntentBody | Mapping):
        body = what if isinstance(what, IntentBody) else IntentBody.read(what)
        scope = {} if body.scope_proposal is None else {"scope": body.scope_proposal}
        return lambda world: _act(world, body.type, body.input, actor, {**scope, **wishes})
    if isinstance(what, Passes):
        return what
    if not callable(what):
        raise RefusedError("INVALID_VALUE", "Say what happens: an action, an intent's body, a step, or source=...")
    step: Step = what
    return step


def _act(world: Realm, action: str, given: Any, actor: str, wishes: Mapping[str, Any]) -> object:
    if actor == TESTER and actor not in world.realm().actors:
        registered(actor)(world)
    return world.act(actor, action, given, **wishes)


def _do(world: Realm, clock: ManualClock, step: Any) -> None:
    if isinstance(step, Passes):
        clock.advance(step.ms)
        world.settle()
    elif callable(step):
        step(world)
    else:
        pytest.fail(f"{step!r} is no step; a recorded log can only be the first one.", pytrace=False)


def _is(expected: ExpectedEvent, happened: Event) -> bool:
    return expected.topic == happened.TOPIC and not any(
        list(_differences(one, getattr(happened, name), name)) for name, one in expected.fields.items()
    )


def _differences(expected: Any, was: Any, path: str) -> Iterator[str]:
    """Yield how a value differs from what is expected, in objects only where something is."""
    if isinstance(expected, Mapping) and isinstance(was, Mapping):
        for name, one in expected.items():
            place = f"{path}.{name}" if path else str(name)
            if name in was:
                yield from _differences(one, was[name], place)
            else:
                yield f"  {place}: expected {_shown(one)}, was not there"
    elif not _equal(expected, was):
        yield f"  {path}: expected {_shown(expected)}, was {_shown(was)}"


def _equal(expected: Any, was: Any) -> bool:
    """Tell whether two values are the same JSON: true is not 1. What a test expects may have its own way to compare."""
    if isinstance(expected, int | float) and isinstance(was, int | float):
        return isinstance(expected, bool) is isinstance(was, bool) and expected == was
    if isinstance(expected, list | tuple) and isinstance(was, list):
        return len(expected) == len(was) and all(map(_equal, expected, was))
    if isinstance(expected, Mapping) and isinstance(was, Mapping):
        return expected.keys() == was.keys() and all(_equal(one, was[name]) for name, one in expected.items())
    return bool(expected == was)


def _shown(value: Any) -> str:
    """Return a value as JSON; what a test expects may also be something that only compares."""
    return short(value) if isinstance(value, dict | list | int | float | None) else repr(value)


_TELLING: Final = ("decision", "error", "patches", "ruling", "binding", "requirement", "result", "status", "branch")
"""The parts of an event that say most."""


def _summary(one: Event) -> str:
    for name in _TELLING:
        value = getattr(one, name, None)
        if value not in (None, [], {}):
            if name == "decision":
                value = {part: value[part] for part in ("decision", "authority", "reason")}
            elif name == "ruling":
                value = {part: value[part] for part in ("verdict", "reason")}
            return f"{one.TOPIC} {name}={_shown(value)}"
    return one.TOPIC
