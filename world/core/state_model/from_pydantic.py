"""State models of pydantic models: their JSON Schema in the dialect, or a refusal that names the field.

The schema is pydantic's own, in validation mode and by alias, without titles and texts. What the dialect cannot say is
refused with what to write instead, so that nothing a model says is ignored. Validators in Python are not part of
the schema; ``world.core.state_model.validators`` runs them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from pydantic import BaseModel, TypeAdapter, WithJsonSchema
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticOmit, PydanticUndefined

from world.core.state_model.dialect import DIALECT, KEYWORDS, read_model
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.immutable_json import freeze
from world.model.paths import format_path
from world.model.secrets.literal import is_secret_schema

__all__ = ["InputModel", "StateModel", "input_model", "state_model"]

_ANNOTATIONS: Final = frozenset(
    {"title", "description", "examples", "deprecated", "readOnly", "writeOnly", "discriminator", "$comment"}
)
_BOUNDS: Final = ("ge", "gt", "le", "lt", "multiple_of")
_UUIDS: Final = frozenset(f"uuid{version}" for version in range(1, 9))
_BY_NAME: Final = ("properties", "$defs")
_LISTS: Final = ("anyOf", "prefixItems")
_SINGLE: Final = ("items", "additionalProperties", "propertyNames")
_INSTEAD: Final[Mapping[str, tuple[str, str]]] = {
    "decimal": ("a Decimal", "int in the smallest unit (cents), or str with a pattern"),
    "bytes": ("bytes", "str, with the bytes in base64"),
    "set": ("a set, which has no order in JSON", "list[T] or dict[str, bool]"),
    "frozenset": ("a frozenset, which has no order in JSON", "list[T] or dict[str, bool]"),
    "time": ("a time of day", "str with a pattern, or int for the minutes since midnight"),
    "timedelta": ("a timedelta", "int for the milliseconds"),
    "complex": ("a complex number", "two floats"),
    "fraction": ("a Fraction", "two ints"),
    "url": ("a URL type", "Annotated[str, Field(pattern=r'^https://')]"),
    "multi-host-url": ("a URL type", "Annotated[str, Field(pattern=r'^https://')]"),
    "json": ("Json", "the type of the value itself"),
    "generator": ("an iterator", "list[T]"),
    "computed-field": ("a computed field", "a computed value of the domain (@domain.computed)"),
}
"""What has no form in the dialect, and what to write instead, by the type in pydantic's core schema."""


@dataclass(frozen=True, slots=True)
class StateModel:
    """The portable state of a pydantic model.

    Args:
        spec: ``{"dialect", "schema"}``.
        validators: functions in Python that validate values of it too, those of pydantic included.
    """

    spec: dict[str, Any]
    validators: tuple[Callable[..., Any], ...] = ()


@dataclass(frozen=True, slots=True)
class InputModel:
    """The portable input of a pydantic model, ``{"dialect", "schema", "required"}``."""

    spec: dict[str, Any]


def input_model(model: type[BaseModel]) -> InputModel:
    """Return the portable input of a model.

    Raises:
        RefusedError: ``UNSUPPORTED_TYPE`` with the field and what to write instead.
    """
    schema, _ = _generated(model, is_state=False)
    _check(model, schema)
    return InputModel({"dialect": DIALECT, "schema": schema, "required": bool(schema.get("required"))})


def state_model(model: type[BaseModel]) -> StateModel:
    """Return the portable state of a model; each field with a default other than None is always present.

    Raises:
        RefusedError: ``UNSUPPORTED_TYPE`` with the field and what to write instead; for a default that is no JSON, that
            does not fit, or that is another one each time.
    """
    schema, validators = _generated(model, is_state=True)
    if schema.get("type") != "object" or model.__pydantic_root_model__:
        _refuse(model, (), "a model whose JSON form is no object", "a BaseModel with the value as a field")
    required = list(schema.get("required", ()))
    for name, field in model.model_fields.items():
        default = field.get_default(call_default_factory=True, validated_data={})
        if default is PydanticUndefined:
            continue
        wire = field.validation_alias if isinstance(field.validation_alias, str) else field.alias or name
        plain = _plain(model, name, field.annotation, default)
        if field.default_factory is not None:
            again = field.get_default(call_default_factory=True, validated_data={})
            if _plain(model, name, field.annotation, again) != plain:
                _refuse(model, (name,), "a default that is another one each time", "a field without default")
        schema["properties"][wire]["default"] = plain
        if plain is not None and wire not in required:
            required.append(wire)
    schema |= {"required": required} if required else {}
    _check(model, schema)
    return StateModel({"dialect": DIALECT, "schema": schema}, validators)


