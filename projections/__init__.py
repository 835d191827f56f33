"""Projections: from what happened outside to an intent. They read a snapshot and never change a world.

    SourceEvent, actor, SnapshotView --ProjectionRegistry.route--> Routed --Issuer.issue--> IntentInstance

``projector_of`` is the whole way, with its record; ``recheck_projection`` goes it again from the record. A system may
also produce an intent ``direct``-ly. Source: the intent specification, sections 3 to 14.
"""

from projections.contract import (
    DIRECT_PREFIX,
    ROUTER,
    Answer,
    FunctionProjection,
    Nothing,
    Projection,
    ProjectionRequest,
    ProjectionResult,
    Selected,
    ask,
    projection,
)
from projections.direct import check_direct, direct, is_direct
from projections.guard import Guard, guarded
from projections.issuer import Issuer, IssueRequest
from projections.projector import projector_of
from projections.recheck import recheck_projection
from projections.recorder import ProjectionRecord, record_of, worth_recording
from projections.registry import (
    ENTRY_POINTS,
    Asking,
    Directly,
    ProjectionRegistry,
    Registered,
    Routed,
    find_projections,
    load_projections,
)

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
    "projector_of",
    "recheck_projection",
    "record_of",
    "worth_recording",
]
