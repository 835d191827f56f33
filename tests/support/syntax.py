"""The syntax trees of the project's modules, each parsed and walked once per test process."""

from __future__ import annotations

import ast
import gc
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

Node = TypeVar("Node", bound=ast.AST)
Made = TypeVar("Made")


@cache
def syntax_tree(path: Path) -> ast.Module:
    """Return the syntax tree of a module; callers share it and leave it as it is.

    The garbage collector does not visit it: the trees are kept to the end of the process, and have a million objects.
    """
    source = path.read_text(encoding="utf-8")
    return _uncollected(lambda: ast.parse(source))


def nodes(tree: ast.Module, kind: type[Node]) -> list[Node]:
    """Return the nodes of one type in a module, in the order of the source; callers share the list."""
    return _by_type(tree).get(kind, [])


@cache
def _by_type(tree: ast.Module) -> dict[type[ast.AST], list[Any]]:
    def gathered() -> dict[type[ast.AST], list[Any]]:
        found: dict[type[ast.AST], list[Any]] = defaultdict(list)
        waiting: list[ast.AST] = [tree]
        while waiting:
            node = waiting.pop()
            found[type(node)].append(node)
            waiting += reversed(list(children(node)))
        return dict(found)

    return _uncollected(gathered)


def children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes directly below a node, as ``ast.iter_child_nodes`` does in a multiple of the time."""
    for value in vars(node).values():
        if isinstance(value, ast.AST):
            yield value
        elif type(value) is list:
            for one in value:
                if isinstance(one, ast.AST):
                    yield one


def last_name(node: ast.expr) -> str:
    """Return the last name of a dotted expression, ``c`` of ``a.b.c``; empty for any other expression."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _uncollected(make: Callable[[], Made]) -> Made:
    enabled = gc.isenabled()
    gc.disable()
    try:
        return make()
    finally:
        gc.freeze()
        if enabled:
            gc.enable()
