"""Domains: a schema with its functions, in Python or as portable data.

::

    todo = Domain("urn:example:todo", version="1.0.0", state=TodoState)


    @todo.computed("openCount", deps=["todos"])
    def open_count(data):
        return sum(not item["done"] for item in data["todos"])


    @todo.action("todo.add", version="1")
    def add(ctx: ActionContext, new: AddTodo) -> list[Patch]:
        return [set_("todos", [*ctx.data["todos"], {"id": ctx.new_id(), "title": new.title, "done": False}])]

A Python action's identity in the schema is its name, its input and its explicit version; change the version
when the meaning changes. ``sources`` gives the identity of each function's code, to be recorded beside it.
Source: design section 4.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypedDict, TypeVar, Unpack, get_type_hints

from pydantic import BaseModel

from world.code.identity import Identity, changed_names, identity_of, own_source_hash
from world.core.availability import LocalPredicate
from world.core.execution import Execution
from world.core.expressions.expression_ast import dependencies
from world.core.fields_of import input_spec, state_spec
from world.core.migrations import Migration, python_migration
from world.core.python_action import Action, run_python
from world.core.schema import DomainSchema, load_schema
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.immutable_json import freeze

__all__ = ["Domain"]

F = TypeVar("F", bound=Callable[..., Any])


class ActionOptions(TypedDict, total=False):
    """Portable members of an action: availability expression, texts and manifest."""

    available: Any
    label: str | None
    description: str | None
    manifest: Any


class Domain:
    """A domain: its schema and its Python functions.

    Args:
        id: URI or UUID of the domain.
        version: semantic version.
        state: a pydantic model whose fields (with their defaults) are the state, or the portable
            ``{"fields": {...}}``.
        description: for people.

    Raises:
        RefusedError: ``UNSUPPORTED_TYPE`` for a state model that has no JSON form.
    """

    def __init__(
        self,
        id: str,  # noqa: A002 - the schema's own word
        *,
        version: str,
        state: type[BaseModel] | Mapping[str, Any],
        description: str | None = None,
    ) -> None:
        """Create an empty domain."""
        self._portable: dict[str, Any] = {
            "id": id,
            "version": version,
            "state": dict(state) if isinstance(state, Mapping) else state_spec(state),
            "computed": {"fields": {}},
            "actions": {},
        }
        if description is not None:
            self._portable["description"] = description
        self._actions: dict[str, tuple[Action, type[BaseModel] | None]] = {}
        self._computed: dict[str, Callable[..., Any]] = {}
        self._predicates: dict[str, LocalPredicate] = {}
        self._migrations: dict[str, Migration] = {}
        self._schema: DomainSchema | None = None
        self._compared: tuple[Mapping[str, str | None], tuple[str, ...]] | None = None
        self._identities: dict[str, Identity | None] = {}

    @property
    def schema(self) -> DomainSchema:
        """The schema; raises ``RefusedError`` ``INVALID_SCHEMA`` with all its faults."""
        if self._schema is None:
            self._schema = load_schema(self._portable)
        return self._schema

    def computed(
        self, name: str, *, deps: list[str] | None = None, expr: Any = None, version: str = "1"
    ) -> Callable[[F], F]:
        """Declare a computed value, as a decorator of its function or with an expression.

        Args:
            name: short (``openCount``) or full (``computed.openCount``).
            deps: paths and computed values it reads; a function receives only these. For an expression
                they may be omitted: then they are derived from it.
            expr: the expression; without it the decorated function ``f(data)`` computes the value.
            version: of the function; part of the schema's identity.

        Returns:
            A decorator; with an expression there is nothing to decorate and it may be dropped.

        Raises:
            RefusedError: ``DUPLICATE_NAME``.
        """
        full = name if name.startswith("computed.") else f"computed.{name}"
        fields = self._portable["computed"]["fields"]
        self._new(full, fields, "computed value")
        if expr is not None:
            fields[full] = {"deps": sorted(dependencies(expr)) if deps is None else list(deps), "expr": expr}
            return lambda function: function

        def register(function: F) -> F:
            self._new(full, fields, "computed value")
            fields[full] = {"deps": list(deps or ()), "python": {"name": full, "version": version}}
            self._computed[full] = function
            return function

        return register

    def action(
        self,
        name: str,
        *,
        version: str,
        available: Any = None,
        label: str | None = None,
        description: str | None = None,
        manifest: Any = None,
    ) -> Callable[[F], F]:
        """Declare an action by its Python function, ``f(ctx)`` or ``f(ctx, input)`` with a pydantic model
        as type.

        Args:
            name: the intent type.
            version: the function's version, part of the schema's identity.
            available: availability expression; None is always available.
            label: short name for people.
            description: for people; by default the first line of the function's docstring.
            manifest: external effects of the action, as portable data with templates over the
                input.

        Raises:
            RefusedError: ``DUPLICATE_NAME``; ``INVALID_ACTION`` where the function takes something else, or another
                argument is not what it should be.
        """
        actions = self._portable["actions"]
        self._new(name, actions, "action")
        _check_declared(name, {"version": version, "available": available, "label": label, "description": description})
        _check_declared(name, {"manifest": manifest})

        def register(function: F) -> F:
            self._new(name, actions, "action")
            model = _input_model(function, name)
            told = description or (inspect.getdoc(function) or "").partition("\n")[0] or None
            optional = {"available": available, "label": label, "description": told, "manifest": manifest}
            actions[name] = {
                **({} if model is None else {"input": input_spec(model)}),
                **{key: value for key, value in optional.items() if value is not None},
                "python": {"name": name, "version": version},
            }
            self._actions[name] = (function, model)
            return function

        return register

    def available(self, action: str) -> Callable[[F], F]:
        """Declare a Python predicate ``f(ctx)`` of an action's availability.

        It is a decorator. The function receives an ``AvailabilityContext`` (data, computed, actor), is pure, and
        returns a boolean. It is local to this process: the portable schema does not contain it (INT-3.4b), its
        identity is among ``sources``.

        Args:
            action: a declared action without an availability expression.

        Raises:
            RefusedError: ``DUPLICATE_NAME`` where the action has a predicate; ``INVALID_ACTION`` where there is no such
                action, or the function is async or a generator.
        """
        spec = self._portable["actions"].get(action)
        if spec is None:
            told = f"There is no action {action!r} to be available; declare it above its predicate."
            raise RefusedError(ErrorCode.INVALID_ACTION, told, action=action)
        if action in self._predicates or spec.get("available") is not None:
            told = f"The action {action!r} has an availability predicate already; it takes one."
            raise RefusedError(ErrorCode.DUPLICATE_NAME, told, name=action)

        def register(function: F) -> F:
            if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
                told = f"The predicate of {action!r} must be a plain function of one context, which answers at once."
                raise RefusedError(ErrorCode.INVALID_ACTION, told, action=action)
            name = getattr(function, "__qualname__", type(function).__name__)
            self._predicates[action] = LocalPredicate(function, f"{function.__module__}.{name}")
            self._schema = self._compared = None
            return function

        return register

    def migration(self, version: str) -> Callable[[F], F]:
        """Declare a migration from an earlier schema, as a decorator of a pure function from old data to new.

        It is part of the adoption of this domain in place of one with that version, and not of the schema. The function
        receives the data as plain dictionaries and lists, without members whose names begin with ``$``.

        Args:
            version: version of the schema that it starts from, such as ``"1.0.0"``.

        Raises:
            RefusedError: ``DUPLICATE_NAME`` where there is one from that version.
        """
        self._new(version, self._migrations, "migration from version")

        def register(function: F) -> F:
            self._new(version, self._migrations, "migration from version")
            self._migrations[version] = python_migration(version, function, (Domain,))
            return function

        return register

    def migration_from(self, version: str) -> Migration | None:
        """Return the migration that starts from a version of the schema, or None."""
        return self._migrations.get(version)

    def local_predicate(self, action: str) -> LocalPredicate | None:
        """Return the Python predicate of an action's availability, or None."""
        return self._predicates.get(action)

    def input_model(self, action: str) -> type[BaseModel] | None:
        """Return the pydantic model of a Python action's input, or None."""
        return self._actions[action][1] if action in self._actions else None

    def flow(
        self,
        name: str,
        flow: Mapping[str, Any],
        *,
        input: type[BaseModel] | Mapping[str, Any] | None = None,  # noqa: A002 - the schema's own word
        **spec: Unpack[ActionOptions],
    ) -> None:
        """Declare an action by a declarative flow.

        Args:
            name: the intent type.
            flow: the portable flow node.
            input: a pydantic model or the portable field spec; None accepts anything.
            **spec: available, label, description, manifest as in the portable form.

        Raises:
            RefusedError: ``DUPLICATE_NAME``; ``INVALID_ACTION`` where an argument is not what it should be.
        """
        self._new(name, self._portable["actions"], "action")
        _check_declared(name, spec)
        given = input_spec(input) if isinstance(input, type) else input
        self._portable["actions"][name] = {
            "flow": flow, **({} if given is None else {"input": given}), **spec,
        }  # fmt: skip

    def _new(self, name: str, known: Mapping[str, Any], noun: str) -> None:
        if name in known:
            raise RefusedError(ErrorCode.DUPLICATE_NAME, f"The domain has a {noun} called {name!r} already.", name=name)
        self._schema = self._compared = None

    def run_action(self, execution: Execution) -> None:
        """Run the Python function of the execution's action; see ``run_python``."""
        run_python(execution, *self._actions[execution.action_id])

    def computed_function(self, name: str) -> Callable[..., Any]:
        """Return the Python function of a computed value."""
        return self._computed[name]

    def sources(self) -> dict[str, str | None]:
        """Return the identity of each function's code, None without source.

        Names are ``action:<name>``, ``available:<name>`` and ``computed:<name>``. An identity covers everything
        that the function reaches in its own package, the model of its input included; see ``world.code.identity``.
        """
        return {name: None if found is None else found.text for name, found in self._found().items()}

    def own_sources(self) -> dict[str, str | None]:
        """Return the SHA-256 of each function's own source, as in older logs."""
        return {name: own_source_hash(function) for name, (function, _) in self._functions().items()}

    def changed(self, recorded: Mapping[str, str | None]) -> tuple[str, ...]:
        """Return the sorted names of functions whose code differs from the record.

        Args:
            recorded: identities of an adoption; those of an older log are compared by their own rule.
        """
        if self._compared is None or self._compared[0] is not recorded:
            is_older = any(one is None or ":" not in one for one in recorded.values())
            own = self.own_sources() if is_older else {}
            self._compared = (recorded, changed_names(recorded, self.sources(), own))
        return self._compared[1]

    def distributions(self) -> dict[str, str]:
        """Return the versions of reached distributions that no identity covers."""
        known = [found.distributions for found in self._found().values() if found is not None]
        return {name: version for one in known for name, version in one.items()}

    def _functions(self) -> dict[str, tuple[Callable[..., Any], tuple[type, ...]]]:
        """Return every function by its name in ``sources``, with its models."""
        functions: dict[str, tuple[Callable[..., Any], tuple[type, ...]]] = {}
        for name, (function, model) in self._actions.items():
            functions[f"action:{name}"] = function, () if model is None else (model,)
        functions |= {f"available:{name}": (given.evaluate, ()) for name, given in self._predicates.items()}
        functions |= {f"computed:{name.removeprefix('computed.')}": (f, ()) for name, f in self._computed.items()}
        return functions

    def _found(self) -> dict[str, Identity | None]:
        """Return the identities of all declared functions; each is cached."""
        for name, (function, models) in self._functions().items():
            if name not in self._identities:
                self._identities[name] = identity_of(function, models=models, without=(Domain,))
        return self._identities

    @classmethod
    def of_schema(cls, schema: DomainSchema, migrations: Mapping[str, Migration] | None = None) -> Domain:
        """Return a domain without Python functions.

        Args:
            schema: its schema.
            migrations: its migrations by version; None is none.

        Raises:
            RefusedError: ``PYTHON_REQUIRED`` for a schema that names some.
        """
        wanted = [f"action {name}" for name, action in schema.actions.items() if action.python is not None]
        wanted += [f"computed value {spec.name}" for spec in schema.computed if spec.python is not None]
        if wanted:
            raise RefusedError(
                ErrorCode.PYTHON_REQUIRED,
                f"The schema of {schema.id} needs Python functions for {', '.join(wanted)}; portable data "
                "holds none. Give the Domain object of the module that declares them, as module:name.",
                names=wanted,
            )
        portable = schema.portable
        domain = cls(schema.id, version=schema.version, state=portable["state"])
        domain._portable, domain._schema = dict(portable), schema
        domain._migrations = dict(migrations or {})
        return domain


