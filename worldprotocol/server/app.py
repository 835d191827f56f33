"""Application factory: one route for each operation of the table, the application of the pages, and ``/mcp``."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Final

from fastapi import FastAPI, Response
from fastapi.telemetry import TelemetryConfig

from worldprotocol.operations.declaring import Declared
from worldprotocol.server import problems
from worldprotocol.server.call import OperationRoute
from worldprotocol.server.endpoints import endpoint
from worldprotocol.server.governed.mcp_endpoint import mcp_routes
from worldprotocol.server.limits import RequestLimit
from worldprotocol.server.metrics import Counted
from worldprotocol.server.openapi import describe
from worldprotocol.server.operation_table import HANDLERS, OPERATIONS
from worldprotocol.server.operations import (  # noqa: F401  # they declare the handlers of the operations
    commands,
    hooks,
    jobs,
    log,
    realms,
)
from worldprotocol.server.pages.application import create_pages, start_page
from worldprotocol.server.service import Service

__all__ = ["create_app"]

UNTRACED: Final = ("/healthz", "/readyz", "/metrics", "/stream")
"""Ends of paths without a span: what is asked every few seconds, and what lasts for hours."""

SECRET: Final = b"code="
"""Parameter of a query that signs a browser in; spans have the query."""


def is_untraced(scope: MutableMapping[str, Any]) -> bool:
    """Return whether a request has no span."""
    return scope["path"].endswith(UNTRACED) or SECRET in scope.get("query_string", b"")


TELEMETRY: Final[TelemetryConfig] = {
    "auto_configure": False,  # worldprotocol.api.telemetry.provider does
    "logs": False,
    "operation_spans": False,
    "exclude": is_untraced,
}
"""The spans of requests, whose parent is the ``traceparent`` of the request."""


def create_app(service: Service) -> FastAPI:
    """Return the application of a service, which the caller starts and stops.

    Args:
        service: realms and limits.
    """
    app = FastAPI(
        title="World Protocol",
        version="1",
        openapi_url="/openapi.json",
        docs_url=None,
        redoc_url=None,
        separate_input_output_schemas=False,
        redirect_slashes=False,  # a redirect would repeat the field Host, which the client chooses
        telemetry=TELEMETRY,
    )
    app.state.service = service
    app.router.route_class = OperationRoute
    for operation in OPERATIONS.values():
        app.add_api_route(
            operation.route,
            endpoint(operation) if isinstance(operation, Declared) else HANDLERS[operation.name],
            methods=[operation.method],
            name=operation.name,
            operation_id=operation.name,
            summary=operation.summary,
            tags=[operation.tag],
            response_class=Response,
        )
    app.add_api_route("/", start_page, methods=["GET"], name="start", response_model=None, include_in_schema=False)
    app.mount("/realms", create_pages(service), name="pages")
    app.router.routes.extend(mcp_routes(service, app))
    problems.install(app)
    app.add_middleware(
        RequestLimit,
        config=service.config,
        is_stopping=lambda: service.is_stopping,
        running=service.running,
        unread=service.unread,
    )
    app.add_middleware(Counted, metrics=service.metrics)
    describe(app)
    return app
