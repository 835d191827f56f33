"""A case as text for a file of cases: TOML or YAML."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import yaml

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.markup import YAML_CORE, load_yaml
from world.model.immutable_json import thaw

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
MAX_INLINE: Final = 72
"""Maximum length of a table or a list of tables on one line; others get headers of their own."""


def case_text(case: Mapping[str, Any], form: Literal["toml", "yaml"]) -> str:
    """Return the text of a case, to be appended to a file of cases.

    Raises:
        RefusedError: ``INVALID_VALUE`` where the case holds null, which TOML cannot say.
    """
    plain = thaw(dict(case))
    if form == "yaml":
        text = _yaml(plain, allow_unicode=True)
        return text if load_yaml(text) == [plain] else _yaml(plain, allow_unicode=False)  # odd ends of lines
    return "\n".join(_table(("cases",), plain, is_item=True)).lstrip("\n") + "\n"


class _Dumper(yaml.SafeDumper):
    """Dumper that quotes every text that YAML 1.1 or 1.2 would read as something else."""


for _tag, _pattern, _first in YAML_CORE:
    _Dumper.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern})\\Z"), _first)


def _yaml(plain: Any, *, allow_unicode: bool) -> str:
    return str(yaml.dump([plain], Dumper=_Dumper, sort_keys=False, allow_unicode=allow_unicode, width=120))


def _table(place: tuple[str, ...], table: Mapping[str, Any], *, is_item: bool) -> Iterator[str]:
    """Yield the lines of a table; what needs headers of its own comes behind all else."""
    headed = {key: value for key, value in table.items() if _has_header(value)}
    if is_item or len(headed) < len(table):
        name = ".".join(map(_key, place))
        yield ""
        yield f"[[{name}]]" if is_item else f"[{name}]"
    for key, value in table.items():
        if key not in headed:
            yield f"{_key(key)} = {_value(value)}"
    for key, value in headed.items():
        for one in value if isinstance(value, list) else [value]:
            yield from _table((*place, key), one, is_item=isinstance(value, list))


def _has_header(value: Any) -> bool:
    tables = value if isinstance(value, list) else [value]
    return bool(value) and all(isinstance(one, dict) for one in tables) and len(_value(value)) > MAX_INLINE


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _value(value: Any) -> str:
    if value is None:
        raise RefusedError(ErrorCode.INVALID_VALUE, "The case holds null, which TOML cannot say; take --format yaml.")
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {_value(one)}" for key, one in value.items()) + " }" if value else "{}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return _text(value) if isinstance(value, str) else json.dumps(value)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
