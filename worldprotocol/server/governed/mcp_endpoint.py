"""``/mcp``: the MCP server over streamable HTTP, signed in as the API.

The caller of each request is verified, and what a tool or a resource needs is requested from the operations of this
very application with the credentials of that request: rights, redactions and limits are those of the operations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote, urlencode

import orjson
from fastapi import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.verification import RIGHTS, Verification
from world.extras import needs_extra
from world.state.access import right_fault
from world.state.realm_view import RealmView
from worldprotocol.api.remote.connection import RealmRequest, error_of
from worldprotocol.json_text import as_text
from worldprotocol.server.call import COUNTED, verified_somewhere, verify
from worldprotocol.server.limits import Running
from worldprotocol.server.problems import TooManyRequestsError
from worldprotocol.server.request_body import body_of

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from worldprotocol.agents.mcp.session import Context
    from worldprotocol.server.service import HostedRealm, Service

__all__ = ["McpEndpoint", "mcp_routes"]

ACCESS: Final = "worldprotocol.mcp"
"""Member of a scope's state with the realm of the request."""

PASSED_ON: Final = (b"authorization", b"host")
"""Header fields of a request that the requests to operations repeat."""

LISTEN: Final = "subscriptions/listen"

IDLE_S: Final = 30 * 60.0
"""Time after which a session without a request ends, in seconds."""

MAX_SESSIONS: Final = 10_000
MAX_SESSIONS_OF_ACTOR: Final = 100


def mcp_routes(service: Service, app: ASGIApp) -> list[Route]:
    """Return the routes ``/mcp``, of the only realm of the caller, and ``/mcp/{realm}``.

    Args:
        service: the service.
        app: the application whose operations are requested.
    """
    endpoint = McpEndpoint(service, app)
    service.mcp = endpoint
    return [Route("/mcp", endpoint, name="mcp"), Route("/mcp/{realm}", endpoint, name="mcp")]


