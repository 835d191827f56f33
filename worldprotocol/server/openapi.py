"""API description (OpenAPI 3.1): parameters and bodies from the handlers, answers and examples from ``answers``."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from msgspec import defstruct, structs, to_builtins
from msgspec.json import decode, schema_components

from worldprotocol.api.remote.realm_names import NAME
from worldprotocol.operations.declaring import Declared, MediaContent
from worldprotocol.operations.registry import declared_operations
from worldprotocol.server.answers import ANSWERS, BODIES, SCHEMAS
from worldprotocol.server.endpoints import IDEMPOTENCY_KEY, LAST_EVENT_ID
from worldprotocol.server.operation_table import OPERATIONS, Operation
from worldprotocol.server.problems import MEDIA_TYPE
from worldprotocol.server.sign_in import KEY_ID, SIGNED

__all__ = ["describe", "request_of"]

TEXT_TYPES: Final = {
    "commands.run": "application/x-ndjson",
    "server.metrics": "text/plain",
}
"""Media types of answers that are not JSON."""

PROBLEMS: Final = {
    "400": "The request is not valid.",
    "401": "The caller is not signed in.",
    "403": "The caller has not the right.",
    "404": "There is no such thing.",
    "405": "The resource does not have that method.",
    "409": "The state of the realm does not permit it.",
    "413": "The body is too large.",
    "429": "The caller sent too many requests.",
    "431": "The head of the request is too large.",
    "500": "The log is damaged, or the server has a fault.",
    "503": "The request took too long, the log cannot be reached, or the server stops.",
}
"""Statuses of problems, which every operation may answer."""


_PROPOSAL: Final = {
    "proposals.read": ("proposal_id", "/proposalId"),
    "proposals.preview": ("proposal_id", "/proposalId"),
    "proposals.answer": ("proposal_id", "/proposalId"),
    "proposals.cancel": ("proposal_id", "/proposalId"),
}
_OF_LIST: Final = {name: (parameter, f"/proposals/0{place}") for name, (parameter, place) in _PROPOSAL.items()}
_JOB: Final = {"jobs.read": ("job_id", "/jobId"), "jobs.cancel": ("job_id", "/jobId")}

_LINKS: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "intents.submit": _PROPOSAL,
    "events.project": {name: (parameter, f"/proposal{place}") for name, (parameter, place) in _PROPOSAL.items()},
    "proposals.list": _OF_LIST,
    "proposals.answer": {"proposals.read": ("proposal_id", "/proposalId")},
    "worlds.list": dict.fromkeys(
        ("worlds.read", "worlds.state", "worlds.computed", "worlds.diff", "worlds.blame"),
        ("world_id", "/worlds/0/worldId"),
    ),
    "worlds.read": {"worlds.state": ("world_id", "/worldId")},
    "leases.acquire": {
        "leases.request": ("request_id", "/requestId"),
        "leases.withdraw": ("request_id", "/requestId"),
    },
    "verify.start": _JOB,
    "recheck.start": _JOB,
    "whatif.start": _JOB,
    "backtest.start": _JOB,
    "jobs.list": {name: (parameter, "/jobs/0/jobId") for name, (parameter, _) in _JOB.items()},
    "policies.list": {"policies.read": ("named", "/policies/0/policyHash")},
    "actors.list": {"actors.read": ("actor_id", "/actors/0/actorId")},
    "runs.list": {"runs.read": ("run_id", "/runs/0/runId")},
    "log.read": {"receipts.read": ("position", "/events/0/position")},
}
"""By operation: the operations that its answer leads to, with a parameter and where the answer has its value."""

REALM: Final = {
    "name": "realm",
    "in": "path",
    "required": True,
    "description": "Name of the realm on this server.",
    "schema": {"type": "string", "pattern": f"^{NAME.pattern}$"},
    "example": "main",
}
"""The parameter of every operation on a realm, which is read with the caller's rights and not by the handlers."""

