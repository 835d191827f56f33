"""The log, with the events that are committed meanwhile."""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import urlencode

from fastapi import Header, Query, Request, Response
from pydantic import BaseModel, Field

from world.events.codec import TOPICS
from worldprotocol.operations.calling import read_request
from worldprotocol.operations.log import read_log, stream_log
from worldprotocol.server.endpoints import streamed
from worldprotocol.server.pages.page_call import open_page
from worldprotocol.server.pages.page_table import shows

MOST: Final = 100

Place = Annotated[int | None, Query(ge=0, le=2**53)]


class FilterForm(BaseModel):
    """The form of the filter, as parameters of a query; an empty field is no condition."""

    types: str = Field(default="", max_length=4_000)
    stream: str = Field(default="", max_length=1_000)
    actor: str = Field(default="", max_length=1_000)
    text: str = Field(default="", max_length=1_000)

    @property
    def given(self) -> dict[str, str]:
        """The conditions that are given."""
        return {name: value for name, value in self.model_dump().items() if value}


@shows("log")
async def log(
    request: Request, wanted: Annotated[FilterForm, Query()], after: Place = None, before: Place = None
) -> Response:
    """Show events after a position, or the newest ones that match a filter, which the script follows."""
    opened = await open_page(request, "log.read")
    size = opened.call.view.position
    given = wanted.given
    if given:
        found = await opened.shown(read_log, {**given, "limit": MOST, "before": before, "order": "newest"})
        events, last = found["events"], found["upto"]
        values = {"after": found["after"], "older": found["next"], "is_newest": before is None}
    else:
        begin = max(0, size - MOST) if after is None else after
        found = await opened.shown(read_log, {"limit": MOST, "after": begin})
        events, last = found["events"][::-1], max(begin, found["upto"])
        values = {"after": begin, "older": None, "is_newest": last >= size}
    about = {"title": "Log", "events": events, "size": size, "last": last, "most": MOST, "wanted": wanted}
    is_live = values["is_newest"] and opened.may("log.stream")
    more = {"topics": sorted(TOPICS), "conditions": urlencode(given), "is_live": is_live}
    return await opened.show("log", {**about, **values, **more})


@shows("log_stream")
async def log_stream(
    request: Request,
    wanted: Annotated[FilterForm, Query()],
    after: Place = None,
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
) -> Response:
    """Stream the events after a position that match a filter, as the operation ``log.stream`` does."""
    opened = await open_page(request, "log.stream")
    members = {**wanted.given, "after": last_event_id or after}
    return await streamed(stream_log, opened.of("log.stream"), read_request(stream_log, members, "query", strict=False))
