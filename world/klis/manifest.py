"""Intent manifests (NIM): declarations of agents (KLIS-1 section 5).

The order of checks: structure, predicates, resources, contradictions, width, new names of RENAMES, each over the whole
manifest. A manifest keeps the document it was read from, because a signature covers that document. The texts of
refusals are recorded in rejections of proposals and must not change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final, Literal, NotRequired

import yaml as pyyaml
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # required by pydantic before Python 3.12

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.klis.predicate import Predicate, read_predicate
from world.klis.resources.resource import Resource
from world.klis.resources.resource_reading import read_resource
from world.klis.resources.resource_types import STANDARD, ResourceTypes
from world.klis.scope import Claim, check_claims, check_targets, check_width, effective_triples
from world.klis.settings import KlisSettings
from world.klis.triple import Confidence, Triple, read_confidence, read_triple
from world.markup import YamlLoader, check_yaml
from world.model.canonical_json import read_json
from world.model.immutable_json import freeze, thaw
from world.model.record import WireForm

__all__ = [
    "ENGINE_ONLY",
    "MAX_MANIFEST_CHARS",
    "Confidence",
    "Manifest",
    "Triple",
    "manifest_document",
    "manifest_schema",
    "read_manifest",
    "read_triple",
]

MAX_MANIFEST_CHARS: Final = 4 << 20
"""Maximum length of a manifest's text, in characters (or bytes)."""
_MAX_YAML_DEPTH: Final = 16
_MAX_MS: Final = (1 << 53) - 1
_UNPRINTABLE: Final = r"[\u0000-\u001f\u007f-\u009f\u2028\u2029]"


def _printable(text: str) -> str:
    if re.search(_UNPRINTABLE, text):
        raise ValueError("holds a control character")
    return text


