"""One watched and time-limited call of a projection; its faults become refusals.

Every call of a projection and of its ``accepts`` is made here, except by ``registry.UnsafeUnguarded``. The first impure
operation ends the call, and the refusal names the operation and its place. Source: INT-9.2, INT-11; INV-P5.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any, Final

from pydantic import ValidationError

from projections.results import failed, timed_out
from world.code.impurities import Impurity, Kind
from world.code.run_watch import place_of, watched
from world.code.time_limit import TimeLimit, TimeLimitError, breakable
from world.errors import RefusedError

__all__ = ["IMPURE", "MUTATION", "guarded_call", "impure"]

_CARRY: Final = "let the source event carry it in its payload, or the domain hold it in its data"

ADVICE: Final[dict[Kind, str]] = {
    "clock": f"a projection knows no time: {_CARRY}",
    "randomness": f"a projection takes no chances: {_CARRY}; ids are given by the issuer",
    "environment": f"a projection does not look at the process or the machine: {_CARRY}",
    "network": f"a projection asks nobody: {_CARRY}",
    "files": f"a projection touches no files: {_CARRY}",
    "processes": "a projection starts nothing: that is an effect, which an action of the domain asks for",
    "threads": "a projection answers by itself, in the thread that asked it",
    "output": "a projection writes nothing, not even a log: what it selects, and its reason, are recorded",
    "mutation": "what a projection is given is frozen: answer with a changed copy (world.model.immutable_json.thaw)",
    "interpreter": "a projection leaves the interpreter alone",
}
"""What to do instead, by kind. These sentences are recorded in logs and compared by rechecks; do not change them."""

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
