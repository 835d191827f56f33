"""Projections: from what happened outside to an intent. They read a snapshot and never change a world.

    SourceEvent, actor, SnapshotView --ProjectionRegistry.route--> Routed --Issuer.issue--> IntentInstance

``record_of`` says what is written down about it, and ``recheck_projection`` goes the way again from the
record. ``Guard`` asks projections without trusting them. A system may also produce an intent itself
(``direct``). Source: the intent specification, sections 3 to 14.
"""

from projections.contract import (
    DIRECT_PREFIX,
    ROUTER,
    FunctionProjection,
    Projection,
    ProjectionRequest,
    ask,
    projection,
)
from projections.direct import check_direct, direct, is_direct
from projections.guard import Guard, guarded
from projections.issuer import Issuer, IssueRequest
from projections.loading import ENTRY_POINTS, find_projections, load_projections
from projections.recheck import recheck_projection
from projections.recorder import ProjectionRecord, record_of, worth_recording
from projections.registry import (
    Asking,
    Directly,
    ProjectionRegistry,
    Registered,
    Routed,
)
from projections.results import Answer, Nothing, ProjectionResult, Selected

__all__ = [
    "DIRECT_PREFIX",
    "ENTRY_POINTS",
    "ROUTER",
    "Answer",
    "Asking",
    "Directly",
    "FunctionProjection",
    "Guard",
    "IssueRequest",
    "Issuer",
    "Nothing",
    "Projection",
    "ProjectionRecord",
    "ProjectionRegistry",
    "ProjectionRequest",
    "ProjectionResult",
    "Registered",
    "Routed",
    "Selected",
    "ask",
    "check_direct",
    "direct",
    "find_projections",
    "guarded",
    "is_direct",
    "load_projections",
    "projection",
    "recheck_projection",
    "record_of",
    "worth_recording",
]
