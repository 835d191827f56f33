"""Bodies of requests, read strictly, and parameters of queries."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = [
    "CommandToRun",
    "Name",
    "StrictBody",
]

REPORTED: Final = 5
"""Unknown members of a body that are reported."""

Name = Annotated[str, Field(min_length=1, max_length=1_000)]
Word = Annotated[str, Field(max_length=1_000_000)]


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
