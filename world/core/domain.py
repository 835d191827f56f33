"""Domains: a schema with its functions, in Python or as portable data.

::

    todo = Domain("urn:example:todo", version="1.0.0", state=TodoState)


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
from functools import cached_property
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack, cast, overload

from pydantic import BaseModel

from world.code.identity import Identity, changed_names, identity_of, is_first_kind, own_source_hash
from world.code.keyword_options import check_names
from world.core.availability import LocalPredicate
from world.core.declarations import checks
from world.core.declarations.checks import ActionOptions, check_declared, check_predicate, model_of_input, refuse_python
from world.core.domain_rules import RULES
from world.core.execution import Execution
from world.core.expressions.expression_ast import dependencies
from world.core.fields_of import earlier_form
from world.core.migrations import Migration, python_migration
from world.core.python_action import Action, ActionContext, S, run_python
from world.core.schema import DomainSchema, load_schema
from world.core.state_model.from_pydantic import StateModel, input_model, state_model
from world.core.state_model.instances import frozen_instance
from world.core.state_model.validators import validator_faults
from world.core.validate import StateFault
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.immutable_json import FrozenDict
from world.model.short_repr import short_repr

__all__ = ["Domain"]

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")


class Domain(Generic[S]):
    """A domain: its schema and its Python functions.

    Args:
        id: URI or UUID of the domain.
        version: semantic version.
        state: a pydantic model whose fields and defaults are the state, or the portable ``{"fields": {...}}`` or
            ``{"dialect": ..., "schema": {...}}``; enforced on every sealed world (``world.core.state_model``).
        description: for people.

    Raises:
        RefusedError: ``UNSUPPORTED_TYPE`` for a state model that says what a portable schema cannot express, with the
            field and what to write instead.
    """

    @overload
    def __init__(self, id: str, *, version: str, state: type[S], description: str | None = None) -> None: ...

    @overload
    def __init__(
        self: Domain[Any], id: str, *, version: str, state: Mapping[str, Any], description: str | None = None
    ) -> None: ...

    def __init__(
        self,
        id: str,  # noqa: A002 - the schema's own word
        *,
        version: str,
        state: type[Any] | Mapping[str, Any],
        description: str | None = None,
    ) -> None:
        """Create an empty domain."""
        checks.check_state_type(state)
        self._model: type[BaseModel] | None = None if isinstance(state, Mapping) else state
        self._state_model: StateModel | None = None if self._model is None else state_model(self._model)
        self._portable: dict[str, Any] = {
            "id": id,
            "version": version,
            "state": self._state_model.spec if self._state_model is not None else state,
            "computed": {"fields": {}},
            "actions": {},
        }
        if description is not None:
            self._portable["description"] = description
        self._actions: dict[str, tuple[Action, type[BaseModel] | None]] = {}
        self._computed: dict[str, Callable[..., Any]] = {}
        self._predicates: dict[str, LocalPredicate] = {}
        self._migrations: dict[str, Migration] = {}
        self._rules, self._is_earlier = RULES, False
        self._origin: Domain[Any] = self
        self._compared: tuple[Mapping[str, str | None], tuple[str, ...]] | None = None
        self._identities: dict[str, Identity | None] = {}

    def __repr__(self) -> str:
        actions = ", ".join(self._portable["actions"]) or "none"
        return short_repr(self, f"{self._portable['id']} {self._portable['version']}", f"actions: {actions}")

    @cached_property
    def schema(self) -> DomainSchema:
        """The schema; raises ``RefusedError`` ``INVALID_SCHEMA`` with all its faults."""
        portable = self._portable
        if self._is_earlier:
            portable = earlier_form(portable, self._model, {name: one[1] for name, one in self._actions.items()})
        return load_schema(portable, self._rules)

    def _forget_schema(self) -> None:
        """Have the schema made again, because what it is made of changed."""
        vars(self).pop("schema", None)
        self._compared = None

    @property
    def origin(self) -> Domain[Any]:
        """The declared domain that this one is a copy of; itself where it is none."""
        return self._origin

    def copied(self, rules: int | None = None, *, is_earlier: bool = False) -> Domain[S]:
        """Return a copy for one realm, which takes the form that the log adopted, or this one; functions are shared."""
        copy = Domain.__new__(type(self))
        vars(copy).update(vars(self))
        if rules is not None:
            copy._rules, copy._is_earlier = rules, is_earlier
            copy._forget_schema()
        return copy

    def take_form(self, schema_hash: str, rules: int) -> bool:
        """Take the form in which a log adopted this domain; false where it has no such form, and nothing changes.

        A domain with models has two: one that enforces all that a model says, and that of older logs, in field specs.

        Args:
            schema_hash: of the adopted schema.
            rules: version of the rules that the adoption records.
        """
        if "schema" in vars(self) and self.is_form(schema_hash, rules):  # else not made yet, or of earlier rules alone
            return True
        before = {name: part for name, part in vars(self).items() if name in ("_rules", "_is_earlier", "schema")}
        for is_earlier in (False, True):
            self._rules, self._is_earlier = rules, is_earlier
            self._forget_schema()
            try:
                if self.schema.hash == schema_hash:
                    return True
            except RefusedError:  # the earlier form cannot express a model that was written since
                continue
        self._forget_schema()
        vars(self).update(before)
        return False

    def in_form(self, schema_hash: str, rules: int | None) -> Domain[S] | None:
        """Return this domain, or a copy, in the form of an adoption (``take_form``); None where it has no such form."""
        if "schema" in vars(self) and self.is_form(schema_hash, rules):
            return self
        copy = self.copied()
        return copy if copy.take_form(schema_hash, rules or 1) else None

    def is_form(self, schema_hash: str, rules: int | None) -> bool:
        """Return whether this domain has the form of an adoption; None is an adoption without a version of rules."""
        return self.schema.hash == schema_hash and self.schema.rules == (rules or 1)

    def take_newest_form(self) -> None:
        """Take the form in which this domain is adopted now."""
        if self._is_earlier or self._rules != RULES:
            self._rules, self._is_earlier = RULES, False
            self._forget_schema()

    def state_faults(self, data: FrozenDict) -> list[StateFault]:
        """Return what the validators of the state's model refuse, in Python; none where it has no validators."""
        if self._model is None or self._is_earlier or not cast(StateModel, self._state_model).validators:
            return []
        return validator_faults(self._model, data)

    def state_of(self, data: FrozenDict) -> S:
        """Return the frozen instance of the state's model for data.

        Raises:
            TypeError: the state is portable data and has no model.
            pydantic.ValidationError: the data does not fit the model.
        """
        if self._model is None:
            raise TypeError(f"The state of the domain {self._portable['id']} has no model; read ctx.data.")
        return cast(S, frozen_instance(self._model, data))

    def computed(
        self, name: str, *, deps: list[str] | None = None, expr: Any = None, version: str = "1"
    ) -> Callable[[F], F]:
        """Declare a computed value, as a decorator of its function or with an expression.

        Args:
            name: short (``openCount``) or full (``computed.openCount``).
            deps: paths and computed values it reads; a function receives only these. Derived from an expression.
            expr: the expression; without it the decorated function ``f(data)`` computes the value.
            version: of the function; part of the schema's identity.

        Returns:
            A decorator; with an expression there is nothing to decorate and it may be dropped.

        Raises:
            RefusedError: ``DUPLICATE_NAME``; ``INVALID_ACTION`` for a function that cannot compute a value.
        """
        checks.check_named(name, "computed")
        checks.check_deps(name, deps)
        full = name if name.startswith("computed.") else f"computed.{name}"
        fields = self._portable["computed"]["fields"]
        self._new(full, fields, "computed value")
        if expr is not None:
            fields[full] = {"deps": sorted(dependencies(expr)) if deps is None else list(deps), "expr": expr}
            return lambda function: function

        def register(function: F) -> F:
            checks.check_computed(name, function)
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
        confinement: Any = None,
    ) -> Callable[[Callable[Concatenate[ActionContext[S], P], R]], Callable[Concatenate[ActionContext[S], P], R]]:
        """Declare an action by its Python function, ``f(ctx)`` or ``f(ctx, input)`` with a pydantic model as type.

        Args:
            name: the intent type.
            version: the function's version, part of the schema's identity.
            available: availability expression; None is always available.
            label: short name for people.
            description: for people; by default the first line of the function's docstring.
            manifest: external effects of the action, as portable data with templates over the input.
            confinement: states the action's confinement (``world.core.declarations.confinement``).

        Raises:
            RefusedError: ``DUPLICATE_NAME``; ``INVALID_ACTION`` where the function takes something else, or another
                argument is not what it should be; ``UNSUPPORTED_TYPE`` for an input model that says what a portable
                schema cannot express.
        """
        actions = self._portable["actions"]
        self._new(name, actions, "action")
        check_declared(name, {"version": version, "available": available, "label": label, "description": description})
        check_declared(name, {"manifest": manifest, "confinement": confinement})

        def register(
            function: Callable[Concatenate[ActionContext[S], P], R],
        ) -> Callable[Concatenate[ActionContext[S], P], R]:
            self._new(name, actions, "action")
            model = model_of_input(function, name)
            rendered = description or (inspect.getdoc(function) or "").partition("\n")[0] or None
            optional = {"available": available, "label": label, "description": rendered}
            optional |= {"manifest": manifest, "confinement": confinement}
            actions[name] = {
                **({} if model is None else {"input": input_model(model).spec}),
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
            rendered = f"There is no action {action!r} to be available; declare it above its predicate."
            raise RefusedError(ErrorCode.INVALID_ACTION, rendered, action=action)
        if action in self._predicates or spec.get("available") is not None:
            rendered = f"The action {action!r} has an availability predicate already; it takes one."
            raise RefusedError(ErrorCode.DUPLICATE_NAME, rendered, name=action)

        def register(function: F) -> F:
            check_predicate(action, function)
            name = getattr(function, "__qualname__", type(function).__name__)
            self._predicates[action] = LocalPredicate(function, f"{function.__module__}.{name}")
            self._forget_schema()
            return function

        return register

    def migration(self, version: str) -> Callable[[F], F]:
        """Declare a migration from an earlier schema, as a decorator of a pure function from old data to new.

        It is part of the adoption of this domain in place of one with that version, and not of the schema. The function
        receives the data as plain dictionaries and lists, without members whose names begin with ``$``.

        Args:
            version: version of the schema that it starts from, such as ``"1.0.0"``.

        Raises:
            RefusedError: ``DUPLICATE_NAME`` for a second one from that version; ``INVALID_ACTION`` otherwise.
        """
        checks.check_named(version, "migration")

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
        check_names(spec, ActionOptions)
        self._new(name, self._portable["actions"], "action")
        check_declared(name, spec)
        given = input_model(input).spec if isinstance(input, type) else input
        self._portable["actions"][name] = {
            "flow": flow, **({} if given is None else {"input": given}), **spec,
        }  # fmt: skip

    def _new(self, name: str, known: Mapping[str, Any], noun: str) -> None:
        if name in known:
            raise RefusedError(ErrorCode.DUPLICATE_NAME, f"The domain has a {noun} called {name!r} already.", name=name)
        self._forget_schema()

    def run_action(self, execution: Execution) -> None:
        """Run the Python function of the execution's action; see ``run_python``."""
        run_python(execution, *self._actions[execution.action_id])

    def computed_function(self, name: str) -> Callable[..., Any]:
        """Return the Python function of a computed value."""
        return self._computed[name]

    def sources(self) -> dict[str, str | None]:
        """Return the identity of each function's code, None without source.

        Names are ``action:<name>``, ``available:<name>``, ``computed:<name>``, and ``state:validators`` (validators in
        Python). An identity covers what a function reaches in its own package; see ``world.code.identity``.
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
            own = self.own_sources() if any(map(is_first_kind, recorded.values())) else {}
            self._compared = recorded, changed_names(recorded, self.sources(), own)
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
        validators = () if self._is_earlier or self._state_model is None else self._state_model.validators
        own = [one for one in validators if not getattr(one, "__module__", "").startswith("pydantic")]
        if own and self._model is not None:
            functions["state:validators"] = own[0], (self._model,)
        functions |= {f"computed:{name.removeprefix('computed.')}": (f, ()) for name, f in self._computed.items()}
        return functions

    def _found(self) -> dict[str, Identity | None]:
        """Return the identities of all declared functions; each is cached."""
        functions = self._functions()
        for name, (function, models) in functions.items():
            if name not in self._identities:
                self._identities[name] = identity_of(function, models=models, without=(Domain,))
        return {name: self._identities[name] for name in functions}

    @classmethod
    def of_schema(cls, schema: DomainSchema, migrations: Mapping[str, Migration] | None = None) -> Domain[Any]:
        """Return a domain without Python functions.

        Args:
            schema: its schema.
            migrations: its migrations by version; None is none.

        Raises:
            RefusedError: ``PYTHON_REQUIRED`` for a schema that names some.
        """
        refuse_python(schema)
        portable = schema.portable
        domain = cls(schema.id, version=schema.version, state=portable["state"])
        domain._portable, domain.schema = dict(portable), schema
        domain._rules, domain._migrations = schema.rules, dict(migrations or {})
        return domain
