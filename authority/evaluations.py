"""Evaluations of rules: what their texts and functions mean, by what the adoption of a policy recorded.

Under evaluation 2 conditions have the answers of CEL, and rules in Python are guarded. Policies that were adopted under
evaluation 1 have the answers of the CEL library and no guard, so that recorded rulings stay equal. Source: CARD-replay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from world.model.identity import RULES_IDENTITY

EVALUATION: Final = 2
"""The evaluation of rules that are loaded."""

EARLIER: Final = 1


def evaluation_of(description: Mapping[str, Any]) -> int:
    """Return the evaluation of a policy from its description."""
    return EVALUATION if description.get("identity") == RULES_IDENTITY else EARLIER
