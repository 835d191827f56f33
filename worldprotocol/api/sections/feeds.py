"""Section ``[feeds.NAME]`` of ``world.toml``: events that are delivered to another program, or to a file.

docs/feeds.md lists all of its keys.
"""

from __future__ import annotations

import ipaddress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, StringConstraints, field_validator, model_validator

from world.errors import RefusedError
from world.klis.resources.canonical_url import canonical_url
from world.model.secrets.literal import SECRET_HEADERS
from world.model.secrets.references import has_reference, is_literal
from worldprotocol.api.sections.section import Section

__all__ = ["FeedConfig", "FeedName"]

FeedName = Annotated[str, StringConstraints(pattern="^[a-z0-9][a-z0-9-]{0,40}$")]

_OWN_HEADERS = frozenset(
    {"host", "content-length", "content-type", "transfer-encoding", "connection", "accept-encoding"}
)


class FeedConfig(Section):
    """Section ``[feeds.NAME]``; times are in seconds (``_s``) and milliseconds (``_ms``). See docs/feeds.md."""

    url: str | None = None
    file: str | None = None
    format: Literal["cloudevents", "ocsf", "json"] = "cloudevents"
    secret: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    events: Annotated[list[str], Field(min_length=1)] | None = None
    redact: list[str] = Field(default_factory=list)
    batch: int | None = Field(default=None, ge=1, le=1_000)
    start: Literal["beginning", "end"] = "beginning"
    state: str | None = None
    timeout_s: int = Field(default=15, ge=1, le=600)
    first_wait_ms: int = Field(default=1_000, ge=1)
    longest_wait_ms: int = Field(default=600_000, ge=1)
    max_attempts: int = Field(default=100, ge=1)
    unsafe_plain_http: bool = False

    @field_validator("events")
    @classmethod
    def _are_topics(cls, value: list[str] | None) -> list[str] | None:
        from world.events.codec import TOPICS

        for glob in value or ():
            if not any(fnmatchcase(topic, glob) for topic in TOPICS):
                raise ValueError(f"no event has the topic {glob!r}")
        return value

    @field_validator("headers")
    @classmethod
    def _are_headers(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if name.lower() in _OWN_HEADERS or name.lower().startswith("webhook-"):
                raise ValueError(f"the header {name} is set by the feed")
            if not (f"{name}{text}".isascii() and f"{name}{text}".isprintable()):
                raise ValueError(f"the header {name} is not printable ASCII")
            if name.lower() in SECRET_HEADERS and is_literal(text):
                raise ValueError(f"the header {name} is secret; write a reference, such as ${{secret:SIEM}}")
        return value

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.url is None) == (self.file is None):
            raise ValueError("a feed has either a url or a file")
        if self.url is None:
            if self.secret is not None or self.headers:
                raise ValueError("secret and headers are for feeds with a url")
            return self
        self._check_url(self.url)
        if self.secret is not None and not has_reference(self.secret):
            raise ValueError("secret is a reference, such as ${secret:AUDIT_HOOK}")
        if self.secret is None and not any(map(has_reference, self.headers.values())):
            raise ValueError("a feed with a url has a secret, or a header with a reference to one")
        return self

    def _check_url(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("https", "http") or not parts.hostname or has_reference(parts.netloc):
            raise ValueError("the url is not http or https with the name of a host")
        if parts.username is not None or parts.fragment:
            raise ValueError("the url names a user or a fragment; write credentials into headers, as references")
        try:
            canonical_url(url)
        except RefusedError as refused:
            raise ValueError(refused.message) from None
        if parts.scheme == "http" and not self.unsafe_plain_http and not _is_this_machine(parts.hostname):
            raise ValueError(f"{parts.hostname} is another machine, and http has no TLS; use https")

    @property
    def most_events(self) -> int:
        """Most events of one message."""
        return self.batch or (1 if self.file is None else 500)

    def in_folder(self, folder: Path) -> FeedConfig:
        """Return a copy with absolute paths; relative ones start at the given folder."""

        def absolute(name: str | None) -> str | None:
            return None if name is None else str((folder / Path(name).expanduser()).resolve())

        return self.model_copy(update={"file": absolute(self.file), "state": absolute(self.state)})


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
