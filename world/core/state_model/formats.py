"""Text formats and patterns of state models.

A format is asserted: ``date`` and ``date-time`` as RFC 3339 defines them (a date-time has an offset), ``uuid`` as RFC
9562 does. A pattern is a regular expression of Rust's ``regex`` crate, the one that pydantic uses; it is searched
anywhere in the text, in time linear in its length.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date
from typing import Final

from pydantic_core import SchemaError, SchemaValidator, core_schema

__all__ = ["FORMATS", "Pattern"]

_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME: Final = re.compile(
    r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
)
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def _is_date(text: str) -> bool:
    if not _DATE.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_date_time(text: str) -> bool:
    return text[10:11] in ("T", "t") and _is_date(text[:10]) and _TIME.fullmatch(text[11:]) is not None


def _is_uuid(text: str) -> bool:
    return _UUID.fullmatch(text) is not None


FORMATS: Final[Mapping[str, tuple[Callable[[str], bool], str]]] = {
    "date": (_is_date, "a date such as 2026-01-31"),
    "date-time": (_is_date_time, "a date and time with an offset, such as 2026-01-31T12:00:00Z"),
    "uuid": (_is_uuid, "a UUID such as 0b9f7c1e-3a52-4d7e-9a55-6f1f0c2f8a11"),
}
"""Supported formats: the check of a text, and the noun of messages."""


class Pattern:
    """A compiled pattern.

    Args:
        source: the regular expression.

    Raises:
        ValueError: it is not one; the message says why.
    """

    __slots__ = ("_matcher", "source")

    def __init__(self, source: str) -> None:
        """Compile a pattern."""
        self.source = source
        try:
            self._matcher = SchemaValidator(core_schema.str_schema(pattern=source, regex_engine="rust-regex"))
        except SchemaError as error:
            raise ValueError(" ".join(str(error).split())) from None

    def matches(self, text: str) -> bool:
        """Return whether the pattern is found in a text."""
        return self._matcher.isinstance_python(text)
