"""Syntax trees of modules: bound names and names that code reads.

A normalised tree is the syntax tree without positions, comments, docstrings and ``pass``, as a text that is the same in
every version of Python, and is hashed. So the hash changes with the meaning of the code and not with its
layout. Nothing is executed here. Source: design section 6.
"""

from __future__ import annotations

import ast
import inspect
import symtable
import textwrap
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType, ModuleType
from typing import Final

from world.model.canonical_json import sha256_hex

__all__ = [
    "Import",
    "ModuleStatement",
    "ModuleTree",
    "chains",
    "free_names",
    "imports_in",
    "normalised",
    "root_of",
    "tree_of",
]

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IMPORTS: Final = (ast.Import, ast.ImportFrom)
MAX_NESTING: Final = 100
"""Maximum depth of a syntax tree, independent of Python's own limit."""

CACHED: Final = 16_384
"""Number of nodes whose names are cached, since functions of one domain share them."""

_AROUND: Final = "_worldprotocol_around"
_LEFT_OUT: Final = frozenset({"ctx", "kind", "type_comment", "lineno", "col_offset", "end_lineno", "end_col_offset"})


@dataclass(frozen=True, slots=True)
class Import:
    """One name that an import statement binds.

    Args:
        module: the module, as it is written.
        level: the number of leading dots.
        name: what is imported from the module; None for the module itself, ``*`` for all of its names.
    """

    module: str
    level: int
    name: str | None


@dataclass(frozen=True, slots=True)
class ModuleStatement:
    """A statement of a module, with the conditions it is under.

    Args:
        node: the statement, without the branches of an ``if`` or ``try`` around it.
        heads: tests of each ``if`` and types of each ``except`` around it.
    """

    node: ast.stmt
    heads: tuple[ast.expr, ...] = ()


@dataclass(slots=True)
class ModuleTree:
    """Names of a module's source.

    Args:
        bound: the statements that bind a name or change what it holds.
        imported: what import statements bind to a name.
        stars: the modules all of whose names are imported.
        nodes: functions and classes by their qualified names, lambdas included.
    """

    bound: defaultdict[str, list[ModuleStatement]] = field(default_factory=lambda: defaultdict(list))
    imported: defaultdict[str, list[Import]] = field(default_factory=lambda: defaultdict(list))
    stars: list[Import] = field(default_factory=list)
    nodes: defaultdict[str, list[Definition | ast.Lambda]] = field(default_factory=lambda: defaultdict(list))

    def names(self) -> list[str]:
        """Return every name that the module binds, sorted."""
        return sorted({*self.bound, *self.imported})

    def function(self, code: CodeType) -> list[Function]:
        """Return the functions that compiled code may come from; several on one line."""
        found = [node for node in self.nodes.get(code.co_qualname, ()) if not isinstance(node, ast.ClassDef)]
        on_line = [node for node in found if _first_line(node) == code.co_firstlineno]
        around: list[Function] = [node for node in on_line if isinstance(node, ast.Lambda) and _is_around(node, code)]
        return around or on_line or (found if len(found) == 1 else [])


def tree_of(module: ModuleType) -> ModuleTree | None:
    """Return the names of a module's source; None without readable source."""
    try:
        return _parsed(inspect.getsource(module))
    except (OSError, TypeError, SyntaxError, ValueError, RecursionError):
        return None


@lru_cache(maxsize=256)
def _parsed(text: str) -> ModuleTree:
    found, module = ModuleTree(), ast.parse(text)
    _index(found, module)
    flat = list(_flat(module.body, ()))
    for statement in flat:
        if isinstance(statement.node, _IMPORTS):
            for name, rendered in _imports(statement.node):
                if rendered.name == "*":
                    found.stars.append(rendered)
                else:
                    found.imported[name].append(rendered)
        else:
            for name in _binds(statement.node):
                found.bound[name].append(statement)
    for statement in flat:
        for name in _changes(statement.node):
            if name in found.bound and statement not in found.bound[name]:
                found.bound[name].append(statement)
    return found


def _index(found: ModuleTree, module: ast.Module) -> None:
    """Record functions and classes by the names of their code objects."""
    pending: list[tuple[ast.AST, str]] = [(module, "")]
    while pending:
        node, prefix = pending.pop()
        if isinstance(node, (*_DEFINITIONS, ast.Lambda)):
            name = prefix + ("<lambda>" if isinstance(node, ast.Lambda) else node.name)
            found.nodes[name].append(node)
            prefix = f"{name}." if isinstance(node, ast.ClassDef) else f"{name}.<locals>."
        pending += [(child, prefix) for child in reversed(list(ast.iter_child_nodes(node)))]