def _plain(model: type[BaseModel], name: str, annotation: Any, default: Any) -> Any:
    try:
        plain = TypeAdapter(annotation).dump_python(default, mode="json", by_alias=True, warnings="error")
        return freeze(plain)
    except Exception as error:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_TYPE, f"The default of {model.__name__}.{name} is no JSON: {error}", field=name
        ) from error


def _refuse(model: type[Any], path: tuple[str, ...], what: str, instead: str) -> NoReturn:
    field = format_path(path) if path else ""
    shown = f"{model.__name__}.{field}" if field else model.__name__
    raise RefusedError(
        ErrorCode.UNSUPPORTED_TYPE,
        f"{shown} is {what}, which a portable schema cannot express; write {instead}.",
        model=model.__name__,
        field=field,
        instead=instead,
    )


def _check(model: type[BaseModel], schema: dict[str, Any]) -> None:
    """Refuse a schema with keywords, patterns or defaults that the dialect does not accept."""
    faults: list[tuple[str, str]] = []
    read_model(freeze({"dialect": DIALECT, "schema": schema}), "$", faults)
    if faults:
        where, message = faults[0]
        place = where.removeprefix("$.schema").replace(".properties.", ".").replace(".$defs.", ".").lstrip(".")
        raise RefusedError(
            ErrorCode.UNSUPPORTED_TYPE,
            f"{model.__name__} says at {place or 'its root'} what a portable schema cannot express. {message} Write a "
            "constraint of the dialect (see state models in docs/developer.md), or a field_validator.",
            model=model.__name__,
            field=place,
        )


def _is_json(number: int) -> bool:
    try:
        freeze(number)
    except RefusedError:
        return False
    return True


def _is_of_pydantic(function: Callable[..., Any]) -> bool:
    return getattr(function, "__module__", "").startswith("pydantic")


def _generated(model: type[BaseModel], *, is_state: bool) -> tuple[dict[str, Any], tuple[Callable[..., Any], ...]]:
    found: list[_Generator] = []

    class _Named(_Generator):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.model, self.is_state = model, is_state
            found.append(self)

    try:
        document = model.model_json_schema(by_alias=True, mode="validation", schema_generator=_Named)
    except RefusedError:
        raise
    except Exception as error:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_TYPE, f"{model.__name__} has no JSON form: {error}", model=model.__name__
        ) from error
    return _at_root(_tidied(document)), tuple(function for one in found for function in one.functions)


