"""Projections: from what happened outside to an intent. They read a snapshot and never change a world.

    SourceEvent, actor, SnapshotView --ProjectionRegistry.route--> Routed --Issuer.issue--> IntentInstance

``record_of`` says what is written down about it, and ``recheck_projection`` goes the way again from the
record. Every projection is asked under guard; ``Guard`` asks it twice. A system may also produce an intent itself
(``direct``).

    SnapshotView, actor, the schema's actions --CatalogProjector--> ActionCatalog --tools_of--> ToolSet

Catalogs tell which actions there are for an actor in a state. Source: the intent specification, sections 3 to 15.
"""

from projections.catalog import (
    ActionCatalog,
    ActionCatalogProjector,
    CatalogProjector,
    CatalogRequest,
    ProjectedAction,
    Pruning,
    static_catalog,
)
from projections.contract import (
    DIRECT_PREFIX,
    ROUTER,
    FunctionProjection,
    Projection,
    ProjectionRequest,
    ask,
    projection,
)
from projections.deciding import Availability
from projections.descriptors import ActionDescriptor, descriptors_of
from projections.direct import check_direct, direct, is_direct
from projections.explaining import Explanation, explain_catalog
from projections.issuer import Issuer, IssueRequest
from projections.loading import ENTRY_POINTS, find_projections, load_projections
from projections.purity.guard import Guard, guarded
from projections.recheck import recheck_projection
from projections.recorder import ProjectionRecord, record_of, routed_refusal, worth_recording
from projections.registry import (
    InvocationMode,
    Once,
    ProjectionRegistry,
    Registered,
    Routed,
    UnsafeUnguarded,
)
from projections.results import Answer, NoIntent, ProjectionResult, Select
from projections.tools import Tool, ToolSet, action_type, tool_name, tools_of

__all__ = [
    "DIRECT_PREFIX",
    "ENTRY_POINTS",
    "ROUTER",
    "ActionCatalog",
    "ActionCatalogProjector",
    "ActionDescriptor",
    "Answer",
    "Availability",
    "CatalogProjector",
    "CatalogRequest",
    "Explanation",
    "FunctionProjection",
    "Guard",
    "InvocationMode",
    "IssueRequest",
    "Issuer",
    "NoIntent",
    "Once",
    "ProjectedAction",
    "Projection",
    "ProjectionRecord",
    "ProjectionRegistry",
    "ProjectionRequest",
    "ProjectionResult",
    "Pruning",
    "Registered",
    "Routed",
    "Select",
    "Tool",
    "ToolSet",
    "UnsafeUnguarded",
    "action_type",
    "ask",
    "check_direct",
    "descriptors_of",
    "direct",
    "explain_catalog",
    "find_projections",
    "guarded",
    "is_direct",
    "load_projections",
    "projection",
    "recheck_projection",
    "record_of",
    "routed_refusal",
    "static_catalog",
    "tool_name",
    "tools_of",
    "worth_recording",
]
