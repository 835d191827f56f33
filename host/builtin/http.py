"""HTTP effects: ``http.request``, and ``http.get`` and ``http.post`` for short.

Each request carries the effect's idempotency key. The environment is ignored: no proxies, no netrc.
A request's secret headers, the password in its URL and secret parameters of its query are written as references
(``world.model.secrets.literal``); those of a response are not recorded. Redirects are followed within the same
origin only, because other origins were not declared. The time limit covers the whole exchange, even with a slow
server; when it is over, or the effect is cancelled, the connection is closed.

GET, HEAD, PUT, DELETE and OPTIONS may be repeated by their definition (RFC 9110 section 9.2.2); POST and PATCH only
where the parameters declare that the server supports idempotency keys.
Source: design sections 7 and 8; HC-handlers, HC-journal.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from host.builtin.effect_support import (
    EFFECT_RESULT_TOO_LARGE,
    MAX_BYTES,
    EffectError,
    Params,
    check_before_change,
    fits,
    with_error_values,
)
from host.effect_call import EffectCallInfo
from host.effects import EffectHandler, handler
from world.errors import RefusedError
from world.klis.resources.resource_reading import canonical_resource
from world.masking import MASK
from world.model.canonical_json import read_json
from world.model.secrets.literal import url_secrets

if TYPE_CHECKING:
    from host.builtin.exchange import HttpResponse

__all__ = ["HTTP"]

_GRACE_MS: Final = 5_000
_MAX_TIMEOUT_MS: Final = 3_600_000
_SHOWN_CHARS: Final = 2_000
"""Characters of a rejected response's body in the error."""

_OWN_HEADERS: Final = frozenset({"host", "content-length", "transfer-encoding", "connection", "accept-encoding"})
_PREDICATES: Final = {"GET": "CONSUMES", "HEAD": "CONSUMES", "OPTIONS": "CONSUMES", "DELETE": "DELETES"}
_NOT_REPEATABLE: Final = frozenset({"POST", "PATCH"})
_BUSY: Final = frozenset({429, 503})
_BEHIND: Final = frozenset({502, 504})
_ADDRESSES: Final = frozenset({"location", "content-location", "refresh"})
"""Response headers that hold URLs."""


def _resource(url: str) -> str:
    return canonical_resource(f"URL:{url.replace('*', '%2A')}").text


def _checked(url: str) -> str:
    if not url.lower().startswith(("http://", "https://")):
        raise ValueError("it is not an http or https URL")
    try:
        _resource(url)
    except RefusedError as refused:
        raise ValueError(refused.message.rstrip(".")) from None
    return url


def _headers(headers: dict[str, str]) -> dict[str, str]:
    for name in headers:
        if name.lower() in _OWN_HEADERS:
            raise ValueError(f"{name} is set by the engine; remove it")
    return headers


Url = Annotated[str, StringConstraints(max_length=8_192), AfterValidator(_checked)]
_Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$")]
_Value = Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]?([\x20-\x7e\t]*[\x21-\x7e])?$", max_length=8_192)]
_Timeout = Annotated[int, Field(ge=1, le=_MAX_TIMEOUT_MS)]


class HttpGet(Params):
    """Parameters of ``http.get``; ``expect`` are the accepted status codes, by default all 2xx."""

    url: Url
    headers: Annotated[dict[_Name, _Value], AfterValidator(_headers), Field(default_factory=dict)]
    timeout_ms: _Timeout = 30_000
    expect: list[Annotated[int, Field(ge=100, le=599)]] | None = None

    @property
    def verb(self) -> str:
        """The method."""
        return "GET"

    @property
    def is_repeatable(self) -> bool:
        """Whether a repetition with the same idempotency key is harmless."""
        return self.verb not in _NOT_REPEATABLE

    def body(self) -> tuple[bytes | None, str | None]:
        """Return the body and its content type."""
        return None, None


