"""Report of the lineage: first and newest worlds, branches, and counts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from world.events.proposal_events import ProposalCompleted, ProposalFailed
from world.events.realm_events import BranchCreated, BranchSwitched, WorldSealed
from world.model.record import WireForm
from worldprotocol.report.proposals import HIDDEN, Proposals
from worldprotocol.report.tally import EventPosition

__all__ = ["Gap", "LineagePart", "Node", "Twig"]

FIRST: Final = 20
"""Number of first worlds that are kept."""

NEWEST: Final = 200
"""Number of newest worlds that are kept."""

MAX_BRANCHES: Final = 100
"""Maximum number of listed branches; their heads are always drawn."""


@dataclass(frozen=True, slots=True)
class Node(WireForm):
    """One world.

    Args:
        number: its index among the worlds of the log, from 0.
        failed_before: number of failed worlds sealed before it.
        actor: the proposer of the world; empty without a proposal.
    """

    number: int
    failed_before: int
    position: int
    at: int
    world_id: str
    parent: str | None
    branch: str
    height: int
    is_failed: bool
    action: str
    actor: str
    error: str
    WIRE: ClassVar = "world_id parent position at branch height outcome action actor error=code?"

    @property
    def outcome(self) -> str:
        """How it ended."""
        return "failed" if self.is_failed else "completed"

    @property
    def code(self) -> str | None:
        """Code of its error; None without one."""
        return self.error or None


@dataclass(frozen=True, slots=True)
class Gap(WireForm):
    """Worlds that are not drawn: their number, the failed ones, and the position before them."""

    worlds: int
    failed: int
    after: int
    WIRE: ClassVar = "leftOut=worlds failed"


@dataclass(slots=True)
class Twig(WireForm):
    """One branch.

    Args:
        name: its name.
        position: position of its creation.
        start: the id of the world where it begins.
        start_position: that world's position; None if it is unknown.
        head: id of its last completed world.
        tip: id of its last world, completed or failed.
        moved: position of the event that moved it last.
        last: the head, if it is among the kept worlds.
        newest: the tip, if it is among the kept worlds.
    """

    name: str
    position: int
    start: str
    start_position: int | None
    head: str
    tip: str
    moved: int
    last: Node | None = None
    newest: Node | None = None
    worlds: int = 0
    failed: int = 0
    WIRE: ClassVar = "name position start head tip height=last.height worlds failed"


class LineagePart(WireForm):
    """Section of the report about worlds and branches.

    Args:
        proposals: the open proposals.
        position_of: returns the position of a world that is not kept; None if it is hidden.
    """

    WIRE: ClassVar = "worlds failed=_failed sealed=_counted active branches=listed drawn=pieces"

    def __init__(self, proposals: Proposals, position_of: Callable[[str], int | None]) -> None:
        self._proposals = proposals
        self._position_of = position_of
        self._first: list[Node] = []
        self._newest: deque[Node] = deque(maxlen=NEWEST)
        self._nodes: dict[str, Node] = {}
        self._failed = self._completed = 0
        self._counted = {"completed": 0, "failed": 0}
        self.branches: dict[str, Twig] = {}
        self.active = ""

    @property
    def worlds(self) -> int:
        """Number of worlds."""
        return self._completed + self._failed

    @property
    def listed(self) -> dict[str, Any]:
        """The listed branches, and how many more there are."""
        names = self._listed()
        return {"rows": [self.branches[name].to_wire() for name in names], "more": len(self.branches) - len(names)}

    @property
    def pieces(self) -> list[Node | Gap]:
        """The drawn worlds and the gaps between them, in log order."""
        return list(self.drawn())

    def steps(self) -> dict[type[Any], Callable[[Any, EventPosition], None]]:
        """Return the handler of each type of event."""
        return {
            WorldSealed: self._on_sealed,
            BranchCreated: self._on_created,
            BranchSwitched: self._on_switched,
            ProposalCompleted: self._on_ended,
            ProposalFailed: self._on_ended,
        }

    def drawn(self) -> Iterator[Node | Gap]:
        """Yield the drawn worlds, oldest first, and the gaps between them."""
        nodes = {one.number: one for one in (*self._first, *self._newest)}
        for name in self._listed():
            twig = self.branches[name]
            nodes |= {one.number: one for one in (twig.last, twig.newest) if one is not None}
        expected, failed, after = 0, 0, 0
        for number, node in sorted(nodes.items()):
            if number > expected:
                yield Gap(number - expected, node.failed_before - failed, after)
            yield node
            expected, failed, after = number + 1, node.failed_before + node.is_failed, node.position

    def _listed(self) -> list[str]:
        """Return the names of the listed branches: the first, the active, and the last moved ones."""
        names = list(self.branches)
        if len(names) <= MAX_BRANCHES:
            return names
        moved = sorted(names, key=lambda name: self.branches[name].moved, reverse=True)
        chosen = dict.fromkeys([names[0], *([self.active] if self.active in self.branches else []), *moved])
        kept = set(list(chosen)[:MAX_BRANCHES])
        return [name for name in names if name in kept]

    def _on_sealed(self, event: WorldSealed, moment: EventPosition) -> None:
        row = self._proposals.row(event.created_by)
        is_failed = event.outcome == "failed"
        action, actor = ("genesis" if event.parent is None else HIDDEN, "") if row is None else (row.action, row.actor)
        node = Node(
            self._completed + self._failed,
            self._failed,
            moment.position,
            event.at,
            event.world_id,
            event.parent,
            event.branch,
            event.height,
            is_failed,
            action,
            actor,
            "" if event.error is None else str(event.error.code),
        )
        if len(self._first) < FIRST:
            self._first.append(node)
        else:
            if len(self._newest) == NEWEST:
                self._nodes.pop(self._newest[0].world_id, None)
            self._newest.append(node)
        self._nodes[node.world_id] = node
        self._completed += not is_failed
        self._failed += is_failed
        if moment.counts:
            self._counted["failed" if is_failed else "completed"] += 1
        twig = self.branches.get(event.branch)
        if twig is not None:  # genesis is sealed before its branch is created
            twig.worlds += 1
            twig.failed += is_failed
            twig.moved, twig.tip, twig.newest = moment.position, node.world_id, node

    def _on_ended(self, event: ProposalCompleted | ProposalFailed, moment: EventPosition) -> None:
        """Move a branch to the world of a proposal."""
        twig = self.branches.get(event.branch)
        if twig is None:
            return
        twig.moved, twig.tip, twig.newest = moment.position, event.world_id, self._nodes.get(event.world_id)
        if isinstance(event, ProposalCompleted):
            twig.head, twig.last = twig.tip, twig.newest

    def _on_created(self, event: BranchCreated, moment: EventPosition) -> None:
        node, begin = self._nodes.get(event.world_id), event.world_id
        where = self._position_of(begin) if node is None else node.position
        twig = Twig(event.branch, moment.position, begin, where, begin, begin, moment.position, node, node)
        self.branches[event.branch] = twig
        self.active = self.active or event.branch

    def _on_switched(self, event: BranchSwitched, _moment: EventPosition) -> None:
        self.active = event.branch
