"""Fixture ``given`` of the pytest plugin: scenes with a realm.

    given(data={"stock": {"tea": 1}}, domain=shop).when("sell", {"item": "tea"}, actor="bot").then(
        event("decision.made", decision={"decision": "approved"}), "proposal.completed"
    )

Each scene runs in a new realm in memory. Its clock is fixed, its ids are deterministic, and no effect is performed:
results of effects are given by the test.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypedDict, Unpack

from world.extras import missing_extra

try:
    import pytest
except ImportError:
    raise missing_extra("Tests of realms and policies", "pytest", "testing") from None

from world.clock import ManualClock
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.base import Event
from world.events.caller_events import Attendance, Attended, NoticedBy
from world.events.proposal_events import ProposalSubmitted
from world.model.immutable_json import FrozenDict
from world.model.intent import IntentBody, IntentScope
from world.state.proposal import Proposal
from worldprotocol.api.callers.keyed import submit_attended
from worldprotocol.api.callers.sessions import Leaving, caller_left
from worldprotocol.api.options import SubmitOptions
from worldprotocol.api.realm import Realm
from worldprotocol.export.jsonl import import_log
from worldprotocol.testing.divergences import printable
from worldprotocol.testing.expected_events import ExpectedEvent, differences, event, matches, summary
from worldprotocol.testing.frozen import START_MS, Result, Results, frozen_parts, result
from worldprotocol.testing.realms import RealmOptions, parts_of
from worldprotocol.testing.recordings import no_result

__all__ = ["Given", "Happened", "Scene", "Step", "event", "intent", "leaves", "passes", "registered", "result"]

Step = Callable[[Realm], object]
"""Function that acts on a realm."""

REJECTED: Final = "REJECTED"
"""Code with which ``then_refused`` matches a rejection by any rule."""

TESTER: Final = "tester"
"""Default id of the acting actor."""


class ActOptions(SubmitOptions, total=False):
    """Options of an action of a scene, as for ``Realm.act``.

    Args:
        scope: proposed write scope.
        note: free text, stored with the intent.
        attended: what attends it, for a call of a tool that lives as long as its caller; its session is that of
            ``trace``.
    """

    attended: Attendance
    scope: IntentScope | Mapping[str, Any] | Iterable[str] | None
    note: str | None


class RegistrationOptions(TypedDict, total=False):
    """Options of a registration, as for ``Realm.register``.

    Args:
        binding: authority binding.
        name: display name.
        meta: further members of the actor.
        by: actor id that the log records.
    """

    binding: Mapping[str, Any] | None
    name: str | None
    meta: Mapping[str, Any] | None
    by: str


def intent(
    action: str,
    input: Any = None,  # noqa: A002
    *,
    actor: str = TESTER,
    **options: Unpack[ActOptions],
) -> Step:
    """Return the step of an action, as in ``Scene.when``."""
    return lambda world: _act(world, action, input, actor, options)


def registered(
    actor: str, kind: str = "agent", *, policy: str | None = None, **options: Unpack[RegistrationOptions]
) -> Step:
    """Return the step of a registration.

    Args:
        actor: its id.
        kind: ``human``, ``agent`` or ``system``.
        policy: name of its policy; without a policy and a ``binding``, all its proposals are approved.
        **options: see ``RegistrationOptions``.
    """
    bound = {"kind": "auto_approve"} if policy is None else {"kind": "policy_rules", "policy": policy}
    parts: dict[str, Any] = {"binding": bound, **options}
    return lambda world: world.register(actor, kind, **parts)  # type: ignore[arg-type]  # it is checked there


def leaves(actor: str = TESTER, *, session: str, noticed_by: NoticedBy = "process") -> Step:
    """Return the step of a caller that leaves, which ends the calls of its session.

    Args:
        actor: its actor.
        session: the member ``session`` of the traces of its calls.
        noticed_by: how it was noticed.
    """
    left = Leaving(actor, "scene", noticed_by, session=session)
    return lambda world: caller_left(world, left)


@dataclass(frozen=True, slots=True)
class Passes:
    """Step that advances the clock; see ``passes``."""

    ms: int


def passes(ms: int) -> Passes:
    """Return the step that advances the clock by milliseconds and does due work."""
    return Passes(ms)


@dataclass(frozen=True, slots=True)
class Given:
    """Fixture ``given``: call it with the earlier steps.

    Args:
        folders: start of relative references and recorded logs: the test's folder, and pytest's root.
        used: recorded logs used in this test run.
        realm: options of all scenes, see ``of``.
    """

    folders: tuple[Path, ...] = field(repr=False)
    used: set[Path] = field(default_factory=set, repr=False)
    realm: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def of(self, **realm: Unpack[RealmOptions]) -> Given:
        """Return a copy with options of the realm, such as ``domain`` and ``policies``."""
        return replace(self, realm={**self.realm, **realm})

    def __call__(
        self,
        *steps: Step | Passes | str | Path,
        data: Mapping[str, Any] | None = None,
        results: Sequence[Result] = (),
        start_ms: int = START_MS,
        **realm: Unpack[RealmOptions],
    ) -> Scene:
        """Return a scene with earlier steps.

        Args:
            *steps: functions of a ``Realm``, as returned by ``intent`` and ``registered``, and ``passes``. The first
                one may be the file of a recorded log, with which the scene begins.
            data: initial data that differs from the domain's defaults.
            results: results of effects, see ``result``.
            start_ms: time of the founding, ms since 1970.
            **realm: see ``RealmOptions``; without a domain, the ``world.toml`` beside the test is used.

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
        """Return the path of a recorded log."""
        for folder in self.folders:
            if (folder / file).is_file():
                return folder / file
        looked = " or ".join(dict.fromkeys(map(str, self.folders)))
        raise RefusedError(ErrorCode.FILE_UNREADABLE, f"There is no recorded log {file} in {looked}.", path=str(file))


