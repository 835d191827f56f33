"""The JSON form of the result of an effect, in which a worker on another machine reports it."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.resource_values import ObservedEffect, SecretDigest, UndeclaredEffect
from world.model.record import Record
from world.model.snapshot import EffectAnswer
from world.state.ports import Performed

__all__ = ["EffectReport", "read_form"]

R = TypeVar("R", bound=Record)


class EffectReport(Record, frozen=True, kw_only=True):
    """The result of an effect; the members are those of ``world.state.ports.Performed``."""

    result: EffectAnswer
    retryable: bool = False
    observed: tuple[ObservedEffect, ...] = ()
    violations: tuple[UndeclaredEffect, ...] = ()
    secrets: tuple[SecretDigest, ...] = ()

    @classmethod
    def of(cls, performed: Performed) -> EffectReport:
        """Return the report of a result."""
        return cls(
            result=performed.result,
            retryable=performed.retryable,
            observed=performed.observed,
            violations=performed.violations,
            secrets=performed.secrets,
        )

    @property
    def performed(self) -> Performed:
        """The result."""
        return Performed(self.result, self.retryable, self.observed, self.violations, self.secrets)


def read_form(kind: type[R], wire: Any) -> R:
    """Return a claim or a report from its JSON form, which comes from another machine.

    Args:
        kind: ``EffectClaim`` or ``EffectReport``.
        wire: JSON.

    Raises:
        RefusedError: ``INVALID_VALUE``, ``NOT_CANONICAL``.
    """
    try:
        return kind.from_wire(wire)
    except (msgspec.ValidationError, ValueError, TypeError, RecursionError) as error:
        raise RefusedError(ErrorCode.INVALID_VALUE, f"This is no {kind.__name__}: {str(error)[:500]}.") from None
