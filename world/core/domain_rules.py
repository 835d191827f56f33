"""Versions of the rules of a domain. An adoption records one, so older logs are computed again under theirs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from world.core.values import strict_equal
from world.model.immutable_json import FrozenDict
from world.model.patch import Patch

__all__ = ["OWN_NAMES_RULES", "PORTABLE_NAMES", "RULES", "STRICT_RULES", "written_own_name"]

STRICT_RULES: Final = 2
"""From this version on an availability that is neither true nor false is an error, and the action is unavailable.

Under version 1, that of an adoption that records none, an availability counts by its truth: 1 and "no" are true.
"""

OWN_NAMES_RULES: Final = 3
"""From this version on top-level names that begin with ``$`` belong to the engine, since no snapshotHash covers them.

A state declares none, an action writes none, and the marks of once guards are part of the execution. Under earlier
versions an action may write them, and the marks are written below ``$mel``.
"""

RULES: Final = OWN_NAMES_RULES
"""Version that an adoption records now."""

PORTABLE_NAMES: Final = ("$host", "$mel")
"""Members of a snapshot that ``apply`` of the portable core may write for a host; each is an object."""


def written_own_name(data: FrozenDict, patch: Patch) -> str | None:
    """Return the first top-level name beginning with ``$`` that a patch writes or removes; None where it does neither.

    Args:
        data: the data before the patch.
        patch: the change; one of the whole data may repeat the members that are there.
    """
    if patch.path:
        return patch.path.partition(".")[0] if patch.path.startswith("$") else None
    new = patch.value if isinstance(patch.value, Mapping) else {}
    names = [name for name in new if name.startswith("$")]
    if patch.op == "set":
        names += [name for name in data if name.startswith("$") and name not in new]
    return next((name for name in names if not _is_equal(data, new, name)), None)


def _is_equal(data: FrozenDict, new: Mapping[str, object], name: str) -> bool:
    return name in data and name in new and strict_equal(data[name], new[name])
