"""Faults of adoptions, holds and refused states to plant in the engine, for ``test_adoptions``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

import world.core.execution
import world.core.state_model.checking as checking
import world.core.validate
import world.engine.domain_adoption
import world.pipeline.adopted_code.adoption_plan
import world.pipeline.driver
import world.pipeline.execute
import world.pipeline.judge
import world.pipeline.submit
from world.core import Domain
from world.model.patch import set_
from worldprotocol.simulation import SimulationStep

PLAN: Any = world.pipeline.adopted_code.adoption_plan
Plant = Callable[[pytest.MonkeyPatch], None]


def _no(*_: Any, **__: Any) -> bool:
    return False


def migrations_change_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PLAN, "migrated_patches", lambda *_: ((), []))


def migrations_change_more(patch: pytest.MonkeyPatch) -> None:
    made = PLAN.migrated_patches

    def more(*given: Any) -> Any:
        patches, left = made(*given)
        return (*patches, set_("counters.a", 1)), left

    patch.setattr(PLAN, "migrated_patches", more)


def one_branch_is_not_migrated(patch: pytest.MonkeyPatch) -> None:
    migrate, seen = world.engine.domain_adoption._migrate_branch, list[str]()

    def first_only(work: Any, plan: Any, branch: Any, by: str) -> None:
        if branch is plan.branches[0]:
            seen.append(branch.branch)
            migrate(work, plan, branch, by)

    patch.setattr(world.engine.domain_adoption, "_migrate_branch", first_only)


def what_a_migration_leaves_unfit_is_adopted(patch: pytest.MonkeyPatch) -> None:
    made = PLAN.migrated_patches
    patch.setattr(PLAN, "migrated_patches", lambda *given: (made(*given)[0], []))


def nothing_is_carried_over(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(world.engine.domain_adoption, "_carry_over", _no)


def what_is_carried_over_is_changed(patch: pytest.MonkeyPatch) -> None:
    carry = world.engine.domain_adoption._carry_over
    first: list[Any] = []

    def mixed(work: Any, proposal: Any, new_id: str) -> None:
        first.append(proposal)
        carry(work, first[0], new_id)

    patch.setattr(world.engine.domain_adoption, "_carry_over", mixed)


def a_policy_that_was_not_adopted_judges(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(world.pipeline.judge, "hold", _no)


def a_policy_that_was_not_adopted_rules(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(world.pipeline.judge, "hold", _no)
    patch.setattr(world.pipeline.judge, "in_force", lambda _work, ruling, _binding: ruling)


def nothing_is_released(patch: pytest.MonkeyPatch) -> None:
    def none(_: Any) -> Iterator[Any]:
        return iter(())

    patch.setattr(world.pipeline.driver, "released", none)


def code_that_was_not_adopted_executes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Domain, "changed", lambda *_: ())


def states_are_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(world.core.validate, "_model_patch_fault", lambda *_: None)
    patch.setattr(world.core.execution, "check_state", lambda *_: [])
    patch.setattr(Domain, "state_faults", lambda *_: [])


def validators_do_not_run(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Domain, "state_faults", lambda *_: [])


def every_state_is_refused_at_an_edge(patch: pytest.MonkeyPatch) -> None:
    """A maximum is taken for an exclusive one."""
    faults = checking._number_faults

    def strict(node: Any, value: Any, at: Any) -> Any:
        bounds = dict(node.bounds)
        if "maximum" in bounds:
            bounds["exclusiveMaximum"] = bounds.pop("maximum")
        yield from faults(type(node)(bounds=bounds), value, at)

    patch.setattr(checking, "_number_faults", strict)


def inputs_are_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(world.pipeline.submit, "check_input", lambda *_: [])


FOUND_BY: Mapping[Plant, set[str]] = {
    migrations_change_nothing: {"WP-schema", "CRASH"},
    migrations_change_more: {"WP-schema", "WP-exec"},
    one_branch_is_not_migrated: {"WP-schema"},
    what_a_migration_leaves_unfit_is_adopted: {"WP-schema", "CRASH"},
    nothing_is_carried_over: {"WP-epoch"},
    what_is_carried_over_is_changed: {"INT-6.1.2"},
    a_policy_that_was_not_adopted_judges: {"CARD-policy"},
    a_policy_that_was_not_adopted_rules: {"CARD-policy"},
    nothing_is_released: {"CARD-policy"},
    code_that_was_not_adopted_executes: {"WP-exec"},
    states_are_not_checked: {"WP-schema"},
    validators_do_not_run: {"WP-schema"},
    every_state_is_refused_at_an_edge: {"WP-schema", "INT-6.1.2"},
    inputs_are_not_checked: {"IC-validate", "INT-6.1.2"},
}
"""Each fault, and the requirements by one of which it must be found."""

SCRIPTS: Mapping[Plant, list[SimulationStep]] = {
    code_that_was_not_adopted_executes: [
        SimulationStep("program", 0, {"which": 2, "adopt": False}),
        SimulationStep("submit", 0, {"actor": 0, "type": "add", "input": {"to": "a", "by": 3}}),
    ],
}
"""Steps that bring a fault to light which seeds seldom meet."""
