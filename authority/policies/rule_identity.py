"""Identity of rules: a hash of what a rule does, independent of layout and place.

The identity of a Python rule covers its normalised syntax tree, all code that it reaches in its own package and in the
packages of the functions that it captured, and the captured values (``world.code.identity``). Comments, docstrings,
formatting, lines, file names and the order of functions are not part of it. A rule in another language is identified by
its normalised source. Source: design section 6; CARD-policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType
from typing import Any, Final

from authority.policies.rules import PythonRule, Rule
from authority.policies.source_hash import RuleSource
from world.code.distributions import is_library
from world.code.identity import KIND, Identity, identity_of
from world.code.value_codec import Telling
from world.core import Domain
from world.model.canonical_json import digest

__all__ = ["SOURCE_KIND", "TEXT_KIND", "declared_identity", "rule_identity"]

SOURCE_KIND: Final = "source-1"
"""Prefix of the identity of a rule that is not Python code: a hash of its normalised source and its parameters."""

TEXT_KIND: Final = "text-1"
"""Prefix of the identity of a Python rule whose reached code cannot be analysed: a hash of its texts."""


def rule_identity(rule: Rule, source: RuleSource) -> Identity:
    """Return the identity of a rule.

    Args:
        rule: the rule.
        source: its source, which names the language.
    """
    declared = declared_identity(rule)
    if declared is not None:
        return Identity(declared, {})
    subject = rule.function if isinstance(rule, PythonRule) else rule
    captured = _Captured()
    values = captured.value("rule", subject)
    found = identity_of(subject, without=(Domain,), homes=frozenset(captured.homes), identified=declared_identity)
    if found is not None and found.text.startswith(f"{KIND}:"):
        return Identity(f"{KIND}:{digest([found.text, values])}", found.distributions)
    text = digest([source.source_hash, source.module_hash, source.parameters])
    return Identity(f"{TEXT_KIND}:{text}", {})


def declared_identity(rule: Any) -> str | None:
    """Return the identity of a rule that has a source of its own, such as one of a file; None for any other value."""
    source = getattr(rule, "source", None)
    if not isinstance(source, RuleSource):
        return None
    normalised: Mapping[str, Any] | None = getattr(rule, "normalised_source", None)
    content = {"source": source.source_hash, "parameters": source.parameters} if normalised is None else normalised
    return f"{SOURCE_KIND}:{digest({'language': source.language, **content})}"


class _Captured(Telling):
    """Encoder of all values that a rule captured, which notes the packages of the functions among them."""

    def __init__(self) -> None:
        super().__init__(self._code)
        self.homes: set[str] = set()

    def name_of(self, kind: type) -> str:
        """Return the name of a class without its module, which is a place."""
        return kind.__qualname__

    def _code(self, value: Any, _: Telling) -> Any:
        declared = declared_identity(value)
        if declared is not None:
            return declared
        home = getattr(value, "__module__", None) or type(value).__module__
        if not is_library(home):
            self.homes.add(home.partition(".")[0])
        return self.bound(value) if isinstance(value, FunctionType) else self.fields(value)
