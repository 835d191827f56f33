"""The computation core: domains, expressions, flows, compute and apply, all pure.

``compute`` maps a snapshot, an intent, a context and the journal of effect results to a
computation. This package reads no clock, no randomness and no external state.
Source: design section 4; HC-compute, HC-flow, IC-action.
"""

from world.core.availability import AvailabilityContext, LocalPredicate
from world.core.compute import Computation, apply, availability, compute, genesis
from world.core.derive import recompute
from world.core.domain import Domain
from world.core.domain_files import load_domain
from world.core.effects.effect_types import EffectCall, EffectType, effect
from world.core.effects.ungoverned_host import UngovernedHost, create_host
from world.core.execution import ComputeContext, EffectAnswer, Invocation
from world.core.expressions.expression import compile_expression
from world.core.expressions.expression_ast import check_expression, dependencies
from world.core.expressions.scope import Scope
from world.core.python_action import (
    ActionContext,
    ActionFailedError,
    ActionSteps,
    EffectFailedError,
)
from world.core.schema import DomainSchema, load_schema, unchecked_schema
from world.core.values import ExpressionError
from world.model.patch import Patch, merge, scope_allows, set_, unset

__all__ = [
    "ActionContext",
    "ActionFailedError",
    "ActionSteps",
    "AvailabilityContext",
    "Computation",
    "ComputeContext",
    "Domain",
    "DomainSchema",
    "EffectAnswer",
    "EffectCall",
    "EffectFailedError",
    "EffectType",
    "ExpressionError",
    "Invocation",
    "LocalPredicate",
    "Patch",
    "Scope",
    "UngovernedHost",
    "apply",
    "availability",
    "check_expression",
    "compile_expression",
    "compute",
    "create_host",
    "dependencies",
    "effect",
    "genesis",
    "load_domain",
    "load_schema",
    "merge",
    "recompute",
    "scope_allows",
    "set_",
    "unchecked_schema",
    "unset",
]