def _whole(number: object) -> object:
    """Return 5.0 as the integer that it is in JSON."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


_Name = Annotated[
    str,
    Field(min_length=1, max_length=256, json_schema_extra={"not": {"pattern": _UNPRINTABLE}}),
    AfterValidator(_printable),
]
_Ms = Annotated[int, Field(ge=0, le=_MAX_MS), BeforeValidator(_whole)]
_Text = Annotated[str, Field(min_length=1)]
_STRICT: Final = ConfigDict(strict=True, extra="forbid")


class _ManifestIntent(TypedDict):
    __pydantic_config__ = _STRICT  # type: ignore[misc]  # the attribute that pydantic reads

    predicate: str
    resource: _Text
    confidence: NotRequired[Literal["High", "Medium", "Low"] | Annotated[float, Field(ge=0, le=1)]]
    to: NotRequired[_Text]


class _Document(TypedDict):
    __pydantic_config__ = _STRICT  # type: ignore[misc]  # the attribute that pydantic reads

    ver: Annotated[str, Field(pattern=r"^1\.[0-9]{1,9}$")]
    session_id: _Name
    agent_id: _Name
    scope: Annotated[list[_ManifestIntent], Field(min_length=1)]
    priority_timestamp: NotRequired[_Ms]
    ordered: NotRequired[bool]
    issued_at: NotRequired[_Ms]
    nonce: NotRequired[_Name]
    signature: NotRequired[Annotated[str, Field(max_length=1_024)]]


_DOCUMENT: Final = TypeAdapter[_Document](_Document)
_FIELDS: Final = frozenset(_Document.__annotations__) | frozenset(_ManifestIntent.__annotations__)


ENGINE_ONLY: Final = frozenset({"STATE"})
"""Types whose roots only the engine may claim, for proposals without a scope."""


@dataclass(frozen=True, slots=True)
class Manifest(WireForm):
    """A valid manifest (KM-2.2).

    Args:
        ver: version of the wire form, ``1.x``.
        session_id: the agent's unit of work.
        agent_id: its agent.
        declared: the triples of the document.
        triples: the triples of the leases, in order of first mention: one per resource, with the target of a RENAMES
            as PROVIDES.
        ordered: whether the order of the scope is the order of the work.
        priority_timestamp: the priority that the agent claims, ms since 1970.
        issued_at: when it was signed, ms since 1970.
        nonce: unique text of a signed manifest.
        signature: Ed25519, in base64.
        document: the document it was read from, frozen.
    """

    ver: str
    session_id: str
    agent_id: str
    declared: tuple[Triple, ...]
    triples: tuple[Triple, ...]
    ordered: bool = False
    priority_timestamp: int | None = None
    issued_at: int | None = None
    nonce: str | None = None
    signature: str | None = None
    document: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    WIRE: ClassVar = "*document"

    def effective(self) -> dict[str, Predicate]:
        """Return the leased predicate of each resource."""
        return {triple.resource.text: triple.predicate for triple in self.triples}


def read_manifest(
    given: Mapping[str, Any] | str | bytes,
    *,
    settings: KlisSettings,
    types: ResourceTypes = STANDARD,
    yaml: bool = False,
    wide: frozenset[str] = frozenset(),
    on_the_way: bool = False,
) -> Manifest:
    """Read a manifest strictly; ``world.klis.identity.signature`` authenticates it.

    Args:
        given: the document, or its text.
        settings: the limits and choices in force.
        types: the resource types in force.
        yaml: whether text is YAML; JSON otherwise.
        wide: names of the types whose roots may be claimed; the engine needs the whole ``STATE`` for some proposals.
        on_the_way: whether it is part of other work, such as a single observed call of a run: then the new name of a
            RENAMES may be claimed elsewhere.

    Returns:
        The manifest with its effective triples.

    Raises:
        RefusedError: ``MALFORMED_SCHEMA``, ``MANIFEST_TOO_LARGE``, ``INVALID_PREDICATE``, ``AMBIGUOUS_RESOURCE``,
            ``UNKNOWN_RESOURCE_TYPE``, ``INTERNAL_CONTRADICTION`` or ``GLOBAL_SCOPE`` (KM-6.1 to KM-6.4, KM-7.2), each
            with the path of the fault.
    """
    document = _document(given, yaml=yaml)
    checked = _structure(document, settings)
    claims = tuple(_claims(checked["scope"], types, settings))
    ordered = checked.get("ordered", False)
    check_claims(claims, ordered=ordered)
    check_width(claims, types=types, min_depth=settings.min_subtree_depth, wide=wide)
    if not on_the_way and settings.manifest_rules >= 2:
        check_targets(claims)
    return Manifest(
        ver=checked["ver"],
        session_id=checked["session_id"],
        agent_id=checked["agent_id"],
        declared=tuple(claim.triple for claim in claims if claim.renamed_from is None),
        triples=effective_triples(claims),
        ordered=ordered,
        priority_timestamp=checked.get("priority_timestamp"),
        issued_at=checked.get("issued_at"),
        nonce=checked.get("nonce"),
        signature=checked.get("signature"),
        document=document,
    )


def manifest_document(text: str | bytes, *, yaml: bool = False) -> dict[str, Any]:
    """Parse the text of a manifest without checking its content.

    Args:
        text: JSON, or YAML without aliases, tags, merges and repeated keys, at most ``MAX_MANIFEST_CHARS`` long.
        yaml: whether it is YAML.

    Raises:
        RefusedError: ``MALFORMED_SCHEMA`` with the line where there is one, ``MANIFEST_TOO_LARGE``.
    """
    document: dict[str, Any] = thaw(_document(text, yaml=yaml))
    return document


def manifest_schema(settings: KlisSettings | None = None) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the wire form (KM-5).

    It covers the structure, the predicates and the limits, but no resource names and no contradictions.

    Args:
        settings: the limits in force; None is the defaults.
    """
    limits = settings or KlisSettings()
    schema = _DOCUMENT.json_schema()
    [intent] = schema.pop("$defs").values()
    intent["title"] = "Intent"
    fields = intent["properties"]
    fields["predicate"] = {"title": "Predicate", "enum": list(Predicate)}
    for name in ("resource", "to"):
        fields[name]["maxLength"] = limits.max_resource_chars
    intent["dependentSchemas"] = {"to": {"properties": {"predicate": {"const": Predicate.RENAMES.value}}}}
    schema["properties"]["scope"] |= {"items": {"$ref": "#/$defs/Intent"}, "maxItems": limits.max_triples}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "Intent manifest",
        "$defs": {"Intent": intent},
    }


def _document(given: Mapping[str, Any] | str | bytes, *, yaml: bool) -> Mapping[str, Any]:
    try:
        if isinstance(given, str | bytes):
            if len(given) > MAX_MANIFEST_CHARS:
                raise _too_large("$", "max_manifest_chars", MAX_MANIFEST_CHARS, "characters")
            given = _read_yaml(given) if yaml else read_json(given)
        document = freeze(given)
    except RefusedError as error:
        if error.code == "MANIFEST_TOO_LARGE":
            raise
        details = {"path": "$"} | error.details
        raise RefusedError(
            ErrorCode.MALFORMED_SCHEMA, f"The manifest cannot be read: {error.message}", **details
        ) from None
    if not isinstance(document, dict):
        raise RefusedError(
            ErrorCode.MALFORMED_SCHEMA, "A manifest is an object with the fields of KLIS-1 section 5.", path="$"
        )
    return document


