"""One call into a projection: watched, limited in time, and its faults as refusals (INT-9.2, INT-11; INV-P5).

Every call of a projection and of its ``accepts`` is made here, unless ``registry.UnsafeUnguarded`` makes it. The first
thing in it that a pure step does not do ends the call, and the refusal says what was reached and where.
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
"""Code of the refusal of a projection that did something impure; such a refusal is recorded."""

MUTATION: Final[Kind] = "mutation"
"""Changing what was given: the frozen values refuse it by themselves, so one run needs no guard against it."""


def guarded_call(
    projection_id: str, call: Callable[[], Any], time_limit: TimeLimit, *, but: frozenset[Kind] = frozenset()
) -> Any:
    """Return what a call into a projection returns, if nothing impure happened in it and it ended in time.

    Args:
        projection_id: whose call it is, for errors.
        call: the call.
        time_limit: how long it may take.
        but: kinds of impurity that are let be.

    Raises:
        RefusedError: ``PROJECTION_IMPURE`` with ``kind``, ``attempt`` and ``where``; ``PROJECTION_FAILED`` for whatever
            it raises; ``PROJECTION_TIMED_OUT``.
    """
    try:
        # Broken off is the projection alone: what stops watching it must run to its end.
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
    """Return the refusal of a projection that did something impure.

    Args:
        projection_id: the projection.
        found: what it reached.
        where: ``module:line`` or ``file.py:line``; empty where no line of the projection's own is known.
    """
    did = "changes" if found.kind == MUTATION else "uses"
    at = f" at {where}" if where else ""
    told = f"The projection {projection_id!r} {did} {found.what}{at}; {ADVICE[found.kind]}."
    return RefusedError(
        IMPURE,
        told.encode("utf-8", "backslashreplace").decode(),  # names of files need not be Unicode
        projection=projection_id,
        kind=found.kind,
        attempt=found.what,
        where=where,
    )


def _tried_to_change(error: BaseException) -> bool:
    if isinstance(error, ValidationError):
        return any(fault["type"] in ("frozen_instance", "frozen_field") for fault in error.errors())
    return isinstance(error, FrozenInstanceError)