class McpEndpoint:
    """The ASGI application of ``/mcp``.

    Args:
        service: the service.
        app: the application whose operations are requested.
    """

    def __init__(self, service: Service, app: ASGIApp) -> None:
        self._service = service
        self._app = app
        self._manager: StreamableHTTPSessionManager | None = None
        self._answering = Running()
        self._stopping = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request.

        Raises:
            RefusedError: ``SIGN_IN_REQUIRED``, ``TOKEN_NOT_VALID``, ``UNKNOWN_REALM``, ``RIGHT_MISSING``,
                ``NOT_LOADED`` without the extra ``mcp``.
                ``REQUEST_TOO_LARGE``, ``REQUEST_TIMED_OUT``.
            TooManyRequestsError: of the actor, or streams of notifications.
        """
        request = Request(scope, receive)
        hosted, actor_id = await self._caller(request)
        body = body_of(request)
        await body.read(f"{actor_id}@{hosted.name}")
        body.release()
        manager = await self._started()
        from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
        from mcp.server.auth.provider import AccessToken

        from worldprotocol.agents.mcp.api_realm import ApiRealm

        # a session belongs to the actor that began it
        owner = AccessToken(token="", client_id=f"{actor_id}@{hosted.name}", scopes=[])
        self._check_sessions(request, manager, owner.client_id)
        url = f"{self._service.public_url}/realms/{quote(hosted.name, safe='')}/inbox"
        access = ApiRealm(
            _Operations(self._app, scope, hosted.name), url, lambda: _position(self._service, hosted.name)
        )
        state = {**scope.get("state", {}), ACCESS: access}
        fields = [(name, value.strip(b" \t")) for name, value in scope["headers"]]  # RFC 9110, 5.5
        inner = {**scope, "headers": fields, "state": state, "user": AuthenticatedUser(owner)}
        with ExitStack() as counted:
            if scope["method"] == "GET" or request.headers.get("mcp-method", "").strip() == LISTEN:
                counted.enter_context(self._service.waits.one(owner.client_id))  # a stream of notifications
            if scope["method"] != "GET":  # that stream ends with its session, and the session with the server
                counted.enter_context(self._answering.one())
            await manager.handle_request(inner, receive, send)

    async def _caller(self, request: Request) -> tuple[HostedRealm, str]:
        """Return the realm of a request, and the verified actor, who has a right there."""
        name, service = request.path_params.get("realm"), self._service
        if name is None:
            found = [
                (hosted, verified, view)
                for hosted, verified, view in await verified_somewhere(service, request)
                if _has_right(service, verified, view)
            ]
            if len(found) != 1:
                names = ", ".join(f"/mcp/{hosted.name}" for hosted, _, _ in found)
                raise RefusedError(
                    ErrorCode.UNKNOWN_REALM if found else ErrorCode.RIGHT_MISSING,
                    f"You have rights in several realms; use the address of one: {names}."
                    if found
                    else "You have no right in any realm of this server; an operator grants rights.",
                )
            hosted, verified, _ = found[0]
        else:
            known = service.realms.get(name)
            if known is None:
                await verified_somewhere(service, request)
                raise RefusedError(ErrorCode.UNKNOWN_REALM, f"This server has no realm {name!r}.")
            hosted = known
            verified, view = await verify(service, hosted, request)
            if not verified.is_verified or not _has_right(service, verified, view):
                raise RefusedError(
                    ErrorCode.RIGHT_MISSING, f"{verified.actor_id!r} has no right in {name}; an operator grants rights."
                )
        service.rates.take(f"{verified.actor_id}@{hosted.name}")
        return hosted, verified.actor_id or ""

    def _check_sessions(self, request: Request, manager: StreamableHTTPSessionManager, owner: str) -> None:
        """Refuse a further session of an actor that has many.

        Raises:
            TooManyRequestsError: it has.
        """
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        has_no_session = request.headers.get("mcp-protocol-version", "").strip() in MODERN_PROTOCOL_VERSIONS
        if request.method != "POST" or has_no_session or "mcp-session-id" in request.headers:
            return
        owners = manager._session_owners.values()  # the SDK limits the sessions of all clients alone
        if sum(one["client_id"] == owner for one in owners) >= MAX_SESSIONS_OF_ACTOR:
            raise TooManyRequestsError(
                f"{owner} has {MAX_SESSIONS_OF_ACTOR} sessions; end one (DELETE with its Mcp-Session-Id). A session "
                f"without a request ends after {IDLE_S / 60:g} minutes."
            )

    # Start and end

    async def _started(self) -> StreamableHTTPSessionManager:
        """Return the manager of the sessions, which the first request starts."""
        if self._manager is None:
            with needs_extra("MCP servers", "mcp"):
                from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

                from worldprotocol.agents.mcp.serving import server_of
                from worldprotocol.agents.mcp.session import Settings
            server = server_of(Settings(_access_of, self._service.config.mcp_wait_s))
            self._manager = StreamableHTTPSessionManager(
                server, session_idle_timeout=IDLE_S, max_sessions=MAX_SESSIONS, max_request_body_size=2**31
            )  # the server's own limit of bodies holds
            self._running = asyncio.create_task(self._run(self._manager))
        await self._ready.wait()
        return self._manager

    async def _run(self, manager: StreamableHTTPSessionManager) -> None:
        """Run the sessions until the server stops, and the calls that run then are answered."""
        async with manager.run():
            self._ready.set()
            await self._stopping.wait()
            await self._answering.ended(self._service.config.drain_timeout_s)

    def begin_stop(self) -> None:
        """End the sessions once the running calls are answered."""
        self._stopping.set()

    async def join(self) -> None:
        """Wait for the end of the sessions."""
        if self._running is not None:
            with suppress(asyncio.CancelledError):
                await self._running


def _has_right(service: Service, verified: Verification, view: RealmView) -> bool:
    return right_fault(view, verified, RIGHTS, service.clock.now_ms()) is None


def _position(service: Service, name: str) -> int:
    """Return the position of the newest event of a realm, wherever it is served now.

    Raises:
        RefusedError: ``SERVER_STOPPING``.
    """
    hosted = service.realms[name]
    if hosted.log_watch.is_closed:
        raise RefusedError(ErrorCode.SERVER_STOPPING, "The server is stopping; connect again later.")
    return hosted.log_watch.position


def _access_of(context: Context) -> Any:
    request: Request = context.request  # type: ignore[assignment]  # on this transport there is one
    return request.scope["state"][ACCESS]


class _Operations:
    """Sends requests to the operations of an application in this process, as the caller of another request.

    Args:
        app: the application.
        scope: that of the caller's request.
        realm: name of the realm.
    """

    def __init__(self, app: ASGIApp, scope: Scope, realm: str) -> None:
        self._app = app
        self._path = f"/v1/realms/{quote(realm, safe='')}"
        self._fields = [(name, value) for name, value in scope["headers"] if name in PASSED_ON]
        self._place: dict[str, Any] = {name: scope.get(name) for name in ("client", "server", "scheme", "http_version")}
        peer = scope.get("state", {}).get("peer_uid")
        self._state: dict[str, Any] = {COUNTED: True} | ({} if peer is None else {"peer_uid": peer})

    async def __call__(self, request: RealmRequest) -> Any:
        """Return the JSON of the answer to a request.

        Raises:
            WorldProtocolError: the problem that the operation states.
        """
        query = dict(request.query) | ({"wait": request.wait_s} if request.wait_s else {})
        body = b"" if request.body is None else as_text(request.body).encode()
        fields = [*self._fields, (b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        if request.key is not None:
            fields.append((b"idempotency-key", request.key.encode()))
        path = self._path + request.path
        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "method": request.method,
            "path": unquote(path),
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": urlencode(_texts(query)).encode(),
            "headers": fields,
            "state": dict(self._state),
            **self._place,
        }
        status, content = await _answered(self._app, scope, body)
        found: Any = orjson.loads(content)
        if status < 300:
            return found
        raise error_of(found["code"], found["detail"], found.get("details") or {})


async def _answered(app: ASGIApp, scope: Scope, body: bytes) -> tuple[int, bytes]:
    """Return status and body of the answer of an application."""
    status, content, is_sent = 500, bytearray(), False
    ended = asyncio.Event()

    async def receive() -> Message:
        nonlocal is_sent
        if is_sent:
            await ended.wait()
            return {"type": "http.disconnect"}
        is_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        content.extend(message.get("body", b""))

    try:
        await app(scope, receive, send)
    finally:
        ended.set()
    return status, bytes(content)


def _texts(query: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in query.items()
        if value is not None
    }
