"""How a realm takes calls of coding agents, as far as operations need it; a server with ``[agents]`` has it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from world.error_codes import ErrorCode
from world.errors import RefusedError

if TYPE_CHECKING:
    from world.events.caller_events import NoticedBy
    from worldprotocol.agents.files.calls import FileCalls
    from worldprotocol.api.realm import Realm
    from worldprotocol.runs.boundary import Boundary

__all__ = ["CallerName", "CallerPresence", "CallsOfAgents", "HeardRuns", "agents_of"]

CallerName = tuple[str, str]
"""Actor, and the id of a session or the key of the call of a run."""


class HeardRuns(Protocol):
    """The runs of shell commands of a realm."""

    def hear(self, name: CallerName) -> None:
        """Note a sign of a run."""

    def drop(self, name: CallerName) -> None:
        """Forget a run."""

    def widen(self, actor_id: str, text: str) -> None:
        """Record that a text wrote outside of its declaration."""


class CallerPresence(Protocol):
    """What ends the calls of callers that are gone."""

    def renew(self, actor_id: str, sessions: Iterable[str], *, moves: bool) -> list[str]:
        """Note that sessions of an actor are there, and return those that another server holds."""

    def hear_run(self, name: CallerName, *, moves: bool) -> bool:
        """Note a sign of a run, and return whether this server holds it."""

    def take_run(self, name: CallerName) -> bool:
        """Record that this server holds a run, unless that began."""

    def end_session(
        self,
        name: CallerName,
        noticed_by: NoticedBy,
        *,
        until: int | None = None,
        is_late: bool = False,
        realm: Realm | None = None,
    ) -> list[str]:
        """End the calls of a session, and return the ids of their proposals."""


class CallsOfAgents(Protocol):
    """How a realm takes calls of tools of coding agents."""

    @property
    def boundary(self) -> Boundary:
        """What confines shell commands."""

    @property
    def files(self) -> FileCalls:
        """The contents of files that calls read and write."""

    @property
    def running(self) -> HeardRuns:
        """The runs of shell commands in progress."""

    def absent(self, realm: Realm) -> CallerPresence:
        """Return what ends the calls of callers that are gone."""

    def workspace_to_wire(self) -> dict[str, Any]:
        """Return the workspace as a run needs it."""


Agents = TypeVar("Agents")


def agents_of(realm: str, agents: Agents | None) -> Agents:
    """Return how a realm takes calls of coding agents.

    Args:
        realm: name of the realm.
        agents: how it takes them; None where it does not.

    Raises:
        RefusedError: ``HOOKS_NOT_CONFIGURED``.
    """
    if agents is None:
        raise RefusedError(
            ErrorCode.HOOKS_NOT_CONFIGURED,
            f"The realm {realm} takes no hooks: add the section [agents] to its world.toml, and start the server "
            "again.",
        )
    return agents
