"""Fixture ``recorded`` of the pytest plugin: recorded logs as tests.

A recorded log is the export of a realm. It is imported into a scratch log, verified, and every step in it is performed
again by the loaded code. A test that drives a realm besides, in a ``with`` block, plays the scenes that the log
records: with the same clock and ids, with the recorded results of effects, and with the same events in the end.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Unpack

from world.extras import missing_extra

try:
    import pytest
except ImportError:
    raise missing_extra("Tests of realms and policies", "pytest", "testing") from None

from world.audit.replay import Replayed, replay
from world.clock import ManualClock
from world.errors import WorldProtocolError
from world.events.codec import TOPICS, encode_event
from world.model.immutable_json import FrozenDict
from world.read_models.decoding import decoded
from worldprotocol.analysis.recheck.recheck import open_to_recheck
from worldprotocol.api.bootstrap import load_any_domain, take_adopted_form
from worldprotocol.api.realm import Realm
from worldprotocol.export.jsonl import export_log, import_log
from worldprotocol.testing.divergences import FoundDivergence, LogCheck, about, check, event_at, printable, rendered
from worldprotocol.testing.frozen import START_MS, Results, frozen_parts, results_of
from worldprotocol.testing.realms import RealmOptions, parts_of

Mode = Literal["none", "once", "new", "all"]

CHECKED_WITH: Final = ("domain", "policies", "projections", "folder")
"""What steps are performed again with; the rest serves to drive a realm."""

PLAYED: Final = "PLAYED_DIFFERENTLY"

_OF_CODE: Final[Mapping[str, frozenset[str]]] = {
    "domain.adopted": frozenset({"sources", "distributions"}),
    "policy.adopted": frozenset({"policy", "previous"}),
    "shadow.configured": frozenset({"policy"}),
}
"""Parts of events that name code, beside hashes of policies: where they change no result, the scenes are the same."""


@dataclass(frozen=True, slots=True)
class Flip:
    """Expected divergence, given by the marker ``expected_flip``.

    Args:
        proposal: the id of the proposal, or its beginning.
        position: of the event in the record.
        file: in which recorded log, its name or the end of its path; None for any.
        to: the verdict of now: ``approve``, ``reject`` or ``wait``.
        code: of the difference, such as ``EXECUTION_DIVERGED``.
    """

    proposal: str | None = None
    position: int | None = None
    file: str | None = None
    to: str | None = None
    code: str | None = None

    def __post_init__(self) -> None:
        if not self.proposal and self.position is None:
            pytest.fail("expected_flip needs a proposal (its id, or the beginning of it) or a position.", pytrace=False)

    def takes(self, file: Path, one: FoundDivergence) -> bool:
        """Return whether this is the expected divergence."""
        return (
            (self.proposal is None or (one.proposal_id or "").startswith(self.proposal))
            and self.position in (None, one.position)
            and self.to in (None, one.to)
            and self.code in (None, one.code)
            and (self.file is None or file.as_posix().endswith(self.file))
        )

    @property
    def narrowness(self) -> int:
        """How much it says."""
        return len(self._given)

    @property
    def _given(self) -> list[str]:
        names = ("proposal", "position", "file", "to", "code")
        return [f"{name}={getattr(self, name)!r}" for name in names if getattr(self, name) is not None]

    def __str__(self) -> str:
        return f"expected_flip({', '.join(self._given)})"


@dataclass(slots=True)
class Recordings:
    """The fixture ``recorded``: call it with the file of a recorded log.

    Args:
        folders: where relative names start: that of the test, and pytest's root.
        mode: what ``--record`` says.
        flips: the divergences that are wanted.
        used: the recorded logs of this test run.
        opened: what this test was given.
        scratch: what is closed when the test ends.
    """

    folders: tuple[Path, ...] = field(repr=False)
    mode: Mode
    flips: list[Flip]
    used: set[Path] = field(repr=False)
    opened: list[Recording] = field(default_factory=list, repr=False)
    scratch: ExitStack = field(default_factory=ExitStack, repr=False)
    _happened: Counter[int] = field(default_factory=Counter, repr=False)  # by the number of the flip: two may be equal

    def __call__(
        self,
        file: str | Path,
        *,
        data: Mapping[str, Any] | None = None,
        start_ms: int = START_MS,
        **realm: Unpack[RealmOptions],
    ) -> Recording:
        """Check a recorded log with the loaded code; enter the result to run its scenes.

        Args:
            file: the export of a log, ``golden/shop.jsonl``; relative to the test's folder, or else to pytest's root.
            data: initial data of the realm of the test that differs from the domain's defaults.
            start_ms: start of the scenes, ms since 1970.
            **realm: see ``RealmOptions``; without a domain, the ``world.toml`` beside the test or the file is used.

        Raises:
            RefusedError: a reference cannot be loaded.
            pytest.fail.Exception: at the first divergence that is not expected.
        """
        __tracebackhide__ = True
        path = self._placed(file)
        self.used.add(path.resolve())
        folders = (self.folders[0], path.parent, *self.folders[1:])
        recording = Recording(path, self, {**parts_of(realm, folders), "data": data}, ManualClock(start_ms))
        self.opened.append(recording)
        if not path.is_file() and self.mode == "none":
            pytest.fail(
                f"There is no recorded log {path}. Record it: run this test with --record=once, look at what it "
                "recorded, and keep it with the test.",
                pytrace=False,
            )
        if path.is_file() and self.mode != "all":
            recording.check()
        return recording

    def finish(self) -> None:
        """Fail for a recorded log that is missing and that the test did not drive, or a flip that did not happen."""
        __tracebackhide__ = True
        for one in self.opened:
            if one.left is not None:
                pytest.fail(
                    f"The scenes of {one.path.name} were left by {type(one.left).__name__}: {one.left}; so nothing was "
                    "compared or recorded. Expect exceptions within the `with` block.",
                    pytrace=False,
                )
            if one.entered:
                continue
            if not one.path.is_file():
                pytest.fail(
                    f"There is no recorded log {one.path}, and the test drives no realm to record: enter what "
                    "recorded(...) returns, `with recorded(...) as world:`, or put the export of a log there.",
                    pytrace=False,
                )
            if self.mode == "all":
                one.check()
        for number, flip in enumerate(self.flips):
            many = self._happened[number]
            if many != 1 and not any(one.is_new for one in self.opened):
                words = f"happened {many} times" if many else "did not happen"
                words += "" if self._happened else ": all is as it was recorded"
                pytest.fail(f"{flip} {words}. Each one expects exactly one divergence.", pytrace=False)

    def unexpected(self, path: Path, found: Iterable[FoundDivergence]) -> list[FoundDivergence]:
        """Return the divergences that are not wanted, and count those that are."""
        left = []
        for one in found:
            taking = [number for number, flip in enumerate(self.flips) if flip.takes(path, one)]
            if taking:  # a marker expects one divergence: take one without a divergence yet, the narrowest of these
                self._happened[min(taking, key=lambda it: (self._happened[it], -self.flips[it].narrowness))] += 1
            else:
                left.append(one)
        return left

    def _placed(self, file: str | Path) -> Path:
        found = (folder / file for folder in self.folders)
        return next((path for path in found if path.is_file()), self.folders[0] / file)


@dataclass(slots=True)
class Recording:
    """A recorded log; entered, it gives a realm that is driven as the recorded one was.

    Args:
        path: of the file.
        owner: the fixture.
        parts: what the realm is opened with.
        clock: of the driven realm; it does not move unless it is advanced.
        entered: whether the test drives a realm.
        left: by what the scene was left, None where it was played to its end.
        is_new: whether the log was recorded just now.
        checked: the result of the check, None before it.
        replayed: what the log folds to, None likewise.
    """

    path: Path
    owner: Recordings
    parts: dict[str, Any]
    clock: ManualClock
    entered: bool = False
    left: BaseException | None = None
    is_new: bool = False
    checked: LogCheck | None = None
    replayed: Replayed | None = None
    _recorded: Realm | None = None
    _results: Results = field(default_factory=lambda: Results(()))
    _world: Realm | None = None

    @property
    def data(self) -> Mapping[str, FrozenDict]:
        """The data of every branch at the end of the recorded log."""
        assert self.replayed is not None, "the log is being recorded"
        return self.replayed.data

    def check(self) -> None:
        """Verify the log and perform its steps again; fails at the first divergence that is not expected."""
        __tracebackhide__ = True
        self._recorded = world = self._imported()
        self.checked = check(world)
        unexpected = self.owner.unexpected(self.path, self.checked.found)
        if unexpected:
            self._fail(rendered(world, unexpected[0], self.checked, self.path.name))
        self.replayed = replay(world.log)

    def __enter__(self) -> Realm:
        self.entered = True
        effects = self.parts.get("effects", ())
        recorded = () if self._recorded is None else results_of(self._recorded.events())
        self._results = Results(recorded, may_perform=self._recorded is None or self.owner.mode == "new")
        if self._recorded is not None and "domain" in self.parts:  # play in the form that the recording adopted
            domain = load_any_domain(self.parts["domain"], base=self.parts["folder"]).copied()
            take_adopted_form(domain, self._recorded.log)
            self.parts["domain"] = domain
        frozen = frozen_parts(self.path.stem, self.clock, self._results.handlers(effects, self.parts["folder"]))
        self._world = Realm.create("sqlite:///:memory:", **{**self.parts, **frozen})
        return self._world

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        __tracebackhide__ = True
        assert self._world is not None
        with self._world as world:
            if self._results.missing:
                self._fail(
                    no_result(
                        self._results.missing[0],
                        "Record it: --record=new adds what is new at the end, "
                        "--record=all records the whole log anew. Or mend the code that asks for it.",
                    )
                )
            self.left = error
            if error is not None:
                return
            if self._recorded is None:
                self._write(world)
            else:
                self._compare(world, self._recorded)

    # Inside

    def _imported(self) -> Realm:
        __tracebackhide__ = True
        scratch = self.owner.scratch
        folder = scratch.enter_context(tempfile.TemporaryDirectory(prefix="recorded-"))
        address = str(Path(folder, "world.db"))
        try:
            with self.path.open("rb") as lines:
                import_log(lines, address)
        except WorldProtocolError as refused:
            self._fail(f"{self.path.name} is no sound recorded log. {refused.message}")
        known = {name: self.parts[name] for name in CHECKED_WITH if name in self.parts}
        return scratch.enter_context(open_to_recheck(address, **known))

    def _write(self, world: Realm) -> None:
        """Keep what was recorded: whole, or not at all."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_name(f".{self.path.name}.part")
        try:
            with partial.open("wb") as out:
                export_log(world.log, out)
            partial.replace(self.path)
        finally:
            partial.unlink(missing_ok=True)
        self.is_new = True

    def _compare(self, world: Realm, recorded: Realm) -> None:
        """Compare what was played with what was recorded, up to the first divergence that is wanted."""
        __tracebackhide__ = True
        assert self.checked is not None
        other_code = None  # the first event that differs in names of code only
        for position, (then, now) in enumerate(zip_longest(recorded.log.read(), world.log.read()), 1):
            if any(one.position <= position for one in self.checked.found):
                return  # what comes after a wanted divergence follows from it
            if then is None:
                self._goes_on(world, position, other_code)
                return
            if now is not None and (then.leaf == now.leaf or _wire(then) == _wire(now)):
                continue
            found = _difference(recorded, position, _wire(then), None if now is None else _wire(now))
            if found is not None:
                if found.proposal_id in {one.proposal_id for one in self.checked.found if one.proposal_id}:
                    return  # the one that is wanted begins here
                if not self.owner.unexpected(self.path, [found]):
                    return
                self._fail(rendered(recorded, found, self.checked, self.path.name))
            other_code = other_code or position

    def _goes_on(self, world: Realm, position: int, other_code: int | None) -> None:
        __tracebackhide__ = True
        if self.owner.mode == "new" and other_code is None:
            self._write(world)
            return
        words = (
            f"{self.path.name} ends with event {position - 1}, the test continues: {event_at(world, position).TOPIC}."
        )
        if other_code is not None and self.owner.mode == "new":
            self._fail(
                f"{words} Nothing was added: event {other_code}, {event_at(world, other_code).TOPIC}, names other code "
                "than was recorded, and recorded events are not changed. --record=all records anew. The identity of a "
                "rule covers its function and the code of its package that it reaches."
            )
        self._fail(f"{words} --record=new adds what is new.")

    def _fail(self, words: str) -> None:
        __tracebackhide__ = True
        pytest.fail(printable(words), pytrace=False)


