"""How an operation is used on the command line, and what people see of its answer.

The command line derives a command from this and from the request: its members are options, or arguments where
``Command.arguments`` names them. What people see depends on the answer alone, so it is the same over a server.
Source: docs/contributing.md, "An HTTP endpoint, or a command on it".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

__all__ = ["BY_OPERATOR", "AnswerView", "Caller", "Command", "IdOf", "Table"]

A = TypeVar("A")

IdKind = Literal["lease", "proposal", "world"]


@dataclass(frozen=True, slots=True)
class IdOf:
    """Marks a text of a request that is an id: ``Annotated[Name, IdOf("lease")]``.

    A person may write its beginning, which `names.find` completes before the request is sent.
    """

    kind: IdKind


@dataclass(frozen=True, slots=True)
class Table:
    """A table; ``empty`` is the remark in place of one without rows."""

    heads: Sequence[str]
    rows: Sequence[Sequence[Any]]
    empty: str = "nothing"


@dataclass(frozen=True, slots=True)
class AnswerView:
    """What people see of an answer.

    Args:
        parts: tables and lines of text.
        remarks: lines on stderr, which are no result.
        has_findings: whether the command ends with the exit code for findings.
    """

    parts: Sequence[Table | str]
    remarks: Sequence[str] = ()
    has_findings: bool = False


@dataclass(frozen=True, slots=True)
class Caller:
    """The option that names the actor that acts; over a server it has to be the verified one.

    Args:
        option: such as ``--by``.
        default: the actor where neither the option nor a server says it; None requires the option there.
        text: what the option is.
    """

    option: str
    default: str | None
    text: str


BY_OPERATOR = Caller("--by", "operator", "Actor that the record names.")
"""The caller of what an operator does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command(Generic[A]):
    """The command that performs an operation.

    Args:
        words: its words, such as ``lease release``.
        view: what people see of an answer.
        arguments: members of the request that are arguments, in their order.
        options: options of members that are not called by the member's name, such as ``{"session_id": "--session"}``.
        caller: the option that names the actor; None for an operation that concerns no actor.
    """

    words: str
    view: Callable[[A], AnswerView | Table | str]
    arguments: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    caller: Caller | None = None

    def shown(self, answer: A) -> AnswerView:
        """Return what people see of an answer."""
        found = self.view(answer)
        return found if isinstance(found, AnswerView) else AnswerView((found,))
