"""The computation core: domains, expressions, flows, compute and apply, all pure.

``compute`` takes a snapshot, an intent, a context and the journal of effects made so far, and returns what
came of it. Nothing here reads a clock, draws a random number or touches the outside.
Source: design section 4; HC-compute, HC-flow, IC-action.
"""

from world.core.anatomy import check_expression, dependencies
from world.core.availability import AvailabilityContext, LocalPredicate
from world.core.compute import Computation, apply, availability, compute, genesis
from world.core.derive import recompute
from world.core.domain import Domain, load_domain
from world.core.execution import ComputeContext, EffectResult, Invocation
from world.core.expression import compile_expression
from world.core.python_action import (
    ActionContext,
    ActionFailed,
    ActionSteps,
    EffectCall,
    EffectFailed,
    effect,
)
from world.core.schema import DomainSchema, load_schema, unchecked_schema
from world.core.scope import Scope
from world.core.values import ExpressionError
from world.patch import Patch, merge, scope_allows, set_, unset

__all__ = [
    "ActionContext",
    "ActionFailed",
    "ActionSteps",
    "AvailabilityContext",
    "Computation",
    "ComputeContext",
    "Domain",
    "DomainSchema",
    "EffectCall",
    "EffectFailed",
    "EffectResult",
    "ExpressionError",
    "Invocation",
    "LocalPredicate",
    "Patch",
    "Scope",
    "apply",
    "availability",
    "check_expression",
    "compile_expression",
    "compute",
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
