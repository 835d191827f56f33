"""Bodies that are not what an operation takes: the answer is a problem below 500, whatever was sent."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.plugins.forms import scaled
from tests.server.examples import EXAMPLES
from tests.server.served import NO_TLS, ORDER, PATH, Served
from worldprotocol.server.operation_table import OPERATIONS

pytestmark = pytest.mark.slow

POSTS = sorted(name for name, one in OPERATIONS.items() if one.method == "POST")
ATOMS = [
    "NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1e-999", "9" * 400, "-" + "9" * 5_000, "0" * 30, "1.",
    ".5", "+1",
    "01", "0x10", "18446744073709551616", "9007199254740993", '"\\ud800"', '"\\udfff\\ud800"', '"\\u0000"', '"\\x41"',
    '"\ufeff"', "'text'", '"\t"', "undefined", "True", "null", "[]", "{}", '""', '"' + "a" * 50_000 + '"',
    '{"a": 1, "a": 2}', '{"__proto__": {}}', '{"": 1}', '{1: 2}', "[1,]", '{"a": 1,}', "/* c */ 1",
    "[" * 300 + "]" * 300, "[" * 900 + "]" * 900, "[" * 20_000, '{"a":' * 300 + "1" + "}" * 300,
]  # fmt: skip
"""Values that parsers treat differently."""

KINDS = [
    "application/json", "application/json; charset=utf-16", "application/json; charset=nonsense", "text/plain", "",
    "application/problem+json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "nonsense",
    "application/json, text/plain", "APPLICATION/JSON", "application/octet-stream", "application/json;;;=",
]  # fmt: skip
ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32", "latin-1", "utf-7"]


def path_of(name: str) -> str:
    path = OPERATIONS[name].path.replace("{realm}", "main")
    return path.replace("{proposal_id}", "p-1").replace("{request_id}", "r-1").replace("{request}", "r-1")


@st.composite
def bodies(draw: st.DrawFn, name: str) -> bytes:
    """Return a body that begins as the example of an operation, with something wrong in it."""
    text = json.dumps(EXAMPLES[name])
    kind = draw(st.sampled_from(["value", "bytes", "cut", "member", "encoding", "random", "twice"]))
    if kind == "random":
        return draw(st.binary(max_size=200))
    if kind == "value":  # one of its values is another one
        whole: dict[str, Any] = dict(EXAMPLES[name])
        member = draw(st.sampled_from([*whole, "unknown"])) if whole else "unknown"
        whole[member] = "VALUE"
        return json.dumps(whole).replace('"VALUE"', draw(st.sampled_from(ATOMS))).encode("utf-8", "surrogatepass")
    if kind == "member":
        return json.dumps(
            dict(EXAMPLES[name]) | draw(st.dictionaries(st.text(max_size=8), st.integers(), max_size=3))
        ).encode()
    if kind == "twice":
        return text.encode() * 2
    if kind == "encoding":
        return text.encode(draw(st.sampled_from(ENCODINGS)))
    place = draw(st.integers(0, len(text)))
    return text[:place].encode() + (draw(st.binary(min_size=1, max_size=4)) + text[place:].encode()) * (kind == "bytes")


def check(answer: httpx.Response) -> None:
    """Check that an answer is a success or a problem of the request."""
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 300:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == answer.status_code
        assert answer.json()["code"] != "SERVER_FAILED"


@pytest.mark.parametrize("name", POSTS)
def test_no_body_finds_a_fault(served: Served, name: str) -> None:
    credential = {"Authorization": f"Bearer {served.place.tokens['all']}"}

    @settings(max_examples=scaled(200, ci=15), deadline=None, suppress_health_check=list(HealthCheck))
    @given(body=bodies(name), kind=st.sampled_from(KINDS))
    def attack(body: bytes, kind: str) -> None:
        headers = credential | ({"Content-Type": kind} if kind else {})
        check(client.post(path_of(name), content=body, headers=headers))

    with httpx.Client(base_url=served.url, timeout=60, trust_env=False, verify=NO_TLS) as client:
        attack()


@pytest.mark.parametrize("atom", ATOMS, ids=range(len(ATOMS)))
def test_a_value_that_parsers_treat_differently_is_recorded_as_it_was_sent_or_refused(
    served: Served, atom: str
) -> None:
    whole = json.dumps(ORDER | {"type": "order.place", "input": {"item": "ITEM"}, "trace": {"given": "ATOM"}})
    body = whole.replace('"ATOM"', atom).encode("utf-8", "surrogatepass")
    with served.client("kid") as client:
        answer = client.post(f"{PATH}/intents", content=body, headers={"Content-Type": "application/json"})
        check(answer)
        if answer.status_code == 200:
            read = client.get(answer.headers["location"])
            assert read.json() == answer.json()
            json.loads(read.content, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Idempotency-Key", "a" * 201), ("Idempotency-Key", ""), ("Idempotency-Key", "a b"),
        ("Idempotency-Key", "\xe9"),
        ("Idempotency-Key", "../x"), ("traceparent", "nonsense"),
        ("traceparent", "00-" + "0" * 32 + "-" + "0" * 16 + "-00"),
        ("Authorization", ""), ("Authorization", "Bearer"), ("Authorization", "Bearer wp1_"),
        ("Authorization", "Basic a:b"),
        ("Authorization", "Bearer " + "a" * 60_000), ("Authorization", "Bearer a.b.c"),
        ("Authorization", "Bearer \xff"),
        ("Authorization", "Bearer e30.e30."), ("Content-Encoding", "gzip"), ("Accept", "nonsense"),
        ("Cookie", "a=" * 500),
        ("X-Forwarded-For", "127.0.0.1"), ("X-HTTP-Method-Override", "GET"), ("Range", "bytes=0-1"),
        ("Expect", "200-maybe"),
        ("Host", "evil.example"), ("Forwarded", "for=unix"), ("If-None-Match", '"' * 5_000),
    ],
)  # fmt: skip
def test_no_header_field_finds_a_fault(served: Served, name: str, value: str) -> None:
    fields = {"Authorization": f"Bearer {served.place.tokens['kid']}", name: value}
    headers = [(one.encode(), text.encode("latin-1")) for one, text in fields.items()]
    with httpx.Client(base_url=served.url, timeout=60, trust_env=False, verify=NO_TLS) as client:
        for method, path in (
            ("POST", f"{PATH}/intents"),
            ("GET", f"{PATH}/inbox"),
            ("GET", f"{PATH}/worlds/HEAD/state"),
        ):
            check(client.request(method, path, headers=headers, json=ORDER if method == "POST" else None))
