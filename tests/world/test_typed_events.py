"""Events hold typed values: no field is a bare object where a type exists, and no module reads one by member names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
import pytest

from tests.support.syntax import children, nodes, syntax_tree
from world.events.codec import EVENT_TYPES
from world.model.record import Record

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("world", "projections", "authority", "host", "worldprotocol", "conformance")
INDEPENDENT = ("worldprotocol/simulation/",)
"""Code that reads the JSON of the log on purpose: a model that shares no code with the engine."""

OPEN_JSON = {
    ("domain.adopted", "schema"),
    ("actor.bound", "binding"),
    ("policy.adopted", "policy"),
    ("shadow.configured", "policy"),
    ("world.sealed", "data"),
    ("proposal.submitted", "trace"),
    ("proposal.judged", "binding"),
    ("klis.configured", "settings"),
    ("klis.configured", "types"),
    ("verdict.given", "manifest"),
    ("verdict.given", "channel"),
}
"""The members of events that are JSON of any form: of domains, policies, bindings and callers."""


def parts(kind: Any) -> Iterator[Any]:
    """Yield a type and the types that it consists of."""
    yield kind
    if get_origin(kind) in (list, tuple, Annotated, Union, UnionType):
        for inner in get_args(kind):
            yield from parts(inner)


def is_record(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Record)


TYPED = {
    field.name
    for kind in EVENT_TYPES
    for field in msgspec.structs.fields(kind)
    if any(map(is_record, parts(field.type)))
}
"""Names of the fields of events that hold typed values."""


SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Module)
"""The nodes that have local names of their own."""


def test_only_open_json_is_a_bare_object() -> None:
    bare = {
        (kind.TOPIC, field.name)
        for kind in EVENT_TYPES
        for field in msgspec.structs.fields(kind)
        for part in parts(field.type)
        if part is dict or get_args(part)[1:] == (Any,)
    }
    assert bare == OPEN_JSON


def test_the_values_of_events_are_immutable() -> None:
    found: set[Any] = set()
    waiting = [part for kind in EVENT_TYPES for field in msgspec.structs.fields(kind) for part in parts(field.type)]
    while waiting:
        kind = waiting.pop()
        if is_record(kind) and kind not in found:
            found.add(kind)
            waiting += [part for field in msgspec.structs.fields(kind) for part in parts(field.type)]
    assert len(found) > 20
    assert [kind.__name__ for kind in found if not kind.__struct_config__.frozen] == []


def indexed(module: ast.Module) -> list[tuple[int, str]]:
    """Return the lines of a module that read a typed value of an event by the name of a member."""
    found = []
    for scope in (scope for kind in SCOPES for scope in nodes(module, kind)):
        inside = own(scope)
        read = [(node, value) for node in inside if (value := read_by_name(node)) is not None]
        known = {name for node in inside for name in aliases(node)} if read else set()
        found += [(node.lineno, ast.unparse(node)) for node, value in read if is_typed(value, known)]
    return sorted(set(found))


def own(scope: ast.AST) -> list[Any]:
    """Return the nodes of a scope, without those of the functions in it."""
    found: list[Any] = []
    waiting = list(children(scope))
    while waiting:
        node = waiting.pop()
        found.append(node)
        if not isinstance(node, SCOPES):
            waiting += children(node)
    return found


def aliases(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node binds to a typed value, or to the elements of one."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        pairs = [(node.targets[0], node.value)]
        if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = list(zip(node.targets[0].elts, node.value.elts, strict=False))
    elif isinstance(node, (ast.For, ast.comprehension)):
        pairs = [(node.target, node.iter)]
    else:
        pairs = []
    for target, value in pairs:
        if isinstance(target, ast.Name) and is_typed(value, set()):
            yield target.id


def is_typed(value: ast.expr, known: set[str]) -> bool:
    """Return whether an expression is a field of an event, a name bound to one, or something inside of it."""
    while isinstance(value, (ast.Subscript, ast.BoolOp)):
        value = value.values[0] if isinstance(value, ast.BoolOp) else value.value
    if isinstance(value, ast.Name):
        return value.id in known
    return isinstance(value, ast.Attribute) and value.attr in TYPED and is_of_event(value.value)


def is_of_event(value: ast.expr) -> bool:
    """Return whether an expression may be an event or a proposal by its name."""
    name = value.attr if isinstance(value, ast.Attribute) else value.id if isinstance(value, ast.Name) else ""
    return name in {"event", "submitted", "proposal", "sealed", "verdict", "opened", "closed", "started", "projected"}


def read_by_name(node: ast.AST) -> ast.expr | None:
    """Return the value whose member a node reads by its name."""
    if isinstance(node, ast.Subscript) and is_text(node.slice):
        return node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        return node.func.value if is_text(node.args[0]) else None
    return None


def is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def modules() -> list[Path]:
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return [path for path in paths if not str(path.relative_to(ROOT)).startswith(INDEPENDENT)]


def test_no_module_reads_a_typed_value_by_the_names_of_its_members() -> None:
    assert len(modules()) > 500
    found = {str(path.relative_to(ROOT)): lines for path in modules() if (lines := indexed(syntax_tree(path)))}
    assert found == {}


@pytest.mark.parametrize(
    "line",
    [
        'event.actor["actorId"]',
        'event.intent["body"]["type"]',
        'proposal.submitted.actor["actorId"]',
        '(proposal.ruling or {}).get("timeoutMs")',
        'event.result.get("error")',
        '[lease["token"] for lease in verdict.leases]',
    ],
)
def test_such_a_line_would_be_found(line: str) -> None:
    assert len(indexed(ast.parse(f"def f(event, proposal, verdict):\n    return {line}\n"))) >= 1


def test_such_a_line_would_be_found_behind_a_name() -> None:
    assert indexed(ast.parse('def f(event):\n    body, at = event.intent, event.at\n    return body["type"]\n'))
    sound = 'def f(event):\n    body, at = event.intent, event.at\n    return body.type, event.binding["kind"]\n'
    assert not indexed(ast.parse(sound))
