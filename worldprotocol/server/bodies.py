"""Bodies of requests, read strictly, and parameters of queries."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = [
    "CallToBegin",
    "CommandToRun",
    "Name",
    "RunToBegin",
    "RunToContinue",
    "RunToEnd",
    "SessionToEnd",
    "SessionsToRenew",
    "StrictBody",
]

REPORTED: Final = 5
"""Unknown members of a body that are reported."""

Name = Annotated[str, Field(min_length=1, max_length=1_000)]
Word = Annotated[str, Field(max_length=1_000_000)]
Reason = Annotated[str, Field(min_length=1, max_length=10_000)]


class StrictBody(BaseModel):
    """Base of all bodies: unknown members are refused, of which the first ones are reported."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _with_few_unknown(cls, value: Any) -> Any:
        """Leave out all but the first unknown members: each would become an error with a description of its own."""
        names = cls.model_fields
        if not isinstance(value, dict) or len(value) <= len(names) + REPORTED:
            return value
        unknown = islice((name for name in value if name not in names), REPORTED)
        return {name: value[name] for name in (*(one for one in names if one in value), *unknown)}


class TerminalOfCaller(StrictBody):
    """The terminal of a caller: its size in characters, and the variables TERM, COLORTERM and NO_COLOR."""

    columns: Annotated[int, Field(ge=1, le=10_000)]
    lines: Annotated[int, Field(ge=1, le=10_000)]
    term: Annotated[str, Field(max_length=100)] = ""
    colorTerm: Annotated[str, Field(max_length=100)] = ""  # noqa: N815  # wire form
    noColor: Annotated[str, Field(max_length=100)] = ""  # noqa: N815

    def environ(self) -> dict[str, str]:
        """Return it as variables of an environment."""
        named = {"TERM": self.term, "COLORTERM": self.colorTerm, "NO_COLOR": self.noColor}
        size = {"COLUMNS": str(self.columns), "LINES": str(self.lines)}
        return size | {name: value for name, value in named.items() if value}


class CommandToRun(StrictBody):
    """A command of `worldctl`: its words, and in base64 the contents of the files that they name, and of stdin."""

    arguments: Annotated[list[Word], Field(max_length=10_000)]
    files: Annotated[dict[Word, str], Field(max_length=1_000)] = {}
    stdin: str | None = None
    terminal: TerminalOfCaller | None = None


class CallToBegin(StrictBody):
    """A call of a tool that the caller is about to make; its key is the ``Idempotency-Key``.

    With ``claim`` false, it is only asked whether the call may be begun.
    """

    action: Name
    input: dict[str, Any]
    claim: bool = True
    scope: Annotated[list[Name], Field(max_length=10_000)] = []
    trace: dict[str, Any] | None = None
    branch: Name | None = None
    attempt: Annotated[str, Field(pattern="^[A-Za-z0-9-]{1,40}$")] | None = None


class SessionsToRenew(StrictBody):
    """Sessions of the caller's agents whose processes are there.

    `moves`: whether one that another server holds moves to the one that answers.
    """

    sessions: Annotated[list[Name], Field(max_length=1_000)]
    moves: bool = False


class SessionToEnd(StrictBody):
    """A session whose program has ended; `noticedBy` is how that was noticed.

    `endedAt`: when it ended by the clock of the server (`now` of a renewal), ms since 1970. Calls that were begun later
    are those of a program that continues the session, and stay. Without it, the time is that of the request.
    """

    session: Name
    noticedBy: Literal["process"] = "process"  # noqa: N815
    endedAt: int | None = Field(default=None, ge=0, le=2**53)  # noqa: N815


class RunByKey(StrictBody):
    """The run of a shell command, by the key of its call."""

    key: Name


class RunToContinue(RunByKey):
    """A run that asks whether it continues; one whose command has ended asks what others changed meanwhile.

    `moves`: whether one that another server holds moves to the one that answers.
    """

    isEnding: bool = False  # noqa: N815
    moves: bool = False


class RunToBegin(RunByKey):
    """The run of a shell command that is about to begin: the text it was given, and the boundary that it found."""

    text: Word
    boundary: Literal["namespaces", "container", "none"]
    isUnconfined: bool = False  # noqa: N815


class RunToEnd(RunByKey):
    """How the run of a shell command ended: by an exit code, or a code and a reason; and what was observed.

    ``isWithin`` says of a violation that it only concerned files of the workspace.
    """

    exitCode: int | None = None  # noqa: N815
    code: Annotated[str, Field(pattern="^[A-Z_]{1,64}$")] | None = None
    reason: Annotated[str, Field(max_length=10_000)] = ""
    heldBy: Annotated[list[Name], Field(max_length=20)] = []  # noqa: N815
    changed: Annotated[list[Word], Field(max_length=1_000)] = []
    isWithin: bool = False  # noqa: N815
    observed: Annotated[list[dict[str, Any]], Field(max_length=10_000)] = []
    violations: Annotated[list[dict[str, Any]], Field(max_length=1_000)] = []
