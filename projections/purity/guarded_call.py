"""One watched and time-limited call of a projection; its faults become refusals.

Every call of a projection and of its ``accepts`` is made here, except by ``registry.UnsafeUnguarded``. The first impure
operation ends the call, and the refusal names the operation and its place. Source: INT-9.2, INT-11; INV-P5.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any, Final

from pydantic import ValidationError

from projections.purity.run_watch import place_of, watched
from projections.purity.source_checks import ADVICE, Impurity, Kind
from projections.results import failed, timed_out
from world.code.time_limit import TimeLimit, TimeLimitError, breakable
from world.errors import RefusedError

__all__ = ["IMPURE", "MUTATION", "guarded_call", "impure"]

IMPURE: Final = "PROJECTION_IMPURE"
"""Error code of an impure projection; such a refusal is recorded."""

MUTATION: Final[Kind] = "mutation"
"""Changes of the input: frozen values raise by themselves, so a single run needs no guard against them."""


def guarded_call(
    projection_id: str, call: Callable[[], Any], time_limit: TimeLimit, *, but: frozenset[Kind] = frozenset()
) -> Any:
    """Return the result of a call into a projection, if it was pure and in time.

    Args:
        projection_id: the projection, for errors.
        call: the call.
        time_limit: limit of the call.
        but: kinds of impurity that are allowed.

    Raises:
        RefusedError: ``PROJECTION_IMPURE`` with ``kind``, ``attempt`` and ``where``; ``PROJECTION_FAILED`` for anything
            that it raises; ``PROJECTION_TIMED_OUT``.
    """
    try:
        # Only the projection is interrupted: the code that stops the watch must complete.
        answer, found = time_limit.run(lambda: watched(lambda: breakable(call), but=but), unbroken=True)
    except TimeLimitError as late:
        raise timed_out(projection_id, late) from None
    except (Exception, SystemExit) as error:
        if MUTATION in but or not _tried_to_change(error):
            raise failed(projection_id, error) from error
        answer, found = None, (Impurity(MUTATION, "a frozen value"), place_of(error.__traceback__))
    if found is not None:
        raise impure(projection_id, *found)
    return answer


def impure(projection_id: str, found: Impurity, where: str) -> RefusedError:
    """Return the refusal of an impure projection.

    Its message is recorded in the log and compared by rechecks; it must not change.

    Args:
        projection_id: the projection.
        found: the impure operation.
        where: ``module:line`` or ``file.py:line``; empty where no line of the projection is known.
    """
    did = "changes" if found.kind == MUTATION else "uses"
    at = f" at {where}" if where else ""
    message = f"The projection {projection_id!r} {did} {found.what}{at}; {ADVICE[found.kind]}."
    return RefusedError(
        IMPURE,
        message.encode("utf-8", "backslashreplace").decode(),  # file names need not be Unicode
        projection=projection_id,
        kind=found.kind,
        attempt=found.what,
        where=where,
    )


def _tried_to_change(error: BaseException) -> bool:
    if isinstance(error, ValidationError):
        return any(fault["type"] in ("frozen_instance", "frozen_field") for fault in error.errors())
    return isinstance(error, FrozenInstanceError) or (
        isinstance(error, AttributeError) and str(error).startswith("immutable type")  # of msgspec
    )
