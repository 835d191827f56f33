"""Execution of one action: working state, effects and end.

An execution starts from its base snapshot. An effect with a result in the journal is answered from there; the first
one without a result stops the execution as pending (IC-effects, IC-reentry). So an execution is a pure
function of snapshot, intent, context and journal. One that stopped in a Python generator may be kept and
resumed (``world.core.flows.suspended_execution``).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from world.core.derive import recompute
from world.core.expressions.scope import EvaluationContext, Scope
from world.core.validate import Change, StateFault, check_patch, check_state, told_faults
from world.core.values import ExpressionError
from world.errors import RefusedError
from world.model.actor import ActorRef
from world.model.canonical_json import canonical_bytes
from world.model.identity import requirement_id
from world.model.immutable_json import FrozenDict, freeze
from world.model.patch import Patch, apply_patch
from world.model.snapshot import EffectAnswer, ErrorValue, Requirement, Snapshot

if TYPE_CHECKING:
    from world.core.availability import LocalPredicate
    from world.core.schema import DomainSchema

__all__ = [
    "MAX_EFFECTS",
    "MAX_FLOW_DEPTH",
    "MAX_PATCHES",
    "ComputeContext",
    "EffectAnswer",
    "Execution",
    "Invocation",
    "Program",
    "StopError",
    "Suspended",
]

MAX_EFFECTS: Final = 1_000
"""Maximum number of effects of one execution."""

MAX_PATCHES: Final = 100_000
"""Maximum number of patches of one execution."""

MAX_FLOW_DEPTH: Final = 64
"""Maximum depth of nested flow nodes, calls included."""


@dataclass(frozen=True, slots=True)
class ComputeContext:
    """External input of a computation, frozen per job and recorded (HC-context).

    Args:
        now: ms since 1970-01-01 UTC.
        random_seed: seed of ids and random numbers; the intentId by default.
    """

    now: int
    random_seed: str


@dataclass(frozen=True, slots=True)
class Invocation:
    """Intent of a computation, with its input and no state (IC-nostate).

    Args:
        type: the action's name.
        input: JSON; None is absent.
        intent_id: names the attempt; the same at every re-entry.
        actor: the actor of the intent's origin; only availability depends on it. None without one.
    """

    type: str
    input: Any
    intent_id: str
    actor: ActorRef | None = None


class Program(Protocol):
    """A schema with its functions."""

    @property
    def schema(self) -> DomainSchema:
        """The schema."""
        ...

    def run_action(self, execution: Execution) -> None:
        """Run the Python function of the execution's action."""
        ...

    def computed_function(self, name: str) -> Callable[[Mapping[str, Any]], Any]:
        """Return the Python function of a computed value."""
        ...

    def local_predicate(self, action: str) -> LocalPredicate | None:
        """Return the Python predicate of an action's availability, or None."""
        ...

    def state_faults(self, data: FrozenDict) -> list[StateFault]:
        """Return what the Python validators of the state's model refuse."""
        ...

    def state_of(self, data: FrozenDict) -> Any:
        """Return data as an instance of the state's model."""
        ...


class StopError(Exception):
    """Raised to end an execution before the end of its action."""

    def __init__(
        self,
        status: str,
        *,
        error: ErrorValue | None = None,
        requirement: Requirement | None = None,
    ) -> None:
        super().__init__(status)
        self.status = status
        self.error = error
        self.requirement = requirement


@dataclass(frozen=True, slots=True)
class Suspended:
    """A Python generator that waits for the result of an effect.

    Args:
        generator: the action.
        asked: the effect that it waits for.
        at: the action's place.
    """

    generator: Generator[Any, Any, Any]
    asked: Any
    at: str


class _LiveComputed(Mapping[str, Any]):
    """Lazy computed values of the working data."""

    __slots__ = ("_execution",)

    def __init__(self, execution: Execution) -> None:
        self._execution = execution

    def __getitem__(self, name: str) -> Any:
        return self._execution.computed[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._execution.computed)

    def __len__(self) -> int:
        return len(self._execution.computed)