class HttpPost(HttpGet):
    """Parameters of ``http.post``: one of ``json``, ``text`` and ``base64``; ``idempotent``: keys are supported."""

    json_: Annotated[Any, Field(alias="json")] = None
    text: str | None = None
    base64: str | None = None
    idempotent: bool = False

    @model_validator(mode="after")
    def _one_body(self) -> HttpPost:
        if len(self.model_fields_set & {"json_", "text", "base64"}) > 1:
            raise ValueError("name one of json, text and base64")
        try:
            self.body()
        except binascii.Error:
            raise ValueError("base64 is not valid base64") from None
        return self

    @property
    def verb(self) -> str:
        """The method."""
        return "POST"

    @property
    def is_repeatable(self) -> bool:
        """Whether a repetition with the same idempotency key is harmless."""
        return self.idempotent or super().is_repeatable

    def body(self) -> tuple[bytes | None, str | None]:
        """Return the body and its content type."""
        if "json_" in self.model_fields_set:
            return json.dumps(self.json_, ensure_ascii=False, separators=(",", ":")).encode(), "application/json"
        if self.text is not None:
            return self.text.encode(), "text/plain; charset=utf-8"
        if self.base64 is not None:
            return base64.b64decode(self.base64, validate=True), "application/octet-stream"
        return None, None


class HttpRequest(HttpPost):
    """Parameters of ``http.request``."""

    method: Literal["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "POST", "PATCH"]

    @property
    def verb(self) -> str:
        """The method."""
        return self.method


def _touches(params: HttpGet) -> list[tuple[str, str]]:
    return [(_PREDICATES.get(params.verb, "MUTATES"), _resource(params.url))]


def _limit(params: HttpGet) -> int:
    return params.timeout_ms + _GRACE_MS


def _repeatable(params: HttpGet) -> bool:
    return params.is_repeatable


@with_error_values
def _request(params: HttpGet, call: EffectCallInfo) -> Any:
    from host.builtin.exchange import Exchange, Outgoing  # imported late: httpx is slow to import

    body, kind = params.body()
    headers = {"accept": "*/*", "idempotency-key": call.idempotency_key}
    if kind is not None:
        headers["content-type"] = kind
    headers |= {name.lower(): value for name, value in params.headers.items()}
    outgoing = Outgoing(params.verb, params.url, headers, body, is_repeatable=params.is_repeatable)
    with Exchange(outgoing, timeout_ms=params.timeout_ms, is_cancelled=call.is_cancelled) as exchange:
        response = exchange.run(lambda: check_before_change(call))
    result = _result_of(response)
    accepted = response.status in params.expect if params.expect is not None else 200 <= response.status < 300
    if not accepted:
        raise _status_error(params, response, result)
    if response.body is None or not fits(result):
        raise EffectError(
            EFFECT_RESULT_TOO_LARGE,
            f"{params.verb} {params.url} gave {response.size} bytes, which do not fit into a result of {MAX_BYTES}.",
            {"status": response.status, "size": response.size, "sha256": response.sha256},
        )
    return result


def _result_of(response: HttpResponse) -> dict[str, Any]:
    result: dict[str, Any] = {
        "status": response.status,
        "url": _shown_url(response.url),
        "headers": {
            name: _shown_url(value) if name in _ADDRESSES else value for name, value in response.headers.items()
        },
        "size": response.size,
        "sha256": response.sha256,
    }
    body = response.body
    if not body:
        return result
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        try:
            return result | {"json": read_json(body)}
        except RefusedError:
            pass  # returned as text instead
    try:
        return result | {"text": body.decode()}
    except UnicodeDecodeError:
        return result | {"base64": base64.b64encode(body).decode()}


def _shown_url(url: str) -> str:
    """Replace a password and parameters that are secret by name in a URL by ``***``."""
    for _, is_masked, begin, end in reversed(list(url_secrets(url))):
        url = f"{url[:begin]}{MASK if is_masked else ''}{url[end:]}"
    return url


def _status_error(params: HttpGet, response: HttpResponse, result: dict[str, Any]) -> EffectError:
    retryable = response.status in _BUSY or (response.status in _BEHIND and params.is_repeatable)
    shown = {key: result[key] for key in ("status", "url", "size", "sha256")}
    if response.body:
        shown["body"] = response.body[:_SHOWN_CHARS].decode("utf-8", "replace")
    if "retry-after" in response.headers:
        shown["retryAfter"] = response.headers["retry-after"]
    return EffectError(
        "HTTP_STATUS", f"{params.verb} {params.url} answered {response.status}.", shown, retryable=retryable
    )


HTTP: Final[tuple[EffectHandler, ...]] = (
    handler("http.request", input=HttpRequest, touches=_touches, idempotent=_repeatable, time_limit_ms=_limit)(
        _request
    ),
    handler("http.get", input=HttpGet, touches=_touches, idempotent=True, time_limit_ms=_limit)(_request),
    handler("http.post", input=HttpPost, touches=_touches, idempotent=_repeatable, time_limit_ms=_limit)(_request),
)
"""The handlers of this module."""
