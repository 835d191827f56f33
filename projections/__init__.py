"""Projections: from what happened outside to an intent. They read a snapshot and never change a world."""

from projections.contract import (
    FunctionProjection,
    Nothing,
    Projection,
    ProjectionRequest,
    ProjectionResult,
    Selected,
    projection,
)
from projections.direct import check_direct, direct, is_direct
from projections.issuer import Issuer, IssueRequest
from projections.recheck import recheck_projection
from projections.recorder import ProjectionRecord, record_of, worth_recording
from projections.registry import ProjectionRegistry, Routed, find_projections, load_projections

__all__ = [
    "FunctionProjection",
    "IssueRequest",
    "Issuer",
    "Nothing",
    "Projection",
    "ProjectionRecord",
    "ProjectionRegistry",
    "ProjectionRequest",
    "ProjectionResult",
    "Routed",
    "Selected",
    "check_direct",
    "direct",
    "find_projections",
    "is_direct",
    "load_projections",
    "projection",
    "recheck_projection",
    "record_of",
    "worth_recording",
]