@dataclass(frozen=True, slots=True)
class Scene:
    """Realm with earlier steps; ``when`` runs the tested step."""

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
        **options: Unpack[ActOptions],
    ) -> Happened:
        """Run the scene, and return its result.

        Args:
            what: an action, with its input; or an intent's body; or any step.
            input: the action's input.
            actor: the acting actor. An unregistered one is registered as an agent, bound to the realm's policy if it
                has exactly one; otherwise all its proposals are approved.
            source: a source event in wire form for the projections, in place of an intent.
            **options: see ``ActOptions``; with ``source``, as for ``Realm.project``.
        """
        __tracebackhide__ = True
        tested = _step(what, input, actor, source, options)
        clock = ManualClock(self.start_ms)
        results = Results(self.results)
        with ExitStack() as stack:
            world = self._opened(stack, clock, results)
            for step in self.steps:
                _do(world, clock, step)
            self._make_known(world, actor)
            before, refused = world.log.head().size, None
            try:
                _do(world, clock, tested)
            except RefusedError as raised:
                refused = raised
            if results.missing:
                hint = "Give its result: given(..., results=[result(NAME, gives=...)])."
                raise AssertionError(no_result(results.missing[0], hint))
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
            raise RefusedError(
                ErrorCode.INVALID_VALUE,
                "data is given, but the scene begins with a recorded log, which has its own data; omit data.",
            )
        address = str(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="given-")), "world.db"))
        with path.open("rb") as lines:
            import_log(lines, address)
        with Realm.open_read_only(address) as reader:
            last = max(one.at for _, one in reader.events())
        clock.advance(max(0, last - self.start_ms))
        return stack.enter_context(Realm.open(address, **parts))

    def _make_known(self, world: Realm, actor: str) -> None:
        realm = world.realm()
        if actor not in realm.actors:
            names = list(realm.policies)
            registered(actor, policy=names[0] if len(names) == 1 else None)(world)


