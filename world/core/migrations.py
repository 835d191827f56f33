"""Migrations: from the data of an earlier schema to data of the domain's own schema.

A migration is declared by the version of the schema that it starts from: in Python as a pure function from the old data
to the new, in portable domains as a list of patches whose values are literals or expressions over the old data. What a
migration makes of a world's data is a list of patches, so that every change of data in the lineage has one form.
Members of the data whose names begin with ``$`` belong to hosts and tools; a migration neither sees nor changes them.
Sources: WP-schema; design section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from world.code.identity import identity_of
from world.core.declarations.checks import check_migration
from world.core.expressions.expression import compile_expression
from world.core.expressions.expression_ast import check_expression
from world.core.expressions.scope import Scope
from world.core.fields import FieldSpec, check_value
from world.core.lint import is_version
from world.core.schema import DomainSchema
from world.core.validate import StateFault, check_state
from world.core.values import strict_equal
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.canonical_json import digest
from world.model.identity import semantic_data
from world.model.immutable_json import FrozenDict, freeze, thaw
from world.model.patch import Patch, apply_patches, merge, set_, unset
from world.model.paths import format_path
from world.model.record import Record

__all__ = [
    "PORTABLE_KIND",
    "Migration",
    "Misfit",
    "migrated_patches",
    "misfits",
    "portable_migrations",
    "python_migration",
]

PORTABLE_KIND: Final = "patches-1"
"""Prefix of the identity of a migration in portable form: a hash of its patches."""

_MANY: Final = 256
"""Number of members of one object that patches change one by one."""

MAX_MISFITS: Final = 1_000
"""Maximum number of places that are listed for one world."""


class Misfit(Record, frozen=True):
    """A place of the data that a schema refuses.

    Args:
        path: relative to the data.
        message: what is wrong there.
    """

    path: str
    message: str


@dataclass(frozen=True, slots=True)
class Migration:
    """A declared migration.

    Args:
        version: version of the schema that it starts from.
        identity: of its code, or of its patches; None without source.
        function: from the old data to the new; the argument is a copy of the caller's own.
    """

    version: str
    identity: str | None
    function: Callable[[Any], Any]

    def patches(self, data: FrozenDict) -> tuple[Patch, ...]:
        """Return the patches that lead from the old data to the new.

        Args:
            data: data under the earlier schema.

        Raises:
            RefusedError: ``MIGRATION_FAILED`` where the function raises, returns no object, or returns different data
                when it is called again.
        """
        old = freeze(semantic_data(data))
        new = self._called(old)
        if self._called(old) != new:
            raise self._failed("it returned different data for equal arguments; it must be a pure function")
        return tuple(_differences(old, new, ()))

    def _called(self, old: FrozenDict) -> FrozenDict:
        try:
            returned = self.function(thaw(old))
        except Exception as error:
            raise self._failed(f"it raised {type(error).__name__}: {error}") from error
        try:
            made = freeze(returned)
        except RefusedError as refused:
            raise self._failed(f"it returned data that is no JSON. {refused.message:.500}".rstrip(".")) from None
        if not isinstance(made, FrozenDict):
            raise self._failed(f"it returned a {type(made).__name__}, and the data is an object")
        if any(name.startswith("$") for name in made):
            raise self._failed("it returned a member whose name begins with $, which belongs to hosts and tools")
        return made

    def _failed(self, why: str) -> RefusedError:
        return RefusedError(
            ErrorCode.MIGRATION_FAILED,
            f"The migration from version {self.version} failed: {why}.",
            version=self.version,
        )


def python_migration(version: str, function: Callable[[Any], Any], without: tuple[type, ...]) -> Migration:
    """Return the migration of a Python function.

    Args:
        version: version of the schema that it starts from.
        function: from the old data to the new.
        without: types that have an identity of their own; see ``world.code.identity.identity_of``.

    Raises:
        RefusedError: ``INVALID_ACTION`` for another version or another function.
    """
    check_migration(version, function)
    found = identity_of(function, without=without)
    return Migration(version, None if found is None else found.text, function)


def portable_migrations(portable: Any) -> dict[str, Migration]:
    """Read the member ``migrations`` of a portable domain.

    Args:
        portable: by version, lists of patches ``{"op", "path", "value"}``, or ``{"op", "path", "expr"}`` with an
            expression over the old data.

    Raises:
        RefusedError: ``INVALID_SCHEMA`` for any other form, with the place.
    """
    if not isinstance(portable, Mapping):
        raise _invalid("$.migrations", "it is an object with lists of patches by version.")
    return {str(version): _portable(str(version), patches) for version, patches in portable.items()}


def _portable(version: str, patches: Any) -> Migration:
    where = f"$.migrations.{version}"
    if not is_version(version):
        raise _invalid(where, "it is named by the version of the earlier schema, such as 1.0.0.")
    if not isinstance(patches, list):
        raise _invalid(where, "it is a list of patches.")
    steps = [_step(one, f"{where}[{at}]") for at, one in enumerate(patches)]

    def migrate(data: Any) -> Any:
        old = freeze(data)
        scope = Scope(old, computed={})
        return apply_patches(old, [step(scope) for step in steps])

    return Migration(version, f"{PORTABLE_KIND}:{digest(patches)}", migrate)


def _step(wire: Any, where: str) -> Callable[[Scope], Patch]:
    if not isinstance(wire, Mapping) or "expr" not in wire:
        try:
            patch = Patch.from_wire(wire)
        except RefusedError as refused:
            raise _invalid(where, refused.message) from None
        return lambda _: patch
    op, path = wire.get("op"), wire.get("path")
    if op not in ("set", "merge") or not isinstance(path, str) or wire.keys() != {"op", "path", "expr"}:
        raise _invalid(where, "a patch with an expression has op (set or merge), path and expr.")
    faults = check_expression(wire["expr"], f"{where}.expr")
    if faults:
        raise _invalid(*faults[0])
    evaluate = compile_expression(wire["expr"])
    return lambda scope: Patch.from_wire({"op": op, "path": path, "value": evaluate(scope)})


def _invalid(path: str, message: str) -> RefusedError:
    fault = {"code": "SCHEMA_ERROR", "path": path, "message": message}
    return RefusedError(ErrorCode.INVALID_SCHEMA, f"The schema has 1 fault: {path}: {message}", faults=[fault])


def misfits(
    schema: DomainSchema, data: FrozenDict, validate: Callable[[FrozenDict], list[StateFault]] | None = None
) -> list[Misfit]:
    """Return the places of data that a schema refuses, at most ``MAX_MISFITS``.

    Args:
        schema: the schema.
        data: the whole data of a world.
        validate: returns what the validators of the state's model refuse, in Python; None calls none.
    """
    if schema.state.model is not None:
        faults = check_state(schema, data) or ([] if validate is None else validate(data))
        return [Misfit(fault.path, fault.message) for fault in faults]
    found: list[Misfit] = []
    fields = schema.state.fields or {}
    for name, spec in fields.items():
        if name in data:
            found += _misfits_of(spec, data[name], format_path((name,)))
        elif spec.required:
            found.append(Misfit(format_path((name,)), "is required"))
    if schema.state.fields is not None:
        unknown = [name for name in semantic_data(data) if name not in fields]
        found += [Misfit(format_path((name,)), "is not a known field") for name in unknown]
    return found[:MAX_MISFITS]


def _misfits_of(spec: FieldSpec, value: Any, path: str) -> Iterator[Misfit]:
    return (Misfit(fault.path, fault.message) for fault in check_value(spec, value, state=True, path=path))


def migrated_patches(
    migration: Migration,
    schema: DomainSchema,
    data: FrozenDict,
    validate: Callable[[FrozenDict], list[StateFault]] | None = None,
) -> tuple[tuple[Patch, ...], list[Misfit]]:
    """Return the patches of a migration, and the places of its result that the new schema refuses.

    Args:
        migration: from the version of the earlier schema.
        schema: the new schema.
        data: data under the earlier schema.
        validate: as for ``misfits``.

    Raises:
        RefusedError: ``MIGRATION_FAILED``.
    """
    patches = migration.patches(data)
    return patches, misfits(schema, apply_patches(data, patches), validate)


def _differences(old: FrozenDict, new: FrozenDict, at: tuple[str, ...]) -> Iterator[Patch]:
    """Yield the patches from one object to another: objects member by member, other values whole.

    An object of which many members differ is replaced as a whole: each patch inside it copies it.
    """
    removed = [name for name in old if name not in new]
    changed = {name: value for name, value in new.items() if name not in old or not strict_equal(old[name], value)}
    is_many = len(removed) + len(changed) > _MANY
    if is_many and at:
        yield set_(format_path(at), new)
        return
    yield from (unset(format_path((*at, name))) for name in removed)
    if is_many:
        yield merge("", changed)
        return
    for name, value in changed.items():
        before = old.get(name)
        if isinstance(before, FrozenDict) and isinstance(value, FrozenDict):
            yield from _differences(before, value, (*at, name))
        else:
            yield set_(format_path((*at, name)), value)