def no_result(missing: tuple[str, str], what_to_do: str) -> str:
    """Return the words for an effect without a recorded result."""
    return f"The effect {missing[0]} with {missing[1]} has no recorded result, and tests make no effects. {what_to_do}"


def _wire(logged: Any) -> dict[str, Any]:
    """Return an event as it would be recorded today: the version of its topic may be an earlier one."""
    is_current = logged.schema_version == TOPICS[logged.topic].VERSION
    state = logged.state if is_current else encode_event(decoded(logged))
    return {"topic": logged.topic, "stream": logged.stream, **json.loads(state)}


def _difference(
    recorded: Realm, position: int, then: dict[str, Any], now: dict[str, Any] | None
) -> FoundDivergence | None:
    """Return how a played event differs, None where only the names of code do."""
    if now is None:
        words = "The test ends before this event; played again, nothing more happens."
        return FoundDivergence(position, then["topic"], PLAYED, words, (), about(event_at(recorded, position)))
    before, after = _without_code(then), _without_new_settings(then, _without_code(now))
    if before == after:
        return None
    values = ("", before, after) if then["topic"] == now["topic"] else ("topic", then["topic"], now["topic"])
    words = "Played again with the same clock and ids, this event is another one."
    return FoundDivergence(position, then["topic"], PLAYED, words, (values,), about(event_at(recorded, position)))


def _without_code(wire: dict[str, Any]) -> dict[str, Any]:
    """Return an event without what names code."""
    left_out = _OF_CODE.get(wire["topic"], frozenset())
    plain: dict[str, Any] = _nameless({name: one for name, one in wire.items() if name not in left_out})
    return plain


def _without_new_settings(then: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Return an event without the settings that the release which recorded the other one did not have."""
    if then["topic"] != now["topic"]:
        return now
    if now["topic"] == "proposal.submitted" and "scopeRules" not in then:
        return {name: one for name, one in now.items() if name != "scopeRules"}
    if now["topic"] != "klis.configured":
        return now
    return {**now, "settings": {name: one for name, one in now["settings"].items() if name in then["settings"]}}


def _nameless(value: Any, *, is_outcome: bool = False) -> Any:
    """Return a value without hashes of policies and, in traces, without the places of rules."""
    if isinstance(value, list):
        return [_nameless(one, is_outcome=is_outcome) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _nameless(one, is_outcome=name == "trace")
        for name, one in value.items()
        if name != "policyHash" and not (is_outcome and name == "source")
    }