@dataclass(frozen=True, slots=True)
class Happened:
    """Result of a scene; every ``then`` method returns it again.

    Args:
        events: recorded events, in order.
        refused: the raised error, if any.
        proposal: the submitted proposal at the end.
        data: data of the active branch's head at the end.
    """

    events: Sequence[Event]
    refused: RefusedError | None
    proposal: Proposal | None
    data: FrozenDict

    def then(self, *expected: ExpectedEvent | str) -> Happened:
        """Expect these events in this order, with or without others between them.

        Args:
            *expected: topics, or events as returned by ``event``.
        """
        __tracebackhide__ = True
        if self.refused is not None:
            raise AssertionError(printable(f"It was refused: {self.refused.code}: {self.refused.message}"))
        listed = [event(one) if isinstance(one, str) else one for one in expected]
        remaining = iter(self.events)
        for at, one in enumerate(listed):
            if not any(matches(one, happened) for happened in remaining):
                raise AssertionError(printable("\n".join(self._missing(listed, at))))
        return self

    def then_nothing(self) -> Happened:
        """Expect that nothing was recorded."""
        __tracebackhide__ = True
        if self.events:
            raise AssertionError(printable("\n".join(["Nothing was to happen, but:", *self._listing()])))
        return self

    def then_refused(self, code: str, *, because: str = "") -> Happened:
        """Expect that it was refused, rejected, or failed.

        Args:
            code: code of the refusal or of the action's error; for a rejection the name of a decisive rule, or
                ``REJECTED``.
            because: text that the message must contain.
        """
        __tracebackhide__ = True
        codes, words = self._refusal()
        if code not in codes:
            was = f"it was {' or '.join(codes)}: {words}" if codes else "it was not refused"
            raise AssertionError(printable("\n".join([f"It was to be refused: {code}; {was}", *self._listing()])))
        if because not in words:
            raise AssertionError(printable(f"{code} was to be because of {because!r}; it was: {words}"))
        return self

    def then_waits(self, *people: str) -> Happened:
        """Expect that the proposal waits for human decisions, of these actors if given."""
        __tracebackhide__ = True
        asked = None if self.proposal is None else self.proposal.asked
        if asked is None or self.proposal is None or self.proposal.decision is not None:
            raise AssertionError(printable("\n".join(["It was to wait for people, but:", *self._listing()])))
        if people and sorted(people) != sorted(asked.ask):
            raise AssertionError(printable(f"It was to wait for {', '.join(people)}, but: {', '.join(asked.ask)}"))
        return self

    def then_data(self, **expected: object) -> Happened:
        """Expect this data at the end; of nested objects only the given members."""
        __tracebackhide__ = True
        differing = list(differences(expected, self.data, ""))
        if differing:
            raise AssertionError(printable("\n".join(["The data is another:", *differing])))
        return self

    def _refusal(self) -> tuple[list[str], str]:
        """Return the codes and the message of a refusal; no codes without one."""
        if self.refused is not None:
            return [self.refused.code], self.refused.message
        if self.proposal is None:
            return [], ""
        if self.proposal.error is not None:
            return [self.proposal.error.code], self.proposal.error.message
        decision = self.proposal.decision
        if decision is None or decision.decision != "rejected":
            return [], ""
        return [*decision.decisive_rules, REJECTED], decision.reason

    def _listing(self) -> Iterator[str]:
        if self.refused is not None:
            yield f"  refused: {self.refused.code}: {self.refused.message}"
        for one in self.events:
            yield f"  {summary(one)}"

    def _missing(self, wanted: Sequence[ExpectedEvent], at: int) -> Iterator[str]:
        """Yield the expected and the recorded events, and the nearest event's differences."""
        yield "Expected, in this order:"
        for number, one in enumerate(wanted):
            mark = "found" if number < at else "MISSING" if number == at else ""
            yield f"  {mark:8}{one}"
        yield "What happened:"
        yield from self._listing()
        alike = [one for one in self.events if wanted[at].topic == one.TOPIC]
        if any(matches(wanted[at], one) for one in alike):
            yield f"{wanted[at].topic} is earlier than expected."
        elif alike:
            yield f"{wanted[at].topic} differs:"
            for name, expected in wanted[at].fields.items():
                yield from differences(expected, getattr(alike[-1], name), name)


def _step(what: Any, given: Any, actor: str, source: Any, options: Mapping[str, Any]) -> Step | Passes:
    if source is not None:
        return lambda world: world.project(source, actor, **options)
    if isinstance(what, str):
        return lambda world: _act(world, what, given, actor, options)
    if isinstance(what, IntentBody | Mapping):
        body = what if isinstance(what, IntentBody) else IntentBody.read(what)
        scope = {} if body.scope_proposal is None else {"scope": body.scope_proposal}
        return lambda world: _act(world, body.type, body.input, actor, {**scope, **options})
    if isinstance(what, Passes):
        return what
    if not callable(what):
        raise RefusedError(
            ErrorCode.INVALID_VALUE, "The step is not given; give an action, an intent's body, a step, or source=..."
        )
    step: Step = what
    return step


def _act(world: Realm, action: str, given: Any, actor: str, options: Mapping[str, Any]) -> object:
    if actor == TESTER and actor not in world.realm().actors:
        registered(actor)(world)
    attended = options.get("attended")
    if attended is None:
        return world.act(actor, action, given, **options)
    rest: Any = {name: value for name, value in options.items() if name not in ("attended", "scope", "note")}
    issued = world.issue(actor, action, given, scope=options.get("scope"), note=options.get("note"))
    return submit_attended(world, issued, Attended(by=attended), **rest)


def _do(world: Realm, clock: ManualClock, step: Any) -> None:
    if isinstance(step, Passes):
        clock.advance(step.ms)
        world.settle()
    elif callable(step):
        step(world)
    else:
        pytest.fail(f"{step!r} is no step; a recorded log can only be the first one.", pytrace=False)
