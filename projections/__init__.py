"""Projections: pure functions from source events to intents.

    SourceEvent, actor, SnapshotView --ProjectionRegistry.route--> Routed --Issuer.issue--> IntentInstance

Projections read a snapshot and never change a world. ``record_of`` returns the event that records a projection, and
``recheck_projection`` repeats the projection from that record. Every projection is called under guard; ``Guard`` calls
it twice. A system may also issue an intent without a projection (``direct``).

    SnapshotView, actor, the schema's actions --CatalogProjector--> ActionCatalog --tools_of--> ToolSet

A catalog lists the actions of an actor in a state. Source: the intent specification, sections 3 to 15.
"""

from projections.availability import Availability
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
from projections.descriptors import ActionDescriptor, descriptors_of
from projections.direct import Trigger, check_direct, direct, is_direct
from projections.explanation import Explanation, explain_catalog
from projections.issuer import Issuer, IssueRequest
from projections.loading import ENTRY_POINTS, find_projections, load_projections
from projections.purity.guard import Guard, guarded
from projections.recheck import recheck_projection
from projections.recorder import ProjectionRecord, RecordContext, record_of, routed_refusal, worth_recording
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
    "RecordContext",
    "Registered",
    "Routed",
    "Select",
    "Tool",
    "ToolSet",
    "Trigger",
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
