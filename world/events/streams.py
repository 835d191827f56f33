"""Names of the streams that are not the stream of one proposal, projection or run."""

from __future__ import annotations

from typing import Final

__all__ = ["KLIS_STREAM", "LINEAGE_STREAM", "REALM_STREAM"]

REALM_STREAM: Final = "realm"
"""Events of the registry: creation, domains, actors, bindings and policies."""

LINEAGE_STREAM: Final = "lineage"
"""Events of worlds and branches."""

KLIS_STREAM: Final = "klis"
"""Events of leases."""
