"""One request for a page: its session, and what the operations of the API return for its caller."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
import orjson
from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse
from msgspec import to_builtins

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.read_models.value_tracking import joined
from worldprotocol.html_pages.environment import environment
from worldprotocol.operations import AnswerForm, RequestForm
from worldprotocol.operations.calling import perform, read_request
from worldprotocol.operations.declaring import Declared
from worldprotocol.operations.jobs import JobForm, read_job
from worldprotocol.server.call import Call, check_right, count_failure, service_of, visitor
from worldprotocol.server.operation_table import OPERATIONS
from worldprotocol.server.pages.browser_sessions import check_form, check_origin, fields_of, form_token, session_of
from worldprotocol.server.pages.page_table import PAGES, Page
from worldprotocol.server.pages.shown_times import relative
from worldprotocol.server.pages.shown_values import as_text, shown_changes, value_lines
from worldprotocol.server.request_body import body_of
from worldprotocol.terminal_text import visible

if TYPE_CHECKING:
    from jinja2 import Environment

    from world.state.proposal import Proposal
    from worldprotocol.server.service import HostedRealm

__all__ = [
    "PageCall",
    "answerable",
    "form_fault",
    "hosted_realm",
    "job_shown",
    "job_started",
    "open_form",
    "open_page",
    "rendered",
]

Q = TypeVar("Q", bound=RequestForm)
A = TypeVar("A", bound=AnswerForm)

POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
"""What a page may load: style sheet, scripts, icon and event streams of this server, and nothing inline."""

HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers send no origin with forms
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Header fields of every page."""

WAIT_S: Final = 8.0
"""Time for which a form waits for the end of the job that it starts, in seconds; after it, the page has a link."""