class Execution:
    """The working state of one execution, driven by flows and Python actions."""

    __slots__ = (
        "_base", "_computed", "_computed_for", "_scope", "action_id", "answered", "asked", "asked_before", "change",
        "context", "data", "depth", "invocation", "journal", "keeps", "marks", "patches", "program", "schema",
        "suspended",
    )  # fmt: skip

    def __init__(
        self,
        program: Program,
        snapshot: Snapshot,
        invocation: Invocation,
        context: ComputeContext,
        journal: Mapping[str, EffectAnswer],
    ) -> None:
        """Create the state of a base snapshot; arguments as in ``compute``."""
        self.program = program
        self.schema = program.schema
        self.invocation = invocation
        self.action_id = invocation.type
        self.context = context
        self.journal = journal
        self.data = snapshot.data
        self.change = Change(snapshot.data)
        self._computed_for = snapshot.data
        self._computed = recompute(program, snapshot.data, snapshot.data, snapshot.computed)
        self.patches: list[Patch] = []
        self.answered: list[str] = []
        self.asked: list[tuple[tuple[str, str, bytes], str]] = []
        self.asked_before: list[tuple[tuple[str, str, bytes], str]] = []
        self.depth = 0
        self.marks: set[str] = set()  # ids of the once guards that were passed
        self.keeps = False
        self.suspended: Suspended | None = None
        self._base = snapshot
        self._scope: Scope | None = None

    @property
    def scope(self) -> Scope:
        """The scope of expressions, made for the first one; so an action without any leaves no reference cycle."""
        if self._scope is None:
            invocation, context = self.invocation, self.context
            self._scope = Scope(
                self.data,
                computed=_LiveComputed(self),
                input=invocation.input,
                system=_SystemOnDemand(self._base),
                meta=self._base.meta.to_wire(),
                context=EvaluationContext(invocation.intent_id, invocation.type, context.now, context.random_seed),
            )
        return self._scope

    @property
    def computed(self) -> FrozenDict:
        """The computed values of the working data."""
        if self._computed_for is not self.data:
            self._computed = recompute(self.program, self.data, self._computed_for, self._computed)
            self._computed_for = self.data
        return self._computed

    def apply(self, patch: Patch, at: str) -> None:
        """Check a patch and apply it to the working data.

        Args:
            patch: the change.
            at: the node that makes it.

        Raises:
            StopError: as an error where the state's spec or the data has no room for it.
        """
        fault = check_patch(self.schema, self.data, patch, self.change)
        if fault:
            self.fail(fault.code, fault.message, at, fault.context)
        if len(self.patches) >= MAX_PATCHES:
            self.fail("LIMIT_EXCEEDED", f"One execution makes more than {MAX_PATCHES} patches.", at)
        try:
            self.data = apply_patch(self.data, patch)
        except RefusedError as refused:
            self.fail(refused.code, refused.message, at)
        if self._scope is not None:
            self._scope.data = self.data
        self.patches.append(patch)

    def check_end(self) -> None:
        """Check the state that the action leaves: its model's schema, then the model's validators.

        Raises:
            StopError: with ``INVALID_STATE`` and the faults' paths.
        """
        if not self.patches:
            return
        faults = check_state(self.schema, self.data, self.change) or self.program.state_faults(self.data)
        if faults:
            shown = "; ".join(f"{fault.path or 'it'} {fault.message}" for fault in faults)
            self.fail("INVALID_STATE", f"The state does not fit its model: {shown}.", "", told_faults(faults))

    def effect(self, name: str, params: Any, at: str) -> EffectAnswer:
        """Return an effect's result from the journal.

        Args:
            name: the effect's type.
            params: its arguments, JSON.
            at: the node that makes it; node and arguments identify the effect (IC-reqid).

        Raises:
            StopError: as pending where the journal has no result; as an error past ``MAX_EFFECTS`` or for
                arguments that are no JSON.
        """
        try:
            frozen = freeze(params)
            key = self._key_of(name, frozen, at)
        except RefusedError as refused:
            self.fail("TYPE_MISMATCH", f"The arguments of {name} are no JSON. {refused.message}", at)
        if len(self.answered) >= MAX_EFFECTS:
            self.fail("LIMIT_EXCEEDED", f"One execution makes more than {MAX_EFFECTS} effects.", at)
        if key not in self.journal:
            raise StopError("pending", requirement=Requirement(key, name, frozen, self.action_id, at))
        self.answered.append(key)
        return self.journal[key]

    def _key_of(self, name: str, params: Any, at: str) -> str:
        """Return the id of the next effect, cached from the previous run."""
        number, asked = len(self.asked), (name, at, canonical_bytes(params))
        if number < len(self.asked_before) and self.asked_before[number][0] == asked:
            key = self.asked_before[number][1]
        else:
            key = requirement_id(self.schema.hash, self.invocation.intent_id, self.action_id, at, name, params)
        self.asked.append((asked, key))
        return key

    def evaluate(self, expression: Callable[[Scope], Any], at: str) -> Any:
        """Return the value of an expression; ends the execution on an error."""
        try:
            return expression(self.scope)
        except ExpressionError as error:
            self.fail(error.code, error.message, at)

    def fail(self, code: str, message: str, at: str, context: Mapping[str, Any] | None = None) -> NoReturn:
        """End the execution with an error value; always raises ``StopError``."""
        if not message.isascii():
            # A lone surrogate cannot be recorded.
            message = message.encode("utf-8", "replace").decode()
        raise StopError("error", error=ErrorValue.at(code, message, self.action_id, at, self.context.now, context))


class _SystemOnDemand(Mapping[str, Any]):
    """Lazy wire form of the system part of a snapshot."""

    __slots__ = ("_snapshot",)

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def __getitem__(self, name: str) -> Any:
        return freeze(self._snapshot.system.to_wire())[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._snapshot.system.to_wire())

    def __len__(self) -> int:
        return 5
