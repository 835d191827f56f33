"""The API description: complete, with an example for each operation, and attacked by itself (schemathesis)."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from jsonschema import Draft202012Validator
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.plugins.forms import scaled
from tests.server.served import Served
from tests.support.tables import for_each
from worldprotocol.server.answers import SCHEMAS
from worldprotocol.server.operation_table import OPERATIONS

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES = scaled(100, ci=8)
SEQUENCES = scaled(60, ci=6)
LINKED = {"proposals.read", "proposals.cancel", "worlds.read", "worlds.state", "jobs.read", "actors.read"}
"""Operations that need what an answer named."""
SEQUENCE = [*LINKED, "intents.submit", "events.project", "worlds.list", "recheck.start", "whatif.start", "actors.list"]


@pytest.fixture(scope="module")
def document(served: Served) -> dict[str, Any]:
    """Return the description that a server gives."""
    with served.client() as client:
        found: dict[str, Any] = client.get("/openapi.json").json()
    return found


def described(document: dict[str, Any], name: str) -> dict[str, Any]:
    operation = OPERATIONS[name]
    found: dict[str, Any] = document["paths"][operation.path][operation.method.lower()]
    return found


def test_the_description_has_every_operation_with_its_rights(document: dict[str, Any]) -> None:
    assert document["openapi"] == "3.1.0"
    names = {one["operationId"]: one["x-rights"] for path in document["paths"].values() for one in path.values()}
    assert names == {one.name: list(one.rights) for one in OPERATIONS.values()}


def test_every_part_of_a_path_is_a_described_parameter(document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        for told in methods.values():
            declared = [one["name"] for one in told.get("parameters", ()) if one["in"] == "path"]
            assert sorted(declared) == sorted(re.findall(r"{(\w+)}", path)), told["operationId"]


@for_each("name", OPERATIONS)
def test_every_operation_has_examples_that_fit_their_schemas(document: dict[str, Any], name: str) -> None:
    told = described(document, name)
    shared = {"components": document["components"]}
    contents = [one["content"] for status, one in told["responses"].items() if "content" in one and status < "300"]
    assert contents
    if "requestBody" in told:
        contents.append(told["requestBody"]["content"])
    assert ("requestBody" in told) == (OPERATIONS[name].method == "POST")
    for content in contents:
        for media in content.values():
            Draft202012Validator(media["schema"] | shared).validate(media["example"])


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
def test_no_request_that_is_made_from_the_description_finds_a_fault(
    served: Served, document: dict[str, Any], name: str
) -> None:
    schema = schemathesis.openapi.from_dict(document)
    operation = OPERATIONS[name]
    credential = {"Authorization": f"Bearer {served.place.tokens['all']}"}
    attacked = schema[operation.path][operation.method]

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
    @given(case=attacked.as_strategy())
    def attack(case: Any) -> None:
        case.path_parameters = {**(case.path_parameters or {}), **({"realm": "main"} if "{realm}" in case.path else {})}
        if name in ("log.stream", "verify.stream", "jobs.stream"):
            check_stream(served, case, credential)
        else:
            case.call_and_validate(base_url=served.url, headers=credential, checks=CHECKS, timeout=60)

    attack()


def test_links_lead_to_operations_that_have_the_parameter(document: dict[str, Any]) -> None:
    linked = set()
    for path in document["paths"].values():
        for told in path.values():
            for answer in told["responses"].values():
                for name, link in answer.get("links", {}).items():
                    linked.add(name)
                    wanted = {one["name"] for one in described(document, name)["parameters"] if one["in"] == "path"}
                    assert set(link["parameters"]) == wanted, (told["operationId"], name)
                    assert link["operationId"] == name
    assert linked >= {"proposals.read", "worlds.state", "jobs.read", "receipts.read", "leases.request"}


@pytest.mark.slow
def test_no_sequence_of_requests_that_follows_the_links_finds_a_fault(served: Served, document: dict[str, Any]) -> None:
    """Each step uses what an earlier answer named."""
    reached: Counter[str] = Counter()
    credential = {"Authorization": f"Bearer {served.place.tokens['all']}"}
    base: Any = schemathesis.openapi.from_dict(document).include(operation_id=SEQUENCE).as_state_machine()

    class Sequences(base):  # type: ignore[misc]  # made at run time
        def before_call(self, case: Any) -> None:
            if "{realm}" in case.path:
                case.path_parameters = {**(case.path_parameters or {}), "realm": "main"}

        def get_call_kwargs(self, case: Any) -> dict[str, Any]:
            return {"base_url": served.url, "headers": credential, "timeout": 60}

        def validate_response(self, response: Any, case: Any, **_: Any) -> None:
            case.validate_response(response, checks=CHECKS)
            if response.status_code < 300:
                reached[case.operation.definition.raw["operationId"]] += 1

    one_sequence = settings(
        max_examples=2,  # Hypothesis begins with the shortest one
        database=None,
        stateful_step_count=6,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    for number in range(SEQUENCES):  # each by itself: what a server answers depends on the sequences before
        run_state_machine_as_test(seed(number)(Sequences), settings=one_sequence)
    assert set(reached) & LINKED, reached


def check_stream(served: Served, case: Any, credential: dict[str, str]) -> None:
    """Check the head of an answer that does not end."""
    path = case.path.replace("{realm}", "main")
    query = {name: str(value) for name, value in (case.query or {}).items()}
    headers = {str(name): str(value) for name, value in (case.headers or {}).items()} | credential
    with served.client() as client, client.stream("GET", path, params=query, headers=headers) as answer:
        kind = answer.headers["content-type"].partition(";")[0]
        refusals = {400, 409} if path.endswith("log/stream") else {404}
        wanted = refusals if kind == "application/problem+json" else {200} if kind == "text/event-stream" else set()
        assert answer.status_code in wanted


def test_the_schemas_of_the_description_are_valid(document: dict[str, Any]) -> None:
    for schema in (*SCHEMAS.values(), *document["components"]["schemas"].values()):
        Draft202012Validator.check_schema(schema)
    assert isinstance(document["info"]["version"], str)
    assert httpx.URL("/openapi.json").is_relative_url
