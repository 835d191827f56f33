"""Where a rule comes from, and hashes of all that makes it say what it says.

For Python that is the distribution with its version, the text of the rule, the text of its module (helpers
and constants), and the values it was made with: what a closure holds, default arguments, the fields of a rule
object. A rule made by ``at_most(5)`` and one made by ``at_most(9)`` have the same text and are different
rules. Source: design section 6.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import re
import sys
from collections.abc import Iterable, Mapping
from datetime import date, time, timedelta, tzinfo
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from importlib import metadata
from pathlib import PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final
from uuid import UUID

from pydantic import BaseModel

from world.canonical import canonical_bytes, digest
from world.errors import Refused
from world.frozen import FrozenDict, freeze
from world.references import FILE_MODULE_PREFIX

MAX_PARAMETERS: Final = 16_384
"""Bytes of a rule's parameters as JSON; of larger ones only the hash is kept."""

_FILE_MODULE: Final = FILE_MODULE_PREFIX
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
_MAX_DEPTH: Final = 8  # levels to which the values of a rule are described
_TOLD_BY_REPR: Final = (bytes, complex, date, time, timedelta, tzinfo, Decimal, Fraction, range, UUID)


@dataclasses.dataclass(frozen=True, slots=True)
class RuleSource:
    """Where a rule stands and what it is made of.

    Args:
        language: ``python``; ``python-bytecode`` where the text of the rule is not at hand, so that the hash
            is that of its compiled form.
        module: the module, or the name of the file.
        qualname: the name inside of it.
        line: first line in its file, from 1; None where it has none.
        source_hash: SHA-256 of the rule's own text, in hex.
        module_hash: SHA-256 of the whole file's text; None where it is not at hand.
        distribution: name and version of the installed package; None where it belongs to none.
        parameters: the values it was made with, as JSON; an object that is neither data nor code is named by
            its type only.
    """

    language: str
    module: str
    qualname: str
    line: int | None
    source_hash: str
    module_hash: str | None = None
    distribution: str | None = None
    parameters: FrozenDict = dataclasses.field(default_factory=FrozenDict)

    @property
    def label(self) -> str:
        """Where it stands, for people: ``acme-rules 1.2.0, acme.rules:14``."""
        place = self.module if self.line is None else f"{self.module}:{self.line}"
        return place if self.distribution is None else f"{self.distribution}, {place}"

    def to_wire(self) -> dict[str, Any]:
        """Return the source as JSON; absent parts are left out."""
        wire: dict[str, Any] = {
            "language": self.language,
            "module": self.module,
            "qualname": self.qualname,
            "sourceHash": self.source_hash,
        }
        optional = {
            "line": self.line,
            "moduleHash": self.module_hash,
            "distribution": self.distribution,
            "parameters": self.parameters or None,
        }
        return wire | {name: value for name, value in optional.items() if value is not None}


def source_of(subject: Any) -> RuleSource:
    """Return the source of a rule: a function, or an object whose class defines ``__call__``.

    Args:
        subject: the rule. One with an attribute ``source`` that is a ``RuleSource`` tells its own.

    Raises:
        Refused: ``INVALID_RULE`` for what has neither Python code nor a source of its own.
    """
    return _source_of(subject, 0)


def _source_of(subject: Any, depth: int) -> RuleSource:
    own = getattr(subject, "source", None)
    if isinstance(own, RuleSource):
        return own
    inner = getattr(subject, "__wrapped__", None)
    if isinstance(inner, FunctionType) and not isinstance(subject, FunctionType):
        subject = inner
    if isinstance(subject, FunctionType):
        return _written_source(subject, subject.__code__, subject, _bound_values(subject, depth))
    kind = type(subject)
    call = getattr(kind, "__call__", None)  # noqa: B004 - the method itself is wanted, for its code
    if not isinstance(call, FunctionType):
        raise Refused("INVALID_RULE", f"A {kind.__name__} has no Python code; a rule is a function or an object.")
    return _written_source(kind, kind, call, _fields(subject, depth))


def _written_source(
    named: Any, text_of: CodeType | type, code_of: FunctionType, parameters: Mapping[str, Any]
) -> RuleSource:
    module = sys.modules.get(named.__module__ or "")
    try:
        lines, line = inspect.getsourcelines(text_of)
    except (OSError, TypeError, SyntaxError):
        language, at, source_hash = "python-bytecode", None, _code_hash(code_of.__code__)
    else:
        language, at, source_hash = "python", max(line, 1), _text_hash("".join(lines))
    return RuleSource(
        language=language,
        module=_module_name(named.__module__ or "?", module),
        qualname=named.__qualname__,
        line=at,
        source_hash=source_hash,
        module_hash=None if module is None else _module_hash(module),
        distribution=None if module is None else _distribution(module),
        parameters=_kept(parameters),
    )


def _module_name(name: str, module: ModuleType | None) -> str:
    """Return a module's name; where it was made from the folder of a bare file, that file's."""
    path = getattr(module, "__file__", None)
    return PurePath(path).name if path and name.startswith(_FILE_MODULE) else name


def _kept(parameters: Mapping[str, Any]) -> FrozenDict:
    kept = FrozenDict(parameters)
    is_small = len(canonical_bytes(kept)) <= MAX_PARAMETERS
    return kept if is_small else FrozenDict({"digest": digest(kept)})