SIGNING_KEY: Final = {
    "name": KEY_ID.title(),
    "in": "header",
    "required": False,
    "description": "Id of the registered key that signed the intent, where the signature signs the caller in.",
    "schema": {"type": "string"},
}
"""The header field of signed intents, which is read before the handler."""


def describe(app: FastAPI) -> None:
    """Make the description of an application complete."""
    document: dict[str, Any] = {}

    def openapi() -> dict[str, Any]:
        if not document:
            document.update(_document(app))
        return document

    app.openapi = openapi  # type: ignore[method-assign]  # the way that FastAPI documents


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title,
        version=app.version,
        summary="Governed changes to shared worlds, over HTTP.",
        description="Intents, answers, leases and the log of realms. Errors are problems (RFC 9457) with a code.",
        routes=app.routes,
        openapi_version="3.1.0",
    )
    components = document.setdefault("components", {})
    components.setdefault("schemas", {}).update(SCHEMAS | _answer_components())
    for unused in ("HTTPValidationError", "ValidationError"):
        components["schemas"].pop(unused, None)
    components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    problem = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    components["responses"] = {
        f"Problem{status}": {"description": words, "content": problem} for status, words in PROBLEMS.items()
    }
    for operation in OPERATIONS.values():
        _complete(document["paths"][operation.path][operation.method.lower()], operation)
    return document


def _complete(described: dict[str, Any], operation: Operation) -> None:
    """Add security, answers, problems and examples to an operation."""
    if isinstance(operation, Declared):
        described.update(request_of(operation))
        content = _content_of(operation)
        statuses = operation.statuses if operation.etag is None else (*operation.statuses, 304)
    else:
        schema, example = ANSWERS[operation.name]
        media = TEXT_TYPES.get(operation.name, JSON)
        content = {media: {"schema": schema, "example": example}}
        statuses = (200,)
    responses: dict[str, Any] = {}
    for status in statuses:
        responses[str(status)] = {"description": operation.summary}
        if status != 304:
            responses[str(status)]["content"] = content
            if links := _links_of(operation.name):
                responses[str(status)]["links"] = links
    problems = {status: {"$ref": f"#/components/responses/Problem{status}"} for status in PROBLEMS}
    described["responses"] = responses | problems
    described["security"] = [] if operation.is_public else [{"bearer": []}]
    described["x-rights"] = list(operation.rights)
    if "{realm}" in operation.path:
        described.setdefault("parameters", []).insert(0, REALM)
    if operation.name == SIGNED:
        described["parameters"].append(SIGNING_KEY)
    body = described.get("requestBody")
    if body is not None and operation.name in BODIES:
        body["content"]["application/json"]["example"] = BODIES[operation.name]


def _links_of(operation: str) -> dict[str, Any]:
    """Return the links of the answers of an operation, as OpenAPI has them."""
    return {
        name: {
            "operationId": name,
            "parameters": {"realm": "$request.path.realm", parameter: f"$response.body#{place}"},
        }
        for name, (parameter, place) in _LINKS.get(operation, {}).items()
    }


REFERENCE: Final = "#/components/schemas/{name}"
JSON: Final = "application/json"

KEY: Final = {
    "name": IDEMPOTENCY_KEY.title(),
    "in": "header",
    "required": False,
    "description": "Key of the request, which then has its effect once, however often it is sent.",
    "schema": {"type": "string"},
}
"""The header field of requests that may be repeated."""


IF_NONE_MATCH: Final = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "description": "ETag of the answer that the caller has; where it is still the same, the answer is 304.",
    "schema": {"type": "string"},
}
"""The header field of requests whose answers have a version."""


RESUMED: Final = {
    "name": LAST_EVENT_ID.title().replace("Id", "ID"),
    "in": "header",
    "required": False,
    "description": "Position of the last event that the caller has, in place of `after`.",
    "schema": {"type": "string"},
}
"""The header field with which a stream continues."""


