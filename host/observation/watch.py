"""The watch over one session: judges every side effect before it happens, and remembers what it saw (KLIS-6).

Whoever sees side effects (audit hooks, the watcher of child processes, a tracer, a comparison of contents, the host's
own effects) tells them here, and nowhere else is anything judged. Safe in many threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from world.errors import ScopeViolationError
from world.klis.observation import KLIS_SCOPE_VIOLATION, Declaration, Seen, outside_resource, violation
from world.klis.predicate import Predicate
from world.klis.triple import Triple

__all__ = ["Depth", "Observation", "Violation", "Watch"]

Depth = Literal["process", "child", "trace", "content", "effect"]
"""By what a side effect was seen: in process, in a child, by a tracer, in the content, or as an effect of the host."""

_OF_ONES_OWN = frozenset({Predicate.DELETES, Predicate.RENAMES, Predicate.MUTATES, Predicate.CONSUMES})


@dataclass(slots=True)
class Observation:
    """A side effect that was seen and allowed, ``count`` times; ``told`` is the count that was last given out."""

    seen: Seen
    depth: Depth
    count: int = 1
    told: int = 0

    def to_wire(self) -> dict[str, Any]:
        """Return what the log holds of it."""
        return {**self.seen.to_wire(), "depth": self.depth, "count": self.count}


@dataclass(frozen=True, slots=True)
class Violation:
    """A side effect outside of the declaration.

    Args:
        seen: the side effect.
        depth: by what it was seen.
        error: what its agent was told.
        blocked: whether it was stopped before it took effect.
    """

    seen: Seen
    depth: Depth
    error: ScopeViolationError = field(compare=False)
    blocked: bool = True

    def to_wire(self) -> dict[str, Any]:
        """Return what the log holds of it."""
        wire: dict[str, Any] = {
            **self.seen.to_wire(),
            "depth": self.depth,
            "blocked": self.blocked,
            "declared": self.error.details["declared"],
            "message": self.error.message,
        }
        if self.seen.call:
            wire["call"] = self.seen.call
        return wire


class Watch:
    """Judges and remembers the side effects of one session."""

    def __init__(
        self,
        declaration: Declaration,
        *,
        strict: bool = True,
        on_violation: Callable[[Violation], None] = lambda _violation: None,
        amend: Callable[[Seen], bool] = lambda _seen: False,
    ) -> None:
        """Watch over a declaration.

        Args:
            declaration: what the session may do.
            strict: the first violation ends the session; otherwise the scope may be amended.
            on_violation: told each violation once, in the thread that attempted it; ends what has to be ended.
            amend: in permissive mode: asks for a lease on the way, and tells whether it was granted.
        """
        self.declaration = declaration
        self.is_strict = strict
        self._on_violation = on_violation
        self._amend = amend
        self._mutex = threading.Lock()
        self._seen: dict[tuple[Seen, Depth], Observation] = {}
        self._new: dict[tuple[Seen, Depth], Observation] = {}
        self._made: set[str] = set()
        self._violations: list[Violation] = []
        self._known_violations: set[tuple[Seen, Depth]] = set()
        self._untold = 0
        self._ended_by: ScopeViolationError | None = None

    @property
    def is_over(self) -> bool:
        """Whether a violation ended the session."""
        return self._ended_by is not None

    @property
    def violations(self) -> tuple[Violation, ...]:
        """Every violation so far, in order."""
        with self._mutex:
            return tuple(self._violations)

    @property
    def observations(self) -> tuple[Observation, ...]:
        """Every side effect that was allowed so far, each once, in order of first sight."""
        with self._mutex:
            return tuple(self._seen.values())

    def check(self, seen: Sequence[Seen], *, depth: Depth) -> None:
        """Let side effects pass that belong to one call, or stop them before any of them happens (KO-3).

        Raises:
            ScopeViolationError: one of them lies outside of the declaration, or an earlier one ended the session.
        """
        if not seen:
            return
        with self._mutex:
            if self._ended_by is not None:
                raise _over(self._ended_by)
            outside = self._outside(seen)
            if not outside:
                self._record(seen, depth)
                return
        if not self.is_strict and all(one.outside is None and self._amend(one) for one in outside):
            with self._mutex:
                for one in outside:
                    self.declaration.add(Triple(one.predicate, one.resource))
                self._record(seen, depth)
            return
        raise self._violated(outside[0], depth, blocked=True)

    def note(self, seen: Sequence[Seen], *, depth: Depth) -> list[ScopeViolationError]:
        """Take in side effects that have happened; returns an error for each that was not declared."""
        with self._mutex:
            outside = self._outside(seen)
            self._record([one for one in seen if one not in outside], depth)
        return [self._violated(one, depth, blocked=False) for one in outside]

    def refused(self, error: ScopeViolationError, *, depth: Depth) -> None:
        """Take in that a call was stopped because nothing could follow it: that is a violation like any other.

        Args:
            error: what the agent is told.
            depth: by what it was stopped.
        """
        what = str(error.details.get("call", "what cannot be observed"))
        seen = Seen(Predicate.MUTATES, outside_resource(what), what, outside=what)
        told = Violation(
            seen, depth, ScopeViolationError(error.code, error.message, **{**error.details, "declared": []})
        )
        self._take_in(told)

    def end(self, error: ScopeViolationError) -> None:
        """End the session: nothing is let pass any more."""
        with self._mutex:
            self._ended_by = self._ended_by or error

    def outside(self, seen: Sequence[Seen]) -> list[Seen]:
        """Return what of this would be a violation; nothing is recorded."""
        with self._mutex:
            return self._outside(seen)

    def drain(self, *, final: bool = False) -> tuple[list[Observation], list[Violation]]:
        """Return what was seen since the last time this was asked, for the log.

        Args:
            final: also what was told before and was seen more often since.
        """
        with self._mutex:
            if final:
                self._new |= {key: one for key, one in self._seen.items() if one.count > one.told}
            new, self._new = list(self._new.values()), {}
            for one in new:
                one.told = one.count
            violations = self._violations[self._untold :]
            self._untold = len(self._violations)
            return [Observation(one.seen, one.depth, one.count) for one in new], violations

    def unused(self) -> list[Triple]:
        """Return what was declared and not made use of (KO-4)."""
        return self.declaration.unused([one.seen for one in self.observations])

    def _outside(self, seen: Sequence[Seen]) -> list[Seen]:
        found = self.declaration.outside(seen)
        return [one for one in found if not self._is_ones_own(one)]

    def _is_ones_own(self, seen: Seen) -> bool:
        """Tell whether a side effect is on something that the session made itself."""
        if seen.predicate not in _OF_ONES_OWN or not self._made:
            return False
        return seen.resource.key in self._made or not self._made.isdisjoint(seen.resource.ancestors)

    def _record(self, seen: Sequence[Seen], depth: Depth) -> None:
        # What was there before and only moved is not what the session made.
        is_moved = any(one.predicate is Predicate.RENAMES and not self._is_ones_own(one) for one in seen)
        for one in seen:
            key = (one, depth)
            known = self._seen.get(key)
            if known is None:
                known = self._seen[key] = self._new[key] = Observation(one, depth)
            else:
                known.count += 1
            if one.predicate is Predicate.PROVIDES and one.resource.type == "FILE" and not is_moved:
                self._made.add(one.resource.key)

    def _violated(self, seen: Seen, depth: Depth, *, blocked: bool) -> ScopeViolationError:
        error = violation(self.declaration, seen)
        self._take_in(Violation(seen, depth, error, blocked))
        return error

    def _take_in(self, told: Violation) -> None:
        """Remember a violation once, tell it once, and end a strict session with it."""
        with self._mutex:
            is_new = (told.seen, told.depth) not in self._known_violations
            if is_new:
                self._known_violations.add((told.seen, told.depth))
                self._violations.append(told)
            if self.is_strict:
                self._ended_by = self._ended_by or told.error
        if is_new:
            self._on_violation(told)


def _over(first: ScopeViolationError) -> ScopeViolationError:
    details = {**first.details, "session_ended": True}
    return ScopeViolationError(
        KLIS_SCOPE_VIOLATION, f"The session was ended by an earlier violation: {first.message}", **details
    )
