"""Reading of portable domains: JSON data, and JSON, YAML and MEL files.

A portable domain is a schema and, beside it, the member ``migrations`` (``world.core.migrations``), which is no part of
the schema. Source: design section 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from world.core.domain import Domain
from world.core.domain_rules import RULES
from world.core.migrations import portable_migrations
from world.core.schema import DomainSchema, load_schema
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.markup import load_yaml
from world.model.canonical_json import read_json
from world.model.immutable_json import freeze
from world.sizes import MAX_DOMAIN_BYTES

__all__ = ["load_domain"]


def load_domain(source: str | Path | Mapping[str, Any], *, oldest_rules: int = RULES) -> Domain[Any]:
    """Read a domain from portable data.

    Args:
        source: the schema as JSON data, or the path of a JSON, YAML or MEL file.
        oldest_rules: version of the rules of a domain under which a schema that the newest rules refuse is accepted,
            for a log that adopted it under them; it cannot be adopted again.

    Raises:
        RefusedError: ``INVALID_SCHEMA`` with every fault; ``INVALID_MEL`` with every error of a MEL source;
            ``PYTHON_REQUIRED`` where functions are named;
            ``MALFORMED_JSON``, ``MALFORMED_YAML``, ``YAML_TOO_LARGE``, ``NOT_CANONICAL`` or ``FILE_UNREADABLE`` for
            the file.
    """
    if isinstance(source, Mapping):
        return _portable_domain(freeze(source), oldest_rules)
    path = Path(source)
    try:
        return _portable_domain(_read_file(path), oldest_rules)
    except RefusedError as refused:
        shown = str(path.resolve() if ".." in path.parts else path)
        details = {**refused.details, "file": shown}
        raise RefusedError(refused.code, f"The domain file {shown}: {refused.message}", **details) from None


def _portable_domain(portable: Any, oldest_rules: int) -> Domain[Any]:
    """Return a domain from portable data; its migrations are no part of the schema."""
    if not isinstance(portable, Mapping) or "migrations" not in portable:
        return Domain.of_schema(_schema(portable, oldest_rules))
    schema = _schema({name: part for name, part in portable.items() if name != "migrations"}, oldest_rules)
    return Domain.of_schema(schema, portable_migrations(portable["migrations"]))


def _schema(portable: Any, oldest_rules: int) -> DomainSchema:
    try:
        return load_schema(portable)
    except RefusedError:
        if oldest_rules == RULES:
            raise
        try:
            return load_schema(portable, oldest_rules)
        except RefusedError:
            pass
        raise  # the faults under the newest rules


def _read_file(path: Path) -> Any:
    try:
        size = path.stat().st_size
        if size > MAX_DOMAIN_BYTES:
            raise RefusedError(
                ErrorCode.FILE_UNREADABLE,
                f"It has {size} bytes; the limit is {MAX_DOMAIN_BYTES} (MAX_DOMAIN_BYTES). Split the domain.",
                path=str(path),
            )
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise RefusedError(ErrorCode.FILE_UNREADABLE, f"It cannot be read: {why}.", path=str(path)) from None
    if path.suffix == ".mel":
        from world.core.mel.loading import schema_of_mel

        return schema_of_mel(content, path.name)
    if path.suffix not in (".yaml", ".yml"):
        return read_json(content)
    return freeze(load_yaml(content))