def _schemas() -> tuple[dict[Any, Any], dict[str, Any]]:
    """Return the schemas of requests and answers, and the schemas that they refer to by name."""
    operations = declared_operations().values()
    kinds = [kind for one in operations for kind in (one.request, *(media.kind for media in one.media))]
    kinds += [one.answer for one in operations if one.answer is not MediaContent and not one.is_stream]
    return _schemas_of(tuple(dict.fromkeys(kinds)))


@cache
def _schemas_of(types: tuple[Any, ...]) -> tuple[dict[Any, Any], dict[str, Any]]:
    """Return the schemas of types, and the schemas that they refer to by name.

    Classes of one name in several packages have the names of their modules before it, as one that is named like a
    schema of the server has.
    """
    taken = [defstruct(name, ()) for name in SCHEMAS]
    schemas, components = schema_components([*types, *taken], ref_template=REFERENCE)
    for schema in schemas[len(types) :]:
        del components[_name_of(schema)]
    return dict(zip(types, schemas, strict=False)), components


def _name_of(schema: dict[str, Any]) -> str:
    """Return the name of the schema that a reference refers to."""
    name: str = schema["$ref"].removeprefix(REFERENCE.format(name=""))
    return name


def _answer_components() -> dict[str, Any]:
    """Return the schemas that answers and parts of requests consist of, by name; those of requests are not shared."""
    schemas, components = _schemas()
    of_requests = {_name_of(schemas[one.request]) for one in declared_operations().values()}
    return {name: schema for name, schema in components.items() if name not in of_requests}


def _content_of(operation: Declared[Any, Any]) -> dict[str, Any]:
    """Return schemas and examples of an operation's answer, by media type."""
    schemas, _ = _schemas()
    found = {one.name: {"schema": schemas[one.kind], "example": to_builtins(one.example)} for one in operation.media}
    shown = operation.example.answer
    if operation.is_stream:
        return found
    if not isinstance(shown, MediaContent):
        return {JSON: {"schema": schemas[operation.answer], "example": to_builtins(shown)}, **found}
    is_json = shown.media_type == JSON
    example = decode(shown.data) if is_json else shown.data.decode()
    return {shown.media_type: {"schema": {"type": "object" if is_json else "string"}, "example": example}, **found}


def request_of(operation: Declared[Any, Any]) -> dict[str, Any]:
    """Return the parameters of an operation, and its body if it has one."""
    schemas, components = _schemas()
    schema, example = components[_name_of(schemas[operation.request])], to_builtins(operation.example.request)
    parameters: list[dict[str, Any]] = []
    properties: dict[str, Any] = {}
    names = {field.encode_name for field in structs.fields(operation.request)}
    for field in structs.fields(operation.request):
        name, property_ = field.encode_name, schema["properties"][field.encode_name]
        if name in operation.negotiated:
            continue
        if f"{{{field.name}}}" in operation.path:
            parameters.append(_parameter(field.name, "path", property_, is_required=True))
            example.pop(name, None)
        elif name in operation.headers:
            parameters.append(_parameter(operation.headers[name], "header", property_, is_required=False))
        elif operation.is_write and name not in operation.unhashed:
            properties[name] = property_
        else:
            parameters.append(_parameter(name, "query", property_, is_required=field.required))
            example.pop(name, None)
    if not operation.is_write:
        if operation.etag is not None:
            parameters.append(IF_NONE_MATCH)
        return {"parameters": [*parameters, *([RESUMED] if operation.is_stream and "after" in names else [])]}
    required = [name for name in schema.get("required", ()) if name in properties]
    body = {**schema, "properties": properties, "required": required, "additionalProperties": False}
    return {
        "parameters": [*parameters, KEY],
        "requestBody": {"required": bool(required), "content": {JSON: {"schema": body, "example": example}}},
    }


def _parameter(name: str, where: str, schema: dict[str, Any], *, is_required: bool) -> dict[str, Any]:
    described = {"description": schema["description"]} if "description" in schema else {}
    return {"name": name, "in": where, "required": is_required, "schema": schema, **described}