def _flat(body: Sequence[ast.stmt], heads: tuple[ast.expr, ...]) -> Iterator[ModuleStatement]:
    """Yield statements, branches of ``if`` and ``try`` included, except script code."""
    for node in body:
        if isinstance(node, ast.If):
            if "__name__" in {one.id for one in ast.walk(node.test) if isinstance(one, ast.Name)}:
                continue
            yield from _flat([*node.body, *node.orelse], (*heads, node.test))
        elif isinstance(node, ast.Try | ast.TryStar):
            yield from _flat([*node.body, *node.orelse, *node.finalbody], heads)
            for handler in node.handlers:
                yield from _flat(handler.body, heads if handler.type is None else (*heads, handler.type))
        else:
            yield ModuleStatement(node, heads)


def _binds(node: ast.stmt) -> set[str]:
    """Return the names that a statement of a module or its blocks bind."""
    if isinstance(node, _DEFINITIONS):
        return {node.name}
    names = {one.id for one in _own_scope(node) if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)}
    names |= {one.name for one in _own_scope(node) if isinstance(one, _DEFINITIONS)}
    for one in _own_scope(node):
        names |= {name for name, _ in _imports(one)} if isinstance(one, _IMPORTS) else set()
        names |= {one.name} if isinstance(one, ast.MatchAs | ast.MatchStar) and one.name else set()
    return names


def _changes(node: ast.stmt) -> set[str]:
    """Return the names whose value a statement may change."""
    if isinstance(node, _DEFINITIONS):
        return {root for one in node.decorator_list if (root := _method_root(one))}
    found = set()
    for one in _own_scope(node):
        if isinstance(one, ast.Attribute | ast.Subscript) and not isinstance(one.ctx, ast.Load):
            found.add(root_of(one))
    if isinstance(node, ast.Expr | ast.For | ast.While | ast.With):
        for one in _own_scope(node):
            if isinstance(one, ast.Call):
                given = [*one.args, *(word.value for word in one.keywords)]
                found |= {_method_root(one), *(part.id for part in given if isinstance(part, ast.Name))}
    return {name for name in found if name}


def _method_root(node: ast.expr) -> str:
    """Return the name whose method an expression uses, else empty."""
    inner = node.func if isinstance(node, ast.Call) else node
    return "" if isinstance(inner, ast.Name) else root_of(inner)


def root_of(node: ast.AST) -> str:
    """Return the first name of a chain of attributes, indices and calls, else empty."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _own_scope(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and its descendants outside of functions and classes."""
    pending = [node]
    while pending:
        one = pending.pop()
        yield one
        if not isinstance(one, (*_DEFINITIONS, ast.Lambda)):
            pending += ast.iter_child_nodes(one)


def _imports(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Import]]:
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            yield alias.asname or alias.name, Import(node.module or "", node.level, alias.name)
        elif alias.asname:
            yield alias.asname, Import(alias.name, 0, None)
        else:
            top = alias.name.partition(".")[0]
            yield top, Import(top, 0, None)


@lru_cache(maxsize=CACHED)
def imports_in(node: ast.AST) -> dict[str, Import]:
    """Return the names that imports within functions and classes of a node bind."""
    return {name: rendered for one in ast.walk(node) if isinstance(one, _IMPORTS) for name, rendered in _imports(one)}


# Names


@lru_cache(maxsize=CACHED)
def free_names(node: ast.AST, cells: tuple[str, ...] = ()) -> set[str]:
    """Return the global names that a statement or a lambda reads.

    Args:
        node: a statement of a module, or a function in another one.
        cells: names of enclosing functions, which are not global.

    Returns:
        Names in its annotations that are written as texts are among them.

    Raises:
        RecursionError: for code that is nested too deeply.
    """
    _check_nesting(node)
    text = textwrap.indent(ast.unparse(node), " ")
    table = symtable.symtable(f"def {_AROUND}({', '.join(sorted(cells))}):\n{text}\n", "<code>", "exec")
    own = {node.name} if isinstance(node, _DEFINITIONS) else set()
    found = {name for inner in table.get_children() for name in _globals(inner)}
    if isinstance(node, ast.stmt) and not cells:  # a class body may read names of the enclosing function
        found |= {
            one.get_name() for inner in table.get_children() for one in inner.get_symbols() if one.is_referenced()
        }
        found |= {name for inner in table.get_children() for name in _free(inner)}
    return (found | _in_texts(node)) - own - set(cells)


