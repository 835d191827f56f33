"""Signatures of the product: no untyped keyword arguments, few parameters, and names of options that are checked."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from host import Host, handler
from host.effect_registry import EffectRegistry
from tests.support.syntax import last_name, nodes, syntax_tree
from world.core import Domain
from world.error_codes import ErrorCode
from world.log import LogFinding
from worldprotocol import Realm

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("world", "projections", "authority", "host", "worldprotocol")
MAX_PARAMETERS = 7

OPEN_NAMES = {
    # The names are data: members of a JSON object, parameters of a statement, fields of an event.
    "host/backups/objects.py damaged": "typed facts of an error",
    "worldprotocol/server/answer_schemas.py shape": "members of a JSON object",
    "world/errors.py WorldProtocolError.__init__": "typed facts of an error",
    "world/core/effects/effect_types.py effect": "input of an effect",
    "world/core/python_action.py ActionContext.fail": "context of a failure",
    "world/log/backends/sqlite.py file_uri": "query of a URI",
    "world/log/reading.py LogReader.query": "parameters of a statement",
    "world/log/backends/parquet.py ParquetStore.select": "parameters of a statement",
    "world/log/store.py Store.select": "parameters of a statement",
    "world/log/store.py Store.within": "parameters of a statement",
    "world/log/sql/statement.py SqlStatement.bind": "parameters of a statement",
    "world/log/views.py ViewCursor.run": "parameters of a statement",
    "worldprotocol/testing/expected_events.py event": "fields of an event",
    "worldprotocol/testing/scenarios.py Happened.then_data": "data of a world",
    # The signature is that of a class of a library, or is refused as a whole.
    "world/log/backends/postgres_hosts.py FlushingConnection.wait": "psycopg.Connection",
    "world/log/log.py EventLog.insert_events": "ApplicationRecorder of eventsourcing",
    "world/model/immutable_json.py FrozenDict.__init__": "refused by the dict",
    "world/model/immutable_json.py FrozenList.__init__": "refused by the list",
    "world/model/immutable/persistent_map.py TrackedDict.update": "dict",
    "worldprotocol/cli/support/command_context.py CliCommand.__init__": "click.Command",
    "worldprotocol/cli/support/command_context.py command": "click.command",
    "worldprotocol/testing/collecting.py CaseItem.__init__": "pytest.Item",
}
"""Public functions whose keyword arguments have no fixed names, with the reason."""

MANY_PARAMETERS = {
    "world/engine/protocol.py WorldProtocol.__init__": "components of the engine; only the composition root calls it",
    "world/engine/lease_commands.py LeaseCommands.request": "members of one recorded request, by name",
    "worldprotocol/api/remote/leases.py RemoteDesk.request": "the parameters of LeaseCommands.request",
    "world/log/log.py open_log": "settings of a log, by name",
}
"""Functions with more parameters, with the reason."""


FINDERS = {"LogFinding", "add", "_add", "_bad", "_find"}
"""Functions that make a finding of its code, position and message."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def public_functions() -> Iterator[tuple[str, Function]]:
    """Yield "path qualified-name" and node of each public function and method of the product."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            tree = syntax_tree(path)
            yield from _public(tree, str(path.relative_to(ROOT)), "")


def _public(node: ast.AST, path: str, inside: str) -> Iterator[tuple[str, Function]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef) and not child.name.startswith("_"):
            yield from _public(child, path, f"{inside}{child.name}.")
        elif isinstance(child, Function) and (child.name == "__init__" or not child.name.startswith("_")):
            yield f"{path} {inside}{child.name}", child


def is_command(function: Function) -> bool:
    """Return whether a function is called by click, with the options that its decorators define."""
    names = {ast.unparse(one.func) for one in function.decorator_list if isinstance(one, ast.Call)}
    return any(name.rsplit(".", 1)[-1] in ("command", "group") for name in names)


def parameters(function: Function) -> int:
    """Return the number of parameters, without ``self``."""
    arguments = function.args
    names = [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def test_keyword_arguments_of_public_functions_are_typed_by_name():
    untyped = [
        f"{name}(**{ast.unparse(keywords)})"
        for name, function in public_functions()
        if (keywords := function.args.kwarg) is not None
        and "Unpack[" not in ast.unparse(keywords)
        and not is_command(function)
        and name not in OPEN_NAMES
    ]
    assert untyped == []


def test_no_public_function_has_more_than_seven_parameters():
    many = [
        f"{name}: {count}"
        for name, function in public_functions()
        if (count := parameters(function)) > MAX_PARAMETERS and not is_command(function) and name not in MANY_PARAMETERS
    ]
    assert many == []


def a_domain() -> Domain:
    """Return a domain with one action that changes nothing."""
    domain = Domain("urn:test:empty", version="1.0.0", state={"fields": {}})
    domain.flow("rest", {"kind": "seq", "steps": []})
    return domain


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    folder = tmp_path_factory.mktemp("signatures")
    with Realm.create(str(folder / "world.db"), domain=a_domain()) as created:
        yield created


CALLS: dict[str, tuple[Callable[[Realm], Any], str]] = {
    "Realm.create": (lambda _: Realm.create("x.db", domain=a_domain(), durabilty="full"), "durability"),  # type: ignore[call-arg]
    "Realm.open": (lambda _: Realm.open("x.db", domain=a_domain(), effect=[]), "effects"),  # type: ignore[call-arg]
    "Realm.act": (lambda one: one.act("operator", "x", brach="main"), "branch"),  # type: ignore[call-arg]
    "Realm.submit": (lambda one: one.submit({}, fork_nam="main"), "fork_name"),  # type: ignore[call-arg]
    "Realm.project": (lambda one: one.project({}, "operator", base_wrld="x"), "base_world"),  # type: ignore[call-arg]
    "Leases.acquire": (lambda one: one.leases.acquire(resourse="FILE:/a"), "resource"),  # type: ignore[call-arg]
    "Actions.catalog": (lambda one: one.actions.catalog(mod="ui"), "mode"),  # type: ignore[call-arg]
    "Host": (lambda _: Host(a_domain(), EffectRegistry(), worker=None), "workers"),  # type: ignore[call-arg]
    "handler": (lambda _: handler("http.get", idempotnt=True), "idempotent"),  # type: ignore[call-overload]
    "EffectRegistry.handler": (lambda _: EffectRegistry().handler("x", retrys=1), "retries"),  # type: ignore[call-arg]
    "Domain.flow": (lambda _: a_domain().flow("x", {}, labl="x"), "label"),  # type: ignore[call-arg]
}


@pytest.mark.parametrize("name", CALLS)
def test_an_unknown_option_is_refused_with_the_nearest_one(name: str, realm: Realm):
    call, nearest = CALLS[name]
    with pytest.raises(TypeError, match=f"did you mean {nearest!r}"):
        call(realm)


def test_every_finding_of_verification_has_a_code_of_the_enumeration():
    assert LogFinding.__annotations__["code"] == "ErrorCode"
    folders = (ROOT / "world" / "audit", ROOT / "world" / "log", ROOT / "worldprotocol" / "export")
    literal = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in folders
        for path in folder.rglob("*.py")
        for node in nodes(syntax_tree(path), ast.Call)
        if last_name(node.func) in FINDERS
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and node.args[0].value in ErrorCode.__members__
    ]
    assert literal == []
