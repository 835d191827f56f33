"""Migrations that are written wrong, return odd values, change much, or do not end."""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from world.audit.verify import verify
from world.core import ActionContext, Domain, Patch, load_domain, set_
from world.core.migrations import python_migration
from world.errors import RefusedError
from world.limits import Limits
from world.model.immutable_json import FrozenDict, freeze, thaw
from world.model.patch import apply_patches
from worldprotocol import Realm
from worldprotocol.analysis.recheck.recheck import open_to_recheck, recheck

MANY = 20_000


class Counts(BaseModel):
    counts: dict[str, int] = {}


class Total(BaseModel):
    counts: dict[str, int] = {}
    total: int


def domain_of(version: str, state: type[BaseModel], migrate: Callable[[Any], Any] | None = None) -> Domain:
    domain = Domain("urn:test:counts", version=version, state=state)

    @domain.action("put", version="1")
    def put(ctx: ActionContext) -> list[Patch]:
        return [set_("counts.a", 1)]

    if migrate is not None:
        domain.migration("1.0.0")(migrate)
    return domain


def adopted(address: str, migrate: Callable[[Any], Any], size: int = 1, **options: Any) -> Realm:
    counts = {f"k{number}": number for number in range(size)}
    Realm.create(address, domain=domain_of("1.0.0", Counts), data={"counts": counts}).close()
    return Realm.open_to_adopt(address, domain=domain_of("2.0.0", Total, migrate), **options)


def cyclic(data: dict[str, Any]) -> Any:
    data["total"] = data
    return data


@pytest.mark.requirement("WP-schema")
@pytest.mark.parametrize(
    ("migrate", "place"),
    [
        (lambda data: {**data, "total": math.nan}, "$.total"),
        (lambda data: {**data, "total": decimal.Decimal(1)}, "$.total"),
        (lambda data: {**data, "total": 2**53 + 1}, "$.total"),
        (lambda data: {**data, "total": {1}}, "$.total"),
        (lambda data: {"counts": {1: 1}, "total": 1}, "$.counts"),
        (lambda data: {"counts": {"\ud800": 1}, "total": 1}, "$.counts"),
        (cyclic, "$.total"),
    ],
)
def test_data_that_is_no_json_is_named_with_its_place(
    migrate: Callable[[Any], Any], place: str, tmp_path: Path
) -> None:
    with pytest.raises(RefusedError) as refused:
        adopted(str(tmp_path / "w.db"), migrate)
    assert refused.value.code == "MIGRATION_FAILED"
    assert "it returned data that is no JSON" in refused.value.message
    assert place in refused.value.message
    assert len(refused.value.message) < 1_000


@pytest.mark.requirement("WP-schema")
def test_a_migration_that_does_not_end_is_named(tmp_path: Path) -> None:
    def endless(data: dict[str, Any]) -> Any:
        while True:
            pass

    with pytest.raises(RefusedError) as refused:
        adopted(str(tmp_path / "w.db"), endless, limits=Limits(max_call_ms=300))
    assert refused.value.code == "MIGRATION_FAILED"
    assert "The migration from version 1.0.0 took longer than 300 ms" in refused.value.message


async def later(data: dict[str, Any]) -> Any:
    return data


def in_parts(data: dict[str, Any]) -> Any:
    yield data


def nothing() -> Any:
    return {}


def two(data: dict[str, Any], more: Any) -> Any:
    return data


@pytest.mark.requirement("WP-schema")
@pytest.mark.parametrize("function", [later, in_parts, nothing, two])
def test_what_is_no_plain_function_of_the_data_is_refused_where_it_is_declared(function: Any) -> None:
    with pytest.raises(RefusedError) as refused:
        domain_of("2.0.0", Total).migration("1.0.0")(function)
    assert refused.value.code == "INVALID_ACTION"
    assert "f(data)" in refused.value.message


@pytest.mark.requirement("WP-schema")
@pytest.mark.parametrize("version", ["1", "v1.0.0", "", "1.0.0 ", 1])
def test_a_version_that_no_schema_can_have_is_refused_where_it_is_declared(version: Any) -> None:
    with pytest.raises(RefusedError) as refused:
        domain_of("2.0.0", Total).migration(version)(thaw)
    assert refused.value.code == "INVALID_ACTION"
    portable = {
        "id": "urn:test:x",
        "version": "2.0.0",
        "state": {"fields": {}},
        "computed": {"fields": {}},
        "actions": {"rest": {"flow": {"kind": "seq", "steps": []}}},
    }
    with pytest.raises(RefusedError) as refused:
        load_domain({**portable, "migrations": {str(version): []}})
    (fault,) = refused.value.details["faults"]
    assert (refused.value.code, fault["code"]) == ("INVALID_SCHEMA", "SCHEMA_ERROR")
    assert fault["path"].startswith("$.migrations")
    assert f"{fault['path']}: {fault['message']}" in refused.value.message


@pytest.mark.requirement("WP-schema")
@pytest.mark.parametrize("kind", ["changed", "removed", "inside", "root"])
def test_a_migration_of_many_places_costs_a_few_patches(kind: str) -> None:
    """A patch for each place would copy the object around it each time."""
    many = {f"k{number}": {"n": number} if kind == "inside" else number for number in range(MANY)}
    data: Any = {**many, "$host": {"kept": 1}} if kind == "root" else {"many": many, "$host": {"kept": 1}}

    def migrate(old: dict[str, Any]) -> Any:
        if kind == "removed":
            return {"many": {}}
        if kind == "inside":
            return {"many": {name: {"n": one["n"] + 1} for name, one in old["many"].items()}}
        if kind == "root":
            return {name: one + 1 for name, one in old.items()}
        return {"many": {name: one + 1 for name, one in old["many"].items()}}

    frozen = freeze(data)
    assert isinstance(frozen, FrozenDict)
    patches = python_migration("1.0.0", migrate, ()).patches(frozen)
    assert len(patches) == 1
    plain = {name: value for name, value in data.items() if name != "$host"}
    assert thaw(apply_patches(frozen, patches)) == {**migrate(plain), "$host": {"kept": 1}}


@pytest.mark.requirement("WP-schema", "CARD-replay")
def test_a_realm_with_many_places_is_migrated_verified_and_rechecked(tmp_path: Path) -> None:
    def migrate(data: dict[str, Any]) -> Any:
        return {"counts": {name: n + 1 for name, n in data["counts"].items()}, "total": sum(data["counts"].values())}

    with adopted(str(tmp_path / "w.db"), migrate, 2_000) as realm:
        assert realm.data()["total"] == sum(range(2_000))
        assert verify(realm.log).ok
    with open_to_recheck(str(tmp_path / "w.db"), domain=domain_of("2.0.0", Total, migrate)) as realm:
        done = recheck(realm, every=True)
    assert (list(done.divergences), done.steps["migrations"]) == ([], 1)