def _globals(table: symtable.SymbolTable) -> Iterator[str]:
    is_class = table.get_type() == "class"
    for symbol in table.get_symbols():
        if symbol.is_global() or (is_class and symbol.is_referenced()):
            yield symbol.get_name()
    for child in table.get_children():
        yield from _globals(child)


def _free(table: symtable.SymbolTable) -> Iterator[str]:
    for child in table.get_children():
        yield from (symbol.get_name() for symbol in child.get_symbols() if symbol.is_free())
        yield from _free(child)


def _in_texts(node: ast.AST) -> set[str]:
    """Return the names in string annotations."""
    found: set[str] = set()
    for one in ast.walk(node):
        for annotation in (getattr(one, "annotation", None), getattr(one, "returns", None)):
            texts = ast.walk(annotation) if isinstance(annotation, ast.AST) else ()
            for text in texts:
                if isinstance(text, ast.Constant) and isinstance(text.value, str):
                    found |= _names_of(text.value)
    return found


def _names_of(text: str) -> set[str]:
    try:
        return {one.id for one in ast.walk(ast.parse(text.strip(), mode="eval")) if isinstance(one, ast.Name)}
    except (SyntaxError, ValueError):
        return set()


@lru_cache(maxsize=CACHED)
def chains(node: ast.AST) -> Mapping[str, set[tuple[str, ...]]]:
    """Return the chains of attributes that a node reads of each name."""
    found: defaultdict[str, set[tuple[str, ...]]] = defaultdict(set)
    pending: list[tuple[ast.AST, tuple[str, ...]]] = [(node, ())]
    while pending:
        one, above = pending.pop()
        if isinstance(one, ast.Attribute):
            pending.append((one.value, (one.attr, *above)))
            continue
        if isinstance(one, ast.Name):
            found[one.id].add(above)
        pending += [(child, ()) for child in ast.iter_child_nodes(one)]
    return dict(found)


# Text


def normalised(nodes: Iterable[ast.AST], without: tuple[str, ...] = ()) -> str:
    """Return the hash of each tree, one per line, independent of layout.

    Args:
        nodes: statements and expressions.
        without: names whose decorators are left out.
    """
    return "\n".join(_node_text(node, without) for node in nodes)


@lru_cache(maxsize=CACHED)
def _node_text(node: ast.AST, without: tuple[str, ...]) -> str:
    _check_nesting(node)
    return sha256_hex(_text(node, without).encode("utf-8", "surrogatepass"))


def _check_nesting(node: ast.AST) -> None:
    """Raise ``RecursionError`` for a tree that is too deep."""
    level, depth = [node], 0
    while level:
        level, depth = [child for one in level for child in ast.iter_child_nodes(one)], depth + 1
        if depth > MAX_NESTING:
            raise RecursionError(f"the code is nested more than {MAX_NESTING} levels deep")


def _text(value: object, without: Collection[str]) -> str:
    if isinstance(value, ast.Constant):
        return f"{type(value.value).__name__}:{value.value!r}"
    if isinstance(value, ast.AST):
        parts = ((name, getattr(value, name, None)) for name in value._fields if name not in _LEFT_OUT)
        rendered = ((name, _part(name, part, without)) for name, part in parts)
        return f"{type(value).__name__}({','.join(f'{name}={text}' for name, text in rendered if text)})"
    return f"{value!r}"


def _part(name: str, part: object, without: Collection[str]) -> str:
    """Return a field of a node, empty where this Python lacks it."""
    if isinstance(part, list):
        kept = [one for one in part if not _is_silent(one)]
        if name == "decorator_list":
            kept = [one for one in kept if root_of(one) not in without]
        return f"[{','.join(_text(one, without) for one in kept)}]" if kept else ""
    return "" if part is None or (name == "level" and part == 0) else _text(part, without)


def _is_silent(node: object) -> bool:
    """Return whether a statement has no effect: ``pass`` or a docstring."""
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    return isinstance(node, ast.Pass) or is_text


def _first_line(node: Function) -> int:
    decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
    return min([node.lineno, *(one.lineno for one in decorators)])


def _is_around(node: ast.Lambda, code: CodeType) -> bool:
    """Return whether compiled code comes from this lambda."""
    body = node.body
    begin, end = (body.lineno, body.col_offset), (body.end_lineno or 0, body.end_col_offset or 0)
    for line, _, column, _ in code.co_positions():
        if line is not None and column is not None and (line, column) != (code.co_firstlineno, 0):
            return begin <= (line, column) <= end
    return False
