"""Independent model of callers: what a call whose caller left holds, by the events of the log alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from worldprotocol.simulation.found import hold

if TYPE_CHECKING:
    from worldprotocol.simulation.model import Model

__all__ = ["ENDINGS", "CallerModel"]

Told = Mapping[str, Any]

LEFT: Final = "caller left"
ENDINGS: Final = frozenset({LEFT, "not asked again"})
"""Reasons for which an undecided call ends without a person, a branch or a domain."""


class CallerModel:
    """The calls whose callers left.

    ``gone`` are all of them, ``sessions`` the sessions that left; steps add to ``repeated`` the approved calls whose
    callers ask again.
    """

    def __init__(self) -> None:
        """Begin with every caller present."""
        self.gone: set[str] = set()
        self.sessions: set[str] = set()
        self.repeated: set[str] = set()
        self._waiting: set[str] = set()
        self._held: set[str] = set()

    def take(self, topic: str, rendered: Told, model: Model) -> None:
        """Take in one event, before the rest of the model does."""
        name = rendered.get("proposalId", "")
        if topic == "caller.left":
            for one in rendered["calls"]:
                hold("WP-fsm", f"the caller of {one} left, and it has ended", one in model.open)
            self._waiting.update(rendered["calls"])
            if rendered["noticedBy"] in ("process", "renewal") and rendered.get("session") is not None:
                self.sessions.add(rendered["session"])
        elif topic == "proposal.held" and rendered["cause"] == "caller":
            self._held.add(name)
        elif topic == "proposal.superseded" and rendered.get("reason") == LEFT and rendered.get("by") is None:
            hold("WP-fsm", f"{name} ends because its caller left, and no record says so", name in self._waiting)
        elif topic == "decision.made":
            hold("WP-decision", f"{name} is decided after its caller left", name not in self._waiting)
            hold("WP-decision", f"{name} is decided for a dead caller", name not in self.gone)
            is_asked = name not in self._held or name in self.repeated
            hold("KM-2.2", f"{name} takes leases, and its caller did not ask again", is_asked)

    def check_commit(self, model: Model) -> None:
        """Check that what callers left holds nothing after the commit that says so."""
        self.gone |= self._waiting
        self._waiting.clear()
        for name in self.gone:
            one = model.processes[name]
            claims = [key for key in model.claims.held if key[0] == name]
            hold("KP-4a", f"the caller of {name} left, and it is claimed", not claims)
            owned = [lease for lease in model.leases.active.values() if lease.owner[1] == name]
            hold("KP-4a", f"the caller of {name} left, and it holds leases", not owned or one.ended is None)
            hold("KP-4a", f"the caller of {name} left, and it is open", one.ended is not None or one.doubtful)
