"""Tables of cases that one test runs, where each case is a call of pure functions.

pytest makes an item of each case of ``pytest.mark.parametrize``, in each of its processes, and reports on each: a few
milliseconds for a case that takes microseconds. ``for_each`` takes the same arguments and makes one item of all cases.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest
from _pytest.mark import ParameterSet

Test = Callable[..., None]
Names = Iterable[str] | Callable[[Any], object] | None


def for_each(parameters: str | Sequence[str], cases: Iterable[Any], *, ids: Names = None) -> Callable[[Test], Test]:
    """Run a test with every case, and report each case that fails.

    A test of which one case may change what the next one sees, such as its folder, has ``pytest.mark.parametrize``.

    Args:
        parameters: the name of the parameter that a case gives, or the names where there are several.
        cases: the value of the parameter, or the values where there are several.
        ids: the name of each case, or a function that returns the name of a value; by default its text.

    Raises:
        ValueError: There are no cases, or one has marks.
    """
    given = parameters.split(",") if isinstance(parameters, str) else parameters
    names = [name.strip() for name in given]
    table = [ParameterSet.extract_from(case, force_tuple=len(names) == 1) for case in cases]
    if not table:
        raise ValueError("A table without cases tests nothing.")
    if any(case.marks for case in table):
        raise ValueError("A case of a table has no marks of its own; use pytest.mark.parametrize.")
    told = list(_names(table, ids))

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def every(**fixtures: Any) -> None:
            failures: list[Exception] = []
            for name, case in zip(told, table, strict=True):
                try:
                    test(**dict(zip(names, case.values, strict=True)), **fixtures)
                except Exception as failure:  # noqa: BLE001  # the test reports it
                    failures.append(failure)
                except pytest.fail.Exception as failure:  # which is no Exception, so no group may hold it
                    failures.append(AssertionError(failure.msg).with_traceback(failure.__traceback__))
                else:
                    continue
                failures[-1].add_note(f"The case: {name}")
            if failures:
                raise ExceptionGroup(f"{len(failures)} of {len(table)} cases failed", failures)

        signature = inspect.signature(test)
        others = [one for name, one in signature.parameters.items() if name not in names]
        every.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return every

    return decorate


def _names(table: list[ParameterSet], ids: Names) -> Iterator[str]:
    if ids is None or callable(ids):
        name_of = ids or str
        yield from (str(case.id or "-".join(str(name_of(value)) for value in case.values)) for case in table)
    else:
        yield from (str(case.id or name) for case, name in zip(table, ids, strict=True))
