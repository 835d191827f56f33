"""Independent model of human answers, votes and time-outs, from the binding.

It covers bindings that ask human actors directly: ``hitl`` and ``tribunal``, with all their further steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from worldprotocol.simulation.found import hold

__all__ = ["ModelQuestion"]

Told = Mapping[str, Any]

_FOLLOWED: Final = ("hitl", "tribunal")
_AGREES: Final = ("approve", "narrow")


class ModelQuestion:
    """Asked actors of one proposal, their answers, and the expected next ruling.

    Args:
        binding: that the proposal is judged by.
        proposer: the proposing actor, which never decides.
    """

    def __init__(self, binding: Told, proposer: str) -> None:
        """Ask the first step with an eligible actor."""
        self.steps: Sequence[Told] = [binding, *binding.get("then", ())] if binding["kind"] in _FOLLOWED else ()
        self.proposer = proposer
        self.at = -1
        self.votes: dict[str, str | None] = {}
        self.is_narrowed = False
        self.deadline: int | None = None
        self.expects = ""
        self._go_on("reject")

    def take(self, ruling: Told, deadline: int | None, at: int) -> None:
        """Compare a ruling with what it must be; the first one included.

        Args:
            ruling: as it was recorded.
            deadline: until when it waits, ms.
            at: when it was made, ms.
        """
        if not self.steps:
            return
        verdict = ruling["verdict"]
        nothing_left = self.is_narrowed and (self.expects, verdict) == ("approve", "reject")
        what = f"the ruling is {verdict}, and by what was said so far it must be {self.expects}"
        hold("WP-bind", what, verdict == self.expects or nothing_left)
        if verdict != "wait":
            return
        left = [who for who, said in self.votes.items() if said is None]
        hold("WP-bind", f"{ruling['ask']} are asked, not {left}", list(ruling["ask"]) == left)
        hold("WP-bind", f"step {ruling.get('step', 0)} is not {self.at}", ruling.get("step", 0) == self.at)
        if self.deadline is None:
            limit = self.steps[self.at].get("timeoutMs")
            self.deadline = None if limit is None else at + limit
        hold("WP-decision", f"the time ends at {deadline}, not {self.deadline}", deadline == self.deadline)

    def answer(self, who: str, choice: str, to: str | None) -> None:
        """Count an answer."""
        if not self.steps or choice in ("ask", "reply"):
            return
        if choice == "escalate":
            self._go_on("refused")
            return
        self.is_narrowed |= choice == "narrow"
        if choice == "delegate":
            self.votes = {(str(to) if one == who else one): said for one, said in self.votes.items()}
        elif self._needed is None:
            self.expects = "approve" if choice in _AGREES else "reject"
        else:
            self._count(who, choice, self._needed)

    def time_out(self) -> None:
        """Take in that the time of this step is over."""
        if not self.steps:
            return
        end = self.steps[self.at].get("onTimeout", "reject")
        if end == "escalate":
            self._go_on("reject")
        else:
            self.expects = end

    @property
    def _needed(self) -> int | None:
        """How many must approve; None is any one."""
        return _needed(self.steps[self.at], len(self.votes))

    def _count(self, who: str, choice: str, needed: int) -> None:
        self.votes[who] = choice
        agreed = sum(said in _AGREES for said in self.votes.values())
        missing = sum(said is None for said in self.votes.values())
        if agreed >= needed:
            self.expects = "approve"
        elif agreed + missing < needed:
            self.expects = "reject"

    def _go_on(self, otherwise: str) -> None:
        """Ask the next step that has a voter; ``otherwise`` is the result where there is none."""
        for at in range(self.at + 1, len(self.steps)):
            one = self.steps[at]
            is_vote = "members" in one
            who = [member for member in one["members" if is_vote else "ask"] if not is_vote or member != self.proposer]
            needed = _needed(one, len(who))
            if len(who) >= needed > 0 if needed is not None else set(who) != {self.proposer}:
                self.at, self.votes, self.deadline = at, dict.fromkeys(who), None
                self.expects = "wait"
                return
        self.expects = otherwise


def _needed(step: Told, members: int) -> int | None:
    if "members" not in step:
        return None
    if step["rule"] == "threshold":
        threshold: int = step["threshold"]
        return threshold
    return members if step["rule"] == "unanimous" else members // 2 + 1
