"""Impure functions that code names: a static search, without running the code.

Names are resolved in the globals, closures and imports of each function, and attributes of modules and classes are
followed: ``time.time``, ``datetime.now``, ``open``, ``os.environ``. Functions outside of libraries that a function
names are searched, too. What is reached only through values, such as a method of a file object, is found when it runs
(``world.code.run_watch``). Source: design section 6; CARD-policy.
"""

from __future__ import annotations

import builtins
import dis
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

from world.code.distributions import is_library
from world.code.impurities import Impurity, impurity_of
from world.code.references import FILE_MODULE_PREFIX

MAX_FUNCTIONS: Final = 1_000
"""Maximum number of functions that are searched from one."""

_NOTHING: Final = object()
_LOADS: Final = frozenset({"LOAD_ATTR", "LOAD_METHOD"})


@dataclass(frozen=True, slots=True)
class Reference:
    """One impure function that code names.

    Args:
        impurity: the function.
        where: ``module:line`` or ``file.py:line``.
    """

    impurity: Impurity
    where: str


def impure_references(function: Any) -> list[Reference]:
    """Return the impure functions that a function, and those that it names, refer to; each place once.

    Args:
        function: a function or method; any other value has none.
    """
    found: dict[Reference, None] = {}
    pending, seen = [function], set[int]()
    while pending and len(seen) < MAX_FUNCTIONS:
        one = _plain(pending.pop())
        if one is None or id(one.__code__) in seen:
            continue
        seen.add(id(one.__code__))
        names = _names_of(one)
        for line, value in _values(one.__code__, names, one.__globals__):
            impurity = impurity_of(value)
            if impurity is not None:
                found[Reference(impurity, _place(one, line))] = None
            elif _is_own(value):
                pending.append(value)
    return list(found)


def _plain(value: Any) -> FunctionType | None:
    """Return the Python function of a value, None for any other value."""
    if isinstance(value, MethodType):
        value = value.__func__
    while isinstance(inner := getattr(value, "__wrapped__", None), FunctionType):
        value = inner
    return value if isinstance(value, FunctionType) else None


def _is_own(value: Any) -> bool:
    function = _plain(value)
    return function is not None and not is_library(function.__module__ or "")


def _names_of(function: FunctionType) -> dict[str, Any]:
    """Return the values of a function's closure by name."""
    names: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            names[name] = cell.cell_contents
        except ValueError:
            continue
    return names


def _values(code: CodeType, names: Mapping[str, Any], globals_: Mapping[str, Any]) -> Iterator[tuple[int, Any]]:
    """Yield the values that code names, with their lines; of ``a.b.c`` all three."""
    local = dict(names)
    value: Any = _NOTHING
    imported: Any = _NOTHING
    line = code.co_firstlineno
    for step in dis.get_instructions(code):
        line = step.positions.lineno if step.positions is not None and step.positions.lineno else line
        name = step.opname
        if name in ("LOAD_GLOBAL", "LOAD_NAME"):
            value = globals_.get(str(step.argval), getattr(builtins, str(step.argval), _NOTHING))
        elif name in ("LOAD_DEREF", "LOAD_FAST", "LOAD_CLASSDEREF"):
            value = local.get(str(step.argval), _NOTHING)
        elif name == "IMPORT_NAME":
            value = imported = _module(str(step.argval))
        elif name == "IMPORT_FROM":
            value = _member(imported, str(step.argval))
        elif name in ("STORE_FAST", "STORE_DEREF"):
            if value is not _NOTHING:
                local[str(step.argval)] = value
            value = _NOTHING
        elif name in _LOADS:
            value = _member(value, str(step.argval))
        elif name not in ("CACHE", "PUSH_NULL", "PRECALL", "COPY_FREE_VARS", "RESUME"):
            value = _NOTHING
            if isinstance(step.argval, CodeType):
                yield from _values(step.argval, local, globals_)
        if value is not _NOTHING:
            yield line, value


def _member(value: Any, name: str) -> Any:
    """Return a member of a module, a class or the shared generator; nothing for other values, which may compute it."""
    if isinstance(value, ModuleType):
        return vars(value).get(name, _NOTHING)
    if isinstance(value, type) and value.__module__ in sys.stdlib_module_names:
        return getattr(value, name, _NOTHING)
    return _NOTHING


def _module(name: str) -> Any:
    """Return an imported module; one of the standard library is imported for it."""
    if name.partition(".")[0] in sys.stdlib_module_names and name not in sys.modules:
        try:
            __import__(name)
        except ImportError:
            return _NOTHING
    return sys.modules.get(name, _NOTHING)


def _place(function: FunctionType, line: int) -> str:
    module = function.__module__ or "?"
    if module.startswith(FILE_MODULE_PREFIX):
        module = PurePath(function.__code__.co_filename).name
    return f"{module}:{line}"