def _structure(document: Mapping[str, Any], settings: KlisSettings) -> _Document:
    scope = document.get("scope")
    if isinstance(scope, list) and len(scope) > settings.max_triples:
        raise _too_large("$.scope", "max_triples", settings.max_triples, "triples")
    try:
        checked = _DOCUMENT.validate_python(document)
    except ValidationError as error:
        raise _malformed(error) from None
    for index, intent in enumerate(checked["scope"]):
        if "to" in intent and intent["predicate"] != Predicate.RENAMES:
            path = f"$.scope[{index}].to"
            raise RefusedError(ErrorCode.MALFORMED_SCHEMA, f"{path} is for RENAMES alone: the new name.", path=path)
        for name, text in (("resource", intent["resource"]), ("to", intent.get("to", ""))):
            if len(text) > settings.max_resource_chars:
                place = f"$.scope[{index}].{name}"
                raise _too_large(place, "max_resource_chars", settings.max_resource_chars, "characters")
    return checked


def _malformed(error: ValidationError) -> RefusedError:
    first = error.errors(include_url=False, include_input=False)[0]
    path, kind, location = "$", first["type"], first["loc"]
    for step in location if kind == "extra_forbidden" else _known(location):
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    clause = {
        "missing": "is missing",
        "extra_forbidden": "is no field of a manifest",
        "string_unicode": "is no Unicode text",
    }.get(kind, f"is wrong: {first['msg'].removeprefix('Value error, ')}")
    if path.endswith(".confidence") and kind != "extra_forbidden":
        clause = "is wrong: write High, Medium, Low or a number from 0 to 1"
    return RefusedError(ErrorCode.MALFORMED_SCHEMA, f"{path} {clause}.", path=path)


def _known(location: Sequence[int | str]) -> Iterator[int | str]:
    """Return a location without the steps that name an alternative of a type."""
    return (step for step in location if isinstance(step, int) or step in _FIELDS)


def _claims(scope: Sequence[_ManifestIntent], types: ResourceTypes, settings: KlisSettings) -> Iterator[Claim]:
    predicates = [
        read_predicate(intent["predicate"], f"$.scope[{index}].predicate") for index, intent in enumerate(scope)
    ]

    def resource(text: str, path: str) -> Resource:
        return read_resource(
            text,
            types=types,
            names=settings.names,
            max_chars=settings.max_resource_chars,
            max_depth=settings.max_depth,
            path=path,
            rules=settings.manifest_rules,
        )

    for index, (predicate, intent) in enumerate(zip(predicates, scope, strict=True)):
        confidence = read_confidence(intent.get("confidence", Confidence.HIGH))
        path = f"$.scope[{index}].resource"
        triple = Triple(predicate, resource(intent["resource"], path), confidence)
        yield Claim(index, triple, path)
        if "to" in intent:
            path = f"$.scope[{index}].to"
            target = Triple(Predicate.PROVIDES, resource(intent["to"], path), confidence)
            yield Claim(index, target, path, renamed_from=triple)


def _too_large(path: str, limit: str, maximum: int, unit: str) -> RefusedError:
    return RefusedError(
        ErrorCode.MANIFEST_TOO_LARGE,
        f"The manifest has more than {maximum} {unit} at {path} ({limit}); split the work.",
        path=path,
        limit=limit,
        maximum=maximum,
    )


class _StrictLoader(YamlLoader):
    def flatten_mapping(self, node: pyyaml.MappingNode) -> None:
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                raise pyyaml.constructor.ConstructorError(None, None, "a merge; write its keys out", key.start_mark)
        super().flatten_mapping(node)


def _read_yaml(text: str | bytes) -> Any:
    """Read one YAML document of the JSON kind.

    It has no aliases, which can make a small text huge, no tags, no merges and no repeated keys.
    """
    try:
        check_yaml(text, max_depth=_MAX_YAML_DEPTH, plain="a manifest", without=["tag"])
        return pyyaml.load(text, _StrictLoader)  # noqa: S506 -- it is a SafeLoader
    except (pyyaml.YAMLError, ValueError) as error:  # an invalid number, date or encoding
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f" at line {mark.line + 1}, column {mark.column + 1}"
        raise RefusedError(
            ErrorCode.MALFORMED_YAML, f"{getattr(error, 'problem', None) or 'it is no YAML'}{place}."
        ) from None
