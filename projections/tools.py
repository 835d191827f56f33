"""Tool definitions for language models, and intent bodies from tool calls.

A definition is ``{"name", "description", "input_schema"}``; the forms of vendors differ only in names. A tool name has
at most 64 characters out of ``[A-Za-z0-9_-]`` and encodes the action's type: a dot is written ``-``, a hyphen ``_-``,
an underscore ``__``, any other character ``_x``, its code point in hex, ``_``. A longer name is truncated and ends in
``_h`` and the first digits of its SHA-256; the table of the tool set maps it to its action.

The input of a tool is an object. Any other input of an action is wrapped as the member ``input``.
Source: intent specification 3.4 and 7.4 (LLM toolsets).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal

from projections.catalog import ActionCatalog, ProjectedAction
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.canonical_json import sha256_hex
from world.model.immutable_json import freeze
from world.model.intent import IntentBody
from world.model.record import Record

__all__ = ["MAX_NAME", "Tool", "ToolSet", "action_type", "tool_name", "tools_of"]

MAX_NAME: Final = 64
"""Maximum length of a tool name, in characters."""

_DIGITS: Final = 32  # of the hash in a truncated name: 128 bits
_ROOM: Final = MAX_NAME - _DIGITS - len("_h")
_UNESCAPED: Final = re.compile(r"[A-Za-z0-9]")
_PIECE: Final = re.compile(r"[A-Za-z0-9]|-|_-|__|_x(?:0|[1-9a-f][0-9a-f]*)_")
_WRITTEN: Final = {".": "-", "-": "_-", "_": "__"}
_READ: Final = {written: character for character, written in _WRITTEN.items()}
_ANYTHING: Final = freeze({"type": "object", "properties": {}})


def tool_name(action: str) -> str:
    """Return the tool name of an action; different actions have different names."""
    pieces = [_written(character) for character in action]
    whole = "".join(pieces)
    if len(whole) <= MAX_NAME:
        return whole
    begin = ""
    for piece in pieces:
        if len(begin) + len(piece) > _ROOM:
            break
        begin += piece
    return f"{begin}_h{sha256_hex(action.encode('utf-8', 'surrogatepass'))[:_DIGITS]}"


def _written(character: str) -> str:
    if _UNESCAPED.fullmatch(character):
        return character
    return _WRITTEN.get(character) or f"_x{ord(character):x}_"


def action_type(name: str) -> str | None:
    """Return the action of a tool name; None for a truncated or an invalid name."""
    characters, at = [], 0
    while at < len(name):
        match = _PIECE.match(name, at)
        if match is None:
            return None
        piece = match[0]
        at = match.end()
        if piece.startswith("_x"):
            code = int(piece[2:-1], 16)
            if code > 0x10FFFF:
                return None
            characters.append(chr(code))
        else:
            characters.append(_READ.get(piece, piece))
    action = "".join(characters)
    return action if action and tool_name(action) == name else None


class Tool(Record, frozen=True, omit_defaults=True):
    """One action as a tool.

    Args:
        name: the tool name.
        description: the description for the model.
        input_schema: JSON Schema of an object.
        action: type of the action.
        takes: part of the call that is the action's input: the whole ``object``; its ``member`` ``input``; or
            ``anything``, the whole object of an action without an input schema, where an empty object is no input.
    """

    name: str
    description: str
    input_schema: Any
    action: str
    takes: Literal["object", "member", "anything"] = "object"
    WIRE: ClassVar = "name description input_schema=input_schema"


class ToolSet(Record, frozen=True, omit_defaults=True):
    """The tools of one catalog.

    Args:
        catalog_hash: hash of the catalog.
        tools: tools by name, in the catalog's order.
    """

    catalog_hash: str
    tools: Mapping[str, Tool]
    WIRE: ClassVar = "catalog_hash tools=each names"

    @property
    def each(self) -> list[Tool]:
        """The tools, in the catalog's order."""
        return list(self.tools.values())

    @property
    def names(self) -> dict[str, str]:
        """The table from each tool's name to its action's type."""
        return {name: tool.action for name, tool in self.tools.items()}

    def body(self, name: str, arguments: Mapping[str, Any] | None = None) -> IntentBody:
        """Return the intent body of a tool call; its input is not checked here.

        Args:
            name: the tool name.
            arguments: the arguments of the call.

        Raises:
            RefusedError: ``UNKNOWN_TOOL`` with the known names; ``INVALID_VALUE`` for arguments that are not an
                object.
        """
        tool = self.tools.get(name)
        if tool is None:
            known = ", ".join(self.tools) or "none"
            raise RefusedError(
                ErrorCode.UNKNOWN_TOOL, f"There is no tool {name!r:.80}; there are: {known}.", names=list(self.tools)
            )
        if arguments is not None and not isinstance(arguments, Mapping):
            raise RefusedError(ErrorCode.INVALID_VALUE, f"The arguments of the tool {name} must be an object.")
        given: Any = dict(arguments or {})
        if tool.takes == "member":
            given = given.get("input")
        elif tool.takes == "anything":
            given = given or None
        return IntentBody.read({"type": tool.action, "input": given})


