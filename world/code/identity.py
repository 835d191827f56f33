"""Identity of Python code: a hash of all code that a function reaches.

Covered are the functions, classes, constants and imports that the function reaches by name, in all modules of its own
package, as normalised syntax trees (``world.code.syntax_trees``), and the values that it and the functions it holds
captured: closures, defaults and fields (``world.code.value_codec``). Layout, comments, docstrings, and names
and places of files are not part of it. Other distributions are not covered; they are named with their versions.

Own code is the package or the distribution of the function, and every other module with source that is
not installed. References that no syntax tree shows are not covered: names made at run time (``getattr``, ``globals()``,
``eval``), and values that other modules assign from outside. A container at module level also represents the functions
in it, since functions register themselves there. Source: design section 6.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import importlib.util
import inspect
import platform
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from types import FunctionType, ModuleType
from typing import Any, Final

from pydantic import BaseModel

from world.code.distributions import ENGINE, INSTALLED, is_installed, is_library, owners_of, version_of
from world.code.syntax_trees import Import, ModuleTree, chains, free_names, imports_in, normalised, tree_of
from world.code.value_codec import Telling, code_held, code_in, qualified
from world.errors import RefusedError
from world.model.canonical_json import digest, sha256_hex

__all__ = ["KIND", "Identity", "changed_names", "identity_of", "is_first_kind", "own_source_hash"]

KIND: Final = "tree-1"
"""Prefix of an identity that covers all reached code; one without a kind is a hash of the own source."""

MAX_IMPORTS: Final = 10
"""Maximum number of repetitions after an identity imported a module."""

_MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a function's code.

    Args:
        text: the kind, a colon, and SHA-256 in hex of all covered code.
        distributions: versions by name of reached code that is not covered, ``Python`` for its standard library.
    """

    text: str
    distributions: Mapping[str, str]


def identity_of(
    function: Callable[..., Any],
    *,
    models: tuple[type, ...] = (),
    without: tuple[type, ...] = (),
    homes: frozenset[str] | None = None,
    identified: Callable[[Any], str | None] | None = None,
) -> Identity | None:
    """Return the identity of a function's code; None without source.

    Where the reached code cannot be analysed, it has the first kind: the hash of its own source.

    Args:
        function: a function, a method, or a callable object.
        models: classes that belong to it, such as the model of its input.
        without: types whose instances are excluded, since they have an identity of their own: a domain.
        homes: top-level names of the packages whose code is covered; None is the package of the function.
        identified: returns the identity of a captured value that has one of its own, None for any other value.
    """
    try:
        found = _all_reached(function, models, _Coverage(without, homes, identified))
    except Exception:  # noqa: BLE001 - code that is nested too deeply, for instance; it must not keep a realm from opening
        found = None
    own = own_source_hash(function) if found is None else None
    return found if own is None else Identity(own, {})


@dataclass(frozen=True, slots=True)
class _Coverage:
    without: tuple[type, ...]
    homes: frozenset[str] | None
    identified: Callable[[Any], str | None] | None


def _all_reached(function: Callable[..., Any], models: tuple[type, ...], scope: _Coverage) -> Identity | None:
    written = _written(function)
    if written is None:
        return None
    home = getattr(inspect.unwrap(written), "__globals__", {}).get("__name__", "")
    if not _Walk(home, scope).has_source(written):
        return None
    for _ in range(MAX_IMPORTS):  # a new import may bind names that were resolved before
        walk = _Walk(home, scope)
        found = walk.identity(function, models)
        if not walk.has_imported:
            break
    return found


def own_source_hash(function: Callable[..., Any]) -> str | None:
    """Return the SHA-256 of the function's own source, None without source."""
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        return None
    return sha256_hex(textwrap.dedent(source).encode("utf-8", "surrogatepass"))


def _written(subject: Any) -> FunctionType | None:
    """Return the Python function of a callable, None without one."""
    if isinstance(subject, functools.partial):
        return _written(subject.func)
    inner = getattr(subject, "__func__", subject)
    if isinstance(inner, FunctionType):
        return inner
    wrapped = getattr(subject, "__wrapped__", None)
    called = wrapped if isinstance(wrapped, FunctionType) else getattr(type(subject), "__call__", None)  # noqa: B004
    return called if isinstance(called, FunctionType) else None