_EXPRESSION = (
    'an expression as portable data, such as {"kind": "gt", "left": {"kind": "get", "path": "stock"}, '
    '"right": {"kind": "lit", "value": 0}}, or None for always; a condition in Python goes into the action itself, '
    "as ctx.fail(code, message), or into a function under @domain.available(name)"
)
_ACCEPTED: Mapping[str, tuple[tuple[type, ...], str]] = {
    "version": ((str,), 'a text, such as "1"'),
    "available": ((Mapping,), _EXPRESSION),
    "label": ((str,), "a text or None"),
    "description": ((str,), "a text or None"),
    "manifest": ((Mapping, list), "portable data (objects, arrays, texts, numbers, booleans) or None"),
}
"""Accepted types of an action's arguments, and their names in errors."""


def _check_declared(action: str, given: Mapping[str, Any]) -> None:
    """Raise for an argument of an action that is not portable data of its type."""
    for name, value in given.items():
        types, words = _ACCEPTED.get(name, ((object,), "portable data"))
        if value is None and name != "version":
            continue
        wrong = None if isinstance(value, types) else f"not {type(value).__name__}"
        try:
            freeze(value)
        except RefusedError as refused:
            wrong = wrong or refused.message.rstrip(".")
        if wrong:
            raise RefusedError(
                ErrorCode.INVALID_ACTION,
                f"The action {action!r} is declared with {name}={value!r:.60}; {name} takes {words} ({wrong}).",
                action=action,
                argument=name,
            )


def _input_model(function: Callable[..., Any], name: str) -> type[BaseModel] | None:
    """Return the pydantic model of an action's second parameter, or None."""
    parameters = list(inspect.signature(function).parameters.values())
    if len(parameters) == 1:
        return None
    hints: dict[str, Any] = {}
    if len(parameters) == 2:
        try:
            hints = get_type_hints(function)
        except Exception:  # noqa: BLE001 - a name that cannot be found now is the same mistake as no type
            hints = {}
    model = hints.get(parameters[1].name) if len(parameters) == 2 else None
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise RefusedError(
            ErrorCode.INVALID_ACTION,
            f"The action {name!r} must be f(ctx) or f(ctx, input: Model) with a pydantic Model.",
            action=name,
        )
    return model
