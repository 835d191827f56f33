"""Independent model of claims: which worker holds which effect, by the events of the log alone (HC-journal)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from worldprotocol.simulation.found import hold

__all__ = ["ClaimModel"]

CANCELLED_FOR_MS: Final = 15_000
Told = Mapping[str, Any]
Key = tuple[str, str]


class ClaimModel:
    """The claims of one log."""

    def __init__(self) -> None:
        """Begin without claims."""
        self.offered: dict[Key, Told] = {}
        self.held: dict[Key, dict[str, Any]] = {}
        self.answered: set[int] = set()
        self.dropped: Counter[int] = Counter()
        self._last_token = 0

    def take(self, topic: str, rendered: Told) -> None:
        """Take in one event."""
        if topic in ("proposal.completed", "proposal.failed"):
            for key in [key for key in self.offered if key[0] == rendered["proposalId"]]:
                self.offered.pop(key)
                self.held.pop(key, None)
        if topic == "execution.cancelled":
            self._hurry(rendered["proposalId"], rendered["at"] + CANCELLED_FOR_MS)
        step = getattr(self, "_" + topic.partition(".")[2], None) if topic.startswith("effect.") else None
        if step is not None:
            requirement = rendered.get("requirement")
            name = rendered["requirementId"] if requirement is None else requirement["id"]
            step((rendered["proposalId"], name), rendered)

    def _hurry(self, proposal_id: str, deadline: int) -> None:
        """Let the claims of an actor on its own calls end soon after their cancellation."""
        for key, held in self.held.items():
            if key[0] == proposal_id and self.offered[key]["offer"].get("byActor"):
                held["deadline"] = min(held["deadline"], deadline)

    def is_held(self, key: Key, claim: Told) -> bool:
        """Return whether a claim holds an effect: its id, its token and its worker."""
        held = self.held.get(key)
        return held is not None and all(held[part] == claim[part] for part in ("claimId", "token", "worker"))

    def _requested(self, key: Key, rendered: Told) -> None:
        hold("HC-journal", f"effect {key[1]} is requested while a worker has it", key not in self.held)
        offer = rendered.get("offer")
        if offer is not None:
            hold("HC-journal", "an offered effect has a deadline", rendered["deadline"] == 0)
            self.offered[key] = rendered
        else:
            hold("HC-journal", f"effect {key[1]} is not offered any more", key not in self.offered)

    def _claimed(self, key: Key, rendered: Told) -> None:
        hold("HC-journal", f"effect {key[1]} is claimed and not offered", key in self.offered)
        hold("HC-journal", f"effect {key[1]} is claimed twice", key not in self.held)
        is_larger = rendered["token"] > self._last_token
        hold("HC-journal", f"token {rendered['token']} does not exceed {self._last_token}", is_larger)
        self._last_token = rendered["token"]
        self.held[key] = dict(rendered)

    def _extended(self, key: Key, rendered: Told) -> None:
        self._of_holder(key, rendered)
        self.held[key]["deadline"] = rendered["deadline"]

    def _lapsed(self, key: Key, rendered: Told) -> None:
        self._of_holder(key, rendered)
        self._is_overdue(key, rendered)
        del self.held[key]

    def _in_doubt(self, key: Key, rendered: Told) -> None:
        if key in self.offered:
            hold("HC-journal", f"effect {key[1]} is in doubt and not claimed", key in self.held)
            self._is_overdue(key, rendered)
            del self.held[key]

    def _fulfilled(self, key: Key, rendered: Told) -> None:
        self._answer(key, rendered)
        self.offered.pop(key, None)

    def _retried(self, key: Key, rendered: Told) -> None:
        self._answer(key, rendered)

    def _dropped(self, key: Key, rendered: Told) -> None:
        claim = rendered.get("claim")
        if claim is not None:
            self.dropped[claim["token"]] += 1
            hold("HC-journal", f"the report of {claim['worker']} was dropped in error", not self.is_held(key, claim))

    def _answer(self, key: Key, rendered: Told) -> None:
        claim = rendered.get("claim")
        if claim is None:
            hold("HC-journal", f"a result of {key[1]} without the claim that holds it", key not in self.held)
            return
        hold("HC-journal", f"a result of {key[1]} under a claim that does not hold it", self.is_held(key, claim))
        self.answered.add(claim["token"])
        del self.held[key]

    def _of_holder(self, key: Key, rendered: Told) -> None:
        held = self.held.get(key)
        is_own = held is not None and (held["claimId"], held["token"]) == (rendered["claimId"], rendered["token"])
        hold("HC-journal", f"claim {rendered['claimId']} does not hold effect {key[1]}", is_own)

    def _is_overdue(self, key: Key, rendered: Told) -> None:
        deadline = self.held[key]["deadline"]
        hold("HC-journal", f"a claim ends at {rendered['at']}, before {deadline}", rendered["at"] > deadline)
