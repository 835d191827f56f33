"""Watch over one session: checks every side effect before it happens, and records the observed ones (KLIS-6).

Every source of observations (audit hooks, the watcher of child processes, a tracer, a comparison of contents, the
host's own effects) reports here, and all checks are made here. Thread-safe.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from world.errors import ScopeViolationError
from world.events.resource_values import ObservedEffect, ResourceClaim, UndeclaredEffect
from world.klis.observation import KLIS_SCOPE_VIOLATION, Declaration, Seen, outside_resource, violation
from world.klis.predicate import Predicate
from world.klis.triple import Triple

__all__ = ["Depth", "Observation", "Violation", "Watch"]

Depth = Literal["process", "child", "trace", "content", "effect"]
"""Source of an observation: in process, in a child, a tracer, a comparison of contents, or an effect of the host."""

_ON_OWN_FILES = frozenset({Predicate.DELETES, Predicate.RENAMES, Predicate.MUTATES, Predicate.CONSUMES})


@dataclass(slots=True)
class Observation:
    """A permitted side effect, observed ``count`` times; ``reported`` is the last reported count."""

    seen: Seen
    depth: Depth
    count: int = 1
    reported: int = 0

    def recorded(self) -> ObservedEffect:
        """Return it for an event."""
        seen = self.seen
        return ObservedEffect(
            predicate=seen.predicate.value, resource=seen.resource.text, depth=self.depth, count=self.count
        )


@dataclass(frozen=True, slots=True)
class Violation:
    """A side effect outside of the declaration.

    Args:
        seen: the side effect.
        depth: the source of the observation.
        error: the error that the agent received.
        blocked: whether it was stopped before it took effect.
    """

    seen: Seen
    depth: Depth
    error: ScopeViolationError = field(compare=False)
    blocked: bool = True

    def recorded(self) -> UndeclaredEffect:
        """Return it for an event."""
        return UndeclaredEffect(
            predicate=self.seen.predicate.value,
            resource=self.seen.resource.text,
            depth=self.depth,
            blocked=self.blocked,
            declared=tuple(ResourceClaim.from_wire(one) for one in self.error.details["declared"]),
            message=self.error.message,
            call=self.seen.call or None,
        )


class Watch:
    """Checks and records the side effects of one session."""

    def __init__(
        self,
        declaration: Declaration,
        *,
        strict: bool = True,
        on_violation: Callable[[Violation], None] = lambda _violation: None,
        amend: Callable[[Seen], bool] = lambda _seen: False,
    ) -> None:
        """Store the declaration.

        Args:
            declaration: the permitted operations.
            strict: the first violation ends the session; otherwise the scope may be amended.
            on_violation: called once per violation, in the thread that attempted it; ends running commands.
            amend: in permissive mode: requests a lease, and returns whether it was granted.
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
        self._unreported = 0
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
        """Every permitted side effect so far, each once, in order of first observation."""
        with self._mutex:
            return tuple(self._seen.values())

    def check(self, seen: Sequence[Seen], *, depth: Depth) -> None:
        """Check the side effects of one call before any of them happens; pass or stop them (KO-3).

        Raises:
            ScopeViolationError: one of them is not declared, or an earlier one ended the session.
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
        """Record side effects that have happened; return an error for each that was not declared."""
        with self._mutex:
            outside = self._outside(seen)
            self._record([one for one in seen if one not in outside], depth)
        return [self._violated(one, depth, blocked=False) for one in outside]

    def refused(self, error: ScopeViolationError, *, depth: Depth) -> None:
        """Record that an unobservable call was stopped, which is a violation like any other.

        Args:
            error: the error that the agent receives.
            depth: the source of the observation.
        """
        what = str(error.details.get("call", "what cannot be observed"))
        seen = Seen(Predicate.MUTATES, outside_resource(what), what, outside=what)
        violation_of_call = Violation(
            seen, depth, ScopeViolationError(error.code, error.message, **{**error.details, "declared": []})
        )
        self._take_in(violation_of_call)

    def end(self, error: ScopeViolationError) -> None:
        """End the session: no operation is permitted any more."""
        with self._mutex:
            self._ended_by = self._ended_by or error

    def outside(self, seen: Sequence[Seen]) -> list[Seen]:
        """Return the side effects that would be violations; nothing is recorded."""
        with self._mutex:
            return self._outside(seen)

    def drain(self, *, final: bool = False) -> tuple[list[Observation], list[Violation]]:
        """Return the observations and violations since the last call, for the log.

        Args:
            final: also include earlier observations whose count has grown.
        """
        with self._mutex:
            if final:
                self._new |= {key: one for key, one in self._seen.items() if one.count > one.reported}
            new, self._new = list(self._new.values()), {}
            for one in new:
                one.reported = one.count
            violations = self._violations[self._unreported :]
            self._unreported = len(self._violations)
            return [Observation(one.seen, one.depth, one.count) for one in new], violations

    def unused(self) -> list[Triple]:
        """Return the declared triples that were not used (KO-4)."""
        return self.declaration.unused([one.seen for one in self.observations])

    def _outside(self, seen: Sequence[Seen]) -> list[Seen]:
        undeclared = self.declaration.outside(seen)
        return [one for one in undeclared if not self._is_own(one)]

    def _is_own(self, seen: Seen) -> bool:
        """Whether a side effect concerns a file that the session created itself."""
        if seen.predicate not in _ON_OWN_FILES or not self._made:
            return False
        return seen.resource.key in self._made or not self._made.isdisjoint(seen.resource.ancestors)

    def _record(self, seen: Sequence[Seen], depth: Depth) -> None:
        # An existing file that was only moved was not created by the session.
        is_moved = any(one.predicate is Predicate.RENAMES and not self._is_own(one) for one in seen)
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

    def _take_in(self, new_violation: Violation) -> None:
        """Record a violation once, report it once, and end a strict session."""
        with self._mutex:
            is_new = (new_violation.seen, new_violation.depth) not in self._known_violations
            if is_new:
                self._known_violations.add((new_violation.seen, new_violation.depth))
                self._violations.append(new_violation)
            if self.is_strict:
                self._ended_by = self._ended_by or new_violation.error
        if is_new:
            self._on_violation(new_violation)


def _over(first: ScopeViolationError) -> ScopeViolationError:
    details = {**first.details, "session_ended": True}
    return ScopeViolationError(
        KLIS_SCOPE_VIOLATION, f"The session was ended by an earlier violation: {first.message}", **details
    )