@dataclass(frozen=True, slots=True)
class PageCall:
    """A request for a page by a signed-in actor.

    Args:
        request: the request.
        page: the page.
        call: the call of the page's operation.
        session: text of the token of the session.
    """

    request: Request
    page: Page
    call: Call
    session: str

    def of(self, operation: str) -> Call:
        """Return the call of another operation by the same caller.

        Raises:
            RefusedError: ``RIGHT_MISSING``, ``TOKEN_NOT_VALID``, ``SIGN_IN_REQUIRED``.
        """
        wanted = OPERATIONS[operation]
        call = self.call
        check_right(call.view, call.verified, wanted, call.service.clock.now_ms())
        if wanted.is_whole:
            call.visibility.check_whole()
        return replace(call, operation=wanted)

    def may(self, operation: str) -> bool:
        """Return whether the caller may use an operation."""
        try:
            self.of(operation)
        except RefusedError:
            return False
        return True

    async def ask(self, operation: Declared[Q, A], members: Mapping[str, Any] | None = None) -> A:
        """Return the answer of a declared operation to this caller.

        Args:
            operation: the operation.
            members: members of the request, as a form or the page gives them.

        Raises:
            RefusedError: ``INVALID_VALUE``, and as the operation.
        """
        call, wanted = self.of(operation.name), read_request(operation, members or {}, "form", strict=True)
        return await call.perform(operation, partial(perform, operation, call, wanted))

    async def shown(self, operation: Declared[Any, Any], members: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer of a declared operation to this caller as JSON; see ``ask``."""
        shown: dict[str, Any] = to_builtins(await self.ask(operation, members))
        return shown

    async def show(self, template: str, values: Mapping[str, Any], status: int = 200) -> HTMLResponse:
        """Return the page as HTML, which a thread makes."""

        def run() -> HTMLResponse:
            name = self.call.hosted.name
            links = [self._link(one) for one in PAGES.values() if one.title and self.may(one.operation)]
            own: dict[str, Any] = {"realm": name, "actor": self.call.actor_id, "links": links}
            own |= {"form": form_token(self.session), "now": self.call.service.clock.now_ms()}
            own["is_public"] = self.call.visibility.is_visitor
            return rendered(template, {**own, **values}, status)

        return await self.call.run(run)

    def redirect(self, path: str) -> RedirectResponse:
        """Return the way to another page of the realm, after a form was sent.

        Args:
            path: path below that of the realm, with its query.
        """
        return RedirectResponse(f"/realms/{self.call.hosted.name}/{path}", 303, HEADERS)

    def _link(self, page: Page) -> dict[str, Any]:
        """Return an entry of the navigation, with the number of what is open there."""
        path = f"/realms{page.path.format(realm=self.call.hosted.name)}"
        is_here = self.page.path == page.path or self.page.path.startswith(f"{page.path}/")
        count = _COUNTS.get(page.name)
        number, counted = (0, "") if count is None else (count[0](self.call), count[1])
        return {"title": page.title, "path": path, "here": is_here, "count": number, "counted": counted}


async def job_started(opened: PageCall, operation: Declared[Any, Any], members: Mapping[str, Any]) -> str:
    """Start a job, wait a moment for its end, and return its id.

    Args:
        opened: the page.
        operation: the operation that starts it.
        members: members of the request.

    Raises:
        RefusedError: as ``PageCall.ask``.
    """
    started: JobForm = await opened.ask(operation, members)
    job = opened.call.hosted.jobs.job(started.job_id)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(WAIT_S):
            async for _ in job.states():
                pass
    return job.job_id


async def job_shown(
    opened: PageCall, job_id: str, is_of_page: Callable[[Mapping[str, Any]], bool]
) -> tuple[dict[str, Any] | None, str]:
    """Return a job that an address names, and why it cannot be shown.

    Args:
        opened: the page.
        job_id: id of the job; empty for none.
        is_of_page: whether a job is one that this page shows.
    """
    if not job_id:
        return None, ""
    try:
        shown = await opened.ask(read_job, {"jobId": job_id})
    except RefusedError as refused:
        return None, refused.message
    found: dict[str, Any] = orjson.loads(msgspec.json.encode(shown))
    return (found, "") if is_of_page(found) else (None, f"The job {job_id[:80]} is not one of this page.")


def answerable(call: Call) -> list[Proposal]:
    """Return the proposals that wait for the caller, in the order of the inbox."""
    return call.visibility.waiting(call.view.proposals.values())


_COUNTS: Final[Mapping[str, tuple[Callable[[Call], int], str]]] = {
    "inbox": (lambda call: len(answerable(call)), "waiting for you"),
    "leases": (lambda call: len(call.view.klis.leases), "in force"),
}
"""By page, how many entries the navigation shows, and what they are."""


def hosted_realm(request: Request) -> HostedRealm:
    """Return the realm of a page.

    Raises:
        RefusedError: ``SIGN_IN_REQUIRED``; whether there is such a realm is shown to signed-in actors only.
    """
    hosted = service_of(request).realms.get(request.path_params["realm"])
    if hosted is None:
        raise RefusedError(ErrorCode.SIGN_IN_REQUIRED, "You are not signed in to a realm of this name.")
    return hosted


async def open_page(request: Request, operation: str) -> PageCall:
    """Verify the session of a request, count the request, and check the right to the page.

    Args:
        request: the request.
        operation: operation whose rights are needed; empty needs no right.

    Raises:
        RefusedError: ``SIGN_IN_REQUIRED``, ``RIGHT_MISSING``, ``TOO_MANY_REQUESTS``.
    """
    service, hosted = service_of(request), hosted_realm(request)
    view = await service.threads.run(hosted.realm.realm)
    try:
        verified, session = session_of(request, view, service.clock.now_ms())
    except RefusedError:
        public = visitor(service, hosted, request)
        if public is None:
            count_failure(service, request)
            raise
        verified, session = public, ""
    else:
        service.rates.take(f"{verified.actor_id}@{hosted.name}")
    page = PAGES[request.scope["route"].name]
    call = Call.of(service, OPERATIONS[operation or "realms.read"], hosted, verified, view)
    opened = PageCall(request, page, call, session)
    if operation:
        opened.of(operation)
    return opened


async def open_form(request: Request, operation: str) -> tuple[PageCall, dict[str, str]]:
    """Open the page that takes a form, and return it with the fields of the form.

    Args:
        request: the request.
        operation: as for ``open_page``.

    Raises:
        RefusedError: as ``open_page``; ``FOREIGN_SITE``, ``INVALID_VALUE`` and ``RIGHT_MISSING`` where the form is not
            one of the session.
    """
    check_origin(request)
    opened = await open_page(request, operation)
    body = body_of(request)
    content = await body.read(f"{opened.call.actor_id}@{opened.call.hosted.name}")
    form = await fields_of(content, opened.call.service.threads)
    body.release()
    check_form(form, opened.session)
    return opened, form


def form_fault(error: RefusedError) -> tuple[str, int]:
    """Return why a form was not accepted, in words, and the HTTP status of that."""
    return error.message, ErrorCode(error.code).http_status


def rendered(template: str, values: Mapping[str, Any], status: int = 200) -> HTMLResponse:
    """Return a template as HTML.

    Args:
        template: name of the template, without its endings.
        values: its values, all of which are escaped.
        status: HTTP status.
    """
    return HTMLResponse(_environment().get_template(f"{template}.html.j2").render(values), status, HEADERS)


@cache
def _environment() -> Environment:
    made = environment(__package__ or "")
    made.filters |= {"json": _json, "lines": _lines, "ago": relative, "as_text": as_text}
    made.filters |= {
        "value_lines": value_lines,
        "shown_changes": shown_changes,
        "joined": joined,
        "numbered": enumerate,
    }
    made.globals |= {"links": [], "realm": None, "actor": None, "form": None, "sign_in": None, "is_public": False}
    return made


def _json(value: Any) -> str:
    """Return a value as JSON: simple ones on one line, others indented."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()


def _lines(text: str) -> str:
    """Return text of several lines, each without control characters."""
    return visible(text, keep="\n")
