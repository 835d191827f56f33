"""A command of a verified caller, as the program that executes commands gets it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from world.state.proposal import Proposal
    from worldprotocol.api.bootstrap import LoggedEvent
    from worldprotocol.api.realm import Realm
    from worldprotocol.server.commands.output import CommandOutput

__all__ = ["CommandRequest", "Following", "RunCommand"]


@dataclass(frozen=True, slots=True)
class Following:
    """How a command continues with events that are committed later, without a thread meanwhile.

    Args:
        after: position of the last event that it was given.
        topics: only events of these topics; None is all.
        take: takes an event and returns whether it was the last one.
    """

    after: int
    topics: Collection[str] | None
    take: Callable[[LoggedEvent], bool]


@dataclass(slots=True)
class CommandRequest:
    """A command to execute: its words were checked, and name no file of the server.

    Args:
        words: the words after ``worldctl``.
        reader: the realm for reading.
        acting: the realm for acting as the caller.
        output: takes what it prints.
        files: contents by the names in the words.
        stdin: content of the caller's stdin.
        terminal: environment variables that describe the caller's terminal; None where its stdout is none.
        may_see: whether the caller may read a proposal.
        may_list: whether an ambiguous name may be answered with what it could mean.
        following: set by the command where it continues with later events.
    """

    words: Sequence[str]
    reader: Realm
    acting: Realm
    output: CommandOutput
    files: Mapping[str, bytes]
    stdin: bytes
    terminal: Mapping[str, str] | None
    may_see: Callable[[Proposal], bool]
    may_list: bool
    following: Following | None = None


RunCommand = Callable[[CommandRequest], int]
"""Executes a command in the calling thread and returns its exit code; raises ``CommandStoppedError``."""