class _Walk:
    """Traversal from a function to all code that it reaches.

    Each piece of code has a label, the hash of its tree and of the values that it holds, and edges, the labels of the
    names that it reads. The identity is the hash of all of them, in an order that is independent of the traversal.

    Args:
        home: the name of the function's module.
        scope: what the identity covers.
    """

    def __init__(self, home: str, scope: _Coverage) -> None:
        self._tops = frozenset({home.partition(".")[0]}) if scope.homes is None else scope.homes
        self._without = scope.without
        self._identified = scope.identified
        self._distributions: dict[str, str] = {"Python": platform.python_version()}
        self._found: dict[Any, str] = {}
        self._pending: list[tuple[str, Callable[[], dict[str, Any]]]] = []
        self._held: list[Any] = []
        self._trees: dict[str, ModuleTree | None] = {}
        self._names_without: dict[str, tuple[str, ...]] = {}
        self.has_imported = False
        self.failed: Exception | None = None
        self._telling = _Values(self)

    def identity(self, function: Any, models: tuple[type, ...]) -> Identity:
        """Return the identity of a function and its models."""
        root = [self._telling.value("function", function), [self.class_label(model) for model in models]]
        entries = []
        while self._pending:
            label, edges_of = self._pending.pop()
            entries.append(digest([label, edges_of()]))
        if self.failed is not None:
            raise self.failed
        text = f"{KIND}:{digest([root, sorted(set(entries))])}"
        return Identity(text, dict(sorted(self._distributions.items())))

    def has_source(self, function: FunctionType) -> bool:
        """Return whether the source of a function is available."""
        tree = self._tree(function)
        return tree is not None and bool(tree.function(function.__code__))

    # Functions and classes

    def function_label(self, function: FunctionType, telling: Telling) -> str:
        """Return the label of a function: its tree and its captured values."""
        module = sys.modules.get(function.__globals__.get("__name__", ""))
        if module is None or not self._is_own(module):
            inside = [telling.value("__closure__", one) for one in code_held(function)]
            outside = self._outside(module, function.__qualname__)
            return digest([outside, inside]) if inside else outside
        tree = self._tree(function)
        nodes = [] if tree is None else tree.function(function.__code__)
        if tree is None or not nodes:
            return f"without source: {own_source_hash(function) or function.__qualname__}"
        held = telling.bound(function)
        label = digest([normalised(nodes, self._left_out(module)), held])
        cells = function.__code__.co_freevars
        return self._take((id(function),), label, lambda: self._edges(module, tree, nodes, cells), keep=function)

    def class_label(self, kind: type) -> str:
        """Return the label of a class."""
        module = sys.modules.get(kind.__module__ or "")
        if module is None or not self._is_own(module):
            return self._outside(module, kind.__qualname__)
        tree = self._tree_of(module)
        nodes = [] if tree is None else tree.nodes.get(kind.__qualname__, [])
        if tree is None or not nodes:
            return f"without source: {kind.__qualname__}"

        def edges() -> dict[str, Any]:
            bases = {f"base {at}": self.class_label(base) for at, base in enumerate(kind.__bases__)}
            return self._edges(module, tree, nodes) | bases

        return self._take((kind,), digest(normalised(nodes, self._left_out(module))), edges)

    def _tree_of(self, module: ModuleType) -> ModuleTree | None:
        if module.__name__ not in self._trees:
            self._trees[module.__name__] = tree_of(module)
        return self._trees[module.__name__]

    def _tree(self, function: FunctionType) -> ModuleTree | None:
        module = sys.modules.get(function.__globals__.get("__name__", ""))
        return None if module is None else self._tree_of(module)

    # Names of modules

    def module_label(self, module: ModuleType) -> str:
        """Return the label of a whole module with all its names."""
        if not self._is_own(module):
            return self._outside(module)
        names = [] if (tree := self._tree_of(module)) is None else tree.names()
        return self._take(
            (module.__name__, "*"), "module", lambda: {name: self._name_label(module, name) for name in names}
        )

    def _edges(self, module: ModuleType, tree: ModuleTree, nodes: Any, cells: tuple[str, ...] = ()) -> dict[str, Any]:
        """Return the labels of the names that nodes of a module read."""
        edges: dict[str, Any] = {}
        for node in nodes:
            local, read = imports_in(node), chains(node)
            for name in sorted(free_names(node, cells) - local.keys()):
                found = [self._reached(module, tree, name, chain) for chain in sorted(read.get(name, {()}))]
                edges.setdefault(name, set()).update(one for one in found if one)
            for name, rendered in local.items():
                found = [self._imported(module, rendered, chain) for chain in sorted(read.get(name, {()}))]
                edges.setdefault(f"import {name}", set()).update(found)
        return {name: sorted(labels) for name, labels in edges.items() if labels}

    def _reached(self, module: ModuleType, tree: ModuleTree, name: str, chain: tuple[str, ...]) -> str:
        """Return the label of a module's name and its attributes; empty for a builtin."""
        known = module.__dict__.get(name, _MISSING)
        if isinstance(known, ModuleType):
            return self._along(known, chain)
        if name not in tree.bound and name not in tree.imported and known is _MISSING:
            return "" if hasattr(builtins, name) else "unknown"
        return self._name_label(module, name)

    def _along(self, module: ModuleType, chain: tuple[str, ...]) -> str:
        """Return the label of a chain of attributes of a module."""
        for at, name in enumerate(chain):
            if not self._is_own(module):
                return self._outside(module, ".".join(chain[at:]))
            known = self._attribute(module, name)
            if not isinstance(known, ModuleType):
                return self._name_label(module, name)
            module = known
        return self.module_label(module)

    def _name_label(self, module: ModuleType, name: str) -> str:
        """Return the label of a name at module level, resolved through imports."""
        if not self._is_own(module):
            return self._outside(module, name)
        known = module.__dict__.get(name, _MISSING)
        if isinstance(known, self._without):
            return "without"
        if isinstance(known, ModuleType):
            return self.module_label(known)
        tree = self._tree_of(module)
        if tree is None:
            return f"without source: {name}"
        statements = tree.bound.get(name, [])
        if not statements:
            return self._not_bound(module, tree, name, known)
        nodes = [part for one in statements for part in (one.node, *one.heads)]
        label = digest(normalised(nodes, self._left_out(module)))
        return self._take((module.__name__, name), label, lambda: self._bound_edges(module, tree, name, nodes, known))

    def _bound_edges(self, module: ModuleType, tree: ModuleTree, name: str, nodes: Any, known: Any) -> dict[str, Any]:
        others = {
            f"import {at}": self._imported(module, rendered) for at, rendered in enumerate(tree.imported.get(name, ()))
        }
        inside = sorted({self._telling.value("in it", one) for one in code_in(known)})
        return self._edges(module, tree, nodes) | others | ({"holds": inside} if inside else {})

    def _not_bound(self, module: ModuleType, tree: ModuleTree, name: str, known: Any) -> str:
        """Return the label of a name without a definition in the source."""
        found = {self._imported(module, rendered) for rendered in tree.imported.get(name, ())}
        if not found:
            found = {
                self._name_label(other, name)
                for rendered in tree.stars
                if (other := self._module(module, rendered)) is not None and name in other.__dict__
            }
        if not found and known is not _MISSING:
            return digest(self._telling.value(name, known))
        return found.pop() if len(found) == 1 else digest(sorted(found))

    def _imported(self, module: ModuleType, rendered: Import, chain: tuple[str, ...] = ()) -> str:
        other = self._module(module, rendered)
        if other is None:
            return self._outside_named(rendered.module, rendered.name or "")
        if rendered.name is None:
            return self._along(other, chain)
        inner = self._attribute(other, rendered.name)
        return self._along(inner, chain) if isinstance(inner, ModuleType) else self._name_label(other, rendered.name)

    def _attribute(self, module: ModuleType, name: str) -> Any:
        """Return an attribute of a module, or a submodule of a package."""
        known = module.__dict__.get(name, _MISSING)
        if known is not _MISSING or not hasattr(module, "__path__") or not self._is_own(module):
            return known
        return self._module(module, Import(f"{module.__name__}.{name}", 0, None)) or _MISSING

    def _module(self, module: ModuleType, rendered: Import) -> ModuleType | None:
        """Return the module of an import statement; None for a foreign unimported one.

        An own module that only functions or types import is imported here: an identity must not depend on
        earlier imports.
        """
        name = rendered.module
        if rendered.level:
            above = (getattr(module, "__package__", None) or module.__name__).split(".")
            name = ".".join([*above[: len(above) - rendered.level + 1], *filter(None, [rendered.module])])
        known = sys.modules.get(name)
        if known is not None or is_library(name):
            return known
        try:
            spec = importlib.util.find_spec(name)
            origin = "" if spec is None else spec.origin or ""
            is_installed = not INSTALLED.isdisjoint(PurePath(origin).parts)
            if not origin or (is_installed and name.partition(".")[0] not in self._tops):
                return None
            found = importlib.import_module(name)
        except Exception:  # noqa: BLE001 - a module may raise anything; the function could not import it either
            return None
        self.has_imported = True
        return found

    # Own and foreign code

    def _is_own(self, module: ModuleType) -> bool:
        top = module.__name__.partition(".")[0]
        if top in self._tops:
            return True
        if is_library(top) or not getattr(module, "__file__", None):
            return False
        if not is_installed(module):
            return True
        owners = owners_of(tuple(sys.path))
        return not {*owners.get(top, ())}.isdisjoint(name for own in self._tops for name in owners.get(own, ()))

    def _outside(self, module: ModuleType | None, name: str = "") -> str:
        """Return the name of foreign code and record its distribution's version."""
        if module is None:
            return f"outside: {name}"
        return self._outside_named(module.__name__, name)

    def _outside_named(self, module: str, name: str) -> str:
        top = module.partition(".")[0]
        if top in ENGINE:
            self._distributions["world-protocol"] = version_of("world-protocol")
        elif top and top not in sys.stdlib_module_names:
            owners = owners_of(tuple(sys.path)).get(top, ())
            self._distributions |= {owner: version_of(owner) for owner in owners} or {top: "unknown"}
        return f"outside: {module}.{name}".rstrip(".")

    def _left_out(self, module: ModuleType) -> tuple[str, ...]:
        """Return the names of excluded values; decorators of them are not covered."""
        if module.__name__ not in self._names_without:
            names = (name for name, value in list(module.__dict__.items()) if isinstance(value, self._without))
            self._names_without[module.__name__] = tuple(sorted(names))
        return self._names_without[module.__name__]

    def _take(self, key: Any, label: str, edges_of: Callable[[], dict[str, Any]], *, keep: Any = None) -> str:
        """Record a piece of code once with its edges; return its label."""
        known = self._found.get(key)
        if known is not None:
            return known
        self._held.append(keep)  # keeps its id unique, which is a key
        self._found[key] = label
        self._pending.append((label, edges_of))
        return label