def _text_hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _code_hash(code: CodeType) -> str:
    hasher = hashlib.sha256()
    pending = [code]
    while pending:
        part = pending.pop()
        pending += [one for one in part.co_consts if isinstance(one, CodeType)]
        plain = [repr(one) for one in part.co_consts if not isinstance(one, (CodeType, frozenset))]
        sets = [sorted(map(repr, one)) for one in part.co_consts if isinstance(one, frozenset)]
        hasher.update(repr((part.co_code, plain, sets, part.co_names, part.co_varnames)).encode())
    return hasher.hexdigest()


def _module_hash(module: ModuleType) -> str | None:
    try:
        return _text_hash(inspect.getsource(module))
    except (OSError, TypeError):
        return None


def _distribution(module: ModuleType) -> str | None:
    """Return which installed package a module belongs to; asked only where packages are installed to."""
    if _INSTALLED.isdisjoint(PurePath(getattr(module, "__file__", None) or "").parts):
        return None
    owners = _owners(tuple(sys.path)).get(module.__name__.partition(".")[0], ())
    return ", ".join(sorted(map(_versioned, {name for name in owners if name}))) or None


@functools.lru_cache(maxsize=4)
def _owners(search_path: tuple[str, ...]) -> Mapping[str, list[str]]:
    """Return which installed packages own which top-level modules; looking takes tens of milliseconds."""
    return metadata.packages_distributions()


def _versioned(name: str) -> str:
    try:
        return f"{name} {metadata.version(name)}"
    except metadata.PackageNotFoundError:  # it was removed since
        return name


def _bound_values(function: FunctionType, depth: int) -> dict[str, Any]:
    """Return what a function was made with: closure and defaults, by name."""
    values = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=False))
    held = {name: _cell(cell, depth) for name, cell in values.items()}
    parameters = inspect.signature(function, follow_wrapped=False).parameters.values()
    defaults = {one.name: _value(one.default, depth) for one in parameters if one.default is not one.empty}
    return held | defaults


def _cell(cell: Any, depth: int) -> Any:
    try:
        return _value(cell.cell_contents, depth)
    except ValueError:  # a name that is not bound yet
        return None


def _fields(subject: Any, depth: int) -> dict[str, Any]:
    """Return the fields of a rule object, by name."""
    if dataclasses.is_dataclass(subject):
        names: Iterable[str] = [field.name for field in dataclasses.fields(subject)]
    else:
        slots = [name for kind in type(subject).__mro__ for name in _slots(kind)]
        names = [*slots, *getattr(subject, "__dict__", {})]
    return {name: _value(getattr(subject, name), depth) for name in names if hasattr(subject, name)}


def _slots(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _value(value: Any, depth: int) -> Any:
    """Return a value as JSON that is the same in every process; what cannot be told is named by its type."""
    if value is None or (isinstance(value, (bool, int, float, str)) and not isinstance(value, Enum)):
        try:
            return freeze(value)
        except Refused:
            return repr(value).encode("utf-8", "backslashreplace").decode()
    if depth >= _MAX_DEPTH:
        return _type_name(value)
    return _compound(value, depth + 1)


def _compound(value: Any, depth: int) -> Any:
    if isinstance(value, Mapping):
        pairs = [[_value(key, depth), _value(item, depth)] for key, item in value.items()]
        return sorted(pairs, key=canonical_bytes)
    if isinstance(value, (list, tuple)):
        return [_value(item, depth) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((_value(item, depth) for item in value), key=canonical_bytes)
    if isinstance(value, (Enum, PurePath)):
        return str(value)
    if isinstance(value, _TOLD_BY_REPR):
        return repr(value)
    if isinstance(value, re.Pattern):
        return {"pattern": _value(value.pattern, depth), "flags": int(value.flags)}
    if isinstance(value, ModuleType):
        return _module_name(value.__name__, value)
    if isinstance(value, (type, BuiltinFunctionType)):
        return _qualified(value)
    return _made_of_code(value, depth)


def _made_of_code(value: Any, depth: int) -> Any:
    if isinstance(value, functools.partial):
        made_with = {"of": value.func, "with": value.args, "and": value.keywords}
        return {name: _value(part, depth) for name, part in made_with.items()}
    if isinstance(value, MethodType):
        return {"of": _value(value.__func__, depth), "on": _value(value.__self__, depth)}
    if isinstance(value, FunctionType) or isinstance(getattr(type(value), "__call__", None), FunctionType):  # noqa: B004
        return _source_of(value, depth).to_wire()
    if isinstance(value, BaseModel):
        return {"type": _type_name(value), "fields": _value(dict(value), depth)}
    if dataclasses.is_dataclass(value):
        return {"type": _type_name(value), "fields": _fields(value, depth)}
    return _type_name(value)


def _type_name(value: Any) -> str:
    return _qualified(type(value))


def _qualified(named: type | BuiltinFunctionType) -> str:
    module = named.__module__ or ""
    return f"{_module_name(module, sys.modules.get(module))}.{named.__qualname__}"


def policy_hash(description: Mapping[str, Any]) -> str:
    """Return the hash of a policy's description (its ``hash`` left out), by which decisions name it."""
    return digest({name: part for name, part in description.items() if name != "hash"})
