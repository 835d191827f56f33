"""History of a case in a file, from its listed earlier proposals.

It answers as the history of a log that contains these proposals (``world.state.ports.History``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Unpack

from world.pipeline.history_sums import add_up, check_conditions, check_length, check_path
from world.state.ports import Conditions


@dataclass(frozen=True, slots=True)
class Past:
    """Earlier proposals that were alike.

    Args:
        actor_id: the proposing actor.
        action: the intent's type.
        intent_key: the intent's meaning.
        decision: how they were decided, None where they were not.
        outcome: how their execution ended, None where it did not.
        at: when they were submitted, ms since 1970.
        input: of their intents.
        times: how many they are.
    """

    actor_id: str
    action: str
    intent_key: str
    decision: Literal["approved", "rejected"] | None
    outcome: Literal["completed", "failed"] | None
    at: int
    input: Any = None
    times: int = 1


@dataclass(frozen=True, slots=True)
class ListedHistory:
    """Implements ``world.state.ports.History`` over listed proposals.

    Args:
        past: the earlier proposals.
    """

    past: Sequence[Past]

    def count(self, **conditions: Unpack[Conditions]) -> int:
        """Count earlier proposals that match every given condition."""
        return sum(one.times for one in self._matching(conditions))

    def sum(self, path: str, **conditions: Unpack[Conditions]) -> int | float:
        """Sum a number in the inputs of earlier proposals that match every condition."""
        check_path(path)
        found = list(self._matching(conditions))
        check_length(sum(one.times for one in found))
        inputs = ((f"{at} of the listed history", one.input) for at, one in enumerate(found) for _ in range(one.times))
        return add_up(path, inputs)

    def _matching(self, conditions: Conditions) -> Iterator[Past]:
        asked = check_conditions(conditions)
        since = asked.pop("since_ms", None)
        for one in self.past:
            if all(getattr(one, name) == value for name, value in asked.items()) and (since is None or one.at >= since):
                yield one