class _Values(Telling):
    """Encoder of captured values; a value without JSON form is its type alone."""

    def __init__(self, walk: _Walk) -> None:
        super().__init__(self._code)
        self._walk = walk

    def value(self, name: str, value: Any) -> Any:
        """Return a value as JSON."""
        try:
            return super().value(name, value)
        except RefusedError:
            return {"type": self.type_of(value)}

    def name_of(self, kind: type) -> str:
        """Return the label of a class."""
        return self._walk.class_label(kind) if kind.__module__ != "builtins" else qualified(kind)

    def _code(self, value: Any, _: Telling) -> Any:
        if isinstance(value, FunctionType):
            try:
                return self._walk.function_label(value, self)
            except Exception as error:
                self._walk.failed = error  # a value may be left out, but code must not be
                raise
        fields = {
            name: rendered for name, rendered in self.fields(value).items() if name not in functools.WRAPPER_ASSIGNMENTS
        }
        return {"type": self.type_of(value), "fields": fields}

    def _compound(self, value: Any) -> Any:
        if isinstance(value, self._walk._without):
            return "without"
        if self._walk._identified is not None and (own := self._walk._identified(value)) is not None:
            return {"identity": own}
        return self._walk.module_label(value) if isinstance(value, ModuleType) else super()._compound(value)

    def _object(self, value: Any) -> dict[str, Any]:
        is_data = isinstance(value, BaseModel) or hasattr(type(value), "__dataclass_fields__")
        module = sys.modules.get(type(value).__module__)
        if is_data or (module is not None and self._walk._is_own(module)):
            return super()._object(value)
        return {"type": self.type_of(value)}


def changed_names(
    recorded: Mapping[str, str | None], at_hand: Mapping[str, str | None], own: Mapping[str, str | None]
) -> tuple[str, ...]:
    """Return the sorted names of functions whose code differs from the record.

    Args:
        recorded: identities by name, each compared by the rule of its own kind.
        at_hand: the current identities.
        own: the current identities of the first kind.
    """
    both = recorded.keys() & at_hand.keys()
    changed = [name for name in both if recorded[name] != (own if is_first_kind(recorded[name]) else at_hand)[name]]
    return tuple(sorted([*(recorded.keys() ^ at_hand.keys()), *changed]))


def is_first_kind(identity: str | None) -> bool:
    """Return whether an identity is the hash of the function's own source, or that there is no source."""
    return identity is None or ":" not in identity