def _at_root(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema whose root is no reference; a recursive model keeps its definition too."""
    name = schema.get("$ref")
    if not isinstance(name, str):
        return schema
    return {**schema["$defs"][name.removeprefix("#/$defs/")], "$defs": schema["$defs"]}


def _tidied(schema: Any) -> Any:
    """Return a schema without texts, with closed objects and with secrets in the form of the dialect."""
    if not isinstance(schema, dict):
        return schema
    if is_secret_schema(schema) and schema.get("type") == "string":
        words = {"format", "writeOnly", "secret", *_ANNOTATIONS}
        return {**{key: value for key, value in schema.items() if key not in words}, "secret": True}
    kept = {key: value for key, value in schema.items() if key not in _ANNOTATIONS}
    if kept.get("format") in _UUIDS:  # the version is in the pattern
        kept["format"] = "uuid"
    if "oneOf" in kept:  # the alternatives of a tagged union exclude each other
        kept["anyOf"] = kept.pop("oneOf")
    for key in _BY_NAME:
        if isinstance(kept.get(key), dict):
            kept[key] = {name: _tidied(inner) for name, inner in kept[key].items()}
    for key in _LISTS:
        if isinstance(kept.get(key), list):
            kept[key] = [_tidied(inner) for inner in kept[key]]
    for key in _SINGLE:
        if key in kept:
            kept[key] = _tidied(kept[key])
    if "properties" in kept:
        kept.setdefault("additionalProperties", False)
    return kept


class _Generator(GenerateJsonSchema):
    """pydantic's generator, with a refusal for each type that the dialect cannot express."""

    model: type[BaseModel]
    is_state: bool

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.path: list[str] = []
        self.names: dict[int, str] = {}
        self.functions: list[Callable[..., Any]] = []

    def refuse(self, what: str, instead: str) -> NoReturn:
        _refuse(self.model, tuple(self.path), what, instead)

    def generate_inner(self, schema: Any) -> dict[str, Any]:
        kind = schema["type"]
        if kind in _INSTEAD:
            self.refuse(*_INSTEAD[kind])
        if kind.startswith("function-"):
            self.functions.append(schema["function"]["function"])
        after = schema.get("post_init")
        if after:  # the name of a model's method; of a dataclass, whether it has one
            self.functions.append(getattr(schema["cls"], "__post_init__" if after is True else after))
        if schema.get("custom_init"):
            self.functions.append(schema["cls"].__init__)
        name = self.names.get(id(schema))
        if name is None:
            self._check_class(schema)
            self._check_overrides(schema)
            self._check_values(schema)
            return super().generate_inner(schema)
        self.path.append(name)
        try:
            self._check_alias(schema)
            self._check_overrides(schema)
            return super().generate_inner(schema)
        except PydanticOmit:
            self.refuse("a field without a JSON schema (SkipJsonSchema)", "the type of the field without it")
        finally:
            self.path.pop()

    def _check_class(self, schema: Any) -> None:
        for field in schema.get("computed_fields", ()):
            self.path.append(field["property_name"])
            self.refuse(*_INSTEAD["computed-field"])
        decorators = getattr(schema.get("cls"), "__pydantic_decorators__", None)
        if decorators is not None and (decorators.field_serializers or decorators.model_serializers):
            several = [*decorators.field_serializers, *decorators.model_serializers]
            self.refuse(f"a model with the serializer {several[0]}", "the JSON form as the type of the field")

    def _check_values(self, schema: Any) -> None:
        for word in _BOUNDS:
            bound = schema.get(word)
            if isinstance(bound, float) and not math.isfinite(bound):
                self.refuse(f"a number with the bound {word}={bound}", "no bound, or a finite one")
            if isinstance(bound, int) and not _is_json(bound):
                self.refuse(f"a number with the bound {word}={bound}", "a bound below 2^53")
        made = schema.get("serialization")
        if made is not None and made["type"].startswith("function-") and not _is_of_pydantic(made["function"]):
            self.refuse("a type with a serializer of its own", "the JSON form as the type of the field")

    def _check_overrides(self, schema: Any) -> None:
        """Refuse a JSON schema that says something else than pydantic enforces."""
        metadata, cls = schema.get("metadata") or {}, schema.get("cls")
        written = [metadata.get("pydantic_js_extra"), getattr(cls, "model_config", {}).get("json_schema_extra")]
        for extra in written:
            words = sorted(KEYWORDS.intersection(extra) - {"secret"}) if isinstance(extra, Mapping) else []
            if words or callable(extra):
                named = ", ".join(words) or "a function"
                self.refuse(f"a schema that is changed by json_schema_extra ({named})", "the constraint in Field(...)")
        for function in metadata.get("pydantic_js_annotation_functions", ()):
            if isinstance(getattr(function, "__self__", None), WithJsonSchema):
                self.refuse("a type with a JSON schema of its own (WithJsonSchema)", "the type and its constraints")

    def _check_alias(self, schema: Any) -> None:
        given, written = schema.get("validation_alias"), schema.get("serialization_alias")
        if given is not None and (not isinstance(given, str) or (written is not None and written != given)):
            self.refuse("a field with several aliases", "alias= with one name for reading and writing")
        if given is None and written is not None:
            self.refuse("a field with an alias for writing only", "alias= with one name for reading and writing")

    def _noted(self, fields: Mapping[str, Any]) -> None:
        self.names.update({id(field): name for name, field in fields.items()})
        known: dict[str, str] = {}
        for name, field in fields.items():
            wire = field.get("validation_alias") or name
            earlier = known.setdefault(wire, name) if isinstance(wire, str) else name
            if earlier != name:
                self.path.append(name)
                self.refuse(f"a second field of the JSON name {wire!r}, after {earlier!r}", "an alias of its own")

    def model_fields_schema(self, schema: Any) -> dict[str, Any]:
        self._noted(schema["fields"])
        return super().model_fields_schema(schema)

    def typed_dict_schema(self, schema: Any) -> dict[str, Any]:
        self._noted(schema["fields"])
        return super().typed_dict_schema(schema)

    def dataclass_args_schema(self, schema: Any) -> dict[str, Any]:
        self._noted({field["name"]: field for field in schema["fields"]})
        return super().dataclass_args_schema(schema)

    def str_schema(self, schema: Any) -> dict[str, Any]:
        for word in ("strip_whitespace", "to_lower", "to_upper"):
            if self.is_state and (schema.get(word) or getattr(self._config, f"str_{word}", False)):
                self.refuse(f"a text that is changed ({word})", "the changed text in the action, and a pattern here")
        pattern = schema.get("pattern")
        if isinstance(pattern, re.Pattern) and pattern.flags != re.UNICODE:
            self.refuse("a pattern with flags", "the flags in the pattern, such as (?i)")
        return super().str_schema(schema)

    def _temporal(self, schema: Any, make: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        if {"gt", "ge", "lt", "le"} & schema.keys():
            self.refuse(f"a {schema['type']} with bounds", "a field_validator that compares it")
        if schema.get("now_op") is not None:
            self.refuse(f"a {schema['type']} that is compared with the clock", "a check in the action, with ctx.now")
        if schema.get("tz_constraint") == "naive":
            self.refuse("a date-time without an offset", "AwareDatetime")
        return make(schema)

    def date_schema(self, schema: Any) -> dict[str, Any]:
        return self._temporal(schema, super().date_schema)

    def datetime_schema(self, schema: Any) -> dict[str, Any]:
        return self._temporal(schema, super().datetime_schema)

    def uuid_schema(self, schema: Any) -> dict[str, Any]:
        version = schema.get("version")
        found: dict[str, Any] = {"type": "string", "format": "uuid"}
        return found if version is None else {**found, "pattern": f"^.{{14}}{version}"}

    def float_schema(self, schema: Any) -> dict[str, Any]:
        if schema.get("allow_inf_nan"):
            self.refuse("a float that may be infinite or NaN, which JSON has not", "float | None")
        return super().float_schema(schema)

    def dict_schema(self, schema: Any) -> dict[str, Any]:
        names = self.generate_inner(schema["keys_schema"]) if "keys_schema" in schema else {"type": "string"}
        known = names
        if "$ref" in names:
            known = self.get_schema_from_definitions(names["$ref"]) or {}  # type: ignore[arg-type]
        if known.get("type") != "string":
            self.refuse("a map whose keys are no texts", "dict[str, T]")
        found: dict[str, Any] = {"type": "object", "additionalProperties": True}
        if "values_schema" in schema:
            found["additionalProperties"] = self.generate_inner(schema["values_schema"]) or True
        if names.keys() - {"type", "title"}:
            found["propertyNames"] = names
        self.update_with_validations(found, schema, self.ValidationsMapping.object)
        return found

    def function_plain_schema(self, schema: Any) -> dict[str, Any]:
        if schema.get("json_schema_input_schema") is None:
            self.refuse("a type with a validator alone (PlainValidator)", "a type of JSON with an AfterValidator")
        return super().function_plain_schema(schema)

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> dict[str, Any]:
        cls = schema.get("cls")
        named = f"of type {cls.__name__}" if isinstance(cls, type) else f"a {schema['type']}"
        self.refuse(f"{named}, which has no JSON form", "a BaseModel, or a type of JSON")

    def emit_warning(self, kind: Any, detail: str) -> None:
        self.refuse(f"a field whose default is no JSON ({detail})", "a default of a JSON type")