def tools_of(catalog: ActionCatalog) -> ToolSet:
    """Return the tools of a catalog for models.

    Unavailable actions are left out; unknown ones are included, with a note in the description (INV-AC5).

    Args:
        catalog: a catalog in a mode that shows descriptions, ``llm`` or ``debug``.
    """
    offered = (action for action in catalog.actions if action.availability.status != "unavailable")
    tools = [_tool(action) for action in offered]
    return ToolSet(catalog.catalog_hash, {tool.name: tool for tool in tools})


def _tool(action: ProjectedAction) -> Tool:
    schema, takes = _form(action.input_schema)
    description = action.description or action.label or action.type
    if action.availability.status == "unknown":
        description = f"{description.rstrip('.')}. Whether this is available now is decided when it is called."
    return Tool(tool_name(action.type), description, schema, action.type, takes)


def _form(schema: Any) -> tuple[Any, Literal["object", "member", "anything"]]:
    if schema is None or schema is True:
        return _ANYTHING, "anything"
    schema = _named_at_root(schema)
    if isinstance(schema, Mapping) and schema.get("type") == "object":
        return schema, "object"
    inner = _moved(schema)
    wrapped = {name: inner.pop(name) for name in _DEFINITIONS if name in inner} if isinstance(inner, dict) else {}
    members = {"type": "object", "properties": {"input": inner}, "required": ["input"], "additionalProperties": False}
    return freeze(members | wrapped), "member"


def _named_at_root(schema: Any) -> Any:
    """Return the definition to which a schema is only a reference, else the schema."""
    reference = schema.get("$ref") if isinstance(schema, Mapping) else None
    if not isinstance(reference, str):
        return schema
    for name in _DEFINITIONS:
        definitions = schema.get(name)
        defined = definitions.get(reference.removeprefix(f"#/{name}/")) if isinstance(definitions, Mapping) else None
        if isinstance(defined, Mapping) and "$ref" not in defined:
            return freeze({**defined, **{key: value for key, value in schema.items() if key != "$ref"}})
    return schema


def _moved(schema: Any, *, is_map: bool = False) -> Any:
    """Return a copy of a schema with its references adjusted to the place ``input``."""
    if isinstance(schema, list):
        return [_moved(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    moved = {}
    for name, value in schema.items():
        if is_map:
            moved[name] = _moved(value)
        elif name == "$ref" and isinstance(value, str):
            stays = (value != "#" and not value.startswith("#/")) or value.startswith(_DEFINED)
            moved[name] = value if stays else f"#/properties/input{value[1:]}"
        else:
            moved[name] = value if name in _VALUES else _moved(value, is_map=name in _MAPS)
    return moved


_DEFINITIONS: Final = ("$defs", "definitions")  # kept at the root, where models expect them
_DEFINED: Final = tuple(f"#/{name}/" for name in _DEFINITIONS)
_MAPS: Final = frozenset({*_DEFINITIONS, "properties", "patternProperties", "dependentSchemas"})
_VALUES: Final = frozenset({"const", "enum", "default", "examples"})
