"""Sources of rules and hashes of everything that defines their behaviour.

For Python these are the distribution with its version, the text of the rule, the text of its module (helpers and
constants), and the captured values: closure variables, default arguments, the fields of a rule object and of the
objects in it. Rules made by ``at_most(5)`` and ``at_most(9)`` have equal texts but different sources. Source: design
section 6.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any, ClassVar, Final

import msgspec

from world.code.distributions import distribution_of
from world.code.value_codec import Telling, module_name
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.canonical_json import canonical_bytes, digest
from world.model.immutable_json import FrozenDict
from world.model.record import Record

MAX_PARAMETERS: Final = 16_384
"""Maximum size of a rule's parameters as JSON in bytes; of larger ones only the hash is kept."""


class RuleSource(Record, frozen=True, omit_defaults=True):
    """Place and content of a rule.

    Args:
        language: ``python``; ``python-bytecode`` where the text of the rule is not available, so that the hash
            is that of its compiled form.
        module: the module, or the name of the file.
        qualname: the name in the module.
        line: first line in its file, from 1; None where it has none.
        source_hash: SHA-256 of the rule's own text, in hex.
        module_hash: SHA-256 of the whole file's text; None where it is not available.
        distribution: name and version of the installed package; None without one.
        parameters: the captured values, as JSON; see ``world.code.value_codec``.
    """

    language: str
    module: str
    qualname: str
    line: int | None
    source_hash: str
    module_hash: str | None = None
    distribution: str | None = None
    parameters: FrozenDict = msgspec.field(default_factory=FrozenDict)
    WIRE: ClassVar = "language module qualname source_hash line? module_hash distribution parameters"

    @property
    def label(self) -> str:
        """The place as a text for people: ``acme-rules 1.2.0, acme.rules:14``."""
        place = self.module if self.line is None else f"{self.module}:{self.line}"
        return place if self.distribution is None else f"{self.distribution}, {place}"


def source_of(subject: Any) -> RuleSource:
    """Return the source of a rule: a function or a callable object.

    Args:
        subject: the rule; an attribute ``source`` that is a ``RuleSource`` is returned as it is.

    Raises:
        RefusedError: ``INVALID_RULE`` for an object without Python code and source, and for a captured value that
            cannot be encoded.
    """
    return _source_of(subject, Telling(lambda inner, telling: _source_of(inner, telling).to_wire()))


def _source_of(subject: Any, telling: Telling) -> RuleSource:
    own = getattr(subject, "source", None)
    if isinstance(own, RuleSource):
        return own
    kind = type(subject)
    call = getattr(kind, "__call__", None)  # noqa: B004 - the method itself is wanted, for its code
    inner = getattr(subject, "__wrapped__", None)
    is_own = isinstance(call, FunctionType) and "__wrapped__" in getattr(subject, "__dict__", ())
    if isinstance(inner, FunctionType) and not isinstance(subject, FunctionType) and not is_own:
        subject = inner  # an object with fields of its own is not only a wrapper
    if isinstance(subject, FunctionType):
        return _written_source(subject, subject.__code__, subject, telling.bound(subject))
    if not isinstance(call, FunctionType):
        raise RefusedError(
            ErrorCode.INVALID_RULE, f"A {kind.__name__} has no Python code; a rule is a function or an object."
        )
    return _written_source(kind, kind, call, telling.fields(subject))


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
        module=module_name(named.__module__ or "?", module),
        qualname=named.__qualname__,
        line=at,
        source_hash=source_hash,
        module_hash=None if module is None else _module_hash(module),
        distribution=None if module is None else distribution_of(module),
        parameters=_kept(parameters),
    )


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
